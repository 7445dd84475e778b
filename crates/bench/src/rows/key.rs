//! Leaves by their keys, and parts of keys.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

/// Bytes of the longest key, that of a slot in a PBT.
const KEY_BYTES_MAX: usize = 66;

/// A leaf's key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) bytes: [u8; KEY_BYTES_MAX],
    pub(super) len: u8,
}

impl Key {
    pub(super) fn of(key: &[u8]) -> Self {
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes[..key.len()].copy_from_slice(key);
        Self { bytes, len: key.len() as u8 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len.into()]
    }

    pub(super) const fn bits(&self) -> usize {
        8 * self.len as usize
    }

    /// The first bits that two keys share, at most those of the shorter one.
    pub(super) fn shared(&self, other: &Self) -> usize {
        match self.bytes().iter().zip(other.bytes()).position(|(a, b)| a != b) {
            Some(at) => 8 * at + (self.bytes[at] ^ other.bytes[at]).leading_zeros() as usize,
            None => self.bits().min(other.bits()),
        }
    }

    /// `count` bits from `from` on, 8 at most.
    pub(super) fn digit(&self, from: usize, count: usize) -> u8 {
        let byte = |index| u16::from(self.bytes.get(index).copied().unwrap_or_default());
        let pair = byte(from / 8) << 8 | byte(from / 8 + 1);
        (pair << (from % 8) >> (16 - count)) as u8
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What there is to know of a leaf.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) key: Key,
    /// Bytes that its value takes in the encoding of its node.
    pub(super) value_bytes: u16,
    /// Tells values apart.
    pub(super) digest: u64,
}

pub(super) fn digest(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The leaves below a node, and how many bits of their keys lead there.
pub(super) struct At {
    pub(super) leaves: Range<usize>,
    pub(super) depth: usize,
}
