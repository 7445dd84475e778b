//! Our side: the cases in one process, a line of JSON each. The Go program does the same.

use std::time::Instant;

use cpu_time::ProcessTime;
use serde::{Deserialize, Serialize};
use spinney_hash::sha256;
use spinney_ipa::{Crs, Kernel, TableOptions};
use spinney_tree::mpt::Mpt;
use spinney_tree::verkle::Verkle;
use spinney_tree::verkle::proof::Proof;
use spinney_tree::{Batch, MemoryStore, PageStore, Scheme, Tree, TreeId};

use crate::Error;

/// What is told of one measurement.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) case: String,
    pub(crate) keys: usize,
    pub(crate) cpu_ns: u64,
    pub(crate) wall_ns: u64,
    pub(crate) bytes: u64,
    /// Equal on all sides: a root, or a part of a proof.
    pub(crate) check: String,
}

type Entries = Vec<([u8; 32], [u8; 32])>;

fn key(i: i64) -> [u8; 32] {
    sha256(&[&b"k"[..], &i.to_le_bytes()].concat())
}

fn value(round: i64, i: i64) -> [u8; 32] {
    sha256(&[&b"v"[..], &round.to_le_bytes(), &i.to_le_bytes()].concat())
}

fn inputs(n: usize, round: i64, index: impl Fn(i64) -> i64) -> Entries {
    (0..n as i64).map(|j| (key(index(j)), value(round, index(j)))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A tree over a store in memory.
struct Live {
    store: MemoryStore,
    tree: Tree<Verkle>,
}

impl Live {
    fn new(verkle: &Verkle, cache: usize) -> Result<Self, Error> {
        let store = MemoryStore::new();
        let tree = Tree::open(verkle.clone(), TreeId(1), &store.snapshot()?, cache)?;
        Ok(Self { store, tree })
    }

    /// The root alone.
    fn root_after(&self, entries: &Entries) -> Result<String, Error> {
        let mut batch = Batch::new();
        entries.iter().for_each(|(key, value)| batch.put(key, value));
        Ok(hex(&self.tree.prepare(&self.store.snapshot()?, None, batch)?.root()))
    }

    /// Root and pages.
    fn insert(&mut self, entries: &Entries) -> Result<String, Error> {
        let mut batch = Batch::new();
        entries.iter().for_each(|(key, value)| batch.put(key, value));
        let pending = self.tree.prepare(&self.store.snapshot()?, None, batch)?;
        self.tree.commit(&self.store, &pending, None)?;
        Ok(hex(&self.tree.root()))
    }
}

fn measure(
    case: &str,
    keys: usize,
    work: impl FnOnce() -> Result<String, Error>,
) -> Result<(), Error> {
    let (cpu, wall) = (ProcessTime::now(), Instant::now());
    let check = work()?;
    let (cpu_ns, wall_ns) = (cpu.elapsed().as_nanos() as u64, wall.elapsed().as_nanos() as u64);
    tell(&Line { case: case.to_owned(), keys, cpu_ns, wall_ns, bytes: 0, check })
}

fn tell(line: &Line) -> Result<(), Error> {
    println!("{}", serde_json::to_string(line)?);
    Ok(())
}

/// Resident memory, in bytes.
fn resident() -> Result<u64, Error> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).ok_or("no VmRSS")?.parse()?;
    Ok(kib * 1024)
}

/// What batches of 1,000 updates write: the MPT on the same batches beside it.
pub(crate) fn pages(n: usize) -> Result<(), Error> {
    written("mpt", Mpt, n)?;
    written("verkle", Verkle::shared(), n)
}

fn written<S: Scheme>(name: &str, scheme: S, n: usize) -> Result<(), Error> {
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme, TreeId(1), &store.snapshot()?, 1 << 30)?;
    let mut commit = |entries: &[([u8; 32], [u8; 32])]| -> Result<(u64, u64), Error> {
        let mut batch = Batch::new();
        entries.iter().for_each(|(key, value)| batch.put(key, value));
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        let stats = tree.commit(&store, &pending, None)?;
        Ok((stats.rows_written as u64, stats.bytes as u64))
    };
    for part in inputs(n, 0, |j| j).chunks(10_000) {
        commit(part)?;
    }
    let (mut rows, mut bytes) = (0, 0);
    for round in 1..=5 {
        let wrote = commit(&inputs(1_000, round, |j| (round * 7_919 + j * 101) % n as i64))?;
        (rows, bytes) = (rows + wrote.0, bytes + wrote.1);
    }
    let each = |sum: u64| sum as f64 / 5_000.0;
    println!("{name}: {:.2} rows, {:.0} bytes of rows a key", each(rows), each(bytes));
    Ok(())
}

/// MODE KERNEL KEYS ROUNDS.
pub(crate) fn serve(args: &[String]) -> Result<(), Error> {
    let [mode, kernel, keys, rounds] = args else { return Err("MODE KERNEL KEYS ROUNDS".into()) };
    let (n, rounds): (usize, i64) = (keys.parse()?, rounds.parse()?);
    let kernel = match kernel.as_str() {
        "portable" => Kernel::PORTABLE,
        _ => Kernel::detect(),
    };
    let options = TableOptions { kernel, ..TableOptions::default() };
    let verkle = Verkle::new(Crs::with_table(&options).into());
    Live::new(&verkle, 1 << 30)?.insert(&inputs(100, 0, |j| -1 - j))?;
    let all = inputs(n, 0, |j| j);
    if mode == "memory" {
        let before = resident()?;
        // Pages that were read are shared with the store, so a cache would not add to them.
        let mut live = Live::new(&verkle, 1 << 30)?;
        let mut check = String::new();
        for part in all.chunks(1_000) {
            check = live.insert(&part.to_vec())?;
        }
        let bytes = resident()? - before;
        return tell(&Line { case: mode.clone(), keys: n, cpu_ns: 0, wall_ns: 0, bytes, check });
    }
    let mut live = Live::new(&verkle, 1 << 30)?;
    if mode == "written" {
        live.insert(&all)?;
        return updates(rounds, n, |size, entries| {
            measure("written", size, || live.insert(entries))
        });
    }
    // A profile of updates wants many of them and one load.
    for _ in 0..if mode == "updates" { 1 } else { rounds } {
        live = Live::new(&verkle, 1 << 30)?;
        measure("load", n, || live.insert(&all))?;
    }
    if mode == "load" {
        return Ok(());
    }
    updates(rounds, n, |size, entries| {
        measure("root", size, || live.root_after(entries))?;
        measure("update", size, || live.insert(entries))
    })?;
    if mode == "updates" {
        return Ok(());
    }
    for size in [1, 1_000] {
        for round in 1..=rounds {
            let entries = inputs(size, 0, |j| (round * 7_919 + j * 97) % n as i64);
            let keys: Vec<_> = entries.iter().map(|entry| entry.0).collect();
            prove(&live, &verkle, &keys)?;
        }
    }
    Ok(())
}

/// Batches of changed values, and how many there are in each.
fn updates(
    rounds: i64,
    n: usize,
    mut update: impl FnMut(usize, &Entries) -> Result<(), Error>,
) -> Result<(), Error> {
    for size in [1_000, 10_000] {
        for round in 1..=rounds {
            update(size, &inputs(size, round, |j| (round * 7_919 + j * 101) % n as i64))?;
        }
    }
    Ok(())
}

fn prove(live: &Live, verkle: &Verkle, keys: &[[u8; 32]]) -> Result<(), Error> {
    let mut made = None;
    measure("prove", keys.len(), || {
        let (proof, diff) = live.tree.prove(&live.store.snapshot()?, None, keys)?;
        let bytes = proof.to_bytes();
        let quotient = hex(&bytes[bytes.len() - 576..][..32]);
        made = Some((bytes, diff));
        Ok(quotient)
    })?;
    let (bytes, diff) = made.ok_or("no proof")?;
    measure("verify", keys.len(), || {
        let proof = Proof::from_bytes(&bytes)?;
        let verified = proof.verify(verkle.crs(), &live.tree.root(), &diff)?;
        // go-verkle computes the root after, too.
        if verified.post_root(verkle.crs())? != live.tree.root() {
            return Err("the root after nothing changed is another".into());
        }
        Ok(String::new())
    })
}
