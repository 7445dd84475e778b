//! What a proof shows once it is verified.

use std::fmt;

use alloy_primitives::{Address, B256, Bytes, U256};
use serde::{Serialize, Serializer};
use spinney_proof::span::Period;
use spinney_state::Account;
use spinney_tree::mpt::proof::AccountFields;

/// One thing that a proof shows. Displayed it is a line for people, serialised an object for
/// programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Fact {
    /// What a Merkle Patricia trie of raw keys has under one of them.
    Key {
        /// The key.
        key: Bytes,
        /// What the key is the digest of, where that was said, and is so.
        preimage: Option<Bytes>,
        /// Its value, if it has one.
        value: Option<Bytes>,
    },
    /// What a tree of words has under a key.
    Word {
        /// The key.
        key: Bytes,
        /// The blocks, of a proof over time.
        #[serde(flatten)]
        blocks: Option<Blocks>,
        /// Its value, if it has one.
        value: Option<B256>,
        /// What the block of a witness makes of it, if anything.
        #[serde(skip_serializing_if = "Option::is_none")]
        becomes: Option<Option<B256>>,
    },
    /// An account.
    Account {
        /// Its address.
        address: Address,
        /// The blocks, of a proof over time.
        #[serde(flatten)]
        blocks: Option<Blocks>,
        /// What it is, if it is there.
        account: Option<AccountFact>,
    },
    /// A slot of the account.
    Slot {
        /// The slot.
        slot: B256,
        /// The blocks, of a proof over time.
        #[serde(flatten)]
        blocks: Option<Blocks>,
        /// Its value; none in a tree that tells a slot that was never written.
        value: Option<B256>,
    },
    /// A chunk of the account's code.
    Chunk {
        /// Its index.
        chunk: u32,
        /// What it is, if it is there.
        value: Option<B256>,
    },
    /// The root of the tree after the block of a witness.
    RootAfter {
        /// That root.
        root_after: B256,
    },
}

/// An account, as the tree says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AccountFact {
    /// Its nonce.
    pub nonce: u64,
    /// Its balance in wei.
    #[serde(serialize_with = "decimal")]
    pub balance: U256,
    /// The root of its storage, in a Merkle Patricia trie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage_hash: Option<B256>,
    /// Bytes of its code, in the other trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_size: Option<u32>,
    /// The Keccak-256 digest of its code.
    pub code_hash: B256,
}

/// Not all that read JSON keep 256 bits.
fn decimal<S: Serializer>(number: &U256, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Blocks that follow each other, through all of which something is so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(clippy::exhaustive_structs, reason = "these are its two ends")]
pub struct Blocks {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
}

impl<T> From<&Period<T>> for Blocks {
    fn from(period: &Period<T>) -> Self {
        Self { from: period.first, to: period.last }
    }
}

impl From<&AccountFields> for AccountFact {
    fn from(fields: &AccountFields) -> Self {
        Self {
            nonce: fields.nonce,
            balance: U256::from_be_bytes(fields.balance),
            storage_hash: Some(fields.storage_hash.into()),
            code_size: None,
            code_hash: fields.code_hash.into(),
        }
    }
}

impl From<(Account, u32)> for AccountFact {
    fn from((account, code_size): (Account, u32)) -> Self {
        let Account { nonce, balance, code_hash, .. } = account;
        Self { nonce, balance, storage_hash: None, code_size: Some(code_size), code_hash }
    }
}

impl fmt::Display for AccountFact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nonce {}, balance {}", self.nonce, self.balance)?;
        if let Some(storage_hash) = self.storage_hash {
            write!(f, ", storage hash {storage_hash}")?;
        }
        if let Some(code_size) = self.code_size {
            write!(f, ", code size {code_size}")?;
        }
        write!(f, ", code hash {}", self.code_hash)
    }
}

/// What is there, or that it is absent.
struct OrAbsent<T>(Option<T>);

impl<T: fmt::Display> fmt::Display for OrAbsent<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(there) => there.fmt(f),
            None => f.write_str("absent"),
        }
    }
}

/// `, block 7` or `, blocks 1 to 7`; nothing of a proof of one state.
struct AtBlocks(Option<Blocks>);

impl fmt::Display for AtBlocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(Blocks { from, to }) if from == to => write!(f, ", block {from}"),
            Some(Blocks { from, to }) => write!(f, ", blocks {from} to {to}"),
        }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { key, preimage, value } => {
                write!(f, "{key}")?;
                if let Some(preimage) = preimage {
                    write!(f, " (of {preimage})")?;
                }
                write!(f, ": {}", OrAbsent(value.as_ref()))
            }
            Self::Word { key, blocks, value, becomes } => {
                write!(f, "{key}{}: {}", AtBlocks(*blocks), OrAbsent(*value))?;
                becomes.map_or(Ok(()), |word| write!(f, ", becomes {}", OrAbsent(word)))
            }
            Self::Account { address, blocks, account } => {
                write!(f, "account {address}{}: {}", AtBlocks(*blocks), OrAbsent(*account))
            }
            Self::Slot { slot, blocks, value } => {
                let number = value.map(|word| format!("{:#x}", U256::from_be_bytes(word.0)));
                write!(f, "slot {slot}{}: {}", AtBlocks(*blocks), OrAbsent(number))
            }
            Self::Chunk { chunk, value } => write!(f, "chunk {chunk}: {}", OrAbsent(*value)),
            Self::RootAfter { root_after } => write!(f, "root after it: {root_after}"),
        }
    }
}
