//! Blocks as people and clients name them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt;
use std::str::FromStr;

use alloy_primitives::B256;

/// Which block of a node is meant: a number, a tag, or a hash.
///
/// ```
/// use spinney_follow::BlockName;
///
/// assert_eq!("latest".parse(), Ok(BlockName::Tag("latest")));
/// assert_eq!("0x10".parse(), Ok(BlockName::Number(16)));
/// let hash = format!("0x{}", "ab".repeat(32));
/// assert_eq!(hash.parse(), Ok(BlockName::Hash([0xab; 32].into())));
/// assert!("newest".parse::<BlockName>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "EIP-1898 names blocks so")]
pub enum BlockName {
    /// By its number.
    Number(u64),
    /// By what the node knows of it: `latest`, `safe`, `finalized` or `earliest`.
    Tag(&'static str),
    /// By its hash, which pins it: no other block has it.
    Hash(B256),
}

/// A text that names no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number, a hash of 32 bytes, latest, safe, finalized or earliest")]
pub struct BlockNameError;

const TAGS: [&str; 4] = ["latest", "safe", "finalized", "earliest"];

impl FromStr for BlockName {
    type Err = BlockNameError;

    fn from_str(text: &str) -> Result<Self, BlockNameError> {
        if let Some(tag) = TAGS.iter().find(|tag| **tag == text) {
            return Ok(Self::Tag(tag));
        }
        match text.strip_prefix("0x") {
            Some(digits) if digits.len() == 64 => text.parse().map(Self::Hash).ok(),
            Some(digits) => u64::from_str_radix(digits, 16).map(Self::Number).ok(),
            None => text.parse().map(Self::Number).ok(),
        }
        .filter(|_| !text.contains('+'))
        .ok_or(BlockNameError)
    }
}

impl fmt::Display for BlockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Tag(tag) => tag.fmt(f),
            Self::Hash(hash) => hash.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::BlockName;

    #[test]
    fn blocks_are_named_by_numbers_tags_and_hashes() {
        let hash = B256::repeat_byte(7);
        for (text, name) in [
            ("0", BlockName::Number(0)),
            ("18446744073709551615", BlockName::Number(u64::MAX)),
            ("0xff", BlockName::Number(255)),
            ("earliest", BlockName::Tag("earliest")),
            (&hash.to_string(), BlockName::Hash(hash)),
        ] {
            assert_eq!(text.parse(), Ok(name));
        }
        assert_eq!(BlockName::Hash(hash).to_string(), hash.to_string());
        let long = "1".repeat(65);
        for text in ["", "0x", "+7", "0x+7", "-1", "pending", "Latest", "1e3", &long] {
            assert!(text.parse::<BlockName>().is_err(), "{text}");
        }
    }
}
