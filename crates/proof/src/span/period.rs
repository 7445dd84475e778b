//! What held from one block to another.

use alloc::vec::Vec;

/// Something that held at all blocks from the first to the last.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it is its parts")]
pub struct Period<T> {
    /// The first block.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// What held.
    pub value: T,
}

impl<T: PartialEq> Period<T> {
    /// Adds what held at the blocks behind those of `runs`: to the last run, if it is the same.
    pub fn extend(runs: &mut Vec<Self>, (first, last): (u64, u64), value: T) {
        match runs.last_mut() {
            Some(run) if run.value == value => run.last = last,
            _ => runs.push(Self { first, last, value }),
        }
    }
}
