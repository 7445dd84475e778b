//! Puts the accounts of a document into a store, so many at a time.

use std::io::Read;
use std::path::Path;

use alloy_primitives::B256;
use spinney_replay::{FillError, FilledState, StateFileError, StateFiller};
use spinney_store::AnyStore;
use spinney_tree::{BlockId, SharedStore};

use super::wanted::Wanted;
use crate::failure::{Exit, Failure};
use crate::trees::TreeSet;
use crate::ui::progress::{Progress, Unit};

/// What went into a store.
#[derive(Debug, Default)]
pub(super) struct Filled {
    /// None of a raw tree.
    pub(super) block: Option<BlockId>,
    pub(super) root: B256,
    /// Accounts, or the entries of a raw tree.
    pub(super) entries: u64,
    pub(super) commits: u64,
    /// Whether the root is the one that it should be; else nobody said which.
    pub(super) checked: bool,
}

/// With `needs_code`, accounts whose code is not given along with its hash are refused.
pub(super) fn fill(
    (store, cache_bytes): (&AnyStore, usize),
    trees: &TreeSet,
    (needs_code, quiet): (bool, bool),
    (input, file): (impl Read, &Path),
    wanted: &Wanted,
) -> anyhow::Result<Filled> {
    let state = trees.open(SharedStore::new(store), cache_bytes)?;
    let mut filler = StateFiller::new(state, needs_code);
    let mut progress = Progress::new(quiet, "import", Unit::Keys, None);
    let read = filler.read(input, |count, address| {
        progress.update(count, || format!("account {address}"));
    });
    progress.finish();
    let found = read.map_err(|error| refused(error, file))?;
    let block = wanted.block(found.block)?;
    let filled = filler.finish(block, wanted.root(found.root)?).map_err(|error| match error {
        FillError::State(error) => anyhow::Error::from(error),
        error => Failure::new(format!("{error} ({})", file.display()))
            .exit(Exit::No)
            .hint("nothing was made of it; is it the state of that block, and whole?")
            .into(),
    })?;
    let FilledState { root, accounts: entries, commits, is_checked: checked, .. } = filled;
    Ok(Filled { block: Some(block), root, entries, commits, checked })
}

fn refused(error: StateFileError<FillError>, file: &Path) -> anyhow::Error {
    match error {
        StateFileError::Taker(FillError::State(error)) => error.into(),
        error @ StateFileError::Taker(FillError::NoCode { .. }) => {
            Failure::new(format!("{error} ({})", file.display()))
                .hint(
                    "a replay needs the code: give it along, as geth dump does without --nocode. \
                     spinney db load takes a dump of a store that was never given it; nothing was \
                     made",
                )
                .into()
        }
        error => Failure::new(format!("{error} ({})", file.display()))
            .hint(
                "the file is {\"accounts\": {..}}, as spinney db dump and geth write it, or \
                 {\"alloc\": {..}}; nothing was made of it",
            )
            .into(),
    }
}
