//! The tree of EIP-7864 from its entries, by the book: no engine, no batching, no sharing.
//!
//! This is the oracle of the tests. It is as slow as it is plain.

use std::collections::BTreeMap;

use spinney_hash::{Digest, HashFunction};

/// Entries by their 32-byte keys, a stem of 31 bytes and the place in it; values have 32 bytes.
pub type UbtEntries = BTreeMap<[u8; 32], [u8; 32]>;

const ZERO: Digest = [0; 32];

/// The root of a tree that holds exactly these entries.
///
/// ```
/// use spinney_hash::HashFunction;
/// use spinney_tree::ubt::reference;
///
/// let entries = [([0; 32], [1; 32])].into();
/// let root = reference::root(HashFunction::Sha256, &entries);
/// assert_eq!(root[..4], [0xaa, 0xb1, 0x06, 0x0e]);
/// ```
pub fn root(hash: HashFunction, entries: &UbtEntries) -> Digest {
    let mut tree = UbtNode::Empty;
    for (key, value) in entries {
        let stem = key[..31].try_into().expect("31 of 32 bytes");
        tree = tree.insert(stem, key[31], *value, 0);
    }
    tree.hash(hash)
}

/// The nodes that the EIP names.
enum UbtNode {
    Empty,
    Internal(Box<Self>, Box<Self>),
    Stem([u8; 31], BTreeMap<u8, [u8; 32]>),
}

impl UbtNode {
    fn insert(self, stem: [u8; 31], place: u8, value: [u8; 32], depth: usize) -> Self {
        match self {
            Self::Empty => Self::Stem(stem, [(place, value)].into()),
            Self::Stem(here, mut values) if here == stem => {
                values.insert(place, value);
                Self::Stem(here, values)
            }
            // Stems part at the first bit in which they differ; each bit before it is an internal
            // node with one empty side.
            Self::Stem(here, values) => {
                let mut sides = [Self::Empty, Self::Empty];
                sides[bit(&here, depth)] = Self::Stem(here, values);
                let [left, right] = sides;
                Self::Internal(Box::new(left), Box::new(right)).insert(stem, place, value, depth)
            }
            Self::Internal(left, right) if bit(&stem, depth) == 0 => {
                Self::Internal(Box::new(left.insert(stem, place, value, depth + 1)), right)
            }
            Self::Internal(left, right) => {
                Self::Internal(left, Box::new(right.insert(stem, place, value, depth + 1)))
            }
        }
    }

    fn hash(&self, hash: HashFunction) -> Digest {
        match self {
            Self::Empty => ZERO,
            Self::Internal(left, right) => pair(hash, &left.hash(hash), &right.hash(hash)),
            Self::Stem(stem, values) => {
                let leaf = |place| values.get(&place).map_or(ZERO, |value| hash.hash(value));
                let mut level: Vec<_> = (0..=255).map(leaf).collect();
                while level.len() > 1 {
                    level = level.chunks(2).map(|two| pair(hash, &two[0], &two[1])).collect();
                }
                hash.hash(&[&stem[..], &[0], &level[0]].concat())
            }
        }
    }
}

/// Two empty sides are empty.
fn pair(hash: HashFunction, left: &Digest, right: &Digest) -> Digest {
    if (left, right) == (&ZERO, &ZERO) { ZERO } else { hash.hash(&[*left, *right].concat()) }
}

fn bit(stem: &[u8; 31], index: usize) -> usize {
    usize::from(stem[index / 8] >> (7 - index % 8) & 1)
}
