//! Merkle-sum trees over all four stores: their properties, against the textbook. PostgreSQL is
//! skipped where it is not installed.

use std::path::PathBuf;

use proptest::prelude::*;
use spinney_state::sum::{Nest, SumBatch, SumError, SumTree, commit_together, namespaces};
use spinney_store::{AnyStore, Location, OpenFor};
use spinney_tree::sum::reference::{self, Leaves};
use spinney_tree::sum::{Claim, Leaf, Profile, path, verify_many};
use spinney_tree::{Batch, PageStore, TreeError, TreeId};
use tempfile::{TempDir, tempdir};

use crate::server::shared;

use Profile::{Bound, Compatible};

const CACHE_BYTES: usize = 1 << 20;

/// A store of one kind, and where it is.
pub(crate) struct Place {
    _folder: Option<TempDir>,
    location: Option<Location>,
    store: Option<AnyStore>,
}

impl Place {
    fn new(location: Option<Location>, folder: Option<TempDir>) -> Self {
        let store = match &location {
            Some(location) => location.open(OpenFor::Filling, CACHE_BYTES).unwrap(),
            None => AnyStore::memory(),
        };
        Self { _folder: folder, location, store: Some(store) }
    }

    fn in_folder(location: impl FnOnce(PathBuf) -> Location) -> Self {
        let folder = tempdir().unwrap();
        let location = location(folder.path().join("store"));
        Self::new(Some(location), Some(folder))
    }

    pub(crate) fn store(&self) -> &AnyStore {
        self.store.as_ref().unwrap()
    }

    /// Closes the store and opens it again, where there is anything to open.
    fn reopen(&mut self) {
        if let Some(location) = &self.location {
            self.store.take().unwrap().close().unwrap();
            self.store = Some(location.open(OpenFor::Writing, CACHE_BYTES).unwrap());
        }
    }
}

/// One of each kind.
pub(crate) fn places() -> Vec<Place> {
    let mut places = vec![
        Place::new(None, None),
        Place::in_folder(Location::Redb),
        Place::in_folder(Location::Sqlite),
        Place::in_folder(Location::Log),
    ];
    if let Some(server) = shared() {
        places.push(Place::new(Some(Location::Postgres(server.schema().0.into())), None));
        let portable = crate::portable::of(&server.schema().0);
        places.push(Place::new(Some(Location::Postgres(portable)), None));
    }
    places
}

fn tree<'s>(store: &'s AnyStore, name: &str, profile: Profile) -> SumTree<'s, AnyStore> {
    SumTree::create(store, name, profile, CACHE_BYTES).unwrap()
}

/// Keys that part at the first, some middle and the last bits; and keys like digests.
fn key() -> impl Strategy<Value = [u8; 32]> {
    let byte = prop::sample::select(vec![0x00_u8, 0x01, 0x80, 0xff]);
    prop_oneof![
        2 => (byte.clone(), byte.clone(), byte).prop_map(|(a, b, c)| {
            let mut key = [0x5a; 32];
            (key[0], key[15], key[31]) = (a, b, c);
            key
        }),
        1 => any::<u16>().prop_map(|n| {
            let mut key = [n as u8; 32];
            key[..2].copy_from_slice(&n.to_be_bytes());
            key
        }),
    ]
}

/// A quarter of them are empty: deletions.
fn leaf() -> impl Strategy<Value = Leaf> {
    let value = prop::collection::vec(any::<u8>(), 0..40);
    prop_oneof![
        3 => (value, 0..1_u64 << 40).prop_map(|(value, sum)| Leaf { value, sum }),
        1 => Just(Leaf::default()),
    ]
}

/// Leaves of which a few have nearly all the sum that there may be.
fn heavy() -> impl Strategy<Value = Leaf> {
    let sum = prop::sample::select(vec![0, 1, 77, u64::MAX, u64::MAX - 5, u64::MAX / 2]);
    (prop::collection::vec(any::<u8>(), 0..3), sum).prop_map(|(value, sum)| Leaf { value, sum })
}

fn leaves(leaf: impl Strategy<Value = Leaf>, most: usize) -> impl Strategy<Value = Leaves> {
    prop::collection::btree_map(key(), leaf, 0..most)
}

fn profile() -> impl Strategy<Value = Profile> {
    prop::sample::select(vec![Compatible, Bound])
}

fn batch(leaves: &Leaves) -> SumBatch {
    let mut batch = SumBatch::new();
    leaves.iter().for_each(|(key, leaf)| batch.put(key, leaf));
    batch
}

fn all<P: PageStore>(tree: &SumTree<'_, P>) -> Leaves {
    let mut all = Leaves::new();
    tree.visit(|key, leaf| {
        all.insert(key, leaf);
        Ok::<_, SumError>(true)
    })
    .unwrap();
    all
}

/// Everything that can be asked of a tree is what the textbook says of its leaves.
fn check(tree: &SumTree<'_, AnyStore>, model: &Leaves, absent: &[[u8; 32]]) {
    let mut keys: Vec<_> = model.keys().copied().collect();
    keys.extend(absent);
    let (root, proofs) = reference::prove(tree.profile(), model, &keys).unwrap();
    assert_eq!(tree.root(), root);
    assert_eq!(all(tree), *model);
    let proven = tree.prove(&keys).unwrap();
    let mut claims = Vec::new();
    for ((key, proven), expected) in keys.iter().zip(&proven).zip(&proofs) {
        assert_eq!(proven.leaf.as_ref(), model.get(key));
        assert_eq!(proven.proof, *expected);
        claims.push(Claim { key, leaf: proven.leaf.as_ref(), proof: &proven.proof });
    }
    verify_many(tree.profile(), root, &claims).unwrap();
    let store = tree.store();
    assert_eq!(tree.tree().check(&store.snapshot().unwrap(), |_| {}).unwrap(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    /// Batches, reopened and not, are what the textbook makes of them; a batch is what its leaves
    /// are one by one; the root's sum moves by what a batch puts less what it replaces.
    #[test]
    fn any_history_equals_the_textbook(
        profile in profile(),
        rounds in prop::collection::vec((leaves(leaf(), 24), any::<bool>()), 1..5),
        absent in prop::collection::vec(key(), 0..4),
    ) {
        for mut place in places() {
            let mut model = Leaves::new();
            for (round, reopen) in &rounds {
                let mut tree = tree(place.store(), "one", profile);
                let keys: Vec<_> = round.keys().copied().collect();
                let sum = |leaves: Vec<Option<Leaf>>| -> u64 {
                    leaves.into_iter().flatten().map(|leaf| leaf.sum).sum()
                };
                let (before, held) = (tree.root().sum, sum(tree.get_many(&keys).unwrap()));
                tree.apply(&mut batch(round)).unwrap();
                let put: u64 = round.values().map(|leaf| leaf.sum).sum();
                assert_eq!(tree.root().sum, before - held + put);
                reference::apply(&mut model, round).unwrap();
                check(&tree, &model, &absent);
                drop(tree);
                if *reopen {
                    place.reopen();
                }
            }
            let mut singly = tree(place.store(), "singly", profile);
            for (round, _) in &rounds {
                for (key, leaf) in round {
                    singly.insert(key, leaf).unwrap();
                }
            }
            let whole = tree(place.store(), "one", profile);
            assert_eq!(singly.root(), whole.root());
            // As they are after they were copied over, and when all are gone again.
            let mut copy = tree(place.store(), "copy", profile);
            whole.copy_to(&mut copy).unwrap();
            assert_eq!(copy.root(), whole.root());
            copy.delete_all().unwrap();
            check(&copy, &Leaves::new(), &absent);
            check(&whole, &model, &absent);
        }
    }

    /// What overflows is refused, costs no write, and changes nothing.
    #[test]
    fn sums_overflow_when_the_textbooks_do(
        profile in profile(),
        rounds in prop::collection::vec(leaves(heavy(), 6), 1..6),
    ) {
        for place in places() {
            let mut tree = tree(place.store(), "one", profile);
            let mut model = Leaves::new();
            for round in &rounds {
                let io = place.store().io();
                let applied = tree.apply(&mut batch(round));
                match reference::apply(&mut model, round) {
                    Ok(()) => assert!(applied.is_ok(), "{applied:?}"),
                    Err(_) => {
                        let refused = applied.unwrap_err();
                        assert!(
                            matches!(refused, SumError::Tree(TreeError::Overweight { .. })),
                            "{refused}"
                        );
                        assert!(refused.to_string().contains("integer overflow"));
                        let io = place.store().io() - io;
                        assert_eq!((io.writes, io.syncs, io.bytes_written), (0, 0, 0));
                    }
                }
                check(&tree, &model, &[[7; 32]]);
            }
        }
    }

    /// Trees of other names do not touch one another, and a nested one is in its parent as it is.
    #[test]
    fn names_are_apart_and_nested_roots_agree(
        rounds in prop::collection::vec((0..3_usize, leaves(leaf(), 12), leaves(leaf(), 12)), 1..5),
    ) {
        let names = ["a", "b", "c"];
        for mut place in places() {
            let mut models = [Leaves::new(), Leaves::new(), Leaves::new()];
            for (which, one, other) in &rounds {
                let beside = (which + 1) % 3;
                let mut first = tree(place.store(), names[*which], Compatible);
                let mut second = tree(place.store(), names[beside], Compatible);
                let mut top = tree(place.store(), "top", Compatible);
                let nests = [
                    Nest { child: 0, parent: 2, key: [*which as u8; 32] },
                    Nest { child: 1, parent: 2, key: [beside as u8; 32] },
                ];
                commit_together(
                    place.store(),
                    &mut [
                        (&mut first, batch(one)),
                        (&mut second, batch(other)),
                        (&mut top, SumBatch::new()),
                    ],
                    &nests,
                )
                .unwrap();
                reference::apply(&mut models[*which], one).unwrap();
                reference::apply(&mut models[beside], other).unwrap();
                drop((first, second, top));
                place.reopen();
                let mut nested = Leaves::new();
                for ((name, model), n) in names.iter().zip(&models).zip(0_u8..) {
                    let Some(child) = SumTree::open(place.store(), name, CACHE_BYTES).unwrap() else {
                        continue;
                    };
                    check(&child, model, &[]);
                    if !model.is_empty() {
                        nested.insert([n; 32], child.as_leaf());
                    }
                }
                let top = tree(place.store(), "top", Compatible);
                check(&top, &nested, &[]);
            }
            assert!(namespaces(&place.store().snapshot().unwrap()).unwrap().len() >= 3);
        }
    }
}

/// Both keys of a pair that differ at the first bit alone, with equal leaves: one subtree twice.
#[test]
fn equal_subtrees_are_apart() {
    for place in places() {
        let mut tree = tree(place.store(), "one", Compatible);
        let five = Leaf { value: b"x".to_vec(), sum: 5 };
        let mut other = [0; 32];
        other[0] = 1;
        let mut model: Leaves = [([0; 32], five.clone()), (other, five)].into();
        tree.apply(&mut batch(&model)).unwrap();
        check(&tree, &model, &[]);
        let seven = Leaf { value: b"y".to_vec(), sum: 7 };
        tree.insert(&[0; 32], &seven).unwrap();
        model.insert([0; 32], seven);
        check(&tree, &model, &[]);
        assert_eq!(tree.root().sum, 12);
        tree.delete(&other).unwrap();
        model.remove(&other);
        check(&tree, &model, &[other]);
    }
}

#[test]
fn a_second_handle_that_was_overtaken_is_refused() {
    for place in places() {
        let (mut one, mut two) =
            (tree(place.store(), "one", Compatible), tree(place.store(), "one", Compatible));
        let leaf = |sum| Leaf { value: vec![1], sum };
        one.insert(&[1; 32], &leaf(1)).unwrap();
        let refused = two.insert(&[2; 32], &leaf(2)).unwrap_err();
        assert!(matches!(refused, SumError::Tree(TreeError::OtherSnapshot { .. })), "{refused}");
        check(&one, &[([1; 32], leaf(1))].into(), &[[2; 32]]);
    }
}

/// Handles in many threads: each commit that returned is there, whole, and names are given once.
#[test]
fn writers_of_one_process_take_turns() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 6;
    for place in places() {
        let store = place.store();
        let write = |thread: u64| {
            let own = tree(store, &format!("own {thread}"), Compatible).tree().id();
            for round in 0..ROUNDS {
                let leaves =
                    numbered((thread * ROUNDS + round) * 3..(thread * ROUNDS + round + 1) * 3);
                // Whoever was overtaken looks again.
                loop {
                    match tree(store, "shared", Compatible).apply(&mut batch(&leaves)) {
                        Ok(_) => break,
                        Err(SumError::Tree(TreeError::OtherSnapshot { .. })) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            own
        };
        let mut ids: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|thread| scope.spawn(move || write(thread))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        ids.push(tree(store, "shared", Compatible).tree().id());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len() as u64, THREADS + 1, "each name has an id of its own");
        let all = numbered(0..THREADS * ROUNDS * 3);
        check(&tree(store, "shared", Compatible), &all, &[]);
    }
}

fn key_of(n: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (i, part) in key.chunks_exact_mut(8).enumerate() {
        let mixed = (n * 4 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        part.copy_from_slice(&(mixed ^ mixed >> 29).to_be_bytes());
    }
    key
}

fn numbered(numbers: std::ops::Range<u64>) -> Leaves {
    let leaf = |n: u64| Leaf { value: key_of(n ^ 1 << 60).to_vec(), sum: n + 1 };
    numbers.map(|n| (key_of(n), leaf(n))).collect()
}

/// A batch and a proof cost a handful of round trips, with nothing resident.
#[test]
fn batches_and_proofs_take_a_handful_of_round_trips() {
    let Some(server) = shared() else { return };
    let place = Place::new(Some(Location::Postgres(server.schema().0.into())), None);
    let mut model = numbered(0..10_000);
    let store = place.store();
    tree(store, "one", Compatible).apply(&mut batch(&model)).unwrap();
    let mut cold = tree(store, "one", Compatible);
    let io = store.io();
    cold.apply(&mut batch(&numbered(9_500..10_500))).unwrap();
    let inserted = store.io() - io;
    model.extend(numbered(9_500..10_500));
    println!("1,000 into 10,000: {inserted:?}");
    assert!(inserted.round_trips <= 12 && inserted.writes <= 1, "{inserted:?}");
    for key in [key_of(77), key_of(20_000)] {
        let cold = tree(store, "one", Compatible);
        let io = store.io();
        let proven = cold.prove(&[key]).unwrap().remove(0);
        let proved = store.io() - io;
        println!("a proof: {proved:?}");
        assert!(proved.round_trips <= 4, "{proved:?}");
        assert_eq!(proven.leaf.as_ref(), model.get(&key));
        let claim = Claim { key: &key, leaf: model.get(&key), proof: &proven.proof };
        verify_many(Compatible, cold.root(), &[claim]).unwrap();
    }
}

/// The rows of a tree are the same in every store.
#[test]
fn all_stores_hold_the_same_rows() {
    let mut seen = Vec::new();
    for place in places() {
        let store = place.store();
        let mut tree = tree(store, "one", Compatible);
        tree.apply(&mut batch(&numbered(0..500))).unwrap();
        tree.apply(&mut batch(&numbered(200..700))).unwrap();
        seen.push(crate::tools::contents(store));
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}

/// A tree without a name, as the engine has it.
#[test]
fn the_engine_takes_leaves_by_their_paths() {
    for place in places() {
        let store = place.store();
        let sum = spinney_tree::sum::Sum { profile: Bound };
        let mut tree =
            spinney_tree::Tree::open(sum, TreeId(9), &store.snapshot().unwrap(), 1 << 20).unwrap();
        let model = numbered(0..50);
        let mut batch = Batch::new();
        model.iter().for_each(|(key, leaf)| batch.put(&path(key), &leaf.encode()));
        let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
        tree.commit(store, &pending, None).unwrap();
        assert_eq!(tree.root().node(), reference::root(Bound, &model).unwrap());
    }
}
