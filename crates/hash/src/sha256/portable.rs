//! One input at a time in general registers.

use super::rounds::{INITIAL, SCHEDULE_AFTER_64, compression, digest_of};
use crate::Digest;

/// The digest of one input.
pub(super) fn hash(input: &[u8]) -> Digest {
    let mut state = INITIAL;
    if let Ok(block) = input.try_into() {
        compress(&mut state, &words_of_block(block));
        expanded(&mut state, |i| SCHEDULE_AFTER_64[i]);
        return digest_of(&state);
    }
    let mut padded = [0; 64];
    for block in 0..super::blocks(input.len()) {
        compress(&mut state, &words_of_block(super::block_of(input, block, &mut padded)));
    }
    digest_of(&state)
}

/// The hash of a node of 72 bytes: two hashes, then a tail whose schedule is known.
pub(super) fn hash_node(left: &[u32; 8], right: &[u32; 8], tail: &[u32; 64]) -> [u32; 8] {
    let mut block = [0; 16];
    block[..8].copy_from_slice(left);
    block[8..].copy_from_slice(right);
    let mut state = INITIAL;
    compress(&mut state, &block);
    expanded(&mut state, |i| tail[i]);
    state
}

fn words_of_block(block: &[u8; 64]) -> [u32; 16] {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    words
}

compression! {
    fn compress, expanded(u32)
}

fn splat(a: u32) -> u32 {
    a
}

fn add(a: u32, b: u32) -> u32 {
    a.wrapping_add(b)
}

fn rotate<const BITS: u32>(a: u32) -> u32 {
    a.rotate_right(BITS)
}

fn shift<const BITS: u32>(a: u32) -> u32 {
    a >> BITS
}

fn xor3(a: u32, b: u32, c: u32) -> u32 {
    a ^ b ^ c
}

fn choose(a: u32, b: u32, c: u32) -> u32 {
    c ^ (a & (b ^ c))
}

fn majority(a: u32, b: u32, c: u32) -> u32 {
    (a & b) | (c & (a | b))
}
