//! The Merkle-sum tree over the engine, against its textbook.

use proptest::prelude::*;
use spinney_tree::sum::reference::{self, Leaves};
use spinney_tree::sum::{
    Claim, DEPTH, Leaf, Profile, Proof, ProofError, Sum, SumRoot, path, verify_many,
};
use spinney_tree::{Batch, TreeError, bulk};

use crate::model::{Bench, Entries, Op};
use crate::raw::{round, run};
use crate::sum::any_profile;

/// The leaves of engine entries.
fn leaves(entries: &Entries) -> Leaves {
    let leaf = |(key, value): (&Vec<u8>, &Vec<u8>)| {
        (path(key[..].try_into().unwrap()), Leaf::decode(value).unwrap())
    };
    entries.iter().map(leaf).collect()
}

fn root(profile: Profile) -> impl Fn(&Entries) -> SumRoot {
    move |entries| reference::root(profile, &leaves(entries)).unwrap().into()
}

/// Keys that part at the first, some middle and the last bits; and keys like digests.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0x00_u8, 0x01, 0x80, 0xff]);
    prop_oneof![
        2 => (byte.clone(), byte.clone(), byte.clone(), byte).prop_map(|(a, b, c, d)| {
            let mut key = vec![0x5a; 32];
            (key[0], key[6], key[15], key[31]) = (a, b, c, d);
            key
        }),
        1 => any::<u16>().prop_map(|n| [n.to_be_bytes().to_vec(), vec![n as u8; 30]].concat()),
    ]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    // Equal leaves are common, and long ones overflow their page.
    let bytes = prop_oneof![
        3 => Just(vec![7]),
        3 => prop::collection::vec(any::<u8>(), 0..40),
        1 => (800_usize..1_200).prop_map(|len| vec![3; len]),
    ];
    (bytes, 1_u64..1 << 30).prop_map(|(value, sum)| Leaf { value, sum }.encode())
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (key(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        8 => key().prop_map(Op::Delete),
        1 => (key(), 0_usize..4).prop_map(|(key, len)| Op::Clear(key[..len].to_vec())),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_equals_the_textbook_and_a_rebuild(
        rounds in prop::collection::vec(round(op(), 16), 8),
        small in any::<bool>(),
        profile in any_profile(),
    ) {
        run(Sum { profile }, root(profile), &rounds, if small { 1 } else { 1 << 30 });
    }

    #[test]
    fn sorted_leaves_have_the_textbooks_root(
        profile in any_profile(),
        entries in prop::collection::btree_map(key(), value(), 0..40),
    ) {
        let sorted = bulk::root_of_sorted(&Sum { profile }, &entries.iter().collect::<Vec<_>>());
        prop_assert_eq!(sorted.unwrap(), root(profile)(&entries));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn large_batches_equal_the_textbook(
        rounds in prop::collection::vec(round(op(), 600), 4),
        profile in any_profile(),
    ) {
        run(Sum { profile }, root(profile), &rounds, 1 << 30);
    }
}

/// Leaves of which a few have nearly all the sum that there may be.
fn heavy() -> impl Strategy<Value = Leaf> {
    let sum = prop_oneof![
        3 => 0_u64..100,
        1 => Just(u64::MAX),
        1 => Just(u64::MAX - 5),
        1 => Just(u64::MAX / 2),
        1 => Just(u64::MAX / 2 + 7),
    ];
    (prop::collection::vec(any::<u8>(), 0..3), sum).prop_map(|(value, sum)| Leaf { value, sum })
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// What overflows and what does not is what the textbook says; refused, nothing has changed.
    #[test]
    fn sums_overflow_when_the_textbooks_do(
        profile in any_profile(),
        small in any::<bool>(),
        batches in prop::collection::vec(
            (any::<bool>(), prop::collection::btree_map(key(), heavy(), 0..6)), 1..8),
    ) {
        let mut bench = Bench::new(Sum { profile }, if small { 1 } else { 1 << 20 });
        let mut model = Leaves::new();
        for (clear, batch) in batches {
            let mut ops = Batch::new();
            let mut after = model.clone();
            if clear {
                ops.delete_prefix(&[]);
                after.clear();
            }
            for (key, leaf) in &batch {
                ops.put(key, &leaf.encode());
            }
            let listed = batch.iter().map(|(key, leaf)| {
                (path(key[..].try_into().unwrap()), leaf.clone())
            }).collect();
            let expected = reference::apply(&mut after, &listed);
            match bench.tree.prepare(&bench.snapshot(), None, ops) {
                Ok(pending) => {
                    prop_assert!(expected.is_ok());
                    bench.tree.commit(&bench.store, &pending, None).unwrap();
                    model = after;
                    if small {
                        bench.reopen(1);
                    }
                }
                Err(TreeError::Overweight { .. }) => prop_assert!(expected.is_err()),
                Err(other) => panic!("{other}"),
            }
            let expected = reference::root(profile, &model).unwrap();
            prop_assert_eq!(bench.tree.root().node(), expected);
        }
    }
}

/// Two equal leaves whose subtrees are equal, too: where nodes are found by their hash, replacing
/// one changes the other.
#[test]
fn equal_subtrees_are_apart() {
    let mut bench = Bench::new(Sum::default(), 1 << 20);
    let mut other = [0; 32];
    other[0] = 1;
    let five = Leaf { value: b"x".to_vec(), sum: 5 };
    let seven = Leaf { value: b"y".to_vec(), sum: 7 };
    let put = |key: &[u8; 32], leaf: &Leaf| Op::Put(path(key).to_vec(), leaf.encode());
    let first = [put(&[0; 32], &five), put(&other, &five)];
    for ops in [&first[..], &[put(&[0; 32], &seven)]] {
        let pending = bench.prepare(None, ops);
        crate::model::apply(ops, &mut bench.entries);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        bench.check(&root(Profile::Compatible)(&bench.entries));
    }
    assert_eq!(bench.tree.root().node().sum, 12);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Proofs out of a tree are the textbook's, byte for byte, and hold, one by one and together;
    /// those that claim anything else do not.
    #[test]
    fn proofs_are_the_textbooks(
        profile in any_profile(),
        rounds in prop::collection::vec(prop::collection::vec(op(), 0..24), 1..4),
        others in prop::collection::vec(key(), 0..12),
        small in any::<bool>(),
    ) {
        let mut bench = Bench::new(Sum { profile }, if small { 1 } else { 1 << 20 });
        let mut pending = None;
        for (ops, at) in rounds.iter().zip(0..) {
            crate::model::apply(ops, &mut bench.entries);
            let next = bench.prepare(pending.as_ref(), ops);
            // The last round is proven as it stands, not committed.
            if at + 1 < rounds.len() && at % 2 == 0 {
                bench.tree.commit(&bench.store, &next, None).unwrap();
                pending = None;
                if small {
                    bench.reopen(1);
                }
            } else {
                pending = Some(next);
            }
        }
        let tree = leaves(&bench.entries);
        let keys: Vec<[u8; 32]> = tree.keys().copied()
            .chain(others.iter().map(|key| path(key[..].try_into().unwrap()))).collect();
        let (root, expected) = reference::prove(profile, &tree, &keys).unwrap();
        let proofs = bench.tree.prove(&bench.snapshot(), pending.as_ref(), &keys).unwrap();
        prop_assert_eq!(&proofs, &expected);
        let claims: Vec<_> = keys.iter().zip(&proofs)
            .map(|(key, proof)| Claim { key, leaf: tree.get(key), proof }).collect();
        verify_many(profile, root, &claims).unwrap();
        for (index, claim) in claims.iter().enumerate() {
            let other = Leaf { value: vec![1, 2, 3], sum: 9 };
            let wrong = match claim.leaf {
                Some(_) => Claim { leaf: None, ..*claim },
                None => Claim { leaf: Some(&other), ..*claim },
            };
            let mut all = claims.clone();
            all[index] = wrong;
            prop_assert_eq!(verify_many(profile, root, &all).unwrap_err().index, index);
        }
    }
}

#[test]
fn claims_whose_sums_overflow_do_not_hold() {
    let leaf = Leaf { value: vec![1], sum: 1 };
    let mut full = vec![0; DEPTH * 40];
    let at = (DEPTH - 10) * 40;
    full[at + 32..at + 40].copy_from_slice(&u64::MAX.to_be_bytes());
    for profile in [Profile::Compatible, Profile::Bound] {
        let proof = Proof::decode_full(profile, &full).unwrap();
        let claim = Claim { key: &[0; 32], leaf: Some(&leaf), proof: &proof };
        let error = verify_many(profile, profile.empty_node(0), &[claim]).unwrap_err();
        assert_eq!(error.source, ProofError::Overflow { depth: 9 });
    }
}
