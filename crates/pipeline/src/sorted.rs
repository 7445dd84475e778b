//! Leaves in order, for who wants no tree of them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::sync::Arc;

use crate::error::PipelineError;
use crate::gather::{Buffer, Gather};
use crate::merge::Merge;
use crate::run_file::RunFile;

/// All leaves of a [`Gather`], in order of their keys.
///
/// ```
/// use spinney_pipeline::{Gather, Options, RunName, Scratch};
/// use spinney_tree::{MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
///
/// let scratch = Scratch::new()?;
/// let tree = Tree::open(Mpt, TreeId(1), &MemoryStore::new().snapshot()?, 1 << 20)?;
/// let options = Options::default();
/// let name = RunName::of(&tree, b"letters", &options);
/// let mut gather = Gather::open(scratch.path(), name, options)?;
/// for letter in ["b", "c", "a"] {
///     gather.push(letter.as_bytes(), b"")?;
/// }
/// let mut leaves = gather.into_sorted()?;
/// assert_eq!((leaves.leaf(), leaves.count()), (Some((&b"a"[..], &b""[..])), 3));
/// leaves.advance()?;
/// assert_eq!(leaves.leaf(), Some((&b"b"[..], &b""[..])));
/// leaves.remove()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// Leaves that fit the memory of their run are not written to files.
#[derive(Debug)]
pub struct SortedLeaves {
    gather: Gather,
    from: Source,
    count: u64,
    last: Vec<u8>,
}

/// Where the leaves lie.
#[derive(Debug)]
enum Source {
    Files {
        runs: Vec<Arc<RunFile>>,
        merge: Merge,
    },
    Memory {
        leaves: Buffer,
        /// The one that it stands on.
        at: usize,
    },
}

impl Source {
    fn leaf(&self) -> Option<(&[u8], &[u8])> {
        match self {
            Self::Files { merge, .. } => merge.leaf(),
            Self::Memory { leaves, at } => leaves.leaf(*at),
        }
    }
}

impl Gather {
    /// Sorts all leaves that were pushed. Those of a run that nobody goes on with: what is not in a
    /// file yet need not get there.
    ///
    /// # Errors
    /// If a file cannot be written or read, or the source has fewer leaves than the run holds of
    /// it.
    pub fn into_sorted(mut self) -> Result<SortedLeaves, PipelineError> {
        let (from, count) = if let Some((leaves, count)) = self.sorted_in_memory() {
            (Source::Memory { leaves, at: 0 }, count)
        } else {
            let (runs, count) = self.runs()?;
            let merge = Merge::from(runs.iter().cloned(), None)?;
            (Source::Files { runs, merge }, count)
        };
        Ok(SortedLeaves { gather: self, from, count, last: Vec::new() })
    }
}

impl SortedLeaves {
    /// How many there are in all.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The key and the value of the leaf that it stands on; `None` behind the last one.
    pub fn leaf(&self) -> Option<(&[u8], &[u8])> {
        self.from.leaf()
    }

    /// Goes on to the next leaf.
    ///
    /// # Errors
    /// If its key came before, where it stands on the second leaf of that key; or a file cannot be
    /// read.
    pub fn advance(&mut self) -> Result<(), PipelineError> {
        let Some((key, _)) = self.from.leaf() else { return Ok(()) };
        self.last.clear();
        self.last.extend_from_slice(key);
        match &mut self.from {
            Source::Files { merge, .. } => merge.advance()?,
            Source::Memory { at, .. } => *at = at.saturating_add(1),
        }
        match self.from.leaf() {
            Some((key, _)) if key == self.last => Err(PipelineError::Twice { key: key.to_vec() }),
            _ => Ok(()),
        }
    }

    /// Goes back to the first leaf.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn rewind(&mut self) -> Result<(), PipelineError> {
        match &mut self.from {
            Source::Files { runs, merge } => *merge = Merge::from(runs.iter().cloned(), None)?,
            Source::Memory { at, .. } => *at = 0,
        }
        Ok(())
    }

    /// Removes the files that the leaves lie in.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(mut self) -> Result<(), PipelineError> {
        self.gather.remove_files()
    }
}
