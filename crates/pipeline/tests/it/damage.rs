//! Files and rows that are not what they were: told, and never used.

use std::fs;
use std::ops::ControlFlow;

use proptest::prelude::*;
use spinney_pipeline::{Checkpoint, PipelineError, Progress};
use spinney_tree::{MemoryStore, PageStore as _, Table, WriteSet};

use xxhash_rust::xxh3::xxh3_64;

use crate::support::{ID, check, gather, on, open, options, rows, run, serial, state};

fn stopped_halfway(spill: &std::path::Path, store: &MemoryStore) {
    let entries = state(40, 60);
    let mut commits = 0;
    let mut stop = |_: &Progress<'_>| {
        commits += 1;
        if commits < 4 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let stopped = run(spill, store, &entries, options(1, 1, 9), &mut stop);
    assert!(matches!(stopped, Err(PipelineError::Stopped)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// P1 to P5 of what lies in the store, P9: a changed or cut row is told, and the run begins
    /// anew.
    #[test]
    fn p3_p9_a_damaged_checkpoint_begins_anew(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
        stopped_halfway(&spill, &store);
        let meta = rows(&store.snapshot().unwrap(), Table::Meta);
        let (key, mut row) = meta.into_iter().nth(which.index(5)).unwrap();
        let at = at.index(row.len());
        if cut { row.truncate(at) } else { row[at] ^= flip }
        let mut set = WriteSet::new();
        set.put(Table::Meta, &key, row);
        store.commit(&set).unwrap();
        Checkpoint::read(&store.snapshot().unwrap(), ID).unwrap();
        let entries = state(40, 60);
        let report = run(&spill, &store, &entries, options(1, 1, 9), &mut on).unwrap();
        prop_assert_eq!(report.notes.len(), 1, "{:?}", report);
        prop_assert_eq!(report.ranges_found, 0);
        check(&store, &spill, &serial(&entries));
    }

    /// P2 to P4 of files: the leaves are gathered anew, or the run ends with an error that names
    /// the file.
    #[test]
    fn p3_p4_damaged_files_are_told(
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
        stopped_halfway(&spill, &store);
        let mut files: Vec<_> = fs::read_dir(&spill).unwrap().map(|e| e.unwrap().path()).collect();
        files.sort();
        let file = &files[which.index(files.len())];
        let mut bytes = fs::read(file).unwrap();
        let at = at.index(bytes.len());
        if cut { bytes.truncate(at) } else { bytes[at] ^= flip }
        fs::write(file, bytes).unwrap();
        let entries = state(40, 60);
        match run(&spill, &store, &entries, options(1, 1, 9), &mut on) {
            Ok(_) => check(&store, &spill, &serial(&entries)),
            Err(PipelineError::Damaged { path, .. }) => prop_assert_eq!(&path, file),
            Err(error) => panic!("{error}"),
        }
    }
}

/// Puts a new checksum at the end of a record.
fn sealed(mut record: Vec<u8>) -> Vec<u8> {
    let body = record.len().saturating_sub(8);
    record.truncate(body);
    // The length in its head says where it ends.
    if let Some(len) = body.checked_sub(7) {
        record[3..7].copy_from_slice(&(len as u32).to_be_bytes());
    }
    let sum = xxh3_64(&record);
    record.extend_from_slice(&sum.to_be_bytes());
    record
}

/// Changes bytes as somebody would who forges them: some are others, some go, some come.
fn forged(mut bytes: Vec<u8>, edits: &[(prop::sample::Index, u8, Vec<u8>)]) -> Vec<u8> {
    for (at, gone, come) in edits {
        let at = at.index(bytes.len() + 1);
        let end = bytes.len().min(at + usize::from(*gone % 9));
        bytes.splice(at..end, come.iter().copied());
    }
    bytes
}

fn edits() -> impl Strategy<Value = Vec<(prop::sample::Index, u8, Vec<u8>)>> {
    let come = prop::collection::vec(prop_oneof![any::<u8>(), Just(0), Just(255)], 0..9);
    prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), come), 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// P2 and P4 behind the checksums: whatever a checkpoint claims, the run ends with a tree of
    /// the right root or with an error, and what it reads of the store never panics.
    #[test]
    fn p2_p4_forged_checkpoints_never_panic(
        which in any::<prop::sample::Index>(),
        edits in edits(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
        stopped_halfway(&spill, &store);
        let meta = rows(&store.snapshot().unwrap(), Table::Meta);
        let (key, row) = meta.into_iter().nth(which.index(5)).unwrap();
        let mut set = WriteSet::new();
        set.put(Table::Meta, &key, sealed(forged(row, &edits)));
        store.commit(&set).unwrap();
        drop(Checkpoint::read(&store.snapshot().unwrap(), ID));
        let entries = state(40, 60);
        let expected = Some(serial(&entries).0);
        let gather = gather(&spill, &store, &entries, options(1, 1, 9)).unwrap();
        let mut tree = open(&store);
        match gather.rebuild(&mut tree, &store, None, expected, &mut on) {
            Ok(_) => prop_assert_eq!(Some(tree.root()), expected),
            Err(error) => prop_assert!(!matches!(error, PipelineError::Worker { .. }), "{}", error),
        }
    }

    /// The same of run files: block, index and footer with checksums that are right.
    #[test]
    fn p2_p4_forged_files_never_panic(
        which in any::<prop::sample::Index>(),
        part in 0..3_usize,
        edits in edits(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
        stopped_halfway(&spill, &store);
        let mut files: Vec<_> = fs::read_dir(&spill).unwrap().map(|e| e.unwrap().path()).collect();
        let is_run = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b"run");
        files.retain(|path| path.file_name().is_some_and(is_run));
        files.sort();
        let file = &files[which.index(files.len())];
        let bytes = fs::read(file).unwrap();
        let (records, footer) = bytes.split_at(bytes.len() - 24);
        let mut records: Vec<Vec<u8>> = split(records);
        let mut footer = footer.to_vec();
        match part {
            0 => footer = forged(footer, &edits),
            part => {
                let at = which.index(records.len());
                let at = if part == 1 { records.len() - 1 } else { at };
                records[at] = sealed(forged(std::mem::take(&mut records[at]), &edits));
            }
        }
        let end = footer.len().saturating_sub(8);
        footer.truncate(end);
        let sum = xxh3_64(&footer);
        footer.extend_from_slice(&sum.to_be_bytes());
        fs::write(file, [records.concat(), footer].concat()).unwrap();
        let entries = state(40, 60);
        let expected = Some(serial(&entries).0);
        let mut tree = open(&store);
        let done = gather(&spill, &store, &entries, options(1, 1, 9))
            .and_then(|gather| gather.rebuild(&mut tree, &store, None, expected, &mut on));
        match done {
            Ok(_) => prop_assert_eq!(Some(tree.root()), expected),
            Err(error) => prop_assert!(!matches!(error, PipelineError::Worker { .. }), "{}", error),
        }
    }
}

/// P4: rows that claim as many leaves and bytes as a number holds.
#[test]
fn p4_claims_of_any_size_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    stopped_halfway(&spill, &store);
    let mut set = WriteSet::new();
    for (key, mut row) in rows(&store.snapshot().unwrap(), Table::Meta) {
        if key.starts_with(b"pipeline") && key.len() > 12 {
            // Behind the head and the name: leaves and bytes.
            row[7 + 32..][..16].fill(0xff);
            set.put(Table::Meta, &key, sealed(row));
        }
    }
    assert!(set.rows().len() > 1);
    store.commit(&set).unwrap();
    let at = Checkpoint::read(&store.snapshot().unwrap(), ID).unwrap().unwrap();
    assert_eq!(at.built, u64::MAX);
    let failed = run(&spill, &store, &state(40, 60), options(1, 1, 9), &mut on);
    assert!(matches!(failed, Err(PipelineError::Damaged { .. })), "{failed:?}");
}

/// The records of a file, each by itself.
fn split(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Some(len) = bytes.get(3..7) {
        let len = 15 + u32::from_be_bytes(len.try_into().unwrap()) as usize;
        let (record, rest) = bytes.split_at(len);
        records.push(record.to_vec());
        bytes = rest;
    }
    records
}
