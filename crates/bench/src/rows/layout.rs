//! The nodes of each tree as software keeps them that has a row a node.
//!
//! | tree | node | bytes |
//! |---|---|---|
//! | MPT | what is hashed: leaf, extension, branch | its RLP; below 32 bytes it is in its parent |
//! | UBT | what is hashed: a fork | 64 |
//! | | a stem | 64, and 32 a value |
//! | PBT | what is hashed: leaf | 33 and the key |
//! | | branch | 67 and the bits that all keys below it share |
//! | Verkle | go-verkle v0.2: an internal node | 97 |
//! | | a leaf, of one value, of basic data and no code, or of n values | 193, 192, 256 + 32 n |
//!
//! EIP-7864 and EIP-8297 say nothing of stores; their nodes are counted by what is hashed, which
//! holds all that they are. geth's `bintrie` has a stem's bytes from here, and keeps five levels of
//! forks in a row.

use alloy_primitives::KECCAK256_EMPTY;

use super::key::{At, Key, Leaf, digest};
use crate::subject::StateTree;

/// Bits of the stem, in the trees that have them.
const STEM_BITS: usize = 248;

/// How a tree's nodes lie in rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    Mpt,
    Ubt,
    Pbt,
    Verkle,
}

/// What hangs at a place.
pub(super) struct Node {
    /// The bits of their path, and their bytes: at most an extension and its branch.
    pub(super) rows: [Option<(usize, u32)>; 2],
    /// How many bits all keys below share.
    pub(super) run: usize,
    /// How many bits tell its children apart; none of a leaf.
    pub(super) digit: Option<usize>,
}

impl Layout {
    pub(crate) const fn of(tree: StateTree) -> Self {
        match tree {
            StateTree::Mpt => Self::Mpt,
            StateTree::Ubt(_) => Self::Ubt,
            StateTree::Pbt(_) => Self::Pbt,
            StateTree::Verkle => Self::Verkle,
        }
    }

    /// Which trie a leaf is in: 1 of the slots of a Merkle Patricia trie.
    pub(super) fn trie_of(self, key: &Key) -> usize {
        usize::from(self == Self::Mpt && key.len == 64)
    }

    /// How many bytes of a key say whose trie it is.
    pub(super) const fn owner_bytes(self, trie: usize) -> usize {
        32 * trie
    }

    /// The account whose node holds the root over a slot.
    pub(super) fn account_of(self, key: &Key) -> Option<&[u8]> {
        (self.trie_of(key) == 1).then(|| &key.bytes()[..32])
    }

    /// Bytes of a leaf's value in its node.
    pub(super) fn value_bytes(self, key: &Key, value: &[u8]) -> u16 {
        let bytes = match self {
            // The engine's value, with the root of the slots, as a list in a string.
            Self::Mpt if key.len == 32 => rlp_bytes(rlp_bytes(value.len() - 32 + 33 + 33)),
            Self::Mpt if matches!(value, [..=0x7f]) => 1,
            Self::Mpt => rlp_bytes(value.len()),
            Self::Ubt | Self::Pbt | Self::Verkle => 32,
        };
        bytes as u16
    }

    /// The node over leaves that are not none.
    pub(super) fn node(self, leaves: &[Leaf], at: &At) -> Node {
        let below = &leaves[at.leaves.clone()];
        let (first, last) = (&below[0].key, &below[below.len() - 1].key);
        let shared = first.shared(last);
        match self {
            Self::Mpt => trie_node(below, at.depth, shared),
            Self::Pbt if below.len() == 1 => {
                leaf(at.depth, 33 + usize::from(first.len), first.bits())
            }
            Self::Pbt => {
                let skip = (shared - at.depth).div_ceil(8);
                branch([Some((at.depth, 67 + skip)), None], shared, 1)
            }
            Self::Ubt if shared >= STEM_BITS => {
                let beside = [at.leaves.start.checked_sub(1), Some(at.leaves.end)];
                let beside = beside.into_iter().flatten().filter_map(|at| leaves.get(at));
                // A stem hangs where it is alone.
                let alone = beside.map(|leaf| leaf.key.shared(first) + 1).max().unwrap_or(0);
                leaf(alone, 64 + 32 * below.len(), STEM_BITS)
            }
            Self::Ubt => branch([Some((at.depth, 64)), None], at.depth, 1),
            Self::Verkle if shared >= STEM_BITS && at.depth > 0 => {
                leaf(at.depth, verkle_leaf(below), STEM_BITS)
            }
            Self::Verkle => branch([Some((at.depth, 97)), None], at.depth, 8),
        }
    }
}

fn leaf(depth: usize, bytes: usize, run: usize) -> Node {
    Node { rows: [Some((depth, bytes as u32)), None], run, digit: None }
}

fn branch(rows: [Option<(usize, usize)>; 2], run: usize, digit: usize) -> Node {
    let rows = rows.map(|row| row.map(|(bits, bytes)| (bits, bytes as u32)));
    Node { rows, run, digit: Some(digit) }
}

/// The first leaf of each child.
fn children(below: &[Leaf], from: usize, digit: usize) -> impl Iterator<Item = &[Leaf]> {
    let mut rest = below;
    std::iter::from_fn(move || {
        let place = rest.first()?.key.digit(from, digit);
        let (child, others) =
            rest.split_at(rest.partition_point(|leaf| leaf.key.digit(from, digit) == place));
        rest = others;
        Some(child)
    })
}

/// A leaf, or an extension and its branch, in the trie of accounts or in one of slots.
fn trie_node(below: &[Leaf], depth: usize, shared: usize) -> Node {
    let top = depth.is_multiple_of(256);
    let own = |bits, bytes: usize| (top && bits == depth || bytes >= 32).then_some((bits, bytes));
    if let [only] = below {
        let bytes = leaf_bytes(only, depth);
        let rows = [own(depth, bytes).map(|(bits, bytes)| (bits, bytes as u32)), None];
        return Node { rows, run: only.key.bits(), digit: None };
    }
    let fork = shared - shared % 4;
    let child = |child: &[Leaf]| match child {
        [only] => reference(leaf_bytes(only, fork + 4)),
        // Two keys of 32 hashed bytes would have to share nearly all of them for less.
        _ => 33,
    };
    let (mut count, mut bytes) = (0, 0);
    children(below, fork, 4).for_each(|leaves| {
        count += 1;
        bytes += child(leaves);
    });
    let branch_bytes = rlp_bytes(bytes + 17 - count);
    let extension = (fork > depth)
        .then(|| (depth, rlp_bytes(path_bytes((fork - depth) / 4) + reference(branch_bytes))));
    let extension = extension.and_then(|(bits, bytes)| own(bits, bytes));
    branch([extension, own(fork, branch_bytes)], fork, 4)
}

fn leaf_bytes(leaf: &Leaf, depth: usize) -> usize {
    let nibbles = (leaf.key.bits() - depth) / 4;
    rlp_bytes(path_bytes(nibbles) + usize::from(leaf.value_bytes))
}

/// A path of so many nibbles in a node.
const fn path_bytes(nibbles: usize) -> usize {
    if nibbles < 2 { 1 } else { rlp_bytes(nibbles / 2 + 1) }
}

/// How a parent names a node of so many bytes: by itself, or by its hash.
const fn reference(bytes: usize) -> usize {
    if bytes < 32 { bytes } else { 33 }
}

/// A list or a string of so many bytes, with its head.
const fn rlp_bytes(body: usize) -> usize {
    body + match body {
        0..=55 => 1,
        56..=255 => 2,
        _ => 3,
    }
}

fn verkle_leaf(values: &[Leaf]) -> usize {
    let place = |leaf: &Leaf| leaf.key.bytes[31];
    match values {
        [_] => 193,
        [basic, code] if (place(basic), place(code)) == (0, 1) && has_no_code(code) => 192,
        _ => 256 + 32 * values.len(),
    }
}

fn has_no_code(hash: &Leaf) -> bool {
    hash.digest == digest(KECCAK256_EMPTY.as_slice())
}
