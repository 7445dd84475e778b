//! How many ranges are read: objects may lie far away.

use std::sync::Arc;

use spinney_archive::{Archive, Folder, Options, RowChange, Writer};
use spinney_tree::mpt::Mpt;
use spinney_tree::{
    Batch, BlockId, HashFunction, MemoryStore, PageStore, Snapshot, Table, Tree, TreeId,
};

const ID: TreeId = TreeId(70_000);

fn block(number: u64) -> BlockId {
    let mut hash = [7; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    BlockId { number, hash }
}

fn key(number: u64) -> [u8; 32] {
    HashFunction::Blake3.hash(&number.to_be_bytes())
}

struct Made {
    /// Of each block, from block 0 on.
    stores: Vec<<MemoryStore as PageStore>::Snapshot<'static>>,
    archive: Archive,
    _folder: tempfile::TempDir,
}

/// An archive of a tree of so many keys in which each block changes some, in segments of so many
/// blocks.
fn archive(keys: u64, blocks: u64, changes: u64, window: u64) -> Made {
    merged(keys, blocks, changes, window, &[])
}

fn merged(keys: u64, blocks: u64, changes: u64, window: u64, merges: &[usize]) -> Made {
    let store: &'static MemoryStore = Box::leak(Box::new(MemoryStore::new()));
    let mut tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 64 << 20).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(Folder::new(folder.path().join("archive")));
    let (mut stores, mut writer) = (Vec::new(), None);
    let mut room = None;
    for number in 0..=blocks {
        let mut batch = Batch::new();
        let of_block = if number == 0 { 0..keys } else { number * changes..(number + 1) * changes };
        for at in of_block {
            batch.put(&key(at % keys), &key(at + (number << 40)));
        }
        let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
        tree.commit(store, &pending, Some(block(number))).unwrap();
        let now = store.snapshot().unwrap();
        if number == 0 {
            let mut options = Options::default();
            options.merges = merges.to_vec();
            writer = Some(Writer::create(objects.clone(), options, block(0), &now).unwrap());
        } else {
            let writer = writer.as_mut().unwrap();
            let last = number.div_ceil(window) * window;
            let room = room.get_or_insert_with(|| writer.window(number, last).unwrap());
            writer.add(room, block(number), changed(stores.last().unwrap(), &now)).unwrap();
        }
        if number > 0 && number % window == 0 {
            writer
                .as_mut()
                .unwrap()
                .publish(room.take().into_iter().collect(), block(number))
                .unwrap();
        }
        stores.push(now);
    }
    let archive = Archive::open(objects, 64 << 20).unwrap();
    archive.load_indexes().unwrap();
    Made { stores, archive, _folder: folder }
}

fn changed<'a, N: Snapshot>(before: &'a N, after: &'a N) -> Vec<RowChange<'static>> {
    let mut rows = Vec::new();
    for table in [Table::Pages, Table::Roots] {
        let mut note = |key: &[u8], row: &[u8]| {
            let old = before.read(table, key).unwrap().map(|row| row.to_vec());
            if old.as_deref() != Some(row) {
                rows.push((table, key.to_vec(), old, row.to_vec()));
            }
            true
        };
        after.scan(table, &[], None, &mut note).unwrap();
    }
    let leak = |bytes: Vec<u8>| -> &'static [u8] { Box::leak(bytes.into_boxed_slice()) };
    let change = |(table, key, old, new): (Table, Vec<u8>, Option<Vec<u8>>, Vec<u8>)| {
        (table, leak(key), old.map(leak), Some(leak(new)))
    };
    rows.into_iter().map(change).collect()
}

/// How many ranges a proof takes of which nothing is in memory.
fn cold_proof(made: &Made, number: u64, of: u64) -> u64 {
    made.archive.clear_cache();
    let before = made.archive.reads().ranges;
    let view = made.archive.at(number).unwrap();
    let tree = Tree::open(Mpt, ID, &view, 1 << 20).unwrap();
    let proof = tree.prove(&view, None, &[&key(of)]).unwrap();
    let then = &made.stores[number as usize];
    let expected = Tree::open(Mpt, ID, then, 1 << 20).unwrap();
    assert_eq!(proof, expected.prove(then, None, &[&key(of)]).unwrap());
    made.archive.reads().ranges - before
}

#[test]
fn pages_come_with_those_below() {
    // All pages have 300 kB.
    let made = archive(4_000, 0, 0, 1);
    // With the index came the part that has the root page, and no other one.
    let ranges: u64 = (0..200).map(|of| cold_proof(&made, 0, of)).sum();
    assert!((150..200).contains(&ranges), "{ranges} ranges of 200 proofs");
    // What is in memory is not asked for again.
    let before = made.archive.reads();
    let view = made.archive.at(0).unwrap();
    let tree = Tree::open(Mpt, ID, &view, 1 << 20).unwrap();
    tree.prove(&view, None, &[&key(199)]).unwrap();
    assert_eq!(made.archive.reads(), before);
}

#[test]
fn the_top_of_a_tree_is_in_one_segment_at_every_block() {
    let made = archive(40_000, 192, 40, 96);
    let mut root = None;
    made.stores[0]
        .scan(Table::Pages, &[], None, &mut |key, _| {
            root = key.ends_with(&[0, 0x80]).then(|| key.to_vec()).or(root.take());
            true
        })
        .unwrap();
    let root = root.unwrap();
    // It came with the index. The first piece of the second segment would need the first segment,
    // but that it stands alone.
    for number in [97, 98, 191, 192] {
        made.archive.clear_cache();
        let before = made.archive.reads().ranges;
        let row = made.archive.at(number).unwrap().read(Table::Pages, &root).unwrap();
        let then = made.stores[number as usize].read(Table::Pages, &root).unwrap();
        assert_eq!(row.as_deref(), then, "block {number}");
        assert_eq!(made.archive.reads().ranges, before, "block {number}");
    }
    for number in [1, 30, 96, 97, 192] {
        for of in [number, number * 40, 39_999] {
            let ranges = cold_proof(&made, number, of);
            assert!(ranges <= 6, "{ranges} ranges of key {of} at block {number}");
        }
    }
}

#[test]
fn root_records_come_with_the_index() {
    let made = archive(4_000, 8, 10, 4);
    let before = made.archive.reads();
    for number in 0..=8 {
        let view = made.archive.at(number).unwrap();
        let row = view.read(Table::Roots, &ID.0.to_be_bytes()).unwrap();
        let then = made.stores[number as usize].read(Table::Roots, &ID.0.to_be_bytes()).unwrap();
        assert_eq!(row.as_deref(), then);
        assert!(row.is_some());
    }
    assert_eq!(made.archive.reads(), before);
}

#[test]
fn the_first_segment_of_the_last_level_has_what_the_archive_began_with() {
    let made = merged(4_000, 6, 10, 1, &[2]);
    let segments = made.archive.manifest().segments;
    let blocks: Vec<_> = segments.iter().map(|segment| (segment.first, segment.last)).collect();
    assert_eq!(blocks, [(0, 2), (3, 4), (5, 6)]);
    let pieces: Vec<_> = segments.iter().map(|segment| (segment.keys, segment.pieces)).collect();
    assert!(pieces[0].0 > 4 * pieces[1].0, "it has all rows: {pieces:?}");
    for number in 0..=6 {
        for of in [number * 10, 3_999] {
            // Whoever needs a row of the first one reads it there.
            assert!(cold_proof(&made, number, of) <= 3);
        }
    }
}
