//! `archive verify`: all of an archive is read, blocks are compared with headers, and roots are
//! computed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use alloy_primitives::{Address, hex};
use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use spinney_archive::{AccountsError, Archive, AtBlock, CheckedBlocks, Header, SliceInfo};
use spinney_replay::ChainReader;
use spinney_tree::RootRecord;

use super::opened::{CACHE_BYTES, bytes_of, failure, open};
use crate::args::FormatArgs;
use crate::failure::{Exit, Failure};
use crate::stores;
use crate::trees;
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Output};
use spinney_bench::Clock;

#[derive(Debug, Args)]
pub(super) struct ArchiveVerifyArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    /// Blocks as `geth export` writes them, plain or zstd: every block of the archive is compared
    /// with its header there, its hash and its state root, and some entries of each of its trees
    /// are read under the tree's root.
    #[arg(long, value_name = "FILE")]
    blocks: Option<PathBuf>,
    /// A block whose roots are computed from all of its entries; may be given many times. Without
    /// it, the first and the last one.
    #[arg(long, value_name = "N")]
    block: Vec<u64>,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn verify(args: &ArchiveVerifyArgs, output: &Output) -> anyhow::Result<Answer> {
    let clock = Clock::start();
    let archive = open(&args.archive, CACHE_BYTES)?;
    let manifest = archive.manifest();
    // A file that cannot be used is told before all is read.
    let headers = args.blocks.as_deref().map(|file| headers_of(file, &archive)).transpose()?;
    let mut progress =
        Progress::new(output.quiet(), "verify", Unit::Bytes, Some(bytes_of(&manifest)));
    let mut read = 0;
    let checked = archive.check(|bytes| {
        read += bytes;
        progress.update(read, || "segments".into());
    });
    progress.finish();
    let checked = checked.map_err(failure)?;
    let of_headers = headers.map(|headers| check_blocks(&headers, &archive, output)).transpose()?;
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
            entries += match &manifest.slice {
                None => trees::count_entries(&view, id, &record)?,
                Some(slice) => verify_accounts(&view, &record, slice)?,
            };
            roots.push(json!({
                "block": block, "tree": trees::name_of(record.scheme),
                "root": hex::encode_prefixed(&record.root),
            }));
        }
    }
    let mut data = json!({
        "segments": checked.segments, "pieces": checked.pieces, "bytes": checked.bytes,
        "roots": roots, "entries": entries, "seconds": clock.seconds(),
    });
    let of = if manifest.slice.is_some() { "accounts" } else { "entries" };
    let mut line = format!(
        "{} segments with {} pieces are sound; {} roots of {} blocks are those of their {entries} \
         {of}",
        checked.segments,
        checked.pieces,
        roots.len(),
        blocks.len(),
    );
    if let Some(CheckedBlocks { blocks, hashes, state_roots, entries, .. }) = of_headers {
        data["headers"] = json!({
            "blocks": blocks, "hashes": hashes, "state_roots": state_roots, "entries": entries,
        });
        line += &format!(
            "; of {blocks} blocks {hashes} hashes and {state_roots} state roots are those of their \
             headers, and {entries} entries lie under their roots"
        );
    }
    Ok(Answer::of(&data)?.line(line))
}

/// Compares all blocks with their headers, and says what these could not be compared with.
fn check_blocks(
    headers: &BTreeMap<u64, Header>,
    archive: &Archive,
    output: &Output,
) -> anyhow::Result<CheckedBlocks> {
    let (first, last) = archive.blocks();
    let count = last - first + 1;
    let progress = Mutex::new(Progress::new(output.quiet(), "verify", Unit::Blocks, Some(count)));
    let checked = archive.check_blocks(headers, &|done| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.update(done, || "blocks".into());
    });
    progress.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
    let checked = checked.map_err(failure)?;
    if checked.hashes < checked.blocks {
        let without = checked.blocks - checked.hashes;
        output.warn(format!("--blocks has no header of {without} of the archive's blocks"));
    }
    if checked.state_roots == 0 {
        output.warn("the archive has no mpt, whose root headers have: only hashes were compared");
    }
    Ok(checked)
}

/// What the headers of a chain say of an archive's blocks, of one at least.
fn headers_of(file: &Path, archive: &Archive) -> anyhow::Result<BTreeMap<u64, Header>> {
    let (first, last) = archive.blocks();
    let blocks = ChainReader::new(stores::open_file(file)?);
    let blocks = blocks.with_context(|| format!("reading {}", file.display()))?;
    let mut headers = BTreeMap::new();
    for block in blocks {
        let block = block.with_context(|| format!("in {}", file.display()))?;
        let (number, state_root) = (block.block.header.number, block.block.header.state_root.0);
        let header = Header { hash: block.hash.0, state_root };
        if !(first..=last).contains(&number) {
            continue;
        }
        if headers.insert(number, header).is_some_and(|other| other != header) {
            let what = format!("{}: block {number} has two headers (--blocks)", file.display());
            return Err(Failure::new(what).hint("one of them is that of another chain").into());
        }
    }
    if headers.is_empty() {
        let what = format!("--blocks has none of the archive's blocks {first} to {last}");
        return Err(Failure::new(what).hint("give the chain that was archived").into());
    }
    Ok(headers)
}

/// Proves the accounts of a slice in one of its trees, and verifies the proofs against the root.
/// Answers how many accounts these are.
fn verify_accounts(view: &AtBlock, record: &RootRecord, slice: &SliceInfo) -> anyhow::Result<u64> {
    let addresses = slice.addresses.iter().map(|address| address.parse::<Address>());
    let addresses = addresses.collect::<Result<Vec<_>, _>>().context("an address of the slice")?;
    view.verify_accounts(record, &addresses).map_err(|error| match error {
        AccountsError::State(error) => error.into(),
        AccountsError::Tree(error) => error.into(),
        error => {
            let what = format!("block {}: {error}", view.block());
            anyhow::Error::from(Failure::new(what).exit(Exit::No))
        }
    })?;
    Ok(addresses.len() as u64)
}
