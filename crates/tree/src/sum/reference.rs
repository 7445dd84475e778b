//! The tree from its leaves, by the book: no engine, no batching, no compaction. All 256 levels of
//! every leaf are hashed.
//!
//! This is the oracle of the tests. It is as slow as it is plain.

use std::collections::BTreeMap;

use spinney_proof::sum::{DEPTH, Leaf, Profile, Proof, SumNode, SumOverflow, goes_right};

/// Leaves by their keys. Empty ones are none.
pub type Leaves = BTreeMap<[u8; 32], Leaf>;

/// The root of a tree that holds exactly these leaves.
///
/// # Errors
/// If their sum overflows.
pub fn root(profile: Profile, leaves: &Leaves) -> Result<SumNode, SumOverflow> {
    Ok(prove(profile, leaves, &[])?.0)
}

/// The root, and a proof for each key: that its leaf is in the tree, or that it has none.
///
/// # Errors
/// If the sum of the leaves overflows.
pub fn prove(
    profile: Profile,
    leaves: &Leaves,
    keys: &[[u8; 32]],
) -> Result<(SumNode, Vec<Proof>), SumOverflow> {
    let leaves: Vec<_> = leaves.iter().filter(|(_, leaf)| !leaf.is_empty()).collect();
    let mut siblings = vec![Vec::with_capacity(DEPTH); keys.len()];
    let keys: Vec<_> = keys.iter().enumerate().collect();
    let root = node(profile, &leaves, 0, &keys, &mut siblings)?;
    let proof = |siblings| Proof::from_siblings(profile, siblings);
    Ok((root, siblings.into_iter().filter_map(proof).collect()))
}

/// Applies a batch as Taproot Assets does: an empty leaf is a deletion. Refused, nothing has
/// changed.
///
/// # Errors
/// If the sum of the batch alone overflows, even if the final state would fit; or that of the final
/// state.
pub fn apply(leaves: &mut Leaves, batch: &Leaves) -> Result<(), SumOverflow> {
    total(batch)?;
    let mut after = leaves.clone();
    for (key, leaf) in batch {
        if leaf.is_empty() {
            after.remove(key);
        } else {
            after.insert(*key, leaf.clone());
        }
    }
    total(&after)?;
    *leaves = after;
    Ok(())
}

fn total(leaves: &Leaves) -> Result<u64, SumOverflow> {
    leaves.values().try_fold(0_u64, |sum, leaf| sum.checked_add(leaf.sum)).ok_or(SumOverflow)
}

/// The node at a depth over leaves that share their first bits, and the siblings from there down of
/// keys that do, too: the deepest one first, by the number of the key.
fn node(
    profile: Profile,
    leaves: &[(&[u8; 32], &Leaf)],
    depth: usize,
    keys: &[(usize, &[u8; 32])],
    siblings: &mut [Vec<SumNode>],
) -> Result<SumNode, SumOverflow> {
    if depth == DEPTH {
        return Ok(match leaves {
            [] => profile.empty_node(DEPTH),
            [(_, leaf), ..] => profile.leaf(leaf),
        });
    }
    if leaves.is_empty() && keys.is_empty() {
        return Ok(profile.empty_node(depth));
    }
    let (right, left): (Vec<_>, Vec<_>) =
        leaves.iter().partition(|(key, _)| goes_right(key, depth));
    let (right_keys, left_keys): (Vec<_>, Vec<_>) =
        keys.iter().partition(|(_, key)| goes_right(key, depth));
    let left = node(profile, &left, depth + 1, &left_keys, siblings)?;
    let right = node(profile, &right, depth + 1, &right_keys, siblings)?;
    for (at, key) in keys {
        siblings[*at].push(if goes_right(key, depth) { left } else { right });
    }
    profile.branch(left, right)
}
