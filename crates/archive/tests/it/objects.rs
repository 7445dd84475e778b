//! Objects that are not what was written, and writers that meet.

use std::sync::Arc;

use spinney_archive::{Archive, ArchiveError, Folder, Objects, Options, Writer};
use spinney_tree::{BlockId, MemoryStore, PageStore, Snapshot, Table, WriteSet};

fn block(number: u64) -> BlockId {
    BlockId { number, hash: [number as u8; 32] }
}

fn value(key: u32, number: u64) -> Vec<u8> {
    format!("{key} at {number}, {}", "x".repeat(100)).into_bytes()
}

const KEYS: u32 = 500;

/// An archive of blocks 0 to `last`: each changes some rows.
fn archive(objects: &Arc<Folder>, last: u64) -> Writer {
    let store = MemoryStore::new();
    let mut set = WriteSet::new();
    for key in 0..KEYS {
        set.put(Table::Meta, &key.to_be_bytes(), value(key, 0));
    }
    store.commit(&set).unwrap();
    let mut options = Options::default();
    options.merges = vec![2, 2];
    let snapshot = store.snapshot().unwrap();
    let mut writer = Writer::create(objects.clone(), options, block(0), &snapshot).unwrap();
    for number in 1..=last {
        add(&mut writer, number).unwrap();
    }
    writer
}

fn add(writer: &mut Writer, number: u64) -> Result<(), ArchiveError> {
    let mut window = writer.window(number, number)?;
    let keys: Vec<(u32, [u8; 4])> = (0..KEYS)
        .filter(|key| u64::from(*key) % number == 0)
        .map(|key| (key, key.to_be_bytes()))
        .collect();
    let before = |key: u32| (1..number).rev().find(|n| u64::from(key) % n == 0).unwrap_or(0);
    let values: Vec<(Vec<u8>, Vec<u8>)> =
        keys.iter().map(|(key, _)| (value(*key, before(*key)), value(*key, number))).collect();
    let rows = keys.iter().zip(&values).map(|((_, key), (before, after))| {
        (Table::Meta, &key[..], Some(&before[..]), Some(&after[..]))
    });
    writer.add(&mut window, block(number), rows)?;
    writer.publish(vec![window], block(number))
}

fn read(archive: &Archive, number: u64, key: u32) -> Result<Vec<u8>, String> {
    let view = archive.at(number).map_err(|error| error.to_string())?;
    let row = view.read(Table::Meta, &key.to_be_bytes()).map_err(|error| error.to_string())?;
    Ok(row.unwrap())
}

fn expected(number: u64, key: u32) -> Vec<u8> {
    let last = (1..=number).rev().find(|n| u64::from(key) % n == 0).unwrap_or(0);
    value(key, last)
}

#[test]
fn each_changed_byte_is_told_or_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(Folder::new(folder.path()));
    let named = archive(&objects, 7).manifest().segments.clone();
    let mut told = 0;
    for object in objects.list("").unwrap() {
        let path = folder.path().join(&object.name);
        let whole = std::fs::read(&path).unwrap();
        for at in (0..whole.len()).step_by(whole.len() / 60 + 1) {
            let mut other = whole.clone();
            other[at] ^= 1 << (at % 8);
            std::fs::write(&path, &other).unwrap();
            let right = answers_are_right(&objects);
            told += u32::from(!right);
            let checked = Archive::open(objects.clone(), 0).and_then(|it| it.check(|_| ()));
            // What a check lets pass changes no answer.
            assert!(right || checked.is_err(), "byte {at} of {}", object.name);
            // Of what the manifest names all but footers is checked.
            let parts = named.iter().find(|segment| segment.name == object.name);
            let is_checked = parts.is_some_and(|it| (at as u64) < it.index_at + it.index_bytes);
            assert!(!is_checked || checked.is_err(), "byte {at} of {}", object.name);
        }
        for len in [0, 1, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole[..len]).unwrap();
            told += u32::from(!answers_are_right(&objects));
        }
        std::fs::write(&path, &whole).unwrap();
    }
    assert!(told > 100, "{told}");
    assert!(answers_are_right(&objects));
}

/// Whether all is answered. What is answered is right.
fn answers_are_right(objects: &Arc<Folder>) -> bool {
    let Ok(archive) = Archive::open(objects.clone(), 1 << 20) else { return false };
    let mut all = true;
    for number in 0..8 {
        for key in (0..KEYS).step_by(7) {
            match read(&archive, number, key) {
                Ok(row) => assert_eq!(row, expected(number, key), "key {key} at block {number}"),
                Err(_) => all = false,
            }
        }
    }
    all
}

#[test]
fn objects_that_are_missing_or_of_others_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(Folder::new(folder.path()));
    let writer = archive(&objects, 6);
    let names: Vec<String> =
        writer.manifest().segments.iter().map(|segment| segment.name.clone()).collect();
    assert!(names.len() > 1);
    let (first, last) =
        (folder.path().join(&names[0]), folder.path().join(&names[names.len() - 1]));
    let whole = std::fs::read(&last).unwrap();
    // Another segment under its name.
    std::fs::copy(&first, &last).unwrap();
    let archive = Archive::open(objects.clone(), 1 << 20).unwrap();
    assert!(archive.load_indexes().is_err());
    let error = read(&archive, 6, 0).unwrap_err();
    assert!(error.contains(&names[names.len() - 1]), "{error}");
    // Blocks of other segments are answered.
    assert_eq!(read(&archive, 0, 3).unwrap(), expected(0, 3));
    std::fs::remove_file(&last).unwrap();
    let archive = Archive::open(objects.clone(), 1 << 20).unwrap();
    assert!(read(&archive, 6, 0).unwrap_err().contains("missing"));
    std::fs::write(&last, whole).unwrap();
    // Strangers are left alone.
    for name in ["manifest-9999999999.json.old", "manifest-x", "segment-x", "README"] {
        std::fs::write(folder.path().join(name), "no object of an archive").unwrap();
    }
    assert!(answers_are_right(&objects) || writer.manifest().last < 7);
    drop(Writer::open(objects, Options::default()).unwrap());
    assert!(folder.path().join("segment-x").exists());
    let none = Arc::new(Folder::new(folder.path().join("none")));
    assert!(matches!(Archive::open(none, 0), Err(ArchiveError::Missing { .. })));
}

#[test]
fn of_two_writers_the_first_is_fenced() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(Folder::new(folder.path()));
    let mut first = archive(&objects, 4);
    let mut second = Writer::open(objects.clone(), Options::default()).unwrap();
    assert!(matches!(add(&mut first, 5), Err(ArchiveError::Fenced { .. })));
    add(&mut second, 5).unwrap();
    assert!(matches!(add(&mut first, 5), Err(ArchiveError::Fenced { .. })));
    let archive = Archive::open(objects.clone(), 1 << 20).unwrap();
    for number in 0..=5 {
        assert_eq!(read(&archive, number, 60).unwrap(), expected(number, 60));
    }
    // What the first one began is gone once the next writer comes; what a later one begins is not.
    let parts = ["segment-0000000001-aa-7.1-1.part", "manifest-0000000002.json.9-9.part"];
    let kept = "segment-9999999999-aa-7.1-1.part";
    for name in parts.iter().chain([&kept]) {
        std::fs::write(folder.path().join(name), "begun").unwrap();
    }
    let named = |writer: &Writer| writer.manifest().segments.len();
    let third = Writer::open(objects.clone(), Options::default()).unwrap();
    assert_eq!(objects.list("segment-").unwrap().len(), named(&third));
    assert_eq!(objects.unfinished().unwrap(), [kept]);
    assert!(matches!(add(&mut second, 6), Err(ArchiveError::Fenced { .. })));
    let again = Writer::create(
        objects,
        Options::default(),
        block(0),
        &MemoryStore::new().snapshot().unwrap(),
    );
    assert!(matches!(again, Err(ArchiveError::Exists { .. })));
}

#[test]
fn a_reader_goes_on_with_the_newest_manifest() {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(Folder::new(folder.path()));
    let mut writer = archive(&objects, 2);
    let archive = writer.archive(1 << 20).unwrap();
    assert!(!archive.refresh().unwrap());
    let view = archive.at(2).unwrap();
    for number in 3..=7 {
        add(&mut writer, number).unwrap();
    }
    assert!(matches!(archive.at(7), Err(ArchiveError::Outside { .. })));
    // Its segments may be gone: then that is told.
    if let Ok(row) = view.read(Table::Meta, &6_u32.to_be_bytes()) {
        assert_eq!(row.unwrap(), expected(2, 6));
    }
    assert!(archive.refresh().unwrap());
    for number in 0..=7 {
        assert_eq!(read(&archive, number, 6).unwrap(), expected(number, 6));
    }
    assert!(matches!(writer.window(7, 8), Err(ArchiveError::Order { .. })));
    assert!(matches!(writer.window(9, 8), Err(ArchiveError::Order { .. })));
    let gap = writer.window(9, 9).unwrap();
    assert!(matches!(writer.publish(vec![gap], block(9)), Err(ArchiveError::Order { .. })));
}
