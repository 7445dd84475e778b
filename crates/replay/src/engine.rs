//! The engine's state as one that a replay drives, a block at a time or in chunks.

use alloy_primitives::{Address, B256};
use spinney_state::{Changes, Chunks, MPT, Reader, State, StateError};
use spinney_tree::{BlockId, PageStore};

use crate::witness::{Before, keep_witness};
use crate::world::{CommittedState, SealedBlock, WorldState};

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
        let wanted = block.reads.filter(|_| self.keeps_witnesses());
        let reads = wanted.map(|reads| (reads, Before::sealed(self)));
        Self::seal(self, block.id())?;
        reads.map_or(Ok(()), |(reads, before)| keep_witness(self, &before, block, reads))
    }

    fn is_full(&self) -> bool {
        Self::is_full(self)
    }

    fn own_root(&self) -> Option<B256> {
        (!self.has_mpt()).then(|| self.root())
    }

    fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        Self::has_storage(self, address)
    }

    fn slots(&self, address: Address) -> Result<Option<Vec<B256>>, StateError> {
        Self::slots(self, address)
    }

    fn tree_root(&self, tree: &str) -> Option<B256> {
        let mut beside = self.trees().into_iter().filter(|held| held.id != MPT);
        Some(beside.find(|beside| beside.scheme.to_string() == tree)?.root)
    }

    fn commit(&mut self) -> Result<(), StateError> {
        Self::commit(self).map(drop)
    }

    fn unsettled(&self) -> usize {
        self.store().unsettled()
    }

    fn settle(&mut self) -> Result<(), StateError> {
        Self::settle(self)
    }
}

impl<P: PageStore> CommittedState for Reader<P> {
    fn refresh(&self) -> Option<u64> {
        Self::refresh(self).map(|block| block.number)
    }
}

impl<P: PageStore> WorldState for Chunks<P> {
    fn apply(&mut self, changes: &Changes) -> Result<B256, StateError> {
        Self::apply(self, changes)
    }

    fn apply_last(&mut self, changes: &Changes, root: Option<B256>) -> Result<B256, StateError> {
        self.gather(changes, root)
    }

    fn own_root(&self) -> Option<B256> {
        self.state().own_root()
    }

    fn is_full(&self) -> bool {
        Self::is_full(self)
    }

    fn layer_count(&self) -> usize {
        Self::layer_count(self)
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), StateError> {
        Self::undo_to(self, layer_count)
    }

    fn seal(&mut self, block: &SealedBlock<'_>) -> Result<(), StateError> {
        Self::seal(self, block.id())
    }

    fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        Self::has_storage(self, address)
    }

    fn tree_root(&self, tree: &str) -> Option<B256> {
        self.state().tree_root(tree)
    }

    fn commit(&mut self) -> Result<(), StateError> {
        Self::commit(self)
    }
}

impl SealedBlock<'_> {
    /// A state difference names no hash; zeros stand for it.
    fn id(&self) -> BlockId {
        BlockId { number: self.number, hash: self.hash.unwrap_or_default().0 }
    }
}
