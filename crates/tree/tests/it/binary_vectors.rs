//! The binary trees against vectors that others computed.
//!
//! ubt_pbt_crosscheck.json is copied from what its `source` names; the rest is read from beside the
//! checkout.

use std::path::Path;

use serde_json::Value as Json;
use spinney_hash::{HashFunction, sha256};
use spinney_tree::pbt::{self, Pbt};
use spinney_tree::ubt::{self, Ubt};
use spinney_tree::{Scheme, bulk};

use crate::model::rebuild;

use HashFunction::{Blake3, Sha256};

/// A tree of the vectors: entries in, root out.
#[derive(Clone, Copy)]
enum Tree {
    Ubt(HashFunction),
    Pbt(HashFunction),
}

impl Tree {
    fn check(self, entries: &pbt::reference::PbtEntries, expected: &Json, what: &str) {
        let roots = match self {
            Self::Ubt(hash) => {
                let fixed = |(key, value): (&Vec<u8>, &[u8; 32])| {
                    (<[u8; 32]>::try_from(&key[..]).unwrap(), *value)
                };
                let root = ubt::reference::root(hash, &entries.iter().map(fixed).collect());
                [vec![root], engine(Ubt { hash }, entries)]
            }
            Self::Pbt(hash) => {
                [vec![pbt::reference::root(hash, entries)], engine(Pbt { hash }, entries)]
            }
        };
        for root in roots.concat() {
            assert_eq!(hex(&root), text(expected), "{what}");
        }
    }
}

/// The roots of a tree and of a bulk build.
fn engine<S: Scheme<Root = [u8; 32]> + Clone>(
    scheme: S,
    entries: &pbt::reference::PbtEntries,
) -> Vec<[u8; 32]> {
    let sorted: Vec<_> = entries.iter().collect();
    let bulk = bulk::root_of_sorted(&scheme, &sorted).unwrap();
    let entries = entries.iter().map(|(key, value)| (key.clone(), value.to_vec())).collect();
    vec![bulk, rebuild(&scheme, &entries).1]
}

fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("0x{digits}")
}

fn text(json: &Json) -> &str {
    json.as_str().expect("a string of the vectors")
}

fn bytes(json: &Json) -> Vec<u8> {
    let digits = text(json).strip_prefix("0x").expect("hex of the vectors");
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex of the vectors");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn word(json: &Json) -> [u8; 32] {
    bytes(json).try_into().expect("32 bytes of the vectors")
}

/// A file of the shared vectors; where it is missing the test says so and is to return.
fn shared(name: &str) -> Option<Json> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/vectors/binary");
    let path = folder.join(name);
    match std::fs::read(&path) {
        Ok(file) => Some(serde_json::from_slice(&file).expect("vectors are JSON")),
        Err(error) => {
            println!("skipped: {} cannot be read: {error}", path.display());
            None
        }
    }
}

fn draw(tag: &str, number: u64) -> [u8; 32] {
    sha256(&[tag.as_bytes(), &number.to_be_bytes()].concat())
}

/// The entries of a case by its name, in the words of the files.
fn drawn(name: &str, n: u64) -> pbt::reference::PbtEntries {
    let key = |i: u64| match name.split('-').nth(1) {
        Some("random") => draw("k", i).to_vec(),
        Some("colocated") => [&draw("s", i / 16)[..31], &draw("x", i)[..1]].concat(),
        Some("prefix20") => [&draw("p", i % 4)[..20], &draw("k", i)[20..]].concat(),
        _ => panic!("a case of another kind: {name}"),
    };
    (0..n).map(|i| (key(i), draw("v", i))).collect()
}

/// The number of keys is the last part of a case's name.
fn count(name: &str) -> u64 {
    name.rsplit('-').next().unwrap().parse().expect("a number of keys")
}

fn embedded() -> Json {
    serde_json::from_str(include_str!("../../../vectors/data/ubt_pbt_crosscheck.json"))
        .expect("vectors are JSON")
}

#[test]
fn both_trees_have_the_roots_of_generated_entries() {
    let file = embedded();
    let mut checked = 0;
    for case in file["raw"].as_array().unwrap() {
        let name = text(&case["name"]);
        let entries = drawn(name, count(name));
        for (field, tree) in [
            ("eip7864_stem31_sha256", Tree::Ubt(Sha256)),
            ("eip7864_stem31_blake3", Tree::Ubt(Blake3)),
            ("eip8297_blake3", Tree::Pbt(Blake3)),
            ("eip8297_sha256", Tree::Pbt(Sha256)),
        ] {
            tree.check(&entries, &case[field], name);
            checked += 1;
        }
    }
    assert_eq!(checked, 40);
}

#[test]
fn both_trees_have_the_roots_after_rounds_of_updates() {
    let file = embedded();
    let updates = &file["updates"];
    for (field, tree, zero_deletes) in [
        ("sha256_zero_stored", Tree::Ubt(Sha256), false),
        ("blake3_zero_stored", Tree::Ubt(Blake3), false),
        ("eip8297_blake3_zero_deletes", Tree::Pbt(Blake3), true),
    ] {
        let mut entries = drawn("raw-random-10000", 10_000);
        for (round, root) in updates[field].as_array().unwrap().iter().enumerate() {
            if round > 0 {
                update(&mut entries, round as u64, zero_deletes);
            }
            tree.check(&entries, root, &format!("{field}, round {round}"));
        }
    }
}

fn update(entries: &mut pbt::reference::PbtEntries, round: u64, zero_deletes: bool) {
    for j in 0..100 {
        let number = round * 100 + j;
        let (start, _) = draw("u", number).split_first_chunk().map(|(a, b)| (*a, b.len())).unwrap();
        let key = draw("k", u64::from_be_bytes(start) % 10_100).to_vec();
        if j % 10 > 0 {
            entries.insert(key, draw("w", number));
        } else if zero_deletes {
            entries.remove(&key);
        } else {
            entries.insert(key, [0; 32]);
        }
    }
}

#[test]
fn ubt_has_the_published_roots() {
    let Some(file) = shared("ubt_published.json") else { return };
    let mut checked = 0;
    for case in file["vectors"].as_array().unwrap() {
        let name = text(&case["name"]);
        let entries = match (&case["entries"], name) {
            (Json::Array(entries), _) => {
                entries.iter().map(|entry| (bytes(&entry[0]), word(&entry[1]))).collect()
            }
            (_, "256 stems i||0..") => (0..=255)
                .map(|i| {
                    let mut key = vec![0; 32];
                    key[0] = i;
                    (key, [0xff; 32])
                })
                .collect(),
            // A state, which the embedding's tests look at.
            _ => continue,
        };
        Tree::Ubt(Sha256).check(&entries, &case["root_sha256"], name);
        Tree::Ubt(Blake3).check(&entries, &case["root_blake3"], name);
        checked += 1;
    }
    assert_eq!(checked, 7);
}

#[test]
fn ubt_has_the_roots_of_geth() {
    let Some(file) = shared("ubt_raw.json") else { return };
    let mut checked = 0;
    for case in file["cases"].as_array().unwrap() {
        let name = text(&case["name"]);
        if case["root_sha256"].is_null() {
            continue;
        }
        let Some(n) = name.strip_prefix("commit-") else {
            Tree::Ubt(Sha256).check(&drawn(name, count(name)), &case["root_sha256"], name);
            checked += 1;
            continue;
        };
        let n = n.split('-').next().unwrap().parse().unwrap();
        let entries = drawn("raw-random", n);
        Tree::Ubt(Sha256).check(&entries, &case["root_sha256"], name);
        checked += 1;
    }
    assert_eq!(checked, 26);
}

#[test]
fn pbt_has_the_published_roots() {
    let Some(file) = shared("pbt_published.json") else { return };
    let cases = file["trie_roots"].as_array().unwrap();
    for case in cases {
        let entry = |entry: &Json| (bytes(&entry["key"]), word(&entry["value"]));
        let entries = case["entries"].as_array().unwrap().iter().map(entry).collect();
        Tree::Pbt(Blake3).check(&entries, &case["root"], text(&case["name"]));
    }
    assert_eq!(cases.len(), 8);
}
