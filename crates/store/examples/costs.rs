//! What a redb store costs: `cargo run --release -p spinney-store --example costs -- DIR [ROWS]`.
//!
//! Rows are as long as the engine's pages. Times are wall times, of one thread.

use std::path::Path;
use std::time::Instant;

use spinney_store::RedbStore;
use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};

const CACHE_BYTES: usize = 512 << 20;
const BATCH: u64 = 10_000;

/// xorshift64*: keys and lengths without a dependency.
fn draw(state: &mut u64) -> u64 {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

fn key(at: u64) -> [u8; 40] {
    let mut state = at + 1;
    let mut key = [0; 40];
    key.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&draw(&mut state).to_be_bytes()));
    key
}

/// 1,000 to 4,000 bytes, 2,500 on average, as pages are.
fn value(state: &mut u64) -> Vec<u8> {
    let mut value = vec![0; 1_000 + (draw(state) % 3_000) as usize];
    value.chunks_mut(8).for_each(|part| {
        let bytes = draw(state).to_be_bytes();
        part.copy_from_slice(&bytes[..part.len()]);
    });
    value
}

/// Commits rows, and prints what a commit took.
fn commits(
    store: &RedbStore,
    name: &str,
    sets: impl Iterator<Item = WriteSet>,
) -> Result<(), StoreError> {
    let before = store.io();
    let (mut times, mut payload) = (Vec::new(), 0);
    for mut set in sets {
        set.sort();
        payload += set.bytes(Table::Pages);
        let start = Instant::now();
        store.commit(&set)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let io = store.io() - before;
    times.sort_by(f64::total_cmp);
    let (mean, count) = (times.iter().sum::<f64>() / times.len() as f64, times.len());
    println!(
        "{name}: {count} commits, ms mean {mean:.2} p50 {:.2} max {:.2}; written/payload {:.2}; \
         syncs/commit {:.1}; writes/commit {}",
        times[count / 2],
        times[count - 1],
        io.bytes_written as f64 / payload as f64,
        io.syncs as f64 / count as f64,
        io.writes / count as u64,
    );
    Ok(())
}

fn reads(store: &RedbStore, rows: u64, count: u64) -> Result<(), StoreError> {
    let mut state = 7;
    let start = Instant::now();
    for _ in 0..count / 10 {
        store.snapshot()?;
    }
    println!("snapshot: {:.2} us", start.elapsed().as_secs_f64() * 1e7 / count as f64);
    let snapshot = store.snapshot()?;
    for (name, offset) in [("read", 0), ("miss", rows)] {
        let start = Instant::now();
        let mut bytes = 0;
        for _ in 0..count {
            let row = snapshot.read(Table::Pages, &key(draw(&mut state) % rows + offset))?;
            bytes += row.map_or(0, |row| row.len() as u64);
        }
        let us = start.elapsed().as_secs_f64() * 1e6 / count as f64;
        println!("{name}: {us:.2} us, {} bytes each", bytes / count);
    }
    let (start, mut bytes) = (Instant::now(), 0);
    snapshot.scan(Table::Pages, &[], None, &mut |_, row| {
        bytes += row.len();
        true
    })?;
    println!("scan: {:.0} MB/s", bytes as f64 / start.elapsed().as_secs_f64() / 1e6);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("costs DIR [ROWS]")?;
    let rows = arguments.next().map_or(Ok(100_000), |rows| rows.parse::<u64>())?;
    let folder = Path::new(&folder);
    let store = RedbStore::create(folder, CACHE_BYTES)?;
    let mut state = 1;

    let mut set = |keys: &mut dyn Iterator<Item = u64>| {
        let mut set = WriteSet::new();
        keys.for_each(|at| set.put(Table::Pages, &key(at), value(&mut state)));
        set
    };
    let loads = (0..rows).step_by(BATCH as usize);
    commits(&store, "load", loads.map(|at| set(&mut (at..(at + BATCH).min(rows)))))?;
    for (size, count) in [(100, 100), (1_000, 20)] {
        let mut pick = size;
        let mut keys = || (0..size).map(|_| draw(&mut pick) % rows).collect::<Vec<_>>().into_iter();
        commits(&store, &format!("{size} rows"), (0..count).map(|_| set(&mut keys())))?;
    }
    reads(&store, rows, 100_000)?;

    let stats = store.stats()?;
    println!("file {} MB, {:?}", stats.file_bytes >> 20, stats.tables[0]);
    store.close()?;
    let start = Instant::now();
    let store = RedbStore::open(folder, CACHE_BYTES)?;
    println!("reopen: {:.1} ms", start.elapsed().as_secs_f64() * 1e3);
    reads(&store, rows, 100_000)?;
    Ok(())
}
