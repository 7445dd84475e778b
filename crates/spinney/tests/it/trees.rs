//! Names: given, refused, listed, dropped; and stores that others made.

use spinney::engine::mpt::MptState;
use spinney::engine::{Batch, MemoryStore, PageStore as _, Tree, TreeId};
use spinney::{
    Database, DatabaseOptions, Error, HashFunction, Mpt, Pbt, Profile, Sum, TreeKind as _, Ubt,
};

use crate::Place;

fn names(db: &Database) -> Vec<String> {
    db.trees().unwrap().into_iter().map(|tree| tree.name).collect()
}

#[test]
fn a_name_is_of_one_tree() {
    for place in Place::all() {
        let db = place.open();
        let tree = db.tree::<Mpt>("accounts").unwrap();
        tree.batch().put("doe", "reindeer").prepare().unwrap().commit().unwrap();
        let refused = db.tree::<Ubt>("accounts").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "\"accounts\" is a tree mpt over raw keys, and not ubt:sha256: \
             give the other one another name"
        );
        db.tree::<Ubt>("stems").unwrap();
        let other = Ubt { hash: HashFunction::Blake3 };
        let refused = db.tree_with("stems", other).unwrap_err();
        assert!(matches!(refused, Error::OtherScheme { .. }), "{refused}");
        db.tree::<Sum>("sums").unwrap();
        let refused = db.tree_with("sums", Sum { profile: Profile::Bound }).unwrap_err();
        assert!(matches!(refused, Error::OtherScheme { .. }), "{refused}");
        let refused = db.tree::<Mpt>("sums").unwrap_err();
        assert!(matches!(refused, Error::OtherScheme { .. }), "{refused}");
        for name in ["", &"n".repeat(513)] {
            assert!(matches!(db.tree::<Mpt>(name), Err(Error::Name(_))));
        }
        for name in ["mpt", "pbt:sha256", "verkle"] {
            assert!(matches!(db.tree::<Mpt>(name), Err(Error::Reserved { .. })), "{name}");
        }
        assert_eq!(names(&db), ["accounts", "stems", "sums"]);
        drop((tree, db));

        // Nothing of it is forgotten; and who only reads makes none.
        let db = place.with(DatabaseOptions::new().read_only(true)).unwrap();
        assert_eq!(names(&db), ["accounts", "stems", "sums"]);
        let refused = db.tree::<Mpt>("nobody").unwrap_err();
        assert_eq!(
            refused.to_string(),
            "there is no tree \"nobody\": the store holds accounts, stems, sums"
        );
        let tree = db.tree::<Mpt>("accounts").unwrap();
        assert_eq!(tree.get("doe").unwrap().as_deref(), Some(&b"reindeer"[..]));
        let state = tree.batch().delete("doe").prepare().unwrap();
        assert!(matches!(state.commit(), Err(Error::ReadOnly)));
        assert!(matches!(db.drop_tree("accounts"), Err(Error::ReadOnly)));
    }
}

#[test]
fn a_dropped_tree_is_gone() {
    for place in Place::all() {
        let db = place.open();
        let tree = db.tree::<Mpt>("accounts").unwrap();
        let empty = db.tree::<Pbt>("empty").unwrap();
        let kept = db.tree::<Mpt>("kept").unwrap();
        for tree in [&tree, &kept] {
            let many = (0..2_000_u32).map(|n| (n.to_be_bytes(), [7; 40]));
            tree.batch().put_all(many).prepare().unwrap().commit().unwrap();
        }
        let (root, kept_root) = (tree.root().unwrap(), kept.root().unwrap());
        let (view, state) = (tree.view(), tree.batch().put("a", "b").prepare().unwrap());
        let unborn = empty.batch().put([1; 34], [2; 32]).prepare().unwrap();
        db.drop_tree("accounts").unwrap();
        db.drop_tree("empty").unwrap();
        assert!(matches!(db.drop_tree("accounts"), Err(Error::NoTree { .. })));
        // What is committed to it goes nowhere.
        for dropped in [state.commit(), unborn.commit(), tree.root().map(drop)] {
            assert!(matches!(dropped, Err(Error::Dropped { .. })), "{dropped:?}");
        }
        // A view holds what it showed.
        assert_eq!(view.root().unwrap(), root);
        assert_eq!(view.prefix([]).count(), 2_000);
        drop(view);
        // The name can be had again, also by a tree of another kind, and nothing is in it.
        let again = db.tree::<Sum>("accounts").unwrap();
        assert_eq!(again.root().unwrap().node().sum, 0);
        assert!(matches!(state.commit(), Err(Error::Dropped { .. })));
        assert_eq!(kept.root().unwrap(), kept_root);
        drop((tree, empty, kept, again, state, unborn, db));
        let db = place.open();
        assert_eq!(names(&db), ["accounts", "kept"]);
        assert_eq!(db.tree::<Mpt>("kept").unwrap().root().unwrap(), kept_root);
    }
}

#[test]
fn states_of_one_commit_are_of_different_trees_of_one_database() {
    let (db, other) = (Database::memory(), Database::memory());
    let tree = db.tree::<Mpt>("a").unwrap();
    let one = tree.batch().put("a", "1").prepare().unwrap();
    let two = tree.batch().put("b", "2").prepare().unwrap();
    let refused = db.commit(&[&one, &two]).unwrap_err();
    assert!(matches!(refused, Error::TwoStates { .. }), "{refused}");
    let foreign = other.tree::<Mpt>("a").unwrap().batch().put("a", "1").prepare().unwrap();
    let refused = db.commit(&[&one, &foreign]).unwrap_err();
    assert!(matches!(refused, Error::OtherDatabase { .. }), "{refused}");
    assert_eq!(tree.view().prefix([]).count(), 0, "nothing was written");
    // Where one of two is stale, neither is written.
    let second = db.tree::<Pbt>("b").unwrap();
    let also = second.batch().put([1; 34], [1; 32]).prepare().unwrap();
    two.commit().unwrap();
    let refused = db.commit(&[&also, &one]).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "tree \"a\" has moved on: the state stands on commit 0, and the tree is at \
         commit 1: prepare it again"
    );
    assert_eq!(second.view().prefix([]).count(), 0);
    db.commit(&[&also]).unwrap();
    // Again, it is there already.
    also.commit().unwrap();
    assert_eq!(second.root().unwrap(), also.root());
}

/// A store that the command made: its trees are listed and read, and not written.
#[test]
fn trees_of_the_command_are_only_read() {
    let store = MemoryStore::new();
    let mut raw = Tree::open(Mpt, TreeId(1), &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut batch = Batch::new();
    batch.put(b"doe", b"reindeer");
    let pending = raw.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    raw.commit(&store, &pending, None).unwrap();
    let db = Database::over(spinney::AnyStore::from(store));
    let [mpt] = &db.trees().unwrap()[..] else { panic!("one tree") };
    assert_eq!((&mpt.name[..], mpt.is_of_command, mpt.commits), ("mpt", true, 1));
    let tree = db.tree::<Mpt>("mpt").unwrap();
    assert_eq!(tree.root().unwrap(), pending.root());
    let proof = tree.view().prove(["doe"]).unwrap();
    let verified = Mpt::verify(&pending.root(), &proof).unwrap();
    assert_eq!(verified.get("doe").unwrap(), Some(&b"reindeer"[..]));
    let state = tree.batch().delete("doe").prepare().unwrap();
    assert!(matches!(state.commit(), Err(Error::CommandTree { .. })));
    assert!(matches!(db.drop_tree("mpt"), Err(Error::CommandTree { .. })));
    // Trees of ours lie beside it.
    let ours = db.tree::<Mpt>("ours").unwrap();
    ours.batch().put("a", "b").prepare().unwrap().commit().unwrap();
    assert_eq!(names(&db), ["mpt", "ours"]);
    assert_eq!(tree.get("doe").unwrap().as_deref(), Some(&b"reindeer"[..]));

    // A state is no tree of raw keys.
    let store = MemoryStore::new();
    let mut state = Tree::open(MptState, TreeId(1), &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut batch = Batch::new();
    batch.put(&[7; 32], &spinney::engine::mpt::account_value(1, &[1; 32], &[2; 32]));
    let pending = state.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    state.commit(&store, &pending, None).unwrap();
    let db = Database::over(spinney::AnyStore::from(store));
    let refused = db.tree::<Mpt>("mpt").unwrap_err();
    assert!(refused.to_string().starts_with("\"mpt\" is a tree mpt over Ethereum state"));
}
