//! A tree of fifty commits on a disk that fails at each write and sync in turn.

use std::collections::BTreeMap;

use spinney_store::RedbStore;
use spinney_store::fault::{FaultDisk, Stop, Survivors};
use spinney_tree::mpt::Mpt;
use spinney_tree::{
    Batch, BlockId, MemoryStore, PageStore, Snapshot, Table, Tree, TreeError, TreeId,
};

const COMMITS: u64 = 50;
const ID: TreeId = TreeId(1);
/// Small, so that pages are read from the disk, too.
const CACHE_BYTES: usize = 8 << 10;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

/// Each of the operations in turn if this is set, else every eleventh.
fn stride() -> usize {
    if std::env::var_os("SPINNEY_LONG").is_some() { 1 } else { 11 }
}

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

/// Goes on from whatever the store holds; answers how many commits there are then.
fn run(store: &RedbStore) -> u64 {
    let Ok(mut tree) = store.snapshot().map_err(TreeError::from).and_then(|s| open(&s)) else {
        return 0;
    };
    while tree.commit_number() < COMMITS && commit_next(&mut tree, store).is_ok() {}
    tree.commit_number()
}

/// Opens the store again: it holds the last commit that was reported, or the one after it, whole.
fn reopens(disk: &FaultDisk, reported: u64, states: &[Rows], what: &str) {
    let store = disk.open_store().unwrap_or_else(|error| panic!("{what}: {error}"));
    let snapshot = store.snapshot().unwrap();
    let tree = open(&snapshot).unwrap();
    let found = tree.commit_number();
    assert!(found == reported || found == reported + 1, "{what}: {found}, reported {reported}");
    assert_eq!(tree.block().map(|block| block.number + 1).unwrap_or(0), found);
    assert!(rows(&snapshot) == states[found as usize], "{what}: other rows");
    drop((tree, snapshot));
    // And it goes on from there.
    assert_eq!(run(&store), COMMITS, "{what}");
    assert!(
        rows(&store.snapshot().unwrap()) == states[COMMITS as usize],
        "{what}: rows at the end"
    );
}

/// `SPINNEY_LONG=1 cargo test --release -p spinney-store --test it tree_faults` tries every operation.
#[test]
fn fifty_commits_survive_a_failure_at_any_write_or_sync() {
    let blank = FaultDisk::new();
    blank.create_store().unwrap().close().unwrap();
    let states = states();
    let mut tried = 0;
    for operation in (0..).step_by(stride()) {
        let disk = FaultDisk::with_image(blank.image());
        disk.stop_at(operation, Stop::Fail);
        let reported = disk.open_store().map_or(0, |store| run(&store));
        let finished = disk.operations() <= operation;
        disk.resume();
        let survivors = [Survivors::Nothing, Survivors::All, Survivors::Some(operation)];
        let cut = survivors[tried % survivors.len()];
        reopens(&disk.after_power_cut(cut), reported, &states, &format!("{operation}, {cut:?}"));
        reopens(&FaultDisk::with_image(disk.image()), reported, &states, &format!("{operation}"));
        tried += 1;
        if finished {
            assert_eq!(reported, COMMITS);
            break;
        }
    }
    assert!(tried * stride() > 200, "{tried} failures are too few to be all");
    println!("failed at {tried} operations");
}
