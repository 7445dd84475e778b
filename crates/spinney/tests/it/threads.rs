//! Readers beside writers: in threads of one process, and in other handles on one place.

use std::sync::atomic::{AtomicBool, Ordering};

use spinney::{DatabaseOptions, Error, Mpt, TreeKind as _};

use crate::Place;

/// The state after `round` commits: every key has that value.
fn value(round: u64) -> Vec<u8> {
    [&round.to_be_bytes()[..], &[9; 30]].concat()
}

const KEYS: u32 = 600;

fn all(round: u64) -> impl Iterator<Item = ([u8; 4], Vec<u8>)> {
    (0..KEYS).map(move |key| (key.to_be_bytes(), value(round)))
}

/// Every view shows one commit whole, whatever is committed while it is there.
#[test]
fn views_show_one_commit_each() {
    for place in Place::all() {
        let db = place.with(DatabaseOptions::new().tree_cache(1 << 14)).unwrap();
        let tree = db.tree::<Mpt>("all").unwrap();
        tree.batch().put_all(all(1)).prepare().unwrap().commit().unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let tree = db.tree::<Mpt>("all").unwrap();
                    while !done.load(Ordering::Relaxed) {
                        let view = tree.view();
                        let first = view.get(0_u32.to_be_bytes()).unwrap().unwrap().to_vec();
                        let entries = view.prefix([]).map(Result::unwrap);
                        let count =
                            entries.inspect(|(_, value)| assert_eq!(**value, first)).count();
                        assert_eq!(count, KEYS as usize);
                        let proof = view.prove([7_u32.to_be_bytes()]).unwrap();
                        let verified = Mpt::verify(&view.root().unwrap(), &proof).unwrap();
                        assert_eq!(verified.get(7_u32.to_be_bytes()).unwrap(), Some(&first[..]));
                    }
                });
            }
            for round in 2..12 {
                // A walk goes on over a commit that it makes itself.
                let view = tree.view();
                let mut walk = view.range(&0_u32.to_be_bytes()[..], None);
                walk.next().unwrap().unwrap();
                tree.batch().put_all(all(round)).prepare().unwrap().commit().unwrap();
                assert!(walk.all(|entry| *entry.unwrap().1 == *value(round - 1)));
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// Of many writers each wins at last, and no commit of another is lost.
#[test]
fn writers_of_one_tree_take_turns() {
    let place = Place::folder();
    let db = place.open();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let db = db.clone();
            scope.spawn(move || {
                let tree = db.tree::<Mpt>("count").unwrap();
                for step in 0..10_u8 {
                    loop {
                        let state = tree.batch().put([thread, step], [1]).prepare().unwrap();
                        match state.commit() {
                            Ok(()) => break,
                            Err(Error::Stale { .. }) => continue,
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
    });
    assert_eq!(db.tree::<Mpt>("count").unwrap().view().prefix([]).count(), 40);
}

/// A reader that was opened before sees what another handle on the place commits.
#[test]
fn readers_follow() {
    for place in Place::all() {
        let db = place.open();
        let tree = db.tree::<Mpt>("all").unwrap();
        tree.batch().put_all(all(1)).prepare().unwrap().commit().unwrap();
        let reader = place.with(DatabaseOptions::new().read_only(true)).unwrap();
        let seen = reader.tree::<Mpt>("all").unwrap();
        let before = seen.view();
        let prepared = seen.batch().put("more", "of it").prepare().unwrap();
        tree.batch().put_all(all(2)).prepare().unwrap().commit().unwrap();
        assert_eq!(seen.root().unwrap(), tree.root().unwrap());
        assert_eq!(*seen.get(0_u32.to_be_bytes()).unwrap().unwrap(), *value(2));
        assert_eq!(*before.get(0_u32.to_be_bytes()).unwrap().unwrap(), *value(1));
        assert!(matches!(prepared.batch().prepare(), Err(Error::Stale { .. })));
        db.drop_tree("all").unwrap();
        assert!(matches!(seen.root(), Err(Error::Dropped { .. })));
    }
}
