//! Reading proofs of foreign origin.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use super::ProofError;
use crate::field::Fr;
use crate::group::Element;

/// Reads `N` points and a scalar, and nothing else.
pub(super) fn read<const N: usize>(bytes: &[u8]) -> Result<([Element; N], Fr), ProofError> {
    let expected = N.saturating_add(1).saturating_mul(32);
    let length = ProofError::Length { got: bytes.len(), expected };
    let (words, rest) = bytes.as_chunks::<32>();
    let Some((last, words)) = words.split_last().filter(|(_, words)| words.len() == N) else {
        return Err(length);
    };
    if !rest.is_empty() {
        return Err(length);
    }
    let last = Fr::from_le_bytes(last).map_err(|_| ProofError::Scalar)?;
    let points = Element::from_compressed_many(words)
        .map_err(|(index, error)| ProofError::Point { index, error })?;
    Ok((points.try_into().map_err(|_| length)?, last))
}
