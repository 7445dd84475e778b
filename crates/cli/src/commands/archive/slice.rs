//! `archive slice`: what some accounts need becomes an archive of its own.

use alloy_primitives::Address;
use clap::Args;
use serde_json::json;
use spinney_archive::{ArchiveError, Wanted, place};

use super::opened::{CACHE_BYTES, bytes_of, described, failure, open};
use crate::args::{FormatArgs, address};
use crate::trees;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Output, human_bytes};
use spinney_bench::Clock;

/// Make an archive of what some accounts need: leaves, slots, code, and the pages on their paths.
///
/// It answers for these accounts as the whole archive does, proofs included, and refuses all
/// others. It has the trees in which an account's keys lie together, mpt and pbt; ubt and verkle
/// are left out, and so are trees by name and the witnesses of blocks. No blocks are added to it: a
/// new one is made.
#[derive(Debug, Args)]
pub(super) struct SliceArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    /// The archive that is made: a directory, or a URL of a bucket.
    #[arg(value_name = "TARGET")]
    target: String,
    /// An account; may be given many times.
    #[arg(long = "address", value_name = "0x", required = true, value_parser = address)]
    addresses: Vec<Address>,
    /// The first block. Without it, that of the archive.
    #[arg(long, value_name = "N")]
    from: Option<u64>,
    /// The last block. Without it, that of the archive.
    #[arg(long, value_name = "N")]
    to: Option<u64>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn slice(args: &SliceArgs, output: &Output) -> anyhow::Result<Answer> {
    let clock = Clock::start();
    let archive = open(&args.archive, CACHE_BYTES)?;
    let objects = place(&args.target).map_err(ArchiveError::from).map_err(failure)?;
    let mut wanted = Wanted::default();
    wanted.addresses = args.addresses.iter().map(|address| address.into_array()).collect();
    (wanted.first, wanted.last) = (args.from, args.to);
    let mut progress = Progress::new(output.quiet(), "slice", Unit::Blocks, None);
    let sliced = archive.slice(objects, &wanted, |done, all| {
        progress.update(done, || format!("of {all}"));
    });
    progress.finish();
    let manifest = sliced.map_err(failure)?;
    let left_out = manifest.slice.iter().flat_map(|slice| &slice.without);
    let left_out: Vec<_> = left_out.map(|tree| trees::name_of(tree.scheme())).collect();
    if !left_out.is_empty() {
        let names = left_out.join(", ");
        output.warn(format!("{names} left out: an account's keys do not lie together there"));
    }
    let data = json!({ "seconds": clock.seconds(), "archive": described(&manifest) });
    let line = format!(
        "a slice of {} accounts: blocks {} to {}, {}",
        manifest.slice.as_ref().map_or(0, |slice| slice.addresses.len()),
        manifest.first,
        manifest.last,
        human_bytes(bytes_of(&manifest)),
    );
    Ok(Answer::of(&data)?.line(line))
}
