//! How Ethereum's state lies in the binary trees and in the Verkle tree: keys, encodings, and a
//! state over each.
//!
//! [`ubt`] is the embedding of EIP-7864 as geth has it, [`pbt`] that of EIP-8297, [`verkle`] that
//! of EIP-6800. What they share is here: an account's basic data and the chunks of its code.

mod account;
mod embedding;
mod error;
mod kept;
mod layers;
mod rules;
mod state;
mod stems;
mod tree;
pub mod verkle;
mod whole;

pub use account::chunkify;
pub use embedding::{Embedding, Leaves, PBT, UBT, VERKLE};
pub use error::EmbedError;
pub use kept::KeptTree;
pub use layers::Write;
pub(crate) use tree::{BackError, EmbeddedTree};

pub use spinney_proof::embed::{BasicData, pbt, ubt};
pub use state::{BinaryState, EmbedTimes, VerkleState};
pub use whole::Whole;

/// A value of 32 bytes, as these trees keep it.
pub type Word = [u8; 32];
