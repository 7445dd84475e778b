//! The Verkle tree from its entries, by the book: no engine, no differences, no batches.
//!
//! This is the oracle of the tests. It is as slow as it is plain.

use std::collections::BTreeMap;

use spinney_ipa::{Crs, Element, Fr};

/// Entries by their 32-byte keys, a stem of 31 bytes and the suffix; values have 32 bytes.
pub type VerkleEntries = BTreeMap<[u8; 32], [u8; 32]>;

/// What a deletion does to an internal node that it leaves with one leaf or with none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It goes, so that the same entries always are the same tree.
    Canonical,
    /// It stays as long as anything is below it, as in go-verkle, whose roots so depend on history.
    Compatible,
}

/// The root of a tree that holds exactly these entries, compressed.
///
/// ```
/// use spinney_ipa::Crs;
/// use spinney_tree::verkle::reference;
///
/// let root = reference::root(&Crs::new(), &[([0; 32], [0; 32])].into());
/// assert_eq!(root[..4], [0x6b, 0x63, 0x09, 0x05]);
/// ```
pub fn root(crs: &Crs, entries: &VerkleEntries) -> [u8; 32] {
    let mut tree = ShapedTree::default();
    for (key, value) in entries {
        tree.insert(key, *value);
    }
    tree.commitment(crs).to_compressed()
}

/// A tree with its shape, which entries alone do not tell after [`Deletion::Compatible`].
#[derive(Clone, Debug, Default)]
pub struct ShapedTree {
    root: BTreeMap<u8, VerkleNode>,
}

/// The nodes that the EIP names.
#[derive(Clone, Debug)]
enum VerkleNode {
    Internal(BTreeMap<u8, Self>),
    Leaf([u8; 31], BTreeMap<u8, [u8; 32]>),
}

impl ShapedTree {
    /// Puts a value.
    pub fn insert(&mut self, key: &[u8; 32], value: [u8; 32]) {
        let (stem, suffix) = split(key);
        insert(&mut self.root, 0, stem, &[(suffix, value)].into());
    }

    /// Removes a value, if it is there.
    pub fn delete(&mut self, key: &[u8; 32], deletion: Deletion) {
        let (stem, suffix) = split(key);
        delete(&mut self.root, 0, &stem, suffix, deletion);
    }

    /// The commitment to the root node.
    pub fn commitment(&self, crs: &Crs) -> Element {
        internal(crs, &self.root)
    }
}

fn split(key: &[u8; 32]) -> ([u8; 31], u8) {
    (key[..31].try_into().expect("31 of 32 bytes"), key[31])
}

fn insert(
    children: &mut BTreeMap<u8, VerkleNode>,
    depth: usize,
    stem: [u8; 31],
    values: &BTreeMap<u8, [u8; 32]>,
) {
    let digit = stem[depth];
    match children.remove(&digit) {
        None => drop(children.insert(digit, VerkleNode::Leaf(stem, values.clone()))),
        Some(VerkleNode::Leaf(here, mut old)) if here == stem => {
            old.extend(values);
            children.insert(digit, VerkleNode::Leaf(here, old));
        }
        // Each byte that two stems share is an internal node.
        Some(VerkleNode::Leaf(here, old)) => {
            let mut below = BTreeMap::new();
            insert(&mut below, depth + 1, here, &old);
            insert(&mut below, depth + 1, stem, values);
            children.insert(digit, VerkleNode::Internal(below));
        }
        Some(VerkleNode::Internal(mut below)) => {
            insert(&mut below, depth + 1, stem, values);
            children.insert(digit, VerkleNode::Internal(below));
        }
    }
}

fn delete(
    children: &mut BTreeMap<u8, VerkleNode>,
    depth: usize,
    stem: &[u8; 31],
    suffix: u8,
    deletion: Deletion,
) {
    let digit = stem[depth];
    let left = match children.remove(&digit) {
        Some(VerkleNode::Leaf(here, mut values)) => {
            if here == *stem {
                values.remove(&suffix);
            }
            (!values.is_empty()).then_some(VerkleNode::Leaf(here, values))
        }
        Some(VerkleNode::Internal(mut below)) => {
            delete(&mut below, depth + 1, stem, suffix, deletion);
            let lone =
                matches!(below.values().next(), Some(VerkleNode::Leaf(..))) && below.len() == 1;
            if lone && deletion == Deletion::Canonical {
                below.pop_first().map(|(_, leaf)| leaf)
            } else {
                (!below.is_empty()).then_some(VerkleNode::Internal(below))
            }
        }
        None => None,
    };
    children.extend(left.map(|node| (digit, node)));
}

fn internal(crs: &Crs, children: &BTreeMap<u8, VerkleNode>) -> Element {
    let mut vector = [Fr::ZERO; 256];
    for (digit, child) in children {
        let commitment = match child {
            VerkleNode::Internal(below) => internal(crs, below),
            VerkleNode::Leaf(stem, values) => leaf(crs, stem, values),
        };
        vector[usize::from(*digit)] = commitment.map_to_field();
    }
    crs.commit(&vector)
}

/// `1 * G0 + stem * G1 + C1 * G2 + C2 * G3`.
fn leaf(crs: &Crs, stem: &[u8; 31], values: &BTreeMap<u8, [u8; 32]>) -> Element {
    let mut vector = [Fr::ONE; 4];
    vector[1] = little_endian(stem);
    for (half, place) in vector[2..].iter_mut().enumerate() {
        let mut values_vector = [Fr::ZERO; 256];
        for (suffix, value) in values {
            if usize::from(suffix / 128) == half {
                let at = usize::from(suffix % 128) * 2;
                // A value of zeros differs from none by 2^128.
                values_vector[at] = little_endian(&value[..16]) + Fr::from_limbs([0, 0, 1, 0]);
                values_vector[at + 1] = little_endian(&value[16..]);
            }
        }
        *place = crs.commit(&values_vector).map_to_field();
    }
    crs.commit(&vector)
}

fn little_endian(bytes: &[u8]) -> Fr {
    let mut wide = [0; 32];
    wide[..bytes.len()].copy_from_slice(bytes);
    Fr::from_le_bytes_reduced(&wide)
}
