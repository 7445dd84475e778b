//! A state of which only some nodes are known.

use std::collections::BTreeMap;

use alloy_consensus::{EMPTY_ROOT_HASH, TrieAccount};
use alloy_primitives::{B256, U256, hex, keccak256};
use alloy_rlp::Decodable;
use spinney_state::{Account, AccountChange, Change, Changes};
use spinney_tree::mpt::partial::PartialTrie;

use super::WitnessStateError;
use super::nodes::{StateNodes, TrieNodes};

/// The accounts, and the storage of those that were written to.
#[derive(Clone, Debug)]
pub(super) struct PartialState {
    accounts: PartialTrie,
    storages: BTreeMap<B256, PartialTrie>,
}

impl PartialState {
    pub(super) fn new(root: B256) -> Self {
        Self { accounts: PartialTrie::new(root.0), storages: BTreeMap::new() }
    }

    /// The account under the digest of an address.
    pub(super) fn account(
        &self,
        nodes: &impl StateNodes,
        key: B256,
    ) -> Result<Option<TrieAccount>, WitnessStateError> {
        let leaf = self.accounts.get(&TrieNodes { nodes, account: None }, &key.0)?;
        leaf.map(|leaf| decode("account", key, &leaf)).transpose()
    }

    /// The value under the digests of an address and a slot.
    pub(super) fn slot(
        &self,
        nodes: &impl StateNodes,
        key: B256,
        slot: B256,
    ) -> Result<U256, WitnessStateError> {
        let Some(account) = self.account(nodes, key)? else { return Ok(U256::ZERO) };
        let closed;
        let storage = match self.storages.get(&key) {
            Some(storage) => storage,
            None => {
                closed = PartialTrie::new(account.storage_root.0);
                &closed
            }
        };
        let leaf = storage.get(&TrieNodes { nodes, account: Some(key) }, &slot.0)?;
        leaf.map_or(Ok(U256::ZERO), |leaf| decode("slot", slot, &leaf))
    }

    /// Does what a layer of changes does, and answers with the root. In each trie deletions come last, so
    /// that a sibling is asked for only where it is left alone in the end.
    pub(super) fn apply(
        &mut self,
        nodes: &impl StateNodes,
        changes: &Changes,
    ) -> Result<B256, WitnessStateError> {
        let accounts = TrieNodes { nodes, account: None };
        let mut gone = Vec::new();
        for (address, change) in &changes.accounts {
            let key = keccak256(address);
            match change {
                Change::Deleted => gone.push(key),
                Change::Written(change) => {
                    let account = self.write(nodes, key, change)?;
                    self.accounts.put(&accounts, &key.0, &alloy_rlp::encode(account))?;
                }
            }
        }
        for key in gone {
            self.accounts.delete(&accounts, &key.0)?;
            self.storages.remove(&key);
        }
        Ok(self.accounts.root().into())
    }

    fn write(
        &mut self,
        nodes: &impl StateNodes,
        key: B256,
        change: &AccountChange,
    ) -> Result<TrieAccount, WitnessStateError> {
        let old = if change.fresh { None } else { self.account(nodes, key)? };
        if old.is_none() {
            self.storages.remove(&key);
        }
        let empty = Account::EMPTY;
        let mut account = old.unwrap_or(TrieAccount {
            nonce: empty.nonce,
            balance: empty.balance,
            storage_root: EMPTY_ROOT_HASH,
            code_hash: empty.code_hash,
        });
        account.nonce = change.nonce.unwrap_or(account.nonce);
        account.balance = change.balance.unwrap_or(account.balance);
        account.code_hash = change.code_hash.unwrap_or(account.code_hash);
        if change.storage.is_empty() {
            return Ok(account);
        }
        let closed = || PartialTrie::new(account.storage_root.0);
        let storage = self.storages.entry(key).or_insert_with(closed);
        let source = TrieNodes { nodes, account: Some(key) };
        let (cleared, set): (Vec<_>, Vec<_>) =
            change.storage.iter().partition(|(_, value)| value.is_zero());
        for (slot, value) in set {
            storage.put(&source, &keccak256(slot).0, &alloy_rlp::encode(value))?;
        }
        for (slot, _) in cleared {
            storage.delete(&source, &keccak256(slot).0)?;
        }
        account.storage_root = storage.root().into();
        Ok(account)
    }
}

fn decode<T: Decodable>(what: &str, key: B256, leaf: &[u8]) -> Result<T, WitnessStateError> {
    alloy_rlp::decode_exact(leaf).map_err(|_| WitnessStateError::Leaf {
        what: format!("{what} {key}"),
        bytes: hex::encode(leaf),
    })
}
