//! The nodes of a proof, found by what their parents hold of them.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use spinney_hash::{Inputs, keccak256, keccak256_many};

use super::error::ProofError;
use super::node::{Below, Node, read};
use crate::mpt::EMPTY_ROOT;

/// How many nodes are hashed in one call, and the longest that is: their ends fit four bytes.
const CHUNK: usize = 256;
const CHUNK_NODE_BYTES_MAX: usize = 1 << 20;

/// A proof's nodes, and which of them were looked into.
#[derive(Debug)]
pub(super) struct Nodes<'p> {
    list: &'p [Vec<u8>],
    by_digest: BTreeMap<[u8; 32], usize>,
    /// Nodes that may be listed beside the one that they are embedded in.
    short: BTreeMap<&'p [u8], usize>,
    used: Vec<bool>,
}

/// A node and where it lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'p> {
    /// The node of the list that it is, or that it is embedded in.
    pub(super) index: usize,
    pub(super) rlp: &'p [u8],
    pub(super) node: Node<'p>,
}

impl<'p> Nodes<'p> {
    pub(super) fn new(list: &'p [Vec<u8>]) -> Self {
        let mut by_digest = BTreeMap::new();
        let mut short = BTreeMap::new();
        for ((index, node), digest) in list.iter().enumerate().zip(digests(list)) {
            by_digest.entry(digest).or_insert(index);
            if node.len() < 32 {
                short.entry(&node[..]).or_insert(index);
            }
        }
        Self { list, by_digest, short, used: vec![false; list.len()] }
    }

    /// The top node below a root; `None` for the empty trie.
    pub(super) fn top(&mut self, root: &[u8; 32]) -> Result<Option<Found<'p>>, ProofError> {
        if *root == EMPTY_ROOT {
            // Its proof has no node, or the one that stands for nothing.
            self.uses(self.short.get(&[0x80][..]).copied());
            return Ok(None);
        }
        self.listed(root).map(Some)
    }

    /// The child that a node holds; `None` where there is none.
    pub(super) fn child(
        &mut self,
        parent: usize,
        child: Below<'p>,
    ) -> Result<Option<Found<'p>>, ProofError> {
        match child {
            Below::Nothing => Ok(None),
            Below::Digest(digest) => {
                let found = self.listed(digest)?;
                if found.rlp.len() < 32 {
                    let what = "it is short, and yet not embedded";
                    return Err(ProofError::Malformed { index: found.index, what });
                }
                Ok(Some(found))
            }
            Below::Embedded(rlp) => {
                self.uses(self.short.get(rlp).copied());
                let node = read(rlp);
                let node = node.map_err(|what| ProofError::Malformed { index: parent, what })?;
                Ok(Some(Found { index: parent, rlp, node }))
            }
        }
    }

    /// The branch below an extension.
    pub(super) fn fork(
        &mut self,
        parent: usize,
        child: Below<'p>,
    ) -> Result<Found<'p>, ProofError> {
        match self.child(parent, child)? {
            Some(found @ Found { node: Node::Branch { .. }, .. }) => Ok(found),
            _ => {
                let what = "an extension leads to no branch";
                Err(ProofError::Malformed { index: parent, what })
            }
        }
    }

    fn listed(&mut self, digest: &[u8; 32]) -> Result<Found<'p>, ProofError> {
        let missing = || ProofError::Missing { digest: *digest };
        let index = *self.by_digest.get(digest).ok_or_else(missing)?;
        self.uses(Some(index));
        let rlp = &self.list.get(index).ok_or_else(missing)?[..];
        let node = read(rlp).map_err(|what| ProofError::Malformed { index, what })?;
        Ok(Found { index, rlp, node })
    }

    /// Notes that a node of the list was looked into.
    fn uses(&mut self, index: Option<usize>) {
        if let Some(used) = index.and_then(|index| self.used.get_mut(index)) {
            *used = true;
        }
    }

    /// Refuses nodes that nobody looked into: a proof that may carry any is no proof of one thing.
    pub(super) fn finish(self) -> Result<(), ProofError> {
        match self.used.iter().position(|used| !used) {
            Some(index) => Err(ProofError::Unused { index }),
            None => Ok(()),
        }
    }
}

fn digests(list: &[Vec<u8>]) -> Vec<[u8; 32]> {
    let mut digests = vec![[0; 32]; list.len()];
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for (nodes, digests) in list.chunks(CHUNK).zip(digests.chunks_mut(CHUNK)) {
        if nodes.iter().any(|node| node.len() > CHUNK_NODE_BYTES_MAX) {
            nodes.iter().zip(digests).for_each(|(node, digest)| *digest = keccak256(node));
            continue;
        }
        bytes.clear();
        ends.clear();
        for node in nodes {
            bytes.extend_from_slice(node);
            ends.push(bytes.len() as u32);
        }
        keccak256_many(Inputs::new(&bytes, &ends), digests);
    }
    digests
}
