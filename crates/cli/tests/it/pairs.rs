//! Documents of every tree under the roots, and by the names, of all others.

use serde_json::Value;
use spinney_hash::sha256;

use crate::support::{Folder, spinney, spinney_fed};

const WORDS: [&str; 8] = [
    "mpt",
    "ubt:sha256",
    "ubt:blake3",
    "ubt:keccak",
    "pbt:sha256",
    "pbt:blake3",
    "pbt:keccak",
    "verkle",
];
const SUMS: [&str; 2] = ["sum", "sum:bound"];

struct Made {
    tree: &'static str,
    root: String,
    document: Value,
}

impl Made {
    fn of(tree: &'static str, proof: &str) -> Self {
        let document: Value = serde_json::from_str(proof.lines().next().unwrap()).unwrap();
        Self { tree, root: document["root"].as_str().unwrap().to_owned(), document }
    }

    /// Verifies the document, with the tree named in it, under a root that is said to be of a tree.
    fn verify(&self, named: &str, trusted: &str, root: &str) -> Option<i32> {
        let mut document = self.document.clone();
        document["tree"] = named.into();
        let args = ["verify", "--tree", trusted, "--root", root, "-"];
        let ran = spinney_fed(&args, &document.to_string());
        let held = ran.code == Some(0);
        assert_eq!(held, ran.out.contains(&format!("tree {named}")), "{ran:?}");
        ran.code
    }
}

/// Each document under the name of each tree. That its name is not the trusted one, or its root
/// another tree's, is tried with the next tree alone: all others are refused by the same comparison.
fn check(all: &[Made]) {
    for (at, made) in all.iter().enumerate() {
        assert_eq!(made.verify(made.tree, made.tree, &made.root), Some(0), "{}", made.tree);
        let next = &all[(at + 1) % all.len()];
        assert_eq!(made.verify(made.tree, next.tree, &made.root), Some(1), "{}", made.tree);
        assert_eq!(made.verify(made.tree, made.tree, &next.root), Some(1), "{}", made.tree);
        for other in all.iter().filter(|other| other.tree != made.tree) {
            let pair = (made.tree, other.tree);
            assert_ne!(made.root, other.root, "{pair:?}");
            assert_ne!(made.verify(other.tree, other.tree, &made.root), Some(0), "{pair:?}");
        }
    }
}

/// One key, and several: the roots of small trees are hashes of few bytes.
#[test]
fn raw_documents_hold_in_their_own_tree_alone() {
    for (first, count) in [("00", 1), ("35", 3)] {
        let folder = Folder::new();
        let keys: Vec<String> =
            (0..count).map(|n| format!("0x{first}{}{:02x}", "00".repeat(30), n * 64)).collect();
        let value = format!("0x{}", "07".repeat(32));
        let words: Vec<_> = keys.iter().map(|key| format!("\"{key}\": \"{value}\"")).collect();
        let words = format!("{{\"put\": {{{}}}}}", words.join(", "));
        let sums = words.replace(
            &format!("\"{value}\""),
            &format!("{{\"value\": \"{value}\", \"sum\": \"5\"}}"),
        );
        let make = |tree, trace: &str| {
            let db = folder.path(tree);
            spinney_fed(&["root", "--tree", tree, "--db", &db, "-"], trace).exits(0);
            let proof = spinney(&["prove", "--tree", tree, "--db", &db, &keys[0]]).exits(0);
            Made::of(tree, &proof.out)
        };
        let mut all: Vec<Made> = WORDS.iter().map(|tree| make(tree, &words)).collect();
        all.extend(SUMS.iter().map(|tree| make(tree, &sums)));
        check(&all);
    }
}

#[test]
fn documents_of_accounts_hold_in_their_own_tree_alone() {
    let folder = Folder::new();
    let mut all: Vec<Made> = Vec::new();
    let mut address = String::new();
    for hash in ["sha256", "blake3", "keccak"] {
        let trees: Vec<_> = WORDS.into_iter().filter(|tree| tree.ends_with(hash)).collect();
        let names = format!("mpt,{},verkle", trees.join(","));
        let db = folder.path(hash);
        spinney(&["replay", "-q", "--blocks-count", "3", "--tree", &names, "--db", &db]).exits(0);
        if address.is_empty() {
            let dump = spinney(&["db", "dump", "--db", &db]).exits(0).out;
            let dump: Value = serde_json::from_str(&dump).unwrap();
            let accounts = dump["accounts"].as_object().unwrap();
            address = accounts.keys().find(|key| key.len() == 42).unwrap().clone();
        }
        for tree in WORDS.into_iter().filter(|tree| names.split(',').any(|name| name == *tree)) {
            if all.iter().any(|made| made.tree == tree) {
                continue;
            }
            let prove = ["prove", "--db", &db, "--tree", tree, "--address", &address];
            all.push(Made::of(tree, &spinney(&prove).exits(0).out));
        }
    }
    assert_eq!(all.len(), WORDS.len());
    check(&all);
}

/// A leaf of a PBT and a stem of a UBT can be one hash: 64 bytes that whoever chooses the key and
/// the value chooses. Nothing but the name of the tree, from somebody who is trusted, tells them
/// apart.
#[test]
fn a_leaf_that_is_a_stem_of_another_tree_is_told_by_the_tree_that_is_trusted() {
    let folder = Folder::new();
    let db = folder.path("db");
    let word = [0x11; 32];
    // A stem that holds the word at place 0: eight levels.
    let held = (0..8).fold(sha256(&word), |side, _| sha256([side, [0; 32]].as_flattened()));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let key = format!("0x{}00", "aa".repeat(30));
    let trace = format!("{{\"put\": {{\"{key}\": \"0x{}\"}}}}", hex(&held));
    spinney_fed(&["root", "--tree", "pbt:sha256", "--db", &db, "-"], &trace).exits(0);
    let proof = spinney(&["prove", "--tree", "pbt:sha256", "--db", &db, &key]).exits(0).out;
    let honest: Value = serde_json::from_str(&proof).unwrap();
    let root = honest["root"].as_str().unwrap();
    // The byte that stands before a leaf, the key, and a place.
    let forged = serde_json::json!({
        "tree": "ubt:sha256",
        "keys": [format!("0x00{}00", "aa".repeat(30))],
        "values": [format!("0x{}", hex(&word))],
        "proof": "0x000202",
    })
    .to_string();
    let verify = |more: &[&str], text: &str| {
        spinney_fed(&[&["verify", "--root", root], more, &["-"]].concat(), text)
    };
    verify(&["--tree", "pbt:sha256"], &forged).exits(1).refuses("of a tree ubt:sha256, not of pbt");
    assert_eq!(verify(&["--tree", "pbt:sha256"], &proof).exits(0).err, "");
    let taken = verify(&[], &forged).exits(0);
    assert!(taken.out.contains("tree ubt:sha256"), "{taken:?}");
    taken.says("is the document's own word");
}
