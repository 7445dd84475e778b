//! One replay into several trees: one execution, one store, one commit.

use serde_json::{Value, json};
use spinney_tree::Table;

use crate::support::{
    Chain, Folder, all_forks, assert_sound, chain_600, rows, shared, spinney, spinney_fed,
};

const NAMES: [&str; 4] = ["mpt", "ubt:sha256", "pbt:blake3", "verkle"];
const TREES: &str = "mpt,ubt:sha256,pbt:blake3,verkle";

/// The root of each tree, as [`NAMES`] has them.
type Roots = [String; NAMES.len()];

fn roots(run: &Value) -> Roots {
    let trees = run["trees"].as_array().expect("trees");
    assert_eq!(trees.len(), NAMES.len(), "{run}");
    NAMES.map(|name| {
        let tree = trees.iter().find(|tree| tree["tree"] == name).expect("it is one of them");
        tree["root"].as_str().expect("text").to_owned()
    })
}

fn replay(chain: &Chain, more: &[&str]) -> Roots {
    roots(&chain.replay(&[&["--tree", TREES], more].concat()).exits(0).run())
}

/// A dump as a genesis allocation.
pub(crate) fn alloc_of(dump: &Value) -> String {
    let mut alloc = dump["accounts"].clone();
    for account in alloc.as_object_mut().expect("accounts").values_mut() {
        let account = account.as_object_mut().expect("an account");
        for field in ["root", "codeHash", "address", "key"] {
            account.remove(field);
        }
        if let Some(storage) = account.get_mut("storage") {
            for value in storage.as_object_mut().expect("slots").values_mut() {
                *value = format!("0x{:0>64}", value.as_str().expect("text")).into();
            }
        }
    }
    json!({ "alloc": alloc }).to_string()
}

/// `clears` says whether anything is ever cleared.
fn check(chain: &Chain, clears: bool) {
    let folder = Folder::new();
    let mut first: Option<(Roots, Vec<_>)> = None;
    for every in ["1", "7", "all"] {
        let db = folder.path(every);
        let run = replay(chain, &["--db", &db, "--commit-every", every]);
        assert_sound(&db);
        let left = (run, [Table::Pages, Table::Meta, Table::History].map(|t| rows(&db, t)).into());
        let expected = first.get_or_insert_with(|| left.clone());
        assert!(*expected == left, "{every} blocks a commit: {:?}, {:?}", expected.0, left.0);
    }
    let ([mpt, ubt, pbt, verkle], _) = first.expect("three replays");
    assert_eq!(mpt, chain.root());
    // The tree that forgets has the root of what is there in the end.
    let alloc = folder.write("alloc.json", alloc_of(&chain.head_state));
    let of_state = |tree: &str| {
        let ran = spinney(&["state-root", "--tree", tree, &alloc]).exits(0);
        ran.out.trim().to_owned()
    };
    assert_eq!((of_state("mpt"), of_state("pbt:blake3")), (mpt, pbt));
    for (tree, root) in [("ubt:sha256", ubt), ("verkle", verkle)] {
        let differs = of_state(tree) != root;
        assert_eq!(differs, clears, "{tree}: zeros stay, and nothing else makes a difference");
    }
}

#[test]
fn all_forks_goes_into_all_trees_at_once() {
    if let Some(chain) = all_forks() {
        check(&chain, true);
    }
}

#[test]
fn chain_600_goes_into_all_trees_at_once() {
    if let Some(chain) = chain_600() {
        check(&chain, false);
    }
}

#[test]
fn a_store_of_several_trees_goes_on_and_back() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (db, half) = (folder.path("db"), folder.path("half"));
    let whole = replay(&chain, &["--db", &folder.path("whole")]);
    let at_half = replay(&chain, &["--db", &half, "--to", "100"]);
    replay(&chain, &["--db", &db, "--to", "60", "--commit-every", "7"]);
    assert_eq!(replay(&chain, &["--db", &db]), whole);
    let top = [Table::Pages, Table::Meta, Table::History].map(|table| rows(&db, table));
    let unwind = |to: &str| {
        let args = ["stage", "unwind", "--json", "--db", &db, "--to", to];
        spinney(&args).exits(0).data()
    };
    let back = unwind("100");
    for (tree, root) in NAMES.iter().zip(&at_half) {
        assert_eq!(back["roots"][tree], *root, "{tree}");
    }
    for table in [Table::Pages, Table::Meta] {
        assert!(rows(&db, table) == rows(&half, table), "{table}");
    }
    assert_sound(&db);
    let status = spinney(&["stage", "status", "--json", "--db", &db]).exits(0).data();
    assert_eq!((&status["roots"], &status["block"]), (&back["roots"], &100.into()));
    unwind("0");
    assert_sound(&db);
    assert_eq!(replay(&chain, &["--db", &db]), whole);
    for (table, rows_before) in [Table::Pages, Table::Meta, Table::History].iter().zip(&top) {
        assert!(rows(&db, *table) == *rows_before, "{table}");
    }
}

#[test]
fn differences_say_the_roots_of_any_tree() {
    let (Some(chain), Some(diffs)) = (all_forks(), shared("data/chains/all-forks/diffs.ndjson"))
    else {
        return;
    };
    let folder = Folder::new();
    let by_blocks = replay(&chain, &[]);
    let lines = std::fs::read_to_string(&diffs).expect("it can be read");
    let last = lines.lines().last().expect("a line");
    let with = |ubt: &str| {
        let mut diff: Value = serde_json::from_str(last).expect("it is JSON");
        diff["roots"] = json!({ "ubt:sha256": ubt, "pbt:blake3": by_blocks[2] });
        format!(
            "{}{diff}\n",
            lines.strip_suffix(last).or(lines.strip_suffix(&format!("{last}\n"))).unwrap()
        )
    };
    let good = folder.write("good", with(&by_blocks[1]));
    let bad = folder.write("bad", with(&by_blocks[2]));
    let replay = |diffs: &str, db: &str| {
        let args = ["replay", "-q", "--json", "--tree", TREES, "--genesis", &chain.genesis];
        spinney(&[&args[..], &["--diffs", diffs, "--db", db]].concat())
    };
    let db = folder.path("db");
    replay(&bad, &db).exits(1).refuses("block 213: root of ubt:sha256: expected");
    assert_sound(&db);
    assert_eq!(roots(&replay(&good, &db).exits(0).run()), by_blocks);
    // Where the store stands, the roots are compared too.
    replay(&bad, &db).exits(2).refuses("of ubt:sha256, the differences have");
}

#[test]
fn trees_of_a_store_are_named_together() {
    let folder = Folder::new();
    let db = folder.path("db");
    let replay = |trees: &str| {
        let more = ["--blocks-count", "3", "--db", &db, "--tree", trees];
        spinney(&[&["replay", "-q", "--json"][..], &more].concat())
    };
    replay("mpt,ubt:sha256,ubt:blake3").exits(2).refuses("ubt:sha256 and ubt:blake3 in one store");
    replay("mpt,mpt").exits(2).refuses("mpt and mpt in one store");
    replay("mpt,oak").exits(2).refuses("no tree oak");
    // In any order.
    replay("verkle,pbt:blake3,mpt,ubt:sha256").exits(0);
    for other in ["mpt", "mpt,ubt:sha256", "mpt,ubt:blake3,pbt:blake3"] {
        replay(other).exits(2).refuses(&format!("the store holds {TREES}, not {other}"));
    }
    replay(TREES).exits(0);
    let put = r#"{"put": {}}"#;
    for tree in ["mpt", "ubt:sha256"] {
        let ran = spinney_fed(&["root", "--tree", tree, "--db", &db, "-"], put);
        ran.exits(2).refuses("which would stay behind");
    }
    let plain = ["replay", "-q", "--tree", TREES, "--no-preimages"];
    spinney(&plain).exits(2).refuses("--no-preimages with several trees");
    assert_sound(&db);
}

#[test]
fn every_verb_looks_into_a_store_of_several_trees() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    let [_, ubt, pbt, _] = replay(&chain, &["--db", &db]);
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    assert_eq!(info["trees"].as_array().map(Vec::len), Some(NAMES.len()));
    let stats = spinney(&["db", "stats", "--json", "--db", &db]).exits(0).data();
    let trees = stats["trees"].as_array().expect("trees");
    let sum: u64 = trees.iter().map(|tree| tree["rows"].as_u64().unwrap()).sum();
    assert_eq!(stats["tables"][0]["rows"], sum, "each page is of one tree: {stats}");
    // A dump is of one tree; put into an empty one, its entries have the root.
    for (tree, root) in [("ubt:sha256", ubt), ("pbt:blake3", pbt)] {
        let dump = spinney(&["db", "dump", "--db", &db, "--tree", tree]).exits(0).out;
        let mut puts = serde_json::Map::new();
        for line in dump.lines() {
            let entry: Value = serde_json::from_str(line).expect("it is JSON");
            puts.insert(entry["key"].as_str().unwrap().to_owned(), entry["value"].clone());
        }
        let trace = format!("{}\n", json!({ "put": puts }));
        let ran = spinney_fed(&["root", "--tree", tree, "-"], &trace).exits(0);
        assert!(ran.out.contains(&root), "{tree}");
    }
    spinney(&["db", "dump", "--db", &db, "--tree", "pbt:sha256"])
        .exits(2)
        .refuses("holds no pbt:sha256");
    let witness = ["witness", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
    let witness = [&witness[..], &["--block", "7", "--tree", "ubt:sha256"]].concat();
    let witnessed = spinney(&witness).exits(0);
    assert!(witnessed.out.contains("\"tree\":\"ubt:sha256\""), "{witnessed:?}");
    // The dump of the first tree makes a store with all of them, of which replays go on.
    let (state, new) = (folder.path("state.json"), folder.path("new"));
    std::fs::write(&state, spinney(&["db", "dump", "--db", &db]).exits(0).out).unwrap();
    let import = |trees: &str| {
        let args = ["import", "state", "--json", "-q", "--db", &new, "--number", "213"];
        spinney(&[&args[..], &["--tree", trees, &state]].concat())
    };
    import(TREES).exits(0);
    assert_sound(&new);
    let of = |db: &str| {
        spinney(&["stage", "status", "--json", "--db", db]).exits(0).data()["roots"].clone()
    };
    let (imported, replayed) = (of(&new), of(&db));
    assert_eq!(
        (&imported["mpt"], &imported["pbt:blake3"]),
        (&replayed["mpt"], &replayed["pbt:blake3"])
    );
    assert_ne!(imported["ubt:sha256"], replayed["ubt:sha256"], "zeros are no part of a dump");
}

#[test]
fn a_store_without_mpt_is_filled_taken_back_and_proven() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (with, db) = (folder.path("with"), folder.path("db"));
    let trees = "pbt:blake3,verkle";
    let [_, _, pbt, verkle] = replay(&chain, &["--db", &with]);
    let run = |db: &str, more: &[&str]| {
        let args = [&["--tree", trees, "--db", db], more].concat();
        chain.replay(&args).exits(0).run()
    };
    let roots = |run: &Value| {
        let trees = run["trees"].as_array().expect("trees");
        let roots = trees.iter().map(|tree| tree["root"].as_str().expect("text").to_owned());
        roots.collect::<Vec<_>>()
    };
    let half = run(&db, &["--to", "100", "--commit-every", "7"]);
    let whole = run(&db, &[]);
    assert_eq!(roots(&whole), [pbt, verkle]);
    assert_eq!(whole["roots_checked"], 0);
    assert_eq!(whole["not_checked"], json!(["seals", "state roots"]));
    assert_sound(&db);
    let status = |db: &str| spinney(&["stage", "status", "--json", "--db", db]).exits(0).data();
    assert_eq!(status(&db)["oldest"], status(&with)["oldest"]);
    // An account of an earlier block is proven as beside mpt.
    let account = "0x17231B6Bb165B4D9c341A528C45ef655AC51Ba11";
    for block in ["60", "150", "213"] {
        let of = |db: &str| {
            let args = ["prove", "--db", db, "--tree", "pbt:blake3", "--verify", "--block", block];
            spinney(&[&args[..], &["--address", account]].concat()).exits(0).out
        };
        assert_eq!(of(&db), of(&with), "block {block}");
    }
    // Back, and on again.
    let args = ["stage", "unwind", "--json", "--db", &db, "--to", "100"];
    spinney(&[&args[..], &["--blocks", &chain.blocks]].concat()).exits(2).refuses("needs mpt");
    let back = spinney(&args).exits(0).data();
    assert_eq!(json!(roots(&half)), json!([back["roots"]["pbt:blake3"], back["roots"]["verkle"]]));
    assert_sound(&db);
    assert_eq!(roots(&run(&db, &[])), roots(&whole));
    // What only mpt knows says so; and it is no other tree's store.
    let dump = ["db", "dump", "--tree", "mpt", "--db", &db];
    spinney(&dump).exits(2).refuses("the store holds no mpt tree: it holds pbt:blake3, verkle");
    chain
        .replay(&["--tree", "mpt", "--db", &db])
        .exits(2)
        .refuses("the store holds pbt:blake3,verkle");
    // By differences and in chunks as well; their roots of mpt say nothing here.
    let Some(diffs) = shared("data/chains/all-forks/diffs.ndjson") else { return };
    let by_diffs = folder.path("diffs");
    let args = ["stage", "run", "-q", "--json", "--tree", trees, "--db", &by_diffs];
    let staged = spinney(&[&args[..], &["--genesis", &chain.genesis, "--diffs", &diffs]].concat());
    let staged = staged.exits(0).data();
    assert_eq!(
        json!(roots(&whole)),
        json!([staged["roots"]["pbt:blake3"], staged["roots"]["verkle"]])
    );
    // Slots that went and a tree that keeps them cannot be told apart: it is refused.
    let alone = folder.path("alone");
    let args = ["replay", "-q", "--genesis", &chain.genesis, "--blocks", &chain.blocks];
    let ran = spinney(&[&args[..], &["--tree", "ubt:sha256", "--db", &alone]].concat());
    ran.exits(2).refuses("is made again, and ubt:sha256 still holds slots of it");
    assert_sound(&alone);
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).expect("it is JSON")
}

/// Accounts, slots, chunks and raw keys, at the head and at a kept block; changed, they do not
/// hold.
#[test]
fn keys_and_accounts_are_proven_in_every_tree_of_words() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    let run = chain.replay(&["--tree", TREES, "--db", &db]).exits(0).run();
    let roots = roots(&run);
    let accounts = chain.head_state["accounts"].as_object().expect("accounts");
    let full = accounts.iter().find(|(_, held)| {
        held["storage"].is_object() && held["code"].as_str().is_some_and(|code| code.len() > 200)
    });
    let (address, account) = full.expect("a contract with storage");
    let slot = account["storage"].as_object().unwrap().keys().next().expect("a slot");
    for (tree, root) in NAMES.iter().zip(&roots).skip(1) {
        let prove =
            |args: &[&str]| spinney(&[&["prove", "--db", &db, "--tree", tree], args].concat());
        let verify = |root: &str, text: &str| {
            spinney_fed(&["verify", "--tree", tree, "--root", root, "-"], text)
        };
        let asked = [
            "--address",
            address,
            "--slot",
            slot,
            "--slot",
            "0x99",
            "--chunk",
            "0",
            "--chunk",
            "3",
        ];
        let proof = prove(&asked).exits(0).out;
        let document = json_of(&proof);
        assert_eq!(
            (&document["root"], &document["block"]),
            (&root.as_str().into(), &"0xd5".into())
        );
        let held = verify(root, &proof).exits(0);
        // The absence of a slot in a stem of its own is what a Verkle proof cannot show.
        let warned = held.err.lines().all(|line| *tree == "verkle" && line.contains("cannot show"));
        assert!(warned, "{held:?}");
        let nonce =
            format!("nonce {}, balance {}", account["nonce"], account["balance"].as_str().unwrap());
        assert!(held.out.contains(&nonce) && held.out.contains("chunk 3: 0x"), "{held:?}");
        assert!(held.out.contains(account["codeHash"].as_str().unwrap()), "{held:?}");
        let value = account["storage"][slot].as_str().unwrap().trim_start_matches('0');
        assert!(held.out.contains(&format!(": 0x{value}\n")), "{value} is not in {held:?}");
        assert!(held.out.contains("99: absent"), "{held:?}");

        // Any of the keys, and one that is not there, as raw keys.
        let key = document["keys"][0].as_str().unwrap();
        let absent = format!("{}{:02x}", &key[..key.len() - 2], 0xfe);
        let raw = prove(&[key, &absent]).exits(0).out;
        let held = verify(root, &raw).exits(0);
        assert!(held.out.contains(&format!("{key}: 0x")), "{held:?}");
        assert!(held.out.contains(&format!("{absent}: absent")), "{held:?}");

        // Nobody, and a block before all this.
        let nobody = "0x00000000000000000000000000000000deadbeef";
        let held = verify(root, &prove(&["--address", nobody]).exits(0).out).exits(0);
        assert!(held.out.ends_with(": absent\n"), "{held:?}");
        prove(&["--address", nobody, "--chunk", "0"]).exits(2).refuses("has no code");
        let old = prove(&["--address", address, "--block", "1"]).exits(0).out;
        let old_root = json_of(&old)["root"].as_str().unwrap().to_owned();
        assert_ne!(old_root, *root);
        let _ = verify(&old_root, &old).exits(0);
        verify(root, &old).exits(1).refuses("does not hold");
        prove(&["--address", nobody, "--block", "214"]).exits(2).refuses("no state of block 214");
        prove(&[key, key]).exits(2).refuses("given twice");
        prove(&["0x01", "--hash-keys"]).exits(2).refuses("--hash-keys is for mpt");

        changed(&document, root);
    }
    let prove = |args: &[&str]| spinney(&[&["prove", "--db", &db], args].concat());
    prove(&["--tree", "ubt:keccak", "0x01"]).exits(2).refuses("the store holds no ubt:keccak");
    prove(&["--address", address, "--chunk", "0"])
        .exits(2)
        .refuses("--chunk is for the trees that hold code");
    // At a kept block the root is that of a replay which ends there.
    let there = chain.replay(&["--tree", TREES, "--to", "77"]).exits(0).run();
    let there = self::roots(&there);
    for (tree, root) in NAMES.iter().zip(&there).skip(1) {
        let old = prove(&["--tree", tree, "--address", address, "--block", "77"]).exits(0).out;
        assert_eq!(json_of(&old)["root"], *root.as_str());
    }
}

/// Blocks of a test network carry proofs in go-verkle's JSON.
#[test]
fn witnesses_of_verkle_blocks_are_verified() {
    let Some(cases) = shared("vectors/verkle/upstream/block_proof_cases.json") else { return };
    let cases = json_of(&std::fs::read_to_string(cases).unwrap());
    let mut after = 0;
    for case in cases["cases"].as_array().expect("cases") {
        let file = format!("vectors/verkle/upstream/{}", case["file"].as_str().unwrap());
        let Some(file) = shared(&file) else { continue };
        let block = json_of(&std::fs::read_to_string(&file).unwrap());
        let root = case["pre_state_root"].as_str().unwrap();
        let ran = spinney(&["verify", "--root", root, &file]);
        if case["valid"] == false {
            ran.exits(1).refuses("does not hold");
            continue;
        }
        let held = ran.exits(0);
        let next = block["header"]["stateRoot"].as_str().unwrap();
        after += usize::from(held.out.ends_with(&format!("root after it: {next}\n")));
        // The witness by itself, and in part.
        let mut witness = block["executionWitness"].clone();
        let alone = spinney_fed(&["verify", "--root", root, "-"], &witness.to_string()).exits(0);
        assert_eq!(alone.out, held.out);
        let diff = witness["stateDiff"].as_array_mut().unwrap();
        diff.pop();
        let nothing = diff.is_empty();
        let part = spinney_fed(&["verify", "--root", root, "-"], &witness.to_string());
        match nothing {
            true => part.exits(2).refuses("it claims nothing"),
            false => part.exits(1).refuses("does not hold"),
        };
    }
    // Another block writes more than its witness tells.
    assert_eq!(after, 1);
}

/// What is changed in a document is refused: 1 where it does not hold, 2 where it is none.
fn changed(document: &Value, root: &str) {
    let verify = |document: &Value| {
        let text = document.to_string();
        let ran = spinney_fed(&["verify", "--root", root, "-"], &text);
        assert!(matches!(ran.code, Some(1 | 2)), "{text}: {ran:?}");
        assert!(ran.out.is_empty() && !ran.err.contains("panicked"), "{text}: {ran:?}");
        ran
    };
    let proof = document["proof"].as_str().unwrap();
    let step = (proof.len() / 8).max(1);
    for at in (2..proof.len()).step_by(step) {
        let mut bytes = proof.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        let mut other = document.clone();
        other["proof"] = String::from_utf8(bytes).unwrap().into();
        verify(&other);
    }
    for cut in [proof.len() - 2, 2] {
        let mut other = document.clone();
        other["proof"] = proof[..cut].into();
        verify(&other);
    }
    let set = |path: &str, value: Value| {
        let mut other = document.clone();
        *other.pointer_mut(path).expect("it is there") = value;
        verify(&other)
    };
    let word = format!("0x{}", "01".repeat(32));
    set("/values/0", word.clone().into()).exits(1);
    set("/values/0", Value::Null).exits(1);
    set("/values/0", "0x01".into()).exits(2).refuses("a value of 1 bytes");
    set("/address", "0x00000000000000000000000000000000deadbeef".into())
        .exits(1)
        .says("not those of account");
    set("/slots/0", word.into()).exits(1).says("not those of account");
    set("/chunks/0", 1.into()).exits(1).says("not those of account");
    set("/tree", "pbt:sha256".into()).exits(1);
    set("/tree", "mpt".into()).exits(2).refuses("its proof is one string, and its tree is mpt");
    set("/proof", json!([])).exits(2).refuses("its proof is a list of nodes");
    set("/proof", json!(7)).exits(2).refuses("a list of nodes, or a proof as one string of hex");
    set("/values", json!([])).exits(2).refuses("keys and 0 values");
    set("/keys/1", document["keys"][0].clone()).exits(1).says("claimed twice");
    for field in ["keys", "values", "proof"] {
        let mut other = document.clone();
        other.as_object_mut().unwrap().remove(field);
        verify(&other).exits(2).refuses(&format!("it has no {field}"));
    }
}
