//! `archive`: every block of a store, in objects that servers without a store read.

mod backfill;
mod build;
pub(crate) mod growing;
mod info;
mod opened;
mod prune;
mod restore;
mod slice;
mod verify;

use clap::{Args, Subcommand};

pub(crate) use self::opened::{bytes_of, failure, open};

use self::backfill::BackfillArgs;
use self::build::BuildArgs;
use self::info::InfoArgs;
use self::prune::PruneArgs;
use self::restore::RestoreArgs;
use self::slice::SliceArgs;
use self::verify::ArchiveVerifyArgs;
use super::Command;
use crate::ui::{Answer, Output};

/// Keep every block of a store in sealed objects: build them, look at them, check them, move their
/// beginning.
///
/// An archive answers what the store held after any of its blocks. What a store's history knows is
/// added to it, so the same command, run again and again beside `follow` or `replay`, keeps it up
/// to date: at least once in as many blocks as --keep-undo says. docs/archive.md has the format.
#[derive(Debug, Args)]
pub(crate) struct ArchiveArgs {
    #[command(subcommand)]
    verb: ArchiveVerb,
}

#[derive(Debug, Subcommand)]
enum ArchiveVerb {
    /// Move an archive's beginning back: to that of an older archive, or by replaying a chain.
    #[command(after_help = "Examples:\n  \
        spinney archive backfill archive --from older\n  \
        spinney archive backfill archive --genesis genesis.json --blocks chain.rlp")]
    Backfill(BackfillArgs),
    /// Add the blocks that a store's history keeps; the archive is made if there is none.
    #[command(after_help = "Examples:\n  \
        spinney archive build --db state.db --into archive\n  \
        spinney archive build --db state.db --into s3://bucket/prefix")]
    Build(BuildArgs),
    /// Say what an archive holds.
    #[command(after_help = "Example:\n  spinney archive info archive")]
    Info(InfoArgs),
    /// Drop the first blocks.
    #[command(after_help = "Example:\n  spinney archive prune archive --keep 100000")]
    Prune(PruneArgs),
    /// Make a store of a block, for every verb that reads one.
    #[command(after_help = "Example:\n  spinney archive restore archive then.db --block 100")]
    Restore(RestoreArgs),
    /// Make an archive of what some accounts need.
    #[command(after_help = "Example:\n  \
        spinney archive slice archive mine --address 0x100ba66A4ed81db56d86104f53Aa0Cf96c5cC4CA")]
    Slice(SliceArgs),
    /// Read all of an archive, compare its blocks with headers, and compute roots of blocks from
    /// all of their entries.
    #[command(after_help = "Examples:\n  \
        spinney archive verify archive --block 100 --block 200\n  \
        spinney archive verify archive --blocks chain.rlp")]
    Verify(ArchiveVerifyArgs),
}

impl Command for ArchiveArgs {
    const NAME: &'static str = "archive";

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        match &self.verb {
            ArchiveVerb::Backfill(args) => backfill::backfill(args, output),
            ArchiveVerb::Build(args) => build::build(args, output),
            ArchiveVerb::Info(args) => info::info(args),
            ArchiveVerb::Prune(args) => prune::prune(args),
            ArchiveVerb::Restore(args) => restore::restore(args, output),
            ArchiveVerb::Slice(args) => slice::slice(args, output),
            ArchiveVerb::Verify(args) => verify::verify(args, output),
        }
    }
}
