//! `stage run` of blocks and of state differences; `stage dump` of a range of them.

use spinney_tree::Table;

use crate::support::{Chain, Folder, all_forks, assert_sound, chain_600, pages, rows, spinney};

/// Ways to cut and to build: pages and history depend on none of them.
const WAYS: [&[&str]; 6] = [
    &["--chunk-blocks", "1", "--incremental"],
    &["--chunk-blocks", "7"],
    &["--chunk-blocks", "31", "--rebuild"],
    &["--chunk-changes", "50"],
    &["--chunk-bytes", "10k", "--memory", "2k"],
    &["--rebuild", "--memory", "20k", "--range-leaves", "9", "--in-flight", "3"],
];

/// P12, P13, P21 and P22: a chain in chunks, taken back to the middle, and run again.
fn check(chain: &Chain, ways: &[&[&str]], middle: u64) {
    let folder = Folder::new();
    let (whole, half) = (folder.path("whole"), folder.path("half"));
    let all = ["--keep-undo", "all"];
    chain.replay(&[&["--db", &whole], &all[..]].concat()).exits(0);
    chain.replay(&["--db", &half, "--to", &middle.to_string()]).exits(0);
    let (top, below) = (pages(&whole), pages(&half));
    let tables = [Table::History, Table::Preimages, Table::Codes];
    let beside = tables.map(|table| rows(&whole, table));
    for (number, way) in ways.iter().enumerate() {
        let db = folder.path(&format!("way-{number}"));
        let more = [*way, &all].concat();
        let data = chain.stage(&db, &more).exits(0).data();
        assert_eq!(
            (&data["root"], &data["block"]),
            (&chain.root().into(), &chain.block_count.into())
        );
        assert!(pages(&db) == top && tables.map(|table| rows(&db, table)) == beside, "{way:?}");
        assert_sound(&db);
        let to = middle.to_string();
        spinney(&["stage", "unwind", "--json", "--db", &db, "--to", &to]).exits(0);
        assert!(pages(&db) == below, "{way:?}");
        let data = chain.stage(&db, &more).exits(0).data();
        assert_eq!(data["blocks"], chain.block_count - middle);
        assert!(pages(&db) == top && tables.map(|table| rows(&db, table)) == beside, "{way:?}");
        // There is nothing left to do.
        assert_eq!(chain.stage(&db, &more).exits(0).data()["blocks"], 0);
        assert!(!std::path::Path::new(&format!("{db}.leaves")).exists());
    }
    dumped(chain, &folder, (&whole, middle));
}

/// P13: a range of blocks with the state before it, and on from there by chunks.
fn dumped(chain: &Chain, folder: &Folder, (whole, middle): (&str, u64)) {
    let (from, to) = (middle + 1, middle + 60);
    let (upto, dump, lines) = (folder.path("upto"), folder.path("dump"), folder.path("lines"));
    chain.replay(&["--db", &upto, "--to", &to.to_string()]).exits(0);
    let (from, to) = (from.to_string(), to.to_string());
    let args = ["stage", "dump", "-q", "--json", "--db", whole, "--into", &dump];
    let range = ["--from", &from, "--to", &to, "--diffs-out", &lines, "--memory", "60k"];
    spinney(&[&args[..], &range].concat()).exits(0);
    let run = ["stage", "run", "-q", "--json", "--db", &dump, "--diffs", &lines];
    for (chunk, way) in [("7", "--incremental"), ("all", "--rebuild")] {
        let data = spinney(&[&run[..], &["--chunk-blocks", chunk, way]].concat()).exits(0).data();
        assert_eq!((data["block"].to_string(), &data["blocks"]), (to.clone(), &60.into()));
        assert!(pages(&dump) == pages(&upto));
        assert_sound(&dump);
        spinney(&["stage", "unwind", "--json", "--db", &dump, "--to", &middle.to_string()])
            .exits(0);
    }
    spinney(
        &[&args[..6], &["--into", &upto, "--from", "9", "--to", "8", "--diffs-out", &lines]]
            .concat(),
    )
    .exits(2);
}

#[test]
fn p13_p21_p22_all_forks_in_chunks() {
    if let Some(chain) = all_forks() {
        check(&chain, &WAYS, 106);
    }
}

#[test]
fn p13_p21_p22_chain_600_in_chunks() {
    if let Some(chain) = chain_600() {
        check(&chain, &WAYS[3..5], 300);
    }
}

/// State differences in chunks; the trees beside have a layer a block, so that what was zeroed
/// leaves its mark.
#[test]
fn p22_differences_and_several_trees_in_chunks() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let diffs =
        crate::support::shared("data/chains/all-forks/diffs.ndjson").expect("beside the chain");
    let (whole, several) = (folder.path("whole"), folder.path("several"));
    chain.replay(&["--db", &whole]).exits(0);
    for chunk in ["1", "7", "all"] {
        let db = folder.path(&format!("diffs-{chunk}"));
        let args = ["stage", "run", "--json", "-q", "--db", &db, "--diffs", &diffs];
        let genesis = ["--genesis", &chain.genesis, "--chunk-blocks", chunk];
        let data = spinney(&[&args[..], &genesis].concat()).exits(0).data();
        assert_eq!((&data["root"], &data["blocks"]), (&chain.root().into(), &213.into()));
        assert!(pages(&db) == pages(&whole));
    }
    let trees = ["--tree", "mpt,ubt:sha256,verkle"];
    chain.replay(&[&["--db", &several], &trees[..]].concat()).exits(0);
    for chunk in ["7", "all"] {
        let db = folder.path(&format!("trees-{chunk}"));
        let data =
            chain.stage(&db, &[&trees[..], &["--chunk-blocks", chunk]].concat()).exits(0).data();
        assert_eq!(data["chunks_rebuilt"], 0);
        for table in [Table::Pages, Table::History, Table::Roots] {
            let same = rows(&db, table) == rows(&several, table);
            assert!(same || table == Table::Roots, "{chunk} {table}");
        }
        let status = |db: &str| spinney(&["stage", "status", "--json", "--db", db]).exits(0).data();
        assert_eq!(status(&db)["roots"], status(&several)["roots"]);
    }
}

/// A root that is wrong in its line: the chunk is refused as a whole, with exit code 1, and the
/// store stands before it.
#[test]
fn a_chunk_with_a_wrong_root_is_refused() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let diffs =
        crate::support::shared("data/chains/all-forks/diffs.ndjson").expect("beside the chain");
    let text = std::fs::read_to_string(diffs).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut line: serde_json::Value = serde_json::from_str(&lines[199]).unwrap();
    line["stateRoot"] = format!("0x{}", "ab".repeat(32)).into();
    lines[199] = line.to_string();
    let wrong = folder.write("wrong", lines.join("\n"));
    let db = folder.path("db");
    let args = ["stage", "run", "-q", "--db", &db, "--diffs", &wrong, "--genesis", &chain.genesis];
    let refused = spinney(&[&args[..], &["--chunk-blocks", "50"]].concat()).exits(1);
    refused
        .says("block 200")
        .refuses("state root of block 200, applied with those from block 151 on");
    let status = spinney(&["stage", "status", "--json", "--db", &db]).exits(0).data();
    assert_eq!(status["block"], 150);
    assert_sound(&db);
    for bad in [&["--genesis", "x"][..], &[], &["--own", "--diffs", "x"], &["--blocks", "x"]] {
        let _ = spinney(&[&["stage", "run", "--db", &db], bad].concat()).exits(2);
    }
}

/// The figures of chunks and rebuilds as a subscriber sees them.
#[test]
fn events_carry_the_figures() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    let more = ["--rebuild", "--to", "200", "--log", "spinney::chunk=info,spinney::pipeline=info"];
    let ran = chain.stage(&db, &more).exits(0);
    let line = |what: &str| {
        let found = ran.err.lines().find(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("{what} is not in {}", ran.err)).to_owned()
    };
    assert!(line("rebuild finished").contains("spinney::pipeline"));
    for figure in ["row_bytes=", "peak_in_flight=", "hashed="] {
        assert!(line("rebuild finished").contains(figure));
    }
    for figure in ["blocks=", "changes=", "rebuild=true", "seconds="] {
        assert!(line("chunk committed").contains(figure));
    }
    let ran = chain.stage(&db, &["--log", "spinney::chunk=warn"]).exits(0);
    assert_eq!(ran.err, "");
    chain.stage(&db, &["--log", "a=b=c"]).exits(2).refuses("is no filter (--log)");
}
