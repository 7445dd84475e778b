//! Which nodes beside all paths a block needs: the siblings that its deletions leave alone.
//!
//! The shape of the tries says it, and no digest: so nothing is hashed here, only tries that
//! something goes from are looked at, and new leaves are stand-ins.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256};
use spinney_state::{AccountChange, Change, Changes};
use spinney_tree::mpt::partial::PartialTrie;

use super::{
    WitnessStateError,
    nodes::{Does, Place, StateNodes, TrieNodes},
    partial_state::PartialState,
};

/// What is put where only the shape counts.
const STAND_IN: &[u8] = &[1];

pub(super) struct Collapses<'a, N> {
    nodes: &'a N,
    before: PartialState,
    accounts: PartialTrie,
    storages: BTreeMap<Address, PartialTrie>,
}

impl<'a, N: StateNodes> Collapses<'a, N> {
    pub(super) fn new(nodes: &'a N, root: B256) -> Self {
        let (accounts, before) = (PartialTrie::new(root.0), PartialState::new(root));
        Self { nodes, before, accounts, storages: BTreeMap::new() }
    }

    /// Asks for all nodes that layers of changes, one upon another, need.
    pub(super) fn ask(&mut self, layers: &[Changes]) -> Result<(), WitnessStateError> {
        // What is not deleted from now need not be looked at, unless it is later.
        let is_only = layers.len() == 1;
        layers.iter().try_for_each(|changes| self.layer(changes, is_only))
    }

    fn layer(&mut self, changes: &Changes, is_only: bool) -> Result<(), WitnessStateError> {
        let mut gone = Vec::new();
        for (address, change) in &changes.accounts {
            match change {
                Change::Deleted => {
                    self.storages.insert(*address, PartialTrie::default());
                    gone.push(address);
                }
                Change::Written(change) => self.storage(*address, change, is_only)?,
            }
        }
        if gone.is_empty() && is_only {
            return Ok(());
        }
        for (address, _) in
            changes.accounts.iter().filter(|(_, change)| **change != Change::Deleted)
        {
            let place = Place::of(*address, None, Does::Write);
            let source = TrieNodes { nodes: self.nodes, place };
            let put = self.accounts.put(&source, &place.key.0, STAND_IN);
            put.map_err(|error| place.failed(error))?;
        }
        for address in gone {
            let place = Place::of(*address, None, Does::Write);
            let source = TrieNodes { nodes: self.nodes, place };
            let deleted = self.accounts.delete(&source, &place.key.0);
            deleted.map_err(|error| place.failed(error))?;
        }
        Ok(())
    }

    fn storage(
        &mut self,
        address: Address,
        change: &AccountChange,
        is_only: bool,
    ) -> Result<(), WitnessStateError> {
        if change.fresh {
            self.storages.insert(address, PartialTrie::default());
        }
        let clears = change.storage.values().any(|value| value.is_zero());
        if change.storage.is_empty() || (is_only && !clears) {
            return Ok(());
        }
        let nodes = self.nodes;
        if !self.storages.contains_key(&address) {
            let account = self.before.account(nodes, address, Does::Write)?;
            let trie = account.map(|account| PartialTrie::new(account.storage_root.0));
            self.storages.insert(address, trie.unwrap_or_default());
        }
        let Some(storage) = self.storages.get_mut(&address) else { return Ok(()) };
        let (cleared, set): (Vec<_>, Vec<_>) =
            change.storage.iter().partition(|(_, value)| value.is_zero());
        for (slot, _) in set {
            let place = Place::of(address, Some(*slot), Does::Write);
            let put = storage.put(&TrieNodes { nodes, place }, &place.key.0, STAND_IN);
            put.map_err(|error| place.failed(error))?;
        }
        for (slot, _) in cleared {
            let place = Place::of(address, Some(*slot), Does::Write);
            let deleted = storage.delete(&TrieNodes { nodes, place }, &place.key.0);
            deleted.map_err(|error| place.failed(error))?;
        }
        Ok(())
    }
}
