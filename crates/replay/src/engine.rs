//! The engine's state as one that a replay drives.

use alloy_primitives::{Address, B256};
use spinney_state::{Changes, State, StateError};
use spinney_tree::{BlockId, PageStore};

use crate::world::{SealedBlock, WorldState};

impl<P: PageStore> WorldState for State<P> {
    fn apply(&mut self, changes: &Changes) -> Result<B256, StateError> {
        Self::apply(self, changes)
    }

    fn layer_count(&self) -> usize {
        Self::layer_count(self)
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), StateError> {
        Self::undo_to(self, layer_count);
        Ok(())
    }

    fn seal(&mut self, block: &SealedBlock<'_>) -> Result<(), StateError> {
        // A state difference names no hash; zeros stand for it.
        let hash = block.hash.unwrap_or_default().0;
        Self::seal(self, BlockId { number: block.number, hash })
    }

    fn slots(&self, address: Address) -> Result<Option<Vec<B256>>, StateError> {
        Self::slots(self, address)
    }

    fn tree_root(&self, tree: &str) -> Option<B256> {
        let mut beside = self.trees().into_iter().skip(1);
        Some(beside.find(|beside| beside.scheme.to_string() == tree)?.root)
    }

    fn commit(&mut self) -> Result<(), StateError> {
        Self::commit(self).map(drop)
    }
}
