//! Proofs over time: of the same keys at blocks that follow each other.
//!
//! A proof at one block has much in common with the one at the block before: most of its nodes, and
//! most bytes of those that changed. Here each node is said once, for as long as it holds.
//! Verifying answers with [`Period`]s: a value, and the first and the last block at which it was
//! that. What an [`AccountSpan`] says of a slot is checked again only where the account's storage
//! root changed: an equal root shows that nothing below it changed.
//!
//! - [`AccountSpan`]: an account and slots of it in a Merkle Patricia trie;
//! - [`KeysSpan`]: keys of a tree whose values are words, binary or Verkle.
//!
//! The proofs of the blocks are *frames*, each for one block or for some that follow each other:
//!
//! ```text
//! frames  = frame*
//! frame   = blocks for which it holds | number of items | item*
//! item    = 0                                  the one at this place of the frame before
//!         | 1 | patches | (gap | length | bytes)*   the same with other bytes in places
//!         | 2 + length | bytes                 this one
//! ```
//!
//! Numbers are LEB128 in their shortest form. A gap is a number of bytes that stay as they were. An
//! item is patched where that takes fewer bytes, and frames that follow each other differ: what is
//! said in any other way than [`FramesWriter`] says it is refused.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod account;
mod error;
mod frames;
mod keys;
mod period;

pub use account::{AccountSpan, AccountSpanWriter, VerifiedAccountSpan};
pub use error::{BadFrame, SpanError};
pub use frames::{Frame, Frames, FramesWriter};
pub use keys::{KeysSpan, KeysSpanWriter, VerifiedKeysSpan};
pub use period::Period;
