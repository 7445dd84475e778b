//! Blocks, executed.

use spinney_replay::{ChainReader, Event, Genesis, Replay, RunOptions, Summary};

use super::driven::{Driven, check_genesis};
use super::lists::Lists;
use super::watch::Watch;
use crate::failure::Failure;

/// Who is told of blocks.
type Told<'a, 'w> = (&'a mut Watch<'w>, Option<&'a mut Lists>);

pub(crate) fn run<'s, S: Driven<'s>>(
    mut state: S,
    genesis: &Genesis,
    blocks: ChainReader<'static>,
    options: &RunOptions<'_>,
    (watch, mut lists): Told<'_, '_>,
) -> anyhow::Result<(Summary, S)> {
    check_genesis(state.kept(), genesis)?;
    let mut replay = match state.kept().block() {
        None => {
            state.kept_mut().set_genesis(genesis.hash);
            Replay::start(genesis, state)?
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
            Replay::resume(genesis, state, head.number, head.hash.into())?
        }
    };
    replay.keep_steps(lists.is_some());
    let summary = replay.run(blocks, options, |event| match event {
        Event::Block(block) => {
            if let Some(lists) = &mut lists {
                lists.block(block);
            }
            watch.block(block.number, block.state_root, block.transaction_count as u64);
        }
        Event::Committed { number, hash, time } => watch.committed(number, Some(hash), time),
        Event::Followed { number } => watch.followed(number),
        _ => {}
    })?;
    Ok((summary, replay.into_state()))
}
