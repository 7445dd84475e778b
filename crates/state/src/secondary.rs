//! The trees of a state beside the Merkle Patricia trie, or without it: what the state asks of
//! each, and of all of them together.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, U256};
use spinney_tree::{
    BlockId, CommitStats, PageStore, PreparedCommit, RootRecord, SchemeId, Snapshot, Table, TreeId,
    WriteSet,
};

use crate::embed::{BackError, EmbedError, EmbeddedTree, Embedding};
use crate::error::{StateError, short};
use crate::leaf_undo::LeafUndo;
use crate::mpt_entries::MPT;
use crate::{Account, Changes};

/// The ids of trees that hold Ethereum's state; the first is that of the Merkle Patricia trie.
const IDS: std::ops::Range<u32> = MPT.0..16;

/// A state in any tree: what a set of trees asks of each. It is given what blocks did, a layer a
/// block.
pub(crate) trait StateTree<P: PageStore>: fmt::Debug + Send {
    /// The account at an address, after all layers.
    fn account(&self, store: &P, address: Address) -> Result<Option<Account>, EmbedError>;
    /// The value of a slot; zero where its account is not there.
    fn storage(&self, store: &P, address: Address, slot: B256) -> Result<U256, EmbedError>;
    /// Whether there is any slot under an address that is not zero, be the account there or not.
    fn holds_slots(&self, store: &P, address: Address) -> Result<bool, EmbedError>;
    /// Whether slots stay when their account goes.
    fn keeps_slots(&self) -> bool;
    fn root(&self) -> B256;
    fn head(&self) -> (u64, Option<BlockId>);
    fn apply(&mut self, store: &P, changes: &Changes, undo: bool) -> Result<(), EmbedError>;
    fn undo_to(&mut self, layer_count: usize);
    fn undo_of(&self, layer: usize) -> Option<&LeafUndo>;
    /// Keeps what is prepared until it is finalized, or something else is prepared.
    fn prepare_commit(
        &mut self,
        store: &P,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<CommitStats, EmbedError>;
    fn prepare_back(
        &mut self,
        store: &P,
        undo: &LeafUndo,
        block: BlockId,
        set: &mut WriteSet,
    ) -> Result<CommitStats, BackError>;
    fn finalize(&mut self);
}

/// A tree, and what of it waits for the store's commit.
#[derive(Debug)]
pub(crate) struct Preparing<S: Embedding> {
    pub(crate) tree: EmbeddedTree<S>,
    pub(crate) prepared: Option<PreparedCommit<S>>,
}

impl<S: Embedding + Send, P: PageStore> StateTree<P> for Preparing<S>
where
    S::Commit: Send,
{
    fn account(&self, store: &P, address: Address) -> Result<Option<Account>, EmbedError> {
        self.tree.view(store).account_at(self.tree.scheme(), &address)
    }

    fn storage(&self, store: &P, address: Address, slot: B256) -> Result<U256, EmbedError> {
        let view = self.tree.view(store);
        if S::KEEPS_SLOTS && view.account_at(self.tree.scheme(), &address)?.is_none() {
            return Ok(U256::ZERO);
        }
        view.slot(self.tree.scheme(), &address, &slot)
    }

    fn holds_slots(&self, store: &P, address: Address) -> Result<bool, EmbedError> {
        S::holds_slots(self.tree.scheme(), &self.tree.view(store), &address)
    }

    fn keeps_slots(&self) -> bool {
        S::KEEPS_SLOTS
    }

    fn root(&self) -> B256 {
        self.tree.root()
    }

    fn head(&self) -> (u64, Option<BlockId>) {
        (self.tree.tree().commit_number(), self.tree.tree().block())
    }

    fn apply(&mut self, store: &P, changes: &Changes, undo: bool) -> Result<(), EmbedError> {
        self.tree.apply(store, changes, undo)
    }

    fn undo_to(&mut self, layer_count: usize) {
        self.tree.undo_to(layer_count);
    }

    fn undo_of(&self, layer: usize) -> Option<&LeafUndo> {
        self.tree.undo_of(layer)
    }

    fn prepare_commit(
        &mut self,
        store: &P,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<CommitStats, EmbedError> {
        let prepared = self.tree.prepare_commit(store, block, set)?;
        let stats = prepared.stats();
        self.prepared = Some(prepared);
        Ok(stats)
    }

    fn prepare_back(
        &mut self,
        store: &P,
        undo: &LeafUndo,
        block: BlockId,
        set: &mut WriteSet,
    ) -> Result<CommitStats, BackError> {
        let snapshot = store.snapshot()?;
        let prepared = self.tree.prepare_back(&snapshot, undo, block, set)?;
        let stats = prepared.stats();
        self.prepared = Some(prepared);
        Ok(stats)
    }

    fn finalize(&mut self) {
        if let Some(prepared) = self.prepared.take() {
            self.tree.finalize(prepared);
        }
    }
}

/// One of the trees.
#[derive(Debug)]
pub(crate) struct SecondaryTree<P: PageStore> {
    pub(crate) id: TreeId,
    pub(crate) scheme: SchemeId,
    pub(crate) tree: Box<dyn StateTree<P>>,
    pub(crate) written: CommitStats,
    pub(crate) prepared: CommitStats,
    pub(crate) apply: Duration,
    pub(crate) encode: Duration,
}

impl<P: PageStore> SecondaryTree<P> {
    fn failed(&self) -> impl FnOnce(EmbedError) -> StateError + use<P> {
        beside_error(self.scheme)
    }

    fn timed<T>(
        &mut self,
        part: impl FnOnce(&mut Self) -> &mut Duration,
        f: impl FnOnce(&mut dyn StateTree<P>) -> T,
    ) -> T {
        let start = Instant::now();
        let answer = f(&mut *self.tree);
        *part(self) += start.elapsed();
        answer
    }
}

/// All trees but the Merkle Patricia trie, in order of their ids.
#[derive(Debug)]
pub(crate) struct SecondaryTrees<P: PageStore> {
    pub(crate) members: Vec<SecondaryTree<P>>,
    /// Trees of the store that nobody has added: they would be left behind.
    pub(crate) unregistered: BTreeMap<TreeId, SchemeId>,
}

impl<P: PageStore> SecondaryTrees<P> {
    /// No trees yet, and which ones the store holds.
    pub(crate) fn none_of<N: Snapshot>(snapshot: &N, has_mpt: bool) -> Result<Self, StateError> {
        let (low, high) = (IDS.start.to_be_bytes(), IDS.end.to_be_bytes());
        let mut unregistered = BTreeMap::new();
        let mut outcome = Ok(());
        snapshot.scan(Table::Roots, &low, Some(&high), &mut |key, row| {
            let id = key.try_into().map(u32::from_be_bytes).map(TreeId);
            let id = id.unwrap_or(TreeId(IDS.start));
            if has_mpt && id == MPT {
                return true;
            }
            match RootRecord::decode(id, row) {
                Ok(record) => drop(unregistered.insert(id, record.scheme)),
                Err(error) => outcome = Err(error),
            }
            outcome.is_ok()
        })?;
        outcome?;
        Ok(Self { members: Vec::new(), unregistered })
    }

    /// Whether no tree was added.
    pub(crate) fn are_none(&self) -> bool {
        self.members.is_empty()
    }

    /// Their kinds and hashes.
    pub(crate) fn schemes(&self) -> Vec<SchemeId> {
        self.members.iter().map(|member| member.scheme).collect()
    }

    /// The tree that is read where there is no Merkle Patricia trie: one in which slots go with
    /// their account, if there is one.
    pub(crate) fn main(&self) -> Option<&SecondaryTree<P>> {
        let goes = self.members.iter().find(|member| !member.tree.keeps_slots());
        goes.or_else(|| self.members.first())
    }

    /// Refuses to leave trees of the store behind.
    pub(crate) fn are_all(&self) -> Result<(), StateError> {
        match self.unregistered.is_empty() {
            true => Ok(()),
            false => Err(StateError::LeftBehind {
                trees: self.unregistered.values().map(|scheme| short(*scheme)).collect(),
            }),
        }
    }

    /// Gives all trees one layer.
    pub(crate) fn apply(
        &mut self,
        store: &P,
        changes: &Changes,
        undo: bool,
        layers: usize,
    ) -> Result<(), StateError> {
        for member in &mut self.members {
            let applied = member.timed(|m| &mut m.apply, |tree| tree.apply(store, changes, undo));
            if let Err(error) = applied.map_err(member.failed()) {
                self.undo_to(layers);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Takes back the newest layers of all trees until so many are left.
    pub(crate) fn undo_to(&mut self, layers: usize) {
        self.members.iter_mut().for_each(|member| member.tree.undo_to(layers));
    }

    /// What takes a layer back in all trees, if it was noted.
    pub(crate) fn undo_of(&self, layer: usize) -> Option<BTreeMap<TreeId, LeafUndo>> {
        let undo =
            |member: &SecondaryTree<P>| Some((member.id, member.tree.undo_of(layer)?.clone()));
        self.members.iter().map(undo).collect()
    }

    /// Puts all that was applied into a write set.
    pub(crate) fn prepare_commit(
        &mut self,
        store: &P,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<(), StateError> {
        for member in &mut self.members {
            let prepared =
                member.timed(|m| &mut m.encode, |tree| tree.prepare_commit(store, block, set));
            member.prepared = prepared.map_err(member.failed())?;
        }
        Ok(())
    }

    /// Puts what takes all trees back to a block into a write set.
    pub(crate) fn prepare_back(
        &mut self,
        store: &P,
        undo: &BTreeMap<TreeId, LeafUndo>,
        block: BlockId,
        set: &mut WriteSet,
    ) -> Result<(), StateError> {
        for member in &mut self.members {
            let Some(undo) = undo.get(&member.id) else {
                let what = format!("it does not say how to take back {}", member.scheme);
                return Err(StateError::History { block: block.number, what });
            };
            let prepared = member.tree.prepare_back(store, undo, block, set);
            member.prepared =
                prepared.map_err(|error| back_error(error, block.number, undo.root))?;
        }
        Ok(())
    }

    /// Takes up what was prepared, once the store has it. Answers what was written.
    pub(crate) fn finalize(&mut self) -> CommitStats {
        let mut written = CommitStats::default();
        for member in &mut self.members {
            member.tree.finalize();
            let prepared = std::mem::take(&mut member.prepared);
            member.written += prepared;
            written += prepared;
        }
        written
    }
}

/// Names the tree that failed.
pub(crate) fn beside_error(tree: SchemeId) -> impl FnOnce(EmbedError) -> StateError {
    move |source| StateError::Beside { tree, source: Box::new(source) }
}

/// Why a tree could not be taken back to a block.
pub(crate) fn back_error(error: BackError, block: u64, expected: B256) -> StateError {
    match error {
        BackError::Root { got } => StateError::UndoneRoot { block, expected, found: got },
        BackError::Tree(error) => error.into(),
    }
}
