//! The nodes that a proof shows, by path: what a verifier rebuilds of the tree.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use spinney_ipa::{DecodeError, Element, Fr, Opening, ProofError};

use super::diff::{StateDiff, StemDiff};
use super::forms::Proof;
use super::node::{LEAF_HALVES, LEAF_MARK, LEAF_STEM, Status, half, places, stem_scalar, terms};
use crate::error::Hex;

/// Why a proof is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProofFault {
    /// It is about no key, or keys are out of order.
    Keys,
    /// There are more stems than statuses, or fewer.
    Statuses {
        /// Statuses in the proof.
        statuses: usize,
        /// Stems that it is about.
        stems: usize,
    },
    /// A status says nothing known.
    Status {
        /// The stem.
        stem: [u8; 31],
        /// Its status.
        byte: u8,
    },
    /// A stem is said to be absent and has a value.
    AbsentValue {
        /// The stem.
        stem: [u8; 31],
    },
    /// Two stems need different nodes at one place.
    Conflict {
        /// Its path.
        path: Vec<u8>,
    },
    /// Stems that stand where keys would are missing, out of order or too many.
    OtherStems,
    /// Commitments are missing or too many.
    Commitments {
        /// How many there are.
        got: usize,
        /// How many there should be.
        expected: usize,
    },
    /// A commitment is none.
    Commitment {
        /// Which, by path.
        index: usize,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// The root is none.
    Root(DecodeError),
    /// The openings do not follow from the commitments.
    Openings(ProofError),
}

impl From<ProofError> for ProofFault {
    fn from(error: ProofError) -> Self {
        Self::Openings(error)
    }
}

impl fmt::Display for ProofFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keys => f.write_str("the keys do not strictly rise, or there are none"),
            Self::Statuses { statuses, stems } => {
                write!(f, "{statuses} statuses for {stems} stems")
            }
            Self::Status { stem, byte } => {
                write!(f, "stem 0x{}: {byte:#04x} is no status", Hex(stem))
            }
            Self::AbsentValue { stem } => {
                write!(f, "stem 0x{}: it is said to be absent, and has a value", Hex(stem))
            }
            Self::Conflict { path } => {
                write!(f, "the node at 0x{} would have to be two things", Hex(path))
            }
            Self::OtherStems => {
                f.write_str("the other stems are not those that stand where absent ones would")
            }
            Self::Commitments { got, expected } => write!(
                f,
                "{got} commitments, where the nodes on the paths of the keys have {expected}"
            ),
            Self::Commitment { index, error } => write!(f, "commitment {index}: {error}"),
            Self::Root(error) => write!(f, "the root is no commitment: {error}"),
            Self::Openings(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ProofFault {}

/// The nodes on the paths of the keys.
#[derive(Debug, Default)]
pub(super) struct Shape {
    pub(super) nodes: BTreeMap<Vec<u8>, PathNode>,
    /// The path at which each stem of the difference ends, in order of stems.
    pub(super) ends: Vec<Vec<u8>>,
}

#[derive(Debug)]
pub(super) enum PathNode {
    /// With the places at which it is opened.
    Internal(BTreeSet<u8>),
    Leaf {
        stem: [u8; 31],
        halves: [bool; 2],
    },
    /// The half of a leaf, and the suffixes in question.
    Half(Vec<(u8, Option<[u8; 32]>)>),
    Empty,
}

impl PathNode {
    /// Whether a commitment goes with it.
    pub(super) const fn commits(&self) -> bool {
        !matches!(self, Self::Empty)
    }
}

impl Shape {
    /// The nodes that a proof's statuses speak of.
    pub(super) fn of(proof: &Proof, diff: &StateDiff) -> Result<Self, ProofFault> {
        if diff.0.is_empty() || !diff.is_sorted() {
            return Err(ProofFault::Keys);
        }
        let (statuses, stems) = (proof.statuses.len(), diff.0.len());
        if statuses != stems {
            return Err(ProofFault::Statuses { statuses, stems });
        }
        let mut shape = Self::default();
        let mut others: BTreeMap<&[u8], Vec<&[u8; 31]>> = BTreeMap::new();
        for (entry, &byte) in diff.0.iter().zip(&proof.statuses) {
            let stem = &entry.stem;
            let read = Status::read(byte).ok_or(ProofFault::Status { stem: *stem, byte });
            let (status, depth) = read?;
            // Five bits say how long the path is, so a stem has that many bytes.
            let path = stem.get(..depth).ok_or(ProofFault::Status { stem: *stem, byte })?;
            let absent = entry.suffixes.iter().all(|suffix| suffix.current.is_none());
            if status != Status::Present && !absent {
                return Err(ProofFault::AbsentValue { stem: *stem });
            }
            shape.descend(path)?;
            match status {
                Status::Empty => shape.place(path, PathNode::Empty)?,
                Status::Other => others.entry(path).or_default().push(stem),
                Status::Present => shape.present(path, entry)?,
            }
            shape.ends.push(path.to_vec());
        }
        shape.stand_in(proof, &others)?;
        shape.check_below()?;
        Ok(shape)
    }

    /// Opens the internal nodes on a path.
    fn descend(&mut self, path: &[u8]) -> Result<(), ProofFault> {
        let mut above = Vec::with_capacity(path.len());
        for digit in path {
            let node = self
                .nodes
                .entry(above.clone())
                .or_insert_with(|| PathNode::Internal(BTreeSet::new()));
            let PathNode::Internal(opened) = node else {
                return Err(ProofFault::Conflict { path: above });
            };
            opened.insert(*digit);
            above.push(*digit);
        }
        Ok(())
    }

    /// Puts a node where none is. Nothing may be said to be nothing again.
    fn place(&mut self, path: &[u8], node: PathNode) -> Result<(), ProofFault> {
        match (self.nodes.get(path), &node) {
            (None, _) | (Some(PathNode::Empty), PathNode::Empty) => {
                self.nodes.insert(path.to_vec(), node);
                Ok(())
            }
            _ => Err(ProofFault::Conflict { path: path.to_vec() }),
        }
    }

    /// The leaf of a stem that is present, and the halves in which its suffixes are.
    fn present(&mut self, path: &[u8], entry: &StemDiff) -> Result<(), ProofFault> {
        let opened = [0, 1].map(|which| {
            let suffixes = entry.suffixes.iter().filter(|suffix| half(suffix.suffix) == which);
            suffixes.map(|suffix| (suffix.suffix, suffix.current)).collect::<Vec<_>>()
        });
        let halves = opened.each_ref().map(|suffixes| !suffixes.is_empty());
        self.place(path, PathNode::Leaf { stem: entry.stem, halves })?;
        for (at, suffixes) in (LEAF_HALVES..).zip(opened) {
            if !suffixes.is_empty() {
                self.place(&[path, &[at]].concat(), PathNode::Half(suffixes))?;
            }
        }
        Ok(())
    }

    /// Puts the stems that stand where absent ones would.
    fn stand_in(
        &mut self,
        proof: &Proof,
        others: &BTreeMap<&[u8], Vec<&[u8; 31]>>,
    ) -> Result<(), ProofFault> {
        if !proof.other_stems.is_sorted_by(|a, b| a < b) {
            return Err(ProofFault::OtherStems);
        }
        let mut stems = proof.other_stems.iter();
        for (path, absent) in others {
            let stem = match self.nodes.get(*path) {
                // It is there anyway.
                Some(PathNode::Leaf { stem, .. }) => *stem,
                Some(_) => return Err(ProofFault::Conflict { path: path.to_vec() }),
                None => {
                    // Paths rise, none begins another, and so the stems rise with them.
                    let stem = stems.next().filter(|stem| stem.starts_with(path));
                    let stem = *stem.ok_or(ProofFault::OtherStems)?;
                    self.nodes.insert(path.to_vec(), PathNode::Leaf { stem, halves: [false; 2] });
                    stem
                }
            };
            if absent.iter().any(|absent| **absent == stem) {
                return Err(ProofFault::OtherStems);
            }
        }
        if stems.next().is_some() { Err(ProofFault::OtherStems) } else { Ok(()) }
    }

    /// Nothing hangs below leaves and below nothing, but for halves.
    fn check_below(&self) -> Result<(), ProofFault> {
        let mut end: Option<&Vec<u8>> = None;
        for (path, node) in &self.nodes {
            let below = end.is_some_and(|end| path.starts_with(end));
            if below && !matches!(node, PathNode::Half(_)) {
                return Err(ProofFault::Conflict { path: path.clone() });
            }
            if matches!(node, PathNode::Leaf { .. } | PathNode::Empty) {
                end = Some(path);
            }
        }
        Ok(())
    }

    /// The openings that have to hold, in order. `elements` and `scalars` are those of all nodes.
    pub(super) fn openings(&self, elements: &BTreeMap<&[u8], (Element, Fr)>) -> Vec<Opening> {
        let mut openings = Vec::new();
        let mut below = Vec::new();
        for (path, node) in &self.nodes {
            let Some(&(commitment, _)) = elements.get(&path[..]) else { continue };
            let mut open = |index, value| openings.push(Opening { commitment, index, value });
            let mut child = |digit: u8| {
                below.clear();
                below.extend_from_slice(path);
                below.push(digit);
                elements.get(&below[..]).map_or(Fr::ZERO, |child| child.1)
            };
            match node {
                PathNode::Internal(opened) => {
                    opened.iter().for_each(|&digit| open(digit, child(digit)));
                }
                PathNode::Leaf { stem, halves } => {
                    open(LEAF_MARK, Fr::ONE);
                    open(LEAF_STEM, stem_scalar(stem));
                    for (half, _) in (LEAF_HALVES..).zip(halves).filter(|(_, open)| **open) {
                        open(half, child(half));
                    }
                }
                PathNode::Half(suffixes) => {
                    for &(suffix, value) in suffixes {
                        for (index, term) in places(suffix).into_iter().zip(terms(value)) {
                            open(index, Fr::from_limbs(term));
                        }
                    }
                }
                PathNode::Empty => {}
            }
        }
        openings
    }
}
