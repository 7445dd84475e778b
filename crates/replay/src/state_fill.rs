//! Puts the accounts of a document into a state, so many at a time.

use std::io::Read;
use std::mem;

use alloy_primitives::{Address, B256, KECCAK256_EMPTY};
use spinney_state::{AccountChange, Change, Changes, State, StateError, StateRead as _};
use spinney_tree::{BlockId, PageStore};

use crate::state_file::{StateFile, StateFileError, read_state_file};

/// Bytes of accounts, slots and code that are applied and committed at once.
const BATCH_BYTES: usize = 16 << 20;
/// What an account, and a slot, count for.
const ACCOUNT_BYTES: usize = 200;
const SLOT_BYTES: usize = 100;

/// Why a document could not be put into a state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FillError {
    /// Code is named and not given.
    #[error("account {address} has the code hash {hash}, and no code")]
    NoCode {
        /// The account.
        address: Address,
        /// The hash of its code.
        hash: B256,
    },
    /// An account comes twice, or was there before.
    #[error("account {0} is given twice")]
    Twice(Address),
    /// The root that comes out is not the one that it should be.
    #[error("state root: expected {expected}, got {got}")]
    Root {
        /// The root that it should be.
        expected: B256,
        /// The root that came out.
        got: B256,
    },
    /// The state refused or failed.
    #[error(transparent)]
    State(#[from] StateError),
}

/// What was put into a state.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct FilledState {
    /// The root of the state.
    pub root: B256,
    /// How many accounts there were.
    pub accounts: u64,
    /// How many commits the store has had.
    pub commits: u64,
    /// Whether the root was compared with the one that it should be.
    pub is_checked: bool,
}

/// Puts the accounts of a document into an empty state, with memory for some thousands of them.
#[derive(Debug)]
pub struct StateFiller<P: PageStore> {
    state: State<P>,
    batch: Changes,
    batch_bytes: usize,
    accounts: u64,
    needs_code: bool,
}

impl<P: PageStore> StateFiller<P> {
    /// With `needs_code`, accounts whose code is not given along with its hash are refused.
    pub fn new(state: State<P>, needs_code: bool) -> Self {
        Self { state, batch: Changes::default(), batch_bytes: 0, accounts: 0, needs_code }
    }

    /// Reads a document as [`read_state_file`] does. `progress` is told how many accounts there
    /// were, and the last one.
    ///
    /// # Errors
    /// If the document is none, or an account of it is refused.
    pub fn read(
        &mut self,
        input: impl Read,
        mut progress: impl FnMut(u64, Address),
    ) -> Result<StateFile, StateFileError<FillError>> {
        read_state_file(input, |address, change| {
            self.take(address, change, &mut progress)?;
            if self.batch_bytes >= BATCH_BYTES {
                self.batch_bytes = 0;
                self.state.apply(&mem::take(&mut self.batch))?;
                self.state.commit()?;
            }
            Ok(())
        })
    }

    /// Ends: the state is that of a block, and has to have a root, if anybody said which.
    ///
    /// # Errors
    /// [`FillError::Root`], or the state fails.
    pub fn finish(
        mut self,
        block: BlockId,
        expected: Option<B256>,
    ) -> Result<FilledState, FillError> {
        self.state.apply(&self.batch)?;
        let expected = expected.filter(|_| self.state.has_mpt());
        let got = self.state.root();
        if let Some(expected) = expected.filter(|expected| *expected != got) {
            return Err(FillError::Root { expected, got });
        }
        if block.number == 0 && block.hash != [0; 32] {
            self.state.set_genesis(block.hash.into());
        }
        self.state.seal(block)?;
        self.state.commit()?;
        // Without mpt it is known of the last block sealed alone.
        let root = self.state.root();
        let commits = self.state.commit_number();
        Ok(FilledState { root, accounts: self.accounts, commits, is_checked: expected.is_some() })
    }

    fn take(
        &mut self,
        address: Address,
        change: AccountChange,
        progress: &mut impl FnMut(u64, Address),
    ) -> Result<(), FillError> {
        if self.needs_code
            && change.code.is_none()
            && let Some(hash) = change.code_hash.filter(|hash| *hash != KECCAK256_EMPTY)
        {
            return Err(FillError::NoCode { address, hash });
        }
        let code_bytes = change.code.as_ref().map_or(0, |code| code.len());
        self.batch_bytes += ACCOUNT_BYTES + code_bytes + SLOT_BYTES * change.storage.len();
        let again = self.batch.accounts.insert(address, Change::Written(change)).is_some();
        if again || self.state.account(address)?.is_some() {
            return Err(FillError::Twice(address));
        }
        self.accounts += 1;
        progress(self.accounts, address);
        Ok(())
    }
}
