//! A process that measures one contender: it makes the inputs, then reads a case a line and answers
//! each with its cost, a line of JSON. `bench-compare/geth` does the same in Go.

use std::{
    hint::black_box,
    io::{self, BufRead, Write},
};

use spinney_tree::{Scheme, Snapshot, mpt::Mpt, pbt::Pbt, ubt::Ubt};

use crate::blocks::{Chain, Kind};
use crate::inputs::{KEY_BYTES, Leaf, changes, leaves};
use crate::meter::{Cost, Meter};
use crate::{Error, alloy, ours, path};

/// Whose work is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Alloy,
    Ours,
}

/// Answers cases until standard input ends.
pub fn serve(side: Side, count: usize) -> Result<(), Error> {
    let leaves = leaves(count);
    let mut sorted = leaves.clone();
    sorted.sort_unstable_by_key(|leaf| leaf.0);
    let mut worker = Worker {
        leaves,
        sorted,
        live: ours::Live::new(Mpt),
        binary: None,
        chain: None,
        alloy: None,
        meter: Meter::new(),
    };
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let name = words.next().unwrap_or_default();
        let mut number = || words.next().map_or(Ok(0), str::parse::<u64>);
        let (size, round) = (number()? as usize, number()?);
        let cost = match side {
            Side::Alloy => worker.alloy(name, size, round)?,
            Side::Ours => worker.ours(name, size, round)?,
        };
        serde_json::to_writer(&mut out, &cost)?;
        writeln!(out)?;
        out.flush()?;
    }
    Ok(())
}

/// A tree of EIP-7864 with one value a stem, at suffix 0: as `bench-compare/geth/bintrie.go` has
/// it.
struct Stems {
    live: ours::Live<Ubt>,
    leaves: Vec<Leaf>,
    sorted: Vec<Entry>,
}

/// A key and a value of a UBT.
type Entry = ([u8; 32], [u8; 32]);

fn entry((key, value): &Leaf) -> Entry {
    let mut key = *key;
    key[31] = 0;
    (key, *value.first_chunk().expect("values are longer"))
}

/// A tree that blocks are put on.
enum Blocks {
    Mpt(Chain<Mpt>),
    Ubt(Chain<Ubt>),
    Pbt(Chain<Pbt>),
}

/// A tree with `entries`, warm, and what it cost to load it.
fn loaded<S: Scheme<Root = [u8; 32]> + Clone, K: AsRef<[u8]>, V: AsRef<[u8]>>(
    scheme: S,
    kind: Kind,
    leaves: &[Leaf],
    entries: &[(K, V)],
    wrap: impl Fn(Chain<S>) -> Blocks,
) -> Result<(Blocks, Cost), Error> {
    let mut live = ours::Live::new(scheme);
    let (root, cost) = Meter::new().run(|| live.load(entries, 65_000));
    let root = root?;
    Ok((wrap(Chain::new(kind, leaves, live)), rooted((root, cost))))
}

struct Worker {
    leaves: Vec<Leaf>,
    sorted: Vec<Leaf>,
    live: ours::Live<Mpt>,
    /// The tree of stems of one value, its entries, and those sorted.
    binary: Option<Stems>,
    chain: Option<Blocks>,
    /// The root and the proofs of the last `verify`.
    alloy: Option<(usize, [u8; 32], Vec<Vec<alloy_primitives::Bytes>>)>,
    meter: Meter,
}

/// Changes after whose roots a tree is one that has been at work for a while: what it keeps of
/// pages that it came to before is there.
fn warm_up(leaves: &[Leaf]) -> impl Iterator<Item = Vec<Leaf>> {
    const SIZE: usize = 10_000;
    let size = SIZE.min(leaves.len() / 2).max(1);
    let rounds = leaves.len() as u64 / size as u64;
    (0..rounds).map(move |round| changes(leaves, size, u64::MAX - round))
}

impl Worker {
    fn ours(&mut self, name: &str, size: usize, round: u64) -> Result<Cost, Error> {
        let changes = changes(&self.leaves, size, round);
        let meter = &self.meter;
        match name {
            "bulk" => Ok(rooted(meter.run(|| ours::bulk_root(&self.sorted)))),
            "load" => {
                let (root, cost) = meter.run(|| self.live.load(&self.leaves, 100_000));
                let root = root?;
                for changes in warm_up(&self.leaves) {
                    self.live.root(&changes)?;
                }
                Ok(rooted((root, cost)))
            }
            "root" => {
                let (pending, cost) = meter.run(|| self.live.root(&changes));
                Ok(rooted((pending?.root(), cost)))
            }
            "write_set" => {
                let pending = self.live.root(&changes)?;
                let (set, cost) = meter.run(|| self.live.write_set(&pending));
                drop(set?);
                Ok(rooted((pending.root(), cost)))
            }
            "commit" => {
                let pending = self.live.root(&changes)?;
                let (done, cost) = meter.run(|| self.live.commit(&pending));
                done?;
                Ok(rooted((pending.root(), cost)))
            }
            "single" => {
                let snapshot = self.live.snapshot()?;
                let (root, cost) = meter.run(|| {
                    let root = |change| Ok(self.live.root_on(&snapshot, change)?.root());
                    let roots = changes.chunks(1).map(root);
                    roots.last().ok_or("no change")?
                });
                let root: Result<_, Error> = root;
                Ok(rooted((root?, cost)))
            }
            "prove" => {
                let (proofs, cost) = meter.run(|| self.live.prove(&changes));
                drop(proofs?);
                Ok(cost)
            }
            "verify" => {
                let chosen: Vec<Leaf> = changes.iter().map(|(key, _)| self.leaf(key)).collect();
                let proofs = self.live.prove(&chosen)?;
                let root = self.live.root::<[u8; 32], [u8; 32]>(&[])?.root();
                Ok(meter.run(|| ours::verify(&root, &chosen, &proofs)).1)
            }
            "single_keccak" => Ok(self.keccak(&changes)),
            "binary_load" => self.binary_load(size),
            "fresh" => self.fresh(size, 2),
            "fresh_one_thread" => self.fresh(size, 1),
            name if name.starts_with("blocks_") => self.blocks(name, size, round),
            name if name.starts_with("binary_") => self.binary(name, size, round),
            _ => Err(format!("no case {name:?}").into()),
        }
    }

    /// The block workload. Each tree takes the place of the one before.
    fn blocks(&mut self, name: &str, size: usize, round: u64) -> Result<Cost, Error> {
        let name = name.trim_start_matches("blocks_");
        if let Some(tree) = name.strip_suffix("_load") {
            self.chain = None;
            let entries: Vec<Entry> = self.leaves.iter().map(entry).collect();
            let values = entries.iter().map(|(_, value)| *value);
            let bits: Vec<Entry> = self.leaves.iter().map(|leaf| leaf.0).zip(values).collect();
            let (chain, cost) = match tree {
                "mpt" => loaded(Mpt, Kind::Keys, &self.leaves, &self.leaves, Blocks::Mpt)?,
                "ubt" => loaded(ours::UBT, Kind::Stems, &self.leaves, &entries, Blocks::Ubt)?,
                _ => loaded(ours::PBT, Kind::Bits, &self.leaves, &bits, Blocks::Pbt)?,
            };
            self.chain = Some(chain);
            return Ok(cost);
        }
        let (meter, chain) = (&self.meter, self.chain.as_mut().ok_or("nothing is loaded")?);
        let reads = name.ends_with("_reads");
        let cost = match chain {
            Blocks::Mpt(chain) if reads => chain.reads(),
            Blocks::Ubt(chain) if reads => chain.reads(),
            Blocks::Pbt(chain) if reads => chain.reads(),
            // Sizes follow one another on one tree, and every round moves it on.
            Blocks::Mpt(chain) => chain.round(meter, size, round + 1_000 * size as u64)?,
            Blocks::Ubt(chain) => chain.round(meter, size, round + 1_000 * size as u64)?,
            Blocks::Pbt(chain) => chain.round(meter, size, round + 1_000 * size as u64)?,
        };
        Ok(cost)
    }

    fn binary_load(&mut self, size: usize) -> Result<Cost, Error> {
        self.binary = None;
        let leaves = self.leaves[..size].to_vec();
        let entries: Vec<Entry> = leaves.iter().map(entry).collect();
        // These are inputs, too.
        let meter = Meter::new();
        let mut live = ours::Live::new(ours::UBT);
        let (root, cost) = meter.run(|| live.load(&entries, 65_000));
        for changes in warm_up(&leaves) {
            let changes: Vec<Entry> = changes.iter().map(entry).collect();
            live.root(&changes)?;
        }
        let mut sorted = entries;
        sorted.sort_unstable();
        self.binary = Some(Stems { live, leaves, sorted });
        Ok(rooted((root?, cost)))
    }

    fn binary(&mut self, name: &str, size: usize, round: u64) -> Result<Cost, Error> {
        let Stems { live, leaves, sorted } = self.binary.as_mut().ok_or("nothing is loaded")?;
        let changes: Vec<Entry> = changes(leaves, size, round).iter().map(entry).collect();
        let meter = &self.meter;
        match name {
            "binary_root" => {
                let snapshot = live.snapshot()?;
                let root = |change| live.root_on(&snapshot, change).map(drop);
                let (done, cost) = meter.run(|| changes.chunks(1).try_for_each(root));
                done?;
                Ok(cost)
            }
            // Root and write set after each change; geth's trie moves on, and so does ours,
            // unmeasured.
            "binary_single" | "binary_update" => {
                let each = if name == "binary_single" { 1 } else { size };
                let (done, cost) = meter.run(|| {
                    changes
                        .chunks(each)
                        .try_for_each(|changes| live.write_set(&live.root(changes)?).map(drop))
                });
                done?;
                let pending = live.root(&changes)?;
                live.commit(&pending)?;
                Ok(rooted((pending.root(), cost)))
            }
            "binary_hashes" => {
                let count: usize =
                    changes.iter().map(|(key, _)| path::ubt_hashes(sorted, key)).sum();
                let mut bytes = [0x5a; 64];
                // Each is hashed of the one before it, as on the way up.
                let hash_all = || {
                    for _ in 0..count {
                        let digest = spinney_hash::sha256(black_box(&bytes));
                        bytes[..32].copy_from_slice(&digest);
                    }
                };
                Ok(meter.run(hash_all).1)
            }
            "binary_bare" => self.bare(size, round),
            "binary_prove" => {
                let keys: Vec<_> = changes.iter().map(|(key, _)| *key).collect();
                let (proof, cost) = meter.run(|| live.prove_all(&keys));
                drop(proof?);
                Ok(cost)
            }
            "binary_verify" => {
                let keys: Vec<_> = changes.iter().map(|(key, _)| *key).collect();
                let proof = live.prove_all(&keys)?;
                Ok(meter.run(|| live.verify_all(&proof)).1)
            }
            _ => Err(format!("no case {name:?}").into()),
        }
    }

    /// What updates of a UBT cannot do without whoever finds the way, as long as pages are what
    /// they are: a copy of each page that changes with digests laid over it and a checksum, and the
    /// hashes of all that is above the values.
    fn bare(&self, size: usize, round: u64) -> Result<Cost, Error> {
        /// What changes of a page of the largest tree measured, on average.
        const DIGESTS: usize = 6;
        /// The nodes of a level that are hashed together.
        const HASHES_AT_ONCE: usize = 64;
        let Stems { live, leaves, sorted } = self.binary.as_ref().ok_or("nothing is loaded")?;
        // Others than those that the tree moved on by.
        let changes = changes(leaves, size, u64::MAX / 2 - round).into_iter();
        let changes: Vec<Entry> = changes.map(|leaf| entry(&leaf)).collect();
        let (set, _) = live.write_set(&live.root(&changes)?)?;
        let snapshot = live.snapshot()?;
        let read = |(table, key, _)| snapshot.read(table, key).transpose();
        let rows: Vec<_> = set.rows().filter_map(read).collect::<Result<_, _>>()?;
        drop(set);
        let keys = changes.iter().map(|(key, _)| *key).collect();
        let inputs = vec![[0x5a_u8; 64]; path::ubt_hashes_of_all(sorted, keys)];
        let mut digests = vec![[0_u8; 32]; HASHES_AT_ONCE];
        // Where they are copied to is known to the processor's caches and the system: it was used
        // before.
        let mut copies = vec![0x5a_u8; rows.iter().map(|row| row.len()).sum()];
        let work = || {
            let mut left = &mut copies[..];
            for (number, row) in rows.iter().enumerate() {
                if let Some(later) = rows.get(number + 8) {
                    spinney_hash::prefetch(&later[..1]);
                }
                if let Some(soon) = rows.get(number + 2) {
                    spinney_hash::prefetch(soon);
                }
                let bytes = left.split_off_mut(..row.len()).expect("there is room for all of them");
                bytes.copy_from_slice(row);
                for place in bytes[8..].chunks_mut((row.len() / DIGESTS).max(32)) {
                    place.iter_mut().take(32).for_each(|byte| *byte = number as u8);
                }
                let sum = xxhash_rust::xxh3::xxh3_64(&bytes[8..]);
                bytes[..8].copy_from_slice(&sum.to_le_bytes());
            }
            for inputs in inputs.chunks(HASHES_AT_ONCE) {
                let digests = &mut digests[..inputs.len()];
                spinney_hash::sha256_equal(inputs.as_flattened(), 64, digests);
                black_box(digests);
            }
            black_box(&copies);
        };
        Ok(self.meter.run(work).1)
    }

    /// The root of entries that were never hashed, in an empty tree.
    fn fresh(&self, size: usize, threads: usize) -> Result<Cost, Error> {
        let entries: Vec<Entry> = self.leaves[..size].iter().map(entry).collect();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let root = || Ok::<_, Error>(ours::Live::new(ours::UBT).root(&entries)?.root());
        let (root, cost) = self.meter.run(|| pool.install(|| root().map_err(|e| e.to_string())));
        Ok(rooted((root?, cost)))
    }

    /// Hashes inputs as long as the nodes above each change, one at a time: what a single update
    /// cannot do without.
    fn keccak(&self, changes: &[Leaf]) -> Cost {
        let keys: Vec<[u8; KEY_BYTES]> = self.sorted.iter().map(|leaf| leaf.0).collect();
        let lens: Vec<usize> =
            changes.iter().flat_map(|(key, _)| path::node_lens(&keys, key)).collect();
        let mut bytes = [0x5a; 1024];
        // Each is hashed of the one before it, as on the way up.
        let hash_all = || {
            for &len in &lens {
                let digest = spinney_hash::keccak256(black_box(&bytes[..len]));
                bytes[..32].copy_from_slice(&digest);
            }
        };
        self.meter.run(hash_all).1
    }

    fn alloy(&mut self, name: &str, size: usize, round: u64) -> Result<Cost, Error> {
        match name {
            "bulk" => Ok(rooted(self.meter.run(|| alloy::bulk_root(&self.sorted)))),
            "verify" => {
                // Always the proofs of round 0: to make them takes a whole build.
                let chosen = changes(&self.leaves, size, 0);
                let chosen: Vec<Leaf> = chosen.iter().map(|(key, _)| self.leaf(key)).collect();
                if self.alloy.as_ref().is_none_or(|made| made.0 != size) {
                    let (root, proofs) = alloy::proofs(&self.sorted, &chosen);
                    self.alloy = Some((size, root, proofs));
                }
                let (_, root, proofs) = self.alloy.as_ref().expect("just made");
                Ok(self.meter.run(|| alloy::verify(*root, &chosen, proofs)).1)
            }
            _ => Err(format!("no case {name:?} in round {round}").into()),
        }
    }

    fn leaf(&self, key: &[u8; KEY_BYTES]) -> Leaf {
        let at = self.sorted.binary_search_by_key(key, |leaf| leaf.0);
        self.sorted[at.expect("a key of ours")]
    }
}

fn rooted((root, cost): ([u8; 32], Cost)) -> Cost {
    Cost { root: alloy_primitives::hex::encode(root), ..cost }
}
