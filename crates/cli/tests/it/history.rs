//! `stage`: back to earlier blocks, and on from there.

use spinney_tree::Table;

use crate::support::{
    Chain, Folder, all_forks, assert_sound, chain_600, open_store, rows, spinney,
};

/// Unwinds to a block, and answers with the root.
fn unwind(db: &str, to: u64) -> String {
    let to = to.to_string();
    let data = spinney(&["stage", "unwind", "--json", "--db", db, "--to", &to]).exits(0).data();
    assert_eq!(data["block"].to_string(), to);
    data["root"].as_str().expect("text").to_owned()
}

fn status(db: &str) -> serde_json::Value {
    spinney(&["stage", "status", "--json", "--db", db]).exits(0).data()
}

/// To the middle and again, with the pages of an undisturbed replay to there.
fn check(chain: &Chain, middle: u64) {
    let folder = Folder::new();
    let (db, half) = (folder.path("db"), folder.path("half"));
    let to = middle.to_string();
    let at_half = chain.replay(&["--db", &half, "--to", &to]).exits(0).run();
    chain.replay(&["--db", &db, "--keep-undo", "all"]).exits(0);
    let (top, history) = (rows(&db, Table::Pages), rows(&db, Table::History));
    assert_eq!(history.len() as u64, chain.block_count);
    assert_eq!(unwind(&db, middle), at_half["root"].as_str().unwrap());
    assert_sound(&db);
    assert_eq!(rows(&db, Table::Pages), rows(&half, Table::Pages));
    let now = status(&db);
    assert_eq!(
        (&now["block"], &now["oldest"], &now["history_rows"]),
        (&middle.into(), &0.into(), &middle.into())
    );
    let run =
        chain.replay(&["--db", &db, "--keep-undo", "all", "--commit-every", "7"]).exits(0).run();
    assert_eq!((&run["root"], &run["head"]), (&chain.root().into(), &chain.block_count.into()));
    assert_eq!(run["blocks"], chain.block_count - middle);
    assert_eq!(rows(&db, Table::Pages), top);
    assert_eq!(rows(&db, Table::History), history);
    unwind(&db, 0);
    let run = chain.replay(&["--db", &db]).exits(0).run();
    assert_eq!(run["root"], chain.root());
    assert_eq!(rows(&db, Table::Pages), top);
    assert_sound(&db);
}

#[test]
fn all_forks_to_the_middle_and_again() {
    if let Some(chain) = all_forks() {
        check(&chain, 106);
    }
}

#[test]
fn chain_600_to_the_middle_and_again() {
    if let Some(chain) = chain_600() {
        check(&chain, 300);
    }
}

#[test]
fn what_is_not_kept_is_refused_and_nothing_is_lost() {
    let folder = Folder::new();
    let db = folder.path("db");
    let replay = |count: &str, keep: &str| {
        let args = ["replay", "-q", "--json", "--commit-every", "1", "--db", &db];
        spinney(&[&args[..], &["--blocks-count", count, "--keep-undo", keep]].concat()).exits(0);
    };
    replay("9", "3");
    let pages = rows(&db, Table::Pages);
    let refused = |to: &str| spinney(&["stage", "unwind", "--db", &db, "--to", to]).exits(2);
    for to in ["5", "0", "10", "18446744073709551615"] {
        let what = format!("keeps no state of block {to}: it has those of blocks 6 to 9");
        let above = to.parse::<u64>().unwrap() > 9;
        let hint = if above { "hint: the store ends at block 9;" } else { "--keep-undo" };
        let _ = refused(to).refuses(&what).says(hint);
    }
    assert_eq!(rows(&db, Table::Pages), pages);
    unwind(&db, 6);
    assert_eq!(status(&db)["oldest"], 6);
    replay("9", "0");
    let _ = refused("8").refuses("it has that of block 9 alone").says("--keep-undo");
    let _ = refused("10").refuses("it has that of block 9 alone").says("ends at block 9;");
    let prove = ["prove", "--db", &db, "--address", "0x00000000000000000000000000000000000000aa"];
    let ran = spinney(&[&prove[..], &["--block", "10"]].concat()).exits(2);
    let _ = ran.refuses("keeps no state of block 10").says("ends at block 9;");
    assert_eq!(rows(&db, Table::Pages), pages);
    assert_eq!(rows(&db, Table::History), []);
    assert_sound(&db);

    let missing = folder.path("missing");
    for verb in [&["stage", "unwind", "--to", "1"][..], &["stage", "status"]] {
        spinney(&[verb, &["--db", &missing]].concat()).exits(2).refuses("there is no store at");
    }
    assert!(!std::path::Path::new(&missing).exists());
    for keep in ["-1", "some", ""] {
        assert_eq!(spinney(&["replay", "--keep-undo", keep]).code, Some(2), "{keep}");
    }
}

/// Rows of all tables, but for how many commits each tree counts.
fn all_rows(db: &str) -> Vec<Vec<(Vec<u8>, Vec<u8>)>> {
    let tables = Table::ALL.into_iter().filter(|table| *table != Table::Roots);
    tables.map(|table| rows(db, table)).collect()
}

/// What `db info` says of a store's trees, without those counts.
fn trees(db: &str) -> serde_json::Value {
    let mut data = spinney(&["db", "info", "--json", "--db", db]).exits(0).data();
    for tree in data["trees"].as_array_mut().unwrap() {
        tree["commit"].take();
    }
    data["trees"].take()
}

const KEEP: [&str; 4] = ["--keep-commits", "all", "--tree", "mpt,pbt:blake3,ubt:sha256,verkle"];

/// A store that goes back to a commit that it keeps is one that never went further.
#[test]
fn a_kept_commit_is_gone_back_to_without_history() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (db, half) = (folder.path("db"), folder.path("half"));
    let replay = |db: &str, to: &str| {
        let each = ["--commit-every", "1", "--keep-undo", "2", "--keep-witnesses", "3"];
        chain.replay(&[&["--db", db, "--to", to], &KEEP[..], &each].concat()).exits(0)
    };
    replay(&half, "106");
    replay(&db, "213");
    // A tree that has a name is of no block, and stays.
    let leaf = format!(r#"{{"put": {{"0x{}": {{"value": "0x", "sum": "5"}}}}}}"#, "01".repeat(32));
    let sum = ["root", "--tree", "sum", "--namespace", "oaks", "--db", &db, "-"];
    let _ = crate::support::spinney_fed(&sum, &leaf).exits(0);
    let (top, named) = (all_rows(&db), trees(&db)[4].clone());
    assert_eq!(named["namespace"], "oaks");
    let args = ["stage", "unwind", "--db", &db, "--to", "106", "--blocks"];
    let other = chain_600().unwrap().blocks;
    let _ = spinney(&[&args[..], &[&other]].concat()).exits(1).refuses("block 106: hash");
    assert_eq!(all_rows(&db), top);
    let _ = spinney(&[&args[..], &[&chain.blocks]].concat()).exits(0);
    assert_eq!((&status(&db)["block"], &status(&db)["oldest"]), (&106.into(), &104.into()));
    assert_eq!(trees(&db)[4], named);
    let _ = spinney(&["db", "remove", "--db", &db, "--namespace", "oaks"]).exits(0);
    assert_eq!(trees(&db), trees(&half));
    let (now, then) = (all_rows(&db), all_rows(&half));
    for (table, (now, then)) in now.into_iter().zip(then).enumerate() {
        let without_next = |(key, _): &(Vec<u8>, Vec<u8>)| key != b"sums";
        let now: Vec<_> = now.into_iter().filter(without_next).collect();
        assert!(now == then, "table {table}: {} and {}", now.len(), then.len());
    }
    assert_sound(&db);
    // What was left is nowhere, and what stays is kept.
    let prove = ["prove", "--db", &db, "--address", "0x7dcd17433742f4c0ca53122ab541d0ba67fc27df"];
    let of = |block: &'static str| spinney(&[&prove[..], &["--block", block, "--verify"]].concat());
    let _ = of("107").exits(2).refuses("keeps no state of block 107");
    let _ = of("50").exits(0);
    replay(&db, "213");
    let without_next = |rows: Vec<(Vec<u8>, Vec<u8>)>| {
        rows.into_iter().filter(|(key, _)| !key.starts_with(b"sum")).collect::<Vec<_>>()
    };
    assert_eq!(rows(&db, Table::History), top[4]);
    assert_eq!(without_next(rows(&db, Table::Meta)), without_next(top[3].clone()));
    assert_eq!(trees(&db)[0]["root"], chain.root());
    assert_sound(&db);
}

/// Of a commit of several blocks its own history leads to those before; where it does not, nothing
/// is changed.
#[test]
fn a_block_inside_of_a_kept_commit_is_gone_back_to() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (db, half) = (folder.path("db"), folder.path("half"));
    chain.replay(&[&["--db", &half, "--to", "100"], &KEEP[2..]].concat()).exits(0);
    for (keep, is_kept) in [("7", true), ("0", false)] {
        let some = ["--db", &db, "--commit-every", "7", "--keep-undo", keep];
        chain.replay(&[&some[..], &KEEP].concat()).exits(0);
        if !is_kept {
            let refused = spinney(&["stage", "unwind", "--db", &db, "--to", "101"]).exits(2);
            let _ = refused.refuses("keeps no state of block 101").says("of blocks 98 and 105");
            assert_eq!(status(&db)["block"], 213);
            break;
        }
        unwind(&db, 100);
        assert_eq!(trees(&db), trees(&half));
        assert_eq!(rows(&db, Table::Pages), rows(&half, Table::Pages));
        assert_sound(&db);
        unwind(&db, 0);
    }
}

/// The header of the block is asked, where it is given.
#[test]
fn blocks_of_another_chain_stop_an_unwind() {
    let (Some(one), Some(other)) = (all_forks(), chain_600()) else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    one.replay(&["--db", &db]).exits(0);
    let to = |number: &str, blocks: &str| {
        let args = ["stage", "unwind", "--json", "--db", &db, "--to", number, "--blocks", blocks];
        spinney(&args)
    };
    let _ = to("50", &other.blocks).exits(1).refuses("block 50: hash: the header has 0x");
    let _ = to("0", &one.blocks).exits(2).refuses("has no block 0");
    assert_eq!(status(&db)["block"], 213);
    assert_eq!(to("50", &one.blocks).exits(0).data()["undone"], 163);
}

/// The other chain parts from the store's before its head: back to where they part, and on with it.
#[test]
fn a_fork_is_left_by_unwinding() {
    let folder = Folder::new();
    let db = folder.path("db");
    let Some(chain) = all_forks() else { return };
    chain.replay(&["--db", &db, "--to", "100"]).exits(0);
    let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
    // The same chain, but for the last block that the store has.
    let bytes = std::fs::read(&chain.blocks).expect("it can be read");
    let mut other = Vec::new();
    for block in spinney_replay::ChainReader::new(&bytes[..]).expect("it can be read") {
        let mut block = block.expect("it is a block");
        match block.block.header.number {
            100 => block.block.header.mix_hash.0[0] ^= 1,
            101.. => break,
            _ => {}
        }
        other.extend(block.to_rlp());
    }
    let other = folder.write("other", other);
    let args = ["replay", "--genesis", &chain.genesis, "--blocks", &other, "--db", &db];
    let _ = spinney(&args).exits(2).refuses("stands at block 100").says("stage unwind");
    unwind(&db, 99);
    let run = spinney(&[&args[..], &["--json"]].concat()).exits(0).run();
    assert_eq!((&run["blocks"], &run["head"]), (&1.into(), &100.into()));
    assert_ne!(run["head_hash"], info["trees"][0]["block_hash"]);
}

#[test]
fn reports_come_in_every_format() {
    let folder = Folder::new();
    let db = folder.path("db");
    spinney(&["replay", "-q", "--blocks-count", "3", "--db", &db]).exits(0);
    for (format, start) in [("table", "┌"), ("csv", "commit,block,"), ("json", "{")] {
        let ran = spinney(&["stage", "status", "--format", format, "--db", &db]).exits(0);
        assert!(ran.out.starts_with(start) && ran.err.is_empty(), "{ran:?}");
    }
    for (format, start, to) in
        [("table", "block 2, root 0x", "2"), ("csv", "block,root,", "1"), ("json", "{", "0")]
    {
        let args = ["stage", "unwind", "--format", format, "--db", &db, "--to", to];
        let ran = spinney(&args).exits(0);
        assert!(ran.out.starts_with(start) && ran.err.is_empty(), "{ran:?}");
    }
}

/// Rows that were damaged: `db check` names them, an unwind refuses.
#[test]
fn a_damaged_history_is_found() {
    use spinney_tree::{PageStore as _, WriteSet};
    let folder = Folder::new();
    let db = folder.path("db");
    spinney(&["replay", "-q", "--blocks-count", "5", "--db", &db]).exits(0);
    let (key, mut row) = rows(&db, Table::History).swap_remove(2);
    row[1] ^= 1;
    let mut set = WriteSet::new();
    set.put(Table::History, &key, row);
    let store = open_store(&db);
    store.commit(&set).unwrap();
    store.close().unwrap();
    let ran = spinney(&["db", "check", "-q", "--format", "table", "--db", &db]).exits(1);
    assert!(ran.out.contains("the history of block 4 is damaged"), "{ran:?}");
    let unwind = |to| spinney(&["stage", "unwind", "--db", &db, "--to", to]);
    let _ = unwind("1").exits(2).refuses("the history of block 4 is damaged: it does not follow");
    unwind("4").exits(0);
}
