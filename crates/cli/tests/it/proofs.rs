//! `prove`, `verify` and `witness`.

use serde_json::Value;

use crate::support::{Folder, all_forks, amsterdam, command, spinney, spinney_fed};

const TRACE: &str = r#"{"put": {"0x646f65": "0x7265696e64656572", "0x646f67": "0x7075707079", "0x646f67676c6573776f727468": "0x636174"}}"#;
const ROOT: &str = "0x8aad789dff2f538bca5d8ea56e8abe10f4c7ba3a5dea95fea4cd6e7c3a1168d3";

fn raw_store(folder: &Folder, more: &[&str]) -> String {
    let db = folder.path("db");
    let _ = spinney_fed(&[&["root", "--db", &db, "-"], more].concat(), TRACE).exits(0);
    db
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

#[test]
fn an_address_that_is_none_is_told_what_one_is() {
    for address in ["0x1234", "me", "0x"] {
        let ran = spinney(&["prove", "--db", "any", "--address", address]).exits(2);
        let _ = ran.says("an address is 20 bytes: 0x and 40 hex digits");
    }
}

#[test]
fn a_root_that_is_none_is_told_what_one_is() {
    for root in ["0x1234", "doge", ""] {
        let ran = spinney(&["verify", "--root", root, "-"]).exits(2);
        let _ = ran.says("a hash is 32 bytes: 0x and 64 hex digits");
    }
}

#[test]
fn a_slot_without_its_account_asks_for_that_alone() {
    let ran = spinney(&["prove", "--db", "any", "--slot", "0"]).exits(2);
    assert!(!ran.err.contains("<KEY>"), "{ran:?}");
    let _ = ran.says("--address <ADDRESS>");
}

#[test]
fn raw_keys_are_proven_and_verified_through_a_pipe() {
    let folder = Folder::new();
    let db = raw_store(&folder, &[]);
    let proof = spinney(&["prove", "--db", &db, "0x646f65"]).exits(0).out;
    let document = json(&proof);
    assert_eq!((&document["tree"], &document["root"]), (&"mpt".into(), &ROOT.into()));
    assert_eq!(document["value"], "0x7265696e64656572");
    let held = spinney_fed(&["verify", "--tree", "mpt", "--root", ROOT, "-"], &proof).exits(0);
    assert_eq!(held.out, format!("holds under {ROOT}, tree mpt\n0x646f65: 0x7265696e64656572\n"));
    assert_eq!(held.err, "");
    // Without a tree of ours it says whose word it took.
    let held = spinney_fed(&["verify", "--root", ROOT, "-"], &proof).exits(0);
    held.says("warning: that the root is one of mpt is the document's own word");
    let other = spinney_fed(&["verify", "--tree", "verkle", "--root", ROOT, "-"], &proof).exits(1);
    assert!(other.refuses("of a tree mpt, not of verkle (--tree)").out.is_empty());
    spinney_fed(&["verify", "--tree", "oak", "-"], &proof).exits(2).refuses("no tree oak");
    // Without a root of ours it says whose it took.
    spinney_fed(&["verify", "-"], &proof).exits(0).says("document's own root");
    let absent = spinney(&["prove", "--db", &db, "0x646f"]).exits(0).out;
    assert_eq!(json(&absent)["value"], Value::Null);
    let held = spinney_fed(&["verify", "--root", ROOT, "-"], &absent).exits(0);
    assert!(held.out.ends_with("0x646f: absent\n"), "{held:?}");
    let many = spinney(&["prove", "--db", &db, "0x646f65", "0x7a", "0x646f67"]).exits(0).out;
    assert_eq!(json(&many)["keys"].as_array().map(Vec::len), Some(3));
    assert_eq!(json(&many)["values"][1], Value::Null);
    let file = folder.write("many.json", &many);
    let held = spinney(&["verify", "--root", ROOT, &file]).exits(0);
    assert_eq!(held.out.lines().count(), 4, "{held:?}");
}

#[test]
fn what_does_not_hold_exits_1_and_what_is_no_proof_exits_2() {
    let folder = Folder::new();
    let db = raw_store(&folder, &[]);
    let proof = spinney(&["prove", "--db", &db, "0x646f65"]).exits(0).out;
    let other = "0x1111111111111111111111111111111111111111111111111111111111111111";
    spinney_fed(&["verify", "--root", other, "-"], &proof)
        .exits(1)
        .refuses("does not hold")
        .says("the document was made for another root")
        .says("lacks the node 0x1111");
    for (from, to, why) in [
        ("0x7265696e64656572", "0x7265", "the trie holds 0x7265696e64656572, not 0x7265"),
        ("\"0x7265696e64656572\"", "null", "not nothing"),
        ("0x646f65", "0x646f66", "the trie holds nothing"),
    ] {
        let changed = proof.replace(from, to);
        assert_ne!(changed, proof);
        let refused = spinney_fed(&["verify", "--root", ROOT, "-"], &changed).exits(1);
        assert!(refused.says(why).out.is_empty());
    }
    for text in [
        "",
        "{}",
        "[]",
        "proof",
        r#"{"result": []}"#,
        r#"{"address": "0x0000000000000000000000000000000000000000", "storageProof": [[]]}"#,
        &proof.replace("\"proof\":[\"0x", "\"proof\":[\"0xg"),
        &proof.replace("\"value\"", "\"worth\""),
        &proof.replace("\"proof\"", "\"proofs\""),
        r#"{"keys": ["0x01"], "values": [], "proof": []}"#,
        r#"{"keys": ["0x01", "0x01"], "values": [null, null], "proof": []}"#,
        r#"{"address": "0x0000000000000000000000000000000000000000"}"#,
        r#"{"tree": "pbt:blake3", "key": "0x01", "value": null, "proof": []}"#,
        r#"{"keys": [], "values": [], "proof": []}"#,
        r#"{"tree": "ubt:sha256", "keys": [], "values": [], "proof": "0x"}"#,
        r#"{"key": "0x01", "value": null, "proof": [], "note": 1, "note": 2}"#,
    ] {
        let ran = spinney_fed(&["verify", "--root", ROOT, "-"], text).exits(2);
        // Nobody has to know what the program calls its own parts.
        assert!(!ran.err.contains("struct") && !ran.err.contains("Raw"), "{text}: {ran:?}");
    }
    let listed = spinney_fed(&["verify", "--root", ROOT, "-"], "[]").exits(2);
    let _ = listed.refuses("expected an object with key, keys or address").says("eth_getProof");
    let bare = r#"{"key": "0x01", "value": null, "proof": []}"#;
    spinney_fed(&["verify", "-"], bare).exits(2).refuses("no root");
    let empty = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421";
    let _ = spinney_fed(&["verify", "--root", empty, "-"], bare).exits(0);
    let _ = spinney(&["verify", "/no/such/file"]).exits(2).refuses("cannot open");
}

#[test]
fn hashed_keys_are_proven_under_their_digests() {
    let folder = Folder::new();
    let db = raw_store(&folder, &["--hash-keys"]);
    let proof = spinney(&["prove", "--db", &db, "--hash-keys", "0x646f65"]).exits(0).out;
    let document = json(&proof);
    assert_eq!(document["preimage"], "0x646f65");
    assert_eq!(document["value"], "0x7265696e64656572");
    assert_eq!(document["key"].as_str().map(str::len), Some(66));
    let held = spinney_fed(&["verify", "-"], &proof).exits(0);
    assert!(held.out.contains(" (of 0x646f65): 0x7265"), "{held:?}");
    // The preimage is what a person reads.
    let other = proof.replace("\"0x646f65\"", "\"0x646f66\"");
    assert_ne!(other, proof);
    spinney_fed(&["verify", "-"], &other).exits(1).refuses("digest of its preimage, 0x646f66");
}

/// What is long, or of many parts, is refused before it takes memory in proportion.
#[test]
fn documents_have_bounds() {
    let folder = Folder::new();
    let document = r#"{"key": "0x01", "value": null, "proof": []}"#;
    let short = ["verify", "--max-input", "20", "-"];
    spinney_fed(&short, document).exits(2).refuses("longer than 20 bytes").says("--max-input");
    let sparse = folder.path("sparse");
    std::fs::File::create(&sparse).unwrap().set_len((64 << 20) + 1).unwrap();
    spinney(&["verify", &sparse]).exits(2).refuses("longer than 67108864 bytes");
    let nodes = "\"0x\",".repeat((1 << 21) + 1);
    let many = document.replace("[]", &format!("[{nodes}\"0x\"]"));
    spinney_fed(&["verify", "-"], &many).exits(2).refuses("more than 2097152 values");
    let sums = format!("[{nodes}\"0x\"]");
    spinney_fed(&["verify", "--tree", "sum", "-"], &sums).exits(2).refuses("expected an object");
}

#[test]
fn accounts_are_proven_from_a_replayed_store() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    chain.replay(&["--db", &db]).exits(0);
    let accounts = chain.head_state["accounts"].as_object().expect("accounts");
    let with_storage = accounts.iter().find(|(_, account)| account["storage"].is_object());
    let (address, account) = with_storage.expect("an account with storage");
    let (slot, value) = account["storage"].as_object().unwrap().iter().next().expect("a slot");
    let args = ["prove", "--db", &db, "--address", address, "--slot", slot, "--slot", "0x1234567"];
    let proof = spinney(&args).exits(0).out;
    let document = json(&proof);
    assert_eq!(document["root"], chain.root());
    assert_eq!(document["codeHash"], account["codeHash"]);
    let slots = document["storageProof"].as_array().expect("slots");
    let number = |text: &str| text.trim_start_matches("0x").trim_start_matches('0').to_owned();
    assert_eq!(number(slots[0]["value"].as_str().unwrap()), number(value.as_str().unwrap()));
    assert_eq!(slots[1]["value"], "0x0");
    let held = spinney_fed(&["verify", "--root", &chain.root(), "-"], &proof).exits(0);
    assert_eq!(held.out.lines().count(), 4, "{held:?}");
    // As eth_getProof gives it: no root, no tree.
    let mut bare = document.clone();
    for field in ["root", "tree", "block"] {
        bare.as_object_mut().expect("an object").remove(field);
    }
    let _ = spinney_fed(&["verify", "--root", &chain.root(), "-"], &bare.to_string()).exits(0);
    let answer = serde_json::json!({ "jsonrpc": "2.0", "id": 1, "result": bare }).to_string();
    let _ = spinney_fed(&["verify", "--root", &chain.root(), "-"], &answer).exits(0);
    bare["balance"] = "0x7".into();
    spinney_fed(&["verify", "--root", &chain.root(), "-"], &bare.to_string())
        .exits(1)
        .says("not nonce");
    // Somebody who is not there, in both forms.
    let nobody = "0x00000000000000000000000000000000deadbeef";
    let proof = spinney(&["prove", "--db", &db, "--address", nobody]).exits(0).out;
    let mut absent = json(&proof);
    assert!(absent["codeHash"].as_str().unwrap().starts_with("0xc5d2"), "{absent}");
    let held = spinney_fed(&["verify", "--root", &chain.root(), "-"], &proof).exits(0);
    assert!(held.out.contains("absent"), "{held:?}");
    for field in ["codeHash", "storageHash"] {
        absent[field] = format!("0x{}", "0".repeat(64)).into();
    }
    let _ = spinney_fed(&["verify", "--root", &chain.root(), "-"], &absent.to_string()).exits(0);
}

#[test]
fn what_a_store_does_not_hold_is_not_proven() {
    let folder = Folder::new();
    let db = raw_store(&folder, &[]);
    let nobody = "0x00000000000000000000000000000000deadbeef";
    let prove = |args: &[&str]| spinney(&[&["prove", "--db", &db], args].concat()).exits(2);
    prove(&["--address", nobody]).refuses("holds raw keys").says("give keys");
    prove(&["0x01", "--block", "7"]).refuses("the state of no block");
    prove(&["0x01", "0x01"]).refuses("given twice");
    prove(&["0x01", "--tree", "oak"]).refuses("no tree oak");
    let _ = prove(&["01x"]);
    let _ = prove(&[]);
    let _ = prove(&["--slot", "0x1"]);
    // A proof that was made before stays.
    let out = folder.write("proof.json", "a proof");
    assert_eq!(prove(&["0x01", "--block", "7", "--out", &out]).out, "");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "a proof");
    // Of trees that are not there nothing is proven, not even that they are empty.
    for tree in ["ubt:sha256", "pbt:blake3", "verkle"] {
        let refused = prove(&["0x01", "--tree", tree]);
        refused.refuses(&format!("the store holds no {tree} tree: it holds mpt (")).says("db info");
    }
    let empty = folder.path("empty");
    spinney_fed(&["root", "--db", &empty, "-"], "").exits(0);
    for tree in ["mpt", "ubt:sha256", "verkle"] {
        for what in [&["0x01"][..], &["--address", nobody]] {
            let prove = ["prove", "--db", &empty, "--tree", tree];
            let ran = spinney(&[&prove, what].concat()).exits(2);
            let ran = ran.refuses(&format!("the store holds no {tree} tree, nor any other ("));
            assert_eq!(ran.out, "");
        }
    }
    let sums = folder.path("sums");
    let leaf = format!(r#"{{"put": {{"0x{}": {{"value": "0x", "sum": "5"}}}}}}"#, "01".repeat(32));
    spinney_fed(&["root", "--tree", "sum", "--db", &sums, "-"], &leaf).exits(0);
    let refused = spinney(&["prove", "--db", &sums, "--address", nobody]).exits(2);
    assert!(refused.refuses("a tree sum has neither addresses").out.is_empty());
    let refused = spinney(&["prove", "--db", &sums, "--tree", "mpt", "0x01"]).exits(2);
    assert!(refused.refuses("the store holds no mpt tree: it holds sum (").out.is_empty());
    let missing = folder.path("missing");
    spinney(&["prove", "--db", &missing, "0x01"]).exits(2).refuses("no store");
    let state = folder.path("state");
    spinney(&["replay", "-q", "--blocks-count", "2", "--db", &state]).exits(0);
    let prove = |args: &[&str]| spinney(&[&["prove", "--db", &state], args].concat());
    prove(&["0x01"]).exits(2).refuses("no raw keys").says("--address");
    prove(&["--address", nobody, "--block", "3"]).exits(2).refuses("block 3").says("blocks 0 to 2");
    let mut roots = Vec::new();
    for block in ["0", "1", "2"] {
        let proof = prove(&["--address", nobody, "--block", block]).exits(0).out;
        let document = json(&proof);
        assert_eq!(document["block"], format!("0x{block}"));
        let root = document["root"].as_str().unwrap().to_owned();
        let _ = spinney_fed(&["verify", "--root", &root, "-"], &proof).exits(0);
        roots.push(root);
    }
    roots.dedup();
    assert_eq!(roots.len(), 3, "each block has its own root");
}

#[test]
fn witnesses_are_made_and_checked() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let input = ["witness", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
    let witness = |args: &[&str]| spinney(&[&input[..], args].concat());
    let one = json(&witness(&["-q", "--keys", "--block", "77"]).exits(0).out);
    for field in ["state", "codes", "keys", "headers"] {
        assert!(one[field].as_array().is_some_and(|list| !list.is_empty()), "{field}: {one}");
    }
    let out = folder.path("out.ndjson");
    let ran = witness(&["--range", "70..80", "--keys", "--out", &out]).exits(0);
    assert!(ran.out.is_empty() && ran.err.contains("11 witnesses made and checked"), "{ran:?}");
    let lines = std::fs::read_to_string(&out).expect("it was written");
    assert_eq!(lines.lines().count(), 11);
    let line = json(lines.lines().nth(7).unwrap());
    assert_eq!((&line["number"], &line["witness"]), (&77.into(), &one));
    witness(&["--block", "300"]).exits(2).refuses("ends at block 213");
    witness(&["--block", "0"]).exits(2).refuses("the genesis");
    let _ = witness(&["--range", "9..2"]).exits(2);
    let _ = witness(&[]).exits(2);
    let _ = witness(&["--block", "1", "--all"]).exits(2);
    // A reader that goes away is no error.
    let args = [&input[..], &["--all", "-q"]].concat();
    let mut child = command(&args).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

/// A run that fails leaves the old file, and nothing beside it.
#[test]
fn witnesses_are_written_whole_or_not_at_all() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let out = folder.write("out.ndjson", "old");
    let bytes = std::fs::read(&chain.blocks).expect("it can be read");
    let mut spoilt = Vec::new();
    for block in spinney_replay::ChainReader::new(&bytes[..]).expect("it can be read") {
        let mut block = block.expect("it is a block");
        block.block.header.gas_used += u64::from(block.block.header.number == 50);
        spoilt.extend(block.to_rlp());
    }
    let spoilt = folder.write("spoilt.rlp", spoilt);
    let witness = |blocks: &str, args: &[&str]| {
        let input = ["witness", "--genesis", &chain.genesis, "--blocks", blocks, "--out", &out];
        spinney(&[&input[..], args].concat())
    };
    let files = || {
        let names = std::fs::read_dir(folder.path("")).expect("it can be listed");
        names.map(|entry| entry.unwrap().file_name()).collect::<std::collections::BTreeSet<_>>()
    };
    let before = files();
    let ran = witness(&spoilt, &["--range", "1..213"]).exits(1);
    let ran = ran.refuses("block 50 ").says("all blocks before it are good");
    assert!(!ran.err.contains("store"), "{ran:?}");
    witness(&chain.blocks, &["--range", "1..300"]).exits(2).refuses("ends at block 213");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "old");
    assert_eq!(files(), before);
    // The bad block is not asked for, so that nothing is wrong.
    witness(&spoilt, &["--range", "1..9"]).exits(0);
    assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 9);
    assert_eq!(files(), before);
    // What is no file is written as it is, and stays.
    #[cfg(unix)]
    {
        let input = ["witness", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
        let link = folder.path("link");
        std::os::unix::fs::symlink(&out, &link).unwrap();
        spinney(&[&input[..], &["--block", "7", "--out", &link]].concat()).exits(0);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&out).unwrap().lines().count(), 1);
        let pipe = folder.path("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let mut reader = std::process::Command::new("cat");
        let reader = reader.arg(&pipe).stdout(std::process::Stdio::piped()).spawn().unwrap();
        spinney(&[&input[..], &["--block", "7", "--out", &pipe]].concat()).exits(0);
        let read = reader.wait_with_output().unwrap().stdout;
        assert_eq!(read, std::fs::read(&out).unwrap());
    }
    let nowhere = folder.path("no/out.ndjson");
    let input = ["witness", "--genesis", &chain.genesis, "--blocks", &chain.blocks, "--all"];
    spinney(&[&input[..], &["--out", &nowhere]].concat()).exits(2).refuses("cannot write");
}

/// Witnesses of any client are judged, compared and minimized.
#[test]
fn witnesses_of_others_are_judged() {
    let Some(chain) = amsterdam() else { return };
    let folder = Folder::new();
    let path = |name: &str| folder.path(name);
    let input = ["--genesis", &chain.genesis, "--blocks", &chain.blocks];
    let witness = |args: &[&str]| spinney(&[&["witness"], args, &input[..]].concat());
    let (good, geth, ssz) = (path("good"), path("geth"), path("ssz"));
    let _ = witness(&["-q", "--block", "70", "--out", &good]).exits(0);
    let _ = witness(&["-q", "--block", "70", "--form", "geth", "--out", &geth]).exits(0);
    let _ = witness(&["-q", "--block", "70", "--encoding", "ssz", "--out", &ssz]).exits(0);
    let report = json(&witness(&["check", "--json", &good]).exits(0).out);
    assert_eq!((&report["block"], &report["canonical"]), (&70.into(), &true.into()));
    // Its own block comes with the input of a guest.
    spinney(&["witness", "check", "--json", &ssz, "--genesis", &chain.genesis]).exits(0);
    let report = json(&witness(&["check", "--json", &geth]).exits(1).out);
    assert_eq!((&report["executed"], &report["canonical"]), (&true.into(), &false.into()));
    let kinds: Vec<_> =
        report["findings"].as_array().unwrap().iter().map(|told| told["kind"].clone()).collect();
    assert!(kinds.contains(&"form".into()), "{report}");
    // Not one byte is other after minimizing.
    let minimized = path("minimized");
    let _ = witness(&["minimize", "-q", &geth, "--out", &minimized]).exits(0);
    let read = |path: &str| std::fs::read(path).unwrap();
    assert_eq!(read(&minimized), read(&good));
    spinney(&["witness", "diff", &good, &minimized]).exits(0);
    let ran = witness(&["diff", &good, &geth]).exits(1);
    assert!(ran.out.contains("form: the second: keys is null"), "{ran:?}");
    // Damaged, of no chain, and no witness at all.
    let mut damaged: Value = serde_json::from_slice(&read(&good)).unwrap();
    damaged["state"].as_array_mut().unwrap().remove(9);
    let damaged = folder.write("damaged", damaged.to_string());
    let report = json(&witness(&["check", "--json", &damaged]).exits(1).out);
    assert_eq!(report["findings"][0]["kind"], "missing", "{report}");
    witness(&["minimize", &damaged]).exits(1).refuses("cannot be executed");
    let cut = folder.write("cut", &read(&ssz)[..5_000]);
    witness(&["check", &cut]).exits(2).says("offset 1: expected from 20");
    witness(&["check", &folder.write("none", "{}")]).exits(2).says("it has no state");
    witness(&["check", &folder.write("empty", "")]).exits(2).says("holds no witness");
    spinney(&["witness", "check", &good]).exits(2).says("--genesis");
    let _ = witness(&["--all", "--encoding", "ssz"]).exits(2);
}

/// A line a block for binary trees: a proof of what it looks up.
#[test]
fn witnesses_of_binary_trees_are_proofs() {
    let Some(chain) = amsterdam() else { return };
    for tree in ["pbt:blake3", "ubt:sha256"] {
        let args = ["--genesis", &chain.genesis, "--blocks", &chain.blocks, "--tree", tree];
        let ran = spinney(&[&["witness", "-q", "--range", "38..41"], &args[..]].concat()).exits(0);
        let lines: Vec<_> = ran.out.lines().map(json).collect();
        assert_eq!(lines.len(), 4);
        for line in lines {
            assert_eq!(line["tree"], tree);
            let lens = ["keys", "values"].map(|list| line[list].as_array().unwrap().len());
            assert!(lens[0] > 4 && lens[0] == lens[1], "{line}");
        }
    }
}
