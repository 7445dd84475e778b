//! The inputs, the same in every language and every process: made from a seed, never sent.
//!
//! `splitmix64(state)`: `state += 0x9e3779b97f4a7c15; z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9; z =
//! (z ^ z >> 27) * 0x94d049bb133111eb; z ^ z >> 31`, all modulo 2^64. Bytes are its outputs, each
//! big-endian, the last one cut off. Leaf by leaf from state 42: a key of 32 bytes, a value of 78.
//! Changes `k` of round `r`, from state `1000 + r`: an index (an output modulo the number of
//! leaves; one that was drawn before is drawn again), then a value, `k` times.

use std::collections::HashSet;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// Bytes of a value.
pub const VALUE_BYTES: usize = 78;

/// A key and its value.
pub type Leaf = ([u8; KEY_BYTES], [u8; VALUE_BYTES]);

/// Splitmix64 (Steele, Lea and Flood 2014).
pub struct Random(pub u64);

impl Random {
    /// The next output.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// The next `N` bytes.
    pub fn fill<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes()[..chunk.len()]);
        }
        bytes
    }
}

/// `count` leaves in the order in which they are drawn.
pub fn leaves(count: usize) -> Vec<Leaf> {
    let mut random = Random(42);
    (0..count).map(|_| (random.fill(), random.fill())).collect()
}

/// `count` changes of distinct leaves of `leaves`: new values for old keys.
pub fn changes(leaves: &[Leaf], count: usize, round: u64) -> Vec<Leaf> {
    assert!(count <= leaves.len(), "{count} distinct keys of {}", leaves.len());
    let mut random = Random(1000 + round);
    let mut drawn = HashSet::with_capacity(count);
    let mut changes = Vec::with_capacity(count);
    while changes.len() < count {
        let index = (random.next() % leaves.len() as u64) as usize;
        if drawn.insert(index) {
            changes.push((leaves[index].0, random.fill()));
        }
    }
    changes
}
