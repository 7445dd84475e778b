//! Runs into a tree: ranges read, built, committed and joined.
//!
//! One thread merges the runs and cuts ranges, some threads build them, and the caller's commits
//! them as they come, each with its checkpoint. Who holds a range holds a place in the gauge.

use std::collections::HashSet;
use std::fs;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spinney_tree::ranges::{Built, Ranges};
use spinney_tree::{BlockId, PageStore, Scheme, Snapshot as _, Table, Tree, TreeId, WriteSet};

use crate::checkpoint::{self, Checkpoint, Found, Range, State};
use crate::error::{PipelineError, at, guarded};
use crate::gather::Gather;
use crate::gauge::{Cores, Gauge};
use crate::journal::Journal;
use crate::merge::Merge;
use crate::options::RunName;
use crate::run_file::RunFile;

/// A commit takes no more rows once they have so many bytes: what a store holds back until then
/// stays small.
const COMMIT_BYTES: usize = 16 << 20;

/// What a run is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Building ranges.
    Build,
    /// Joining them.
    Join,
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Progress<'a> {
    /// What it is at.
    pub phase: Phase,
    /// Leaves built, or joined.
    pub leaves: u64,
    /// All leaves.
    pub leaves_total: u64,
    /// Bytes of keys and values built.
    pub bytes: u64,
    /// Ranges built.
    pub ranges: u32,
    /// How many ranges are under way.
    pub in_flight: usize,
    /// The last key of the range that was built last: within an account, too.
    pub at: &'a [u8],
}

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Leaves of the tree.
    pub leaves: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Ranges that they were cut into.
    pub ranges: u32,
    /// Ranges that an earlier process had built.
    pub ranges_found: u32,
    /// Leaves given to threads, by all processes: more than there are by what crashes undid.
    pub hashed: u64,
    /// Files that leaves were sorted into, and their bytes: what disk the run needed beside the
    /// store.
    pub run_files: usize,
    /// Bytes of those files.
    pub spilled: u64,
    /// Bytes of the rows written by this process, keys included.
    pub row_bytes: u64,
    /// Commits made by this process.
    pub commits: u64,
    /// The most ranges that were under way at once.
    pub peak_in_flight: usize,
    /// The tree was in place already.
    pub was_finished: bool,
    /// What was found and could not be used.
    pub notes: Vec<String>,
}

/// A range that was read.
struct Job {
    index: u32,
    /// The key before it.
    before: Option<Vec<u8>>,
    leaves: Leaves,
    next: Option<Vec<u8>>,
}

/// Leaves in one buffer.
#[derive(Default)]
struct Leaves {
    bytes: Vec<u8>,
    /// Where key and value of each end.
    ends: Vec<(usize, usize)>,
}

impl Leaves {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|end| end.1));
        let leaf = |(from, (key, end)): (usize, &(usize, usize))| {
            (&self.bytes[from..*key], &self.bytes[*key..*end])
        };
        starts.zip(&self.ends).map(leaf)
    }
}

/// A range that was built.
struct Outcome<S: Scheme> {
    index: u32,
    range: Range,
    built: Built<S>,
}

/// What the threads of a run share.
struct Shared {
    gauge: Gauge,
    cores: Cores,
    /// What was committed: its memory is given back by the threads that took it, not by the one
    /// that all wait for.
    spent: Mutex<Vec<WriteSet>>,
    stop: AtomicBool,
    /// How many ranges there are, once all are read.
    ranges: AtomicU32,
    hashed: AtomicU64,
}

impl Gather {
    /// Builds the tree of all leaves that were pushed, into a new generation that takes the place
    /// of `tree` with the last commit. `expected` is the root that they have to have. `watch` is
    /// told of every commit; with [`ControlFlow::Break`] the run stops after the ranges under way.
    ///
    /// # Errors
    /// If a key came twice, the tree refuses a leaf, the root is another, a file or the store
    /// fails, or `watch` stops it. Then the tree is what it was; but for the first three the run
    /// can go on.
    pub fn rebuild<S: Scheme + Clone, P: PageStore>(
        mut self,
        tree: &mut Tree<S>,
        store: &P,
        block: Option<BlockId>,
        expected: Option<S::Root>,
        watch: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<Report, PipelineError> {
        let id = tree.id();
        let mut report = Report { notes: std::mem::take(&mut self.notes), ..Report::default() };
        let last = Checkpoint::read(&store.snapshot()?, id)?;
        if let Some(last) = &last
            && (last.name, last.state) == (self.name.0, State::Finished)
            && last.root == tree.root().as_ref()
        {
            // A run that was killed behind its last commit has left old rows, and some of its
            // files: whoever knows that it is finished has not pushed their leaves again.
            tree.sweep(store)?;
            // What is still being written goes with the others.
            let _ = self.settle();
            self.remove_files()?;
            (report.leaves, report.hashed) = (last.leaves, last.hashed);
            report.was_finished = true;
            return Ok(report);
        }
        let (runs, leaves) = self.runs()?;
        (report.leaves, report.run_files, report.spilled) = (leaves, runs.len(), self.spilled);
        let (ranges, found) = self.begin(tree, store, leaves, &mut report)?;
        let journal = Journal::open(&self.dir)?;
        let shared = Shared {
            gauge: Gauge::new(self.options.in_flight),
            cores: Cores::new(self.options.threads),
            spent: Mutex::default(),
            stop: AtomicBool::new(false),
            ranges: AtomicU32::new(0),
            hashed: AtomicU64::new(journal.leaves()),
        };
        let run = Run { gather: &self, id, store, ranges: &ranges, shared: &shared, leaves };
        report.ranges_found = found.len() as u32;
        run.build(runs, found, journal, &mut report, watch)?;
        report.hashed = shared.hashed.load(Ordering::Relaxed);
        report.peak_in_flight = shared.gauge.peak();
        let (root, mut set) = run.join(&mut report, watch)?;
        if let Some(expected) = expected.filter(|expected| *expected != root) {
            self.abandon(tree, store)?;
            let (expected, found) = (expected.as_ref().to_vec(), root.as_ref().to_vec());
            return Err(PipelineError::Root { expected, found });
        }
        checkpoint::drop_ranges(id, &mut set);
        let state = State::Finished;
        run.checkpoint(state, root.as_ref()).put(id, &mut set);
        ranges.finish(root, block, set)?;
        report.commits += 1;
        self.remove_files()?;
        tracing::info!(
            target: "spinney::pipeline",
            leaves, ranges = report.ranges, hashed = report.hashed, row_bytes = report.row_bytes,
            commits = report.commits, peak_in_flight = report.peak_in_flight, "rebuild finished"
        );
        Ok(report)
    }

    /// Finds what was built, or begins anew.
    fn begin<'a, S: Scheme + Clone, P: PageStore>(
        &mut self,
        tree: &'a mut Tree<S>,
        store: &'a P,
        leaves: u64,
        report: &mut Report,
    ) -> Result<(Ranges<'a, S, P>, Found), PipelineError> {
        let id = tree.id();
        let last = Checkpoint::read(&store.snapshot()?, id)?;
        let has_row = store.snapshot()?.read(Table::Meta, &checkpoint::run_key(id))?.is_some();
        let found = match &last {
            None if has_row => Err("the checkpoint cannot be read"),
            None => Ok(Vec::new()),
            Some(last) if last.state == State::Finished => Ok(Vec::new()),
            Some(last) if last.name != self.name.0 || last.leaves != leaves => {
                Err("the checkpoint is of another run: other leaves, or other options")
            }
            Some(_) => checkpoint::ranges(store, id, self.name)?,
        };
        let goes_on = found.is_ok() && last.is_some_and(|last| last.state == State::UnderWay);
        let mut found = found.unwrap_or_else(|why| {
            tracing::warn!(target: "spinney::pipeline", why, "checkpoint discarded");
            report.notes.push(format!("{why}: all ranges are built anew"));
            Vec::new()
        });
        if !goes_on {
            tree.sweep(store)?;
        }
        let (ranges, resumed) = Ranges::begin(tree, store, self.name.0)?;
        if !(goes_on && resumed) {
            if goes_on {
                report.notes.push("the store was swept: all ranges are built anew".into());
            }
            found.clear();
            let journal = Journal::path(&self.dir);
            if journal.exists() {
                fs::remove_file(&journal).map_err(at(&journal))?;
            }
            let (name, root) = (self.name.0, Vec::new());
            let state = State::UnderWay;
            let fresh = Checkpoint { name, leaves, hashed: 0, state, root, built: 0, ranges: 0 };
            let mut set = WriteSet::new();
            checkpoint::drop_ranges(id, &mut set);
            fresh.put(id, &mut set);
            store.commit(&set)?;
            report.commits += 1;
        }
        Ok((ranges, found))
    }

    /// Leaves nothing of a run that cannot end well.
    fn abandon<S: Scheme, P: PageStore>(
        &mut self,
        tree: &Tree<S>,
        store: &P,
    ) -> Result<(), PipelineError> {
        let mut set = WriteSet::new();
        checkpoint::drop_ranges(tree.id(), &mut set);
        set.delete(Table::Meta, &checkpoint::run_key(tree.id()));
        store.commit(&set)?;
        tree.sweep(store)?;
        self.remove_files()
    }

    pub(crate) fn remove_files(&mut self) -> Result<(), PipelineError> {
        Self::forget(&self.dir)
    }
}

/// A run under way.
struct Run<'a, S: Scheme, P> {
    gather: &'a Gather,
    id: TreeId,
    store: &'a P,
    ranges: &'a Ranges<'a, S, P>,
    shared: &'a Shared,
    leaves: u64,
}

impl<S: Scheme + Clone, P: PageStore> Run<'_, S, P> {
    fn name(&self) -> RunName {
        self.gather.name
    }

    fn checkpoint(&self, state: State, root: &[u8]) -> Checkpoint {
        Checkpoint {
            name: self.name().0,
            leaves: self.leaves,
            hashed: self.shared.hashed.load(Ordering::Relaxed),
            state,
            root: root.to_vec(),
            built: 0,
            ranges: 0,
        }
    }

    /// Builds all ranges that are not built yet.
    fn build(
        &self,
        runs: Vec<Arc<RunFile>>,
        found: Found,
        mut journal: Journal,
        report: &mut Report,
        watch: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<(), PipelineError> {
        let mut at = Tally { ranges: found.len() as u32, ..Tally::default() };
        for (_, range) in &found {
            at.add(range);
        }
        let shared = self.shared;
        let (give, jobs) = channel();
        let jobs = Mutex::new(jobs);
        let built = std::thread::scope(|scope| {
            let (done, outcomes) = channel();
            let (jobs, failed) = (&jobs, done.clone());
            scope.spawn(move || {
                let fed = guarded(|| self.feed(runs, &found, &mut journal, &give));
                if let Err(error) = fed {
                    let _ = failed.send(Err(error));
                }
            });
            for _ in 0..self.gather.options.threads.max(1) {
                let done = done.clone();
                scope.spawn(move || self.work(jobs, &done));
            }
            drop(done);
            let committed = self.commit_all(&outcomes, &mut at, report, watch);
            // Whoever waits for a place finds that there is none.
            shared.gauge.close();
            drop(outcomes);
            committed
        });
        built?;
        report.ranges = at.ranges;
        report.bytes = at.bytes;
        if shared.stop.load(Ordering::Relaxed) {
            return Err(PipelineError::Stopped);
        }
        if (at.leaves, at.ranges) != (self.leaves, shared.ranges.load(Ordering::Relaxed)) {
            let what = "its ranges are not all of its leaves";
            return Err(PipelineError::Damaged { path: self.gather.dir.clone(), what });
        }
        Ok(())
    }

    /// Reads the runs, cuts ranges, and gives those that are not built to the workers.
    fn feed(
        &self,
        runs: Vec<Arc<RunFile>>,
        found: &[(u32, Range)],
        journal: &mut Journal,
        give: &Sender<Job>,
    ) -> Result<(), PipelineError> {
        let first = (0..).zip(found).take_while(|(index, found)| *index == found.0).count();
        let built: HashSet<u32> = found[first..].iter().map(|found| found.0).collect();
        let (mut before, from) = match first.checked_sub(1).map(|last| &found[last].1) {
            Some(Range { next: None, .. }) => {
                self.shared.ranges.store(first as u32, Ordering::Relaxed);
                return Ok(());
            }
            Some(Range { last, next, .. }) => (Some(last.clone()), next.clone()),
            None => (None, None),
        };
        let mut merge = Merge::from(runs, from.as_deref())?;
        let mut index = first as u32;
        while merge.leaf().is_some() {
            if self.shared.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            let is_built = built.contains(&index);
            if !is_built && !self.shared.gauge.enter() {
                return Ok(());
            }
            let leaves = self.cut(&mut merge)?;
            let last = leaves.iter().last().map(|(key, _)| key.to_vec());
            let next = merge.leaf().map(|(key, _)| key.to_vec());
            if let (Some(last), Some(next)) = (&last, &next)
                && last == next
            {
                return Err(PipelineError::Twice { key: next.clone() });
            }
            if !is_built {
                journal.start(index, leaves.ends.len() as u64)?;
                self.shared.hashed.store(journal.leaves(), Ordering::Relaxed);
                // Nobody takes it where the run has failed.
                let _ = give.send(Job { index, before, leaves, next });
            }
            before = last;
            index += 1;
        }
        self.shared.ranges.store(index, Ordering::Relaxed);
        Ok(())
    }

    /// The leaves of the next range.
    fn cut(&self, merge: &mut Merge) -> Result<Leaves, PipelineError> {
        let options = &self.gather.options;
        let (most, bytes) = (options.range_leaves(self.leaves), options.range_bytes());
        let mut leaves = Leaves::default();
        let mut last = Vec::new();
        while let Some((key, value)) = merge.leaf()
            && (leaves.ends.len() as u64) < most
            && (leaves.bytes.len() < bytes)
        {
            if !leaves.ends.is_empty() && last == key {
                return Err(PipelineError::Twice { key: last });
            }
            last.clear();
            last.extend_from_slice(key);
            leaves.push(key, value);
            merge.advance()?;
        }
        Ok(leaves)
    }

    /// Builds ranges until there are no more.
    fn work(&self, jobs: &Mutex<Receiver<Job>>, done: &Sender<Result<Outcome<S>, PipelineError>>) {
        loop {
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let spent = std::mem::take(&mut *self.spent());
            drop(spent);
            let Ok(job) = job else { return };
            let outcome = self.shared.cores.build(|| guarded(|| self.range(job)));
            let failed = outcome.is_err();
            if done.send(outcome).is_err() || failed {
                return;
            }
        }
    }

    fn spent(&self) -> MutexGuard<'_, Vec<WriteSet>> {
        self.shared.spent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn range(&self, job: Job) -> Result<Outcome<S>, PipelineError> {
        let Job { index, before, leaves, next } = job;
        let mut builder = self.ranges.builder(before.as_deref());
        let mut last = &[][..];
        for (key, value) in leaves.iter() {
            builder.push(key, value)?;
            last = key;
        }
        let built = builder.finish(next.as_deref())?;
        let (bytes, last) = (leaves.bytes.len() as u64, last.to_vec());
        let range = Range { leaves: built.leaves, bytes, last, next };
        Ok(Outcome { index, range, built })
    }

    /// Commits ranges as they come, each with its checkpoint, those that wait together.
    fn commit_all(
        &self,
        outcomes: &Receiver<Result<Outcome<S>, PipelineError>>,
        tally: &mut Tally,
        report: &mut Report,
        watch: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<(), PipelineError> {
        while let Ok(first) = outcomes.recv() {
            let mut set = WriteSet::new();
            let (mut count, mut at, mut row_bytes) = (0, Vec::new(), 0);
            let mut more = Some(first);
            while let Some(outcome) = more {
                let Outcome { index, range, built } = outcome?;
                row_bytes += built.row_bytes();
                built.put_rows(&mut set);
                let place = (self.id, index, self.name());
                range.put(place, &built.summary, &mut set);
                tally.add(&range);
                count += 1;
                at = range.last;
                more = (row_bytes < COMMIT_BYTES).then(|| outcomes.try_recv().ok()).flatten();
            }
            report.row_bytes += row_bytes as u64;
            self.checkpoint(State::UnderWay, &[]).put(self.id, &mut set);
            set.sort();
            self.shared.cores.commit(|| self.store.commit(&set))?;
            self.spent().push(set);
            tally.ranges += count;
            report.commits += 1;
            self.shared.gauge.leave(count as usize);
            let in_flight = self.shared.gauge.now();
            tracing::debug!(
                target: "spinney::pipeline",
                leaves = tally.leaves, bytes = tally.bytes, ranges = tally.ranges, in_flight,
                "ranges committed"
            );
            let progress = Progress {
                phase: Phase::Build,
                leaves: tally.leaves,
                leaves_total: self.leaves,
                bytes: tally.bytes,
                ranges: tally.ranges,
                in_flight,
                at: &at,
            };
            if watch(&progress).is_break() && tally.leaves < self.leaves {
                self.shared.stop.store(true, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Joins all ranges: the root, and the rows that are not committed yet.
    fn join(
        &self,
        report: &mut Report,
        watch: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
    ) -> Result<(S::Root, WriteSet), PipelineError> {
        let mut join = self.ranges.join();
        let mut snapshot = self.store.snapshot()?;
        let mut at = Tally::default();
        for index in 0..report.ranges {
            let row = snapshot.read(Table::Meta, &checkpoint::range_key(self.id, index))?;
            let what = "the store has lost the checkpoint of a range";
            let damaged = || PipelineError::Damaged { path: self.gather.dir.clone(), what };
            let row = row.ok_or_else(damaged)?;
            let range = Range::read(&row, self.name().0).ok_or_else(damaged)?;
            let summary = Range::summary(self.ranges.scheme(), &row, self.name());
            join.add(summary.ok_or_else(damaged)?)?;
            drop(row);
            at.add(&range);
            if join.row_bytes() >= COMMIT_BYTES {
                report.row_bytes += join.row_bytes() as u64;
                let mut set = WriteSet::new();
                join.put_rows(&mut set);
                drop(snapshot);
                set.sort();
                self.store.commit(&set)?;
                report.commits += 1;
                snapshot = self.store.snapshot()?;
            }
            let progress = Progress {
                phase: Phase::Join,
                leaves: at.leaves,
                leaves_total: self.leaves,
                bytes: at.bytes,
                ranges: index + 1,
                in_flight: 0,
                at: &range.last,
            };
            if watch(&progress).is_break() {
                return Err(PipelineError::Stopped);
            }
        }
        let mut set = self.gather.along.clone();
        let root = join.finish(&mut set)?;
        report.row_bytes += set.bytes(Table::Pages);
        Ok((root, set))
    }
}

/// What is committed.
#[derive(Default)]
struct Tally {
    leaves: u64,
    bytes: u64,
    ranges: u32,
}

impl Tally {
    /// Counts a range, whose row may claim anything.
    fn add(&mut self, range: &Range) {
        self.leaves = self.leaves.saturating_add(range.leaves);
        self.bytes = self.bytes.saturating_add(range.bytes);
    }
}
