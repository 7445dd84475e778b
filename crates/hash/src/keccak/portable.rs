//! One input at a time in general registers.

use super::{RATE, rounds::permutation};
use crate::Digest;

/// The digest of one input.
pub(super) fn hash(input: &[u8]) -> Digest {
    sponge(input, permute)
}

/// Absorbs `input`, padded, and squeezes one digest.
#[inline(always)]
pub(super) fn sponge(input: &[u8], permute: impl Fn(&mut [u64; 25])) -> Digest {
    let mut state = [0u64; 25];
    let (blocks, rest) = input.as_chunks::<RATE>();
    for block in blocks {
        absorb(&mut state, block);
        permute(&mut state);
    }
    absorb(&mut state, &super::last_block(rest));
    permute(&mut state);
    let mut digest = [0; 32];
    for (out, lane) in digest.as_chunks_mut::<8>().0.iter_mut().zip(state) {
        *out = lane.to_le_bytes();
    }
    digest
}

#[inline(always)]
fn absorb(state: &mut [u64; 25], block: &[u8; RATE]) {
    for (lane, word) in state.iter_mut().zip(block.as_chunks::<8>().0) {
        *lane ^= u64::from_le_bytes(*word);
    }
}

permutation! {
    fn permute(u64)
}

#[inline(always)]
pub(super) fn xor3(a: u64, b: u64, c: u64) -> u64 {
    a ^ b ^ c
}

#[inline(always)]
pub(super) fn neighbours(a: u64, b: u64) -> u64 {
    a ^ b
}

#[inline(always)]
pub(super) fn theta(a: u64, neighbours: u64) -> u64 {
    a ^ neighbours
}

#[inline(always)]
pub(super) fn rotate<const BITS: u32>(a: u64) -> u64 {
    a.rotate_left(BITS)
}

#[inline(always)]
pub(super) fn chi(a: u64, b: u64, c: u64) -> u64 {
    a ^ (!b & c)
}

#[inline(always)]
pub(super) fn iota(a: u64, constant: u64) -> u64 {
    a ^ constant
}
