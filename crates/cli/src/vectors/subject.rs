//! What vectors are run against: the engine over a store in memory.

use sha2::{Digest as _, Sha256};
use spinney_state::{MPT, State};
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, MemoryStore, PageStore as _, Tree};

use super::VectorError;

const CACHE_BYTES: usize = 64 << 20;

/// A tree over raw keys.
pub(super) struct Raw {
    pub(super) store: MemoryStore,
    pub(super) tree: Tree<Mpt>,
}

impl Raw {
    pub(super) fn new() -> Result<Self, VectorError> {
        let store = MemoryStore::new();
        let tree = Tree::open(Mpt, MPT, &snapshot(&store)?, CACHE_BYTES)?;
        Ok(Self { store, tree })
    }

    /// Commits a batch, and answers with the root.
    pub(super) fn commit(&mut self, batch: Batch) -> Result<[u8; 32], VectorError> {
        let pending = self.tree.prepare(&snapshot(&self.store)?, None, batch)?;
        self.tree.commit(&self.store, &pending, None)?;
        Ok(self.tree.root())
    }

    /// Commits one operation; `None` deletes.
    pub(super) fn one(
        &mut self,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<[u8; 32], VectorError> {
        let mut batch = Batch::new();
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
        self.commit(batch)
    }
}

fn snapshot(store: &MemoryStore) -> Result<spinney_tree::MemorySnapshot, VectorError> {
    Ok(store.snapshot().map_err(spinney_tree::TreeError::from)?)
}

/// A state.
pub(super) fn state() -> Result<State<MemoryStore>, VectorError> {
    let mut state = State::open(MemoryStore::new(), CACHE_BYTES)?;
    state.keep_preimages(false);
    Ok(state)
}

/// The digest that generated vectors take their bytes from: SHA-256 of a tag and a number.
pub(super) fn drawn(tag: &str, number: u64) -> [u8; 32] {
    Sha256::new().chain_update(tag).chain_update(number.to_be_bytes()).finalize().into()
}
