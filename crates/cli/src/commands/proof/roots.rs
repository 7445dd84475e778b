//! Which roots are trusted of the blocks that a proof is of.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use spinney_document::{RootsError, TrustedRoots};
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

impl RootsArgs {
    /// Those that are given for the roots of a tree, if any are.
    pub(super) fn read(&self, name: Name) -> anyhow::Result<Option<TrustedRoots>> {
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

fn of_lines(file: &Path) -> anyhow::Result<TrustedRoots> {
    let bytes = stores::read_file(file)?;
    let text = std::str::from_utf8(&bytes).map_err(|_| refused(file, RootsError::Line(1)))?;
    Ok(TrustedRoots::parse(text).map_err(|error| refused(file, error))?)
}

fn of_headers(file: &Path) -> anyhow::Result<TrustedRoots> {
    let blocks = ChainReader::new(stores::open_file(file)?);
    let blocks = blocks.with_context(|| format!("reading {}", file.display()))?;
    let mut roots = TrustedRoots::default();
    for block in blocks {
        let header = block.with_context(|| format!("in {}", file.display()))?.block.header;
        let added = roots.add(header.number, header.state_root);
        added.map_err(|error| refused(file, error))?;
    }
    Ok(roots)
}

fn refused(file: &Path, error: RootsError) -> Failure {
    let file = file.display();
    match error {
        RootsError::Line(_) => Failure::new(format!("{file}, {error}"))
            .hint("write a number, a space, and a root in hex: 17 0x56e8..b421"),
        _ => Failure::new(format!("{file}: {error}")).hint("one of them is that of another chain"),
    }
}
