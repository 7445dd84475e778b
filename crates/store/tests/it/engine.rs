//! The engine over stores on disk.

use spinney_store::{AnyStore, LogStore, RedbStore};
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, BlockId, MemoryStore, PageStore, Snapshot, Tree, TreeError, TreeId};

use crate::tools::CACHE_BYTES;

const ID: TreeId = TreeId(1);

fn key(at: u32) -> [u8; 32] {
    let mut key = [0; 32];
    for (word, bytes) in key.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&(at + 1).wrapping_mul(0x9E37_79B1 + word as u32).to_be_bytes());
    }
    key
}

fn value(at: u32, round: u32) -> Vec<u8> {
    vec![(at + round) as u8 | 1; 1 + (at as usize * 13) % 120]
}

/// A batch that changes some keys, adds some and deletes some.
fn batch(round: u32) -> Batch {
    let mut batch = Batch::new();
    for at in round * 300..round * 300 + 600 {
        if at % 7 == round % 7 {
            batch.delete(&key(at));
        } else {
            batch.put(&key(at), &value(at, round));
        }
    }
    batch
}

fn commit(tree: &mut Tree<Mpt>, store: &impl PageStore, round: u32) {
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch(round)).unwrap();
    let block = BlockId { number: u64::from(round), hash: key(round) };
    tree.commit(store, &pending, Some(block)).unwrap();
}

fn open(snapshot: &impl Snapshot) -> Tree<Mpt> {
    Tree::open(Mpt, ID, snapshot, CACHE_BYTES).unwrap()
}

#[test]
fn a_tree_comes_back_from_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let memory = MemoryStore::new();
    let mut expected = open(&memory.snapshot().unwrap());
    for round in 0..6 {
        let store = AnyStore::from(RedbStore::open_or_create(folder.path(), CACHE_BYTES).unwrap());
        let mut tree = open(&store.snapshot().unwrap());
        assert_eq!(tree.root(), expected.root());
        commit(&mut tree, &store, round);
        commit(&mut expected, &memory, round);
        assert_eq!(tree.root(), expected.root());
        store.close().unwrap();
    }

    let store = RedbStore::open_read_only(folder.path(), CACHE_BYTES).unwrap();
    let (snapshot, twin) = (store.snapshot().unwrap(), memory.snapshot().unwrap());
    let tree = open(&snapshot);
    assert_eq!(tree.root(), expected.root());
    assert_eq!(tree.block().unwrap().number, 5);
    for at in 0..2_500 {
        let found = tree.get(&snapshot, None, &key(at)).unwrap();
        let twin = expected.get(&twin, None, &key(at)).unwrap();
        assert_eq!(found.as_deref(), twin.as_deref());
    }
    assert_eq!(tree.entries(&snapshot, None, b"").map(Result::unwrap).count(), 1_800);
}

#[test]
fn one_commit_moves_several_trees() {
    let folder = tempfile::tempdir().unwrap();
    let store = RedbStore::create(folder.path(), CACHE_BYTES).unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut trees = [1, 2, 3].map(|id| Tree::open(Mpt, TreeId(id), &snapshot, 0).unwrap());
    let mut set = spinney_tree::WriteSet::new();
    let prepared: Vec<_> = (0..3)
        .map(|at| {
            let tree: &Tree<Mpt> = &trees[at];
            let pending = tree.prepare(&snapshot, None, batch(at as u32)).unwrap();
            tree.prepare_commit(&store.snapshot().unwrap(), &pending, None, &mut set).unwrap()
        })
        .collect();
    drop(snapshot);
    store.commit(&set).unwrap();
    for (tree, prepared) in trees.iter_mut().zip(prepared) {
        tree.finalize(prepared);
    }
    let roots = trees.map(|tree| tree.root());
    store.close().unwrap();

    let store = RedbStore::open(folder.path(), CACHE_BYTES).unwrap();
    let snapshot = store.snapshot().unwrap();
    let found = [1, 2, 3].map(|id| Tree::open(Mpt, TreeId(id), &snapshot, 0).unwrap().root());
    assert_eq!(found, roots);
    assert_ne!(roots[0], roots[1]);
}

/// A log says which commit a snapshot shows, so that a tree looks at a snapshot once. Snapshots of
/// other commits, and of other logs, are none that it has looked at.
#[test]
fn a_snapshot_that_was_looked_at_speaks_for_no_other() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [store, elsewhere] = folders.each_ref().map(|at| LogStore::create(at.path()).unwrap());
    let mut writer = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 0).unwrap();
    commit(&mut writer, &store, 0);
    let first = store.snapshot().unwrap();
    assert!(first.shows().is_some());
    let tree = Tree::open(Mpt, ID, &first, 0).unwrap();
    let view = tree.view();
    let found = |snapshot: &_, at| view.get(snapshot, &key(at)).map(|value| value.is_some());
    assert!(found(&first, 1).unwrap());
    commit(&mut writer, &store, 1);
    let (second, other) = (store.snapshot().unwrap(), elsewhere.snapshot().unwrap());
    for (snapshot, commit) in [(&second, 2), (&other, 0)] {
        assert_ne!(snapshot.shows(), first.shows());
        let by_view = found(snapshot, 2).unwrap_err();
        let by_tree = tree.get(snapshot, None, &key(2)).unwrap_err();
        for refused in [by_view, by_tree] {
            let TreeError::OtherSnapshot { found, head: 1, .. } = refused else {
                panic!("{refused}")
            };
            assert_eq!(found, commit);
        }
    }
    assert!(found(&first, 2).unwrap());
    assert!(writer.get(&second, None, &key(2)).unwrap().is_some());
    assert!(writer.get(&first, None, &key(2)).is_err());
}
