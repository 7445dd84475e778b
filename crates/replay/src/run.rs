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
use std::io::BufRead;
use std::iter::Peekable;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use alloy_primitives::U256;

use crate::{
    ahead::{self, Ready, ReadyResult, Recovery, Unready},
    config::Fork,
    error::{BadBlock, Check, ReplayError, SourceError},
    evm::{BlockHashes, CodeCache},
    ommers::Ancestors,
    replay::Replay,
    report::{BlockReport, Event, RunOptions, Summary},
    roots::{Executed, Halt, Told, sides},
    rules::{Head, check_link},
    senders::Signer,
    source::ChainBlock,
    touch::touch,
    trace::TraceReader,
    world::{CommittedState, WorldState},
};

/// Blocks that are ready to be executed.
type ReadyBlocks<'a> = Peekable<&'a mut dyn Iterator<Item = ReadyResult>>;

impl<S: WorldState> Replay<S> {
    /// Executes all blocks of a source.
    ///
    /// # Errors
    ///
    /// As [`block`](Self::block), or the source fails. All blocks before the bad one are committed,
    /// but not a genesis that no good block follows.
    pub fn run(
        &mut self,
        blocks: impl Iterator<Item = Result<ChainBlock, SourceError>> + Send,
        options: &RunOptions<'_>,
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<Summary, ReplayError<S::Error>> {
        let recovery = self.recovery();
        let mut run = Run::new(options);
        let look = || |_: &ChainBlock, _: &[Signer]| {};
        let outcome = ahead::recovered(blocks, &recovery, options, look, |ready| {
            run.all(self, &mut ready.peekable(), &mut on_event)
        });
        run.finish(self, outcome, &mut on_event)
    }

    /// As [`run`](Self::run), with roots and commits beside the execution: while the root of a
    /// block is computed, and an earlier commit is written, the blocks behind it are executed on
    /// the values that it left. A block whose root is wrong stops all before anything of it is
    /// committed. `reader` reads the last commit of the state. Events come once roots are known.
    ///
    /// Blocks before Byzantium, whose receipts have roots, are executed as by `run`; and so are all
    /// where [steps](Self::keep_steps) are kept.
    ///
    /// ```
    /// use spinney_replay::{Replay, RunOptions, SampleChain, SampleOptions, TextbookState};
    /// use spinney_state::State;
    /// use spinney_tree::MemoryStore;
    ///
    /// let sample = SampleChain::new(SampleOptions::default(), TextbookState::new())?;
    /// let store = MemoryStore::new();
    /// let mut state = State::open(&store, 1 << 20)?;
    /// let reader = state.reader().expect("mpt is there");
    /// let mut replay = Replay::start(sample.genesis(), state)?;
    /// let blocks: Vec<_> = sample.take(20).collect::<Result<_, _>>()?;
    /// let blocks = blocks.into_iter().map(Ok);
    /// let summary = replay.run_staged(reader, blocks, &RunOptions::default(), |_| {})?;
    /// assert_eq!(summary.root_count, 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`run`](Self::run).
    pub fn run_staged<R>(
        &mut self,
        reader: R,
        blocks: impl Iterator<Item = Result<ChainBlock, SourceError>> + Send,
        options: &RunOptions<'_>,
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<Summary, ReplayError<S::Error>>
    where
        S: Send,
        R: CommittedState<Error = S::Error> + Clone + Send,
    {
        let recovery = self.recovery();
        let mut run = Run::new(options);
        // Pages that a block will need are read before its turn comes.
        let look = || {
            let reader = reader.clone();
            move |block: &ChainBlock, signers: &[Signer]| touch(&reader, block, signers)
        };
        let outcome = ahead::recovered(blocks, &recovery, options, look, |ready| {
            run.staged(self, reader.clone(), &mut ready.peekable(), &mut on_event)
        });
        run.finish(self, outcome, &mut on_event)
    }

    fn recovery(&self) -> Recovery {
        let followed = self.resume.map_or(0, |(number, _)| number);
        Recovery { config: self.config.clone(), followed }
    }

    /// Replays all blocks of a source by their traces, as [`traced`](Self::traced) does. Traces
    /// that say which block they are of may begin earlier; others begin with the first block of the
    /// source, the genesis apart.
    ///
    /// # Errors
    ///
    /// As [`traced`](Self::traced), or a source fails. All blocks before the bad one are committed.
    pub fn run_traced<R: BufRead + Send>(
        &mut self,
        blocks: impl Iterator<Item = Result<ChainBlock, SourceError>> + Send,
        traces: TraceReader<R>,
        options: &RunOptions<'_>,
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<Summary, ReplayError<S::Error>> {
        let mut run = Run::new(options);
        let outcome = ahead::traced(blocks, traces, options, |ready| {
            run.all(self, &mut ready.peekable(), &mut on_event)
        });
        run.finish(self, outcome, &mut on_event)
    }
}

/// The state of a run between two blocks.
struct Run<'a> {
    options: &'a RunOptions<'a>,
    started: Instant,
    summary: Summary,
    uncommitted: u64,
}

impl<'a> Run<'a> {
    fn new(options: &'a RunOptions<'a>) -> Self {
        Self { options, started: Instant::now(), summary: Summary::default(), uncommitted: 0 }
    }

    /// Commits also after a failure: what was good stays. A genesis is not known to be that of the
    /// chain before a block follows it.
    fn finish<S: WorldState>(
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
    fn all<S: WorldState>(
        &mut self,
        replay: &mut Replay<S>,
        blocks: &mut ReadyBlocks<'_>,
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
        blocks: &mut ReadyBlocks<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<bool, ReplayError<S::Error>> {
        let Some(ready) = blocks.next() else { return Ok(false) };
        let ready = ready.map_err(Unready::into_error)?;
        let block = &ready.block;
        let number = block.block.header.number;
        if replay.head.header.number == 0 && !replay.holds(block) {
            // Also where it is not executed: with the genesis of another chain there is nothing
            // to commit.
            check_link(&replay.head, block)
                .map_err(|failure| ReplayError::BadBlock(failure.of(block)))?;
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
    fn staged<S, R>(
        &mut self,
        replay: &mut Replay<S>,
        reader: R,
        blocks: &mut ReadyBlocks<'_>,
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
            codes: CodeCache::default(),
            ancestors: ancestors.clone(),
            resume: None,
            anchored: *anchored,
            keep_steps: false,
            keep_reads: *keep_reads,
            reads: None,
        };
        let (outcome, tip) = thread::scope(|scope| {
            scope.spawn(|| roots.run());
            let mut pipeline =
                Pipeline { run: self, waiting: VecDeque::new(), tip: None, on_event };
            let stopped = pipeline.execute_all(&mut executor, blocks);
            (pipeline.end(executor.into_state(), stopped), pipeline.tip)
        });
        if let Some(tip) = tip {
            (*head, *hashes, *ancestors) = (tip.head, tip.hashes, tip.ancestors);
        }
        outcome
    }
}

/// Whether the next block can be executed before the root of the one before is known.
fn is_staged<S: WorldState>(replay: &Replay<S>, blocks: &mut ReadyBlocks<'_>) -> bool {
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
struct Tip {
    head: Head,
    hashes: BlockHashes,
    ancestors: Ancestors,
}

/// A block that was executed, and whose root is not known.
struct Waiting {
    report: BlockReport,
    /// Where it begins in its source.
    offset: u64,
    tip: Tip,
}

/// The executing side of a staged run.
struct Pipeline<'r, 'o, F> {
    run: &'r mut Run<'o>,
    waiting: VecDeque<Waiting>,
    /// Behind the last block that is good.
    tip: Option<Tip>,
    on_event: &'r mut F,
}

impl<F: FnMut(Event<'_>)> Pipeline<'_, '_, F> {
    /// Executes blocks until there are no more, or one is bad.
    fn execute_all<S, R>(
        &mut self,
        executor: &mut Replay<Executed<S, R>>,
        blocks: &mut ReadyBlocks<'_>,
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
            let tip = Tip { head, hashes, ancestors: executor.ancestors.clone() };
            self.waiting.push_back(Waiting { report, offset, tip });
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
                let Some(Waiting { mut report, tip, .. }) = self.waiting.pop_front() else {
                    return Ok(());
                };
                report.times.apply = time;
                report.times.began.apply = self.run.since(began);
                self.run.summary.count(&report);
                self.tip = Some(tip);
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
