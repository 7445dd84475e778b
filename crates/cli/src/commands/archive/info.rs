//! `archive info`: what an archive holds.

use clap::Args;

use super::opened::{CACHE_BYTES, bytes_of, described, open};
use crate::args::FormatArgs;
use crate::trees;
use crate::ui::{Answer, Grid, human_bytes};

#[derive(Debug, Args)]
pub(super) struct InfoArgs {
    /// The archive: a directory, or a URL of a bucket.
    #[arg(value_name = "ARCHIVE", env = "SPINNEY_ARCHIVE")]
    archive: String,
    #[command(flatten)]
    format: FormatArgs,
}

pub(super) fn info(args: &InfoArgs) -> anyhow::Result<Answer> {
    let archive = open(&args.archive, CACHE_BYTES)?;
    let manifest = archive.manifest();
    let grid = |bytes: fn(u64) -> String| {
        let mut grid = Grid::new(&["segment", "first", "last", "level", "keys", "pieces", "bytes"]);
        for segment in &manifest.segments {
            let numbers = [segment.first, segment.last, segment.level.into()];
            let counts = [segment.keys, segment.pieces];
            let cells = numbers.into_iter().chain(counts).map(|number| number.to_string());
            let bytes = bytes(segment.bytes);
            grid.row([segment.name.clone()].into_iter().chain(cells).chain([bytes]).collect());
        }
        grid
    };
    let names = manifest.trees.iter().map(|tree| trees::name_of(tree.scheme()));
    let slice = manifest.slice.as_ref().map(|slice| {
        let addresses = slice.addresses.iter().map(|address| format!("0x{address}"));
        format!("a slice of {}", addresses.collect::<Vec<_>>().join(", "))
    });
    let answer = Answer::of(&described(&manifest))?.csv(grid(|bytes| bytes.to_string()));
    let line = format!(
        "blocks {} to {}, trees {}, {} in {} segments",
        manifest.first,
        manifest.last,
        names.collect::<Vec<_>>().join(", "),
        human_bytes(bytes_of(&manifest)),
        manifest.segments.len(),
    );
    Ok(answer.table(grid(human_bytes)).line(line).lines(slice))
}
