//! What a Merkle-sum tree costs in memory, beside what its hashes must cost.
//!
//! `cargo run --release -p spinney-tree -F measure --example sums`: values of 32 bytes, random
//! keys, CPU time of the whole process, medians of 20 rounds. The hash kernel is measured beside
//! each round, since a machine that has other work is not as fast at all times.

use std::time::Instant;

use cpu_time::ProcessTime;
use spinney_hash::{SumClimb, sha256_sum_climb};
use spinney_tree::sum::{Claim, Leaf, Profile, Sum, levels_climbed, path, verify_many};
use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeError, TreeId};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static GLOBAL: &StatsAlloc<std::alloc::System> = &INSTRUMENTED_SYSTEM;

const ROUNDS: usize = 20;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A key like a digest.
fn key(n: u64) -> [u8; 32] {
    spinney_hash::blake3(&n.to_be_bytes())
}

fn leaf(n: u64) -> Leaf {
    Leaf { value: spinney_hash::blake3(&[1, 2, 3, n as u8]).to_vec(), sum: n + 1 }
}

/// Leaves as the engine takes them.
fn leaves(numbers: std::ops::Range<u64>) -> Vec<([u8; 32], Vec<u8>)> {
    numbers.map(|n| (path(&key(n)), leaf(n).encode())).collect()
}

fn fill(batch: &mut Batch, leaves: &[([u8; 32], Vec<u8>)]) {
    for (path, value) in leaves {
        batch.put(path, value);
    }
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

/// Seconds of CPU time and of wall time, and allocations.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64, f64, usize) {
    let region = Region::new(GLOBAL);
    let (wall, cpu) = (Instant::now(), ProcessTime::now());
    let answer = work();
    let (cpu, wall) = (cpu.elapsed().as_secs_f64(), wall.elapsed().as_secs_f64());
    let change = region.change();
    (answer, cpu, wall, change.allocations + change.reallocations)
}

/// Seconds for one compression of the climb kernel on full lanes.
fn kernel() -> f64 {
    const LEVELS: u16 = 200;
    let (empty, path) = ([[7; 32]; 257], key(3));
    let mut climbs = [SumClimb { hash: [1; 32], sum: 5, path, from: 256, to: 256 - LEVELS }; 512];
    let ((), cpu, ..) = timed(|| sha256_sum_climb(&mut climbs, &empty));
    cpu / (climbs.len() * usize::from(LEVELS) * 2) as f64
}

fn open(profile: Profile, store: &MemoryStore) -> Outcome<Tree<Sum>> {
    Ok(Tree::open(Sum { profile }, TreeId(1), &store.snapshot()?, 1 << 30)?)
}

/// A tree of `leaves` leaves.
fn tree_of(profile: Profile, held: u64) -> Outcome<(MemoryStore, Tree<Sum>)> {
    let store = MemoryStore::new();
    let mut tree = open(profile, &store)?;
    let mut batch = Batch::new();
    fill(&mut batch, &leaves(0..held));
    let pending = tree.prepare(&store.snapshot()?, None, &mut batch)?;
    tree.commit(&store, &pending, None)?;
    Ok((store, tree))
}

/// The root of `new` leaves put into a tree of `held`.
fn insert(profile: Profile, held: u64, new: u64) -> Outcome<f64> {
    let (store, tree) = tree_of(profile, held)?;
    let snapshot = store.snapshot()?;
    let (mut batch, added) = (Batch::new(), leaves(held..held + new));
    let (mut cpus, mut walls, mut rates, mut asked, mut levels) = (vec![], vec![], vec![], 0, 0);
    for _ in 0..ROUNDS {
        rates.push(kernel());
        let before = levels_climbed();
        let (pending, cpu, wall, allocations) = timed(|| {
            fill(&mut batch, &added);
            tree.prepare(&snapshot, None, &mut batch)
        });
        let _ = pending?;
        cpus.push(cpu / new as f64);
        walls.push(wall / new as f64);
        (asked, levels) = (allocations, levels_climbed() - before);
    }
    let (cpu, wall, rate) = (median(cpus), median(walls), median(rates));
    // A leaf, its climb, and 1.44 branches beside.
    let compressions = 1.0 + 2.0 * levels as f64 / new as f64 + 2.0 * 1.44;
    println!(
        "{profile:?}, {new} into {held}, {} threads: {:.2} us CPU a leaf, {:.2} us wall; \
         {:.0} compressions \
         a leaf, {:.2} times their cost at the kernel's {:.2} ns; {:.2} allocations a leaf",
        rayon::current_num_threads(),
        cpu * 1e6,
        wall * 1e6,
        compressions,
        cpu / (compressions * rate),
        rate * 1e9,
        asked as f64 / new as f64,
    );
    Ok(wall)
}

fn on<T: Send>(threads: usize, work: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.expect("threads").install(work)
}

/// One update or one lookup of a tree.
fn singles(held: u64) -> Outcome<()> {
    let (store, tree) = tree_of(Profile::Compatible, held)?;
    let snapshot = store.snapshot()?;
    let mut batch = Batch::new();
    let rounds = |work: &mut dyn FnMut(u64)| {
        let each = |n| timed(|| work(n)).1;
        median((0..2_000).map(each).collect()) * 1e6
    };
    let added = leaves(held..held + 2_000);
    let new = rounds(&mut |n| {
        fill(&mut batch, &added[n as usize..=n as usize]);
        drop(tree.prepare(&snapshot, None, &mut batch).expect("it fits"));
    });
    let gone = rounds(&mut |n| {
        batch.delete(&path(&key(n % held)));
        drop(tree.prepare(&snapshot, None, &mut batch).expect("it fits"));
    });
    let get = rounds(&mut |n| {
        drop(tree.get(&snapshot, None, &path(&key(n % held))).expect("sound"));
    });
    let prove = rounds(&mut |n| drop(tree.prove(&snapshot, None, &[key(n)]).expect("sound")));
    println!(
        "at {held} leaves: insert {new:.1} us, delete {gone:.1} us, get {get:.2} us, \
         prove {prove:.1} us"
    );
    Ok(())
}

fn fresh(count: u64) -> Outcome<()> {
    let (empty, mut batch, added) = (MemoryStore::new(), Batch::new(), leaves(0..count));
    let rounds = (0..2_000).map(|_| {
        timed(|| {
            let tree = open(Profile::Compatible, &empty).expect("memory");
            fill(&mut batch, &added);
            drop(
                tree.prepare(&empty.snapshot().expect("memory"), None, &mut batch)
                    .expect("it fits"),
            );
        })
        .1
    });
    println!("a new tree of {count}: {:.1} us CPU", median(rounds.collect()) * 1e6);
    Ok(())
}

fn verify() -> Outcome<()> {
    let rate = kernel();
    let (store, tree) = tree_of(Profile::Compatible, 10_000)?;
    let keys: Vec<_> = (0..1_000).map(key).collect();
    let leaves: Vec<_> = (0..1_000).map(leaf).collect();
    let (proofs, cpu, ..) = timed(|| tree.prove(&store.snapshot()?, None, &keys));
    let proofs = proofs?;
    println!("1,000 proofs of 10,000 leaves in one walk: {:.2} us each", cpu * 1e3);
    let root = tree.root().node();
    let claims: Vec<_> = keys
        .iter()
        .zip(&leaves)
        .zip(&proofs)
        .map(|((key, leaf), proof)| Claim { key, leaf: Some(leaf), proof })
        .collect();
    let (outcome, cpu, ..) = timed(|| verify_many(Profile::Compatible, root, &claims));
    outcome?;
    let (outcome, alone, ..) = timed(|| {
        claims.iter().try_for_each(|claim| {
            let leaf = claim.leaf.expect("all are there");
            claim.proof.verify_inclusion(Profile::Compatible, root, claim.key, leaf).map(drop)
        })
    });
    outcome?;
    println!(
        "verified together: {:.2} us each, {:.2} times their compressions; alone {:.2} us",
        cpu * 1e3,
        cpu * 1e-3 / (rate * 513.0),
        alone * 1e3
    );
    Ok(())
}

/// A batch whose sum fits by itself and not with what the tree holds.
fn refusal() -> Outcome<()> {
    let (store, tree) = tree_of(Profile::Compatible, 10_000)?;
    let snapshot = store.snapshot()?;
    let mut batch = Batch::new();
    let (mut cpus, before) = (vec![], levels_climbed());
    for _ in 0..ROUNDS {
        for n in 0..10_000 {
            // Half of them replace leaves.
            let sum = u64::MAX / 10_000;
            batch.put(&path(&key(n + 5_000)), &Leaf { value: vec![1; 32], sum }.encode());
        }
        let (refused, cpu, ..) = timed(|| tree.prepare(&snapshot, None, &mut batch));
        if !matches!(refused, Err(TreeError::Overweight { batch: false, .. })) {
            return Err("it was to be refused".into());
        }
        cpus.push(cpu);
    }
    println!(
        "10,000 that overflow into 10,000: refused in {:.2} ms CPU, {} levels climbed",
        median(cpus) * 1e3,
        levels_climbed() - before
    );
    Ok(())
}

fn main() -> Outcome<()> {
    for profile in [Profile::Compatible, Profile::Bound] {
        let one = on(1, || insert(profile, 0, 10_000).map_err(|e| e.to_string()))?;
        let two = on(2, || insert(profile, 0, 10_000).map_err(|e| e.to_string()))?;
        println!("two threads are {:.2} times one", one / two);
        on(1, || insert(profile, 10_000, 1_000).map_err(|e| e.to_string()))?;
        on(2, || insert(profile, 10_000, 1_000).map_err(|e| e.to_string()))?;
    }
    refusal()?;
    fresh(1)?;
    fresh(10)?;
    singles(10)?;
    singles(10_000)?;
    verify()
}
