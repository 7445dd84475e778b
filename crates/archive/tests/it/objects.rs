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

/// What a store keeps the witness of a block under.
fn witness(number: u64) -> Vec<u8> {
    [b"witness/", &number.to_be_bytes()[..]].concat()
}

/// An archive of blocks `first` to `last`, of a store that keeps witnesses and code. The chain is
/// another one from block `other` on.
fn with_witnesses(objects: &Arc<Folder>, (first, last): (u64, u64), other: u64) -> Writer {
    let store = MemoryStore::new();
    let mut set = WriteSet::new();
    set.put(Table::Meta, b"option", first.to_be_bytes());
    // It was begun when its store was ahead.
    set.put(Table::Codes, &[last as u8; 32], *b"code of the last block");
    store.commit(&set).unwrap();
    let hash = |number: u64| match number >= other {
        true => BlockId { number, hash: [200 + number as u8; 32] },
        false => block(number),
    };
    let (options, snapshot) = (Options::default(), store.snapshot().unwrap());
    let mut writer = Writer::create(objects.clone(), options, hash(first), &snapshot).unwrap();
    for number in first + 1..=last {
        let mut window = writer.window(number, number).unwrap();
        let (key, code) = (witness(number), [number as u8; 32]);
        let row = value(number as u32, number);
        let rows = [
            (Table::Meta, &key[..], None, Some(&row[..])),
            (Table::Codes, &code[..], None, Some(&row[..])),
        ];
        writer.add(&mut window, hash(number), rows).unwrap();
        writer.publish(vec![window], hash(number)).unwrap();
    }
    writer
}

fn witnesses(archive: &Archive) -> Vec<u64> {
    let (first, last) = archive.blocks();
    let is_there = |number: &u64| {
        let row = archive.at(last).unwrap().read(Table::Meta, &witness(*number)).unwrap();
        assert!(row.as_ref().is_none_or(|row| *row == value(*number as u32, *number)));
        row.is_some()
    };
    let numbers: Vec<u64> = (0..30).filter(is_there).collect();
    assert!(numbers.iter().all(|number| (first..=last).contains(number)));
    numbers
}

#[test]
fn witnesses_and_numbers_go_with_their_blocks_and_come_with_them() {
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [objects, older] = folders.each_ref().map(|folder| Arc::new(Folder::new(folder.path())));
    let mut writer = with_witnesses(&objects, (10, 19), u64::MAX);
    let archive = Archive::open(objects.clone(), 1 << 20).unwrap();
    assert_eq!(witnesses(&archive), (11..=19).collect::<Vec<_>>());
    assert_eq!(writer.prune(10).unwrap(), 0, "nothing is done");
    assert!(!archive.refresh().unwrap());
    for beyond in [9, 20] {
        let error = writer.prune(beyond).unwrap_err().to_string();
        assert!(error.contains(&format!("blocks 10 to 19, not block {beyond}")), "{error}");
    }
    let then = archive.at(12).unwrap();
    assert_eq!(writer.prune(15).unwrap(), 5);
    // Whoever reads what was published before goes on, as long as it is there.
    assert!(then.read(Table::Meta, &witness(12)).unwrap().is_some());
    assert!(archive.refresh().unwrap());
    assert_eq!(witnesses(&archive), (15..=19).collect::<Vec<_>>());
    for number in 10..=19 {
        let held = (number >= 15).then_some(number);
        assert_eq!(archive.number_of(&block(number).hash).unwrap(), held);
    }
    let first = archive.at(15).unwrap();
    assert_eq!(first.read(Table::Meta, b"option").unwrap().unwrap(), 10_u64.to_be_bytes());
    for number in 11..=15_u8 {
        assert!(first.read(Table::Codes, &[number; 32]).unwrap().is_some());
    }

    // Back again, by an archive whose store had another option, and other code.
    drop(with_witnesses(&older, (8, 17), u64::MAX));
    let older = Archive::open(older, 1 << 20).unwrap();
    assert_eq!(writer.join(&older).unwrap(), 7);
    assert!(archive.refresh().unwrap());
    archive.check(|_| ()).unwrap();
    assert_eq!(archive.blocks(), (8, 19));
    assert_eq!(witnesses(&archive), (9..=19).collect::<Vec<_>>());
    for number in 8..=19 {
        assert_eq!(archive.number_of(&block(number).hash).unwrap(), Some(number));
        let option = if number < 15 { 8_u64 } else { 10 };
        let row = archive.at(number).unwrap().read(Table::Meta, b"option").unwrap().unwrap();
        assert_eq!(row, option.to_be_bytes());
    }
    assert!(archive.at(15).unwrap().read(Table::Codes, &[19; 32]).unwrap().is_some());
    // To one block, and what was replaced is gone once the next writer comes.
    assert_eq!(writer.prune(19).unwrap(), 11);
    drop(writer);
    let writer = Writer::open(objects.clone(), Options::default()).unwrap();
    assert_eq!(objects.list("segment-").unwrap().len(), writer.manifest().segments.len());
    assert_eq!(writer.manifest().segments.len(), 1);
    assert!(archive.refresh().unwrap());
    assert_eq!(witnesses(&archive), [19]);
}

#[test]
fn archives_that_do_not_meet_are_not_joined() {
    let folder = tempfile::tempdir().unwrap();
    let objects = |name: &str| Arc::new(Folder::new(folder.path().join(name)));
    let mut writer = with_witnesses(&objects("ours"), (10, 14), u64::MAX);
    let before = writer.manifest().clone();
    let older = |name: &str, blocks, other| {
        drop(with_witnesses(&objects(name), blocks, other));
        Archive::open(objects(name), 1 << 20).unwrap()
    };
    let cases = [
        (older("short", (5, 9), u64::MAX), "it ends with block 9, and has to hold block 10"),
        (older("late", (10, 12), u64::MAX), "it begins with block 10"),
    ];
    for (older, words) in &cases {
        let error = writer.join(older).unwrap_err();
        assert!(matches!(error, ArchiveError::Join { .. }), "{error:?}");
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(*writer.manifest(), before);
    }
    // A changed byte of what is put in front: nothing of it is published.
    let good = older("good", (5, 12), u64::MAX);
    let name = &good.manifest().segments[0].name;
    let path = folder.path().join("good").join(name);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let error = writer.join(&good).unwrap_err();
    assert!(error.to_string().contains(name), "{error}");
    let mut writer = Writer::open(objects("ours"), Options::default()).unwrap();
    assert_eq!((writer.manifest().first, &writer.manifest().segments), (10, &before.segments));
    assert_eq!(objects("ours").list("segment-").unwrap().len(), before.segments.len());
    let again = older("again", (5, 12), u64::MAX);
    assert_eq!(writer.join(&again).unwrap(), 5);
}
