//! The tree that docs/add-a-tree.md adds: a plain binary tree over SHA-256. Leaves hash a zero, the
//! key and the value; branches a one and their two sides; bits that keys share cost no nodes.

use std::collections::BTreeMap;

use proptest::prelude::*;
use spinney_hash::{Digest, Inputs, sha256, sha256_equal, sha256_many};
use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId};
use spinney_tree::{BranchJob, Children, Engine, Layout, LeafJob, Refused, Scheme, SchemeId};

#[derive(Clone, Copy, Debug)]
struct Plain;

/// What is hashed of a level, end to end, and where each input ends.
#[derive(Debug, Default)]
struct Level {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Scheme for Plain {
    const LAYOUT: Layout = Layout::of_digits(1);

    type Commit = Digest;
    type Root = Digest;
    type Scratch = Level;
    type Differences = ();
    type Weights = ();

    fn id(&self) -> SchemeId {
        SchemeId { tree: 1_000, hash: 0 }
    }

    #[inline(never)]
    fn engine() -> Engine<Self> {
        Engine::here()
    }

    fn admit(&self, key: &[u8], _: Option<&[u8]>) -> Result<bool, Refused> {
        match key.len() {
            32 => Ok(true),
            got => Err(Refused::KeyLength { got, expected: "32 bytes" }),
        }
    }

    fn commit_leaves<'a>(
        &self,
        jobs: impl Iterator<Item = LeafJob<'a, Digest>>,
        level: &mut Level,
        out: &mut Vec<Digest>,
    ) {
        level.bytes.clear();
        level.ends.clear();
        for job in jobs {
            level.bytes.push(0);
            job.put_key(&mut level.bytes);
            level.bytes.extend_from_slice(job.value);
            level.ends.push(level.bytes.len() as u32);
        }
        let first = out.len();
        out.resize(first + level.ends.len(), [0; 32]);
        sha256_many(Inputs::new(&level.bytes, &level.ends), &mut out[first..]);
    }

    fn commit_branches<'a, B: Children<Digest>>(
        &self,
        jobs: impl Iterator<Item = BranchJob<'a, B>>,
        level: &mut Level,
        out: &mut Vec<Digest>,
    ) {
        level.bytes.clear();
        for job in jobs {
            level.bytes.push(1);
            job.children.iter().for_each(|(_, side)| level.bytes.extend_from_slice(&side));
        }
        let first = out.len();
        out.resize(first + level.bytes.len() / 65, [0; 32]);
        sha256_equal(&level.bytes, 65, &mut out[first..]);
    }

    fn root(&self, top: Option<&Digest>) -> Digest {
        top.copied().unwrap_or_default()
    }
}

/// By the book: slow, and plain enough to be right.
fn reference(entries: &[(&[u8; 32], &Vec<u8>)], depth: usize) -> Digest {
    if let [(key, value)] = entries {
        return sha256(&[&[0], &key[..], value].concat());
    }
    let zero = |(key, _): &(&[u8; 32], &Vec<u8>)| key[depth / 8] << (depth % 8) < 0x80;
    let (left, right) = entries.split_at(entries.partition_point(zero));
    match (left, right) {
        ([], []) => [0; 32],
        ([], one) | (one, []) => reference(one, depth + 1),
        _ => {
            let sides = [left, right].map(|side| reference(side, depth + 1));
            sha256(&[&[1], sides.as_flattened()].concat())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Any history of batches, each upon a commit or upon the state before it.
    #[test]
    fn every_state_has_the_root_of_the_reference(
        batches in prop::collection::vec(
            prop::collection::btree_map((0..24_u8, 0..4_u8), prop::option::of(0..90_usize), 1..40),
            1..6,
        ),
        commits in any::<u8>(),
    ) {
        let (store, mut entries, mut pending) = (MemoryStore::new(), BTreeMap::new(), None);
        let open = |store: &MemoryStore| Tree::open(Plain, TreeId(1), &store.snapshot()?, 1 << 20);
        let mut tree = open(&store).unwrap();
        for (number, changes) in batches.iter().enumerate() {
            let mut batch = Batch::new();
            for ((first, last), len) in changes {
                let mut key = [first & 7; 32];
                (key[1], key[31]) = (*first, *last);
                if let Some(len) = len {
                    batch.put(&key, &vec![*last; *len]);
                    entries.insert(key, vec![*last; *len]);
                } else {
                    batch.delete(&key);
                    entries.remove(&key);
                }
            }
            let next = tree.prepare(&store.snapshot().unwrap(), pending.as_ref(), batch).unwrap();
            let expected = reference(&entries.iter().collect::<Vec<_>>(), 0);
            prop_assert_eq!(next.root(), expected);
            pending = Some(next);
            if commits >> number & 1 == 1 {
                tree.commit(&store, &pending.take().unwrap(), None).unwrap();
                tree = open(&store).unwrap();
                prop_assert_eq!(tree.root(), expected);
            }
        }
    }
}
