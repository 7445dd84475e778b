//! A state of which only some nodes are known.

use std::{cell::RefCell, collections::BTreeMap};

use alloy_consensus::{EMPTY_ROOT_HASH, TrieAccount};
use alloy_primitives::{Address, B256, U256, hex};
use alloy_rlp::Decodable;
use spinney_state::{Account, AccountChange, Change, Changes};
use spinney_tree::mpt::partial::{PartialError, PartialTrie};

use super::{
    WitnessStateError,
    nodes::{Does, Place, StateNodes, TrieNodes},
};

/// The accounts, and the storage of those that were written to.
#[derive(Clone, Debug)]
pub(super) struct PartialState {
    accounts: PartialTrie,
    storages: BTreeMap<Address, PartialTrie>,
    /// The account whose slot was read last: most often it is the next one's too.
    last: RefCell<Option<(Address, Option<TrieAccount>)>>,
}

impl PartialState {
    pub(super) fn new(root: B256) -> Self {
        let accounts = PartialTrie::new(root.0);
        Self { accounts, storages: BTreeMap::new(), last: RefCell::default() }
    }

    /// The account under an address.
    pub(super) fn account(
        &self,
        nodes: &impl StateNodes,
        address: Address,
        does: Does,
    ) -> Result<Option<TrieAccount>, WitnessStateError> {
        let place = Place::of(address, None, does);
        let leaf = self.accounts.get(&TrieNodes { nodes, place }, &place.key.0);
        let leaf = leaf.map_err(|error| place.failed(error))?;
        leaf.map(|leaf| decode(&place, &leaf)).transpose()
    }

    /// The value of a slot.
    pub(super) fn slot(
        &self,
        nodes: &impl StateNodes,
        address: Address,
        slot: B256,
    ) -> Result<U256, WitnessStateError> {
        let last = *self.last.borrow();
        let account = match last {
            Some((last, account)) if last == address => account,
            _ => {
                let account = self.account(nodes, address, Does::Read)?;
                self.last.replace(Some((address, account)));
                account
            }
        };
        let Some(account) = account else { return Ok(U256::ZERO) };
        let closed;
        let storage = match self.storages.get(&address) {
            Some(storage) => storage,
            None => {
                closed = PartialTrie::new(account.storage_root.0);
                &closed
            }
        };
        let place = Place::of(address, Some(slot), Does::Read);
        let leaf = storage.get(&TrieNodes { nodes, place }, &place.key.0);
        let leaf = leaf.map_err(|error| place.failed(error))?;
        leaf.map_or(Ok(U256::ZERO), |leaf| decode(&place, &leaf))
    }

    /// Does what a layer of changes does, and answers with the root. In each trie deletions come
    /// last, so that a sibling is asked for only where it is left alone in the end.
    pub(super) fn apply(
        &mut self,
        nodes: &impl StateNodes,
        changes: &Changes,
    ) -> Result<B256, WitnessStateError> {
        self.last.take();
        let mut lacks = Lacks { goes_on: nodes.goes_on(), first: None };
        let mut gone = Vec::new();
        for (address, change) in &changes.accounts {
            let place = Place::of(*address, None, Does::Write);
            match change {
                Change::Deleted => gone.push(place),
                Change::Written(change) => {
                    let written = self.write(nodes, *address, change, &mut lacks);
                    let Some(account) = lacks.of(written)? else { continue };
                    let source = TrieNodes { nodes, place };
                    let put = self.accounts.put(&source, &place.key.0, &alloy_rlp::encode(account));
                    lacks.of(put.map_err(|error| place.failed(error)))?;
                }
            }
        }
        for place in gone {
            let deleted = self.accounts.delete(&TrieNodes { nodes, place }, &place.key.0);
            lacks.of(deleted.map_err(|error| place.failed(error)))?;
            self.storages.remove(&place.account);
        }
        lacks.first.map_or_else(|| Ok(self.accounts.root().into()), Err)
    }

    fn write(
        &mut self,
        nodes: &impl StateNodes,
        address: Address,
        change: &AccountChange,
        lacks: &mut Lacks,
    ) -> Result<TrieAccount, WitnessStateError> {
        let old = match change.fresh {
            true => None,
            false => self.account(nodes, address, Does::Write)?,
        };
        if old.is_none() {
            self.storages.remove(&address);
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
        let storage = self.storages.entry(address).or_insert_with(closed);
        let (cleared, set): (Vec<_>, Vec<_>) =
            change.storage.iter().partition(|(_, value)| value.is_zero());
        for (slot, value) in set {
            let place = Place::of(address, Some(*slot), Does::Write);
            let source = TrieNodes { nodes, place };
            let put = storage.put(&source, &place.key.0, &alloy_rlp::encode(value));
            lacks.of(put.map_err(|error| place.failed(error)))?;
        }
        for (slot, _) in cleared {
            let place = Place::of(address, Some(*slot), Does::Write);
            let deleted = storage.delete(&TrieNodes { nodes, place }, &place.key.0);
            lacks.of(deleted.map_err(|error| place.failed(error)))?;
        }
        account.storage_root = storage.root().into();
        Ok(account)
    }
}

/// Missing nodes that were passed over.
struct Lacks {
    goes_on: bool,
    first: Option<WitnessStateError>,
}

impl Lacks {
    /// What was done; `None` if a node was missing for it, and all that is missing is wanted.
    fn of<T>(
        &mut self,
        done: Result<T, WitnessStateError>,
    ) -> Result<Option<T>, WitnessStateError> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if self.goes_on && error.is_missing() => {
                self.first.get_or_insert(error);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl WitnessStateError {
    /// Whether a node is missing, and not malformed.
    pub(super) const fn is_missing(&self) -> bool {
        matches!(self, Self::Node { source: PartialError::Missing(_), .. })
    }
}

fn decode<T: Decodable>(place: &Place, leaf: &[u8]) -> Result<T, WitnessStateError> {
    alloy_rlp::decode_exact(leaf).map_err(|_| WitnessStateError::Leaf {
        account: place.account,
        slot: place.slot,
        bytes: hex::encode(leaf),
    })
}
