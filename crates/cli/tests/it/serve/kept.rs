//! Blocks whose commits a log keeps.

use serde_json::{Value, json};

use super::client::Server;
use super::{TREES, number};
use crate::support::{Chain, Folder, all_forks, rows, spinney};
use spinney_tree::Table;

/// Accounts of the chain: one that is there from the beginning, one that comes, one that never is.
const ACCOUNTS: [&str; 3] = [
    "0x7dcd17433742f4c0ca53122ab541d0ba67fc27df",
    "0x0000000000000000000000000000000000000000",
    "0x00000000000000000000000000000000000000aa",
];

/// What is asked of each block.
fn asked(block: u64) -> Vec<(&'static str, Value)> {
    let block = number(block);
    let mut calls: Vec<_> =
        TREES.split(',').map(|tree| ("spinney_getRoot", json!([tree, block]))).collect();
    for account in ACCOUNTS {
        calls.push(("eth_getBalance", json!([account, block])));
        calls.push(("eth_getProof", json!([account, ["0x0", "0x1"], block])));
        let keys = json!({ "address": account, "slots": ["0x0"] });
        calls.push(("spinney_getProof", json!(["pbt:blake3", keys, block])));
        calls.push(("eth_getStorageAt", json!([account, "0x0", block])));
    }
    calls
}

fn replay(chain: &Chain, db: &str, more: &[&str]) {
    let args = ["--db", db, "--store", "log", "--tree", TREES];
    let _ = chain.replay(&[&args[..], more].concat()).exits(0);
}

/// Kept commits answer as the history of a redb store does, at each block, far and near: commits of
/// one block without a history, and of many with one that reaches from commit to commit.
#[test]
fn kept_commits_answer_as_the_history_does() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let [back, each, some] = ["back", "each", "some"].map(|name| folder.path(name));
    let all = ["--db", &back, "--store", "redb", "--tree", TREES, "--keep-undo", "all"];
    let _ = chain.replay(&all).exits(0);
    let options = ["--keep-commits", "all", "--commit-every", "1", "--keep-undo", "0"];
    // In two runs: what is kept is kept by the one that goes on.
    replay(&chain, &each, &[&options[..], &["--to", "90"]].concat());
    replay(&chain, &each, &["--commit-every", "1", "--keep-undo", "0"]);
    assert_eq!(rows(&each, Table::History), []);
    replay(&chain, &some, &["--keep-commits", "1000", "--commit-every", "7", "--keep-undo", "7"]);
    let servers = [&back, &each, &some].map(|db| Server::start(db, &["--threads", "1"]));
    // The genesis is committed with block 1.
    for block in 1..=chain.block_count {
        let calls = asked(block);
        let [there, rest @ ..] = servers.each_ref().map(|server| server.batch(&calls));
        for (at, answers) in rest.into_iter().enumerate() {
            for ((call, expected), got) in calls.iter().zip(&there).zip(&answers) {
                assert_eq!(got, expected, "{block}, server {at}: {call:?}");
            }
        }
    }
    // The oldest block is that of the first commit, or what its own history leads back to.
    for (server, earliest) in servers.iter().zip([0, 1, 0]) {
        let status = server.call("debug_proofsSyncStatus", json!([]));
        assert_eq!(status, json!({ "earliest": earliest, "latest": chain.block_count }));
        let oldest = server.call("spinney_status", json!([]))["oldest"].clone();
        assert_eq!(oldest["number"], number(earliest));
        let root = |block: Value| server.call("spinney_getRoot", json!(["mpt", block]));
        assert_eq!(root(json!("earliest")), root(number(earliest)));
    }
    for block in ["3", "100", "150"] {
        let proof = |db: &str, tree: &str| {
            let args = ["prove", "--db", db, "--tree", tree, "--block", block, "--verify"];
            spinney(&[&args[..], &["--address", ACCOUNTS[0], "--slot", "0"]].concat()).exits(0).out
        };
        for tree in TREES.split(',') {
            assert_eq!(proof(&each, tree), proof(&back, tree), "{block} {tree}");
            assert_eq!(proof(&some, tree), proof(&back, tree), "{block} {tree}");
        }
    }
    // A store that went back has what it went back to, and nothing of what it left.
    drop(servers);
    let _ = spinney(&["stage", "unwind", "--db", &some, "--to", "208"]).exits(0);
    let server = Server::start(&some, &[]);
    let root = |block: u64| server.answer("spinney_getRoot", &json!(["mpt", number(block)]));
    assert_eq!(root(209)["error"]["code"], -32001);
    assert!(root(208)["result"].is_string() && root(20)["result"].is_string());
}

#[test]
fn as_many_commits_are_kept_as_was_said() {
    let folder = Folder::new();
    let db = folder.path("db");
    let replay = |more: &[&str]| {
        let args = ["replay", "-q", "--commit-every", "1", "--keep-undo", "0", "--db", &db];
        spinney(&[&args[..], more].concat())
    };
    let _ = replay(&["--blocks-count", "9", "--keep-commits", "4"]).exits(0);
    let server = Server::start(&db, &[]);
    let root = |block: u64| server.answer("spinney_getRoot", &json!(["mpt", number(block)]));
    let kept = |first: u64, last: u64| {
        (first..=last).for_each(|block| assert!(root(block)["result"].is_string(), "{block}"));
        let error = &root(0)["error"];
        assert_eq!(error["code"], 4444);
        let said = error["message"].as_str().unwrap();
        let alone = format!("that of block {last} alone is");
        assert!(said.contains(&alone), "{error}");
        assert_eq!(said.contains("; commits are kept of "), first < last, "{error}");
        assert!(first == last || said.ends_with(&format!(" to {last}")), "{error}");
        assert_eq!(root(last + 1)["error"]["code"], -32001);
    };
    kept(6, 9);
    // The store remembers how many, until it is told otherwise.
    let _ = replay(&["--blocks-count", "20"]).exits(0);
    kept(17, 20);
    let _ = replay(&["--blocks-count", "21", "--keep-commits", "1"]).exits(0);
    assert_eq!(root(20)["error"]["code"], 4444);
    kept(21, 21);

    let _ = replay(&["--keep-commits", "0"]).exits(2).says("the last commit is always kept");
    let other = folder.path("other");
    let args = ["replay", "-q", "--store", "redb", "--keep-commits", "2", "--db", &other];
    let _ = spinney(&args).exits(2).refuses("keeps its last commit alone").says("--store log");
    assert!(!std::path::Path::new(&other).exists());
}
