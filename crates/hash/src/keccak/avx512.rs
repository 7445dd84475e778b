//! Eight states in the lanes of 512-bit registers, or up to four in those of 256-bit registers: 32
//! registers hold a whole state, and one instruction does each of xor3, rotate and chi. The narrow
//! kernel is faster than general registers even for a single input.

use core::arch::x86_64::*;

use super::RATE;
use crate::{
    Digest,
    lanes::{self, Known},
    x86,
};

/// The digest of each lane's input.
///
/// Lanes whose input has fewer blocks than the longest one idle once theirs is done.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn hash8(inputs: &[&[u8]; 8], known: Known, digests: &mut [Digest; 8]) {
    let mut state = [_mm512_setzero_si512(); 25];
    let shape = lanes::shape(inputs, known, super::blocks);
    for block in 0..shape.longest {
        absorb8(&mut state, inputs, block);
        wide::permute(&mut state);
        shape.take_ended(block, digests, || {
            x86::avx512::digests_u64([state[0], state[1], state[2], state[3]])
        });
    }
}

/// Adds block `block` of each input, padded, to the states; past its last block an input is zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
#[inline]
fn absorb8(state: &mut [__m512i; 25], inputs: &[&[u8]; 8], block: usize) {
    let mut low = [_mm512_setzero_si512(); 8];
    let (mut high, mut end) = (low, [0; 8]);
    for lane in 0..8 {
        (low[lane], high[lane], end[lane]) = block_of(inputs[lane], block);
    }
    let (low, high) = (x86::avx512::transpose_u64(low), x86::avx512::transpose_u64(high));
    for i in 0..8 {
        state[i] = _mm512_xor_si512(state[i], low[i]);
        state[8 + i] = _mm512_xor_si512(state[8 + i], high[i]);
    }
    let [e0, e1, e2, e3, e4, e5, e6, e7] = end;
    state[16] = _mm512_xor_si512(state[16], _mm512_setr_epi64(e0, e1, e2, e3, e4, e5, e6, e7));
}

/// Block `block` of an input in two rows and a word; zeros after the last one.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn block_of(input: &[u8], block: usize) -> (__m512i, __m512i, i64) {
    let zero = _mm512_setzero_si512();
    match input.get(RATE * block..) {
        None => (zero, zero, 0),
        Some(rest) => match rest.first_chunk() {
            Some(row) => whole_block(row),
            None => last_block(rest),
        },
    }
}

#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn whole_block(block: &[u8; RATE]) -> (__m512i, __m512i, i64) {
    let ([low, high], end) = block.as_chunks::<64>() else { unreachable!("136 = 64 + 64 + 8") };
    let end = end.first_chunk().expect("136 = 64 + 64 + 8");
    (x86::avx512::load(low), x86::avx512::load(high), i64::from_le_bytes(*end))
}

/// Pads in registers what [`super::last_block`] pads in memory. Without a branch up to 127 bytes,
/// as lanes have all lengths.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
fn last_block(rest: &[u8]) -> (__m512i, __m512i, i64) {
    let len = rest.len();
    let row = |from: usize| {
        let bytes = x86::avx512::load_partial(rest.get(from..).unwrap_or_default());
        let mark = 1_u64.unbounded_shl(len.wrapping_sub(from) as u32);
        _mm512_mask_mov_epi8(bytes, mark, _mm512_set1_epi8(1))
    };
    (row(0), row(64), super::last_word(rest).cast_signed())
}

mod wide {
    use core::arch::x86_64::*;

    use super::super::rounds::permutation;

    permutation! {
        #[target_feature(enable = "avx512f")]
        #[inline]
        pub(super) fn permute(__m512i)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        _mm512_ternarylogic_epi64::<0x96>(a, b, c)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn neighbours(a: __m512i, b: __m512i) -> [__m512i; 2] {
        [a, b]
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn theta(a: __m512i, [b, c]: [__m512i; 2]) -> __m512i {
        xor3(a, b, c)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn rotate<const BITS: i32>(a: __m512i) -> __m512i {
        _mm512_rol_epi64::<BITS>(a)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn chi(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        _mm512_ternarylogic_epi64::<0xd2>(a, b, c)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn iota(a: __m512i, constant: u64) -> __m512i {
        _mm512_xor_si512(a, _mm512_set1_epi64(constant.cast_signed()))
    }
}

/// The digest of each lane's input.
///
/// Lanes whose input has fewer blocks than the longest one idle once theirs is done.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn hash4(inputs: &[&[u8]; 4], known: Known, digests: &mut [Digest; 4]) {
    let mut state = [_mm256_setzero_si256(); 25];
    let shape = lanes::shape(inputs, known, super::blocks);
    for block in 0..shape.longest {
        absorb4(&mut state, inputs, block);
        narrow::permute(&mut state);
        shape.take_ended(block, digests, || {
            x86::avx2::digests_u64([state[0], state[1], state[2], state[3]])
        });
    }
}

/// Adds block `block` of each input, padded, to the states; past its last block an input is zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
#[inline]
fn absorb4(state: &mut [__m256i; 25], inputs: &[&[u8]; 4], block: usize) {
    let mut low = [_mm512_setzero_si512(); 4];
    let (mut high, mut end) = (low, [0; 4]);
    for lane in 0..4 {
        (low[lane], high[lane], end[lane]) = block_of(inputs[lane], block);
    }
    let low = x86::avx512::transpose_four_u64(low);
    let high = x86::avx512::transpose_four_u64(high);
    for i in 0..8 {
        state[i] = _mm256_xor_si256(state[i], low[i]);
        state[8 + i] = _mm256_xor_si256(state[8 + i], high[i]);
    }
    state[16] = _mm256_xor_si256(state[16], _mm256_setr_epi64x(end[0], end[1], end[2], end[3]));
}

/// The digest of one input: every lane holds the same state.
#[target_feature(enable = "avx512f,avx512vl,avx2")]
pub(super) fn hash1(input: &[u8]) -> Digest {
    let mut state = [_mm256_setzero_si256(); 25];
    let (blocks, rest) = input.as_chunks::<RATE>();
    for block in blocks.iter().chain([&super::last_block(rest)]) {
        for (lane, word) in state.iter_mut().zip(block.as_chunks().0) {
            *lane = _mm256_xor_si256(*lane, _mm256_set1_epi64x(i64::from_le_bytes(*word)));
        }
        narrow::permute(&mut state);
    }
    let low = _mm256_unpacklo_epi64(state[0], state[1]);
    let high = _mm256_unpacklo_epi64(state[2], state[3]);
    x86::avx2::to_bytes(_mm256_permute2x128_si256::<0x20>(low, high))
}

mod narrow {
    use core::arch::x86_64::*;

    use super::super::rounds::permutation;

    permutation! {
        #[target_feature(enable = "avx512f,avx512vl")]
        #[inline]
        pub(super) fn permute(__m256i)
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        _mm256_ternarylogic_epi64::<0x96>(a, b, c)
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn neighbours(a: __m256i, b: __m256i) -> [__m256i; 2] {
        [a, b]
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn theta(a: __m256i, [b, c]: [__m256i; 2]) -> __m256i {
        xor3(a, b, c)
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn rotate<const BITS: i32>(a: __m256i) -> __m256i {
        _mm256_rol_epi64::<BITS>(a)
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn chi(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        _mm256_ternarylogic_epi64::<0xd2>(a, b, c)
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn iota(a: __m256i, constant: u64) -> __m256i {
        _mm256_xor_si256(a, _mm256_set1_epi64x(constant.cast_signed()))
    }
}
