//! Why nothing is measured.

use alloy_primitives::B256;

/// Why a measurement ended, beside what stores, trees and files say.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// It was told to.
    #[error("interrupted")]
    Interrupted,
    /// Reads are to write nothing.
    #[error("reading {tree} wrote to the {store}")]
    Wrote {
        /// The tree that was read.
        tree: String,
        /// What it lies in.
        store: &'static str,
    },
    /// A header has another root.
    #[error("block {block}: root: expected {expected}, got {got}")]
    Root {
        /// The block.
        block: u64,
        /// What its header has.
        expected: B256,
        /// What was computed.
        got: B256,
    },
    /// There are blocks without a trace.
    #[error("the traces end before block {block}")]
    TracesEnd {
        /// The first of them.
        block: u64,
    },
    /// There is nothing to make up.
    #[error("a workload of nothing")]
    Nothing,
}
