//! Proofs of keys in the form that all trees of words have.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;

use spinney_ipa::Crs;

use super::diff::StateDiff;
use super::forms::{Malformed, Proof};
use super::shape::ProofFault;
use crate::binary::{self, KeysProof, VerifiedKeys};

/// Why a proof of keys is not believed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeysFault {
    /// In a binary tree, or a key that a Verkle tree has not.
    Binary(binary::ProofError),
    /// In a Verkle tree: its bytes are none.
    Malformed(Malformed),
    /// In a Verkle tree: it does not hold.
    Verkle(ProofFault),
}

impl From<binary::ProofError> for KeysFault {
    fn from(error: binary::ProofError) -> Self {
        Self::Binary(error)
    }
}

impl From<Malformed> for KeysFault {
    fn from(error: Malformed) -> Self {
        Self::Malformed(error)
    }
}

impl From<ProofFault> for KeysFault {
    fn from(error: ProofFault) -> Self {
        Self::Verkle(error)
    }
}

impl fmt::Display for KeysFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Binary(error) => error.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Verkle(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for KeysFault {}

/// Checks that a tree with this root holds what is claimed of every key. The absence of
/// [`Proof::unsure_stems`] is not shown by it.
///
/// # Errors
/// If the tree has no such key, one is claimed twice, the proof is malformed, or it shows anything
/// else.
pub fn verify_keys(
    crs: &Crs,
    root: &[u8; 32],
    sent: &KeysProof,
) -> Result<VerifiedKeys, KeysFault> {
    let mut values = BTreeMap::new();
    let mut claimed = Vec::with_capacity(sent.entries.len());
    for (key, value) in &sent.entries {
        let refused = |what| binary::ProofError::Key { key: key.clone(), what };
        let key: [u8; 32] =
            key[..].try_into().map_err(|_| refused("the tree has no keys of this length"))?;
        if values.insert(key.to_vec(), *value).is_some() {
            return Err(refused("it is claimed twice").into());
        }
        claimed.push((key, *value));
    }
    let diff = StateDiff::of(claimed);
    Proof::from_bytes(&sent.proof)?.verify(crs, root, &diff)?;
    Ok(VerifiedKeys { values })
}
