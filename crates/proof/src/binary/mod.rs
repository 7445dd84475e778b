//! The binary trees of EIP-7864 ([`Ubt`]) and EIP-8297 ([`Pbt`]), and proofs of their keys, present
//! or absent, one or many.
//!
//! A proof goes with the keys and the values that are claimed, `None` for an absent key. It is
//! ```text
//! proof     = nothing                         of an empty tree
//!           | count, neighbour*, node         exclusion neighbours in order of keys
//! neighbour = key length, key, value (32)
//! node      = 0x00 prefix, side, side         a fork; all keys here share its prefix
//!           | 0x01 prefix, bits, side, side   a fork; some key leaves in its prefix, or ends there
//!           | 0x02                            the leaf of the one key here that is present
//!           | 0x02 node                       in a UBT above stems: the stem of the present keys
//! side      = hash (32) where no key goes, else a node
//! ```
//! Numbers are LEB128 in their shortest form; a prefix is a number of bits; bits are packed, most
//! significant first, zeros behind. *Keys here* are the keys claimed, and the neighbours, whose
//! path leads to the node. An exclusion neighbour is a leaf that stands where a claimed key would
//! stand were it present. Nothing can be left out, and nothing said in two ways: a hash where a key
//! goes, a node where none goes, a neighbour that shows nothing, bytes behind the end are all
//! refused.
//!
//! The hashes of EIP-7864 do not say what they are of: 64 bytes are two sides, or a stem, a zero
//! and what the stem holds. So `H(0^32 || X)` is an empty left side beside X, or the stem of zeros
//! that holds X; and whoever chooses keys can choose a stem that is, with its zero, the hash of
//! anything. Two rules keep a proof from reading one as the other, whatever the keys are:
//!
//! - a stem counts only with a leaf in it, opened over all its eight levels;
//! - two sides, of which the left one ends in a zero byte (as an empty one does) and the right one
//!   is not empty, count only where the proof opens a leaf on the right one. A neighbour may be
//!   there for that.
//!
//! *Why they suffice.* Say that a proof, on its way down from the root, reads 64 bytes wrongly for
//! the first time. If it takes a stem for two sides, the left one is the stem and its zero, and the
//! right one is what the stem holds, in which every way of eight levels ends at the hash of a value
//! (32 bytes, which is no hash of 64) or at nothing. By the second rule the proof opens a leaf
//! there; but above a leaf it reads a stem and eight levels, nine or more. If it takes two sides
//! for a stem, then by the first rule it opens eight levels of the right side, which is a tree,
//! down to the hash of a value. In the tree no such way is without a stem. There the proof, within
//! what it takes for a stem, reads two sides; by the second rule it opens a leaf on the right one,
//! fewer than eight levels below; but what that stem holds has its values eight levels below. Both
//! are collisions of the hash.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod verify;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use spinney_hash::{Digest, HashFunction};

use crate::error::{Hex, NotProven};
use crate::path::Step;

/// How many bytes of a UBT's key are its stem.
pub const STEM_BYTES: usize = 31;
/// How long the keys of a UBT are.
pub const UBT_KEY_BYTES: usize = 32;
/// The most bytes that a key of a PBT may have.
pub const PBT_KEY_BYTES_MAX: usize = 8_192;
/// Stands before what a leaf of a PBT hashes.
pub const PBT_LEAF: u8 = 0x00;
/// Stands before what a branch of a PBT hashes.
pub const PBT_BRANCH: u8 = 0x01;
/// The commitment to nothing.
pub const EMPTY: Digest = [0; 32];

/// The unified binary tree of EIP-7864, over raw keys of 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ubt {
    /// The hash of every node.
    pub hash: HashFunction,
}

/// The partitioned binary tree of EIP-8297, over raw keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pbt {
    /// The hash of every node.
    pub hash: HashFunction,
}

/// What tells the binary trees apart, for those who verify: [`Ubt`] and [`Pbt`].
pub trait BinaryRules {
    /// Whether the first 31 bytes of a key are a stem.
    const STEMS: bool;

    /// The hash of every node.
    fn hash(&self) -> HashFunction;
}

impl BinaryRules for Ubt {
    const STEMS: bool = true;

    fn hash(&self) -> HashFunction {
        self.hash
    }
}

impl BinaryRules for Pbt {
    const STEMS: bool = false;

    fn hash(&self) -> HashFunction {
        self.hash
    }
}

/// A value of a binary tree.
pub type Word = [u8; 32];

/// Keys, what is claimed of them, and a proof, as somebody sent them: nothing is known of them yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeysProof {
    /// The keys claimed, in any order; `None` for an absent one.
    pub entries: Vec<(Vec<u8>, Option<Word>)>,
    /// The proof's bytes: see the module's documentation.
    pub proof: Vec<u8>,
}

/// What a proof has shown of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifiedKeys {
    pub(crate) values: BTreeMap<Vec<u8>, Option<Word>>,
}

/// Why a proof does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProofError {
    /// The proof's bytes are none.
    Malformed {
        /// Where in the proof.
        at: usize,
        /// What is wrong there.
        what: &'static str,
    },
    /// The tree has no such key.
    Key {
        /// The key.
        key: Vec<u8>,
        /// What is wrong with it.
        what: &'static str,
    },
    /// No key is claimed.
    Nothing,
    /// What the proof shows is under another root.
    Root {
        /// The root that was to be shown.
        expected: Digest,
        /// The root of what is claimed.
        got: Digest,
    },
}

impl fmt::Display for ProofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed { at, what } => {
                write!(f, "the proof is malformed at byte {at}: {what}")
            }
            Self::Key { key, what } => write!(f, "key 0x{}: {what}", Hex(key)),
            Self::Nothing => f.write_str("no key is claimed, so the proof says nothing"),
            Self::Root { expected, got } => {
                write!(f, "the proof leads to root 0x{}, not to 0x{}", Hex(got), Hex(expected))
            }
        }
    }
}

impl core::error::Error for ProofError {}

impl KeysProof {
    /// Checks that `tree`, under `root`, holds what is claimed of every key. Needs no store; time
    /// and memory are in proportion to the keys and the proof.
    ///
    /// ```
    /// use spinney_hash::HashFunction::Sha256;
    /// use spinney_proof::binary::{KeysProof, Ubt};
    ///
    /// // A tree that holds nothing proves that by nothing.
    /// let sent = KeysProof { entries: vec![(vec![7; 32], None)], proof: vec![] };
    /// let verified = sent.verify(&Ubt { hash: Sha256 }, &[0; 32])?;
    /// assert_eq!(verified.get(&[7; 32])?, None);
    /// assert!(verified.get(&[8; 32]).is_err(), "nobody asked for it");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If no key is claimed, the tree has no such key, one is named twice, the proof is malformed,
    /// or the root is another.
    pub fn verify<S: BinaryRules>(
        &self,
        tree: &S,
        root: &Digest,
    ) -> Result<VerifiedKeys, ProofError> {
        let rules = Rules { stems: S::STEMS, hash: tree.hash() };
        let values = self.values(rules)?;
        verify::run(rules, root, &values, &self.proof, &mut |_, _| {})?;
        Ok(VerifiedKeys { values })
    }

    /// The nodes from the root down to a key, or to where it would be.
    ///
    /// # Errors
    /// Those of [`KeysProof::verify`].
    pub fn path<S: BinaryRules>(
        &self,
        tree: &S,
        root: &Digest,
        key: &[u8],
    ) -> Result<Vec<Step>, ProofError> {
        let rules = Rules { stems: S::STEMS, hash: tree.hash() };
        let mut steps = Vec::new();
        verify::run(rules, root, &self.values(rules)?, &self.proof, &mut |other, step| {
            steps.extend(verify::on_path(key, other, step));
        })?;
        // They came from the leaves up.
        steps.reverse();
        steps.sort_by_key(|step: &Step| step.depth);
        Ok(steps)
    }

    /// What is claimed, by keys.
    fn values(&self, rules: Rules) -> Result<BTreeMap<Vec<u8>, Option<Word>>, ProofError> {
        let mut values = BTreeMap::new();
        for (key, value) in &self.entries {
            let refused = |what| ProofError::Key { key: key.clone(), what };
            rules.check_key(key).map_err(refused)?;
            if values.insert(key.clone(), *value).is_some() {
                return Err(refused("it is claimed twice"));
            }
        }
        Ok(values)
    }
}

/// What a verifier knows of a tree.
#[derive(Clone, Copy, Debug)]
struct Rules {
    /// Whether the first 31 bytes of a key are a stem.
    stems: bool,
    hash: HashFunction,
}

impl Rules {
    fn check_key(self, key: &[u8]) -> Result<(), &'static str> {
        match (self.stems, key.len()) {
            (true, UBT_KEY_BYTES) | (false, 1..=PBT_KEY_BYTES_MAX) => Ok(()),
            _ => Err("the tree has no keys of this length"),
        }
    }
}

impl VerifiedKeys {
    /// The value of a key, or `None` where the tree does not hold it.
    ///
    /// # Errors
    /// If the proof was not made for the key.
    pub fn get(&self, key: &[u8]) -> Result<Option<&Word>, NotProven> {
        let value = self.values.get(key).ok_or_else(|| NotProven { key: key.to_vec() })?;
        Ok(value.as_ref())
    }

    /// The keys with their values, in order of keys.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&Word>)> {
        self.values.iter().map(|(key, value)| (&key[..], value.as_ref()))
    }
}
