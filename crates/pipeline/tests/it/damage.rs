//! Files and rows that are not what they were: told, and never used.

use std::fs;
use std::ops::ControlFlow;

use proptest::prelude::*;
use spinney_pipeline::{Checkpoint, PipelineError, Progress};
use spinney_tree::{MemoryStore, PageStore as _, Table, WriteSet};

use crate::support::{ID, check, on, options, rows, run, serial, state};

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

    /// P1 to P5 of what lies in the store, P9: a changed or cut row is told, and the run begins anew.
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

    /// P2 to P4 of files: the leaves are gathered anew, or the run ends with an error that names the file.
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
