//! The tree of EIP-8297 from its entries, by the book: no engine, no batching, no sharing.
//!
//! This is the oracle of the tests. It is as slow as it is plain.

use std::collections::BTreeMap;

use spinney_hash::{Digest, HashFunction};

/// Entries: keys of 1 to 8,192 bytes of which none begins another, values of 32 bytes.
pub type PbtEntries = BTreeMap<Vec<u8>, [u8; 32]>;

/// The root of a tree that holds exactly these entries.
///
/// ```
/// use spinney_hash::HashFunction;
/// use spinney_tree::pbt::reference;
///
/// let entries = [(vec![0xab], [1; 32])].into();
/// let root = reference::root(HashFunction::Blake3, &entries);
/// assert_eq!(root[..4], [0x2e, 0xbe, 0xea, 0x9f]);
/// ```
///
/// # Panics
/// If a key begins another.
pub fn root(hash: HashFunction, entries: &PbtEntries) -> Digest {
    let entries: Vec<_> = entries.iter().map(|(key, value)| (&key[..], value)).collect();
    if entries.is_empty() { [0; 32] } else { node(hash, &entries, 0) }
}

/// The node of entries that share their first `depth` bits.
fn node(hash: HashFunction, entries: &[(&[u8], &[u8; 32])], depth: usize) -> Digest {
    if let [(key, value)] = entries {
        return hash.hash(&[&[0x00], *key, *value].concat());
    }
    let first = entries[0].0;
    let fork = (depth..)
        .find(|&index| entries.iter().any(|(key, _)| bit(key, index) != bit(first, index)))
        .expect("keys are distinct");
    let mut prefix = vec![0; (fork - depth).div_ceil(8)];
    for index in depth..fork {
        prefix[(index - depth) / 8] |= bit(first, index) << (7 - (index - depth) % 8);
    }
    let len = u16::try_from(fork - depth).expect("keys have at most 65,536 bits");
    let half = entries.partition_point(|(key, _)| bit(key, fork) == 0);
    let left = node(hash, &entries[..half], fork + 1);
    let right = node(hash, &entries[half..], fork + 1);
    hash.hash(&[&[0x01], &len.to_be_bytes()[..], &prefix, &left, &right].concat())
}

fn bit(key: &[u8], index: usize) -> u8 {
    key[index / 8] >> (7 - index % 8) & 1
}
