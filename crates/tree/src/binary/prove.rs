//! Making proofs of keys: one walk for all, and another one where neighbours are needed: beside
//! absent keys, and in a UBT where a fork reads as a stem.

use std::collections::BTreeMap;
use std::ops::Range;

use spinney_hash::Digest;
use spinney_proof::binary::{KeysProof, UBT_KEY_BYTES, Word};

use super::BinaryTree;
use crate::error::TreeError;
use crate::page::corrupt;
use crate::page_key::PageKey;
use crate::prove::in_order;
use crate::read::Entry;
use crate::rows::ReadRows;
use crate::scheme::{BranchJob, Children};
use crate::store::Snapshot;
use crate::tree::{Pending, Tree};
use crate::visit::{NodeVisit, VisitedNode};

/// A node on the path of some keys.
struct BinaryNode {
    keys: Range<usize>,
    depth: usize,
    /// Whether it is a stem: what it holds comes next.
    stem: bool,
    fork: Option<ForkSides>,
}

struct ForkSides {
    prefix: usize,
    /// The prefix's bits, packed, where a key leaves in it.
    bits: Option<Vec<u8>>,
    /// The hashes of the sides where no key goes.
    sides: [Option<Digest>; 2],
}

/// What a walk found.
struct BinaryWalk {
    nodes: Vec<BinaryNode>,
    values: Vec<Option<Word>>,
    /// Leaves that stand where keys would.
    neighbours: BTreeMap<Vec<u8>, Word>,
    /// Stems that were reached, and by which keys.
    stems: Vec<(Vec<u8>, Range<usize>)>,
    /// Sides below which a leaf has to be shown: the keys that go there, and the first key that may
    /// be there.
    told_apart: Vec<(Range<usize>, Vec<u8>)>,
    malformed: bool,
}

impl<S: BinaryTree> Tree<S> {
    /// Proves `keys`, present or absent, in `state` or in the last commit: shared hashes come once.
    /// The answer's entries are in order of keys.
    ///
    /// ```
    /// # use spinney_tree::{Batch, HashFunction, MemoryStore, PageStore, Tree, TreeId, pbt::Pbt};
    /// # let store = MemoryStore::new();
    /// # let pbt = Pbt { hash: HashFunction::Blake3 };
    /// # let tree = Tree::open(pbt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// # let mut batch = Batch::new();
    /// # for key in ["cat", "doe", "dog", "emu"] { batch.put(key.as_bytes(), &[1; 32]); }
    /// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// let proof = tree.prove(&store.snapshot()?, Some(&pending), &[b"doe", b"elk"])?;
    /// let verified = proof.verify(&pbt, &pending.root())?;
    /// assert_eq!(verified.get(b"doe")?, Some(&[1; 32]));
    /// assert_eq!(verified.get(b"elk")?, None);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the tree has no such key, `state` stands on an older commit, or a page is damaged or
    /// cannot be read.
    pub fn prove<N: Snapshot, K: AsRef<[u8]>>(
        &self,
        snapshot: &N,
        state: Option<&Pending<S>>,
        keys: &[K],
    ) -> Result<KeysProof, TreeError> {
        self.prove_sorted(snapshot, state, &in_order(keys))
    }

    fn prove_sorted(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        asked: &[&[u8]],
    ) -> Result<KeysProof, TreeError> {
        for key in asked {
            let refused = |source| TreeError::Refused { key: key.to_vec(), source };
            self.scheme.admit(key, None).map_err(refused)?;
        }
        let mut walked = self.walk(snapshot, state, asked)?;
        let mut neighbours = self.neighbours(snapshot, state, &walked)?;
        let entries = asked.iter().map(|key| key.to_vec()).zip(walked.values.clone()).collect();
        let mut known = 0;
        // A neighbour opens forks of which some, one of 256, read as stems, and so need another
        // one.
        while neighbours.len() > known
            || self.tell_apart(snapshot, state, &walked, &mut neighbours)?
        {
            known = neighbours.len();
            let mut all: Vec<_> = neighbours.keys().map(|key| &key[..]).collect();
            all.extend(asked);
            all.sort_unstable();
            walked = self.walk(snapshot, state, &all)?;
        }
        let mut proof = Vec::new();
        if !walked.nodes.is_empty() {
            put_number(&mut proof, neighbours.len());
            for (key, value) in &neighbours {
                put_number(&mut proof, key.len());
                proof.extend_from_slice(key);
                proof.extend_from_slice(value);
            }
            walked.write(&mut proof);
        }
        Ok(KeysProof { entries, proof })
    }

    fn walk(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        keys: &[&[u8]],
    ) -> Result<BinaryWalk, TreeError> {
        let mut walked = BinaryWalk {
            nodes: Vec::new(),
            values: vec![None; keys.len()],
            neighbours: BTreeMap::new(),
            stems: Vec::new(),
            told_apart: Vec::new(),
            malformed: false,
        };
        self.visit_paths(snapshot, state, keys, &mut |visited| walked.visit_node(keys, visited))?;
        if walked.malformed {
            let page = PageKey::page(self.space, &[], 0);
            return Err(corrupt(&page, "a value below it has not 32 bytes"));
        }
        // Then nodes come as they are written: each before those below it, the left before the
        // right.
        walked.nodes.sort_by_key(|node| (node.keys.start, node.depth, !node.stem));
        Ok(walked)
    }

    /// The leaves that have to be shown beside the keys: those met instead of them, and one of each
    /// stem in which no key that was asked for is present.
    fn neighbours(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        walked: &BinaryWalk,
    ) -> Result<BTreeMap<Vec<u8>, Word>, TreeError> {
        let mut neighbours = walked.neighbours.clone();
        for (stem, keys) in &walked.stems {
            let found = walked.values[keys.clone()].iter().any(Option::is_some);
            let mut next = walked.neighbours.range(stem.clone()..).map(|(key, _)| key);
            if found || next.next().is_some_and(|key| key.starts_with(stem)) {
                continue;
            }
            if let Some(entry) = self.entries_with(snapshot, state, stem).next() {
                let (key, value) = self.neighbour(entry?)?;
                neighbours.insert(key, value);
            }
        }
        Ok(neighbours)
    }

    /// Adds a leaf below each side that has to be told from what a stem holds, and has none that is
    /// shown. Answers whether there was any.
    fn tell_apart(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        walked: &BinaryWalk,
        neighbours: &mut BTreeMap<Vec<u8>, Word>,
    ) -> Result<bool, TreeError> {
        let known = neighbours.len();
        for (keys, first) in &walked.told_apart {
            if walked.values[keys.clone()].iter().any(Option::is_some) {
                continue;
            }
            if let Some(entry) = self.entries_of(snapshot, state, (first, None)).next() {
                let (key, value) = self.neighbour(entry?)?;
                neighbours.insert(key, value);
            }
        }
        Ok(neighbours.len() > known)
    }

    fn neighbour(&self, entry: Entry<S::Commit>) -> Result<(Vec<u8>, Word), TreeError> {
        let page = PageKey::page(self.space, &[], 0);
        let value = entry.value[..].try_into();
        let value = value.map_err(|_| corrupt(&page, "a value below it has not 32 bytes"))?;
        Ok((entry.key, value))
    }
}

impl BinaryWalk {
    fn visit_node<S: BinaryTree>(&mut self, asked: &[&[u8]], visited: NodeVisit<'_, S>) {
        let NodeVisit { keys, found, node, .. } = visited;
        match node {
            VisitedNode::Leaf(job) => {
                let stem = job.owned.is_some();
                let mut key = Vec::new();
                job.put_key(&mut key);
                if stem {
                    self.stems.push((key, keys.clone()));
                } else if let Some(value) = job.value.first_chunk() {
                    match found {
                        Some(found) => self.values[found] = Some(*value),
                        None => drop(self.neighbours.insert(key, *value)),
                    }
                } else {
                    self.malformed = true;
                }
                self.nodes.push(BinaryNode { keys, depth: job.suffix.start(), stem, fork: None });
            }
            VisitedNode::Branch(job, reached) => {
                let (depth, fork) = (job.prefix.start(), job.prefix.end());
                let below: Vec<_> = reached.filter(|&key| 8 * asked[key].len() > fork).collect();
                let bits = (below.len() < keys.len()).then(|| {
                    let mut bits = Vec::new();
                    job.prefix.put_packed(&mut bits);
                    bits
                });
                let mut sides = [None; 2];
                for (digit, commit) in job.children.iter() {
                    let side = |key: &usize| asked[*key][fork / 8] >> (7 - fork % 8) & 1 == digit;
                    if !below.iter().any(side) {
                        sides[usize::from(digit)] = Some(commit);
                    }
                }
                if S::STEMS {
                    self.read_as_stem(asked, &keys, &job, &below);
                }
                let fork = Some(ForkSides { prefix: job.prefix.len(), bits, sides });
                self.nodes.push(BinaryNode { keys, depth, stem: false, fork });
            }
        }
    }

    /// Notes where a fork, or an empty side above it, has to be told from a stem.
    fn read_as_stem(
        &mut self,
        asked: &[&[u8]],
        keys: &Range<usize>,
        job: &BranchJob<'_, impl Children<Digest>>,
        below: &[usize],
    ) {
        let (depth, fork) = (job.prefix.start(), job.prefix.end());
        let mut first = Vec::new();
        job.prefix.put_path(asked[keys.start], depth, None, &mut first);
        first.resize(UBT_KEY_BYTES, 0);
        // An empty left side above the fork.
        if job.prefix.digits().any(|digit| digit == 1) {
            self.told_apart.push((range_of(below), first.clone()));
        }
        let mut left = job.children.iter().filter(|(digit, _)| *digit == 0);
        if left.any(|(_, commit)| commit.ends_with(&[0])) {
            let bit = 0x80 >> (fork % 8);
            let right = below.partition_point(|&key| asked[key][fork / 8] & bit == 0);
            if let Some(byte) = first.get_mut(fork / 8) {
                *byte |= bit;
            }
            self.told_apart.push((range_of(&below[right..]), first));
        }
    }

    /// Writes the nodes in order, the hashes of sides between them.
    fn write(&self, out: &mut Vec<u8>) {
        let mut sides: Vec<Option<&Digest>> = vec![None];
        let mut nodes = self.nodes.iter();
        while let Some(side) = sides.pop() {
            if let Some(hash) = side {
                out.extend_from_slice(hash);
                continue;
            }
            let node = nodes.next().expect("a node for every side where keys go");
            let Some(fork) = &node.fork else {
                out.push(2);
                if node.stem {
                    sides.push(None);
                }
                continue;
            };
            out.push(u8::from(fork.bits.is_some()));
            put_number(out, fork.prefix);
            out.extend_from_slice(fork.bits.as_deref().unwrap_or_default());
            let [left, right] = &fork.sides;
            sides.extend([right.as_ref(), left.as_ref()]);
        }
        debug_assert!(nodes.next().is_none());
    }
}

/// Keys that stand together.
fn range_of(keys: &[usize]) -> Range<usize> {
    keys.first().map_or(0..0, |first| *first..first + keys.len())
}

fn put_number(out: &mut Vec<u8>, mut number: usize) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
