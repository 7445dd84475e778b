//! Proofs of many keys of the binary trees: bytes, and time to make and to verify them.
//!
//! `cargo run --release -p spinney-tree -F measure --example proofs -- [ENTRIES] [KEYS]`, 1,000,000
//! and 1,000 if not said: random keys of 32 bytes, in memory, all pages at hand.

use std::time::Instant;

use spinney_tree::binary::proof::BinaryTree;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{Batch, HashFunction, MemoryStore, PageStore, Tree, TreeId};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>());
    let entries = args.next().transpose()?.unwrap_or(1_000_000);
    let keys = args.next().transpose()?.unwrap_or(1_000);
    measure(Ubt { hash: HashFunction::Sha256 }, entries, keys)?;
    measure(Pbt { hash: HashFunction::Blake3 }, entries, keys)
}

/// A key like a digest.
fn key(n: u64) -> [u8; 32] {
    spinney_hash::blake3(&n.to_be_bytes())
}

fn measure<S: BinaryTree + Clone>(
    scheme: S,
    entries: u64,
    keys: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme.clone(), TreeId(1), &store.snapshot()?, 8 << 30)?;
    for from in (0..entries).step_by(100_000) {
        let mut batch = Batch::new();
        for n in from..entries.min(from + 100_000) {
            batch.put(&key(n), &[7; 32]);
        }
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        tree.commit(&store, &pending, None)?;
    }
    let asked: Vec<_> = (0..keys).map(|n| key(n * (entries / keys).max(1))).collect();
    let snapshot = store.snapshot()?;
    let (mut make, mut verify) = (f64::MAX, f64::MAX);
    let mut bytes = 0;
    for _ in 0..5 {
        let start = Instant::now();
        let proof = tree.prove(&snapshot, None, &asked)?;
        make = make.min(start.elapsed().as_secs_f64());
        let start = Instant::now();
        proof.verify(&scheme, &tree.root())?;
        verify = verify.min(start.elapsed().as_secs_f64());
        bytes = proof.proof.len();
    }
    println!(
        "{}: {keys} of {entries} keys: {bytes} bytes, made in {:.2} ms, verified in {:.2} ms",
        scheme.id(),
        make * 1e3,
        verify * 1e3
    );
    Ok(())
}
