//! Blocks in chunks: what they change is gathered, and goes to the tree as one batch, in one
//! commit.
//!
//! Invariants (`tests/it/chunks.rs`):
//! - pages and history do not depend on how blocks are cut into chunks, nor on memory, nor on
//!   whether a chunk is applied to the tree or the tree built anew;
//! - reads see all that was gathered;
//! - a chunk is committed as a whole, with its history, and only if its root is the one that was
//!   given for its last block. The root record that goes with it names that block: it is the
//!   checkpoint.

mod overlay;

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::time::Instant;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use spinney_pipeline::{
    Checkpoint, Gather, Options, PipelineError, Progress, RunName, State as RunState,
};
use spinney_tree::mpt::MptState;
use spinney_tree::{Batch, BlockId, PageStore, Pending, WriteSet};

use self::overlay::Overlay;
use crate::error::StateError;
use crate::lazy::LazySnapshot;
use crate::mpt_entries::{Keys, MPT, account_after, codes_of, slot_key};
use crate::mpt_state::{Layer, State};
use crate::undo::{Old, Slot, Undo, undo_of};
use crate::{Account, Change, Changes, StateRead};

/// A chunk with fewer changes is not worth a look at how large the state is.
const REBUILD_CHANGES_MIN: u64 = 10_000;

/// A state with so many leaves a change, and no more, is built anew.
const REBUILD_LEAVES_A_CHANGE: u64 = 4;

/// What a note of an old value takes, about.
const UNDO_BYTES: usize = 96;

/// How a chunk gets into the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChunkBuild {
    /// Whichever is less work: the tree is built anew where it has at most four leaves for each
    /// change of the chunk.
    #[default]
    Auto,
    /// The changes are applied to it.
    Incremental,
    /// It is built anew.
    Rebuild,
}

/// How blocks are gathered. None of it changes the tree.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ChunkOptions {
    /// A chunk ends with the block that brings it to so many changed accounts and slots: 100,000
    /// unless told otherwise.
    pub changes: u64,
    /// A chunk ends with the block that brings it to so many bytes of changes: 64 MiB.
    pub bytes: u64,
    /// Bytes of changes in memory; what is beyond goes to disk until the chunk ends. 128 MiB.
    pub memory: usize,
    /// How a chunk gets into the tree.
    pub build: ChunkBuild,
    /// How a tree is built anew.
    pub rebuild: Options,
}

impl Default for ChunkOptions {
    fn default() -> Self {
        Self {
            changes: 100_000,
            bytes: 64 << 20,
            memory: 128 << 20,
            build: ChunkBuild::default(),
            rebuild: Options::default(),
        }
    }
}

/// What the chunks of a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChunkReport {
    /// Chunks committed.
    pub chunks: u64,
    /// Those for which the tree was built anew.
    pub rebuilt: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Accounts and slots that they changed, each counted once a chunk.
    pub changes: u64,
    /// The most bytes of changes that a chunk had.
    pub bytes_max: u64,
    /// Bytes of changes that went to disk.
    pub spilled: u64,
}

type Watch = Box<dyn FnMut(&Progress<'_>) -> ControlFlow<()> + Send>;

/// A state whose blocks are gathered: see [`Chunks::gather`].
///
/// ```
/// use alloy_primitives::{Address, U256};
/// use spinney_state::{AccountChange, Change, Changes, ChunkOptions, Chunks, State, StateRead};
/// use spinney_tree::{BlockId, MemoryStore};
///
/// let scratch = spinney_pipeline::Scratch::new()?;
/// let state = State::open(MemoryStore::new(), 1 << 20)?;
/// let mut chunks = Chunks::new(state, scratch.path(), ChunkOptions::default())?;
/// for number in 1..4 {
///     let balance = Some(U256::from(number));
///     let change = Change::Written(AccountChange { balance, ..AccountChange::default() });
///     // Nobody says which root it has.
///     chunks.gather(&Changes { accounts: [(Address::ZERO, change)].into() }, None)?;
///     chunks.seal(BlockId { number, hash: [number as u8; 32] })?;
/// }
/// chunks.commit()?;
/// assert_eq!(chunks.report().chunks, 1);
/// assert_eq!(chunks.state().account(Address::ZERO)?.unwrap().balance, U256::from(3));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Chunks<P: PageStore> {
    state: State<P>,
    options: ChunkOptions,
    spill: PathBuf,
    overlay: Overlay,
    /// Gathered and sealed, oldest first.
    blocks: Vec<Gathered>,
    /// Gathered and not sealed.
    open: Option<Open>,
    /// So many of the oldest blocks have lost what takes them back.
    forgotten: usize,
    /// Layers of the state that were gathered and have one pending state: they go together.
    settled: Vec<Range<usize>>,
    /// Bytes noted to take blocks back, about.
    undo_bytes: usize,
    /// Changes applied one block at a time since the last commit.
    applied: u64,
    report: ChunkReport,
    watch: Option<Watch>,
}

/// A block that waits for its chunk.
#[derive(Debug)]
struct Gathered {
    block: BlockId,
    /// The root that was given for it.
    root: Option<B256>,
    undo: Option<Undo>,
    metadata: NotedCounts,
}

/// How much code and how many preimages were noted before.
type NotedCounts = (usize, usize);

#[derive(Debug)]
struct Open {
    changes: Changes,
    root: Option<B256>,
    metadata: NotedCounts,
}

impl<P: PageStore> fmt::Debug for Chunks<P>
where
    State<P>: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { state, options, overlay, blocks, .. } = self;
        f.debug_struct("Chunks")
            .field("state", state)
            .field("options", options)
            .field("overlay", overlay)
            .field("blocks", &blocks.len())
            .finish_non_exhaustive()
    }
}

impl<P: PageStore> Chunks<P> {
    /// Gathers blocks on a state. What does not fit the memory goes to files in `spill`, which is
    /// made when it is needed; so do the leaves of a tree that is built anew. One at a time may use
    /// a directory.
    ///
    /// # Errors
    /// If the store fails: what a process left that was killed right behind the last commit of a
    /// rebuild is removed.
    pub fn new(
        mut state: State<P>,
        spill: &Path,
        options: ChunkOptions,
    ) -> Result<Self, StateError> {
        let last = Checkpoint::read(&state.store.snapshot()?, MPT)?;
        if last.is_some_and(|last| last.state == RunState::Finished) {
            let State { mpt, store, .. } = &mut state;
            mpt.as_mut().map(|mpt| mpt.sweep(store)).transpose()?;
            Gather::forget(&leaves_of(spill))?;
            // Others may keep files there.
            let _ = std::fs::remove_dir(spill);
        }
        Ok(Self {
            state,
            options,
            spill: spill.to_path_buf(),
            overlay: Overlay::new(&spill.join("changes"), options.memory),
            blocks: Vec::new(),
            open: None,
            forgotten: 0,
            settled: Vec::new(),
            undo_bytes: 0,
            applied: 0,
            report: ChunkReport::default(),
            watch: None,
        })
    }

    /// Whoever is told of every commit of a rebuild; with [`ControlFlow::Break`] it stops, and the
    /// same run goes on with it.
    pub fn watch_rebuilds(
        &mut self,
        watch: impl FnMut(&Progress<'_>) -> ControlFlow<()> + Send + 'static,
    ) {
        self.watch = Some(Box::new(watch));
    }

    /// How the chunks that are committed from now on get into the tree.
    pub const fn set_build(&mut self, build: ChunkBuild) {
        self.options.build = build;
    }

    /// The state as of the last commit, and of layers that were applied one by one.
    pub const fn state(&self) -> &State<P> {
        &self.state
    }

    /// The same, to be set up before anything is gathered.
    pub const fn state_mut(&mut self) -> &mut State<P> {
        &mut self.state
    }

    /// Gives the state back; what was gathered and not committed is gone.
    pub fn into_state(self) -> State<P> {
        self.state
    }

    /// What was done so far.
    pub const fn report(&self) -> ChunkReport {
        self.report
    }

    /// Puts what a block did on top of all before, and computes no root: `root` is the one that its
    /// header gives, if it is known. Reads see it.
    ///
    /// Beside other trees nothing is gathered: these have a root at every block, and what was not
    /// zero at the end of any block leaves its mark in some of them. Then this is [`State::apply`].
    ///
    /// # Errors
    /// If a change makes no sense, or the store or a file fails. Then nothing of the changes is
    /// applied.
    pub fn gather(&mut self, changes: &Changes, root: Option<B256>) -> Result<B256, StateError> {
        if !self.state.secondary.are_none() {
            return self.apply(changes);
        }
        codes_of(changes)?;
        let metadata = (self.state.codes.len(), self.state.preimages.len());
        match &mut self.open {
            Some(open) => {
                open.changes.then(changes);
                open.root = root;
            }
            None => self.open = Some(Open { changes: changes.clone(), root, metadata }),
        }
        Ok(root.unwrap_or_default())
    }

    /// Puts a layer of changes on top of all before, and computes the root: see [`State::apply`].
    ///
    /// # Errors
    /// If a change makes no sense, or the store fails; or the root of what was gathered is not the
    /// one given.
    pub fn apply(&mut self, changes: &Changes) -> Result<B256, StateError> {
        if self.open.is_some() {
            return Err(StateError::Gathered { blocks: self.blocks.len() + 1 });
        }
        self.settle()?;
        let root = self.state.apply(changes)?;
        self.applied += changes.count();
        Ok(root)
    }

    /// How many layers lie above the last commit: of what was gathered one a block.
    pub fn layer_count(&self) -> usize {
        self.state.layer_count() + self.blocks.len() + usize::from(self.open.is_some())
    }

    /// Takes back the newest layers until `layer_count` are left. Of blocks that were gathered and
    /// sealed all go, or none.
    ///
    /// # Errors
    /// [`StateError::Gathered`] if some are to go.
    pub fn undo_to(&mut self, layer_count: usize) -> Result<(), StateError> {
        if layer_count >= self.layer_count() {
            return Ok(());
        }
        if let Some(Open { metadata: (codes, preimages), .. }) = self.open.take() {
            self.state.forget(codes, preimages);
        }
        if layer_count >= self.layer_count() {
            return Ok(());
        }
        if layer_count > self.state.layer_count() {
            return Err(StateError::Gathered { blocks: self.blocks.len() });
        }
        let is_within =
            |range: &&Range<usize>| range.start < layer_count && layer_count < range.end;
        if let Some(together) = self.settled.iter().find(is_within) {
            return Err(StateError::Gathered { blocks: together.len() });
        }
        self.discard()?;
        self.settled.retain(|range| range.end <= layer_count);
        self.state.undo_to(layer_count);
        Ok(())
    }

    /// Says that what was put on since the last sealed block is what `block` did.
    ///
    /// # Errors
    /// If the store fails: then it is not sealed. If a file cannot be written: then all that was
    /// gathered is gone.
    pub fn seal(&mut self, block: BlockId) -> Result<(), StateError> {
        if self.open.is_none() && !self.blocks.is_empty() {
            // It did nothing, and comes behind those that wait.
            let root = self.blocks.last().and_then(|last| last.root);
            self.gather(&Changes::default(), root)?;
        }
        let Some(Open { changes, root, metadata }) = &self.open else {
            return self.state.seal(block);
        };
        let keys = Keys::of(changes);
        self.state.note_codes(changes)?;
        let view = GatheredState { chunks: self, snapshot: LazySnapshot::new(self.state.store()) };
        let old: Vec<_> =
            keys.0.iter().map(|keys| view.account(keys.account)).collect::<Result<_, _>>()?;
        let keeps = self.state.keeps_history() || !self.blocks.is_empty();
        let keeps = keeps && self.state.keep.is_any();
        let undo = if keeps { Some(undo_of(&view, changes, &keys, &old)?) } else { None };
        drop(view);
        self.state.note_preimages(changes, &keys, undo.as_ref())?;
        self.undo_bytes += undo.as_ref().map_or(0, |undo| undo.count() * UNDO_BYTES);
        let gathered = Gathered { block, root: *root, undo, metadata: *metadata };
        if let Err(error) = self.overlay.put(changes, &keys, &old) {
            // Some of it may be there: what is gathered is the state of no block any more.
            self.discard()?;
            return Err(error);
        }
        self.open = None;
        self.blocks.push(gathered);
        self.forget_undo();
        Ok(())
    }

    /// Forgets what takes back blocks that are too old by now. Those without a root go with the
    /// next one that has one: a history has no row of them.
    fn forget_undo(&mut self) {
        let Some(keep) = self.state.keep.most() else { return };
        let Some(old) = self.blocks.len().checked_sub(keep as usize) else { return };
        let ends = self.blocks[self.forgotten..old].iter().rposition(|block| block.root.is_some());
        let Some(last) = ends.map(|at| self.forgotten + at) else { return };
        for block in &mut self.blocks[self.forgotten..=last] {
            let undo = block.undo.take();
            self.undo_bytes -= undo.map_or(0, |undo| undo.count() * UNDO_BYTES);
        }
        self.forgotten = last + 1;
    }

    /// Whether the chunk is as large as it was to be.
    pub fn is_full(&self) -> bool {
        let (changes, bytes, _) = self.overlay.size();
        let options = &self.options;
        let noted = self.undo_bytes + self.state.noted_bytes();
        self.applied + changes >= options.changes
            || bytes >= options.bytes
            || noted >= options.memory
    }

    /// Makes all sealed blocks durable, at once or not at all: see the invariants of this type.
    /// What is not sealed is taken back.
    ///
    /// # Errors
    /// [`StateError::ChunkRoot`] if the root is not the one of the last block: then the chunk is
    /// gone, and the state is at the last commit. If the store or a file fails, or a rebuild was
    /// stopped.
    pub fn commit(&mut self) -> Result<(), StateError> {
        let sealed = self.layer_count() - usize::from(self.open.is_some());
        self.undo_to(sealed)?;
        if self.layer_count() == 0 {
            return Ok(());
        }
        let started = Instant::now();
        let (_, bytes, spilled) = self.overlay.size();
        let changes = self.overlay.count()?;
        let blocks = self.blocks.len();
        let rebuild = self.is_to_be_rebuilt(changes)?;
        if rebuild {
            self.rebuild()?;
        } else {
            self.settle()?;
            self.state.commit()?;
            self.settled.clear();
        }
        let report = &mut self.report;
        report.chunks += 1;
        report.rebuilt += u64::from(rebuild);
        report.blocks += blocks as u64;
        report.changes += changes + self.applied;
        report.bytes_max = report.bytes_max.max(bytes);
        report.spilled += spilled;
        self.applied = 0;
        tracing::info!(
            target: "spinney::chunk",
            block = self.state.block().map(|block| block.number),
            blocks, changes, bytes, spilled, rebuild,
            seconds = started.elapsed().as_secs_f64(),
            "chunk committed"
        );
        Ok(())
    }

    /// Whether building the tree anew is less work: the leaves of the state are counted, up to as
    /// many as that would still be.
    fn is_to_be_rebuilt(&self, changes: u64) -> Result<bool, StateError> {
        match self.options.build {
            _ if self.blocks.is_empty() => return Ok(false),
            ChunkBuild::Incremental => return Ok(false),
            ChunkBuild::Rebuild => return Ok(true),
            // What was applied block by block is in the tree already.
            ChunkBuild::Auto if self.state.layer_count() > 0 => return Ok(false),
            ChunkBuild::Auto if changes < REBUILD_CHANGES_MIN => return Ok(false),
            ChunkBuild::Auto => {}
        }
        let most = changes.saturating_mul(REBUILD_LEAVES_A_CHANGE);
        let snapshot = self.state.store().snapshot()?;
        let mut leaves = 0;
        for entry in self.state.mpt()?.entries(&snapshot, None, b"") {
            entry.map_err(StateError::from)?;
            leaves += 1;
            if leaves > most {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Applies what was gathered as one batch, above the layers that there are.
    fn settle(&mut self) -> Result<(), StateError> {
        let (Some(first), Some(last)) = (self.blocks.first(), self.blocks.last()) else {
            return Ok(());
        };
        let (first, given, last) = (first.block.number, last.root, last.block.number);
        let batch = self.overlay.batch()?;
        let snapshot = LazySnapshot::new(self.state.store());
        let mpt = self.state.mpt()?;
        let prepare = || mpt.prepare(&snapshot, self.state.top(), batch);
        let pending = self.state.timed(|t| &mut t.tree, prepare)?;
        drop(snapshot);
        let found = B256::from(pending.root());
        if let Some(expected) = given.filter(|expected| *expected != found) {
            self.discard()?;
            return Err(StateError::ChunkRoot { first, last, expected, found });
        }
        self.hand_over(&pending, found);
        self.clear()
    }

    /// Makes layers of what was gathered: each is one of the state's, though all have the same
    /// pending state.
    fn hand_over(&mut self, pending: &Pending<MptState>, root: B256) {
        let state = &mut self.state;
        let newest = self.blocks.len().saturating_sub(1);
        let first = state.layers.len();
        self.settled.push(first..first + self.blocks.len());
        for (index, gathered) in self.blocks.drain(..).enumerate() {
            let given = if index == newest { Some(root) } else { gathered.root };
            let (pending, undo, (codes, preimages)) =
                (Some(pending.clone()), gathered.undo, gathered.metadata);
            let root = given.unwrap_or_default();
            state.layers.push(Layer { pending, root, codes, preimages, undo, changes: None });
            // A block of no known root is part of the next one that has one.
            if given.is_some() {
                state.sealed.push((state.layers.len(), gathered.block));
            }
        }
        (self.forgotten, self.undo_bytes) = (0, 0);
    }

    /// Builds the tree anew from the leaves of the state and what was gathered.
    fn rebuild(&mut self) -> Result<(), StateError> {
        if self.state.layer_count() > 0 {
            // What was applied one by one is a commit of its own.
            self.state.commit()?;
            self.settled.clear();
        }
        let last = self.blocks.last().expect("there is a block to build for");
        let (block, given) = (last.block, last.root);
        let first = self.blocks[0].block.number;
        let mpt = self.state.mpt()?;
        let (root, number) = (mpt.root(), block.number.to_be_bytes());
        let source = [b"chunk", root.as_slice(), &number, &block.hash];
        let options = self.options.rebuild;
        let name = RunName::of(mpt, &source.concat(), &options);
        let mut gather = Gather::open(&leaves_of(&self.spill), name, options)?;
        let snapshot = self.state.store().snapshot()?;
        if !gather.is_sorted() {
            let below = mpt.entries(&snapshot, None, b"");
            self.overlay.leaves(below, |key, value| Ok(gather.push(key, value)?))?;
        }
        // History and notes know layers; what they have of the tree is their root.
        let none = mpt.prepare(&snapshot, None, Batch::new())?;
        drop(snapshot);
        self.hand_over(&none, given.unwrap_or_default());
        let mut set = WriteSet::new();
        self.state.put_metadata(&mut set);
        self.state.put_blocks(false, &mut set);
        gather.take_along(set);
        let expected = given.map(|root| root.0);
        let mut go_on = |_: &Progress<'_>| ControlFlow::Continue(());
        let State { mpt: Some(mpt), store, .. } = &mut self.state else {
            return Err(StateError::NoMpt { held: Vec::new() });
        };
        let watch: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()> = match &mut self.watch {
            Some(watch) => &mut **watch,
            None => &mut go_on,
        };
        let done = gather.rebuild(mpt, store, Some(block), expected, watch);
        // It is in the store, or it is gone.
        self.state.publish();
        self.state.discard();
        self.settled.clear();
        self.state.genesis = None;
        self.clear()?;
        match done {
            Ok(_) => Ok(()),
            Err(PipelineError::Root { expected, found }) => {
                let (expected, found) = (B256::from_slice(&expected), B256::from_slice(&found));
                Err(StateError::ChunkRoot { first, last: block.number, expected, found })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Forgets what was gathered.
    fn discard(&mut self) -> Result<(), StateError> {
        let open = self.open.take().map(|open| open.metadata);
        let first = self.blocks.first().map(|first| first.metadata).or(open);
        if let Some((codes, preimages)) = first {
            self.state.forget(codes, preimages);
        }
        self.blocks.clear();
        (self.forgotten, self.undo_bytes) = (0, 0);
        self.clear()
    }

    /// Forgets what blocks wrote, and its files.
    fn clear(&mut self) -> Result<(), StateError> {
        self.overlay.clear()?;
        // The leaves of a rebuild that goes on later, or what others keep there.
        let _ = std::fs::remove_dir(&self.spill);
        Ok(())
    }

    /// Whether an account has any slot that is not zero, after all that was gathered.
    ///
    /// # Errors
    /// If the store fails or is damaged, or what was gathered cannot be read.
    pub fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        if !self.state.has_mpt() {
            // Nothing is gathered.
            return self.state.has_storage(address);
        }
        let account = keccak256(address);
        let view = GatheredState { chunks: self, snapshot: LazySnapshot::new(self.state.store()) };
        let epoch = view.epoch(account)?;
        let mut written = self.overlay.slots(account, epoch)?;
        let mut hides = epoch > 0;
        match self.open.as_ref().and_then(|open| open.changes.accounts.get(&address)) {
            Some(Change::Deleted) => return Ok(false),
            Some(Change::Written(change)) => {
                if change.fresh {
                    written.clear();
                    hides = true;
                }
                written.extend(&change.storage);
            }
            None => {}
        }
        let is_set = written.values().any(|value| !value.is_zero());
        if is_set || hides {
            return Ok(is_set);
        }
        let cleared: HashSet<B256> = written.keys().map(keccak256).collect();
        let state = &self.state;
        state.has_storage_in(&view.snapshot, state.top(), account, |slot| cleared.contains(slot))
    }

    fn sealed_account(&self, key: B256) -> Result<Option<Account>, StateError> {
        match self.overlay.account(key)? {
            Some(written) => Ok(written.account),
            None => self.state.account_at(key),
        }
    }
}

/// All that is gathered and sealed, through one view of the store.
struct GatheredState<'a, P: PageStore> {
    chunks: &'a Chunks<P>,
    snapshot: LazySnapshot<'a, P>,
}

impl<P: PageStore> GatheredState<'_, P> {
    fn account(&self, key: B256) -> Result<Option<Account>, StateError> {
        let Chunks { overlay, state, .. } = self.chunks;
        match overlay.account(key)? {
            Some(written) => Ok(written.account),
            None => state.account_in(&self.snapshot, state.top(), key),
        }
    }

    fn epoch(&self, key: B256) -> Result<u32, StateError> {
        Ok(self.chunks.overlay.account(key)?.map_or(0, |written| written.epoch))
    }
}

impl<P: PageStore> Old for GatheredState<'_, P> {
    fn slot(&self, key: &[u8; 64]) -> Result<Option<U256>, StateError> {
        let Chunks { overlay, state, .. } = self.chunks;
        let epoch = self.epoch(B256::from_slice(&key[..32]))?;
        match overlay.slot(key, epoch)? {
            Some(value) => Ok((!value.is_zero()).then_some(value)),
            None if epoch > 0 => Ok(None),
            None => state.slot_in(&self.snapshot, state.top(), key),
        }
    }

    fn storage(&self, account: B256) -> Result<BTreeMap<Slot, U256>, StateError> {
        let Chunks { overlay, state, .. } = self.chunks;
        let epoch = self.epoch(account)?;
        let mut storage = match epoch {
            0 => state.storage_of(&self.snapshot, state.top(), account)?,
            _ => BTreeMap::new(),
        };
        for (slot, value) in overlay.slots(account, epoch)? {
            let hashed = Slot::Hashed(keccak256(slot));
            storage.remove(&Slot::Known(slot));
            storage.remove(&hashed);
            // A slot is named where its preimage is kept.
            let name = if state.keep_preimages { Slot::Known(slot) } else { hashed };
            if !value.is_zero() {
                storage.insert(name, value);
            }
        }
        Ok(storage)
    }
}

impl<P: PageStore> StateRead for Chunks<P> {
    type Error = StateError;

    fn account(&self, address: Address) -> Result<Option<Account>, StateError> {
        if !self.state.has_mpt() {
            return self.state.account(address);
        }
        let change = self.open.as_ref().and_then(|open| open.changes.accounts.get(&address));
        let below = || self.sealed_account(keccak256(address));
        Ok(match change {
            None => below()?,
            Some(Change::Deleted) => None,
            Some(Change::Written(change)) => Some(account_after(change, below()?).0),
        })
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        if !self.state.has_mpt() {
            return self.state.storage(address, slot);
        }
        match self.open.as_ref().and_then(|open| open.changes.accounts.get(&address)) {
            Some(Change::Deleted) => return Ok(U256::ZERO),
            Some(Change::Written(change)) => match change.storage.get(&slot) {
                Some(value) => return Ok(*value),
                None if change.fresh => return Ok(U256::ZERO),
                None => {}
            },
            None => {}
        }
        let key = slot_key(keccak256(address), keccak256(slot));
        let view = GatheredState { chunks: self, snapshot: LazySnapshot::new(self.state.store()) };
        Ok(view.slot(&key)?.unwrap_or_default())
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateError> {
        if let Some(open) = &self.open {
            let codes = codes_of(&open.changes)?;
            if let Some((_, code)) = codes.into_iter().find(|(known, _)| *known == hash) {
                return Ok(Some(code.clone()));
            }
        }
        self.state.code(hash)
    }
}

/// Where the leaves of a rebuild wait.
fn leaves_of(spill: &Path) -> PathBuf {
    spill.join("leaves")
}
