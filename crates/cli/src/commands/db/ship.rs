//! `db ship`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use spinney_store::AnyStore;

use crate::args::{FormatArgs, ModeArgs};
use crate::failure::Failure;
use crate::place_name::PlaceName;
use crate::stores::{Mode, Place};
use crate::ui::Answer;

/// Memory for what is read once.
const CACHE_BYTES: usize = 64 << 20;

#[derive(Debug, Args)]
pub(crate) struct ShipArgs {
    /// The log that is read.
    #[arg(value_name = "SOURCE", required_unless_present = "db")]
    source: Option<PlaceName>,
    /// The second directory; it is made if it is not there.
    #[arg(value_name = "TARGET", required_unless_present = "to")]
    target: Option<PathBuf>,
    // As it was until 0.1: `--db SOURCE --to TARGET`.
    #[arg(long, value_name = "DIR", hide = true, conflicts_with = "source", requires = "to")]
    db: Option<PlaceName>,
    #[arg(long, value_name = "DIR", hide = true, requires = "db")]
    to: Option<PathBuf>,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    mode: ModeArgs,
}

pub(super) fn run(args: &ShipArgs) -> anyhow::Result<Answer> {
    args.mode.heed();
    let source = args.source.as_ref().or(args.db.as_ref());
    let target = args.target.as_ref().or(args.to.as_ref());
    let (source, target) = source.zip(target).context("two folders are needed: SOURCE TARGET")?;
    let store = Place::existing(source, None, CACHE_BYTES)?.open(Mode::Look)?;
    let AnyStore::Log(log) = &store else {
        let what = format!("a {} store cannot be shipped", store.kind());
        return Err(Failure::new(what).hint("db copy makes a copy of any store").into());
    };
    let shipped = log.ship(target)?;
    let (commit, bytes, segments) = (shipped.commit, shipped.bytes, shipped.segments);
    let data = json!({ "commit": commit, "bytes": bytes, "segments": segments });
    Ok(Answer::of(&data)?.row(&["commit", "bytes", "segments"]).line(format!(
        "{} has commit {commit} in {segments} segments; {bytes} bytes were copied",
        target.display()
    )))
}
