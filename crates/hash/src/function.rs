//! The hash function as a value, for trees that are told theirs at run time.

use core::fmt;

/// One of the hash functions of this crate.
///
/// ```
/// use spinney_hash::{HashFunction, sha256};
///
/// assert_eq!(HashFunction::Sha256.hash(b"spinney"), sha256(b"spinney"));
/// assert_eq!(HashFunction::Keccak256.to_string(), "keccak256");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashFunction {
    /// Keccak-256 with the padding that Ethereum uses.
    Keccak256,
    /// SHA-256.
    Sha256,
    /// BLAKE3, 32 bytes of output, no key.
    Blake3,
}

impl HashFunction {
    /// Every function.
    pub const ALL: [Self; 3] = [Self::Keccak256, Self::Sha256, Self::Blake3];
}

impl fmt::Display for HashFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Keccak256 => "keccak256",
            Self::Sha256 => "sha256",
            Self::Blake3 => "blake3",
        })
    }
}
