//! The climbs of vector lanes in memory.

use super::{
    climb::tail_block,
    rounds::{digest_of, words_of},
};
use crate::Digest;

/// Hashes and schedules of vector lanes: word by word, one entry a lane.
pub(super) struct LaneWords<const N: usize> {
    pub(super) hash: [[u32; N]; 8],
    /// The second blocks of the lanes' nodes.
    pub(super) block: [[u32; N]; 16],
    /// Their schedules, constants added.
    pub(super) tail: [[u32; N]; 64],
    /// Whether a block has changed since they were expanded, as they are in all lanes at once.
    pub(super) stale: bool,
}

impl<const N: usize> LaneWords<N> {
    pub(super) fn new() -> Self {
        Self { hash: [[0; N]; 8], block: [[0; N]; 16], tail: [[0; N]; 64], stale: false }
    }

    pub(super) fn put(&mut self, lane: usize, hash: &Digest, sum: u64) {
        for (lanes, word) in self.hash.iter_mut().zip(words_of(hash)) {
            lanes[lane] = word;
        }
        for (lanes, word) in self.block.iter_mut().zip(tail_block(sum)) {
            lanes[lane] = word;
        }
        self.stale = true;
    }

    pub(super) fn hash(&self, lane: usize) -> Digest {
        digest_of(&self.hash.map(|lanes| lanes[lane]))
    }

    pub(super) fn copy(&mut self, from: usize, to: usize) {
        for lanes in self.hash.iter_mut().chain(&mut self.block).chain(&mut self.tail) {
            lanes[to] = lanes[from];
        }
    }

    /// Siblings of the first lanes in the same layout.
    pub(super) fn siblings(siblings: &[&Digest]) -> [[u32; N]; 8] {
        let mut words = [[0; N]; 8];
        for (lane, sibling) in siblings.iter().enumerate() {
            for (lanes, word) in words.iter_mut().zip(words_of(sibling)) {
                lanes[lane] = word;
            }
        }
        words
    }
}
