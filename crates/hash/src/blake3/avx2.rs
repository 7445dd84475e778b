//! Eight inputs in the 32-bit lanes of 256-bit registers.

use core::arch::x86_64::*;

use super::{
    Node, block_flags, block_len, blocks, lens_and_flags,
    rounds::{INITIAL, compression},
};
use crate::{
    Digest,
    lanes::{self, Known},
    x86::avx2,
};

/// The chaining value of each lane's input, of at most a chunk.
///
/// Lanes whose input has fewer blocks than the longest one idle once theirs is done.
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn hash8(inputs: &[&[u8]; 8], known: Known, node: Node, digests: &mut [Digest; 8]) {
    let mut value = initial();
    let counter = counters(node);
    let shape = lanes::shape(inputs, known, blocks);
    for block in 0..shape.longest {
        let columns = load_blocks(inputs, block);
        let [len, flags] = match shape.len {
            Some(len) => [splat(block_len(len, block)), splat(block_flags(len, node, block))],
            None => lens_and_flags(inputs, node, block).map(|words| avx2::words(&words)),
        };
        compress::<16>(&mut value, &columns, counter, len, flags);
        shape.take_ended(block, digests, || avx2::digests_u32(value));
    }
}

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn initial() -> [__m256i; 8] {
    let mut value = [_mm256_setzero_si256(); 8];
    for (lanes, word) in value.iter_mut().zip(INITIAL) {
        *lanes = splat(word);
    }
    value
}

/// The low and high half of each lane's chunk number; within a pass the low one does not wrap.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn counters(node: Node) -> [__m256i; 2] {
    let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    let lanes = if node.successive { lanes } else { splat(0) };
    [add(splat(node.counter as u32), lanes), splat((node.counter >> 32) as u32)]
}

/// Block `block` of each input as sixteen columns, zeros where an input has ended.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn load_blocks(inputs: &[&[u8]; 8], block: usize) -> [__m256i; 16] {
    let zero = _mm256_setzero_si256();
    let (mut low, mut high) = ([zero; 8], [zero; 8]);
    for lane in 0..8 {
        let rest = inputs[lane].get(64 * block..).unwrap_or_default();
        let mut padded = [0; 64];
        let row = rest.first_chunk().unwrap_or_else(|| {
            padded[..rest.len()].copy_from_slice(rest);
            &padded
        });
        let ([a, b], []) = row.as_chunks() else { unreachable!("64 = 32 + 32") };
        (low[lane], high[lane]) = (avx2::load(a), avx2::load(b));
    }
    let (low, high) = (avx2::transpose_u32(low), avx2::transpose_u32(high));
    let mut columns = [zero; 16];
    columns[..8].copy_from_slice(&low);
    columns[8..].copy_from_slice(&high);
    columns
}

compression! {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn compress(__m256i)
}

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn splat(a: u32) -> __m256i {
    _mm256_set1_epi32(a.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn add(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn xor(a: __m256i, b: __m256i) -> __m256i {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotate<const BITS: i32>(a: __m256i) -> __m256i {
    // Whole bytes move in one shuffle.
    let order = match BITS {
        8 => _mm_setr_epi8(1, 2, 3, 0, 5, 6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12),
        16 => _mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13),
        _ => {
            let (right, left) = (_mm_cvtsi32_si128(BITS), _mm_cvtsi32_si128(32 - BITS));
            return _mm256_or_si256(_mm256_srl_epi32(a, right), _mm256_sll_epi32(a, left));
        }
    };
    _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(order))
}
