//! What a bisection finds.

use alloy_primitives::{Address, B256, U256};
use serde::{Serialize, Serializer};

/// How a bisection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bisected {
    /// The first block whose state both sides have, as far as they were to be compared.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// Where they differ; `None` where the last block has one state root on both sides.
    pub divergence: Option<Divergence>,
    /// How many questions the nodes were asked.
    pub asks: u64,
}

/// A block of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BlockSeen {
    /// Its number.
    #[serde(skip)]
    pub number: u64,
    /// Its hash, where the side knows it.
    pub hash: Option<B256>,
    /// The root of the state after it.
    pub root: B256,
}

/// The first block after which two sides have different states, and what differs then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Divergence {
    /// The number of the block.
    pub block: u64,
    /// Whether the block before was compared, and has one state on both sides. If not, the sides
    /// differ from this block or from an earlier one on.
    pub is_first: bool,
    /// The first side's block.
    pub left: BlockSeen,
    /// The second side's.
    pub right: BlockSeen,
    /// Accounts that differ, in order of their hashed addresses: as many as were asked for.
    pub accounts: Vec<AccountDifference>,
    /// Whether these are all.
    pub is_all: bool,
    /// First digits, as hexadecimal text, of hashed addresses below which something differs that
    /// could not be looked into: the nodes are asked by addresses, and none is known that has them.
    pub hidden: Vec<String>,
}

/// An account that is not the same on both sides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AccountDifference {
    /// The Keccak-256 digest of its address.
    pub key: B256,
    /// Its address, where that is known.
    pub address: Option<Address>,
    /// The account on the first side; `None` where it has none.
    pub left: Option<AccountSeen>,
    /// The account on the second side.
    pub right: Option<AccountSeen>,
    /// Slots that differ, in order of their hashes: as many as were asked for.
    pub slots: Vec<SlotDifference>,
    /// Whether these are all.
    pub has_all_slots: bool,
    /// As [`Divergence::hidden`], of slots.
    pub hidden_slots: Vec<String>,
}

/// An account as a side has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AccountSeen {
    /// Its nonce.
    pub nonce: u64,
    /// Its balance in wei.
    #[serde(serialize_with = "decimal")]
    pub balance: U256,
    /// The Keccak-256 digest of its code.
    pub code_hash: B256,
    /// Bytes of its code, where code differs and the side gives it.
    #[serde(rename = "code_bytes")]
    pub code_len: Option<usize>,
    /// The root of its storage.
    pub storage_root: B256,
}

/// A slot that is not the same on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SlotDifference {
    /// The Keccak-256 digest of the slot.
    pub key: B256,
    /// The slot, where that is known.
    pub slot: Option<B256>,
    /// Its value on the first side; zero where it is not there.
    #[serde(serialize_with = "word")]
    pub left: U256,
    /// Its value on the second side.
    #[serde(serialize_with = "word")]
    pub right: U256,
}

/// One thing that differs, in words: a line of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DifferenceRow {
    /// The account, or `key` and its hashed address.
    pub account: String,
    /// The slot, or `key` and its hash; nothing where it is none.
    pub slot: Option<String>,
    /// `account`, `nonce`, `balance`, `code`, `storage` or `slot`.
    pub what: &'static str,
    /// What the first side has.
    pub left: String,
    /// What the second side has.
    pub right: String,
}

/// Not all that read JSON keep 256 bits.
fn decimal<S: Serializer>(number: &U256, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// Slots hold words.
fn word<S: Serializer>(value: &U256, serializer: S) -> Result<S::Ok, S::Error> {
    B256::from(*value).serialize(serializer)
}

impl Divergence {
    /// What differs, in words, one thing after another.
    pub fn rows(&self) -> Vec<DifferenceRow> {
        self.accounts.iter().flat_map(AccountDifference::rows).collect()
    }
}

impl AccountDifference {
    fn rows(&self) -> Vec<DifferenceRow> {
        let account = named(self.address.as_ref(), &self.key);
        let row = |what, left: String, right: String| {
            let account = account.clone();
            DifferenceRow { account, slot: None, what, left, right }
        };
        let mut rows = Vec::new();
        if let (Some(left), Some(right)) = (&self.left, &self.right) {
            if left.nonce != right.nonce {
                rows.push(row("nonce", left.nonce.to_string(), right.nonce.to_string()));
            }
            if left.balance != right.balance {
                rows.push(row("balance", left.balance.to_string(), right.balance.to_string()));
            }
            if left.code_hash != right.code_hash {
                rows.push(row("code", left.code(), right.code()));
            }
            // The slots say it better, where they are known.
            if left.storage_root != right.storage_root && self.slots.is_empty() {
                let (left, right) = (left.storage_root, right.storage_root);
                rows.push(row("storage", left.to_string(), right.to_string()));
            }
        } else {
            let words = |seen: &Option<AccountSeen>| {
                seen.as_ref().map_or_else(|| "absent".into(), AccountSeen::words)
            };
            rows.push(row("account", words(&self.left), words(&self.right)));
        }
        rows.extend(self.slots.iter().map(|slot| DifferenceRow {
            account: account.clone(),
            slot: Some(named(slot.slot.as_ref(), &slot.key)),
            what: "slot",
            left: format!("{:#x}", slot.left),
            right: format!("{:#x}", slot.right),
        }));
        rows
    }
}

impl AccountSeen {
    fn code(&self) -> String {
        let len = self.code_len.map(|len| format!(" ({len} bytes)")).unwrap_or_default();
        format!("{}{len}", self.code_hash)
    }

    fn words(&self) -> String {
        let Self { nonce, balance, .. } = self;
        format!("nonce {nonce}, balance {balance}, code {}", self.code())
    }
}

fn named(name: Option<&impl ToString>, key: &B256) -> String {
    name.map_or_else(|| format!("key {key}"), ToString::to_string)
}
