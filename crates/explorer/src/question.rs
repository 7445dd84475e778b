//! What is asked, and the forms of numbers and bytes in it.

use std::fmt;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error};
use spinney_hash::HashFunction;
use spinney_proof::binary::{Pbt, Ubt};
use spinney_proof::sum::Profile;

use crate::refused::Refused;

/// Bytes, of `0x` and two hex digits each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HexBytes(pub(crate) Vec<u8>);

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").ok_or_else(|| no_hex(&text, "it has no 0x before"))?;
        const_hex::decode(digits).map(Self).map_err(|error| no_hex(&text, error))
    }
}

/// So many bytes, neither more nor fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fixed<const N: usize>(pub(crate) [u8; N]);

impl<'de, const N: usize> Deserialize<'de> for Fixed<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let HexBytes(bytes) = HexBytes::deserialize(deserializer)?;
        let wrong = |bytes: Vec<u8>| {
            D::Error::custom(format_args!("{} bytes, where {N} belong", bytes.len()))
        };
        bytes.try_into().map(Self).map_err(wrong)
    }
}

impl<const N: usize> fmt::Display for Fixed<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&const_hex::encode_prefixed(self.0))
    }
}

/// A number of up to 32 bytes, of `0x` and hex digits; big-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) [u8; 32]);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").filter(|digits| (1..=64).contains(&digits.len()));
        let digits = digits.ok_or_else(|| no_hex(&text, "0x and 1 to 64 digits make a number"))?;
        let mut word = [0; 32];
        const_hex::decode_to_slice(format!("{digits:0>64}"), &mut word)
            .map_err(|error| no_hex(&text, error))?;
        Ok(Self(word))
    }
}

/// A number of 64 bits in decimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal(pub(crate) u64);

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let wrong = |error| D::Error::custom(format_args!("{text:.80?}: {error}"));
        text.parse().map(Self).map_err(wrong)
    }
}

fn no_hex<E: Error>(text: &str, why: impl fmt::Display) -> E {
    E::custom(format_args!("{text:.80?} is no hex: {why}"))
}

/// What was asked for, the root that is trusted, and what was answered.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Question {
    tree: String,
    pub(crate) root: Fixed<32>,
    /// What the root of a sum tree sums up to.
    pub(crate) root_sum: Option<Decimal>,
    address: Option<Fixed<20>>,
    #[serde(default)]
    pub(crate) slots: Vec<Number>,
    key: Option<Fixed<32>>,
    answer: String,
}

/// A tree, with what it hashes by.
pub(crate) enum Tree {
    Mpt,
    Ubt(Ubt),
    Pbt(Pbt),
    Verkle,
    Sum(Profile),
}

impl Question {
    pub(crate) fn tree(&self) -> Result<Tree, Refused> {
        let unknown = || Refused::Tree(self.tree.clone());
        let (kind, by) = match self.tree.split_once(':') {
            Some((kind, by)) => (kind, Some(by)),
            None => (&self.tree[..], None),
        };
        let hash = match by {
            None | Some("bound") => None,
            Some("sha256") => Some(HashFunction::Sha256),
            Some("blake3") => Some(HashFunction::Blake3),
            Some("keccak") => Some(HashFunction::Keccak256),
            Some(_) => return Err(unknown()),
        };
        match (kind, by, hash) {
            ("mpt", None, _) => Ok(Tree::Mpt),
            ("verkle", None, _) => Ok(Tree::Verkle),
            ("sum", None, _) => Ok(Tree::Sum(Profile::Compatible)),
            ("sum", Some("bound"), _) => Ok(Tree::Sum(Profile::Bound)),
            ("ubt", _, Some(hash)) => Ok(Tree::Ubt(Ubt { hash })),
            ("pbt", _, Some(hash)) => Ok(Tree::Pbt(Pbt { hash })),
            _ => Err(unknown()),
        }
    }

    pub(crate) fn address(&self) -> Result<Fixed<20>, Refused> {
        self.address.ok_or(Refused::Left("the address"))
    }

    pub(crate) fn key(&self) -> Result<Fixed<32>, Refused> {
        self.key.ok_or(Refused::Left("the key"))
    }

    /// Reads what was answered.
    pub(crate) fn answer<T: DeserializeOwned>(&self) -> Result<T, Refused> {
        serde_json::from_str(&self.answer).map_err(Refused::Answer)
    }

    /// Compares what an answer says of its tree and its root, which are what was asked for.
    pub(crate) fn is_of(&self, tree: &str, root: Fixed<32>) -> Result<(), Refused> {
        same("tree", &self.tree[..], tree)?;
        same("root", self.root, root)
    }
}

/// Compares what an answer is about with what was asked for.
pub(crate) fn same<T: PartialEq + fmt::Display>(
    what: &'static str,
    asked: T,
    got: T,
) -> Result<(), Refused> {
    if asked == got {
        return Ok(());
    }
    Err(Refused::Other { what, asked: asked.to_string(), got: got.to_string() })
}
