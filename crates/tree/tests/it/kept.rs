//! Pages of a UBT as they were written before they left out what a value commits to that is alone in its stem.

use proptest::prelude::*;
use spinney_tree::ubt::Ubt;
use spinney_tree::{
    BranchJob, MemoryStore, Owner, PageStore as _, Refused, RootRecord, Run, Scheme, SchemeId,
    Snapshot as _, Table, TerminalJob, Tree,
};

use crate::binary::{UBT, ubt_key, ubt_root, word};
use crate::model::{Bench, ID, Op, apply, batch};

/// A UBT whose pages keep what every owned value commits to, and are cut later.
#[derive(Clone, Copy, Debug)]
struct Keeping(Ubt);

type Digest = [u8; 32];

impl Keeping {
    fn rise(&self, mut digest: Digest, run: Run<'_>) -> Digest {
        for side in run.digits().rev() {
            let mut sides = [[0; 32]; 2];
            sides[usize::from(side)] = digest;
            digest = self.0.hash.hash(sides.as_flattened());
        }
        digest
    }
}

impl Scheme for Keeping {
    const DIGIT_BITS: u8 = Ubt::DIGIT_BITS;
    const OWNER: Option<Owner> = Ubt::OWNER;
    const PREFIX_KEYS: bool = Ubt::PREFIX_KEYS;
    const COMMIT_BYTES: Option<usize> = Ubt::COMMIT_BYTES;

    type Commit = Digest;
    type Root = Digest;
    type Scratch = ();

    fn id(&self) -> SchemeId {
        self.0.id()
    }

    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        self.0.admit(key, value)
    }

    fn commit_terminals<'a>(
        &self,
        jobs: impl Iterator<Item = TerminalJob<'a, Digest>>,
        _: &mut (),
        out: &mut Vec<Digest>,
    ) {
        out.extend(jobs.map(|job| match job.owned {
            Some(owned) => {
                let mut stem = Vec::new();
                job.put_key(&mut stem);
                stem.push(0);
                stem.extend(owned.commit());
                self.0.hash.hash(&stem)
            }
            None => self.rise(self.0.hash.hash(job.payload), job.suffix),
        }));
    }

    fn commit_branches<'a>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, Self>>,
        _: &mut (),
        out: &mut Vec<Digest>,
    ) {
        out.extend(jobs.map(|job| {
            let sides = job.children.pair().expect("a branch of a binary tree has two children");
            self.rise(self.0.hash.hash(sides.as_flattened()), job.skip)
        }));
    }

    fn root(&self, top: Option<&Digest>) -> Digest {
        self.0.root(top)
    }

    fn decode_root(&self, bytes: &[u8]) -> Option<Digest> {
        self.0.decode_root(bytes)
    }

    fn encode_commit(&self, commit: &Digest, out: &mut Vec<u8>) {
        self.0.encode_commit(commit, out);
    }

    fn decode_commit(&self, bytes: &[u8]) -> Option<(Digest, usize)> {
        self.0.decode_commit(bytes)
    }
}

/// Commits to some operations, in a tree of its own over the store.
fn commit<S: Scheme>(scheme: S, store: &MemoryStore, ops: &[Op]) {
    let snapshot = store.snapshot().unwrap();
    let mut tree = Tree::open(scheme, ID, &snapshot, 1 << 20).unwrap();
    let pending = tree.prepare(&snapshot, None, batch(ops)).unwrap();
    tree.commit(store, &pending, None).unwrap();
}

/// The version of the tree's pages, as its record has it.
fn version(store: &MemoryStore) -> u16 {
    let snapshot = store.snapshot().unwrap();
    let record = snapshot.read(Table::Roots, &RootRecord::key(ID)).unwrap().unwrap();
    RootRecord::decode(ID, record).unwrap().version
}

/// How many bytes all pages take.
fn bytes(store: &MemoryStore) -> usize {
    let tree = Tree::open(UBT, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    crate::model::pages(&tree, &store.snapshot().unwrap()).values().map(Vec::len).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// They are read, edited, changed and proven from as those that are written now, beside these.
    #[test]
    fn pages_that_keep_what_owned_values_commit_to_are_read(
        entries in prop::collection::btree_map(ubt_key(), word(), 1..80),
        rounds in prop::collection::vec(
            prop::collection::btree_map(ubt_key(), prop::option::of(word()), 1..12),
            1..6,
        ),
        small in any::<bool>(),
    ) {
        let cache = if small { 1 } else { 1 << 20 };
        let mut bench = Bench::new(UBT, cache);
        let puts: Vec<_> =
            entries.iter().map(|(key, value)| Op::Put(key.clone(), value.clone())).collect();
        commit(Keeping(UBT), &bench.store, &puts);
        bench.reopen(cache);
        bench.entries = entries.clone();
        prop_assert_eq!(bench.tree.root(), ubt_root(UBT.hash)(&bench.entries));
        bench.check_entries(None, &bench.entries);
        for (round, changes) in rounds.into_iter().enumerate() {
            // Values in the places of others go by the outlines of pages, once these are in the cache.
            let edits = entries.keys().skip(round).step_by(3);
            let edits: Vec<_> = edits
                .filter(|key| bench.entries.contains_key(*key))
                .map(|key| Op::Put(key.clone(), vec![round as u8 + 1; 32]))
                .collect();
            let others = changes.into_iter().map(|(key, value)| match value {
                Some(value) => Op::Put(key, value),
                None => Op::Delete(key),
            });
            for ops in [edits, others.collect()] {
                let pending = bench.prepare(None, &ops);
                apply(&ops, &mut bench.entries);
                bench.tree.commit(&bench.store, &pending, None).unwrap();
                let root = ubt_root(UBT.hash)(&bench.entries);
                prop_assert_eq!(bench.tree.root(), root);
                bench.check_entries(None, &bench.entries);
                let keys: Vec<_> = entries.keys().collect();
                let proof = bench.tree.prove(&bench.snapshot(), None, &keys).unwrap();
                let proven = proof.verify(&UBT, &root).unwrap();
                for key in keys {
                    let value = proven.get(key).unwrap();
                    prop_assert_eq!(
                        value.map(|value| &value[..]),
                        bench.entries.get(key).map(|value| &value[..])
                    );
                }
            }
        }
    }
}

#[test]
fn pages_leave_out_what_a_value_commits_to_that_is_alone_in_its_stem() {
    let puts: Vec<_> = (0..1_000u32)
        .map(|n| Op::Put(spinney_hash::keccak256(&n.to_be_bytes()).to_vec(), vec![1; 32]))
        .collect();
    let (kept, now) = (MemoryStore::new(), MemoryStore::new());
    commit(Keeping(UBT), &kept, &puts);
    commit(UBT, &now, &puts);
    let (before, after) = (bytes(&kept), bytes(&now));
    assert!((30_000..34_000).contains(&(before - after)), "{before} and {after} bytes");
    // Larger pages than are made now are cut again where something comes or goes.
    let changes: Vec<_> = puts
        .iter()
        .step_by(7)
        .map(|op| match op {
            Op::Put(key, _) => Op::Put([&key[..31], &[9]].concat(), vec![2; 32]),
            other => other.clone(),
        })
        .collect();
    assert_eq!([version(&kept), version(&now)], [1, 2]);
    [&kept, &now].iter().for_each(|store| commit(UBT, store, &changes));
    let root =
        |store: &MemoryStore| Tree::open(UBT, ID, &store.snapshot().unwrap(), 1).unwrap().root();
    assert_eq!(root(&kept), root(&now));
    assert_eq!([version(&kept), version(&now)], [2, 2]);
}
