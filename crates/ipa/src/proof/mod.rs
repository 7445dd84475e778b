//! Openings of committed vectors.

mod bytes;
mod domain;
mod inner_product;
mod multiproof;
mod transcript;

pub use inner_product::{INNER_PRODUCT_PROOF_BYTES, InnerProductProof};
pub use multiproof::{MULTIPROOF_BYTES, Multiproof, Opening, ProverOpening};
pub use transcript::Transcript;

use crate::group::DecodeError;

/// Why a proof is not made, not read or not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// The openings do not follow from the commitments and the proof.
    #[error("proof does not hold")]
    DoesNotHold,
    /// A proof has exactly one length.
    #[error("proof of {got} bytes, expected {expected}")]
    Length {
        /// Bytes there are.
        got: usize,
        /// Bytes of a proof.
        expected: usize,
    },
    /// A proof of no openings says nothing.
    #[error("no openings to prove")]
    NoOpenings,
    /// Bytes that stand for a group element are none.
    #[error("point {index} of the proof: {error}")]
    Point {
        /// Which point, in the order of the bytes.
        index: usize,
        /// What is wrong with it.
        error: DecodeError,
    },
    /// The last scalar is not below the group order.
    #[error("scalar of the proof is not below the group order")]
    Scalar,
}
