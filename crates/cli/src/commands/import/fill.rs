//! Puts the accounts of a document into a store, so many at a time.
#![deny(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::io::Read;
use std::mem;
use std::path::Path;

use alloy_primitives::{Address, B256, KECCAK256_EMPTY};
use spinney_replay::{StateFileError, read_state_file};
use spinney_state::{AccountChange, Change, Changes, State, StateError, StateRead as _};
use spinney_store::AnyStore;
use spinney_tree::{BlockId, SharedStore};

use super::wanted::Wanted;
use crate::failure::{Exit, Failure};
use crate::trees::TreeSet;
use crate::ui::progress::{Progress, Unit};

/// Bytes of accounts, slots and code that are applied and committed at once.
pub(super) const BATCH_BYTES: usize = 16 << 20;
/// What an account, and a slot, count for.
const ACCOUNT_BYTES: usize = 200;
const SLOT_BYTES: usize = 100;

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

pub(super) struct Filler<'s> {
    state: State<SharedStore<'s>>,
    batch: Changes,
    batch_bytes: usize,
    accounts: u64,
    needs_code: bool,
    progress: Progress,
}

/// Why an account could not be put in.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("account {address} has the code hash {hash}, and no code")]
    NoCode { address: Address, hash: B256 },
    #[error("account {0} is given twice")]
    Twice(Address),
    #[error(transparent)]
    State(#[from] StateError),
}

impl<'s> Filler<'s> {
    /// With `needs_code`, accounts whose code is not given along with its hash are refused.
    pub(super) fn new(
        store: &'s AnyStore,
        cache_bytes: usize,
        quiet: bool,
        needs_code: bool,
        trees: &TreeSet,
    ) -> Result<Self, StateError> {
        Ok(Self {
            state: trees.open(SharedStore::new(store), cache_bytes)?,
            batch: Changes::default(),
            batch_bytes: 0,
            accounts: 0,
            needs_code,
            progress: Progress::new(quiet, "import", Unit::Keys, None),
        })
    }

    pub(super) fn fill(
        mut self,
        input: impl Read,
        file: &Path,
        wanted: &Wanted,
    ) -> anyhow::Result<Filled> {
        let read = read_state_file(input, |address, change| self.take(address, change));
        self.progress.finish();
        let found = read.map_err(|error| refused(error, file))?;
        let block = wanted.block(found.block)?;
        let expected = wanted.root(found.root)?;
        self.state.apply(&self.batch)?;
        let expected = expected.filter(|_| self.state.has_mpt());
        let root = self.state.root();
        if let Some(expected) = expected.filter(|expected| *expected != root) {
            let what = format!("state root: expected {expected}, got {root} ({})", file.display());
            let hint = "nothing was made of it; is it the state of that block, and whole?";
            return Err(Failure::new(what).exit(Exit::No).hint(hint).into());
        }
        if block.number == 0 && block.hash != [0; 32] {
            self.state.set_genesis(block.hash.into());
        }
        self.state.seal(block)?;
        self.state.commit()?;
        // Without mpt it is known of the last block sealed alone.
        let root = self.state.root();
        let commits = self.state.commit_number();
        let checked = expected.is_some();
        Ok(Filled { block: Some(block), root, entries: self.accounts, commits, checked })
    }

    fn take(&mut self, address: Address, change: AccountChange) -> Result<(), Refusal> {
        if self.needs_code
            && change.code.is_none()
            && let Some(hash) = change.code_hash.filter(|hash| *hash != KECCAK256_EMPTY)
        {
            return Err(Refusal::NoCode { address, hash });
        }
        let code_bytes = change.code.as_ref().map_or(0, |code| code.len());
        self.batch_bytes += ACCOUNT_BYTES + code_bytes + SLOT_BYTES * change.storage.len();
        let again = self.batch.accounts.insert(address, Change::Written(change)).is_some();
        if again || self.state.account(address)?.is_some() {
            return Err(Refusal::Twice(address));
        }
        self.accounts += 1;
        self.progress.update(self.accounts, || format!("account {address}"));
        if self.batch_bytes >= BATCH_BYTES {
            self.batch_bytes = 0;
            self.state.apply(&mem::take(&mut self.batch))?;
            self.state.commit()?;
        }
        Ok(())
    }
}

fn refused(error: StateFileError<Refusal>, file: &Path) -> anyhow::Error {
    match error {
        StateFileError::Taker(Refusal::State(error)) => error.into(),
        error @ StateFileError::Taker(Refusal::NoCode { .. }) => {
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
