//! Some entries of a tree, read under its root.

use spinney_tree::mpt::{Mpt, MptState};
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::{Profile, Sum};
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{HashFunction, RootRecord, Scheme, Tree, TreeError, TreeId};

use crate::archive::AtBlock;

/// So many ways are gone into each tree; into a trie of accounts as many more, to their slots.
const WAYS: u8 = 2;
/// Memory for the pages of a tree: those on a few ways.
const TREE_CACHE_BYTES: usize = 1 << 20;

/// Reads some entries of a tree, which `seed` chooses, and checks all nodes on the ways to them
/// against the root of its record. Answers how many entries these were: fewer in a tree that has
/// no more, none in an empty one.
pub(crate) fn read_some(
    view: &AtBlock,
    (id, record): (TreeId, &RootRecord),
    seed: &[u8; 32],
) -> Result<u64, TreeError> {
    let sample = Sample { view, id, seed };
    let is = |it| record.scheme == it;
    if is(MptState.id()) {
        return sample.read(MptState, true);
    }
    if is(Mpt.id()) {
        return sample.read(Mpt, false);
    }
    for hash in [HashFunction::Keccak256, HashFunction::Sha256, HashFunction::Blake3] {
        if is((Ubt { hash }).id()) {
            return sample.read(Ubt { hash }, false);
        }
        if is((Pbt { hash }).id()) {
            return sample.read(Pbt { hash }, false);
        }
    }
    for profile in [Profile::Compatible, Profile::Bound] {
        if is((Sum { profile }).id()) {
            return sample.read(Sum { profile }, false);
        }
    }
    // The last one: a tree of any other scheme cannot be opened as this one, and says so.
    sample.read(Verkle::shared(), false)
}

struct Sample<'a> {
    view: &'a AtBlock,
    id: TreeId,
    seed: &'a [u8; 32],
}

impl Sample<'_> {
    fn read<S: Scheme>(&self, scheme: S, has_slots: bool) -> Result<u64, TreeError> {
        let mut tree = Tree::open(scheme, self.id, self.view, TREE_CACHE_BYTES)?;
        tree.verify_reads(true);
        let first = |from: &[u8]| {
            let entry = tree.entries(self.view, None, from).next().transpose()?;
            Ok::<_, TreeError>(entry.map(|entry| entry.key))
        };
        let mut entries = 0;
        for way in 0..WAYS {
            let from = self.place(way);
            let found = match first(&from)? {
                Some(key) => Some(key),
                // Behind the last key: the first one is the next.
                None => first(&[])?,
            };
            let Some(key) = found else { break };
            entries += 1;
            // The slots of an account lie behind it, where a place among all keys leads to few.
            if has_slots && first(&[&key[..], &from].concat())?.is_some() {
                entries += 1;
            }
        }
        Ok(entries)
    }

    /// A place among the keys, another one in each tree and for each way.
    fn place(&self, way: u8) -> [u8; 32] {
        let id = self.id.0.to_be_bytes();
        HashFunction::Blake3.hash(&[self.seed, &id[..], &[way]].concat())
    }
}
