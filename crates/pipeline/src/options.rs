//! What decides how a run is done, and what names it.

use spinney_hash::keccak256;
use spinney_tree::{Scheme, Tree};

/// The formats that a run leaves behind: see docs/reference/formats.md.
pub(crate) const FORMAT: u16 = 1;

/// A range of so many leaves is small enough, whatever the share.
const RANGE_LEAVES_MIN: u64 = 1_024;
const RANGE_BYTES_MAX: usize = 64 << 20;
/// A range is at most this share of all leaves.
const RANGES_MIN: u64 = 256;

/// How a run is done. None of it changes the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of memory for leaves and rows, the store's own apart: 256 MiB unless told otherwise.
    pub memory: usize,
    /// Threads that build ranges: as many as there are cores.
    pub threads: usize,
    /// How many ranges may be under way: read, and not yet committed. Four times the threads.
    pub in_flight: usize,
    /// Leaves of a range at most; without it 1/256 of all leaves, or 1,024 if that is more.
    pub range_leaves: Option<u64>,
}

impl Default for Options {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        Self { memory: 256 << 20, threads, in_flight: 4 * threads, range_leaves: None }
    }
}

impl Options {
    /// Leaves of a range at most, where there are `leaves` in all.
    pub(crate) fn range_leaves(&self, leaves: u64) -> u64 {
        let share = || (leaves / RANGES_MIN).max(RANGE_LEAVES_MIN);
        self.range_leaves.unwrap_or_else(share).max(1)
    }

    /// Bytes of leaves that end a range: leaves, rows and what the commit copies of them fit the
    /// memory.
    pub(crate) fn range_bytes(&self) -> usize {
        (self.memory / (6 * self.in_flight.max(1))).clamp(1, RANGE_BYTES_MAX)
    }
}

/// Names a run by all that decides its checkpoints: the tree, what the leaves are, the options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunName(pub(crate) [u8; 32]);

impl RunName {
    /// The name of a run that fills `tree` with leaves which `source` tells from any others: a
    /// file's digest, a store's root, a range of blocks. What the tree held before is of no
    /// meaning.
    pub fn of<S: Scheme>(tree: &Tree<S>, source: &[u8], options: &Options) -> Self {
        let mut bytes = Vec::with_capacity(64 + source.len());
        bytes.extend_from_slice(&FORMAT.to_be_bytes());
        bytes.extend_from_slice(&tree.id().0.to_be_bytes());
        let id = tree.scheme_id();
        bytes.extend_from_slice(&id.tree.to_be_bytes());
        bytes.extend_from_slice(&id.hash.to_be_bytes());
        bytes.extend_from_slice(&(options.memory as u64).to_be_bytes());
        bytes.extend_from_slice(&(options.in_flight as u64).to_be_bytes());
        bytes.extend_from_slice(&options.range_leaves.unwrap_or(0).to_be_bytes());
        bytes.extend_from_slice(source);
        Self(keccak256(&bytes))
    }

    /// The name of what is sorted beside the leaves of this run.
    #[must_use]
    pub fn beside(self, what: &[u8]) -> Self {
        Self(keccak256(&[&self.0, what].concat()))
    }
}
