//! Is a stored tree sound?
//!
//! Pages are a function of the entries, so there is one complete test: read every entry, build a
//! tree of them anew, and compare root and rows. A wrong commitment, a page cut elsewhere, an
//! orphan, a stale or a missing row all show.

use std::fmt;

use crate::batch::Batch;
use crate::error::TreeError;
use crate::memory::MemoryStore;
use crate::page_key::describe;
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::{PageStore, Snapshot, StoreError, Table};
use crate::tree::Tree;

/// How many entries are built in at a time.
const BATCH: usize = 50_000;
/// Pages kept in memory of the tree that is built for comparison, beside its store.
const CACHE_BYTES: usize = 64 << 20;

/// Something wrong with a stored tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A page that does not belong to the tree.
    Orphan {
        /// The page.
        page: String,
    },
    /// A page that the entries call for is not there.
    Missing {
        /// The page.
        page: String,
    },
    /// A page's bytes are not what the entries make of it.
    Differs {
        /// The page.
        page: String,
    },
    /// The entries have another root than the tree says.
    Root {
        /// What the tree says, in hex.
        stored: String,
        /// What its entries make, in hex.
        computed: String,
    },
    /// A page cannot be read; what lies below it was not looked at.
    Unreadable {
        /// Which, and why.
        what: String,
    },
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Orphan { page } => write!(f, "{page} belongs to no tree"),
            Self::Missing { page } => write!(f, "{page} is missing"),
            Self::Differs { page } => write!(f, "{page} is not what the entries make of it"),
            Self::Root { stored, computed } => {
                write!(f, "the root is 0x{stored}, and the entries have 0x{computed}")
            }
            Self::Unreadable { what } => f.write_str(what),
        }
    }
}

impl<S: Scheme + Clone> Tree<S> {
    /// Checks the last commit, entry by entry and row by row. `progress` is told the entries read.
    ///
    /// It builds the tree anew in memory, so it needs as much of that as the tree has pages.
    ///
    /// # Errors
    /// If the store fails. Damage is no error but a finding.
    pub fn check<N: Snapshot>(
        &self,
        snapshot: &N,
        mut progress: impl FnMut(u64),
    ) -> Result<Vec<Finding>, TreeError> {
        self.findings(snapshot, &mut progress)
    }

    fn findings(
        &self,
        snapshot: &dyn ReadRows,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Vec<Finding>, TreeError> {
        let store = MemoryStore::new();
        let mut fresh = self.sibling(&store.snapshot()?, CACHE_BYTES)?;
        let mut batch = Batch::new();
        let mut read = 0;
        for entry in self.entries_of(snapshot, None, (b"", None)) {
            match entry {
                Ok(entry) => batch.put(&entry.key, &entry.value),
                Err(error @ TreeError::OtherSnapshot { .. }) => return Err(error),
                Err(TreeError::Store(error)) if !matches!(error, StoreError::Corrupt { .. }) => {
                    return Err(error.into());
                }
                Err(error) => return Ok(vec![Finding::Unreadable { what: error.to_string() }]),
            }
            read += 1;
            if batch.len() == BATCH {
                add(&store, &mut fresh, std::mem::take(&mut batch))?;
                progress(read);
            }
        }
        if let Err(error) = add(&store, &mut fresh, batch) {
            return Ok(vec![Finding::Unreadable { what: error.to_string() }]);
        }
        progress(read);
        let mut findings = Vec::new();
        if fresh.root() != self.root() {
            let hex = |root: S::Root| crate::error::hex(root.as_ref());
            let (stored, computed) = (hex(self.root()), hex(fresh.root()));
            findings.push(Finding::Root { stored, computed });
        }
        self.compare(snapshot, &store.snapshot()?, &mut findings)?;
        Ok(findings)
    }

    /// Compares the rows of two stores, both sorted.
    fn compare(
        &self,
        stored: &dyn ReadRows,
        fresh: &dyn ReadRows,
        findings: &mut Vec<Finding>,
    ) -> Result<(), TreeError> {
        let (low, high) = self.page_range();
        let mut expected = Vec::new();
        fresh.scan(Table::Pages, &low, Some(&high), &mut |key, row| {
            expected.push((key.to_vec(), crate::image::checksum(key, row)));
            true
        })?;
        let mut expected = expected.into_iter().peekable();
        stored.scan(Table::Pages, &low, Some(&high), &mut |key, row| {
            while let Some((missing, _)) = expected.next_if(|(other, _)| &other[..] < key) {
                findings.push(Finding::Missing { page: describe(&missing) });
            }
            match expected.next_if(|(other, _)| other == key) {
                None => findings.push(Finding::Orphan { page: describe(key) }),
                Some((_, sum)) if sum != crate::image::checksum(key, row) => {
                    findings.push(Finding::Differs { page: describe(key) });
                }
                Some(_) => {}
            }
            true
        })?;
        findings.extend(expected.map(|(key, _)| Finding::Missing { page: describe(&key) }));
        Ok(())
    }
}

fn add<S: Scheme>(store: &MemoryStore, tree: &mut Tree<S>, batch: Batch) -> Result<(), TreeError> {
    let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    tree.commit(store, &pending, None)?;
    Ok(())
}
