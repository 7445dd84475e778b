//! How Ethereum's state lies in the binary trees and in the Verkle tree: the keys of an account, of
//! its slots and of its code, and what the leaves of its header say.
//!
//! [`ubt`] is the embedding of EIP-7864 as geth has it, [`pbt`] that of EIP-8297, and `verkle`,
//! with the feature of that name, that of EIP-6800. Whoever asks for an account computes its keys
//! here, and does not have to believe that a proof is about them.

mod account;
pub mod pbt;
pub mod ubt;
#[cfg(feature = "verkle")]
pub mod verkle;

pub use account::{BasicData, Header, Odd};

use crate::binary::Word;

/// An account's address.
pub type Address = [u8; 20];

/// An address as these embeddings hash it: 12 zeros before it.
fn padded(address: &Address) -> Word {
    let mut word = [0; 32];
    word[12..].copy_from_slice(address);
    word
}
