#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]
use alloy_primitives::{B256, U256, b256};

/// The Keccak-256 digest of no code.
pub const EMPTY_CODE_HASH: B256 =
    b256!("c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470");

/// What Ethereum knows of an account, its storage apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Transactions sent, or contracts made.
    pub nonce: u64,
    /// Balance in wei.
    pub balance: U256,
    /// The Keccak-256 digest of the code, in every tree.
    pub code_hash: B256,
}

impl Account {
    /// An account with nothing in it; it exists all the same once it is written.
    pub const EMPTY: Self = Self { nonce: 0, balance: U256::ZERO, code_hash: EMPTY_CODE_HASH };

    /// Whether nonce, balance and code are all empty (EIP-161).
    pub fn is_empty(&self) -> bool {
        *self == Self::EMPTY
    }
}

impl Default for Account {
    fn default() -> Self {
        Self::EMPTY
    }
}
