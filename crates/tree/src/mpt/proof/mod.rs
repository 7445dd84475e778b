//! Proofs of a Merkle Patricia trie: made from a tree, verified by anyone.
//!
//! Verifying needs neither a tree nor a store, allocates no more than a small multiple of the proof,
//! and follows foreign nodes in a loop. A proof that somebody sent ([`Proof`], [`RangeProof`],
//! [`AccountProof`]) answers nothing; what its `verify` returns does.
//!
//! | to prove | make with | verify with |
//! |---|---|---|
//! | keys, present or absent, one or many | [`Tree::prove`](crate::Tree::prove) | [`Proof::verify`] |
//! | all entries of a range | [`Tree::prove_range`](crate::Tree::prove_range) | [`RangeProof::verify`] |
//! | an account and slots (EIP-1186) | [`Tree::prove_accounts`](crate::Tree::prove_accounts) | [`AccountProof::verify`] |
//!
//! A proof is the RLP of nodes, root first. A node that is embedded in its parent is not listed; a
//! proof that lists it is accepted. A proof against the empty trie has no node, or the single node
//! `0x80`. RLP, hex prefixes and shapes are taken in their canonical form only, and a node on the path
//! of no key is refused: a proof cannot be changed and still hold, but for the order of its nodes.
//!
//! ```
//! use spinney_tree::mpt::proof::Proof;
//!
//! // A root that is trusted, and a node that somebody sent: a trie of one leaf.
//! let node = [&[0xe1, 0x82, 0x20, 0x00, 0x9d][..], b"v_______________________0___0"].concat();
//! let root = spinney_hash::keccak256(&node);
//!
//! let verified = Proof::new(vec![node]).verify(&root, &[[0x00], [0xf0]])?;
//! assert_eq!(verified.get(&[0x00])?, Some(&b"v_______________________0___0"[..]));
//! assert_eq!(verified.get(&[0xf0])?, None);
//! assert!(verified.get(&[0x77]).is_err(), "nobody asked for it");
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod account;
mod build;
mod error;
mod keys;
#[expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "it reads a tree and no foreign bytes"
)]
mod make;
pub(super) mod node;
mod nodes;
mod range;

pub use account::{AccountFields, AccountProof, SlotProof, VerifiedAccount};
pub use error::{NotProven, ProofError};
pub use keys::{Proof, VerifiedProof};
pub use range::{RangeProof, VerifiedRange};
