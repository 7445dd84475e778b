//! Which roots are trusted of the blocks that a proof is of.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use alloy_primitives::B256;
use anyhow::Context as _;
use clap::Args;
use spinney_replay::ChainReader;

use crate::failure::Failure;
use crate::stores;
use crate::trees::Name;

/// Who says the roots of blocks.
#[derive(Clone, Debug, Args)]
pub(super) struct RootsArgs {
    /// The roots that are trusted of blocks: lines of a block's number and a root, with a space
    /// between them.
    #[arg(long, value_name = "FILE", conflicts_with = "root")]
    roots: Option<PathBuf>,
    /// Blocks as `geth export` writes them, plain or zstd: the roots in their headers are trusted,
    /// which are those of the mpt.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "roots"])]
    blocks: Option<PathBuf>,
}

/// The roots that are trusted, by the numbers of blocks.
pub(super) type Roots = BTreeMap<u64, B256>;

impl RootsArgs {
    /// Those that are given for the roots of a tree, if any are.
    pub(super) fn read(&self, name: Name) -> anyhow::Result<Option<Roots>> {
        match (&self.roots, &self.blocks) {
            (Some(file), _) => of_lines(file).map(Some),
            (None, Some(_)) if name != Name::Mpt => {
                let what = format!("headers have no root of a tree {name} (--blocks)");
                Err(Failure::new(what).hint("--roots names the roots that are trusted").into())
            }
            (None, Some(file)) => of_headers(file).map(Some),
            (None, None) => Ok(None),
        }
    }
}

fn of_lines(file: &Path) -> anyhow::Result<Roots> {
    let bytes = stores::read_file(file)?;
    let malformed = |line: usize| {
        let what = format!("{}, line {line}: it names no block and root", file.display());
        Failure::new(what).hint("write a number, a space, and a root in hex: 17 0x56e8..b421")
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| malformed(1))?;
    let mut roots = Roots::new();
    for (line, text) in (1..).zip(text.lines()) {
        let mut words = text.split_whitespace();
        let (Some(number), root, None) = (words.next(), words.next(), words.next()) else {
            if text.trim().is_empty() {
                continue;
            }
            return Err(malformed(line).into());
        };
        let number = number.parse().map_err(|_| malformed(line))?;
        let root = root.and_then(|root| root.parse().ok()).ok_or_else(|| malformed(line))?;
        add(&mut roots, file, number, root)?;
    }
    Ok(roots)
}

fn of_headers(file: &Path) -> anyhow::Result<Roots> {
    let blocks = ChainReader::new(stores::open_file(file)?);
    let blocks = blocks.with_context(|| format!("reading {}", file.display()))?;
    let mut roots = Roots::new();
    for block in blocks {
        let header = block.with_context(|| format!("in {}", file.display()))?.block.header;
        add(&mut roots, file, header.number, header.state_root)?;
    }
    Ok(roots)
}

fn add(roots: &mut Roots, file: &Path, number: u64, root: B256) -> Result<(), Failure> {
    match roots.insert(number, root) {
        Some(other) if other != root => {
            let what =
                format!("{}: block {number} has two roots, {other} and {root}", file.display());
            Err(Failure::new(what).hint("one of them is that of another chain"))
        }
        _ => Ok(()),
    }
}
