//! A run through many blocks: one after another, or stage beside stage.
//!
//! ```text
//! reads, decodes ─▶ recovers signers ─▶ executes ─▶ roots, seals ─▶ commits
//!   one thread       all threads         the caller's   one thread       one thread
//! ```
//! Blocks go one way, through queues that are bounded; what became of them comes back. The last
//! thread is that of a store that writes behind. Values that a block left are read from memory
//! until the commit that holds them is there.

use std::collections::VecDeque;
use std::iter::Peekable;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use alloy_primitives::U256;

use crate::{
    ahead::{Ready, Unready},
    config::Fork,
    error::{BadBlock, Check, ReplayError},
    evm::{BlockHashes, Codes},
    ommers::Ancestors,
    replay::{BlockReport, Event, Replay, RunOptions, Summary, bad},
    roots::{Executed, Halt, Told, sides},
    rules::{Head, check_link},
    source::ChainBlock,
    world::{CommittedState, WorldState},
};

/// Blocks that are ready to be executed.
type Blocks<'a> = Peekable<&'a mut dyn Iterator<Item = Result<Ready, Unready>>>;

/// The state of a run between two blocks.
pub(crate) struct Run<'a> {
    options: &'a RunOptions<'a>,
    started: Instant,
    summary: Summary,
    uncommitted: u64,
}

impl<'a> Run<'a> {
    pub(crate) fn new(options: &'a RunOptions<'a>) -> Self {
        Self { options, started: Instant::now(), summary: Summary::default(), uncommitted: 0 }
    }

    /// Commits also after a failure: what was good stays. A genesis is not known to be that of the
    /// chain before a block follows it.
    pub(crate) fn finish<S: WorldState>(
        mut self,
        replay: &mut Replay<S>,
        outcome: Result<(), ReplayError<S::Error>>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<Summary, ReplayError<S::Error>> {
        let committed = match outcome.is_ok() || replay.head.header.number > 0 {
            true => self.commit(replay, on_event),
            false => Ok(()),
        };
        match outcome {
            // The state failed before, and says why best.
            Err(error @ ReplayError::State { .. }) => Err(error),
            outcome => committed.and(outcome).map(|()| self.summary),
        }
    }

    /// Executes all blocks, one after another.
    pub(crate) fn all<S: WorldState>(
        &mut self,
        replay: &mut Replay<S>,
        blocks: &mut Blocks<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ReplayError<S::Error>> {
        while self.next(replay, blocks, on_event)? {}
        self.end(replay)
    }

    /// Refuses blocks that end before the one that the state stands at.
    fn end<S: WorldState>(&self, replay: &Replay<S>) -> Result<(), ReplayError<S::Error>> {
        match replay.resume {
            Some((number, expected)) if !self.summary.stopped => {
                Err(ReplayError::Resume { number, expected, got: None })
            }
            _ => Ok(()),
        }
    }

    /// Takes the next block; `false` where there is none that is wanted.
    fn next<S: WorldState>(
        &mut self,
        replay: &mut Replay<S>,
        blocks: &mut Blocks<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<bool, ReplayError<S::Error>> {
        let Some(ready) = blocks.next() else { return Ok(false) };
        let ready = ready.map_err(Unready::into_error)?;
        let block = &ready.block;
        let number = block.block.header.number;
        if replay.head.header.number == 0 && !replay.holds(block) {
            // Also where it is not executed: with the genesis of another chain there is nothing
            // to commit.
            check_link(&replay.head, block).map_err(|failure| bad(block, failure))?;
        }
        if self.is_stopped() {
            return Ok(false);
        }
        if replay.holds(block) {
            replay.follow(block)?;
            on_event(Event::Followed { number });
            return Ok(true);
        }
        if self.is_past(block) {
            return Ok(false);
        }
        let (report, _) = self.execute(replay, ready)?;
        self.summary.count(&report);
        on_event(Event::Block(&report));
        self.uncommitted += 1;
        if self.uncommitted >= self.options.commit_every || replay.state.is_full() {
            self.commit(replay, on_event)?;
        }
        Ok(true)
    }

    fn is_stopped(&mut self) -> bool {
        self.summary.stopped = self.options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        self.summary.stopped
    }

    fn is_past(&self, block: &ChainBlock) -> bool {
        self.options.last.is_some_and(|last| block.block.header.number > last)
    }

    /// Executes a block, and says when what was done; answers it with where it began in its source.
    fn execute<S: WorldState>(
        &self,
        replay: &mut Replay<S>,
        ready: Ready,
    ) -> Result<(BlockReport, u64), ReplayError<S::Error>> {
        let Ready { block, known, read, recovered } = ready;
        let (began, reads) = (Instant::now(), replay.state.read_time());
        let mut report = replay.execute(&block, known, recovered.time)?;
        let times = &mut report.times;
        times.read = read.time;
        times.state_read = replay.state.read_time().saturating_sub(reads);
        times.began.read = self.since(read.began);
        times.began.recover = self.since(recovered.began);
        times.began.execute = self.since(began);
        times.began.apply = times.began.execute + times.execute;
        Ok((report, block.offset))
    }

    fn since(&self, began: Instant) -> Duration {
        began.saturating_duration_since(self.started)
    }

    fn commit<S: WorldState>(
        &mut self,
        replay: &mut Replay<S>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ReplayError<S::Error>> {
        // The genesis is a layer without a block of its own.
        if replay.state.layer_count() == 0 {
            return Ok(());
        }
        let (number, hash) = (replay.head.header.number, replay.head.hash);
        let started = Instant::now();
        let committed = replay.state.commit().and_then(|()| replay.state.settle());
        committed.map_err(|error| ReplayError::State { number, error })?;
        let (began, time) = (self.since(started), started.elapsed());
        self.uncommitted = 0;
        self.summary.commit += time;
        on_event(Event::Committed { number, hash, began, time });
        Ok(())
    }

    /// Executes all blocks, with their roots and commits beside, once the state has a commit to
    /// read.
    pub(crate) fn staged<S, R>(
        &mut self,
        replay: &mut Replay<S>,
        reader: R,
        blocks: &mut Blocks<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), ReplayError<S::Error>>
    where
        S: WorldState + Send,
        R: CommittedState<Error = S::Error>,
    {
        while !is_staged(replay, blocks) {
            if !self.next(replay, blocks, on_event)? {
                return self.end(replay);
            }
        }
        self.commit(replay, on_event)?;
        let Replay { config, state, head, hashes, ancestors, anchored, keep_reads, .. } = replay;
        let (executed, roots) = sides(state, reader, self.options.commit_every);
        let mut executor = Replay {
            config: config.clone(),
            state: executed,
            head: head.clone(),
            hashes: hashes.clone(),
            codes: Codes::default(),
            ancestors: ancestors.clone(),
            resume: None,
            anchored: *anchored,
            keep_steps: false,
            keep_reads: *keep_reads,
            reads: None,
        };
        let (outcome, place) = thread::scope(|scope| {
            scope.spawn(|| roots.run());
            let mut line = Line { run: self, waiting: VecDeque::new(), place: None, on_event };
            let stopped = line.execute_all(&mut executor, blocks);
            (line.end(executor.into_state(), stopped), line.place)
        });
        if let Some(place) = place {
            (*head, *hashes, *ancestors) = (place.head, place.hashes, place.ancestors);
        }
        outcome
    }
}

/// Whether the next block can be executed before the root of the one before is known.
fn is_staged<S: WorldState>(replay: &Replay<S>, blocks: &mut Blocks<'_>) -> bool {
    let Some(Ok(Ready { block, .. })) = blocks.peek() else { return false };
    let header = &block.block.header;
    let fork = || {
        let total_difficulty: U256 = replay.total_difficulty(block);
        replay.config.fork(header.number, header.timestamp, total_difficulty)
    };
    // A genesis is committed with the first block that follows it.
    let has_commit = replay.head.header.number > 0 || replay.state.layer_count() == 0;
    has_commit && !replay.keep_steps && !replay.holds(block) && fork() >= Fork::Byzantium
}

/// Where a replay stands after a block.
struct Place {
    head: Head,
    hashes: BlockHashes,
    ancestors: Ancestors,
}

/// A block that was executed, and whose root is not known.
struct Waiting {
    report: BlockReport,
    /// Where it begins in its source.
    offset: u64,
    place: Place,
}

/// The executing side of a staged run.
struct Line<'r, 'o, F> {
    run: &'r mut Run<'o>,
    waiting: VecDeque<Waiting>,
    /// Behind the last block that is good.
    place: Option<Place>,
    on_event: &'r mut F,
}

impl<F: FnMut(Event<'_>)> Line<'_, '_, F> {
    /// Executes blocks until there are no more, or one is bad.
    fn execute_all<S, R>(
        &mut self,
        executor: &mut Replay<Executed<S, R>>,
        blocks: &mut Blocks<'_>,
    ) -> Result<(), ReplayError<Halt<S::Error>>>
    where
        S: WorldState,
        R: CommittedState<Error = S::Error>,
    {
        for ready in blocks {
            let ready = ready.map_err(Unready::into_error)?;
            if self.run.is_stopped() || self.run.is_past(&ready.block) {
                return Ok(());
            }
            let (report, offset) = self.run.execute(executor, ready)?;
            let (head, hashes) = (executor.head.clone(), executor.hashes.clone());
            let place = Place { head, hashes, ancestors: executor.ancestors.clone() };
            self.waiting.push_back(Waiting { report, offset, place });
            while let Some(told) = executor.state.told() {
                self.take(told).map_err(in_pipe)?;
            }
        }
        Ok(())
    }

    /// Waits until all that was executed is sealed and committed, or refused: that came before
    /// whatever stopped the execution.
    fn end<S, R>(
        &mut self,
        executed: Executed<S, R>,
        stopped: Result<(), ReplayError<Halt<S::Error>>>,
    ) -> Result<(), ReplayError<S::Error>>
    where
        S: WorldState,
        R: CommittedState<Error = S::Error>,
    {
        for told in executed.end() {
            self.take(told)?;
        }
        let Err(error) = stopped else { return Ok(()) };
        match error.of_no_state() {
            Ok(error) => Err(error),
            Err((number, Halt::State(error))) => Err(ReplayError::State { number, error }),
            // The other side has panicked: whoever waits for it is told.
            Err((_, Halt::Ended)) => Ok(()),
        }
    }

    /// Takes up what became of a block.
    fn take<E: std::error::Error>(&mut self, told: Told<E>) -> Result<(), ReplayError<E>> {
        match told {
            Told::Sealed { began, time } => {
                let Some(Waiting { mut report, place, .. }) = self.waiting.pop_front() else {
                    return Ok(());
                };
                report.times.apply = time;
                report.times.began.apply = self.run.since(began);
                self.run.summary.count(&report);
                self.place = Some(place);
                (self.on_event)(Event::Block(&report));
                Ok(())
            }
            Told::Committed { number, hash, began, time } => {
                self.run.summary.commit += time;
                let began = self.run.since(began);
                (self.on_event)(Event::Committed { number, hash, began, time });
                Ok(())
            }
            Told::Root { expected, got } => {
                let Some(Waiting { report, offset, .. }) = self.waiting.pop_front() else {
                    return Ok(());
                };
                Err(ReplayError::BadBlock(Box::new(BadBlock {
                    number: report.number,
                    hash: report.hash,
                    offset,
                    what: Check::StateRoot,
                    expected: expected.to_string(),
                    got: got.to_string(),
                })))
            }
            Told::Failed { number, error } => Err(ReplayError::State { number, error }),
        }
    }
}

fn in_pipe<E: std::error::Error + 'static>(error: ReplayError<E>) -> ReplayError<Halt<E>> {
    match error.of_no_state() {
        Ok(error) => error,
        Err((number, error)) => ReplayError::State { number, error: Halt::State(error) },
    }
}
