//! How Ethereum's state lies in the binary trees and in the Verkle tree: keys, encodings, and a state
//! over each.
//!
//! [`ubt`] is the embedding of EIP-7864 as geth has it, [`pbt`] that of EIP-8297, [`verkle`] that of EIP-6800. What they share is
//! here: an account's basic data and the chunks of its code.

mod account;
mod kept;
mod layers;
pub mod pbt;
mod rules;
mod state;
mod stems;
mod tree;
pub mod ubt;
pub mod verkle;
mod whole;

pub use account::{BasicData, chunkify};
pub use kept::KeptTree;
pub use layers::Write;
pub(crate) use tree::{BackError, EmbeddedTree};

pub use state::{BinaryState, EmbedError, EmbedTimes, Embedding, PBT, UBT, VERKLE, VerkleState};
pub use whole::{Leaves, Whole};

/// A value of 32 bytes, as these trees keep it.
pub type Word = [u8; 32];

/// An address as these embeddings hash it: 12 zeros before it.
fn padded(address: &alloy_primitives::Address) -> Word {
    address.into_word().0
}
