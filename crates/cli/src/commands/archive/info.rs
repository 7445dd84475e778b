//! `archive info`: what an archive holds.

use clap::Args;

use super::opened::{CACHE_BYTES, bytes_of, described, open};
use crate::args::FormatArgs;
use crate::failure::Exit;
use crate::trees;
use crate::ui::{Format, Grid, Output, human_bytes};

#[derive(Debug, Args)]
pub(super) struct InfoArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn info(args: &InfoArgs, output: &Output) -> anyhow::Result<Exit> {
    let archive = open(&args.archive, CACHE_BYTES)?;
    let manifest = archive.manifest();
    if output.format() == Format::Json {
        output.envelope(&described(&manifest), &[])?;
        return Ok(Exit::Ok);
    }
    let mut grid = Grid::new(&["segment", "first", "last", "level", "keys", "pieces", "bytes"]);
    for segment in &manifest.segments {
        let bytes = match output.format() {
            Format::Csv => segment.bytes.to_string(),
            _ => human_bytes(segment.bytes),
        };
        let numbers = [segment.first, segment.last, segment.level.into()];
        let counts = [segment.keys, segment.pieces];
        let cells = numbers.into_iter().chain(counts).map(|number| number.to_string());
        grid.row([segment.name.clone()].into_iter().chain(cells).chain([bytes]).collect());
    }
    output.grid(&grid)?;
    if output.format() == Format::Table {
        let names = manifest.trees.iter().map(|tree| trees::name_of(tree.scheme()));
        output.line(&format!(
            "blocks {} to {}, trees {}, {} in {} segments",
            manifest.first,
            manifest.last,
            names.collect::<Vec<_>>().join(", "),
            human_bytes(bytes_of(&manifest)),
            manifest.segments.len(),
        ))?;
        if let Some(slice) = &manifest.slice {
            let addresses = slice.addresses.iter().map(|address| format!("0x{address}"));
            output.line(&format!("a slice of {}", addresses.collect::<Vec<_>>().join(", ")))?;
        }
    }
    Ok(Exit::Ok)
}
