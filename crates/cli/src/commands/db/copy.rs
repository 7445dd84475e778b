//! `db copy`.

use alloy_primitives::hex;
use clap::Args;
use serde_json::json;
use spinney_state::{CopiedRows, CopyError, copy_rows};
use spinney_store::AnyStore;
use spinney_tree::{PageStore as _, Snapshot};

use crate::args::{FormatArgs, ModeArgs, PairArgs};
use crate::failure::Failure;
use crate::stores::Mode;
use crate::trees;
use crate::ui::{Answer, Grid, Output, human_bytes};

#[derive(Debug, Args)]
pub(crate) struct CopyArgs {
    #[command(flatten)]
    stores: PairArgs,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    mode: ModeArgs,
}

/// Memory for pages of a file that is read or written once.
const CACHE_BYTES: usize = 64 << 20;

/// Copies all rows of a snapshot, and reads them and the roots again.
pub(crate) fn copy(source: &impl Snapshot, target: &AnyStore) -> anyhow::Result<CopiedRows> {
    copy_rows(source, target).map_err(|error| match error {
        CopyError::Store(error) => error.into(),
        other => {
            Failure::new(other.to_string()).hint("check both disks; the copy was removed").into()
        }
    })
}

pub(super) fn run(args: &CopyArgs, output: &Output) -> anyhow::Result<Answer> {
    args.mode.heed();
    let source = args.stores.source(CACHE_BYTES)?.open(Mode::Look)?;
    let target = args.stores.target(CACHE_BYTES)?;
    let snapshot = source.snapshot()?;
    let mut passed = CopiedRows::default();
    let made = target.create(output, |store| {
        passed = copy(&snapshot, store)?;
        Ok(())
    })?;
    let records = trees::records(&made.snapshot()?)?;
    let file_bytes = target.close(made)?;
    let mut roots = Vec::new();
    for (id, record) in records {
        let record = record?;
        let (tree, root) = (trees::name_of(record.scheme), hex::encode_prefixed(&record.root));
        roots.push(json!({ "id": id.0, "tree": tree, "root": root }));
    }
    let grid = Grid::of_records(&["id", "tree", "root"], &roots);
    let answer = Answer::of(&json!({
        "rows": passed.rows, "bytes": passed.bytes, "file_bytes": file_bytes, "trees": roots,
    }))?;
    let (rows, bytes) = (passed.rows, human_bytes(passed.bytes));
    Ok(answer.grid(grid).line(format!("{rows} rows of {bytes} were copied and read again")))
}
