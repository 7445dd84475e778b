//! `archive prune`: the first blocks go.

use clap::Args;
use serde_json::json;
use spinney_archive::{ArchiveError, Options, Writer, place};

use super::opened::{CACHE_BYTES, described, failure, open};
use crate::args::FormatArgs;
use crate::ui::Answer;
use spinney_bench::Clock;

/// Drop the first blocks of an archive, with their witnesses.
///
/// The segments that hold them become one that begins with the first block that stays. What they
/// alone needed is removed once something is next written to the archive: until then those who read
/// it go on. Killed at any moment, it leaves the archive as it was, or pruned.
#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    /// How many blocks stay: the last ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    keep: u64,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn prune(args: &PruneArgs) -> anyhow::Result<Answer> {
    let clock = Clock::start();
    let manifest = open(&args.archive, CACHE_BYTES)?.manifest();
    let first = manifest.last.saturating_sub(args.keep - 1);
    if first <= manifest.first {
        let data = json!({
            "dropped": 0, "seconds": clock.seconds(), "archive": described(&manifest),
        });
        let line = format!(
            "nothing was dropped: the archive holds blocks {} to {}, {} in all",
            manifest.first,
            manifest.last,
            manifest.last - manifest.first + 1
        );
        return Ok(Answer::of(&data)?.line(line));
    }
    let objects = place(&args.archive).map_err(ArchiveError::from).map_err(failure)?;
    let mut writer = Writer::open(objects, Options::default()).map_err(failure)?;
    let dropped = writer.prune(first).map_err(failure)?;
    let manifest = writer.manifest();
    let data = json!({
        "dropped": dropped, "seconds": clock.seconds(), "archive": described(manifest),
    });
    let line = format!(
        "{dropped} blocks were dropped: the archive holds blocks {} to {}; what they alone needed \
         is removed when the archive is next written",
        manifest.first, manifest.last
    );
    Ok(Answer::of(&data)?.line(line))
}
