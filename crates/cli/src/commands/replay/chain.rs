//! Blocks, executed or traced.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::sync::atomic::Ordering;
use std::time::Instant;

use spinney_replay::{ChainReader, Check, Event, Replay, ReplayError, RunOptions, Summary};
use spinney_state::{Changes, StateError};
use spinney_tree::BlockId;

use super::driven::{Driven, check_genesis};
use super::input::{Origin, Traces};
use super::lists::Lists;
use super::watch::Watch;
use crate::failure::{Exit, Failure};

/// Who is told of blocks; and what is done after each commit.
type ChainTold<'a, 'w> = (&'a mut Watch<'w>, Option<&'a mut Lists>, Option<AfterCommit<'a>>);

/// What is done after each commit. If that fails, the run ends.
pub(crate) type AfterCommit<'a> = &'a mut dyn FnMut() -> anyhow::Result<()>;

pub(crate) fn run<S: Driven>(
    mut state: S,
    origin: Origin,
    (blocks, traces): (ChainReader<'static>, Option<Traces>),
    options: &RunOptions<'_>,
    (watch, mut lists, mut after_commit): ChainTold<'_, '_>,
) -> anyhow::Result<(Summary, S)> {
    let Origin { mut genesis, accounts } = origin;
    check_genesis(state.kept(), &genesis)?;
    // A state that is there already needs them no more.
    let accounts = accounts.filter(|_| state.kept().block().is_none());
    let mut blocks = blocks.peekable();
    let reader = if options.recover_threads > 1 { state.reader() } else { None };
    let mut replay = match state.kept().block() {
        None => {
            state.kept_mut().set_genesis(genesis.hash);
            match accounts {
                None => Replay::start(&genesis, state)?,
                Some(accounts) => {
                    // Nothing is made of the genesis of another chain.
                    if let Some(Ok(first)) = blocks.peek() {
                        let foreign = ReplayError::<StateError>::BadBlock;
                        genesis.check_first(first).map_err(foreign)?;
                    }
                    if let Some(Err(error)) = blocks.next_if(Result::is_err) {
                        return Err(ReplayError::<StateError>::from(error).into());
                    }
                    let started = Instant::now();
                    let block = BlockId { number: 0, hash: genesis.hash.0 };
                    state.kept_mut().fill(*accounts, block)?;
                    state.kept_mut().settle()?;
                    watch.committed(0, Some(genesis.hash), started.elapsed());
                    Replay::resume(&genesis, state, 0, genesis.hash)?
                }
            }
        }
        Some(head) if head.hash == [0; 32] => {
            let what = format!(
                "the store stands at block {}, whose hash it was not told: state differences name no \
                 block hash",
                head.number
            );
            let hint = "go on with --diffs; or begin anew, by a replay of the blocks or by spinney \
                        import state --hash";
            return Err(Failure::new(what).hint(hint).into());
        }
        Some(head) => {
            watch.resumed(head.number);
            Replay::resume(&genesis, state, head.number, head.hash.into())?
        }
    };
    // The state has them by now.
    genesis.alloc = Changes::default();
    replay.keep_steps(lists.is_some());
    replay.keep_reads(replay.state().kept().keeps_witnesses());
    let mut failed = None;
    let on_event = |event: Event<'_>| match event {
        Event::Block(block) => {
            // Blocks behind one without a list are not taken in: their lists would follow nothing.
            if let Some(lists) = &mut lists
                && !lists.block(block)
                && let Some(stop) = options.stop
            {
                stop.store(true, Ordering::Relaxed);
            }
            let amount = (block.transaction_count as u64, block.gas_used);
            watch.block(block.number, block.state_root, amount);
        }
        Event::Committed { number, hash, time, .. } => {
            watch.committed(number, Some(hash), time);
            if failed.is_none()
                && let Some(after_commit) = &mut after_commit
                && let Err(error) = after_commit()
            {
                failed = Some(error);
                if let Some(stop) = options.stop {
                    stop.store(true, Ordering::Relaxed);
                }
            }
        }
        Event::Followed { number } => watch.followed(number),
        _ => {}
    };
    let summary = match (traces, reader) {
        (None, Some(reader)) => replay.run_staged(reader, blocks, options, on_event)?,
        (None, None) => replay.run(blocks, options, on_event)?,
        (Some(traces), _) => {
            replay.run_traced(blocks, traces, options, on_event).map_err(of_traces)?
        }
    };
    match failed {
        Some(error) => Err(error),
        None => Ok((summary, replay.into_state())),
    }
}

/// A root that traces do not lead to says nothing of the block.
fn of_traces(error: ReplayError<StateError>) -> anyhow::Error {
    match &error {
        ReplayError::BadBlock(block) if block.what == Check::StateRoot => {
            Failure::new(format!("block {}: the traces do not lead to its root", block.number))
                .because(error)
                .hint(
                    "all blocks before it are in; of accounts that are made empty, and of destructions that \
                     are reverted, traces tell nothing or wrongly: without --traces and up to this block with \
                     --to a replay takes the store further, and then with --traces again",
                )
                .exit(Exit::No)
                .into()
        }
        _ => error.into(),
    }
}
