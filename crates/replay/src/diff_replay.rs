#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]
use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use alloy_primitives::B256;

use crate::{
    diff::{BlockDiff, DiffError, MisfitError, check_changes},
    report::{RunOptions, Summary},
    world::{SealedBlock, WorldState},
};

/// Why a replay of state differences stopped. `E` is the error of the state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffReplayError<E: std::error::Error + 'static> {
    /// The differences could not be read.
    #[error(transparent)]
    Diff(#[from] DiffError),
    /// A difference does not fit the state; nothing of it stays.
    #[error("block {number}: {error}")]
    Misfit {
        /// The block.
        number: u64,
        /// What does not fit.
        #[source]
        error: MisfitError<E>,
    },
    /// Blocks are to come in order.
    #[error("expected a block after {after}, got block {got}")]
    Order {
        /// The block before.
        after: u64,
        /// The block that came.
        got: u64,
    },
    /// Blocks are to come without gaps: what is missing cannot be made good later.
    #[error("expected block {expected}, got block {got}: the blocks between are missing")]
    Gap {
        /// The block after the one before.
        expected: u64,
        /// The block that came.
        got: u64,
    },
    /// The state failed.
    #[error("state, at block {number}: {error}")]
    State {
        /// The block.
        number: u64,
        /// What the state says.
        #[source]
        error: E,
    },
    /// The root of another tree is not what the line says; nothing of the block stays in the state.
    #[error("block {number}: root of {tree}: expected {expected}, got {got}")]
    TreeRoot {
        /// The block.
        number: u64,
        /// The tree.
        tree: String,
        /// The root of the line.
        expected: B256,
        /// The root of the tree.
        got: B256,
    },
    /// The root is not what the line says; nothing of the block stays in the state.
    #[error("block {number}: state root: expected {expected}, got {got}")]
    StateRoot {
        /// The block.
        number: u64,
        /// The root of the line.
        expected: B256,
        /// The root of the state.
        got: B256,
    },
}

/// What a replay of state differences tells on its way.
#[derive(Debug)]
#[non_exhaustive]
pub enum DiffEvent<'a> {
    /// A difference is applied, its root is right where it gives one, and it is sealed.
    Block {
        /// The difference.
        diff: &'a BlockDiff,
        /// The root of the state afterwards; zeros where blocks are gathered, and the line gives
        /// none.
        state_root: B256,
        /// Time in the state's `apply`.
        apply: Duration,
    },
    /// Everything up to a block is durable.
    Committed {
        /// The block.
        number: u64,
        /// How long the commit took.
        time: Duration,
    },
}

/// Applies state differences, one block a line, and checks each `stateRoot` that is given, where
/// the state is in a [Merkle Patricia trie](WorldState::own_root), and each of the `roots` of other
/// trees that the state keeps ([`WorldState::tree_root`]).
///
/// `head` is the block that the state stands at, if any: differences up to it are passed over, and
/// the next one has to be that of the block after it. Reads nothing ahead.
///
/// # Errors
///
/// A difference is malformed, missing, does not fit or has the wrong root, or the state fails. All
/// blocks before it are committed, but not a first state that no good difference follows.
pub fn replay_diffs<S: WorldState>(
    state: &mut S,
    head: Option<u64>,
    diffs: impl Iterator<Item = Result<BlockDiff, DiffError>>,
    options: &RunOptions<'_>,
    mut on_event: impl FnMut(DiffEvent<'_>),
) -> Result<Summary, DiffReplayError<S::Error>> {
    let mut run = DiffRun { state, options, summary: Summary::default(), last: head };
    let outcome = run.all(head, diffs, &mut on_event);
    // Also after a failure: what was good stays. What the first difference does not fit is not
    // known to be.
    let committed = match outcome.is_ok() || run.summary.block_count > 0 {
        true => run.commit(&mut on_event),
        false => Ok(()),
    };
    match outcome {
        // The state failed before, and says why best.
        Err(error @ DiffReplayError::State { .. }) => Err(error),
        outcome => committed.and(outcome).map(|()| run.summary),
    }
}

struct DiffRun<'a, S> {
    state: &'a mut S,
    options: &'a RunOptions<'a>,
    summary: Summary,
    last: Option<u64>,
}

impl<S: WorldState> DiffRun<'_, S> {
    fn all(
        &mut self,
        head: Option<u64>,
        diffs: impl Iterator<Item = Result<BlockDiff, DiffError>>,
        on_event: &mut impl FnMut(DiffEvent<'_>),
    ) -> Result<(), DiffReplayError<S::Error>> {
        let mut before = None;
        for diff in diffs {
            let diff = diff?;
            self.check_order(before, diff.number)?;
            before = Some(diff.number);
            if self.options.last.is_some_and(|last| diff.number > last) {
                break;
            }
            if self.options.stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                self.summary.stopped = true;
                break;
            }
            if head.is_some_and(|head| diff.number <= head) {
                continue;
            }
            let (state_root, apply) = self.one(&diff)?;
            on_event(DiffEvent::Block { diff: &diff, state_root, apply });
            let blocks = self.summary.block_count;
            if blocks.is_multiple_of(self.options.commit_every.max(1)) || self.state.is_full() {
                self.commit(on_event)?;
            }
        }
        Ok(())
    }

    /// A block comes after the one before it in the source, and after the last one in the state.
    fn check_order(&self, before: Option<u64>, got: u64) -> Result<(), DiffReplayError<S::Error>> {
        if let Some(after) = before
            && got <= after
        {
            return Err(DiffReplayError::Order { after, got });
        }
        match before.max(self.last).and_then(|last| last.checked_add(1)) {
            Some(expected) if got > expected => Err(DiffReplayError::Gap { expected, got }),
            _ => Ok(()),
        }
    }

    fn one(&mut self, diff: &BlockDiff) -> Result<(B256, Duration), DiffReplayError<S::Error>> {
        let number = diff.number;
        let failed = |error| DiffReplayError::State { number, error };
        check_changes(self.state, &diff.changes)
            .map_err(|error| DiffReplayError::Misfit { number, error })?;
        let layer_count = self.state.layer_count();
        let started = Instant::now();
        let got = self.state.apply_last(&diff.changes, diff.state_root).map_err(failed)?;
        let apply = started.elapsed();
        let header_root = diff.state_root.filter(|_| self.state.own_root().is_none());
        if let Some(expected) = header_root
            && expected != got
        {
            self.state.undo_to(layer_count).map_err(failed)?;
            return Err(DiffReplayError::StateRoot { number, expected, got });
        }
        self.state.seal(&SealedBlock::new(number, None, got, &diff.changes)).map_err(failed)?;
        let differs = |(tree, expected): (&String, &B256)| {
            let got = self.state.tree_root(tree).filter(|got| got != expected)?;
            Some(DiffReplayError::TreeRoot { number, tree: tree.clone(), expected: *expected, got })
        };
        if let Some(error) = diff.roots.iter().find_map(differs) {
            self.state.undo_to(layer_count).map_err(failed)?;
            return Err(error);
        }
        self.last = Some(number);
        self.summary.block_count += 1;
        self.summary.root_count += u64::from(header_root.is_some());
        self.summary.times.apply += apply;
        Ok((self.state.own_root().unwrap_or(got), apply))
    }

    fn commit(
        &mut self,
        on_event: &mut impl FnMut(DiffEvent<'_>),
    ) -> Result<(), DiffReplayError<S::Error>> {
        if self.state.layer_count() == 0 {
            return Ok(());
        }
        let number = self.last.unwrap_or(0);
        let started = Instant::now();
        let committed = self.state.commit().and_then(|()| self.state.settle());
        committed.map_err(|error| DiffReplayError::State { number, error })?;
        let time = started.elapsed();
        self.summary.commit += time;
        on_event(DiffEvent::Committed { number, time });
        Ok(())
    }
}
