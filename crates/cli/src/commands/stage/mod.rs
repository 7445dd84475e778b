//! `stage`: the blocks that went into a store, and back.

mod blocks;
mod dump;
mod run;
mod status;
mod unwind;

use std::path::PathBuf;

use alloy_primitives::B256;
use clap::{ArgGroup, Args, Subcommand};

use crate::args::{AtArgs, FormatArgs, ModeArgs, PairArgs, Size, digest};
use crate::commands::Command;
use crate::commands::replay::input::{Input, InputArgs};
use crate::scratch::ScratchArgs;
use crate::ui::{Answer, Output};

/// Build a state anew, see how far a store is, take blocks back, or out into a store of their own.
#[derive(Debug, Args)]
pub(crate) struct StageArgs {
    #[command(subcommand)]
    pub(crate) verb: StageVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StageVerb {
    /// Take blocks into a store, a chunk of them at a time; or build the tree anew from all of its
    /// leaves.
    ///
    /// What the blocks of a chunk change, by execution or by their differences, is gathered and
    /// goes to the tree as one batch, in one commit with their history; the root is checked at the
    /// end of each chunk. A store goes on where it stands.
    ///
    /// The leaves of a state's document, or of what the store holds, are sorted into files, then
    /// built in ranges, each of them committed with a checkpoint; the tree appears with the last
    /// commit. Ctrl-C and kill -9 cost the ranges under way, or the chunk: the same command goes
    /// on.
    #[command(after_help = "Examples:\n  \
        spinney stage run --db state.db --genesis genesis.json --blocks chain.rlp\n  \
        spinney stage run --db state.db --diffs diffs.ndjson --chunk-blocks all --memory 1GiB\n  \
        spinney stage run --db state.db --state headstate.json --number 213 --hash 0x..\n  \
        spinney stage run --db state.db --own --memory 64MiB")]
    Run(RunArgs),
    /// The state before a range of blocks as a store of its own, from which they can be run again;
    /// and what the blocks did, by their history.
    ///
    /// The root of the new store is checked against the one that the state had then. The source
    /// stays as it is.
    #[command(after_help = "Examples:\n  \
        spinney stage dump state before-100 --from 100 --to 120 --diffs-out blocks.ndjson\n  \
        spinney stage run --db before-100 --diffs blocks.ndjson\n  \
        spinney stage dump state before-100 --from 100\n  \
        spinney replay --genesis genesis.json --blocks chain.rlp --db before-100 --to 120")]
    Dump(StageDumpArgs),
    /// Where a store stands, and how far it can be taken back.
    #[command(after_help = "Example:\n  spinney stage status --db state.db")]
    Status(StatusArgs),
    /// Take the state back to an earlier block: one commit, after which a replay goes on from
    /// there.
    ///
    /// The root that comes out is checked against the one the block had. A replay keeps the last
    /// 512 blocks for this, unless told otherwise by its --keep-undo. To an earlier block a log
    /// goes back by a commit that it keeps (--keep-commits). Genesis is block 0.
    #[command(after_help = "Examples:\n  spinney stage unwind --db state.db --to 100\n  \
        spinney stage unwind --db state.db --to 100 --blocks chain.rlp")]
    Unwind(UnwindArgs),
}

#[derive(Debug, Args)]
#[command(group(ArgGroup::new("source").args(["blocks", "diffs", "state", "own"]).required(true)))]
pub(crate) struct RunArgs {
    #[command(flatten)]
    at: AtArgs,
    #[command(flatten)]
    input: InputArgs,
    /// The state to build: `{"accounts": ..}` as `db dump` and geth write it, or `{"alloc": ..}`.
    /// What the store held before goes, and so does its history.
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Build what the store holds: all pages anew, from the leaves alone.
    #[arg(long)]
    own: bool,
    /// The block whose state it is, where the document does not say.
    #[arg(long, value_name = "N", requires = "state")]
    number: Option<u64>,
    /// The block's hash; without it, only state differences can follow.
    #[arg(long, value_name = "0x", value_parser = digest, requires = "state")]
    hash: Option<B256>,
    /// The state root that the block's header gives.
    #[arg(long, value_name = "0x", value_parser = digest, requires = "state")]
    root: Option<B256>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    chunks: blocks::ChunkArgs,
}

/// How the work is done: none of it changes the tree.
#[derive(Clone, Debug, Args)]
pub(crate) struct WorkArgs {
    /// Memory for leaves and rows, the store's cache apart.
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    memory: Size,
    /// Threads that build ranges; as many as there are cores.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Ranges that may be under way at once; four times the threads.
    #[arg(long, value_name = "N")]
    in_flight: Option<usize>,
    /// Leaves of a range at most; 1/256 of all, or 1,024.
    #[arg(long, value_name = "N")]
    range_leaves: Option<u64>,
    #[command(flatten)]
    scratch: ScratchArgs,
    #[command(flatten)]
    mode: ModeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StageDumpArgs {
    #[command(flatten)]
    stores: PairArgs,
    /// The first block of the range: the dump is of the state before it.
    #[arg(long, value_name = "N")]
    from: u64,
    /// The last block of the range: of those that go to --diffs-out. The last one of the store, if
    /// not told.
    #[arg(long, value_name = "N", requires = "diffs_out")]
    to: Option<u64>,
    /// Write what the blocks of the range did, a state difference a line, with the root of each.
    #[arg(long, value_name = "FILE")]
    diffs_out: Option<PathBuf>,
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    at: AtArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Debug, Args)]
pub(crate) struct UnwindArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The block whose state is wanted.
    #[arg(long, value_name = "N")]
    to: u64,
    /// Blocks as `geth export` writes them, with that block among them: its header has to have the
    /// hash and the state root that the store has; - is standard input.
    #[arg(long, value_name = "FILE")]
    blocks: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
}

impl Command for StageArgs {
    const NAME: &'static str = "stage";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        match &self.verb {
            StageVerb::Run(args) => {
                args.work.mode.heed();
                match Input::open(&args.input, None, None)? {
                    Some(input) => blocks::run(args, input, output),
                    None => run::run(args, output),
                }
            }
            StageVerb::Dump(args) => {
                args.work.mode.heed();
                dump::run(args, output)
            }
            StageVerb::Status(args) => status::run(&args.at.place()?),
            StageVerb::Unwind(args) => unwind::run(args),
        }
    }
}
