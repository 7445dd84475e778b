//! Stores in places that do not do as they should: full, closed to us, in use, of another version.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use serde_json::json;
use spinney_tree::Table;

use crate::support::{Folder, Ran, assert_sound, open_store, rows, spinney};

const REPLAY: [&str; 6] = ["replay", "-q", "--json", "--blocks-count", "40", "--db"];

/// Runs the binary where no file may grow beyond so many blocks of 512 bytes: to a program that is
/// not killed for it, as a full disk.
fn on_a_small_disk(args: &[&str], blocks: u64) -> Ran {
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_spinney")).args(args);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("SPINNEY_")) {
        shell.env_remove(name);
    }
    shell.output().expect("there is a shell").into()
}

#[test]
fn a_full_disk_loses_nothing() {
    let folder = Folder::new();
    let (whole, db) = (folder.path("whole"), folder.path("db"));
    // A log has many files, and none of them grows: see the tests of full disks.
    let more = ["--commit-every", "4", "--store", "redb"];
    let replay = |db: &str| spinney(&[&REPLAY[..], &[db], &more].concat());
    let expected = replay(&whole).exits(0).run();
    let mut stopped = Vec::new();
    for kib in [64, 512, 1_100, 1_300, 1_700, 2_200, 3_000] {
        let args = [&REPLAY[..], &[&db], &more].concat();
        let ran = on_a_small_disk(&args, kib * 2);
        if ran.code == Some(0) {
            break;
        }
        let ran = ran.exits(2).refuses("spinney.redb: ");
        assert!(ran.err.contains("hint: make room"), "{ran:?}");
        if fs::exists(format!("{db}/spinney.redb")).unwrap() {
            assert_sound(&db);
            let info = spinney(&["db", "info", "--json", "--db", &db]).exits(0).data();
            stopped.push(info["trees"][0]["block"].as_u64().unwrap_or(0));
        }
    }
    assert!(!stopped.is_empty() && stopped.is_sorted(), "{stopped:?}");
    println!("the disk was full after blocks {stopped:?}");
    let run = replay(&db).exits(0).run();
    assert_eq!(run["root"], expected["root"]);
    for table in [Table::Pages, Table::History] {
        assert!(rows(&db, table) == rows(&whole, table), "{table} differ");
    }
    assert_sound(&db);
}

#[test]
fn a_second_writer_is_told_to_wait() {
    let folder = Folder::new();
    let db = folder.path("db");
    let first = [&REPLAY[..], &[&db]].concat();
    spinney(&first).exits(0);
    let store = open_store(&db);
    for args in [
        &first[..],
        &["stage", "unwind", "--db", &db, "--to", "1"],
        &["db", "compact", "--db", &db],
        &["root", "--state", "--db", &db, "-"],
    ] {
        let _ = spinney(args).exits(2).refuses("is in use by another process").says("wait for");
    }
    // Readers go on.
    for args in
        [&["stage", "status"][..], &["db", "info"], &["db", "stats"], &["db", "check", "-q"]]
    {
        spinney(&[args, &["--db", &db]].concat()).exits(0);
    }
    store.close().unwrap();
    spinney(&["stage", "unwind", "--db", &db, "--to", "1"]).exits(0);
}

/// Root may write anywhere, so the command is run by nobody.
#[test]
fn a_folder_that_is_read_only_can_be_read() {
    for kind in ["log", "redb"] {
        read_only(kind);
    }
}

fn read_only(kind: &str) {
    const NOBODY: u32 = 65_534;
    let folder = Folder::new();
    let (db, binary) = (folder.path("db"), folder.path("spinney"));
    spinney(&[&REPLAY[..], &[&db, "--store", kind]].concat()).exits(0);
    fs::copy(env!("CARGO_BIN_EXE_spinney"), &binary).unwrap();
    let close = |path: &str, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let close_all = |file: u32, inside: u32| {
        for (name, _) in modes(&db) {
            let is_dir = fs::metadata(&name).unwrap().is_dir();
            close(&name, if is_dir { inside } else { file });
        }
    };
    close_all(0o444, 0o555);
    close(&binary, 0o555);
    close(&db, 0o555);
    close(&folder.path(""), 0o755);
    let root = fs::write(format!("{db}/probe"), "").is_ok();
    let run = |args: &[&str]| {
        let mut command = Command::new(&binary);
        command.args(args).env_clear();
        if root {
            let _ = fs::remove_file(format!("{db}/probe"));
            command.uid(NOBODY).gid(NOBODY);
        }
        command.output()
    };
    let read = |args: &[&str]| run(&[args, &["--db", &db]].concat());
    let Ok(first) = read(&["stage", "status", "--json"]) else {
        println!("skipped: the binary cannot be run by another user");
        return;
    };
    assert_eq!(Ran::from(first).exits(0).data()["block"], 40);
    for args in [&["db", "info"][..], &["db", "stats"], &["db", "check", "-q"], &["db", "dump"]] {
        Ran::from(read(args).unwrap()).exits(0);
    }
    for args in [
        &["stage", "unwind", "--to", "1"][..],
        &["db", "compact"],
        &["replay", "-q", "--blocks-count", "41"],
    ] {
        let _ = Ran::from(read(args).unwrap()).exits(2).refuses("Permission denied");
    }
    let inside = format!("{db}/new");
    let make = ["replay", "-q", "--blocks-count", "1", "--db", &inside];
    let _ = Ran::from(run(&make).unwrap()).exits(2).refuses("Permission denied");
    close(&db, 0o755);
    close_all(0o644, 0o755);
    assert_sound(&db);
}

#[test]
fn a_store_of_another_version_is_read_updated_or_refused() {
    let folder = Folder::new();
    let db = folder.path("db");
    fs::create_dir(&db).unwrap();
    let older = include_bytes!("../../../../testdata/store-format-1.redb.zst");
    fs::write(format!("{db}/spinney.redb"), zstd::decode_all(&older[..]).unwrap()).unwrap();
    let status = || spinney(&["stage", "status", "--json", "--db", &db]).exits(0).data();
    let before = status();
    assert_eq!((&before["block"], &before["oldest"]), (&2.into(), &2.into()));
    let line = folder.write("3", r#"{"number": 3, "accounts": {}}"#);
    spinney(&["root", "--state", "--db", &db, &line]).exits(0);
    assert_eq!((&status()["block"], &status()["oldest"]), (&3.into(), &2.into()));
    spinney(&["stage", "unwind", "--db", &db, "--to", "2"]).exits(0);
    assert_eq!(status()["root"], before["root"]);
    assert_sound(&db);
}

/// All files and folders below one, with their modes.
/// No store is announced that is not made, and the hint is about the place.
#[test]
#[cfg(target_os = "linux")]
fn a_place_where_nothing_can_be_made_is_named() {
    for db in ["/proc/nothing", "/proc/nothing.db"] {
        let args = ["replay", "--blocks-count", "1", "--db", db];
        let ran = spinney(&args).exits(2).refuses("/proc/nothing");
        assert!(!ran.err.contains("new store"), "{ran:?}");
        let _ = ran.says("name another one with --db");
    }
}

fn modes(folder: &str) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("it can be listed") {
        let path = entry.expect("it can be listed").path();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777;
        let name = path.to_str().expect("text").to_owned();
        if path.is_dir() {
            found.extend(modes(&name));
        }
        found.push((name, mode));
    }
    found
}

/// Whatever the umask is: who may use a store is what was said, or the user alone.
#[test]
fn stores_are_made_for_whom_was_said() {
    let files = Folder::new();
    let source = files.path("source");
    spinney(&["replay", "-q", "--blocks-count", "3", "--db", &source]).exits(0);
    let dump = files.write("dump", spinney(&["db", "dump", "--db", &source]).exits(0).out);
    let pbt = files.path("pbt");
    spinney(&["convert", "-q", "--to", "pbt:blake3", &source, &pbt]).exits(0);
    let snapshot = files.path("snapshot");
    spinney(&["snapshot", "export", "-q", "--db", &pbt, "--out", &snapshot]).exits(0);
    let leaf = json!({ "key": format!("0x{}", "01".repeat(32)), "value": "0x", "sum": "5" });
    let leaves = files.write("leaves", format!("{leaf}\n"));
    let line = files.write("line", r#"{"put": {"0x01": "0x02"}}"#);
    let verbs: [&[&str]; 9] = [
        &["replay", "--blocks-count", "3", "--store", "KIND", "--db", "DB"],
        &["root", "--store", "KIND", "--db", "DB", &line],
        &["import", "state", "--number", "3", &dump, "--store", "KIND", "--db", "DB"],
        &["db", "load", &dump, "--store", "KIND", "--db", "DB"],
        &["db", "load", "--tree", "sum", &leaves, "--store", "KIND", "--db", "DB"],
        &["stage", "run", "--state", &dump, "--store", "KIND", "--db", "DB"],
        &["stage", "dump", "--db", &source, "--from", "2", "--into-store", "KIND", "--into", "DB"],
        &["convert", "--to", "verkle", "--to-store", "KIND", &source, "DB"],
        &["snapshot", "import", &snapshot, "--to-store", "KIND", "DB"],
    ];
    let modes_of = [
        ("000", None, 0o600, 0o700),
        ("077", Some("640"), 0o640, 0o750),
        ("022", Some("0660"), 0o660, 0o770),
    ];
    for (at, verb) in verbs.into_iter().enumerate() {
        // Every verb with every kind and every mode, not all three together.
        for (step, kind) in ["log", "redb", "sqlite"].into_iter().enumerate() {
            let (umask, said, file, inside) = modes_of[(at + step) % modes_of.len()];
            let folder = Folder::new();
            let db = folder.path("made/db");
            let word = |word: &&str| word.replace("KIND", kind).replace("DB", &db);
            let mut shell = Command::new("sh");
            let script = format!("umask {umask}; exec \"$0\" \"$@\"");
            shell.arg("-c").arg(script).arg(env!("CARGO_BIN_EXE_spinney"));
            shell.args(verb.iter().map(word)).env_remove("SPINNEY_MODE");
            shell.args(said.map(|mode| ["--mode", mode]).into_iter().flatten());
            Ran::from(shell.output().expect("there is a shell")).exits(0);
            let found = modes(&folder.path(""));
            assert!(found.len() > 1, "{verb:?}: {found:?}");
            for (name, mode) in found {
                let expected = if fs::metadata(&name).unwrap().is_dir() { inside } else { file };
                assert_eq!(mode, expected, "{name} of {verb:?}, umask {umask}, --mode {said:?}");
            }
        }
    }
    spinney(&["replay", "--mode", "755"]).exits(2).says("nobody executes");
}
