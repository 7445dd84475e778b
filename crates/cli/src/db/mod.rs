//! `db`: what a store holds, and whether it is sound.

mod check;
mod dump;
mod info;
mod stats;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use spinney_store::AnyStore;
use spinney_tree::{RootRecord, Snapshot, StoreError, Table, TreeError, TreeId};

use crate::args::{FormatArgs, Size};
use crate::failure::Exit;
use crate::output::{Format, Output};
use crate::stores::{Mode, Place};

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
    /// Each tree is built anew in memory from its entries and compared, so this needs memory for its pages.
    #[command(after_help = "Example:\n  spinney db check --db state.db")]
    Check(ReportArgs),
    /// Print all accounts as JSON in the shape of geth's dump, or the entries of a raw tree as NDJSON.
    #[command(after_help = "Example:\n  spinney db dump --db state.db > headstate.json")]
    Dump(DumpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    at: AtArgs,
    #[command(flatten)]
    format: FormatArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DumpArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The tree: `mpt` in this version.
    #[arg(long, value_name = "TREE", default_value = "mpt", env = "SPINNEY_TREE")]
    tree: String,
}

#[derive(Debug, Args)]
struct AtArgs {
    /// The directory of the store.
    #[arg(long, value_name = "DIR", env = "SPINNEY_DB")]
    db: PathBuf,
    /// Memory for pages, the store's included.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", env = "SPINNEY_CACHE")]
    cache: Size,
}

impl AtArgs {
    fn place(&self) -> Place {
        Place::existing(&self.db, self.cache.0)
    }
}

impl DbVerb {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Info(_) => "db info",
            Self::Stats(_) => "db stats",
            Self::Check(_) => "db check",
            Self::Dump(_) => "db dump",
        }
    }

    pub(crate) fn format(&self) -> Option<Format> {
        match self {
            Self::Info(args) | Self::Stats(args) | Self::Check(args) => args.format.asked(),
            Self::Dump(_) => None,
        }
    }
}

pub(crate) fn run(args: &DbArgs, output: &Output) -> anyhow::Result<Exit> {
    match &args.verb {
        DbVerb::Info(args) => info::run(&args.at.place().open(Mode::Look)?, output),
        DbVerb::Stats(args) => stats::run(&args.at.place().open(Mode::Look)?, output),
        DbVerb::Check(args) => check::run(&args.at.place(), output),
        DbVerb::Dump(args) => dump::run(args, output),
    }
}

/// A root record, or what is wrong with it.
type Record = (TreeId, Result<RootRecord, TreeError>);

/// The root records of a store, in order of their trees. One that is damaged is an error in its place.
fn records(snapshot: &impl Snapshot) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::new();
    snapshot.scan(Table::Roots, &[], None, &mut |key, row| {
        let tree = key.try_into().map(u32::from_be_bytes).map(TreeId);
        records.push(match tree {
            Ok(tree) => (tree, RootRecord::decode(tree, row)),
            Err(_) => (TreeId(u32::MAX), Err(odd_key(key))),
        });
        true
    })?;
    Ok(records)
}

fn odd_key(key: &[u8]) -> TreeError {
    let page = format!("the root record of key 0x{}", alloy_primitives::hex::encode(key));
    TreeError::Corrupt { page, what: "its key is not that of a tree".into() }
}

/// Whether an error says that the store is damaged, rather than out of reach.
fn is_damage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(StoreError::Corrupt { .. }))
            || matches!(
                cause.downcast_ref(),
                Some(TreeError::Corrupt { .. } | TreeError::Store(StoreError::Corrupt { .. }))
            )
    })
}

/// The place of a store, for messages.
fn place_of(store: &AnyStore) -> &'static str {
    match store {
        AnyStore::Memory(_) => "memory",
        _ => "redb",
    }
}
