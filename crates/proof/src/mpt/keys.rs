//! Proofs of keys, present or absent: one or many.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::error::ProofError;
use super::node::{Below, NIBBLES, Node, nibble};
use super::nodes::Nodes;
use crate::error::NotProven;

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
            let value = look_up(&mut nodes, root, key)?;
            values.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        }
        nodes.finish()?;
        Ok(VerifiedProof { values })
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

/// The value under a key.
pub(super) fn look_up<'p>(
    nodes: &mut Nodes<'p>,
    root: &[u8; 32],
    key: &[u8],
) -> Result<Option<&'p [u8]>, ProofError> {
    let Some(mut found) = nodes.top(root)? else { return Ok(None) };
    let (mut depth, len) = (0_usize, NIBBLES.count(key));
    loop {
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
