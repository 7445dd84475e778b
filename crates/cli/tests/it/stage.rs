//! `stage run` and `stage dump`: trees built anew.

use spinney_tree::{PageStore as _, Table, WriteSet};

use crate::support::{
    Chain, Folder, all_forks, assert_sound, chain_600, command, open_store, pages, rows, spinney,
    spinney_fed,
};

fn check(chain: &Chain, middle: u64) {
    let folder = Folder::new();
    let (db, dump, half) = (folder.path("db"), folder.path("dump"), folder.path("half"));
    chain.replay(&["--db", &db, "--keep-undo", "all"]).exits(0);
    let top = pages(&db);

    // The store's own leaves: nothing but the generation changes, and the history stays.
    let history = rows(&db, Table::History);
    for more in [&["--range-leaves", "7", "--in-flight", "3"][..], &["--memory", "4k"]] {
        let args = ["stage", "run", "-q", "--json", "--own", "--db", &db];
        let data = spinney(&[&args[..], more].concat()).exits(0).data();
        assert_eq!(data["root"], chain.root());
        assert_eq!(data["leaves_hashed"], data["leaves"]);
        assert_eq!(pages(&db), top);
    }
    assert_eq!(rows(&db, Table::History), history);
    assert_sound(&db);
    let status = spinney(&["stage", "status", "--json", "--db", &db]).exits(0).data();
    assert_eq!(status["rebuild"]["finished"], true);

    // P13: the state before the middle, and on from there, to the same pages.
    let from = (middle + 1).to_string();
    let args = ["stage", "dump", "-q", "--json", "--db", &db, "--from", &from, "--into", &dump];
    let data = spinney(&args).exits(0).data();
    assert_eq!(data["block"], middle);
    chain.replay(&["--db", &half, "--to", &middle.to_string()]).exits(0);
    assert_eq!(pages(&dump), pages(&half));
    assert_sound(&dump);
    let run = chain.replay(&["--db", &dump, "--commit-every", "7"]).exits(0).run();
    assert_eq!(
        (&run["root"], &run["blocks"]),
        (&chain.root().into(), &(chain.block_count - middle).into())
    );
    assert_eq!(pages(&dump), top);
    assert_sound(&dump);
    spinney(&args).exits(2).refuses("there is a store already");

    // P21: unwound to the middle, over the rebuilt pages.
    let to = middle.to_string();
    spinney(&["stage", "unwind", "--json", "--db", &db, "--to", &to]).exits(0);
    assert_eq!(pages(&db), pages(&half));
}

#[test]
fn all_forks_built_anew_and_dumped() {
    if let Some(chain) = all_forks() {
        check(&chain, 106);
    }
}

#[test]
fn chain_600_built_anew_and_dumped() {
    if let Some(chain) = chain_600() {
        check(&chain, 300);
    }
}

#[test]
fn a_document_becomes_a_state() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let (whole, db) = (folder.path("whole"), folder.path("db"));
    chain.replay(&["--db", &whole, "--to", "150"]).exits(0);
    let dump = folder.write("dump", spinney(&["db", "dump", "--db", &whole]).exits(0).out);
    let args = ["stage", "run", "-q", "--json", "--db", &db, "--state", &dump];
    let data = spinney(&args).exits(0).data();
    assert_eq!((&data["block"], &data["was_finished"]), (&150.into(), &false.into()));
    assert_eq!(pages(&db), pages(&whole));
    assert_sound(&db);
    assert_eq!(
        spinney(&["db", "dump", "--db", &db]).exits(0).out,
        std::fs::read_to_string(&dump).unwrap()
    );
    assert_eq!(spinney(&args).exits(0).data()["was_finished"], true);
    let run = chain.replay(&["--db", &db]).exits(0).run();
    assert_eq!((&run["blocks"], &run["root"]), (&63.into(), &chain.root().into()));
    // Over another state, whose history goes with it.
    assert_eq!(spinney(&args).exits(0).data()["was_finished"], false);
    assert_eq!((pages(&db), rows(&db, Table::History)), (pages(&whole), vec![]));
    let zeros = format!("0x{}", "0".repeat(64));
    let _ = spinney(&[&args[..], &["--root", &zeros]].concat())
        .exits(1)
        .refuses("state root: expected");
    assert_eq!(pages(&db), pages(&whole));
    assert!(!std::path::Path::new(&format!("{db}.leaves")).exists());
    spinney(&["stage", "run", "--db", &db, "--state", "-"]).exits(2).refuses("cannot read -");
}

/// What a refused document would leave behind: nothing, where there was nothing.
#[test]
fn a_document_that_is_refused_leaves_nothing_behind() {
    let folder = Folder::new();
    let address = |n: u8| format!("0x{}", format!("{n:02x}").repeat(20));
    let document =
        |accounts: &str| format!("{{\"block\": {{\"number\": 7}}, \"accounts\": {{{accounts}}}}}");
    let account = |n: u8| format!("\"{}\": {{\"balance\": \"{n}\"}}", address(n));
    let good = document(&account(1));
    let twice = document(&[account(1), account(2), account(1)].join(","));
    let zeros = format!("0x{}", "0".repeat(64));
    let named = format!("account {} is given twice", address(1));
    let cases: [(&str, &str, &[&str], i32, &str); 4] = [
        ("cut", &good[..good.len() - 1], &[], 2, "EOF"),
        ("twice", &twice, &[], 2, &named),
        // So many leaves at a time that both are never in memory together.
        ("spilled", &twice, &["--memory", "100"], 2, &named),
        ("root", &good, &["--root", &zeros], 1, "state root: expected"),
    ];
    let mut places = ["log", "redb", "sqlite"].map(|kind| (kind, folder.path(kind))).to_vec();
    if let Some(server) = crate::server::shared() {
        places.push(("postgres", server.schema().0));
    }
    for (kind, db) in places {
        let spill = folder.path("leaves");
        for (name, text, more, exit, says) in cases {
            let file = folder.write(name, text);
            let args = ["stage", "run", "-q", "--store", kind, "--db", &db, "--state", &file];
            let args = [&args[..], &["--spill", &spill], more].concat();
            let refused = spinney(&args).exits(exit);
            assert!(refused.err.contains(says), "{kind}: {name}: {refused:?}");
            assert!(!std::path::Path::new(&spill).exists(), "{kind}: {name}");
            let info = ["db", "info", "--store", kind, "--db", &db];
            spinney(&info).exits(2).refuses("there is no store");
        }
        let left = std::fs::read_dir(folder.path(".")).unwrap().count();
        assert_eq!(left, cases.len(), "{kind}: the documents");
    }
}

#[test]
fn a_dump_leaves_no_tree_behind() {
    let folder = Folder::new();
    let (db, into) = (folder.path("db"), folder.path("into"));
    let trees = ["--tree", "mpt,ubt:sha256"];
    spinney(&[&["replay", "-q", "--blocks-count", "3", "--db", &db], &trees[..]].concat()).exits(0);
    let dump = ["stage", "dump", "--db", &db, "--from", "2", "--into", &into];
    spinney(&dump).exits(2).refuses("the store holds ubt:sha256, which would stay behind");
    assert!(!std::path::Path::new(&into).exists());
}

/// Code and preimages wait for the last commit, longer than the leaves do.
#[test]
fn a_run_that_is_killed_loses_no_code() {
    let Some(chain) = chain_600() else { return };
    let folder = Folder::new();
    let (whole, db) = (folder.path("whole"), folder.path("db"));
    chain.replay(&["--db", &whole, "--to", "300"]).exits(0);
    let dump = spinney(&["db", "dump", "--db", &whole]).exits(0).out;
    let file = folder.write("dump.json", &dump);
    let small = ["--memory", "64KiB", "--range-leaves", "1", "--threads", "1"];
    let args = [&["stage", "run", "-q", "--db", &db, "--state", &file], &small[..]].concat();
    let mut child = command(&args).spawn().expect("the binary runs");
    // From this file on the leaves are not read again.
    let sorted = std::path::PathBuf::from(format!("{db}.leaves/sorted"));
    while !sorted.exists() && child.try_wait().expect("it is ours").is_none() {
        std::thread::yield_now();
    }
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    spinney(&args).exits(0);
    assert_sound(&db);
    assert_eq!(spinney(&["db", "dump", "--db", &db]).exits(0).out, dump);
    assert_eq!(rows(&db, Table::Preimages), rows(&whole, Table::Preimages));
}

/// A run that is killed right behind its last commit leaves the old generation's rows.
#[test]
fn what_a_finished_run_left_is_removed_by_the_next() {
    let folder = Folder::new();
    let db = folder.path("db");
    spinney(&["replay", "-q", "--blocks-count", "3", "--db", &db]).exits(0);
    let old = rows(&db, Table::Pages);
    let own = ["stage", "run", "-q", "--own", "--db", &db];
    spinney(&own).exits(0);
    let new = rows(&db, Table::Pages);
    let store = open_store(&db);
    let mut set = WriteSet::new();
    old.iter().for_each(|(key, row)| set.put(Table::Pages, key, row.clone()));
    set.sort();
    store.commit(&set).unwrap();
    store.close().unwrap();
    assert_ne!(rows(&db, Table::Pages), new);
    spinney(&own).exits(0);
    assert_eq!(rows(&db, Table::Pages), new);
    assert_sound(&db);
}

#[test]
fn only_a_state_is_built_anew() {
    let folder = Folder::new();
    let genesis = folder.write("genesis.json", r#"{"alloc": {}}"#);
    let sums = folder.path("sums");
    let leaf =
        format!(r#"{{"put": {{"0x{}": {{"value": "0xaa", "sum": "5"}}}}}}"#, "11".repeat(32));
    spinney_fed(&["root", "--tree", "sum", "--db", &sums, "-"], &leaf).exits(0);
    let several = folder.path("several");
    let trees = ["--tree", "mpt,ubt:sha256", "--db", &several];
    spinney(&[&["replay", "-q", "--blocks-count", "2"], &trees[..]].concat()).exits(0);
    for db in [&sums, &several] {
        let state = ["stage", "run", "--db", db, "--state", &genesis, "--number", "0"];
        spinney(&state).exits(2).refuses("the store holds other trees");
        assert_sound(db);
    }
    let own = |db: &str| spinney(&["stage", "run", "-q", "--own", "--db", db]);
    own(&sums).exits(2).refuses("the store holds no state");
    own(&several).exits(0);
    assert_sound(&several);
}
