//! `archive verify`: all of an archive is read, and roots of blocks are computed.

use alloy_primitives::hex;
use clap::Args;
use serde_json::json;

use super::opened::{CACHE_BYTES, bytes_of, failure, open, told_as};
use crate::args::FormatArgs;
use crate::clock::Clock;
use crate::failure::Exit;
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::trees;

#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    /// A block whose roots are computed from all of its entries; may be given many times. Without
    /// it, the first and the last one.
    #[arg(long, value_name = "N")]
    block: Vec<u64>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn verify(args: &VerifyArgs, output: &Output) -> anyhow::Result<Exit> {
    let clock = Clock::start();
    let archive = open(&args.archive, CACHE_BYTES)?;
    let manifest = archive.manifest();
    let mut progress =
        Progress::new(output.quiet(), "verify", Unit::Bytes, Some(bytes_of(&manifest)));
    let mut read = 0;
    let checked = archive.check(|bytes| {
        read += bytes;
        progress.update(read, || "segments".into());
    });
    progress.finish();
    let checked = checked.map_err(failure)?;
    let mut blocks = args.block.clone();
    if blocks.is_empty() {
        blocks = vec![manifest.first, manifest.last];
    }
    blocks.sort_unstable();
    blocks.dedup();
    let (mut roots, mut entries) = (Vec::new(), 0);
    for &block in &blocks {
        let view = archive.at(block).map_err(failure)?;
        for (id, record) in trees::records(&view)? {
            let record = record?;
            entries += trees::verify_entries(&view, id, &record)?;
            roots.push(json!({
                "block": block, "tree": trees::name_of(record.scheme),
                "root": hex::encode_prefixed(&record.root),
            }));
        }
    }
    let data = json!({
        "segments": checked.segments, "pieces": checked.pieces, "bytes": checked.bytes,
        "roots": roots, "entries": entries, "seconds": clock.seconds(),
    });
    let line = format!(
        "{} segments with {} pieces are sound; {} roots of {} blocks are those of their {entries} \
         entries",
        checked.segments,
        checked.pieces,
        roots.len(),
        blocks.len(),
    );
    told_as(&data, &line, output)?;
    Ok(Exit::Ok)
}
