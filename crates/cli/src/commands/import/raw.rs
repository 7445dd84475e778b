//! Puts the lines of a dump of a raw tree into a store.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::io::BufRead;
use std::path::Path;

use serde::Deserialize;
use spinney_state::MPT;
use spinney_store::AnyStore;
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, PageStore as _, Tree};

use super::fill::{BATCH_BYTES, Filled};
use crate::failure::Failure;
use crate::ui::progress::{Progress, Unit};
use spinney_cli::trace::{Hex, Lines};

/// What every dump of a raw tree begins with, and no other one.
pub(super) const BEGINS: &[u8] = b"{\"key\"";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    key: Hex,
    value: Hex,
}

pub(super) fn fill(
    store: &AnyStore,
    cache_bytes: usize,
    quiet: bool,
    input: impl BufRead,
    file: &Path,
) -> anyhow::Result<Filled> {
    let mut tree = Tree::open(Mpt, MPT, &store.snapshot()?, cache_bytes)?;
    let mut progress = Progress::new(quiet, "load", Unit::Keys, None);
    let mut lines = Lines::new(input);
    let (mut batch, mut bytes, mut entries, mut commits) = (Batch::new(), 0, 0, 0);
    let mut last: Option<Vec<u8>> = None;
    let mut commit = |batch: &mut Batch| -> anyhow::Result<()> {
        let pending = tree.prepare(&store.snapshot()?, None, std::mem::take(batch))?;
        tree.commit(store, &pending, None)?;
        commits = tree.commit_number();
        Ok(())
    };
    loop {
        let line = lines.next_line()?.map(serde_json::from_slice::<Entry>).transpose();
        let number = lines.number();
        let refuse = |what: String| {
            let hint = "the file is what spinney db dump writes; nothing was made of it";
            Failure::new(format!("line {number}: {what} ({})", file.display())).hint(hint)
        };
        let Some(Entry { key, value }) = line.map_err(|error| refuse(error.to_string()))? else {
            break;
        };
        if last.as_ref().is_some_and(|last| *last >= key.0) {
            return Err(refuse("its key does not come after the one before".into()).into());
        }
        if value.0.is_empty() {
            return Err(refuse("its value is empty".into()).into());
        }
        batch.put(&key.0, &value.0);
        bytes += key.0.len() + value.0.len();
        entries += 1;
        progress.update(entries, || format!("line {number}"));
        last = Some(key.0);
        if bytes >= BATCH_BYTES {
            bytes = 0;
            commit(&mut batch)?;
        }
    }
    progress.finish();
    commit(&mut batch)?;
    Ok(Filled { block: None, root: tree.root().into(), entries, commits, checked: false })
}
