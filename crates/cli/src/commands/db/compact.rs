//! `db compact`.

use serde_json::json;
use spinney_store::AnyStore;

use crate::failure::Exit;
use crate::stores::{Mode, Place};
use crate::ui::{Format, Grid, Output, human_bytes};

pub(super) fn run(place: &Place, output: &Output) -> anyhow::Result<Exit> {
    let mut store = place.open(Mode::Change)?;
    let before = store.stats()?.file_bytes;
    compact(&mut store)?;
    let after = place.close(store)?;
    match output.format() {
        Format::Json => {
            output.envelope(&json!({ "bytes_before": before, "bytes_after": after }), &[])?;
        }
        Format::Csv => {
            let mut grid = Grid::new(&["bytes_before", "bytes_after"]);
            grid.row(vec![before.to_string(), after.to_string()]);
            output.grid(&grid)?;
        }
        Format::Table => {
            let (from, to) = (human_bytes(before), human_bytes(after));
            output.line(&format!("{from} -> {to} ({before} -> {after} bytes)"))?;
        }
    }
    Ok(Exit::Ok)
}

/// What is in the way is a reader in another process.
fn compact(store: &mut AnyStore) -> anyhow::Result<()> {
    use crate::failure::Failure;
    store.compact().map_err(|error| {
        let hint = "nothing was lost; stop what reads the store, and run it again";
        Failure::new("the store cannot be compacted").hint(hint).because(error).into()
    })
}
