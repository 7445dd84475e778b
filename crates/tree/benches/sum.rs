//! How long the Merkle-sum tree takes, for comparing one version of the code with another:
//! `cargo bench -p spinney-tree --bench sum`.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use spinney_tree::sum::{Claim, Leaf, Profile, Sum, path, verify_many};
use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId};

/// Leaves of the live tree.
const LEAVES: u64 = 10_000;

struct Live {
    store: MemoryStore,
    tree: Tree<Sum>,
}

/// A key like a digest.
fn key(n: u64) -> [u8; 32] {
    spinney_hash::blake3(&n.to_be_bytes())
}

fn leaf(n: u64) -> Leaf {
    Leaf { value: key(!n).to_vec(), sum: n + 1 }
}

fn batch(numbers: std::ops::Range<u64>) -> Batch {
    let mut batch = Batch::new();
    numbers.for_each(|n| batch.put(&path(&key(n)), &leaf(n).encode()));
    batch
}

fn live(profile: Profile, leaves: u64) -> Live {
    let store = MemoryStore::new();
    let snapshot = store.snapshot().expect("memory");
    let mut tree = Tree::open(Sum { profile }, TreeId(1), &snapshot, 1 << 30).expect("it is empty");
    let pending = tree.prepare(&snapshot, None, batch(0..leaves)).expect("a sound batch");
    drop(snapshot);
    tree.commit(&store, &pending, None).expect("memory");
    Live { store, tree }
}

/// So many new leaves, into a tree of none and into one of 10,000.
fn insert(criterion: &mut Criterion) {
    for (profile, name) in [(Profile::Compatible, "sum"), (Profile::Bound, "sum_bound")] {
        for (held, counts) in [(0, [1, 10, 10_000]), (LEAVES, [1, 1_000, 10_000])] {
            let live = live(profile, held);
            let snapshot = live.store.snapshot().expect("memory");
            let mut group = criterion.benchmark_group(format!("{name}::insert"));
            for count in counts {
                let added = batch(held..held + count);
                group.sample_size(20).throughput(Throughput::Elements(count));
                group.bench_function(format!("leaves={count}/into={held}"), |bencher| {
                    bencher.iter_batched(
                        || added.clone(),
                        |added| live.tree.prepare(&snapshot, None, added).expect("a sound batch"),
                        BatchSize::LargeInput,
                    );
                });
            }
        }
    }
}

fn proofs(criterion: &mut Criterion) {
    let live = live(Profile::Compatible, LEAVES);
    let (snapshot, root) = (live.store.snapshot().expect("memory"), live.tree.root().node());
    for count in [1, 1_000] {
        let (keys, leaves): (Vec<_>, Vec<_>) = (0..count).map(|n| (key(n), leaf(n))).unzip();
        let mut group = criterion.benchmark_group("sum::prove");
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("keys={count}"), |bencher| {
            bencher.iter(|| black_box(live.tree.prove(&snapshot, None, &keys).expect("sound")));
        });
        group.finish();
        let proofs = live.tree.prove(&snapshot, None, &keys).expect("a sound tree");
        let pairs = keys.iter().zip(&leaves).zip(&proofs);
        let claims: Vec<_> =
            pairs.map(|((key, leaf), proof)| Claim { key, leaf: Some(leaf), proof }).collect();
        let mut group = criterion.benchmark_group("sum::verify");
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("keys={count}"), |bencher| {
            bencher.iter(|| verify_many(Profile::Compatible, root, black_box(&claims)));
        });
        group.finish();
    }
}

criterion_group!(benches, insert, proofs);
criterion_main!(benches);
