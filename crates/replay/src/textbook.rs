use std::{collections::BTreeMap, convert::Infallible};

use alloy_consensus::{
    EMPTY_ROOT_HASH, TrieAccount,
    proofs::{state_root, storage_root},
};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256, map::B256Map};

use spinney_state::{Account, AccountChange, Change, Changes, EMPTY_CODE_HASH, StateRead};

use crate::world::{SealedBlock, WorldState};

/// A state in memory that is obviously right and slow: maps, and roots computed from all accounts.
/// An oracle for tests, and good for short chains.
#[derive(Clone, Debug, Default)]
pub struct TextbookState {
    /// By the hash of the address, which is the order of the trie.
    accounts: BTreeMap<B256, TextbookAccount>,
    /// Code is never removed: undoing leaves some that nobody refers to.
    codes: B256Map<Bytes>,
    /// For each layer, what its accounts were before.
    layers: Vec<Vec<(B256, Option<TextbookAccount>)>>,
    /// Layers that belong to sealed blocks.
    sealed: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct TextbookAccount {
    address: Address,
    account: Account,
    /// By the hash of the slot, which is the order of the trie.
    storage: BTreeMap<B256, (B256, U256)>,
    storage_root: B256,
}

impl TextbookState {
    /// A state without accounts.
    pub fn new() -> Self {
        Self::default()
    }

    /// The root of the Merkle Patricia trie.
    pub fn root(&self) -> B256 {
        state_root(self.accounts.iter().map(|(key, entry)| {
            let Account { nonce, balance, code_hash } = entry.account;
            let storage_root = entry.storage_root;
            (*key, TrieAccount { nonce, balance, storage_root, code_hash })
        }))
    }

    /// All accounts with their storage, in no particular order.
    pub fn accounts(&self) -> impl Iterator<Item = (Address, Account, BTreeMap<B256, U256>)> {
        self.accounts
            .values()
            .map(|entry| (entry.address, entry.account, entry.storage.values().copied().collect()))
    }

    fn write(&mut self, address: Address, change: &AccountChange) {
        let key = keccak256(address);
        if change.fresh {
            self.accounts.remove(&key);
        }
        let entry = self.accounts.entry(key).or_insert_with(|| TextbookAccount {
            address,
            account: Account::EMPTY,
            storage: BTreeMap::new(),
            storage_root: EMPTY_ROOT_HASH,
        });
        if let Some(nonce) = change.nonce {
            entry.account.nonce = nonce;
        }
        if let Some(balance) = change.balance {
            entry.account.balance = balance;
        }
        if let Some(code_hash) = change.code_hash {
            entry.account.code_hash = code_hash;
            if let Some(code) = &change.code {
                self.codes.insert(code_hash, code.clone());
            }
        }
        for (slot, value) in &change.storage {
            let key = keccak256(slot);
            if value.is_zero() {
                entry.storage.remove(&key);
            } else {
                entry.storage.insert(key, (*slot, *value));
            }
        }
        if !change.storage.is_empty() {
            let slots = entry.storage.iter().map(|(key, (_, value))| (*key, *value));
            entry.storage_root = storage_root(slots);
        }
    }
}

/// Whether two states hold the same accounts: code and layers do not count.
impl PartialEq for TextbookState {
    fn eq(&self, other: &Self) -> bool {
        self.accounts == other.accounts
    }
}

impl StateRead for TextbookState {
    type Error = Infallible;

    fn account(&self, address: Address) -> Result<Option<Account>, Infallible> {
        Ok(self.accounts.get(&keccak256(address)).map(|entry| entry.account))
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, Infallible> {
        let entry = self.accounts.get(&keccak256(address));
        let slot = entry.and_then(|entry| entry.storage.get(&keccak256(slot)));
        Ok(slot.map_or(U256::ZERO, |(_, value)| *value))
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, Infallible> {
        if hash == EMPTY_CODE_HASH {
            return Ok(Some(Bytes::new()));
        }
        Ok(self.codes.get(&hash).cloned())
    }
}

impl WorldState for TextbookState {
    fn apply(&mut self, changes: &Changes) -> Result<B256, Infallible> {
        let mut layer = Vec::with_capacity(changes.accounts.len());
        for (address, change) in &changes.accounts {
            let key = keccak256(address);
            layer.push((key, self.accounts.get(&key).cloned()));
            match change {
                Change::Deleted => {
                    self.accounts.remove(&key);
                }
                Change::Written(change) => self.write(*address, change),
            }
        }
        self.layers.push(layer);
        Ok(self.root())
    }

    fn layer_count(&self) -> usize {
        self.layers.len()
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), Infallible> {
        for layer in self.layers.drain(layer_count..).rev() {
            for (key, before) in layer {
                match before {
                    Some(entry) => self.accounts.insert(key, entry),
                    None => self.accounts.remove(&key),
                };
            }
        }
        Ok(())
    }

    fn has_storage(&self, address: Address) -> Result<bool, Infallible> {
        let entry = self.accounts.get(&keccak256(address));
        Ok(entry.is_some_and(|entry| !entry.storage.is_empty()))
    }

    fn slots(&self, address: Address) -> Result<Option<Vec<B256>>, Infallible> {
        let entry = self.accounts.get(&keccak256(address));
        Ok(Some(entry.map_or_else(Vec::new, |entry| {
            entry.storage.values().map(|(slot, _)| *slot).collect()
        })))
    }

    fn seal(&mut self, _: &SealedBlock<'_>) -> Result<(), Infallible> {
        self.sealed = self.layers.len();
        Ok(())
    }

    fn commit(&mut self) -> Result<(), Infallible> {
        assert_eq!(self.sealed, self.layers.len(), "committed inside a block");
        self.layers.clear();
        self.sealed = 0;
        Ok(())
    }
}
