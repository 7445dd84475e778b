//! Proofs out of a tree: one walk for all keys.
//!
//! What stands beside a path is in the pages as it is. Only where a key leaves the path of another
//! one, and so proves that it has no leaf, what it leaves is to be taken as far up as that: a leaf
//! from its checkpoint, a branch from its fork, all of them on full lanes.

use super::{DEPTH, Leaf, Proof, Sum, SumNode, SumScratch, key_of, path, split_value};
use crate::error::TreeError;
use crate::rows::ReadRows;
use crate::scheme::Children;
use crate::store::Snapshot;
use crate::tree::{Pending, Tree};
use crate::visit::{NodeVisit, VisitedNode};

/// A key's leaf, if it has one, and the proof of that.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proven {
    /// The leaf; `None` is proven to be absent.
    pub leaf: Option<Leaf>,
    /// The siblings on the key's path.
    pub proof: Proof,
}

/// A sibling on the path of a key.
enum PathSibling {
    At(SumNode),
    /// Of a leaf, by its number.
    Leaf(u32),
    /// Of a branch, likewise.
    Branch(u32),
}

impl Tree<Sum> {
    /// A proof for each key, in the order given: that its leaf is in `state`, or in the last
    /// commit, or that it has none.
    ///
    /// ```
    /// use spinney_tree::sum::{Leaf, Sum, path};
    /// use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId};
    ///
    /// let store = MemoryStore::new();
    /// let tree = Tree::open(Sum::default(), TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// let leaf = Leaf { value: b"five".into(), sum: 5 };
    /// let mut batch = Batch::new();
    /// batch.put(&path(&[1; 32]), &leaf.encode());
    /// let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// let proofs = tree.prove(&store.snapshot()?, Some(&pending), &[[1; 32], [2; 32]])?;
    /// let root = pending.root().node();
    /// proofs[0].verify_inclusion(Default::default(), root, &[1; 32], &leaf)?;
    /// proofs[1].verify_exclusion(Default::default(), root, &[2; 32])?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If `state` stands on an older commit, or a page is damaged or cannot be read.
    pub fn prove<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<Sum>>,
        keys: &[[u8; 32]],
    ) -> Result<Vec<Proof>, TreeError> {
        let proven = self.proven(snapshot, state, keys)?;
        Ok(proven.into_iter().map(|proven| proven.proof).collect())
    }

    /// The leaf of each key with its proof, in the order given, in one walk.
    ///
    /// # Errors
    /// As [`Tree::prove`].
    pub fn prove_leaves<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<Sum>>,
        keys: &[[u8; 32]],
    ) -> Result<Vec<Proven>, TreeError> {
        self.proven(snapshot, state, keys)
    }

    fn proven(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<Sum>>,
        keys: &[[u8; 32]],
    ) -> Result<Vec<Proven>, TreeError> {
        let mut paths: Vec<_> = keys.iter().map(path).collect();
        paths.sort_unstable();
        paths.dedup();
        let asked: Vec<&[u8]> = paths.iter().map(|path| &path[..]).collect();
        let mut found = Found { sum: self.scheme, siblings: Vec::new(), ..Found::default() };
        found.siblings.resize_with(asked.len(), Vec::new);
        found.values.resize_with(asked.len(), || None);
        self.visit_paths(snapshot, state, &asked, &mut |visited| {
            found.visit_node(&asked, visited);
        })?;
        let (leaves, branches) = found.rise();
        let node = |sibling: &PathSibling| match *sibling {
            PathSibling::At(node) => node,
            PathSibling::Leaf(rise) => leaves[rise as usize],
            PathSibling::Branch(rise) => branches[rise as usize],
        };
        let proof = |key: &[u8; 32]| {
            let index = paths.binary_search(&path(key)).expect("it is among those asked for");
            let siblings = found.siblings[index].iter();
            let proof = Proof::from_found(siblings.map(|(depth, sibling)| (*depth, node(sibling))));
            Proven { leaf: found.values[index].clone(), proof }
        };
        Ok(keys.iter().map(proof).collect())
    }
}

/// What a walk finds.
#[derive(Default)]
struct Found {
    sum: Sum,
    /// The siblings of each key with their depths, from the top down.
    siblings: Vec<Vec<(u16, PathSibling)>>,
    /// The leaf of each key.
    values: Vec<Option<Leaf>>,
    leaves: SumScratch,
    branches: SumScratch,
}

impl Found {
    fn visit_node(&mut self, asked: &[&[u8]], visited: NodeVisit<'_, Sum>) {
        let profile = self.sum.profile;
        // A damaged page may hold any depth.
        let depth = |digits: usize| digits.min(DEPTH) as u16;
        match visited.node {
            VisitedNode::Leaf(job) => {
                for index in visited.keys {
                    let same = job.suffix.common(asked[index]);
                    if same == job.suffix.len() {
                        let (sum, value) = split_value(job.value);
                        self.values[index] = Some(Leaf { value: value.to_vec(), sum });
                        continue;
                    }
                    let at = depth(job.suffix.start() + same + 1);
                    let mut key = Vec::with_capacity(DEPTH / 8);
                    job.put_key(&mut key);
                    let rise =
                        self.leaves.take_up(profile, key_of(&key), job.value, job.previous, at);
                    self.siblings[index].push((at, PathSibling::Leaf(rise)));
                }
            }
            VisitedNode::Branch(job, reached) => {
                let (start, fork) = (job.prefix.start(), job.prefix.end());
                for index in visited.keys {
                    let key = asked[index];
                    if !reached.contains(&index) {
                        let at = depth(start + job.prefix.common(key) + 1);
                        let rise = self.branches.branch(profile, &job, at);
                        self.siblings[index].push((at, PathSibling::Branch(rise)));
                        continue;
                    }
                    let digit = key[fork / 8] >> (7 - fork % 8) & 1;
                    let other = job.children.iter().find(|(other, _)| *other != digit);
                    if let Some((_, commit)) = other {
                        self.siblings[index].push((depth(fork + 1), PathSibling::At(commit.node)));
                    }
                }
            }
        }
    }

    /// Takes up what is to rise: the nodes of leaves and of branches.
    fn rise(&mut self) -> (Vec<SumNode>, Vec<SumNode>) {
        let profile = self.sum.profile;
        self.leaves.hash_fresh();
        self.leaves.climb_to_goals(profile);
        (self.leaves.leaf_nodes().collect(), self.branches.branches(profile).collect())
    }
}
