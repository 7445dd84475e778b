//! Proofs of authenticated trees, checked by anyone: no engine, no store, no `std`.
//!
//! Whoever trusts a root checks here what somebody else says of the tree below it. What was sent is
//! of one type and answers nothing; its `verify` returns another type, which answers.
//!
//! - Merkle Patricia trie ([`mpt`]): [`mpt::Proof`], [`mpt::RangeProof`] and [`mpt::AccountProof`]
//!   become [`mpt::VerifiedProof`], [`mpt::VerifiedRange`] and [`mpt::VerifiedAccount`];
//! - binary trees ([`binary`]): [`binary::KeysProof`] becomes [`binary::VerifiedKeys`];
//! - Merkle-sum tree ([`sum`]): [`sum::Proof`] becomes [`sum::Included`] or [`sum::Excluded`];
//! - Verkle tree (`verkle`, with the feature of that name): `verkle::Proof` becomes
//!   `verkle::Verified`.
//!
//! [`span`] proves the same keys at many blocks that follow each other, in one proof.
//!
//! [`embed`] says under which keys an account, its slots and its code lie in the binary trees and
//! the Verkle tree. Each kind of proof has a `path`: the nodes that it shows from the root down to
//! a key, for those who draw or count them.
//!
//! The crate needs `alloc`. It does not panic on bytes that others made, follows them in loops, and
//! takes memory in proportion to them. The feature `std`, a default, only makes it faster.
//!
//! ```
//! use spinney_proof::mpt::Proof;
//!
//! // A root that is trusted, and a node that somebody sent: a trie of one leaf.
//! let node = [&[0xe1, 0x82, 0x20, 0x00, 0x9d][..], b"v_______________________0___0"].concat();
//! let root = spinney_hash::keccak256(&node);
//! let verified = Proof::new(vec![node]).verify(&root, &[[0x00], [0xf0]])?;
//! assert_eq!(verified.get(&[0xf0])?, None);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod binary;
pub mod digits;
pub mod embed;
mod error;
pub mod mpt;
mod path;
pub mod span;
pub mod sum;
#[cfg(feature = "verkle")]
pub mod verkle;

pub use error::NotProven;
pub use path::{Step, StepKind};
