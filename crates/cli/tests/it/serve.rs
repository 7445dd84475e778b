//! `serve`: JSON-RPC as clients meet it, over HTTP.

pub(crate) mod archive;
pub(crate) mod client;
mod geth;
mod kept;
mod load;
pub(crate) mod pages;

use std::collections::BTreeSet;

use alloy_primitives::{B256, hex};
use serde_json::{Value, json};
use spinney_tree::sum::{Claim, Leaf, Profile, Proof, SumNode, verify_many};
use spinney_tree::{PageStore as _, Table, WriteSet};

use self::client::{Server, error_of, request};
use crate::support::{Folder, open_store, rows, spinney, spinney_fed};

const TREES: &str = "mpt,ubt:sha256,pbt:blake3";

pub(crate) fn number(block: u64) -> Value {
    json!(format!("{block:#x}"))
}

/// The store of a sample chain, with a commit for each block.
pub(crate) fn sample(folder: &Folder, blocks: &str, keep: &str, more: &[&str]) -> String {
    let db = folder.path("db");
    let args = ["replay", "-q", "--commit-every", "1", "--db", &db];
    let args = [&args[..], &["--blocks-count", blocks, "--keep-undo", keep], more].concat();
    let _ = spinney(&args).exits(0);
    db
}

#[test]
fn blocks_that_are_not_kept_are_refused() {
    let folder = Folder::new();
    let db = sample(&folder, "9", "3", &[]);
    let server = Server::start(&db, &[]);
    let root = |block: &str| server.call("spinney_getRoot", json!(["mpt", block]));
    let refused = |block: &str| server.refused("spinney_getRoot", json!(["mpt", block]));
    let roots: BTreeSet<String> =
        ["0x6", "0x7", "0x8", "0x9"].iter().map(|block| root(block).to_string()).collect();
    assert_eq!(roots.len(), 4);
    assert_eq!((root("latest"), root("earliest")), (root("0x9"), root("0x6")));
    for block in ["0x5", "0x0"] {
        let (code, why) = refused(block);
        assert_eq!(code, 4444, "{why}");
        assert!(
            why.contains("pruned history unavailable") && why.contains("blocks 6 to 9"),
            "{why}"
        );
    }
    for block in ["0xa", "0xffffffffffffffff", "finalized", "safe"] {
        assert_eq!(refused(block).0, -32001, "{block}");
    }
    assert_eq!(server.call("spinney_status", json!([]))["finalized"], Value::Null);
    assert_eq!(server.refused("eth_chainId", json!([])).0, -32000);
    // Somebody says which blocks are final.
    let server = Server::start(&db, &["--final-depth", "2", "--chain-id", "7"]);
    let again = |block: &str| server.call("spinney_getRoot", json!(["mpt", block]));
    assert_eq!((again("finalized"), again("safe")), (root_at(&server, 7), root_at(&server, 7)));
    assert_ne!(again("finalized"), again("latest"));
    assert_eq!(server.call("spinney_status", json!([]))["finalized"], "0x7");
    assert_eq!(server.call("eth_chainId", json!([])), "0x7");
    let server = Server::start(&db, &["--final-depth", "4"]);
    assert_eq!(server.refused("spinney_getRoot", json!(["mpt", "finalized"])).0, 4444);
}

fn root_at(server: &Server, block: u64) -> Value {
    server.call("spinney_getRoot", json!(["mpt", number(block)]))
}

/// What a leaf is proven to be, by the public verifier.
fn leaf_of(proven: &Value) -> Option<Leaf> {
    let bytes = |field: &str| hex::decode(proven[field].as_str().unwrap()).unwrap();
    let sum = |field: &str| proven[field].as_str().unwrap().parse().unwrap();
    let root = SumNode { hash: bytes("root").try_into().unwrap(), sum: sum("root_sum") };
    let leaf = Leaf { value: bytes("value"), sum: sum("sum") };
    let key = bytes("key").try_into().unwrap();
    let proof = Proof::decode(&bytes("proof")).ok()?;
    let there = (!leaf.is_empty()).then_some(&leaf);
    let claim = Claim { key: &key, leaf: there, proof: &proof };
    verify_many(Profile::Compatible, root, &[claim]).ok()?;
    Some(leaf)
}

#[test]
fn sums_are_proven() {
    let folder = Folder::new();
    let db = folder.path("sums");
    let key = |byte: &str| format!("0x{}", byte.repeat(32));
    let put = |byte: &str, sum: &str| {
        let leaf = json!({ key(byte): { "value": "0xaa", "sum": sum } });
        json!({ "put": leaf }).to_string() + "\n"
    };
    let root = ["root", "--tree", "sum", "--namespace", "one", "--db", &db, "-"];
    let _ = spinney_fed(&root, &(put("11", "5") + &put("22", "7"))).exits(0);
    let server = Server::start(&db, &[]);
    let ask = json!(["one", [key("11"), key("33")]]);
    let answer = server.call("spinney_getSumProof", ask.clone());
    let (there, absent) = (leaf_of(&answer[0]).unwrap(), leaf_of(&answer[1]).unwrap());
    assert_eq!((there.sum, &there.value[..], absent), (5, &[0xaa][..], Leaf::default()));
    assert_eq!((&answer[0]["root_sum"], &answer[0]["tree"]), (&json!("12"), &json!("sum")));
    for (field, forged) in
        [("sum", "6"), ("value", "0xab"), ("root_sum", "13"), ("key", &key("22"))]
    {
        let mut proven = answer[0].clone();
        proven[field] = forged.into();
        assert_eq!(leaf_of(&proven), None, "{field}");
    }
    let other = server.refused("spinney_getSumProof", json!(["two", [key("11")]]));
    assert!(other.0 == -32000 && other.1.contains("two"), "{other:?}");
    assert_eq!(server.refused("spinney_getSumProof", json!(["one", ["0x11"]])).0, -32602);
    assert_eq!(server.refused("eth_blockNumber", json!([])).0, -32000);
    let trees = server.call("spinney_trees", json!([]));
    assert_eq!((&trees[0]["namespace"], &trees[0]["root_sum"]), (&json!("one"), &json!("12")));
    // What is put meanwhile is answered.
    let _ = spinney_fed(&root, &put("33", "9")).exits(0);
    let answer = server.call("spinney_getSumProof", ask);
    assert_eq!(answer[1]["root_sum"], "21");
    assert_eq!(leaf_of(&answer[1]).unwrap().sum, 9);
}

#[test]
fn batches_and_notifications() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let server = Server::start(&db, &["--max-batch", "4", "--chain-id", "1"]);
    let call = |id: Value, method: &str| {
        let mut call = request(method, &json!([]));
        call["id"] = id;
        call
    };
    let silent = json!({ "jsonrpc": "2.0", "method": "eth_chainId" });
    let batch = json!([call("a".into(), "eth_chainId"), silent, 7, call(json!(2.5), "eth_oak")]);
    let answer = server.post(&batch.to_string());
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(answer.as_array().map(Vec::len), Some(3), "{answer}");
    assert_eq!(answer[0], json!({ "jsonrpc": "2.0", "id": "a", "result": "0x1" }));
    assert_eq!((&answer[1]["id"], error_of(&answer[1]).0), (&Value::Null, -32600));
    assert_eq!((&answer[2]["id"], error_of(&answer[2]).0), (&json!(2.5), -32601));
    for text in [silent.to_string(), json!([silent, silent]).to_string()] {
        let answer = server.post(&text);
        assert_eq!((answer.status, &answer.body[..]), (200, ""));
    }
    let alone = |text: &str| {
        let answer: Value = serde_json::from_str(&server.post(text).body).expect("one answer");
        assert_eq!(answer["id"], Value::Null, "{answer}");
        error_of(&answer).0
    };
    assert_eq!(alone("[]"), -32600);
    assert_eq!(alone(&json!([silent, silent, silent, silent, silent]).to_string()), -32600);
    assert_eq!(alone(&format!("[{silent},{{")), -32700);
    assert_eq!(alone("{"), -32700);
    assert_eq!(alone(&call(json!([]), "eth_chainId").to_string()), -32600);
}

#[test]
fn what_cannot_be_answered_has_a_code() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let more = ["--max-keys", "2", "--max-answer", "4KiB", "--chain-id", "1"];
    let server = Server::start(&db, &more);
    let nobody = "0x00000000000000000000000000000000deadbeef";
    for (method, params, code) in [
        ("eth_oak", json!([]), -32601),
        ("eth_getBalance", json!([]), -32602),
        ("eth_getBalance", json!({ "address": nobody }), -32602),
        ("eth_getBalance", json!(["0x00"]), -32602),
        ("eth_getBalance", json!([nobody, "0x01"]), -32602),
        ("eth_getBalance", json!([nobody, "latest", 1]), -32602),
        ("eth_chainId", json!([1]), -32602),
        ("eth_getStorageAt", json!([nobody, "0xg"]), -32602),
        ("eth_getBalance", json!([nobody, "0x3"]), -32001),
        ("spinney_getRoot", json!(["pbt:blake3"]), -32602),
        ("spinney_getSumProof", json!(["", []]), -32602),
        ("spinney_getSumProof", json!(["one", []]), -32000),
    ] {
        let (got, why) = server.refused(method, params.clone());
        assert_eq!(got, code, "{method} {params}: {why}");
    }
    let (code, why) = server.refused("eth_getProof", json!([nobody, ["0x1", "0x2", "0x3"]]));
    assert_eq!((code, &why[..]), (-32602, "too many slots (max 2)"));
    assert!(server.call("eth_getProof", json!([nobody, ["0x1", "0x2"]])).is_object());
    let keys = json!(["", [B256::ZERO, B256::ZERO, B256::ZERO]]);
    assert_eq!(server.refused("spinney_getSumProof", keys).0, -32602);
    // The answers together are too long: the first ones come.
    let calls = vec![("eth_getProof", json!([nobody, ["0x1", "0x2"]])); 40];
    let answers = server.answers(&calls);
    assert!(answers[0]["result"].is_object(), "{}", answers[0]);
    assert_eq!(error_of(&answers[39]).0, -32003);
    assert_eq!(answers.len(), 40);
}

/// A damaged page is told as it is, to everybody who asks, and when it is mended all is answered.
#[test]
fn a_damaged_store_is_an_internal_error() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let pages = rows(&db, Table::Pages);
    let put = |damage: u8| {
        let mut set = WriteSet::new();
        for (key, mut row) in pages.clone() {
            *row.last_mut().unwrap() ^= damage;
            set.put(Table::Pages, &key, row);
        }
        open_store(&db).commit(&set).unwrap();
    };
    let nobody = json!(["0x00000000000000000000000000000000deadbeef"]);
    let calls = [("eth_getBalance", nobody.clone()), ("eth_getCode", nobody)];
    put(1);
    let server = Server::start(&db, &[]);
    for answer in server.answers(&calls) {
        let (code, why) = error_of(&answer);
        assert!(code == -32603 && why.contains("damaged"), "{why}");
    }
    let (code, why) = server.refused("eth_blockNumber", json!([]));
    assert_eq!(code, -32603, "{why}");
    assert_eq!(server.get("/ready").status, 503);
    assert_eq!(error_of(&server.post("{").json()).0, -32700);
    put(0);
    assert_eq!(server.batch(&calls), ["0x0", "0x"]);
    assert_eq!(server.get("/ready").status, 200);
}

/// One thread is given more than it can do in the time that a request may take.
#[test]
fn a_request_that_takes_too_long_is_told_so() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let more = ["--timeout", "1", "--threads", "1", "--max-answer", "16KiB"];
    let server = Server::start(&db, &more);
    let nobody = "0x00000000000000000000000000000000deadbeef";
    let call = request("eth_getProof", &json!([nobody, vec!["0x1"; 1_024]]));
    // Each answer is made, and is too long.
    let batch = Value::from(vec![call; 100]).to_string();
    let ask = || -> BTreeSet<i64> {
        let answer = server.post(&batch);
        assert_eq!(answer.status, 200);
        match answer.json() {
            Value::Array(answers) => answers.iter().map(|answer| error_of(answer).0).collect(),
            answer => [error_of(&answer).0].into(),
        }
    };
    assert!(ask().is_subset(&[-32002, -32003].into()));
    let mut codes = BTreeSet::new();
    for _ in 0..50 {
        if codes.contains(&-32002) {
            break;
        }
        std::thread::scope(|scope| {
            let asked: Vec<_> = (0..32).map(|_| scope.spawn(ask)).collect();
            asked.into_iter().for_each(|asked| codes.extend(asked.join().unwrap()));
        });
    }
    assert!(codes.contains(&-32002), "{codes:?}");
    assert!(codes.is_subset(&[-32002, -32003].into()), "{codes:?}");
    // The one thread may have something to do still.
    let call = request("eth_blockNumber", &json!([])).to_string();
    assert!((0..50).any(|_| server.post(&call).json()["result"] == "0x2"));
}

#[test]
fn what_is_no_post_of_json_is_refused() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let server = Server::start(&db, &["--max-body", "200", "--metrics", "127.0.0.1:0"]);
    let call = request("eth_blockNumber", &json!([])).to_string();
    let post = |header: &str, body: &str| {
        server.send(&format!("POST / HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n{body}"))
    };
    let json = "Content-Type: application/json; charset=utf-8";
    let len = format!("Content-Length: {}", call.len());
    assert_eq!(post(&format!("{json}\r\n{len}"), &call).status, 200);
    for header in [&len[..], &format!("Content-Type: text/plain\r\n{len}")] {
        assert_eq!(post(header, &call).status, 415);
    }
    // It is refused before it is sent, and as soon as it is too long where nobody said how long.
    let long = post(&format!("{json}\r\nContent-Length: 201"), "");
    assert_eq!((long.status, error_of(&long.json()).0), (413, -32600));
    let chunks = format!("c8\r\n{}\r\n1\r\n \r\n0\r\n\r\n", " ".repeat(200));
    let long = post(&format!("{json}\r\nTransfer-Encoding: chunked"), &chunks);
    assert_eq!((long.status, error_of(&long.json()).0), (413, -32600));
    let padded = format!("{call:200}");
    assert_eq!(post(&format!("{json}\r\nContent-Length: 200"), &padded).status, 200);
    let put = server.send("PUT / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(put.status, 405);
    assert!(put.head.to_ascii_lowercase().contains("allow: get, head, post"), "{}", put.head);
    assert_eq!(server.get("/metrics").status, 404);
    assert_eq!((server.get("/health").status, &server.get("/health").body[..]), (200, "ok\n"));
    assert_eq!(server.get("/ready").body, "block 2\n");
    let metrics = server.scrape();
    assert!(metrics.contains("spinney_head_block 2\n"), "{metrics}");
    for (reason, count) in [("content_type", 2), ("body", 2)] {
        let line = format!("spinney_rpc_refused_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    let folder = Folder::new();
    let db = sample(&folder, "2", "all", &[]);
    let server = Server::start(&db, &[]);
    let taken = server.address().to_string();
    let ran = spinney(&["serve", "--db", &db, "--listen", &taken]).exits(2);
    let _ = ran.refuses(&format!("cannot listen at {taken}"));
    let missing = folder.path("missing");
    spinney(&["serve", "--db", &missing, "--listen", "127.0.0.1:0"]).exits(2).refuses("no store");
    let open = Server::start_at(&db, "0.0.0.0:0", &[]).stop().exits(0);
    let _ = open.says("is no loopback address");
}
