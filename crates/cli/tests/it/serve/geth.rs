//! What geth says of a chain is what is answered of it, with proofs in every tree.

use std::collections::BTreeSet;
use std::fs;

use alloy_primitives::{B256, U256, hex, keccak256};
use serde_json::{Value, json};
use spinney_tree::binary::proof::{KeysProof, VerifiedKeys};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{HashFunction, KeyProofs as _};

use super::client::Server;
use super::{TREES, number};
use crate::support::{Chain, Folder, all_forks, shared, spinney};

/// The chain's genesis and its last block, as its own page has them.
const GENESIS: &str = "0xc7733fc11e2b752c4705d7f8467915d04045f3b2686ba8bf0f3a2634825d6f08";
const HEAD: &str = "0x1edec04e26cb61be5c48448c70043f7d6b7733e2c29ae4ae1b2dd0fdd97b5b70";

/// A file of JSON, a value a line.
fn lines(path: &str) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("it can be read");
    text.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
}

/// What geth answered of the chain, at earlier blocks and at the last one, is answered here, from a
/// store and from an archive of it.
#[test]
fn the_answers_are_those_of_geth() {
    let (Some(chain), Some(proofs)) = (all_forks(), shared("data/chains/all-forks/proofs.ndjson"))
    else {
        return;
    };
    let folder = Folder::new();
    let (db, archive) = (folder.path("db"), folder.path("archive"));
    let options = ["--keep-undo", "all", "--keep-witnesses", "1000", "--tree", TREES];
    let _ = chain.replay(&[&["--db", &db], &options[..]].concat()).exits(0);
    let build = ["archive", "build", "-q", "--db", &db, "--into", &archive];
    let _ = spinney(&build).exits(0);
    let proofs = lines(&proofs);
    assert_eq!(proofs.len(), 41);
    let chain_id = ["--genesis", &chain.genesis];
    for server in [Server::start(&db, &chain_id), Server::of_archive(&archive, &chain_id)] {
        all_is_answered(server, &chain, &proofs, &db);
    }
}

fn all_is_answered(server: Server, chain: &Chain, proofs: &[Value], db: &str) {
    witnesses_are_those_of_geth(&server);
    for line in proofs {
        let proof = &line["proof"];
        let (address, block) = (&proof["address"], number(line["number"].as_u64().unwrap()));
        let got = server.call("eth_getProof", json!([address, line["keys"], block]));
        assert_eq!(&got, proof, "{}", line["what"]);
        let ask = |method: &str| server.call(method, json!([address, block]));
        assert_eq!(ask("eth_getBalance"), proof["balance"]);
        assert_eq!(ask("eth_getTransactionCount"), proof["nonce"]);
        let code = hex::decode(ask("eth_getCode").as_str().unwrap()).unwrap();
        let hash = json!(keccak256(&code));
        assert!(
            hash == proof["codeHash"] || code.is_empty() && proof["codeHash"] == json!(B256::ZERO)
        );
        for slot in proof["storageProof"].as_array().unwrap() {
            let word = server.call("eth_getStorageAt", json!([address, slot["key"], block]));
            let value: U256 = slot["value"].as_str().unwrap().parse().unwrap();
            assert_eq!(word, json!(B256::from(value)));
        }
        let root = server.call("spinney_getRoot", json!(["mpt", block]));
        assert_eq!(root, line["stateRoot"]);
    }
    the_head_state_is_answered(&server, chain);
    blocks_have_names(&server);
    keys_are_proven(&server, db, proofs);
    let status = server.call("spinney_status", json!([]));
    assert_eq!(
        (&status["head"]["hash"], &status["oldest"]["hash"]),
        (&json!(HEAD), &json!(GENESIS))
    );
    assert_eq!(
        (&status["chainId"], &status["head"]["number"]),
        (&json!("0xbbfd1"), &json!("0xd5"))
    );
    assert_eq!(server.call("eth_chainId", json!([])), "0xbbfd1");
    assert_eq!(server.call("net_version", json!([])), "770001");
    assert_eq!(server.call("eth_blockNumber", json!([])), "0xd5");
    let kept = server.call("debug_proofsSyncStatus", json!([]));
    assert_eq!(kept, json!({ "earliest": 0, "latest": 213 }));
    let trees = server.call("spinney_trees", json!([]));
    let names: Vec<_> = trees.as_array().unwrap().iter().map(|tree| &tree["tree"]).collect();
    assert_eq!(names, ["mpt", "ubt:sha256", "pbt:blake3"]);
    server.stop().exits(0);
}

/// The nodes of witnesses, and how many headers they have; geth adds code that a block writes
/// itself.
fn witnesses_are_those_of_geth(server: &Server) {
    let path = shared("data/chains/all-forks/witnesses.ndjson").expect("it lies beside the chain");
    let lines = lines(&path);
    assert!(lines.len() > 10);
    for line in &lines {
        let block = number(line["number"].as_u64().unwrap());
        let got = server.call("debug_executionWitness", json!([block]));
        let by_hash = json!([line["hash"]]);
        assert_eq!(got, server.call("debug_executionWitnessByBlockHash", by_hash));
        let entries = |witness: &Value, part: &str| -> BTreeSet<String> {
            let entries = witness[part].as_array().unwrap().iter();
            entries.map(|entry| entry.as_str().unwrap().to_owned()).collect()
        };
        let theirs = &line["witness"];
        assert_eq!(entries(&got, "state"), entries(theirs, "state"), "block {block}");
        assert!(entries(&got, "codes").is_subset(&entries(theirs, "codes")));
        let count = |witness: &Value| witness["headers"].as_array().unwrap().len();
        assert_eq!(count(&got), count(theirs));
    }
    let refused = |params: Value| server.refused("debug_executionWitness", params).0;
    assert_eq!(refused(json!(["0x0"])), -32000);
    assert_eq!(refused(json!(["earliest"])), -32000);
    assert_eq!(refused(json!(["pending"])), -32001);
    assert_eq!(refused(json!(["0xd6"])), -32001);
    let by_number = server.refused("debug_executionWitnessByBlockHash", json!(["0x1"]));
    assert_eq!(by_number.0, -32602);
}

/// All accounts, as geth dumped them.
fn the_head_state_is_answered(server: &Server, chain: &Chain) {
    let accounts = chain.head_state["accounts"].as_object().expect("accounts");
    assert_eq!(accounts.len(), 269);
    let mut slots_seen = 0;
    for (address, account) in accounts {
        let mut calls = vec![
            ("eth_getBalance", json!([address])),
            ("eth_getTransactionCount", json!([address, "latest"])),
            ("eth_getCode", json!([address, "latest"])),
        ];
        let empty = serde_json::Map::new();
        let slots = account["storage"].as_object().unwrap_or(&empty);
        for slots in slots.keys().collect::<Vec<_>>().chunks(97) {
            calls.extend(slots.iter().map(|slot| ("eth_getStorageAt", json!([address, slot]))));
            let answers = server.batch(&calls);
            for (slot, word) in slots.iter().zip(&answers[calls.len() - slots.len()..]) {
                let value = account["storage"][*slot].as_str().unwrap();
                let value = U256::from_str_radix(value.trim_start_matches("0x"), 16).unwrap();
                assert_eq!(word, &json!(B256::from(value)), "{address} {slot}");
                slots_seen += 1;
            }
            calls.truncate(3);
        }
        let answers = server.batch(&calls);
        let balance: U256 = account["balance"].as_str().unwrap().parse().unwrap();
        assert_eq!(answers[0], json!(balance), "{address}");
        assert_eq!(answers[1], number(account["nonce"].as_u64().unwrap()), "{address}");
        let code = account["code"].as_str().unwrap_or("0x");
        assert_eq!(answers[2], code, "{address}");
    }
    assert_eq!(slots_seen, 868);
}

/// A block is named by its number, its hash, a tag, or as EIP-1898 has it.
fn blocks_have_names(server: &Server) {
    let path = shared("data/chains/all-forks/witnesses.ndjson").expect("it lies beside the chain");
    let root = |block: Value| server.call("spinney_getRoot", json!(["mpt", block]));
    for line in lines(&path) {
        let (block, hash, expected) = (&line["number"], &line["hash"], &line["stateRoot"]);
        let block = number(block.as_u64().unwrap());
        for name in [
            block.clone(),
            hash.clone(),
            json!({ "blockNumber": block }),
            json!({ "blockHash": hash }),
            json!({ "blockHash": hash, "requireCanonical": true }),
        ] {
            assert_eq!(&root(name.clone()), expected, "{name}");
        }
    }
    assert_eq!(root(json!("earliest")), root(json!(GENESIS)));
    assert_eq!(root(json!("earliest")), root(json!("0x0")));
    assert_eq!(root(json!("latest")), root(json!(HEAD)));
    assert_ne!(root(json!("latest")), root(json!("earliest")));
    let refused = |block: Value| server.refused("spinney_getRoot", json!(["mpt", block]));
    assert_eq!(refused(json!(B256::repeat_byte(7))).0, -32001);
    assert_eq!(refused(json!("0xd6")).0, -32001);
    assert_eq!(refused(json!("pending")).0, -32001);
    assert_eq!(refused(json!({ "blockHash": HEAD, "blockNumber": "0xd5" })).0, -32602);
}

/// A proof of keys as it was answered, for a verifier.
fn sent(answer: &Value) -> (KeysProof, [u8; 32]) {
    let bytes = |value: &Value| hex::decode(value.as_str().unwrap()).unwrap();
    let word = |value: &Value| (!value.is_null()).then(|| bytes(value).try_into().unwrap());
    let (keys, values) = (answer["keys"].as_array().unwrap(), answer["values"].as_array().unwrap());
    assert_eq!(keys.len(), values.len());
    let entries = keys.iter().zip(values).map(|(key, value)| (bytes(key), word(value))).collect();
    let root = bytes(&answer["root"]).try_into().unwrap();
    (KeysProof { entries, proof: bytes(&answer["proof"]) }, root)
}

fn verify(tree: &str, root: &[u8; 32], sent: &KeysProof) -> Option<VerifiedKeys> {
    match tree {
        "ubt:sha256" => (Ubt { hash: HashFunction::Sha256 }).verify_keys(root, sent).ok(),
        _ => (Pbt { hash: HashFunction::Blake3 }).verify_keys(root, sent).ok(),
    }
}

/// Proofs of binary trees hold under the root of their block, and say what slots hold; forged ones
/// do not.
fn keys_are_proven(server: &Server, db: &str, proofs: &[Value]) {
    for tree in ["ubt:sha256", "pbt:blake3"] {
        for line in proofs.iter().step_by(3) {
            let (address, slots) = (&line["proof"]["address"], &line["keys"]);
            let block = line["number"].as_u64().unwrap();
            let asked = json!({ "address": address, "slots": slots });
            let answer = server.call("spinney_getProof", json!([tree, asked, number(block)]));
            let root = server.call("spinney_getRoot", json!([tree, number(block)]));
            assert_eq!((&answer["root"], &answer["tree"]), (&root, &json!(tree)));
            assert_eq!(answer["block"], number(block));
            let (proof, root) = sent(&answer);
            let verified = verify(tree, &root, &proof).expect("it holds");
            let slots = slots.as_array().unwrap();
            let words = &proof.entries[proof.entries.len() - slots.len()..];
            for ((key, _), slot) in
                words.iter().zip(line["proof"]["storageProof"].as_array().unwrap())
            {
                let value: U256 = slot["value"].as_str().unwrap().parse().unwrap();
                let word = verified.get(key).unwrap().copied().unwrap_or_default();
                assert_eq!(U256::from_be_bytes(word), value, "{tree} {address} {slot}");
            }
            // As the verb answers it.
            let text = block.to_string();
            let mut args = vec!["prove", "--db", db, "--tree", tree, "--block", &text];
            args.extend(["--address", address.as_str().unwrap()]);
            slots.iter().for_each(|slot| args.extend(["--slot", slot.as_str().unwrap()]));
            let printed: Value = serde_json::from_str(&spinney(&args).exits(0).out).unwrap();
            assert_eq!(printed, answer);
            // By its keys alone.
            let raw = server.call("spinney_getProof", json!([tree, answer["keys"], number(block)]));
            for field in ["root", "keys", "values", "proof"] {
                assert_eq!(raw[field], answer[field]);
            }
            forged_proofs_are_refused(tree, &root, &proof);
        }
    }
    let twice = json!(["pbt:blake3", ["0x07", "0x07"]]);
    assert_eq!(server.refused("spinney_getProof", twice).0, -32602);
    assert_eq!(server.refused("spinney_getProof", json!(["ubt:sha256", ["0x07"]])).0, -32602);
    assert_eq!(server.refused("spinney_getProof", json!(["mpt", ["0x07"]])).0, -32602);
    let (code, why) = server.refused("spinney_getProof", json!(["oak", ["0x07"]]));
    assert!(code == -32602 && why.contains("mpt, ubt:sha256, pbt:blake3"), "{why}");
}

fn forged_proofs_are_refused(tree: &str, root: &[u8; 32], proof: &KeysProof) {
    for at in 0..proof.entries.len() {
        let mut forged = proof.clone();
        let value = forged.entries[at].1.get_or_insert_default();
        value[31] ^= 1;
        assert!(verify(tree, root, &forged).is_none(), "{tree}: value {at}");
    }
    for at in (0..proof.proof.len()).step_by(7) {
        let mut forged = proof.clone();
        forged.proof[at] ^= 1;
        assert!(verify(tree, root, &forged).is_none(), "{tree}: byte {at}");
    }
}

/// A block before the last one is answered as by a store that was never taken further.
#[test]
fn an_earlier_block_is_as_when_it_was_the_last_one() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (full, half) = (folder.path("full"), folder.path("half"));
    let _ = chain.replay(&["--db", &full, "--keep-undo", "40", "--tree", TREES]).exits(0);
    let _ = chain.replay(&["--db", &half, "--to", "182", "--tree", TREES]).exits(0);
    let (full, half) = (Server::start(&full, &[]), Server::start(&half, &[]));
    let mut slots: Vec<(String, Vec<String>)> = Vec::new();
    let diffs = shared("data/chains/all-forks/diffs.ndjson").expect("it lies beside the chain");
    for line in lines(&diffs).iter().skip(140) {
        for (address, account) in line["accounts"].as_object().unwrap() {
            let storage = account["storage"].as_object();
            let changed = storage.map(|slots| slots.keys().take(9).cloned().collect());
            slots.push((address.clone(), changed.unwrap_or_default()));
        }
    }
    slots.sort();
    slots.dedup_by(|a, b| a.0 == b.0);
    assert!(slots.len() > 100, "{}", slots.len());
    let mut differ = 0;
    for (address, slots) in &slots {
        let calls = |block: &str| {
            let account = json!({ "address": address, "slots": slots });
            vec![
                ("eth_getBalance", json!([address, block])),
                ("eth_getTransactionCount", json!([address, block])),
                ("eth_getCode", json!([address, block])),
                ("eth_getProof", json!([address, slots, block])),
                ("spinney_getProof", json!(["ubt:sha256", account, block])),
                ("spinney_getProof", json!(["pbt:blake3", account, block])),
            ]
        };
        let then = full.batch(&calls("0xb6"));
        assert_eq!(then, half.batch(&calls("latest")), "{address}");
        differ += usize::from(then[..4] != full.batch(&calls("latest"))[..4]);
    }
    assert!(differ > 50, "{differ}");
    // Below the window nothing is answered, in no tree.
    for (method, params) in [
        ("eth_getBalance", json!([slots[0].0, "0xac"])),
        ("eth_getProof", json!([slots[0].0, [], "0xac"])),
        ("spinney_getRoot", json!(["pbt:blake3", "0xac"])),
        ("spinney_getProof", json!(["ubt:sha256", { "address": slots[0].0 }, "0x0"])),
    ] {
        let (code, why) = full.refused(method, params);
        assert!(code == 4444 && why.contains("blocks 173 to 213"), "{code} {why}");
    }
    assert!(full.call("spinney_getRoot", json!(["pbt:blake3", "0xad"])).is_string());
}
