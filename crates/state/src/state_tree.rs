//! Trees of the same state in the same store and the same commits: beside the Merkle Patricia trie,
//! or without it.
//!
//! Invariants:
//! - all trees of a store are of one block, and one write set commits all of them;
//! - a tree has one layer a block, however many the block had: it is given what the block did in
//!   the end. What was applied outside of a block is given as one layer when it is committed;
//! - each layer that may have to be taken back knows the leaves that it changed;
//! - without a Merkle Patricia trie reads see what was applied since the last sealed block, then
//!   the state of that block in one of the trees. Where that is a tree in which slots stay when
//!   their account goes, no account is made again over them, so that what is read is what was
//!   written.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, U256};
use spinney_tree::mpt::MptState;
use spinney_tree::{
    BlockId, CommitStats, PageStore, PreparedCommit, RootRecord, Scheme as _, SchemeId, Snapshot,
    StoreError, Table, TreeId, WriteSet,
};

use crate::embed::{BackError, EmbedError, EmbeddedTree, Embedding};
use crate::error::StateError;
use crate::leaf_undo::LeafUndo;
use crate::mpt_state::{MPT, State, account_after};
use crate::{Account, AccountChange, Change, Changes};

/// The ids of trees that hold Ethereum's state; the first is that of the Merkle Patricia trie.
const IDS: std::ops::Range<u32> = MPT.0..16;

/// A tree of a state: see [`State::trees`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TreeReport {
    /// Its id in the store.
    pub id: TreeId,
    /// Its kind and hash.
    pub scheme: SchemeId,
    /// Its root, of all that was applied; of any but the Merkle Patricia trie, as of the last block
    /// sealed.
    pub root: B256,
    /// What the commits since it was opened wrote.
    pub written: CommitStats,
    /// Time spent on batches and roots.
    pub apply: Duration,
    /// Time spent on pages.
    pub encode: Duration,
}

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
struct Preparing<S: Embedding> {
    tree: EmbeddedTree<S>,
    prepared: Option<PreparedCommit<S>>,
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
    id: TreeId,
    pub(crate) scheme: SchemeId,
    pub(crate) tree: Box<dyn StateTree<P>>,
    written: CommitStats,
    prepared: CommitStats,
    apply: Duration,
    encode: Duration,
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
    members: Vec<SecondaryTree<P>>,
    /// Trees of the store that nobody has added: they would be left behind.
    unregistered: BTreeMap<TreeId, SchemeId>,
}

impl<P: PageStore> SecondaryTrees<P> {
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

    pub(crate) fn are_none(&self) -> bool {
        self.members.is_empty()
    }

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

    pub(crate) fn undo_to(&mut self, layers: usize) {
        self.members.iter_mut().for_each(|member| member.tree.undo_to(layers));
    }

    /// What takes a layer back in all trees, if it was noted.
    pub(crate) fn undo_of(&self, layer: usize) -> Option<BTreeMap<TreeId, LeafUndo>> {
        let undo =
            |member: &SecondaryTree<P>| Some((member.id, member.tree.undo_of(layer)?.clone()));
        self.members.iter().map(undo).collect()
    }

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

impl<P: PageStore> State<P> {
    /// Keeps the state in one tree more from now on: it gets what each block does, and is committed
    /// and taken back along with the others. Into a store that holds a state already it can be
    /// added only if it is there, at the same block. `cache_bytes` bounds its pages in memory.
    ///
    /// ```
    /// # use alloy_primitives::{Address, U256};
    /// # use spinney_state::{AccountChange, Change, Changes, State};
    /// # use spinney_tree::{BlockId, HashFunction, MemoryStore, pbt::Pbt};
    /// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
    /// state.add_tree(Pbt { hash: HashFunction::Blake3 }, 1 << 20)?;
    /// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
    /// let changes = Changes { accounts: [(Address::ZERO, Change::Written(rich))].into() };
    /// state.apply(&changes)?;
    /// state.seal(BlockId::default())?;
    /// state.commit()?;
    /// let [mpt, pbt] = state.trees()[..] else { unreachable!("two trees") };
    /// assert_eq!(mpt.root, state.root());
    /// assert_eq!(pbt.scheme.to_string(), "pbt:blake3");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it is not of the same block as the rest, or the store holds something else or is damaged.
    ///
    /// # Panics
    /// If something was applied already, or a tree of this kind was added.
    pub fn add_tree<S>(&mut self, scheme: S, cache_bytes: usize) -> Result<(), StateError>
    where
        S: Embedding + Send,
        S::Commit: Send,
    {
        assert_eq!(self.layer_count(), 0, "trees are added before anything is applied");
        let (id, kind) = (S::TREE, scheme.id());
        let beside = &self.secondary.members;
        assert!(beside.iter().all(|member| member.id != id), "{kind} was added already");
        let tree = EmbeddedTree::open(scheme, &self.store.snapshot()?, cache_bytes);
        let tree = tree.map_err(beside_error(kind))?;
        let tree: Box<dyn StateTree<P>> = Box::new(Preparing { tree, prepared: None });
        let first = self.first_scheme();
        let head = if first.is_some() { self.head() } else { tree.head() };
        let is_new = |(commits, _)| commits == 0;
        if (is_new(head), head.1) != (is_new(tree.head()), tree.head().1) {
            let at = |(commits, block): (u64, Option<BlockId>)| (commits > 0).then_some(block);
            let (found, expected) = (at(tree.head()), at(head));
            let first = first.unwrap_or(kind);
            return Err(StateError::OtherBlock { tree: kind, first, found, expected });
        }
        self.secondary.unregistered.remove(&id);
        let beside = &mut self.secondary.members;
        let (written, prepared) = Default::default();
        let at = beside.partition_point(|member| member.id < id);
        let (apply, encode) = Default::default();
        let member = SecondaryTree { id, scheme: kind, tree, written, prepared, apply, encode };
        beside.insert(at, member);
        Ok(())
    }

    /// The id of the tree that is read.
    pub(crate) fn first_id(&self) -> TreeId {
        match &self.mpt {
            None => self.secondary.main().map_or(MPT, |main| main.id),
            Some(_) => MPT,
        }
    }

    /// Which tree came first, if any did.
    fn first_scheme(&self) -> Option<SchemeId> {
        let mpt = self.mpt.as_ref().map(spinney_tree::Tree::scheme_id);
        mpt.or_else(|| self.secondary.main().map(|main| main.scheme))
    }

    /// The trees of the state, in order of their ids: the Merkle Patricia trie is the first one, if
    /// it is there.
    pub fn trees(&self) -> Vec<TreeReport> {
        let times = self.times();
        let mpt = self.mpt.as_ref().map(|mpt| TreeReport {
            id: MPT,
            scheme: mpt.scheme_id(),
            root: self.root(),
            written: self.written(),
            apply: times.tree,
            encode: times.encode,
        });
        let beside = self.secondary.members.iter().map(|member| TreeReport {
            id: member.id,
            scheme: member.scheme,
            root: member.tree.root(),
            written: member.written,
            apply: member.apply,
            encode: member.encode,
        });
        mpt.into_iter().chain(beside).collect()
    }

    /// Gives the trees beside what layers did, as one layer.
    pub(crate) fn feed(&mut self, first: usize, undo: bool) -> Result<(), StateError> {
        if self.secondary.are_none() {
            return Ok(());
        }
        let mut changes = Changes::default();
        for layer in &self.layers[first..] {
            changes.then(layer.changes.as_ref().expect("kept until it is committed"));
        }
        if self.mpt.is_none() {
            self.check_remains(&changes)?;
        }
        self.secondary.apply(&self.store, &changes, undo, self.sealed.len())
    }

    /// Refuses to make an account again over slots that would be its own.
    fn check_remains(&self, changes: &Changes) -> Result<(), StateError> {
        let Some(SecondaryTree { tree, scheme, .. }) = self.secondary.main() else { return Ok(()) };
        if !tree.keeps_slots() {
            return Ok(());
        }
        for (address, change) in &changes.accounts {
            if !matches!(change, Change::Written(change) if !change.fresh) {
                continue;
            }
            let remains = || {
                let there = tree.account(&self.store, *address)?.is_some();
                Ok(!there && tree.holds_slots(&self.store, *address)?)
            };
            if remains().map_err(beside_error(*scheme))? {
                return Err(StateError::Remains { address: *address, tree: *scheme });
            }
        }
        Ok(())
    }

    /// What the layers since the last sealed block did to an account, the newest first.
    fn unsealed(&self, address: Address) -> impl Iterator<Item = &Change> {
        let first = self.sealed.last().map_or(0, |(layers, _)| *layers);
        let changes = self.layers[first..].iter().rev().filter_map(|layer| layer.changes.as_ref());
        changes.filter_map(move |changes| changes.accounts.get(&address))
    }

    /// Asks the tree that is read, where there is no Merkle Patricia trie.
    fn of_main<T>(
        &self,
        ask: impl FnOnce(&dyn StateTree<P>, &P) -> Result<T, EmbedError>,
    ) -> Result<T, StateError> {
        let none = || StateError::NoMpt { held: Vec::new() };
        let main = self.secondary.main().ok_or_else(none)?;
        ask(&*main.tree, &self.store).map_err(beside_error(main.scheme))
    }

    pub(crate) fn account_without_mpt(
        &self,
        address: Address,
    ) -> Result<Option<Account>, StateError> {
        // Fields that later layers did not name come from earlier ones.
        let mut later: Vec<&AccountChange> = Vec::new();
        let mut account = None;
        let mut below = true;
        for change in self.unsealed(address) {
            match change {
                Change::Deleted => below = false,
                Change::Written(change) => {
                    later.push(change);
                    below = !change.fresh;
                }
            }
            if !below {
                break;
            }
        }
        if below {
            account = self.of_main(|tree, store| tree.account(store, address))?;
        }
        for change in later.into_iter().rev() {
            account = Some(account_after(change, account).0);
        }
        Ok(account)
    }

    pub(crate) fn storage_without_mpt(
        &self,
        address: Address,
        slot: B256,
    ) -> Result<U256, StateError> {
        for change in self.unsealed(address) {
            match change {
                Change::Deleted => return Ok(U256::ZERO),
                Change::Written(change) => match change.storage.get(&slot) {
                    Some(value) => return Ok(*value),
                    None if change.fresh => return Ok(U256::ZERO),
                    None => {}
                },
            }
        }
        self.of_main(|tree, store| tree.storage(store, address, slot))
    }

    /// Slots that were set since the last sealed block count, those that were cleared since may
    /// too: who asks wants to know of accounts without code, whose slots nothing can clear.
    pub(crate) fn has_storage_without_mpt(&self, address: Address) -> Result<bool, StateError> {
        for change in self.unsealed(address) {
            let Change::Written(change) = change else { return Ok(false) };
            if change.storage.values().any(|value| !value.is_zero()) {
                return Ok(true);
            }
            if change.fresh {
                return Ok(false);
            }
        }
        self.of_main(|tree, store| {
            Ok(tree.account(store, address)?.is_some() && tree.holds_slots(store, address)?)
        })
    }
}

/// A tree of a state, for messages.
pub(crate) fn short(scheme: SchemeId) -> String {
    if scheme == MptState.id() { "mpt".into() } else { scheme.to_string() }
}

/// Where a tree stands, for messages: nothing, a state of no block, or that of a block.
pub(crate) fn stands(at: Option<Option<BlockId>>) -> String {
    match at {
        None => "is empty".into(),
        Some(None) => "holds a state of no block".into(),
        // State differences name no hash; zeros stand for it.
        Some(Some(BlockId { number, hash })) if hash == [0; 32] => {
            format!("stands at block {number}")
        }
        Some(Some(BlockId { number, hash })) => {
            format!("stands at block {number} ({})", B256::from(hash))
        }
    }
}

impl Changes {
    /// How many accounts and slots they name.
    ///
    /// ```
    /// # use alloy_primitives::{Address, B256, U256};
    /// # use spinney_state::{AccountChange, Change, Changes};
    /// let storage = [(B256::ZERO, U256::from(1))].into();
    /// let change = Change::Written(AccountChange { storage, ..AccountChange::default() });
    /// assert_eq!(Changes { accounts: [(Address::ZERO, change)].into() }.count(), 2);
    /// ```
    pub fn count(&self) -> u64 {
        let slots = |change: &Change| match change {
            Change::Deleted => 0,
            Change::Written(change) => change.storage.len() as u64,
        };
        self.accounts.values().map(|change| 1 + slots(change)).sum()
    }

    /// Takes up what comes after: the two together do what they do one after the other.
    ///
    /// ```
    /// # use alloy_primitives::{Address, U256};
    /// # use spinney_state::{AccountChange, Change, Changes};
    /// let written = |nonce| AccountChange { nonce: Some(nonce), ..AccountChange::default() };
    /// let one = |change| Changes { accounts: [(Address::ZERO, change)].into() };
    /// let mut changes = one(Change::Deleted);
    /// changes.then(&one(Change::Written(written(1))));
    /// let again = AccountChange { fresh: true, ..written(1) };
    /// assert_eq!(changes, one(Change::Written(again)));
    /// ```
    pub fn then(&mut self, later: &Self) {
        for (address, later) in &later.accounts {
            let Some(change) = self.accounts.get_mut(address) else {
                self.accounts.insert(*address, later.clone());
                continue;
            };
            let Change::Written(new) = later else {
                *change = Change::Deleted;
                continue;
            };
            match change {
                Change::Written(old) if !new.fresh => {
                    old.nonce = new.nonce.or(old.nonce);
                    old.balance = new.balance.or(old.balance);
                    if new.code_hash.is_some() {
                        (old.code_hash, old.code) = (new.code_hash, new.code.clone());
                    }
                    old.storage.extend(&new.storage);
                }
                // It went, with all it had.
                _ => {
                    let mut new = new.clone();
                    new.fresh = true;
                    *change = Change::Written(new);
                }
            }
        }
    }
}

impl From<StoreError> for BackError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}
