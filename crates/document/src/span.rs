//! Documents of proofs over time, as somebody sent them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, Bytes, U64};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spinney_proof::span::{AccountSpan, KeysSpan};

use crate::asked::Asked;
use crate::read::{DocumentError, read};

/// A document of a proof over time. One of a Merkle Patricia trie has `account` and `storage`, one
/// of another tree `keys` and `frames`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(expecting = "an object with from and to")]
struct RawSpan {
    tree: String,
    from: U64,
    to: U64,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<Address>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    slots: Vec<B256>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<Vec<Bytes>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<Vec<Bytes>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    frames: Option<Bytes>,
}

/// What a document claims of blocks that follow each other, and what is to show it.
#[derive(Clone, Debug)]
pub enum SpanClaim {
    /// An account of a Merkle Patricia trie.
    Account(Box<AccountSpan>),
    /// Keys of a tree whose values are words.
    Keys {
        /// The account that the keys are to be those of, if it names one.
        account: Option<Asked>,
        /// The keys, and the proofs.
        span: KeysSpan,
    },
}

/// A proof over time, with the name of the tree that it is of.
#[derive(Clone, Debug)]
#[expect(clippy::exhaustive_structs, reason = "these are the parts of the document")]
pub struct SpanDocument {
    /// The tree's name.
    pub tree: String,
    /// What it claims.
    pub claim: SpanClaim,
}

impl SpanDocument {
    /// Whether a document is of blocks that follow each other.
    pub fn is_one(value: &Value) -> bool {
        value.get("from").is_some()
    }

    /// Reads a document. Nothing of it is checked yet.
    ///
    /// # Errors
    /// If it is none, names a member of an object twice, or claims nothing.
    pub fn parse(json: &[u8]) -> Result<Self, DocumentError> {
        Self::of(read(json)?)
    }

    /// The same of a value that [`read`] read.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn of(value: Value) -> Result<Self, DocumentError> {
        let raw: RawSpan = serde_json::from_value(value)?;
        let claim = match (raw.account, raw.frames) {
            (Some(account), None) => SpanClaim::Account(Box::new(AccountSpan {
                address: raw.address.ok_or(DocumentError::Lacks("address"))?.into_array(),
                slots: raw.slots.iter().map(|slot| slot.0).collect(),
                first: raw.from.to(),
                last: raw.to.to(),
                account: account.to_vec(),
                storage: raw.storage.unwrap_or_default().into_iter().map(Vec::from).collect(),
            })),
            (None, Some(frames)) => {
                let keys = raw.keys.ok_or(DocumentError::Lacks("keys"))?;
                if keys.is_empty() {
                    return Err(DocumentError::Nothing);
                }
                let slots = raw.slots;
                let asked = |address| Asked { address, slots, chunks: Vec::new() };
                SpanClaim::Keys {
                    account: raw.address.map(asked),
                    span: KeysSpan {
                        keys: keys.into_iter().map(Vec::from).collect(),
                        first: raw.from.to(),
                        last: raw.to.to(),
                        frames: frames.to_vec(),
                    },
                }
            }
            (Some(_), Some(_)) => return Err(DocumentError::Both("account", "frames")),
            (None, None) => return Err(DocumentError::Lacks("account or frames")),
        };
        Ok(Self { tree: raw.tree, claim })
    }

    /// The document, to print it.
    pub fn to_value(&self) -> Value {
        let named = RawSpan { tree: self.tree.clone(), ..RawSpan::default() };
        let bytes = |parts: &[Vec<u8>]| Some(parts.iter().cloned().map(Bytes::from).collect());
        let raw = match &self.claim {
            SpanClaim::Account(span) => RawSpan {
                from: U64::from(span.first),
                to: U64::from(span.last),
                address: Some(span.address.into()),
                slots: span.slots.iter().map(B256::from).collect(),
                account: Some(span.account.clone().into()),
                storage: bytes(&span.storage),
                ..named
            },
            SpanClaim::Keys { account, span } => RawSpan {
                from: U64::from(span.first),
                to: U64::from(span.last),
                address: account.as_ref().map(|asked| asked.address),
                slots: account.as_ref().map(|asked| asked.slots.clone()).unwrap_or_default(),
                keys: bytes(&span.keys),
                frames: Some(span.frames.clone().into()),
                ..named
            },
        };
        serde_json::json!(raw)
    }
}
