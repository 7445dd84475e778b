//! The state under a block that is executed, whatever its type: so that the execution, and the EVM
//! in it, is compiled once.

use std::cell::Cell;

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_state::{Account, Changes};

use crate::world::WorldState;

/// The state failed. It is [`Driven`] that knows why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the state failed")]
pub(crate) struct StateFailed;

/// What the execution of a block asks of a [`WorldState`].
pub(crate) trait BlockState {
    fn account(&self, address: Address) -> Result<Option<Account>, StateFailed>;
    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateFailed>;
    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateFailed>;
    fn has_storage(&self, address: Address) -> Result<bool, StateFailed>;
    fn slots(&self, address: Address) -> Result<Option<Vec<B256>>, StateFailed>;
    fn code_read(&self, address: Address, hash: B256, written: bool);
    fn apply(&mut self, changes: &Changes) -> Result<B256, StateFailed>;
    fn apply_last(&mut self, changes: &Changes, root: B256) -> Result<B256, StateFailed>;
}

/// A state that a block is executed on, and why it failed, if it did.
pub(crate) struct Driven<'s, S: WorldState> {
    state: &'s mut S,
    failed: Cell<Option<S::Error>>,
}

impl<'s, S: WorldState> Driven<'s, S> {
    pub(crate) const fn new(state: &'s mut S) -> Self {
        Self { state, failed: Cell::new(None) }
    }

    /// Why it failed first.
    pub(crate) fn into_failed(self) -> Option<S::Error> {
        self.failed.into_inner()
    }

    fn keep<T>(&self, answer: Result<T, S::Error>) -> Result<T, StateFailed> {
        answer.map_err(|error| {
            let first = self.failed.take().unwrap_or(error);
            self.failed.set(Some(first));
            StateFailed
        })
    }
}

impl<S: WorldState> BlockState for Driven<'_, S> {
    fn account(&self, address: Address) -> Result<Option<Account>, StateFailed> {
        self.keep(self.state.account(address))
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateFailed> {
        self.keep(self.state.storage(address, slot))
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateFailed> {
        self.keep(self.state.code(hash))
    }

    fn has_storage(&self, address: Address) -> Result<bool, StateFailed> {
        self.keep(self.state.has_storage(address))
    }

    fn slots(&self, address: Address) -> Result<Option<Vec<B256>>, StateFailed> {
        self.keep(self.state.slots(address))
    }

    fn code_read(&self, address: Address, hash: B256, written: bool) {
        self.state.code_read(address, hash, written);
    }

    fn apply(&mut self, changes: &Changes) -> Result<B256, StateFailed> {
        let answer = self.state.apply(changes);
        self.keep(answer)
    }

    fn apply_last(&mut self, changes: &Changes, root: B256) -> Result<B256, StateFailed> {
        let answer = self.state.apply_last(changes, Some(root));
        self.keep(answer)
    }
}
