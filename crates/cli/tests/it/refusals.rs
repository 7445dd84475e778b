//! What is refused leaves nothing: folders and stores are as they were before.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::json;
use spinney_replay::{ChainBlock, Genesis, SampleChain, SampleOptions, TextbookState};
use spinney_store::{Location, OpenFor};
use spinney_tree::{PageStore as _, Snapshot as _, Table};

use crate::support::{Folder, Ran, spinney};

/// Blocks of the sample chains.
const BLOCKS: usize = 6;
/// A hash of nothing that is there.
const OTHER: &str = "0x1111111111111111111111111111111111111111111111111111111111111111";

/// All names below a folder, and what files hold.
type Listing = BTreeMap<String, Option<Vec<u8>>>;

fn listing(folder: &Path) -> Listing {
    let mut found = Listing::new();
    for entry in fs::read_dir(folder).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        let name = path.to_string_lossy().into_owned();
        if path.ends_with("spinney.log") {
            found.insert(name, Some(rows(&Location::Log(folder.into()))));
        } else if path.is_dir() {
            found.extend(listing(&path));
            found.insert(name, None);
        } else if path.ends_with("spinney.redb") {
            found.insert(name, Some(rows(&Location::Redb(folder.into()))));
        } else {
            found.insert(name, Some(fs::read(&path).expect("it can be read")));
        }
    }
    // What SQLite and a lock leave beside a file that is there says nothing, as long as the log is
    // empty.
    let beside = |name: &str, bytes: Option<&Vec<u8>>| {
        let file = ["-shm", "-wal", ".lock"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let is_log = name.ends_with("-wal") && bytes.is_some_and(|bytes| !bytes.is_empty());
        !is_log && file.is_some_and(|file| Path::new(file).is_file())
    };
    found.retain(|name, bytes| !beside(name, bytes.as_ref()));
    found
}

/// All rows of a store whose files change whenever it is opened for writing.
fn rows(location: &Location) -> Vec<u8> {
    let store = location.open(OpenFor::Reading, 1 << 20).expect("the store opens");
    let snapshot = store.snapshot().expect("the store can be read");
    let mut rows = Vec::new();
    for table in Table::ALL {
        let mut add = |key: &[u8], row: &[u8]| {
            rows.extend(format!("{table} {} {}\n", key.len(), row.len()).into_bytes());
            rows.extend([key, row].concat());
            true
        };
        snapshot.scan(table, &[], None, &mut add).expect("the store can be read");
    }
    rows
}

/// Says in a few words how two listings differ.
fn differences(before: &Listing, after: &Listing) -> Vec<String> {
    let new = after.keys().filter(|name| !before.contains_key(*name));
    let gone = before.keys().filter(|name| !after.contains_key(*name));
    let changed = before.iter().filter(|(name, is)| after.get(*name).is_some_and(|was| was != *is));
    let changed = changed.map(|(name, _)| format!("{name} was changed"));
    let new = new.map(|name| format!("{name} is new"));
    new.chain(gone.map(|name| format!("{name} is gone"))).chain(changed).collect()
}

/// A sample chain in files, and what is wrong in the like of them.
struct Files {
    folder: Folder,
}

fn sample(seed: u64) -> (Genesis, Vec<ChainBlock>) {
    let mut options = SampleOptions::default();
    (options.seed, options.block_count) = (seed, BLOCKS as u64);
    let mut chain = SampleChain::new(options, TextbookState::new()).expect("a chain begins");
    let genesis = chain.genesis().clone();
    (genesis, chain.by_ref().map(|block| block.expect("a block is made")).collect())
}

fn rlp(blocks: &[ChainBlock]) -> Vec<u8> {
    blocks.iter().flat_map(ChainBlock::to_rlp).collect()
}

impl Files {
    fn new() -> Self {
        let folder = Folder::new();
        let (genesis, blocks) = sample(1);
        let mut spoilt = blocks.clone();
        spoilt[0].block.header.gas_used += 1;
        let (other, other_blocks) = sample(2);
        let hash = alloy_primitives::B256::repeat_byte(0x11);
        let list =
            json!({ "number": 7, "hash": hash, "parent": hash, "bal_hash": hash, "bal": "0xc0" });
        for (name, bytes) in [
            ("genesis", genesis.to_json().into_bytes()),
            ("other genesis", other.to_json().into_bytes()),
            ("blocks", rlp(&blocks)),
            ("later", rlp(&blocks[3..])),
            ("spoilt", rlp(&spoilt)),
            ("other blocks", rlp(&other_blocks)),
            ("strange lists", list.to_string().into_bytes()),
            ("torn", rlp(&blocks)[..40].to_vec()),
            ("garbage", b"{\"put\": ".to_vec()),
            ("half", b"{\"accounts\": {\"0x0000000000000000000000000000000000000001\": {\"balance\": \"5\"}".to_vec()),
        ] {
            folder.write(name, bytes);
        }
        let account = |balance: &str| {
            let address = format!("0x{}", "aa".repeat(20));
            json!({ address: { "balance": balance } })
        };
        folder.write("alloc", json!({ "alloc": account("0x5") }).to_string());
        folder.write("state", json!({ "root": OTHER, "accounts": account("5") }).to_string());
        let line = |number: u64, root: &str| {
            json!({ "number": number, "accounts": account("0x7"), "stateRoot": root }).to_string()
        };
        folder.write("wrong root", line(1, OTHER));
        folder.write("wrong start", line(0, OTHER));
        folder.write("gap", line(9, OTHER));
        let leaf = |key: &str, sum: &str| {
            (format!("0x{}", key.repeat(32)), json!({ "value": "0x", "sum": sum }))
        };
        let max = u64::MAX.to_string();
        let puts: BTreeMap<_, _> = [leaf("01", &max), leaf("02", "1")].into();
        folder.write("heavy", json!({ "put": puts }).to_string());
        let line = |key: &str, sum: &str| {
            json!({ "key": format!("0x{}", key.repeat(32)), "value": "0x", "sum": sum }).to_string()
        };
        folder.write("unsorted", format!("{}\n{}\n", line("02", "1"), line("02", "1")));
        folder.write("heavy leaves", format!("{}\n{}\n", line("02", &max), line("01", "1")));
        folder.write("one leaf", format!("{}\n", line("02", "1")));
        folder.write("raw", r#"{"put": {"0x01": "0x02"}}"#);
        folder.write(
            "raw dump",
            "{\"key\":\"0x02\",\"value\":\"0x02\"}\n{\"key\":\"0x01\",\"value\":\"0x02\"}\n",
        );
        Self { folder }
    }
}

/// Verbs that make a store, each with what it refuses. `DB` stands for the place, and names of
/// files are those of [`Files`].
const MAKERS: [(&[&str], i32); 37] = [
    (&["replay", "--genesis", "@other genesis", "--blocks", "@blocks", "--db", "DB"], 1),
    (
        &[
            "replay",
            "--genesis",
            "@other genesis",
            "--blocks",
            "@blocks",
            "--to",
            "0",
            "--db",
            "DB",
        ],
        1,
    ),
    (&["replay", "--genesis", "@genesis", "--blocks", "@spoilt", "--db", "DB"], 1),
    (&["replay", "--genesis", "@genesis", "--blocks", "@later", "--db", "DB"], 1),
    (&["replay", "--genesis", "@genesis", "--blocks", "@torn", "--db", "DB"], 1),
    (&["replay", "--genesis", "@genesis", "--blocks", "@garbage", "--db", "DB"], 1),
    (&["replay", "--genesis", "@garbage", "--blocks", "@blocks", "--db", "DB"], 2),
    (&["replay", "--genesis", "@genesis", "--diffs", "@wrong root", "--db", "DB"], 1),
    (&["replay", "--genesis", "@genesis", "--diffs", "@wrong start", "--db", "DB"], 2),
    (&["replay", "--alloc", "@alloc", "--diffs", "@wrong root", "--db", "DB"], 1),
    (&["replay", "--alloc", "@alloc", "--diffs", "@garbage", "--db", "DB"], 2),
    (&["replay", "--alloc", "@alloc", "--diffs", "@gap", "--db", "DB"], 2),
    (&["replay", "--diffs", "@gap", "--db", "DB"], 2),
    (&["replay", "--alloc", "@alloc", "--traces", "@garbage", "--db", "DB"], 2),
    (&["replay", "--tree", "mpt,verkle,oak", "--db", "DB"], 2),
    (&["root", "--db", "DB", "@garbage"], 2),
    (&["root", "--tree", "ubt:sha256", "--db", "DB", "@garbage"], 2),
    (&["root", "--tree", "pbt:blake3", "--hash-keys", "--db", "DB", "@raw"], 2),
    (&["root", "--state", "--db", "DB", "@wrong root"], 1),
    (&["root", "--state", "--tree", "verkle", "--db", "DB", "@garbage"], 2),
    (&["root", "--tree", "sum", "--db", "DB", "@garbage"], 2),
    (&["root", "--tree", "sum:bound", "--db", "DB", "@heavy"], 2),
    (&["root", "--tree", "sum", "--state", "--db", "DB", "@heavy"], 2),
    (&["import", "state", "--db", "DB", "--number", "1", "@garbage"], 2),
    (&["import", "state", "--db", "DB", "--number", "1", "@half"], 2),
    (&["import", "state", "--db", "DB", "--number", "1", "--root", OTHER, "@alloc"], 1),
    (&["import", "tapd", "--db", "DB", "@garbage"], 2),
    (&["db", "load", "--db", "DB", "@garbage"], 2),
    (&["db", "load", "--db", "DB", "@state"], 2),
    (&["db", "load", "--db", "DB", "@raw dump"], 2),
    (&["db", "load", "--tree", "sum", "--db", "DB", "@unsorted"], 2),
    (&["db", "load", "--tree", "sum", "--db", "DB", "@heavy leaves"], 2),
    (&["stage", "run", "--db", "DB", "--state", "@half"], 2),
    (&["stage", "run", "--db", "DB", "--number", "1", "--root", OTHER, "--state", "@alloc"], 1),
    (&["stage", "run", "--db", "DB", "--genesis", "@other genesis", "--blocks", "@blocks"], 1),
    (&["stage", "run", "--db", "DB", "--alloc", "@alloc", "--diffs", "@wrong root"], 1),
    (&["stage", "run", "--db", "DB", "--own"], 2),
];

/// The words of a command, with a place and with paths for the names of files.
fn words(words: &[&str], files: &Files, db: &str) -> Vec<String> {
    let word = |word: &&str| match word.strip_prefix('@') {
        Some(name) => files.folder.path(name),
        None if *word == "DB" => db.to_owned(),
        None => (*word).to_owned(),
    };
    words.iter().map(word).collect()
}

/// Runs a command that is refused, and notes what is not as it was.
fn refused(args: &[String], code: i32, folder: &Folder, found: &mut Vec<String>) -> Ran {
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let root = folder.path("");
    let before = listing(Path::new(&root));
    let ran = spinney(&args);
    let after = listing(Path::new(&root));
    let what = args.join(" ").replace(&root, "");
    if ran.code != Some(code) || ran.err.contains("panicked") || ran.err.contains("a bug") {
        found.push(format!("{what}: {ran:?}"));
    }
    for difference in differences(&before, &after) {
        found.push(format!("{what}: {}", difference.replace(&root, "")));
    }
    ran
}

#[test]
fn what_is_refused_makes_no_store() {
    let files = Files::new();
    let mut found = Vec::new();
    for kind in ["log", "redb", "sqlite"] {
        for (args, code) in MAKERS {
            let folder = Folder::new();
            // A folder that is there stays, empty or not; those above a store that are not there do
            // not.
            fs::create_dir(folder.path("there")).expect("it can be made");
            // Who makes and removes folders does not know the kind.
            let all = ["not/there/new", "there/new", "there"];
            for db in if kind == "log" { &all[..] } else { &all[..1] } {
                let mut args = words(args, &files, &folder.path(db));
                args.extend(["--store".to_owned(), kind.to_owned()]);
                drop(refused(&args, code, &folder, &mut found));
            }
        }
    }
    assert!(found.is_empty(), "{} of them:\n{}", found.len(), found.join("\n"));
}

/// Verbs that are to change or to read a store, each with what it refuses: of a state, of sum
/// trees, of a pbt.
const STATE: [(&[&str], i32); 23] = [
    (&["replay", "--genesis", "@other genesis", "--blocks", "@blocks", "--db", "DB"], 2),
    (&["replay", "--genesis", "@genesis", "--blocks", "@spoilt", "--db", "DB"], 1),
    (&["replay", "--genesis", "@genesis", "--blocks", "@blocks", "--to", "2", "--db", "DB"], 2),
    (&["replay", "--genesis", "@genesis", "--diffs", "@gap", "--db", "DB"], 2),
    (&["replay", "--genesis", "@genesis", "--diffs", "@garbage", "--db", "DB"], 2),
    (
        &[
            "replay",
            "--tree",
            "mpt,verkle",
            "--genesis",
            "@genesis",
            "--blocks",
            "@blocks",
            "--db",
            "DB",
        ],
        2,
    ),
    (&["root", "--db", "DB", "@raw"], 2),
    (&["root", "--tree", "ubt:sha256", "--db", "DB", "@raw"], 2),
    (&["root", "--state", "--db", "DB", "@wrong root"], 2),
    (&["root", "--tree", "sum", "--db", "DB", "@garbage"], 2),
    (&["root", "--tree", "sum:bound", "--db", "DB", "@heavy"], 2),
    (&["import", "state", "--db", "DB", "--number", "1", "@alloc"], 2),
    (&["import", "tapd", "--db", "DB", "@garbage"], 2),
    (&["db", "load", "--db", "DB", "@state"], 2),
    (&["db", "load", "--tree", "sum", "--db", "DB", "@unsorted"], 2),
    (&["db", "load", "--tree", "sum", "--db", "DB", "@heavy leaves"], 2),
    (&["db", "remove", "--namespace", "default", "--db", "DB"], 2),
    (&["stage", "run", "--db", "DB", "--state", "@half"], 2),
    (&["stage", "run", "--db", "DB", "--genesis", "@other genesis", "--blocks", "@blocks"], 2),
    (&["stage", "unwind", "--db", "DB", "--to", "77"], 2),
    (&["stage", "unwind", "--db", "DB", "--to", "3", "--blocks", "@other blocks"], 1),
    (&["catch-up", "--db", "DB", "@garbage"], 2),
    (&["prove", "--db", "DB", "0x01"], 2),
];
const SUMS: [(&[&str], i32); 7] = [
    (&["root", "--tree", "sum", "--db", "DB", "@garbage"], 2),
    (&["root", "--tree", "sum", "--db", "DB", "@heavy"], 2),
    (&["root", "--tree", "sum:bound", "--db", "DB", "@heavy"], 2),
    (&["root", "--tree", "sum", "--namespace", "new", "--db", "DB", "@heavy"], 2),
    (&["db", "load", "--tree", "sum", "--namespace", "new", "--db", "DB", "@heavy leaves"], 2),
    (&["db", "load", "--tree", "sum", "--db", "DB", "@one leaf"], 2),
    (&["stage", "run", "--db", "DB", "--own"], 2),
];
const PBT: [(&[&str], i32); 3] = [
    (&["catch-up", "--db", "DB", "@garbage"], 2),
    (&["catch-up", "--db", "DB", "@strange lists"], 1),
    (&["root", "--db", "DB", "@raw"], 2),
];
/// Verbs that make a store or a file of others; `TO` stands for it.
const MOVES: [(&[&str], i32); 13] = [
    (&["convert", "--to", "oak", "@state.db", "TO"], 2),
    (&["convert", "--to", "verkle", "@sums.db", "TO"], 2),
    (&["convert", "--to", "verkle", "@nowhere", "TO"], 2),
    (&["convert", "--from", "pbt:blake3", "--to", "mpt", "@state.db", "TO"], 2),
    (&["convert", "--to", "pbt:blake3", "@bare.db", "TO"], 1),
    (&["convert", "--to", "pbt:blake3", "--preimages", "@garbage", "@bare.db", "TO"], 1),
    (&["convert", "--to", "pbt:blake3", "--preimages", "@old names", "@state.db", "TO"], 1),
    (&["snapshot", "import", "@garbage", "TO"], 1),
    (&["snapshot", "import", "--tree", "pbt:sha256", "@snapshot", "TO"], 1),
    (&["snapshot", "import", "@snapshot", "TO", "--preimages", "@old names"], 1),
    (&["snapshot", "import", "@snapshot", "TO", "--preimages", "@names", "--state-root", OTHER], 1),
    (&["stage", "dump", "--db", "@state.db", "--from", "77", "--into", "TO"], 2),
    (
        &[
            "stage",
            "dump",
            "--db",
            "@bare.db",
            "--from",
            "2",
            "--to",
            "1",
            "--diffs-out",
            "@x",
            "--into",
            "TO",
        ],
        2,
    ),
];

/// Runs a command that is taken.
fn made(files: &Files, args: &[&str]) -> Ran {
    let args = words(args, files, "");
    spinney(&args.iter().map(String::as_str).collect::<Vec<_>>()).exits(0)
}

/// Stores of a kind for [`STATE`] and the others.
fn stores(files: &Files, kind: &str) {
    let replay = ["replay", "--genesis", "@genesis", "--blocks", "@blocks", "--store", kind];
    made(files, &[&replay[..], &["--db", "@old.db", "--to", "2"]].concat());
    made(files, &["snapshot", "export", "--db", "@old.db", "--preimages", "@old names"]);
    made(files, &[&replay[..], &["--db", "@state.db"]].concat());
    made(files, &[&replay[..], &["--db", "@bare.db", "--no-preimages"]].concat());
    made(files, &["db", "load", "--tree", "sum", "--db", "@sums.db", "--store", kind, "@one leaf"]);
    made(files, &["convert", "--to", "pbt:blake3", "--to-store", kind, "@state.db", "@pbt.db"]);
    let export = ["snapshot", "export", "--db", "@pbt.db", "--out", "@snapshot"];
    made(files, &[&export[..], &["--preimages", "@names"]].concat());
}

#[test]
fn what_is_refused_leaves_stores_as_they_were() {
    let mut found = Vec::new();
    for kind in ["log", "redb", "sqlite"] {
        let files = Files::new();
        stores(&files, kind);
        for (db, verbs) in [("state.db", &STATE[..]), ("sums.db", &SUMS), ("pbt.db", &PBT)] {
            for (args, code) in verbs {
                let args = words(args, &files, &files.folder.path(db));
                drop(refused(&args, *code, &files.folder, &mut found));
            }
        }
        for (args, code) in MOVES {
            let all = ["not/there/target", "target"];
            for to in if kind == "log" { &all[..] } else { &all[..1] } {
                let target = files.folder.path(to);
                let mut args = words(args, &files, "");
                args.iter_mut()
                    .filter(|word| *word == "TO")
                    .for_each(|word| word.clone_from(&target));
                let option = if args[0] == "stage" { "--into-store" } else { "--to-store" };
                args.extend([option.to_owned(), kind.to_owned()]);
                drop(refused(&args, code, &files.folder, &mut found));
            }
        }
    }
    assert!(found.is_empty(), "{} of them:\n{}", found.len(), found.join("\n"));
}

/// On a server no tables stay.
#[cfg(unix)]
#[test]
fn what_is_refused_leaves_no_tables() {
    let Some(server) = crate::server::shared() else { return };
    let files = Files::new();
    stores(&files, "redb");
    let (url, schema) = server.schema();
    let mut session = server.session(&schema);
    let mut found = Vec::new();
    let of_files = |words: &&[&str]| !words.contains(&"@nowhere");
    for (args, code) in MAKERS.into_iter().chain(MOVES).filter(|(words, _)| of_files(words)) {
        let mut args = words(args, &files, &url);
        args.iter_mut().filter(|word| *word == "TO").for_each(|word| word.clone_from(&url));
        drop(refused(&args, code, &files.folder, &mut found));
        let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()";
        let tables: i64 = session.query_one(tables, &[]).expect("the server answers").get(0);
        if tables > 0 {
            found.push(format!("{}: {tables} tables", args.join(" ")));
            session.batch_execute("DROP TABLE spinney_rows, spinney_store").expect("they go");
        }
    }
    assert!(found.is_empty(), "{} of them:\n{}", found.len(), found.join("\n"));
}
