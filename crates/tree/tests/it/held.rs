//! Rows of edits that somebody holds while others are made: values that were read, write sets that
//! wait, states that are not committed. What a store copies is not shared with the cache, which
//! then lays new rows over its own.

use spinney_tree::mpt::Mpt;
use spinney_tree::{
    Batch, MemorySnapshot, MemoryStore, PageStore, Scheme, StoreError, Table, Tree, Value, WriteSet,
};

use crate::binary::{PBT, UBT};
use crate::edited::other;
use crate::model::{Entries, ID, Op, apply, batch, pages, rebuild, same_rows};
use crate::patched::{Random, stem};

const ENTRIES: usize = 3_000;
const EDITS: usize = 400;
const ROUNDS: usize = 8;
/// No batch is split over the threads: then it is not one of edits.
const SPLIT_OPS: usize = 100_000;

/// A store that keeps no row that it was handed, as all do but the one in memory.
#[derive(Default)]
struct Copying(MemoryStore);

impl PageStore for Copying {
    type Snapshot<'a> = MemorySnapshot;

    fn snapshot(&self) -> Result<MemorySnapshot, StoreError> {
        self.0.snapshot()
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        let mut copy = WriteSet::new();
        for (table, low, high) in set.drops() {
            copy.drop_range(table, low.to_vec(), high.to_vec());
        }
        for (table, key, value) in set.rows() {
            match value {
                Some(value) => copy.put(table, key, value),
                None => copy.delete(table, key),
            }
        }
        self.0.commit(&copy)
    }
}

type Rows = Vec<(Table, Vec<u8>, Option<Vec<u8>>)>;

fn rows(set: &WriteSet) -> Rows {
    let own = |(table, key, value): (Table, &[u8], Option<&[u8]>)| {
        (table, key.to_vec(), value.map(<[u8]>::to_vec))
    };
    set.rows().map(own).collect()
}

fn edits(random: &mut Random, entries: &Entries) -> Vec<Op> {
    let keys: Vec<&Vec<u8>> = entries.keys().collect();
    let put = |random: &mut Random| {
        let key = keys[random.below(keys.len())];
        Op::Put(key.clone(), other(random, &entries[key]))
    };
    (0..EDITS).map(|_| put(random)).collect()
}

fn held<S: Scheme + Clone, P: PageStore>(
    scheme: &S,
    (store, cache_bytes): (&P, usize),
    entry: impl Fn(&mut Random) -> Vec<Op>,
) {
    let (mut random, mut entries) = (Random(13), Entries::new());
    let mut tree = Tree::open(scheme.clone(), ID, &store.snapshot().unwrap(), cache_bytes).unwrap();
    tree.split_batches_from(SPLIT_OPS);
    let ops: Vec<Op> = (0..ENTRIES).flat_map(|_| entry(&mut random)).collect();
    apply(&ops, &mut entries);
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch(&ops)).unwrap();
    tree.commit(store, &pending, None).unwrap();
    let mut values: Vec<(Value, Vec<u8>)> = Vec::new();
    let mut sets: Vec<(WriteSet, Rows)> = Vec::new();
    for round in 0..ROUNDS {
        let snapshot = store.snapshot().unwrap();
        let read = |key: &Vec<u8>| tree.get(&snapshot, None, key).unwrap().unwrap();
        let chosen = entries.iter().skip(round).step_by(40);
        values.extend(chosen.map(|(key, value)| (read(key), value.clone())));
        // The second is committed, the first never is, and both write sets wait for each other.
        let staged = [(); 2].map(|()| {
            let ops = edits(&mut random, &entries);
            let pending = tree.prepare(&snapshot, None, batch(&ops)).unwrap();
            let mut set = WriteSet::new();
            let staged = tree.prepare_commit(&snapshot, &pending, None, &mut set).unwrap();
            set.sort();
            let copy = rows(&set);
            (ops, set, staged, copy)
        });
        drop(snapshot);
        for (_, set, _, copy) in &staged {
            assert!(rows(set) == *copy, "round {round}: a write set changed");
        }
        let [(_, first, ..), (ops, set, staged, copy)] = staged;
        store.commit(&set).unwrap();
        // Whoever keeps the write set has its rows to itself.
        tree.finalize(staged);
        assert!(rows(&set) == copy, "round {round}: a write set changed with the cache");
        drop(first);
        for (set, copy) in &sets {
            assert!(rows(set) == *copy, "round {round}: a write set of a round before changed");
        }
        // In every third round all that was held is let go of.
        sets.truncate(if round % 3 == 2 { 0 } else { sets.len() });
        sets.push((set, copy));
        apply(&ops, &mut entries);
        let snapshot = store.snapshot().unwrap();
        let (fresh, root) = rebuild(scheme, &entries);
        assert_eq!(tree.root(), root, "round {round}");
        same_rows(&pages(&tree, &snapshot), &fresh);
        // These are read from the cache.
        for (key, value) in entries.iter().step_by(7) {
            let read = tree.get(&snapshot, None, key).unwrap();
            assert_eq!(read.as_deref(), Some(&value[..]), "round {round}");
        }
        for (read, was) in &values {
            assert_eq!(**read, **was, "round {round}: a value that was read before");
        }
    }
    // What is in memory is what is stored, so that a tree that is opened anew does the same.
    let snapshot = store.snapshot().unwrap();
    let mut last = Batch::new();
    entries.iter().take(EDITS).for_each(|(key, value)| last.put(key, &other(&mut random, value)));
    let anew = Tree::open(scheme.clone(), ID, &snapshot, cache_bytes).unwrap();
    let roots =
        [&tree, &anew].map(|tree| tree.prepare(&snapshot, None, last.clone()).unwrap().root());
    assert_eq!(roots[0], roots[1]);
}

fn in_both<S: Scheme + Clone>(scheme: &S, entry: impl Fn(&mut Random) -> Vec<Op>) {
    // With room for all, and with so little that a block is not kept for the next batch.
    for cache_bytes in [1 << 26, 1 << 23] {
        held(scheme, (&Copying::default(), cache_bytes), &entry);
        held(scheme, (&MemoryStore::new(), cache_bytes), &entry);
    }
}

#[test]
fn raw_keys() {
    in_both(&Mpt, |random| vec![Op::Put(random.path(32), random.bytes(78))]);
}

#[test]
fn stems() {
    in_both(&UBT, stem);
}

#[test]
fn bits() {
    in_both(&PBT, |random| vec![Op::Put(random.path(32), random.bytes(32))]);
}
