//! How many levels a Merkle-sum tree hashes, counted: in a program of its own, since the count is
//! the process's.

use spinney_tree::sum::{Leaf, Sum, levels_climbed, path};
use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeError, TreeId};

struct Subject {
    store: MemoryStore,
    tree: Tree<Sum>,
}

impl Subject {
    fn new() -> Self {
        let store = MemoryStore::new();
        let snapshot = store.snapshot().unwrap();
        let tree = Tree::open(Sum::default(), TreeId(1), &snapshot, 1 << 30).unwrap();
        drop(snapshot);
        Self { store, tree }
    }

    fn reopen(&mut self) {
        let snapshot = self.store.snapshot().unwrap();
        self.tree = Tree::open(Sum::default(), TreeId(1), &snapshot, 1 << 30).unwrap();
    }

    /// Commits leaves, or deletions where there is none; answers how many levels were hashed for
    /// it.
    fn commit(&mut self, leaves: &[([u8; 32], Option<Leaf>)]) -> u64 {
        let mut batch = Batch::new();
        for (key, leaf) in leaves {
            match leaf {
                Some(leaf) => batch.put(&path(key), &leaf.encode()),
                None => batch.delete(&path(key)),
            }
        }
        let before = levels_climbed();
        let snapshot = self.store.snapshot().unwrap();
        let pending = self.tree.prepare(&snapshot, None, batch).unwrap();
        drop(snapshot);
        self.tree.commit(&self.store, &pending, None).unwrap();
        levels_climbed() - before
    }
}

fn leaf(sum: u64) -> Option<Leaf> {
    Some(Leaf { value: vec![7; 32], sum })
}

/// A key that parts from that of zeros at a depth.
fn parts_at(depth: usize) -> [u8; 32] {
    let mut key = [0; 32];
    key[depth / 8] |= 1 << (depth % 8);
    key
}

/// A key like a digest.
fn key(n: u64) -> [u8; 32] {
    spinney_hash::blake3(&n.to_be_bytes())
}

#[test]
fn only_levels_that_are_missing_are_hashed() {
    let mut subject = Subject::new();
    let zeros = [0; 32];
    assert_eq!(subject.commit(&[(zeros, leaf(1))]), 256, "a lone leaf");
    // From depth 32 down to 201 there is no hash: both leaves from the bottom, the fork up to the
    // root.
    assert_eq!(subject.commit(&[(parts_at(200), leaf(2))]), 55 + 55 + 200);
    subject.reopen();
    // The other one rises from where it hung.
    assert_eq!(subject.commit(&[(parts_at(200), None)]), 201);
    // It sinks from depth 32; the new one climbs all the way; the fork is below three bits.
    assert_eq!(subject.commit(&[(parts_at(3), leaf(3))]), 28 + 252 + 3);
    // A neighbour's value costs the neighbour nothing.
    subject.reopen();
    assert_eq!(subject.commit(&[(parts_at(3), leaf(4))]), 252 + 3);
    assert_eq!(subject.commit(&[(parts_at(3), leaf(4))]), 0, "the same leaf again");
    assert_eq!(subject.commit(&[(parts_at(9), None)]), 0, "no such leaf");
    // Nothing is hashed on load, nor by reading.
    let before = levels_climbed();
    subject.reopen();
    let snapshot = subject.store.snapshot().unwrap();
    assert_eq!(subject.tree.entries(&snapshot, None, &[]).count(), 2);
    assert!(subject.tree.get(&snapshot, None, &path(&zeros)).unwrap().is_some());
    subject.tree.prove(&snapshot, None, &[zeros]).unwrap();
    assert_eq!(levels_climbed(), before);
    drop(snapshot);

    overflow_hashes_nothing();
}

/// 10,000 leaves into 10,000, half of them in place of others, whose sums do not fit.
fn overflow_hashes_nothing() {
    let mut subject = Subject::new();
    let numbered = |n: u64| (key(n), leaf(n));
    let levels = subject.commit(&(0..10_000).map(numbered).collect::<Vec<_>>());
    assert!((2_400_000..2_450_000).contains(&levels), "{levels} levels for 10,000 leaves");
    let root = subject.tree.root();
    let snapshot = subject.store.snapshot().unwrap();
    let before = levels_climbed();
    for (sum, alone) in [(u64::MAX / 10_000, false), (u64::MAX / 9_000, true)] {
        let mut batch = Batch::new();
        for n in 5_000..15_000 {
            batch.put(&path(&key(n)), &leaf(sum).unwrap().encode());
        }
        let refused = subject.tree.prepare(&snapshot, None, batch).unwrap_err();
        assert!(
            matches!(refused, TreeError::Overweight { batch, .. } if batch == alone),
            "{refused}"
        );
    }
    assert_eq!(levels_climbed(), before);
    assert_eq!(subject.tree.root(), root);
}
