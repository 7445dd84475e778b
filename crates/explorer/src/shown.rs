//! What a proof shows, as the page gets it.

use serde::ser::{Serialize, SerializeStruct as _, Serializer};
use spinney_proof::Step;
use spinney_proof::mpt::AccountFields;

use crate::refused::Refused;

/// Whether an answer proves what was asked.
pub(crate) enum Outcome {
    Holds(Shown),
    Refused(String),
}

impl Outcome {
    pub(crate) fn refused(why: &Refused) -> Self {
        Self::Refused(why.to_string())
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_struct("Outcome", 2)?;
        match self {
            Self::Holds(shown) => {
                out.serialize_field("holds", &true)?;
                out.serialize_field("shown", shown)?;
            }
            Self::Refused(why) => {
                out.serialize_field("holds", &false)?;
                out.serialize_field("why", why)?;
            }
        }
        out.end()
    }
}

/// What a proof shows. Numbers are in hex, sums in decimal.
#[derive(Debug, Default, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Shown {
    /// `None` for an account that is not there.
    pub(crate) account: Option<ShownAccount>,
    /// The values of slots, in the order in which they were asked for.
    pub(crate) slots: Vec<Option<String>>,
    pub(crate) leaf: Option<ShownLeaf>,
    /// What a bit of a path is: 4 for hex digits, 1 for bits, 8 for bytes.
    pub(crate) digit_bits: u8,
    /// Bytes of the whole proof.
    pub(crate) bytes: usize,
    pub(crate) paths: Vec<ShownPath>,
    /// Whether an absence is claimed that the form of the proof cannot show.
    pub(crate) unsure: bool,
}

#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ShownAccount {
    nonce: u64,
    balance: String,
    code_hash: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_hash: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code_size: Option<u32>,
}

impl From<&AccountFields> for ShownAccount {
    fn from(fields: &AccountFields) -> Self {
        Self {
            nonce: fields.nonce,
            balance: const_hex::encode_prefixed(fields.balance),
            code_hash: const_hex::encode_prefixed(fields.code_hash),
            storage_hash: Some(const_hex::encode_prefixed(fields.storage_hash)),
            code_size: None,
        }
    }
}

impl From<spinney_proof::embed::Header> for ShownAccount {
    fn from(header: spinney_proof::embed::Header) -> Self {
        Self {
            nonce: header.data.nonce,
            balance: format!("{:#x}", header.data.balance),
            code_hash: const_hex::encode_prefixed(header.code_hash),
            storage_hash: None,
            code_size: Some(header.data.code_size),
        }
    }
}

#[derive(Debug, serde::Serialize)]
pub(crate) struct ShownLeaf {
    pub(crate) value: String,
    pub(crate) sum: String,
}

/// The nodes from a root down to a key.
#[derive(Debug, serde::Serialize)]
pub(crate) struct ShownPath {
    /// What the key is of: `account`, `slot` or `key`.
    of: &'static str,
    key: String,
    steps: Vec<ShownStep>,
}

#[derive(Debug, serde::Serialize)]
struct ShownStep {
    kind: String,
    depth: usize,
    digits: usize,
    digest: Option<String>,
    bytes: usize,
    siblings: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    sum: Option<String>,
}

impl ShownPath {
    pub(crate) fn new(of: &'static str, key: &[u8], steps: Vec<Step>) -> Self {
        let shown = |step: Step| ShownStep {
            kind: step.kind.to_string(),
            depth: step.depth,
            digits: step.digits,
            digest: step.digest.map(const_hex::encode_prefixed),
            bytes: step.bytes,
            siblings: step.siblings,
            sum: step.sum.map(|sum| sum.to_string()),
        };
        let key = const_hex::encode_prefixed(key);
        Self { of, key, steps: steps.into_iter().map(shown).collect() }
    }
}

/// A number in hex, without zeros before it.
pub(crate) fn quantity(word: &[u8; 32]) -> String {
    let digits = const_hex::encode(word);
    let digits = digits.trim_start_matches('0');
    format!("0x{}", if digits.is_empty() { "0" } else { digits })
}
