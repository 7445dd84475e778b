//! Whatever the threads, the bounds and the ranges: the same root and the same pages.

use spinney_pipeline::{Options, PipelineError};
use spinney_store::RedbStore;
use spinney_tree::{MemoryStore, PageStore as _, Table};

use crate::support::{Entries, check, gather, on, open, options, pages, rows, run, serial, state};

/// P14, P15, P16 and P22; P19: `check` of the tree walks every reference.
#[test]
fn p14_p15_p16_p19_p22_any_threads_bounds_and_ranges_make_the_same_pages() {
    let entries = state(120, 300);
    let expected = serial(&entries);
    let dir = tempfile::tempdir().unwrap();
    for threads in 1..=8 {
        for in_flight in [1, 2, 3, 64] {
            for range_leaves in [1, 7, u64::MAX] {
                let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
                let options = options(threads, in_flight, range_leaves);
                let report = run(&spill, &store, &entries, options, &mut on).unwrap();
                check(&store, &spill, &expected);
                assert!(report.peak_in_flight <= in_flight, "{report:?}");
                // Each leaf is in one range, and hashed once.
                assert_eq!(report.leaves, entries.len() as u64);
                assert_eq!(report.hashed, entries.len() as u64);
                let ranges = (entries.len() as u64).div_ceil(range_leaves);
                assert_eq!(u64::from(report.ranges), ranges);
                assert_eq!(report.notes, Vec::<String>::new());
            }
        }
    }
    let store = MemoryStore::new();
    run(&dir.path().join("spill"), &store, &entries, options(2, 3, 7), &mut on).unwrap();
    assert_eq!(open(&store).check(&store.snapshot().unwrap(), |_| {}).unwrap(), []);
}

#[test]
fn p14_the_same_pages_over_redb() {
    let entries = state(300, 2_000);
    let expected = serial(&entries);
    let dir = tempfile::tempdir().unwrap();
    for (threads, in_flight, range_leaves) in [(1, 1, 500), (2, 3, 64), (4, 64, u64::MAX)] {
        let store =
            RedbStore::open_or_create(dir.path().join(format!("db-{threads}")), 1 << 20).unwrap();
        let spill = dir.path().join("spill");
        let options = options(threads, in_flight, range_leaves);
        run(&spill, &store, &entries, options, &mut on).unwrap();
        check(&store, &spill, &expected);
    }
}

/// Leaves that do not fit the memory go to many runs; what comes out is the same.
#[test]
fn p22_memory_does_not_matter() {
    let entries = state(200, 700);
    let expected = serial(&entries);
    let dir = tempfile::tempdir().unwrap();
    for memory in [1, 1_000, 20_000, 1 << 20] {
        let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
        let mut options = Options::default();
        options.memory = memory;
        let report = run(&spill, &store, &entries, options, &mut on).unwrap();
        check(&store, &spill, &expected);
        if memory == 1 {
            assert_eq!(report.run_files, entries.len(), "a run a leaf");
        }
    }
}

/// Ranges of 0, 1 and 2 leaves, and what collapses into one extension.
#[test]
fn few_leaves_and_none() {
    let dir = tempfile::tempdir().unwrap();
    let all = state(4, 2);
    for count in 0..=all.len() {
        let entries: Entries = all
            .iter()
            .filter(|(key, _)| key.len() == 32)
            .take(count)
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect();
        let expected = serial(&entries);
        for range_leaves in [1, 2, 3] {
            let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
            run(&spill, &store, &entries, options(2, 2, range_leaves), &mut on).unwrap();
            check(&store, &spill, &expected);
        }
    }
}

/// P18: a rebuild over another state leaves nothing of it; P20: what is gone has no rows.
#[test]
fn p18_p20_a_rebuild_takes_the_place_of_what_was() {
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    run(&spill, &store, &state(200, 900), options(2, 2, 50), &mut on).unwrap();
    let other = state(90, 0);
    let report = {
        let name = spinney_pipeline::RunName::of(&open(&store), b"other", &options(2, 2, 50));
        let mut gather = spinney_pipeline::Gather::open(&spill, name, options(2, 2, 50)).unwrap();
        for (key, value) in &other {
            gather.push(key, value).unwrap();
        }
        gather.rebuild(&mut open(&store), &store, None, None, &mut on).unwrap()
    };
    assert_eq!(report.notes, Vec::<String>::new());
    check(&store, &spill, &serial(&other));
}

#[test]
fn a_key_that_comes_twice_is_named_and_nothing_changes() {
    let entries = state(40, 90);
    let twice = entries.keys().nth(20).unwrap();
    let dir = tempfile::tempdir().unwrap();
    // In one run, and in two.
    for memory in [1 << 20, 2_000] {
        for range_leaves in [1, 1_000] {
            let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
            let mut options = options(2, 2, range_leaves);
            options.memory = memory;
            let mut gather = gather(&spill, &store, &entries, options).unwrap();
            let is_twice = |error: PipelineError| {
                assert!(matches!(&error, PipelineError::Twice { key } if key == twice), "{error}");
            };
            // It shows when its run is written, and as often as that is tried.
            gather.push(twice, b"again").map_err(is_twice).ok();
            let error = gather.rebuild(&mut open(&store), &store, None, None, &mut on).unwrap_err();
            is_twice(error);
            assert_eq!(pages(&open(&store), &store.snapshot().unwrap()), Entries::new());
            std::fs::remove_dir_all(&spill).unwrap();
        }
    }
}

/// Leaves that find no directory stay in memory, and are written once there is one again.
#[test]
fn a_run_that_cannot_be_written_is_tried_again() {
    let entries = state(200, 300);
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    let mut options = options(2, 2, 50);
    options.memory = 10_000;
    let name = spinney_pipeline::RunName::of(&open(&store), b"test", &options);
    let mut gather = spinney_pipeline::Gather::open(&spill, name, options).unwrap();
    std::fs::remove_dir(&spill).unwrap();
    let mut failures = 0;
    for (key, value) in &entries {
        while let Err(error) = gather.push(key, value) {
            assert!(error.to_string().contains("spill"), "{error}");
            failures += 1;
            if failures == 3 {
                std::fs::create_dir(&spill).unwrap();
            }
        }
    }
    assert_eq!(failures, 3);
    let report = gather.rebuild(&mut open(&store), &store, None, None, &mut on).unwrap();
    assert_eq!(report.leaves, entries.len() as u64);
    check(&store, &spill, &serial(&entries));
}

/// Leaves from rayon's only thread, in a process of its own: what sorts them meanwhile may not
/// count on that thread, or both wait for ever.
#[test]
fn leaves_may_come_from_the_only_thread_of_a_pool() {
    const CHILD: &str = "SPINNEY_ONE_THREAD";
    if std::env::var_os(CHILD).is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "same::leaves_may_come_from_the_only_thread_of_a_pool"]);
        assert!(child.env(CHILD, "1").env("RAYON_NUM_THREADS", "1").status().unwrap().success());
        return;
    }
    let entries = state(4_000, 6_000);
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    let mut options = options(2, 2, 1_000);
    // Runs of more leaves than rayon sorts on one thread.
    options.memory = 1 << 20;
    let on_pool = |_: &rayon::Scope<'_>| {
        assert_eq!(rayon::current_thread_index(), Some(0));
        run(&spill, &store, &entries, options, &mut on).unwrap();
    };
    rayon::scope(|scope| scope.spawn(on_pool));
    check(&store, &spill, &serial(&entries));
}

#[test]
fn another_root_than_the_expected_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    let (old, new) = (state(30, 4), state(40, 90));
    run(&spill, &store, &old, options(2, 2, 9), &mut on).unwrap();
    let mut named = options(2, 2, 9);
    named.memory += 1;
    let gather = gather(&spill, &store, &new, named).unwrap();
    let failed = gather.rebuild(&mut open(&store), &store, None, Some([7; 32]), &mut on);
    assert!(matches!(failed, Err(PipelineError::Root { .. })));
    let (root, all) = serial(&old);
    assert_eq!(open(&store).root(), root);
    assert_eq!(rows(&store.snapshot().unwrap(), Table::Pages).len(), all.len());
    assert_eq!(rows(&store.snapshot().unwrap(), Table::Meta).len(), 0);
    assert!(!spill.exists());
}
