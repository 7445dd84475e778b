//! Blocks, executed or traced.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::iter::Peekable;
use std::sync::atomic::Ordering;
use std::time::Instant;

use spinney_replay::{
    ChainReader, Check, Event, Genesis, Replay, ReplayError, RunOptions, Summary,
};
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
    let mut blocks = blocks.peekable();
    let reader = if options.recover_threads > 1 { state.reader() } else { None };
    // A state that is there already needs no accounts.
    let mut replay = match (state.kept().block(), accounts) {
        (None, None) => {
            state.kept_mut().set_genesis(genesis.hash);
            Replay::start(&genesis, state)?
        }
        (None, Some(accounts)) => {
            state.kept_mut().set_genesis(genesis.hash);
            check_first(&genesis, &mut blocks)?;
            let started = Instant::now();
            let block = BlockId { number: 0, hash: genesis.hash.0 };
            state.kept_mut().fill(*accounts, block)?;
            state.kept_mut().settle()?;
            watch.committed(0, Some(genesis.hash), started.elapsed());
            Replay::resume(&genesis, state, 0, genesis.hash)?
        }
        (Some(head), _) if head.hash == [0; 32] => return Err(without_hash(head.number).into()),
        (Some(head), _) => {
            watch.resumed(head.number);
            Replay::resume(&genesis, state, head.number, head.hash.into())?
        }
    };
    // The state has them by now.
    genesis.alloc = Changes::default();
    replay.keep_steps(lists.is_some());
    replay.keep_reads(replay.state().kept().keeps_witnesses());
    let stop = || options.stop.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
    let mut failed = None;
    let on_event = |event: Event<'_>| match event {
        Event::Block(block) => {
            // Blocks behind one without a list are not taken in: their lists would follow nothing.
            if lists.as_mut().is_some_and(|lists| !lists.block(block)) {
                stop();
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
                stop();
            }
        }
        Event::Followed { number } => watch.followed(number),
        _ => {}
    };
    let summary = match (traces, reader) {
        (None, Some(reader)) => replay.run_staged(reader, blocks, options, on_event)?,
        (None, None) => replay.run(blocks, options, on_event)?,
        (Some(lines), _) => {
            replay.run_traced(blocks, lines, options, on_event).map_err(of_traces)?
        }
    };
    failed.map_or_else(|| Ok((summary, replay.into_state())), Err)
}

/// Refuses blocks of another chain, of whose genesis nothing is to be made.
fn check_first(
    genesis: &Genesis,
    blocks: &mut Peekable<ChainReader<'static>>,
) -> anyhow::Result<()> {
    if let Some(Ok(first)) = blocks.peek() {
        genesis.check_first(first).map_err(ReplayError::<StateError>::BadBlock)?;
    }
    match blocks.next_if(Result::is_err) {
        Some(Err(error)) => Err(ReplayError::<StateError>::from(error).into()),
        _ => Ok(()),
    }
}

fn without_hash(block: u64) -> Failure {
    let what = format!(
        "the store stands at block {block}, whose hash it was not told: state differences name no \
         block hash"
    );
    Failure::new(what).hint(
        "go on with --diffs; or begin anew, by a replay of the blocks or by spinney import state \
         --hash",
    )
}

/// A root that traces do not lead to says nothing of the block.
fn of_traces(error: ReplayError<StateError>) -> anyhow::Error {
    match &error {
        ReplayError::BadBlock(block) if block.what == Check::StateRoot => {
            Failure::new(format!("block {}: the traces do not lead to its root", block.number))
                .because(error)
                .hint(
                    "all blocks before it are committed; of accounts that are made empty, and of \
                     destructions that are reverted, traces tell nothing or wrongly: without \
                     --traces and up to this block with --to a replay takes the store further, and \
                     then with --traces again",
                )
                .exit(Exit::No)
                .into()
        }
        _ => error.into(),
    }
}
