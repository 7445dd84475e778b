//! A state that notes what is asked of it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_state::{Account, Changes, EMPTY_CODE_HASH, State, StateError, StateRead};
use spinney_tree::PageStore;

use crate::world::{SealedBlock, WorldState};

/// What was asked, and done, since somebody took it.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// Addresses with their slots.
    pub(super) keys: BTreeMap<Address, BTreeSet<B256>>,
    pub(super) codes: BTreeMap<B256, Bytes>,
    /// The layers that were applied.
    pub(super) applied: Vec<Changes>,
}

#[derive(Debug)]
pub(super) struct Recorder<P: PageStore> {
    pub(super) state: State<P>,
    record: RefCell<Record>,
}

impl<P: PageStore> Recorder<P> {
    pub(super) fn new(state: State<P>) -> Self {
        Self { state, record: RefCell::default() }
    }

    pub(super) fn take(&self) -> Record {
        self.record.take()
    }
}

impl<P: PageStore> StateRead for Recorder<P> {
    type Error = StateError;

    fn account(&self, address: Address) -> Result<Option<Account>, StateError> {
        self.record.borrow_mut().keys.entry(address).or_default();
        self.state.account(address)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        self.record.borrow_mut().keys.entry(address).or_default().insert(slot);
        self.state.storage(address, slot)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateError> {
        let code = self.state.code(hash)?;
        if let Some(code) = code.as_ref().filter(|_| hash != EMPTY_CODE_HASH) {
            self.record.borrow_mut().codes.insert(hash, code.clone());
        }
        Ok(code)
    }
}

impl<P: PageStore> WorldState for Recorder<P> {
    fn apply(&mut self, changes: &Changes) -> Result<B256, StateError> {
        self.record.get_mut().applied.push(changes.clone());
        self.state.apply(changes)
    }

    fn layer_count(&self) -> usize {
        self.state.layer_count()
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), StateError> {
        WorldState::undo_to(&mut self.state, layer_count)
    }

    fn seal(&mut self, block: &SealedBlock<'_>) -> Result<(), StateError> {
        WorldState::seal(&mut self.state, block)
    }

    fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        // The account's leaf says it, and is in the record: it was looked up before.
        self.state.has_storage(address)
    }

    fn tree_root(&self, tree: &str) -> Option<B256> {
        WorldState::tree_root(&self.state, tree)
    }

    fn commit(&mut self) -> Result<(), StateError> {
        WorldState::commit(&mut self.state)
    }
}
