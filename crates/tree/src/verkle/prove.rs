//! Making proofs: one walk for all keys, which meets every node that has to be opened with all that
//! it commits to.

use std::collections::{BTreeMap, BTreeSet};

use spinney_ipa::{Crs, Element, Fr, Multiproof, ProverOpening, Transcript};

use spinney_proof::verkle::{
    LEAF_HALVES, LEAF_MARK, LEAF_STEM, Proof, STEM_BYTES, StateDiff, Status, StemDiff, SuffixDiff,
    half, places, stem_scalar, terms,
};

use super::Verkle;
use super::commit::{Commit, CommitKind, element};
use crate::error::{Refused, TreeError};
use crate::prove::in_order;
use crate::rows::ReadRows;
use crate::scheme::{BranchJob, Children, LeafJob, Scheme};
use crate::store::Snapshot;
use crate::tree::{Pending, Tree};
use crate::visit::{NodeVisit, VisitedNode};

type Vector = [Fr; 256];

/// What a walk found.
struct Maker<'a> {
    crs: &'a Crs,
    keys: &'a [&'a [u8]],
    /// All nodes to be opened, by path.
    nodes: BTreeMap<Vec<u8>, Shown>,
    /// Of each key, what its path ends with and where.
    ends: Vec<(Status, usize)>,
    values: Vec<Option<[u8; 32]>>,
    /// Stems that stand where others would, by path.
    other_stems: BTreeMap<Vec<u8>, [u8; 31]>,
}

struct Shown {
    commitment: Element,
    vector: Box<Vector>,
    places: BTreeSet<u8>,
}

impl Tree<Verkle> {
    /// Proves keys, present or absent, in `state` or in the last commit. The second answer has
    /// their values, which the proof goes with; say there what becomes of them
    /// ([`StateDiff::set_new`]), and a verified proof has the root after that.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, verkle::Verkle};
    /// # let (store, verkle) = (MemoryStore::new(), Verkle::shared());
    /// # let tree = Tree::open(verkle.clone(), TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// # let mut batch = Batch::new();
    /// # batch.put(&[1; 32], &[1; 32]);
    /// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// let keys = [[1; 32], [2; 32]];
    /// let (proof, mut diff) = tree.prove(&store.snapshot()?, Some(&pending), &keys)?;
    /// diff.set_new(&[2; 32], [7; 32]);
    /// let verified = proof.verify(verkle.crs(), &pending.root(), &diff)?;
    ///
    /// let mut batch = Batch::new();
    /// batch.put(&[2; 32], &[7; 32]);
    /// let after = tree.prepare(&store.snapshot()?, Some(&pending), batch)?;
    /// assert_eq!(verified.post_root(verkle.crs())?, after.root());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there are no keys, `state` stands on an older commit, or a page is damaged or cannot be
    /// read.
    pub fn prove<N: Snapshot, K: AsRef<[u8]>>(
        &self,
        snapshot: &N,
        state: Option<&Pending<Verkle>>,
        keys: &[K],
    ) -> Result<(Proof, StateDiff), TreeError> {
        self.prove_sorted(snapshot, state, &in_order(keys))
    }

    fn prove_sorted(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<Verkle>>,
        asked: &[&[u8]],
    ) -> Result<(Proof, StateDiff), TreeError> {
        for key in asked {
            let refused = |source| TreeError::Refused { key: key.to_vec(), source };
            self.scheme.admit(key, None).map_err(refused)?;
        }
        if asked.is_empty() {
            let source = Refused::Value("a proof is of one key at least");
            return Err(TreeError::Refused { key: Vec::new(), source });
        }
        let mut maker = Maker {
            crs: self.scheme.crs(),
            keys: asked,
            nodes: BTreeMap::new(),
            ends: vec![(Status::Empty, 1); asked.len()],
            values: vec![None; asked.len()],
            other_stems: BTreeMap::new(),
        };
        maker.root_of_nothing();
        self.visit_paths(snapshot, state, asked, &mut |visited| maker.visit_node(visited))?;
        Ok(maker.finish())
    }
}

impl Maker<'_> {
    /// The root node of an empty tree, which the walk does not meet; of others it is replaced.
    fn root_of_nothing(&mut self) {
        let places = self.keys.iter().map(|key| key[0]);
        self.show(Vec::new(), Element::IDENTITY, Box::new([Fr::ZERO; 256]), places);
    }

    fn show(
        &mut self,
        path: Vec<u8>,
        commitment: Element,
        vector: Box<Vector>,
        places: impl IntoIterator<Item = u8>,
    ) {
        let places = places.into_iter().collect();
        self.nodes.insert(path, Shown { commitment, vector, places });
    }

    fn visit_node(&mut self, visited: NodeVisit<'_, Verkle>) {
        let Some(commit) = visited.commit else { return };
        match visited.node {
            VisitedNode::Leaf(job) if job.owned.is_some() => {
                self.stem(&visited.keys, &job, &commit);
            }
            // A value below a branch, which has shown it.
            VisitedNode::Leaf(job) if job.suffix.start() > STEM_BYTES => {}
            // The only value of its stem.
            VisitedNode::Leaf(job) => {
                let path = self.leaf_path(visited.keys.start);
                let suffix = job.suffix.digits().next().unwrap_or_default();
                let value = Commit::of_value(job.value);
                self.halves(&path, std::iter::once((suffix, value)), &commit, visited.keys);
            }
            VisitedNode::Branch(job, reached) if job.prefix.end() == STEM_BYTES => {
                let path = self.leaf_path(visited.keys.start);
                self.halves(&path, job.children.iter(), &commit, reached);
            }
            VisitedNode::Branch(job, _) => self.internal(&visited.keys, &job, &commit),
        }
    }

    /// An internal node and those of its prefix.
    fn internal(
        &mut self,
        keys: &std::ops::Range<usize>,
        job: &BranchJob<'_, impl Children<Commit>>,
        commit: &Commit,
    ) {
        let (start, fork) = (job.prefix.start(), job.prefix.end());
        let mut path = self.keys[keys.start][..start].to_vec();
        path.extend(job.prefix.digits());
        let mut vector = Box::new([Fr::ZERO; 256]);
        for (digit, child) in job.children.iter() {
            vector[usize::from(digit)] = child.in_parent();
        }
        self.internal_node(keys, &path, element(&commit.own()), vector);
        let mut scalar = None;
        for depth in (start..fork).rev() {
            let below = scalar.unwrap_or_else(|| element(&commit.own()).map_to_field());
            scalar = Some(self.one_child_node(keys, &path[..=depth], below));
        }
    }

    /// A node with the one child that a path ends with; answers what its parent holds.
    fn one_child_node(&mut self, keys: &std::ops::Range<usize>, path: &[u8], scalar: Fr) -> Fr {
        let (digit, above) = path.split_last().expect("it has a child");
        let mut vector = Box::new([Fr::ZERO; 256]);
        vector[usize::from(*digit)] = scalar;
        let commitment = self.crs.commit_sparse_many(&[&[(*digit, scalar)]])[0];
        self.internal_node(keys, above, commitment, vector);
        commitment.map_to_field()
    }

    /// Opens an internal node for the keys that come by; paths without a child there end.
    fn internal_node(
        &mut self,
        keys: &std::ops::Range<usize>,
        path: &[u8],
        commitment: Element,
        vector: Box<Vector>,
    ) {
        let mut places = BTreeSet::new();
        for key in keys.clone().filter(|key| self.keys[*key].starts_with(path)) {
            let digit = self.keys[key][path.len()];
            places.insert(digit);
            if vector[usize::from(digit)].is_zero() {
                self.ends[key] = (Status::Empty, path.len() + 1);
            }
        }
        if !places.is_empty() {
            self.show(path.to_vec(), commitment, vector, places);
        }
    }

    fn stem(&mut self, keys: &std::ops::Range<usize>, job: &LeafJob<'_, Commit>, commit: &Commit) {
        let mut stem = Vec::new();
        job.put_key(&mut stem);
        let Ok(stem) = <[u8; 31]>::try_from(stem) else { return };
        let own = element(&commit.own());
        let start = job.suffix.start();
        if start == 0 {
            // It hangs in the root node, which has no other child.
            self.one_child_node(keys, &stem[..1], own.map_to_field());
        }
        let path = &stem[..start.max(1)];
        let halves = job
            .owned
            .map_or_else(|| Commit::of_value(&[]).halves(), |owned| owned.commit().halves());
        let mut places = BTreeSet::from([LEAF_MARK, LEAF_STEM]);
        let mut other = true;
        for key in keys.clone().filter(|key| self.keys[*key].starts_with(path)) {
            let present = self.keys[key].starts_with(&stem);
            let status = if present { Status::Present } else { Status::Other };
            self.ends[key] = (status, path.len());
            if present {
                other = false;
                places.insert(LEAF_HALVES + half(self.keys[key][31]));
            }
        }
        if keys.clone().all(|key| !self.keys[key].starts_with(path)) {
            return;
        }
        if other {
            self.other_stems.insert(path.to_vec(), stem);
        }
        let mut vector = Box::new([Fr::ZERO; 256]);
        vector[usize::from(LEAF_MARK)] = Fr::ONE;
        vector[usize::from(LEAF_STEM)] = stem_scalar(&stem);
        for (at, half) in vector[usize::from(LEAF_HALVES)..].iter_mut().zip(&halves) {
            *at = half.scalar();
        }
        self.show(path.to_vec(), own, vector, places);
    }

    /// The path of the leaf that a key ends at: its stem was met just before.
    fn leaf_path(&self, key: usize) -> Vec<u8> {
        self.keys[key][..self.ends[key].1].to_vec()
    }

    /// The values of a stem, for the keys in it.
    fn halves(
        &mut self,
        path: &[u8],
        values: impl Iterator<Item = (u8, Commit)>,
        commit: &Commit,
        keys: std::ops::Range<usize>,
    ) {
        let mut vectors = [const { None }; 2];
        for key in keys.clone() {
            let which = usize::from(half(self.keys[key][31]));
            vectors[which].get_or_insert_with(|| (Box::new([Fr::ZERO; 256]), BTreeSet::new()));
        }
        let mut held = BTreeMap::new();
        for (suffix, value) in values {
            let CommitKind::Value(value) = value.0 else { continue };
            held.insert(suffix, value);
            if let Some((vector, _)) = &mut vectors[usize::from(half(suffix))] {
                for (at, term) in places(suffix).into_iter().zip(terms(Some(value))) {
                    vector[usize::from(at)] = Fr::from_limbs(term);
                }
            }
        }
        for key in keys {
            let suffix = self.keys[key][31];
            self.values[key] = held.get(&suffix).copied();
            if let Some((_, opened)) = &mut vectors[usize::from(half(suffix))] {
                opened.extend(places(suffix));
            }
        }
        let points = commit.halves();
        for ((at, shown), point) in (LEAF_HALVES..).zip(vectors).zip(&points) {
            if let Some((vector, places)) = shown {
                self.show([path, &[at]].concat(), element(&point.element), vector, places);
            }
        }
    }

    fn finish(self) -> (Proof, StateDiff) {
        let openings: Vec<ProverOpening<'_>> = self
            .nodes
            .values()
            .flat_map(|node| {
                let open = |&index| ProverOpening {
                    commitment: node.commitment,
                    values: &node.vector,
                    index,
                };
                node.places.iter().map(open)
            })
            .collect();
        let multiproof = Multiproof::prove(self.crs, &mut Transcript::new(b"vt"), &openings)
            .expect("there are keys, and so the root node is opened");
        let commitments: Vec<Element> =
            self.nodes.values().skip(1).map(|node| node.commitment).collect();
        let mut diff = StateDiff::default();
        let mut statuses = Vec::new();
        for ((key, (status, depth)), current) in self.keys.iter().zip(self.ends).zip(self.values) {
            let stem: [u8; 31] = key[..31].try_into().expect("keys have 32 bytes");
            if diff.0.last().is_none_or(|last| last.stem != stem) {
                statuses.push(status.byte(depth));
                diff.0.push(StemDiff { stem, suffixes: Vec::new() });
            }
            let entry = SuffixDiff { suffix: key[31], current, new: None };
            diff.0.last_mut().expect("just pushed").suffixes.push(entry);
        }
        let other_stems = self.other_stems.into_values().collect();
        let commitments = Element::compress_many(&commitments);
        (Proof::new(other_stems, statuses, commitments, multiproof), diff)
    }
}
