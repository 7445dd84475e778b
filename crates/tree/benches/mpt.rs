//! How long the Merkle Patricia trie takes, for comparing one version of the code with another:
//! `cargo bench -p spinney-tree`. What peers take is in bench-compare/.

#[path = "../examples/support/random.rs"]
mod random;

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, WriteSet};

use random::Random;

/// Leaves of the live tree.
const LEAVES: usize = 100_000;

struct Live {
    store: MemoryStore,
    tree: Tree<Mpt>,
    keys: Vec<[u8; 32]>,
    random: Random,
}

impl Live {
    fn new(leaves: usize) -> Self {
        let store = MemoryStore::new();
        let snapshot = store.snapshot().expect("memory");
        let tree = Tree::open(Mpt, TreeId(1), &snapshot, 8 << 30).expect("an empty store");
        drop(snapshot);
        let mut live = Self { store, tree, keys: Vec::new(), random: Random(42) };
        live.keys = (0..leaves).map(|_| live.random.fill()).collect();
        if leaves > 0 {
            let batch = live.batch(0..leaves);
            let snapshot = live.store.snapshot().expect("memory");
            let pending = live.tree.prepare(&snapshot, None, batch).expect("a sound batch");
            drop(snapshot);
            live.tree.commit(&live.store, &pending, None).expect("memory");
        }
        live
    }

    fn batch(&mut self, indices: impl IntoIterator<Item = usize>) -> Batch {
        let mut batch = Batch::new();
        for index in indices {
            batch.put(&self.keys[index], &self.random.fill::<78>());
        }
        batch
    }

    /// A batch of `count` updates of keys spread evenly over the tree, another one each time.
    fn updates(&mut self, count: usize) -> Batch {
        let step = self.keys.len() / count;
        let start = self.random.next() as usize % step;
        self.batch((0..count).map(|i| start + i * step))
    }
}

fn bulk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("mpt::bulk_root");
    group.sample_size(10).throughput(Throughput::Elements(LEAVES as u64));
    let empty = Live::new(0);
    let mut full = Live::new(0);
    full.keys = (0..LEAVES).map(|_| full.random.fill()).collect();
    full.keys.sort_unstable();
    let batch = full.batch(0..LEAVES);
    let snapshot = empty.store.snapshot().expect("memory");
    group.bench_function(format!("leaves={LEAVES}"), |bencher| {
        bencher.iter_batched(
            || batch.clone(),
            |batch| empty.tree.prepare(&snapshot, None, batch).expect("a sound batch").root(),
            BatchSize::PerIteration,
        );
    });
}

fn updates(criterion: &mut Criterion) {
    let mut live = Live::new(LEAVES);
    for count in [1, 1_000, 10_000] {
        let mut group = criterion.benchmark_group("mpt::root");
        group.sample_size(20).throughput(Throughput::Elements(count as u64));
        group.bench_function(format!("keys={count}"), |bencher| {
            let snapshot = live.store.snapshot().expect("memory");
            let batches: Vec<Batch> = (0..16).map(|_| live.updates(count)).collect();
            let mut batches = batches.iter().cycle();
            bencher.iter_batched(
                || batches.next().expect("without end").clone(),
                |batch| live.tree.prepare(&snapshot, None, batch).expect("a sound batch"),
                BatchSize::LargeInput,
            );
        });
        group.finish();
        let mut group = criterion.benchmark_group("mpt::write_set");
        group.sample_size(20).throughput(Throughput::Elements(count as u64));
        let batch = live.updates(count);
        let snapshot = live.store.snapshot().expect("memory");
        let pending = live.tree.prepare(&snapshot, None, batch).expect("a sound batch");
        group.bench_function(format!("keys={count}"), |bencher| {
            bencher.iter_with_large_drop(|| {
                let mut set = WriteSet::new();
                let prepared = live.tree.prepare_commit(&snapshot, &pending, None, &mut set);
                (prepared.expect("on the last commit"), set)
            });
        });
    }
}

fn get(criterion: &mut Criterion) {
    let live = Live::new(LEAVES);
    let snapshot = live.store.snapshot().expect("memory");
    let mut keys = live.keys.iter().step_by(7).cycle();
    criterion.bench_function(&format!("mpt::get/leaves={LEAVES}"), |bencher| {
        bencher.iter(|| {
            let key = keys.next().expect("without end");
            black_box(live.tree.get(&snapshot, None, key).expect("a sound tree"))
        });
    });
}

criterion_group!(benches, bulk, updates, get);
criterion_main!(benches);
