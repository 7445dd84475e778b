//! `stage run` of blocks, or of state differences: a range of them in chunks.

use std::collections::BTreeMap;

use alloy_primitives::B256;
use clap::Args;
use serde::Serialize;
use spinney_pipeline::PipelineError;
use spinney_replay::{RunOptions, Summary};
use spinney_state::{ChunkBuild, ChunkOptions, Chunks, KeepHistory, State, StateError};
use spinney_store::AnyStore;
use spinney_tree::{PageStore as _, SharedStore};

use super::run::rebuilding;
use super::status::{others, roots_of};
use super::{RunArgs, WorkArgs};
use crate::args::{CommitEvery, KeepUndo, Size};
use crate::commands::replay::input::{Input, Source};
use crate::commands::replay::watch::Watch;
use crate::commands::replay::{chain, check_head, check_trees, diffs};
use crate::interrupt::Interrupt;
use crate::stores::Place;
use crate::trees::{self, hash_of};
use crate::ui::{Answer, Output, human_bytes};
use spinney_bench::Clock;

/// How blocks are cut into chunks, and what is kept of them.
#[derive(Debug, Args)]
#[command(next_help_heading = "With --blocks or --diffs")]
pub(super) struct ChunkArgs {
    /// The last block to take.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    /// Changed accounts and slots that make a chunk.
    #[arg(long, value_name = "N", default_value_t = ChunkOptions::default().changes)]
    chunk_changes: u64,
    /// Bytes of changes that make a chunk. Half of --memory is for them; what is beyond lies on
    /// disk until the chunk ends.
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    chunk_bytes: Size,
    /// Blocks that make a chunk, or `all`: whatever they change.
    #[arg(long, value_name = "K", default_value_t = CommitEvery(u64::MAX))]
    chunk_blocks: CommitEvery,
    /// Apply the changes of each chunk to the tree, however many they are.
    #[arg(long, conflicts_with = "rebuild")]
    incremental: bool,
    /// Build the tree anew for each chunk, however few its changes are. Without either, that is
    /// done where the state has at most four leaves for each change.
    #[arg(long)]
    rebuild: bool,
    /// The trees: mpt, and those beside it, with commas between them; those that the store holds,
    /// or mpt.
    #[arg(long, value_name = "TREE")]
    tree: Option<String>,
    /// Blocks that can be taken back again, see `stage unwind`: a number, or `all` from here on.
    #[arg(long, value_name = "N", default_value_t = KeepUndo(KeepHistory::default()))]
    #[arg(env = "SPINNEY_KEEP_UNDO")]
    keep_undo: KeepUndo,
    /// Do not store the addresses and slots behind hashed keys; `db dump` needs them.
    #[arg(long)]
    no_preimages: bool,
}

impl ChunkArgs {
    fn options(&self, work: &WorkArgs) -> ChunkOptions {
        let mut options = ChunkOptions::default();
        options.changes = self.chunk_changes;
        options.bytes = self.chunk_bytes.0 as u64;
        options.memory = work.memory.0 / 2;
        options.rebuild = work.options();
        options.build = match (self.incremental, self.rebuild) {
            (true, _) => ChunkBuild::Incremental,
            (_, true) => ChunkBuild::Rebuild,
            _ => ChunkBuild::Auto,
        };
        options
    }
}

/// What a run did.
// Fields: what the envelope holds is flat.
#[derive(Debug, Serialize)]
struct Staged {
    block: Option<u64>,
    block_hash: Option<B256>,
    root: B256,
    /// Of each tree, by name.
    roots: BTreeMap<String, B256>,
    blocks: u64,
    transactions: u64,
    gas_used: u64,
    chunks: u64,
    /// Chunks for which the tree was built anew.
    chunks_rebuilt: u64,
    /// Accounts and slots, each counted once a chunk.
    changes: u64,
    /// The most bytes of changes that a chunk had.
    chunk_bytes: u64,
    /// Bytes of changes that went to disk.
    spilled_bytes: u64,
    seconds: f64,
    cpu_seconds: Option<f64>,
    stopped: bool,
}

pub(super) fn run(args: &RunArgs, input: Input, output: &Output) -> anyhow::Result<Answer> {
    let place = args.at.place()?;
    let interrupt = Interrupt::listen()?;
    let to = args.chunks.to;
    let mut watch = Watch::new(("stage run", to, false), &input, &interrupt, output);
    let filled = place.fill(output, |store| {
        match stage(args, (&place, store), input, (&interrupt, output), &mut watch) {
            Err(error) if is_stopped(&error) => Ok(None),
            done => done.map(Some),
        }
    });
    watch.finish();
    let (store, staged) = filled?;
    store.close()?;
    let Some(staged) = staged else { return Ok(Answer::interrupted().goes_on()) };
    let answer = staged.answer()?;
    Ok(if staged.stopped { answer.goes_on() } else { answer })
}

/// Whether a rebuild was stopped.
fn is_stopped(error: &anyhow::Error) -> bool {
    let stopped =
        |error: &StateError| matches!(error, StateError::Pipeline(PipelineError::Stopped));
    error.chain().any(|cause| cause.downcast_ref().is_some_and(stopped))
}

fn stage(
    args: &RunArgs,
    (place, store): (&Place, &AnyStore),
    input: Input,
    (interrupt, output): (&Interrupt, &Output),
    watch: &mut Watch<'_>,
) -> anyhow::Result<Staged> {
    let chunk = &args.chunks;
    let trees = match &chunk.tree {
        Some(names) => trees::parse_set(names)?,
        None => trees::held(&store.snapshot()?)?,
    };
    check_trees(store, &trees)?;
    let clock = Clock::start();
    let mut state = trees.open(SharedStore::new(store), place.tree_cache())?;
    state.keep_preimages(!chunk.no_preimages);
    state.keep_history(chunk.keep_undo.0);
    check_head(&state, chunk.to)?;
    let scratch = args.work.scratch.at(place.location.as_ref())?;
    let mut chunks = Chunks::new(state, scratch.path(), chunk.options(&args.work))?;
    chunks.watch_rebuilds(rebuilding(output.quiet(), interrupt.clone()));
    let mut options = RunOptions::default();
    options.commit_every = chunk.chunk_blocks.0;
    options.last = chunk.to;
    options.stop = Some(interrupt.flag());
    options.recover_threads = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let (summary, chunks) = match input.source {
        Source::Chain { genesis, blocks, traces } => {
            chain::run(chunks, genesis, (blocks, traces), &options, (watch, None, None))?
        }
        Source::Diffs { start, lines } => diffs::run(chunks, start, lines, &options, watch)?,
    };
    Ok(Staged::of(&summary, &chunks, clock))
}

impl Staged {
    fn of(summary: &Summary, chunks: &Chunks<SharedStore<'_>>, clock: Clock) -> Self {
        let (state, report): (&State<_>, _) = (chunks.state(), chunks.report());
        Self {
            block: state.block().map(|block| block.number),
            block_hash: state.block().and_then(hash_of),
            root: state.root(),
            roots: roots_of(state),
            blocks: summary.block_count,
            transactions: summary.transaction_count,
            gas_used: summary.gas_used,
            chunks: report.chunks,
            chunks_rebuilt: report.rebuilt,
            changes: report.changes,
            chunk_bytes: report.bytes_max,
            spilled_bytes: report.spilled,
            seconds: clock.seconds(),
            cpu_seconds: clock.cpu_seconds(),
            stopped: summary.stopped,
        }
    }

    fn answer(&self) -> anyhow::Result<Answer> {
        let number = self.block.map(|number| number.to_string()).unwrap_or_default();
        let Self { root, blocks, chunks, chunks_rebuilt, changes, .. } = self;
        let most = human_bytes(self.chunk_bytes);
        let line = format!(
            "block {number}, root {root} ({blocks} blocks in {chunks} chunks, {chunks_rebuilt} \
             built anew; {changes} changes, at most {most} a chunk)"
        );
        let names = ["block", "root", "blocks", "chunks", "chunks_rebuilt", "changes"];
        Ok(Answer::of(self)?.row(&names).line(line).lines(others(&self.roots)))
    }
}
