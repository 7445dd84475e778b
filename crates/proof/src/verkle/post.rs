//! The root after the values have become what they are to become, from nothing but a verified
//! proof.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use spinney_ipa::{Crs, Delta, Element, Fr, SignedScalar};

use super::diff::StemDiff;
use super::node::{LEAF_HALVES, STEM_BYTES, half, places, stem_scalar, terms};
use super::shape::{PathNode, ProofFault};
use super::verify::Verified;

/// A leaf: its stem and its commitment.
type StemLeaf = ([u8; 31], Element);

impl Verified<'_> {
    /// The root of the tree in which every value with a new one has that instead, compressed.
    ///
    /// # Errors
    /// None of what [`Proof::verify`](super::Proof::verify) has answered; a conflict where a node
    /// on the path of a change were not known.
    pub fn post_root(&self, crs: &Crs) -> Result<[u8; 32], ProofFault> {
        let mut changed = self.changed_slots(crs)?;
        // From the deepest nodes up: what a child commits to now, by path.
        for depth in (1..=STEM_BYTES).rev() {
            let here: Vec<(Vec<u8>, Element)> =
                changed.extract_if(.., |path, _| path.len() == depth).collect();
            let now: Vec<Element> = here.iter().map(|(_, element)| *element).collect();
            let mut deltas: BTreeMap<Vec<u8>, Vec<Delta>> = BTreeMap::new();
            for ((path, _), new) in here.iter().zip(Element::map_to_field_many(&now)) {
                let Some((digit, above)) = path.split_last() else { continue };
                let old = self.elements.get(path).map_or(Fr::ZERO, |node| node.1);
                deltas.entry(above.to_vec()).or_default().push(delta(*digit, old, new));
            }
            for (path, deltas) in deltas {
                let mut element = [self.element(&path)?];
                crs.add_deltas(&mut element, &deltas);
                let [element] = element;
                changed.insert(path, element);
            }
        }
        let root = match changed.remove(&[][..]) {
            Some(root) => root,
            None => self.element(&[])?,
        };
        Ok(root.to_compressed())
    }

    /// What the node at a path commits to.
    fn element(&self, path: &[u8]) -> Result<Element, ProofFault> {
        let known = self.elements.get(path).map(|node| node.0);
        known.ok_or_else(|| ProofFault::Conflict { path: path.to_vec() })
    }

    /// The commitments of leaves that change, and of what comes where they or nothing were.
    fn changed_slots(&self, crs: &Crs) -> Result<BTreeMap<Vec<u8>, Element>, ProofFault> {
        let mut slots: BTreeMap<&Vec<u8>, Vec<StemLeaf>> = BTreeMap::new();
        for (entry, path) in self.diff.0.iter().zip(&self.shape.ends) {
            if entry.suffixes.iter().all(|suffix| suffix.new.is_none()) {
                continue;
            }
            let leaf = match self.shape.nodes.get(path) {
                Some(PathNode::Leaf { stem, .. }) if *stem == entry.stem => {
                    self.changed(crs, path, entry)?
                }
                _ => fresh(crs, entry),
            };
            slots.entry(path).or_default().push((entry.stem, leaf));
        }
        let build = |(path, mut leaves): (&Vec<u8>, Vec<StemLeaf>)| {
            if let Some(PathNode::Leaf { stem, .. }) = self.shape.nodes.get(path)
                && !leaves.iter().any(|leaf| leaf.0 == *stem)
            {
                leaves.push((*stem, self.element(path)?));
                leaves.sort_unstable_by_key(|leaf| leaf.0);
            }
            Ok((path.clone(), subtree(crs, &leaves, path.len())))
        };
        slots.into_iter().map(build).collect()
    }

    /// A leaf with new values.
    fn changed(&self, crs: &Crs, path: &[u8], entry: &StemDiff) -> Result<Element, ProofFault> {
        let mut leaf = [self.element(path)?];
        for (at, which) in (LEAF_HALVES..).zip([0, 1]) {
            let Some((old, scalar)) = self.elements.get(&[path, &[at]].concat()) else { continue };
            let mut element = [*old];
            crs.add_deltas(&mut element, &values(entry, which));
            let [element] = element;
            crs.add_deltas(&mut leaf, &[delta(at, *scalar, element.map_to_field())]);
        }
        let [leaf] = leaf;
        Ok(leaf)
    }
}

fn delta(basis: u8, old: Fr, new: Fr) -> Delta {
    let amount = SignedScalar::between(old.to_limbs(), new.to_limbs());
    Delta { target: 0, basis, amount }
}

/// What the new values in a half of a stem change.
fn values(entry: &StemDiff, which: u8) -> Vec<Delta> {
    let changed = entry.suffixes.iter().filter(|suffix| half(suffix.suffix) == which);
    let terms = changed.filter(|suffix| suffix.new.is_some()).flat_map(|suffix| {
        let terms = terms(suffix.current).into_iter().zip(terms(suffix.new));
        places(suffix.suffix).into_iter().zip(terms).map(|(basis, (old, new))| Delta {
            target: 0,
            basis,
            amount: SignedScalar::between(old, new),
        })
    });
    terms.collect()
}

/// A leaf of new values alone.
fn fresh(crs: &Crs, entry: &StemDiff) -> Element {
    let mut halves = [Element::IDENTITY; 2];
    for (which, half) in (0..).zip(&mut halves) {
        crs.add_deltas(core::slice::from_mut(half), &values(entry, which));
    }
    let scalars = Element::map_to_field_many(&halves);
    crs.commit(&[&[Fr::ONE, stem_scalar(&entry.stem)][..], &scalars].concat())
}

/// The commitment of what holds these leaves, whose stems differ and begin alike, in order of
/// stems, at `depth`.
fn subtree(crs: &Crs, leaves: &[StemLeaf], depth: usize) -> Element {
    if let [(_, leaf)] = leaves {
        return *leaf;
    }
    let digit = |leaf: &StemLeaf| leaf.0.get(depth).copied();
    let mut digits = Vec::new();
    let mut below = Vec::new();
    for children in leaves.chunk_by(|a, b| digit(a) == digit(b)) {
        // Stems that differ do so at one of their bytes.
        let Some(digit) = children.first().and_then(digit) else { continue };
        digits.push(digit);
        below.push(subtree(crs, children, depth.saturating_add(1)));
    }
    let vector: Vec<(u8, Fr)> =
        digits.into_iter().zip(Element::map_to_field_many(&below)).collect();
    let commitments = crs.commit_sparse_many(&[&vector]);
    commitments.into_iter().next().unwrap_or(Element::IDENTITY)
}
