//! What the engine costs over redb, with keys of 32 and values of 78 bytes.
//!
//! `cargo run --release -p spinney-store -F measure --example engine -- batches DIR [KEYS]`
//! measures batches of four updates to one insertion on a tree of 1,000,000 keys. `... -- beside
//! DIR [KEYS]` tells what a Verkle tree writes for them, and the Merkle Patricia trie for the same,
//! values of 32 bytes. `... -- reopen DIR [KEYS]` kills a process that commits to a tree of
//! 10,000,000 keys, twenty times, and measures how long opening it again takes.

#[path = "../../tree/examples/support/random.rs"]
mod random;

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use spinney_store::RedbStore;
use spinney_tree::mpt::Mpt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{Batch, CommitStats, PageStore, Scheme, Tree, TreeId};

use random::Random;

const VALUE_BYTES: usize = 78;
/// For redb and the engine each.
const CACHE_BYTES: usize = 512 << 20;
const ID: TreeId = TreeId(1);
const KILLS: u32 = 20;

/// Random keys, sorted.
fn keys(count: u64) -> Vec<[u8; 32]> {
    let mut random = Random(42);
    let mut keys: Vec<_> = (0..count).map(|_| random.fill()).collect();
    keys.sort_unstable();
    keys
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["batches", dir] => batches(dir.as_ref(), 1_000_000),
        ["batches", dir, keys] => batches(dir.as_ref(), keys.parse()?),
        ["beside", dir] => beside(dir.as_ref(), 1_000_000),
        ["beside", dir, keys] => beside(dir.as_ref(), keys.parse()?),
        ["reopen", dir] => reopen(dir.as_ref(), 10_000_000),
        ["reopen", dir, keys] => reopen(dir.as_ref(), keys.parse()?),
        ["commit", dir, keys] => commit_for_ever(dir.as_ref(), keys.parse()?),
        _ => Err("usage: engine batches|beside|reopen DIR [KEYS]".into()),
    }
}

/// A store in a new folder, and a tree of so many keys in it.
fn build(dir: &Path, keys: &[[u8; 32]]) -> Result<(RedbStore, Tree<Mpt>), Box<dyn Error>> {
    let store = RedbStore::create(dir, CACHE_BYTES)?;
    let mut tree = Tree::open(Mpt, ID, &store.snapshot()?, CACHE_BYTES)?;
    let (start, cpu) = (Instant::now(), cpu());
    let mut rebuild = tree.rebuild(&store)?;
    let (mut random, count) = (Random(43), keys.len() as u64);
    for key in keys {
        rebuild.push(key, &random.fill::<VALUE_BYTES>())?;
    }
    let stats = rebuild.finish(None)?;
    println!(
        "{count} keys built in {:.1} s, {:.1} s of CPU: {} rows, {} bytes a key; {} \
         bytes a key to write calls",
        start.elapsed().as_secs_f64(),
        (self::cpu() - cpu).as_secs_f64(),
        stats.rows_written,
        stats.bytes / count,
        store.io().bytes_written / count,
    );
    Ok((store, tree))
}

/// The same, by batches of 100,000 keys in random order: as a store that has grown.
fn fill<S: Scheme, const V: usize>(
    scheme: S,
    dir: &Path,
    keys: &[[u8; 32]],
) -> Result<(RedbStore, Tree<S>), Box<dyn Error>> {
    const BATCH: usize = 100_000;
    let store = RedbStore::create(dir, CACHE_BYTES)?;
    let mut tree = Tree::open(scheme, ID, &store.snapshot()?, CACHE_BYTES)?;
    let (mut random, count) = (Random(43), keys.len().div_ceil(BATCH));
    for part in 0..count {
        let mut batch = Batch::new();
        for key in keys.iter().skip(part).step_by(count) {
            batch.put(key, &random.fill::<V>());
        }
        let pending = tree.prepare(&store.snapshot()?, None, &mut batch)?;
        tree.commit(&store, &pending, None)?;
    }
    println!("{} keys in batches of {BATCH}", keys.len());
    Ok((store, tree))
}

fn batches(dir: &Path, count: u64) -> Result<(), Box<dyn Error>> {
    let mut keys = keys(count);
    let (store, mut tree) = fill::<_, VALUE_BYTES>(Mpt, dir, &keys)?;
    let mut random = Random(7);
    for size in [1_000, 10_000] {
        let rounds = 40_000 / size;
        let mut written = CommitStats::default();
        let (mut root, mut commit, mut wall) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
        let before = store.io().bytes_written;
        for _ in 0..rounds {
            let mut batch = draw::<VALUE_BYTES>(&mut keys, &mut random, size);
            let (start, begun) = (cpu(), Instant::now());
            let pending = tree.prepare(&store.snapshot()?, None, &mut batch)?;
            let rooted = cpu();
            written += tree.commit(&store, &pending, None)?;
            wall += begun.elapsed();
            (root, commit) = (root + (rooted - start), commit + (cpu() - rooted));
        }
        let total = (rounds * size) as f64;
        println!(
            "batches of {size}: {:.0} bytes a key to write calls; {:.2} rows and \
             {:.0} logical bytes a key; \
             CPU root {:.1} us and commit {:.1} us a key; wall {:.1} us a key",
            (store.io().bytes_written - before) as f64 / total,
            written.rows_written as f64 / total,
            written.bytes as f64 / total,
            root.as_secs_f64() * 1e6 / total,
            commit.as_secs_f64() * 1e6 / total,
            wall.as_secs_f64() * 1e6 / total,
        );
    }
    println!("peak memory {} MiB", peak_mib());
    Ok(())
}

/// Four updates to one insertion, of keys that differ.
fn draw<const V: usize>(keys: &mut Vec<[u8; 32]>, random: &mut Random, size: usize) -> Batch {
    let mut chosen = std::collections::BTreeSet::new();
    while chosen.len() < size {
        let fresh = chosen.len() % 5 == 4;
        let key = if fresh { random.fill() } else { keys[random.next() as usize % keys.len()] };
        if chosen.insert(key) && fresh {
            keys.push(key);
        }
    }
    let mut batch = Batch::new();
    for key in &chosen {
        batch.put(key, &random.fill::<V>());
    }
    batch
}

/// What was written for a key of a batch: bytes to write calls, bytes of rows, rows.
type Written = [f64; 3];

/// Batches of 1,000 for a Verkle tree and the trie.
fn beside(dir: &Path, count: u64) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let trie = written(Mpt, &dir.join("mpt"), count)?;
    let verkle = written(Verkle::shared(), &dir.join("verkle"), count)?;
    let [calls, bytes, rows] = [0, 1, 2].map(|i| verkle[i] / trie[i]);
    println!(
        "verkle / mpt: {calls:.2} of the bytes to write calls, {bytes:.2} of the logical bytes, \
         {rows:.2} of the rows"
    );
    Ok(())
}

fn written<S: Scheme>(scheme: S, dir: &Path, count: u64) -> Result<Written, Box<dyn Error>> {
    const SIZE: usize = 1_000;
    const ROUNDS: usize = 40;
    let name = scheme.id().to_string();
    let mut keys = keys(count);
    let (store, mut tree) = fill::<_, 32>(scheme, dir, &keys)?;
    let mut random = Random(7);
    let (mut stats, mut calls) = (CommitStats::default(), 0);
    for round in 0..ROUNDS {
        let mut batch = draw::<32>(&mut keys, &mut random, SIZE);
        let before = store.io().bytes_written;
        let pending = tree.prepare(&store.snapshot()?, None, &mut batch)?;
        stats += tree.commit(&store, &pending, None)?;
        let after = store.io().bytes_written;
        calls += after - before;
        // Reads write nothing.
        for key in keys.iter().skip(round).step_by(keys.len() / SIZE) {
            tree.get(&store.snapshot()?, None, key)?.ok_or("a key is gone")?;
        }
        assert_eq!(store.io().bytes_written, after, "a read handed bytes to a write call");
    }
    let each =
        [calls, stats.bytes, stats.rows_written].map(|sum| sum as f64 / (SIZE * ROUNDS) as f64);
    println!(
        "{name}, batches of {SIZE}: {:.0} bytes a key to write calls, {:.0} logical \
         bytes, {:.2} rows",
        each[0], each[1], each[2]
    );
    Ok(each)
}

fn reopen(dir: &Path, count: u64) -> Result<(), Box<dyn Error>> {
    let keys = keys(count);
    build(dir, &keys)?.0.close()?;
    let mut times = Vec::new();
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["commit", &dir.to_string_lossy(), &count.to_string()])
            .stdout(Stdio::piped())
            .spawn()?;
        // Some commits later, at some moment within one.
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        for _ in 0..=round % 4 {
            lines.next().ok_or("the committing process ended")??;
        }
        std::thread::sleep(Duration::from_millis(u64::from(round * 7)));
        child.kill()?;
        child.wait()?;
        let start = Instant::now();
        let store = RedbStore::open(dir, CACHE_BYTES)?;
        let tree = Tree::open(Mpt, ID, &store.snapshot()?, CACHE_BYTES)?;
        let key = &keys[round as usize * 1_009 % keys.len()];
        tree.get(&store.snapshot()?, None, key)?.ok_or("a key is gone")?;
        times.push(start.elapsed());
        drop((tree, store));
    }
    times.sort();
    println!(
        "{KILLS} times killed: opened and read again in {:.1} ms at most, median {:.1} ms",
        times[times.len() - 1].as_secs_f64() * 1e3,
        times[times.len() / 2].as_secs_f64() * 1e3,
    );
    Ok(())
}

fn commit_for_ever(dir: &Path, count: u64) -> Result<(), Box<dyn Error>> {
    let store = RedbStore::open(dir, CACHE_BYTES)?;
    let mut tree = Tree::open(Mpt, ID, &store.snapshot()?, CACHE_BYTES)?;
    let (keys, mut random) = (keys(count), Random(tree.commit_number()));
    loop {
        let mut batch = Batch::new();
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < 1_000 {
            chosen.insert(random.next() % count);
        }
        for at in chosen {
            batch.put(&keys[at as usize], &random.fill::<VALUE_BYTES>());
        }
        let pending = tree.prepare(&store.snapshot()?, None, &mut batch)?;
        tree.commit(&store, &pending, None)?;
        println!("{}", tree.commit_number());
    }
}

/// CPU time of the process so far, of all its threads.
fn cpu() -> Duration {
    cpu_time::ProcessTime::now().as_duration()
}

/// The most memory that was resident at once, where the system says.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
