//! Eight inputs in the 32-bit lanes of 256-bit registers.

use core::arch::x86_64::*;

use super::{
    block_of, blocks,
    lane_words::LaneWords,
    rounds::{INITIAL, SCHEDULE_AFTER_64, compression, expansion, words_of},
};
use crate::{
    Digest,
    lanes::{self, Known},
    x86::avx2,
};

/// The digest of each lane's input.
///
/// Lanes whose input has fewer blocks than the longest one idle once theirs is done.
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn hash8(inputs: &[&[u8]; 8], known: Known, digests: &mut [Digest; 8]) {
    let mut state = initial();
    let shape = lanes::shape(inputs, known, blocks);
    if shape.len == Some(64) {
        compress(&mut state, &load_blocks(inputs, 0));
        expanded(&mut state, |i| splat(SCHEDULE_AFTER_64[i]));
        return *digests = squeeze(state);
    }
    for block in 0..shape.longest {
        compress(&mut state, &load_blocks(inputs, block));
        shape.take_ended(block, digests, || squeeze(state));
    }
}

/// Hashes one node in each lane: its hash and a sibling of its own, on the right in the lanes of
/// `right`, then the tail of known schedule.
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn climb8(lanes: &mut LaneWords<8>, siblings: &[[u32; 8]; 8], right: u16) {
    level(lanes, |i| avx2::words(&siblings[i]), right);
}

/// The same beside one sibling.
#[target_feature(enable = "avx2,bmi1,bmi2")]
pub(super) fn climb8_in_step(lanes: &mut LaneWords<8>, sibling: &Digest, right: u16) {
    let words = words_of(sibling);
    level(lanes, |i| splat(words[i]), right);
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn level(lanes: &mut LaneWords<8>, sibling: impl Fn(usize) -> __m256i, right: u16) {
    let bits = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    let right = _mm256_and_si256(_mm256_set1_epi32(i32::from(right)), bits);
    let right = _mm256_cmpeq_epi32(right, bits);
    let mut block = [_mm256_setzero_si256(); 16];
    for i in 0..8 {
        let (hash, sibling) = (avx2::words(&lanes.hash[i]), sibling(i));
        block[i] = _mm256_blendv_epi8(hash, sibling, right);
        block[8 + i] = _mm256_blendv_epi8(sibling, hash, right);
    }
    if core::mem::take(&mut lanes.stale) {
        expand(lanes);
    }
    let mut state = initial();
    compress(&mut state, &block);
    expanded(&mut state, |i| avx2::words(&lanes.tail[i]));
    for (words, lanes) in lanes.hash.iter_mut().zip(state) {
        *words = avx2::to_words(lanes);
    }
}

expansion! {
    #[target_feature(enable = "avx2,bmi1,bmi2")]
    fn expand(LaneWords<8>), avx2
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn initial() -> [__m256i; 8] {
    let mut state = [_mm256_setzero_si256(); 8];
    for (lanes, word) in state.iter_mut().zip(INITIAL) {
        *lanes = splat(word);
    }
    state
}

/// Block `block` of each input as sixteen columns.
#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn load_blocks(inputs: &[&[u8]; 8], block: usize) -> [__m256i; 16] {
    let zero = _mm256_setzero_si256();
    let (mut low, mut high) = ([zero; 8], [zero; 8]);
    for lane in 0..8 {
        let mut padded = [0; 64];
        let row = block_of(inputs[lane], block, &mut padded);
        let ([a, b], []) = row.as_chunks() else { unreachable!("64 = 32 + 32") };
        (low[lane], high[lane]) = (swap_bytes(avx2::load(a)), swap_bytes(avx2::load(b)));
    }
    let (low, high) = (avx2::transpose_u32(low), avx2::transpose_u32(high));
    let mut columns = [zero; 16];
    columns[..8].copy_from_slice(&low);
    columns[8..].copy_from_slice(&high);
    columns
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn squeeze(state: [__m256i; 8]) -> [Digest; 8] {
    let mut swapped = state;
    for lanes in &mut swapped {
        *lanes = swap_bytes(*lanes);
    }
    avx2::digests_u32(swapped)
}

/// From big-endian words to words, and back.
#[target_feature(enable = "avx2")]
#[inline]
fn swap_bytes(words: __m256i) -> __m256i {
    let order = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
    _mm256_shuffle_epi8(words, _mm256_broadcastsi128_si256(order))
}

compression! {
    #[target_feature(enable = "avx2")]
    #[inline]
    fn compress, expanded(__m256i)
}

#[target_feature(enable = "avx2")]
#[inline]
fn splat(a: u32) -> __m256i {
    _mm256_set1_epi32(a.cast_signed())
}

#[target_feature(enable = "avx2")]
#[inline]
fn add(a: __m256i, b: __m256i) -> __m256i {
    _mm256_add_epi32(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotate<const BITS: i32>(a: __m256i) -> __m256i {
    let (right, left) = (_mm_cvtsi32_si128(BITS), _mm_cvtsi32_si128(32 - BITS));
    _mm256_or_si256(_mm256_srl_epi32(a, right), _mm256_sll_epi32(a, left))
}

#[target_feature(enable = "avx2")]
#[inline]
fn shift<const BITS: i32>(a: __m256i) -> __m256i {
    _mm256_srli_epi32::<BITS>(a)
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(a, _mm256_xor_si256(b, c))
}

#[target_feature(enable = "avx2")]
#[inline]
fn choose(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(c, _mm256_and_si256(a, _mm256_xor_si256(b, c)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn majority(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    let either = _mm256_and_si256(c, _mm256_or_si256(a, b));
    _mm256_or_si256(_mm256_and_si256(a, b), either)
}
