//! Work on a store, on a disk where each operation goes wrong in turn, in every way.
//!
//! `SPINNEY_LONG=1` tries all operations, else some are: each so many, from an offset that differs
//! from one way to the next.

use spinney_store::fault::{Fault, FaultDisk, Stop, Survivors};
use spinney_store::{AnyStore, Location, OpenFor};
use spinney_tree::StoreError;

/// Work in so many commits that can go on wherever it was cut off.
pub(crate) trait History {
    /// How many commits there are.
    fn commits(&self) -> u64;

    /// Opens the store on the disk, or makes it, goes on as far as that goes, and closes it.
    /// Answers the last commit that was reported, or found there by a process that goes on.
    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64;

    /// Reads all that is on the disk. Answers at which commit it is, or who says that it is
    /// damaged, and how; 0 is before the first. Panics if it is at none, and nobody says so.
    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String>;
}

/// The kinds of stores that a disk holds, and their names there.
pub(crate) const EMBEDDED: [fn() -> Location; 3] = [
    || Location::Sqlite("db/state.sqlite".into()),
    || Location::Redb("db/state".into()),
    || Location::Log("db/log".into()),
];

/// Opens a store, or makes it.
pub(crate) fn filling(
    disk: &FaultDisk,
    at: &Location,
    cache_bytes: usize,
) -> Result<AnyStore, StoreError> {
    disk.open(at, OpenFor::Filling, cache_bytes)
}

fn is_long() -> bool {
    std::env::var_os("SPINNEY_LONG").is_some()
}

/// How many operations are tried in each way, unless it is all of them.
const TRIALS: u64 = 5;

/// Runs all of the work on a disk with nothing wrong: answers how many operations that takes.
fn operations(work: &impl History, at: &Location) -> u64 {
    let disk = FaultDisk::new();
    assert_eq!(work.go_on(&disk, at), work.commits(), "{at}: nothing is wrong");
    assert_eq!(work.found(&disk.after_power_cut(Survivors::Nothing), at), Ok(work.commits()));
    disk.operations()
}

/// Tries all operations, or some.
fn each(work: &impl History, at: &Location, way: u64, mut trial: impl FnMut(u64)) -> u64 {
    let all = operations(work, at);
    let step = if is_long() { 1 } else { all.div_ceil(TRIALS) };
    let mut tried = 0;
    for operation in (way * step / 5 % step..all).step_by(step as usize) {
        trial(operation);
        tried += 1;
    }
    assert!(tried > TRIALS / 2, "{tried} of {all} operations");
    tried
}

/// How a trial ended that is not as it should be.
fn told(disk: &FaultDisk, at: &Location, wrong: &dyn std::fmt::Debug, operation: u64) -> String {
    format!("{at}, {wrong:?} at {operation}, {:?}", disk.log().get(operation as usize))
}

/// The disk holds the last commit that was reported or the one after it, sound; and the work goes
/// on from there.
fn before_or_after(
    work: &impl History,
    disk: &FaultDisk,
    at: &Location,
    reported: u64,
    what: &str,
) {
    let found = match work.found(disk, at) {
        Ok(found) => found,
        Err(error) => panic!("{what}: {error}"),
    };
    let fits = found == reported || found == reported + 1;
    assert!(fits, "{what}: found commit {found}, reported {reported}");
    assert_eq!(work.go_on(disk, at), work.commits(), "{what}: it does not go on");
    assert_eq!(work.found(disk, at), Ok(work.commits()), "{what}: at the end");
}

/// Each operation fails, once or for good; the process ends there, or the machine.
pub(crate) fn fails(work: &impl History, places: &[fn() -> Location]) {
    let stops = [Stop::Fail, Stop::Break].map(Some);
    let faults = [Fault::Full, Fault::Broken, Fault::Short].map(Some);
    let wrongs =
        stops.map(|stop| (stop, None)).into_iter().chain(faults.map(|fault| (None, fault)));
    for at in places.iter().map(|at| at()) {
        for (way, wrong) in (0..).zip(wrongs.clone()) {
            let tried = each(work, &at, way, |operation| {
                let disk = FaultDisk::new();
                match wrong {
                    (Some(stop), _) => disk.stop_at(operation, stop),
                    (_, Some(fault)) => disk.fault_at(operation, fault),
                    _ => {}
                }
                let reported = work.go_on(&disk, &at);
                let what = told(&disk, &at, &wrong, operation);
                for cut in [Survivors::Nothing, Survivors::All, Survivors::Some(operation)] {
                    let what = format!("{what}, {cut:?}");
                    before_or_after(work, &disk.after_power_cut(cut), &at, reported, &what);
                }
                before_or_after(work, &disk.after_kill(), &at, reported, &what);
            });
            println!("{at}: {wrong:?} at {tried} operations, four disks each: before or after");
        }
    }
}

/// The power is cut at each operation; what was not synced is there in part, in any order, and
/// torn.
pub(crate) fn is_cut(work: &impl History, places: &[fn() -> Location]) {
    for at in places.iter().map(|at| at()) {
        let (mut last, mut before) = (0, Vec::new());
        let tried = each(work, &at, 0, |operation| {
            let disk = FaultDisk::new();
            disk.stop_at(operation, Stop::Freeze);
            assert_eq!(work.go_on(&disk, &at), work.commits(), "the process notices nothing");
            for cut in [Survivors::Nothing, Survivors::All, Survivors::Some(operation)] {
                let what = told(&disk, &at, &cut, operation);
                let left = disk.after_power_cut(cut);
                let found =
                    work.found(&left, &at).unwrap_or_else(|error| panic!("{what}: {error}"));
                if cut == Survivors::Nothing {
                    // Work of several threads does not come to the disk in the same order each
                    // time.
                    let mut log = disk.log();
                    log.truncate(operation as usize);
                    let is_later = log.starts_with(&before);
                    assert!(
                        found >= last || !is_later,
                        "{what}: a later cut leaves an earlier state"
                    );
                    (last, before) = (found, log);
                }
                before_or_after(work, &left, &at, found, &what);
            }
        });
        println!("{at}: power cut at {tried} operations, three disks each: some commit whole");
    }
}

/// The disk lies about each operation: what it leaves is right, or somebody says that it is not.
pub(crate) fn lies(work: &impl History, places: &[fn() -> Location]) {
    let faults = [Fault::Lost, Fault::Torn, Fault::Misdirected(0), Fault::Misdirected(7)];
    for at in places.iter().map(|at| at()) {
        for (way, fault) in (0..).zip(faults) {
            let (mut right, mut refused) = (0, 0);
            let tried = each(work, &at, way, |operation| {
                let disk = FaultDisk::new();
                disk.fault_at(operation, fault);
                assert_eq!(work.go_on(&disk, &at), work.commits(), "the process notices nothing");
                for cut in [Survivors::Nothing, Survivors::All] {
                    match work.found(&disk.after_power_cut(cut), &at) {
                        Ok(_) => right += 1,
                        Err(_) => refused += 1,
                    }
                }
            });
            println!("{at}: {fault:?} at {tried} operations: {right} right, {refused} refused");
            assert!(right > 0, "{at}: {fault:?}: nothing was ever right");
        }
    }
}

/// Disks of all sizes up to one that holds everything: what was reported is there.
pub(crate) fn is_full(work: &impl History, places: &[fn() -> Location], kib_max: u64) {
    for at in places.iter().map(|at| at()) {
        let (mut full, mut enough) = (0, 0);
        let step = if is_long() { kib_max / 400 } else { kib_max / 20 };
        for kib in (8..=kib_max).step_by(step as usize) {
            let disk = FaultDisk::new();
            disk.set_room(Some(kib << 10));
            let reported = work.go_on(&disk, &at);
            if reported == work.commits() {
                enough += 1;
            } else {
                full += 1;
            }
            disk.set_room(None);
            for cut in [Survivors::Nothing, Survivors::All, Survivors::Some(kib)] {
                let what = format!("{at} in {kib} KiB, {cut:?}");
                before_or_after(work, &disk.after_power_cut(cut), &at, reported, &what);
            }
        }
        println!("{at}: {full} disks too small, {enough} large enough, three cuts each");
        assert!(full > 1 && enough > 0, "{at}: {full} full, {enough} not");
    }
}
