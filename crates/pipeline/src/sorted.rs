//! Leaves in order, for who wants no tree of them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use crate::error::PipelineError;
use crate::gather::Gather;
use crate::merge::Merge;

/// All leaves of a [`Gather`], in order of their keys.
///
/// ```
/// use spinney_pipeline::{Gather, Options, RunName, Scratch};
/// use spinney_tree::{MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
///
/// let scratch = Scratch::new()?;
/// let tree = Tree::open(Mpt, TreeId(1), &MemoryStore::new().snapshot()?, 1 << 20)?;
/// let options = Options::default();
/// let mut gather = Gather::open(scratch.path(), RunName::of(&tree, b"letters", &options), options)?;
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
#[derive(Debug)]
pub struct SortedLeaves {
    gather: Gather,
    merge: Merge,
    count: u64,
    last: Vec<u8>,
}

impl Gather {
    /// Sorts all leaves that were pushed.
    ///
    /// # Errors
    /// If a file cannot be written or read, or the source has fewer leaves than the run holds of it.
    pub fn into_sorted(mut self) -> Result<SortedLeaves, PipelineError> {
        let (runs, count) = self.runs()?;
        let merge = Merge::from(runs, None)?;
        Ok(SortedLeaves { gather: self, merge, count, last: Vec::new() })
    }
}

impl SortedLeaves {
    /// How many there are in all.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// The key and the value of the leaf that it stands on; `None` behind the last one.
    pub fn leaf(&self) -> Option<(&[u8], &[u8])> {
        self.merge.leaf()
    }

    /// Goes on to the next leaf.
    ///
    /// # Errors
    /// If its key came before, or a file cannot be read.
    pub fn advance(&mut self) -> Result<(), PipelineError> {
        let Some((key, _)) = self.merge.leaf() else { return Ok(()) };
        self.last.clear();
        self.last.extend_from_slice(key);
        self.merge.advance()?;
        match self.merge.leaf() {
            Some((key, _)) if key == self.last => Err(PipelineError::Twice { key: key.to_vec() }),
            _ => Ok(()),
        }
    }

    /// Removes the files that the leaves lie in.
    ///
    /// # Errors
    /// If a file cannot be removed.
    pub fn remove(mut self) -> Result<(), PipelineError> {
        self.gather.remove_files()
    }
}
