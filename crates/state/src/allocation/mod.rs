//! The first state of a store, made of accounts that come in any order.
//!
//! ```text
//! key in the trie (32 or 64)
//!     -> name behind it (20 or 32), bytes of the leaf (u8), leaf, code of an account
//! ```
//! Invariants (`tests.rs`):
//! - pages, root, code and preimages are those that [`State::apply`] makes of the same accounts,
//!   whatever the memory, and in whichever order they come;
//! - what is in memory does not grow with the accounts;
//! - the store holds no state before the last commit: a process that is killed before leaves rows
//!   that nobody reads, and that the same call removes.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::mem;
use std::time::{Duration, Instant};

use alloy_primitives::{Address, B256, U256, keccak256};
use rayon::prelude::*;
use spinney_pipeline::{Gather, Options, PipelineError, RunName, Scratch, SortedLeaves};
use spinney_tree::bulk::RootBuilder;
use spinney_tree::mpt::{MptState, slot_value};
use spinney_tree::ranges::{Built, Ranges};
use spinney_tree::{
    BlockId, CommitStats, MemoryStore, PageStore, Table, Tree, TreeError, WriteSet,
};

use crate::AccountChange;
use crate::error::StateError;
use crate::leaves::account_leaf;
use crate::mpt_entries::{MPT, hashes_of};
use crate::mpt_state::{GENESIS_KEY, State};
use crate::preimages::Preimages;

/// Names that are hashed at once.
const HASHED_AT_ONCE: usize = 1_024;

/// Code that ends what one thread builds at a time.
const CODE_BYTES: usize = 1 << 20;

/// How much is done at a time. None of it changes what is stored.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// Leaves that one thread builds.
    range_leaves: usize,
    /// A commit takes no more rows once they have so many bytes.
    commit_bytes: usize,
    /// Bytes of preimages in memory.
    preimages: usize,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { range_leaves: 4_096, commit_bytes: 16 << 20, preimages: 192 << 20 }
    }
}

/// Gathers the accounts of a first state, in bounded memory.
///
/// ```
/// use alloy_primitives::{Address, B256, U256};
/// use spinney_state::{AccountChange, Allocation, State, StateRead};
/// use spinney_tree::{BlockId, MemoryStore};
///
/// let mut allocation = Allocation::new(1 << 20)?;
/// let rich = AccountChange { balance: Some(U256::from(5)), ..AccountChange::default() };
/// allocation.slot(Address::ZERO, B256::ZERO, U256::from(7))?;
/// allocation.account(Address::ZERO, &rich)?;
/// let sorted = allocation.sort()?;
/// let root = sorted.root();
///
/// let mut state = State::open(MemoryStore::new(), 1 << 20)?;
/// state.fill(sorted, BlockId::default())?;
/// assert_eq!(state.root(), root);
/// assert_eq!(state.storage(Address::ZERO, B256::ZERO)?, U256::from(7));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Allocation {
    gather: Gather,
    accounts: u64,
    waiting: Waiting,
    /// The account whose slots came last, and its hash.
    owner: (Address, B256),
    run: RunName,
    scratch: Scratch,
}

/// Leaves whose names are not hashed yet.
#[derive(Debug, Default)]
struct Waiting {
    /// For each the hash of its account, of slots; where its name ends, and where its value does.
    leaves: Vec<(Option<B256>, usize, usize)>,
    names: Vec<u8>,
    values: Vec<u8>,
}

impl Allocation {
    /// No accounts yet. `memory` bounds the bytes of accounts in memory; what is beyond is sorted
    /// into temporary files.
    ///
    /// # Errors
    /// If there is no room for temporary files.
    pub fn new(memory: usize) -> Result<Self, StateError> {
        let scratch = Scratch::new()?;
        let mut options = Options::default();
        options.memory = memory;
        let nowhere = MemoryStore::new();
        let tree = Tree::open(MptState, MPT, &nowhere.snapshot()?, 0)?;
        let run = RunName::of(&tree, b"allocation", &options);
        let gather = Gather::open(scratch.path(), run, options)?;
        let owner = (Address::ZERO, keccak256(Address::ZERO));
        Ok(Self { gather, accounts: 0, waiting: Waiting::default(), owner, run, scratch })
    }

    /// Takes a slot; one that is zero is none. Its account has to come, too, before or after it.
    ///
    /// # Errors
    /// If a temporary file cannot be written.
    pub fn slot(&mut self, address: Address, slot: B256, value: U256) -> Result<(), StateError> {
        if value.is_zero() {
            return Ok(());
        }
        if self.owner.0 != address {
            self.owner = (address, keccak256(address));
        }
        let leaf = slot_value(&value.to_be_bytes());
        self.put(Some(self.owner.1), slot.as_slice(), &leaf, &[])
    }

    /// Takes an account, with the slots that it is given along.
    ///
    /// # Errors
    /// If a temporary file cannot be written.
    pub fn account(&mut self, address: Address, change: &AccountChange) -> Result<(), StateError> {
        for (slot, value) in &change.storage {
            self.slot(address, *slot, *value)?;
        }
        self.accounts += 1;
        let code = change.code.as_ref().map_or(&[][..], |code| &code[..]);
        self.put(None, address.as_slice(), &account_leaf(change), code)
    }

    fn put(
        &mut self,
        owner: Option<B256>,
        name: &[u8],
        leaf: &[u8],
        code: &[u8],
    ) -> Result<(), StateError> {
        let Waiting { leaves, names, values } = &mut self.waiting;
        names.extend_from_slice(name);
        values.extend_from_slice(name);
        values.push(u8::try_from(leaf.len()).expect("leaves of accounts and slots are short"));
        values.extend_from_slice(leaf);
        values.extend_from_slice(code);
        leaves.push((owner, names.len(), values.len()));
        if leaves.len() >= HASHED_AT_ONCE { self.hash() } else { Ok(()) }
    }

    /// Hashes the names that wait.
    fn hash(&mut self) -> Result<(), StateError> {
        let Waiting { leaves, names, values } = &mut self.waiting;
        let mut name_start = 0;
        let each =
            leaves.iter().map(|(_, end, _)| &names[mem::replace(&mut name_start, *end)..*end]);
        let hashes = hashes_of(each);
        let mut start = 0;
        for ((owner, _, end), hash) in leaves.iter().zip(hashes) {
            let value = &values[mem::replace(&mut start, *end)..*end];
            match owner {
                Some(owner) => self.gather.push(&[owner.0, hash.0].concat(), value)?,
                None => self.gather.push(hash.as_slice(), value)?,
            }
        }
        leaves.clear();
        names.clear();
        values.clear();
        Ok(())
    }

    /// Sorts the accounts, and computes the root of the Merkle Patricia trie.
    ///
    /// # Errors
    /// If an account or a slot came twice, a slot came without its account, or a temporary file
    /// fails.
    pub fn sort(mut self) -> Result<SortedAllocation, StateError> {
        self.hash()?;
        let Self { gather, accounts, run, scratch, .. } = self;
        let mut leaves = gather.into_sorted()?;
        let mut builder = RootBuilder::new(MptState);
        while let Some((key, value)) = leaves.leaf() {
            builder.push(key, GatheredLeaf::read(key, value).leaf)?;
            match leaves.advance() {
                Err(PipelineError::Twice { .. }) => return Err(twice(&leaves)),
                done => done?,
            }
        }
        leaves.rewind()?;
        Ok(SortedAllocation {
            leaves,
            root: builder.finish()?.into(),
            accounts,
            sizes: Sizes::default(),
            run,
            scratch,
        })
    }
}

/// Names what came twice.
fn twice(leaves: &SortedLeaves) -> StateError {
    let name = leaves.leaf().map(|(key, value)| GatheredLeaf::read(key, value).name);
    let what = if name.is_some_and(|name| name.len() == 20) { "account" } else { "slot" };
    StateError::Twice {
        what,
        name: alloy_primitives::hex::encode_prefixed(name.unwrap_or_default()),
    }
}

/// What a leaf was gathered with.
struct GatheredLeaf<'v> {
    name: &'v [u8],
    leaf: &'v [u8],
    code: &'v [u8],
}

impl<'v> GatheredLeaf<'v> {
    /// Our own bytes: runs have checksums.
    fn read(key: &[u8], value: &'v [u8]) -> Self {
        let (name, value) = value.split_at(if key.len() == 32 { 20 } else { 32 });
        let (leaf, code) = value[1..].split_at(value[0].into());
        Self { name, leaf, code }
    }
}

/// The accounts of a first state, in order: see [`State::fill`].
#[derive(Debug)]
pub struct SortedAllocation {
    leaves: SortedLeaves,
    root: B256,
    accounts: u64,
    sizes: Sizes,
    run: RunName,
    /// Goes with the value.
    scratch: Scratch,
}

impl SortedAllocation {
    /// The root of the Merkle Patricia trie.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// How many accounts there are.
    pub const fn accounts(&self) -> u64 {
        self.accounts
    }
}

impl<P: PageStore> State<P> {
    /// Makes the accounts the state of a block, in a store that holds no state yet: in several
    /// commits, of which only the last one shows it. The state has a Merkle Patricia trie alone;
    /// other trees take [changes](Self::apply).
    ///
    /// # Errors
    /// [`StateError::NotEmpty`] if there is a state already, or something was applied; or the store
    /// or a temporary file fails. Then the store holds no state.
    pub fn fill(&mut self, allocation: SortedAllocation, block: BlockId) -> Result<(), StateError> {
        if self.commit_number() > 0 || !self.layers.is_empty() || !self.secondary.are_none() {
            return Err(StateError::NotEmpty);
        }
        self.mpt()?;
        self.secondary.are_all()?;
        let SortedAllocation { mut leaves, root, sizes, run: named, scratch, .. } = allocation;
        let started = Instant::now();
        let (genesis, keep) = (self.genesis, self.keep_preimages);
        let Self { mpt: Some(mpt), store, .. } = self else { return Err(StateError::NotEmpty) };
        let store = &*store;
        let run = keccak256([&b"allocation"[..], root.as_slice(), &block.hash].concat());
        let (ranges, _) = Ranges::begin(mpt, store, run.0)?;
        let open = || Preimages::open(&scratch.beside("preimages"), named, sizes.preimages);
        let preimages = keep.then(open).transpose()?;
        let (mut join, mut filling) = (ranges.join(), Filling::new(store, preimages, sizes));
        let mut before = None;
        loop {
            let parts = filling.cut(&mut leaves)?;
            let Some(last) = parts.last().and_then(Part::last) else { break };
            let next = leaves.leaf().map(|(key, _)| key);
            for built in build(&ranges, &parts, before.as_deref(), next)? {
                filling.bytes += built.row_bytes();
                built.put_rows(&mut filling.set);
                join.add(built.summary)?;
            }
            before = Some(last.to_vec());
            if filling.bytes >= sizes.commit_bytes {
                join.put_rows(&mut filling.set);
                filling.commit()?;
            }
        }
        drop(leaves);
        filling.put_preimages()?;
        drop(scratch);
        let found = join.finish(&mut filling.set)?;
        if found != root.0 {
            return Err(StateError::Filled { expected: root, found: found.into() });
        }
        if let Some(genesis) = genesis {
            filling.set.put(Table::Meta, GENESIS_KEY, genesis.to_vec());
        }
        filling.count();
        let Filling { set, stats, store_time, .. } = filling;
        let finished = Instant::now();
        ranges.finish(found, Some(block), set)?;
        let store_time = store_time + finished.elapsed();
        self.written += stats;
        self.spent(|t| &mut t.store, store_time);
        self.spent(|t| &mut t.tree, started.elapsed().saturating_sub(store_time));
        self.publish();
        self.genesis = None;
        Ok(())
    }
}

/// Leaves for one thread, in one buffer.
#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    /// Where key and value of each end.
    ends: Vec<(usize, usize)>,
    code_bytes: usize,
}

impl Part {
    fn push(&mut self, key: &[u8], leaf: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(leaf);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn leaf(&self, index: usize) -> Option<(&[u8], &[u8])> {
        let (key_end, end) = *self.ends.get(index)?;
        let from = index.checked_sub(1).map_or(0, |before| self.ends[before].1);
        Some((&self.bytes[from..key_end], &self.bytes[key_end..end]))
    }

    fn first(&self) -> Option<&[u8]> {
        self.leaf(0).map(|(key, _)| key)
    }

    fn last(&self) -> Option<&[u8]> {
        self.leaf(self.ends.len().checked_sub(1)?).map(|(key, _)| key)
    }

    fn is_full(&self, leaves: usize) -> bool {
        self.ends.len() >= leaves || self.code_bytes >= CODE_BYTES
    }
}

/// Builds parts that follow one another, on all threads.
fn build<P: PageStore>(
    ranges: &Ranges<'_, MptState, P>,
    parts: &[Part],
    before: Option<&[u8]>,
    next: Option<&[u8]>,
) -> Result<Vec<Built<MptState>>, TreeError> {
    let one = |index: usize| {
        let before = index.checked_sub(1).map_or(before, |before| parts[before].last());
        let mut builder = ranges.builder(before);
        let part = &parts[index];
        for (key, value) in (0..part.ends.len()).filter_map(|leaf| part.leaf(leaf)) {
            builder.push(key, value)?;
        }
        builder.finish(parts.get(index + 1).map_or(next, Part::first))
    };
    (0..parts.len()).into_par_iter().map(one).collect()
}

/// A fill under way: what waits for a commit.
struct Filling<'s, P> {
    store: &'s P,
    /// If they are kept.
    preimages: Option<Preimages>,
    sizes: Sizes,
    set: WriteSet,
    /// Bytes of pages and code in it, about.
    bytes: usize,
    codes: HashSet<B256>,
    stats: CommitStats,
    store_time: Duration,
}

impl<'s, P: PageStore> Filling<'s, P> {
    fn new(store: &'s P, preimages: Option<Preimages>, sizes: Sizes) -> Self {
        Self {
            store,
            preimages,
            sizes,
            set: WriteSet::new(),
            bytes: 0,
            codes: HashSet::new(),
            stats: CommitStats::default(),
            store_time: Duration::ZERO,
        }
    }

    /// Takes leaves for all threads, and notes what goes along with them.
    fn cut(&mut self, leaves: &mut SortedLeaves) -> Result<Vec<Part>, StateError> {
        let mut parts = Vec::new();
        for _ in 0..2 * rayon::current_num_threads() {
            let mut part = Part::default();
            while !part.is_full(self.sizes.range_leaves)
                && let Some((key, value)) = leaves.leaf()
            {
                let GatheredLeaf { name, leaf, code } = GatheredLeaf::read(key, value);
                part.push(key, leaf);
                part.code_bytes += self.note_code(code);
                if let Some(preimages) = &mut self.preimages {
                    preimages.push(&B256::from_slice(&key[key.len() - 32..]), name)?;
                }
                leaves.advance()?;
            }
            if part.ends.is_empty() {
                break;
            }
            parts.push(part);
        }
        Ok(parts)
    }

    /// Answers the bytes of code that is new.
    fn note_code(&mut self, code: &[u8]) -> usize {
        if code.is_empty() {
            return 0;
        }
        let hash = keccak256(code);
        if !self.codes.insert(hash) {
            return 0;
        }
        self.set.put(Table::Codes, hash.as_slice(), code.to_vec());
        self.bytes += code.len();
        code.len()
    }

    /// Commits the preimages: they are true of any state.
    fn put_preimages(&mut self) -> Result<(), StateError> {
        let Some(preimages) = self.preimages.take() else { return Ok(()) };
        let mut sorted = preimages.sort()?;
        while let Some(set) = sorted.next_set()? {
            self.put(set)?;
        }
        Ok(())
    }

    fn count(&mut self) {
        self.stats.rows_written += self.set.count(Table::Pages);
        self.stats.bytes += self.set.bytes(Table::Pages);
    }

    fn commit(&mut self) -> Result<(), StateError> {
        self.count();
        self.bytes = 0;
        let mut set = mem::take(&mut self.set);
        set.sort();
        self.put(set)
    }

    fn put(&mut self, set: WriteSet) -> Result<(), StateError> {
        let began = Instant::now();
        self.store.commit_owned(set)?;
        self.store_time += began.elapsed();
        Ok(())
    }
}
