//! `archive build`: the blocks that a store's history keeps.

use std::sync::Arc;

use clap::Args;
use serde_json::json;
use spinney_archive::{Archive, ArchiveError, Options, Writer, all_trees, place};
use spinney_state::kept_range;
use spinney_store::AnyStore;
use spinney_tree::{PageStore as _, Snapshot};

use super::opened::{bytes_of, check_whole, described, failure, unadded};
use crate::args::{AtArgs, FormatArgs};
use crate::commits;
use crate::failure::Failure;
use crate::stores::{Mode, Place};
use crate::trees;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Output, human_bytes};
use spinney_bench::Clock;

#[derive(Debug, Args)]
pub(super) struct BuildArgs {
    #[command(flatten)]
    at: AtArgs,
    /// The archive: a directory, or a URL of a bucket.
    #[arg(long, value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    into: String,
    /// The first block of an archive that is made. Without it, the oldest one that the store keeps.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// Leave out so many blocks before the store's last one: those that a reorganisation may take
    /// back. An archive whose blocks were taken back is refused from then on.
    #[arg(long, value_name = "N", default_value_t = 0)]
    behind: u64,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn build(args: &BuildArgs, output: &Output) -> anyhow::Result<Answer> {
    let clock = Clock::start();
    let db = args.at.place()?;
    let store = db.open(Mode::Look)?;
    let objects = place(&args.into)?;
    if let Ok(archive) = Archive::open(Arc::clone(&objects), 0) {
        check_whole(&archive.manifest(), &args.into, "no blocks are added to it")?;
    }
    let mut writer = match Writer::open(Arc::clone(&objects), Options::default()) {
        Ok(writer) => writer,
        Err(ArchiveError::Missing { .. }) => {
            let source = all_trees(store.snapshot()?, db.tree_cache());
            let oldest = oldest_block(&source.snapshot, &db)?;
            check_history(&store, oldest, args.from)?;
            let first = args.from.unwrap_or(oldest);
            Writer::begin(objects, Options::default(), source, first).map_err(unadded)?
        }
        Err(error) => return Err(failure(error)),
    };
    let before = bytes_of(writer.manifest());
    let mut progress = Progress::new(output.quiet(), "archive", Unit::Blocks, None);
    let extended =
        writer.extend(all_trees(store.snapshot()?, db.tree_cache()), args.behind, |done, all| {
            progress.update(done, || format!("of {all}"));
        });
    progress.finish();
    let (extended, manifest) = (extended.map_err(unadded)?, writer.manifest());
    let data = json!({
        "added": extended.blocks, "rows": extended.rows, "seconds": clock.seconds(),
        "archive": described(manifest),
    });
    let grown = human_bytes(bytes_of(manifest).saturating_sub(before));
    let line = format!(
        "{} blocks, {} rows, {grown} were added: the archive holds blocks {} to {}",
        extended.blocks, extended.rows, manifest.first, manifest.last
    );
    store.close()?;
    Ok(Answer::of(&data)?.line(line))
}

/// Refuses to begin without history, or before it, where a store keeps commits: who asks for their
/// blocks would get an archive without them, or be told to keep more commits.
fn check_history(store: &AnyStore, oldest: u64, from: Option<u64>) -> anyhow::Result<()> {
    let Some(kept) = store.kept_commits()?.filter(|kept| kept.first < oldest) else {
        return Ok(());
    };
    let is_without = from.map_or(oldest >= kept.last, |from| from < oldest);
    if !is_without {
        return Ok(());
    }
    let kept = commits::described(&kept);
    let what = format!(
        "an archive is made of a store's history, and this one's begins with block {oldest}: what \
         else it keeps ({kept}) adds nothing"
    );
    let hint = format!(
        "replay into a new --db with --keep-undo all; or begin with --from {oldest}, and spinney \
         archive backfill puts earlier blocks in front"
    );
    Err(Failure::new(what).hint(hint).into())
}

/// The oldest block whose state a store's history keeps: a new archive begins with it.
pub(super) fn oldest_block(snapshot: &impl Snapshot, place: &Place) -> anyhow::Result<u64> {
    let records = trees::of_states(snapshot)?;
    let Some(newest) = records.first().and_then(|(_, record)| record.block) else {
        let what = format!("the store holds no state of a block ({})", place.name());
        return Err(Failure::new(what).hint("fill it first: spinney replay, or follow").into());
    };
    Ok(kept_range(snapshot, newest)?.oldest.number)
}
