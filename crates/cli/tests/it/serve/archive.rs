//! Servers that answer from an archive, beside one that has the store.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::{Server, error_of};
use super::{TREES, number, sample};
use crate::support::{Folder, PATIENCE, spinney};

fn build(db: &str, archive: &str, more: &[&str]) {
    let args = ["archive", "build", "-q", "--db", db, "--into", archive];
    let _ = spinney(&[&args[..], more].concat()).exits(0);
}

/// Accounts of the sample chain.
pub(crate) fn accounts(db: &str) -> Vec<Value> {
    let dump = spinney(&["db", "dump", "--db", db]).exits(0).out;
    let dump: Value = serde_json::from_str(&dump).expect("JSON");
    let accounts = dump["accounts"].as_object().expect("accounts");
    assert!(accounts.len() > 3, "{dump}");
    accounts.keys().map(|address| json!(address)).collect()
}

/// What is asked of each block, whichever account is meant.
fn calls(address: &Value, block: &Value) -> Vec<(&'static str, Value)> {
    let account = json!({ "address": address, "slots": ["0x0", "0x1"] });
    vec![
        ("eth_getProof", json!([address, ["0x0", "0x1"], block])),
        ("eth_getBalance", json!([address, block])),
        ("eth_getTransactionCount", json!([address, block])),
        ("eth_getCode", json!([address, block])),
        ("eth_getStorageAt", json!([address, "0x0", block])),
        ("spinney_getRoot", json!(["mpt", block])),
        ("spinney_getRoot", json!(["pbt:blake3", block])),
        ("spinney_getProof", json!(["pbt:blake3", account, block])),
        ("spinney_getProof", json!(["ubt:sha256", account, block])),
        ("debug_executionWitness", json!([block])),
    ]
}

#[test]
fn an_archive_answers_as_the_store_does() {
    let folder = Folder::new();
    let more = ["--tree", TREES, "--keep-witnesses", "100"];
    let (db, archive) = (sample(&folder, "24", "all", &more), folder.path("archive"));
    build(&db, &archive, &["--behind", "9"]);
    let server = Server::of_archive(&archive, &["--final-depth", "3"]);
    assert_eq!(server.call("eth_blockNumber", json!([])), "0xf");
    assert_eq!(server.refused("eth_getBalance", json!([accounts(&db)[0], "0x10"])).0, -32001);
    // Blocks that are added are seen, and a process that began before goes on.
    build(&db, &archive, &[]);
    let clock = Instant::now();
    while server.call("eth_blockNumber", json!([])) != "0x18" {
        assert!(clock.elapsed() < PATIENCE, "it does not look for blocks that are added");
        thread::sleep(Duration::from_millis(50));
    }
    let store = Server::start(&db, &["--final-depth", "3"]);
    let accounts = accounts(&db);
    let tags = ["latest", "earliest", "finalized", "pending", "0x19"].map(Value::from);
    let blocks = (0..=24).rev().map(number).chain(tags);
    for (turn, block) in blocks.enumerate() {
        let calls = calls(&accounts[turn % accounts.len()], &block);
        let (expected, got) = (store.answers(&calls), server.answers(&calls));
        for ((call, expected), got) in calls.iter().zip(&expected).zip(&got) {
            assert_eq!(got, expected, "{call:?}");
        }
    }
    for method in ["spinney_trees", "debug_proofsSyncStatus", "rpc.discover"] {
        let ask = |server: &Server| server.call(method, json!([]));
        // Root records count commits, and one that goes back counts another way.
        let without = |mut answer: Value| {
            for tree in answer.as_array_mut().into_iter().flatten() {
                tree.as_object_mut().unwrap().remove("commit");
            }
            answer
        };
        assert_eq!(without(ask(&server)), without(ask(&store)), "{method}");
    }
    let (ours, theirs) = (&server, &store);
    let status = |server: &Server| server.call("spinney_status", json!([]));
    for field in ["head", "oldest", "finalized"] {
        assert_eq!(status(ours)[field], status(theirs)[field], "{field}");
    }
    assert_eq!(server.get("/ready").body, "block 24\n");
}

#[test]
fn blocks_outside_of_an_archive_are_refused() {
    let folder = Folder::new();
    let (db, archive) = (sample(&folder, "9", "3", &[]), folder.path("archive"));
    build(&db, &archive, &[]);
    let server = Server::of_archive(&archive, &["--metrics", "127.0.0.1:0"]);
    let (code, why) = server.refused("spinney_getRoot", json!(["mpt", "0x5"]));
    assert!(code == 4444 && why.contains("blocks 6 to 9"), "{why}");
    assert_eq!(server.refused("spinney_getRoot", json!(["mpt", "0xa"])).0, -32001);
    assert_eq!(server.refused("debug_executionWitness", json!(["0x7"])).0, 4444);
    assert_eq!(server.refused("eth_oak", json!([])).0, -32601);
    assert!(server.scrape().contains("spinney_head_block 9\n"));
    let missing = folder.path("missing");
    let ran = spinney(&["serve", "--archive", &missing, "--listen", "127.0.0.1:0"]).exits(2);
    ran.refuses("there is no archive");
    let both = ["serve", "--archive", &archive, "--db", &db, "--listen", "127.0.0.1:0"];
    spinney(&both).exits(2).refuses("both a store and an archive");
}

/// A view of a block that a server has open names objects that the writer merges and removes. The
/// server has no memory for parts, so it reads them each time.
#[test]
fn objects_that_were_replaced_are_looked_for_again() {
    let folder = Folder::new();
    let (db, archive) = (sample(&folder, "24", "all", &[]), folder.path("archive"));
    build(&db, &archive, &["--behind", "20"]);
    let (server, store) = (
        Server::of_archive(&archive, &["--cache", "1KiB", "--threads", "1"]),
        Server::start(&db, &[]),
    );
    let (mut accounts, block) = (accounts(&db), number(4));
    accounts.truncate(100);
    let ask = |server: &Server, accounts: &[Value]| {
        let proof = |account| ("eth_getProof", json!([account, [], block]));
        server.answers(&accounts.iter().map(proof).collect::<Vec<_>>())
    };
    assert_eq!(ask(&server, &accounts[..1]), ask(&store, &accounts[..1]));
    let before = segments(&archive);
    for behind in (0..20).rev() {
        build(&db, &archive, &["--behind", &behind.to_string()]);
    }
    let removed = before.iter().filter(|file| !file.exists()).count();
    assert!(removed > 0, "nothing was merged: {before:?}");
    let clock = Instant::now();
    while server.call("eth_blockNumber", json!([])) != "0x18" {
        assert!(clock.elapsed() < PATIENCE, "it does not look for blocks that are added");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(ask(&server, &accounts), ask(&store, &accounts));
}

fn segments(archive: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(archive).expect("a folder").map(|file| file.unwrap().path());
    let is_segment = |file: &Path| file.file_name().unwrap().to_str().unwrap().starts_with("segm");
    files.filter(|file| is_segment(file)).collect()
}

/// Objects that are damaged, cut off, missing or another's are told, and when they are as they were
/// all is answered.
#[test]
fn damaged_objects_are_told_and_never_answered() {
    let folder = Folder::new();
    let more = ["--tree", "mpt,ubt:sha256,pbt:blake3"];
    let (db, archive) = (sample(&folder, "9", "all", &more), folder.path("archive"));
    build(&db, &archive, &["--behind", "3"]);
    build(&db, &archive, &[]);
    let address = accounts(&db)[0].clone();
    let ask = |server: &Server| {
        let blocks = [0, 3, 6, 9].map(number);
        let calls: Vec<_> = blocks.iter().flat_map(|block| calls(&address, block)).collect();
        server.answers(&calls)
    };
    let expected = ask(&Server::of_archive(&archive, &[]));
    let told = |what: &str| {
        let answers = ask(&Server::of_archive(&archive, &[]));
        let mut failures = 0;
        for (got, expected) in answers.iter().zip(&expected) {
            if got != expected {
                let (code, why) = error_of(got);
                assert!([-32603, -32002].contains(&code), "{what}: {why}");
                failures += 1;
            }
        }
        failures
    };
    let files = segments(&archive);
    assert!(files.len() >= 3, "{files:?}");
    let (mut damages, mut failures) = (0, 0);
    for (place, file) in files.iter().enumerate() {
        let (bytes, other) = (fs::read(file).unwrap(), &files[(place + 1) % files.len()]);
        let mut changed = bytes.clone();
        // Every part has some of these.
        changed.iter_mut().step_by(200).for_each(|byte| *byte ^= 1);
        let stale = fs::read(other).unwrap();
        for (what, damage) in [
            ("changed", Some(&changed[..])),
            ("cut off", Some(&bytes[..bytes.len() / 2])),
            ("empty", Some(&[][..])),
            ("another", Some(&stale[..])),
            ("missing", None),
        ] {
            match damage {
                Some(damage) => fs::write(file, damage).unwrap(),
                None => fs::remove_file(file).unwrap(),
            }
            failures += told(what);
            damages += 1;
            fs::write(file, &bytes).unwrap();
        }
    }
    assert!(failures >= damages, "{failures} of {damages}");
    assert_eq!(ask(&Server::of_archive(&archive, &[])), expected);
}
