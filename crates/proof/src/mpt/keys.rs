//! Proofs of keys, present or absent: one or many.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use spinney_hash::keccak256;

use super::error::ProofError;
use super::node::{Below, NIBBLES, Node, nibble};
use super::nodes::{Found, Nodes};
use crate::error::NotProven;
use crate::path::{Step, StepKind};

/// The nodes on the paths of some keys, as somebody sent them: nothing is known of them yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    nodes: Vec<Vec<u8>>,
}

/// What a proof has shown of the keys that it was verified for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedProof {
    values: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Proof {
    /// A proof of these nodes, each in RLP.
    pub const fn new(nodes: Vec<Vec<u8>>) -> Self {
        Self { nodes }
    }

    /// The nodes in RLP, a parent before its children.
    pub fn nodes(&self) -> &[Vec<u8>] {
        &self.nodes
    }

    /// Gives the nodes away.
    pub fn into_nodes(self) -> Vec<Vec<u8>> {
        self.nodes
    }

    /// Follows each key from `root` down: which of them the trie holds, and under what value.
    ///
    /// # Errors
    /// If no key is asked for, a node on a path is missing or malformed, or one in the proof lies
    /// on no path.
    pub fn verify<K: AsRef<[u8]>>(
        &self,
        root: &[u8; 32],
        keys: &[K],
    ) -> Result<VerifiedProof, ProofError> {
        if keys.is_empty() {
            return Err(ProofError::Nothing);
        }
        let mut nodes = Nodes::new(&self.nodes);
        let mut values = BTreeMap::new();
        for key in keys {
            let key = key.as_ref();
            let value = look_up(&mut nodes, root, key, |_, _| {})?;
            values.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        }
        nodes.finish()?;
        Ok(VerifiedProof { values })
    }

    /// The nodes from `root` down to a key, or to where it would be. Nodes on no path are not
    /// looked at: [`Proof::verify`] refuses them.
    ///
    /// # Errors
    /// If a node on the path is missing or malformed.
    pub fn path(&self, root: &[u8; 32], key: &[u8]) -> Result<Vec<Step>, ProofError> {
        let (mut nodes, mut steps) = (Nodes::new(&self.nodes), Vec::new());
        look_up(&mut nodes, root, key, |depth, found| steps.push(step(key, depth, found)))?;
        Ok(steps)
    }
}

impl VerifiedProof {
    /// The value of a key, or `None` where the trie does not hold it.
    ///
    /// # Errors
    /// If the proof was not verified for the key.
    pub fn get(&self, key: &[u8]) -> Result<Option<&[u8]>, NotProven> {
        let value = self.values.get(key).ok_or_else(|| NotProven { key: key.to_vec() })?;
        Ok(value.as_deref())
    }

    /// The keys that the proof was verified for with their values, in order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.values.iter().map(|(key, value)| (&key[..], value.as_deref()))
    }
}

/// The value under a key. Each node on its path is shown to `visit`, with its depth.
fn look_up<'p>(
    nodes: &mut Nodes<'p>,
    root: &[u8; 32],
    key: &[u8],
    mut visit: impl FnMut(usize, &Found<'p>),
) -> Result<Option<&'p [u8]>, ProofError> {
    let Some(mut found) = nodes.top(root)? else { return Ok(None) };
    let (mut depth, len) = (0_usize, NIBBLES.count(key));
    loop {
        visit(depth, &found);
        let child = match found.node {
            Node::Leaf { path, value } => {
                let ends = depth.saturating_add(path.len()) == len;
                let is_key = ends && path.common(key, depth) == path.len();
                return Ok(is_key.then_some(value));
            }
            Node::Extension { path, child } => {
                if path.common(key, depth) < path.len() {
                    return Ok(None);
                }
                depth = depth.saturating_add(path.len());
                found = nodes.fork(found.index, child)?;
                continue;
            }
            Node::Branch { value, .. } if depth == len => {
                return Ok((!value.is_empty()).then_some(value));
            }
            Node::Branch { children, .. } => {
                let child = children.get(usize::from(nibble(key, depth)));
                child.copied().unwrap_or(Below::Nothing)
            }
        };
        match nodes.child(found.index, child)? {
            Some(below) => found = below,
            None => return Ok(None),
        }
        depth = depth.saturating_add(1);
    }
}

fn step(key: &[u8], depth: usize, found: &Found<'_>) -> Step {
    let (kind, digits, siblings) = match found.node {
        Node::Leaf { path, .. } => {
            let len = NIBBLES.count(key);
            let is_key =
                depth.saturating_add(path.len()) == len && path.common(key, depth) == path.len();
            (if is_key { StepKind::Leaf } else { StepKind::Other }, path.len(), 0)
        }
        Node::Extension { path, .. } => (StepKind::Extension, path.len(), 0),
        Node::Branch { children, .. } => {
            let next = usize::from(nibble(key, depth));
            let beside = children.iter().enumerate().filter(|(digit, _)| *digit != next);
            let siblings = beside.filter(|(_, child)| **child != Below::Nothing).count();
            (StepKind::Branch, 1, siblings)
        }
    };
    let bytes = found.rlp.len();
    let digest = (depth == 0 || bytes >= 32).then(|| keccak256(found.rlp));
    Step { kind, depth, digits, digest, bytes, siblings, sum: None }
}
