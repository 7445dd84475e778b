//! Digests of many inputs in one call: Keccak-256, SHA-256 and BLAKE3.
//!
//! A level of a tree offers thousands of independent inputs; hashing them together lets a core fill
//! all of its lanes. Callers lay the inputs end to end in one buffer: of one length for the
//! `_equal` functions, of any lengths, as [`Inputs`], for the `_many` functions. Nothing here
//! allocates, starts a thread, or reads the environment.
//!
//! ```
//! use spinney_hash::{Inputs, keccak256, keccak256_many, sha256, sha256_equal};
//!
//! let mut digests = [[0; 32]; 2];
//! keccak256_many(Inputs::new(b"doedog", &[3, 6]), &mut digests);
//! assert_eq!(digests, [keccak256(b"doe"), keccak256(b"dog")]);
//!
//! let children = [digests[0], digests[1], digests[1], digests[0]];
//! sha256_equal(children.as_flattened(), 64, &mut digests);
//! assert_eq!(digests[1], sha256(children[2..].as_flattened()));
//! ```
//!
//! Which kernels run is found out once, at run time ([`Backend::detect`]), and can be said by
//! [`set_backend`]; digests do not depend on it.
//!
//! The feature `std`, which is a default, asks the CPU what it can do. Without it the crate needs
//! `core` and `alloc` only, and runs the kernels of the CPU features that it is built for.
//!
//! Where things are: `in_use.rs` chooses among the backends of `backend.rs`; `lanes.rs` fills lanes
//! with inputs; each hash has a folder with its public functions in `mod.rs` (SHA-256 in
//! `digest.rs`), its rounds written once in `rounds.rs`, and a file for each backend;
//! `x86/groups.rs` moves short inputs of one length in and out beside the rounds; `sha256/climb.rs`
//! has the chains of the Merkle-sum tree.
#![cfg_attr(not(any(feature = "std", test)), no_std)]
#![deny(unsafe_code)]

extern crate alloc;

mod backend;
mod blake3;
mod dispatch;
mod function;
mod in_use;
mod inputs;
mod keccak;
mod lanes;
mod prefetch;
mod sha256;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use backend::{Backend, BackendError};
pub use blake3::{blake3, blake3_equal, blake3_many};
pub use function::HashFunction;
pub use in_use::{Backends, backend, backends, set_backend};
pub use inputs::{Digest, Inputs};
pub use keccak::{keccak256, keccak256_equal, keccak256_many};
pub use prefetch::prefetch;
pub use sha256::{SumClimb, sha256, sha256_equal, sha256_many, sha256_sum_climb};
