//! Pages, time and bytes of a tree of random keys, in memory.
//!
//! `cargo run --release -p spinney-tree -F measure --example pages -- [mpt|ubt|pbt] [KEYS]...`
//! prints a line for each number of keys: what its pages are like, what building it costs, and what
//! batches of updates cost then.

#[path = "support/random.rs"]
mod random;

use std::time::{Duration, Instant};

use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{
    Batch, CommitStats, HashFunction, MemoryStore, PageStore, Scheme, Snapshot, Table, Tree, TreeId,
};

use random::Random;

/// CPU time of the process so far, of all its threads: what others run on the machine does not
/// count.
fn cpu() -> Duration {
    cpu_time::ProcessTime::now().as_duration()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).peekable();
    let name = args.next_if(|arg| arg.parse::<usize>().is_err()).unwrap_or_else(|| "mpt".into());
    let counts: Vec<usize> = args.map(|arg| arg.parse()).collect::<Result<_, _>>()?;
    let counts = if counts.is_empty() { vec![300_000] } else { counts };
    for count in counts {
        match &name[..] {
            "mpt" => measure::<_, 78>(Mpt, count)?,
            "ubt" => measure::<_, 32>(Ubt { hash: HashFunction::Sha256 }, count)?,
            "pbt" => measure::<_, 32>(Pbt { hash: HashFunction::Blake3 }, count)?,
            _ => return Err(format!("no tree {name}: mpt, ubt or pbt").into()),
        }
    }
    Ok(())
}

/// Over values of `VALUE` bytes.
fn measure<S: Scheme, const VALUE: usize>(
    scheme: S,
    count: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    println!(
        "{}: keys of 32 bytes, values of {VALUE} bytes, store in memory; CPU time of all threads",
        scheme.id()
    );
    let mut random = Random(42);
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme, TreeId(1), &store.snapshot()?, 8 << 30)?;
    let mut keys: Vec<[u8; 32]> = Vec::with_capacity(count);
    let start = cpu();
    while keys.len() < count {
        let mut batch = Batch::new();
        for _ in 0..100_000.min(count - keys.len()) {
            keys.push(random.fill());
            batch.put(&keys[keys.len() - 1], &random.fill::<VALUE>());
        }
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        tree.commit(&store, &pending, None)?;
    }
    let build = cpu() - start;
    print_pages(&tree, &store, count, build)?;
    print_single::<S, VALUE>(&tree, &store, &keys, &mut random)?;
    for size in [1, 1_000, 10_000] {
        print_batches::<S, VALUE>(&mut tree, &store, &mut keys, &mut random, size)?;
    }
    Ok(())
}

fn print_pages<S: Scheme>(
    tree: &Tree<S>,
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

/// Roots of single updates over pages that are all at hand, each dropped.
fn print_single<S: Scheme, const VALUE: usize>(
    tree: &Tree<S>,
    store: &MemoryStore,
    keys: &[[u8; 32]],
    random: &mut Random,
) -> Result<(), Box<dyn std::error::Error>> {
    const ROUNDS: usize = 20_000;
    let snapshot = store.snapshot()?;
    let mut batch = Batch::new();
    let mut took = Duration::ZERO;
    for round in 0..2 * ROUNDS {
        batch.put(&keys[random.next() as usize % keys.len()], &random.fill::<VALUE>());
        let start = Instant::now();
        let pending = tree.prepare(&snapshot, None, &mut batch)?;
        took += if round < ROUNDS { Duration::ZERO } else { start.elapsed() };
        std::hint::black_box(pending.root());
    }
    println!("  one update, root alone: {:.2} us", took.as_secs_f64() * 1e6 / ROUNDS as f64);
    Ok(())
}

/// Batches of four updates to one insertion.
fn print_batches<S: Scheme, const VALUE: usize>(
    tree: &mut Tree<S>,
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
            batch.put(key, &random.fill::<VALUE>());
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
