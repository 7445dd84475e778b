//! Sum trees by name: apart from one another, copied, nested, proven as a whole.

use std::collections::BTreeMap;

use spinney_state::sum::{Nest, SumBatch, SumError, SumTree, commit_together, namespaces};
use spinney_tree::sum::reference::{self, Leaves};
use spinney_tree::sum::{Leaf, Profile, Proof, Proven};
use spinney_tree::{MemoryStore, PageStore, Snapshot, Table, TreeError};

use Profile::{Bound, Compatible};

fn key(n: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (i, part) in key.chunks_exact_mut(8).enumerate() {
        let mixed = (n * 4 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        part.copy_from_slice(&(mixed ^ mixed >> 29).to_be_bytes());
    }
    key
}

fn leaf(n: u64) -> Leaf {
    Leaf { value: n.to_be_bytes().to_vec(), sum: n }
}

fn leaves(numbers: impl IntoIterator<Item = u64>) -> Leaves {
    numbers.into_iter().map(|n| (key(n), leaf(n))).collect()
}

fn batch(leaves: &Leaves) -> SumBatch {
    let mut batch = SumBatch::new();
    leaves.iter().for_each(|(key, leaf)| batch.put(key, leaf));
    batch
}

fn all<P: PageStore>(tree: &SumTree<'_, P>) -> Leaves {
    let mut all = Vec::new();
    tree.visit(|key, leaf| {
        all.push((key, leaf));
        Ok::<_, SumError>(true)
    })
    .unwrap();
    let order = |key: &[u8; 32]| key.map(u8::reverse_bits);
    assert!(all.is_sorted_by_key(|(key, _)| order(key)), "in the order of the tree");
    all.into_iter().collect()
}

fn create<'s>(store: &'s MemoryStore, name: &str) -> SumTree<'s, MemoryStore> {
    SumTree::create(store, name, Compatible, 1 << 20).unwrap()
}

#[test]
fn trees_of_other_names_are_apart() {
    let store = MemoryStore::new();
    let (mut a, mut b) = (create(&store, "a"), create(&store, "b"));
    a.apply(&mut batch(&leaves(0..20))).unwrap();
    b.apply(&mut batch(&leaves(10..40))).unwrap();
    let mut c = SumTree::create(&store, "c", Bound, 1 << 20).unwrap();
    c.apply(&mut batch(&leaves(10..40))).unwrap();
    assert_eq!(c.root().sum, b.root().sum);
    assert_ne!(c.root().hash, b.root().hash);
    a.delete_all().unwrap();
    assert_eq!(a.root(), Compatible.empty_node(0));
    assert_eq!(all(&a), Leaves::new());

    let named: Vec<_> = namespaces(&store.snapshot().unwrap()).unwrap();
    let names: Vec<_> = named.iter().map(|n| (&n.name[..], n.profile)).collect();
    assert_eq!(names, [("a", Compatible), ("b", Compatible), ("c", Bound)]);
    let b = SumTree::open(&store, "b", 1 << 20).unwrap().unwrap();
    assert_eq!(b.root(), reference::root(Compatible, &leaves(10..40)).unwrap());
    assert_eq!(all(&b), leaves(10..40));
    assert!(SumTree::open(&store, "d", 1 << 20).unwrap().is_none());
    let other = SumTree::create(&store, "b", Bound, 1 << 20).unwrap_err();
    assert!(matches!(other, SumError::OtherProfile { .. }), "{other}");

    b.remove().unwrap();
    assert!(SumTree::open(&store, "b", 1 << 20).unwrap().is_none());
    assert_eq!(all(&c), leaves(10..40));
    c.remove().unwrap();
    a.remove().unwrap();
    assert_eq!(
        rows(&store).len(),
        1,
        "all that stays of trees that were removed is the number of the next"
    );
}

/// Ids are given once: whatever a handle on a removed tree does, no tree of the same or of another
/// name sees any of it.
#[test]
fn a_handle_on_a_removed_tree_changes_nothing() {
    let store = MemoryStore::new();
    for filled in [false, true] {
        let mut removed = create(&store, "a");
        if filled {
            removed.apply(&mut batch(&leaves(0..9))).unwrap();
        }
        let stale = || SumTree::open(&store, "a", 1 << 20).unwrap().unwrap();
        let (mut one, mut two, three, mut four) = (stale(), stale(), stale(), stale());
        removed.remove().unwrap();
        let before = rows(&store);
        let refused = one.insert(&key(1), &leaf(1)).unwrap_err();
        let expected = if filled { "shows commit 0" } else { "was removed meanwhile" };
        assert!(refused.to_string().contains(expected), "{refused}");
        assert_eq!(rows(&store), before);

        // Nor after the name, or another one, was given anew.
        let (mut again, other) = (create(&store, "a"), create(&store, "b"));
        assert!(again.tree().id() < other.tree().id(), "ids rise");
        assert!(two.tree().id() < again.tree().id(), "and come once");
        again.apply(&mut batch(&leaves(3..5))).unwrap();
        let before = rows(&store);
        let refused = three.remove().unwrap_err();
        assert!(matches!(refused, SumError::Removed { .. }), "{refused}");
        two.apply(&mut batch(&leaves(0..1))).unwrap_err();
        let nested = &mut [(&mut two, batch(&leaves(0..1))), (&mut again, SumBatch::new())];
        commit_together(&store, nested, &[Nest { child: 0, parent: 1, key: key(8) }]).unwrap_err();
        let given = leaves(0..1).into_iter().map(Ok::<_, SumError>);
        four.rebuild(given).unwrap_err();
        assert_eq!(rows(&store), before);
        again.remove().unwrap();
        other.remove().unwrap();
    }
}

#[test]
fn sorted_leaves_replace_all_or_nothing() {
    let store = MemoryStore::new();
    let mut tree = create(&store, "a");
    tree.apply(&mut batch(&leaves(0..30))).unwrap();
    let sorted = |leaves: &Leaves| {
        let mut sorted: Vec<_> = leaves.clone().into_iter().collect();
        sorted.sort_by_key(|(key, _)| key.map(u8::reverse_bits));
        sorted
    };
    let next = sorted(&leaves(20..400));
    let (root, before) = (tree.root(), rows(&store));
    let out_of_order = next.iter().cloned().chain([(next[7].0, leaf(1))]);
    let refused = tree.rebuild(out_of_order.map(Ok::<_, SumError>)).unwrap_err();
    let named = format!("0x{}", next[7].0.iter().map(|b| format!("{b:02x}")).collect::<String>());
    assert!(refused.to_string().contains(&named), "a key as it was written: {refused}");
    let heavy = next.iter().map(|(key, leaf)| (*key, Leaf { sum: u64::MAX / 3, ..leaf.clone() }));
    let refused = tree.rebuild(heavy.map(Ok::<_, SumError>)).unwrap_err();
    assert!(matches!(refused, SumError::Tree(TreeError::Overweight { .. })), "{refused}");
    let cut = next.iter().take(9).cloned().map(Ok);
    let cut = cut.chain([Err(SumError::Output(std::io::Error::other("no")))]);
    tree.rebuild(cut).unwrap_err();
    assert_eq!((tree.root(), rows(&store)), (root, before));

    tree.rebuild(next.iter().cloned().map(Ok::<_, SumError>)).unwrap();
    assert_eq!(tree.root(), reference::root(Compatible, &leaves(20..400)).unwrap());
    assert_eq!(all(&tree), leaves(20..400));
    assert_eq!(tree.tree().check(&store.snapshot().unwrap(), |_| {}).unwrap(), []);
    tree.insert(&key(1), &leaf(1)).unwrap();
    let mut expected = leaves(20..400);
    expected.insert(key(1), leaf(1));
    assert_eq!(all(&create(&store, "a")), expected);
}

/// All that a store holds.
fn rows(store: &MemoryStore) -> Vec<(Table, Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    for table in Table::ALL {
        let mut keep = |key: &[u8], row: &[u8]| {
            rows.push((table, key.to_vec(), row.to_vec()));
            true
        };
        store.snapshot().unwrap().scan(table, &[], None, &mut keep).unwrap();
    }
    rows
}

#[test]
fn names_of_no_length_or_too_long_are_refused() {
    let store = MemoryStore::new();
    for name in ["", &"x".repeat(513)] {
        let refused = SumTree::create(&store, name, Compatible, 1 << 20).unwrap_err();
        assert!(matches!(refused, SumError::Name { .. }), "{refused}");
    }
}

#[test]
fn copies_merge_into_what_is_there_and_filters_pick() {
    let (here, there) = (MemoryStore::new(), MemoryStore::new());
    let mut source = create(&here, "a");
    source.apply(&mut batch(&leaves(0..50))).unwrap();
    let mut target = create(&there, "b");
    target.apply(&mut batch(&leaves(40..60))).unwrap();
    target.insert(&key(3), &Leaf { value: vec![1], sum: 1 }).unwrap();
    source.copy_where(&mut target, |_, leaf| Ok::<_, SumError>(leaf.sum % 2 == 1)).unwrap();
    let mut expected = leaves(40..60);
    expected.extend(leaves((0..50).filter(|n| n % 2 == 1)));
    assert_eq!(all(&target), expected);
    assert_eq!(target.root(), reference::root(Compatible, &expected).unwrap());

    let before = target.root();
    let failed = source.copy_where(&mut target, |key_, _| {
        if *key_ == key(7) { Err(SumError::Output(std::io::Error::other("no"))) } else { Ok(true) }
    });
    assert!(matches!(failed, Err(SumError::Output(_))));
    assert_eq!(target.root(), before);
    source.copy_to(&mut target).unwrap();
    expected.extend(leaves(0..50));
    assert_eq!(target.root(), reference::root(Compatible, &expected).unwrap());
}

/// Into an empty tree leaves go one by one, and still all of them or none: also from the same
/// store.
#[test]
fn copies_into_an_empty_tree_are_whole_or_leave_no_trace() {
    let store = MemoryStore::new();
    let mut source = create(&store, "a");
    source.apply(&mut batch(&leaves(0..300))).unwrap();
    let mut target = create(&store, "b");
    let rows = |store: &MemoryStore| {
        let snapshot = store.snapshot().unwrap();
        let mut rows = Vec::new();
        for table in [Table::Pages, Table::Roots, Table::Meta] {
            let mut take = |key: &[u8], row: &[u8]| {
                rows.push((key.to_vec(), row.to_vec()));
                true
            };
            snapshot.scan(table, &[], None, &mut take).unwrap();
        }
        rows
    };
    let before = rows(&store);
    let (mut asked, nothing) = (0, target.root());
    let failed = source.copy_where(&mut target, |_, _| {
        asked += 1;
        if asked == 299 { Err(SumError::Output(std::io::Error::other("no"))) } else { Ok(true) }
    });
    assert!(matches!(failed, Err(SumError::Output(_))));
    assert_eq!(target.root(), nothing);
    assert_eq!(rows(&store), before);

    source.copy_where(&mut target, |_, leaf| Ok::<_, SumError>(leaf.sum % 3 == 1)).unwrap();
    let expected = all(&source).into_iter().filter(|leaf| leaf.1.sum % 3 == 1).collect();
    assert_eq!(all(&target), expected);
    assert_eq!(target.root(), reference::root(Compatible, &expected).unwrap());
    // What no leaf is picked for stays empty, and can be copied into again.
    let mut third = create(&store, "c");
    source.copy_where(&mut third, |_, _| Ok::<_, SumError>(false)).unwrap();
    assert_eq!(third.root(), nothing);
    source.copy_to(&mut third).unwrap();
    assert_eq!(third.root(), source.root());
}

#[test]
fn nested_trees_are_committed_together_or_not_at_all() {
    let store = MemoryStore::new();
    let (mut one, mut two, mut top) =
        (create(&store, "1"), create(&store, "2"), create(&store, "top"));
    let nests =
        [Nest { child: 0, parent: 2, key: key(100) }, Nest { child: 1, parent: 2, key: key(200) }];
    let trees = &mut [
        (&mut one, batch(&leaves(0..10))),
        (&mut two, batch(&leaves(5..30))),
        (&mut top, SumBatch::new()),
    ];
    commit_together(&store, trees, &nests).unwrap();
    let nested = [(key(100), one.as_leaf()), (key(200), two.as_leaf())].into();
    assert_eq!(all(&top), nested);
    assert_eq!(top.root(), reference::root(Compatible, &nested).unwrap());

    // What the parent refuses, no child has done.
    let roots = [one.root(), two.root(), top.root()];
    let mut heavy = SumBatch::new();
    heavy.put(&key(1), &Leaf { value: vec![], sum: u64::MAX - 400 });
    let trees = &mut [(&mut one, heavy), (&mut two, SumBatch::new()), (&mut top, SumBatch::new())];
    let refused = commit_together(&store, trees, &nests).unwrap_err();
    assert!(matches!(refused, SumError::Tree(TreeError::Overweight { .. })), "{refused}");
    assert_eq!([one.root(), two.root(), top.root()], roots);
    assert_eq!(all(&one), leaves(0..10));

    // A child that is emptied is no leaf any more.
    let mut empty = SumBatch::new();
    empty.delete_all();
    let trees = &mut [(&mut one, empty), (&mut top, SumBatch::new())];
    commit_together(&store, trees, &[Nest { child: 0, parent: 1, key: key(100) }]).unwrap();
    assert_eq!(all(&top), [(key(200), two.as_leaf())].into());

    let trees = &mut [(&mut one, SumBatch::new()), (&mut top, SumBatch::new())];
    for (child, parent) in [(1, 0), (0, 2), (1, 1)] {
        let refused = commit_together(&store, trees, &[Nest { child, parent, key: key(1) }]);
        assert!(matches!(refused, Err(SumError::Nesting { .. })));
    }
}

#[test]
fn all_proofs_of_a_tree_go_out_in_its_order() {
    let store = MemoryStore::new();
    let mut tree = create(&store, "a");
    let held = leaves(0..3_000);
    tree.apply(&mut batch(&held)).unwrap();
    let mut out = Vec::new();
    let write = |key: &[u8; 32], proven: &Proven, out: &mut Vec<u8>| {
        out.extend_from_slice(key);
        let proof = proven.proof.encode();
        out.extend_from_slice(&(proof.len() as u16).to_be_bytes());
        out.extend_from_slice(&proof);
    };
    assert_eq!(tree.write_proofs(&mut out, write).unwrap(), 3_000);
    let mut rest = &out[..];
    let mut read = BTreeMap::new();
    while let Some((key, tail)) = rest.split_first_chunk::<32>() {
        let (len, tail) = tail.split_first_chunk().unwrap();
        let (proof, tail) = tail.split_at(u16::from_be_bytes(*len).into());
        read.insert(*key, Proof::decode(proof).unwrap());
        rest = tail;
    }
    assert_eq!(read.len(), 3_000);
    for (key, proof) in read.iter().step_by(17) {
        proof.verify_inclusion(Compatible, tree.root(), key, &held[key]).unwrap();
    }
    let many = tree.get_many(&[key(1), key(5_000), key(1)]).unwrap();
    assert_eq!(many, [Some(leaf(1)), None, Some(leaf(1))]);
}

#[test]
fn a_key_that_is_named_twice_is_said_as_it_was_written() {
    let store = MemoryStore::new();
    let mut tree = create(&store, "a");
    let mut twice = SumBatch::new();
    twice.put(&[0x01; 32], &leaf(1));
    twice.delete(&[0x01; 32]);
    let refused = tree.apply(&mut twice).unwrap_err();
    assert!(refused.to_string().contains(&format!("0x{}", "01".repeat(32))), "{refused}");
    assert_eq!(tree.root(), Compatible.empty_node(0));
}
