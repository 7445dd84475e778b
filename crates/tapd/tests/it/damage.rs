//! Databases that are not sound.

use proptest::prelude::*;
use spinney_tapd::{Damage, Flaw, TapdError};
use spinney_tree::sum::reference::Leaves;
use spinney_tree::sum::{Leaf, Profile, SumNode};

use crate::databases::{Contents, Shape, climb, goes_right, read};

fn leaves() -> Leaves {
    let key = |n: u8| spinney_hash::sha256(&[n]);
    (0..20).map(|n| (key(n), Leaf { value: vec![n; 3], sum: 10 })).collect()
}

fn tree() -> Contents {
    let mut contents = Contents::default();
    contents.add("t", Shape::Compacted { below: 1 }, &leaves());
    contents
}

fn damage(contents: &Contents) -> (Vec<Damage>, Leaves) {
    let (report, leaves) = read(&mut contents.sqlite().open(), "t").unwrap();
    (report.damage, leaves)
}

/// Each row in turn is taken away or changed: that row is named, and what is not below it is read.
#[test]
fn a_damaged_row_is_named_with_its_place() {
    let (sound, leaves) = (tree(), leaves());
    for (name, ((left, _, key, value), _)) in &sound.nodes {
        let mut missing = sound.clone();
        missing.nodes.remove(name);
        let mut changed = sound.clone();
        let columns = &mut changed.nodes.get_mut(name).unwrap().0;
        match value {
            Some(_) => columns.3 = Some(b"another".to_vec()),
            None => columns.0 = Some(vec![9; 32]),
        }
        let mut counted = sound.clone();
        counted.nodes.get_mut(name).unwrap().1 += 1;
        for (contents, flaw) in
            [(missing, Flaw::Missing), (changed, Flaw::Hash), (counted, Flaw::Hash)]
        {
            let (damage, found) = damage(&contents);
            let [Damage { depth, path, hash, flaw: what }] = &damage[..] else {
                panic!("{damage:?}")
            };
            assert_eq!((hash, what), (&name.1, &flaw));
            let below = |key: &[u8; 32]| {
                (0..*depth).all(|depth| goes_right(key, depth) == goes_right(path, depth))
            };
            let rest: Leaves = leaves.clone().into_iter().filter(|(key, _)| !below(key)).collect();
            assert_eq!(found, rest);
            match key {
                Some(key) => assert!(below(&key[..].try_into().unwrap())),
                None => assert!(left.is_some()),
            }
        }
    }
}

/// The hash of a branch binds the total alone: one that counts more than its children is found by
/// counting.
#[test]
fn a_branch_that_does_not_count_right_is_found() {
    let mut contents = Contents::default();
    let leaf = |n: u8| (if n == 0 { [0; 32] } else { [1; 32] }, Leaf { value: vec![n], sum: 40 });
    let [left, right] = [leaf(0), leaf(1)].map(|(key, leaf)| {
        let node = climb(&key, &leaf, 1);
        contents.put("t", node, (None, None, Some(key.to_vec()), Some(leaf.value)));
        node
    });
    let root = contents.branch("t", SumNode { sum: 60, ..left }, right);
    contents.roots.insert("t".into(), root.hash.to_vec());
    let (damage, found) = damage(&contents);
    let [Damage { depth: 0, flaw: Flaw::Sum { says: 100, children: 80 }, .. }] = damage[..] else {
        panic!("{damage:?}")
    };
    assert_eq!(found.len(), 2);
    let shown = damage[0].to_string();
    assert!(shown.ends_with(": its sum is 100, and that of its children 80"), "{shown}");
}

#[test]
fn rows_of_no_shape_are_named() {
    let sound = tree();
    let leaf = sound.nodes.iter().find(|(_, (columns, _))| columns.2.is_some()).unwrap().0.clone();
    for (change, said) in [
        ((Some(vec![1; 32]), None, None, None), "one child's hash"),
        ((Some(vec![1; 31]), Some(vec![1; 32]), None, None), "not 32 bytes"),
        ((None, None, Some(vec![1; 33]), Some(vec![1])), "33 bytes"),
        ((None, None, None, Some(vec![1])), "neither a branch nor a leaf with a key"),
        ((None, None, Some(vec![1; 32]), Some(vec![1; 1 << 24])), "longer than 16777215 bytes"),
    ] {
        let mut contents = sound.clone();
        contents.nodes.get_mut(&leaf).unwrap().0 = change;
        let (damage, found) = damage(&contents);
        assert!(matches!(&damage[..], [one] if one.to_string().contains(said)), "{damage:?}");
        assert_eq!(found.len(), 19);
    }
    for hash in [vec![], vec![1; 31], vec![1; 32]] {
        let mut contents = sound.clone();
        contents.roots.insert("t".into(), hash);
        let (damage, found) = damage(&contents);
        assert_eq!((damage.len(), damage[0].depth, found.len()), (1, 0, 0));
    }
}

/// A branch whose children are one row, 255 times over: 256 rows for 2^255 leaves.
#[test]
fn rows_that_stand_for_too_many_leaves_are_refused() {
    let mut contents = Contents::default();
    let leaf = Leaf { value: vec![1], sum: 0 };
    let mut node = Profile::Compatible.leaf(&leaf);
    contents.put("t", node, (None, None, None, Some(leaf.value)));
    for _ in 0..256 {
        node = contents.branch("t", node, node);
    }
    contents.roots.insert("t".into(), node.hash.to_vec());
    let error = read(&mut contents.sqlite().open(), "t").unwrap_err();
    assert!(matches!(error, TapdError::Shared { rows: 257, .. }), "{error}");
}

/// A reader that has had enough ends it.
#[test]
fn the_reader_of_leaves_may_fail() {
    let contents = tree();
    let stop = || TapdError::Missing("patience".into());
    let ended = contents.sqlite().open().read("t", &mut |_, _| Err(stop()));
    assert!(matches!(ended.unwrap_err(), TapdError::Missing(_)));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever is in the columns, what is handed on are leaves of the sound tree.
    #[test]
    fn no_change_makes_a_leaf_up(changes in prop::collection::vec(
        (any::<prop::sample::Index>(), 0..6_usize, prop::collection::vec(any::<u8>(), 0..40)), 1..4,
    )) {
        let mut contents = tree();
        let names: Vec<_> = contents.nodes.keys().cloned().collect();
        for (at, column, bytes) in changes {
            let name = at.get(&names);
            let Some((columns, sum)) = contents.nodes.get_mut(name) else { continue };
            match column {
                0 => columns.0 = Some(bytes),
                1 => columns.1 = Some(bytes),
                2 => columns.2 = Some(bytes),
                3 => columns.3 = Some(bytes),
                4 => *sum = sum.wrapping_mul(3).wrapping_sub(bytes.len() as i64),
                _ => drop(contents.nodes.remove(name)),
            }
        }
        let (report, found) = read(&mut contents.sqlite().open(), "t").unwrap();
        let sound = leaves();
        for (key, leaf) in &found {
            prop_assert_eq!(sound.get(key), Some(leaf));
        }
        prop_assert_eq!(report.damage_count == 0, found == sound, "{:?}", report);
    }
}
