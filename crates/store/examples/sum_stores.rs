//! What a batch and a proof of a Merkle-sum tree cost over SQLite and PostgreSQL, and what it costs
//! to refuse a batch whose sum overflows, in memory and over redb.
//!
//! `cargo run --release -p spinney-store -F measure --example sum_stores -- [URL]`: 1,000 leaves of
//! 32 bytes in one batch into a tree of 10,000, and the same 1,000 one by one; then proofs with
//! nothing resident. A batch of 10,000 that overflows, into a tree of 10,000 of which nothing is
//! resident. Medians of 20 runs; CPU is the process's, so not a server's. URL names an empty schema
//! of a PostgreSQL database, which is filled.

#[path = "../../tree/examples/support/random.rs"]
mod random;

use std::time::Instant;

use cpu_time::ProcessTime;
use spinney_state::sum::{SumBatch, SumError, SumTree};
use spinney_store::{AnyStore, Location, OpenFor};
use spinney_tree::TreeError;
use spinney_tree::sum::{Leaf, Profile, levels_climbed};

use random::Random;

const RUNS: u64 = 20;
const HELD: u64 = 10_000;
const NEW: u64 = 1_000;
const CACHE_BYTES: usize = 64 << 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A key like a digest.
fn key(n: u64) -> [u8; 32] {
    // Four draws a key: the generator moves on by its constant.
    Random(n.wrapping_mul(4).wrapping_mul(0x9e37_79b9_7f4a_7c15)).fill()
}

fn leaf(n: u64) -> Leaf {
    Leaf { value: key(n ^ 1 << 60).to_vec(), sum: n + 1 }
}

fn batch(numbers: std::ops::Range<u64>) -> SumBatch {
    let mut batch = SumBatch::new();
    numbers.for_each(|n| batch.put(&key(n), &leaf(n)));
    batch
}

/// Milliseconds of wall and of CPU time.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64, f64) {
    let (wall, cpu) = (Instant::now(), ProcessTime::now());
    let answer = work();
    let (cpu, wall) = (cpu.elapsed().as_secs_f64(), wall.elapsed().as_secs_f64());
    (answer, wall * 1e3, cpu * 1e3)
}

fn median(mut runs: Vec<f64>) -> f64 {
    runs.sort_by(f64::total_cmp);
    runs[runs.len() / 2]
}

fn tree<'s>(store: &'s AnyStore, name: &str) -> Outcome<SumTree<'s, AnyStore>> {
    Ok(SumTree::create(store, name, Profile::Compatible, CACHE_BYTES)?)
}

fn measure(name: &str, location: &Location) -> Outcome<()> {
    let store = location.open(OpenFor::Filling, CACHE_BYTES)?;
    let (mut walls, mut cpus, mut trips) = (Vec::new(), Vec::new(), 0);
    for run in 0..RUNS {
        let mut tree = tree(&store, &format!("batch {run}"))?;
        tree.apply(&mut batch(0..HELD))?;
        let mut new = batch(HELD..HELD + NEW);
        let io = store.io();
        let (applied, wall, cpu) = timed(|| tree.apply(&mut new));
        applied?;
        trips = trips.max((store.io() - io).round_trips);
        walls.push(wall);
        cpus.push(cpu);
    }
    let (wall, cpu) = (median(walls), median(cpus));
    println!(
        "{name}, {NEW} into {HELD} in one batch: {wall:.1} ms, {cpu:.1} ms CPU, {trips} round trips"
    );
    let mut one = tree(&store, "one by one")?;
    one.apply(&mut batch(0..HELD))?;
    let (done, wall, cpu) =
        timed(|| (HELD..HELD + NEW).try_for_each(|n| one.insert(&key(n), &leaf(n)).map(drop)));
    done?;
    println!("{name}, the same one by one: {wall:.0} ms, {cpu:.0} ms CPU");
    let (mut cold, mut warm, mut trips) = (Vec::new(), Vec::new(), 0);
    for run in 0..RUNS {
        let tree = tree(&store, "one by one")?;
        let io = store.io();
        let (proven, wall, _) = timed(|| tree.prove(&[key(run * 7)]));
        proven?;
        trips = trips.max((store.io() - io).round_trips);
        cold.push(wall);
        let (proven, wall, _) = timed(|| tree.prove(&[key(run * 7)]));
        proven?;
        warm.push(wall);
    }
    println!(
        "{name}, a proof at {} leaves: {:.3} ms with nothing resident, {trips} round trips; \
         {:.3} ms resident",
        HELD + NEW,
        median(cold),
        median(warm)
    );
    Ok(store.close()?)
}

/// A batch whose sum fits by itself and not beside what the tree holds; half of it replaces leaves.
fn refusal(name: &str, store: &AnyStore) -> Outcome<()> {
    tree(store, "one")?.apply(&mut batch(0..HELD))?;
    let (mut cpus, mut writes) = (Vec::new(), 0);
    let climbed = levels_climbed();
    for _ in 0..RUNS {
        let mut tree = tree(store, "one")?;
        let mut heavy = SumBatch::new();
        let sum = u64::MAX / HELD;
        (0..HELD).for_each(|n| heavy.put(&key(n + HELD / 2), &Leaf { sum, ..leaf(n) }));
        let io = store.io();
        let (refused, _, cpu) = timed(|| tree.apply(&mut heavy));
        if !matches!(refused, Err(SumError::Tree(TreeError::Overweight { batch: false, .. }))) {
            return Err("it was to be refused".into());
        }
        let io = store.io() - io;
        writes += io.writes + io.syncs;
        cpus.push(cpu);
    }
    println!(
        "{name}, 10,000 that overflow into 10,000: refused in {:.2} ms CPU, {} levels climbed, \
         {writes} \
         writes and syncs",
        median(cpus),
        levels_climbed() - climbed
    );
    Ok(())
}

fn main() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    refusal("memory", &AnyStore::memory())?;
    let redb = Location::Redb(folder.path().join("redb"));
    refusal("redb", &redb.open(OpenFor::Filling, CACHE_BYTES)?)?;
    measure("SQLite", &Location::Sqlite(folder.path().join("sums.sqlite")))?;
    if let Some(url) = std::env::args().nth(1) {
        return measure("PostgreSQL", &Location::Postgres(url.into()));
    }
    println!("PostgreSQL: give the URL of an empty schema");
    Ok(())
}
