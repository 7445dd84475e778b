//! `replay --bals`: a chain by its access lists alone, without an execution.

use std::io::{BufReader, Read};
use std::path::Path;

use spinney_replay::{
    ChainReader, Check, Event, Genesis, ListLines, ListedError, ListsError, Replay, ReplayError,
    RunOptions, Summary,
};

use super::driven::{Driven, check_genesis};
use super::watch::Watch;
use crate::failure::{Exit, Failure};
use crate::stores;

/// Access lists, a block a line.
pub(crate) type ListFile = ListLines<BufReader<Box<dyn Read + Send>>>;

pub(crate) fn open(path: &Path) -> Result<ListFile, Failure> {
    Ok(ListLines::new(BufReader::with_capacity(1 << 18, stores::open_file(path)?)))
}

pub(crate) fn run<S: Driven>(
    mut state: S,
    genesis: &Genesis,
    (blocks, lists, file): (ChainReader<'static>, ListFile, &Path),
    options: &RunOptions<'_>,
    watch: &mut Watch<'_>,
) -> anyhow::Result<(Summary, S)> {
    check_genesis(state.kept(), genesis)?;
    let head = state.kept().block();
    let reader = state.reader().filter(|_| options.read_ahead > 0);
    let mut replay = match head {
        None => {
            state.kept_mut().set_genesis(genesis.hash);
            Replay::start(genesis, state)?
        }
        Some(head) => {
            watch.resumed(head.number);
            Replay::resume(genesis, state, head.number, head.hash.into())?
        }
    };
    let from = (head.map_or(0, |head| head.number), reader);
    let summary = replay.run_listed(blocks, lists, from, options, |event| match event {
        Event::Block(block) => {
            let amount = (block.transaction_count as u64, block.gas_used);
            watch.block(block.number, block.state_root, amount);
        }
        Event::Committed { number, hash, time, .. } => watch.committed(number, Some(hash), time),
        Event::Followed { number } => watch.followed(number),
        _ => {}
    });
    let summary = summary.map_err(|error| match error {
        ListedError::Lists(error) => refused(error, file),
        ListedError::Replay(ReplayError::BadBlock(bad)) if bad.what == Check::StateRoot => {
            Failure::new(format!("{bad}, by its access list (--bals)"))
                .hint("all blocks before it are committed; the list is not that of the block")
                .exit(Exit::No)
                .into()
        }
        ListedError::Replay(error) => error.into(),
        ListedError::State(error) => error.into(),
        ListedError::Thread(error) => error.into(),
        error => error.into(),
    })?;
    Ok((summary, replay.into_state()))
}

/// What is wrong with a file of lists, or with the blocks.
fn refused(error: ListsError, file: &Path) -> anyhow::Error {
    let name = file.display();
    let failure = match error {
        ListsError::Source(error) => return error.into(),
        ListsError::Io { line, error } => {
            return anyhow::Error::from(error).context(format!("reading line {line} of {name}"));
        }
        ListsError::Line { line, error } => Failure::new(format!("line {line} of {name}: {error}"))
            .hint(concat!(
                r#"a line is {"number": 7, "hash": "0x..", "bal_hash": "0x..", "#,
                r#""bal": "0x.."}, or has accessList in place of bal"#
            )),
        ListsError::List { number, error } => {
            Failure::new(format!("block {number}: its access list is refused (--bals)"))
                .because(error)
                .hint("all blocks before it are committed; fetch or make the list again")
                .exit(Exit::No)
        }
        ListsError::Other { line, found, found_hash, number, hash } => Failure::new(format!(
            "line {line} of {name} is of block {found} ({found_hash}), and the chain has {number} \
             ({hash}) there"
        ))
        .hint("give the lists of the same chain, of every block, in their order")
        .exit(Exit::No),
        ListsError::Ended(number) => Failure::new(format!("{name} ends before block {number}"))
            .hint("all blocks before it are committed; give the other lists, or --to"),
        other => return other.into(),
    };
    failure.into()
}
