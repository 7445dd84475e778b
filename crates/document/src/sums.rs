//! Documents of the leaves of sum trees.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{B256, Bytes};
use serde::{Deserialize, Serialize};
use spinney_state::TreeName;
use spinney_tree::sum::{Leaf, Profile, Proof, Proven, SumNode};

/// A proof of one key of a sum tree. An absent key has no value and the sum 0. Sums are decimal
/// numbers in strings: not all that read JSON keep 64 bits.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(clippy::exhaustive_structs, reason = "these are the members of the object")]
pub struct SumDocument {
    /// The tree's name.
    pub tree: String,
    /// The hash of the root that it was made for.
    pub root: B256,
    /// The sum of all leaves under that root.
    pub root_sum: String,
    /// The key.
    pub key: B256,
    /// The value of its leaf.
    pub value: Bytes,
    /// The sum of its leaf.
    pub sum: String,
    /// What shows it.
    pub proof: Bytes,
}

/// What a document claims of a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SumClaim {
    /// How its tree hashes.
    pub profile: Profile,
    /// The root that it was made for.
    pub root: SumNode,
    /// The key.
    pub key: [u8; 32],
    /// Its leaf, if it has one.
    pub leaf: Option<Leaf>,
    /// What shows it.
    pub proof: Proof,
}

/// Why a document is none of a sum tree.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SumDocumentError {
    /// There is no such sum tree.
    #[error("there is no sum tree {0}")]
    Tree(String),
    /// A sum is no number, or too large.
    #[error("its {what} {text:.40?} is no decimal number below 2^64")]
    Sum {
        /// Which sum.
        what: &'static str,
        /// What it has there.
        text: String,
    },
    /// Its proof is no bytes of one.
    #[error("its proof: {0}")]
    Proof(#[from] spinney_tree::sum::ProofError),
}

/// The sum tree of a name.
fn profile(tree: &str) -> Option<Profile> {
    match tree.parse() {
        Ok(TreeName::Sum(profile)) => Some(profile),
        _ => None,
    }
}

impl SumDocument {
    /// The document of what a tree proves of a key under its root.
    pub fn new(profile: Profile, root: SumNode, key: &[u8; 32], proven: &Proven) -> Self {
        let leaf = proven.leaf.clone().unwrap_or_default();
        Self {
            tree: TreeName::Sum(profile).to_string(),
            root: root.hash.into(),
            root_sum: root.sum.to_string(),
            key: key.into(),
            value: leaf.value.into(),
            sum: leaf.sum.to_string(),
            proof: proven.proof.encode().into(),
        }
    }

    /// Whether there is a sum tree of this name: a document that names it is one of these.
    pub fn is_of(tree: &str) -> bool {
        profile(tree).is_some()
    }

    /// What it claims. Nothing of it is checked yet.
    ///
    /// # Errors
    /// If it names no sum tree, or what it has as numbers or as a proof is none.
    pub fn claim(&self) -> Result<SumClaim, SumDocumentError> {
        let Self { tree, root, root_sum, key, value, sum, proof } = self;
        let profile = profile(tree).ok_or_else(|| SumDocumentError::Tree(tree.clone()))?;
        let number = |what, text: &String| {
            text.parse().map_err(|_| SumDocumentError::Sum { what, text: text.clone() })
        };
        let root = SumNode { hash: root.0, sum: number("root_sum", root_sum)? };
        let leaf = Leaf { value: value.to_vec(), sum: number("sum", sum)? };
        let proof = Proof::decode(proof)?;
        let leaf = (!leaf.is_empty()).then_some(leaf);
        Ok(SumClaim { profile, root, key: key.0, leaf, proof })
    }
}
