//! SQLite stores: places, processes, cut logs, damage.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use spinney_store::{RedbStore, SqliteStore};
use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};
use tempfile::{TempDir, tempdir};

use crate::processes::{Other, kill_a_writer};
use crate::tools::{CACHE_BYTES, Contents, contents, puts, read};

fn open(file: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(file, CACHE_BYTES)
}

fn open_read_only(file: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open_read_only(file, CACHE_BYTES)
}

fn create(file: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::create(file, CACHE_BYTES)
}

fn place() -> (TempDir, PathBuf) {
    let folder = tempdir().unwrap();
    let file = folder.path().join("state.sqlite");
    (folder, file)
}

fn with_suffix(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[test]
fn reopening_keeps_everything() {
    let (_folder, file) = place();
    let store = create(&file).unwrap();
    for round in 0..10_u8 {
        for table in Table::ALL {
            let row = vec![round; 1_000 * usize::from(round)];
            store.commit(&puts(table, [([round], row)])).unwrap();
        }
    }
    let before = contents(&store);
    store.close().unwrap();
    assert!(!with_suffix(&file, "-wal").exists(), "a closed store is one file and its lock");
    for access in [open, open_read_only, open] {
        assert_eq!(contents(&access(&file).unwrap()), before);
    }
}

#[test]
fn a_place_without_a_store_is_missing() {
    let (folder, file) = place();
    for place in [file, folder.path().join("no/where")] {
        for access in [open, open_read_only] {
            let error = access(&place).unwrap_err();
            assert!(matches!(error, StoreError::Missing { .. }), "{error}");
        }
        assert!(!place.exists() && !with_suffix(&place, ".lock").exists(), "opening makes nothing");
    }
    let place = folder.path().join("a/b/c");
    let either = || SqliteStore::open_or_create(&place, CACHE_BYTES).unwrap();
    either().commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    assert_eq!(read(&either(), Table::Meta, b"a").unwrap(), b"1");
    let error = create(&place).unwrap_err();
    assert!(error.to_string().ends_with("there is a store already"), "{error}");
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let (folder, file) = place();
    let theirs = folder.path().join("theirs");
    let connection = Connection::open(&theirs).unwrap();
    connection
        .execute_batch("CREATE TABLE pages(key, value); INSERT INTO pages VALUES (1, 2)")
        .unwrap();
    drop(connection);
    let noise: Vec<u8> =
        (0..50_000_u32).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
    for (content, said) in [
        (noise, "no SQLite database"),
        (b"x".to_vec(), "no SQLite database"),
        (Vec::new(), "an empty file"),
        (fs::read(&theirs).unwrap(), "another program"),
    ] {
        fs::write(&file, &content).unwrap();
        for access in [open, open_read_only] {
            let error = access(&file).unwrap_err();
            assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
        assert!(fs::read(&file).unwrap() == content, "{said}: it was changed");
    }
    let error = open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}

#[test]
fn a_damaged_format_row_is_refused() {
    let (_folder, file) = place();
    drop(create(&file).unwrap());
    let change = |sql: &str| Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    change(
        "UPDATE spinney SET value = CAST(x'02000000' || substr(value, 5) AS BLOB) WHERE key = x'666f726d6174'",
    );
    let error = open(&file).unwrap_err();
    assert!(error.to_string().contains("its format row does not match its checksum"), "{error}");
    change("DELETE FROM spinney WHERE key = x'666f726d6174'");
    let error = open_read_only(&file).unwrap_err();
    assert!(error.to_string().contains("its format row is missing"), "{error}");
}

#[test]
fn a_missing_table_and_a_missing_root_record_are_damage() {
    let (_folder, file) = place();
    let store = create(&file).unwrap();
    store.commit(&puts(Table::Roots, [("1", "root"), ("2", "root")])).unwrap();
    store.close().unwrap();
    let change = |sql: &str| Connection::open(&file).unwrap().execute_batch(sql).unwrap();
    change("DELETE FROM roots WHERE key = x'31'");
    let error = open(&file).unwrap_err();
    assert!(error.to_string().ends_with("is damaged: it has 1 of 2 root records"), "{error}");
    change("DROP TABLE roots");
    let error = open_read_only(&file).unwrap_err();
    assert!(error.to_string().ends_with("is damaged: its table roots is missing"), "{error}");
}

#[test]
fn one_process_writes_and_others_read() {
    let (_folder, file) = place();
    let store = create(&file).unwrap();
    let busy = open(&file).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    let mut other = Other::start("open sqlite", &file);
    assert_eq!(other.hear().unwrap(), "busy");
    other.end();

    let write = |store: &SqliteStore, round: u8| {
        let rows = (0..40_u8).map(|key| ([key], vec![round; 3_000]));
        store.commit(&puts(Table::Pages, rows)).unwrap();
    };
    write(&store, 1);
    let mut reader = Other::start("read sqlite", &file);
    assert_eq!(reader.hear().unwrap(), "ready");
    for round in 2..60 {
        write(&store, round);
        assert_eq!(reader.ask(), format!("1 {round}"));
    }
    drop(store);
    let store = open(&file).unwrap();
    write(&store, 60);
    assert_eq!(reader.ask(), "1 60");
    drop(store);
    reader.end();

    let mut other = Other::start("hold sqlite", &file);
    assert_eq!(other.hear().unwrap(), "ready");
    assert!(matches!(open(&file), Err(StoreError::Busy { .. })));
    open_read_only(&file).unwrap();
    other.end();
    open(&file).unwrap();
}

#[test]
fn a_writer_killed_in_the_middle_loses_no_commit() {
    let (_folder, file) = place();
    drop(create(&file).unwrap());
    kill_a_writer("write sqlite", &file, |life| {
        // Before a writer repairs anything, a reader sees the same.
        let seen = (life % 2 == 0).then(|| contents(&open_read_only(&file).unwrap()));
        let store = open(&file).unwrap();
        assert!(seen.is_none_or(|seen| seen == contents(&store)));
        store.check().unwrap();
        store
    });
}

/// The commits of a test: they overwrite, delete, drop and grow.
fn commit(round: u8) -> WriteSet {
    let rows = (0..30).map(|at| ([at], vec![round; 40 * usize::from(at) + 1]));
    let mut set = puts(Table::Pages, rows);
    set.put(Table::Roots, b"root", [round]);
    set.delete(Table::Pages, &[round]);
    set.drop_range(Table::Codes, vec![0], vec![200]);
    set.put(Table::Codes, &[100 + round], vec![round; 9_000]);
    set
}

/// A store that was never closed: its file, its log, and its contents after each commit.
fn cut_off() -> (Vec<u8>, Vec<u8>, Vec<Contents>) {
    let (_folder, file) = place();
    let store = create(&file).unwrap();
    let mut states = vec![contents(&store)];
    for round in 0..4 {
        store.commit(&commit(round)).unwrap();
        states.push(contents(&store));
    }
    (fs::read(&file).unwrap(), fs::read(with_suffix(&file, "-wal")).unwrap(), states)
}

/// A power cut leaves any part of what was not synced: the log may end anywhere after the last
/// commit.
#[test]
fn a_log_cut_anywhere_leaves_some_commit_whole() {
    let (image, log, states) = cut_off();
    let (mut reached, mut last) = (0, 0);
    for end in (0..=log.len()).step_by(1_031).chain([log.len()]) {
        let (_folder, file) = place();
        fs::write(&file, &image).unwrap();
        fs::write(with_suffix(&file, "-wal"), &log[..end]).unwrap();
        let store = open(&file).unwrap();
        let found = contents(&store);
        let at = states.iter().position(|state| *state == found);
        let at = at.unwrap_or_else(|| panic!("cut to {end}: no state of any commit"));
        assert!(at >= last, "cut to {end}: {at} after {last}");
        reached += usize::from(at > last);
        last = at;
        store.check().unwrap();
        store.commit(&commit(9)).unwrap();
    }
    assert_eq!((reached, last), (4, 4), "each commit is reached in turn");
}

/// A log of a store that is gone does not get into a new one.
#[test]
fn what_is_left_of_other_stores_is_not_taken_over() {
    let (image, log, _) = cut_off();
    let (_folder, file) = place();
    for name in ["-wal", ".new-wal"] {
        fs::write(with_suffix(&file, name), &log).unwrap();
    }
    fs::write(with_suffix(&file, ".new"), &image).unwrap();
    assert!(matches!(open(&file), Err(StoreError::Missing { .. })));
    let store = create(&file).unwrap();
    assert!(contents(&store).is_empty());
    store.check().unwrap();
    assert!(!with_suffix(&file, ".new").exists() && !with_suffix(&file, ".new-wal").exists());
}

#[test]
fn a_store_is_seen_once_it_is_filled() {
    let (_folder, file) = place();
    let fill = |store: &SqliteStore| {
        store.commit(&puts(Table::Meta, [("a", "1")]))?;
        assert!(matches!(open(&file), Err(StoreError::Missing { .. })));
        assert!(matches!(create(&file), Err(StoreError::Busy { .. })));
        Ok::<_, StoreError>(())
    };
    let refused = SqliteStore::create_filled(&file, CACHE_BYTES, |store| {
        fill(store)?;
        Err(StoreError::Missing { place: "the moon".into() })
    });
    assert_eq!(refused.unwrap_err().to_string(), "there is no store at the moon");
    assert!(matches!(open(&file), Err(StoreError::Missing { .. })));
    let store = SqliteStore::create_filled(&file, CACHE_BYTES, fill).unwrap();
    assert_eq!(read(&store, Table::Meta, b"a").unwrap(), b"1");
}

#[test]
fn a_reader_does_not_write() {
    let (_folder, file) = place();
    drop(create(&file).unwrap());
    let mut store = open_read_only(&file).unwrap();
    let error = store.commit(&puts(Table::Meta, [("a", "1")])).unwrap_err();
    assert!(error.to_string().ends_with("it was opened read-only"), "{error}");
    assert!(store.compact().is_err());
    store.commit(&WriteSet::new()).unwrap();
    store.check().unwrap();
}

#[test]
fn another_program_that_writes_is_waited_for_or_named() {
    let (_folder, file) = place();
    let store = create(&file).unwrap();
    let theirs = Connection::open(&file).unwrap();
    theirs.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.commit(&puts(Table::Meta, [("a", "1")])).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    theirs.execute_batch("ROLLBACK").unwrap();
    store.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
}

#[test]
fn figures_are_those_of_the_rows() {
    let (_folder, file) = place();
    let mut store = create(&file).unwrap();
    let empty = store.io();
    let rows = |byte| (0..1_000_u32).map(move |at| (at.to_be_bytes(), vec![byte; 1_000]));
    store.commit(&puts(Table::Pages, rows(99))).unwrap();
    let written = store.io() - empty;
    assert!((1_000_000..3_000_000).contains(&written.bytes_written), "{written:?}");
    assert!(written.syncs >= 1, "{written:?}");
    // A long log is carried over to the file, and begins anew.
    for byte in 0..40 {
        store.commit(&puts(Table::Pages, rows(byte))).unwrap();
    }
    let all = store.io() - empty;
    assert!(all.bytes_written > 41 * 1_000_000, "{all:?}");
    let log = fs::metadata(with_suffix(&file, "-wal")).unwrap().len();
    assert!(log < 45_000_000, "{log} bytes of log");

    let stats = store.stats().unwrap();
    let pages = stats.tables[Table::Pages as usize];
    assert_eq!((pages.rows, pages.stored_bytes), (1_000, 1_000 * (4 + 1_000 + 8)));
    assert!(pages.metadata_bytes > 0 && pages.fragmented_bytes > 0, "{pages:?}");
    let mut set = WriteSet::new();
    set.drop_range(Table::Pages, vec![0], vec![255]);
    store.commit(&set).unwrap();
    store.compact().unwrap();
    let small = store.stats().unwrap();
    assert!(small.file_bytes * 10 < stats.file_bytes, "{small:?}");
    store.check().unwrap();
}

/// A file system that is mounted by root, and then only read.
#[cfg(target_os = "linux")]
#[test]
fn a_store_on_a_read_only_file_system_is_read() {
    let folder = tempdir().unwrap();
    let at = folder.path().join("disk");
    fs::create_dir(&at).unwrap();
    let run = |program: &str, words: &[&str]| {
        let ran = std::process::Command::new(program).args(words).arg(&at).output();
        ran.is_ok_and(|output| output.status.success())
    };
    if !run("mount", &["-t", "tmpfs", "tmpfs"]) {
        println!("skipped: a file system in memory cannot be mounted here");
        return;
    }
    // Names that a URI would take for something else.
    let (closed, open_log) = (at.join("a b?c#d%41.sqlite"), at.join("log.sqlite"));
    let store = create(&closed).unwrap();
    store.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    store.close().unwrap();
    fs::copy(&closed, &open_log).unwrap();
    fs::write(with_suffix(&open_log, "-wal"), "a commit").unwrap();
    let read_only = run("mount", &["-o", "remount,ro"]);
    let found = open_read_only(&closed).map(|store| read(&store, Table::Meta, b"a"));
    let refused = open_read_only(&open_log).map(drop);
    let written = open(&closed).map(drop);
    assert!(run("umount", &[]) && read_only);
    assert_eq!(found.unwrap().as_deref(), Some(&b"1"[..]));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("commits that are not in its file"), "{refused}");
    assert!(matches!(written, Err(StoreError::Backend { .. })), "{written:?}");
}

#[cfg(unix)]
#[test]
fn the_files_of_a_store_are_the_users_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let (folder, _) = place();
    let file = folder.path().join("above/state.sqlite");
    let store = create(&file).unwrap();
    store.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    assert_eq!(mode(file.parent().unwrap()), 0o700);
    for suffix in ["", "-wal", "-shm", ".lock"] {
        assert_eq!(mode(&with_suffix(&file, suffix)), 0o600, "{suffix}");
    }
    let directory = folder.path().join("redb");
    drop(RedbStore::create(&directory, CACHE_BYTES).unwrap());
    assert_eq!(mode(&directory), 0o700);
    for name in ["spinney.redb", "spinney.lock"] {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }
}

/// Whether an answer is one that a damaged store may give.
fn typed(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Corrupt { .. } | StoreError::Foreign { .. } | StoreError::Backend { .. }
    )
}

/// Reads all; answers whether a row was not found, or `None` if damage was.
fn lost(store: &SqliteStore, rows: &Contents, what: &str) -> Option<bool> {
    let (mut lost, mut named) = (false, false);
    let snapshot = store.snapshot().ok()?;
    for ((table, key), row) in rows {
        match snapshot.read(*table, key) {
            Ok(Some(found)) => assert_eq!(&*found, &row[..], "{what}: a wrong row"),
            Ok(None) => lost = true,
            Err(error) => named |= typed(&error),
        }
    }
    for table in Table::ALL {
        let mut seen = 0;
        let mut visit = |key: &[u8], found: &[u8]| {
            seen += 1;
            let row = rows.get(&(table, key.to_vec())).expect("a key that was never written");
            assert_eq!(found, &row[..], "{what}: a wrong row in a scan");
            seen < 10_000
        };
        match snapshot.scan(table, b"", None, &mut visit) {
            Ok(()) => lost |= seen != rows.keys().filter(|(other, _)| *other == table).count(),
            Err(error) => named |= typed(&error),
        }
    }
    (!named).then_some(lost)
}

#[test]
fn flipped_bits_show() {
    let (_folder, file) = place();
    let store = create(&file).unwrap();
    (0..4).for_each(|round| store.commit(&commit(round)).unwrap());
    let rows = contents(&store);
    store.close().unwrap();
    let image = fs::read(&file).unwrap();
    let mut outcomes = std::collections::BTreeMap::<_, usize>::new();
    for at in (0..image.len()).filter(|at| at % 61 == 13 || at % 4_096 < 12 || *at < 100) {
        let mut damaged = image.clone();
        damaged[at] ^= 1 << (at / 61 % 8);
        let what = format!("byte {at} flipped");
        let (_folder, file) = place();
        fs::write(&file, &damaged).unwrap();
        let outcome = match open(&file) {
            Err(error) => {
                assert!(typed(&error), "{what}: {error}");
                "refused"
            }
            Ok(store) => {
                let lost = lost(&store, &rows, &what);
                match store.check() {
                    Ok(()) => {
                        assert_eq!(lost, Some(false), "{what}: the check finds nothing");
                        "harmless"
                    }
                    Err(error) => {
                        assert!(typed(&error), "{what}: {error}");
                        "found"
                    }
                }
            }
        };
        *outcomes.entry(outcome).or_default() += 1;
    }
    eprintln!("{outcomes:?}");
    assert!(outcomes["refused"] > 0 && outcomes["found"] > 0 && outcomes["harmless"] > 0);
}

#[test]
fn truncated_files_are_refused_or_read_right() {
    let (_folder, file) = place();
    let store = create(&file).unwrap();
    (0..4).for_each(|round| store.commit(&commit(round)).unwrap());
    let rows = contents(&store);
    store.close().unwrap();
    let image = fs::read(&file).unwrap();
    for end in (1..image.len()).step_by(1_777).chain([15, 16, 99, 100, image.len() - 1]) {
        let (_folder, file) = place();
        fs::write(&file, &image[..end]).unwrap();
        match open(&file) {
            Err(error) => assert!(typed(&error), "cut to {end}: {error}"),
            Ok(store) => {
                let lost = lost(&store, &rows, &format!("cut to {end}"));
                assert!(store.check().is_err() || lost == Some(false), "cut to {end}");
            }
        }
    }
}

#[test]
fn a_damaged_row_is_named() {
    let (_folder, file) = place();
    let store = create(&file).unwrap();
    let value = *b"a value that is easy to find";
    store.commit(&puts(Table::Codes, [([0xAB, 0xCD], value)])).unwrap();
    store.close().unwrap();
    let mut image = fs::read(&file).unwrap();
    let places: Vec<_> =
        (0..image.len() - value.len()).filter(|at| image[*at..].starts_with(&value)).collect();
    assert!(!places.is_empty());
    places.into_iter().for_each(|at| image[at] ^= 0x20);
    fs::write(&file, &image).unwrap();
    let store = open(&file).unwrap();
    let error = store.snapshot().unwrap().read(Table::Codes, &[0xAB, 0xCD]).unwrap_err();
    let said = format!(
        "{}, table codes, row 0xabcd is damaged: it does not match its checksum",
        file.display()
    );
    assert_eq!(error.to_string(), said);
    assert!(matches!(store.check(), Err(StoreError::Corrupt { .. })));
}
