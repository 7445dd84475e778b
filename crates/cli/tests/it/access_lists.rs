//! Block-level access lists: the chain's own, written and read, as RLP and as JSON.

use serde_json::{Value, json};
use spinney_tree::Table;

use crate::support::{Chain, Folder, amsterdam, chain_600, rows, spinney};

fn lines(path: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(path).expect("it was written");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// A store's pages, without generation and checksum.
fn pages(db: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    rows(db, Table::Pages)
        .into_iter()
        .map(|(key, row)| (key[8..].to_vec(), row[8..].to_vec()))
        .collect()
}

fn bals(chain: &Chain, db: &str, lists: &str, more: &[&str]) -> Vec<String> {
    let args = [&["--db", db, "--bals", lists][..], more].concat();
    let data = chain.replay(&args).exits(0).data();
    [&data["head"], &data["head_hash"], &data["root"]].map(ToString::to_string).into()
}

#[test]
fn the_chains_own_lists_are_written_byte_for_byte() {
    let Some(chain) = amsterdam() else { return };
    let folder = Folder::new();
    let (db, out) = (folder.path("db"), folder.path("lists"));
    chain.replay(&["--db", &db, "--bal-out", &out, "--bal-json"]).exits(0);
    let ours = std::fs::read_to_string(&out).expect("it was written");
    let theirs = chain.genesis.replace("genesis.json", "bals.ndjson");
    let theirs = std::fs::read_to_string(theirs).expect("the lists lie beside the chain");
    let part = |line: &str, from: &str, to: &str| {
        let start = line.find(from).expect(from) + from.len();
        line[start..start + line[start..].find(to).expect(to)].to_owned()
    };
    let mut count = 0;
    for (own, line) in ours.lines().skip(39).zip(theirs.lines()) {
        for (ours, theirs) in [("number\":", "number\":"), ("\"hash\":\"", "\"hash\":\"")] {
            assert_eq!(part(own, ours, ","), part(line, theirs, ","));
        }
        assert_eq!(part(own, "\"bal\":\"", "\""), part(line, "\"rlp\":\"", "\""));
        assert_eq!(part(own, "\"bal_hash\":\"", "\""), part(line, "\"balHash\":\"", "\""));
        let (list, end) = ("\"accessList\":", "}]");
        assert_eq!(part(own, list, "]}]"), part(line, list, "]}]"), "{end}");
        count += 1;
    }
    assert_eq!(count, 161);
}

#[test]
fn lists_alone_lead_to_the_same_roots_and_pages() {
    for chain in [amsterdam(), chain_600()].into_iter().flatten() {
        let folder = Folder::new();
        let path = |name: &str| folder.path(name);
        let (whole, lists) = (path("whole"), path("lists"));
        let trees = ["--tree", "mpt,pbt:blake3,ubt:sha256,verkle", "--commit-every", "32"];
        let args = [&["--db", &whole, "--bal-out", &lists][..], &trees].concat();
        let data = chain.replay(&args).exits(0).data();
        let expected: Vec<_> =
            [&data["head"], &data["head_hash"], &data["root"]].map(ToString::to_string).into();
        let alone = path("alone");
        assert_eq!(bals(&chain, &alone, &lists, &trees), expected);
        assert_eq!(pages(&alone), pages(&whole));
        // In two parts, the second of them from JSON alone.
        let parts = path("parts");
        let first = [&trees[..], &["--to", "96"]].concat();
        bals(&chain, &parts, &lists, &first);
        assert_eq!(bals(&chain, &parts, &lists, &trees), expected);
        assert_eq!(pages(&parts), pages(&whole));
    }
}

#[test]
fn lists_that_are_wrong_are_refused_and_leave_what_was_good() {
    let Some(chain) = amsterdam() else { return };
    let folder = Folder::new();
    let lists = folder.path("lists");
    chain.replay(&["--db", &folder.path("db"), "--bal-out", &lists, "--bal-json"]).exits(0);
    let good = lines(&lists);
    let run = |name: &str, lines: &[Value]| {
        let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let file = folder.write(&format!("{name}.ndjson"), text);
        chain.replay(&["--db", &folder.path(name), "--bals", &file])
    };
    // JSON alone will do.
    let bare: Vec<_> = good
        .iter()
        .map(|line| {
            let mut line = line.clone();
            line.as_object_mut().unwrap().remove("bal");
            line
        })
        .collect();
    let _ = run("bare", &bare).exits(0);
    // One that the header does not name; one before the fork, where the root says it.
    let mut swapped = good.clone();
    swapped[59]["bal"] = good[60]["bal"].clone();
    run("swapped", &swapped).exits(1).refuses("block 60");
    let mut early = good.clone();
    for field in ["bal", "bal_hash", "accessList"] {
        early[9][field] = good[11][field].clone();
    }
    run("early", &early).exits(1).refuses("block 10 (0x").refuses("state root: expected");
    let db = folder.path("early");
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    assert_eq!(info["trees"][0]["block"], 9, "{info}");
    let mut gap = good.clone();
    gap.remove(99);
    run("gap", &gap).exits(1).refuses("is of block 101");
    run("short", &good[..99]).exits(2).refuses("ends before block 100");
    run("none", &[json!({"number": 1})]).exits(2).refuses("line 1");
}
