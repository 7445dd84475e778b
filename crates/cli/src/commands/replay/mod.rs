//! `replay`: blocks, or state differences, into a tree; every root that they give is checked.

pub(crate) mod chain;
pub(crate) mod diffs;
mod driven;
pub(crate) mod input;
mod listed;
mod lists;
mod remote;
mod report;
pub(crate) mod watch;

pub(crate) use self::driven::{check_head, check_trees, check_witnesses};

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use spinney_follow::{BlockName, Url};
use spinney_replay::{DiffReplayError, ReplayError, RunOptions, Summary};
use spinney_state::{KeepHistory, MPT, State, StateError};
use spinney_store::{AnyStore, WriteBehind};
use spinney_tree::{PageStore, SharedStore};

use crate::args::{CommitEvery, FormatArgs, KeepCommits, KeepUndo, StoreArgs};
use crate::commands::Command;
use crate::commands::archive::growing::{Filling, GrowArgs};
use crate::failure::{Exit, Failure};
use crate::hints::TRACE_HINT;
use crate::interrupt::Interrupt;
use crate::stores::{Kind, Mode, Place};
use crate::trees::{self, TreeSet};
use crate::ui::{Answer, Output};
use spinney_bench::Clock;

pub(crate) use self::input::{open_traces, parse_genesis};

use self::input::{Input, InputArgs, Sample, Source};
pub(crate) use self::lists::Lists;
use self::report::RunReport;
use self::watch::Watch;

/// Replay blocks into one or more trees, and check every root on the way.
///
/// Blocks come from a chain.rlp with its genesis.json and are executed, or as state differences,
/// which are applied; with traces of a chain's transactions they are not executed. Without any, a
/// sample chain is made and replayed. A store goes on where it stands; Ctrl-C stops between two
/// blocks, and the same command continues. All rules of blocks are checked but their seals: proof
/// of work, and what the consensus layer signs. Several trees get the same blocks, and go into the
/// store in the same commits. Headers give the roots of mpt: without it, as in --tree pbt:blake3,
/// the blocks are executed and checked as ever, but nobody says which state roots are right.
// Fields: one an option.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    spinney replay --genesis genesis.json --blocks chain.rlp --db state.db\n  \
    spinney replay --tree mpt,ubt:sha256,pbt:blake3 --genesis genesis.json --blocks chain.rlp \
    --db state.db\n  \
    spinney replay --genesis genesis.json --blocks chain.rlp --state-from http://127.0.0.1:8545 \
    --block latest\n  \
    spinney replay --alloc genesis.json --diffs diffs.ndjson --format json\n  \
    spinney replay --seed 7 --blocks-count 500")]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    input: InputArgs,
    /// What transactions did, as geth's prestateTracer says it in diff mode, one block a line. With
    /// --blocks all else comes from them and roots are checked; without, withdrawals, rewards and
    /// system calls are missing, and no roots known.
    #[arg(long, value_name = "FILE", group = "lines")]
    traces: Option<PathBuf>,
    /// Take what blocks did from their access lists, a block a line as --bal-out writes them, and
    /// execute nothing: each list has the hash that its header names, and the state the header's
    /// root.
    #[arg(long, value_name = "FILE", requires = "blocks")]
    #[arg(conflicts_with_all = ["traces", "bal_out"])]
    bals: Option<PathBuf>,
    /// Execute the blocks on the state of a node, which is asked over JSON-RPC for what they read.
    /// Each answer is proven under the root of one block, and the root of each block that is
    /// executed is checked; no store is read or written. https is not spoken.
    #[arg(long, value_name = "URL", requires = "blocks")]
    #[arg(conflicts_with_all = ["traces", "bals", "bal_out", "keep_witnesses", "archive"])]
    state_from: Option<Url>,
    /// The block whose state the node is asked for: one of --blocks, or the one before the first of
    /// them, by its number, its hash, or as latest, safe, finalized or earliest. Without it, the
    /// one before the first.
    #[arg(long, value_name = "BLOCK", requires = "state_from")]
    block: Option<BlockName>,
    /// Where the chance of the sample chain comes from.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(conflicts_with_all = ["blocks", "diffs", "traces"])]
    seed: u64,
    /// Blocks of the sample chain.
    #[arg(long, value_name = "N", default_value_t = 200)]
    #[arg(conflicts_with_all = ["blocks", "diffs", "traces"])]
    blocks_count: u64,
    /// Blocks a commit: a number, or `all` for one commit at the end. Unless told, 16 over a log,
    /// and 128 over other stores, which write whole pages with each.
    #[arg(long, value_name = "K", env = "SPINNEY_COMMIT_EVERY")]
    commit_every: Option<CommitEvery>,
    /// The last block to replay.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Blocks that can be taken back again, see `stage unwind`: a number, or `all` from here on.
    #[arg(long, value_name = "N", default_value_t = default_keep_undo(), env = "SPINNEY_KEEP_UNDO")]
    keep_undo: KeepUndo,
    /// Commits of a log that stay readable: this many at least, the last one included, or `all`. As
    /// room is freed in parts, more may be readable for a while: db info says which. A proof at the
    /// block of any of them costs what one at the last block costs. Those that are kept already
    /// stay unless this is given.
    #[arg(long, value_name = "N", env = "SPINNEY_KEEP_COMMITS")]
    keep_commits: Option<KeepCommits>,
    /// Keep the execution witnesses of the last N blocks, for debug_executionWitness of spinney
    /// serve. Those that are there already stay unless this is given.
    #[arg(long, value_name = "N", env = "SPINNEY_KEEP_WITNESSES")]
    #[arg(conflicts_with_all = ["diffs", "traces", "bals"])]
    keep_witnesses: Option<u64>,
    /// Write what each block did as a block-level access list (EIP-7928), a block a line: see
    /// catch-up. A file that ends where the store stands is gone on with.
    #[arg(long, value_name = "FILE", conflicts_with = "diffs", requires = "blocks")]
    bal_out: Option<PathBuf>,
    /// Write each list as JSON beside its RLP, as geth writes it: `accessList` (--bal-out).
    #[arg(long, requires = "bal_out")]
    bal_json: bool,
    /// Threads that recover senders and compute roots; all cores unless told otherwise. From two on
    /// blocks are executed while roots and commits of those before them are under way.
    #[arg(long, value_name = "N", env = "SPINNEY_THREADS")]
    threads: Option<NonZeroUsize>,
    /// Do not store the addresses and slots behind hashed keys; `db dump` needs them.
    #[arg(long)]
    no_preimages: bool,
    #[command(flatten)]
    grow: GrowArgs,
    /// Print progress as NDJSON events on standard output; the envelope is the last line.
    #[arg(long)]
    pub(crate) events: bool,
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    store: StoreArgs,
}

pub(crate) fn default_keep_undo() -> KeepUndo {
    KeepUndo(KeepHistory::default())
}

impl Command for ReplayArgs {
    const NAME: &'static str = "replay";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        if let Some(url) = &self.state_from {
            return remote::run(self, url, output);
        }
        let clock = Clock::start();
        self.store.mode.heed();
        let place = self.store.place()?;
        let trees = trees_of(&self.store, &place)?;
        if self.no_preimages && trees.len() > 1 {
            return Err(Failure::new("--no-preimages with several trees (--tree)")
                .hint("going back needs the slots of hashed keys: leave out --no-preimages")
                .into());
        }
        // All that can be refused is refused before a store is made.
        check_witnesses(self.keep_witnesses, &trees)?;
        self.keep_commits.map_or(Ok(()), |keep| keep.check(&place))?;
        let growing = self.grow.growing(Filling { behind: 0, ends: true })?;
        let sort_in = (trees.is_mpt_alone() && self.bals.is_none()).then(|| place.memory());
        let input = Input::open(&self.input, self.traces.as_deref(), sort_in)?;
        let interrupt = Interrupt::listen()?;
        let input = match input {
            Some(input) => input,
            None => {
                let sample = Sample { seed: self.seed, blocks: self.blocks_count, to: self.to };
                Input::sample(sample, &interrupt, output)?
            }
        };
        let threads = self.threads.map_or_else(all_cores, NonZeroUsize::get);
        limit_threads(threads);
        let filled = place.fill(output, |store| {
            let mut watch =
                Watch::new(("replay", self.to, self.events), &input, &interrupt, output)
                    .since(clock, store);
            watch.growing = growing.as_ref();
            let run = Run { args: self, place: &place, store, trees, threads };
            let done = self.grow.beside(growing.as_ref(), store, (&interrupt, output), || {
                run.replay(input, &interrupt, &mut watch)
            });
            watch.finish();
            Ok((done?, watch.broken()))
        });
        let (store, (mut report, broken)) = filled?;
        report.store_bytes = place.close(store)?;
        broken?;
        if report.stopped {
            output.warn(format!("interrupted after block {}", report.head.unwrap_or_default()));
        }
        report.warn_of_little(self.to, output);
        let in_memory = place.kind == Kind::Memory;
        if report.stopped && in_memory {
            output.warn("a store in memory keeps nothing: with --db DIR a replay can go on");
        }
        let answer = report.answer()?;
        Ok(match report.stopped {
            true if in_memory => answer.exit(Exit::Error),
            true => answer.goes_on(),
            false => answer,
        })
    }
}

/// The trees that are asked for, or those that are there, or the one that a new store has.
pub(crate) fn trees_of(args: &StoreArgs, place: &Place) -> anyhow::Result<TreeSet> {
    match &args.tree {
        Some(names) => Ok(trees::parse_set(names)?),
        None if place.location.is_some() && place.exists()? => {
            trees::held(&place.open(Mode::Look)?.snapshot()?)
        }
        None => Ok(trees::parse_set("mpt")?),
    }
}

pub(crate) fn all_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Bounds the threads that compute roots.
pub(crate) fn limit_threads(threads: usize) {
    // Somebody has used them already: then they are as many as there are cores.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

/// A replay into one store.
struct Run<'a> {
    args: &'a ReplayArgs,
    place: &'a Place,
    store: &'a AnyStore,
    trees: TreeSet,
    threads: usize,
}

impl Run<'_> {
    fn replay(
        &self,
        input: Input,
        interrupt: &Interrupt,
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<RunReport> {
        if self.threads == 1 {
            return self.replay_into(SharedStore::new(self.store), input, interrupt, watch);
        }
        WriteBehind::over(self.store, |store| {
            self.replay_into(SharedStore::new(store), input, interrupt, watch)
        })
    }

    fn replay_into(
        &self,
        store: SharedStore<'_>,
        input: Input,
        interrupt: &Interrupt,
        watch: &mut Watch<'_>,
    ) -> anyhow::Result<RunReport> {
        let mut options = RunOptions::default();
        options.commit_every = CommitEvery::of(self.args.commit_every, self.place);
        options.last = self.args.to;
        options.stop = Some(interrupt.flag());
        options.recover_threads = self.threads;
        if self.threads == 1 {
            options.read_ahead = 0;
        }
        let clock = Clock::start();
        let before = self.store.io();
        check_trees(self.store, &self.trees)?;
        self.args.keep_commits.map_or(Ok(()), |keep| keep.apply(self.store))?;
        let mut state = self.trees.open(store, self.place.tree_cache())?;
        state.keep_preimages(!self.args.no_preimages);
        state.keep_history(self.args.keep_undo.0);
        watch.growing.iter().for_each(|growing| growing.is_kept_by(&mut state));
        self.args.keep_witnesses.iter().for_each(|count| state.keep_witnesses(*count));
        check_head(&state, self.args.to)?;
        let not_checked = match self.args.bals {
            Some(_) => &["seals", "signatures", "receipts", "requests"],
            None => input.source.not_checked(),
        };
        let (summary, state) = match input.source {
            Source::Chain { genesis, blocks, .. } if self.args.bals.is_some() => {
                let file = self.args.bals.as_deref().expect("it was just looked at");
                let from = (blocks, listed::open(file)?, file);
                listed::run(state, &genesis.genesis, from, &options, watch)?
            }
            Source::Chain { genesis, blocks, traces } => {
                let head = state.block();
                let begin = |path| Lists::begin(path, self.args.bal_json, head);
                let mut lists = self.args.bal_out.as_deref().map(begin).transpose()?;
                let told = (&mut *watch, lists.as_mut(), None);
                let done = chain::run(state, genesis, (blocks, traces), &options, told)
                    .map_err(|error| self.of_blocks(error))?;
                lists.map(Lists::finish).transpose()?;
                done
            }
            Source::Diffs { start, lines } => diffs::run(state, start, lines, &options, watch)
                .map_err(|error| self.of_traces(error))?,
        };
        let written = match self.place.kind {
            Kind::Memory => state.trees().iter().map(|tree| tree.written.bytes).sum(),
            _ => (self.store.io() - before).bytes_written,
        };
        let mut report = self.report(&summary, &state, written, clock, watch.commits());
        report.not_checked = not_checked.to_vec();
        if !self.trees.has_mpt() {
            report.not_checked.push("state roots");
        }
        report.first_commit = watch.first_commit();
        Ok(report)
    }

    /// What is wrong with the file of blocks names it.
    fn of_blocks(&self, error: anyhow::Error) -> anyhow::Error {
        match (error.downcast_ref::<ReplayError<StateError>>(), &self.args.input.blocks) {
            (Some(ReplayError::Source(_)), Some(blocks)) => {
                let reading = format!("reading {}", blocks.display());
                error.context(reading)
            }
            _ => error,
        }
    }

    /// What is wrong with a line, where lines are traces.
    fn of_traces(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast_ref::<DiffReplayError<StateError>>() {
            Some(DiffReplayError::Diff(_)) if self.args.traces.is_some() => {
                Failure::new("the traces cannot be read (--traces)")
                    .because(error)
                    .hint(TRACE_HINT)
                    .into()
            }
            _ => error,
        }
    }

    fn report(
        &self,
        summary: &Summary,
        state: &State<impl PageStore>,
        bytes_written: u64,
        clock: Clock,
        commits: u64,
    ) -> RunReport {
        let head = state.block();
        // Where blocks are executed ahead of their roots, trees are not in the time of execution.
        let staged = self.threads > 1 && self.args.traces.is_none() && self.args.bal_out.is_none();
        let beside = match staged && self.trees.has_mpt() {
            true => Duration::ZERO,
            false => {
                let others = state.trees().into_iter().filter(|tree| tree.id != MPT);
                others.map(|tree| tree.apply).sum()
            }
        };
        RunReport {
            tree: self.trees.to_string(),
            trees: state.trees().into_iter().map(report::TreeReport::of).collect(),
            store: self.place.kind.name(),
            db: self.place.location.as_ref().map(ToString::to_string),
            state_from: None,
            blocks: summary.block_count,
            transactions: summary.transaction_count,
            gas_used: summary.gas_used,
            roots_checked: summary.root_count,
            receipt_roots_checked: summary.receipt_root_count,
            not_checked: Vec::new(),
            head: head.map(|head| head.number),
            head_hash: head.map(|head| head.hash.into()).filter(|hash| *hash != [0; 32]),
            root: state.root(),
            seconds: clock.seconds(),
            cpu_seconds: clock.cpu_seconds(),
            bytes_written,
            store_bytes: 0,
            first_commit: None,
            commits,
            stopped: summary.stopped,
            times: report::Times::of(summary, state.times(), beside),
        }
    }
}
