//! `db`: what a store holds, and whether it is sound.

mod check;
mod compact;
mod copy;
mod dump;
mod info;
mod ship;
mod stats;

pub(crate) use copy::copy;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use spinney_tree::{StoreError, TreeError};

use crate::args::{AtArgs, FormatArgs, ModeArgs};
use crate::commands::sums::{self, NamespaceArgs, RemoveArgs};
use crate::commands::{Command, import};
use crate::stores::Mode;
use crate::trees::{self, Name};
use crate::ui::{Answer, Output, Speech};

/// Look into a store.
#[derive(Debug, Args)]
pub(crate) struct DbArgs {
    #[command(subcommand)]
    pub(crate) verb: DbVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbVerb {
    /// The trees of a store: scheme, version, generation, commit, block, root.
    #[command(after_help = "Example:\n  spinney db info --db state.db")]
    Info(ReportArgs),
    /// Rows and bytes of each table, and the size of pages.
    #[command(after_help = "Example:\n  spinney db stats --db state.db --format json")]
    Stats(ReportArgs),
    /// Look at every row: is it what the entries make of it? Exit code 1 if anything is wrong.
    ///
    /// Each tree is built anew in memory from its entries and compared, so this needs memory for
    /// its pages.
    #[command(after_help = "Example:\n  spinney db check --db state.db")]
    Check(ReportArgs),
    /// Print all accounts as JSON in the shape of geth's dump, or the entries of a raw tree as
    /// NDJSON.
    #[command(after_help = "Example:\n  spinney db dump --db state.db > headstate.json")]
    Dump(DumpArgs),
    /// Make a store from a dump: accounts, code, preimages, block and root, which is checked; or
    /// the entries of a raw tree, whose dump has no root; or the leaves of a sum tree, also into a
    /// namespace of a store that is there.
    ///
    /// Refused or cut off, it leaves no store behind.
    #[command(after_help = "Example:\n  spinney db load --db new.db headstate.json")]
    Load(LoadArgs),
    /// Remove a namespace of sum trees: its leaves, its root and its name, in one commit.
    #[command(after_help = "Example:\n  spinney db remove --db assets.db --namespace issuance-1")]
    Remove(RemoveArgs),
    /// Give space that no row uses back to the file system.
    #[command(after_help = "Example:\n  spinney db compact --db state.db")]
    Compact(ReportArgs),
    /// Copy a store into a new one, of another kind if need be, while a writer may go on.
    ///
    /// The copy is of one commit: all rows, which are read again and compared. Refused or cut off,
    /// it leaves no store behind.
    #[command(after_help = "Example:\n  spinney db copy state backup --target-store log")]
    Copy(copy::CopyArgs),
    /// Copy what a second directory lacks of a log, which can be opened for reading there at any
    /// moment.
    ///
    /// Each time it copies what is new: on a disk of another machine, it is a replica.
    #[command(after_help = "Example:\n  spinney db ship state /mnt/replica/state")]
    Ship(ship::ShipArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    at: AtArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    #[command(flatten)]
    at: AtArgs,
    #[command(flatten)]
    format: FormatArgs,
    /// The dump; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The tree: `mpt`, `sum` or `sum:bound`.
    #[arg(long, value_name = "TREE", default_value = "mpt", env = "SPINNEY_TREE")]
    tree: String,
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    mode: ModeArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The tree: mpt; of a binary or Verkle tree, the entries as NDJSON; of `sum` or `sum:bound`,
    /// the leaves. Without it, what the store holds, mpt before others.
    #[arg(long, value_name = "TREE", env = "SPINNEY_TREE")]
    tree: Option<String>,
    #[command(flatten)]
    namespace: NamespaceArgs,
    /// Leave out code that the store lacks, of which only the hash was ever given. Without this,
    /// such an account is an error.
    #[arg(long)]
    allow_missing_code: bool,
    /// Write to a file, whole or not at all.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// First compute the root from the entries alone and compare it with the tree's, so that an old
    /// or forged row changes nothing unseen; of mpt, also each account's storage root, code and
    /// preimages.
    #[arg(long)]
    verify: bool,
}

impl Command for DbArgs {
    const NAME: &'static str = "db";

    fn speech(&self) -> Speech {
        match self.verb {
            DbVerb::Dump(_) => Speech::Documents,
            _ => Speech::Report,
        }
    }

    fn run(&self, output: &Output) -> anyhow::Result<Answer> {
        match &self.verb {
            DbVerb::Info(args) => info::run(&args.at.place()?.open(Mode::Look)?),
            DbVerb::Stats(args) => stats::run(&args.at.place()?.open(Mode::Look)?),
            DbVerb::Check(args) => check::run(&args.at.place()?, output),
            DbVerb::Dump(args) => dump::run(args, output),
            DbVerb::Load(args) => {
                args.mode.heed();
                let (name, place) = (trees::parse(&args.tree)?, args.at.place()?);
                trees::check_name(name, |name| matches!(name, Name::Mpt | Name::Sum(_)))?;
                match name {
                    Name::Sum(profile) => {
                        sums::load(&place, &args.namespace.namespace, profile, &args.file, output)
                    }
                    _ => import::load(&place, &args.file, output),
                }
            }
            DbVerb::Remove(args) => sums::remove(args),
            DbVerb::Compact(args) => compact::run(&args.at.place()?),
            DbVerb::Copy(args) => copy::run(args, output),
            DbVerb::Ship(args) => ship::run(args),
        }
    }
}

/// Whether an error says that the store is damaged, rather than out of reach.
fn is_damage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(StoreError::Corrupt { .. }))
            || matches!(
                cause.downcast_ref(),
                Some(
                    TreeError::Corrupt { .. }
                        | TreeError::OtherRoot { .. }
                        | TreeError::Store(StoreError::Corrupt { .. })
                )
            )
    })
}
