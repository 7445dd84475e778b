//! The binary trees against their textbooks.

use proptest::prelude::*;
use spinney_tree::pbt::{self, Pbt};
use spinney_tree::ubt::{self, Ubt};
use spinney_tree::{Batch, HashFunction, Scheme, TreeError, bulk};

use crate::model::{Bench, Entries, Op};
use crate::raw::{round, run};

pub(crate) const UBT: Ubt = Ubt { hash: HashFunction::Sha256 };
pub(crate) const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };

pub(crate) fn ubt_root(hash: HashFunction) -> impl Fn(&Entries) -> [u8; 32] {
    move |entries| {
        let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            (key[..].try_into().unwrap(), value[..].try_into().unwrap())
        };
        ubt::reference::root(hash, &entries.iter().map(entry).collect())
    }
}

fn pbt_root(hash: HashFunction) -> impl Fn(&Entries) -> [u8; 32] {
    move |entries| {
        let entry =
            |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value[..].try_into().unwrap());
        pbt::reference::root(hash, &entries.iter().map(entry).collect())
    }
}

fn hash() -> impl Strategy<Value = HashFunction> {
    prop::sample::select(HashFunction::ALL.to_vec())
}

/// Stems alike in all but a few bits, or not at all; places anywhere.
pub(crate) fn ubt_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x80, 0x81]);
    let stem = prop_oneof![
        3 => (byte.clone(), byte.clone(), byte).prop_map(|(a, b, c)| {
            let mut stem = vec![0x5a; 31];
            (stem[0], stem[16], stem[30]) = (a, b, c);
            stem
        }),
        2 => any::<u16>().prop_map(|n| [n.to_be_bytes().to_vec(), vec![n as u8; 29]].concat()),
    ];
    (stem, any::<u8>()).prop_map(|(mut stem, place)| {
        stem.push(place);
        stem
    })
}

/// The first byte says how long a key is, so none begins another.
pub(crate) fn pbt_key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x81, 0xff]);
    let first = prop_oneof![12 => 0u8..4, 1 => 4u8..8];
    (first, byte.clone(), byte.clone(), byte, any::<u8>()).prop_map(|(first, a, b, c, d)| {
        let len = [1, 2, 34, 66, 900, 1_010, 1_100, 8_192][usize::from(first)];
        let mut key = vec![0x33; len];
        (key[len / 2], key[len / 3]) = (b, a);
        key[len - 1] = if len > 2 && d % 4 > 0 { c } else { d };
        key[0] = first * 31;
        key
    })
}

pub(crate) fn word() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![1 => Just(vec![0; 32]), 6 => any::<u64>().prop_map(|n| n.to_be_bytes().repeat(4))]
}

fn op(key: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Op> {
    let key = key.boxed();
    prop_oneof![
        6 => (key.clone(), word()).prop_map(|(key, value)| Op::Put(key, value)),
        4 => key.clone().prop_map(Op::Delete),
        1 => (key, prop::sample::select(vec![0usize, 1, 2, 17, 30, 31, 32, 33, 66])).prop_map(|(key, len)| {
            Op::Clear(key[..len.min(key.len())].to_vec())
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_of_a_ubt_equals_the_textbook_and_a_rebuild(
        rounds in prop::collection::vec(round(op(ubt_key()), 24), 10),
        small in any::<bool>(),
        hash in hash(),
    ) {
        run(Ubt { hash }, ubt_root(hash), &rounds, if small { 1 } else { 1 << 30 });
    }

    #[test]
    fn any_history_of_a_pbt_equals_the_textbook_and_a_rebuild(
        rounds in prop::collection::vec(round(op(pbt_key()), 24), 10),
        small in any::<bool>(),
        hash in hash(),
    ) {
        run(Pbt { hash }, pbt_root(hash), &rounds, if small { 1 } else { 1 << 30 });
    }

    #[test]
    fn sorted_leaves_have_the_textbooks_root(
        stems in prop::collection::btree_map(ubt_key(), word(), 0..80),
        leaves in prop::collection::btree_map(pbt_key(), word(), 0..40),
    ) {
        prop_assert_eq!(sorted(&UBT, &stems), ubt_root(UBT.hash)(&stems));
        prop_assert_eq!(sorted(&PBT, &leaves), pbt_root(PBT.hash)(&leaves));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4))]

    #[test]
    fn large_batches_of_both_equal_the_textbooks(
        ubt in prop::collection::vec(round(op(ubt_key()), 1_500), 4),
        pbt in prop::collection::vec(round(op(pbt_key()), 600), 4),
    ) {
        run(UBT, ubt_root(UBT.hash), &ubt, 1 << 30);
        run(PBT, pbt_root(PBT.hash), &pbt, 1 << 30);
    }
}

fn sorted<S: Scheme>(scheme: &S, leaves: &Entries) -> S::Root {
    bulk::root_of_sorted(scheme, &leaves.iter().collect::<Vec<_>>()).unwrap()
}

#[test]
fn stems_fill_and_empty_again() {
    let mut bench = Bench::new(UBT, 1 << 20);
    let key = |stem: u8, place: u8| [vec![stem; 31], vec![place]].concat();
    let steps: [Vec<Op>; 6] = [
        vec![Op::Put(key(1, 7), vec![1; 32])],
        (0..=255).map(|place| Op::Put(key(1, place), vec![place; 32])).collect(),
        vec![Op::Put(key(0x81, 0), vec![2; 32]), Op::Put(key(1, 9), vec![0; 32])],
        (1..=255).map(|place| Op::Delete(key(1, place))).collect(),
        vec![Op::Delete(key(1, 0)), Op::Put(key(1, 128), vec![4; 32])],
        vec![Op::Clear(vec![1; 31]), Op::Delete(key(0x81, 0)), Op::Delete(key(7, 0))],
    ];
    for ops in &steps {
        let pending = bench.prepare(None, ops);
        crate::model::apply(ops, &mut bench.entries);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        bench.check(&ubt_root(UBT.hash)(&bench.entries));
        // A stem is no key.
        let stem = bench.tree.get(&bench.snapshot(), None, &[1; 31]).unwrap();
        assert_eq!(stem.as_deref(), None);
    }
    assert_eq!(bench.tree.root(), [0; 32]);
}

/// What hangs right below a stem has a page of its own from fewer bytes on than what hangs below a
/// branch. So the values of a half of a stem move out of their page, and into it again, as the
/// other half comes and goes.
#[test]
fn values_of_a_stem_that_move_below_a_fork_and_back_have_the_pages_of_a_rebuild() {
    let key = |stem: u8, place: u8| [vec![stem; 31], vec![place]].concat();
    for (count, stacked) in (2..=64).flat_map(|count| [(count, false), (count, true)]) {
        let mut bench = Bench::new(UBT, 1 << 20);
        let half = (0..count).map(|at| Op::Put(key(1, 128 + at), vec![at; 32]));
        let steps: [Vec<Op>; 6] = [
            half.chain([Op::Put(key(0x81, 0), vec![2; 32])]).collect(),
            vec![Op::Put(key(1, 0), vec![7; 32])],
            vec![Op::Delete(key(1, 0)), Op::Put(key(1, 130), vec![9; 32])],
            vec![Op::Put(key(1, 3), vec![7; 32]), Op::Put(key(1, 5), vec![7; 32])],
            vec![Op::Delete(key(1, 3)), Op::Delete(key(1, 5))],
            vec![Op::Clear(key(1, 0)[..31].to_vec())],
        ];
        let mut last = None;
        for (number, ops) in steps.iter().enumerate() {
            let pending = bench.prepare(last.as_ref(), ops);
            crate::model::apply(ops, &mut bench.entries);
            if stacked && number % 2 == 1 {
                last = Some(pending);
                continue;
            }
            bench.tree.commit(&bench.store, &pending, None).unwrap();
            last = None;
            bench.check(&ubt_root(UBT.hash)(&bench.entries));
        }
        if let Some(pending) = last {
            bench.tree.commit(&bench.store, &pending, None).unwrap();
        }
        bench.check(&ubt_root(UBT.hash)(&bench.entries));
    }
}

#[test]
fn one_changed_value_of_a_full_stem_rewrites_two_pages() {
    let mut bench = Bench::new(UBT, 1 << 20);
    let key = |stem: u8, place: u8| [vec![stem; 31], vec![place]].concat();
    let ops: Vec<_> = (0..8)
        .flat_map(|stem| (0..=255).map(move |place| Op::Put(key(stem * 32, place), vec![7; 32])))
        .collect();
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    let pending = bench.prepare(None, &[Op::Put(key(64, 77), vec![8; 32])]);
    let stats = bench.tree.commit(&bench.store, &pending, None).unwrap();
    assert!(stats.rows_written <= 4 && stats.bytes < 8_192, "{stats:?}");
}

#[test]
fn keys_and_values_of_other_lengths_are_refused() {
    fn refused<S: Scheme + Clone>(scheme: S, key: &[u8], value: &[u8]) {
        let bench = Bench::new(scheme, 1 << 20);
        let mut batch = Batch::new();
        batch.put(key, value);
        let error = bench.tree.prepare(&bench.snapshot(), None, batch).unwrap_err();
        assert!(
            matches!(error, TreeError::Refused { .. } | TreeError::KeyTooLong { .. }),
            "{error}"
        );
    }
    for len in [0, 31, 33] {
        refused(UBT, &vec![1; len], &[1; 32]);
        refused(UBT, &[1; 32], &vec![1; len]);
        refused(PBT, &[1; 32], &vec![1; len]);
    }
    refused(PBT, &[], &[1; 32]);
    refused(PBT, &[1; 8_193], &[1; 32]);
}

/// Both keys of a pair of which one begins the other.
fn both(error: TreeError) -> (Vec<u8>, Vec<u8>) {
    match error {
        TreeError::PrefixKey { prefix, key } => (prefix, key),
        other => panic!("{other}"),
    }
}

#[test]
fn keys_that_begin_others_are_refused_with_both_named() {
    let put = |key: &[u8]| Op::Put(key.to_vec(), vec![1; 32]);
    let (short, long) = (vec![5, 5], vec![5, 5, 5, 1]);
    let expected = (short.clone(), long.clone());
    // In one batch, and either one first.
    let bench = Bench::new(PBT, 1);
    let error = prepare(&bench, &[put(&short), put(&long)]).unwrap_err();
    let message = error.to_string();
    assert_eq!(message, "key 0x0505 begins key 0x05050501: no key of this tree may begin another");
    assert_eq!(both(error), expected);
    for (first, second) in [(&short, &long), (&long, &short)] {
        // Over resident and over absent pages; beside many others, so that the tree has many pages.
        for cache in [1, 1 << 20] {
            let mut bench = Bench::new(PBT, cache);
            let others = (0..=255u8).flat_map(|a| (0..4).map(move |b| vec![5, 6, a, b]));
            let mut ops: Vec<_> = others.map(|key| put(&key)).collect();
            ops.push(put(first));
            let pending = bench.prepare(None, &ops);
            bench.tree.commit(&bench.store, &pending, None).unwrap();
            bench.reopen(cache);
            assert_eq!(both(prepare(&bench, &[put(second)]).unwrap_err()), expected);
            // What goes in the same batch does not count, however the batch is split.
            let mut swap = vec![Op::Delete(first.clone()), put(second)];
            let pending = bench.prepare(None, &swap);
            swap.extend((0..200u8).map(|a| put(&[5, 6, a, 9])));
            ops.extend(swap.clone());
            let many = bench.prepare(None, &swap);
            assert_ne!(pending.root(), many.root());
            swap.push(put(first));
            swap.remove(0);
            assert_eq!(both(prepare(&bench, &swap).unwrap_err()), expected);
        }
    }
    let sorted = bulk::root_of_sorted(&PBT, &[(&short, [1; 32]), (&long, [1; 32])]);
    assert_eq!(both(sorted.unwrap_err()), expected);
}

fn prepare(bench: &Bench<Pbt>, ops: &[Op]) -> Result<spinney_tree::Pending<Pbt>, TreeError> {
    bench.tree.prepare(&bench.snapshot(), None, crate::model::batch(ops))
}

/// Runs of values of a few stems: the stem, the first place, how many, how far apart, and what they
/// become.
type Run = (u8, u8, u8, u8, u64);

fn stem_runs() -> impl Strategy<Value = Vec<Vec<Vec<Run>>>> {
    let count = prop_oneof![1 => 1_u8..4, 2 => 30_u8..160];
    let run = (0_u8..3, any::<u8>(), count, 1_u8..6, any::<u64>());
    let batch = prop::collection::vec(run, 1..4);
    prop::collection::vec(prop::collection::vec(batch, 1..4), 1..5)
}

fn ops_of_runs(runs: &[Run]) -> Vec<Op> {
    let mut ops = std::collections::BTreeMap::new();
    for (stem, start, count, step, seed) in runs {
        let places = (0..u32::from(*count)).map(|at| u32::from(*start) + at * u32::from(*step));
        for place in places.take_while(|place| *place < 256) {
            let mut key = vec![0x5a; 32];
            (key[0], key[31]) = (stem * 0x40, place as u8);
            let new = seed.rotate_left(place) % 23;
            let value = (seed % 3 > 0 || new > 8).then(|| [vec![0; 31], vec![new as u8]].concat());
            ops.insert(key, value.filter(|_| seed % 11 > 0));
        }
    }
    let op = |(key, value)| match value {
        Some(value) => Op::Put(key, value),
        None => Op::Delete(key),
    };
    ops.into_iter().map(op).collect()
}

/// Stems full of values by batches upon batches, committed together.
fn stems_by_layers<S: Scheme<Root = [u8; 32]> + Clone>(
    scheme: S,
    (blocks, cache_bytes, reopens): (&[Vec<Vec<Run>>], usize, bool),
    textbook: impl Fn(&Entries) -> [u8; 32],
) {
    let mut bench = Bench::new(scheme, cache_bytes);
    for block in blocks {
        let mut pending = None;
        for runs in block {
            let ops = ops_of_runs(runs);
            let next = bench.prepare(pending.as_ref(), &ops);
            crate::model::apply(&ops, &mut bench.entries);
            assert_eq!(next.root(), textbook(&bench.entries), "of a pending state");
            bench.check_entries(Some(&next), &bench.entries);
            pending = Some(next);
        }
        bench.tree.commit(&bench.store, &pending.unwrap(), None).unwrap();
        bench.check(&textbook(&bench.entries));
        if reopens {
            bench.reopen(cache_bytes);
        }
    }
}

proptest! {
    // Each fills and empties stems of 256 values.
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases / 3,
        ..ProptestConfig::default()
    })]

    #[test]
    fn stems_full_of_values_by_batches_upon_batches_equal_the_textbooks(
        blocks in stem_runs(),
        cache in prop_oneof![Just(1_usize), Just(1 << 20)],
        reopens in any::<bool>(),
    ) {
        stems_by_layers(UBT, (&blocks, cache, reopens), ubt_root(UBT.hash));
        stems_by_layers(PBT, (&blocks, cache, reopens), pbt_root(PBT.hash));
    }
}

/// The values of a stem that hang in a page of their own fork elsewhere after a commit: what is
/// known of the pages that lead there must not go along, though the item that leads there takes as
/// many bytes.
fn forks_move<S: Scheme<Root = [u8; 32]> + Clone>(
    scheme: &S,
    stem: impl Fn(u8) -> Vec<u8>,
    textbook: impl Fn(&Entries) -> [u8; 32],
) {
    let starts = [0x80_u8, 0xc0, 0xe0, 0xf0];
    let moves = starts.iter().flat_map(|a| starts.map(|b| (*a, b)));
    let sizes = [(1, 1), (1, 3), (2, 1), (4, 1)];
    for ((before, after), (step, then)) in moves.flat_map(|m| sizes.map(|s| (m, s))) {
        for others in (4..44).step_by(4) {
            let mut bench = Bench::new(scheme.clone(), 1 << 26);
            let put = |number: u8, place: u8| {
                Op::Put([&stem(number)[..], &[place]].concat(), vec![place | 1; 32])
            };
            let delete = |place: u8| Op::Delete([&stem(1)[..], &[place]].concat());
            let run = |start: u8, step: usize| (start..=0xff).step_by(step).map(|at| put(1, at));
            // Beside it small ones, in the page that its own hangs in.
            let beside = (0..others).map(|n| put(n * 2, 3));
            let large: Vec<Op> = run(before, step).chain(beside).collect();
            let moved: Vec<Op> = (before..after).map(delete).chain(run(after, then)).collect();
            let back: Vec<Op> = (after..before).map(delete).chain(run(before, then)).collect();
            for ops in [large, moved, back] {
                let pending = bench.prepare(None, &ops);
                crate::model::apply(&ops, &mut bench.entries);
                bench.tree.commit(&bench.store, &pending, None).unwrap();
                let snapshot = bench.snapshot();
                let found = bench.tree.entries(&snapshot, None, b"").map(|entry| {
                    let entry = entry.unwrap();
                    (entry.key, entry.value.to_vec())
                });
                let found: Entries = found.collect();
                assert!(found == bench.entries, "{before:x} {step} {after:x} {then} {others}");
            }
            assert_eq!(bench.tree.root(), textbook(&bench.entries));
        }
    }
}

#[test]
fn pages_of_a_stem_whose_fork_moves_are_found_where_they_are() {
    let stem = |number: u8| {
        let mut stem = vec![0x5a; 31];
        (stem[0], stem[1]) = (0x40 | number >> 2, number << 6);
        stem
    };
    forks_move(&UBT, stem, ubt_root(UBT.hash));
    forks_move(&PBT, stem, pbt_root(PBT.hash));
}
