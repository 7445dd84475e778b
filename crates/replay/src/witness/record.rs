//! A state that notes what is asked of it.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_state::{Account, Changes, EMPTY_CODE_HASH, StateRead};

use crate::world::{SealedBlock, WorldState};

/// What a block asked of the state and of the chain before it: its witness is made of that, by
/// [`WitnessMaker`](crate::WitnessMaker) or by a state that
/// [keeps witnesses](spinney_state::State::keep_witnesses).
#[derive(Debug, Default)]
pub struct BlockReads {
    pub(super) keys: Keys,
    pub(super) codes: Codes,
    /// Code by its hash.
    pub(super) code: BTreeMap<B256, Bytes>,
    /// The layers that were applied; none where all that the block did is one.
    pub(super) applied: Vec<Changes>,
    /// Headers in RLP up to its parent, from the oldest whose hash it was told; `None` where one of
    /// them is not known.
    pub(crate) headers: Option<Vec<Bytes>>,
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

/// A state that notes what is asked of it, if that is wanted.
#[derive(Debug)]
pub(crate) struct Recorder<'a, S> {
    state: &'a mut S,
    reads: Option<RefCell<BlockReads>>,
}

impl<'a, S> Recorder<'a, S> {
    pub(crate) fn new(state: &'a mut S, wanted: bool) -> Self {
        Self { state, reads: wanted.then(RefCell::default) }
    }

    pub(crate) fn into_reads(self) -> Option<BlockReads> {
        self.reads.map(RefCell::into_inner)
    }

    fn note(&self, note: impl FnOnce(&mut BlockReads)) {
        if let Some(reads) = &self.reads {
            note(&mut reads.borrow_mut());
        }
    }
}

impl<S: WorldState> StateRead for Recorder<'_, S> {
    type Error = S::Error;

    fn account(&self, address: Address) -> Result<Option<Account>, S::Error> {
        let account = self.state.account(address)?;
        self.note(|reads| {
            reads.keys.0.entry(address).or_default();
            reads.codes.account(address, account.as_ref());
        });
        Ok(account)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, S::Error> {
        self.note(|reads| reads.keys.slot(address, slot));
        self.state.storage(address, slot)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, S::Error> {
        let code = self.state.code(hash)?;
        if let Some(code) = code.as_ref().filter(|_| hash != EMPTY_CODE_HASH) {
            self.note(|reads| drop(reads.code.insert(hash, code.clone())));
        }
        Ok(code)
    }
}

impl<S: WorldState> WorldState for Recorder<'_, S> {
    fn apply(&mut self, changes: &Changes) -> Result<B256, S::Error> {
        self.note(|reads| reads.applied.push(changes.clone()));
        self.state.apply(changes)
    }

    fn apply_last(&mut self, changes: &Changes, root: Option<B256>) -> Result<B256, S::Error> {
        self.note(|reads| {
            // The only layer is all that the block does.
            if !reads.applied.is_empty() {
                reads.applied.push(changes.clone());
            }
        });
        self.state.apply_last(changes, root)
    }

    fn own_root(&self) -> Option<B256> {
        self.state.own_root()
    }

    fn is_full(&self) -> bool {
        self.state.is_full()
    }

    fn layer_count(&self) -> usize {
        self.state.layer_count()
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), S::Error> {
        self.state.undo_to(layer_count)
    }

    fn seal(&mut self, block: &SealedBlock<'_>) -> Result<(), S::Error> {
        self.state.seal(block)
    }

    fn has_storage(&self, address: Address) -> Result<bool, S::Error> {
        // The account's leaf says it, and is noted: it was looked up before.
        self.state.has_storage(address)
    }

    fn slots(&self, address: Address) -> Result<Option<Vec<B256>>, S::Error> {
        self.state.slots(address)
    }

    fn code_read(&self, address: Address, hash: B256, written: bool) {
        self.note(|reads| reads.codes.read(address, hash, written));
        self.state.code_read(address, hash, written);
    }

    fn tree_root(&self, tree: &str) -> Option<B256> {
        self.state.tree_root(tree)
    }

    fn commit(&mut self) -> Result<(), S::Error> {
        self.state.commit()
    }

    fn read_time(&self) -> Duration {
        self.state.read_time()
    }

    fn unsettled(&self) -> usize {
        self.state.unsettled()
    }

    fn settle(&mut self) -> Result<(), S::Error> {
        self.state.settle()
    }
}
