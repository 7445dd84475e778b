//! Proofs over raw keys: made from committed pages and from pending states, against the textbook,
//! and what verifying makes of them.

use std::cell::Cell;

use proptest::prelude::*;
use spinney_tree::mpt::proof::{Proof, ProofError, RangeProof};
use spinney_tree::mpt::{EMPTY_ROOT, Mpt, reference};
use spinney_tree::{
    Batch, MemorySnapshot, MemoryStore, PageStore as _, Pending, Snapshot, StoreError, Table, Tree,
    TreeError, TreeId,
};

use crate::model::{Bench, Entries, Op, apply};
use crate::raw::{key, op, value};

/// Keys that are there, and keys that nearly are.
fn wanted(entries: &Entries, more: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut keys: Vec<_> = more.to_vec();
    for key in entries.keys().step_by(2) {
        keys.push(key.clone());
        keys.push([&key[..], &[0]].concat());
        keys.push(key[..key.len() / 2].to_vec());
        if let Some(last) = key.last() {
            keys.push([&key[..key.len() - 1], &[last ^ 1]].concat());
        }
    }
    keys
}

/// Every proof of a state: single ones as the textbook's, all in one, ranges.
fn check(bench: &Bench<Mpt>, state: Option<&Pending<Mpt>>, entries: &Entries, more: &[Vec<u8>]) {
    let (snapshot, tree) = (bench.snapshot(), &bench.tree);
    let root = reference::root(entries);
    let keys = wanted(entries, more);
    let mut union = Vec::new();
    for key in &keys {
        let proof = tree.prove(&snapshot, state, &[key]).unwrap();
        let expected = reference::proof(entries, key);
        assert_eq!(proof.nodes(), expected, "proof of {key:02x?}");
        let verified = proof.verify(&root, &[key]).unwrap();
        assert_eq!(verified.get(key).unwrap(), entries.get(key).map(|value| &value[..]));
        assert!(verified.get(b"never asked for").is_err());
        union.extend(expected);
    }
    let many = tree.prove(&snapshot, state, &keys).unwrap();
    let verified = many.verify(&root, &keys);
    assert_eq!(
        verified == Err(ProofError::Nothing),
        keys.is_empty(),
        "nothing is shown of nothing"
    );
    for key in &keys {
        let verified = verified.as_ref().unwrap();
        assert_eq!(verified.get(key).unwrap(), entries.get(key).map(|value| &value[..]));
    }
    union.sort();
    union.dedup();
    let mut nodes = many.into_nodes();
    nodes.sort();
    assert_eq!(nodes, union, "the union of the paths");
    for pair in keys.windows(2).step_by(3) {
        let (start, end) =
            (pair[0].clone().min(pair[1].clone()), pair[0].clone().max(pair[1].clone()));
        check_range(bench, state, entries, (&start, Some(&end)), usize::MAX);
        check_range(bench, state, entries, (&start, None), 3);
        check_range(bench, state, entries, (b"", Some(&end)), 5);
    }
    check_range(bench, state, entries, (b"", None), usize::MAX);
    check_range(bench, state, entries, (&[0xff; 40], None), usize::MAX);
}

fn check_range(
    bench: &Bench<Mpt>,
    state: Option<&Pending<Mpt>>,
    entries: &Entries,
    (start, end): (&[u8], Option<&[u8]>),
    limit: usize,
) {
    let root = reference::root(entries);
    let proof = bench.tree.prove_range(&bench.snapshot(), state, start, end, limit).unwrap();
    let inside = |key: &&Vec<u8>| &key[..] >= start && end.is_none_or(|end| &key[..] <= end);
    let expected: Vec<_> = entries.keys().filter(inside).take(limit).collect();
    assert!(proof.entries.iter().map(|(key, _)| key).eq(expected), "{start:02x?} {end:02x?}");
    assert!(proof.entries.iter().all(|(key, value)| entries[key] == *value));
    let verified = proof.clone().verify(&root).unwrap();
    assert_eq!(verified.entries(), proof.entries);
    let last = proof.end.as_deref();
    let more = last.is_some_and(|last| entries.keys().any(|key| &key[..] > last));
    assert_eq!(verified.has_more(), more, "{start:02x?} {end:02x?} {limit}");
    refuse_other_ranges(&proof, &root);
}

/// No entry can be left out, changed or added.
fn refuse_other_ranges(proof: &RangeProof, root: &[u8; 32]) {
    let refused = |change: &dyn Fn(&mut RangeProof)| {
        let mut other = proof.clone();
        change(&mut other);
        assert!(other == *proof || other.clone().verify(root).is_err(), "{other:02x?}");
    };
    let count = proof.entries.len();
    if count > 0 {
        for index in [0, count / 2, count - 1] {
            refused(&|other| drop(other.entries.remove(index)));
            refused(&|other| other.entries[index].1.push(7));
            refused(&|other| other.entries.insert(index, proof.entries[index].clone()));
            refused(&|other| {
                let mut key = other.entries[index].0.clone();
                key.push(0);
                other.entries.insert(index + 1, (key, vec![1]));
                other.entries.dedup_by(|a, b| a.0 == b.0);
            });
        }
    }
    refused(&|other| {
        if let (true, Some(end)) = (other.entries.is_empty(), &other.end) {
            other.entries.push((end.clone(), vec![1]));
        }
    });
    for index in 0..proof.nodes.len() {
        refused(&|other| drop(other.nodes.remove(index)));
        refused(&|other| other.nodes.push(proof.nodes[index].clone()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn proofs_of_any_state_are_the_textbooks(
        first in prop::collection::vec(op(), 0..40),
        second in prop::collection::vec(op(), 0..12),
        third in prop::collection::vec(op(), 0..6),
        more in prop::collection::vec(key(), 0..6),
        small in any::<bool>(),
    ) {
        let mut bench = Bench::new(Mpt, if small { 1 } else { 1 << 30 });
        let mut entries = Entries::new();
        check(&bench, None, &entries, &more);
        apply(&first, &mut entries);
        let pending = bench.prepare(None, &first);
        check(&bench, Some(&pending), &entries, &more);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        bench.reopen(if small { 1 } else { 1 << 30 });
        check(&bench, None, &entries, &more);
        // Growing and shrinking, one and two layers above the pages.
        apply(&second, &mut entries);
        let above = bench.prepare(None, &second);
        check(&bench, Some(&above), &entries, &more);
        apply(&third, &mut entries);
        let top = bench.prepare(Some(&above), &third);
        check(&bench, Some(&top), &entries, &more);
    }

    #[test]
    fn tiny_tries_embed_their_nodes_and_prove_them(
        keys in prop::collection::btree_map(
            prop::collection::vec(prop::sample::select(vec![0u8, 1, 0x10, 0x11]), 0..4),
            prop::collection::vec(any::<u8>(), 1..5),
            0..12,
        ),
        more in prop::collection::vec(prop::collection::vec(0u8..0x12, 0..4), 0..8),
    ) {
        let ops: Vec<_> = keys.iter().map(|(key, value)| Op::Put(key.clone(), value.clone())).collect();
        let bench = Bench::new(Mpt, 1 << 20);
        let pending = bench.prepare(None, &ops);
        check(&bench, Some(&pending), &keys, &more);
        prop_assert_eq!(pending.root(), reference::root(&keys));
    }

    #[test]
    fn any_value_is_proven(key in key(), value in value()) {
        prop_assume!(!value.is_empty());
        let bench = Bench::new(Mpt, 1);
        let pending = bench.prepare(None, &[Op::Put(key.clone(), value.clone())]);
        check(&bench, Some(&pending), &Entries::from([(key.clone(), value)]), &[key]);
    }
}

/// Nothing lies in such a range, and what it said of keys beyond its end was not so.
#[test]
fn a_range_that_ends_before_it_starts_is_refused() {
    let bench = Bench::new(Mpt, 1 << 20);
    let keys = [0x11_u8, 0x12, 0x13, 0x55].map(|byte| vec![byte, 7]);
    let ops: Vec<_> = keys.iter().map(|key| Op::Put(key.clone(), vec![9; 40])).collect();
    let pending = bench.prepare(None, &ops);
    for (start, end) in [(&keys[1], &keys[0]), (&keys[3], &keys[0]), (&keys[3], &keys[2])] {
        let nodes = bench.tree.prove(&bench.snapshot(), Some(&pending), &[start, end]).unwrap();
        let (start, end) = (start.clone(), end.clone());
        let range = RangeProof {
            start: start.clone(),
            end: Some(end.clone()),
            entries: Vec::new(),
            nodes: nodes.into_nodes(),
        };
        assert_eq!(range.verify(&pending.root()), Err(ProofError::Bounds { start, end }));
    }
}

#[test]
fn large_tries_are_proven_from_pages() {
    let mut bench = Bench::new(Mpt, 1);
    let key = |i: u32| spinney_hash::keccak256(&i.to_be_bytes()).to_vec();
    let ops: Vec<_> = (0..3_000).map(|i| Op::Put(key(i), vec![i as u8 | 1; 78])).collect();
    let mut entries = Entries::new();
    apply(&ops, &mut entries);
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    bench.reopen(1);
    let snapshot = bench.snapshot();
    let keys: Vec<_> = (0..6_000).step_by(7).map(key).collect();
    let proof = bench.tree.prove(&snapshot, None, &keys).unwrap();
    let verified = proof.verify(&pending.root(), &keys).unwrap();
    for key in &keys {
        assert_eq!(verified.get(key).unwrap(), entries.get(key).map(|value| &value[..]));
    }
    for key in keys.iter().step_by(100) {
        let proof = bench.tree.prove(&snapshot, None, &[key]).unwrap();
        assert_eq!(proof.nodes(), reference::proof(&entries, key));
    }
    check_range(&bench, None, &entries, (&key(5), None), 500);
}

/// A snapshot that counts calls and rows.
struct Counting {
    snapshot: MemorySnapshot,
    calls: Cell<usize>,
    rows: Cell<usize>,
}

impl Snapshot for Counting {
    type Row<'s> = &'s [u8];

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<&'s [u8]>, StoreError> {
        assert_ne!(table, Table::Pages, "pages are read many at a time");
        self.snapshot.read(table, key)
    }

    fn read_many<'s>(
        &'s self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<&'s [u8]>>, StoreError> {
        self.calls.set(self.calls.get() + 1);
        self.rows.set(self.rows.get() + keys.len());
        self.snapshot.read_many(table, keys)
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.snapshot.scan(table, low, high, visit)
    }
}

#[test]
fn many_keys_take_one_read_a_page_level_and_no_page_twice() {
    let mut bench = Bench::new(Mpt, 1);
    let key = |i: u32| spinney_hash::keccak256(&i.to_be_bytes()).to_vec();
    let ops: Vec<_> = (0..20_000).map(|i| Op::Put(key(i), vec![7; 78])).collect();
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    bench.reopen(1);
    let snapshot = bench.snapshot();
    let pages = crate::model::pages(&bench.tree, &snapshot).len();
    let counting = Counting { snapshot, calls: Cell::new(0), rows: Cell::new(0) };
    let keys: Vec<_> = (0..20_000).step_by(2).map(key).collect();
    let proof = bench.tree.prove(&counting, None, &keys).unwrap();
    proof.verify(&pending.root(), &keys).unwrap();
    let (calls, rows) = (counting.calls.get(), counting.rows.get());
    assert!(rows < pages, "{rows} rows of {pages} pages");
    // A key alone reads one page a call: the longest way down has as many levels.
    let levels = keys.iter().map(|key| {
        counting.calls.set(0);
        bench.tree.prove(&counting, None, &[key]).unwrap();
        counting.calls.get()
    });
    assert_eq!(Some(calls), levels.max());
}

#[test]
fn the_empty_trie_is_proven_by_nothing_or_by_the_node_of_nothing() {
    let keys = [b"doe"];
    for nodes in [vec![], vec![vec![0x80]]] {
        let verified = Proof::new(nodes).verify(&EMPTY_ROOT, &keys).unwrap();
        assert_eq!(verified.get(b"doe").unwrap(), None);
    }
    let refused = |nodes: Vec<Vec<u8>>| Proof::new(nodes).verify(&EMPTY_ROOT, &keys).unwrap_err();
    assert_eq!(refused(vec![vec![0xc0]]), ProofError::Unused { index: 0 });
    assert_eq!(refused(vec![vec![0x80], vec![0x80]]), ProofError::Unused { index: 1 });
    let range = RangeProof::default();
    assert!(!range.clone().verify(&EMPTY_ROOT).unwrap().has_more());
    assert!(range.verify(&[1; 32]).is_err());
}

#[test]
fn embedded_nodes_may_be_listed() {
    let bench = Bench::new(Mpt, 1 << 20);
    let ops = [Op::Put(vec![0x10], vec![1]), Op::Put(vec![0x20], vec![2])];
    let pending = bench.prepare(None, &ops);
    let proof = bench.tree.prove(&bench.snapshot(), Some(&pending), &[[0x10]]).unwrap();
    assert_eq!(proof.nodes().len(), 1);
    let mut nodes = proof.into_nodes();
    let leaf = vec![0xc2, 0x30, 0x01];
    nodes.push(leaf.clone());
    let verified = Proof::new(nodes.clone()).verify(&pending.root(), &[[0x10]]).unwrap();
    assert_eq!(verified.get(&[0x10]).unwrap(), Some(&[1][..]));
    // But only where it lies on the path.
    let refused = Proof::new(nodes.clone()).verify(&pending.root(), &[[0x20]]).unwrap_err();
    assert_eq!(refused, ProofError::Unused { index: 1 });
    nodes.push(leaf);
    let refused = Proof::new(nodes).verify(&pending.root(), &[[0x10]]).unwrap_err();
    assert_eq!(refused, ProofError::Unused { index: 2 });
}

/// Nodes that no trie has, under a root of somebody's own making.
#[test]
fn nodes_that_are_not_canonical_are_refused() {
    let leaf = |path: &[u8], value: &[u8]| {
        let mut body = vec![0x80 + path.len() as u8];
        body.extend_from_slice(path);
        body.push(0x80 + value.len() as u8);
        body.extend_from_slice(value);
        [&[0xc0 + body.len() as u8], &body[..]].concat()
    };
    let good = leaf(&[0x20, 0x12, 0x34], &[0xaa; 4]);
    let verify = |node: Vec<u8>| {
        let root = spinney_hash::keccak256(&node);
        Proof::new(vec![node]).verify(&root, &[[0x12, 0x34]])
    };
    assert_eq!(verify(good.clone()).unwrap().get(&[0x12, 0x34]).unwrap(), Some(&[0xaa; 4][..]));
    let long = [&[0xf8, good.len() as u8 - 1], &good[1..]].concat();
    let trailing = [&good[..], &[0]].concat();
    let branch = |children: &[&[u8]]| {
        let body: Vec<u8> =
            (0..17).flat_map(|i| children.get(i).copied().unwrap_or(&[0x80]).to_vec()).collect();
        [&[0xc0 + body.len() as u8], &body[..]].concat()
    };
    for (node, what) in [
        (long, "not one RLP list"),
        (trailing, "not one RLP list"),
        (vec![], "not one RLP list"),
        (vec![0x81, 0x80], "not one RLP list"),
        (vec![0xff; 9], "not one RLP list"),
        (vec![0xc1, 0x80], "neither 2 nor 17"),
        (vec![0xd2; 19], "no canonical RLP"),
        (leaf(&[0x21, 0x12, 0x34], &[0xaa; 4]), "no hex prefix"),
        (leaf(&[0x40, 0x12, 0x34], &[0xaa; 4]), "no hex prefix"),
        (leaf(&[0x20, 0x12, 0x34], &[]), "a leaf has no value"),
        (leaf(&[0x00, 0x12], &[]), "leads nowhere"),
        (leaf(&[0x00, 0x12], &[7; 31]), "no digest"),
        (vec![0xc2, 0x00, 0xc0], "has no digits"),
        (leaf(&[0x11], &[7; 32]), "no canonical RLP"),
        (branch(&[&[0xc2, 0x30, 0x01]]), "fewer than two"),
        (branch(&[&[0xc2, 0x30, 0x01], &[0x81, 0x01]]), "no canonical RLP"),
        (branch(&[&[0xc2, 0x30, 0x01], &[0x01]]), "no digest"),
        // An extension over a leaf.
        (vec![0xc6, 0x11, 0xc4, 0x82, 0x20, 0x34, 0x01], "leads to no branch"),
    ] {
        let refused = verify(node.clone()).expect_err(what).to_string();
        assert!(refused.contains(what), "{node:02x?}: {refused}");
    }
    // A short node behind a digest.
    let short = leaf(&[0x32, 0x34], &[0xaa; 4]);
    let digest = [&[0xa0][..], &spinney_hash::keccak256(&short)].concat();
    let top = branch(&[&[0xc2, 0x30, 0x01], &digest]);
    let root = spinney_hash::keccak256(&top);
    let refused = Proof::new(vec![top, short]).verify(&root, &[[0x12, 0x34]]).unwrap_err();
    assert!(refused.to_string().contains("not embedded"), "{refused}");
}

#[test]
fn deep_proofs_need_no_deep_stack() {
    let check = || {
        let bench = Bench::new(Mpt, 1 << 30);
        let long: Vec<u8> = (0..4_096).map(|i| (i * 7) as u8).collect();
        let ops: Vec<_> =
            (1..=long.len()).map(|len| Op::Put(long[..len].to_vec(), vec![1; 3])).collect();
        let pending = bench.prepare(None, &ops);
        let (snapshot, root) = (bench.snapshot(), pending.root());
        let proof = bench.tree.prove(&snapshot, Some(&pending), &[&long]).unwrap();
        let verified = proof.verify(&root, &[&long]).unwrap();
        assert_eq!(verified.get(&long).unwrap(), Some(&[1, 1, 1][..]));
        let start = &long[..1_000];
        let range = bench.tree.prove_range(&snapshot, Some(&pending), start, None, 2_000).unwrap();
        assert_eq!(range.verify(&root).unwrap().entries().len(), 2_000);
    };
    let thread = std::thread::Builder::new().stack_size(512 << 10).spawn(check).unwrap();
    thread.join().unwrap();
}

#[test]
fn a_stale_state_and_damaged_pages_prove_nothing() {
    let mut bench = Bench::new(Mpt, 1 << 20);
    let a = bench.prepare(None, &[Op::Put(vec![1], vec![1])]);
    let b = bench.prepare(None, &[Op::Put(vec![2], vec![2])]);
    bench.tree.commit(&bench.store, &a, None).unwrap();
    let refused = bench.tree.prove(&bench.snapshot(), Some(&b), &[[2]]).unwrap_err();
    assert!(matches!(refused, TreeError::Stale { .. }), "{refused}");
    // The pages of another store: missing ones are an error that names them.
    let key = |i: u32| spinney_hash::keccak256(&i.to_be_bytes()).to_vec();
    let ops: Vec<_> = (0..500).map(|i| Op::Put(key(i), vec![7; 78])).collect();
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    bench.reopen(1);
    let empty = MemoryStore::new();
    let refused = bench.tree.prove(&empty.snapshot().unwrap(), None, &[key(3)]).unwrap_err();
    assert!(matches!(refused, TreeError::OtherSnapshot { .. }), "{refused}");
    let other = Tree::open(Mpt, TreeId(9), &empty.snapshot().unwrap(), 1 << 20).unwrap();
    let proof = other.prove(&empty.snapshot().unwrap(), None, &[key(3)]).unwrap();
    assert_eq!(proof.nodes().len(), 0);
}

/// Subtrees that are equal have the same nodes: they are listed once, and the proof holds.
#[test]
fn equal_subtrees_are_proven_by_the_same_nodes() {
    let store = MemoryStore::new();
    let snapshot = store.snapshot().unwrap();
    let tree = Tree::open(Mpt, TreeId(1), &snapshot, 1 << 20).unwrap();
    let mut batch = Batch::new();
    let key = |top: u8, low: u8| [vec![top], vec![7; 30], vec![low]].concat();
    for top in [0x10, 0x20] {
        batch.put(&key(top, 1), &[9; 40]);
        batch.put(&key(top, 2), &[9; 40]);
    }
    let state = tree.prepare(&snapshot, None, batch).unwrap();
    let keys = [key(0x10, 1), key(0x20, 1)];
    let proof = tree.prove(&snapshot, Some(&state), &keys).unwrap();
    let verified = proof.verify(&state.root(), &keys).unwrap();
    assert_eq!(verified.get(&keys[1]).unwrap(), Some(&[9; 40][..]));
    let range = tree.prove_range(&snapshot, Some(&state), &keys[0], Some(&keys[1]), 10).unwrap();
    assert_eq!(range.verify(&state.root()).unwrap().entries().len(), 3);
}
