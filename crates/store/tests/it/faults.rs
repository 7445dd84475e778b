//! A disk that stops at every operation in turn.

use std::sync::Arc;

use spinney_store::fault::{Fault, FaultDisk, Stop, Survivors};
use spinney_store::{OpenFor, RedbStore};
use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};

use crate::each_operation::EMBEDDED;
use crate::tools::{Contents, contents, puts};

const COMMITS: u8 = 4;

/// The commits: they overwrite, delete, drop and grow.
fn commit(round: u8) -> WriteSet {
    let rows = (0..30).map(|at| ([at], vec![round; 40 * usize::from(at) + 1]));
    let mut set = puts(Table::Pages, rows);
    set.put(Table::Roots, b"root", [round]);
    set.delete(Table::Pages, &[round]);
    set.drop_range(Table::Codes, vec![0], vec![200]);
    set.put(Table::Codes, &[100 + round], Arc::<[u8]>::from(vec![round; 9_000]));
    set
}

/// The contents before the first commit and after each.
fn states(blank: &FaultDisk) -> Vec<Contents> {
    let store = FaultDisk::with_image(blank.image()).open_store().unwrap();
    let mut states = vec![contents(&store)];
    for round in 0..COMMITS {
        store.commit(&commit(round)).unwrap();
        states.push(contents(&store));
    }
    states
}

fn blank() -> FaultDisk {
    let disk = FaultDisk::new();
    disk.create_store().unwrap().close().unwrap();
    disk
}

const CUTS: [Survivors; 5] = [
    Survivors::Nothing,
    Survivors::All,
    Survivors::Some(1),
    Survivors::Some(2),
    Survivors::Some(3),
];

/// After a failure, what is read is the state before it; what the cache does not know is an error.
fn before_it_or_nothing(store: &RedbStore, before: &Contents) {
    let Ok(snapshot) = store.snapshot() else {
        return;
    };
    for ((table, key), row) in before {
        match snapshot.read(*table, key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&row[..]), "the failed commit shows"),
            Err(error) => assert!(matches!(error, StoreError::Backend { .. }), "{error}"),
        }
    }
}

/// Runs the commits on a disk that stops at each operation in turn, and hands the disk, how many
/// commits succeeded and the states to `judge`.
fn at_every_operation(stop: Stop, judge: impl Fn(&FaultDisk, usize, &[Contents])) {
    let blank = blank();
    let states = states(&blank);
    for operation in 0.. {
        let disk = FaultDisk::with_image(blank.image());
        disk.stop_at(operation, stop);
        let mut done = 0;
        if let Ok(store) = disk.open_store() {
            for round in 0..COMMITS {
                match store.commit(&commit(round)) {
                    Ok(()) => done += 1,
                    Err(StoreError::Backend { .. }) => {
                        before_it_or_nothing(&store, &states[done]);
                        let again = store.commit(&commit(round));
                        assert!(matches!(again, Err(StoreError::Backend { .. })));
                        break;
                    }
                    Err(error) => panic!("operation {operation}: {error}"),
                }
            }
        }
        let finished = disk.operations() <= operation;
        judge(&disk, done, &states);
        if finished {
            assert!(operation > 20, "{operation} operations are too few to be all");
            break;
        }
    }
}

#[test]
fn a_failing_disk_leaves_the_last_durable_commit() {
    at_every_operation(Stop::Fail, |disk, done, states| {
        disk.resume();
        // The process went on to the end, so all that was written is there.
        let store = FaultDisk::with_image(disk.image()).open_store().unwrap();
        let found = contents(&store);
        assert!(found == states[done] || Some(&found) == states.get(done + 1));
    });
}

#[test]
fn a_power_cut_after_a_failure_leaves_the_last_durable_commit() {
    at_every_operation(Stop::Fail, |disk, done, states| {
        for cut in CUTS {
            let mut store = disk.after_power_cut(cut).open_store().unwrap();
            let found = contents(&store);
            assert!(found == states[done] || Some(&found) == states.get(done + 1), "{cut:?}");
            store.check().unwrap();
        }
    });
}

#[test]
fn a_power_cut_at_any_moment_leaves_some_commit_whole() {
    at_every_operation(Stop::Freeze, |disk, done, states| {
        assert_eq!(done, usize::from(COMMITS), "the process notices nothing");
        for cut in CUTS {
            let store = disk.after_power_cut(cut).open_store().unwrap();
            let found = contents(&store);
            assert!(states.contains(&found), "{cut:?}");
            // And it goes on from there.
            store.commit(&commit(9)).unwrap();
        }
    });
}

/// The later the cut, the later the state.
#[test]
fn a_later_power_cut_leaves_no_earlier_state() {
    let blank = blank();
    let states = states(&blank);
    let mut before = 0;
    for operation in 0.. {
        let disk = FaultDisk::with_image(blank.image());
        disk.stop_at(operation, Stop::Freeze);
        let store = disk.open_store().unwrap();
        for round in 0..COMMITS {
            store.commit(&commit(round)).unwrap();
        }
        drop(store);
        let finished = disk.operations() <= operation;
        let left = disk.after_power_cut(Survivors::Nothing).open_store().unwrap();
        let found = contents(&left);
        let at = states.iter().position(|state| *state == found).unwrap();
        assert!(at >= before, "operation {operation}");
        before = at;
        if finished {
            break;
        }
    }
    assert_eq!(before, usize::from(COMMITS));
}

/// A reopening after a cut is itself cut, at each operation.
#[test]
fn recovery_may_be_cut_off_too() {
    let blank = blank();
    let states = states(&blank);
    let disk = FaultDisk::with_image(blank.image());
    disk.stop_at(60, Stop::Freeze);
    let store = disk.open_store().unwrap();
    for round in 0..COMMITS {
        store.commit(&commit(round)).unwrap();
    }
    drop(store);
    let crashed = disk.after_power_cut(Survivors::Some(7));
    let found = contents(&FaultDisk::with_image(crashed.image()).open_store().unwrap());
    assert!(states.contains(&found));
    for operation in 0..40 {
        for stop in [Stop::Fail, Stop::Freeze] {
            let again = FaultDisk::with_image(crashed.image());
            again.stop_at(operation, stop);
            drop(again.open_store());
            for cut in CUTS {
                let store = again.after_power_cut(cut).open_store().unwrap();
                assert_eq!(contents(&store), found, "{operation} {stop:?} {cut:?}");
            }
        }
    }
}

#[test]
fn a_full_disk_says_so() {
    let disk = blank();
    let store = disk.open_store().unwrap();
    disk.stop_at(disk.operations(), Stop::Fail);
    let error = store.commit(&commit(1)).unwrap_err();
    assert_eq!(error.to_string(), "the test disk: no storage space");
    let error = store.commit(&commit(1)).unwrap_err();
    assert!(error.to_string().contains("open it again"), "{error}");
    drop(store);
    disk.resume();
    disk.open_store().unwrap().commit(&commit(1)).unwrap();
}

/// A commit that failed may be there all the same, or not. What the next process finds stays: also
/// where the power goes before that process has written anything, and whether the one before was
/// killed or ended.
#[test]
fn what_the_next_process_finds_is_durable() {
    for at in EMBEDDED.map(|at| at()) {
        let blank = FaultDisk::new();
        blank.open(&at, OpenFor::Filling, 1 << 20).unwrap().close().unwrap();
        let faults = [Fault::Broken, Fault::Full, Fault::Short];
        for (fault, is_killed) in faults.into_iter().flat_map(|f| [(f, true), (f, false)]) {
            for operation in 0.. {
                let disk = blank.copy();
                disk.fault_at(operation, fault);
                let Ok(store) = disk.open(&at, OpenFor::Writing, 1 << 20) else { continue };
                let _ = store.commit(&commit(1)).and_then(|()| store.commit(&commit(2)));
                let passed = disk.operations();
                // What a process that is killed would do when it ends is done to another disk.
                let killed = is_killed.then(|| disk.after_kill());
                drop(store);
                let disk = killed.unwrap_or_else(|| disk.after_kill());
                let store = disk.open(&at, OpenFor::Writing, 1 << 20).unwrap();
                let found = contents(&store);
                for cut in [Survivors::Nothing, Survivors::All, Survivors::Some(operation)] {
                    let disk = disk.after_power_cut(cut);
                    let store = disk.open(&at, OpenFor::Writing, 1 << 20).unwrap();
                    let what =
                        format!("{at}, {fault:?} at {operation}, killed: {is_killed}, {cut:?}");
                    assert!(contents(&store) == found, "{what}");
                }
                if passed <= operation {
                    break;
                }
            }
        }
    }
}
