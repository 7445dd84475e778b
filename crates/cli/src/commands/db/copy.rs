//! `db copy`.

use alloy_primitives::hex;
use clap::Args;
use serde_json::json;
use sha2::{Digest as _, Sha256};
use spinney_store::AnyStore;
use spinney_tree::{PageStore as _, Snapshot, Table, WriteSet};

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

/// Bytes of rows that are committed at once.
const PART_BYTES: usize = 8 << 20;
/// Memory for pages of a file that is read or written once.
const CACHE_BYTES: usize = 64 << 20;

/// What went through a copy.
#[derive(Debug, Default, PartialEq, Eq)]
struct Passed {
    rows: u64,
    bytes: u64,
    digest: [u8; 32],
}

/// Hands over all rows of a snapshot, in order.
fn all(
    snapshot: &impl Snapshot,
    mut take: impl FnMut(Table, &[u8], &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<Passed> {
    let mut passed = Passed::default();
    let mut digest = Sha256::new();
    for table in Table::ALL {
        let mut failure = None;
        snapshot.scan(table, &[], None, &mut |key, row| {
            passed.rows += 1;
            passed.bytes += (key.len() + row.len()) as u64;
            for part in [&[table as u8], &(key.len() as u64).to_le_bytes()[..], key, row] {
                digest.update(part);
            }
            failure = take(table, key, row).err();
            failure.is_none()
        })?;
        if let Some(error) = failure {
            return Err(error);
        }
    }
    passed.digest = digest.finalize().into();
    Ok(passed)
}

fn fill(source: &impl Snapshot, target: &AnyStore) -> anyhow::Result<Passed> {
    let (mut set, mut bytes) = (WriteSet::new(), 0);
    let passed = all(source, |table, key, row| {
        set.put(table, key, row);
        bytes += key.len() + row.len();
        if bytes >= PART_BYTES {
            target.commit(&std::mem::take(&mut set))?;
            bytes = 0;
        }
        Ok(())
    })?;
    target.commit(&set)?;
    // What was written is read again, and so are the roots.
    let copied = all(&target.snapshot()?, |_, _, _| Ok(()))?;
    if copied != passed {
        let what = format!("the copy has {} rows that are not those of the source", copied.rows);
        return Err(Failure::new(what).hint("check both disks; the copy was removed").into());
    }
    Ok(passed)
}

/// Copies all rows of a snapshot, and reads them again. Answers how many there are.
pub(crate) fn copy_rows(source: &impl Snapshot, target: &AnyStore) -> anyhow::Result<u64> {
    Ok(fill(source, target)?.rows)
}

pub(super) fn run(args: &CopyArgs, output: &Output) -> anyhow::Result<Answer> {
    args.mode.heed();
    let source = args.stores.source(CACHE_BYTES)?.open(Mode::Look)?;
    let target = args.stores.target(CACHE_BYTES)?;
    let snapshot = source.snapshot()?;
    let mut passed = Passed::default();
    let made = target.create(output, |store| {
        passed = fill(&snapshot, store)?;
        Ok(())
    })?;
    let records = trees::records(&made.snapshot()?)?;
    let file_bytes = target.close(made)?;
    let (mut roots, mut grid) = (Vec::new(), Grid::new(&["id", "tree", "root"]));
    for (id, record) in records {
        let record = record?;
        let (tree, root) = (trees::name_of(record.scheme), hex::encode_prefixed(&record.root));
        roots.push(json!({ "id": id.0, "tree": tree, "root": root }));
        grid.row(vec![id.0.to_string(), tree, root]);
    }
    let answer = Answer::of(&json!({
        "rows": passed.rows, "bytes": passed.bytes, "file_bytes": file_bytes, "trees": roots,
    }))?;
    let (rows, bytes) = (passed.rows, human_bytes(passed.bytes));
    Ok(answer.grid(grid).line(format!("{rows} rows of {bytes} were copied and read again")))
}
