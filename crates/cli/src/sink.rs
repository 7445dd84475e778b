//! What the lines of a trace go into.

use alloy_primitives::B256;

/// What became of a line of a trace.
pub(crate) struct Committed {
    /// The number of commits then.
    pub(crate) commits: u64,
    pub(crate) root: B256,
    /// The sum of all leaves, in trees that have one.
    pub(crate) sum: Option<u64>,
}

/// What the lines of a trace go into.
pub(crate) trait Sink {
    /// Commits a line.
    fn line(&mut self, line: &[u8]) -> anyhow::Result<Committed>;
}
