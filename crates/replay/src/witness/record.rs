//! A state that notes what is asked of it.

use std::{cell::RefCell, time::Duration};

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_state::{Account, Changes, EMPTY_CODE_HASH, StateRead};

use super::reads::BlockReads;
use crate::world::{SealedBlock, WorldState};

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
