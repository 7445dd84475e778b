//! `replay`: blocks, or state differences, into a tree; every root that they give is checked.

mod chain;
mod diffs;
mod input;
mod report;
mod watch;

use std::path::PathBuf;

use clap::Args;
use spinney_replay::{RunOptions, Summary};
use spinney_state::State;
use spinney_store::AnyStore;

use crate::args::{CommitEvery, FormatArgs, StoreArgs};
use crate::clock::Clock;
use crate::failure::{Exit, Failure};
use crate::interrupt::{Interrupt, this_command};
use crate::output::Output;
use crate::stores::{Kind, Mode, Place};
use crate::trees;

use self::input::{Input, Source};
use self::report::RunReport;
use self::watch::Watch;

/// Replay blocks into a tree, and check every root on the way.
///
/// Blocks come from a chain.rlp with its genesis.json and are executed, or as state differences, which are
/// applied. Without either, a sample chain is made and replayed. A store goes on where it stands; Ctrl-C
/// stops between two blocks, and the same command continues.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney replay --genesis genesis.json --blocks chain.rlp --db state.db\n  \
    spinney replay --alloc genesis.json --diffs diffs.ndjson --format json\n  \
    spinney replay --seed 7 --blocks-count 500")]
pub(crate) struct ReplayArgs {
    /// The chain's genesis.json, as geth writes it.
    #[arg(long, value_name = "FILE")]
    genesis: Option<PathBuf>,
    /// Blocks as `geth export` writes them, plain or zstd; - is standard input.
    #[arg(long, value_name = "FILE", requires = "genesis", conflicts_with = "diffs")]
    blocks: Option<PathBuf>,
    /// State differences, one block a line; - is standard input.
    #[arg(long, value_name = "FILE")]
    diffs: Option<PathBuf>,
    /// What the differences start from, where there is no genesis: `{"alloc": {...}}`.
    #[arg(long, value_name = "FILE", requires = "diffs", conflicts_with = "genesis")]
    alloc: Option<PathBuf>,
    /// Where the chance of the sample chain comes from.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with_all = ["blocks", "diffs"])]
    seed: u64,
    /// Blocks of the sample chain.
    #[arg(long, value_name = "N", default_value_t = 200, conflicts_with_all = ["blocks", "diffs"])]
    blocks_count: u64,
    /// Blocks a commit: a number, or `all` for one commit at the end.
    #[arg(long, value_name = "K", default_value_t = default_commit_every(), env = "SPINNEY_COMMIT_EVERY")]
    commit_every: CommitEvery,
    /// The last block to replay.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Do not store the addresses and slots behind hashed keys; `db dump` needs them.
    #[arg(long)]
    no_preimages: bool,
    /// Print progress as NDJSON events on standard output; the envelope is the last line.
    #[arg(long)]
    pub(crate) events: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    store: StoreArgs,
}

fn default_commit_every() -> CommitEvery {
    CommitEvery(RunOptions::default().commit_every)
}

pub(crate) fn run(args: &ReplayArgs, output: &Output) -> anyhow::Result<Exit> {
    trees::check_name(&args.store.tree)?;
    let place = Place::of(&args.store)?;
    // All that can be refused is refused before a store is made.
    let input = Input::open(args, output)?;
    let interrupt = Interrupt::listen()?;
    let store = place.open(Mode::Fill)?;
    let mut watch = Watch::new(args, &input, &interrupt, output);
    let run = Run { args, place: &place, store: &store };
    let report = run.replay(input, &interrupt, &mut watch);
    watch.finish();
    let mut report = report?;
    report.store_bytes = match place.kind {
        Kind::Memory => Place::row_bytes(&store)?,
        Kind::Redb => {
            store.close()?;
            place.file_bytes()?
        }
    };
    watch.broken()?;
    if report.stopped {
        output.warn(format!("interrupted after block {}", report.head.unwrap_or_default()));
    }
    report.print(output)?;
    if report.stopped { interrupted(&place, output) } else { Ok(Exit::Ok) }
}

/// Says how to go on; in memory there is nothing to go on from.
fn interrupted(place: &Place, output: &Output) -> anyhow::Result<Exit> {
    if place.kind == Kind::Memory {
        return Err(Failure::new(
            "interrupted, and a store in memory keeps nothing (--store memory)",
        )
        .hint("with --db DIR an interrupted replay continues where it stopped")
        .into());
    }
    output.tell(&format!("continue with: {}", this_command()));
    Ok(Exit::Interrupted)
}

/// A replay into one store.
struct Run<'a> {
    args: &'a ReplayArgs,
    place: &'a Place,
    store: &'a AnyStore,
}

impl Run<'_> {
    fn replay(
        &self,
        input: Input,
        interrupt: &Interrupt,
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<RunReport> {
        let mut options = RunOptions::default();
        options.commit_every = self.args.commit_every.0;
        options.last = self.args.to;
        options.stop = Some(interrupt.flag());
        options.recover_threads =
            std::thread::available_parallelism().map_or(1, usize::from).min(4);
        let clock = Clock::start();
        let before = self.store.io();
        let mut state = State::open(self.store, self.place.tree_cache())?;
        state.keep_preimages(!self.args.no_preimages);
        self.check_head(&state)?;
        let (summary, state) = match input.source {
            Source::Chain { genesis, blocks } => {
                chain::run(state, &genesis, blocks, &options, watch)?
            }
            Source::Diffs { start, lines } => diffs::run(state, start, lines, &options, watch)?,
        };
        let written = match self.place.kind {
            Kind::Memory => state.written().bytes,
            Kind::Redb => (self.store.io() - before).bytes_written,
        };
        Ok(self.report(&summary, &state, written, clock, watch.commits()))
    }

    /// A store that is past the last block wanted, or that nobody can say the block of.
    fn check_head(&self, state: &State<&AnyStore>) -> Result<(), Failure> {
        match (state.block(), self.args.to) {
            (None, _) if state.commit_number() > 0 => {
                Err(Failure::new("the store holds a state, but not of which block")
                    .hint("replay into a new --db"))
            }
            (Some(head), Some(to)) if to < head.number => {
                let what = format!("the store is at block {}, past --to {to}", head.number);
                Err(Failure::new(what).hint("replay into a new --db to stop earlier"))
            }
            _ => Ok(()),
        }
    }

    fn report(
        &self,
        summary: &Summary,
        state: &State<&AnyStore>,
        bytes_written: u64,
        clock: Clock,
        commits: u64,
    ) -> RunReport {
        let head = state.block();
        RunReport {
            tree: self.args.store.tree.clone(),
            store: self.place.kind.name(),
            db: self.place.path.as_ref().map(|path| path.display().to_string()),
            blocks: summary.block_count,
            transactions: summary.transaction_count,
            gas_used: summary.gas_used,
            roots_checked: summary.root_count,
            receipt_roots_checked: summary.receipt_root_count,
            head: head.map(|head| head.number),
            head_hash: head.map(|head| head.hash.into()).filter(|hash| *hash != [0; 32]),
            root: state.root(),
            seconds: clock.seconds(),
            cpu_seconds: clock.cpu_seconds(),
            bytes_written,
            store_bytes: 0,
            commits,
            stopped: summary.stopped,
            times: report::Times::of(summary, state.times()),
        }
    }
}
