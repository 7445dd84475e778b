//! Leaves, trees built in one go, and what a store holds.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use spinney_hash::keccak256;
use spinney_pipeline::{Gather, Options, PipelineError, Progress, Report, RunName};
use spinney_tree::mpt::{MptState, account_value, slot_value};
use spinney_tree::{Batch, MemoryStore, PageStore, Snapshot, Table, Tree, TreeId};

pub(crate) const ID: TreeId = TreeId(1);
pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// Accounts, and in some of them slots: `giant` in the first.
pub(crate) fn state(accounts: u32, giant: u32) -> Entries {
    let mut leaves = Entries::new();
    for account in 0..accounts {
        let key = keccak256(&account.to_be_bytes());
        leaves.insert(key.to_vec(), account_value(u64::from(account), &[3; 32], &[2; 32]));
        let slots = if account == 0 { giant } else { [0, 0, 1, 2, 5][account as usize % 5] };
        for slot in 0..slots {
            let mut word = [0; 32];
            word[28..].copy_from_slice(&(slot + 1).to_be_bytes());
            let digest = keccak256(&(u64::from(slot) << 32).to_be_bytes());
            leaves.insert([key, digest].concat(), slot_value(&word));
        }
    }
    leaves
}

/// The rows of a tree, without generation and checksum.
pub(crate) fn pages(tree: &Tree<MptState>, snapshot: &impl Snapshot) -> Entries {
    pages_of(tree.page_range(), snapshot)
}

/// The rows of a range of pages, without generation and checksum.
pub(crate) fn pages_of((low, high): (Vec<u8>, Vec<u8>), snapshot: &impl Snapshot) -> Entries {
    let mut rows = Entries::new();
    let mut add = |key: &[u8], row: &[u8]| rows.insert(key[8..].into(), row[8..].into()).is_none();
    snapshot.scan(Table::Pages, &low, Some(&high), &mut add).unwrap();
    rows
}

/// All rows of a table.
pub(crate) fn rows(snapshot: &impl Snapshot, table: Table) -> Entries {
    let mut rows = Entries::new();
    let mut add = |key: &[u8], row: &[u8]| rows.insert(key.into(), row.into()).is_none();
    snapshot.scan(table, &[], None, &mut add).unwrap();
    rows
}

/// The tree of one batch: root and pages. And that of the serial rebuild is the same.
pub(crate) fn serial(entries: &Entries) -> ([u8; 32], Entries) {
    let (one, other) = (MemoryStore::new(), MemoryStore::new());
    let mut batched = open(&one);
    let mut batch = Batch::new();
    for (key, value) in entries {
        batch.put(key, value);
    }
    let pending = batched.prepare(&one.snapshot().unwrap(), None, batch).unwrap();
    batched.commit(&one, &pending, None).unwrap();
    let mut rebuilt = open(&other);
    let mut rebuild = rebuilt.rebuild(&other).unwrap();
    for (key, value) in entries {
        rebuild.push(key, value).unwrap();
    }
    rebuild.finish(None).unwrap();
    let all = pages(&batched, &one.snapshot().unwrap());
    assert_eq!(pages(&rebuilt, &other.snapshot().unwrap()), all);
    (batched.root(), all)
}

pub(crate) fn open<P: PageStore>(store: &P) -> Tree<MptState> {
    Tree::open(MptState, ID, &store.snapshot().unwrap(), 1 << 20).unwrap()
}

pub(crate) fn options(threads: usize, in_flight: usize, range_leaves: u64) -> Options {
    let mut options = Options::default();
    (options.threads, options.in_flight) = (threads, in_flight);
    options.range_leaves = Some(range_leaves);
    options
}

/// The leaves in an order of no meaning, the same every time.
pub(crate) fn shuffled(entries: &Entries) -> Vec<(&Vec<u8>, &Vec<u8>)> {
    let mut leaves: Vec<_> = entries.iter().collect();
    leaves.sort_by_key(|(key, _)| keccak256(key));
    leaves
}

/// Gathers all leaves, without building.
pub(crate) fn gather<P: PageStore>(
    spill: &Path,
    store: &P,
    entries: &Entries,
    options: Options,
) -> Result<Gather, PipelineError> {
    let name = RunName::of(&open(store), b"test", &options);
    let mut gather = Gather::open(spill, name, options)?;
    for (key, value) in shuffled(entries) {
        gather.push(key, value)?;
    }
    Ok(gather)
}

/// A run from its beginning, or on from where it stood.
pub(crate) fn run<P: PageStore>(
    spill: &Path,
    store: &P,
    entries: &Entries,
    options: Options,
    watch: &mut dyn FnMut(&Progress<'_>) -> ControlFlow<()>,
) -> Result<Report, PipelineError> {
    let gather = gather(spill, store, entries, options)?;
    gather.rebuild(&mut open(store), store, None, None, watch)
}

pub(crate) fn on(_: &Progress<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// The store holds the tree, and nothing of the run but its last row.
pub(crate) fn check<P: PageStore>(store: &P, spill: &Path, expected: &([u8; 32], Entries)) {
    let tree = open(store);
    let snapshot = store.snapshot().unwrap();
    assert_eq!(tree.root(), expected.0);
    assert!(pages(&tree, &snapshot) == expected.1, "pages differ from the serial run's");
    assert_eq!(rows(&snapshot, Table::Pages).len(), expected.1.len(), "rows of no tree");
    assert_eq!(rows(&snapshot, Table::Meta).len(), 1, "rows of a run that is over");
    assert!(!spill.exists(), "files of a run that is over");
}
