//! Every verb over SQLite and PostgreSQL: the same answers and the same rows as over redb.

use serde_json::Value;
use spinney_store::{Location, OpenFor};
use spinney_tree::{PageStore as _, Snapshot as _, Table};

use crate::server;
use crate::support::{Folder, assert_sound, chain_600, spinney};

type Rows = Vec<(Vec<u8>, Vec<u8>)>;

fn rows(location: &Location, table: Table) -> Rows {
    let store = location.open(OpenFor::Reading, 1 << 20).expect("the store opens");
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        rows.push((key.to_vec(), row.to_vec()));
        true
    };
    store.snapshot().unwrap().scan(table, &[], None, &mut visit).expect("the store can be read");
    rows
}

/// A kind of store, what to give as --db, and the same for a test that looks inside.
type Place = (&'static str, String, Location);

/// Places for a store of each kind; without a server, for two.
fn places(folder: &Folder, name: &str) -> Vec<Place> {
    let (redb, sqlite) =
        (folder.path(&format!("{name}.redb")), folder.path(&format!("{name}.sqlite")));
    let mut places = vec![
        ("redb", redb.clone(), Location::Redb(redb.into())),
        ("sqlite", sqlite.clone(), Location::Sqlite(sqlite.into())),
    ];
    if let Some(server) = server::shared() {
        let (url, _) = server.schema();
        places.push(("postgres", url.clone(), Location::Postgres(url.into())));
    }
    places
}

fn data(args: &[&str]) -> Value {
    spinney(&[args, &["--json"]].concat()).exits(0).data()
}

#[test]
fn chain_600_has_the_same_rows_in_every_store() {
    let Some(chain) = chain_600() else { return };
    let folder = Folder::new();
    let mut first: Option<Vec<Rows>> = None;
    for (kind, db, location) in places(&folder, "chain") {
        // A first half, and the rest by what the place itself says it is.
        let half = ["--store", kind, "--db", &db, "--to", "300"];
        assert_eq!(chain.replay(&half).exits(0).run()["head"], 300);
        let run = chain.replay(&["--db", &db, "--commit-every", "100"]).exits(0).run();
        assert_eq!((&run["store"], &run["head"]), (&kind.into(), &600.into()));
        assert_eq!(run["root"], chain.root());
        assert!(run["bytes_written"].as_u64() > Some(100_000), "{run}");
        assert!(run["store_bytes"].as_u64() > Some(100_000), "{run}");
        assert_sound(&db);
        let tables = Table::ALL.map(|table| rows(&location, table));
        assert!(tables[0].len() > 10);
        // The number of commits is part of root records, and the same here.
        let tables = tables.to_vec();
        assert!(first.get_or_insert_with(|| tables.clone()) == &tables, "{kind}: other rows");
    }
}

#[test]
fn every_verb_runs_over_every_store() {
    let folder = Folder::new();
    let (copies, imports) = (places(&folder, "copy"), places(&folder, "import"));
    let mut first = None;
    for (at, (kind, db, location)) in places(&folder, "state").into_iter().enumerate() {
        let replay = ["replay", "-q", "--blocks-count", "40", "--commit-every", "8"];
        let run = data(&[&replay[..], &["--store", kind, "--db", &db]].concat());
        let root = run["runs"][0]["root"].clone();
        let info = data(&["db", "info", "--db", &db]);
        assert_eq!((&info["store"], &info["trees"][0]["root"]), (&kind.into(), &root));
        let stats = data(&["db", "stats", "--db", &db]);
        assert!(stats["file_bytes"].as_u64() > Some(10_000), "{stats}");
        let pages = &stats["tables"][0];
        assert!(pages["stored_bytes"].as_u64() > pages["value_bytes"].as_u64(), "{stats}");
        assert!(data(&["db", "compact", "--db", &db])["bytes_after"].as_u64() > Some(10_000));

        let dump = folder.write("dump", spinney(&["db", "dump", "--db", &db]).exits(0).out);
        let (kind, copy, copied) = &copies[at];
        data(&["db", "load", "-q", "--store", kind, "--db", copy, &dump]);
        assert!(rows(copied, Table::Pages) == rows(&location, Table::Pages), "{kind}: a copy");
        assert_sound(copy);
        let again = ["db", "load", "-q", "--db", copy, &dump];
        let _ = spinney(&again).exits(2).refuses("there is a store already");
        let (kind, import, _) = &imports[at];
        let hash = info["trees"][0]["block_hash"].as_str().expect("a block has a hash");
        let anchor = ["--number", "40", "--hash", hash];
        let import = ["import", "state", "-q", "--store", kind, "--db", import, &dump];
        let imported = data(&[&import[..], &anchor].concat());
        assert_eq!(imported["root"], root);

        let unwound = data(&["stage", "unwind", "-q", "--db", &db, "--to", "25"]);
        assert_eq!(data(&["stage", "status", "--db", &db])["block"], 25, "{unwound}");
        data(&[&replay[..], &["--db", &db]].concat());
        assert_eq!(data(&["db", "info", "--db", &db])["trees"][0]["root"], root);
        assert_sound(&db);
        let all = Table::ALL.map(|table| rows(&location, table));
        let pages = &all[Table::Pages as usize];
        assert_eq!(first.get_or_insert_with(|| pages.clone()), pages, "{kind}: other pages");
    }
}

#[test]
fn a_place_that_does_not_fit_its_store_is_named() {
    let folder = Folder::new();
    let db = folder.path("db");
    let refuse = |args: &[&str], what: &str| {
        let _ = spinney(&[&["replay", "-q", "--blocks-count", "1"], args].concat())
            .exits(2)
            .refuses(what);
    };
    refuse(&["--store", "sqlite"], "a sqlite store needs a file");
    refuse(&["--store", "postgres"], "a postgres store needs a URL");
    refuse(&["--store", "postgres", "--db", &db], "PostgreSQL");
    refuse(&["--db", "postgres://me:secret@127.0.0.1:1/db"], "postgres://me@127.0.0.1:1/db: ");
    let nothing = ["db", "info", "--store", "sqlite", "--db", &db];
    let _ = spinney(&nothing).exits(2).refuses("there is no store at");
    // A directory is no file, and a file of SQLite's is no directory.
    std::fs::create_dir(&db).unwrap();
    let _ = spinney(&nothing).exits(2).refuses("it is a directory");
    let file = folder.path("file");
    let _ = spinney(&["replay", "-q", "--blocks-count", "1", "--store", "sqlite", "--db", &file])
        .exits(0);
    let wrong = ["db", "info", "--store", "redb", "--db", &file];
    let _ = spinney(&wrong).exits(2).refuses("it is a file");
}
