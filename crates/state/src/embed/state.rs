//! Ethereum's state over a store, in one binary tree or a Verkle tree.

use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_tree::verkle::Verkle;
use spinney_tree::{
    BlockId, CommitStats, Finding, Operation, PageStore, Pending, Table, Tree, WriteSet,
};

use super::embedding::{Embedding, View};
use super::error::EmbedError;
use super::layers::Write;
use super::tree::EmbeddedTree;
use crate::history_row::AFTER_ALL;
use crate::{Account, Changes, StateRead};

/// Where the time of a [`BinaryState`] goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EmbedTimes {
    /// Deriving keys, and reading the leaves that say what changes do.
    pub keys: Duration,
    /// Applying batches and computing roots.
    pub tree: Duration,
    /// Cutting pages.
    pub encode: Duration,
    /// The store's commits.
    pub store: Duration,
}

/// Ethereum's state in a binary tree or a Verkle tree: the last commit of a store, and what was
/// applied on top of it.
///
/// What an event does is the same in all of them but for this. In a PBT an account or a slot that
/// goes is removed, and code goes with the last account that uses it. In a UBT and in a Verkle tree
/// nothing goes: an account deleted is zeros in its basic data and its code hash, and its storage
/// stays; a slot cleared is zeros, if it was ever there; of an account destroyed and made again
/// every slot is zeroed first, where geth leaves them.
///
/// ```
/// use alloy_primitives::{Address, U256};
/// use spinney_state::embed::BinaryState;
/// use spinney_state::{AccountChange, Change, Changes, StateRead};
/// use spinney_tree::{HashFunction, MemoryStore, pbt::Pbt};
///
/// let pbt = Pbt { hash: HashFunction::Blake3 };
/// let mut state = BinaryState::open(pbt, MemoryStore::new(), 1 << 20)?;
/// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
/// let mut changes = Changes::default();
/// changes.accounts.insert(Address::ZERO, Change::Written(rich));
/// let root = state.apply(&changes)?;
/// state.commit(None)?;
/// assert_eq!(state.root(), root);
/// assert_eq!(state.account(Address::ZERO)?.unwrap().balance, U256::from(5));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BinaryState<S: Embedding, P> {
    pub(crate) store: P,
    pub(crate) inner: EmbeddedTree<S>,
    times: EmbedTimes,
}

/// Ethereum's state in a Verkle tree.
///
/// ```
/// use spinney_state::embed::VerkleState;
/// use spinney_tree::{MemoryStore, verkle::Verkle};
///
/// let state = VerkleState::open(Verkle::shared(), MemoryStore::new(), 1 << 20)?;
/// assert_eq!(state.root(), [0; 32]);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub type VerkleState<P> = BinaryState<Verkle, P>;

impl<S: Embedding, P: PageStore> BinaryState<S, P> {
    /// Opens the state in a store; an empty store holds the empty state. `cache_bytes` bounds the
    /// pages kept in memory.
    ///
    /// # Errors
    /// If the store holds something else, or is damaged.
    pub fn open(scheme: S, store: P, cache_bytes: usize) -> Result<Self, EmbedError> {
        let inner = EmbeddedTree::open(scheme, &store.snapshot()?, cache_bytes)?;
        Ok(Self { store, inner, times: EmbedTimes::default() })
    }

    /// The state root, of all that was applied.
    pub fn root(&self) -> B256 {
        self.inner.root()
    }

    /// The tree at its last commit.
    pub const fn tree(&self) -> &Tree<S> {
        self.inner.tree()
    }

    /// The tree's kind and hash.
    pub const fn scheme(&self) -> &S {
        self.inner.scheme()
    }

    /// The store.
    pub const fn store(&self) -> &P {
        &self.store
    }

    /// Gives the store back; what was applied and not committed is gone.
    pub fn into_store(self) -> P {
        self.store
    }

    /// How many layers lie above the last commit.
    pub const fn layer_count(&self) -> usize {
        self.inner.layer_count()
    }

    /// Takes back the newest layers until `layer_count` are left.
    pub fn undo_to(&mut self, layer_count: usize) {
        self.inner.undo_to(layer_count);
    }

    /// What a layer of changes would do to the leaves, in no particular order. Nothing is applied.
    ///
    /// # Errors
    /// As [`apply`](Self::apply).
    pub fn writes(&self, changes: &Changes) -> Result<Vec<Write>, EmbedError> {
        Ok(self.inner.plan(&self.store, changes)?.0)
    }

    /// What was done to the tree since the last commit: see [`Pending::operations`].
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.inner.top().into_iter().flat_map(Pending::operations)
    }

    /// Puts a layer of changes on top of all applied so far, and computes the state root. Nothing
    /// is written.
    ///
    /// # Errors
    /// If a value does not fit the tree, code is not known, or the store fails. Then nothing of the
    /// changes is applied.
    pub fn apply(&mut self, changes: &Changes) -> Result<B256, EmbedError> {
        let (start, planned) = (Instant::now(), self.inner.planning);
        self.inner.apply(&self.store, changes, false)?;
        let keys = self.inner.planning - planned;
        self.times.keys += keys;
        self.times.tree += start.elapsed().saturating_sub(keys);
        Ok(self.root())
    }

    /// Makes all that was applied durable in one commit of the store, as the state of `block`. A
    /// history that the store keeps of earlier blocks goes: this keeps none.
    ///
    /// # Errors
    /// If the store fails. Then nothing is committed, and what was applied still is.
    pub fn commit(&mut self, block: Option<BlockId>) -> Result<CommitStats, EmbedError> {
        self.commit_first(self.layer_count(), block, WriteSet::new())
    }

    /// Makes the oldest layers durable in one commit, as the state of `block`, with rows that
    /// belong to it. The layers above them stay, and can be taken back as before.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    ///
    /// # Panics
    /// If there are fewer layers.
    pub fn commit_first(
        &mut self,
        layers: usize,
        block: Option<BlockId>,
        along: WriteSet,
    ) -> Result<CommitStats, EmbedError> {
        let start = Instant::now();
        let mut set = along;
        let prepared = self.inner.prepare_first(&self.store, layers, block, &mut set)?;
        if !set.is_empty() {
            // A history that a `State` kept does not lead to this commit.
            set.drop_range(Table::History, Vec::new(), AFTER_ALL.to_vec());
        }
        let stats = prepared.stats();
        self.times.encode += start.elapsed();
        let start = Instant::now();
        if !set.is_empty() {
            set.sort();
            self.store.commit(&set)?;
        }
        self.times.store += start.elapsed();
        self.inner.finalize_first(prepared, layers);
        Ok(stats)
    }

    /// Where the time went since it was opened.
    pub const fn times(&self) -> EmbedTimes {
        self.times
    }

    /// How many accounts use the code of this hash: counted where the tree shares code, else 0.
    ///
    /// # Errors
    /// If the store fails.
    pub fn code_uses(&self, hash: B256) -> Result<u64, EmbedError> {
        self.view().uses(&hash)
    }

    /// Checks the last commit, entry by entry and row by row: see [`Tree::check`].
    ///
    /// # Errors
    /// If the store fails. Damage is no error but a finding.
    pub fn check(&self, progress: impl FnMut(u64)) -> Result<Vec<Finding>, EmbedError> {
        Ok(self.tree().check(&self.store.snapshot()?, progress)?)
    }

    fn view(&self) -> View<'_, S, P> {
        self.inner.view(&self.store)
    }
}

impl<S: Embedding, P: PageStore> StateRead for BinaryState<S, P> {
    type Error = EmbedError;

    fn account(&self, address: Address) -> Result<Option<Account>, EmbedError> {
        self.view().account_at(self.scheme(), &address)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, EmbedError> {
        self.view().slot(self.scheme(), &address, &slot)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, EmbedError> {
        self.view().code(&hash)
    }
}
