//! `archive restore`: a store of a block.

use clap::Args;
use serde_json::json;
use spinney_tree::PageStore as _;

use super::opened::{CACHE_BYTES, check_whole, failure, open};
use crate::args::{FormatArgs, ModeArgs};
use crate::commands::db;
use crate::place_name::PlaceName;
use crate::stores::Place;
use crate::trees;
use crate::ui::{Answer, Output, human_bytes};
use spinney_bench::Clock;

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    /// The store that is made; nothing is to be there yet.
    #[arg(value_name = "TARGET")]
    target: PlaceName,
    /// The kind of the target. Without it, what TARGET names: a server's address, a file .sqlite or
    /// .db, else a directory for a log.
    #[arg(long, value_name = "STORE")]
    target_store: Option<String>,
    /// The block. Without it, the last one.
    #[arg(long, value_name = "N")]
    block: Option<u64>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    mode: ModeArgs,
}

pub(super) fn restore(args: &RestoreArgs, output: &Output) -> anyhow::Result<Answer> {
    args.mode.heed();
    let clock = Clock::start();
    let archive = open(&args.archive, CACHE_BYTES)?;
    check_whole(&archive.manifest(), &args.archive, "no store can be made of it")?;
    let block = args.block.unwrap_or_else(|| archive.manifest().last);
    let view = archive.at(block).map_err(failure)?;
    let target = Place::existing(&args.target, args.target_store.as_deref(), CACHE_BYTES)?;
    let mut rows = 0;
    let made = target.create(output, |store| {
        rows = db::copy(&view, store)?.rows;
        // Entry by entry: what the archive holds is what its roots stand for.
        let snapshot = store.snapshot()?;
        for (id, record) in trees::records(&snapshot)? {
            trees::count_entries(&snapshot, id, &record?)?;
        }
        Ok(())
    })?;
    let file_bytes = target.close(made)?;
    let seconds = clock.seconds();
    let data =
        json!({ "block": block, "rows": rows, "file_bytes": file_bytes, "seconds": seconds });
    let bytes = human_bytes(file_bytes);
    Ok(Answer::of(&data)?.line(format!("block {block}: {rows} rows, {bytes}, all roots checked")))
}
