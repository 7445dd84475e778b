//! A state that notes what is asked of it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_state::{Account, Changes, EMPTY_CODE_HASH, State, StateError, StateRead};
use spinney_tree::PageStore;

use crate::world::{SealedBlock, WorldState};

/// What was asked, and done, since somebody took it.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub(super) keys: Keys,
    pub(super) codes: Codes,
    /// Code by its hash.
    pub(super) code: BTreeMap<B256, Bytes>,
    /// The layers that were applied.
    pub(super) applied: Vec<Changes>,
}

/// Accounts and slots that were looked up.
#[derive(Debug, Default)]
pub(super) struct Keys(pub(super) BTreeMap<Address, BTreeSet<B256>>);

impl Keys {
    pub(super) fn slot(&mut self, address: Address, slot: B256) {
        self.0.entry(address).or_default().insert(slot);
    }

    /// In order of their bytes, each once.
    pub(super) fn sorted(&self) -> Vec<Bytes> {
        let mut keys: Vec<_> = self.by_account();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Each address followed by its slots.
    pub(super) fn by_account(&self) -> Vec<Bytes> {
        let mut keys = Vec::new();
        for (address, slots) in &self.0 {
            keys.push(Bytes::copy_from_slice(address.as_slice()));
            keys.extend(slots.iter().map(|slot| Bytes::copy_from_slice(slot.as_slice())));
        }
        keys
    }
}

/// Which code was read, and what of it is in a witness.
#[derive(Debug, Default)]
pub(super) struct Codes {
    /// What accounts had when they were first looked up: before the block.
    before: BTreeMap<Address, B256>,
    /// By hash: whether an account that had it before the block was read.
    read: BTreeMap<B256, Option<Address>>,
}

impl Codes {
    pub(super) fn account(&mut self, address: Address, account: Option<&Account>) {
        let hash = account.map_or(EMPTY_CODE_HASH, |account| account.code_hash);
        self.before.entry(address).or_insert(hash);
    }

    pub(super) fn read(&mut self, address: Address, hash: B256, written: bool) {
        let had = !written && self.before.get(&address) == Some(&hash);
        let read = self.read.entry(hash).or_default();
        if had {
            read.get_or_insert(address);
        }
    }

    /// An account that had this code when it was first looked up.
    pub(super) fn account_of(&self, hash: &B256) -> Option<Address> {
        let mut accounts = self.before.iter();
        accounts.find(|(_, before)| *before == hash).map(|(address, _)| *address)
    }

    /// The code that belongs into a witness, by hash, and an account that was read for it.
    pub(super) fn wanted(&self) -> impl Iterator<Item = (&B256, &Address)> {
        self.read.iter().filter_map(|(hash, had)| Some((hash, had.as_ref()?)))
    }

    /// Code that was read and does not belong into a witness: the block made it.
    pub(super) fn others(&self) -> impl Iterator<Item = &B256> {
        self.read.iter().filter(|(_, had)| had.is_none()).map(|(hash, _)| hash)
    }
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
        let account = self.state.account(address)?;
        let mut record = self.record.borrow_mut();
        record.keys.0.entry(address).or_default();
        record.codes.account(address, account.as_ref());
        Ok(account)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        self.record.borrow_mut().keys.slot(address, slot);
        self.state.storage(address, slot)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateError> {
        let code = self.state.code(hash)?;
        if let Some(code) = code.as_ref().filter(|_| hash != EMPTY_CODE_HASH) {
            self.record.borrow_mut().code.insert(hash, code.clone());
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

    fn code_read(&self, address: Address, hash: B256, written: bool) {
        self.record.borrow_mut().codes.read(address, hash, written);
    }

    fn tree_root(&self, tree: &str) -> Option<B256> {
        WorldState::tree_root(&self.state, tree)
    }

    fn commit(&mut self) -> Result<(), StateError> {
        WorldState::commit(&mut self.state)
    }
}
