//! Proofs of authenticated trees, checked by anyone: no engine, no store, no `std`.
//!
//! Whoever trusts a root checks here what somebody else says of the tree below it. What was sent is of
//! one type and answers nothing; its `verify` returns another type, which answers.
//!
//! | tree | what was sent | what answers |
//! |---|---|---|
//! | Merkle Patricia trie ([`mpt`]) | [`mpt::Proof`], [`mpt::RangeProof`], [`mpt::AccountProof`] | [`mpt::VerifiedProof`], [`mpt::VerifiedRange`], [`mpt::VerifiedAccount`] |
//!
//! The crate needs `alloc`. It does not panic on bytes that others made, follows them in loops, and takes
//! memory in proportion to them. The feature `std`, a default, only makes it faster.
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

pub mod digits;
mod error;
pub mod mpt;

pub use error::NotProven;
