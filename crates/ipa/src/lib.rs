//! Banderwagon commitments, inner product arguments and multiproofs for Verkle trees (EIP-6800).
#![deny(unsafe_code)]

mod crs;
mod field;
mod group;
mod kernel;
mod msm;
mod proof;
mod scalar;
mod sums;

pub use crs::{Crs, Delta, TableOptions, VECTOR_LEN};
pub use field::{Fq, Fr, NotCanonical};
pub use group::{DecodeError, Element};
pub use kernel::Kernel;
pub use msm::multiply_sum;
pub use proof::{
    INNER_PRODUCT_PROOF_BYTES, InnerProductProof, MULTIPROOF_BYTES, Multiproof, Opening,
    ProofError, ProverOpening, Transcript,
};
pub use scalar::SignedScalar;
