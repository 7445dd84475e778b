//! What a block, or a transaction, does to the state; and how an executor reads the state.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256};

use crate::Account;

/// The changes of a transaction, a block or a range of blocks: at most one entry an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What became of each account.
    pub accounts: BTreeMap<Address, Change>,
}

/// What became of one account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is gone, with all of its storage.
    Deleted,
    /// It exists afterwards, even when it is empty.
    Written(AccountChange),
}

/// The fields of an account that changed. An account that was absent before is created, with empty
/// fields for those not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountChange {
    /// All that the account had before is dropped first: it was destroyed and made again.
    pub fresh: bool,
    /// The new nonce.
    pub nonce: Option<u64>,
    /// The new balance in wei.
    pub balance: Option<U256>,
    /// The new code hash; its bytes are in `code`, unless only the hash is known.
    pub code_hash: Option<B256>,
    /// The new code, whose digest is `code_hash`.
    pub code: Option<Bytes>,
    /// New values of slots; zero clears a slot.
    pub storage: BTreeMap<B256, U256>,
}

/// Reads the state that an execution starts from.
pub trait StateRead {
    /// Why a read failed.
    type Error: std::error::Error + Send + Sync + 'static;

    /// The account, or `None` where there is none. An empty account that was written is `Some`.
    fn account(&self, address: Address) -> Result<Option<Account>, Self::Error>;

    /// The value of a slot; zero where it was never written or was cleared.
    fn storage(&self, address: Address, slot: B256) -> Result<U256, Self::Error>;

    /// The code with this Keccak-256 digest, or `None` where it was never written.
    fn code(&self, hash: B256) -> Result<Option<Bytes>, Self::Error>;
}
