//! `replay --state-from`: blocks of a file, executed on the state of a node, without a store.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::path::Path;
use std::time::Duration;

use alloy_primitives::B256;
use anyhow::Context as _;
use spinney_follow::{
    BlockName, Node, RemoteError, RemoteStart, RemoteStartError, RemoteState, Url,
};
use spinney_replay::{
    ChainBlock, ChainReader, Genesis, Replay, ReplayError, Summary, WorldState as _,
};
use spinney_state::StateTimes;

use super::ReplayArgs;
use super::input::{Input, Source};
use super::report::{RunReport, StateFrom, Times};
use super::watch::Watch;
use crate::args::is_of_environment;
use crate::commands::proof::{remote_failure, remote_failure_at};
use crate::failure::{Exit, Failure};
use crate::interrupt::Interrupt;
use crate::stores;
use crate::ui::{Answer, Output};
use spinney_bench::Clock;

type Failed = ReplayError<RemoteError>;

pub(super) fn run(args: &ReplayArgs, url: &Url, output: &Output) -> anyhow::Result<Answer> {
    let clock = Clock::start();
    check(args)?;
    let Some(path) = args.input.blocks.as_deref().filter(|path| *path != Path::new("-")) else {
        return Err(Failure::new(
            "with --state-from, blocks are read twice: - is read once (--blocks)",
        )
        .hint("write them into a file first")
        .into());
    };
    let input = Input::open(&args.input, None, None)?;
    let Some(input) = input else { return Err(Failure::new("there are no blocks").into()) };
    let interrupt = Interrupt::listen()?;
    let mut watch = Watch::new(("replay", args.to, args.events), &input, &interrupt, output);
    let Source::Chain { genesis, blocks, .. } = input.source else {
        return Err(Failure::new("there are no blocks (--blocks)").into());
    };
    let genesis = genesis.genesis;
    let node = Node::new(url.clone());
    let base = find(&node, &genesis, path, args.block)?;
    let (number, hash) = (base.block.number(), base.hash);
    let knows_before = !base.before.is_empty();
    let state = RemoteState::new(base.block);
    let mut replay = Replay::resume(&genesis, state, number, hash).map_err(of_replay)?;
    let before = base.before.into_iter().map(Ok);
    let is_before = |block: &ChainBlock| knows_before && block.block.header.number <= number;
    let rest = blocks.filter(|block| !block.as_ref().is_ok_and(is_before));
    let mut summary = Summary::default();
    let mut reached = number == 0;
    for block in before.chain(rest) {
        let block = block.map_err(Failed::from).map_err(of_replay)?;
        let at = block.block.header.number;
        if args.to.is_some_and(|to| at > to) {
            break;
        }
        if interrupt.is_asked() {
            summary.stopped = true;
            break;
        }
        if reached {
            let known = block.known_reads(&genesis.config);
            replay.state().read_ahead(&known).map_err(remote_failure)?;
        }
        let report = replay.block(&block).map_err(of_replay)?;
        reached |= at >= number;
        let Some(report) = report else {
            watch.followed(at);
            continue;
        };
        summary.count(&report);
        watch.block(at, report.state_root, (report.transaction_count as u64, report.gas_used));
        replay.state_mut().commit().map_err(remote_failure)?;
    }
    watch.finish();
    watch.broken()?;
    let report = report(&replay, &summary, (url, number, hash), clock);
    report.warn_of_little(args.to, output);
    let exit = if summary.stopped { Exit::Interrupted } else { Exit::Ok };
    Ok(report.answer()?.exit(exit))
}

/// Refuses what has no meaning without a store.
fn check(args: &ReplayArgs) -> Result<(), Failure> {
    if args.store.tree.as_deref().is_some_and(|tree| tree != "mpt") {
        return Err(Failure::new("of a node the mpt alone is read (--tree, --state-from)")
            .hint("leave out --tree; spinney follow fills other trees from a node"));
    }
    let db = args.store.db.as_ref();
    if args.store.store.as_deref().is_some_and(|store| store != "memory")
        || db.is_some_and(|db| !is_of_environment(db))
    {
        return Err(Failure::new("both a store and a node (--db, --state-from)")
            .hint("no store is written with --state-from; spinney follow fills one from a node"));
    }
    Ok(())
}

/// Looks for the block that is wanted in a file, or right before it.
fn find<'n>(
    node: &'n Node,
    genesis: &Genesis,
    path: &Path,
    wanted: Option<BlockName>,
) -> anyhow::Result<RemoteStart<'n>> {
    let blocks = ChainReader::new(stores::open_file(path)?);
    let blocks = blocks.with_context(|| format!("reading {}", path.display()))?;
    RemoteStart::find(node, genesis, blocks, wanted).map_err(|error| match error {
        RemoteStartError::Source(error) => of_replay(Failed::from(error)),
        RemoteStartError::Remote(error) => remote_failure(error),
        RemoteStartError::NotThere { first, last, wanted } => {
            let path = path.display();
            let what = format!("{path} has blocks {first} to {last}, and not {wanted} (--block)");
            let hint = "give --block one of them, or the one right before; a tag is what the node \
                        says";
            Failure::new(what).hint(hint).into()
        }
        _ => Failure::new(format!("{} has no block (--blocks)", path.display())).into(),
    })
}

fn of_replay(error: Failed) -> anyhow::Error {
    match error {
        ReplayError::State { number, error } => {
            remote_failure_at(&format!("block {number}: "), error)
        }
        ReplayError::BadBlock(bad) => Failure::new(bad.to_string())
            .hint("all blocks before it are good; is the genesis that of this chain?")
            .exit(Exit::No)
            .into(),
        ReplayError::Source(_) => Failure::new(error.to_string())
            .hint("--blocks takes what geth export writes, plain or zstd")
            .exit(Exit::No)
            .into(),
        ReplayError::Evm { .. } => Failure::new(error.to_string())
            .hint(
                "a contract may ask for the hash of a block that neither the file nor the node has",
            )
            .into(),
        _ => Failure::new(error.to_string())
            .hint("are these the blocks of the node's chain? --block names the block to begin from")
            .exit(Exit::No)
            .into(),
    }
}

fn report(
    replay: &Replay<RemoteState<'_>>,
    summary: &Summary,
    (url, block, hash): (&Url, u64, B256),
    clock: Clock,
) -> RunReport {
    let (head, base) = (replay.head(), replay.state().block());
    let is_past = head.header.number >= block;
    RunReport {
        tree: "mpt".to_owned(),
        trees: Vec::new(),
        store: "none",
        db: None,
        state_from: Some(StateFrom {
            url: url.to_string(),
            block,
            hash,
            root: base.root(),
            asks: base.asks(),
        }),
        blocks: summary.block_count,
        transactions: summary.transaction_count,
        gas_used: summary.gas_used,
        roots_checked: summary.root_count,
        receipt_roots_checked: summary.receipt_root_count,
        not_checked: vec!["seals"],
        head: Some(if is_past { head.header.number } else { block }),
        head_hash: Some(if is_past { head.hash } else { hash }),
        root: if is_past { head.header.state_root } else { base.root() },
        seconds: clock.seconds(),
        cpu_seconds: clock.cpu_seconds(),
        bytes_written: 0,
        store_bytes: 0,
        first_commit: None,
        commits: 0,
        stopped: summary.stopped,
        times: Times::of(summary, StateTimes::default(), Duration::ZERO),
    }
}
