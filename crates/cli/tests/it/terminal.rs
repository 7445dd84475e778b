//! What reaches a terminal: names of others move no cursor, and an address in the wrong place shows
//! no password.

use serde_json::json;
use spinney_tree::sum::reference::Leaves;

use crate::support::{Folder, Ran, spinney, spinney_fed};
use crate::tapd_databases::{Contents, Shape};

/// A name that clears a screen, begins a line of its own, and does the same by a control character
/// of Unicode.
const ODD: &str = "od\u{1b}[2J\nhint: d\u{9b}2J";
const MARK: &str = "7Geheim7";

/// Refuses control characters in what was said, apart from the ends of lines.
#[track_caller]
fn plain(ran: Ran) -> Ran {
    for text in [&ran.out, &ran.err] {
        let odd = |c: char| c.is_control() && c != '\n';
        assert!(!text.contains(odd) && !text.contains("\nhint: d"), "{ran:?}");
    }
    ran
}

#[test]
fn names_of_others_move_no_cursor() {
    let folder = Folder::new();
    let odd = folder.write("odd", json!({ ODD: {} }).to_string());
    let zeros = "0x0000000000000000000000000000000000000000";
    let tree = folder.write(
        "tree",
        json!({ "tree": ODD, "key": "0x01", "value": null, "proof": [] }).to_string(),
    );
    let alloc = folder.write("alloc", json!({ "alloc": { ODD: {} } }).to_string());
    let account = folder
        .write("account", json!({ "number": 1, "accounts": { zeros: { ODD: 1 } } }).to_string());
    let name = folder.write(ODD, "");
    for args in [
        &["verify", &odd][..],
        &["verify", &tree],
        &["verify", &name],
        &["verify", "--tree", "sum", &odd],
        &["root", &odd],
        &["root", "--state", &odd],
        &["root", "--state", &account],
        &["root", "--tree", "sum", &odd],
        &["root", "--tree", ODD, &odd],
        &["state-root", &alloc],
        &["state-root", &name],
        &["replay", "--genesis", &odd, "--blocks", &odd],
        &["replay", "--alloc", &alloc, "--diffs", &odd],
        &["replay", "--alloc", &name, "--diffs", &odd],
        &["import", "state", "--db", &folder.path("db"), "--number", "1", &alloc],
        &["import", "state", "--db", &folder.path("db"), "--number", "1", &name],
        &["db", "load", "--db", &folder.path("db"), &odd],
        &["db", "load", "--tree", "sum", "--db", &folder.path("db"), &odd],
        &["db", "info", "--db", &name],
        &["snapshot", "verify", &name],
        &["vectors", "--dir", &name],
    ] {
        let ran = plain(spinney(args));
        assert!(matches!(ran.code, Some(1 | 2)), "{args:?}: {ran:?}");
        assert_eq!(ran.err.lines().filter(|line| line.starts_with("hint: ")).count(), 1, "{ran:?}");
    }
    let mut contents = Contents::default();
    let leaves = |sum| {
        let leaf = spinney_tree::sum::Leaf { value: vec![7], sum };
        Leaves::from([([1; 32], leaf.clone()), ([2; 32], leaf)])
    };
    contents.add(ODD, Shape::Compacted { below: 0 }, &leaves(5));
    let (database, sums) = (contents.sqlite(), folder.path("sums"));
    let file = database.file.to_str().unwrap();
    let import =
        |db: &str, file: &str| spinney(&["import", "tapd", "--format", "table", "--db", db, file]);
    let table = plain(import(&sums, file)).exits(0).out;
    assert!(table.contains(r"od\u{1b}[2J\nhint: d\u{9b}2J"), "{table}");
    for format in ["json", "table"] {
        let info = plain(spinney(&["db", "info", "--db", &sums, "--format", format]).exits(0));
        if format == "json" {
            assert_eq!(info.data()["trees"][0]["namespace"], ODD);
        }
    }
    let remove = ["db", "remove", "--namespace", ODD, "--format", "table"];
    plain(spinney(&["db", "remove", "--namespace", "x\u{1b}", "--db", &sums]).exits(2));
    plain(spinney(&[&remove[..], &["--db", &sums]].concat()).exits(0));
    // Each finding has a line of its own.
    let row =
        contents.nodes.iter().find(|(_, (columns, _))| columns.2.is_some()).unwrap().0.clone();
    contents.nodes.get_mut(&row).unwrap().1 += 1;
    let damaged = contents.sqlite();
    let ran = plain(import(&folder.path("none"), damaged.file.to_str().unwrap())).exits(1);
    let mut lines = ran.err.lines().skip_while(|line| !line.starts_with("error: "));
    assert!(lines.nth(1).is_some_and(|line| line.starts_with("  ")), "{ran:?}");
}

/// Tables for people: of 80 columns at most, with units, and none where there is nothing to show.
#[test]
fn tables_are_narrow_and_have_units() {
    let folder = Folder::new();
    let (db, empty) = (folder.path("db"), folder.path("empty"));
    let trees = ["--tree", "mpt,pbt:blake3,ubt:sha256,verkle", "--blocks-count", "3"];
    let _ = spinney(&[&["replay", "-q", "--db", &db][..], &trees].concat()).exits(0);
    let table = |args: &[&str]| {
        let out = spinney(&[args, &["--format", "table"]].concat()).exits(0).out;
        assert!(out.lines().all(|line| line.chars().count() <= 80), "{out}");
        out
    };
    let status = table(&["stage", "status", "--db", &db]);
    assert!(status.contains("\npbt:blake3: 0x"), "{status}");
    assert!(table(&["doctor"]).contains("MiB"));
    let out = folder.path("snapshot");
    let snapshot = table(&["snapshot", "export", "-q", "--db", &db, "--out", &out]);
    assert!(snapshot.contains(" KiB") || snapshot.contains(" B "), "{snapshot}");
    drop(crate::support::open_store(&db));
    let _ = spinney_fed(&["root", "--db", &empty, "-"], "").exits(0);
    assert_eq!(table(&["db", "info", "--db", &empty]), "nothing\n");
    let csv = spinney(&["db", "info", "--db", &empty, "--format", "csv"]).exits(0).out;
    assert!(csv.starts_with("id,"), "{csv}");
}

#[test]
fn an_address_in_the_place_of_a_file_shows_no_password() {
    let folder = Folder::new();
    let genesis = folder.write("genesis", "{}");
    let address = format!("postgres://me:{MARK}@host/database");
    let pairs = format!("host=h user=me password={MARK}");
    let db = folder.path("db");
    for file in [&address, &pairs] {
        for args in [
            &["verify", file][..],
            &["root", file],
            &["root", "--db", &db, file],
            &["state-root", file],
            &["replay", "--genesis", file, "--blocks", file],
            &["replay", "--alloc", &genesis, "--diffs", file],
            &["replay", "--genesis", &genesis, "--traces", file],
            &["witness", "--all", "--genesis", file, "--blocks", file],
            &["witness", "--all", "--genesis", file, "--blocks", file, "--out", file],
            &["import", "state", "--db", &db, "--number", "1", file],
            &["import", "tapd", "--db", &db, &format!("./{file}")],
            &["db", "load", "--db", &db, file],
            &["db", "load", "--tree", "sum", "--db", &db, file],
            &["stage", "run", "--db", &db, "--state", file],
            &["stage", "run", "--db", &db, "--diffs", file, "--alloc", file],
            &["catch-up", "--db", &db, file],
            &["snapshot", "verify", file],
            &["snapshot", "verify", &genesis, "--preimages", file],
            &["snapshot", "import", file, &db],
            &["snapshot", "import", &genesis, &db, "--preimages", file],
            &["vectors", "--dir", file],
            &["bench", "--genesis", file, "--blocks", file],
            &["replay", "--cache", file],
        ] {
            let ran = spinney(args);
            assert!(matches!(ran.code, Some(1 | 2)), "{args:?}: {ran:?}");
            assert!(!ran.out.contains(MARK) && !ran.err.contains(MARK), "{args:?}: {ran:?}");
        }
    }
    let ran = spinney_fed(&["verify", "--root", &address, "-"], "{}").exits(2);
    assert!(ran.err.contains("***") && !ran.err.contains(MARK), "{ran:?}");
}
