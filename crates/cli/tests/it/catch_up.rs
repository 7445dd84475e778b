//! `catch-up`: by access lists of a replay to what a conversion makes, block by block.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use spinney_tree::Table;

use crate::support::{Chain, Folder, all_forks, assert_sound, chain_600, rows, spinney};

/// The pages of a PBT, without generation and checksum.
fn pages(db: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    let of_tree = rows(db, Table::Pages).into_iter().filter(|(key, _)| key[..4] == [0, 0, 0, 3]);
    of_tree.map(|(key, row)| (key[8..].to_vec(), row[8..].to_vec())).collect()
}

/// How many accounts use each code.
fn uses(db: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    rows(db, Table::Meta).into_iter().filter(|(key, _)| key.starts_with(b"\0\0\0\x03c")).collect()
}

/// A store of the trie at a block, and the lists of the blocks behind it.
struct Anchor {
    folder: Folder,
    db: String,
    lists: Vec<Value>,
}

impl Anchor {
    fn new(chain: &Chain, number: u64) -> Self {
        let folder = Folder::new();
        let (db, whole, lists) = (folder.path("db"), folder.path("whole"), folder.path("lists"));
        for db in [&db, &whole] {
            chain.replay(&["--db", db, "--to", &number.to_string()]).exits(0);
        }
        chain.replay(&["--db", &whole, "--bal-out", &lists]).exits(0);
        let lists = std::fs::read_to_string(lists).expect("it was written");
        let lists = lists.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        Self { folder, db, lists }
    }

    fn write(&self, lines: &[Value]) -> String {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        self.folder.write("given", lines)
    }

    /// Converts the store, and has it follow.
    fn caught_up(&self, name: &str, lines: &[Value], more: &[&str]) -> (String, Value) {
        let pbt = self.folder.path(name);
        let convert = ["convert", "-q", "--json", "--to", "pbt:blake3", &self.db, &pbt];
        spinney(&convert).exits(0);
        let lists = self.write(lines);
        let args = ["catch-up", "-q", "--json", "--db", &pbt, &lists];
        let data = spinney(&[&args[..], more].concat()).exits(0).data();
        (pbt, data)
    }
}

/// The root of the PBT after each of some blocks, replayed, and the store at the last one.
fn replayed(chain: &Chain, folder: &Folder, numbers: &[u64]) -> (BTreeMap<u64, Value>, String) {
    let db = folder.path("replayed");
    let mut roots = BTreeMap::new();
    for number in numbers {
        let to = number.to_string();
        chain.replay(&["--tree", "mpt,pbt:blake3", "--db", &db, "--to", &to]).exits(0);
        let status = spinney(&["stage", "status", "--json", "--db", &db]).exits(0).data();
        roots.insert(*number, status["roots"]["pbt:blake3"].clone());
    }
    (roots, db)
}

fn check(chain: &Chain, from: u64, numbers: &[u64]) {
    let anchor = Anchor::new(chain, from);
    let file = anchor.folder.path("roots");
    let more = ["--roots", &file, "--depth", "7"];
    let (pbt, data) = anchor.caught_up("pbt", &anchor.lists, &more);
    assert_eq!(
        (&data["block"], &data["blocks"]),
        (&chain.block_count.into(), &(chain.block_count - from).into())
    );
    let shadow: BTreeMap<u64, Value> = std::fs::read_to_string(file)
        .expect("it was written")
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"))
        .map(|line| (line["number"].as_u64().expect("a number"), line["root"].clone()))
        .collect();
    let (roots, db) = replayed(chain, &anchor.folder, numbers);
    for (number, root) in roots {
        assert_eq!(shadow[&number], root, "block {number}");
    }
    assert!(pages(&pbt) == pages(&db), "pages at the end");
    assert_eq!(uses(&pbt), uses(&db));
    assert_sound(&pbt);
    // It is what a conversion of the last block makes, and goes back to the trie.
    let again = anchor.folder.path("again");
    let back = ["convert", "-q", "--json", "--from", "pbt:blake3", "--to", "mpt", &pbt, &again];
    assert_eq!(spinney(&back).exits(0).data()["root"], chain.root());
    // The same command again has nothing to do.
    let lists = anchor.write(&anchor.lists);
    let args = ["catch-up", "-q", "--json", "--db", &pbt, &lists];
    assert_eq!(spinney(&args).exits(0).data()["known"], anchor.lists.len());
}

#[test]
fn chain_600_by_lists() {
    if let Some(chain) = chain_600() {
        check(&chain, 300, &[301, 302, 330, 371, 400, 450, 500, 555, 599, 600]);
    }
}

/// From where no account is left empty any more: with accounts that are destroyed and made again,
/// and empty ones of earlier blocks that go.
#[test]
fn all_forks_by_lists() {
    if let Some(chain) = all_forks() {
        check(&chain, 41, &[42, 50, 60, 72, 87, 102, 130, 145, 166, 186, 201, 213]);
    }
}

/// Reorganised by five blocks, and by lists that are no good.
#[test]
fn five_blocks_are_dropped() {
    let Some(chain) = chain_600() else { return };
    let anchor = Anchor::new(&chain, 300);
    let at = |number: u64| (number - 301) as usize;
    let (expected, plain) = anchor.caught_up("plain", &anchor.lists[..at(361)], &[]);
    let flipped = |hash: &Value| {
        let hash = hash.as_str().expect("text");
        let digit = if &hash[2..3] == "0" { "1" } else { "0" };
        format!("0x{digit}{}", &hash[3..])
    };
    let mut lines = anchor.lists[..at(341)].to_vec();
    for number in 341..=345 {
        let line = &anchor.lists[at(number)];
        let parent = &line["parent"];
        let parent = if number == 341 { parent.clone() } else { flipped(parent).into() };
        // The other blocks do nothing.
        lines.push(json!({
            "number": number, "hash": flipped(&line["hash"]), "parent": parent, "bal": "0xc0",
            "bal_hash": "0x1dcc4de8dec75d7aab85b567b6ccd41ad312451b948a7413f0a142fd40d49347",
        }));
    }
    lines.extend_from_slice(&anchor.lists[at(341)..at(361)]);
    let (pbt, data) = anchor.caught_up("pbt", &lines, &["--depth", "8"]);
    assert_eq!((&data["reorganisations"], &data["dropped"]), (&1.into(), &5.into()));
    assert_eq!((&data["root"], &data["block"]), (&plain["root"], &360.into()));
    assert!(pages(&pbt) == pages(&expected));

    let caught_up = |lines: &[Value], more: &[&str]| {
        let lists = anchor.write(lines);
        spinney(&[&["catch-up", "-q", "--db", &pbt, &lists], more].concat())
    };
    // Deeper than was kept; not the next one; a list that is not the header's; no list.
    caught_up(&anchor.lists[at(362)..], &[]).exits(1).refuses("block 362 (0x");
    let mut line = anchor.lists[at(361)].clone();
    line["bal"] = "0xc0".into();
    caught_up(&[line.clone()], &[])
        .exits(1)
        .refuses("block 361: the access list has the hash 0x1dcc");
    line["bal_hash"] = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421".into();
    line["bal"] = "0x80".into();
    caught_up(&[line], &[]).exits(1).refuses("no block-level access list");
    // Another block where the store stands; nothing at all.
    let mut other = anchor.lists[at(360)].clone();
    other["hash"] = flipped(&other["hash"]).into();
    caught_up(&[other], &[]).exits(1).refuses("and the store's is 0x");
    caught_up(&[], &[]).exits(0).says("no list follows block 360");
    caught_up(&[json!({ "number": 1 })], &[]).exits(2).refuses("line 1 of the access lists");
    let args = ["catch-up", "-q", "--db", &anchor.db, "-"];
    spinney(&args).exits(2).refuses("which would stay behind");
    assert!(pages(&pbt) == pages(&expected));

    let status = spinney(&["stage", "status", "--json", "--db", &pbt]).exits(0).data();
    assert_eq!((&status["block"], &status["oldest"]), (&360.into(), &360.into()), "no history");

    // A block whose hash nobody told is one that no other can follow.
    let [file, names, bare] = ["file", "names", "bare"].map(|name| anchor.folder.path(name));
    let export = ["snapshot", "export", "-q", "--db", &pbt, "--out", &file, "--preimages", &names];
    spinney(&export).exits(0);
    let both = ["snapshot", "export", "-q", "--db", &pbt, "--out", &bare, "--preimages", &bare];
    spinney(&both).exits(2).refuses("name one file");
    let import = ["snapshot", "import", "-q", &file, &bare, "--preimages", &names];
    spinney(&[&import[..], &["--number", "360"]].concat()).exits(0);
    let refused = spinney(&["catch-up", "-q", "--db", &bare, &anchor.write(&anchor.lists)]);
    refused.exits(2).refuses("by number and hash").says("--hash");
}

#[test]
fn blocks_that_no_list_can_say_are_refused() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let lists = folder.path("lists");
    let ran = chain.replay(&["--to", "5", "--bal-out", &lists]);
    let refused = ran.exits(2).refuses("block 4 has no access list").says("with nothing in it");
    // It stops there, and those before it are kept.
    refused.says("the lists up to block 3 are in");
    assert_eq!(std::fs::read_to_string(&lists).expect("it was written").lines().count(), 3);
}

#[test]
fn a_file_of_lists_is_gone_on_with() {
    let Some(chain) = chain_600() else { return };
    let folder = Folder::new();
    let [db, lists, whole] = ["db", "lists", "whole"].map(|name| folder.path(name));
    let read = |file: &str| std::fs::read_to_string(file).expect("it was written");
    chain.replay(&["--to", "9", "--bal-out", &whole]).exits(0);
    let replay = |to: &str| chain.replay(&["--db", &db, "--to", to, "--bal-out", &lists]);
    for to in ["4", "9", "9"] {
        replay(to).exits(0);
    }
    assert_eq!(read(&lists), read(&whole));
    // From another block lists would be there twice, or be missing.
    spinney(&["stage", "unwind", "-q", "--db", &db, "--to", "6"]).exits(0);
    replay("8").exits(2).refuses("has the lists up to block 9 already, and the store stands at 6");
    let other = folder.write("other", "not a list\n");
    let args = ["--db", &db, "--to", "8", "--bal-out", &other];
    chain.replay(&args).exits(2).refuses("does not end in an access list");
    assert_eq!((read(&lists), &read(&other)[..]), (read(&whole), "not a list\n"));
}
