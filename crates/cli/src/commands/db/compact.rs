//! `db compact`.

use serde_json::json;
use spinney_store::AnyStore;

use crate::failure::Failure;
use crate::stores::{Mode, Place};
use crate::ui::{Answer, human_bytes};

pub(super) fn run(place: &Place) -> anyhow::Result<Answer> {
    let mut store = place.open(Mode::Change)?;
    let before = store.stats()?.file_bytes;
    compact(&mut store)?;
    let after = place.close(store)?;
    let (from, to) = (human_bytes(before), human_bytes(after));
    let answer = Answer::of(&json!({ "bytes_before": before, "bytes_after": after }))?;
    Ok(answer
        .row(&["bytes_before", "bytes_after"])
        .line(format!("{from} -> {to} ({before} -> {after} bytes)")))
}

/// What is in the way is a reader in another process.
fn compact(store: &mut AnyStore) -> anyhow::Result<()> {
    store.compact().map_err(|error| {
        let hint = "nothing was lost; stop what reads the store, and run it again";
        Failure::new("the store cannot be compacted").hint(hint).because(error).into()
    })
}
