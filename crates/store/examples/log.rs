//! What the log costs over many commits: keys of 32 and values of 78 bytes, in a Merkle Patricia
//! trie.
//!
//! `cargo run --release -p spinney-store -F measure --example log -- steady DIR [KEYS [CHANGES
//! [COMMITS]]]`: commits in steady state, what they cost, and how large the files get. `... --
//! reads DIR` reads rows of the store that is there, warm and cold, beside bare reads of 4 KiB, and
//! opens it. `... -- past DIR [KEYS [CHANGES [COMMITS]]]` keeps all commits, and proves at the head
//! and at the first one.

#[path = "../../tree/examples/support/random.rs"]
mod random;

use std::collections::BTreeSet;
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use random::Random;
use spinney_store::{Keep, LogStats, LogStore};
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, PageStore, Snapshot, Table, Tree, TreeId};

/// As the command has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const CACHE_BYTES: usize = 256 << 20;
const ID: TreeId = TreeId(1);
const VALUE_BYTES: usize = 78;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| args.get(at).map_or(Ok(default), |arg| arg.parse());
    let sizes = (number(2, 1_000_000)?, number(3, 1_000)?, number(4, 10_000)?);
    match (args.first().map(String::as_str), args.get(1)) {
        (Some("steady"), Some(dir)) => steady(dir.as_ref(), sizes),
        (Some("reads"), Some(dir)) => reads(dir.as_ref()),
        (Some("past"), Some(dir)) => past(dir.as_ref(), sizes),
        _ => Err("usage: log steady|reads|past DIR [KEYS [CHANGES [COMMITS]]]".into()),
    }
}

/// Tells the median, the 99th percentile and the most of something.
fn spread(mut all: Vec<f64>) -> String {
    all.sort_by(f64::total_cmp);
    let at = |part: usize| all[(all.len() * part / 100).min(all.len() - 1)];
    format!("p50 {:.2}, p99 {:.2}, max {:.2}", at(50), at(99), at(100))
}

/// What a log holds.
fn said(stats: &LogStats) -> String {
    let mib = |bytes: u64| bytes as f64 / 1_048_576.0;
    format!(
        "{} rows, {:.1} MiB alive, with {} deltas; {} files of {:.1} MiB; index {:.1} MiB",
        stats.rows,
        mib(stats.live_bytes),
        stats.deltas,
        stats.files,
        mib(stats.file_bytes),
        mib(stats.index_bytes)
    )
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// Resident memory in MiB, where the system tells.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.unwrap_or_default() / 1_024.0
}

fn fill(store: &LogStore, keys: &[[u8; 32]]) -> Result<Tree<Mpt>, Box<dyn Error>> {
    let mut tree = Tree::open(Mpt, ID, &store.snapshot()?, CACHE_BYTES)?;
    let mut random = Random(43);
    for part in keys.chunks(100_000) {
        let mut batch = Batch::new();
        part.iter().for_each(|key| batch.put(key, &random.fill::<VALUE_BYTES>()));
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        tree.commit(store, &pending, None)?;
    }
    Ok(tree)
}

fn keys(count: u64) -> Vec<[u8; 32]> {
    let mut random = Random(42);
    (0..count).map(|_| random.fill()).collect()
}

fn change(keys: &[[u8; 32]], changes: u64, random: &mut Random) -> Batch {
    let mut chosen = BTreeSet::new();
    while (chosen.len() as u64) < changes.min(keys.len() as u64) {
        let [high, low] = [random.fill::<8>(), random.fill::<8>()].map(u64::from_be_bytes);
        chosen.insert(((u128::from(high) << 64 | u128::from(low)) % keys.len() as u128) as usize);
    }
    let mut batch = Batch::new();
    chosen.into_iter().for_each(|at| batch.put(&keys[at], &random.fill::<VALUE_BYTES>()));
    batch
}

fn steady(dir: &Path, (count, changes, commits): (u64, u64, u64)) -> Result<(), Box<dyn Error>> {
    let store = LogStore::create(dir)?;
    let keys = keys(count);
    let mut tree = fill(&store, &keys)?;
    let mut random = Random(7);
    let (mut wall, mut cpu, mut ratio) = (Vec::new(), Vec::new(), Vec::new());
    let mut before = store.io();
    for commit in 0..commits {
        if commit == commits / 2 {
            (wall, cpu, before) = (Vec::new(), Vec::new(), store.io());
        }
        let pending =
            tree.prepare(&store.snapshot()?, None, change(&keys, changes, &mut random))?;
        let (start, used) = (Instant::now(), ProcessTime::now());
        tree.commit(&store, &pending, None)?;
        wall.push(millis(start.elapsed()));
        cpu.push(millis(used.elapsed()));
        if commit % 100 == 99 {
            let stats = store.log_stats()?;
            ratio.push(stats.file_bytes as f64 / stats.live_bytes as f64);
        }
    }
    let (stats, io) = (store.log_stats()?, store.io() - before);
    println!("{changes} of {count} keys, {commits} commits; the second half:");
    println!("wall of a commit in ms: {}", spread(wall));
    println!("CPU of a commit in ms: {}", spread(cpu));
    let each = (commits - commits / 2) as f64;
    println!(
        "a commit: {:.2} MiB in {:.2} writes, {:.2} syncs, {:.0} reads",
        io.bytes_written as f64 / each / 1_048_576.0,
        io.writes as f64 / each,
        io.syncs as f64 / each,
        io.reads as f64 / each
    );
    ratio.drain(..ratio.len() / 2);
    println!("files, times live bytes: {}", spread(ratio));
    println!("{}", said(&stats));
    println!("resident: {:.0} MiB", resident());
    store.close()?;
    Ok(())
}

/// The files of a log, with nothing of them in memory.
struct Cold(Vec<(File, u64)>);

impl Cold {
    fn of(dir: &Path) -> Result<Self, Box<dyn Error>> {
        let entries = std::fs::read_dir(dir.join("spinney.log"))?;
        let paths: Vec<PathBuf> =
            entries.map(|e| Ok(e?.path())).collect::<Result<_, std::io::Error>>()?;
        let mut files = Vec::new();
        for path in paths.iter().filter(|path| path.to_string_lossy().contains("seg-")) {
            let file = File::open(path)?;
            file.sync_all()?;
            let length = file.metadata()?.len();
            files.push((file, length));
        }
        Ok(Self(files))
    }

    fn forget(&self) -> Result<(), Box<dyn Error>> {
        for (file, _) in &self.0 {
            rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
        }
        Ok(())
    }
}

fn reads(dir: &Path) -> Result<(), Box<dyn Error>> {
    let cold = Cold::of(dir)?;
    cold.forget()?;
    let start = Instant::now();
    let store = LogStore::open_read_only(dir)?;
    println!("opened cold in {:.1} ms", millis(start.elapsed()));
    let snapshot = store.snapshot()?;
    let mut keys = Vec::new();
    snapshot.scan(Table::Pages, &[], None, &mut |key, _| {
        keys.push(key.to_vec());
        true
    })?;
    println!("{} rows of pages; {}", keys.len(), said(&store.log_stats()?));
    let mut random = Random(3);
    let mut pick = |below: u64| u64::from_be_bytes(random.fill()) % below;
    let (mut warm, mut rows, mut bare) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..20_000 {
        let key = &keys[pick(keys.len() as u64) as usize];
        let start = Instant::now();
        snapshot.read(Table::Pages, key)?;
        warm.push(start.elapsed().as_secs_f64() * 1e6);
    }
    for _ in 0..2_000 {
        let key = &keys[pick(keys.len() as u64) as usize];
        cold.forget()?;
        let start = Instant::now();
        snapshot.read(Table::Pages, key)?;
        rows.push(start.elapsed().as_secs_f64() * 1e6);
        let (file, length) = &cold.0[pick(cold.0.len() as u64) as usize];
        let at = pick(length / 4_096) * 4_096;
        cold.forget()?;
        let start = Instant::now();
        file.read_exact_at(&mut [0; 4_096], at)?;
        bare.push(start.elapsed().as_secs_f64() * 1e6);
    }
    println!("a row, warm, us: {}", spread(warm));
    println!("a row, cold, us: {}", spread(rows));
    println!("4 KiB, cold, us: {}", spread(bare));
    Ok(())
}

fn past(dir: &Path, (count, changes, commits): (u64, u64, u64)) -> Result<(), Box<dyn Error>> {
    let store = LogStore::create(dir)?;
    store.set_keep(Keep::All)?;
    let keys = keys(count);
    let mut tree = fill(&store, &keys)?;
    let first = store.snapshot()?.commit();
    let mut random = Random(7);
    let before = store.log_stats()?.used_bytes;
    for _ in 0..commits {
        let pending =
            tree.prepare(&store.snapshot()?, None, change(&keys, changes, &mut random))?;
        tree.commit(&store, &pending, None)?;
    }
    let stats = store.log_stats()?;
    println!("{changes} of {count} keys, {commits} commits kept");
    println!("{}", said(&stats));
    println!("a kept commit takes {} bytes", (stats.used_bytes - before) / commits.max(1));
    for (what, commit) in [("the head", first + commits), ("the first one", first)] {
        let start = Instant::now();
        let view = store.at(commit)?;
        let opened = start.elapsed();
        let tree = Tree::open(Mpt, ID, &view, CACHE_BYTES)?;
        let mut proofs = Vec::new();
        for key in keys.iter().step_by(keys.len() / 2_000) {
            // Each one reads its pages anew.
            let tree = Tree::open(Mpt, ID, &view, 0)?;
            let start = Instant::now();
            tree.prove(&view, None, &[key])?;
            proofs.push(start.elapsed().as_secs_f64() * 1e6);
        }
        println!(
            "at {what}: root {:02x?}, opened in {:.1} ms; a proof, warm files, us: {}",
            &tree.root()[..4],
            millis(opened),
            spread(proofs)
        );
    }
    Ok(())
}
