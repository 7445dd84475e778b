//! Blocks by what the node tells of them: access lists, or traces.
//!
//! Invariants:
//! - a list counts only if its hash is in the header of its block, and whatever a block did counts
//!   only if it leads to the root in that header;
//! - a block is executed where the node has nothing to tell, and where its traces lead to another
//!   root.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::B256;
use spinney_migrate::AccessList;
use spinney_replay::{
    BlockReport, ChainBlock, Check, Event, Replay, ReplayError, RunOptions, SourceError, Summary,
    WorldState as _,
};
use spinney_state::{State, StateError, StateRead as _};
use spinney_tree::PageStore;

use crate::error::{FollowError, NodeError};
use crate::node::Node;

/// Where what blocks did comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TakeBy {
    /// They are executed, and all that their headers say is checked.
    Execution,
    /// The block's access list, from Amsterdam on and where the node gives it: its hash is in the
    /// header. Other blocks are executed.
    #[default]
    Lists,
    /// The node's traces of a block's transactions; withdrawals, rewards and system calls are made
    /// by our own rules. A block whose root these do not lead to is executed.
    Traces,
}

/// How the blocks behind one are taken.
#[derive(Debug)]
pub(crate) enum Taken {
    /// All are executed.
    Executed,
    /// Those before the first one whose header names a list are.
    ExecutedUntilListed,
    /// By what the node tells of them; of the first one it gave the list already.
    Told(Option<Listed>),
}

/// The access list of a block.
#[derive(Debug)]
pub(crate) struct Listed {
    block: B256,
    list: AccessList,
}

impl Taken {
    /// How to take blocks from `next` on, where `last` is the node's last one.
    pub(crate) fn of(node: &Node, by: TakeBy, next: u64, last: u64) -> Result<Self, NodeError> {
        let listed = |number: u64| -> Result<Option<Listed>, NodeError> {
            let header = node.headers(number..number.saturating_add(1))?.pop();
            let Some(header) = header else { return Ok(None) };
            let list = node.access_list(&header)?;
            Ok(list.map(|list| Listed { block: header.hash, list }))
        };
        Ok(match by {
            TakeBy::Execution => Self::Executed,
            TakeBy::Traces => Self::Told(None),
            TakeBy::Lists => match listed(next)? {
                Some(first) => Self::Told(Some(first)),
                None if next < last && listed(last)?.is_some() => Self::ExecutedUntilListed,
                None => Self::Executed,
            },
        })
    }
}

/// A run through blocks that the node tells of.
pub(crate) struct Told<'a> {
    node: &'a Node,
    by: TakeBy,
    /// The list of a block that the node was asked for already.
    first: Option<Listed>,
    /// Why the node could not be asked further.
    failed: &'a Mutex<Option<NodeError>>,
    summary: Summary,
    uncommitted: u64,
}

impl<'a> Told<'a> {
    pub(crate) fn new(
        (node, by): (&'a Node, TakeBy),
        first: Option<Listed>,
        failed: &'a Mutex<Option<NodeError>>,
    ) -> Self {
        Self { node, by, first, failed, summary: Summary::default(), uncommitted: 0 }
    }

    /// Takes all blocks, and commits those that are good.
    pub(crate) fn run<P: PageStore>(
        mut self,
        replay: &mut Replay<State<P>>,
        blocks: impl Iterator<Item = Result<ChainBlock, SourceError>>,
        options: &RunOptions<'_>,
        mut on_event: impl FnMut(Event<'_>),
    ) -> Result<Summary, FollowError> {
        let outcome = self.all(replay, blocks, options, &mut on_event);
        let committed = self.commit(replay, &mut on_event);
        outcome.and(committed).map(|()| self.summary)
    }

    fn all<P: PageStore>(
        &mut self,
        replay: &mut Replay<State<P>>,
        blocks: impl Iterator<Item = Result<ChainBlock, SourceError>>,
        options: &RunOptions<'_>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), FollowError> {
        for block in blocks {
            if options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Ok(());
            }
            let block = block.map_err(ReplayError::<StateError>::from)?;
            let taken = match self.block(replay, &block) {
                Ok(taken) => taken?,
                Err(error) => {
                    *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                    return Ok(());
                }
            };
            let Some(report) = taken else { continue };
            self.summary.count(&report);
            on_event(Event::Block(&report));
            self.uncommitted = self.uncommitted.saturating_add(1);
            if self.uncommitted >= options.commit_every || replay.state().is_full() {
                self.commit(replay, on_event)?;
            }
        }
        Ok(())
    }

    /// Takes a block; without a report where the state has it already.
    fn block<P: PageStore>(
        &mut self,
        replay: &mut Replay<State<P>>,
        block: &ChainBlock,
    ) -> Result<Result<Option<BlockReport>, FollowError>, NodeError> {
        let is_new = replay.state().block().is_none_or(|at| at.number < block.block.header.number);
        match self.by {
            TakeBy::Lists if is_new => {
                let list = match self.first.take_if(|first| first.block == block.hash) {
                    Some(first) => Some(first.list),
                    None => self.node.access_list(block)?,
                };
                let Some(list) = list else { return Ok(executed(replay, block)) };
                let state = replay.state();
                let changes = list.changes(|address| state.account(address));
                let changed = changes.map_err(FollowError::from);
                Ok(changed.and_then(|changes| Ok(replay.changed(block, changes)?)))
            }
            TakeBy::Traces if is_new => {
                let trace = self.node.trace(block)?;
                Ok(match replay.traced(block, trace) {
                    Err(error) if falls_short(&error) => executed(replay, block),
                    taken => taken.map_err(FollowError::from),
                })
            }
            _ => Ok(executed(replay, block)),
        }
    }

    fn commit<P: PageStore>(
        &mut self,
        replay: &mut Replay<State<P>>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> Result<(), FollowError> {
        if replay.state().layer_count() == 0 {
            return Ok(());
        }
        let (number, hash) = (replay.head().header.number, replay.head().hash);
        let began = Instant::now();
        let state = replay.state_mut();
        state.commit()?;
        state.settle()?;
        let time = began.elapsed();
        self.uncommitted = 0;
        self.summary.commit += time;
        on_event(Event::Committed { number, hash, began: Duration::ZERO, time });
        Ok(())
    }
}

fn executed<P: PageStore>(
    replay: &mut Replay<State<P>>,
    block: &ChainBlock,
) -> Result<Option<BlockReport>, FollowError> {
    Ok(replay.block(block)?)
}

/// Whether a trace is wrong of a block, or cannot say all that it did.
fn falls_short(error: &ReplayError<StateError>) -> bool {
    match error {
        ReplayError::TraceMisfit { .. } => true,
        ReplayError::BadBlock(block) => block.what == Check::StateRoot,
        _ => false,
    }
}
