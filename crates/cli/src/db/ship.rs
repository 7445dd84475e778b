//! `db ship`.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use spinney_store::AnyStore;

use crate::args::{AtArgs, FormatArgs, ModeArgs};
use crate::failure::{Exit, Failure};
use crate::output::{Format, Grid, Output};
use crate::stores::Mode;

#[derive(Debug, Args)]
pub(crate) struct ShipArgs {
    #[command(flatten)]
    at: AtArgs,
    #[command(flatten)]
    pub(super) format: FormatArgs,
    /// The second directory; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    #[command(flatten)]
    mode: ModeArgs,
}

pub(super) fn run(args: &ShipArgs, output: &Output) -> anyhow::Result<Exit> {
    args.mode.heed();
    let store = args.at.place()?.open(Mode::Look)?;
    let AnyStore::Log(log) = &store else {
        let what = format!("a {} store cannot be shipped", store.kind());
        return Err(Failure::new(what).hint("db copy makes a copy of any store").into());
    };
    let shipped = log.ship(&args.to)?;
    let (commit, bytes, segments) = (shipped.commit, shipped.bytes, shipped.segments);
    match output.format() {
        Format::Json => output
            .envelope(&json!({ "commit": commit, "bytes": bytes, "segments": segments }), &[])?,
        Format::Csv => {
            let mut grid = Grid::new(&["commit", "bytes", "segments"]);
            grid.row(vec![commit.to_string(), bytes.to_string(), segments.to_string()]);
            output.grid(&grid)?;
        }
        Format::Table => output.line(&format!(
            "{} has commit {commit} in {segments} segments; {bytes} bytes were copied",
            args.to.display()
        ))?,
    }
    Ok(Exit::Ok)
}
