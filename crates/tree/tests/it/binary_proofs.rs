//! Proofs of the binary trees: they hold, they say what the tree holds, and nothing else does.

use std::collections::BTreeSet;

use proptest::prelude::*;
use spinney_tree::binary::proof::{BinaryTree, KeysProof, ProofError};
use spinney_tree::pbt::Pbt;
use spinney_tree::{Batch, HashFunction, MemoryStore, PageStore, Tree, TreeId};

use crate::binary::{PBT, UBT, pbt_key, ubt_key, word};
use crate::model::Entries;

/// A tree of these entries, committed and opened again with no page at hand.
fn tree_of<S: BinaryTree + Clone>(scheme: &S, entries: &Entries) -> (MemoryStore, Tree<S>) {
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme.clone(), TreeId(1), &store.snapshot().unwrap(), 1).unwrap();
    let mut batch = Batch::new();
    for (key, value) in entries {
        batch.put(key, value);
    }
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    tree.commit(&store, &pending, None).unwrap();
    let tree = Tree::open(scheme.clone(), TreeId(1), &store.snapshot().unwrap(), 1).unwrap();
    (store, tree)
}

/// Proves keys, checks that it holds and what it says; answers the proof.
pub(crate) fn prove<S: BinaryTree + Clone>(
    scheme: &S,
    entries: &Entries,
    keys: &[Vec<u8>],
) -> (KeysProof, [u8; 32]) {
    let (store, tree) = tree_of(scheme, entries);
    let proof = tree.prove(&store.snapshot().unwrap(), None, keys).unwrap();
    let verified = proof.verify(scheme, &tree.root()).unwrap();
    let asked: BTreeSet<_> = keys.iter().collect();
    assert_eq!(verified.iter().count(), asked.len());
    for key in keys {
        let held = entries.get(key).map(|value| &value[..]);
        assert_eq!(verified.get(key).unwrap().map(|value| &value[..]), held);
    }
    (proof, tree.root())
}

/// Every single change of a proof, and of what it claims, is refused.
fn refuse_changes<S: BinaryTree>(scheme: &S, proof: &KeysProof, root: &[u8; 32], seed: u8) {
    let refused = |changed: &KeysProof, what: &str| {
        assert!(changed.verify(scheme, root).is_err(), "{what}: {changed:?}");
    };
    let step = (proof.proof.len() / 60).max(1);
    for at in (usize::from(seed) % step..proof.proof.len()).step_by(step) {
        for mask in [1, 2, 0x80, seed | 4] {
            let mut changed = proof.clone();
            changed.proof[at] ^= mask;
            refused(&changed, "a changed byte");
        }
    }
    for cut in [0, 1, 32, 33] {
        let mut changed = proof.clone();
        changed.proof.truncate(proof.proof.len().saturating_sub(cut + 1));
        if changed != *proof {
            refused(&changed, "a proof cut off");
        }
    }
    let mut longer = proof.clone();
    longer.proof.push(seed);
    refused(&longer, "bytes behind the end");
    for index in 0..proof.entries.len() {
        let mut changed = proof.clone();
        let value = &mut changed.entries[index].1;
        *value = match *value {
            Some(_) if seed.is_multiple_of(2) => None,
            Some(mut value) => {
                value[usize::from(seed) % 32] ^= 1;
                Some(value)
            }
            None => Some([seed; 32]),
        };
        refused(&changed, "another value");
    }
}

fn check<S: BinaryTree + Clone>(
    scheme: &S,
    entries: &Entries,
    others: Vec<Vec<u8>>,
    step: usize,
    seed: u8,
) {
    let mut keys: Vec<_> = entries.keys().step_by(step).cloned().collect();
    keys.extend(others);
    if keys.is_empty() {
        return;
    }
    let (proof, root) = prove(scheme, entries, &keys);
    if !entries.is_empty() {
        refuse_changes(scheme, &proof, &root, seed);
    }
}

proptest! {
    #[test]
    fn any_keys_of_a_ubt_are_proven(
        entries in prop::collection::btree_map(ubt_key(), word(), 0..40),
        others in prop::collection::vec(ubt_key(), 0..8),
        (step, seed) in (1usize..9, any::<u8>()),
    ) {
        check(&UBT, &entries, others, step, seed);
    }

    #[test]
    fn any_keys_of_a_pbt_are_proven(
        entries in prop::collection::btree_map(pbt_key(), word(), 0..25),
        mut others in prop::collection::vec(pbt_key(), 0..8),
        cut in prop::option::of((0usize..70, any::<bool>())),
        (step, seed) in (1usize..9, any::<u8>()),
    ) {
        // A key that begins another, or that another begins, is absent and can be shown to be.
        if let (Some((len, longer)), Some(key)) = (cut, entries.keys().nth(entries.len() / 2)) {
            let mut key = key.clone();
            if longer { key.push(len as u8) } else { key.truncate(len.max(1)) }
            if key.len() <= 8_192 {
                others.push(key);
            }
        }
        check(&PBT, &entries, others, step, seed);
    }

    #[test]
    fn foreign_bytes_are_refused(
        bytes in prop::collection::vec(prop_oneof![3 => 0u8..4, 1 => any::<u8>()], 1..200),
        keys in prop::collection::btree_set(pbt_key(), 1..5),
        stems in prop::collection::btree_set(ubt_key(), 1..5),
    ) {
        for (index, keys) in [keys, stems].into_iter().enumerate() {
            let entries = keys.into_iter().map(|key| (key, None)).collect();
            let proof = KeysProof { entries, proof: bytes.clone() };
            let refused = match index {
                0 => proof.verify(&PBT, &[7; 32]),
                _ => proof.verify(&UBT, &[7; 32]),
            };
            prop_assert!(refused.is_err());
        }
    }
}

/// The 64 bytes of a stem read as two sides: the stem and a zero, and what the stem holds. Where a
/// key's first bit leads to the second and its next bits lead away from there, it would seem
/// absent.
#[test]
fn a_stem_is_not_taken_for_a_fork() {
    let stem = [[0xc0; 1].as_slice(), &[0x11; 30]].concat();
    let key = |place: u8| [&stem[..], &[place]].concat();
    let entries = Entries::from([(key(0), vec![8; 32]), (key(1), vec![9; 32])]);
    let (_, root) = prove(&UBT, &entries, &[key(0)]);
    let mut forged = vec![0, 0, 0];
    forged.extend([&stem[..], &[0]].concat());
    forged.extend([1, 7, 0]);
    forged.extend([spinney_hash::sha256(&[8; 32]), spinney_hash::sha256(&[9; 32])].concat());
    let forged = KeysProof { entries: vec![(key(0), None)], proof: forged };
    // All of it leads to the root: only that no leaf is shown on the right tells.
    let refused = forged.verify(&UBT, &root).unwrap_err().to_string();
    assert!(refused.contains("a fork reads as a stem"), "{refused}");
}

/// A proof with a key's leaf for a neighbour, though the key is in nobody's way.
#[test]
fn neighbours_that_show_nothing_are_refused() {
    fn check<S: BinaryTree + Clone>(scheme: &S, keys: [Vec<u8>; 2]) {
        let entries: Entries = keys.iter().map(|key| (key.clone(), vec![7; 32])).collect();
        let (mut proof, root) = prove(scheme, &entries, &keys);
        let (key, value) = proof.entries.pop().unwrap();
        assert_eq!(proof.proof[0], 0, "no neighbours yet");
        let neighbour = [&[1, key.len() as u8][..], &key, &value.unwrap()].concat();
        proof.proof.splice(..1, neighbour);
        let refused = proof.verify(scheme, &root).unwrap_err().to_string();
        assert!(refused.ends_with("a neighbour shows nothing"), "{refused}");
    }
    check(&PBT, [vec![1; 34], vec![2; 34]]);
    check(&UBT, [vec![1; 32], vec![2; 32]]);
    check(&UBT, [vec![1; 32], [vec![1; 31], vec![2]].concat()]);
}

#[test]
fn a_thousand_keys_share_their_hashes() {
    let key = |i: u32| spinney_hash::keccak256(&i.to_be_bytes()).to_vec();
    let entries: Entries = (0..20_000).map(|i| (key(i), vec![7; 32])).collect();
    let keys: Vec<_> = (0..1_000).map(|i| key(i * 20)).collect();
    let (proof, _) = prove(&Pbt { hash: HashFunction::Blake3 }, &entries, &keys);
    // About one hash a level from where paths part, 4 or 5 levels above the leaves.
    assert!(proof.proof.len() < 1_000 * 6 * 36, "{} bytes", proof.proof.len());
    let (one, _) = prove(&Pbt { hash: HashFunction::Blake3 }, &entries, &keys[..1]);
    assert!(proof.proof.len() < 400 * one.proof.len());
}

#[test]
fn keys_that_the_tree_has_not_are_refused() {
    let entries = Entries::from([(vec![1; 32], vec![1; 32])]);
    let (proof, root) = prove(&UBT, &entries, &[vec![1; 32]]);
    for key in [vec![1; 31], vec![]] {
        let mut changed = proof.clone();
        changed.entries.push((key.clone(), None));
        let refused = changed.verify(&UBT, &root).unwrap_err();
        assert!(matches!(refused, ProofError::Key { .. }), "{refused}");
        let (store, tree) = tree_of(&UBT, &entries);
        assert!(tree.prove(&store.snapshot().unwrap(), None, &[key]).is_err());
    }
    let mut twice = proof.clone();
    twice.entries.push(twice.entries[0].clone());
    assert!(matches!(twice.verify(&UBT, &root), Err(ProofError::Key { .. })));
    assert!(matches!(proof.verify(&UBT, &[1; 32]), Err(ProofError::Root { .. })));
}
