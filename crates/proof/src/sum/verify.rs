//! Verifying many proofs at once: all of them climb side by side, so that hashing fills its lanes.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use spinney_hash::{SumClimb, sha256_equal};

use super::leaves::LeafHashes;
use super::{DEPTH, Leaf, Profile, Proof, ProofError, SumNode};

/// What a proof is to show: that a key has a leaf, or that it has none.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The key.
    pub key: &'a [u8; 32],
    /// Its leaf; `None` claims that it has none.
    pub leaf: Option<&'a Leaf>,
    /// The proof.
    pub proof: &'a Proof,
}

/// The first claim of many that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimError {
    /// Which one it is, from 0.
    pub index: usize,
    /// Why it does not hold.
    pub source: ProofError,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "proof {}: {}", self.index, self.source)
    }
}

impl core::error::Error for ClaimError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Verifies that all claims hold in the tree of a root. On full lanes a proof costs a third of what
/// it costs alone.
///
/// ```
/// use spinney_proof::sum::{Claim, Leaf, Profile, Proof, verify_many};
///
/// let leaf = Leaf { value: b"five".into(), sum: 5 };
/// let proof = Proof::decode(&[&[0; 2][..], &[0xff; 32]].concat())?;
/// let root = proof.root(Profile::Compatible, &[1; 32], &leaf)?;
/// let claims = [Claim { key: &[1; 32], leaf: Some(&leaf), proof: &proof }];
/// verify_many(Profile::Compatible, root, &claims)?;
/// let wrong = [Claim { leaf: None, ..claims[0] }];
/// assert!(verify_many(Profile::Compatible, root, &wrong).is_err());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// The first claim that does not hold.
pub fn verify_many(
    profile: Profile,
    root: SumNode,
    claims: &[Claim<'_>],
) -> Result<(), ClaimError> {
    let empty = |claim: &Claim<'_>| claim.leaf.is_some_and(Leaf::is_empty);
    if let Some(index) = claims.iter().position(empty) {
        return Err(ClaimError { index, source: ProofError::EmptyLeaf });
    }
    for (index, found) in roots(profile, claims).into_iter().enumerate() {
        let outcome = found.and_then(|found| match found == root {
            true => Ok(()),
            false => Err(ProofError::Root),
        });
        outcome.map_err(|source| ClaimError { index, source })?;
    }
    Ok(())
}

/// The root that each proof leads to.
fn roots(profile: Profile, claims: &[Claim<'_>]) -> Vec<Result<SumNode, ProofError>> {
    let mut rises = leaves(profile, claims);
    let mut overflows: Vec<Option<usize>> = vec![None; claims.len()];
    let mut siblings: Vec<_> = claims.iter().map(|claim| claim.proof.found()).collect();
    let (mut bytes, mut hashes) = (Vec::new(), Vec::new());
    loop {
        let next = siblings.iter_mut().zip(&overflows);
        let met: Vec<Option<(u16, SumNode)>> =
            next.map(|(next, over)| if over.is_none() { next.next() } else { None }).collect();
        for (rise, met) in rises.iter_mut().zip(&met) {
            rise.to = met.map_or(0, |(depth, _)| depth);
        }
        profile.climb(&mut rises);
        if met.iter().all(Option::is_none) {
            break;
        }
        bytes.clear();
        for ((rise, met), overflow) in rises.iter_mut().zip(&met).zip(&mut overflows) {
            let Some((_, sibling)) = *met else { continue };
            // It hangs below the root: at depth 1 or deeper.
            rise.from = rise.from.saturating_sub(1);
            let here = SumNode { hash: rise.hash, sum: rise.sum };
            let right = super::goes_right(&rise.path, rise.from.into());
            let (left, right) = if right { (sibling, here) } else { (here, sibling) };
            profile.put_branch((&left.hash, left.sum), (&right.hash, right.sum), &mut bytes);
            match rise.sum.checked_add(sibling.sum) {
                Some(sum) => rise.sum = sum,
                None => *overflow = Some(rise.from.into()),
            }
        }
        let joined = rises.iter_mut().zip(&met).filter(|(_, met)| met.is_some());
        hashes.resize(met.iter().flatten().count(), [0; 32]);
        sha256_equal(&bytes, profile.branch_bytes(), &mut hashes);
        for ((rise, _), hash) in joined.zip(&hashes) {
            rise.hash = *hash;
        }
    }
    let outcome = |(overflow, rise): (Option<usize>, &SumClimb)| match overflow {
        Some(depth) => Err(ProofError::Overflow { depth }),
        None => Ok(SumNode { hash: rise.hash, sum: rise.sum }),
    };
    overflows.into_iter().zip(&rises).map(outcome).collect()
}

/// The leaves claimed, at depth 256.
fn leaves(profile: Profile, claims: &[Claim<'_>]) -> Vec<SumClimb> {
    let nothing = Leaf::default();
    let mut hashes = LeafHashes::default();
    for claim in claims {
        let leaf = claim.leaf.unwrap_or(&nothing);
        hashes.push(profile, &leaf.value, leaf.sum);
    }
    let rise = |(claim, hash): (&Claim<'_>, &[u8; 32])| {
        let (sum, at) = (claim.leaf.map_or(0, |leaf| leaf.sum), DEPTH as u16);
        SumClimb { hash: *hash, sum, path: *claim.key, from: at, to: at }
    };
    claims.iter().zip(hashes.finish()).map(rise).collect()
}
