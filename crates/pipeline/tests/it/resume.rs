//! Runs that stop, fail and go on.

use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use spinney_pipeline::{Checkpoint, Gather, Phase, PipelineError, Progress, RunName, State};
use spinney_tree::mpt::MptState;
use spinney_tree::{
    BranchJob, Children, Engine, Layout, LeafJob, MemoryStore, PageStore, Refused, Scheme,
    SchemeId, Snapshot, StoreError, Table, Tree, WriteSet,
};

use crate::support::{ID, check, gather, on, open, options, pages, run, serial, state};

/// P7, P8, P10 and P12: stopped after every commit, one store goes through the whole run.
#[test]
fn p7_p10_p12_a_run_stopped_at_every_commit_ends_as_one_that_was_not() {
    let entries = state(90, 200);
    let expected = serial(&entries);
    let dir = tempfile::tempdir().unwrap();
    for (threads, in_flight, range_leaves) in [(1, 1, 1), (2, 3, 7), (3, 64, 40)] {
        let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
        let options = options(threads, in_flight, range_leaves);
        let mut built = 0;
        let mut stops = 0;
        loop {
            let stop = &mut |_: &Progress<'_>| ControlFlow::Break(());
            match run(&spill, &store, &entries, options, stop) {
                Ok(report) => {
                    assert_eq!(report.notes, Vec::<String>::new());
                    assert_eq!(report.hashed, entries.len() as u64, "nothing is done twice");
                    break;
                }
                Err(PipelineError::Stopped) => stops += 1,
                Err(error) => panic!("{error}"),
            }
            let at = Checkpoint::read(&store.snapshot().unwrap(), ID).unwrap().unwrap();
            assert_eq!(open(&store).root(), open(&MemoryStore::new()).root(), "nothing is seen");
            if at.built == entries.len() as u64 {
                // The join has nothing to keep between two stops.
                let report = run(&spill, &store, &entries, options, &mut on).unwrap();
                assert_eq!(report.hashed, entries.len() as u64);
                break;
            }
            assert!(at.built > built, "each call goes on");
            built = at.built;
        }
        assert!(stops > 0);
        check(&store, &spill, &expected);
    }
}

/// P8: the ranges are taken in order, each leaf in one of them, and they are the same with stops as
/// without.
#[test]
fn p8_a_run_takes_the_same_leaves_in_order_with_stops_and_without() {
    let entries = state(90, 200);
    let dir = tempfile::tempdir().unwrap();
    let taken = |stops: bool| {
        let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
        let mut taken: Vec<(Vec<u8>, u64)> = Vec::new();
        loop {
            let mut see = |at: &Progress<'_>| {
                if at.phase == Phase::Join {
                    return ControlFlow::Continue(());
                }
                taken.push((at.at.to_vec(), at.leaves));
                if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            match run(&spill, &store, &entries, options(1, 1, 7), &mut see) {
                Ok(_) => return taken,
                Err(PipelineError::Stopped) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    let once = taken(false);
    assert!(once.is_sorted_by(|a, b| a.0 < b.0 && a.1 < b.1), "not in order");
    // What lies between two of them is the range: its last key, and how many leaves came until
    // there.
    for (key, leaves) in &once {
        assert_eq!(entries.range(..=key.clone()).count() as u64, *leaves);
    }
    assert_eq!(once.last().map(|last| last.1), Some(entries.len() as u64));
    assert_eq!(taken(true), once);
}

/// P11: the caller's loop ends; a run that is over says so.
#[test]
fn p11_a_run_that_is_over_is_not_done_again() {
    let entries = state(50, 60);
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    run(&spill, &store, &entries, options(2, 2, 9), &mut on).unwrap();
    let at = Checkpoint::read(&store.snapshot().unwrap(), ID).unwrap().unwrap();
    assert_eq!((at.state, at.built, at.ranges), (State::Finished, entries.len() as u64, 0));
    assert_eq!(at.root, open(&store).root());
    let report = run(&spill, &store, &entries, options(2, 2, 9), &mut on).unwrap();
    assert!(report.was_finished);
    check(&store, &spill, &serial(&entries));
}

/// P11 and P12: killed behind the last commit, while the files are removed. Who sees that the run is
/// finished pushes nothing.
#[cfg(unix)]
#[test]
fn p11_files_of_a_run_that_is_over_need_no_source() {
    use std::os::unix::fs::PermissionsExt as _;

    let entries = state(50, 60);
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    let mut options = options(2, 2, 9);
    options.memory = 4_096;
    let mut files = Vec::new();
    let mut see = |_: &Progress<'_>| {
        let all = fs::read_dir(&spill).unwrap().map(|file| file.unwrap().path());
        files = all.map(|path| (fs::read(&path).unwrap(), path)).collect();
        ControlFlow::Continue(())
    };
    run(&spill, &store, &entries, options, &mut see).unwrap();
    assert!(!spill.exists());
    files.sort_by(|(_, a), (_, b)| a.cmp(b));
    assert!(files.len() > 4, "{} files", files.len());
    // They are removed from the last name on.
    for left in 0..=files.len() {
        fs::create_dir(&spill).unwrap();
        fs::set_permissions(&spill, fs::Permissions::from_mode(0o700)).unwrap();
        for (bytes, path) in &files[..left] {
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let name = RunName::of(&open(&store), b"test", &options);
        let gather = Gather::open(&spill, name, options).unwrap();
        let report = gather.rebuild(&mut open(&store), &store, None, None, &mut on).unwrap();
        assert_eq!((report.was_finished, report.leaves), (true, entries.len() as u64), "{left}");
        assert!(!spill.exists(), "of {left} files some are left");
        check(&store, &spill, &serial(&entries));
    }
}

/// P9: other leaves and other options are another run, which begins anew and says so.
#[test]
fn p9_another_run_begins_anew() {
    let entries = state(60, 90);
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    let mut commits = 0;
    let mut stop = |_: &Progress<'_>| {
        commits += 1;
        if commits < 5 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let stopped = run(&spill, &store, &entries, options(2, 2, 7), &mut stop);
    assert!(matches!(stopped, Err(PipelineError::Stopped)));
    // Another source with the same options, another length of ranges.
    let other = state(61, 10);
    for (source, leaves, range_leaves) in [(&b"more"[..], &other, 7), (b"test", &entries, 8)] {
        let options = options(2, 2, range_leaves);
        let name = RunName::of(&open(&store), source, &options);
        let mut gather = Gather::open(&spill, name, options).unwrap();
        assert_eq!(gather.passed(), 0);
        for (key, value) in leaves {
            gather.push(key, value).unwrap();
        }
        let mut commits = 0;
        let mut stop = |_: &Progress<'_>| {
            commits += 1;
            if commits < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        let result = gather.rebuild(&mut open(&store), &store, None, None, &mut stop);
        assert!(matches!(result, Err(PipelineError::Stopped)));
    }
    let report = run(&spill, &store, &entries, options(2, 2, 8), &mut on).unwrap();
    assert_eq!(report.notes, Vec::<String>::new());
    assert!(report.ranges_found > 0);
    check(&store, &spill, &serial(&entries));
    let report = run(&spill, &store, &entries, options(2, 2, 9), &mut on).unwrap();
    assert_eq!((report.ranges_found, report.was_finished), (0, false));
}

/// The leaves that are in runs already are passed over; a source that became shorter is refused.
#[test]
fn p7_gathering_goes_on_where_it_stood() {
    let entries = state(200, 300);
    let dir = tempfile::tempdir().unwrap();
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    let mut options = options(2, 2, 50);
    options.memory = 10_000;
    let first = gather(&spill, &store, &entries, options).unwrap();
    assert!(first.passed() == 0 && !first.is_sorted());
    drop(first);
    let name = RunName::of(&open(&store), b"test", &options);
    let short = Gather::open(&spill, name, options).unwrap();
    let passed = short.passed();
    assert!(passed > 0 && passed < entries.len() as u64 && !short.is_sorted());
    let failed = short.rebuild(&mut open(&store), &store, None, None, &mut on);
    assert!(matches!(failed, Err(PipelineError::SourceChanged { found: 0, .. })));
    let again = gather(&spill, &store, &entries, options).unwrap();
    assert_eq!(again.passed(), passed);
    again.rebuild(&mut open(&store), &store, None, None, &mut on).unwrap();
    check(&store, &spill, &serial(&entries));
}

/// Ethereum's trie, whose leaves fail to commit after so many.
#[derive(Clone, Debug)]
struct Failing {
    leaves: &'static AtomicU64,
}

impl Scheme for Failing {
    const LAYOUT: Layout = MptState::LAYOUT;

    type Commit = <MptState as Scheme>::Commit;
    type Root = <MptState as Scheme>::Root;
    type Scratch = <MptState as Scheme>::Scratch;
    type Differences = ();
    type Weights = ();

    fn id(&self) -> SchemeId {
        MptState.id()
    }

    fn engine() -> Engine<Self> {
        Engine::here()
    }

    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        MptState.admit(key, value)
    }

    fn commit_leaves<'a>(
        &self,
        jobs: impl Iterator<Item = LeafJob<'a, Self::Commit>>,
        scratch: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    ) {
        // Two workers count at once: what each took has to come off for both.
        let mut taken = 0;
        let jobs = jobs.inspect(|_| taken += 1);
        MptState.commit_leaves(jobs, scratch, out);
        let left = self
            .leaves
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(taken));
        assert!(left.is_ok(), "this many leaves and no more");
    }

    fn commit_branches<'a, B: Children<Self::Commit>>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, B>>,
        _: &mut Self::Scratch,
        out: &mut Vec<Self::Commit>,
    ) {
        // What the branches commit to is of no meaning here.
        out.extend(jobs.map(|job| job.children.iter().next().expect("two at least").1));
    }

    fn root(&self, top: Option<&Self::Commit>) -> Self::Root {
        MptState.root(top)
    }
}

/// P17: a worker's panic, and a leaf that the tree refuses, fail the run; nothing of it is seen.
#[test]
fn p17_a_worker_that_fails_fails_the_run() {
    static LEAVES: AtomicU64 = AtomicU64::new(0);
    let entries = state(90, 200);
    let dir = tempfile::tempdir().unwrap();
    for (threads, in_flight) in [(1, 1), (2, 3), (4, 64)] {
        for after in [0, 1, 100, 350] {
            LEAVES.store(after, Ordering::Relaxed);
            let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
            let scheme = Failing { leaves: &LEAVES };
            let mut tree = Tree::open(scheme, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
            let gather = gather(&spill, &store, &entries, options(threads, in_flight, 7)).unwrap();
            let failed = gather.rebuild(&mut tree, &store, None, None, &mut on);
            assert!(matches!(failed, Err(PipelineError::Worker { .. })), "{failed:?}");
            assert!(store.snapshot().unwrap().read(Table::Roots, &[0, 0, 0, 1]).unwrap().is_none());
            assert!(pages(&open(&store), &store.snapshot().unwrap()).is_empty());
            fs::remove_dir_all(&spill).unwrap();
        }
    }
    // A slot of no account.
    let (store, spill) = (MemoryStore::new(), dir.path().join("spill"));
    let mut bad = entries;
    bad.insert(vec![7; 64], vec![1]);
    let failed = run(&spill, &store, &bad, options(2, 2, 7), &mut on);
    assert!(matches!(failed, Err(PipelineError::Tree(_))), "{failed:?}");
    assert!(pages(&open(&store), &store.snapshot().unwrap()).is_empty());
}

/// A store that fails at its n-th commit.
struct Faulty {
    store: MemoryStore,
    commits: AtomicU64,
}

impl PageStore for Faulty {
    type Snapshot<'a> = spinney_tree::MemorySnapshot;

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, StoreError> {
        self.store.snapshot()
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        if self.commits.fetch_sub(1, Ordering::Relaxed) == 1 {
            let (place, source) = ("a store that fails".into(), "it does".into());
            return Err(StoreError::Backend { place, source });
        }
        self.store.commit(set)
    }
}

/// P12 and P17: whichever commit fails, the run goes on from there to the same pages.
#[test]
fn p12_p17_a_store_that_fails_at_any_commit() {
    let entries = state(40, 60);
    let expected = serial(&entries);
    let dir = tempfile::tempdir().unwrap();
    let mut failed = 0;
    for nth in 1.. {
        let spill = dir.path().join("spill");
        let store = Faulty { store: MemoryStore::new(), commits: AtomicU64::new(nth) };
        let result = run(&spill, &store, &entries, options(2, 2, 9), &mut on);
        if result.is_ok() {
            break;
        }
        failed += 1;
        run(&spill, &store, &entries, options(2, 2, 9), &mut on).unwrap();
        check(&store, &spill, &expected);
    }
    assert!(failed > 5, "{failed}");
}
