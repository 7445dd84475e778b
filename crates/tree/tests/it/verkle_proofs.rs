//! Proofs of the Verkle tree: byte for byte those of go-verkle and rust-verkle, against the
//! engine's own values and roots, and whatever one does to them.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::Value as Json;
use spinney_ipa::{Crs, Fr, Multiproof, ProverOpening, Transcript};
use spinney_tree::verkle::json::Json as _;
use spinney_tree::verkle::proof::{Proof, ProofFault, StateDiff};
use spinney_tree::{Pending, TreeError};

use crate::binary::{ubt_key, word as value};
use crate::model::{Bench, Entries, Op};
use crate::verkle::verkle;
use crate::verkle_vectors::{Draws, hex, list, load, padded, word};

type Tree = Bench<spinney_tree::verkle::Verkle>;

/// The tree that a proof of the vectors is of.
fn tree_of(case: &Json) -> Tree {
    let mut bench = Bench::new(verkle(), 1 << 30);
    let puts: Vec<Op> = match case["tree"]["trees.json"].as_str() {
        None => put_all(list(case, "tree")),
        Some("random-10000") => {
            let mut draws = Draws::new("tree-random-10000");
            let entries = (0..10_000).map(|_| (draws.word().to_vec(), draws.word().to_vec()));
            entries.map(|(key, value)| Op::Put(key, value)).collect()
        }
        Some(name) => {
            let trees = load("trees.json").unwrap();
            let sequence = list(&trees, "sequences").iter().find(|tree| tree["name"] == name);
            put_all(list(sequence.unwrap(), "inserts"))
        }
    };
    let pending = bench.prepare(None, &puts);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    bench
}

fn put_all(entries: &[Json]) -> Vec<Op> {
    let put = |entry: &Json| Op::Put(hex(&entry["key"]), padded(hex(&entry["value"])));
    entries.iter().map(put).collect()
}

#[test]
fn proofs_are_go_verkles_byte_for_byte() {
    let Some(vectors) = load("proofs.json") else { return };
    let mut posts = 0;
    for case in list(&vectors, "proofs").iter().filter(|case| case["error"].is_null()) {
        let name = case["name"].as_str().unwrap();
        let bench = tree_of(case);
        let root = bench.tree.root();
        assert_eq!(root, word(&case["root"]), "{name}");
        let keys: Vec<_> = list(case, "keys_sorted").iter().map(hex).collect();
        let (proof, mut diff) = bench.tree.prove(&bench.snapshot(), None, &keys).unwrap();
        assert_eq!(proof.to_json(), case["verkle_proof"], "{name}");
        let opaque = hex(&case["opaque_bytes_rust_verkle"]);
        assert_eq!(proof.to_bytes(), opaque, "{name}");
        assert!(opaque.ends_with(&hex(&case["multiproof_bytes"])), "{name}");
        assert_eq!(Proof::from_bytes(&opaque).unwrap(), proof, "{name}");
        assert_eq!(Proof::from_json(&case["verkle_proof"]).unwrap(), proof, "{name}");
        let told = StateDiff::from_json(&case["state_diff"]).unwrap();
        // go-verkle tells a key twice that is asked for twice.
        if keys.is_sorted_by(|a, b| a < b) {
            for (stem, entry) in told.0.iter().flat_map(|s| s.suffixes.iter().map(|e| (s.stem, e)))
            {
                let key = [&stem[..], &[entry.suffix]].concat().try_into().unwrap();
                assert!(entry.new.is_none_or(|new| diff.set_new(&key, new)), "{name}");
            }
            assert_eq!(diff.to_json(), case["state_diff"], "{name}");
        }
        let verified = proof.verify(&Crs::new(), &root, &diff).unwrap();
        for key in &keys {
            let key: [u8; 32] = key[..].try_into().unwrap();
            let read = bench.tree.get(&bench.snapshot(), None, &key).unwrap();
            assert_eq!(
                verified.get(&key).unwrap().map(|value| value.to_vec()),
                read.map(|v| v.to_vec())
            );
        }
        if !case["post_root"].is_null() {
            assert_eq!(
                verified.post_root(&Crs::new()).unwrap(),
                word(&case["post_root"]),
                "{name}"
            );
            posts += 1;
        }
    }
    assert_eq!(posts, 2);
}

#[test]
fn proofs_that_do_not_hold_are_all_refused() {
    let Some(vectors) = load("proofs_negative.json") else { return };
    let mut refused = 0;
    for case in list(&vectors, "cases") {
        let proof = Proof::from_json(&case["verkle_proof"]).ok();
        let diff = StateDiff::from_json(&case["state_diff"]).ok();
        let Some((proof, diff)) = proof.zip(diff) else {
            refused += 1;
            continue;
        };
        let answer = proof.verify(verkle().crs(), &word(&case["root"]), &diff);
        assert!(answer.is_err(), "{} {}", case["base"], case["mutation"]);
        refused += 1;
    }
    assert_eq!(refused, 70);
}

#[test]
fn witnesses_of_a_test_networks_blocks_hold() {
    let Some(cases) = load("upstream/block_proof_cases.json") else { return };
    for case in list(&cases, "cases") {
        let Some(block) = load(&format!("upstream/{}", case["file"].as_str().unwrap())) else {
            continue;
        };
        let witness = &block["executionWitness"];
        let proof = Proof::from_json(&witness["verkleProof"]).unwrap();
        let diff = StateDiff::from_json(&witness["stateDiff"]).unwrap();
        let verified = proof.verify(verkle().crs(), &word(&case["pre_state_root"]), &diff);
        assert_eq!(verified.is_ok(), case["valid"] == true, "{}", case["file"]);
        if let Ok(verified) = verified {
            let post = verified.post_root(verkle().crs()).unwrap();
            // Block 1 writes more than its witness tells.
            let complete = case["file"] != "valid_block_1.json";
            assert_eq!(post == word(&block["header"]["stateRoot"]), complete);
        }
    }
}

#[test]
fn a_proof_of_nothing_is_refused() {
    let bench = Bench::new(verkle(), 1 << 20);
    let none: [&[u8]; 0] = [];
    let error = bench.tree.prove(&bench.snapshot(), None, &none).unwrap_err();
    assert!(matches!(error, TreeError::Refused { .. }), "{error}");
    let error = bench.tree.prove(&bench.snapshot(), None, &[[1; 31]]).unwrap_err();
    assert!(matches!(error, TreeError::Refused { .. }), "{error}");
}

/// The bytes of a proof: no other stems, these statuses and commitments, and a multiproof of
/// something else.
fn told(statuses: &[u8], commitments: usize) -> Proof {
    static HONEST: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let bench = Bench::new(verkle(), 1 << 20);
        let (proof, _) = bench.tree.prove(&bench.snapshot(), None, &[[1; 32]]).unwrap();
        proof.to_bytes()
    });
    let count = |n: usize| (n as u32).to_le_bytes();
    let lists = [&count(0)[..], &count(statuses.len()), statuses, &count(commitments)].concat();
    let bytes = [lists, vec![0; 32 * commitments], HONEST[13..].to_vec()].concat();
    Proof::from_bytes(&bytes).unwrap()
}

fn stem(first: u8, second: u8) -> [u8; 31] {
    let mut stem = [7; 31];
    (stem[0], stem[1]) = (first, second);
    stem
}

/// A half of the stem that is present lies where the other stem says that nothing is.
#[test]
fn a_half_where_nothing_is_said_to_be_is_a_conflict() {
    let key = |stem: [u8; 31]| [&stem[..], &[5]].concat().try_into().unwrap();
    let diff = StateDiff::of([(key(stem(1, 2)), None), (key(stem(1, 3)), Some([9; 32]))]);
    let proof = told(&[2 << 3, 1 << 3 | 2], 2);
    let refused = proof.verify(verkle().crs(), &[0; 32], &diff).unwrap_err();
    assert_eq!(refused, ProofFault::Conflict { path: vec![1] });
}

/// Every two stems with every two statuses: they contradict one another or the openings, and none
/// is believed.
#[test]
fn no_two_statuses_make_a_verifier_panic() {
    // The multiproof is one of the empty tree: of this one it shows nothing.
    let root = filled(&Entries::from([(vec![9; 32], vec![9; 32])])).1.root();
    let mut refusals = BTreeMap::new();
    let statuses: Vec<u8> =
        (1..5).flat_map(|depth| [0, 1, 2].map(|end| depth << 3 | end)).collect();
    let stems = [stem(1, 2), stem(1, 3), stem(2, 2), stem(2, 3), stem(3, 2)];
    for (one, other) in (0..stems.len()).flat_map(|one| (0..one).map(move |other| (other, one))) {
        for (suffix, value) in [(5, None), (5, Some([9; 32])), (200, None), (200, Some([9; 32]))] {
            let key = |stem: [u8; 31]| [&stem[..], &[suffix]].concat().try_into().unwrap();
            let diff = StateDiff::of([(key(stems[one]), value), (key(stems[other]), None)]);
            for pair in statuses.iter().flat_map(|a| statuses.iter().map(|b| [*a, *b])) {
                let refused = |commitments| {
                    let proof = told(&pair, commitments);
                    proof.verify(verkle().crs(), &root, &diff).unwrap_err()
                };
                let mut fault = refused(0);
                if let ProofFault::Commitments { expected, .. } = fault {
                    fault = refused(expected);
                }
                *refusals.entry(format!("{:?}", std::mem::discriminant(&fault))).or_insert(0) += 1;
            }
        }
    }
    assert!(refusals.len() > 3, "{refusals:?}");
}

/// A tree, half of it pending, and the keys to prove.
fn filled(entries: &Entries) -> (Tree, Pending<spinney_tree::verkle::Verkle>) {
    let mut bench = Bench::new(verkle(), 1);
    let puts: Vec<_> = entries.iter().map(|(k, v)| Op::Put(k.clone(), v.clone())).collect();
    let (first, second) = puts.split_at(puts.len() / 2);
    let pending = bench.prepare(None, first);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    let pending = bench.prepare(None, second);
    (bench, pending)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 40,
        max_shrink_iters: 1_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn proofs_of_any_keys_hold_and_give_the_root_after(
        entries in prop::collection::btree_map(ubt_key(), value(), 0..60),
        absent in prop::collection::btree_set(ubt_key(), 1..20),
        every in 1usize..6,
        new in prop::collection::vec(prop::option::of(value()), 40),
    ) {
        let (bench, pending) = filled(&entries);
        let keys: Vec<_> = entries.keys().step_by(every).cloned().chain(absent).collect();
        let (proof, mut diff) =
            bench.tree.prove(&bench.snapshot(), Some(&pending), &keys).unwrap();
        let crs = verkle();
        let crs = crs.crs();
        let bytes = proof.to_bytes();
        prop_assert_eq!(&Proof::from_bytes(&bytes).unwrap(), &proof);
        let mut writes = BTreeMap::new();
        for (key, new) in keys.iter().zip(&new) {
            let key: [u8; 32] = key[..].try_into().unwrap();
            let current = diff.get(&key).unwrap().current.map(|value| value.to_vec());
            prop_assert_eq!(current.as_ref(), entries.get(&key[..]));
            if let Some(new) = new {
                diff.set_new(&key, new[..].try_into().unwrap());
                writes.insert(key.to_vec(), new.clone());
            }
        }
        let verified = proof.verify(crs, &pending.root(), &diff).unwrap();
        let puts: Vec<_> = writes.into_iter().map(|(key, value)| Op::Put(key, value)).collect();
        let after = bench.prepare(Some(&pending), &puts);
        prop_assert_eq!(verified.post_root(crs).unwrap(), after.root());
        prop_assert!(proof.verify(crs, &[7; 32], &diff).is_err());
    }

    #[test]
    fn a_changed_verkle_proof_is_refused(
        entries in prop::collection::btree_map(ubt_key(), value(), 1..20),
        absent in prop::collection::btree_set(ubt_key(), 1..4),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1u8..=255), 30),
    ) {
        let (bench, pending) = filled(&entries);
        let keys: Vec<_> = entries.keys().step_by(2).cloned().chain(absent).collect();
        let (proof, diff) = bench.tree.prove(&bench.snapshot(), Some(&pending), &keys).unwrap();
        let bytes = proof.to_bytes();
        let refused = |bytes: &[u8], diff: &StateDiff| {
            let proof = Proof::from_bytes(bytes);
            proof.is_err() || proof.unwrap().verify(verkle().crs(), &pending.root(), diff).is_err()
        };
        prop_assert!(!refused(&bytes, &diff));
        for (at, flip) in &flips {
            let mut changed = bytes.clone();
            // The lists and the beginning of the multiproof are where shapes are told.
            let at = at.index(changed.len());
            changed[at] ^= flip;
            prop_assert!(refused(&changed, &diff), "byte {at} of {}", bytes.len());
            prop_assert!(refused(&bytes[..at], &diff));
        }
        let mut longer = bytes.clone();
        longer.push(0);
        prop_assert!(refused(&longer, &diff));
        for stem in 0..diff.0.len() {
            let mut changed = diff.clone();
            let entry = &mut changed.0[stem].suffixes[0];
            entry.current = if entry.current.is_some() { None } else { Some([0; 32]) };
            prop_assert!(refused(&bytes, &changed));
            let mut changed = diff.clone();
            changed.0.remove(stem);
            prop_assert!(refused(&bytes, &changed));
        }
    }
}

/// A leaf commits to `[1, stem, C1, C2, 0 ..]`. Read as an internal node it has nothing at most
/// digits, and a proof has no bit that says which of the two a commitment is. This is the limit of
/// the format that SECURITY.md tells of: the proof holds, and the proof itself says which stems it
/// is about.
#[test]
fn a_leaf_read_as_an_internal_node_shows_its_own_stem_absent() {
    let mut key = [9; 32];
    key[31] = 0;
    let other = [0xaa; 32];
    let mut bench = Bench::new(verkle(), 1 << 30);
    let puts = [key, other].map(|key| Op::Put(key.to_vec(), vec![7; 32]));
    let pending = bench.prepare(None, &puts);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    let root = bench.tree.root();

    // What the adversary knows: the vectors of the root and of both leaves.
    let crs = Crs::new();
    let scalar = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(Fr::ZERO, |sum, byte| sum * Fr::from(256) + Fr::from(u64::from(*byte)))
    };
    let leaf = |key: &[u8; 32]| {
        let (mut vector, mut half) = ([Fr::ZERO; 256], [Fr::ZERO; 256]);
        let at = usize::from(key[31] % 128) * 2;
        half[at] = scalar(&[7; 16]) + Fr::from_limbs([0, 0, 1, 0]);
        half[at + 1] = scalar(&[7; 16]);
        vector[0] = Fr::ONE;
        vector[1] = scalar(&key[..31]);
        vector[2 + usize::from(key[31] / 128)] = crs.commit(&half).map_to_field();
        vector
    };
    let (known, beside) = (leaf(&key), leaf(&other));
    let commitment = crs.commit(&known);
    let mut top = [Fr::ZERO; 256];
    top[usize::from(key[0])] = commitment.map_to_field();
    top[usize::from(other[0])] = crs.commit(&beside).map_to_field();
    assert_eq!(crs.commit(&top).to_compressed(), root);

    let openings = [
        ProverOpening { commitment: crs.commit(&top), values: &top, index: key[0] },
        ProverOpening { commitment, values: &known, index: key[1] },
    ];
    let multiproof = Multiproof::prove(&crs, &mut Transcript::new(b"vt"), &openings).unwrap();
    let mut bytes = Vec::new();
    // No other stems; nothing at the end of a path of two bytes; one commitment.
    bytes.extend(0_u32.to_le_bytes());
    bytes.extend([&1_u32.to_le_bytes()[..], &[2 << 3]].concat());
    bytes.extend([&1_u32.to_le_bytes()[..], &commitment.to_compressed()].concat());
    bytes.extend(multiproof.to_bytes());
    let forged = Proof::from_bytes(&bytes).unwrap();
    let diff = StateDiff::of([(key, None)]);
    assert!(
        forged.verify(&crs, &root, &diff).is_ok(),
        "the format can tell: say so in SECURITY.md"
    );
    assert_eq!(forged.unsure_stems(&diff), [[9; 31]]);

    // Where the format can tell, nothing is unsure: a present key, another stem, nothing below the
    // root.
    for asked in [
        key,
        {
            let mut near = key;
            near[30] = 1;
            near
        },
        [0x33; 32],
    ] {
        let (proof, diff) = bench.tree.prove(&bench.snapshot(), None, &[asked]).unwrap();
        assert!(proof.verify(&crs, &root, &diff).is_ok());
        assert!(proof.unsure_stems(&diff).is_empty(), "{asked:02x?}");
    }
    // What says that it is no leaf is the other way round: its mark is no child's commitment.
    let mut marked = bytes.clone();
    marked[8] = 1 << 3;
    assert!(Proof::from_bytes(&marked).unwrap().verify(&crs, &root, &diff).is_err());
}
