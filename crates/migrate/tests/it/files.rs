//! The files of a state: made on several ways, and changed in any way.

use std::path::Path;

use alloy_primitives::B256;
use proptest::prelude::*;
use spinney_migrate::{
    MigrateError, NameSource, Work, export_preimages, export_snapshot, from_mpt, import_snapshot,
    match_preimages, to_mpt,
};
use spinney_state::embed::BinaryState;
use spinney_tree::pbt::Pbt;
use spinney_tree::{HashFunction, MemoryStore};

use crate::made::{cases, one_state, states, trie_of, worked};

const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };

fn snapshot_of(store: &MemoryStore) -> Vec<u8> {
    worked(20_000, |w| export_snapshot(store, PBT, Vec::new(), w)).unwrap().1
}

fn preimages_of(store: &MemoryStore) -> Vec<u8> {
    worked(20_000, |w| export_preimages(store, PBT, Vec::new(), w)).unwrap().1
}

struct Files {
    folder: tempfile::TempDir,
}

impl Files {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> std::path::PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }
}

fn import(path: &Path, target: &MemoryStore) -> Result<B256, MigrateError> {
    worked(20_000, |w| import_snapshot(path, target, PBT, None, w)).map(|made| made.root)
}

proptest! {
    #![proptest_config(cases())]

    /// Applied and written; converted and written; imported and written again: the same bytes.
    #[test]
    fn all_ways_make_the_same_files(changes in states()) {
        let (converted, imported) = (MemoryStore::new(), MemoryStore::new());
        let trie = trie_of(&changes);
        let mut applied = BinaryState::open(PBT, MemoryStore::new(), 1 << 20).unwrap();
        applied.apply(&changes).unwrap();
        applied.commit(None).unwrap();
        let made = worked(20_000, |w| from_mpt(&trie, &converted, PBT, NameSource::Store, w));
        let made = made.unwrap();
        let (snapshot, preimages) = (snapshot_of(&converted), preimages_of(&trie));
        prop_assert_eq!(&snapshot, &snapshot_of(applied.store()));
        prop_assert_eq!(&preimages, &preimages_of(&converted));
        let files = Files::new();
        let leaves = files.put("snapshot", &snapshot);
        let names = files.put("preimages", &preimages);
        prop_assert_eq!(import(&leaves, &imported).unwrap(), made.root);
        let root = Some(made.source_root);
        let named = worked(20_000, |w| match_preimages(&names, &imported, PBT, root, true, w));
        let named = named.unwrap();
        prop_assert_eq!(named.counts, made.counts);
        prop_assert_eq!(made.snapshot.unwrap().digest, alloy_primitives::keccak256(&snapshot));
        prop_assert_eq!(&snapshot, &snapshot_of(&imported));
        prop_assert_eq!(&preimages, &preimages_of(&imported));
        // And back, which needs the code.
        let back = MemoryStore::new();
        let made = worked(20_000, |w| to_mpt(&imported, &back, PBT, NameSource::Store, w)).unwrap();
        prop_assert_eq!(made.root, named.state_root);
    }
}

/// How a file is changed; each of them to other bytes.
fn changed(file: &[u8], records: &[std::ops::Range<usize>]) -> Vec<(String, Vec<u8>)> {
    // The same chance each time: a counter, hashed.
    let mut drawn = 0_u64;
    let mut below = |n: usize| {
        drawn += 1;
        let hash = alloy_primitives::keccak256(drawn.to_be_bytes());
        u64::from_be_bytes(*hash.first_chunk().expect("32 bytes")) as usize % n
    };
    let mut all = Vec::new();
    for _ in 0..1_000 {
        let (at, by) = (below(file.len()), 1 + below(255) as u8);
        let mut other = file.to_vec();
        other[at] ^= by;
        all.push((format!("byte {at} changed by {by:#x}"), other));
    }
    for _ in 0..100 {
        let length = below(file.len());
        all.push((format!("cut to {length} bytes"), file[..length].to_vec()));
    }
    for _ in 0..100 {
        let (a, b) = (below(records.len()), below(records.len() - 1));
        let (a, b) = (a.min(b), a.max(b) + usize::from(a == b));
        let (first, second) = (records[a].clone(), records[b].clone());
        let swapped = [
            &file[..first.start],
            &file[second.clone()],
            &file[first.end..second.start],
            &file[first],
            &file[second.end..],
        ];
        all.push((format!("records {a} and {b} swapped"), swapped.concat()));
    }
    all
}

/// Where the leaves of a snapshot lie.
fn leaves_of(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = 40;
    let mut records = Vec::new();
    while at < file.len() {
        let length = match file[at] {
            0xf8 => 2 + usize::from(file[at + 1]),
            short => 1 + usize::from(short - 0xc0),
        };
        records.push(at..at + length);
        at += length;
    }
    records
}

/// Where the accounts of a preimage file lie.
fn accounts_of(file: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut at = 0;
    let mut records = Vec::new();
    while at < file.len() {
        let slots = u32::from_be_bytes(file[at + 20..at + 24].try_into().unwrap());
        let length = 24 + 32 * slots as usize;
        records.push(at..at + length);
        at += length;
    }
    records
}

#[test]
fn changed_files_are_refused() {
    let trie = trie_of(&one_state());
    let converted = MemoryStore::new();
    let made = worked(1 << 20, |w| from_mpt(&trie, &converted, PBT, NameSource::Store, w)).unwrap();
    let (snapshot, preimages) = (snapshot_of(&converted), preimages_of(&converted));
    let files = Files::new();
    let mut reasons = std::collections::BTreeMap::<String, u32>::new();
    let mut note = |what: &str, refused: Result<(), MigrateError>| {
        let error = refused.err().unwrap_or_else(|| panic!("{what} is accepted"));
        let reason = format!("{error:?}");
        let reason = reason.split([' ', '{', '(']).next().unwrap_or_default();
        *reasons.entry(reason.to_owned()).or_default() += 1;
        assert!(!error.to_string().is_empty(), "{what}");
    };
    for (what, file) in changed(&snapshot, &leaves_of(&snapshot)) {
        let path = files.put("snapshot", &file);
        note(&what, import(&path, &MemoryStore::new()).map(drop));
    }
    let root = Some(made.source_root);
    for (what, file) in changed(&preimages, &accounts_of(&preimages)) {
        let path = files.put("preimages", &file);
        let run = |w: &mut Work<'_>| match_preimages(&path, &converted, PBT, root, false, w);
        note(&what, worked(1 << 20, run).map(drop));
    }
    println!("2,400 changes: {reasons:?}");
}
