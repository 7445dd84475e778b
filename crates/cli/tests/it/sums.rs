//! Sum trees on the command line, over every store.

use serde_json::Value;

use crate::server;
use crate::support::{Folder, assert_sound, shared, spinney, spinney_fed};

fn key(byte: &str) -> String {
    format!("0x{}", byte.repeat(32))
}

fn put(byte: &str, value: &str, sum: &str) -> String {
    let key = key(byte);
    format!("{{\"put\": {{\"{key}\": {{\"value\": \"0x{value}\", \"sum\": \"{sum}\"}}}}}}\n")
}

fn line(out: &str, at: usize) -> Value {
    serde_json::from_str(out.lines().nth(at).unwrap()).unwrap()
}

/// What to give as --store and --db for a store of each kind; without a server, for two.
fn places(folder: &Folder, name: &str) -> Vec<(&'static str, String)> {
    let path = |kind: &str| folder.path(&format!("{name}.{kind}"));
    let mut places = ["log", "redb", "sqlite"].map(|kind| (kind, path(kind))).to_vec();
    if let Some(server) = server::shared() {
        places.push(("postgres", server.schema().0));
    }
    places
}

#[test]
fn a_trace_of_leaves_is_proven_dumped_and_loaded_in_every_store() {
    let folder = Folder::new();
    let trace = put("11", "aa", "5") + &put("22", "", "7") + &put("33", "bb", "0");
    let trace = trace + &format!("{{\"del\": [\"{}\"]}}\n", key("11"));
    let alone = spinney_fed(&["root", "--tree", "sum", "-"], &trace).exits(0).out;
    assert_eq!((&line(&alone, 1)["sum"], &line(&alone, 3)["sum"]), (&"12".into(), &"7".into()));
    let bound = spinney_fed(&["root", "--tree", "sum:bound", "-"], &trace).exits(0).out;
    assert_eq!(line(&bound, 3)["sum"], "7");
    assert_ne!(line(&bound, 3)["root"], line(&alone, 3)["root"]);
    let file = folder.write("trace", &trace);
    for (kind, db) in places(&folder, "one") {
        let at = ["--db", &db, "--tree", "sum", "--namespace", "issuance-1"];
        let with = |verb: &[&str], more: &[&str]| spinney(&[verb, &at[..], more].concat());
        let ran = with(&["root"], &["--store", kind, &file]).exits(0);
        assert_eq!(ran.out, alone, "{kind}");

        let (present, absent) = (key("22"), key("11"));
        let proofs = with(&["prove"], &[&present, &absent]).exits(0).out;
        let document = line(&proofs, 0);
        assert_eq!((&document["sum"], &document["value"]), (&"7".into(), &"0x".into()));
        assert_eq!(line(&proofs, 1)["sum"], "0");
        let root = document["root"].as_str().unwrap();
        let verify = |root: &str, sum: &str| {
            spinney_fed(&["verify", "--root", root, "--root-sum", sum, "-"], &proofs)
        };
        assert!(verify(root, "7").exits(0).out.contains(": absent; holds under"));
        verify(root, "8").exits(1).refuses("line 1: the proof does not hold");
        verify(&key("00"), "7").exits(1);
        let forged = proofs.replace("\"sum\":\"7\",\"proof\"", "\"sum\":\"6\",\"proof\"");
        assert_ne!(forged, proofs);
        spinney_fed(&["verify", "-"], &forged).exits(1);

        let all = folder.path(&format!("{kind}.proofs"));
        with(&["prove"], &["--all", "--out", &all]).exits(0);
        assert_eq!(std::fs::read_to_string(&all).unwrap().lines().count(), 2);
        spinney(&["verify", "--root", root, "--root-sum", "7", &all]).exits(0);

        let dump = with(&["db", "dump"], &[]).exits(0).out;
        assert_eq!(dump.lines().count(), 2);
        let dumped = folder.write(&format!("{kind}.dump"), &dump);
        let load = ["db", "load", "--db", &db, "--tree", "sum", "--namespace", "copy", &dumped];
        let report = spinney(&[&load[..], &["--json"]].concat()).exits(0).data();
        assert_eq!((&report["root"], &report["root_sum"]), (&document["root"], &"7".into()));
        spinney(&load).exits(2).refuses("namespace copy has leaves already");

        assert_sound(&db);
        let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
        let names: Vec<_> =
            info["trees"].as_array().unwrap().iter().map(|tree| &tree["namespace"]).collect();
        assert_eq!(names, ["issuance-1", "copy"]);
        for tree in info["trees"].as_array().unwrap() {
            assert_eq!((&tree["root"], &tree["root_sum"]), (&document["root"], &"7".into()));
        }
        spinney(&["db", "stats", "--json", "--db", &db]).exits(0);
    }
}

#[test]
fn bad_input_is_named_and_changes_nothing() {
    let folder = Folder::new();
    let db = folder.path("db");
    let at = ["--tree", "sum", "--db", &db];
    let root = |lines: &str| spinney_fed(&[&["root"], &at[..], &["-"]].concat(), lines);
    let max = u64::MAX.to_string();
    root(&put("11", "aa", &max)).exits(0);
    let refused = root(&put("22", "bb", "1")).exits(2);
    refused.refuses("integer overflow");
    root(&put("33", "bb", "x")).exits(2).refuses("is no sum");
    root("{\"del\": [\"0x11\"]}").exits(2).refuses("line 1");
    let twice = format!("{{\"del\": [\"{0}\", \"{0}\"]}}", key("11"));
    root(&twice).exits(2).refuses("is named twice");
    spinney_fed(&["root", "--tree", "sum", "--hash-keys", "-"], "").exits(2).refuses("--hash-keys");

    let prove = |more: &[&str]| spinney(&[&["prove", "--db", &db], more].concat());
    let key = key("11");
    prove(&["--tree", "sum", "0x11"]).exits(2).refuses("has 1 bytes");
    prove(&["--tree", "sum", "--namespace", "other", &key]).exits(2).refuses("namespace other");
    let lines = "{\"put\": {\"0x11\": \"0x22\"}}";
    let other = spinney_fed(&["root", "--tree", "mpt", "--namespace", "other", "-"], lines);
    other.exits(2).refuses("a tree mpt has no namespaces (--namespace)");
    prove(&["--tree", "sum:bound", &key]).exits(2).refuses("holds a tree sum, not sum:bound");
    let proof = prove(&["--tree", "sum", &key]).exits(0).out;
    assert_eq!(prove(&["--all"]).exits(0).out, proof);
    assert_eq!(line(&proof, 0)["sum"], max);
    for (from, to) in [("\"proof\":\"0x00", "\"proof\":\"0xff"), ("\"tree\"", "\"three\"")] {
        let bad = proof.replacen(from, to, 1);
        assert_ne!(bad, proof);
        spinney_fed(&["verify", "-"], &bad).exits(2);
    }
    let other = ["root", "--tree", "sum:bound", "--db", &db, "-"];
    spinney_fed(&other, &put("11", "aa", "1")).exits(2).refuses("holds a tree sum, not sum:bound");
    assert_sound(&db);
}

/// What a refused dump would leave behind: nothing, of a store, of a name, or of leaves.
#[test]
fn a_dump_that_is_refused_leaves_nothing_behind() {
    let folder = Folder::new();
    let line = |byte: &str, sum: &str| {
        format!("{{\"key\":\"{}\",\"value\":\"0xaa\",\"sum\":\"{sum}\"}}\n", key(byte))
    };
    let max = u64::MAX.to_string();
    // In the order of the tree, the lowest bit of a byte counts most: 0x22 comes before 0x11.
    let refused = [
        ("order", line("11", "1") + &line("22", "1"), "line 2: its key does not come after"),
        ("twice", line("22", "1") + &line("22", "1"), "line 2: its key does not come after"),
        ("sum", line("22", &max) + &line("11", "1"), "integer overflow"),
        ("cut", line("22", "1") + "{\"key\":", "line 2"),
        ("empty", line("22", "0").replace("0xaa", "0x"), "line 1: its leaf is empty"),
    ];
    for (kind, db) in places(&folder, "load") {
        let load = |namespace: &str, file: &str| {
            let to = ["--db", &db, "--store", kind, "--tree", "sum", "--namespace", namespace];
            spinney(&[&["db", "load"], &to[..], &[file]].concat())
        };
        for round in 0..2 {
            for (name, dump, says) in &refused {
                load("new", &folder.write(name, dump)).exits(2).refuses(says);
            }
            let info = spinney(&["db", "info", "--json", "--db", &db, "--store", kind]);
            if round == 0 {
                info.exits(2);
                load("old", &folder.write("good", &(line("22", "1") + &line("11", "2")))).exits(0);
            } else {
                let trees = info.exits(0).data()["trees"].clone();
                let trees = trees.as_array().unwrap();
                assert_eq!((trees.len(), &trees[0]["namespace"]), (1, &"old".into()), "{kind}");
            }
        }
        assert_sound(&db);
    }
}

#[test]
fn namespaces_are_listed_without_leaves_and_removed_whole() {
    let folder = Folder::new();
    let odd = "od\u{1b}[2Jd";
    for (kind, db) in places(&folder, "names") {
        let at = ["--db", &db, "--store", kind, "--tree", "sum"];
        let root = |namespace: &str, lines: &str| {
            let to = ["--namespace", namespace, "-"];
            spinney_fed(&[&["root"], &at[..], &to].concat(), lines).exits(0)
        };
        root("a", &put("11", "aa", "5"));
        root(odd, "");
        root("b", &put("22", "aa", "7"));
        let listed =
            |format: &str| spinney(&["db", "info", "--db", &db, "--format", format]).exits(0);
        let trees = listed("json").data()["trees"].clone();
        let trees = trees.as_array().unwrap();
        let empty = trees.iter().find(|tree| tree["namespace"] == *odd).expect("it is listed");
        assert_eq!(
            (trees.len(), &empty["root_sum"], &empty["commit"]),
            (3, &"0".into(), &0.into())
        );
        assert!(empty["root"].as_str().unwrap().starts_with("0xb1e8e8f2"), "{kind}: {empty}");
        let table = listed("table").out;
        assert!(table.contains("od\\u{1b}[2Jd") && !table.contains('\u{1b}'), "{table}");

        let prove = ["prove", "--all", "--namespace", odd];
        let refused = spinney(&[&prove, &at[..]].concat()).exits(2);
        refused.refuses("namespace od\\u{1b}[2Jd has no leaves to prove");
        let remove = |more: &[&str]| spinney(&[&["db", "remove", "--db", &db], more].concat());
        remove(&[]).exits(2).says("--namespace");
        remove(&["--namespace", "c"]).exits(2).refuses("no sum tree of namespace c");
        remove(&["--namespace", "a", "--tree", "mpt"]).exits(2).refuses("mpt has no namespaces");
        remove(&["--namespace", "a", "--tree", "sum:bound"])
            .exits(2)
            .refuses("a tree sum, not sum:bound");
        assert_eq!(remove(&["--namespace", "a", "--json"]).exits(0).data()["root_sum"], "5");
        remove(&["--namespace", odd]).exits(0);
        let trees = listed("json").data()["trees"].clone();
        assert_eq!((trees.as_array().unwrap().len(), &trees[0]["namespace"]), (1, &"b".into()));
        assert_sound(&db);
    }
}

/// Who names a namespace means a sum tree, and who names none is told which there are.
#[test]
fn a_proof_finds_its_tree_by_the_namespace() {
    let folder = Folder::new();
    let db = folder.path("db");
    for (namespace, tree) in [("oaks", "sum"), ("elms", "sum:bound")] {
        let root = ["root", "--db", &db, "--tree", tree, "--namespace", namespace, "-"];
        spinney_fed(&root, &put("11", "aa", "5")).exits(0);
    }
    let prove = |more: &[&str]| spinney(&[&["prove", "--db", &db, &key("11")], more].concat());
    for (namespace, tree) in [("oaks", "sum"), ("elms", "sum:bound")] {
        let named = prove(&["--namespace", namespace]).exits(0).out;
        assert_eq!(line(&named, 0)["tree"], tree);
        assert_eq!(prove(&["--namespace", namespace, "--tree", tree]).exits(0).out, named);
    }
    let listed = "those that it holds: elms, oaks";
    let _ = prove(&["--tree", "sum"]).exits(2).refuses("of namespace default").says(listed);
    let _ = prove(&["--namespace=yews"]).exits(2).refuses("of namespace yews").says(listed);
    // The environment's counts where the store has sum trees alone.
    let mut plain = crate::support::command(&["prove", "--db", &db, &key("11")]);
    let plain = plain.env("SPINNEY_NAMESPACE", "elms").output().unwrap();
    let plain = crate::support::Ran::from(plain).exits(0).out;
    assert_eq!(line(&plain, 0)["tree"], "sum:bound");
    let _ = prove(&[]).exits(2).refuses("of namespace default").says(listed);
    let dump = |more: &[&str]| spinney(&[&["db", "dump", "--db", &db], more].concat());
    let _ = dump(&[]).exits(2).refuses("of namespace default").says(listed);
    assert_eq!(dump(&["--namespace", "elms"]).exits(0).out.lines().count(), 1);
}

#[test]
fn the_vectors_hold_over_every_store() {
    let Some(dir) = shared("vectors/mssmt") else { return };
    let mut over = vec![vec!["memory"], vec!["log"], vec!["redb"], vec!["sqlite"]];
    let url = server::shared().map(|server| server.schema().0);
    over.extend(url.as_deref().map(|url| vec!["postgres", "--db", url]));
    for store in over {
        let args = ["vectors", "--json", "--dir", &dir, "--store"];
        let data = spinney(&[&args[..], &store].concat()).exits(0).data();
        let files = data["files"].as_array().unwrap();
        assert_eq!(files.len(), 7, "{store:?}");
        for file in files {
            assert_eq!(file["failed"], 0, "{file}");
            assert_eq!(file["skipped"], 0, "{file}");
            assert!(file["checks"].as_u64() > Some(1), "{file}");
        }
    }
}
