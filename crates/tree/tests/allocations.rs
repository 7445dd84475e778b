//! What allocates, counted: in a program of its own, since the count is the process's.

use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{
    Batch, HashFunction, MemoryStore, PageStore, Pending, Scheme, Tree, TreeId, WriteSet,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

/// A key like a digest.
fn key(n: u64) -> [u8; 32] {
    let mut key = [0; 32];
    for (i, part) in key.chunks_exact_mut(8).enumerate() {
        let mixed = (n * 4 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        part.copy_from_slice(&(mixed ^ mixed >> 29).to_be_bytes());
    }
    key
}

/// How often `work` asks for memory.
fn allocations(work: impl FnOnce()) -> usize {
    let region = Region::new(GLOBAL);
    work();
    let change = region.change();
    change.allocations + change.reallocations
}

#[test]
fn a_steady_state_allocates_nothing() {
    // Of an MPT's branches a few have buckets within buckets, which are laid out anew.
    steady::<_, 78>(Mpt, 2);
    steady::<_, 32>(Ubt { hash: HashFunction::Sha256 }, 1);
    steady::<_, 32>(Pbt { hash: HashFunction::Blake3 }, 1);
}

/// Over values of `VALUE` bytes; `a_row` is how often memory is asked for to write a row.
fn steady<S: Scheme, const VALUE: usize>(scheme: S, a_row: usize) {
    const KEYS: u64 = 20_000;
    /// What a write set takes whatever its size: stacks and lists.
    const A_SET: usize = 64;
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme, TreeId(1), &store.snapshot().unwrap(), 1 << 30).unwrap();
    let mut batch = Batch::new();
    for n in 0..KEYS {
        batch.put(&key(n), &[1; VALUE]);
    }
    let pending = tree.prepare(&store.snapshot().unwrap(), None, &mut batch).unwrap();
    tree.commit(&store, &pending, None).unwrap();
    drop(pending);
    let snapshot = store.snapshot().unwrap();

    let reads = allocations(|| {
        for n in 0..2_000 {
            let value = tree.get(&snapshot, None, &key(n * 7 % KEYS)).unwrap();
            assert_eq!(value.as_deref(), Some(&[1; VALUE][..]));
        }
    });
    assert_eq!(reads, 0, "reading a resident key allocates nothing");

    // Batches of one update, dropped and stacked three high, until the buffers have their sizes.
    let round = |n: u64, batch: &mut Batch| {
        let mut stack = [None, None, None];
        let mut last = None;
        for (pending, value) in stack.iter_mut().zip(2..) {
            batch.put(&key(n * 13 % KEYS), &[value; VALUE]);
            let next = tree.prepare(&snapshot, last, &mut *batch).unwrap();
            assert_ne!(next.root(), last.map_or(tree.root(), Pending::root));
            last = Some(&*pending.insert(next));
        }
    };
    for n in (2..2_000).chain(2..2_000) {
        round(n, &mut batch);
    }
    let updates = allocations(|| {
        for n in 2..2_000 {
            round(n, &mut batch);
        }
    });
    assert_eq!(updates, 0, "the root of one update allocates nothing");

    for n in 0..1_000 {
        batch.put(&key(n * 17 % KEYS), &[9; VALUE]);
    }
    let pending = tree.prepare(&snapshot, None, &mut batch).unwrap();
    let reads = allocations(|| {
        for n in 0..1_000 {
            let value = tree.get(&snapshot, Some(&pending), &key(n * 17 % KEYS)).unwrap();
            assert_eq!(value.as_deref(), Some(&[9; VALUE][..]));
        }
    });
    assert_eq!(reads, 0, "reading a pending value allocates nothing");
    let mut rows = 0;
    let writes = allocations(|| {
        let mut set = WriteSet::new();
        rows =
            tree.prepare_commit(&snapshot, &pending, None, &mut set).unwrap().stats().rows_written;
        set.sort();
    });
    let rows = rows as usize;
    assert!(rows > 200, "{rows} rows");
    assert!(writes <= rows * a_row + A_SET, "{writes} allocations for {rows} rows");
}
