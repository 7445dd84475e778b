//! The Verkle tree against roots that go-verkle and rust-verkle computed, read from beside the
//! checkout.

use std::path::Path;

use serde_json::Value as Json;
use spinney_hash::sha256;
use spinney_tree::Batch;
use spinney_tree::verkle::Verkle;
use spinney_tree::verkle::reference::{self, Deletion};

use crate::model::{Bench, Op};
use crate::verkle::verkle;

/// A file of vectors, if it is there.
pub(crate) fn load(name: &str) -> Option<Json> {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/verkle");
    match std::fs::read(shared.join(name)) {
        Ok(bytes) => Some(serde_json::from_slice(&bytes).unwrap()),
        Err(_) => {
            eprintln!("skipped: ../shared/vectors/verkle/{name} is not there");
            None
        }
    }
}

pub(crate) fn hex(json: &Json) -> Vec<u8> {
    let digits = json.as_str().unwrap().strip_prefix("0x").unwrap();
    let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

pub(crate) fn word(json: &Json) -> [u8; 32] {
    hex(json).try_into().unwrap()
}

pub(crate) fn list<'a>(json: &'a Json, name: &str) -> &'a [Json] {
    json[name].as_array().map_or(&[], |list| list)
}

/// Steps of a sequence: puts, puts, deletions.
fn steps(case: &Json) -> [Vec<Op>; 3] {
    let puts = |name| {
        let put = |entry: &Json| Op::Put(hex(&entry["key"]), padded(hex(&entry["value"])));
        list(case, name).iter().map(put).collect()
    };
    let deletes = list(case, "deletes").iter().map(|key| Op::Delete(hex(key))).collect();
    [puts("inserts"), puts("updates"), deletes]
}

/// Shorter values end in zeros.
pub(crate) fn padded(mut value: Vec<u8>) -> Vec<u8> {
    value.resize(32, 0);
    value
}

fn check_root(root: &[u8; 32], expected: &Json, what: &str) {
    assert_eq!(*root, word(&expected["root_commitment"]), "{what}");
    assert_eq!(Verkle::root_hash(root), Some(word(&expected["root_hash_le"])), "{what}");
}

/// The textbook's tree, by both rules of deletion.
struct Textbooks([(Deletion, reference::ShapedTree); 2]);

impl Textbooks {
    fn new() -> Self {
        Self([Deletion::Canonical, Deletion::Compatible].map(|rule| (rule, Default::default())))
    }

    fn apply(&mut self, ops: &[Op]) {
        for (rule, tree) in &mut self.0 {
            for op in ops {
                match op {
                    Op::Put(key, value) => {
                        tree.insert(&key[..].try_into().unwrap(), value[..].try_into().unwrap());
                    }
                    Op::Delete(key) => tree.delete(&key[..].try_into().unwrap(), *rule),
                    Op::Clear(_) => unreachable!(),
                }
            }
        }
    }

    fn check(&self, expected: [&Json; 2], what: &str) {
        for ((rule, tree), expected) in self.0.iter().zip(expected) {
            let root = tree.commitment(verkle().crs()).to_compressed();
            check_root(&root, expected, &format!("{what}, {rule:?}"));
        }
    }
}

#[test]
fn sequences_have_go_verkles_roots() {
    let Some(vectors) = load("trees.json") else { return };
    let mut seen = 0;
    for case in list(&vectors, "sequences").iter().chain(list(&vectors, "special")) {
        let name = case["name"].as_str().unwrap();
        let steps = steps(case);
        let mut bench = Bench::new(verkle(), 1 << 30);
        let mut textbooks = Textbooks::new();
        for (ops, after) in steps.iter().zip(["after_insert", "after_update", "after_delete"]) {
            let expected = if after == "after_delete" {
                [
                    &case["after_delete_canonical_rebuild"],
                    &case["after_delete_go_verkle_no_collapse"],
                ]
            } else {
                [&case[after]; 2]
            };
            if expected[0].is_null() {
                continue;
            }
            let pending = bench.prepare(None, ops);
            bench.tree.commit(&bench.store, &pending, None).unwrap();
            check_root(&bench.tree.root(), expected[0], &format!("{name} {after}"));
            crate::model::apply(ops, &mut bench.entries);
            textbooks.apply(ops);
            textbooks.check(expected, &format!("{name} {after}"));
            seen += 1;
        }
        bench.check(&bench.tree.root());
    }
    assert!(seen > 20, "{seen}");
}

/// The vectors' generator: draw i is SHA-256(i || SHA-256(label)), of no label SHA-256(i || zeros).
pub(crate) struct Draws {
    seed: [u8; 32],
    next: u64,
}

impl Draws {
    pub(crate) fn new(label: &str) -> Self {
        let seed = if label.is_empty() { [0; 32] } else { sha256(label.as_bytes()) };
        Self { seed, next: 0 }
    }

    pub(crate) fn word(&mut self) -> [u8; 32] {
        self.next += 1;
        sha256(&[&(self.next - 1).to_le_bytes()[..], &self.seed].concat())
    }
}

#[test]
fn batches_of_rust_verkles_fuzzer_have_its_roots() {
    let Some(vectors) = load("trees.json") else { return };
    for case in list(&vectors, "rust_verkle_trie_fuzzer") {
        let step = case["step"].as_u64().unwrap();
        let mut draws = Draws::new("");
        let mut bench = Bench::new(verkle(), 1 << 30);
        for expected in list(case, "root_hash_le_after_each_step") {
            let mut batch = Batch::new();
            let drawn: Vec<_> = (0..step).map(|_| draws.word()).collect();
            drawn.iter().for_each(|word| batch.put(word, word));
            let pending = bench.tree.prepare(&bench.snapshot(), None, batch).unwrap();
            bench.tree.commit(&bench.store, &pending, None).unwrap();
            assert_eq!(Verkle::root_hash(&bench.tree.root()), Some(word(expected)), "step {step}");
        }
    }
}
