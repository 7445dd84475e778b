//! Pages, time and bytes of a Merkle Patricia trie of random keys, in memory.
//!
//! `cargo run --release -p spinney-tree --example pages -- [KEYS]...` prints a line for each number of
//! keys: what its pages are like, what building it costs, and what batches of updates cost then.

use std::time::Duration;

use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, CommitStats, MemoryStore, PageStore, Snapshot, Table, Tree, TreeId};

/// Bytes of a value.
const VALUE_BYTES: usize = 78;

/// Splitmix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn fill<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_be_bytes()[..chunk.len()]);
        }
        bytes
    }
}

/// CPU time of the process so far, of all its threads: what others run on the machine does not count.
fn cpu() -> Duration {
    cpu_time::ProcessTime::now().as_duration()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let counts: Vec<usize> =
        std::env::args().skip(1).map(|arg| arg.parse()).collect::<Result<_, _>>()?;
    let counts = if counts.is_empty() { vec![300_000] } else { counts };
    println!(
        "keys of 32 bytes, values of {VALUE_BYTES} bytes, store in memory; CPU time of all threads"
    );
    for count in counts {
        measure(count)?;
    }
    Ok(())
}

fn measure(count: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut random = Random(42);
    let store = MemoryStore::new();
    let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 8 << 30)?;
    let mut keys: Vec<[u8; 32]> = Vec::with_capacity(count);
    let start = cpu();
    while keys.len() < count {
        let mut batch = Batch::new();
        for _ in 0..100_000.min(count - keys.len()) {
            keys.push(random.fill());
            batch.put(&keys[keys.len() - 1], &random.fill::<VALUE_BYTES>());
        }
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        tree.commit(&store, &pending, None)?;
    }
    let build = cpu() - start;
    print_pages(&tree, &store, count, build)?;
    for size in [1, 1_000, 10_000] {
        print_batches(&mut tree, &store, &mut keys, &mut random, size)?;
    }
    Ok(())
}

fn print_pages(
    tree: &Tree<Mpt>,
    store: &MemoryStore,
    count: usize,
    build: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let (low, high) = tree.page_range();
    let mut sizes = Vec::new();
    store.snapshot()?.scan(Table::Pages, &low, Some(&high), &mut |_, row| {
        sizes.push(row.len());
        true
    })?;
    sizes.sort_unstable();
    let total: usize = sizes.iter().sum();
    println!(
        "{count} keys: {} pages, average {} bytes, median {}, largest {}; {} bytes a key; \
         built in {:.2} s, {:.0} ns a key",
        sizes.len(),
        total / sizes.len(),
        sizes[sizes.len() / 2],
        sizes[sizes.len() - 1],
        total / count,
        build.as_secs_f64(),
        build.as_nanos() as f64 / count as f64,
    );
    Ok(())
}

/// Batches of four updates to one insertion.
fn print_batches(
    tree: &mut Tree<Mpt>,
    store: &MemoryStore,
    keys: &mut Vec<[u8; 32]>,
    random: &mut Random,
    size: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let rounds = (20_000 / size).clamp(5, 200);
    let (mut prepare, mut commit) = (Duration::ZERO, Duration::ZERO);
    let mut written = CommitStats::default();
    for _ in 0..rounds {
        let mut batch = Batch::new();
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < size {
            let fresh = chosen.len() % 5 == 4;
            let key = if fresh { random.fill() } else { keys[random.next() as usize % keys.len()] };
            if chosen.insert(key) && fresh {
                keys.push(key);
            }
        }
        for key in &chosen {
            batch.put(key, &random.fill::<VALUE_BYTES>());
        }
        let start = cpu();
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        prepare += cpu() - start;
        let start = cpu();
        written += tree.commit(store, &pending, None)?;
        commit += cpu() - start;
    }
    let total = (rounds * size) as f64;
    println!(
        "  batches of {size}: root {:.2} us a key, commit {:.2} us; {:.2} rows and {:.0} bytes a key",
        prepare.as_micros() as f64 / total,
        commit.as_micros() as f64 / total,
        written.rows_written as f64 / total,
        written.bytes as f64 / total,
    );
    Ok(())
}
