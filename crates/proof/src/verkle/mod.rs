//! The Verkle tree of EIP-6800: proofs of many keys, present or absent, in the forms of go-verkle
//! and rust-verkle. Behind the feature `verkle`, which needs `std`: its arithmetic runs on all
//! cores.
//!
//! A proof opens every commitment on the paths of the keys at the places that the paths take, all
//! by one [multiproof](spinney_ipa::Multiproof). What it opens to follows from the keys, their
//! values and the commitments below, so those and a byte a stem are all that it holds.
//!
//! Nodes have *paths*: an internal node the bytes that lead to it, a leaf as many bytes of its stem
//! as its parent has and one more, and its halves those and a 2 or a 3. Commitments come in order
//! of paths, openings in order of (path, place).
//!
//! The bytes of the [`Proof`] have one form, and a verifier takes no other: scalars and points are
//! canonical, statuses have no unknown bits, and there are as many stems and commitments as are
//! used.
//!
//! **A limit of the format**: nothing in it says whether a commitment is that of a leaf or of an
//! internal node, so a present stem can be shown absent one digit below its leaf.
//! [`Proof::unsure_stems`] names the stems of a proof for which that is possible.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod diff;
mod forms;
mod keys;
mod node;
mod post;
mod shape;
mod verify;

pub use diff::{StateDiff, StemDiff, SuffixDiff};
pub use forms::{Malformed, Proof};
pub use keys::{KeysFault, verify_keys};
pub use node::{
    LEAF_HALVES, LEAF_MARK, LEAF_STEM, STEM_BYTES, Status, half, limbs, places, stem_scalar, terms,
};
pub use shape::ProofFault;
pub use verify::Verified;
