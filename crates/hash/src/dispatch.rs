//! Digests by a function that is a value: each call goes to that function's own.

use crate::{
    Digest, HashFunction, Inputs, blake3, blake3_equal, blake3_many, keccak256, keccak256_equal,
    keccak256_many, sha256, sha256_equal, sha256_many,
};

impl HashFunction {
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
