//! Why a state in a binary tree or a Verkle tree refuses or fails.

use alloy_primitives::{Address, B256, U256};
use spinney_tree::{StoreError, TreeError};

/// Why a state refused or failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// A balance has more than the 128 bits that the tree has for it.
    #[error("account {address}: a balance of {balance}, where the tree holds less than 2^128")]
    Balance {
        /// The account.
        address: Address,
        /// The balance in wei.
        balance: U256,
    },
    /// Code is longer than the tree can say.
    #[error("account {address}: {len} bytes of code, where the tree holds less than 2^32")]
    CodeSize {
        /// The account.
        address: Address,
        /// Its length in bytes.
        len: usize,
    },
    /// Code was given that is not behind its hash.
    #[error("account {address}: code of hash {found} where {expected} is named")]
    CodeHash {
        /// The account.
        address: Address,
        /// The hash named.
        expected: B256,
        /// The hash of the bytes.
        found: B256,
    },
    /// The tree holds code, and only its hash is known.
    #[error("account {address}: the code behind {hash} is not known, and this tree holds code")]
    CodeUnknown {
        /// The account.
        address: Address,
        /// The code hash.
        hash: B256,
    },
    /// What a tree holds under a key is no value of a state.
    #[error("the store holds no value of a state under 0x{key}: it is damaged")]
    Malformed {
        /// The key.
        key: String,
    },
    /// A tree refused or failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl EmbedError {
    pub(super) fn malformed(key: &[u8]) -> Self {
        Self::Malformed { key: alloy_primitives::hex::encode(key) }
    }
}

impl From<StoreError> for EmbedError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}
