//! Every verb that writes, on a disk where each operation goes wrong in turn: the store is as
//! before or as after.
//!
//! `SPINNEY_LONG=1` tries all operations, else some are.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::ControlFlow;
use std::path::Path;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use spinney_migrate::{
    AccessList, At, CatchUp, ListedBlock, MigrateError, NameSource, Work, export_preimages,
    export_snapshot, from_mpt, import_snapshot, match_preimages,
};
use spinney_pipeline::Options;
use spinney_replay::{ChainBlock, Genesis, Replay, SampleChain, SampleOptions};
use spinney_state::embed::BinaryState;
use spinney_state::sum::{Nest, SumBatch, SumTree, commit_together};
use spinney_state::{
    AccountChange, Change, Changes, ChunkBuild, ChunkOptions, Chunks, State, StateError,
};
use spinney_store::fault::FaultDisk;
use spinney_store::{AnyStore, Location, OpenFor};
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::{Leaf, Profile};
use spinney_tree::{BlockId, HashFunction, MemoryStore, PageStore};

use crate::each_operation::{self, EMBEDDED, History, filling};

const CACHE_BYTES: usize = 8 << 10;
const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };

fn said(error: impl Display) -> String {
    error.to_string()
}

/// Each operation fails; the power is cut at each. Over SQLite and redb; in the long form over the
/// log, too.
fn survives(work: &impl History) {
    let is_long = std::env::var_os("SPINNEY_LONG").is_some();
    let places = if is_long { &EMBEDDED[..] } else { &EMBEDDED[..2] };
    each_operation::fails(work, places);
    each_operation::is_cut(work, places);
}

fn id(number: u64) -> BlockId {
    BlockId { number, hash: keccak256(number.to_be_bytes()).0 }
}

/// What a block does: accounts with slots and code, some of which go.
fn changes(number: u64) -> Changes {
    let mut changes = Changes::default();
    for at in 0..6 {
        let address = Address::with_last_byte(((number * 7 + at * 3) % 20) as u8);
        let code = Bytes::from(vec![(number % 5) as u8 + 1; 40]);
        let slot = |slot: u64| (B256::from(U256::from(slot * 30)), U256::from(number % 3));
        let written = AccountChange {
            nonce: Some(number),
            balance: Some(U256::from(number * 100 + at + 1)),
            code_hash: (at == 1).then(|| keccak256(&code)),
            code: (at == 1).then_some(code),
            storage: (0..at).map(slot).collect(),
            ..AccountChange::default()
        };
        let is_gone = at == 5 && number % 3 == 2;
        let change = if is_gone { Change::Deleted } else { Change::Written(written) };
        changes.accounts.insert(address, change);
    }
    changes
}

/// Puts the state of a block into a store of its own.
fn fill<P: PageStore>(store: P, blocks: u64) -> Result<State<P>, StateError> {
    let mut state = State::open(store, CACHE_BYTES)?;
    for number in 0..blocks {
        state.apply(&changes(number))?;
        state.seal(id(number))?;
        state.commit()?;
    }
    Ok(state)
}

fn is_missing(error: &spinney_tree::StoreError) -> bool {
    matches!(error, spinney_tree::StoreError::Missing { .. })
}

/// `stage run` and `stage unwind`: blocks one by one, back, in chunks, by rebuilds; a tree beside.
struct Stages {
    roots: Vec<(B256, Option<BlockId>)>,
}

const STAGES: u64 = 16;

/// The verb behind so many commits.
fn stage<P: PageStore>(state: State<P>, spill: &Path) -> Result<State<P>, StateError> {
    let mut state = state;
    let head = state.block().map_or(0, |block| block.number);
    let commit = state.commit_number();
    match commit {
        5 => state.unwind_to(head - 2).map(|_| state),
        // Further back are blocks that went as one batch, of which the last one is kept.
        11 => state.unwind_to(head - 1).map(|_| state),
        6 | 9 | 12 => {
            let mut options = ChunkOptions::default();
            options.memory = 0;
            options.build = ChunkBuild::Incremental;
            if commit != 9 {
                options.build = ChunkBuild::Rebuild;
            }
            options.rebuild.threads = 1;
            options.rebuild.range_leaves = Some(12);
            let mut chunks = Chunks::new(state, spill, options)?;
            for number in head + 1..head + 4 {
                chunks.gather(&changes(number + commit), None)?;
                chunks.seal(BlockId { number, hash: id(number * 50 + commit).hash })?;
            }
            chunks.commit()?;
            Ok(chunks.into_state())
        }
        _ => {
            let number = state.block().map_or(0, |block| block.number + 1);
            state.apply(&changes(number))?;
            state.seal(BlockId { number, hash: id(commit).hash })?;
            state.commit()?;
            Ok(state)
        }
    }
}

impl Stages {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut state = State::open(MemoryStore::new(), CACHE_BYTES).unwrap();
        let mut roots = vec![(state.root(), None)];
        while state.commit_number() < STAGES {
            state = stage(state, &folder.path().join("chunk")).unwrap();
            roots.push((state.root(), state.block()));
        }
        Self { roots }
    }
}

impl History for Stages {
    fn commits(&self) -> u64 {
        STAGES
    }

    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64 {
        let folder = tempfile::tempdir().unwrap();
        let Ok(store) = filling(disk, at, CACHE_BYTES) else { return 0 };
        let mut reported = 0;
        if let Ok(mut state) = State::open(&store, CACHE_BYTES) {
            reported = state.commit_number();
            while reported < STAGES {
                let Ok(next) = stage(state, &folder.path().join("chunk")) else { break };
                state = next;
                reported = state.commit_number();
            }
        }
        let _ = store.close();
        reported
    }

    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String> {
        let mut store = filling(disk, at, CACHE_BYTES).map_err(said)?;
        store.check().map_err(said)?;
        let mut state = State::open(&store, CACHE_BYTES).map_err(said)?;
        let found = state.commit_number();
        assert_eq!((state.root(), state.block()), self.roots[found as usize], "commit {found}");
        if let Some(fault) = state.check_history().map_err(said)?.first() {
            return Err(said(fault));
        }
        // What a rebuild that was cut off has left goes with the next one.
        let folder = tempfile::tempdir().unwrap();
        let chunks = Chunks::new(state, &folder.path().join("chunk"), ChunkOptions::default());
        state = chunks.map_err(said)?.into_state();
        for finding in state.check(|_| {}).map_err(said)? {
            assert!(finding.to_string().contains("belongs to no tree"), "{finding}");
        }
        Ok(found)
    }
}

#[test]
fn stages_are_as_before_or_as_after() {
    survives(&Stages::new());
}

/// `replay`: blocks that are executed, two a commit.
struct Replayed {
    genesis: Genesis,
    blocks: Vec<ChainBlock>,
}

const REPLAYED: u64 = 6;

impl Replayed {
    fn new() -> Self {
        let mut options = SampleOptions::default();
        (options.block_count, options.transactions_per_block) = (REPLAYED, 3);
        (options.sender_count, options.crowd_count) = (4, 6);
        let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
        let sample = SampleChain::new(options, state).unwrap();
        let genesis = sample.genesis().clone();
        Self { genesis, blocks: sample.map(Result::unwrap).collect() }
    }

    fn replay(&self, store: &AnyStore) -> Result<u64, String> {
        let state = State::open(store, CACHE_BYTES).map_err(said)?;
        let mut reported = state.commit_number();
        let at = state.block();
        let mut replay = match at {
            None => {
                let mut replay = Replay::start(&self.genesis, state).map_err(said)?;
                replay.state_mut().commit().map_err(said)?;
                reported = replay.state().commit_number();
                replay
            }
            Some(at) => {
                let hash = B256::from(at.hash);
                Replay::resume(&self.genesis, state, at.number, hash).map_err(said)?
            }
        };
        let first = at.map_or(0, |at| at.number as usize);
        for block in &self.blocks[..first] {
            // A replay that goes on reads what the store has already.
            if replay.block(block).is_err() {
                return Ok(reported);
            }
        }
        for block in &self.blocks[first..] {
            if replay.block(block).is_err() || replay.state_mut().commit().is_err() {
                break;
            }
            reported = replay.state().commit_number();
        }
        Ok(reported)
    }
}

impl History for Replayed {
    fn commits(&self) -> u64 {
        REPLAYED + 1
    }

    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64 {
        let Ok(store) = filling(disk, at, CACHE_BYTES) else { return 0 };
        let reported = self.replay(&store).unwrap_or(0);
        let _ = store.close();
        reported
    }

    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String> {
        let mut store = filling(disk, at, CACHE_BYTES).map_err(said)?;
        store.check().map_err(said)?;
        let state = State::open(&store, CACHE_BYTES).map_err(said)?;
        let found = state.commit_number();
        let root = match found.checked_sub(1).map(|at| at as usize) {
            None => return Ok(0),
            Some(0) => self.genesis.header.state_root,
            Some(number) => self.blocks[number - 1].block.header.state_root,
        };
        assert_eq!(state.root(), root, "commit {found}");
        assert_eq!(state.check(|_| {}).map_err(said)?, []);
        Ok(found)
    }
}

#[test]
fn a_replay_is_as_before_or_as_after() {
    survives(&Replayed::new());
}

/// `import state` and `db load`: a store that is filled in several commits, and there once it is.
struct Imported {
    root: B256,
}

const IMPORTED: u64 = 4;

impl History for Imported {
    fn commits(&self) -> u64 {
        1
    }

    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64 {
        if let Ok(store) = disk.open(at, OpenFor::Writing, CACHE_BYTES) {
            let _ = store.close();
            return 1;
        }
        let made = disk.create_filled(at, CACHE_BYTES, |store| fill(store, IMPORTED).map(drop));
        let Ok(store) = made else { return 0 };
        let _ = store.close();
        1
    }

    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String> {
        let mut store = match disk.open(at, OpenFor::Writing, CACHE_BYTES) {
            Ok(store) => store,
            Err(error) if is_missing(&error) => return Ok(0),
            Err(error) => return Err(said(error)),
        };
        store.check().map_err(said)?;
        let state = State::open(&store, CACHE_BYTES).map_err(said)?;
        assert_eq!((state.root(), state.block()), (self.root, Some(id(IMPORTED - 1))));
        assert_eq!(state.check(|_| {}).map_err(said)?, []);
        Ok(1)
    }
}

#[test]
fn an_import_is_as_before_or_as_after() {
    let state = fill(MemoryStore::new(), IMPORTED).unwrap();
    survives(&Imported { root: state.root() });
}

/// A place beside another one.
fn beside(at: &Location, suffix: &str) -> Location {
    let with = |path: &Path| {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    };
    match at {
        Location::Redb(path) => Location::Redb(with(path)),
        Location::Log(path) => Location::Log(with(path)),
        Location::Sqlite(path) => Location::Sqlite(with(path)),
        other => other.clone(),
    }
}

fn worked<T>(
    folder: &Path,
    work: impl FnOnce(&mut Work<'_>) -> Result<T, MigrateError>,
) -> Result<T, MigrateError> {
    let mut options = Options::default();
    (options.memory, options.threads, options.in_flight) = (1 << 20, 1, 2);
    options.range_leaves = Some(16);
    let mut watch = |_: &At| ControlFlow::Continue(());
    let spill = folder.join("leaves");
    work(&mut Work {
        options,
        spill: &spill,
        cache: 1 << 16,
        limit: None,
        verify: false,
        watch: &mut watch,
    })
}

/// Makes a store at another place, which is named once `fill` is done.
fn publish(
    disk: &FaultDisk,
    at: &Location,
    fill: impl FnOnce(&AnyStore) -> Result<(), MigrateError>,
) -> Result<(), String> {
    let part = beside(at, ".part");
    let store = filling(disk, &part, CACHE_BYTES).map_err(said)?;
    let filled = fill(&store).map_err(said);
    let closed = store.close().map_err(said);
    filled.and(closed)?;
    disk.publish(&part, at).map_err(said)
}

/// Where a PBT stands that is alone in its store, and whether it is sound; `None` if there is no
/// store.
fn found_pbt(disk: &FaultDisk, at: &Location) -> Result<Option<(BlockId, B256)>, String> {
    let mut store = match disk.open(at, OpenFor::Writing, CACHE_BYTES) {
        Ok(store) => store,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(said(error)),
    };
    store.check().map_err(said)?;
    let state = BinaryState::open(PBT, &store, CACHE_BYTES).map_err(said)?;
    assert_eq!(state.check(|_| {}).map_err(said)?, []);
    let block = state.tree().block().expect("a store of that name is finished");
    Ok(Some((block, state.root())))
}

/// `convert`: the source, then the target. A run that was cut off goes on, or begins anew.
struct Converted {
    root: B256,
    folders: RefCell<u64>,
}

const CONVERTED: u64 = 4;

impl Converted {
    fn new() -> Self {
        let source = fill(MemoryStore::new(), CONVERTED).unwrap().into_store();
        let (target, folder) = (MemoryStore::new(), tempfile::tempdir().unwrap());
        let run = |w: &mut Work<'_>| from_mpt(&source, &target, PBT, NameSource::Store, w);
        let root = worked(folder.path(), run).unwrap().root;
        Self { root, folders: RefCell::default() }
    }

    fn convert(&self, disk: &FaultDisk, at: &Location, source: &AnyStore) -> Result<(), String> {
        *self.folders.borrow_mut() += 1;
        let folder = tempfile::tempdir().unwrap();
        publish(disk, at, |target| {
            let run = |w: &mut Work<'_>| from_mpt(source, target, PBT, NameSource::Store, w);
            worked(folder.path(), run).map(drop)
        })
    }
}

impl History for Converted {
    fn commits(&self) -> u64 {
        2
    }

    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64 {
        let from = beside(at, ".source");
        let source = match disk.open(&from, OpenFor::Writing, CACHE_BYTES) {
            Ok(source) => Ok(source),
            Err(_) => {
                let make = |store: &AnyStore| fill(store, CONVERTED).map(drop);
                disk.create_filled(&from, CACHE_BYTES, make)
            }
        };
        let Ok(source) = source else { return 0 };
        let is_there = matches!(found_pbt(disk, at), Ok(Some(_)));
        let done = is_there || self.convert(disk, at, &source).is_ok();
        let _ = source.close();
        if done { 2 } else { 1 }
    }

    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String> {
        if let Some(found) = found_pbt(disk, at)? {
            assert_eq!(found, (id(CONVERTED - 1), self.root));
            return Ok(2);
        }
        match disk.open(&beside(at, ".source"), OpenFor::Writing, CACHE_BYTES) {
            Ok(mut store) => {
                store.check().map_err(said)?;
                let state = State::open(&store, CACHE_BYTES).map_err(said)?;
                assert_eq!(state.block(), Some(id(CONVERTED - 1)));
                Ok(1)
            }
            Err(error) if is_missing(&error) => Ok(0),
            Err(error) => Err(said(error)),
        }
    }
}

#[test]
fn a_conversion_is_as_before_or_as_after() {
    survives(&Converted::new());
}

/// `snapshot import` with its preimages, and then `catch-up`, a block a commit.
struct Followed {
    folder: tempfile::TempDir,
    state_root: B256,
    roots: Vec<B256>,
    lists: Vec<AccessList>,
}

const FOLLOWED: u64 = 5;

/// A block that an access list can say.
fn listed(number: u64) -> Changes {
    let mut changes = changes(number);
    changes.accounts.retain(|_, change| *change != Change::Deleted);
    changes
}

impl Followed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = fill(MemoryStore::new(), CONVERTED).unwrap();
        let (state_root, source, store) = (state.root(), state.into_store(), MemoryStore::new());
        let run = |w: &mut Work<'_>| from_mpt(&source, &store, PBT, NameSource::Store, w);
        let mut roots = vec![worked(folder.path(), run).unwrap().root];
        let snapshot = |w: &mut Work<'_>| export_snapshot(&store, PBT, Vec::new(), w);
        let (_, bytes) = worked(folder.path(), snapshot).unwrap();
        std::fs::write(folder.path().join("snapshot"), bytes).unwrap();
        let names = |w: &mut Work<'_>| export_preimages(&store, PBT, Vec::new(), w);
        let (_, bytes) = worked(folder.path(), names).unwrap();
        std::fs::write(folder.path().join("preimages"), bytes).unwrap();
        let mut state = BinaryState::open(PBT, &store, CACHE_BYTES).unwrap();
        let mut lists = Vec::new();
        for number in CONVERTED..CONVERTED + FOLLOWED {
            let changes = listed(number);
            roots.push(state.apply(&changes).unwrap());
            lists.push(AccessList::of([(1, &changes)], &changes, &BTreeMap::new()).unwrap());
        }
        drop(state);
        Self { folder, state_root, roots, lists }
    }

    fn import(&self, disk: &FaultDisk, at: &Location) -> Result<(), String> {
        let scratch = tempfile::tempdir().unwrap();
        let [leaves, names] = ["snapshot", "preimages"].map(|name| self.folder.path().join(name));
        publish(disk, at, |target| {
            worked(scratch.path(), |w| {
                import_snapshot(&leaves, target, PBT, Some(id(CONVERTED - 1)), w)?;
                match_preimages(&names, target, PBT, Some(self.state_root), true, w).map(drop)
            })
        })
    }

    fn follow(&self, store: &AnyStore) -> u64 {
        let Ok(mut tree) = CatchUp::open(PBT, store, CACHE_BYTES) else { return 1 };
        let reported = |tree: &CatchUp<&AnyStore>| tree.base().number + 2 - CONVERTED;
        for number in tree.base().number + 1..CONVERTED + FOLLOWED {
            let list = &self.lists[(number - CONVERTED) as usize];
            let (rlp, list_hash) = (list.to_rlp(), list.hash());
            let parent = id(number - 1).hash.into();
            let block = ListedBlock { id: id(number), parent, list: &rlp, list_hash };
            let done = tree.apply(&block).and_then(|_| tree.finalise(id(number).hash.into()));
            if done.is_err() {
                break;
            }
        }
        reported(&tree)
    }
}

impl History for Followed {
    fn commits(&self) -> u64 {
        1 + FOLLOWED
    }

    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64 {
        let is_there = disk.open(at, OpenFor::Writing, CACHE_BYTES).is_ok_and(|store| {
            let _ = store.close();
            true
        });
        if !is_there && self.import(disk, at).is_err() {
            return 0;
        }
        let Ok(store) = disk.open(at, OpenFor::Writing, CACHE_BYTES) else { return 1 };
        let reported = self.follow(&store);
        let _ = store.close();
        reported
    }

    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String> {
        let Some((block, root)) = found_pbt(disk, at)? else { return Ok(0) };
        let found = block.number + 2 - CONVERTED;
        assert_eq!((block, root), (id(block.number), self.roots[found as usize - 1]));
        Ok(found)
    }
}

#[test]
fn a_snapshot_and_catching_up_are_as_before_or_as_after() {
    survives(&Followed::new());
}

/// Batches of a sum tree, rebuilds, and trees that nest.
struct Summed {
    roots: Vec<spinney_tree::sum::SumNode>,
}

const SUMMED: u64 = 14;

/// The batch behind so many commits of the tree.
fn sum<'s, P: PageStore>(store: &'s P, tree: &mut SumTree<'s, P>) -> Result<(), String> {
    let commit = tree.tree().commit_number();
    let leaf = |at: u64| Leaf { value: vec![commit as u8; 1 + at as usize], sum: commit + at };
    let key = |at: u64| keccak256([(at % 9) as u8]).0;
    match commit {
        6 => {
            let mut leaves: Vec<_> = (0..7).map(|at| (key(at), leaf(at))).collect();
            leaves.sort_by_key(|(key, _)| spinney_tree::sum::path(key));
            let leaves = leaves.into_iter().map(Ok::<_, spinney_state::sum::SumError>);
            tree.rebuild(leaves).map(drop).map_err(said)
        }
        3 | 9 => {
            let child = SumTree::create(store, "child", Profile::Compatible, CACHE_BYTES);
            let mut child = child.map_err(said)?;
            let (mut below, above) = (SumBatch::new(), SumBatch::new());
            below.put(&key(commit), &leaf(commit));
            let nest = Nest { child: 0, parent: 1, key: [9; 32] };
            let mut trees = [(&mut child, below), (tree, above)];
            commit_together(store, &mut trees, &[nest]).map_err(said)
        }
        _ => {
            let mut batch = SumBatch::new();
            (0..4).for_each(|at| batch.put(&key(commit * 3 + at), &leaf(at)));
            batch.delete(&key(commit * 3 + 5));
            tree.apply(&mut batch).map(drop).map_err(said)
        }
    }
}

fn sum_tree<P: PageStore>(store: &P) -> Result<SumTree<'_, P>, String> {
    SumTree::create(store, "all", Profile::Compatible, CACHE_BYTES).map_err(said)
}

impl Summed {
    fn new() -> Self {
        let store = MemoryStore::new();
        let mut tree = sum_tree(&store).unwrap();
        let mut roots = vec![tree.root()];
        while tree.tree().commit_number() < SUMMED {
            sum(&store, &mut tree).unwrap();
            roots.push(tree.root());
        }
        Self { roots }
    }
}

impl History for Summed {
    fn commits(&self) -> u64 {
        SUMMED
    }

    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64 {
        let Ok(store) = filling(disk, at, CACHE_BYTES) else { return 0 };
        let reported = sum_tree(&store).map_or(0, |mut tree| {
            while tree.tree().commit_number() < SUMMED && sum(&store, &mut tree).is_ok() {}
            tree.tree().commit_number()
        });
        let _ = store.close();
        reported
    }

    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String> {
        let mut store = filling(disk, at, CACHE_BYTES).map_err(said)?;
        store.check().map_err(said)?;
        let Some(tree) = SumTree::open(&store, "all", CACHE_BYTES).map_err(said)? else {
            return Ok(0);
        };
        let found = tree.tree().commit_number();
        assert_eq!(tree.root(), self.roots[found as usize], "commit {found}");
        let snapshot = store.snapshot().map_err(said)?;
        for finding in tree.tree().check(&snapshot, |_| {}).map_err(said)? {
            // What a rebuild that was cut off has left goes with the next one.
            assert!(finding.to_string().contains("belongs to no tree"), "{finding}");
        }
        Ok(found)
    }
}

#[test]
fn sum_batches_are_as_before_or_as_after() {
    survives(&Summed::new());
}
