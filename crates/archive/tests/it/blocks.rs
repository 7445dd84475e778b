//! Blocks that are not those of their headers, in archives whose checksums are right.

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy_primitives::{Address, B256, U256};
use spinney_archive::{Archive, ArchiveError, CheckedBlocks, Folder, Header, Options, Wanted};
use spinney_archive::{Objects, Writer};
use spinney_state::embed::PBT;
use spinney_state::{AccountChange, Change, Changes, MPT};
use spinney_tree::{BlockId, MemorySnapshot, RootRecord, Table, TreeId};

use crate::extend::{Rows, block, chain, rows};

const BLOCKS: u64 = 40;
/// Where the key of a tree's root page ends: the kind of its row, and its place.
const ROOT_PLACE: [u8; 2] = [0, 0x80];

/// What a chain's headers say of its stores.
fn headers(stores: &[MemorySnapshot]) -> BTreeMap<u64, Header> {
    let header = |(number, store): (u64, &MemorySnapshot)| {
        let row = &rows(store, Table::Roots)[&RootRecord::key(MPT)[..]];
        let state_root = RootRecord::decode(MPT, row).unwrap().root.try_into().unwrap();
        (number, Header { hash: block(number).hash, state_root })
    };
    (0..).zip(stores).map(header).collect()
}

/// Every block of an archive is that of its store's header, and something is read of each that
/// holds accounts.
pub(crate) fn are_checked(archive: &Archive, stores: &[MemorySnapshot]) {
    let (first, last) = archive.blocks();
    let blocks = last - first + 1;
    let checked = archive.check_blocks(&headers(stores), &|_| ()).unwrap();
    assert_eq!((checked.blocks, checked.hashes, checked.state_roots), (blocks, blocks, blocks));
    let is_empty = |number: &u64| {
        let pages = rows(&stores[*number as usize], Table::Pages);
        pages.is_empty()
    };
    let with_entries = blocks - (first..=last).filter(is_empty).count() as u64;
    // A way or two into each of two trees.
    assert!(checked.entries >= 2 * with_entries, "{checked:?} {with_entries}");
}

/// The stores after each block of a chain, another one for each salt.
fn stores(salt: u64) -> Vec<MemorySnapshot> {
    let changes = |number: u64| {
        let change = |n: u64| {
            let account = (n * 13 + number * 5) % 61;
            let slot = |slot| (B256::from(U256::from(slot)), U256::from(number + salt + 1));
            let written = AccountChange {
                balance: Some(U256::from(1 + number + 1_000 * salt)),
                storage: (0..[0, 1, 30][account as usize % 3]).map(slot).collect(),
                ..AccountChange::default()
            };
            (Address::from_word(B256::from(U256::from(account))), Change::Written(written))
        };
        Changes { accounts: (0..if number == 0 { 60 } else { 5 }).map(change).collect() }
    };
    chain(&(0..BLOCKS).map(changes).collect::<Vec<_>>())
}

/// All rows of a store with their tables.
fn all(store: &MemorySnapshot) -> BTreeMap<(u8, Vec<u8>), (Table, Vec<u8>)> {
    let tables = [Table::Roots, Table::Pages, Table::Meta, Table::Codes, Table::Preimages];
    let of = |table: Table| {
        let rows: Rows = rows(store, table);
        rows.into_iter().map(move |(key, row)| ((table as u8, key), (table, row)))
    };
    tables.into_iter().flat_map(of).collect()
}

/// An archive of stores, whose block `at` is made of `planted` under another number or hash.
fn archived(
    stores: &[MemorySnapshot],
    (at, id): (u64, BlockId),
    planted: &MemorySnapshot,
) -> (tempfile::TempDir, Arc<dyn Objects>) {
    let folder = tempfile::tempdir().unwrap();
    let objects: Arc<dyn Objects> = Arc::new(Folder::new(folder.path()));
    let mut writer =
        Writer::create(objects.clone(), Options::default(), block(0), &stores[0]).unwrap();
    let last = stores.len() as u64 - 1;
    let mut window = writer.window(1, last).unwrap();
    let mut before = all(&stores[0]);
    for number in 1..=last {
        let (store, block) = match number == at {
            true => (planted, id),
            false => (&stores[number as usize], block(number)),
        };
        let after = all(store);
        let gone = before.iter().filter(|(key, _)| !after.contains_key(*key));
        let gone = gone.map(|((_, key), (table, row))| (*table, &key[..], Some(&row[..]), None));
        let made = after.iter().map(|(key, (table, row))| {
            let old = before.get(key).filter(|_| *table != Table::Roots);
            (*table, &key.1[..], old.map(|(_, row)| &row[..]), Some(&row[..]))
        });
        writer.add(&mut window, block, gone.chain(made)).unwrap();
        before = after;
    }
    writer.publish(vec![window], block(last)).unwrap();
    writer.archive(1 << 20).unwrap().check(|_| ()).expect("by itself it is sound");
    (folder, objects)
}

fn check(
    objects: &Arc<dyn Objects>,
    headers: &BTreeMap<u64, Header>,
) -> Result<CheckedBlocks, ArchiveError> {
    Archive::open(Arc::clone(objects), 1 << 20).unwrap().check_blocks(headers, &|_| ())
}

fn is_told(checked: Result<CheckedBlocks, ArchiveError>, at: u64, why: &str) {
    match checked {
        Err(ArchiveError::Block { block, what }) => {
            assert!(block == at && what.contains(why), "block {at}, {why}: {block}, {what}");
        }
        other => panic!("block {at}, {why}: {other:?}"),
    }
}

/// A store with rows of a table that another one has, those that are chosen.
fn with_rows(
    store: &MemorySnapshot,
    other: &MemorySnapshot,
    chosen: impl Fn(Table, &[u8]) -> bool,
) -> MemorySnapshot {
    use spinney_tree::{MemoryStore, PageStore as _, WriteSet};
    let made = MemoryStore::new();
    let mut set = WriteSet::new();
    for (is_other, from) in [(false, store), (true, other)] {
        for ((_, key), (table, row)) in all(from) {
            if chosen(table, &key) == is_other {
                set.put(table, &key, row);
            }
        }
    }
    made.commit(&set).unwrap();
    made.snapshot().unwrap()
}

#[test]
fn other_headers_are_told_with_their_block() {
    let stores = stores(0);
    let headers = headers(&stores);
    let (_folder, objects) = archived(&stores, (7, block(7)), &stores[7]);
    let checked = check(&objects, &headers).unwrap();
    assert_eq!((checked.blocks, checked.hashes, checked.state_roots), (BLOCKS, BLOCKS, BLOCKS));
    // Two ways into each of two trees, and two more to slots.
    assert!((5 * BLOCKS..=6 * BLOCKS).contains(&checked.entries), "{checked:?}");
    for number in [0, 1, 17, BLOCKS - 1] {
        let mut other = headers.clone();
        other.get_mut(&number).unwrap().hash[5] ^= 1;
        is_told(check(&objects, &other), number, "that of its header");
        let mut other = headers.clone();
        other.get_mut(&number).unwrap().state_root[5] ^= 1;
        is_told(check(&objects, &other), number, "its state root is");
        // Of many that are wrong, the first.
        let mut other = headers.clone();
        other.range_mut(number..).for_each(|(_, header)| header.hash[5] ^= 1);
        is_told(check(&objects, &other), number, "that of its header");
    }
    let some = headers.into_iter().skip(3).collect();
    let checked = check(&objects, &some).unwrap();
    assert_eq!((checked.blocks, checked.hashes), (BLOCKS, BLOCKS - 3));
    assert_eq!(checked.state_roots, BLOCKS - 3);
}

#[test]
fn another_record_is_told_with_its_block() {
    let (stores, others) = (stores(0), stores(1));
    let headers = headers(&stores);
    let none = BTreeMap::new();
    let record_of = |tree: TreeId| {
        move |table, key: &[u8]| table == Table::Roots && key == RootRecord::key(tree)
    };
    for at in [1, 16, 23] {
        let (store, other) = (&stores[at as usize], &others[at as usize]);
        // Of the same block with another root: of the trie the header tells, of both the page.
        for (tree, given, why) in [
            (MPT, &headers, "its state root is"),
            (MPT, &none, "its root is not that of the root record"),
            (PBT, &headers, "its root is not that of the root record"),
        ] {
            let planted = with_rows(store, other, record_of(tree));
            let (_folder, objects) = archived(&stores, (at, block(at)), &planted);
            is_told(check(&objects, given), at, why);
        }
        // All of the trie is that of another chain, and by itself it is sound.
        let planted = with_rows(store, other, |table, key| {
            matches!(table, Table::Roots | Table::Pages) && key.starts_with(&RootRecord::key(MPT))
        });
        let (_folder, objects) = archived(&stores, (at, block(at)), &planted);
        is_told(check(&objects, &headers), at, "its state root is");
        check(&objects, &none).unwrap();
        // The record of the block before.
        let planted = with_rows(store, &stores[at as usize - 1], record_of(PBT));
        let (_folder, objects) = archived(&stores, (at, block(at)), &planted);
        is_told(check(&objects, &headers), at, &format!("that of block {}", at - 1));
        // The block by another hash.
        let id = BlockId { number: at, hash: [99; 32] };
        let (_folder, objects) = archived(&stores, (at, id), store);
        is_told(check(&objects, &none), at, "does not lead to it");
    }
}

#[test]
fn a_page_of_the_block_before_is_told_where_it_is_read() {
    let stores = stores(0);
    let headers = headers(&stores);
    let (mut told, mut roots) = (0, 0);
    for at in [1, 16, 23] {
        let (store, before) = (&stores[at as usize], &stores[at as usize - 1]);
        let (new, old) = (rows(store, Table::Pages), rows(before, Table::Pages));
        for (key, _) in new.iter().filter(|(key, row)| old.get(*key).is_some_and(|it| it != *row)) {
            let is_it = |table, of: &[u8]| table == Table::Pages && of == key;
            let (_folder, objects) =
                archived(&stores, (at, block(at)), &with_rows(store, before, is_it));
            let checked = check(&objects, &headers);
            // The page of a tree's root is on every way.
            let is_root = key[8..] == ROOT_PLACE;
            assert!(!is_root || checked.is_err(), "block {at}: {key:?}");
            if let Err(error) = checked {
                let is_it = matches!(error, ArchiveError::Block { block, .. } if block == at);
                assert!(is_it, "block {at}: {error}");
                told += 1;
                roots += u32::from(is_root);
            }
        }
    }
    // The root pages of two trees at three blocks, and some pages below.
    assert!(roots == 6 && told > roots, "{roots} of {told}");
}

#[test]
fn the_blocks_of_a_slice_are_compared_with_headers() {
    let stores = stores(0);
    let mut headers = headers(&stores);
    let (_folder, objects) = archived(&stores, (7, block(7)), &stores[7]);
    let mut wanted = Wanted::default();
    wanted.addresses = vec![Address::from_word(B256::from(U256::from(2))).into_array()];
    (wanted.first, wanted.last) = (Some(3), Some(20));
    let folder = tempfile::tempdir().unwrap();
    let target: Arc<dyn Objects> = Arc::new(Folder::new(folder.path()));
    let archive = Archive::open(objects, 1 << 20).unwrap();
    archive.slice(Arc::clone(&target), &wanted, |_, _| ()).unwrap();
    let checked = check(&target, &headers).unwrap();
    assert_eq!((checked.blocks, checked.hashes, checked.state_roots), (18, 18, 18));
    assert_eq!(checked.entries, 0);
    headers.get_mut(&9).unwrap().state_root[0] ^= 1;
    is_told(check(&target, &headers), 9, "its state root is");
}
