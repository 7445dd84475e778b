//! Roots of updates on a live tree of random keys, beside the hashes that they cannot do without.
//!
//! `cargo run --release -p spinney-tree -F measure --example live -- [mpt|ubt|pbt] [KEYS]...`
//! prints a line for each number of keys: one update and the root, its own hashes one at a time in
//! the same run, and 10,000 updates.

#[path = "support/random.rs"]
mod random;

use std::collections::HashSet;
use std::hint::black_box;
use std::time::Duration;

use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{
    Batch, HashFunction, MemorySnapshot, MemoryStore, PageStore, Scheme, Tree, TreeId,
};

use random::Random;

type Key = [u8; 32];
type Error = Box<dyn std::error::Error>;

/// CPU time of the process so far, of all its threads: what others run on the machine does not
/// count.
fn cpu() -> Duration {
    cpu_time::ProcessTime::now().as_duration()
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1).peekable();
    let name = args.next_if(|arg| arg.parse::<usize>().is_err()).unwrap_or_else(|| "mpt".into());
    let counts: Vec<usize> = args.map(|arg| arg.parse()).collect::<Result<_, _>>()?;
    let counts = if counts.is_empty() { vec![1_000_000] } else { counts };
    for count in counts {
        match &name[..] {
            "mpt" => measure::<_, 78>(Mpt, count, HashFunction::Keccak256, mpt_lens)?,
            "ubt" => {
                let hash = HashFunction::Sha256;
                measure::<_, 32>(Ubt { hash }, count, hash, ubt_lens)?;
            }
            "pbt" => {
                let hash = HashFunction::Blake3;
                measure::<_, 32>(Pbt { hash }, count, hash, pbt_lens)?;
            }
            _ => return Err(format!("no tree {name}: mpt, ubt or pbt").into()),
        }
    }
    Ok(())
}

/// Over values of `VALUE` bytes. `lens` are the lengths of what is hashed from a leaf up to the
/// root.
fn measure<S: Scheme, const VALUE: usize>(
    scheme: S,
    count: usize,
    hash: HashFunction,
    lens: fn(&[Key], &Key) -> Vec<usize>,
) -> Result<(), Error> {
    let mut random = Random(42);
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme, TreeId(1), &store.snapshot()?, 8 << 30)?;
    let mut keys: Vec<Key> = Vec::with_capacity(count);
    while keys.len() < count {
        let mut batch = Batch::new();
        for _ in 0..100_000.min(count - keys.len()) {
            keys.push(random.fill());
            batch.put(&keys[keys.len() - 1], &random.fill::<VALUE>());
        }
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        tree.commit(&store, &pending, None)?;
    }
    let mut sorted = keys.clone();
    sorted.sort_unstable();
    let snapshot = store.snapshot()?;
    print_single::<S, VALUE>(&tree, &snapshot, &keys, &mut random, |chosen| {
        let lens: Vec<usize> = chosen.iter().flat_map(|key| lens(&sorted, key)).collect();
        let bytes = [0x5a; 2_048];
        let start = cpu();
        for &len in &lens {
            black_box(hash.hash(black_box(&bytes[..len])));
        }
        cpu() - start
    })?;
    print_batches::<S, VALUE>(&tree, &snapshot, &keys, &mut random)
}

/// Roots of single updates, each dropped, beside what `own` takes for their hashes: in turn, so
/// that both share the machine's moods.
fn print_single<S: Scheme, const VALUE: usize>(
    tree: &Tree<S>,
    snapshot: &MemorySnapshot,
    keys: &[Key],
    random: &mut Random,
    own: impl Fn(&[Key]) -> Duration,
) -> Result<(), Error> {
    const SINGLE: usize = 1_000;
    let mut batch = Batch::new();
    let mut rounds = Vec::new();
    for _ in 0..101 {
        let chosen: Vec<Key> =
            (0..SINGLE).map(|_| keys[random.next() as usize % keys.len()]).collect();
        let values: Vec<[u8; VALUE]> = (0..SINGLE).map(|_| random.fill()).collect();
        let start = cpu();
        for (key, value) in chosen.iter().zip(&values) {
            batch.put(key, value);
            black_box(tree.prepare(snapshot, None, &mut batch)?.root());
        }
        rounds.push((cpu() - start, own(&chosen)));
    }
    let middle = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let micros = |time: Duration| time.as_secs_f64() * 1e6 / SINGLE as f64;
    // The first half fills caches and buffers.
    let late = || rounds[rounds.len() / 2..].iter();
    println!(
        "{} keys: one update {:.2} us, own hashes {:.2} us, ratio {:.2}",
        keys.len(),
        middle(late().map(|round| micros(round.0)).collect()),
        middle(late().map(|round| micros(round.1)).collect()),
        middle(late().map(|round| micros(round.0) / micros(round.1)).collect()),
    );
    Ok(())
}

fn print_batches<S: Scheme, const VALUE: usize>(
    tree: &Tree<S>,
    snapshot: &MemorySnapshot,
    keys: &[Key],
    random: &mut Random,
) -> Result<(), Error> {
    let size = 10_000.min(keys.len() / 2);
    let mut batch = Batch::new();
    let mut took = Vec::new();
    for _ in 0..31 {
        let mut drawn = HashSet::with_capacity(size);
        while drawn.len() < size {
            let key = keys[random.next() as usize % keys.len()];
            if drawn.insert(key) {
                batch.put(&key, &random.fill::<VALUE>());
            }
        }
        let start = cpu();
        let pending = tree.prepare(snapshot, None, &mut batch)?;
        took.push(cpu() - start);
        drop(pending);
    }
    took.sort();
    let millis = |time: Duration| time.as_secs_f64() * 1e3;
    let (middle, best) = (millis(took[took.len() / 2]), millis(took[0]));
    println!("  {size} updates and the root: CPU {middle:.2} ms, best {best:.2}");
    Ok(())
}

/// The keys that share `key`'s first `bits` bits.
fn below<'a>(keys: &'a [Key], key: &Key, bits: usize) -> &'a [Key] {
    let same = |other: &Key| shared(other, key) >= bits;
    let from = keys.partition_point(|other| other < key && !same(other));
    let to = keys.partition_point(|other| other <= key || same(other));
    &keys[from..to]
}

/// How many bits two keys share.
fn shared(a: &Key, b: &Key) -> usize {
    let differ = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(32);
    differ * 8 + a.get(differ).map_or(0, |byte| (byte ^ b[differ]).leading_zeros() as usize)
}

fn mpt_lens(keys: &[Key], key: &Key) -> Vec<usize> {
    let string = |len: usize| len + if len < 56 { 1 } else { 2 };
    let list = |len: usize| {
        len + if len < 56 {
            1
        } else if len < 256 {
            2
        } else {
            3
        }
    };
    let (mut lens, mut depth) = (Vec::new(), 0);
    let mut here = keys;
    while here.len() > 1 {
        let digit = |key: &Key| key[depth / 2] >> (4 * (1 - depth % 2)) & 15;
        let (mut children, mut rest) = (0, here);
        while let Some(first) = rest.first() {
            children += 1;
            rest = &rest[rest.partition_point(|key| digit(key) <= digit(first))..];
        }
        if children > 1 {
            lens.push(list(children * 33 + 17 - children));
        }
        depth += 1;
        here = below(here, key, 4 * depth);
    }
    lens.push(list(string((64 - depth) / 2 + 1) + string(78)));
    lens
}

/// The bits between each fork above a key and the fork above that.
fn skips(keys: &[Key], key: &Key) -> Vec<usize> {
    let (mut skips, mut here, mut depth) = (Vec::new(), keys, 0);
    while here.len() > 1 {
        let fork = shared(&here[0], &here[here.len() - 1]);
        skips.push(fork - depth);
        depth = fork + 1;
        here = below(here, key, depth);
    }
    skips
}

fn ubt_lens(keys: &[Key], key: &Key) -> Vec<usize> {
    // The leaf, the eight bits below its stem, the stem; then each bit above.
    let above: usize = skips(keys, key).iter().map(|skip| skip + 1).sum();
    [32].into_iter().chain([64; 9]).chain(std::iter::repeat_n(64, above)).collect()
}

fn pbt_lens(keys: &[Key], key: &Key) -> Vec<usize> {
    let forks = skips(keys, key).into_iter().map(|skip| 3 + skip.div_ceil(8) + 64);
    [65].into_iter().chain(forks).collect()
}
