//! A tree as it was at an earlier block.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt;

use alloy_primitives::B256;
use spinney_tree::binary::proof::KeysProof;
use spinney_tree::{BlockId, KeyProofs, PageStore, Pending};

use super::embedding::word;
use super::{BinaryState, Embedding, Word};
use crate::StateError;
use crate::keep::{is_of_last_commit, undo_after};
use crate::secondary::{back_error, beside_error};

/// A tree of a state at a kept block: see [`BinaryState::at`]. Dropping it leaves no trace.
pub struct KeptTree<'a, S: Embedding, P: PageStore> {
    state: &'a BinaryState<S, P>,
    snapshot: P::Snapshot<'a>,
    pending: Option<Pending<S>>,
    block: Option<BlockId>,
}

impl<S: Embedding, P: PageStore> fmt::Debug for KeptTree<'_, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptTree")
            .field("block", &self.block)
            .field("root", &self.root())
            .finish_non_exhaustive()
    }
}

impl<S: Embedding, P: PageStore> BinaryState<S, P> {
    /// The last commit, to be read and proven. Changes that were applied and not committed are not
    /// seen.
    ///
    /// # Errors
    /// If the store fails.
    pub fn last(&self) -> Result<KeptTree<'_, S, P>, StateError> {
        let snapshot = self.store.snapshot()?;
        Ok(KeptTree { state: self, snapshot, pending: None, block: self.tree().block() })
    }

    /// The tree at a block that the store keeps, of those that a [`State`](crate::State) committed
    /// along with it.
    ///
    /// # Errors
    /// [`StateError::NotKept`] if it is not kept; if the store fails or the history is damaged.
    pub fn at(&self, number: u64) -> Result<KeptTree<'_, S, P>, StateError> {
        let snapshot = self.store.snapshot()?;
        is_of_last_commit(&snapshot, S::TREE, self.tree().commit_number())?;
        let head = self.tree().block();
        let head = head.ok_or(StateError::NotKept { block: number, kept: None })?;
        if number == head.number {
            return Ok(KeptTree { state: self, snapshot, pending: None, block: Some(head) });
        }
        let mut back = undo_after(&snapshot, head, number)?;
        let Some(undo) = back.trees.remove(&S::TREE) else {
            let what = format!("it does not say how to take back {}", self.scheme().id());
            return Err(StateError::History { block: number, what });
        };
        let pending = self.inner.back(&snapshot, &undo);
        let pending = pending.map_err(|error| back_error(error, number, undo.root))?;
        Ok(KeptTree { state: self, snapshot, pending: Some(pending), block: Some(back.parent) })
    }
}

impl<S: Embedding, P: PageStore> KeptTree<'_, S, P> {
    /// The tree's root.
    pub fn root(&self) -> B256 {
        let last = || self.state.tree().root();
        self.pending.as_ref().map_or_else(last, Pending::root).into()
    }

    /// Bytes of memory that it holds beside the pages of the tree.
    pub fn memory(&self) -> usize {
        self.pending.as_ref().map_or(0, Pending::memory)
    }

    /// The block whose state it is, if that is known.
    pub const fn block(&self) -> Option<BlockId> {
        self.block
    }

    /// The leaf under a key.
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn leaf(&self, key: &[u8]) -> Result<Option<Word>, StateError> {
        let value = self.state.tree().get(&self.snapshot, self.pending.as_ref(), key)?;
        let value = value.map(|value| word(key, &value)).transpose();
        value.map_err(beside_error(self.state.scheme().id()))
    }

    /// Proves keys, present or absent.
    ///
    /// # Errors
    /// If there are no keys, the tree has no such key, or the store fails or is damaged.
    pub fn prove<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<KeysProof, StateError>
    where
        S: KeyProofs,
    {
        Ok(S::prove_keys(self.state.tree(), &self.snapshot, self.pending.as_ref(), keys)?)
    }
}
