//! Ethereum's Merkle Patricia trie (Yellow Paper, appendix D): its nodes, its proofs, and tries of
//! which only some nodes are known ([`partial`]) or compared ([`differences`]).
//!
//! Verifying allocates no more than a small multiple of the proof,
//! and follows foreign nodes in a loop. A proof that somebody sent ([`Proof`], [`RangeProof`],
//! [`AccountProof`]) answers nothing; what its `verify` returns does.
//!
//! | proven | verify with |
//! |---|---|
//! | keys, present or absent, one or many | [`Proof::verify`] |
//! | all entries of a range | [`RangeProof::verify`] |
//! | an account and slots (EIP-1186) | [`AccountProof::verify`] |
//!
//! A proof is the RLP of nodes, root first. A node that is embedded in its parent is not listed; a
//! proof that lists it is accepted. A proof against the empty trie has no node, or the single node
//! `0x80`. RLP, hex prefixes and shapes are taken in their canonical form only, and a node on the
//! path of no key is refused: a proof cannot be changed and still hold, but for the order of its
//! nodes.
//!
//! ```
//! use spinney_proof::mpt::Proof;
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
pub mod differences;
mod error;
mod keys;
mod node;
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "32 bytes, of which the length is known"
)]
mod node_ref;
mod nodes;
pub mod partial;
mod range;
#[expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "it writes; what it reads denies them itself"
)]
mod rlp;
mod value;
#[expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "it reads nodes of our own"
)]
mod writer;

pub use account::{AccountFields, AccountProof, SlotProof, VerifiedAccount};
pub(crate) use account::{account_fields, slot_word};
pub use error::ProofError;
pub use keys::{Proof, VerifiedProof};
pub use node::leaf_value;
pub use node_ref::NodeRef;
pub use range::{RangeProof, VerifiedRange};
pub use value::{
    EMPTY_CODE_HASH, EMPTY_ROOT, account_value, decode_account_value, decode_slot_value, slot_value,
};
pub use writer::NodeWriter;
