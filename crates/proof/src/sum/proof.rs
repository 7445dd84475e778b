//! Proofs: made, encoded, decoded, verified. No store and no engine is needed.
//!
//! A proof is the siblings on the path of a key, and says nothing of the key, its leaf or the root:
//! those are given to the verifier. The same siblings prove that a leaf is there, or, with the
//! empty leaf, that none is.
//!
//! ```text
//! full         256 nodes: hash (32) | sum (8, BE), the sibling at depth 256 first
//! compressed   number of nodes (2, BE) | as many nodes | bitmap (32): bit i, the lowest bit of a
//!              byte first, says that sibling i is that of an empty subtree and left out
//! ```
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloc::vec::Vec;
use core::fmt;

use super::{DEPTH, Leaf, Profile, SumNode, SumOverflow, goes_right};
use crate::path::{Step, StepKind};

const NODE_BYTES: usize = 32 + 8;
const COUNT_BYTES: usize = 2;
const BITMAP_BYTES: usize = DEPTH / 8;

/// Siblings on the path of a key, of which nothing is known until they are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// Bit `i` says that sibling `i` is empty. Sibling 0 is at depth 256, the last one at depth 1.
    empty: [u8; BITMAP_BYTES],
    /// The others, in order.
    nodes: Vec<SumNode>,
}

/// What a verified proof says: this key has this leaf in a tree of this root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Included<'a> {
    root: SumNode,
    key: &'a [u8; 32],
    leaf: &'a Leaf,
}

impl Included<'_> {
    /// The root that was verified against.
    pub fn root(&self) -> SumNode {
        self.root
    }

    /// The key.
    pub fn key(&self) -> &[u8; 32] {
        self.key
    }

    /// Its leaf.
    pub fn leaf(&self) -> &Leaf {
        self.leaf
    }
}

/// What a verified proof says: this key has no leaf in a tree of this root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Excluded<'a> {
    root: SumNode,
    key: &'a [u8; 32],
}

impl Excluded<'_> {
    /// The root that was verified against.
    pub fn root(&self) -> SumNode {
        self.root
    }

    /// The key.
    pub fn key(&self) -> &[u8; 32] {
        self.key
    }
}

/// Why bytes are no proof, or a proof does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProofError {
    /// The bytes end early, or go on after the end.
    Length {
        /// How many nodes it says that it has; 256 of a full one.
        nodes: usize,
        /// Bytes for so many nodes.
        expected: usize,
        /// Bytes given.
        found: usize,
    },
    /// There are not even the bytes that say how long the proof is.
    Short {
        /// Bytes given.
        found: usize,
    },
    /// The number of nodes is not that of the siblings that are not empty.
    Count {
        /// How many nodes it has.
        nodes: usize,
        /// How many zeros are in its bitmap.
        siblings: usize,
    },
    /// The sums overflow on the way up.
    Overflow {
        /// The depth of the node whose sum it is.
        depth: usize,
    },
    /// The proof leads to another root.
    Root,
    /// The leaf to include is the empty one.
    EmptyLeaf,
}

impl fmt::Display for ProofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { nodes, expected, found } => write!(
                f,
                "a proof of {nodes} nodes is {expected} bytes long, and this one has {found}"
            ),
            Self::Short { found } => {
                write!(f, "{found} bytes are too few for a compressed proof, which has 34 or more")
            }
            Self::Count { nodes, siblings } => write!(
                f,
                "it has {nodes} nodes, and {siblings} siblings that are not empty by its bitmap"
            ),
            Self::Overflow { depth } => {
                write!(f, "the sums of its siblings overflow 64 bits at depth {depth}")
            }
            Self::Root => {
                f.write_str("it does not lead to that root: a wrong key, leaf, sibling or root")
            }
            Self::EmptyLeaf => f.write_str(
                "an empty leaf cannot be included; whether the key has none is another question",
            ),
        }
    }
}

impl core::error::Error for ProofError {}

impl Proof {
    /// The proof with these siblings, the one at depth 256 first; `None` if they are not 256.
    pub fn from_siblings(profile: Profile, siblings: Vec<SumNode>) -> Option<Self> {
        if siblings.len() != DEPTH {
            return None;
        }
        let mut proof = Self { empty: [0; BITMAP_BYTES], nodes: Vec::new() };
        let empty = profile.empty();
        for (at, node) in siblings.into_iter().enumerate() {
            if node.sum == 0 && empty.get(depth_of(at)) == Some(&node.hash) {
                proof.set_empty(at, true);
            } else {
                proof.nodes.push(node);
            }
        }
        Some(proof)
    }

    /// The proof with these siblings that are not empty: their depths and nodes, from the top down.
    pub fn from_found(siblings: impl DoubleEndedIterator<Item = (u16, SumNode)>) -> Self {
        let mut proof = Self { empty: [0xff; BITMAP_BYTES], nodes: Vec::new() };
        for (depth, node) in siblings.rev() {
            proof.set_empty(DEPTH.saturating_sub(usize::from(depth)), false);
            proof.nodes.push(node);
        }
        proof
    }

    /// The siblings that are written out: their depths and nodes, from the bottom up.
    pub(super) fn found(&self) -> impl Iterator<Item = (u16, SumNode)> + '_ {
        let written = (0..DEPTH).filter(|at| !self.is_empty_at(*at));
        written.map(|at| depth_of(at) as u16).zip(self.nodes.iter().copied())
    }

    fn is_empty_at(&self, at: usize) -> bool {
        self.empty.get(at / 8).is_some_and(|byte| byte & bit(at) != 0)
    }

    fn set_empty(&mut self, at: usize, empty: bool) {
        if let Some(byte) = self.empty.get_mut(at / 8) {
            *byte = if empty { *byte | bit(at) } else { *byte & !bit(at) };
        }
    }

    /// The 256 siblings, that at depth 256 first.
    pub fn siblings(&self, profile: Profile) -> impl Iterator<Item = SumNode> + '_ {
        let (empty, mut nodes) = (profile.empty(), self.nodes.iter());
        (0..DEPTH).filter_map(move |at| match self.is_empty_at(at) {
            true => Some(SumNode { hash: *empty.get(depth_of(at))?, sum: 0 }),
            false => nodes.next().copied(),
        })
    }

    /// The compressed encoding: 34 bytes and 40 for each sibling that is not empty.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(compressed_bytes(self.nodes.len()));
        // At most 256 nodes: there are no more siblings.
        out.extend((self.nodes.len() as u16).to_be_bytes());
        self.nodes.iter().for_each(|node| out.extend(node.bytes()));
        out.extend(self.empty);
        out
    }

    /// The full encoding: 256 times 40 bytes.
    pub fn encode_full(&self, profile: Profile) -> Vec<u8> {
        let mut out = Vec::with_capacity(DEPTH * NODE_BYTES);
        self.siblings(profile).for_each(|node| out.extend(node.bytes()));
        out
    }

    /// Reads a compressed proof. An empty sibling that is written out is taken as it is.
    ///
    /// # Errors
    /// If the bytes are too few, too many, or contradict themselves.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProofError> {
        let short = ProofError::Short { found: bytes.len() };
        let Some((count, rest)) = bytes.split_first_chunk::<COUNT_BYTES>() else {
            return Err(short);
        };
        let Some((body, empty)) = rest.split_last_chunk::<BITMAP_BYTES>() else {
            return Err(short);
        };
        let nodes = usize::from(u16::from_be_bytes(*count));
        let expected = compressed_bytes(nodes);
        if bytes.len() != expected {
            return Err(ProofError::Length { nodes, expected, found: bytes.len() });
        }
        let siblings = empty.iter().map(|byte| byte.count_zeros() as usize).sum();
        if nodes != siblings {
            return Err(ProofError::Count { nodes, siblings });
        }
        Ok(Self { empty: *empty, nodes: read_nodes(body) })
    }

    /// Reads a full proof.
    ///
    /// # Errors
    /// If it is not 256 times 40 bytes.
    pub fn decode_full(profile: Profile, bytes: &[u8]) -> Result<Self, ProofError> {
        let expected = DEPTH * NODE_BYTES;
        let length = ProofError::Length { nodes: DEPTH, expected, found: bytes.len() };
        if bytes.len() != expected {
            return Err(length);
        }
        Self::from_siblings(profile, read_nodes(bytes)).ok_or(length)
    }

    /// The root that this proof leads to from a leaf at a key, or from none if the leaf is empty.
    ///
    /// # Errors
    /// If the sums overflow.
    pub fn root(
        &self,
        profile: Profile,
        key: &[u8; 32],
        leaf: &Leaf,
    ) -> Result<SumNode, ProofError> {
        self.climb(profile, key, leaf, |_, _, _| {})
    }

    /// The nodes from the root down to the leaf of a key, those left out that have nothing beside
    /// the path.
    ///
    /// # Errors
    /// If the sums overflow.
    pub fn path(
        &self,
        profile: Profile,
        key: &[u8; 32],
        leaf: &Leaf,
    ) -> Result<Vec<Step>, ProofError> {
        let step = |kind, depth, node: SumNode, siblings: usize| Step {
            kind,
            depth,
            digits: usize::from(kind == StepKind::Fork),
            digest: Some(node.hash),
            bytes: siblings.saturating_mul(NODE_BYTES),
            siblings,
            sum: Some(node.sum),
        };
        let mut steps = Vec::new();
        if !leaf.is_empty() {
            steps.push(step(StepKind::Leaf, DEPTH, profile.leaf(leaf), 0));
        }
        let root = self.climb(profile, key, leaf, |depth, at, node| {
            if !self.is_empty_at(at) {
                steps.push(step(StepKind::Fork, depth, node, 1));
            }
        })?;
        if steps.last().is_none_or(|step| step.depth > 0) {
            steps.push(step(StepKind::Fork, 0, root, 0));
        }
        steps.reverse();
        Ok(steps)
    }

    /// The root, as [`Proof::root`]. Each node over two is shown to `visit`, with its depth and the
    /// place of the sibling below it.
    fn climb(
        &self,
        profile: Profile,
        key: &[u8; 32],
        leaf: &Leaf,
        mut visit: impl FnMut(usize, usize, SumNode),
    ) -> Result<SumNode, ProofError> {
        let mut node = profile.leaf(leaf);
        for (sibling, depth) in self.siblings(profile).zip((0..DEPTH).rev()) {
            let (left, right) =
                if goes_right(key, depth) { (sibling, node) } else { (node, sibling) };
            let branch = profile.branch(left, right);
            node = branch.map_err(|SumOverflow| ProofError::Overflow { depth })?;
            visit(depth, DEPTH.saturating_sub(depth).saturating_sub(1), node);
        }
        Ok(node)
    }

    /// Verifies that a key has this leaf in the tree of that root.
    ///
    /// # Errors
    /// If it does not follow.
    pub fn verify_inclusion<'a>(
        &self,
        profile: Profile,
        root: SumNode,
        key: &'a [u8; 32],
        leaf: &'a Leaf,
    ) -> Result<Included<'a>, ProofError> {
        if leaf.is_empty() {
            return Err(ProofError::EmptyLeaf);
        }
        match self.root(profile, key, leaf)? == root {
            true => Ok(Included { root, key, leaf }),
            false => Err(ProofError::Root),
        }
    }

    /// Verifies that a key has no leaf in the tree of that root.
    ///
    /// # Errors
    /// If it does not follow.
    pub fn verify_exclusion<'a>(
        &self,
        profile: Profile,
        root: SumNode,
        key: &'a [u8; 32],
    ) -> Result<Excluded<'a>, ProofError> {
        match self.root(profile, key, &Leaf::default())? == root {
            true => Ok(Excluded { root, key }),
            false => Err(ProofError::Root),
        }
    }
}

/// The depth of sibling `at`.
const fn depth_of(at: usize) -> usize {
    DEPTH.saturating_sub(at)
}

/// The bit of sibling `at` in its byte.
const fn bit(at: usize) -> u8 {
    1_u8.rotate_left((at % 8) as u32)
}

/// How long a compressed proof of so many nodes is.
const fn compressed_bytes(nodes: usize) -> usize {
    nodes.saturating_mul(NODE_BYTES).saturating_add(COUNT_BYTES + BITMAP_BYTES)
}

/// Nodes end to end; a rest that is no whole node is left out.
fn read_nodes(bytes: &[u8]) -> Vec<SumNode> {
    bytes.as_chunks::<NODE_BYTES>().0.iter().map(SumNode::read).collect()
}
