//! What a store is found, or not found, in.

use std::fs;
use std::path::Path;

use redb::{Database, TableDefinition};
use spinney_store::{Location, OpenFor, RedbStore};
use spinney_tree::{PageStore, RootRecord, Snapshot as _, StoreError, Table, TreeId, WriteSet};
use tempfile::tempdir;

use crate::tools::{CACHE_BYTES, contents, puts, read};

fn open(folder: &Path) -> Result<RedbStore, StoreError> {
    RedbStore::open(folder, CACHE_BYTES)
}

fn open_read_only(folder: &Path) -> Result<RedbStore, StoreError> {
    RedbStore::open_read_only(folder, CACHE_BYTES)
}

fn create(folder: &Path) -> Result<RedbStore, StoreError> {
    RedbStore::create(folder, CACHE_BYTES)
}

#[test]
fn reopening_keeps_everything() {
    let folder = tempdir().unwrap();
    let store = create(folder.path()).unwrap();
    for round in 0..10_u8 {
        for table in Table::ALL {
            store
                .commit(&puts(table, [([round], vec![round; 1_000 * usize::from(round)])]))
                .unwrap();
        }
    }
    let before = contents(&store);
    store.close().unwrap();
    for access in [open, open_read_only, open] {
        let store = access(folder.path()).unwrap();
        assert_eq!(contents(&store), before);
    }
}

#[test]
fn a_place_without_a_store_is_missing() {
    let folder = tempdir().unwrap();
    for place in [folder.path().to_owned(), folder.path().join("nowhere")] {
        for access in [open, open_read_only] {
            let error = access(&place).unwrap_err();
            assert!(matches!(error, StoreError::Missing { .. }), "{error}");
            assert_eq!(error.to_string(), format!("there is no store at {}", place.display()));
        }
        assert!(!place.join("spinney.redb").exists(), "opening creates nothing");
    }
}

#[test]
fn open_or_create_does_either() {
    let folder = tempdir().unwrap();
    let place = folder.path().join("a/b/c");
    let store = RedbStore::open_or_create(&place, CACHE_BYTES).unwrap();
    store.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    drop(store);
    let store = RedbStore::open_or_create(&place, CACHE_BYTES).unwrap();
    assert_eq!(read(&store, Table::Meta, b"a").unwrap(), b"1");
}

#[test]
fn a_store_is_not_created_over_another() {
    let folder = tempdir().unwrap();
    create(folder.path()).unwrap().commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    let error = create(folder.path()).unwrap_err();
    assert!(error.to_string().ends_with("there is a store already"), "{error}");
    assert_eq!(read(&open(folder.path()).unwrap(), Table::Meta, b"a").unwrap(), b"1");
}

#[test]
fn an_unfinished_creation_is_made_good() {
    let folder = tempdir().unwrap();
    for left in [&b""[..], b"redb", &[0; 10_000]] {
        let place = tempfile::tempdir_in(folder.path()).unwrap();
        fs::write(place.path().join("spinney.redb.new"), left).unwrap();
        fs::write(place.path().join("spinney.lock"), "").unwrap();
        assert!(matches!(open(place.path()), Err(StoreError::Missing { .. })));
        let store = create(place.path()).unwrap();
        assert!(contents(&store).is_empty());
        assert!(!place.path().join("spinney.redb.new").exists());
    }
}

#[test]
fn two_creations_at_a_time_make_one_store() {
    let folder = tempdir().unwrap();
    let made: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| create(folder.path()))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (made, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
    assert_eq!(made.len(), 1);
    for error in refused.into_iter().map(Result::unwrap_err) {
        let text = error.to_string();
        let busy = matches!(error, StoreError::Busy { .. });
        assert!(busy || text.ends_with("there is a store already"), "{text}");
    }
    drop(made);
    open(folder.path()).unwrap();
}

#[test]
fn a_file_is_no_directory() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "text").unwrap();
    let either = |place: &Path| RedbStore::open_or_create(place, CACHE_BYTES);
    for access in [open, open_read_only, create, either] {
        let error = access(&file).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("it is a file"), "{error}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"text");

    let nested = folder.path().join("store/spinney.redb");
    fs::create_dir_all(&nested).unwrap();
    let error = open(nested.parent().unwrap()).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("spinney.redb");
    let noise: Vec<u8> =
        (0..50_000_u32).map(|at| (at.wrapping_mul(0x9E37_79B1) >> 24) as u8).collect();
    let mut sqlite = b"SQLite format 3\0".to_vec();
    sqlite.resize(8_192, 0);
    for (content, said) in [
        (noise, "begins with"),
        (sqlite, "begins with \"SQLite fo\""),
        (Vec::new(), "an empty file"),
        (b"x".to_vec(), "begins with \"x\""),
    ] {
        fs::write(&file, &content).unwrap();
        for access in [open, open_read_only] {
            let error = access(folder.path()).unwrap_err();
            assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
            assert!(error.to_string().contains(said), "{error}");
        }
        assert_eq!(fs::read(&file).unwrap(), content);
    }
}

#[test]
fn a_redb_database_of_another_program_is_foreign() {
    let folder = tempdir().unwrap();
    let database = Database::create(folder.path().join("spinney.redb")).unwrap();
    let transaction = database.begin_write().unwrap();
    let theirs: TableDefinition<'_, u64, u64> = TableDefinition::new("pages");
    transaction.open_table(theirs).unwrap().insert(1, 2).unwrap();
    transaction.commit().unwrap();
    drop(database);
    for access in [open, open_read_only] {
        let error = access(folder.path()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
        assert!(error.to_string().contains("another program"), "{error}");
    }
}

/// A store that the program wrote before there was a history: `spinney root --state --db DIR` of
/// two state differences, its file compressed.
const OF_FORMAT_1: &[u8] = include_bytes!("../../../../testdata/store-format-1.redb.zst");

/// The state root of its second block.
const ROOT_OF_FORMAT_1: &str = "62ac6d7493d11ad34d13098d0a65cfbfc67cd72ad8ecfa1a6b99e2c4dfc1c64a";

#[test]
fn a_store_of_an_older_format_is_read_and_brought_up_to_date() {
    let folder = tempdir().unwrap();
    let file = folder.path().join("spinney.redb");
    let bytes = zstd::decode_all(OF_FORMAT_1).unwrap();
    fs::write(&file, &bytes).unwrap();
    let root = |store: &RedbStore| {
        let record = read(store, Table::Roots, &RootRecord::key(TreeId(1))).unwrap();
        let record = RootRecord::decode(TreeId(1), &record).unwrap();
        assert_eq!((record.commit, record.block.unwrap().number), (2, 2));
        record.root.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    let reader = open_read_only(folder.path()).unwrap();
    let before = contents(&reader);
    assert_eq!(root(&reader), ROOT_OF_FORMAT_1);
    drop(reader);
    assert!(fs::read(&file).unwrap() == bytes, "a reader writes nothing");

    let mut store = open(folder.path()).unwrap();
    assert_eq!(contents(&store), before);
    store.commit(&puts(Table::History, [("a", "1")])).unwrap();
    store.check().unwrap();
    drop(store);
    let store = open_read_only(folder.path()).unwrap();
    assert_eq!(root(&store), ROOT_OF_FORMAT_1);
    assert_eq!(read(&store, Table::History, b"a").unwrap(), b"1");
}

/// What fills a store fails, or the process is gone: there is no store, and the next creation
/// succeeds.
#[test]
fn a_store_is_seen_once_it_is_filled() {
    let folder = tempdir().unwrap();
    let fill = |store: &RedbStore| {
        store.commit(&puts(Table::Meta, [("a", "1")]))?;
        assert!(matches!(open(folder.path()), Err(StoreError::Missing { .. })));
        assert!(matches!(create(folder.path()), Err(StoreError::Busy { .. })));
        Ok::<_, StoreError>(())
    };
    let refused = RedbStore::create_filled(folder.path(), CACHE_BYTES, |store| {
        fill(store)?;
        Err(StoreError::Missing { place: "the moon".into() })
    });
    assert_eq!(refused.unwrap_err().to_string(), "there is no store at the moon");
    assert!(matches!(open(folder.path()), Err(StoreError::Missing { .. })));
    assert!(!folder.path().join("spinney.redb.new").exists());

    let store = RedbStore::create_filled(folder.path(), CACHE_BYTES, fill).unwrap();
    assert_eq!(read(&store, Table::Meta, b"a").unwrap(), b"1");
    drop(store);
    let again = RedbStore::create_filled(folder.path(), CACHE_BYTES, fill).unwrap_err();
    assert!(again.to_string().ends_with("there is a store already"), "{again}");
}

#[test]
fn a_second_writer_in_this_process_is_busy() {
    let folder = tempdir().unwrap();
    let store = create(folder.path()).unwrap();
    let error = open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::Busy { .. }), "{error}");
    store.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    drop(store);
    assert_eq!(read(&open(folder.path()).unwrap(), Table::Meta, b"a").unwrap(), b"1");
}

#[test]
fn a_reader_does_not_write() {
    let folder = tempdir().unwrap();
    drop(create(folder.path()).unwrap());
    let mut store = open_read_only(folder.path()).unwrap();
    let error = store.commit(&puts(Table::Meta, [("a", "1")])).unwrap_err();
    assert!(error.to_string().ends_with("it was opened read-only"), "{error}");
    assert!(store.compact().is_err());
    store.commit(&WriteSet::new()).unwrap();
    store.check().unwrap();
}

#[test]
fn figures_are_those_of_the_rows() {
    let folder = tempdir().unwrap();
    let mut store = create(folder.path()).unwrap();
    let empty = store.io();
    let rows: Vec<_> = (0..1_000_u32).map(|at| (at.to_be_bytes(), vec![7; 1_000])).collect();
    store.commit(&puts(Table::Pages, rows)).unwrap();
    let written = store.io() - empty;
    assert!(written.bytes_written > 1_000_000, "{written:?}");
    assert!(written.syncs >= 2, "{written:?}");

    let stats = store.stats().unwrap();
    let pages = stats.tables[Table::Pages as usize];
    assert_eq!(pages.table, Table::Pages);
    assert_eq!((pages.rows, pages.stored_bytes), (1_000, 1_000 * (4 + 1_000 + 8)));
    assert!(pages.metadata_bytes > 0 && pages.fragmented_bytes > 0, "{pages:?}");
    assert_eq!(stats.tables[Table::Codes as usize].rows, 0);
    let file = fs::metadata(folder.path().join("spinney.redb")).unwrap();
    assert_eq!(stats.file_bytes, file.len());
    assert!((1..file.len()).contains(&stats.unused_bytes()), "{stats:?}");

    let mut set = WriteSet::new();
    set.drop_range(Table::Pages, vec![0], vec![255]);
    store.commit(&set).unwrap();
    assert!(store.compact().unwrap());
    let small = store.stats().unwrap();
    assert_eq!(small.tables[Table::Pages as usize].rows, 0);
    assert!(small.file_bytes < stats.file_bytes, "{small:?}");
    let roomy = stats.file_bytes - small.file_bytes;
    assert!(small.unused_bytes() < roomy, "{roomy} bytes were given back: {small:?}");
    store.check().unwrap();
}

/// A removed store is gone, and its place free; one that somebody writes stays, and so does what is
/// none.
#[test]
fn a_store_is_removed_whole_or_stays() {
    let folder = tempdir().unwrap();
    let redb = Location::Redb(folder.path().join("redb"));
    let sqlite = Location::Sqlite(folder.path().join("sqlite"));
    let log = Location::Log(folder.path().join("log"));
    let mut places = vec![redb, sqlite, log];
    #[cfg(unix)]
    places
        .extend(crate::server::shared().map(|server| Location::Postgres(server.schema().0.into())));
    for place in &places {
        assert!(matches!(place.remove(), Err(StoreError::Missing { .. })), "{place}");
        let store = place.open(OpenFor::Filling, 1 << 20).unwrap();
        let mut set = WriteSet::new();
        set.put(Table::Meta, b"key", *b"value");
        store.commit(&set).unwrap();
        assert!(matches!(place.remove(), Err(StoreError::Busy { .. })), "{place}");
        store.close().unwrap();
        place.remove().unwrap();
        let gone = place.open(OpenFor::Reading, 1 << 20).unwrap_err();
        assert!(matches!(gone, StoreError::Missing { .. }), "{place}: {gone}");
        let store = place.open(OpenFor::Filling, 1 << 20).unwrap();
        assert!(store.snapshot().unwrap().read(Table::Meta, b"key").unwrap().is_none());
        store.close().unwrap();
        place.remove().unwrap();
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let other = folder.path().join("other");
    fs::write(&other, [1; 600]).unwrap();
    let log = Location::Log(other.clone());
    for place in [Location::Redb(other.clone()), Location::Sqlite(other.clone()), log] {
        assert!(place.remove().is_err());
        assert_eq!(fs::read(&other).unwrap(), [1; 600]);
    }
}

#[test]
fn a_store_that_is_refused_leaves_neither_folders_nor_a_lock() {
    let folder = tempdir().unwrap();
    let (there, not) = (folder.path().join("there"), folder.path().join("not/there"));
    fs::create_dir(&there).unwrap();
    let refuse = |_: &_| Err(StoreError::Missing { place: "refused".into() });
    for above in [&there, &not] {
        let log = Location::Log(above.clone());
        for location in [Location::Redb(above.clone()), Location::Sqlite(above.join("file")), log] {
            let refused = location.create_filled(CACHE_BYTES, refuse).unwrap_err();
            assert!(matches!(refused, StoreError::Missing { .. }), "{location}: {refused}");
            assert_eq!(fs::read_dir(&there).unwrap().count(), 0, "{location}");
            assert!(!folder.path().join("not").exists(), "{location}");
            // One that was made, and is found to be of no use.
            let before = location.before();
            assert!(!before.had_store());
            let store = location.open(OpenFor::Filling, CACHE_BYTES).unwrap();
            assert!(before.restore(store).unwrap());
            assert_eq!(fs::read_dir(&there).unwrap().count(), 0, "{location}");
            assert!(!folder.path().join("not").exists(), "{location}");
        }
    }
    // A tree is of use, and so is what was there before.
    let location = Location::Redb(there.clone());
    let before = location.before();
    let store = location.open(OpenFor::Filling, CACHE_BYTES).unwrap();
    store.commit(&puts(Table::Roots, [([0, 0, 0, 1], vec![1])])).unwrap();
    assert!(!before.restore(store).unwrap());
    let before = location.before();
    assert!(before.had_store());
    let store = location.open(OpenFor::Filling, CACHE_BYTES).unwrap();
    assert!(!before.restore(store).unwrap());
    assert!(open(&there).is_ok());
}
