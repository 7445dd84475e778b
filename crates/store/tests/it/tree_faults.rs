//! A tree of fifty commits, over each store, on a disk where each operation goes wrong in turn, in
//! every way.

use std::collections::BTreeMap;

use spinney_store::fault::FaultDisk;
use spinney_store::{AnyStore, Keep, Location};
use spinney_tree::mpt::Mpt;
use spinney_tree::{
    Batch, BlockId, MemoryStore, PageStore, Snapshot, Table, Tree, TreeError, TreeId,
};

use crate::each_operation::{self, EMBEDDED, History, filling};

const COMMITS: u64 = 50;
const ID: TreeId = TreeId(1);
/// Small, so that pages are read from the disk, too.
const CACHE_BYTES: usize = 8 << 10;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(at: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (word, bytes) in key.chunks_exact_mut(8).enumerate() {
        let mixed = (at * 4 + word as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bytes.copy_from_slice(&(mixed ^ mixed >> 31).to_be_bytes());
    }
    key
}

/// Grows at first, then changes and deletes.
fn batch(commit: u64) -> Batch {
    let mut batch = Batch::new();
    for at in 0..24 {
        let key = key((commit * 17 + at * 5) % 400);
        if at % 3 == 2 && commit > 10 {
            batch.delete(&key);
        } else {
            batch.put(&key, &vec![commit as u8 + 1; 1 + (at as usize * 41) % 150]);
        }
    }
    batch
}

fn open(snapshot: &impl Snapshot) -> Result<Tree<Mpt>, TreeError> {
    Tree::open(Mpt, ID, snapshot, CACHE_BYTES)
}

fn commit_next(tree: &mut Tree<Mpt>, store: &impl PageStore) -> Result<(), TreeError> {
    let commit = tree.commit_number();
    let pending = tree.prepare(&store.snapshot()?, None, batch(commit))?;
    tree.commit(store, &pending, Some(BlockId { number: commit, hash: [1; 32] }))?;
    Ok(())
}

fn rows(snapshot: &impl Snapshot) -> Rows {
    let mut rows = Rows::new();
    let mut take = |key: &[u8], row: &[u8]| rows.insert(key.to_vec(), row.to_vec()).is_none();
    snapshot.scan(Table::Pages, &[], None, &mut take).unwrap();
    rows
}

/// The rows before the first commit and after each: those of a rebuild from the entries.
fn states() -> Vec<Rows> {
    let store = MemoryStore::new();
    let mut tree = open(&store.snapshot().unwrap()).unwrap();
    let mut states = vec![Rows::new()];
    for _ in 0..COMMITS {
        commit_next(&mut tree, &store).unwrap();
        let snapshot = store.snapshot().unwrap();
        assert_eq!(tree.check(&snapshot, |_| {}).unwrap(), []);
        states.push(rows(&snapshot));
    }
    states
}

/// The tree, and its rows after each commit.
struct Fifty {
    states: Vec<Rows>,
}

impl Fifty {
    fn new() -> Self {
        Self { states: states() }
    }
}

fn run(store: &AnyStore) -> Result<u64, TreeError> {
    let mut tree = open(&store.snapshot()?)?;
    while tree.commit_number() < COMMITS && commit_next(&mut tree, store).is_ok() {}
    Ok(tree.commit_number())
}

impl History for Fifty {
    fn commits(&self) -> u64 {
        COMMITS
    }

    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64 {
        let Ok(store) = filling(disk, at, CACHE_BYTES) else { return 0 };
        let reported = run(&store).unwrap_or(0);
        // What is committed is durable, whatever this says.
        let _ = store.close();
        reported
    }

    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String> {
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let mut store = filling(disk, at, CACHE_BYTES).map_err(|e| said(&e))?;
        store.check().map_err(|e| said(&e))?;
        let snapshot = store.snapshot().map_err(|e| said(&e))?;
        let tree = open(&snapshot).map_err(|e| said(&e))?;
        let findings = tree.check(&snapshot, |_| {}).map_err(|e| said(&e))?;
        if let Some(first) = findings.first() {
            return Err(first.to_string());
        }
        let found = tree.commit_number();
        // One that went back has the state of an earlier commit.
        let shown = if found > COMMITS { BACK_TO } else { found };
        assert!(rows(&snapshot) == self.states[shown as usize], "other rows, and nobody sees it");
        assert_eq!(tree.block().map_or(0, |block| block.number + 1), shown);
        Ok(found)
    }
}

/// The commit that a log goes back to after its last one.
const BACK_TO: u64 = 20;

/// The same in a log that keeps them all, and then goes back to one of them.
struct AndBack(Fifty);

fn run_and_go_back(store: &AnyStore) -> Result<u64, TreeError> {
    let AnyStore::Log(log) = store else { panic!("no other store keeps commits") };
    log.set_keep(Keep::All)?;
    if run(store)? != COMMITS {
        return Ok(open(&store.snapshot()?)?.commit_number());
    }
    let mut kept = None;
    log.kept_blocks(&mut |block, commit| {
        kept = Some(commit).filter(|_| block + 1 == BACK_TO);
        kept.is_none()
    })?;
    let gone = log.go_back(kept.expect("all commits are kept"));
    Ok(COMMITS + u64::from(gone.is_ok()))
}

impl History for AndBack {
    fn commits(&self) -> u64 {
        COMMITS + 1
    }

    fn go_on(&self, disk: &FaultDisk, at: &Location) -> u64 {
        let Ok(store) = filling(disk, at, CACHE_BYTES) else { return 0 };
        let reported = run_and_go_back(&store).unwrap_or(0);
        let _ = store.close();
        reported
    }

    fn found(&self, disk: &FaultDisk, at: &Location) -> Result<u64, String> {
        self.0.found(disk, at)
    }
}

#[test]
fn a_log_that_goes_back_is_before_or_after() {
    let [.., log] = EMBEDDED;
    each_operation::fails(&AndBack(Fifty::new()), &[log]);
    each_operation::is_cut(&AndBack(Fifty::new()), &[log]);
}

#[test]
fn fifty_commits_survive_a_failure_at_any_operation() {
    each_operation::fails(&Fifty::new(), &EMBEDDED);
}

#[test]
fn fifty_commits_survive_a_power_cut_at_any_operation() {
    each_operation::is_cut(&Fifty::new(), &EMBEDDED);
}

#[test]
fn fifty_commits_on_a_disk_that_lies_are_right_or_refused() {
    each_operation::lies(&Fifty::new(), &EMBEDDED);
}

#[test]
fn fifty_commits_survive_a_full_disk_of_any_size() {
    each_operation::is_full(&Fifty::new(), &EMBEDDED, 4_000);
}
