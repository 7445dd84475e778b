//! Sound databases, in all the shapes that tapd leaves behind.

use proptest::prelude::*;
use spinney_tapd::{Database, TapdError};
use spinney_tree::sum::reference::{self, Leaves};
use spinney_tree::sum::{Leaf, Profile};

use crate::databases::{Contents, Shape, climb, read};

const SHAPES: [Shape; 4] = [
    Shape::Compacted { below: 0 },
    Shape::Compacted { below: 1 },
    Shape::Compacted { below: 40 },
    Shape::Full,
];

fn leaf(value: &[u8], sum: u64) -> Leaf {
    Leaf { value: value.into(), sum }
}

/// Keys that look hashed.
fn leaves(count: u64) -> Leaves {
    let key = |n: u64| spinney_hash::sha256(&n.to_be_bytes());
    (0..count).map(|n| (key(n), leaf(&n.to_le_bytes()[..n as usize % 9], n * n + 1))).collect()
}

/// In each database that there is here.
fn everywhere(contents: &Contents, check: impl Fn(&mut Database)) {
    let sqlite = contents.sqlite();
    check(&mut sqlite.open());
    #[cfg(unix)]
    if let Some(server) = crate::server::shared() {
        check(&mut Database::postgres(&contents.postgres(server).into()).unwrap());
    }
}

#[test]
fn trees_of_all_shapes_are_read() {
    for count in [1, 2, 3, 10, 1_500] {
        let mut contents = Contents::default();
        let leaves = leaves(count);
        let mut roots = Vec::new();
        for (at, shape) in SHAPES.into_iter().enumerate() {
            if count < 1_000 || at < 2 {
                roots.push(contents.add(&format!("tree {at}"), shape, &leaves));
            }
        }
        let root = reference::root(Profile::Compatible, &leaves).unwrap();
        assert!(roots.iter().all(|other| *other == root));
        everywhere(&contents, |database| {
            let trees = database.namespaces().unwrap();
            assert_eq!(trees.len(), roots.len());
            for tree in trees {
                assert_eq!(tree.root, Some(root));
                let (report, found) = read(database, &tree.name).unwrap();
                assert_eq!(report.damage, []);
                assert_eq!((report.root, report.rows), (Some(root), tree.rows));
                assert_eq!(report.nodes, tree.rows, "no row stands for two nodes");
                assert!(found == leaves);
            }
        });
    }
}

/// Sums of 2^63 and more are negative in the database; values may be empty, or long.
#[test]
fn sums_and_values_at_their_limits_are_read() {
    let leaves = Leaves::from([
        ([1; 32], leaf(b"", u64::MAX - 5)),
        ([2; 32], leaf(&[7; 3_000_000], 0)),
        ([3; 32], leaf(b"x", 5)),
    ]);
    let mut contents = Contents::default();
    let root = contents.add("t", SHAPES[0], &leaves);
    assert_eq!(root.sum, u64::MAX);
    everywhere(&contents, |database| {
        let (report, found) = read(database, "t").unwrap();
        assert_eq!((report.root, report.damage_count), (Some(root), 0));
        assert!(found == leaves);
    });
}

/// Equal subtrees are one row, with one of the keys.
#[test]
fn rows_that_stand_for_several_nodes_are_read_in_every_place() {
    let twin = leaf(b"x", 5);
    let mut leaves = leaves(3);
    for first in 0..8 {
        let mut key = [0; 32];
        key[0] = first;
        leaves.insert(key, twin.clone());
    }
    let mut contents = Contents::default();
    for (at, shape) in SHAPES.into_iter().enumerate() {
        contents.add(&format!("tree {at}"), shape, &leaves);
    }
    everywhere(&contents, |database| {
        for at in 0..SHAPES.len() {
            let (report, found) = read(database, &format!("tree {at}")).unwrap();
            assert_eq!(report.damage, []);
            assert!(report.nodes > report.rows, "some row stands for several nodes");
            assert_eq!(found, leaves);
        }
    });
}

/// What deletions of absent keys leave, and leaves that full trees forget to delete.
#[test]
fn phantoms_and_leftovers_are_no_leaves() {
    let leaves = leaves(20);
    let mut contents = Contents::default();
    let root = contents.add("t", Shape::Compacted { below: 3 }, &leaves);
    let nothing = Leaf::default();
    for depth in 1..8 {
        let node = climb(&[depth as u8; 32], &nothing, depth);
        contents.put("t", node, (None, None, Some(vec![depth as u8; 32]), Some(vec![])));
    }
    let lost = leaf(b"lost", 9);
    let node = Profile::Compatible.leaf(&lost);
    contents.put("t", node, (None, None, None, Some(lost.value)));
    contents.put("emptied", node, (None, None, None, Some(b"lost".to_vec())));
    everywhere(&contents, |database| {
        assert_eq!(database.namespaces().unwrap().len(), 1, "one has a root");
        let (report, found) = read(database, "t").unwrap();
        assert_eq!((report.root, report.damage_count), (Some(root), 0));
        assert_eq!(report.rows, report.nodes + 8);
        assert_eq!(found, leaves);
        let error = read(database, "emptied").unwrap_err();
        assert!(error.to_string().ends_with("no tree \"emptied\"; it has \"t\""), "{error}");
    });
}

/// Trees with one root are each in their own rows.
#[test]
fn namespaces_keep_apart() {
    let (one, two) = (leaves(30), leaves(40));
    let mut contents = Contents::default();
    for (namespace, leaves) in [("a", &one), ("b", &one), ("c", &two)] {
        contents.add(namespace, SHAPES[0], leaves);
    }
    everywhere(&contents, |database| {
        for (namespace, leaves) in [("a", &one), ("b", &one), ("c", &two)] {
            let (report, found) = read(database, namespace).unwrap();
            assert_eq!((report.damage_count, &found), (0, leaves));
        }
    });
}

#[test]
fn what_is_no_database_of_tapd_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    let error = || Database::sqlite(&file).unwrap_err();
    assert!(matches!(error(), TapdError::Missing(_)));
    std::fs::write(&file, "not a database, but long enough to be looked at".repeat(100)).unwrap();
    assert!(matches!(error(), TapdError::Foreign { .. }), "{}", error());
    std::fs::remove_file(&file).unwrap();
    rusqlite::Connection::open(&file).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    assert!(matches!(error(), TapdError::Foreign { .. }), "{}", error());
    assert!(matches!(Database::sqlite(folder.path()).unwrap_err(), TapdError::Missing(_)));
    let nobody = "postgres://a:secret@127.0.0.1:1/none?connect_timeout=2";
    let error = Database::postgres(&nobody.into()).unwrap_err().to_string();
    assert!(error.contains("127.0.0.1") && !error.contains("secret"), "{error}");
    #[cfg(unix)]
    if let Some(server) = crate::server::shared() {
        let error = Database::postgres(&server.schema().0.into()).unwrap_err();
        assert!(matches!(error, TapdError::Foreign { .. }), "{error}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_read(
        leaves in prop::collection::btree_map(
            prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 128, 255]), 32),
            (prop::collection::vec(any::<u8>(), 0..3), 0..1_u64 << 50),
            1..12,
        ),
        shape in prop::sample::select(SHAPES.to_vec()),
    ) {
        let leaves: Leaves = leaves
            .into_iter()
            .map(|(key, (value, sum))| (key.try_into().unwrap(), leaf(&value, sum)))
            .filter(|(_, leaf)| !leaf.is_empty())
            .collect();
        let mut contents = Contents::default();
        let root = contents.add("t", shape, &leaves);
        let (report, found) = read(&mut contents.sqlite().open(), "t").unwrap();
        prop_assert_eq!(&report.damage, &[]);
        prop_assert_eq!(found, leaves.clone());
        if !leaves.is_empty() {
            prop_assert_eq!(report.root, Some(root));
        }
    }
}
