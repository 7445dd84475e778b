//! One input at a time in general registers.

use super::{Node, block_flags, block_len, rounds::compression};
use crate::Digest;

/// The chaining value of one input of at most a chunk.
pub(super) fn hash(input: &[u8], node: Node) -> Digest {
    let mut value = super::rounds::INITIAL;
    let counter = [node.counter as u32, (node.counter >> 32) as u32];
    for block in 0..super::blocks(input.len()) {
        let rest = &input[64 * block..];
        let words = match rest.first_chunk() {
            Some(whole) => words_of(whole),
            None => {
                let mut padded = [0; 64];
                padded[..rest.len()].copy_from_slice(rest);
                words_of(&padded)
            }
        };
        let len = block_len(input.len(), block);
        let flags = block_flags(input.len(), node, block);
        compress::<16>(&mut value, &words, counter, len, flags);
    }
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(value) {
        *bytes = word.to_le_bytes();
    }
    digest
}

fn words_of(block: &[u8; 64]) -> [u32; 16] {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    words
}

compression! {
    fn compress(u32)
}

fn splat(a: u32) -> u32 {
    a
}

fn add(a: u32, b: u32) -> u32 {
    a.wrapping_add(b)
}

fn xor(a: u32, b: u32) -> u32 {
    a ^ b
}

fn rotate<const BITS: u32>(a: u32) -> u32 {
    a.rotate_right(BITS)
}
