//! Banderwagon commitments, inner product arguments and multiproofs for Verkle trees (EIP-6800).
//!
//! A node of a Verkle tree commits to 256 values with one group element. This crate has the group,
//! the commitments with their updates, and the proofs that open many commitments at once; the tree
//! itself is elsewhere. Bytes, hashes and proofs are those of go-verkle and rust-verkle.
//!
//! ```
//! use spinney_ipa::{Crs, Delta, Element, Fr, Multiproof, Opening, ProverOpening, SignedScalar};
//! use spinney_ipa::Transcript;
//!
//! // The points to commit with. A tree that is written to wants `Crs::with_table` instead.
//! let crs = Crs::new();
//!
//! // Two nodes; a value of each changes, and both follow in one batch.
//! let mut values = [[Fr::ZERO; 256]; 2];
//! let mut nodes = [Element::IDENTITY; 2];
//! let mut deltas = Vec::new();
//! for (target, new) in [(0, Fr::from(5)), (1, Fr::from(6))] {
//!     let old = std::mem::replace(&mut values[target][7], new);
//!     let amount = SignedScalar::between(old.to_limbs(), new.to_limbs());
//!     deltas.push(Delta { target: target as u32, basis: 7, amount });
//! }
//! crs.add_deltas(&mut nodes, &deltas);
//! assert_eq!(nodes[1], crs.commit(&values[1]));
//!
//! // What their parents commit to, for one inversion.
//! let in_parents = Element::normalize_and_map_many(&mut nodes);
//! assert_eq!(in_parents[0], nodes[0].map_to_field());
//!
//! // One proof for both.
//! let known =
//!     [0, 1].map(|i| ProverOpening { commitment: nodes[i], values: &values[i], index: 7 });
//! let proof = Multiproof::prove(&crs, &mut Transcript::new(b"vt"), &known)?;
//! let told = [(0, 5), (1, 6)]
//!     .map(|(i, value)| Opening { commitment: nodes[i], index: 7, value: Fr::from(value) });
//! proof.verify(&crs, &mut Transcript::new(b"vt"), &told)?;
//! # Ok::<(), spinney_ipa::ProofError>(())
//! ```
//!
//! # Invariants
//! - An [`Element`] is in the prime-order group: whatever decodes from foreign bytes was checked to
//!   be. [`Element::from_uncompressed_trusted`] is the one way around the check.
//! - Each element and each scalar has one encoding, and decoders accept no other bytes.
//! - No bytes make this crate panic, or allocate more than in proportion to their length.
//! - All kernels give the same results to the byte, with a table or without, on any thread count.
//!
//! # Not constant-time
//! Everything here takes time that depends on the data. State trees are public; do not use this
//! crate with secrets.
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
