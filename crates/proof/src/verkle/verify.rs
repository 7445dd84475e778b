//! Believing a proof.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use spinney_ipa::{Crs, Element, Fr, Transcript};

use super::diff::StateDiff;
use super::forms::Proof;
use super::shape::{ProofFault, Shape};

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
}
