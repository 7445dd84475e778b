//! Puts the lines of a dump of a raw tree into a store.

use std::io::BufRead;
use std::path::Path;

use spinney_replay::{DumpLineError, EntryLines};
use spinney_state::MPT;
use spinney_store::AnyStore;
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, PageStore as _, Tree};

use super::fill::Filled;
use crate::failure::Failure;
use crate::ui::progress::{Progress, Unit};

/// What every dump of a raw tree begins with, and no other one.
pub(super) const BEGINS: &[u8] = b"{\"key\"";

/// Bytes of entries that are committed at once.
pub(super) const BATCH_BYTES: usize = 16 << 20;

pub(super) fn fill(
    store: &AnyStore,
    cache_bytes: usize,
    quiet: bool,
    input: impl BufRead,
    file: &Path,
) -> anyhow::Result<Filled> {
    let mut tree = Tree::open(Mpt, MPT, &store.snapshot()?, cache_bytes)?;
    let mut progress = Progress::new(quiet, "load", Unit::Keys, None);
    let mut lines = EntryLines::new(input);
    let (mut batch, mut bytes, mut entries, mut commits) = (Batch::new(), 0, 0, 0);
    let mut commit = |batch: &mut Batch| -> anyhow::Result<()> {
        let pending = tree.prepare(&store.snapshot()?, None, std::mem::take(batch))?;
        tree.commit(store, &pending, None)?;
        commits = tree.commit_number();
        Ok(())
    };
    let refused = |error| match error {
        DumpLineError::Io(error) => anyhow::Error::from(error),
        error => Failure::new(format!("{error} ({})", file.display()))
            .hint("the file is what spinney db dump writes; nothing was made of it")
            .into(),
    };
    while let Some((key, value)) = lines.next_entry().map_err(refused)? {
        batch.put(&key, &value);
        bytes += key.len() + value.len();
        entries += 1;
        progress.update(entries, || format!("line {}", lines.line()));
        if bytes >= BATCH_BYTES {
            bytes = 0;
            commit(&mut batch)?;
        }
    }
    progress.finish();
    commit(&mut batch)?;
    Ok(Filled { block: None, root: tree.root().into(), entries, commits, checked: false })
}
