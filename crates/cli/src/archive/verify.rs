//! `archive verify`: all of an archive is read, and roots of blocks are computed.

use std::fmt::Display;

use alloy_primitives::{Address, hex};
use anyhow::Context as _;
use clap::Args;
use serde_json::json;
use spinney_archive::{AtBlock, SliceInfo};
use spinney_state::State;
use spinney_state::embed::{BinaryState, Whole};
use spinney_tree::pbt::Pbt;
use spinney_tree::{KeyProofs as _, RootRecord};

use super::opened::{CACHE_BYTES, bytes_of, failure, open, told_as};
use crate::args::FormatArgs;
use crate::clock::Clock;
use crate::failure::{Exit, Failure};
use crate::output::Output;
use crate::progress::{Progress, Unit};
use crate::trees::{self, Name};

/// Memory for the pages of a tree of a slice.
const TREE_CACHE_BYTES: usize = 16 << 20;

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
            entries += match &manifest.slice {
                None => trees::verify_entries(&view, id, &record)?,
                Some(slice) => verify_accounts(&view, &record, slice)?,
            };
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
    let of = if manifest.slice.is_some() { "accounts" } else { "entries" };
    let line = format!(
        "{} segments with {} pieces are sound; {} roots of {} blocks are those of their {entries} \
         {of}",
        checked.segments,
        checked.pieces,
        roots.len(),
        blocks.len(),
    );
    told_as(&data, &line, output)?;
    Ok(Exit::Ok)
}

/// Proves the accounts of a slice in one of its trees, and verifies the proofs against the root.
/// Answers how many accounts these are.
fn verify_accounts(view: &AtBlock, record: &RootRecord, slice: &SliceInfo) -> anyhow::Result<u64> {
    let addresses = slice.addresses.iter().map(|address| address.parse::<Address>());
    let addresses = addresses.collect::<Result<Vec<_>, _>>().context("an address of the slice")?;
    let wrong = |address: &Address, why: &dyn Display| {
        Failure::new(format!(
            "block {}: the proof of {address} in {} does not lead to the root: {why}",
            view.block(),
            trees::name_of(record.scheme)
        ))
        .exit(Exit::No)
    };
    match Name::of(record.scheme) {
        Some(Name::Mpt) => {
            let state = State::open(view.clone(), TREE_CACHE_BYTES)?;
            for address in &addresses {
                let proof = state.prove(*address, &[])?;
                proof.verify(&state.root()).map_err(|error| wrong(address, &error))?;
            }
        }
        Some(Name::Pbt(hash)) => {
            let state = BinaryState::open(Pbt { hash }, view.clone(), TREE_CACHE_BYTES)?;
            let (last, of) = (state.last()?, Whole::new(Pbt { hash }));
            for address in &addresses {
                let keys = of.account_keys(address);
                let proof = last.prove(&keys)?;
                let verified = Pbt { hash }.verify_keys(&last.root().0, &proof);
                verified.map_err(|error| wrong(address, &error))?;
            }
        }
        _ => {}
    }
    Ok(addresses.len() as u64)
}
