//! Ethereum's state in a Merkle Patricia trie over a store.
//!
//! Invariants:
//! - reads see the last commit and every change applied since;
//! - nothing reaches the store before [`State::commit`], and then all of it does in one commit: pages,
//!   root record, code and preimages;
//! - every layer of what was applied can be taken back, and leaves no trace.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use spinney_tree::mpt::{
    MptState, NodeRef, account_value, decode_account_value, decode_slot_value, slot_value,
};
use spinney_tree::{
    Batch, BlockId, CommitStats, Entries, Finding, PageStore, Pending, Snapshot, StoreError, Table,
    Tree, TreeError, TreeId, WriteSet,
};

use crate::lazy::LazySnapshot;
use crate::{Account, Change, Changes, StateRead};

/// The id of the Merkle Patricia trie in a store of Ethereum state.
pub const MPT: TreeId = TreeId(1);

/// How many hashed keys are remembered as having their preimage stored.
const KNOWN_PREIMAGES_MAX: usize = 1 << 20;

/// How many contracts' code stays in memory.
const RECENT_CODES_MAX: usize = 1_024;

/// Why the state refused or failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// Code was given that is not behind its hash.
    #[error("account {address}: code of hash {found} where {expected} is named")]
    CodeHash {
        /// The account.
        address: Address,
        /// The hash named.
        expected: B256,
        /// The hash of the bytes.
        found: B256,
    },
    /// What a tree holds under a key is no account or no slot.
    #[error("the tree holds 0x{bytes} where {what} belongs: the store is damaged")]
    Malformed {
        /// An account or a slot.
        what: String,
        /// The bytes found.
        bytes: String,
    },
    /// The store lacks what is behind a hashed key.
    #[error("no preimage of {hash} is stored")]
    NoPreimage {
        /// The hashed key.
        hash: B256,
    },
    /// A tree refused or failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl From<StoreError> for StateError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}

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
}

/// What was applied at once, and what was noted before it.
#[derive(Debug)]
struct Layer {
    pending: Pending<MptState>,
    codes: usize,
    preimages: usize,
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
#[derive(Debug)]
pub struct State<P> {
    store: P,
    tree: Tree<MptState>,
    layers: Vec<Layer>,
    /// Blocks that end at so many layers.
    sealed: Vec<(usize, BlockId)>,
    codes: Vec<(B256, Bytes)>,
    code_index: HashMap<B256, usize>,
    /// Code read from the store: it never changes under its hash.
    recent_codes: RefCell<HashMap<B256, Bytes>>,
    preimages: Vec<(B256, Vec<u8>)>,
    known: HashSet<B256>,
    keep_preimages: bool,
    times: Cell<StateTimes>,
    written: CommitStats,
}

impl<P: PageStore> State<P> {
    /// Opens the state in a store; an empty store holds the empty state. `cache_bytes` bounds the pages
    /// kept in memory.
    ///
    /// # Errors
    /// If the store holds something else, or is damaged.
    pub fn open(store: P, cache_bytes: usize) -> Result<Self, StateError> {
        let tree = Tree::open(MptState, MPT, &store.snapshot()?, cache_bytes)?;
        Ok(Self {
            store,
            tree,
            layers: Vec::new(),
            sealed: Vec::new(),
            codes: Vec::new(),
            code_index: HashMap::new(),
            recent_codes: RefCell::default(),
            preimages: Vec::new(),
            known: HashSet::new(),
            keep_preimages: true,
            times: Cell::default(),
            written: CommitStats::default(),
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

    /// The state root, of all that was applied.
    pub fn root(&self) -> B256 {
        self.top().map_or_else(|| self.tree.root(), Pending::root).into()
    }

    /// What the last [`State::commit`]s wrote to the tree, all together.
    pub const fn written(&self) -> CommitStats {
        self.written
    }

    /// The block of the last commit, if it was told.
    pub const fn block(&self) -> Option<BlockId> {
        self.tree.block()
    }

    /// How many commits were made to the state; with none the store holds nothing of it.
    pub const fn commit_number(&self) -> u64 {
        self.tree.commit_number()
    }

    /// Where the time went since the state was opened.
    pub const fn times(&self) -> StateTimes {
        self.times.get()
    }

    fn timed<T>(
        &self,
        part: impl FnOnce(&mut StateTimes) -> &mut Duration,
        f: impl FnOnce() -> T,
    ) -> T {
        let start = Instant::now();
        let answer = f();
        let mut times = self.times.get();
        *part(&mut times) += start.elapsed();
        self.times.set(times);
        answer
    }

    fn top(&self) -> Option<&Pending<MptState>> {
        self.layers.last().map(|layer| &layer.pending)
    }

    /// Puts a layer of changes on top of all applied so far, and computes the state root. Nothing is
    /// written.
    ///
    /// # Errors
    /// If a change makes no sense, or the store fails. Then nothing of the changes is applied.
    pub fn apply(&mut self, changes: &Changes) -> Result<B256, StateError> {
        let (codes, preimages) = (self.codes.len(), self.preimages.len());
        match self.prepare(changes) {
            Ok(pending) => {
                let root = pending.root();
                self.layers.push(Layer { pending, codes, preimages });
                Ok(root.into())
            }
            Err(error) => {
                self.forget(codes, preimages);
                Err(error)
            }
        }
    }

    fn prepare(&mut self, changes: &Changes) -> Result<Pending<MptState>, StateError> {
        let keys = self.timed(|t| &mut t.key_hashing, || Keys::of(changes));
        let mut batch = Batch::new();
        for ((address, change), keys) in changes.accounts.iter().zip(&keys.0) {
            self.add_change(&mut batch, *address, change, keys)?;
        }
        if self.keep_preimages {
            self.note_preimages(changes, &keys)?;
        }
        let snapshot = LazySnapshot::new(&self.store);
        let prepare = || self.tree.prepare(&snapshot, self.top(), batch);
        Ok(self.timed(|t| &mut t.tree, prepare)?)
    }

    fn add_change(
        &mut self,
        batch: &mut Batch,
        address: Address,
        change: &Change,
        keys: &AccountKeys,
    ) -> Result<(), StateError> {
        let Change::Written(change) = change else {
            batch.delete_prefix(keys.account.as_slice());
            return Ok(());
        };
        let old = if change.fresh { None } else { self.account_at(keys.account)? };
        if change.fresh {
            batch.delete_prefix(keys.account.as_slice());
        }
        let empty = Account::EMPTY;
        let base = old.unwrap_or(empty);
        if let (Some(code), Some(expected)) = (&change.code, change.code_hash) {
            self.add_code(address, expected, code)?;
        }
        let account = Account {
            nonce: change.nonce.unwrap_or(base.nonce),
            balance: change.balance.unwrap_or(base.balance),
            code_hash: change.code_hash.unwrap_or(base.code_hash),
        };
        if old != Some(account) {
            let value =
                account_value(account.nonce, &account.balance.to_be_bytes(), &account.code_hash.0);
            batch.put(keys.account.as_slice(), &value);
        }
        let mut key = [0; 64];
        key[..32].copy_from_slice(keys.account.as_slice());
        for (slot, value) in keys.slots.iter().zip(change.storage.values()) {
            key[32..].copy_from_slice(slot.as_slice());
            // Zero is the empty value, which deletes.
            batch.put(&key, &slot_value(&value.to_be_bytes()));
        }
        Ok(())
    }

    fn add_code(
        &mut self,
        address: Address,
        expected: B256,
        code: &Bytes,
    ) -> Result<(), StateError> {
        let found = keccak256(code);
        if found != expected {
            return Err(StateError::CodeHash { address, expected, found });
        }
        if found != KECCAK256_EMPTY && !self.code_index.contains_key(&found) {
            self.code_index.insert(found, self.codes.len());
            self.codes.push((found, code.clone()));
        }
        Ok(())
    }

    /// Notes the preimages of keys that are written and not known to be stored.
    fn note_preimages(&mut self, changes: &Changes, keys: &Keys) -> Result<(), StateError> {
        let mut fresh: Vec<(B256, Vec<u8>)> = Vec::new();
        for ((address, change), keys) in changes.accounts.iter().zip(&keys.0) {
            let Change::Written(change) = change else { continue };
            if !self.known.contains(&keys.account) {
                fresh.push((keys.account, address.to_vec()));
            }
            for (hash, slot) in keys.slots.iter().zip(change.storage.keys()) {
                if !self.known.contains(hash) {
                    fresh.push((*hash, slot.to_vec()));
                }
            }
        }
        fresh.sort_unstable();
        fresh.dedup();
        let snapshot = LazySnapshot::new(&self.store);
        let names: Vec<&[u8]> = fresh.iter().map(|(hash, _)| hash.as_slice()).collect();
        let stored: Vec<bool> =
            snapshot.read_many(Table::Preimages, &names)?.iter().map(Option::is_some).collect();
        if self.known.len() > KNOWN_PREIMAGES_MAX {
            self.known.clear();
        }
        self.known.extend(fresh.iter().map(|(hash, _)| *hash));
        let new = fresh.into_iter().zip(stored).filter(|(_, stored)| !stored);
        self.preimages.extend(new.map(|(preimage, _)| preimage));
        Ok(())
    }

    /// How many layers lie above the last commit.
    pub const fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// Takes back the newest layers until `layer_count` are left.
    pub fn undo_to(&mut self, layer_count: usize) {
        let Some(first) = self.layers.get(layer_count) else { return };
        let (codes, preimages) = (first.codes, first.preimages);
        self.layers.truncate(layer_count);
        self.sealed.retain(|(layers, _)| *layers <= layer_count);
        self.forget(codes, preimages);
    }

    /// Forgets the code and the preimages noted since there were so many.
    fn forget(&mut self, codes: usize, preimages: usize) {
        for (hash, _) in self.codes.drain(codes..) {
            self.code_index.remove(&hash);
        }
        for (hash, _) in self.preimages.drain(preimages..) {
            self.known.remove(&hash);
        }
    }

    /// Says that what was applied so far is the state of `block`: the next commit records it.
    pub fn seal(&mut self, block: BlockId) {
        self.sealed.push((self.layers.len(), block));
    }

    /// Makes all that was applied durable in one commit of the store, as the state of the block that
    /// was sealed last. Layers above that block are taken back first.
    ///
    /// # Errors
    /// If the store fails. Then nothing is committed, and what was applied still is.
    pub fn commit(&mut self) -> Result<CommitStats, StateError> {
        let last = self.sealed.last().copied();
        if let Some((layers, _)) = last {
            self.undo_to(layers);
        }
        // What was applied without a block is no state of the block before it.
        let unsealed = !self.layers.is_empty() && last.is_none();
        let before = if unsealed { None } else { self.tree.block() };
        let block = last.map(|(_, block)| block).or(before);
        let mut set = WriteSet::new();
        let pending = match self.top() {
            Some(pending) => pending.clone(),
            None => self.tree.prepare(&self.store.snapshot()?, None, Batch::new())?,
        };
        let snapshot = self.store.snapshot()?;
        let staged = self
            .timed(|t| &mut t.encode, || self.tree.stage(&snapshot, &pending, block, &mut set))?;
        for (hash, code) in &self.codes {
            set.put(Table::Codes, hash.as_slice(), code.to_vec());
        }
        for (hash, preimage) in &self.preimages {
            set.put(Table::Preimages, hash.as_slice(), preimage.clone());
        }
        let stats = staged.stats();
        if !set.is_empty() {
            set.sort();
            self.timed(|t| &mut t.store, || self.store.commit(&set))?;
            self.tree.adopt(staged);
        }
        self.written += stats;
        self.layers.clear();
        self.sealed.clear();
        self.codes.clear();
        self.code_index.clear();
        self.preimages.clear();
        Ok(stats)
    }

    fn account_at(&self, key: B256) -> Result<Option<Account>, StateError> {
        let snapshot = LazySnapshot::new(&self.store);
        let Some(value) = self.tree.get(&snapshot, self.top(), key.as_slice())? else {
            return Ok(None);
        };
        decode_account(&value).map(Some)
    }

    /// The accounts of the last commit with their storage, in order of their hashed addresses.
    pub fn dump(&self) -> Result<Dump<'_, P>, StateError> {
        Ok(Dump { state: self, snapshot: self.store.snapshot()? })
    }

    /// Checks the last commit, key by key and row by row: see [`Tree::check`]. `progress` is told the
    /// keys read.
    ///
    /// # Errors
    /// If the store fails. Damage is no error but a finding.
    pub fn check(&self, progress: impl FnMut(u64)) -> Result<Vec<Finding>, StateError> {
        Ok(self.tree.check(&self.store.snapshot()?, progress)?)
    }
}

impl<P: PageStore> StateRead for State<P> {
    type Error = StateError;

    fn account(&self, address: Address) -> Result<Option<Account>, StateError> {
        let key = self.timed(|t| &mut t.key_hashing, || keccak256(address));
        self.timed(|t| &mut t.read, || self.account_at(key))
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        let key = self.timed(
            |t| &mut t.key_hashing,
            || {
                let mut key = [0; 64];
                key[..32].copy_from_slice(keccak256(address).as_slice());
                key[32..].copy_from_slice(keccak256(slot).as_slice());
                key
            },
        );
        self.timed(
            |t| &mut t.read,
            || {
                let snapshot = self.store.snapshot()?;
                match self.tree.get(&snapshot, self.top(), &key)? {
                    Some(value) => decode_slot(&value),
                    None => Ok(U256::ZERO),
                }
            },
        )
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
        let code = self.timed(
            |t| &mut t.read,
            || {
                let snapshot = self.store.snapshot()?;
                let code = snapshot.read(Table::Codes, hash.as_slice())?;
                Ok::<_, StateError>(code.map(|code| Bytes::copy_from_slice(&code)))
            },
        )?;
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

/// The hashed keys of a set of changes, account by account.
struct Keys(Vec<AccountKeys>);

struct AccountKeys {
    account: B256,
    slots: Vec<B256>,
}

impl Keys {
    fn of(changes: &Changes) -> Self {
        let keys = |(address, change): (&Address, &Change)| AccountKeys {
            account: keccak256(address),
            slots: match change {
                Change::Deleted => Vec::new(),
                Change::Written(change) => change.storage.keys().map(keccak256).collect(),
            },
        };
        Self(changes.accounts.iter().map(keys).collect())
    }
}

/// The content of a state: see [`State::dump`].
#[derive(Debug)]
pub struct Dump<'a, P: PageStore> {
    state: &'a State<P>,
    snapshot: P::Snapshot<'a>,
}

/// An account of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpedAccount {
    /// The Keccak-256 digest of its address.
    pub key: B256,
    /// Its address.
    pub address: Address,
    /// Nonce, balance and code hash.
    pub account: Account,
    /// The root of its storage.
    pub storage_root: B256,
    /// Its code; `None` where only the hash was ever given.
    pub code: Option<Bytes>,
    /// Its slots that are not zero, in order of their hashes.
    pub storage: Vec<(B256, U256)>,
}

impl<P: PageStore> Dump<'_, P> {
    /// The accounts, in order of their hashed addresses. An account's storage is held in memory.
    pub fn accounts(&self) -> impl Iterator<Item = Result<DumpedAccount, StateError>> + '_ {
        let entries = self.state.tree.entries(&self.snapshot, None, b"");
        Accounts { dump: self, entries, next: None, failed: false }
    }

    fn preimage<const N: usize>(&self, hash: &[u8]) -> Result<[u8; N], StateError> {
        let row = self.snapshot.read(Table::Preimages, hash)?;
        let missing = || StateError::NoPreimage { hash: B256::from_slice(hash) };
        row.as_deref().and_then(|row| row.try_into().ok()).ok_or_else(missing)
    }

    fn begin(&self, entry: &spinney_tree::Entry<NodeRef>) -> Result<DumpedAccount, StateError> {
        let account = decode_account(&entry.value)?;
        let code = match account.code_hash {
            KECCAK256_EMPTY => Some(Bytes::new()),
            hash => {
                let row = self.snapshot.read(Table::Codes, hash.as_slice())?;
                row.map(|row| Bytes::copy_from_slice(&row))
            }
        };
        let empty = spinney_tree::mpt::EMPTY_ROOT;
        Ok(DumpedAccount {
            key: B256::from_slice(&entry.key),
            address: self.preimage::<20>(&entry.key)?.into(),
            account,
            storage_root: entry.owned.map_or(empty, |top| top.digest()).into(),
            code,
            storage: Vec::new(),
        })
    }
}

struct Accounts<'d, 'a, P: PageStore> {
    dump: &'d Dump<'a, P>,
    entries: Entries<'d, MptState, P::Snapshot<'a>>,
    next: Option<DumpedAccount>,
    failed: bool,
}

impl<P: PageStore> Accounts<'_, '_, P> {
    fn advance(&mut self) -> Result<Option<DumpedAccount>, StateError> {
        for entry in self.entries.by_ref() {
            let entry = entry?;
            if entry.key.len() == 32 {
                let begun = self.dump.begin(&entry)?;
                if let Some(done) = self.next.replace(begun) {
                    return Ok(Some(done));
                }
                continue;
            }
            let slot = self.dump.preimage::<32>(&entry.key[32..])?.into();
            let value = decode_slot(&entry.value)?;
            if let Some(account) = &mut self.next {
                account.storage.push((slot, value));
            }
        }
        Ok(self.next.take())
    }
}

impl<P: PageStore> Iterator for Accounts<'_, '_, P> {
    type Item = Result<DumpedAccount, StateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance();
        self.failed = next.is_err();
        next.transpose()
    }
}

fn decode_account(value: &[u8]) -> Result<Account, StateError> {
    let (nonce, balance, code_hash) =
        decode_account_value(value).ok_or_else(|| malformed("an account", value))?;
    Ok(Account { nonce, balance: U256::from_be_bytes(balance), code_hash: code_hash.into() })
}

fn decode_slot(value: &[u8]) -> Result<U256, StateError> {
    let word = decode_slot_value(value).ok_or_else(|| malformed("a slot", value))?;
    Ok(U256::from_be_bytes(word))
}

fn malformed(what: &str, bytes: &[u8]) -> StateError {
    let bytes = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    StateError::Malformed { what: what.into(), bytes }
}
