//! The Verkle tree against its textbook.

use std::sync::{Arc, OnceLock};

use proptest::prelude::*;
use spinney_ipa::{Crs, TableOptions};
use spinney_tree::verkle::{Verkle, reference};
use spinney_tree::{Batch, TreeError, bulk};

use crate::binary::{ubt_key, word};
use crate::model::{Bench, Entries, Op};
use crate::raw::{round, run};

/// A tree over a small table, which is quick to build.
pub(crate) fn verkle() -> Verkle {
    static CRS: OnceLock<Arc<Crs>> = OnceLock::new();
    let options = TableOptions { window_bits: 5, wide_window_bits: 5, ..TableOptions::default() };
    Verkle::new(Arc::clone(CRS.get_or_init(|| Arc::new(Crs::with_table(&options)))))
}

pub(crate) fn textbook(entries: &Entries) -> [u8; 32] {
    let entry = |(key, value): (&Vec<u8>, &Vec<u8>)| {
        (key[..].try_into().unwrap(), value[..].try_into().unwrap())
    };
    reference::root(verkle().crs(), &entries.iter().map(entry).collect())
}

fn op() -> impl Strategy<Value = Op> {
    let key = ubt_key().boxed();
    prop_oneof![
        6 => (key.clone(), word()).prop_map(|(key, value)| Op::Put(key, value)),
        4 => key.clone().prop_map(Op::Delete),
        1 => (key, prop::sample::select(vec![0usize, 1, 2, 17, 30, 31, 32])).prop_map(|(key, len)| {
            Op::Clear(key[..len].to_vec())
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_history_of_a_verkle_tree_equals_the_textbook_and_a_rebuild(
        rounds in prop::collection::vec(round(op(), 24), 8),
        small in any::<bool>(),
    ) {
        run(verkle(), textbook, &rounds, if small { 1 } else { 1 << 30 });
    }

    #[test]
    fn sorted_leaves_have_the_textbooks_verkle_root(
        leaves in prop::collection::btree_map(ubt_key(), word(), 0..80),
    ) {
        let sorted: Vec<_> = leaves.iter().collect();
        prop_assert_eq!(bulk::root_of_sorted(&verkle(), &sorted).unwrap(), textbook(&leaves));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2))]

    #[test]
    fn large_batches_of_a_verkle_tree_equal_the_textbook(
        rounds in prop::collection::vec(round(op(), 1_500), 3),
    ) {
        run(verkle(), textbook, &rounds, 1 << 30);
    }
}

fn key(stem: u8, place: u8) -> Vec<u8> {
    [vec![stem; 31], vec![place]].concat()
}

#[test]
fn stems_of_a_verkle_tree_fill_and_empty_again() {
    let mut bench = Bench::new(verkle(), 1 << 20);
    let steps: [Vec<Op>; 7] = [
        vec![Op::Put(key(1, 7), vec![1; 32])],
        (0..=255).map(|place| Op::Put(key(1, place), vec![place; 32])).collect(),
        vec![Op::Put(key(0x81, 0), vec![2; 32]), Op::Put(key(1, 9), vec![0; 32])],
        (1..=255).map(|place| Op::Delete(key(1, place))).collect(),
        vec![Op::Delete(key(1, 0)), Op::Put(key(1, 128), vec![4; 32])],
        vec![Op::Put(key(1, 3), vec![5; 32]), Op::Delete(key(1, 128))],
        vec![Op::Clear(vec![1; 31]), Op::Delete(key(0x81, 0)), Op::Delete(key(7, 0))],
    ];
    for ops in &steps {
        let pending = bench.prepare(None, ops);
        crate::model::apply(ops, &mut bench.entries);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        bench.check(&textbook(&bench.entries));
        let stem = bench.tree.get(&bench.snapshot(), None, &[1; 31]).unwrap();
        assert_eq!(stem.as_deref(), None);
    }
    assert_eq!(bench.tree.root(), [0; 32]);
}

#[test]
fn one_changed_slot_of_a_full_stem_costs_less_than_a_kilobyte() {
    let mut bench = Bench::new(verkle(), 1 << 20);
    let ops: Vec<_> = (0..=255).map(|place| Op::Put(key(64, place), vec![7; 32])).collect();
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    let pending = bench.prepare(None, &[Op::Put(key(64, 77), vec![8; 32])]);
    let stats = bench.tree.commit(&bench.store, &pending, None).unwrap();
    assert!(stats.rows_written == 2 && stats.bytes < 1_024, "{stats:?}");
    // Another value costs the page that names what is where, too.
    let pending = bench.prepare(None, &[Op::Delete(key(64, 77))]);
    let stats = bench.tree.commit(&bench.store, &pending, None).unwrap();
    assert!(stats.rows_written == 3 && stats.bytes < 2_048, "{stats:?}");
}

#[test]
fn keys_and_values_of_other_lengths_are_refused_by_a_verkle_tree() {
    let bench = Bench::new(verkle(), 1 << 20);
    let prepare = |key: &[u8], value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(key, value);
        bench.tree.prepare(&bench.snapshot(), None, batch).unwrap_err()
    };
    for len in [0, 31, 33] {
        assert!(matches!(prepare(&vec![1; len], &[1; 32]), TreeError::Refused { .. }));
        assert!(matches!(prepare(&[1; 32], &vec![1; len]), TreeError::Refused { .. }));
    }
}
