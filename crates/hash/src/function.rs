//! The hash function as a value, for trees that are told theirs at run time.

use core::fmt;

use crate::{
    Digest, Inputs, blake3, blake3_equal, blake3_many, keccak256, keccak256_equal, keccak256_many,
    sha256, sha256_equal, sha256_many,
};

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

    /// The digest of one input.
    pub fn hash(self, input: &[u8]) -> Digest {
        match self {
            Self::Keccak256 => keccak256(input),
            Self::Sha256 => sha256(input),
            Self::Blake3 => blake3(input),
        }
    }

    /// The digest of each input, in order.
    ///
    /// # Panics
    /// If `out` is not exactly as long as `inputs`.
    pub fn hash_many(self, inputs: Inputs<'_>, out: &mut [Digest]) {
        match self {
            Self::Keccak256 => keccak256_many(inputs, out),
            Self::Sha256 => sha256_many(inputs, out),
            Self::Blake3 => blake3_many(inputs, out),
        }
    }

    /// The digest of each `len` bytes of `bytes`, in order.
    ///
    /// # Panics
    /// If `bytes` is not exactly `len` bytes for each of `out`.
    pub fn hash_equal(self, bytes: &[u8], len: usize, out: &mut [Digest]) {
        match self {
            Self::Keccak256 => keccak256_equal(bytes, len, out),
            Self::Sha256 => sha256_equal(bytes, len, out),
            Self::Blake3 => blake3_equal(bytes, len, out),
        }
    }
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
