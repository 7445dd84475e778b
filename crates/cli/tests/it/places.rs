//! Stores in places that do not do as they should: full, closed to us, in use, of another version.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use spinney_store::RedbStore;
use spinney_tree::Table;

use crate::support::{Folder, Ran, assert_sound, rows, spinney};

const REPLAY: [&str; 6] = ["replay", "-q", "--json", "--blocks-count", "40", "--db"];

/// Runs the binary where no file may grow beyond so many blocks of 512 bytes: to a program that is not
/// killed for it, as a full disk.
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
    let replay = |db: &str| spinney(&[&REPLAY[..], &[db, "--commit-every", "4"]].concat());
    let expected = replay(&whole).exits(0).run();
    let mut stopped = Vec::new();
    for kib in [64, 512, 1_100, 1_300, 1_700, 2_200, 3_000] {
        let args = [&REPLAY[..], &[&db, "--commit-every", "4"]].concat();
        let ran = on_a_small_disk(&args, kib * 2);
        if ran.code == Some(0) {
            break;
        }
        let ran = ran.exits(2).refuses("spinney.redb: ");
        assert!(ran.err.contains("hint: look at the disk"), "{ran:?}");
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
    let store = RedbStore::open(&db, 1 << 20).unwrap();
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
    const NOBODY: u32 = 65_534;
    let folder = Folder::new();
    let (db, binary) = (folder.path("db"), folder.path("spinney"));
    spinney(&[&REPLAY[..], &[&db]].concat()).exits(0);
    fs::copy(env!("CARGO_BIN_EXE_spinney"), &binary).unwrap();
    let close = |path: &str, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    close(&format!("{db}/spinney.redb"), 0o444);
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
    close(&format!("{db}/spinney.redb"), 0o644);
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
