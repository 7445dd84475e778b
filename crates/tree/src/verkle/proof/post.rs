//! The root after the values have become what they are to become, from nothing but a verified proof.

use std::collections::BTreeMap;

use spinney_ipa::{Crs, Delta, Element, Fr, SignedScalar};

use super::super::level::terms;
use super::shape::{Node, stem_scalar};
use super::{LEAF_HALVES, StemDiff, Verified, half, place};

/// A leaf: its stem and its commitment.
type Leaf = ([u8; 31], Element);

impl Verified<'_> {
    /// The root of the tree in which every value with a new one has that instead, compressed.
    ///
    /// ```
    /// # use spinney_tree::{Batch, MemoryStore, PageStore, Tree, TreeId, verkle::Verkle};
    /// # let (store, verkle) = (MemoryStore::new(), Verkle::shared());
    /// # let tree = Tree::open(verkle.clone(), TreeId(1), &store.snapshot()?, 1 << 20)?;
    /// # let mut batch = Batch::new();
    /// # batch.put(&[1; 32], &[1; 32]);
    /// # let pending = tree.prepare(&store.snapshot()?, None, batch)?;
    /// let (proof, mut diff) = tree.prove(&store.snapshot()?, Some(&pending), &[[1; 32], [2; 32]])?;
    /// diff.set_new(&[2; 32], [7; 32]);
    /// let verified = proof.verify(verkle.crs(), &pending.root(), &diff)?;
    ///
    /// let mut batch = Batch::new();
    /// batch.put(&[2; 32], &[7; 32]);
    /// let after = tree.prepare(&store.snapshot()?, Some(&pending), batch)?;
    /// assert_eq!(verified.post_root(verkle.crs()), after.root());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn post_root(&self, crs: &Crs) -> [u8; 32] {
        let mut changed = self.changed_slots(crs);
        // From the deepest nodes up: what a child commits to now, by path.
        let mut depth = changed.keys().map(Vec::len).max().unwrap_or(0);
        while depth > 0 {
            let here: Vec<Vec<u8>> =
                changed.keys().filter(|path| path.len() == depth).cloned().collect();
            let now: Vec<Element> = here.iter().map(|path| changed[path]).collect();
            let mut deltas: BTreeMap<Vec<u8>, Vec<Delta>> = BTreeMap::new();
            for (path, new) in here.iter().zip(Element::map_to_field_many(&now)) {
                let (digit, above) = path.split_last().expect("not the root");
                let old = self.elements.get(path).map_or(Fr::ZERO, |node| node.1);
                deltas.entry(above.to_vec()).or_default().push(delta(*digit, old, new));
                changed.remove(path);
            }
            for (path, deltas) in deltas {
                let mut element = [self.elements[&path].0];
                crs.add_deltas(&mut element, &deltas);
                changed.insert(path, element[0]);
            }
            depth -= 1;
        }
        changed.get(&[][..]).unwrap_or(&self.elements[&[][..]].0).to_compressed()
    }

    /// The commitments of leaves that change, and of what comes where they or nothing were.
    fn changed_slots(&self, crs: &Crs) -> BTreeMap<Vec<u8>, Element> {
        let mut slots: BTreeMap<Vec<u8>, Vec<Leaf>> = BTreeMap::new();
        for entry in &self.diff.0 {
            if entry.suffixes.iter().all(|suffix| suffix.new.is_none()) {
                continue;
            }
            let path = self.end_of(&entry.stem);
            let leaf = match &self.shape.nodes[&path] {
                Node::Leaf { stem, .. } if *stem == entry.stem => self.changed(crs, &path, entry),
                _ => fresh(crs, entry),
            };
            slots.entry(path).or_default().push((entry.stem, leaf));
        }
        let build = |(path, mut leaves): (Vec<u8>, Vec<Leaf>)| {
            if let Node::Leaf { stem, .. } = &self.shape.nodes[&path]
                && !leaves.iter().any(|leaf| leaf.0 == *stem)
            {
                leaves.push((*stem, self.elements[&path].0));
                leaves.sort_unstable_by_key(|leaf| leaf.0);
            }
            let element = subtree(crs, &leaves, path.len());
            (path, element)
        };
        slots.into_iter().map(build).collect()
    }

    /// The path of the leaf, or of the nothing, where a stem's path ends.
    fn end_of(&self, stem: &[u8; 31]) -> Vec<u8> {
        let ends = |depth: &usize| {
            let node = self.shape.nodes.get(&stem[..*depth]);
            matches!(node, Some(Node::Leaf { .. } | Node::Empty))
        };
        let depth = (1..=31).find(ends).expect("a verified proof ends every path");
        stem[..depth].to_vec()
    }

    /// A leaf with new values.
    fn changed(&self, crs: &Crs, path: &[u8], entry: &StemDiff) -> Element {
        let mut leaf = [self.elements[path].0];
        for which in [0, 1] {
            let at = LEAF_HALVES + which;
            let Some((old, scalar)) = self.elements.get(&[path, &[at]].concat()) else { continue };
            let mut element = [*old];
            crs.add_deltas(&mut element, &values(entry, which));
            crs.add_deltas(&mut leaf, &[delta(at, *scalar, element[0].map_to_field())]);
        }
        leaf[0]
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
        let (old, new) = (terms(suffix.current), terms(suffix.new));
        [0, 1].map(|part| {
            let amount = SignedScalar::between(old[part], new[part]);
            Delta { target: 0, basis: place(suffix.suffix) + part as u8, amount }
        })
    });
    terms.collect()
}

/// A leaf of new values alone.
fn fresh(crs: &Crs, entry: &StemDiff) -> Element {
    let mut halves = [Element::IDENTITY; 2];
    for (which, half) in (0..).zip(&mut halves) {
        crs.add_deltas(std::slice::from_mut(half), &values(entry, which));
    }
    let scalars = Element::map_to_field_many(&halves);
    crs.commit(&[Fr::ONE, stem_scalar(&entry.stem), scalars[0], scalars[1]])
}

/// The commitment of what holds these leaves, in order of stems, at `depth`.
fn subtree(crs: &Crs, leaves: &[Leaf], depth: usize) -> Element {
    let [(_, leaf)] = leaves else {
        let children: Vec<&[Leaf]> = leaves.chunk_by(|a, b| a.0[depth] == b.0[depth]).collect();
        let below: Vec<Element> =
            children.iter().map(|leaves| subtree(crs, leaves, depth + 1)).collect();
        let scalars = Element::map_to_field_many(&below);
        let digits = children.iter().map(|leaves| leaves[0].0[depth]);
        let vector: Vec<(u8, Fr)> = digits.zip(scalars).collect();
        return crs.commit_sparse_many(&[&vector])[0];
    };
    *leaf
}
