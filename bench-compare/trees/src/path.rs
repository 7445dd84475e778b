//! The nodes above a leaf of a Merkle Patricia trie of equal, well-spread keys: what one update has
//! to hash whatever the implementation.

use crate::inputs::{KEY_BYTES, VALUE_BYTES};

/// Bytes of a child's hash in its parent, with its RLP header.
const HASH_ITEM_BYTES: usize = 33;

/// The RLP lengths of the nodes from the leaf of `key` up to the root. `keys` are all keys, sorted;
/// each leaf is over 31 bytes, so all children are hashes.
pub fn node_lens(keys: &[[u8; KEY_BYTES]], key: &[u8; KEY_BYTES]) -> Vec<usize> {
    let mut lens = Vec::new();
    let (mut keys, mut depth, mut skipped) = (keys, 0, 0);
    while keys.len() > 1 {
        let children = children(keys, depth);
        if children.len() == 1 {
            skipped += 1;
        } else {
            if skipped > 0 {
                lens.push(list(string(hex_prefix(skipped)) + HASH_ITEM_BYTES));
                skipped = 0;
            }
            lens.push(list(children.len() * HASH_ITEM_BYTES + 17 - children.len()));
        }
        let chosen = children.iter().find(|child| digit(&child[0], depth) == digit(key, depth));
        keys = chosen.expect("the key is one of them");
        depth += 1;
    }
    assert_eq!(keys, [*key]);
    let rest = 2 * KEY_BYTES - depth + skipped;
    lens.push(list(string(hex_prefix(rest)) + string(VALUE_BYTES)));
    lens.reverse();
    lens
}

fn children(keys: &[[u8; KEY_BYTES]], depth: usize) -> Vec<&[[u8; KEY_BYTES]]> {
    keys.chunk_by(|a, b| digit(a, depth) == digit(b, depth)).collect()
}

const fn digit(key: &[u8; KEY_BYTES], depth: usize) -> u8 {
    key[depth / 2] >> (4 * (1 - depth % 2)) & 15
}

/// Bytes of a path of `digits` digits in hex-prefix encoding.
const fn hex_prefix(digits: usize) -> usize {
    digits / 2 + 1
}

/// Bytes of a string in RLP; none here is one small byte.
const fn string(len: usize) -> usize {
    len + header(len)
}

const fn list(len: usize) -> usize {
    len + header(len)
}

const fn header(len: usize) -> usize {
    match len {
        0..=55 => 1,
        56..=255 => 2,
        _ => 3,
    }
}

/// How many hashes a changed value of a UBT cannot do without: the value, eight levels of its stem,
/// the stem, and a node for each bit that it shares with its neighbours, and one more.
pub fn ubt_hashes(sorted: &[([u8; 32], [u8; 32])], key: &[u8; 32]) -> usize {
    let at = sorted.binary_search_by_key(key, |entry| entry.0).expect("a key of ours");
    let shared = |other: usize| shared_nodes(key, &sorted.get(other)?.0);
    let above = [at.checked_sub(1).and_then(shared), shared(at + 1)];
    10 + above.into_iter().flatten().max().unwrap_or(0)
}

/// How many hashes changed values of a UBT cannot do without together.
pub fn ubt_hashes_of_all(sorted: &[([u8; 32], [u8; 32])], mut keys: Vec<[u8; 32]>) -> usize {
    keys.sort_unstable();
    let all: usize = keys.iter().map(|key| ubt_hashes(sorted, key)).sum();
    let twice = keys.windows(2).filter_map(|pair| shared_nodes(&pair[0], &pair[1]));
    all - twice.sum::<usize>()
}

/// How many nodes are above both of two stems; nothing if they are the same.
fn shared_nodes(key: &[u8; 32], other: &[u8; 32]) -> Option<usize> {
    let at = key.iter().zip(other).position(|(a, b)| a != b)?;
    Some(8 * at + (key[at] ^ other[at]).leading_zeros() as usize + 1)
}
