//! Making proofs from a tree: one walk for all keys, whatever state they are proven in.

use std::ops::Range;

use spinney_hash::keccak256;
use spinney_proof::mpt::{
    AccountFields, AccountProof, NodeRef, NodeWriter, Proof, RangeProof, SlotProof,
    decode_slot_value, leaf_value,
};

use super::{LeafRlp, Mpt, MptState};
use crate::error::TreeError;
use crate::prove::in_order;
use crate::rows::ReadRows;
use crate::scheme::{BranchJob, Children, Scheme};
use crate::store::Snapshot;
use crate::tree::{Pending, Tree};
use crate::visit::{NodeVisit, VisitedNode};

/// Digits of an account's path.
const ACCOUNT_DIGITS: usize = 64;

/// A node that a proof lists.
#[derive(Debug)]
struct ListedNode {
    /// The keys on whose path it lies.
    keys: Range<usize>,
    /// The digit at which its own begin.
    depth: usize,
    /// Where it is among all bytes.
    rlp: Range<usize>,
    digest: [u8; 32],
}

/// Where a node's RLP lies among the bytes of all, and its digest.
pub type NodePlace = (Range<usize>, [u8; 32]);

/// Nodes of tries, a parent before its children: see [`Tree::path_nodes`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathNodes {
    rlp: Vec<u8>,
    nodes: Vec<NodePlace>,
}

impl PathNodes {
    /// Their RLP, one behind another, and where each lies there, with its digest.
    pub fn into_parts(self) -> (Vec<u8>, Vec<NodePlace>) {
        (self.rlp, self.nodes)
    }

    /// Joins what several walks found: each node once.
    ///
    /// ```
    /// # use spinney_tree::mpt::PathNodes;
    /// assert_eq!(PathNodes::join([PathNodes::default()]), PathNodes::default());
    /// ```
    pub fn join(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut listed = foldhash::HashSet::default();
        let mut joined = Self::default();
        for part in parts {
            let behind = joined.rlp.len();
            joined.rlp.extend_from_slice(&part.rlp);
            let new = part.nodes.into_iter().filter(|(_, digest)| listed.insert(*digest));
            joined
                .nodes
                .extend(new.map(|(rlp, digest)| (rlp.start + behind..rlp.end + behind, digest)));
        }
        joined
    }

    /// The RLP of each.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.nodes.iter().map(|(rlp, _)| &self.rlp[rlp.clone()])
    }
}

/// What a walk found.
#[derive(Debug)]
struct ListedPaths {
    /// The RLP of all nodes, one behind another.
    rlp: Vec<u8>,
    /// A node before those below it.
    nodes: Vec<ListedNode>,
    /// What the leaf, or the branch, holds under each key.
    values: Vec<Option<Vec<u8>>>,
}

impl ListedPaths {
    fn of<S: LeafRlp>(
        tree: &Tree<S>,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<S>>,
        keys: &[&[u8]],
    ) -> Result<Self, TreeError> {
        let (rlp, nodes) = (Vec::new(), Vec::new());
        let mut walked = Self { rlp, nodes, values: vec![None; keys.len()] };
        let mut nodes = NodeWriter::default();
        tree.visit_paths(snapshot, state, keys, &mut |visited| {
            walked.visit_node::<S>(visited, &mut nodes);
        })?;
        Ok(walked)
    }

    /// The same in the order of proofs. A node comes after those above it: their keys begin no
    /// later.
    fn in_order(mut self) -> Self {
        self.nodes.sort_by_key(|node| (node.keys.start, node.depth));
        self
    }

    fn visit_node<S: LeafRlp>(&mut self, visited: NodeVisit<'_, S>, nodes: &mut NodeWriter) {
        let NodeVisit { keys, found, node, commit } = visited;
        match node {
            VisitedNode::Leaf(job) => {
                nodes.clear();
                S::put_leaf(nodes, &job);
                let rlp = nodes.bytes();
                if let (Some(found), Some(value)) = (found, leaf_value(rlp)) {
                    self.values[found] = Some(value.to_vec());
                }
                self.list::<S>(keys, job.suffix.start(), rlp, commit);
            }
            VisitedNode::Branch(job, reached) => {
                if let (Some(found), Some(value)) = (found, job.value) {
                    self.values[found] = Some(value.to_vec());
                }
                self.branch::<S>((keys, commit), &job, reached, nodes);
            }
        }
    }

    fn branch<S: LeafRlp>(
        &mut self,
        (keys, commit): (Range<usize>, Option<NodeRef>),
        job: &BranchJob<'_, impl Children<NodeRef>>,
        reached: Range<usize>,
        nodes: &mut NodeWriter,
    ) {
        nodes.clear();
        nodes.branch(job.children.iter(), job.value);
        if job.prefix.is_empty() {
            return self.list::<S>(keys, job.prefix.start(), nodes.bytes(), commit);
        }
        let below = NodeRef::of(nodes.bytes());
        let end = nodes.bytes().len();
        nodes.extension(job.prefix, &below);
        let (branch, extension) = nodes.bytes().split_at(end);
        self.list::<S>(keys, job.prefix.start(), extension, commit);
        if !reached.is_empty() {
            self.list::<S>(reached, job.prefix.end(), branch, Some(below));
        }
    }

    /// Lists a node, unless its parent holds it whole. The top of a trie has no parent.
    fn list<S: Scheme>(
        &mut self,
        keys: Range<usize>,
        depth: usize,
        rlp: &[u8],
        commit: Option<NodeRef>,
    ) {
        let is_top = depth == 0 || (S::LAYOUT.owner.is_some() && depth == ACCOUNT_DIGITS);
        if is_top || rlp.len() >= 32 {
            let from = self.rlp.len();
            self.rlp.extend_from_slice(rlp);
            let digest = commit.unwrap_or_else(|| NodeRef::of(rlp)).digest();
            self.nodes.push(ListedNode { keys, depth, rlp: from..self.rlp.len(), digest });
        }
    }

    /// For each key the nodes on its path: first those of the accounts' trie, then those of a
    /// storage.
    fn paths(&self) -> Vec<[Proof; 2]> {
        let mut paths = vec![[const { Vec::new() }; 2]; self.values.len()];
        for node in &self.nodes {
            let trie = usize::from(node.depth >= ACCOUNT_DIGITS);
            let rlp = &self.rlp[node.rlp.clone()];
            paths[node.keys.clone()].iter_mut().for_each(|path| path[trie].push(rlp.to_vec()));
        }
        paths.into_iter().map(|path| path.map(Proof::new)).collect()
    }

    fn into_nodes(self) -> PathNodes {
        let nodes = self.nodes.into_iter().map(|node| (node.rlp, node.digest)).collect();
        PathNodes { rlp: self.rlp, nodes }
    }

    /// All nodes in the order of proofs, each once: subtrees that are equal have the same.
    fn into_proof(self) -> Vec<Vec<u8>> {
        PathNodes::join([self.in_order().into_nodes()]).iter().map(<[u8]>::to_vec).collect()
    }
}

impl Tree<Mpt> {
    /// The nodes that prove `keys` in `state`, or in the last commit, present or absent: the union
    /// of their paths, each node once, a parent before its children. Making it is one walk.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, mpt::Mpt};
    /// # let store = MemoryStore::new();
    /// # let tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// # let mut batch = Batch::new();
    /// # for key in ["cat", "doe", "dog", "emu"] { batch.put(key.as_bytes(), b"x"); }
    /// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// let proof = tree.prove(&store.snapshot()?, Some(&pending), &[b"doe", b"elk"])?;
    /// let verified = proof.verify(&pending.root(), &[b"doe", b"elk"])?;
    /// assert_eq!(verified.get(b"doe")?, Some(&b"x"[..]));
    /// assert_eq!(verified.get(b"elk")?, None);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If `state` stands on an older commit, or a page is damaged or cannot be read.
    pub fn prove<N: Snapshot, K: AsRef<[u8]>>(
        &self,
        snapshot: &N,
        state: Option<&Pending<Mpt>>,
        keys: &[K],
    ) -> Result<Proof, TreeError> {
        let keys = in_order(keys);
        Ok(Proof::new(ListedPaths::of(self, snapshot, state, &keys)?.into_proof()))
    }

    /// The entries with `start <= key <= end`, at most `limit` of them, with a proof that they are
    /// all. No `end` is the end of the trie; where the limit cuts the range off, it ends with its
    /// last entry, and one entry is given at least.
    ///
    /// # Errors
    /// As [`Tree::prove`].
    pub fn prove_range<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<Mpt>>,
        start: &[u8],
        end: Option<&[u8]>,
        limit: usize,
    ) -> Result<RangeProof, TreeError> {
        self.proven_range(snapshot, state, (start, end), limit)
    }

    fn proven_range(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<Mpt>>,
        (start, end): (&[u8], Option<&[u8]>),
        limit: usize,
    ) -> Result<RangeProof, TreeError> {
        // The key just behind the last one.
        let beyond = end.map(|end| [end, &[0]].concat());
        let mut end = end.map(<[u8]>::to_vec);
        let mut entries = Vec::new();
        for entry in self.entries_of(snapshot, state, (start, beyond.as_deref())) {
            let entry = entry?;
            if entries.len() == limit.max(1) {
                end = entries.last().map(|(key, _): &(Vec<u8>, _)| key.clone());
                break;
            }
            entries.push((entry.key, entry.value.to_vec()));
        }
        let start_if_any = Some(start).filter(|start| !start.is_empty());
        let edges: Vec<&[u8]> = start_if_any.into_iter().chain(end.as_deref()).collect();
        let walked = ListedPaths::of(self, snapshot, state, &in_order(&edges))?;
        Ok(RangeProof { start: start.to_vec(), end, entries, nodes: walked.into_proof() })
    }
}

impl Tree<MptState> {
    /// Proofs of accounts, each with some of its slots, in `state` or in the last commit, present
    /// or absent, in the order asked for. Making them is one walk.
    ///
    /// # Errors
    /// If `state` stands on an older commit, or a page is damaged or cannot be read.
    pub fn prove_accounts<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<MptState>>,
        wanted: &[([u8; 20], Vec<[u8; 32]>)],
    ) -> Result<Vec<AccountProof>, TreeError> {
        self.proven_accounts(snapshot, state, wanted)
    }

    fn proven_accounts(
        &self,
        snapshot: &dyn ReadRows,
        state: Option<&Pending<MptState>>,
        wanted: &[([u8; 20], Vec<[u8; 32]>)],
    ) -> Result<Vec<AccountProof>, TreeError> {
        let hashed: Vec<_> = wanted.iter().map(|(address, slots)| paths(address, slots)).collect();
        let keys: Vec<&Vec<u8>> = hashed.iter().flatten().collect();
        let keys = in_order(&keys);
        let walked = ListedPaths::of(self, snapshot, state, &keys)?.in_order();
        let nodes = walked.paths();
        let at = |key: &Vec<u8>| {
            keys.binary_search(&&key[..]).expect("the walk was made for all of them")
        };
        let proofs = wanted.iter().zip(&hashed).map(|((address, slots), hashed)| {
            let account = at(&hashed[0]);
            let leaf = walked.values[account].as_deref().and_then(AccountFields::of_leaf);
            let slot = |(slot, key): (&[u8; 32], &Vec<u8>)| {
                let value = walked.values[at(key)].as_deref().and_then(decode_slot_value);
                let proof = nodes[at(key)][1].clone();
                SlotProof { key: *slot, value: value.unwrap_or_default(), proof }
            };
            AccountProof {
                address: *address,
                fields: leaf.unwrap_or(AccountFields::ABSENT),
                account_proof: nodes[account][0].clone(),
                storage_proof: slots.iter().zip(&hashed[1..]).map(slot).collect(),
            }
        });
        Ok(proofs.collect())
    }

    /// The nodes on the paths of hashed keys in `state`, or in the last commit: of accounts (32
    /// bytes) and of slots (64 bytes: account, slot). A parent comes before its children, and a
    /// node again where an equal one lies elsewhere; what a witness is made of.
    ///
    /// # Errors
    /// As [`Tree::prove_accounts`].
    pub fn path_nodes<N: Snapshot, K: AsRef<[u8]>>(
        &self,
        snapshot: &N,
        state: Option<&Pending<MptState>>,
        keys: &[K],
    ) -> Result<PathNodes, TreeError> {
        let keys = in_order(keys);
        Ok(ListedPaths::of(self, snapshot, state, &keys)?.into_nodes())
    }
}

/// The path of an account, then those of its slots.
fn paths(address: &[u8; 20], slots: &[[u8; 32]]) -> Vec<Vec<u8>> {
    let account = keccak256(address);
    let slots = slots.iter().map(|slot| [account, keccak256(slot)].concat());
    std::iter::once(account.to_vec()).chain(slots).collect()
}
