//! The trie over raw keys against the textbook.

use proptest::prelude::*;
use spinney_tree::mpt::{Mpt, reference};
use spinney_tree::{
    Batch, BlockId, CommitStats, MemoryStore, PageStore, Scheme, Tree, TreeError, TreeId, WriteSet,
};

use crate::model::{Bench, Entries, Op, apply, pages, rebuild};

/// Keys that share long prefixes, begin one another, and collide often.
pub(crate) fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x11, 0x81, 0xff]);
    prop_oneof![
        4 => prop::collection::vec(byte.clone(), 0..5),
        // Like digests: alike in all but a few places.
        6 => (byte.clone(), byte.clone(), byte.clone()).prop_map(|(a, b, c)| {
            let mut key = vec![0x5a; 32];
            (key[0], key[1], key[16]) = (a, b, c);
            key
        }),
        4 => any::<u16>().prop_map(|n| [n.to_be_bytes().to_vec(), vec![n as u8; 30]].concat()),
        // Long prefixes, and paths beyond what a row's key holds in full.
        1 => (prop::sample::select(vec![100usize, 700, 1_010, 1_100, 8_192]), byte.clone(), byte)
            .prop_map(|(len, a, b)| {
                let mut key = vec![0x33; len];
                (key[len / 2], key[len - 1]) = (a, b);
                key
            }),
    ]
}

pub(crate) fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::collection::vec(any::<u8>(), 1..40),
        3 => (any::<u8>(), 60usize..130).prop_map(|(byte, len)| vec![byte; len]),
        1 => (any::<u8>(), prop::sample::select(vec![0usize, 250, 300, 840, 900, 2_000, 9_000]))
            .prop_map(|(byte, len)| vec![byte; len]),
    ]
}

pub(crate) fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (key(), value()).prop_map(|(key, value)| Op::Put(key, value)),
        4 => key().prop_map(Op::Delete),
        1 => (key(), 0usize..4).prop_map(|(key, len)| Op::Clear(key[..len.min(key.len())].to_vec())),
    ]
}

#[derive(Clone, Debug)]
pub(crate) struct Round {
    ops: Vec<Op>,
    /// Stack on the last pending state rather than commit it first.
    stack: bool,
    /// Prepare this beside it, and drop it.
    beside: Vec<Op>,
    reopen: bool,
}

pub(crate) fn round(
    op: impl Strategy<Value = Op> + 'static,
    size: usize,
) -> impl Strategy<Value = Round> {
    let op = op.boxed();
    let ops = prop::collection::vec(op.clone(), 0..size);
    let beside = prop::collection::vec(op, 0..4);
    let flags = (prop::bool::weighted(0.3), prop::bool::weighted(0.2));
    (ops, beside, flags).prop_map(|(ops, beside, (stack, reopen))| Round {
        ops,
        stack,
        beside,
        reopen,
    })
}

/// A history on a tree whose root the textbook says.
pub(crate) fn run<S: Scheme + Clone>(
    scheme: S,
    textbook: impl Fn(&Entries) -> S::Root,
    rounds: &[Round],
    cache_bytes: usize,
) {
    let mut bench = Bench::new(scheme, cache_bytes);
    let mut pending = None;
    for round in rounds {
        let next = bench.prepare(pending.as_ref(), &round.ops);
        let dropped = bench.prepare(pending.as_ref(), &round.beside);
        let mut beside = bench.entries.clone();
        apply(&round.beside, &mut beside);
        assert_eq!(dropped.root(), textbook(&beside), "a state beside");
        apply(&round.ops, &mut bench.entries);
        assert_eq!(next.root(), textbook(&bench.entries), "a pending root");
        if round.stack {
            bench.check_entries(Some(&next), &bench.entries);
            pending = Some(next);
            continue;
        }
        bench.tree.commit(&bench.store, &next, None).unwrap();
        pending = None;
        if round.reopen {
            bench.reopen(cache_bytes);
        }
        bench.check(&textbook(&bench.entries));
    }
}

proptest! {
    // Ten batches a case: PROPTEST_CASES=10000 makes the long run of 100,000.
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_equals_the_textbook_and_a_rebuild(
        rounds in prop::collection::vec(round(op(), 24), 10),
        small in any::<bool>(),
    ) {
        run(Mpt, reference::root, &rounds, if small { 1 } else { 1 << 30 });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn large_batches_equal_the_textbook_and_a_rebuild(
        rounds in prop::collection::vec(round(op(), 1_500), 4),
    ) {
        run(Mpt, reference::root, &rounds, 1 << 30);
    }
}

#[test]
fn nothing_changed_writes_nothing_and_one_leaf_writes_one_path() {
    let mut bench = Bench::new(Mpt, 1 << 30);
    let key = |i: u32| [&spinney_hash::keccak256(&i.to_be_bytes())[..]].concat();
    let ops: Vec<_> = (0..20_000).map(|i| Op::Put(key(i), vec![7; 78])).collect();
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    let same = bench.prepare(None, &ops[..100]);
    let stats = bench.tree.commit(&bench.store, &same, None).unwrap();
    assert_eq!(stats, Default::default());
    let absent =
        bench.prepare(None, &[Op::Delete(key(20_001)), Op::Clear(vec![0x12, 0x34, 0x56, 0x78])]);
    assert_eq!(bench.tree.commit(&bench.store, &absent, None).unwrap(), Default::default());
    let one = bench.prepare(None, &[Op::Put(key(5), vec![8; 78])]);
    let stats = bench.tree.commit(&bench.store, &one, None).unwrap();
    assert!((2..=7).contains(&stats.rows_written), "{stats:?}");
    assert_eq!((stats.rows_removed, stats.ranges_dropped), (0, 0));
    assert!(stats.bytes < 16_000, "{stats:?}");
}

#[test]
fn two_operations_on_one_key_are_refused() {
    let bench = Bench::new(Mpt, 1 << 20);
    let mut batch = Batch::new();
    batch.put(b"doe", b"reindeer");
    batch.delete(b"doe");
    let refused = bench.tree.prepare(&bench.snapshot(), None, batch).unwrap_err();
    assert!(matches!(refused, TreeError::Duplicate { ref key } if key == b"doe"), "{refused}");
    assert_eq!(refused.to_string(), "two operations on key 0x646f65 in one batch");
}

#[test]
fn a_key_too_long_is_refused() {
    let bench = Bench::new(Mpt, 1 << 20);
    let mut batch = Batch::new();
    batch.put(&[1; 8_193], b"x");
    let refused = bench.tree.prepare(&bench.snapshot(), None, batch).unwrap_err();
    assert!(matches!(refused, TreeError::KeyTooLong { got: 8_193, .. }), "{refused}");
}

#[test]
fn a_state_on_an_older_commit_is_stale() {
    let mut bench = Bench::new(Mpt, 1 << 20);
    let a = bench.prepare(None, &[Op::Put(vec![1], vec![1])]);
    let b = bench.prepare(None, &[Op::Put(vec![2], vec![2])]);
    let above = bench.prepare(Some(&a), &[Op::Put(vec![3], vec![3])]);
    bench.tree.commit(&bench.store, &a, None).unwrap();
    // Neither is it read: its pages are another state's by now.
    let snapshot = bench.snapshot();
    assert!(matches!(bench.tree.get(&snapshot, Some(&b), &[2]), Err(TreeError::Stale { .. })));
    assert!(bench.tree.entries(&snapshot, Some(&b), b"").next().unwrap().is_err());
    let refused = bench.tree.commit(&bench.store, &b, None).unwrap_err();
    assert!(matches!(refused, TreeError::Stale { base: 0, head: 1 }), "{refused}");
    bench.tree.commit(&bench.store, &above, None).unwrap();
    bench.entries = Entries::from([(vec![1], vec![1]), (vec![3], vec![3])]);
    bench.check(&reference::root(&bench.entries));
}

#[test]
fn an_older_snapshot_is_refused_before_it_can_do_harm() {
    let mut bench = Bench::new(Mpt, 1);
    let key = |i: u32| spinney_hash::keccak256(&i.to_be_bytes()).to_vec();
    let ops: Vec<_> = (0..500).map(|i| Op::Put(key(i), vec![7; 78])).collect();
    let old = bench.snapshot();
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    let batch = crate::model::batch(&[Op::Put(key(3), vec![8; 78])]);
    let refused = bench.tree.prepare(&old, None, batch).unwrap_err();
    assert!(matches!(refused, TreeError::OtherSnapshot { found: 0, head: 1, .. }), "{refused}");
    assert!(bench.tree.get(&old, None, &key(9)).is_err());
}

#[test]
fn trees_share_a_store_and_a_commit() {
    let store = MemoryStore::new();
    let open = |id| Tree::open(Mpt, TreeId(id), &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut trees = [open(1), open(2), open(3)];
    let mut set = WriteSet::new();
    let mut staged = Vec::new();
    for (tree, count) in trees.iter().zip([300u32, 5, 4_000]) {
        let ops: Vec<_> =
            (0..count).map(|i| Op::Put(i.to_le_bytes().to_vec(), vec![count as u8; 40])).collect();
        let batch = crate::model::batch(&ops);
        let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
        staged.push(
            tree.prepare_commit(&store.snapshot().unwrap(), &pending, None, &mut set).unwrap(),
        );
    }
    set.sort();
    store.commit(&set).unwrap();
    for (tree, staged) in trees.iter_mut().zip(staged) {
        tree.finalize(staged);
    }
    let snapshot = store.snapshot().unwrap();
    for tree in &trees {
        assert_eq!(open(tree.id().0).root(), tree.root());
        assert_eq!(tree.check(&snapshot, |_| {}).unwrap(), []);
    }
    // Emptying one leaves the others' rows alone.
    let mut batch = Batch::new();
    batch.delete_prefix(b"");
    let pending = trees[0].prepare(&snapshot, None, batch).unwrap();
    trees[0].commit(&store, &pending, None).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(pages(&trees[0], &snapshot), Entries::new());
    assert_eq!(trees[2].check(&snapshot, |_| {}).unwrap(), []);
    assert_eq!(trees[2].entries(&snapshot, None, b"").count(), 4_000);
}

#[test]
fn states_of_another_tree_and_heads_of_another_writer_are_refused() {
    let mut bench = Bench::new(Mpt, 1 << 20);
    let pending = bench.prepare(None, &[Op::Put(vec![1], vec![1])]);
    let snapshot = bench.snapshot();
    let mut other = Tree::open(Mpt, TreeId(9), &snapshot, 1 << 20).unwrap();
    let refused = other.commit(&bench.store, &pending, None).unwrap_err();
    assert!(matches!(refused, TreeError::Stale { .. }), "{refused}");
    let mut twin = Tree::open(Mpt, bench.tree.id(), &snapshot, 1 << 20).unwrap();
    let batch = crate::model::batch(&[Op::Put(vec![2], vec![2])]);
    let later = twin.prepare(&snapshot, None, batch).unwrap();
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    let refused = twin.commit(&bench.store, &later, None).unwrap_err();
    assert!(matches!(refused, TreeError::OtherSnapshot { found: 1, head: 0, .. }), "{refused}");
}

#[test]
fn a_commit_of_nothing_new_changes_no_state() {
    let mut bench = Bench::new(Mpt, 1);
    let block = |number| Some(BlockId { number, hash: [7; 32] });
    let a = bench
        .prepare(None, &[Op::Put(vec![1; 40], vec![1; 600]), Op::Put(vec![2; 40], vec![2; 600])]);
    bench.tree.commit(&bench.store, &a, block(1)).unwrap();
    let again = bench.tree.commit(&bench.store, &a, block(1)).unwrap();
    assert_eq!((again, bench.tree.commit_number()), (CommitStats::default(), 1));
    // An empty block: the state is what it was, and what stands on it stays good.
    let empty = bench.prepare(None, &[]);
    let beside = bench.prepare(None, &[Op::Put(vec![3], vec![3])]);
    let above = bench.prepare(Some(&empty), &[Op::Put(vec![4], vec![4])]);
    bench.tree.commit(&bench.store, &empty, block(2)).unwrap();
    assert_eq!(bench.tree.block(), block(2));
    bench.prepare(Some(&beside), &[]);
    bench.tree.commit(&bench.store, &above, block(3)).unwrap();
    bench.entries = Entries::from([
        (vec![1; 40], vec![1; 600]),
        (vec![2; 40], vec![2; 600]),
        (vec![4], vec![4]),
    ]);
    bench.check(&reference::root(&bench.entries));
}

#[test]
fn a_large_value_is_read_back_and_moves_with_its_key() {
    let mut bench = Bench::new(Mpt, 1);
    let value: Vec<u8> = (0..2_000_000u32).map(|i| (i * 31) as u8).collect();
    let rounds = [
        vec![Op::Put(vec![0x12; 32], value)],
        vec![Op::Put(vec![0x12, 0x13], vec![1])],
        vec![Op::Delete(vec![0x12, 0x13])],
    ];
    for ops in rounds {
        let pending = bench.prepare(None, &ops);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        apply(&ops, &mut bench.entries);
        bench.reopen(1);
        bench.check(&reference::root(&bench.entries));
    }
}

#[test]
fn chains_of_prefixes_need_no_deep_stack() {
    let check = || {
        let mut bench = Bench::new(Mpt, 1 << 30);
        let long: Vec<u8> = (0..8_192).map(|i| (i * 7) as u8).collect();
        let ops: Vec<_> =
            (1..=long.len()).map(|len| Op::Put(long[..len].to_vec(), vec![1; 3])).collect();
        let pending = bench.prepare(None, &ops);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        let full = bench.tree.root();
        bench.reopen(1 << 30);
        assert_eq!(bench.tree.root(), full);
        let deletes: Vec<_> =
            (2..=long.len()).map(|len| Op::Delete(long[..len].to_vec())).collect();
        let pending = bench.prepare(None, &deletes);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        bench.entries = Entries::from([(long[..1].to_vec(), vec![1; 3])]);
        bench.check(&reference::root(&bench.entries));
        let pending = bench.prepare(None, &ops);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        assert_eq!(bench.tree.root(), full);
        let pending = bench.prepare(None, &[Op::Clear(long[..3].to_vec())]);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        bench.entries = (1..3).map(|len| (long[..len].to_vec(), vec![1; 3])).collect();
        bench.check(&reference::root(&bench.entries));
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(check).unwrap();
    thread.join().unwrap();
}

/// A state that is always prepared one ahead of the commit must not carry all of its past along.
#[test]
fn a_state_prepared_ahead_of_every_commit_stays_small() {
    let mut bench = Bench::new(Mpt, 64 << 20);
    let mut ahead: Option<spinney_tree::Pending<Mpt>> = None;
    let mut largest = 0;
    for round in 0..120u32 {
        let mut batch = Batch::new();
        for n in 0..1_000u32 {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&(n * 37).wrapping_mul(0x9e37_79b9).to_be_bytes());
            let value = [round.to_be_bytes(), n.to_be_bytes()].concat();
            batch.put(&key, &[&value[..], &[1; 70]].concat());
            bench.entries.insert(key.to_vec(), [&value[..], &[1; 70]].concat());
        }
        let next = bench.tree.prepare(&bench.snapshot(), ahead.as_ref(), batch).unwrap();
        assert_eq!(next.root(), reference::root(&bench.entries));
        if let Some(ahead) = ahead.replace(next) {
            bench.tree.commit(&bench.store, &ahead, None).unwrap();
        }
        largest = largest.max(ahead.as_ref().map_or(0, spinney_tree::Pending::memory));
    }
    // One batch takes about a megabyte.
    assert!(largest < 24 << 20, "{largest} bytes");
    bench.tree.commit(&bench.store, &ahead.unwrap(), None).unwrap();
    assert_eq!(pages(&bench.tree, &bench.snapshot()), rebuild(&Mpt, &bench.entries).0);
}

/// Readers see the last commit while a writer prepares and commits the next ones.
#[test]
fn readers_go_on_while_a_writer_commits() {
    let store = MemoryStore::new();
    let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot().unwrap(), 1 << 20).unwrap();
    let batch = |round: u32| {
        let mut batch = Batch::new();
        for n in 0..200u32 {
            batch.put(&(n * 0x0123_4567).to_be_bytes(), &round.to_be_bytes());
        }
        batch
    };
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch(0)).unwrap();
    tree.commit(&store, &pending, None).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut last = 0;
                loop {
                    let over = done.load(std::sync::atomic::Ordering::Acquire);
                    let snapshot = store.snapshot().unwrap();
                    let view = Tree::open(Mpt, TreeId(1), &snapshot, 1 << 16).unwrap();
                    let values: Vec<_> = view
                        .entries(&snapshot, None, b"")
                        .map(|entry| entry.unwrap().value)
                        .collect();
                    assert_eq!(values.len(), 200);
                    let round = u32::from_be_bytes((*values[0]).try_into().unwrap());
                    assert!(values.iter().all(|value| **value == round.to_be_bytes()));
                    assert!(round >= last);
                    last = round;
                    if over {
                        assert_eq!(round, 300);
                        break;
                    }
                }
            });
        }
        for round in 1..=300 {
            let pending = tree.prepare(&store.snapshot().unwrap(), None, batch(round)).unwrap();
            tree.commit(&store, &pending, None).unwrap();
        }
        done.store(true, std::sync::atomic::Ordering::Release);
    });
}

#[test]
fn a_value_at_a_fork_outlives_what_is_cleared_below_it() {
    let mut bench = Bench::new(Mpt, 1 << 20);
    let steps = [
        vec![Op::Put(vec![0, 0, 0x5a], vec![0])],
        vec![Op::Put(vec![], vec![0; 300])],
        vec![Op::Clear(vec![0]), Op::Put(vec![0], vec![0])],
    ];
    for ops in &steps {
        let pending = bench.prepare(None, ops);
        apply(ops, &mut bench.entries);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        bench.check(&reference::root(&bench.entries));
    }
}
