//! A tree that holds a state, without its store: the last commit, and the layers above it.

use std::time::{Duration, Instant};

use alloy_primitives::B256;
use spinney_tree::{
    Batch, BlockId, PageStore, Pending, PreparedCommit, Snapshot, StoreError, Tree, TreeError,
    WriteSet,
};

use super::embedding::{Embedding, Plan, View};
use super::error::EmbedError;
use super::layers::{EmbeddedLayer, Metadata, Write, batch_of, put_note};
use crate::Changes;
use crate::lazy::LazySnapshot;
use crate::leaf_undo::LeafUndo;

#[derive(Debug)]
pub(crate) struct EmbeddedTree<S: Embedding> {
    tree: Tree<S>,
    scheme: S,
    memo: S::Memo,
    layers: Vec<EmbeddedLayer<S>>,
    /// Time spent on what changes do to the leaves.
    pub(super) planning: Duration,
}

impl<S: Embedding> EmbeddedTree<S> {
    pub(crate) fn open<N: Snapshot>(
        scheme: S,
        snapshot: &N,
        cache_bytes: usize,
    ) -> Result<Self, EmbedError> {
        let tree = Tree::open(scheme.clone(), S::TREE, snapshot, cache_bytes)?;
        Ok(Self {
            tree,
            scheme,
            memo: S::Memo::default(),
            layers: Vec::new(),
            planning: Duration::ZERO,
        })
    }

    pub(crate) const fn tree(&self) -> &Tree<S> {
        &self.tree
    }

    pub(crate) const fn scheme(&self) -> &S {
        &self.scheme
    }

    pub(crate) fn root(&self) -> B256 {
        self.top().map_or_else(|| self.tree.root(), Pending::root).into()
    }

    /// The newest layer's state.
    pub(crate) fn top(&self) -> Option<&Pending<S>> {
        self.layers.last().map(|layer| &layer.pending)
    }

    pub(crate) const fn layer_count(&self) -> usize {
        self.layers.len()
    }

    pub(crate) fn undo_to(&mut self, layer_count: usize) {
        self.layers.truncate(layer_count);
    }

    /// What takes back a layer, if that was asked for.
    pub(crate) fn undo_of(&self, layer: usize) -> Option<&LeafUndo> {
        self.layers.get(layer)?.undo.as_ref()
    }

    /// What changes do to the leaves, in no particular order.
    pub(crate) fn plan<P: PageStore>(
        &self,
        store: &P,
        changes: &Changes,
    ) -> Result<(Vec<Write>, Metadata), EmbedError> {
        let mut plan = Plan {
            view: self.view(store),
            scheme: &self.scheme,
            writes: Vec::new(),
            metadata: Metadata::default(),
            more_uses: Default::default(),
        };
        for (address, change) in &changes.accounts {
            S::plan(&mut plan, *address, change)?;
        }
        S::finish(&mut plan)?;
        Ok((plan.writes, plan.metadata))
    }

    /// Puts a layer on top of all before; with `undo` it knows what takes it back.
    pub(crate) fn apply<P: PageStore>(
        &mut self,
        store: &P,
        changes: &Changes,
        undo: bool,
    ) -> Result<(), EmbedError> {
        let start = Instant::now();
        let (writes, metadata) = self.plan(store, changes)?;
        self.planning += start.elapsed();
        let view = self.view(store);
        let pending = self.tree.prepare(&view.snapshot, self.top(), batch_of(&writes))?;
        // After the batch, which has read the pages of these leaves level by level.
        let undo = undo.then(|| view.undo_of(&writes, &metadata)).transpose()?;
        drop(view);
        self.layers.push(EmbeddedLayer { pending, metadata, undo });
        Ok(())
    }

    /// Puts all that was applied into a write set.
    pub(crate) fn prepare_commit<P: PageStore>(
        &self,
        store: &P,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<PreparedCommit<S>, EmbedError> {
        self.prepare_first(store, self.layers.len(), block, set)
    }

    /// Puts the oldest layers into a write set.
    pub(crate) fn prepare_first<P: PageStore>(
        &self,
        store: &P,
        layers: usize,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<PreparedCommit<S>, EmbedError> {
        let snapshot = store.snapshot()?;
        let layers = &self.layers[..layers];
        let none: Pending<S>;
        let pending = match layers.last() {
            Some(layer) => &layer.pending,
            None => {
                none = self.tree.prepare(&snapshot, None, Batch::new())?;
                &none
            }
        };
        let prepared = self.tree.prepare_commit(&snapshot, pending, block, set)?;
        for layer in layers {
            layer.metadata.write(S::TREE, set);
        }
        Ok(prepared)
    }

    pub(crate) fn finalize(&mut self, prepared: PreparedCommit<S>) {
        self.finalize_first(prepared, self.layers.len());
    }

    /// Takes up the oldest layers; those above them stand on what is committed now.
    pub(crate) fn finalize_first(&mut self, prepared: PreparedCommit<S>, layers: usize) {
        self.tree.finalize(prepared);
        self.layers.drain(..layers);
    }

    /// The last commit, taken back: its root has to be the one that was recorded.
    pub(crate) fn back<N: Snapshot>(
        &self,
        snapshot: &N,
        undo: &LeafUndo,
    ) -> Result<Pending<S>, BackError> {
        let mut batch = Batch::new();
        for (key, value) in &undo.leaves {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        let pending = self.tree.prepare(snapshot, None, batch)?;
        let got = B256::from(pending.root());
        if got == undo.root { Ok(pending) } else { Err(BackError::Root { got }) }
    }

    /// The same, into a write set.
    pub(crate) fn prepare_back<N: Snapshot>(
        &self,
        snapshot: &N,
        undo: &LeafUndo,
        block: BlockId,
        set: &mut WriteSet,
    ) -> Result<PreparedCommit<S>, BackError> {
        let pending = self.back(snapshot, undo)?;
        let prepared = self.tree.prepare_commit(snapshot, &pending, Some(block), set)?;
        for (key, row) in &undo.metadata {
            put_note(set, key, row.clone());
        }
        Ok(prepared)
    }

    pub(crate) fn view<'a, P: PageStore>(&'a self, store: &'a P) -> View<'a, S, P> {
        let snapshot = LazySnapshot::new(store);
        View { tree: &self.tree, layers: &self.layers, snapshot, memo: &self.memo }
    }
}

/// Why a tree could not be taken back.
#[derive(Debug)]
pub(crate) enum BackError {
    /// It came out with another root.
    Root {
        got: B256,
    },
    Tree(TreeError),
}

impl From<TreeError> for BackError {
    fn from(error: TreeError) -> Self {
        Self::Tree(error)
    }
}

impl From<StoreError> for BackError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}
