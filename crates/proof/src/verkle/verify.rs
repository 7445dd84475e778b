//! Believing a proof.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use spinney_ipa::{Crs, Element, Fr, Transcript};

use super::diff::StateDiff;
use super::forms::Proof;
use super::node::{LEAF_HALVES, STEM_BYTES, half};
use super::shape::{PathNode, ProofFault, Shape};
use crate::path::{Step, StepKind};

/// What a proof showed.
#[derive(Debug)]
pub struct Verified<'a> {
    pub(super) diff: &'a StateDiff,
    pub(super) shape: Shape,
    /// Of all nodes, by path.
    pub(super) elements: BTreeMap<Vec<u8>, (Element, Fr)>,
}

impl Proof {
    /// Checks that a tree with this root, compressed, has the current values in `diff`. What
    /// becomes of them is for [`Verified::post_root`]. The absence of [`Proof::unsure_stems`] is
    /// not shown by it.
    ///
    /// # Errors
    /// If the proof does not show exactly that, or could be shorter.
    pub fn verify<'a>(
        &self,
        crs: &Crs,
        root: &[u8; 32],
        diff: &'a StateDiff,
    ) -> Result<Verified<'a>, ProofFault> {
        let shape = Shape::of(self, diff)?;
        let root = Element::from_compressed(root).map_err(ProofFault::Root)?;
        let committed = || shape.nodes.iter().filter(|(_, node)| node.commits());
        let (got, expected) = (self.commitments.len(), committed().count().saturating_sub(1));
        if got != expected {
            return Err(ProofFault::Commitments { got, expected });
        }
        let decoded = Element::from_compressed_many(&self.commitments)
            .map_err(|(index, error)| ProofFault::Commitment { index, error })?;
        let all: Vec<Element> = core::iter::once(root).chain(decoded).collect();
        let scalars = Element::map_to_field_many(&all);
        let known = all.into_iter().zip(scalars);
        // The root's path is the first.
        let by_path: BTreeMap<&[u8], (Element, Fr)> =
            committed().map(|(path, _)| &path[..]).zip(known).collect();
        let openings = shape.openings(&by_path);
        self.multiproof.verify(crs, &mut Transcript::new(b"vt"), &openings)?;
        let elements = by_path.into_iter().map(|(path, node)| (path.to_vec(), node)).collect();
        Ok(Verified { diff, shape, elements })
    }
}

impl Verified<'_> {
    /// The value of a key: `None` if it is not one that the proof is about, `Some(None)` if it is
    /// absent.
    pub fn get(&self, key: &[u8; 32]) -> Option<Option<[u8; 32]>> {
        self.diff.get(key).map(|entry| entry.current)
    }

    /// The nodes from the root down to a key, or to where it would be; empty if the proof is not
    /// about it. That of the root takes no bytes of the proof.
    pub fn path(&self, key: &[u8; 32]) -> Vec<Step> {
        let [stem @ .., suffix] = key;
        let stems = self.diff.0.iter().zip(&self.shape.ends);
        let Some((_, end)) = stems.into_iter().find(|(entry, _)| entry.stem == *stem) else {
            return Vec::new();
        };
        let mut paths: Vec<Vec<u8>> =
            (0..=end.len()).filter_map(|len| Some(end.get(..len)?.to_vec())).collect();
        paths.push([&end[..], &[LEAF_HALVES.saturating_add(half(*suffix))]].concat());
        paths.iter().filter_map(|path| self.step(stem, path)).collect()
    }

    fn step(&self, key: &[u8; 31], path: &[u8]) -> Option<Step> {
        let kind = match self.shape.nodes.get(path)? {
            PathNode::Internal(_) => StepKind::Branch,
            PathNode::Leaf { stem, .. } if stem == key => StepKind::Stem,
            PathNode::Leaf { .. } => StepKind::Other,
            PathNode::Half(_) => StepKind::Half,
            PathNode::Empty => return None,
        };
        let depth = path.len();
        let digits = match kind {
            StepKind::Stem | StepKind::Other => STEM_BYTES.saturating_sub(depth),
            _ => 1,
        };
        let (commitment, _) = self.elements.get(path)?;
        let bytes = if depth == 0 { 0 } else { 32 };
        let digest = Some(commitment.to_compressed());
        Some(Step { kind, depth, digits, digest, bytes, siblings: 0, sum: None })
    }
}
