//! The history: back to earlier blocks, for a look or for good.
//!
//! Invariants:
//! - the rows are of successive blocks, the newest of which is the block of the last commit: each
//!   names the one before as its parent. Whatever would break that begins the history anew;
//! - a block's row is written by the commit that writes its state, and is the same whichever blocks
//!   that commit takes along, and whichever were sealed and taken back before;
//! - what is taken back has the root that was recorded, or nothing happens.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use spinney_tree::mpt::{MptState, slot_value};
use spinney_tree::{
    Batch, BlockId, PageStore, Pending, PreparedCommit, Snapshot, Table, Tree, TreeId, WriteSet,
};

use crate::error::StateError;
use crate::history_row::{AFTER_ALL, Packer, Record, key};
use crate::keep::{KeepHistory, Kept, decode, fault, is_of_last_commit, kept_range, undo_after};
use crate::lazy::LazySnapshot;
use crate::leaf_undo::LeafUndo;
use crate::mpt_entries::{Keys, batch_of, codes_of, decode_slot, put_account, slot_key};
use crate::mpt_state::State;
use crate::undo::{Before, Slot, Undo};
use crate::witnesses::drop_behind;
use crate::{Account, Changes, StateRead};

/// How many preimages are asked of the store at once.
const PREIMAGES_AT_ONCE: usize = 4_096;

/// Faults beyond which a check looks no further.
const FAULTS_MAX: usize = 1_000;

/// What goes back to a block.
enum Back {
    /// Nothing: it is that of the last commit.
    Here(BlockId),
    To {
        block: BlockId,
        /// The Merkle Patricia trie then, where there is one.
        pending: Option<Box<Pending<MptState>>>,
        /// What takes the other trees back.
        trees: BTreeMap<TreeId, LeafUndo>,
    },
}

impl<P: PageStore> State<P> {
    /// How many blocks the state can be taken back: what is beyond is forgotten by the next commit.
    /// 512 unless told otherwise.
    pub const fn keep_history(&mut self, keep: KeepHistory) {
        self.keep.history = keep;
    }

    /// Keeps the state of a block, too, and of all blocks behind it, however many that are, with
    /// their witnesses if any are kept. Whoever has the number moves it on: so an archive that
    /// grows beside a state misses no block.
    pub fn keep_history_from(&mut self, block: Arc<AtomicU64>) {
        self.keep.from = Some(block);
    }

    /// The blocks whose states the store has; `None` where it is not known which block's state it
    /// holds.
    ///
    /// # Errors
    /// If the store cannot be read, or its history is damaged.
    pub fn kept(&self) -> Result<Option<Kept>, StateError> {
        let Some(newest) = self.block() else { return Ok(None) };
        kept_range(&self.store.snapshot()?, newest).map(Some)
    }

    /// What is wrong with the history, row by row; nothing where it is sound. What the rows say of
    /// the state is not checked: [`at`](Self::at) does that.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn check_history(&self) -> Result<Vec<StateError>, StateError> {
        let mut faults = Vec::new();
        let mut last: Option<BlockId> = None;
        let mut look = |key: &[u8], row: &[u8]| {
            match decode(key, row) {
                Ok(record) => {
                    if last.is_some_and(|last| last != record.parent) {
                        faults
                            .push(fault(record.block.number, "it does not follow the one before"));
                    }
                    last = Some(record.block);
                }
                Err(error) => faults.push(error),
            }
            faults.len() < FAULTS_MAX
        };
        self.store.snapshot()?.scan(Table::History, &[], None, &mut look)?;
        if let Some(last) = last.filter(|last| Some(*last) != self.block()) {
            faults.push(fault(last.number, "it is the last one, and not of the state's block"));
        }
        Ok(faults)
    }

    /// The state of a kept block, to be read and built upon. Nothing is written; changes that were
    /// applied and not committed are not seen.
    ///
    /// ```
    /// # use alloy_primitives::{Address, U256};
    /// # use spinney_state::{AccountChange, Change, Changes, State, StateRead};
    /// # use spinney_tree::{BlockId, MemoryStore};
    /// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
    /// for number in 0..3 {
    ///     let balance = Some(U256::from(number));
    ///     let change = Change::Written(AccountChange { balance, ..AccountChange::default() });
    ///     state.apply(&Changes { accounts: [(Address::ZERO, change)].into() })?;
    ///     state.seal(BlockId { number, hash: [number as u8; 32] })?;
    ///     state.commit()?;
    /// }
    /// let earlier = state.at(1)?;
    /// assert_eq!(earlier.account(Address::ZERO)?.unwrap().balance, U256::from(1));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StateError::NotKept`] if it is not kept; if the store fails or the history is damaged; or
    /// if the store holds no Merkle Patricia trie: of the other trees
    /// [`BinaryState::at`](crate::embed::BinaryState::at) gives one by one.
    pub fn at(&self, number: u64) -> Result<KeptState<'_, P>, StateError> {
        let mpt = self.mpt()?;
        let snapshot = self.store.snapshot()?;
        let back = self.back_at(&snapshot, number)?;
        let (block, pending) = match back {
            Back::Here(block) => (block, None),
            Back::To { block, pending, .. } => (block, pending.map(|pending| *pending)),
        };
        Ok(KeptState { state: self, mpt, snapshot, pending, block: Some(block), codes: Vec::new() })
    }

    /// Takes the state back to a kept block, in one commit, and forgets the history after it.
    /// Changes that were applied and not committed are gone. Answers with the block.
    ///
    /// # Errors
    /// As [`at`](Self::at); then nothing is committed.
    pub fn unwind_to(&mut self, number: u64) -> Result<BlockId, StateError> {
        self.secondary.are_all()?;
        self.undo_to(0);
        self.sealed.clear();
        self.witnesses.clear();
        self.secondary.undo_to(0);
        let snapshot = self.store.snapshot()?;
        let (block, pending, trees) = match self.back_at(&snapshot, number)? {
            Back::Here(block) => return Ok(block),
            Back::To { block, pending, trees } => (block, pending, trees),
        };
        let mut set = WriteSet::new();
        let prepared = match (&self.mpt, &pending) {
            (Some(mpt), Some(back)) => {
                Some(mpt.prepare_commit(&snapshot, back, Some(block), &mut set)?)
            }
            _ => None,
        };
        drop(snapshot);
        self.secondary.prepare_back(&self.store, &trees, block, &mut set)?;
        set.drop_range(Table::History, key(number).to_vec(), AFTER_ALL.to_vec());
        drop_behind(number, &mut set);
        set.sort();
        self.timed(|t| &mut t.store, || self.store.commit(&set))?;
        let others = self.secondary.finalize();
        self.written += prepared.as_ref().map_or(others, PreparedCommit::stats);
        if let (Some(mpt), Some(prepared)) = (&mut self.mpt, prepared) {
            mpt.finalize(prepared);
        }
        self.publish();
        Ok(block)
    }

    /// What goes back to a block.
    fn back_at<N: Snapshot>(&self, snapshot: &N, number: u64) -> Result<Back, StateError> {
        let (commits, head) = self.head();
        is_of_last_commit(snapshot, self.first_id(), commits)?;
        let Some(head) = head else {
            return Err(StateError::NotKept { block: number, kept: None });
        };
        if number == head.number {
            return Ok(Back::Here(head));
        }
        let Record { parent, parent_root, undo, trees, .. } = undo_after(snapshot, head, number)?;
        let Some(mpt) = &self.mpt else {
            return Ok(Back::To { block: parent, pending: None, trees });
        };
        let batch = self.batch_back(snapshot, head, &undo)?;
        let pending = mpt.prepare(snapshot, None, batch)?;
        let found = B256::from(pending.root());
        if found != parent_root {
            return Err(StateError::UndoneRoot { block: number, expected: parent_root, found });
        }
        Ok(Back::To { block: parent, pending: Some(Box::new(pending)), trees })
    }

    /// The operations that an undo comes to, on the last commit.
    fn batch_back<N: Snapshot>(
        &self,
        snapshot: &N,
        head: BlockId,
        undo: &Undo,
    ) -> Result<Batch, StateError> {
        let mut batch = Batch::new();
        for (address, before) in &undo.accounts {
            let account = keccak256(address);
            match before {
                Before::Absent => batch.delete_prefix(account.as_slice()),
                Before::Whole(old) => {
                    batch.delete_prefix(account.as_slice());
                    put_account(&mut batch, account, &old.account);
                    for (slot, value) in &old.storage {
                        put_slot(&mut batch, account, *slot, *value);
                    }
                }
                Before::Changed(old) => {
                    let there = self.account_in(snapshot, None, account)?;
                    let mut fields = there.ok_or_else(|| {
                        fault(head.number, &format!("account {address} is to be there, and is not"))
                    })?;
                    fields.nonce = old.nonce.unwrap_or(fields.nonce);
                    fields.balance = old.balance.unwrap_or(fields.balance);
                    fields.code_hash = old.code_hash.unwrap_or(fields.code_hash);
                    if there != Some(fields) {
                        put_account(&mut batch, account, &fields);
                    }
                    for (slot, value) in &old.storage {
                        match value {
                            Some(value) => put_slot(&mut batch, account, *slot, *value),
                            None => batch.delete(&slot_key(account, slot.hash())),
                        }
                    }
                }
            }
        }
        Ok(batch)
    }

    /// Whether what is applied next will be asked to be undone: there is a state below it, and a
    /// block whose state that is.
    pub(crate) fn keeps_history(&self) -> bool {
        self.keep.is_any() && (self.block().is_some() || !self.sealed.is_empty())
    }

    /// The slots of an account in all that was applied, in no particular order; `None` where not
    /// all of them are known by themselves, since their preimages were not kept or there is no
    /// Merkle Patricia trie.
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn slots(&self, address: Address) -> Result<Option<Vec<B256>>, StateError> {
        if self.mpt.is_none() {
            return Ok(None);
        }
        let snapshot = LazySnapshot::new(&self.store);
        let storage = self.storage_of(&snapshot, self.top(), keccak256(address))?;
        let named = storage.into_keys().map(|slot| match slot {
            Slot::Known(slot) => Some(slot),
            Slot::Hashed(_) => None,
        });
        Ok(named.collect())
    }

    /// Whether an account has any slot that is not zero.
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        if self.mpt.is_none() {
            return self.has_storage_without_mpt(address);
        }
        let snapshot = LazySnapshot::new(&self.store);
        self.has_storage_in(&snapshot, self.top(), keccak256(address), |_| false)
    }

    /// The same in some state, but for slots that the caller knows to be cleared, by their hashes.
    pub(crate) fn has_storage_in<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<MptState>>,
        account: B256,
        is_cleared: impl Fn(&B256) -> bool,
    ) -> Result<bool, StateError> {
        for entry in self.mpt()?.prefix(snapshot, state, account.as_slice()) {
            let entry = entry?;
            let slot = entry.key.get(32..).filter(|slot| slot.len() == 32).map(B256::from_slice);
            if slot.is_some_and(|slot| !is_cleared(&slot)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// All slots of an account in a state, by themselves where their preimages are known.
    pub(crate) fn storage_of<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<MptState>>,
        account: B256,
    ) -> Result<BTreeMap<Slot, U256>, StateError> {
        let mut hashed = Vec::new();
        for entry in self.mpt()?.prefix(snapshot, state, account.as_slice()) {
            let entry = entry?;
            if let Some(slot) = entry.key.get(32..).filter(|slot| slot.len() == 32) {
                hashed.push((B256::from_slice(slot), decode_slot(&entry.value)?));
            }
        }
        let mut storage = BTreeMap::new();
        for some in hashed.chunks(PREIMAGES_AT_ONCE) {
            let names: Vec<&[u8]> = some.iter().map(|(hash, _)| hash.as_slice()).collect();
            let stored = snapshot.read_many(Table::Preimages, &names)?;
            for ((hash, value), stored) in some.iter().zip(stored) {
                let noted = || self.preimage_index.get(hash).map(|at| &self.preimages[*at].1[..]);
                let known = stored.as_deref().or_else(noted);
                let known = known.and_then(|slot| B256::try_from(slot).ok());
                storage.insert(known.map_or(Slot::Hashed(*hash), Slot::Known), *value);
            }
        }
        Ok(storage)
    }

    /// Puts the rows of the sealed blocks into a write set, and drops those that are too old.
    pub(crate) fn put_history(&self, unsealed: bool, set: &mut WriteSet) {
        let anew = |set: &mut WriteSet| {
            set.drop_range(Table::History, Vec::new(), AFTER_ALL.to_vec());
        };
        let Some((_, last)) = self.sealed.last() else {
            if unsealed {
                // A state of no block has no history.
                anew(set);
            }
            return;
        };
        let mut packer = Packer::new();
        let mut rows: Vec<([u8; 8], Vec<u8>)> = Vec::new();
        // Each of the other trees has its own root before in what takes it back.
        let mpt_root = || self.mpt.as_ref().map_or(B256::ZERO, |mpt| mpt.root().into());
        let mut parent = self.block().map(|block| (block, mpt_root()));
        let mut broken = parent.is_none();
        let mut start = 0;
        let oldest = self.keep.oldest(last.number);
        for (index, (end, block)) in self.sealed.iter().enumerate() {
            if block.number >= oldest {
                match parent.and_then(|parent| self.record(parent, index, start..*end)) {
                    Some(record) => rows.push((key(block.number), record.encode(&mut packer))),
                    None => {
                        rows.clear();
                        broken = true;
                    }
                }
            }
            let layer = end.checked_sub(1).map(|last| self.layers[last].root);
            parent = Some((*block, layer.unwrap_or_else(mpt_root)));
            start = *end;
        }
        if broken {
            anew(set);
        } else if oldest > 0 {
            set.drop_range(Table::History, Vec::new(), key(oldest).to_vec());
        }
        for (key, row) in rows {
            set.put(Table::History, &key, row);
        }
    }

    /// The record of a sealed block whose layers these are; `None` where it does not follow its
    /// parent, or what it did was not noted.
    fn record(
        &self,
        (parent, parent_root): (BlockId, B256),
        sealed: usize,
        layers: std::ops::Range<usize>,
    ) -> Option<Record> {
        let (_, block) = self.sealed[sealed];
        let mut undo = Undo::default();
        for layer in &self.layers[layers] {
            undo.extend(layer.undo.clone()?);
        }
        let trees = self.secondary.undo_of(sealed)?;
        let follows = block.number > parent.number;
        follows.then_some(Record { block, parent, parent_root, undo, trees })
    }
}

fn put_slot(batch: &mut Batch, account: B256, slot: Slot, value: U256) {
    batch.put(&slot_key(account, slot.hash()), &slot_value(&value.to_be_bytes()));
}

/// The state of a kept block, or a candidate that stands on one: see [`State::at`]. Dropping it
/// leaves no trace.
pub struct KeptState<'a, P: PageStore> {
    state: &'a State<P>,
    mpt: &'a Tree<MptState>,
    snapshot: P::Snapshot<'a>,
    pending: Option<Pending<MptState>>,
    block: Option<BlockId>,
    codes: Vec<(B256, Bytes)>,
}

impl<P: PageStore> fmt::Debug for KeptState<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptState")
            .field("block", &self.block)
            .field("root", &self.root())
            .finish_non_exhaustive()
    }
}

impl<'a, P: PageStore> KeptState<'a, P> {
    /// Bytes of memory that it holds beside the pages of the state.
    pub fn memory(&self) -> usize {
        self.pending.as_ref().map_or(0, Pending::memory)
    }

    /// The state root.
    pub fn root(&self) -> B256 {
        let root = self.pending.as_ref().map_or_else(|| self.mpt.root(), Pending::root);
        root.into()
    }

    /// The block whose state it is; none of a candidate.
    pub const fn block(&self) -> Option<BlockId> {
        self.block
    }

    /// The tree that the state is one of: [`pending`](Self::pending) says which.
    pub const fn tree(&self) -> &'a Tree<MptState> {
        self.mpt
    }

    /// The state in the tree; `None` is that of the last commit.
    pub const fn pending(&self) -> Option<&Pending<MptState>> {
        self.pending.as_ref()
    }

    /// A view of the store, to read the tree through.
    pub const fn snapshot(&self) -> &P::Snapshot<'a> {
        &self.snapshot
    }

    /// The value of a slot, by its key in the tree.
    pub(crate) fn slot(&self, key: &[u8; 64]) -> Result<U256, StateError> {
        Ok(self.state.slot_in(&self.snapshot, self.pending(), key)?.unwrap_or_default())
    }

    /// Whether an account has any slot that is not zero.
    ///
    /// # Errors
    /// If the store fails or is damaged.
    pub fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        let account = keccak256(address);
        self.state.has_storage_in(&self.snapshot, self.pending(), account, |_| false)
    }

    /// All slots of an account.
    pub(crate) fn storage_of(&self, address: Address) -> Result<BTreeMap<Slot, U256>, StateError> {
        self.state.storage_of(&self.snapshot, self.pending(), keccak256(address))
    }

    /// The state after changes, next to this one: a candidate for the block after. Any number may
    /// stand on one state, and on one another.
    ///
    /// # Errors
    /// If a change makes no sense, or the store fails.
    pub fn apply(&self, changes: &Changes) -> Result<Self, StateError> {
        let (state, mpt) = (self.state, self.mpt);
        let keys = Keys::of(changes);
        let mut codes = self.codes.clone();
        codes.extend(codes_of(changes)?.into_iter().map(|(hash, code)| (hash, code.clone())));
        let snapshot = state.store.snapshot()?;
        let old = state.old_accounts(&snapshot, self.pending(), changes, &keys, false)?;
        let batch = batch_of(changes, &keys, &old);
        let pending = mpt.prepare(&snapshot, self.pending(), batch)?;
        Ok(Self { state, mpt, snapshot, pending: Some(pending), block: None, codes })
    }
}

impl<P: PageStore> StateRead for KeptState<'_, P> {
    type Error = StateError;

    fn account(&self, address: Address) -> Result<Option<Account>, StateError> {
        self.state.account_in(&self.snapshot, self.pending(), keccak256(address))
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        self.slot(&slot_key(keccak256(address), keccak256(slot)))
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateError> {
        if hash == KECCAK256_EMPTY {
            return Ok(Some(Bytes::new()));
        }
        match self.codes.iter().find(|(noted, _)| *noted == hash) {
            Some((_, code)) => Ok(Some(code.clone())),
            None => self.state.stored_code(&self.snapshot, hash),
        }
    }
}
