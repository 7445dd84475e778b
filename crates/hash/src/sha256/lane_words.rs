//! The climbs of vector lanes in memory.

use super::{
    climb::{LANES_MAX, tail_schedule},
    rounds::{digest_of, words_of},
};
use crate::Digest;

/// Hashes and schedules of vector lanes: word by word, one entry a lane.
pub(super) struct LaneWords<const N: usize> {
    pub(super) hash: [[u32; N]; 8],
    pub(super) tail: [[u32; N]; 64],
}

impl<const N: usize> LaneWords<N> {
    pub(super) fn new() -> Self {
        Self { hash: [[0; N]; 8], tail: [[0; N]; 64] }
    }

    pub(super) fn put(&mut self, lane: usize, hash: &Digest, sum: u64) {
        for (lanes, word) in self.hash.iter_mut().zip(words_of(hash)) {
            lanes[lane] = word;
        }
        for (lanes, word) in self.tail.iter_mut().zip(tail_schedule(sum)) {
            lanes[lane] = word;
        }
    }

    pub(super) fn hash(&self, lane: usize) -> Digest {
        digest_of(&self.hash.map(|lanes| lanes[lane]))
    }

    pub(super) fn copy(&mut self, from: usize, to: usize) {
        for lanes in self.hash.iter_mut().chain(&mut self.tail) {
            lanes[to] = lanes[from];
        }
    }

    /// The siblings in the same layout.
    pub(super) fn siblings(siblings: &[&Digest; LANES_MAX], active: usize) -> [[u32; N]; 8] {
        let mut words = [[0; N]; 8];
        let first = siblings[0];
        if siblings[..active].iter().all(|&sibling| std::ptr::eq(sibling, first)) {
            for (lanes, word) in words.iter_mut().zip(words_of(first)) {
                *lanes = [word; N];
            }
            return words;
        }
        for (lane, sibling) in siblings[..active].iter().enumerate() {
            for (lanes, word) in words.iter_mut().zip(words_of(sibling)) {
                lanes[lane] = word;
            }
        }
        words
    }
}
