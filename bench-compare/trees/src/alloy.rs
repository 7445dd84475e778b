//! Peers in Rust: alloy-trie.

use alloy_primitives::{B256, Bytes};
use alloy_trie::{HashBuilder, Nibbles, proof::ProofRetainer, proof::verify_proof};

use crate::inputs::Leaf;

/// The root of leaves sorted by key.
pub fn bulk_root(sorted: &[Leaf]) -> [u8; 32] {
    let mut builder = HashBuilder::default();
    for (key, value) in sorted {
        builder.add_leaf(Nibbles::unpack(key), value);
    }
    builder.root().0
}

/// Proofs of `chosen`, made while the root of all leaves is: (root, one list of nodes a leaf).
pub fn proofs(sorted: &[Leaf], chosen: &[Leaf]) -> ([u8; 32], Vec<Vec<Bytes>>) {
    let targets: Vec<Nibbles> = chosen.iter().map(|(key, _)| Nibbles::unpack(key)).collect();
    let retainer = ProofRetainer::new(targets.clone());
    let mut builder = HashBuilder::default().with_proof_retainer(retainer);
    for (key, value) in sorted {
        builder.add_leaf(Nibbles::unpack(key), value);
    }
    let root = builder.root().0;
    let nodes = builder.take_proof_nodes();
    let of = |target| {
        let path = nodes.matching_nodes_sorted(target);
        path.into_iter().map(|(_, node)| node).collect()
    };
    (root, targets.iter().map(of).collect())
}

/// Checks each proof against `root`.
pub fn verify(root: [u8; 32], chosen: &[Leaf], proofs: &[Vec<Bytes>]) {
    for ((key, value), proof) in chosen.iter().zip(proofs) {
        verify_proof(B256::from(root), Nibbles::unpack(key), Some(value.to_vec()), proof)
            .expect("a proof that was just made");
    }
}
