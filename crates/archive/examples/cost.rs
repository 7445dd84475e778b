//! What an archive costs: bytes a changed leaf, how long a proof at any block takes, and how large
//! a proof of many blocks is.
//!
//! ```text
//! cargo run --release -p spinney-archive -F measure --example cost -- \
//!     PLACE mpt|pbt KEYS BLOCKS CHANGES [PROOFS]
//! ```
//! PLACE is a folder, or a URL of a bucket (with `--features remote`). If there is an archive made
//! by this already, proofs of it are measured alone.
//! Values of 32 bytes under keys of 32 bytes, all random; each block changes CHANGES of them, and
//! every 100th block the first key. Blocks are archived as they are made, each commit's rows as
//! they are. Of PROOFS keys a proof is made when their block is the last one, and compared with the
//! archive's; up to 1,000 of them are timed at each of three places.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use spinney_archive::{Archive, Objects, Options, RowChange, Writer, place};
use spinney_proof::binary::KeysProof;
use spinney_proof::mpt::Proof;
use spinney_proof::span::{Frames, FramesWriter};
use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::{
    Batch, BlockId, HashFunction, MemoryStore, PageStore, Scheme, Snapshot, Table, Tree, TreeError,
    TreeId, WriteSet,
};

// As the command does.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ID: TreeId = TreeId(70_000);
const WINDOW_BLOCKS: u64 = 256;
/// Of so many blocks one proof is made, and so often its key changes.
const SPAN_BLOCKS: u64 = 1_000;
const SPAN_CHANGES: u64 = 100;
/// So many proofs are timed at each place at most.
const TIMED: u64 = 1_000;

/// Keeps what it is asked to write.
struct Noting<'s> {
    store: &'s MemoryStore,
    set: std::sync::Mutex<Option<WriteSet>>,
}

impl PageStore for Noting<'_> {
    type Snapshot<'a>
        = <MemoryStore as PageStore>::Snapshot<'a>
    where
        Self: 'a;

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, spinney_tree::StoreError> {
        self.store.snapshot()
    }

    fn commit(&self, set: &WriteSet) -> Result<(), spinney_tree::StoreError> {
        if let Ok(mut kept) = self.set.lock() {
            *kept = Some(set.clone());
        }
        self.store.commit(set)
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

fn key(number: u64) -> [u8; 32] {
    let mut random = Random(number.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 7);
    let mut key = [0; 32];
    key.chunks_mut(8).for_each(|part| part.copy_from_slice(&random.next().to_be_bytes()));
    key
}

fn value(number: u64, block: u64) -> [u8; 32] {
    key(number ^ (block + 1) << 40)
}

fn block(number: u64) -> BlockId {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    BlockId { number, hash }
}

/// A tree whose keys are proven here.
trait Proven: Scheme<Root = [u8; 32]> + Clone {
    /// The parts of the proof of a key.
    fn prove<N: Snapshot>(tree: &Tree<Self>, at: &N, key: &[u8])
    -> Result<Vec<Vec<u8>>, TreeError>;

    /// Checks such a proof.
    fn verify(&self, root: &[u8; 32], key: &[u8], parts: &[Vec<u8>]) -> bool;
}

impl Proven for Mpt {
    fn prove<N: Snapshot>(
        tree: &Tree<Self>,
        at: &N,
        key: &[u8],
    ) -> Result<Vec<Vec<u8>>, TreeError> {
        Ok(tree.prove(at, None, &[key])?.into_nodes())
    }

    fn verify(&self, root: &[u8; 32], key: &[u8], parts: &[Vec<u8>]) -> bool {
        Proof::new(parts.to_vec()).verify(root, &[key]).is_ok()
    }
}

impl Proven for Pbt {
    fn prove<N: Snapshot>(
        tree: &Tree<Self>,
        at: &N,
        key: &[u8],
    ) -> Result<Vec<Vec<u8>>, TreeError> {
        let proof = tree.prove(at, None, &[key])?;
        let value = proof.entries[0].1.unwrap_or_default().to_vec();
        Ok(vec![proof.proof, value])
    }

    fn verify(&self, root: &[u8; 32], key: &[u8], parts: &[Vec<u8>]) -> bool {
        let value = parts[1][..].try_into().ok();
        let sent = KeysProof { entries: vec![(key.to_vec(), value)], proof: parts[0].clone() };
        sent.verify(self, root).is_ok()
    }
}

/// What a proof was when its block was the last one.
struct Then {
    block: u64,
    key: u64,
    digest: [u8; 32],
}

fn digest(parts: &[Vec<u8>]) -> [u8; 32] {
    HashFunction::Blake3.hash(&parts.concat())
}

/// The roots of all blocks, and some proofs.
#[derive(Default)]
struct Made {
    roots: Vec<[u8; 32]>,
    proofs: Vec<Then>,
}

struct Asked {
    place: String,
    keys: u64,
    blocks: u64,
    changes: u64,
    proofs: u64,
}

fn run<S: Proven>(scheme: S, asked: &Asked) -> Result<(), Box<dyn Error>> {
    let objects = place(&asked.place)?;
    match Archive::open(objects.clone(), 0) {
        Ok(_) => {
            for is_cold in [true, false] {
                proofs(&scheme, (asked, &objects), &[], is_cold)?;
            }
            Ok(())
        }
        Err(_) => make(scheme, asked, objects),
    }
}

/// Makes an archive, and measures that.
fn make<S: Proven>(
    scheme: S,
    asked: &Asked,
    objects: Arc<dyn Objects>,
) -> Result<(), Box<dyn Error>> {
    let (started, store) = (Instant::now(), MemoryStore::new());
    let store = Noting { store: &store, set: std::sync::Mutex::default() };
    let mut tree = Tree::open(scheme.clone(), ID, &store.snapshot()?, 4 << 30)?;
    let commit = |tree: &mut Tree<S>, batch, number| -> Result<(), Box<dyn Error>> {
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        tree.commit(&store, &pending, Some(block(number)))?;
        Ok(())
    };
    let mut number = 0;
    while number < asked.keys {
        let mut batch = Batch::new();
        let end = (number + 200_000).min(asked.keys);
        (number..end).for_each(|number| batch.put(&key(number), &value(number, 0)));
        commit(&mut tree, batch, 0)?;
        number = end;
    }
    let mut writer =
        Writer::create(objects.clone(), Options::default(), block(0), &store.snapshot()?)?;
    let base: u64 = writer.manifest().segments.iter().map(|segment| segment.bytes).sum();
    println!(
        "{} keys: base {base} bytes, {:.1} a key",
        asked.keys,
        base as f64 / asked.keys as f64
    );
    let (mut random, mut archiving, mut first) = (Random(1), Duration::ZERO, 1);
    let mut made = Made { roots: vec![tree.root()], proofs: Vec::new() };
    let mut looked_at = Random(3);
    while first <= asked.blocks {
        let last = (first + WINDOW_BLOCKS - 1).min(asked.blocks);
        let mut window = writer.window(first, last)?;
        for number in first..=last {
            let mut batch = Batch::new();
            let mut chosen: Vec<u64> =
                (0..asked.changes).map(|_| random.next() % asked.keys).collect();
            if number % SPAN_CHANGES == 0 {
                chosen.push(0);
            }
            chosen.sort_unstable();
            chosen.dedup();
            chosen.iter().for_each(|&at| batch.put(&key(at), &value(at, number)));
            commit(&mut tree, batch, number)?;
            made.roots.push(tree.root());
            let due = asked.proofs * number / asked.blocks;
            while (made.proofs.len() as u64) < due {
                let at = looked_at.next() % asked.keys;
                let parts = S::prove(&tree, &store.snapshot()?, &key(at))?;
                made.proofs.push(Then { block: number, key: at, digest: digest(&parts) });
            }
            let set = store.set.lock().map_err(|_| "poisoned")?.take().unwrap_or_default();
            let clock = ProcessTime::now();
            let rows = set.rows_over().map(|row| -> RowChange<'_> {
                // A root record is written whole.
                let before = row.before.filter(|_| row.table == Table::Pages);
                (row.table, row.key, before, row.row)
            });
            writer.add(&mut window, block(number), rows)?;
            archiving += clock.elapsed();
        }
        let clock = ProcessTime::now();
        writer.publish(vec![window], block(last))?;
        archiving += clock.elapsed();
        first = last + 1;
        if last.is_multiple_of(16 * WINDOW_BLOCKS) {
            eprintln!("{last} blocks after {:?}", started.elapsed());
        }
    }
    let manifest = writer.manifest().clone();
    let all: u64 = manifest.segments.iter().map(|segment| segment.bytes).sum();
    let leaves = (asked.blocks * asked.changes) as f64;
    println!(
        "{} blocks of {}: {} bytes in {} segments; {:.1} bytes a changed leaf, \
         {:.1} with the base; \
         {:.2} us of CPU each",
        asked.blocks,
        asked.changes,
        all - base,
        manifest.segments.len(),
        (all - base) as f64 / leaves,
        all as f64 / leaves,
        archiving.as_secs_f64() * 1e6 / leaves,
    );
    drop((tree, store));
    for is_cold in [true, false] {
        proofs(&scheme, (asked, &objects), &made.roots, is_cold)?;
    }
    are_equal(&scheme, &objects, &made)?;
    over_time(&scheme, (asked, &objects), &made.roots)
}

/// Compares the proofs of an archive with those that were made when their blocks were the last.
fn are_equal<S: Proven>(
    scheme: &S,
    objects: &Arc<dyn Objects>,
    made: &Made,
) -> Result<(), Box<dyn Error>> {
    let archive = Archive::open(objects.clone(), 1 << 30)?;
    let (mut order, mut random): (Vec<_>, _) = (made.proofs.iter().collect(), Random(4));
    order.sort_by_cached_key(|_| random.next());
    let (clock, cpu) = (Instant::now(), ProcessTime::now());
    for Then { block, key: at, digest: then } in order {
        let view = archive.at(*block)?;
        let tree = Tree::open(scheme.clone(), ID, &view, 1 << 20)?;
        let parts = S::prove(&tree, &view, &key(*at))?;
        if digest(&parts) != *then {
            return Err(format!("block {block}, key {at}: the proof is another one").into());
        }
    }
    let count = made.proofs.len();
    println!(
        "{count} proofs at random blocks are those of then: {:.0} a second, {:.0} a second of CPU",
        count as f64 / clock.elapsed().as_secs_f64(),
        count as f64 / cpu.elapsed().as_secs_f64(),
    );
    Ok(())
}

/// One proof of the first key at many blocks.
fn over_time<S: Proven>(
    scheme: &S,
    (asked, objects): (&Asked, &Arc<dyn Objects>),
    roots: &[[u8; 32]],
) -> Result<(), Box<dyn Error>> {
    let archive = Archive::open(objects.clone(), 1 << 30)?;
    let (first, key) = (asked.blocks.saturating_sub(SPAN_BLOCKS - 1).max(1), key(0));
    let (mut writer, mut alone) = (FramesWriter::new(), 0);
    let clock = Instant::now();
    for number in first..=asked.blocks {
        let view = archive.at(number)?;
        let tree = Tree::open(scheme.clone(), ID, &view, 1 << 20)?;
        let parts = S::prove(&tree, &view, &key)?;
        alone += parts.iter().map(Vec::len).sum::<usize>();
        writer.push(&parts);
    }
    let (bytes, making) = (writer.finish(), clock.elapsed());
    let (mut frames, mut number, clock) = (Frames::new(&bytes), first as usize, Instant::now());
    while let Some(frame) = frames.next()? {
        if !scheme.verify(&roots[number], &key, &frame.items) {
            return Err(format!("block {number}: the proof does not hold").into());
        }
        number += frame.blocks as usize;
    }
    println!(
        "a key at {} blocks, changed at every {SPAN_CHANGES}th: one proof of {} bytes, {:.2}% of \
         the {alone} bytes of their own; made in {making:?}, verified in {:?}",
        asked.blocks + 1 - first,
        bytes.len(),
        100.0 * bytes.len() as f64 / alone as f64,
        clock.elapsed(),
    );
    Ok(())
}

fn proofs<S: Proven>(
    scheme: &S,
    (asked, objects): (&Asked, &Arc<dyn Objects>),
    roots: &[[u8; 32]],
    is_cold: bool,
) -> Result<(), Box<dyn Error>> {
    let archive = Archive::open(objects.clone(), 1 << 30)?;
    let clock = Instant::now();
    let memory = archive.load_indexes()?;
    println!("indexes: {memory} bytes of memory, read in {:?}", clock.elapsed());
    let (first, last) = archive.blocks();
    for (seed, from) in (2..).zip([first + 1, last / 2, last.saturating_sub(10)]) {
        let timed = asked.proofs.min(TIMED);
        let pass = || -> Result<_, Box<dyn Error>> {
            let (mut times, mut ranges, mut random) = (Vec::new(), Vec::new(), Random(seed));
            for _ in 0..timed {
                if is_cold {
                    archive.clear_cache();
                }
                let read = archive.reads().ranges;
                let number = from + random.next() % (last - from).clamp(1, 10);
                let clock = Instant::now();
                let view = archive.at(number)?;
                let tree = Tree::open(scheme.clone(), ID, &view, 1 << 20)?;
                if roots.get(number as usize).is_some_and(|root| tree.root() != *root) {
                    return Err(format!("block {number} has another root").into());
                }
                let key = key(random.next() % asked.keys);
                black_box(S::prove(&tree, &view, &key)?);
                times.push(clock.elapsed());
                ranges.push(archive.reads().ranges - read);
            }
            Ok((times, ranges))
        };
        if !is_cold {
            // The same proofs put into the cache what they need.
            pass()?;
        }
        let before = archive.reads();
        let (mut times, mut ranges) = pass()?;
        times.sort_unstable();
        ranges.sort_unstable();
        let requests = archive.reads();
        let each = |now: u64, then: u64| (now - then) as f64 / timed as f64;
        println!(
            "{}: proofs of a key near block {from}: p50 {:?}, p99 {:?}; \
             {:.2} ranges, p50 {}, p99 {}; {:.0} bytes each",
            if is_cold { "cold" } else { "warm" },
            times[times.len() / 2],
            times[times.len() * 99 / 100],
            each(requests.ranges, before.ranges),
            ranges[ranges.len() / 2],
            ranges[ranges.len() * 99 / 100],
            each(requests.bytes, before.bytes),
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "PLACE mpt|pbt KEYS BLOCKS CHANGES [PROOFS]";
    let mut args = std::env::args().skip(1);
    let place = args.next().ok_or(usage)?;
    let tree = args.next().ok_or(usage)?;
    let mut number = || -> Result<u64, Box<dyn Error>> { Ok(args.next().ok_or(usage)?.parse()?) };
    let (keys, blocks, changes) = (number()?, number()?, number()?);
    let proofs = number().unwrap_or(1_000);
    let asked = Asked { place, keys, blocks, changes, proofs };
    match &tree[..] {
        "mpt" => run(Mpt, &asked),
        "pbt" => run(Pbt { hash: HashFunction::Blake3 }, &asked),
        _ => Err(usage.into()),
    }
}
