//! `import state` and `db load`: stores made from documents.

use alloy_primitives::{Address, KECCAK256_EMPTY};
use spinney_tree::Table;

use crate::support::{
    Chain, Folder, all_forks, assert_sound, chain_600, command, is_store, pages, rows, shared,
    spinney, spinney_fed,
};

/// A dump of a chain's state at a block, and the store it is of.
fn dumped(chain: &Chain, folder: &Folder, number: u64) -> (String, String) {
    let db = folder.path("whole");
    chain.replay(&["--db", &db, "--to", &number.to_string()]).exits(0);
    let dump = spinney(&["db", "dump", "--db", &db]).exits(0).out;
    (folder.write("dump", dump), db)
}

fn block_hash(db: &str) -> String {
    let data = spinney(&["stage", "status", "--json", "--db", db]).exits(0).data();
    data["block_hash"].as_str().expect("text").to_owned()
}

/// The blocks of a chain from one on.
fn blocks_from(chain: &Chain, folder: &Folder, first: u64) -> String {
    let bytes = std::fs::read(&chain.blocks).expect("it can be read");
    let mut later = Vec::new();
    for block in spinney_replay::ChainReader::new(&bytes[..]).expect("it can be read") {
        let block = block.expect("it is a block");
        if block.block.header.number >= first {
            later.extend(block.to_rlp());
        }
    }
    folder.write(&format!("from-{first}"), later)
}

#[test]
fn a_dump_is_loaded_as_it_was() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (dump, whole) = dumped(&chain, &folder, 150);
    let db = folder.path("db");
    let data = spinney(&["db", "load", "--json", "-q", "--db", &db, &dump]).exits(0).data();
    assert_eq!((&data["block"], &data["root_checked"]), (&150.into(), &true.into()));
    assert_sound(&db);
    let again = spinney(&["db", "dump", "--db", &db]).exits(0).out;
    assert_eq!(again, std::fs::read_to_string(&dump).unwrap());
    assert_eq!(pages(&db), pages(&whole));
    // Not every code of the chain is still some account's.
    let codes = rows(&whole, Table::Codes);
    assert!(rows(&db, Table::Codes).iter().all(|row| codes.contains(row)));
    let run = chain.replay(&["--db", &db]).exits(0).run();
    assert_eq!((&run["blocks"], &run["root"]), (&63.into(), &chain.root().into()));
    spinney(&["db", "load", "--db", &db, &dump]).exits(2).refuses("there is a store already");
}

#[test]
fn a_replay_starts_at_any_block() {
    for (chain, anchor) in [(all_forks(), 180), (chain_600(), 299)] {
        let Some(chain) = chain else { return };
        let folder = Folder::new();
        let (dump, whole) = dumped(&chain, &folder, anchor);
        let (number, hash) = (anchor.to_string(), block_hash(&whole));
        let db = folder.path("db");
        let import = ["import", "state", "--json", "-q", "--db", &db, "--number", &number];
        spinney(&[&import[..], &["--hash", &hash, &dump]].concat()).exits(0);
        let replay = |first: u64| {
            let blocks = blocks_from(&chain, &folder, first);
            let input = ["replay", "--json", "-q", "--genesis", &chain.genesis];
            spinney(&[&input[..], &["--blocks", &blocks, "--db", &db]].concat())
        };
        let _ = replay(anchor + 1).exits(2).refuses("the blocks have none there");
        let run = replay(anchor).exits(0).run();
        assert_eq!((&run["root"], &run["head"]), (&chain.root().into(), &chain.block_count.into()));
        assert_eq!(run["blocks"], chain.block_count - anchor);
        assert_sound(&db);
        // Back to the anchor, and not beyond.
        spinney(&["stage", "unwind", "--db", &db, "--to", &number]).exits(0);
        assert_eq!(pages(&db), pages(&whole));
        let before = (anchor - 1).to_string();
        let refused = spinney(&["stage", "unwind", "--db", &db, "--to", &before]).exits(2);
        let _ = refused.refuses("it has that of block");
    }
}

/// A state that is not that of its block is found before a block is executed on it, and no block is
/// blamed.
#[test]
fn the_state_of_another_block_is_not_replayed_on() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (dump, whole) = dumped(&chain, &folder, 180);
    let hash = block_hash(&whole);
    let mut other: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&dump).unwrap()).unwrap();
    let members = other.as_object_mut().unwrap();
    let right = format!("0x{}", members.remove("root").unwrap().as_str().unwrap());
    let accounts = members["accounts"].as_object_mut().unwrap();
    accounts.values_mut().next().unwrap()["balance"] = "12345".into();
    let other = folder.write("other", other.to_string());
    let db = folder.path("db");
    let import = ["import", "state", "--json", "-q", "--number", "180", "--hash", &hash];
    let data = spinney(&[&import[..], &["--db", &db, &other]].concat()).exits(0).data();
    let wrong = data["root"].as_str().unwrap();
    assert_ne!(wrong, right);
    let before = pages(&db);
    for first in [1, 100, 180] {
        let blocks = blocks_from(&chain, &folder, first);
        let args = ["replay", "--json", "-q", "--genesis", &chain.genesis, "--blocks", &blocks];
        let ran = spinney(&[&args[..], &["--db", &db]].concat()).exits(1);
        let ran = ran.refuses("the state at block 180 is not that of the block's header");
        let _ = ran.says(&format!("expected {right}, got {wrong}")).says("import it again");
    }
    assert_eq!(pages(&db), before);
}

#[test]
fn another_allocation_is_not_the_genesis() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let whole = folder.path("whole");
    chain.replay(&["--db", &whole, "--to", "1"]).exits(0);
    spinney(&["stage", "unwind", "--db", &whole, "--to", "0"]).exits(0);
    let hash = block_hash(&whole);
    let alloc = r#"{"alloc": {"0x00000000000000000000000000000000000000aa": {"balance": "5"}}}"#;
    let db = folder.path("db");
    let import = ["import", "state", "--number", "0", "--hash", &hash, "--db", &db, "-"];
    spinney_fed(&import, alloc).exits(0);
    let ran = chain.replay(&["--db", &db]).exits(1);
    let _ = ran.refuses("the state at block 0 is not that").says("import it again");
    let import = ["import", "state", "-q", "--number", "0", "--hash", &hash, "--db"];
    let db = folder.path("right");
    spinney(&[&import[..], &[&db, &chain.genesis]].concat()).exits(0);
    assert_eq!(chain.replay(&["--db", &db]).exits(0).run()["root"], chain.root());
}

#[test]
fn differences_follow_an_allocation() {
    let (Some(chain), Some(diffs)) = (all_forks(), shared("data/chains/all-forks/diffs.ndjson"))
    else {
        return;
    };
    let folder = Folder::new();
    let db = folder.path("db");
    let import = ["import", "state", "--json", "-q", "--number", "0", "--db", &db, &chain.genesis];
    assert_eq!(spinney(&import).exits(0).data()["root_checked"], false);
    let args = ["replay", "--json", "-q", "--diffs", &diffs, "--db", &db];
    assert_eq!(spinney(&args).exits(0).run()["root"], chain.root());
    chain.replay(&["--db", &db]).exits(2).refuses("whose hash it was not told");
}

#[test]
fn what_is_refused_leaves_no_store() {
    let folder = Folder::new();
    let db = folder.path("db");
    let account = "0x00000000000000000000000000000000000000aa";
    let good = format!(r#"{{"alloc": {{"{account}": {{"balance": "5"}}}}}}"#);
    let twice = format!(
        r#"{{"alloc": {{"{account}": {{"balance": "5"}}, "{account}": {{"balance": "6"}}}}}}"#
    );
    let root = "0x1111111111111111111111111111111111111111111111111111111111111111";
    let other = "0x2222222222222222222222222222222222222222222222222222222222222222";
    let dump = format!(r#"{{"block": {{"number": 7, "hash": "{root}"}}, {}"#, &good[1..]);
    let refuse = |args: &[&str], input: &str, code: i32, what: &str| {
        let import = [&["import", "state", "--db", &db], args, &["-"]].concat();
        let _ = spinney_fed(&import, input).exits(code).refuses(what);
        spinney(&["db", "info", "--db", &db]).exits(2).refuses("there is no store at");
    };
    refuse(&["--number", "1"], "", 2, "EOF");
    refuse(&["--number", "1"], "{}", 2, "neither accounts nor alloc");
    refuse(&["--number", "1"], &good[..good.len() - 1], 2, "EOF");
    refuse(&["--number", "1"], &twice, 2, "AA is given twice");
    refuse(&["--number", "1", "--root", root], &good, 1, "state root: expected 0x1111");
    refuse(&["--number", "8"], &dump, 2, "the document says number 7, and --number is 8");
    refuse(&["--number", "7", "--hash", other], &dump, 2, "the document says hash 0x1111");
    let load = |input: &str, what: &str| {
        let _ = spinney_fed(&["db", "load", "--db", &db, "-"], input).exits(2).refuses(what);
        spinney(&["db", "info", "--db", &db]).exits(2).refuses("there is no store at");
    };
    load(&good, "does not say which block");
    load(&dump, "the dump has no root");
    let line = r#"{"key":"0x646f65","value":"0x01"}"#;
    load(&format!("{line}\n{line}"), "line 2: its key does not come after the one before");
    load(&format!("{line}\n{{}}"), "line 2: missing field `key`");
    load(r#"{"key":"0x646f65","value":"0x"}"#, "line 1: its value is empty");
    load(r#"{"key":"0x646f65","value":1}"#, "line 1: invalid type");
    refuse(&["--number", "1"], line, 2, "neither accounts nor alloc");

    let file = folder.write("file", "text");
    let into_file = ["import", "state", "--number", "1", "--db", &file, "-"];
    spinney_fed(&into_file, &good).exits(2).refuses("is not a spinney store");
    assert_eq!(std::fs::read(&file).unwrap(), b"text");
    let args = ["import", "state", "--db", &db, "--number", "7", "--hash", root, "-"];
    let data = spinney_fed(&[&args[..], &["--json"]].concat(), &dump).exits(0).data();
    assert_eq!((&data["block"], &data["block_hash"]), (&7.into(), &root.into()));
    assert_sound(&db);
}

/// Without the code the root is right, and a replay would fail at the first call.
#[test]
fn code_that_is_not_there_is_not_imported() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (dump, _) = dumped(&chain, &folder, 180);
    let mut dump: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&dump).unwrap()).unwrap();
    let accounts = dump["accounts"].as_object_mut().unwrap();
    let (address, account) =
        accounts.iter_mut().find(|(_, account)| account.get("code").is_some()).unwrap();
    let (address, hash) = (address.clone(), account["codeHash"].as_str().unwrap().to_owned());
    account.as_object_mut().unwrap().remove("code");
    let what = format!("account {address} has the code hash {hash}, and no code");
    let file = folder.write("no-code", dump.to_string());
    let db = folder.path("db");
    let import = ["import", "state", "-q", "--number", "180", "--db", &db, &file];
    let _ = spinney(&import).exits(2).refuses(&what).says("db load");
    spinney(&["db", "info", "--db", &db]).exits(2).refuses("there is no store at");
    // A dump of what state differences made may lack it; dumped again, it is the same, if that is
    // meant.
    spinney(&["db", "load", "-q", "--db", &db, &file]).exits(0);
    let refused = spinney(&["db", "dump", "--db", &db]).exits(2);
    refused.refuses(&format!("the code of account {address}")).says("--allow-missing-code");
    let again = spinney(&["db", "dump", "--allow-missing-code", "--db", &db]).exits(0).out;
    assert_eq!(serde_json::from_str::<serde_json::Value>(&again).unwrap(), dump);
    // The code hash of no code needs none.
    let empty = KECCAK256_EMPTY;
    let plain = format!(r#"{{"alloc": {{"{}": {{"codeHash": "{empty}"}}}}}}"#, Address::ZERO);
    let db = folder.path("plain");
    spinney_fed(&["import", "state", "--number", "1", "--db", &db, "-"], &plain).exits(0);
}

#[test]
fn a_dump_of_a_raw_tree_is_loaded_as_it_was() {
    let folder = Folder::new();
    let (whole, db) = (folder.path("whole"), folder.path("db"));
    let puts: Vec<_> = (0..500).map(|key| format!(r#""0x{key:08x}": "0x{key:066x}""#)).collect();
    let trace = folder.write("trace", format!(r#"{{"put": {{{}}}}}"#, puts.join(", ")));
    let root = spinney(&["root", "--db", &whole, &trace]).exits(0).out;
    let dump = spinney(&["db", "dump", "--db", &whole]).exits(0).out;
    let ran = spinney_fed(&["db", "load", "--json", "--db", &db, "-"], &dump).exits(0);
    let data = ran.data();
    assert_eq!((&data["entries"], &data["root_checked"]), (&500.into(), &false.into()));
    assert!(root.contains(data["root"].as_str().unwrap()), "{root} {data}");
    assert_eq!(spinney(&["db", "dump", "--db", &db]).exits(0).out, dump);
    assert_eq!(pages(&db), pages(&whole));
    assert_sound(&db);
}

/// Killed at any moment, there is no store, or a whole one; and the next import succeeds.
#[test]
fn a_killed_import_leaves_no_store() {
    let Some(genesis) = shared("data/genesis/mainnet.json") else { return };
    let root = "0xd7f8974fb5ac78d9ac099b9ad5018bedc2ce0a72dad1827a1709da30580f0544";
    let folder = Folder::new();
    let db = folder.path("db");
    let args =
        ["import", "state", "-q", "--json", "--number", "0", "--root", root, "--db", &db, &genesis];
    let started = std::time::Instant::now();
    let warm = folder.path("warm");
    let mut first = args;
    first[9] = &warm;
    spinney(&first).exits(0);
    let whole = started.elapsed();
    let mut unseen = 0;
    for part in 1..8 {
        let mut child = command(&args).stdout(std::process::Stdio::null()).spawn().unwrap();
        std::thread::sleep(whole * part / 8);
        child.kill().unwrap();
        child.wait().unwrap();
        if spinney(&["db", "info", "--db", &db]).code == Some(0) {
            break;
        }
        unseen += 1;
    }
    assert!(unseen > 0, "no import was cut off");
    if !is_store(&db) {
        spinney(&args).exits(0);
    }
    assert_sound(&db);
    assert_eq!(pages(&db), pages(&warm));
}

#[test]
fn a_store_is_compacted_and_says_by_how_much() {
    let folder = Folder::new();
    let db = folder.path("db");
    spinney(&["replay", "-q", "--blocks-count", "20", "--commit-every", "1", "--db", &db]).exits(0);
    spinney(&["stage", "unwind", "--db", &db, "--to", "0"]).exits(0);
    let pages = rows(&db, Table::Pages);
    let stats = || spinney(&["db", "stats", "--json", "--db", &db]).exits(0).data();
    let before = stats();
    let data = spinney(&["db", "compact", "--json", "--db", &db]).exits(0).data();
    let after = stats();
    assert_eq!(
        (&data["bytes_before"], &data["bytes_after"]),
        (&before["file_bytes"], &after["file_bytes"])
    );
    assert!(after["file_bytes"].as_u64() < before["file_bytes"].as_u64(), "{before} {after}");
    assert!(after["unused_bytes"].as_u64() < before["unused_bytes"].as_u64(), "{before} {after}");
    assert_eq!(rows(&db, Table::Pages), pages);
    assert_sound(&db);
    spinney(&["db", "compact", "--db", &folder.path("no")]).exits(2).refuses("there is no store");
}
