//! The follower: a state stands at a block of the node's chain, or goes back to one, and on from
//! there.
//!
//! Invariants (`crates/cli/tests/it/follow.rs`):
//! - the state's block is always a good one, and each that it leaves was left by the node first;
//! - it goes back only to a block that it shares with a chain of the node's whose next block it has
//!   seen, and behind one that the node called final only if that is asked for;
//! - a node that is away, behind, or says what cannot be, costs time and nothing else.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use alloy_primitives::B256;
use spinney_replay::{
    BlockReport, ChainBlock, Check, Event, Genesis, Replay, ReplayError, RunOptions, Summary,
};
use spinney_state::{Reader, State, StateError, kept_blocks};
use spinney_tree::{BlockId, PageStore};

use crate::ancestor::last_shared;
use crate::bisect::Divergence;
use crate::blocks::{NodeBlocks, known_blocks};
use crate::error::{FollowError, NodeError};
use crate::explain::explain;
use crate::node::Node;
use crate::told::{TakeBy, Taken, Told};

/// How long it waits for a node that failed once; twice as long each time after that.
const PAUSE_LEAST: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(15);
/// How often it looks, while it waits, whether it is to stop.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// How a node is followed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FollowOptions<'a> {
    /// How blocks are executed; its `last` block is the last one to follow.
    pub run: RunOptions<'a>,
    /// How long it waits before it looks for another block.
    pub poll: Duration,
    /// Whether it goes back behind blocks that the node called final, as the node of a development
    /// chain may want.
    pub past_final: bool,
    /// Where what blocks did comes from. Witnesses are kept of blocks that are executed.
    pub by: TakeBy,
}

impl Default for FollowOptions<'_> {
    fn default() -> Self {
        Self {
            run: RunOptions::default(),
            poll: Duration::from_millis(500),
            past_final: false,
            by: TakeBy::default(),
        }
    }
}

/// What happens while a node is followed.
#[derive(Debug)]
#[non_exhaustive]
pub enum FollowEvent<'a> {
    /// A block is good.
    Block {
        /// What is known of it.
        report: &'a BlockReport,
        /// So many blocks of the node's are behind it.
        lag: u64,
    },
    /// All blocks up to this one are durable.
    Committed {
        /// The block.
        number: u64,
        /// How long the commit took.
        time: Duration,
    },
    /// The node left blocks: the state went back.
    Reorganised {
        /// Where the state stood.
        from: BlockId,
        /// The last block that both chains have.
        to: BlockId,
    },
    /// The node told of its last block.
    Head {
        /// That block.
        head: BlockId,
        /// The last one that it calls final, if it does.
        finalized: Option<u64>,
    },
    /// The node did not answer, or not as it should: it is asked again.
    Failed {
        /// Why.
        error: &'a NodeError,
        /// After so long.
        pause: Duration,
    },
    /// Executing a block led to another state root than its header has, which ends the run. This is
    /// what differs, as far as the node tells. The node is the left side, the execution the right.
    Differs(&'a Divergence),
}

/// How following ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Followed {
    /// Blocks that were executed, those that were left again included.
    pub summary: Summary,
    /// How often the node left blocks.
    pub reorganisations: u64,
    /// How many blocks it left.
    pub dropped: u64,
    /// How often it did not answer, or not as it should.
    pub failures: u64,
}

/// Why a step could not be made.
enum Stop {
    /// The node is asked again.
    Node(NodeError),
    End(FollowError),
}

impl From<NodeError> for Stop {
    fn from(error: NodeError) -> Self {
        Self::Node(error)
    }
}

impl<E: Into<FollowError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::End(error.into())
    }
}

/// What comes after a step.
enum Next {
    Step,
    Wait,
    End,
}

/// Follows a node.
///
/// `crates/cli/src/commands/follow.rs` is its first user.
#[derive(Debug)]
pub struct Follower<'a> {
    node: &'a Node,
    genesis: &'a Genesis,
    options: FollowOptions<'a>,
}

impl<'a> Follower<'a> {
    /// Of a node whose chain has this genesis.
    pub const fn new(node: &'a Node, genesis: &'a Genesis, options: FollowOptions<'a>) -> Self {
        Self { node, genesis, options }
    }

    /// Waits until the node answers, and refuses one whose chain has another genesis.
    ///
    /// # Errors
    /// [`FollowError::OtherChain`]. False is the answer where it was told to stop before.
    pub fn meet(&self, mut on_event: impl FnMut(FollowEvent<'_>)) -> Result<bool, FollowError> {
        let mut pause = PAUSE_LEAST;
        while !self.is_stopped() {
            match self.check_genesis() {
                Ok(()) => return Ok(true),
                Err(Stop::End(error)) => return Err(error),
                Err(Stop::Node(error)) => {
                    on_event(FollowEvent::Failed { error: &error, pause });
                    self.wait(pause);
                    pause = longer(pause);
                }
            }
        }
        Ok(false)
    }

    /// Refuses a state that was filled from another genesis, where it knows its own.
    ///
    /// # Errors
    /// [`FollowError::OtherGenesis`], or the state fails.
    pub fn check<P: PageStore>(&self, state: &State<P>) -> Result<(), FollowError> {
        let expected = self.genesis.hash;
        match state.genesis()? {
            Some(got) if got != expected => Err(FollowError::OtherGenesis { expected, got }),
            _ => Ok(()),
        }
    }

    /// Puts the genesis into a state that is empty, and commits it.
    ///
    /// # Errors
    /// If the state's root is another than the genesis names, or the state fails.
    pub fn begin<P: PageStore + Clone>(
        &self,
        mut state: State<P>,
    ) -> Result<State<P>, FollowError> {
        state.set_genesis(self.genesis.hash);
        let mut replay = Replay::start(self.genesis, state)?;
        replay.run(std::iter::empty(), &RunOptions::default(), |_| {})?;
        Ok(replay.into_state())
    }

    /// Follows the node until it is told to stop, or has the last block that is wanted. All good
    /// blocks are committed then, as they are where this fails.
    ///
    /// # Errors
    /// See [`FollowError`]. A node that does not answer is no error: it is waited for.
    pub fn follow<P: PageStore + Clone>(
        &self,
        mut state: State<P>,
        on_event: impl FnMut(FollowEvent<'_>),
    ) -> Result<(Followed, State<P>), FollowError>
    where
        State<P>: Send,
        Reader<P>: Send,
    {
        let head = state.block().ok_or(FollowError::NoBlock)?;
        let reader = self.reader(&mut state);
        let replay = self.resume(state, head)?;
        let mut course = Course {
            follower: self,
            replay: Some(replay),
            reader,
            is_fresh: true,
            is_met: false,
            finalized: None,
            told: None,
            followed: Followed::default(),
            on_event,
        };
        let mut pause = PAUSE_LEAST;
        while !self.is_stopped() {
            match course.step() {
                Ok(Next::End) => break,
                Ok(Next::Step) => pause = PAUSE_LEAST,
                Ok(Next::Wait) => {
                    pause = PAUSE_LEAST;
                    self.wait(self.options.poll);
                }
                Err(Stop::End(error)) => {
                    course.explain(&error);
                    return Err(error);
                }
                Err(Stop::Node(error)) => {
                    course.followed.failures += 1;
                    course.is_met = false;
                    (course.on_event)(FollowEvent::Failed { error: &error, pause });
                    self.wait(pause);
                    pause = longer(pause);
                }
            }
        }
        course.followed.summary.stopped = self.is_stopped();
        let replay = course.replay.ok_or(FollowError::NoBlock)?;
        Ok((course.followed, replay.into_state()))
    }

    /// Goes on where a state stands.
    fn resume<P: PageStore>(
        &self,
        state: State<P>,
        block: BlockId,
    ) -> Result<Replay<State<P>>, FollowError> {
        let keeps_witnesses = state.keeps_witnesses();
        let mut replay = Replay::resume(self.genesis, state, block.number, block.hash.into())?;
        replay.keep_reads(keeps_witnesses);
        Ok(replay)
    }

    /// Whoever reads beside the state, where blocks are executed ahead of their roots.
    fn reader<P: PageStore + Clone>(&self, state: &mut State<P>) -> Option<Reader<P>> {
        if self.options.run.recover_threads > 1 { state.reader() } else { None }
    }

    fn check_genesis(&self) -> Result<(), Stop> {
        let missing = || NodeError::answer("eth_getBlockByNumber", "it has no genesis");
        let got = self.node.hash_of(0)?.ok_or_else(missing)?;
        let expected = self.genesis.hash;
        if got == expected {
            return Ok(());
        }
        Err(Stop::End(FollowError::OtherChain { expected, got }))
    }

    fn is_stopped(&self) -> bool {
        self.options.run.stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    fn wait(&self, pause: Duration) {
        let until = Instant::now() + pause;
        while !self.is_stopped() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::sleep(left.min(LOOKS_EVERY));
        }
    }
}

fn longer(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(PAUSE_MOST)
}

/// A state on its way.
struct Course<'f, 'a, P: PageStore, F> {
    follower: &'f Follower<'a>,
    /// Gone only where going back failed.
    replay: Option<Replay<State<P>>>,
    reader: Option<Reader<P>>,
    /// The replay does not know the blocks before it yet.
    is_fresh: bool,
    /// The node has our genesis.
    is_met: bool,
    finalized: Option<u64>,
    /// The last head that was told.
    told: Option<BlockId>,
    followed: Followed,
    on_event: F,
}

impl<P, F> Course<'_, '_, P, F>
where
    P: PageStore + Clone,
    State<P>: Send,
    Reader<P>: Send,
    F: FnMut(FollowEvent<'_>),
{
    fn step(&mut self) -> Result<Next, Stop> {
        let (node, last) = (self.follower.node, self.follower.options.run.last);
        let state = self.replay.as_ref().map(Replay::state);
        let ours = state.and_then(State::block).ok_or(FollowError::NoBlock)?;
        if last.is_some_and(|last| ours.number >= last) {
            return Ok(Next::End);
        }
        if !self.is_met {
            self.follower.check_genesis()?;
            self.is_met = true;
        }
        let head = node.head()?;
        self.tell(head)?;
        if head.number < ours.number {
            // It is behind, or it left blocks for fewer others.
            let kept = self.kept(ours)?;
            let same = kept.iter().find(|block| block.number == head.number);
            let is_behind = same.is_none_or(|block| block.hash == head.hash);
            return if is_behind { Ok(Next::Wait) } else { self.go_back(ours) };
        }
        let theirs = match head.number == ours.number {
            true => Some(B256::from(head.hash)),
            false => node.hash_of(ours.number)?,
        };
        match theirs {
            // Or it went back between two questions.
            None => {
                let what = format!("it has block {}, and no block {}", head.number, ours.number);
                Err(NodeError::answer("eth_getBlockByNumber", what).into())
            }
            Some(theirs) if theirs != B256::from(ours.hash) => self.go_back(ours),
            Some(_) if head.number == ours.number => Ok(Next::Wait),
            Some(_) => self.take(ours, head),
        }
    }

    /// Tells of a new head.
    fn tell(&mut self, head: BlockId) -> Result<(), NodeError> {
        if self.told == Some(head) {
            return Ok(());
        }
        let finalized = self.follower.node.finalized()?;
        self.finalized = self.finalized.max(finalized);
        self.told = Some(head);
        (self.on_event)(FollowEvent::Head { head, finalized });
        Ok(())
    }

    /// Takes the blocks behind ours, up to the node's head.
    fn take(&mut self, ours: BlockId, head: BlockId) -> Result<Next, Stop> {
        let Follower { node, options, .. } = *self.follower;
        let Some(replay) = &mut self.replay else { return Err(FollowError::NoBlock.into()) };
        let last = options.run.last.map_or(head.number, |last| last.min(head.number));
        let taken = Taken::of(node, options.by, ours.number.saturating_add(1), head.number)?;
        let before = match self.is_fresh {
            true => known_blocks(node, ours)?,
            false => Vec::new(),
        };
        self.is_fresh = false;
        let failed = Mutex::new(None);
        let mut blocks =
            NodeBlocks::new((node, head), (before, ours, last), options.run.stop, &failed);
        blocks.until_listed(matches!(taken, Taken::ExecutedUntilListed));
        let on_event = |event: Event<'_>| match event {
            Event::Block(report) => {
                let lag = head.number.saturating_sub(report.number);
                (self.on_event)(FollowEvent::Block { report, lag });
            }
            Event::Committed { number, time, .. } => {
                (self.on_event)(FollowEvent::Committed { number, time });
            }
            _ => {}
        };
        let outcome = match (taken, self.reader.clone()) {
            (Taken::Told(first), _) => {
                let told = Told::new((node, options.by), first, &failed);
                told.run(replay, blocks, &options.run, on_event)
            }
            (_, Some(reader)) => {
                replay.run_staged(reader, blocks, &options.run, on_event).map_err(FollowError::from)
            }
            (_, None) => replay.run(blocks, &options.run, on_event).map_err(FollowError::from),
        };
        add(&mut self.followed.summary, &outcome?);
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(Stop::Node(error)),
            None => Ok(Next::Step),
        }
    }

    /// Tells what differs, if it ends because a root does not fit.
    fn explain(&mut self, error: &FollowError) {
        let Follower { node, genesis, .. } = *self.follower;
        if let FollowError::Replay(error) = error
            && let ReplayError::BadBlock(bad) = &**error
            && bad.what == Check::StateRoot
            && let Some(replay) = &self.replay
            && let Some(divergence) =
                explain((node, genesis), replay.state(), (bad.number, bad.hash))
        {
            (self.on_event)(FollowEvent::Differs(&divergence));
        }
    }

    /// The blocks that the state can go back to, in their order, ours the last.
    fn kept(&self, ours: BlockId) -> Result<Vec<BlockId>, FollowError> {
        let replay = self.replay.as_ref().ok_or(FollowError::NoBlock)?;
        let snapshot = replay.state().store().snapshot().map_err(StateError::from)?;
        Ok(kept_blocks(&snapshot, ours)?)
    }

    /// Goes back to the last block that both chains have.
    fn go_back(&mut self, ours: BlockId) -> Result<Next, Stop> {
        let node = self.follower.node;
        let kept = self.kept(ours)?;
        let is_shared = |block: &BlockId| -> Result<bool, NodeError> {
            Ok(node.hash_of(block.number)? == Some(block.hash.into()))
        };
        let found = last_shared(&kept, is_shared)?.and_then(|place| kept.get(place)).copied();
        let oldest = kept.first().map_or(ours.number, |oldest| oldest.number);
        let to = found.ok_or(FollowError::TooDeep { oldest })?;
        if let Some(finalized) = self.finalized.filter(|finalized| to.number < *finalized)
            && !self.follower.options.past_final
        {
            let ancestor = to.number;
            return Err(FollowError::Final { ancestor, finalized }.into());
        }
        // What is left is left for something.
        let next = to.number.saturating_add(1);
        let (told, other) = (node.hash_of(next)?, node.blocks(next..next.saturating_add(1))?);
        let follows = |block: &ChainBlock| {
            block.block.header.parent_hash == B256::from(to.hash) && Some(block.hash) == told
        };
        if !other.first().is_some_and(follows) {
            let what =
                format!("no block of it follows block {}, up to which it is ours", to.number);
            return Err(NodeError::answer("blocks", what).into());
        }
        let Some(replay) = self.replay.take() else { return Err(FollowError::NoBlock.into()) };
        let mut state = replay.into_state();
        state.unwind_to(to.number)?;
        state.settle()?;
        self.reader = self.follower.reader(&mut state);
        self.replay = Some(self.follower.resume(state, to)?);
        self.is_fresh = true;
        self.finalized = self.finalized.map(|finalized| finalized.min(to.number));
        self.followed.reorganisations += 1;
        self.followed.dropped += ours.number.saturating_sub(to.number);
        (self.on_event)(FollowEvent::Reorganised { from: ours, to });
        Ok(Next::Step)
    }
}

fn add(sum: &mut Summary, more: &Summary) {
    sum.block_count += more.block_count;
    sum.transaction_count += more.transaction_count;
    sum.gas_used = sum.gas_used.saturating_add(more.gas_used);
    sum.root_count += more.root_count;
    sum.receipt_root_count += more.receipt_root_count;
    sum.times.read += more.times.read;
    sum.times.recover += more.times.recover;
    sum.times.execute += more.times.execute;
    sum.times.state_read += more.times.state_read;
    sum.times.apply += more.times.apply;
    sum.commit += more.commit;
}
