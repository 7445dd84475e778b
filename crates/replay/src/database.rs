//! A state as revm reads it.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256};
use revm::{
    Database, DatabaseRef, bytecode::Bytecode, database_interface::DBErrorMarker,
    state::AccountInfo,
};
use spinney_state::{Account, StateRead};

/// Any state as a database of revm: over the Merkle Patricia trie, a binary tree or a Verkle tree,
/// at the head or at an earlier block. What revm does to the accounts stays in revm.
///
/// ```
/// use alloy_primitives::{Address, U256};
/// use revm::DatabaseRef as _;
/// use spinney_replay::StateDatabase;
/// use spinney_state::State;
/// use spinney_tree::MemoryStore;
///
/// let database = StateDatabase::new(State::open(MemoryStore::new(), 1 << 20)?);
/// assert!(database.basic_ref(Address::ZERO)?.is_none());
/// assert!(database.storage_ref(Address::ZERO, U256::ZERO)?.is_zero());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// `examples/revm.rs` calls a contract in a store.
#[derive(Clone, Debug, Default)]
pub struct StateDatabase<S> {
    state: S,
    hashes: BTreeMap<u64, B256>,
}

/// Why revm could not read. `E` is the error of the state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatabaseError<E: std::error::Error + 'static> {
    /// Nobody said what hash the block has: see [`StateDatabase::with_hash`].
    #[error("the hash of block {0} is not known")]
    BlockHash(u64),
    /// An account has code that the state does not hold.
    #[error("the state has no code {0}")]
    Code(B256),
    /// The state failed.
    #[error(transparent)]
    State(E),
}

impl<E: std::error::Error + Send + Sync + 'static> DBErrorMarker for DatabaseError<E> {}

impl<S> StateDatabase<S> {
    /// Reads a state.
    pub const fn new(state: S) -> Self {
        Self { state, hashes: BTreeMap::new() }
    }

    /// Says what hash a block has, for contracts that ask.
    #[must_use]
    pub fn with_hash(mut self, number: u64, hash: B256) -> Self {
        self.hashes.insert(number, hash);
        self
    }

    /// The state.
    pub const fn state(&self) -> &S {
        &self.state
    }

    /// Gives the state back.
    pub fn into_state(self) -> S {
        self.state
    }
}

impl<S: StateRead> DatabaseRef for StateDatabase<S> {
    type Error = DatabaseError<S::Error>;

    fn basic_ref(&self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        let account = self.state.account(address).map_err(DatabaseError::State)?;
        Ok(account.map(account_info))
    }

    fn code_by_hash_ref(&self, hash: B256) -> Result<Bytecode, Self::Error> {
        let code = self.state.code(hash).map_err(DatabaseError::State)?;
        code.map(bytecode).ok_or(DatabaseError::Code(hash))
    }

    fn storage_ref(&self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        self.state.storage(address, slot.into()).map_err(DatabaseError::State)
    }

    fn block_hash_ref(&self, number: u64) -> Result<B256, Self::Error> {
        self.hashes.get(&number).copied().ok_or(DatabaseError::BlockHash(number))
    }
}

impl<S: StateRead> Database for StateDatabase<S> {
    type Error = DatabaseError<S::Error>;

    fn basic(&mut self, address: Address) -> Result<Option<AccountInfo>, Self::Error> {
        self.basic_ref(address)
    }

    fn code_by_hash(&mut self, hash: B256) -> Result<Bytecode, Self::Error> {
        self.code_by_hash_ref(hash)
    }

    fn storage(&mut self, address: Address, slot: U256) -> Result<U256, Self::Error> {
        self.storage_ref(address, slot)
    }

    fn block_hash(&mut self, number: u64) -> Result<B256, Self::Error> {
        self.block_hash_ref(number)
    }
}

pub(crate) const fn account_info(account: Account) -> AccountInfo {
    AccountInfo {
        balance: account.balance,
        nonce: account.nonce,
        code_hash: account.code_hash,
        account_id: None,
        code: None,
    }
}

/// Code from before EIP-3541 may start like a delegation without being one.
pub(crate) fn bytecode(code: Bytes) -> Bytecode {
    Bytecode::new_raw_checked(code.clone()).unwrap_or_else(|_| Bytecode::new_legacy(code))
}
