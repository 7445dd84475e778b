//! `replay`: going on, and all that it refuses.

use spinney_replay::{BlockDiff, ChainReader};

use crate::support::{Chain, Folder, all_forks, assert_sound, chain_600, shared, spinney};

#[test]
fn a_store_goes_on_where_it_stands() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    let first = chain.replay(&["--db", &db, "--to", "100"]).exits(0).run();
    assert_eq!((&first["blocks"], &first["head"]), (&100.into(), &100.into()));
    let second = chain.replay(&["--db", &db]).exits(0).run();
    assert_eq!((&second["blocks"], &second["head"]), (&113.into(), &213.into()));
    assert_eq!(second["root"], chain.root());
    let third = chain.replay(&["--db", &db]).exits(0).run();
    assert_eq!((&third["blocks"], &third["head"]), (&0.into(), &213.into()));
    assert_sound(&db);
    chain.replay(&["--db", &db, "--to", "5"]).exits(2).refuses("at block 213, past --to 5");
}

#[test]
fn blocks_and_differences_can_take_turns_as_far_as_hashes_go() {
    let (Some(chain), Some(diffs)) = (all_forks(), shared("data/chains/all-forks/diffs.ndjson"))
    else {
        return;
    };
    let folder = Folder::new();
    let db = folder.path("db");
    chain.replay(&["--db", &db, "--to", "100"]).exits(0);
    let by_diffs = ["replay", "--json", "--diffs", &diffs, "--db", &db];
    let run = spinney(&by_diffs).exits(0).says("stands at block 100").run();
    assert_eq!((&run["blocks"], &run["root"]), (&113.into(), &chain.root().into()));
    chain.replay(&["--db", &db]).exits(2).refuses("name no block hash");
}

/// The chain with another state root in one of its headers.
fn with_bad_root(chain: &Chain, number: u64, folder: &Folder) -> (String, String) {
    let bytes = std::fs::read(&chain.blocks).expect("it can be read");
    let (mut bad, mut hash) = (Vec::new(), String::new());
    for block in ChainReader::new(&bytes[..]).expect("it can be read") {
        let mut block = block.expect("it is a block");
        if block.block.header.number == number {
            block.block.header.state_root.0[5] ^= 1;
            hash = block.block.header.hash_slow().to_string();
        }
        bad.extend(block.to_rlp());
    }
    (folder.write("bad.rlp", bad), hash)
}

#[test]
fn a_bad_block_is_named_and_leaves_nothing() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (blocks, hash) = with_bad_root(&chain, 150, &folder);
    let db = folder.path("db");
    let args = ["replay", "--json", "--genesis", &chain.genesis, "--blocks", &blocks, "--db", &db];
    let ran = spinney(&args)
        .exits(1)
        .refuses(&format!("block 150 ({hash})"))
        .refuses("state root: expected 0x")
        .refuses(", got 0x")
        .says("nothing of it is in the store: the file may be damaged there")
        .says("export the chain again");
    assert!(ran.out.contains(r#""success":false"#) && ran.out.contains(&hash), "{ran:?}");
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    assert_eq!(info["trees"][0]["block"], 149);
    assert_sound(&db);
    // The genesis is in doubt where the very first block is bad.
    let (first, _) = with_bad_root(&chain, 1, &folder);
    let args = ["replay", "--genesis", &chain.genesis, "--blocks", &first];
    let _ = spinney(&args).exits(1).says("is the genesis that of this chain?");
    // The good chain goes on from there.
    let run = chain.replay(&["--db", &db]).exits(0).run();
    assert_eq!((&run["blocks"], &run["root"]), (&64.into(), &chain.root().into()));
}

#[test]
fn a_bad_difference_is_named_and_leaves_nothing() {
    let (Some(chain), Some(diffs)) = (all_forks(), shared("data/chains/all-forks/diffs.ndjson"))
    else {
        return;
    };
    let lines = std::fs::read_to_string(diffs).expect("it can be read");
    let mut lines: Vec<_> = lines.lines().map(str::to_owned).collect();
    let mut diff = BlockDiff::parse(lines[41].as_bytes()).expect("it is a difference");
    diff.state_root = diff.state_root.map(|root| !root);
    lines[41] = diff.to_line();
    let folder = Folder::new();
    let (bad, db) = (folder.write("bad", lines.join("\n")), folder.path("db"));
    let args = ["replay", "--diffs", &bad, "--alloc", &chain.genesis, "--db", &db];
    spinney(&args).exits(1).refuses("block 42: state root: expected 0x");
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    assert_eq!(info["trees"][0]["block"], 41);
    assert_sound(&db);
}

#[test]
fn another_chains_store_is_refused() {
    let (Some(one), Some(other)) = (all_forks(), chain_600()) else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    one.replay(&["--db", &db]).exits(0);
    // The genesis says so at once, the blocks alone where they get to the store's.
    other.replay(&["--db", &db]).exits(2).refuses("the store was filled from the genesis 0x");
    let genesis = ["--genesis", &one.genesis, "--blocks", &other.blocks, "--db", &db];
    spinney(&[&["replay"], &genesis[..]].concat()).exits(1).refuses("parent hash");
    let diffs = folder.write("diffs", "");
    let by_diffs = ["replay", "--genesis", &other.genesis, "--diffs", &diffs, "--db", &db];
    spinney(&by_diffs).exits(2).refuses("the store was filled from the genesis 0x");
    let begun = folder.path("begun");
    one.replay(&["--db", &begun, "--to", "0"]).exits(0);
    other.replay(&["--db", &begun]).exits(2).refuses("the store was filled from the genesis 0x");
    one.replay(&["--db", &begun]).exits(0);
}

#[test]
fn a_sample_chain_needs_no_files_and_is_the_same_each_time() {
    let folder = Folder::new();
    let db = folder.path("db");
    let args = ["replay", "--json", "-q", "--seed", "7", "--blocks-count", "5"];
    let once = spinney(&args).exits(0).run();
    let again = spinney(&[&args[..], &["--db", &db]].concat()).exits(0).run();
    assert_eq!(once["blocks"], 5);
    assert_eq!(once["root"], again["root"]);
    assert!(once["transactions"].as_u64() > Some(50), "{once}");
    let parts = [
        "execution",
        "sender_recovery",
        "key_hashing",
        "tree",
        "encode",
        "store",
        "read",
        "history",
    ];
    for part in parts {
        assert!(once["times"][part].as_f64() >= Some(0.0), "{part}: {once}");
    }
    assert_sound(&db);
}

#[test]
fn reports_come_as_table_csv_and_events() {
    let args = ["replay", "-q", "--blocks-count", "2"];
    let table = spinney(&[&args[..], &["--format", "table"]].concat()).exits(0);
    for row in ["roots checked", "bytes written", "sender recovery", "head", "CPU time"] {
        assert!(table.out.contains(row), "{row}: {table:?}");
    }
    let csv = spinney(&[&args[..], &["--format", "csv"]].concat()).exits(0);
    let lines: Vec<_> = csv.out.lines().collect();
    assert_eq!(lines.len(), 2);
    assert!(lines[0].starts_with("tree,store,blocks,") && lines[1].starts_with("mpt,memory,2,"));
    let events = spinney(&[&args[..], &["--events", "--commit-every", "1"]].concat()).exits(0);
    assert_eq!(events.run()["blocks"], 2);
    let committed = events.out.lines().filter(|line| line.contains(r#""event":"committed""#));
    assert_eq!(committed.count(), 2, "{events:?}");
    assert_eq!(events.err, "");
}

#[test]
fn without_preimages_there_is_no_dump() {
    let folder = Folder::new();
    let db = folder.path("db");
    let args = ["replay", "-q", "--blocks-count", "1", "--no-preimages", "--db", &db];
    spinney(&args).exits(0);
    assert_sound(&db);
    spinney(&["db", "dump", "--db", &db]).exits(2).refuses("no preimage").says("--no-preimages");
}

#[test]
fn what_makes_no_sense_is_refused_before_a_store_is_made() {
    let folder = Folder::new();
    let db = folder.path("db");
    let missing = folder.path("missing");
    let text = folder.write("text", "no genesis");
    let refuse = |args: &[&str], what: &str| {
        let _ = spinney(&[&["replay"], args].concat()).exits(2).refuses(what);
        assert!(!std::path::Path::new(&db).exists(), "{args:?}");
    };
    refuse(&["--tree", "pbt:blake3,", "--db", &db], "there is no tree  (--tree)");
    refuse(&["--tree", "oak", "--db", &db], "there is no tree oak");
    refuse(&["--store", "paper", "--db", &db], "there is no store paper");
    refuse(&["--store", "memory", "--db", &db], "a store in memory has no place");
    refuse(&["--store", "redb"], "needs a directory");
    refuse(&["--genesis", &missing, "--blocks", &missing, "--db", &db], "cannot open");
    refuse(&["--genesis", &text, "--blocks", &text, "--db", &db], &text);
    refuse(&["--genesis", &text, "--db", &db], "a genesis alone is no chain");
    for args in [
        &["replay", "--commit-every", "0"][..],
        &["replay", "--cache", "much"],
        &["replay", "--blocks", "x"],
        &["replay", "--diffs", "x", "--blocks", "y", "--genesis", "z"],
        &["replay", "--alloc", "x"],
        &["replay", "--seed", "1", "--diffs", "x"],
        &["rplay"],
        &[],
    ] {
        let ran = spinney(args).exits(2);
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{ran:?}");
    }
    let Some(diffs) = shared("data/chains/all-forks/diffs.ndjson") else { return };
    spinney(&["replay", "--diffs", &diffs]).exits(2).refuses("nothing to start from");
}

#[test]
fn a_replay_says_what_it_does_not_check() {
    let Some(chain) = all_forks() else { return };
    let args = ["replay", "--genesis", &chain.genesis, "--blocks", &chain.blocks, "--to", "5"];
    let table = spinney(&[&args[..], &["--format", "table"]].concat()).exits(0);
    assert!(table.out.contains("not checked"));
    let data = spinney(&[&args[..], &["--format", "json"]].concat()).exits(0).data();
    assert_eq!(data["runs"][0]["not_checked"], serde_json::json!(["seals"]));
}

/// A block that does not decode is a bad block.
#[test]
fn a_block_that_does_not_decode_is_bad() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let mut bytes = std::fs::read(&chain.blocks).expect("it can be read");
    // The header's list within the first block's becomes a string.
    assert_eq!((bytes[0], bytes[3]), (0xf9, 0xf9));
    bytes[3] = 0xb9;
    let bad = folder.write("bad", &bytes);
    let args = ["replay", "--genesis", &chain.genesis, "--blocks", &bad];
    let _ = spinney(&args).exits(1).refuses(&format!("reading {bad}")).says("block at byte 0");
    let stray = folder.write("stray", [0x01]);
    let args = ["replay", "--genesis", &chain.genesis, "--blocks", &stray];
    let _ = spinney(&args).exits(1).refuses(&format!("reading {stray}")).says("expected a block");
}

#[test]
fn a_chain_that_is_cut_off_is_kept_up_to_there() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    let bytes = std::fs::read(&chain.blocks).expect("it can be read");
    let cut = folder.write("cut", &bytes[..bytes.len() - 10]);
    let args = ["replay", "--genesis", &chain.genesis, "--blocks", &cut, "--db", &db];
    let _ = spinney(&args).exits(1).refuses(&format!("reading {cut}")).says("is cut off");
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    assert_eq!(info["trees"][0]["block"], 212);
}
