//! Sixteen inputs in the 32-bit lanes of 512-bit registers.

use core::arch::x86_64::*;

use super::{
    blocks,
    lane_words::LaneWords,
    rounds::{INITIAL, SCHEDULE_AFTER_64, compression, expansion, words_of},
};
use crate::{
    Digest,
    lanes::{self, Known},
    x86::avx512,
};

/// The digest of each lane's input.
///
/// Lanes whose input has fewer blocks than the longest one idle once theirs is done.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn hash16(inputs: &[&[u8]; 16], known: Known, digests: &mut [Digest; 16]) {
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
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn climb16(lanes: &mut LaneWords<16>, siblings: &[[u32; 16]; 8], right: u16) {
    level(lanes, |i| avx512::words(&siblings[i]), right);
}

/// The same beside one sibling.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn climb16_in_step(lanes: &mut LaneWords<16>, sibling: &Digest, right: u16) {
    let words = words_of(sibling);
    level(lanes, |i| splat(words[i]), right);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
#[inline]
fn level(lanes: &mut LaneWords<16>, sibling: impl Fn(usize) -> __m512i, right: u16) {
    let mut block = [_mm512_setzero_si512(); 16];
    for i in 0..8 {
        let (hash, sibling) = (avx512::words(&lanes.hash[i]), sibling(i));
        block[i] = _mm512_mask_blend_epi32(right, hash, sibling);
        block[8 + i] = _mm512_mask_blend_epi32(right, sibling, hash);
    }
    if core::mem::take(&mut lanes.stale) {
        expand(lanes);
    }
    let mut state = initial();
    compress(&mut state, &block);
    expanded(&mut state, |i| avx512::words(&lanes.tail[i]));
    for (words, lanes) in lanes.hash.iter_mut().zip(state) {
        *words = avx512::to_words(lanes);
    }
}

expansion! {
    #[target_feature(enable = "avx512f")]
    fn expand(LaneWords<16>), avx512
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn initial() -> [__m512i; 8] {
    let mut state = [_mm512_setzero_si512(); 8];
    for (lanes, word) in state.iter_mut().zip(INITIAL) {
        *lanes = splat(word);
    }
    state
}

/// Block `block` of each input, padded, as sixteen columns; past its last block an input is zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
#[inline]
fn load_blocks(inputs: &[&[u8]; 16], block: usize) -> [__m512i; 16] {
    let mut rows = [_mm512_setzero_si512(); 16];
    // The length in bits goes in after the transposition, as two columns.
    let (mut high, mut low) = ([0; 16], [0; 16]);
    for lane in 0..16 {
        let input = inputs[lane];
        rows[lane] = match input.get(64 * block..) {
            None => _mm512_setzero_si512(),
            Some(rest) => match rest.first_chunk() {
                Some(row) => avx512::load(row),
                None => {
                    let row = avx512::load_partial(rest);
                    _mm512_mask_mov_epi8(row, 1 << rest.len(), _mm512_set1_epi8(-0x80))
                }
            },
        };
        rows[lane] = avx512::swap_bytes(rows[lane]);
        if blocks(input.len()) == block + 1 {
            let bits = 8 * input.len() as u64;
            (high[lane], low[lane]) = ((bits >> 32) as u32, bits as u32);
        }
    }
    let mut columns = avx512::transpose_u32(&rows);
    columns[14] = _mm512_or_si512(columns[14], avx512::words(&high));
    columns[15] = _mm512_or_si512(columns[15], avx512::words(&low));
    columns
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
#[inline]
fn squeeze(state: [__m512i; 8]) -> [Digest; 16] {
    let mut swapped = state;
    for lanes in &mut swapped {
        *lanes = avx512::swap_bytes(*lanes);
    }
    avx512::digests_u32(swapped)
}

compression! {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn compress, expanded(__m512i)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn splat(a: u32) -> __m512i {
    _mm512_set1_epi32(a.cast_signed())
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn add(a: __m512i, b: __m512i) -> __m512i {
    _mm512_add_epi32(a, b)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn rotate<const BITS: i32>(a: __m512i) -> __m512i {
    _mm512_ror_epi32::<BITS>(a)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn shift<const BITS: u32>(a: __m512i) -> __m512i {
    _mm512_srli_epi32::<BITS>(a)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0x96>(a, b, c)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn choose(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xca>(a, b, c)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn majority(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
    _mm512_ternarylogic_epi32::<0xe8>(a, b, c)
}
