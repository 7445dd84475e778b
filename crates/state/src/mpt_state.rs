//! Ethereum's state in the trees of a store: in a Merkle Patricia trie as a rule.
//!
//! Invariants:
//! - reads see the last commit and every change applied since;
//! - nothing reaches the store before [`State::commit`], and then all of it does in one commit:
//!   pages, root record, code and preimages;
//! - every layer of what was applied can be taken back, and leaves no trace.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use spinney_tree::mpt::MptState;
use spinney_tree::{
    Batch, BlockId, CommitStats, Finding, PageStore, Pending, PreparedCommit, Snapshot, Table,
    Tree, TreeCosts, WriteSet,
};

use crate::error::StateError;
use crate::keep::Keep;
use crate::lazy::LazySnapshot;
use crate::mpt_entries::{
    AccountKeys, Keys, MPT, batch_of, codes_of, decode_account, decode_slot, malformed, slot_key,
};
use crate::reader::{Published, RECENT_CODES_MAX, Reader};
use crate::secondary::SecondaryTrees;
use crate::undo::{Held, Old, Slot, Undo, undo_of};
use crate::witnesses::Ring;
use crate::{Account, AccountChange, Change, Changes, StateRead};

/// Where the store keeps the hash of the genesis.
pub(crate) const GENESIS_KEY: &[u8] = b"genesis";

/// How many hashed keys are remembered as having their preimage stored.
const KNOWN_PREIMAGES_MAX: usize = 1 << 20;

/// Where the time of a state goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StateTimes {
    /// Hashing addresses and slots.
    pub key_hashing: Duration,
    /// Applying batches and computing roots.
    pub tree: Duration,
    /// Cutting pages.
    pub encode: Duration,
    /// The store's commits.
    pub store: Duration,
    /// Reads of accounts, slots and code.
    pub read: Duration,
    /// Reading old values for the history, and packing its rows.
    pub history: Duration,
}

/// What was applied at once, and what was noted before it.
#[derive(Debug)]
pub(crate) struct Layer {
    /// The state in the Merkle Patricia trie, where there is one.
    pub(crate) pending: Option<Pending<MptState>>,
    /// The root that the state has with it. That of a block whose batch was applied with later ones
    /// is the one that its header gives, and then it is not the pending state's.
    pub(crate) root: B256,
    pub(crate) codes: usize,
    pub(crate) preimages: usize,
    /// What takes it back, where a history is kept.
    pub(crate) undo: Option<Undo>,
    /// What it did, where other trees have to be told: also once it is sealed, since a part of its
    /// block may be taken back.
    pub(crate) changes: Option<Changes>,
}

/// Ethereum's state: the last commit of a store, and what was applied on top of it.
///
/// ```
/// use alloy_primitives::{Address, U256};
/// use spinney_state::{AccountChange, Change, Changes, State, StateRead};
/// use spinney_tree::MemoryStore;
///
/// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
/// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
/// let mut changes = Changes::default();
/// changes.accounts.insert(Address::ZERO, Change::Written(rich));
/// let root = state.apply(&changes)?;
/// state.commit()?;
/// assert_eq!(state.root(), root);
/// assert_eq!(state.account(Address::ZERO)?.unwrap().balance, U256::from(5));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
// Fields: the last commit, the layers upon it, and what was asked for.
#[derive(Debug)]
pub struct State<P: PageStore> {
    pub(crate) store: P,
    /// The Merkle Patricia trie. Where there is none, the first of the others is read.
    pub(crate) mpt: Option<Tree<MptState>>,
    pub(crate) layers: Vec<Layer>,
    /// Other trees of the same state.
    pub(crate) secondary: SecondaryTrees<P>,
    /// Blocks that end at so many layers.
    pub(crate) sealed: Vec<(usize, BlockId)>,
    pub(crate) keep: Keep,
    /// The genesis to note with the next commit.
    pub(crate) genesis: Option<B256>,
    pub(crate) codes: Vec<(B256, Bytes)>,
    code_index: HashMap<B256, usize>,
    /// Code read from the store: it never changes under its hash.
    recent_codes: RefCell<HashMap<B256, Bytes>>,
    pub(crate) preimages: Vec<(B256, Vec<u8>)>,
    pub(crate) preimage_index: HashMap<B256, usize>,
    known: HashSet<B256>,
    pub(crate) keep_preimages: bool,
    times: Cell<StateTimes>,
    pub(crate) written: CommitStats,
    /// The last commit, for those who read beside the state.
    readers: Option<Published>,
    pub(crate) witnesses: Ring,
}

impl<P: PageStore> State<P> {
    /// Opens the state in a store; an empty store holds the empty state. `cache_bytes` bounds the
    /// pages kept in memory.
    ///
    /// # Errors
    /// If the store holds something else, or is damaged.
    pub fn open(store: P, cache_bytes: usize) -> Result<Self, StateError> {
        let mpt = Tree::open(MptState, MPT, &store.snapshot()?, cache_bytes)?;
        Self::of(store, Some(mpt))
    }

    /// Opens the state in a store without a Merkle Patricia trie: it is in the trees that are
    /// [added](Self::add_tree) next, at least one. One of them is read, a PBT before any other. No
    /// header gives a root of these trees, so nobody can say that their roots are right; and what
    /// only the trie knows, [`StateError::NoMpt`] says.
    ///
    /// ```
    /// # use alloy_primitives::{Address, U256};
    /// # use spinney_state::{AccountChange, Change, Changes, State, StateRead};
    /// # use spinney_tree::{BlockId, HashFunction, MemoryStore, pbt::Pbt};
    /// let mut state = State::open_without_mpt(MemoryStore::new())?;
    /// state.add_tree(Pbt { hash: HashFunction::Blake3 }, 1 << 20)?;
    /// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
    /// let changes = Changes { accounts: [(Address::ZERO, Change::Written(rich))].into() };
    /// state.apply(&changes)?;
    /// assert_eq!(state.account(Address::ZERO)?.unwrap().balance, U256::from(5));
    /// state.seal(BlockId::default())?;
    /// state.commit()?;
    /// assert_eq!(state.trees().len(), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store fails or is damaged. One that holds a Merkle Patricia trie is refused by the
    /// first commit: [`StateError::LeftBehind`].
    pub fn open_without_mpt(store: P) -> Result<Self, StateError> {
        Self::of(store, None)
    }

    fn of(store: P, mpt: Option<Tree<MptState>>) -> Result<Self, StateError> {
        let secondary = SecondaryTrees::none_of(&store.snapshot()?, mpt.is_some())?;
        Ok(Self {
            store,
            mpt,
            layers: Vec::new(),
            secondary,
            sealed: Vec::new(),
            keep: Keep::default(),
            genesis: None,
            codes: Vec::new(),
            code_index: HashMap::new(),
            recent_codes: RefCell::default(),
            preimages: Vec::new(),
            preimage_index: HashMap::new(),
            known: HashSet::new(),
            keep_preimages: true,
            times: Cell::default(),
            written: CommitStats::default(),
            readers: None,
            witnesses: Ring::default(),
        })
    }

    /// Whether preimages of hashed keys are stored from now on. They are unless told otherwise.
    pub const fn keep_preimages(&mut self, keep: bool) {
        self.keep_preimages = keep;
    }

    /// The store.
    pub const fn store(&self) -> &P {
        &self.store
    }

    /// Gives the store back; what was applied and not committed is gone.
    pub fn into_store(self) -> P {
        self.store
    }

    /// The state root, of all that was applied. Without a Merkle Patricia trie it is the root of
    /// the tree that is read, as of the last block sealed.
    pub fn root(&self) -> B256 {
        match &self.mpt {
            Some(mpt) => self.top().map_or_else(|| mpt.root(), Pending::root).into(),
            None => self.secondary.main().map_or(B256::ZERO, |main| main.tree.root()),
        }
    }

    /// Whether the state is in a Merkle Patricia trie, whose roots the headers of blocks give.
    pub const fn has_mpt(&self) -> bool {
        self.mpt.is_some()
    }

    /// The Merkle Patricia trie, for what nothing else can answer.
    pub(crate) fn mpt(&self) -> Result<&Tree<MptState>, StateError> {
        self.mpt.as_ref().ok_or_else(|| StateError::NoMpt { held: self.secondary.schemes() })
    }

    /// How many commits were made to the first tree, and of which block the last one is.
    pub(crate) fn head(&self) -> (u64, Option<BlockId>) {
        match &self.mpt {
            Some(mpt) => (mpt.commit_number(), mpt.block()),
            None => self.secondary.main().map_or((0, None), |main| main.tree.head()),
        }
    }

    /// What the last [`State::commit`]s wrote to the tree, all together.
    pub const fn written(&self) -> CommitStats {
        self.written
    }

    /// The block of the last commit, if it was told.
    pub fn block(&self) -> Option<BlockId> {
        self.head().1
    }

    /// How many commits were made to the state; with none the store holds nothing of it.
    pub fn commit_number(&self) -> u64 {
        self.head().0
    }

    /// Whoever reads the last commit while the state goes on, from another thread too; `None` where
    /// the state is in no Merkle Patricia trie.
    pub fn reader(&mut self) -> Option<Reader<P>>
    where
        P: Clone,
    {
        let mpt = self.mpt.as_ref()?;
        let published = self.readers.get_or_insert_with(|| Published::new(mpt.view()));
        Some(Reader::new(self.store.clone(), published.clone()))
    }

    /// Shows the last commit to those who read beside the state.
    pub(crate) fn publish(&self) {
        if let (Some(readers), Some(mpt)) = (&self.readers, &self.mpt) {
            readers.set(mpt.view());
        }
    }

    /// Waits until all that was committed is durable, where the store writes behind.
    ///
    /// # Errors
    /// If a commit could not be written.
    pub fn settle(&self) -> Result<(), StateError> {
        Ok(self.store.settle()?)
    }

    /// Where the time went since the state was opened.
    pub const fn times(&self) -> StateTimes {
        self.times.get()
    }

    /// What the Merkle Patricia trie did since the state was opened.
    pub fn costs(&self) -> TreeCosts {
        self.mpt.as_ref().map(Tree::costs).unwrap_or_default()
    }

    pub(crate) fn timed<T>(
        &self,
        part: impl FnOnce(&mut StateTimes) -> &mut Duration,
        f: impl FnOnce() -> T,
    ) -> T {
        let start = Instant::now();
        let answer = f();
        self.spent(part, start.elapsed());
        answer
    }

    /// Adds time that was spent on a part.
    pub(crate) fn spent(
        &self,
        part: impl FnOnce(&mut StateTimes) -> &mut Duration,
        time: Duration,
    ) {
        let mut times = self.times.get();
        *part(&mut times) += time;
        self.times.set(times);
    }

    pub(crate) fn top(&self) -> Option<&Pending<MptState>> {
        self.layers.last()?.pending.as_ref()
    }

    /// Puts a layer of changes on top of all applied so far, and computes the state root. Nothing
    /// is written.
    ///
    /// # Errors
    /// If a change makes no sense, or the store fails. Then nothing of the changes is applied.
    pub fn apply(&mut self, changes: &Changes) -> Result<B256, StateError> {
        let (codes, preimages) = (self.codes.len(), self.preimages.len());
        match self.prepare(changes) {
            Ok((pending, undo)) => {
                let root = pending.as_ref().map_or(B256::ZERO, |pending| pending.root().into());
                let changes = (!self.secondary.are_none()).then(|| changes.clone());
                self.layers.push(Layer { pending, root, codes, preimages, undo, changes });
                Ok(root)
            }
            Err(error) => {
                self.forget(codes, preimages);
                Err(error)
            }
        }
    }

    fn prepare(
        &mut self,
        changes: &Changes,
    ) -> Result<(Option<Pending<MptState>>, Option<Undo>), StateError> {
        let keys = self.timed(|t| &mut t.key_hashing, || Keys::of(changes));
        self.note_codes(changes)?;
        let kept = self.keeps_history();
        let Some(mpt) = &self.mpt else {
            self.note_preimages(changes, &keys, None)?;
            // The other trees know what takes them back.
            return Ok((None, kept.then(Undo::default)));
        };
        let snapshot = LazySnapshot::new(&self.store);
        let parent = self.top();
        let old = self.old_accounts(&snapshot, parent, changes, &keys, kept)?;
        let batch = batch_of(changes, &keys, &old);
        let prepare = || mpt.prepare(&snapshot, parent, batch);
        let pending = self.timed(|t| &mut t.tree, prepare)?;
        // After the batch, which has read the pages of these slots level by level.
        let undo = || undo_of(&Newest(self, &snapshot), changes, &keys, &old);
        let undo = if kept { Some(self.timed(|t| &mut t.history, undo)?) } else { None };
        drop(snapshot);
        self.note_preimages(changes, &keys, undo.as_ref())?;
        Ok((Some(pending), undo))
    }

    /// The accounts before the changes, in their order; those of accounts that are replaced only if
    /// `all` are wanted.
    pub(crate) fn old_accounts<N: Snapshot>(
        &self,
        snapshot: &N,
        parent: Option<&Pending<MptState>>,
        changes: &Changes,
        keys: &Keys,
        all: bool,
    ) -> Result<Vec<Option<Account>>, StateError> {
        let old = |(change, keys): (&Change, &AccountKeys)| match change {
            Change::Written(AccountChange { fresh: false, .. }) => {
                self.account_in(snapshot, parent, keys.account)
            }
            _ if all => self.account_in(snapshot, parent, keys.account),
            _ => Ok(None),
        };
        changes.accounts.values().zip(&keys.0).map(old).collect()
    }

    /// Notes the code that is written and not noted yet.
    pub(crate) fn note_codes(&mut self, changes: &Changes) -> Result<(), StateError> {
        for (hash, code) in codes_of(changes)? {
            if !self.code_index.contains_key(&hash) {
                self.code_index.insert(hash, self.codes.len());
                self.codes.push((hash, code.clone()));
            }
        }
        Ok(())
    }

    /// Notes the preimages of keys that the changes write and that are not known to be stored, if
    /// preimages are kept. A key that `undo` shows to have been in the state before is passed over:
    /// whoever put it there noted its preimage.
    pub(crate) fn note_preimages(
        &mut self,
        changes: &Changes,
        keys: &Keys,
        undo: Option<&Undo>,
    ) -> Result<(), StateError> {
        if !self.keep_preimages {
            return Ok(());
        }
        let mut fresh: Vec<(B256, Vec<u8>)> = Vec::new();
        for ((address, change), keys) in changes.accounts.iter().zip(&keys.0) {
            let Change::Written(change) = change else { continue };
            let held = undo.map(|undo| undo.held(address));
            if !held.is_some_and(Held::account) && !self.known.contains(&keys.account) {
                fresh.push((keys.account, address.to_vec()));
            }
            for (hash, (slot, value)) in keys.slots.iter().zip(&change.storage) {
                let was_there = held.is_some_and(|held| held.slot(*slot, *value));
                if !was_there && !self.known.contains(hash) {
                    fresh.push((*hash, slot.to_vec()));
                }
            }
        }
        fresh.sort_unstable();
        fresh.dedup();
        // Of a state that has no commit none is stored.
        let is_stored = match self.commit_number() {
            0 => vec![false; fresh.len()],
            _ => {
                let snapshot = LazySnapshot::new(&self.store);
                let names: Vec<&[u8]> = fresh.iter().map(|(hash, _)| hash.as_slice()).collect();
                let stored = snapshot.read_many(Table::Preimages, &names)?;
                stored.iter().map(Option::is_some).collect()
            }
        };
        if self.known.len() > KNOWN_PREIMAGES_MAX {
            self.known.clear();
        }
        self.known.extend(fresh.iter().map(|(hash, _)| *hash));
        for (preimage, _) in fresh.into_iter().zip(is_stored).filter(|(_, stored)| !stored) {
            // Noted already, where the known ones were forgotten since.
            if !self.preimage_index.contains_key(&preimage.0) {
                self.preimage_index.insert(preimage.0, self.preimages.len());
                self.preimages.push(preimage);
            }
        }
        Ok(())
    }

    /// Bytes of code and preimages that wait for a commit, about.
    pub(crate) fn noted_bytes(&self) -> usize {
        let codes: usize = self.codes.iter().map(|(_, code)| code.len() + 32).sum();
        codes + self.preimages.len() * 96
    }

    /// Whether the witnesses that wait for a commit take so much memory that there should be one.
    pub fn is_full(&self) -> bool {
        self.witnesses.is_full()
    }

    /// How many layers lie above the last commit.
    pub const fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// Takes back the newest layers until `layer_count` are left, and with them the blocks that end
    /// above. What is left of the last of these belongs to the block that is sealed next.
    pub fn undo_to(&mut self, layer_count: usize) {
        let Some(first) = self.layers.get(layer_count) else { return };
        let (codes, preimages) = (first.codes, first.preimages);
        self.layers.truncate(layer_count);
        self.sealed.retain(|(layers, _)| *layers <= layer_count);
        self.witnesses.retain(&self.sealed);
        self.secondary.undo_to(self.sealed.len());
        self.forget(codes, preimages);
    }

    /// Forgets the code and the preimages noted since there were so many.
    pub(crate) fn forget(&mut self, codes: usize, preimages: usize) {
        for (hash, _) in self.codes.drain(codes..) {
            self.code_index.remove(&hash);
        }
        for (hash, _) in self.preimages.drain(preimages..) {
            self.known.remove(&hash);
            self.preimage_index.remove(&hash);
        }
    }

    /// Says that what was applied so far is the state of `block`: the next commit records it. The
    /// trees that were added get what the block did. A block of no layers gets one without changes,
    /// so that it can be taken back like any other. Whatever is sealed can be taken back until it
    /// is committed, and other blocks sealed in its place.
    ///
    /// # Errors
    /// If another tree refuses it; then it is not sealed.
    pub fn seal(&mut self, block: BlockId) -> Result<(), StateError> {
        let first = self.sealed.last().map_or(0, |(layers, _)| *layers);
        let is_empty = first == self.layers.len();
        if is_empty {
            self.apply(&Changes::default())?;
        }
        if let Err(error) = self.feed(first, self.keeps_history()) {
            if is_empty {
                self.undo_to(first);
            }
            return Err(error);
        }
        self.sealed.push((self.layers.len(), block));
        Ok(())
    }

    /// Makes all that was applied durable in one commit of the store, as the state of the block
    /// that was sealed last. Layers above that block are taken back first.
    ///
    /// # Errors
    /// If the store fails, or holds trees that were not added. Then nothing is committed, and what
    /// was applied still is.
    pub fn commit(&mut self) -> Result<CommitStats, StateError> {
        self.secondary.are_all()?;
        let last = self.sealed.last().copied();
        if let Some((layers, _)) = last {
            self.undo_to(layers);
        }
        // What was applied without a block is no state of the block before it.
        let unsealed = !self.layers.is_empty() && last.is_none();
        if unsealed {
            self.feed(0, false)?;
        }
        let outcome = self.write(unsealed);
        if outcome.is_err() {
            self.secondary.undo_to(self.sealed.len());
        }
        outcome
    }

    fn write(&mut self, unsealed: bool) -> Result<CommitStats, StateError> {
        let last = self.sealed.last().copied();
        let before = if unsealed { None } else { self.block() };
        let block = last.map(|(_, block)| block).or(before);
        let mut set = WriteSet::new();
        let mut prepared = match &self.mpt {
            Some(mpt) => Some(self.prepare_mpt(mpt, block, &mut set)?),
            None => None,
        };
        self.secondary.prepare_commit(&self.store, block, &mut set)?;
        self.put_metadata(&mut set);
        self.put_blocks(unsealed, &mut set);
        let mut stats = prepared.as_ref().map(PreparedCommit::stats).unwrap_or_default();
        if !set.is_empty() {
            set.sort();
            let put = || self.timed(|t| &mut t.store, || self.store.commit_owned(set));
            match (&self.mpt, &mut prepared) {
                (Some(mpt), Some(prepared)) => mpt.make_pages_beside(prepared, put)?,
                _ => put()?,
            }
            if let (Some(mpt), Some(prepared)) = (&mut self.mpt, prepared) {
                mpt.finalize(prepared);
            }
            self.publish();
            let others = self.secondary.finalize();
            if self.mpt.is_none() {
                stats = others;
            }
        }
        self.written += stats;
        self.genesis = None;
        self.discard();
        Ok(stats)
    }

    /// Puts all that was applied to the Merkle Patricia trie into a write set.
    fn prepare_mpt(
        &self,
        mpt: &Tree<MptState>,
        block: Option<BlockId>,
        set: &mut WriteSet,
    ) -> Result<PreparedCommit<MptState>, StateError> {
        let pending = match self.top() {
            Some(pending) => pending.clone(),
            None => mpt.prepare(&self.store.snapshot()?, None, Batch::new())?,
        };
        let snapshot = self.store.snapshot()?;
        Ok(self.timed(|t| &mut t.encode, || mpt.prepare_commit(&snapshot, &pending, block, set))?)
    }

    /// Puts code and preimages into a write set: they are true of any state.
    pub(crate) fn put_metadata(&self, set: &mut WriteSet) {
        for (hash, code) in &self.codes {
            set.put(Table::Codes, hash.as_slice(), code.to_vec());
        }
        for (hash, preimage) in &self.preimages {
            set.put(Table::Preimages, hash.as_slice(), preimage.clone());
        }
    }

    /// Puts what is known of the sealed blocks into a write set.
    pub(crate) fn put_blocks(&self, unsealed: bool, set: &mut WriteSet) {
        self.timed(|t| &mut t.history, || self.put_history(unsealed, set));
        let last = self.sealed.last().map(|(_, block)| *block);
        self.witnesses.put(last, self.keep.behind(), set);
        if let Some(genesis) = self.genesis {
            set.put(Table::Meta, GENESIS_KEY, genesis.to_vec());
        }
    }

    /// Forgets all that was applied since the last commit.
    pub(crate) fn discard(&mut self) {
        self.layers.clear();
        self.sealed.clear();
        self.witnesses.clear();
        self.secondary.undo_to(0);
        self.codes.clear();
        self.code_index.clear();
        self.preimages.clear();
        self.preimage_index.clear();
    }

    /// The hash of the genesis that the state goes back to, if it was told.
    ///
    /// # Errors
    /// If the store cannot be read, or what it holds is no hash.
    pub fn genesis(&self) -> Result<Option<B256>, StateError> {
        let snapshot = self.store.snapshot()?;
        let Some(row) = snapshot.read(Table::Meta, GENESIS_KEY)? else { return Ok(None) };
        let hash = B256::try_from(&*row).map_err(|_| malformed("the hash of a genesis", &row))?;
        Ok(Some(hash))
    }

    /// Says which genesis the state goes back to: the next commit records it.
    pub const fn set_genesis(&mut self, hash: B256) {
        self.genesis = Some(hash);
    }

    pub(crate) fn account_at(&self, key: B256) -> Result<Option<Account>, StateError> {
        self.account_in(&LazySnapshot::new(&self.store), self.top(), key)
    }

    pub(crate) fn stored_code<N: Snapshot>(
        &self,
        snapshot: &N,
        hash: B256,
    ) -> Result<Option<Bytes>, StateError> {
        let code = snapshot.read(Table::Codes, hash.as_slice())?;
        Ok(code.map(|code| Bytes::copy_from_slice(&code)))
    }

    /// The account under a hashed address in a state.
    pub(crate) fn account_in<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<MptState>>,
        key: B256,
    ) -> Result<Option<Account>, StateError> {
        let value = self.mpt()?.get(snapshot, state, key.as_slice())?;
        value.map(|value| decode_account(&value)).transpose()
    }

    /// The value of a slot in a state; `None` where it is absent. The key is that of the tree.
    pub(crate) fn slot_in<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<MptState>>,
        key: &[u8; 64],
    ) -> Result<Option<U256>, StateError> {
        let value = self.mpt()?.get(snapshot, state, key)?;
        value.map(|value| decode_slot(&value)).transpose()
    }

    /// Checks the last commit of the Merkle Patricia trie, key by key and row by row: see
    /// [`Tree::check`]. `progress` is told the keys read.
    ///
    /// # Errors
    /// If the store fails, or holds no such trie. Damage is no error but a finding.
    pub fn check(&self, progress: impl FnMut(u64)) -> Result<Vec<Finding>, StateError> {
        Ok(self.mpt()?.check(&self.store.snapshot()?, progress)?)
    }
}

impl<P: PageStore> StateRead for State<P> {
    type Error = StateError;

    fn account(&self, address: Address) -> Result<Option<Account>, StateError> {
        if self.mpt.is_none() {
            return self.timed(|t| &mut t.read, || self.account_without_mpt(address));
        }
        let key = self.timed(|t| &mut t.key_hashing, || keccak256(address));
        self.timed(|t| &mut t.read, || self.account_at(key))
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        if self.mpt.is_none() {
            return self.timed(|t| &mut t.read, || self.storage_without_mpt(address, slot));
        }
        let key =
            self.timed(|t| &mut t.key_hashing, || slot_key(keccak256(address), keccak256(slot)));
        let read = || self.slot_in(&LazySnapshot::new(&self.store), self.top(), &key);
        Ok(self.timed(|t| &mut t.read, read)?.unwrap_or_default())
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateError> {
        if hash == KECCAK256_EMPTY {
            return Ok(Some(Bytes::new()));
        }
        if let Some(&index) = self.code_index.get(&hash) {
            return Ok(Some(self.codes[index].1.clone()));
        }
        if let Some(code) = self.recent_codes.borrow().get(&hash) {
            return Ok(Some(code.clone()));
        }
        let read = || self.stored_code(&self.store.snapshot()?, hash);
        let code = self.timed(|t| &mut t.read, read)?;
        if let Some(code) = &code {
            let mut recent = self.recent_codes.borrow_mut();
            if recent.len() == RECENT_CODES_MAX {
                recent.clear();
            }
            recent.insert(hash, code.clone());
        }
        Ok(code)
    }
}

/// The newest layer of a state, through a view of its store.
struct Newest<'a, P: PageStore, N>(&'a State<P>, &'a N);

impl<P: PageStore, N: Snapshot> Old for Newest<'_, P, N> {
    fn slot(&self, key: &[u8; 64]) -> Result<Option<U256>, StateError> {
        self.0.slot_in(self.1, self.0.top(), key)
    }

    fn storage(&self, account: B256) -> Result<BTreeMap<Slot, U256>, StateError> {
        self.0.storage_of(self.1, self.0.top(), account)
    }
}
