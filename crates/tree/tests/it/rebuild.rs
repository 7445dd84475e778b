//! Generations: trees built anew beside what they were.

use proptest::prelude::*;
use spinney_tree::mpt::{Mpt, reference};
use spinney_tree::{Batch, BlockId, MemoryStore, PageStore, Pending, Tree, TreeError};

use crate::model::{Entries, ID, pages, rebuild};

fn leaves() -> impl Strategy<Value = Entries> {
    let byte = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x11, 0xff]);
    let key = prop_oneof![
        prop::collection::vec(byte, 0..5),
        any::<[u8; 2]>().prop_map(|key| [key.to_vec(), vec![7; 30]].concat()),
    ];
    prop::collection::btree_map(key, prop::collection::vec(1u8..9, 1..200), 0..80)
}

/// A tree that holds `entries`, and its store.
fn holding(entries: &Entries) -> (MemoryStore, Tree<Mpt>) {
    let store = MemoryStore::new();
    let mut tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut batch = Batch::new();
    for (key, value) in entries {
        batch.put(key, value);
    }
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    tree.commit(&store, &pending, None).unwrap();
    (store, tree)
}

/// Page keys without tree and generation.
fn bare(pages: Entries) -> Entries {
    pages.into_iter().map(|(key, row)| (key[8..].to_vec(), row[8..].to_vec())).collect()
}

fn rows_of_all_generations(store: &MemoryStore) -> usize {
    use spinney_tree::{Snapshot, Table};
    let mut rows = 0;
    let mut count = |_: &[u8], _: &[u8]| {
        rows += 1;
        true
    };
    store.snapshot().unwrap().scan(Table::Pages, &[], None, &mut count).unwrap();
    rows
}

proptest! {
    #[test]
    fn a_rebuild_is_the_tree_of_its_leaves(
        old in leaves(),
        new in leaves(),
        hold in 1usize..3_000,
        halfway in 0usize..80,
    ) {
        let (store, mut tree) = holding(&old);
        let before = (tree.root(), tree.commit_number(), pages(&tree, &store.snapshot().unwrap()));

        // One that ends halfway leaves nothing that anybody sees.
        let mut ended = tree.rebuild(&store).unwrap();
        ended.hold(hold);
        for (key, value) in new.iter().take(halfway) {
            ended.push(key, value).unwrap();
        }
        drop(ended);
        let reopened = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
        for tree in [&tree, &reopened] {
            let now = (tree.root(), tree.commit_number(), pages(tree, &store.snapshot().unwrap()));
            prop_assert_eq!(&now, &before);
        }

        let mut again = tree.rebuild(&store).unwrap();
        again.hold(hold);
        for (key, value) in &new {
            again.push(key, value).unwrap();
        }
        let block = Some(BlockId { number: 7, hash: [7; 32] });
        again.finish(block).unwrap();
        prop_assert_eq!(tree.root(), reference::root(&new));
        let reopened = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
        for tree in [&tree, &reopened] {
            prop_assert_eq!((tree.root(), tree.block()), (reference::root(&new), block));
            prop_assert_eq!(tree.commit_number(), before.1 + 1);
            let now = pages(tree, &store.snapshot().unwrap());
            prop_assert_eq!(rows_of_all_generations(&store), now.len());
            prop_assert_eq!(bare(now), bare(rebuild(&Mpt, &new).0));
            prop_assert_eq!(tree.check(&store.snapshot().unwrap(), |_| {}).unwrap(), vec![]);
        }
        // And it goes on from there.
        let mut batch = Batch::new();
        batch.delete_prefix(&[]);
        for (key, value) in &old {
            batch.put(key, value);
        }
        let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
        tree.commit(&store, &pending, None).unwrap();
        prop_assert_eq!(bare(pages(&tree, &store.snapshot().unwrap())), bare(before.2));
    }
}

#[test]
fn leaves_out_of_order_are_refused_and_the_tree_stays() {
    let (store, mut tree) = holding(&Entries::from([(b"key".to_vec(), b"value".to_vec())]));
    let root = tree.root();
    let mut rebuild = tree.rebuild(&store).unwrap();
    rebuild.push(b"b", b"1").unwrap();
    for key in [&b"a"[..], b"b"] {
        assert!(matches!(rebuild.push(key, b"1"), Err(TreeError::Unsorted { .. })));
    }
    drop(rebuild);
    assert_eq!(tree.root(), root);
}

#[test]
fn states_prepared_before_a_rebuild_are_stale() {
    let (store, mut tree) = holding(&Entries::new());
    let mut batch = Batch::new();
    batch.put(b"key", b"value");
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    tree.rebuild(&store).unwrap().finish(None).unwrap();
    let late = tree.commit(&store, &pending, None);
    assert!(matches!(late, Err(TreeError::Stale { .. })), "{late:?}");
}

fn batch_of(entries: &Entries) -> Batch {
    let mut batch = Batch::new();
    entries.iter().for_each(|(key, value)| batch.put(key, value));
    batch
}

fn many(count: u32, value: u8) -> Entries {
    let key = |n: u32| [n.wrapping_mul(0x9e37_79b9).to_be_bytes().to_vec(), vec![7; 28]].concat();
    (0..count).map(|n| (key(n), vec![value; 100])).collect()
}

/// A handle that was opened before a rebuild must not take the new generation for what it left
/// behind.
#[test]
fn a_handle_on_an_older_commit_sweeps_and_rebuilds_nothing() {
    let entries = many(1_000, 1);
    let (store, mut tree) = holding(&entries);
    let mut old = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut rebuild = tree.rebuild(&store).unwrap();
    for (key, value) in &entries {
        rebuild.push(key, value).unwrap();
    }
    rebuild.finish(None).unwrap();
    let swept = old.sweep(&store);
    assert!(matches!(swept, Err(TreeError::OtherSnapshot { .. })), "{swept:?}");
    let rebuilt = old.rebuild(&store).map(|_| ());
    assert!(matches!(rebuilt, Err(TreeError::OtherSnapshot { .. })), "{rebuilt:?}");
    let tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    assert_eq!(tree.check(&store.snapshot().unwrap(), |_| {}).unwrap(), vec![]);
}

#[test]
fn a_rebuild_that_was_swept_is_not_finished() {
    let entries = many(1_000, 1);
    let (store, mut tree) = holding(&entries);
    let (other, root) = (Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20), tree.root());
    let mut rebuild = tree.rebuild(&store).unwrap();
    rebuild.hold(1_000);
    for (key, value) in entries.iter().take(900) {
        rebuild.push(key, value).unwrap();
    }
    other.unwrap().sweep(&store).unwrap();
    // What it still writes may fail for want of its pages, and it must not be published.
    let rest = entries.iter().skip(900).try_for_each(|(key, value)| rebuild.push(key, value));
    assert!(rest.and_then(|()| rebuild.finish(None).map(drop)).is_err());
    let tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    assert_eq!(tree.root(), root);
    tree.sweep(&store).unwrap();
    assert_eq!(tree.check(&store.snapshot().unwrap(), |_| {}).unwrap(), vec![]);
}

/// A large batch, then small ones, each prepared before the one below it is committed: what the
/// large one wrote is carried along no more, and stays where it is.
#[test]
fn what_a_state_no_longer_carries_stays_in_the_store() {
    let store = MemoryStore::new();
    let mut tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 64 << 20).unwrap();
    let mut entries = many(60_000, 1);
    let mut ahead = tree.prepare(&store.snapshot().unwrap(), None, batch_of(&entries)).unwrap();
    for round in 2..8 {
        let small: Entries = many(50 * u32::from(round), round).into_iter().skip(17).collect();
        let snapshot = store.snapshot().unwrap();
        let next = tree.prepare(&snapshot, Some(&ahead), batch_of(&small)).unwrap();
        drop(snapshot);
        entries.extend(small);
        let stats = tree.commit(&store, &ahead, None).unwrap();
        assert!(stats.rows_removed < 50, "round {round}: {stats:?}");
        ahead = next;
        assert_eq!(tree.check(&store.snapshot().unwrap(), |_| {}).unwrap(), vec![]);
    }
    tree.commit(&store, &ahead, None).unwrap();
    assert_eq!(tree.root(), reference::root(&entries));
    assert_eq!(pages(&tree, &store.snapshot().unwrap()), rebuild(&Mpt, &entries).0);
}

/// Pages that one batch makes and the next one, prepared before the first is committed, makes away
/// with: they are in the store by then.
#[test]
fn what_a_state_takes_back_leaves_the_store() {
    let third = |part: usize| -> Entries {
        let every = many(9_000, 1).into_iter().enumerate();
        every.filter(|(at, _)| at % 3 == part).map(|(_, entry)| entry).collect()
    };
    let gone = |entries: &Entries| {
        let mut batch = Batch::new();
        entries.keys().for_each(|key| batch.delete(key));
        batch
    };
    let store = MemoryStore::new();
    let mut tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 64 << 20).unwrap();
    let mut states = Vec::<(Pending<Mpt>, Entries)>::new();
    let [one, two, none] = [third(0), third(1), Entries::new()];
    let both = one.clone().into_iter().chain(two.clone()).collect();
    let batches = [
        (batch_of(&one), &one),
        (batch_of(&two), &both),
        (gone(&two), &one),
        (gone(&one), &none),
        (batch_of(&two), &two),
        (gone(&two), &none),
    ];
    for (batch, after) in batches {
        let parent = states.last().map(|(state, _)| state);
        let state = tree.prepare(&store.snapshot().unwrap(), parent, batch).unwrap();
        states.push((state, after.clone()));
    }
    for (state, entries) in states {
        tree.commit(&store, &state, None).unwrap();
        assert_eq!(tree.root(), reference::root(&entries));
        assert_eq!(tree.check(&store.snapshot().unwrap(), |_| {}).unwrap(), vec![]);
        assert_eq!(pages(&tree, &store.snapshot().unwrap()), rebuild(&Mpt, &entries).0);
    }
}
