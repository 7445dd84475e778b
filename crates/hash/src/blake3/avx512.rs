//! Sixteen inputs in the 32-bit lanes of 512-bit registers, or up to eight in those of 256-bit
//! registers, which is also the fastest way for one.

use core::arch::x86_64::*;

use super::{
    Node, avx2, block_flags, block_len, blocks, lens_and_flags,
    rounds::{INITIAL, compression},
};
use crate::{
    Digest,
    lanes::{self, Known},
    x86::{self, avx512},
};

/// The chaining value of each lane's input, of at most a chunk.
///
/// Lanes whose input has fewer blocks than the longest one idle once theirs is done.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn hash16(inputs: &[&[u8]; 16], known: Known, node: Node, digests: &mut [Digest; 16]) {
    let mut value = initial();
    let counter = counters(node);
    let shape = lanes::shape(inputs, known, blocks);
    for block in 0..shape.longest {
        let [len, flags] = match shape.len {
            Some(len) => [splat(block_len(len, block)), splat(block_flags(len, node, block))],
            None => lens_and_flags(inputs, node, block).map(|words| avx512::words(&words)),
        };
        if shape.len.is_some_and(|len| block_len(len, block) <= 32) {
            let columns = load_half_blocks(inputs, block);
            compress::<8>(&mut value, &columns, counter, len, flags);
        } else {
            let whole = shape.len.is_some_and(|len| block_len(len, block) == 64);
            let columns = load_blocks(inputs, block, whole);
            compress::<16>(&mut value, &columns, counter, len, flags);
        }
        shape.take_ended(block, digests, || avx512::digests_u32(value));
    }
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn initial() -> [__m512i; 8] {
    let mut value = [_mm512_setzero_si512(); 8];
    for (lanes, word) in value.iter_mut().zip(INITIAL) {
        *lanes = splat(word);
    }
    value
}

/// The low and high half of each lane's chunk number; within a pass the low one does not wrap.
#[target_feature(enable = "avx512f")]
#[inline]
fn counters(node: Node) -> [__m512i; 2] {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let lanes = if node.successive { lanes } else { splat(0) };
    [add(splat(node.counter as u32), lanes), splat((node.counter >> 32) as u32)]
}

/// Block `block` of each input as sixteen columns, zeros where an input has ended; `whole` says
/// that no input ends in it.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
#[inline]
fn load_blocks(inputs: &[&[u8]; 16], block: usize, whole: bool) -> [__m512i; 16] {
    let start = 64 * block;
    let row = |lane: usize| {
        let rest: &[u8] = inputs[lane].get(start..).unwrap_or_default();
        match rest.first_chunk() {
            Some(whole) => avx512::load(whole),
            None => avx512::load_partial(rest),
        }
    };
    // One look at the lengths instead of sixteen is a tenth of the time.
    let whole_row = |lane: usize| {
        let row: &[u8] = &inputs[lane][start..start + 64];
        avx512::load(row.try_into().expect("64 bytes"))
    };
    let rows = if whole { avx512::each_lane!(whole_row) } else { avx512::each_lane!(row) };
    avx512::transpose_u32(&rows)
}

/// The same where no input has more than 32 bytes left; the last eight columns are zeros.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
#[inline]
fn load_half_blocks(inputs: &[&[u8]; 16], block: usize) -> [__m512i; 16] {
    let zero = _mm512_setzero_si512();
    let half = |lane: usize| {
        let rest: &[u8] = inputs[lane].get(64 * block..).unwrap_or_default();
        match rest.first_chunk() {
            Some(whole) => x86::avx2::load(whole),
            None => _mm512_castsi512_si256(avx512::load_partial(rest)),
        }
    };
    let row = |lane: usize| {
        let low = _mm512_castsi256_si512(half(lane));
        _mm512_inserti64x4::<1>(low, half(8 + lane))
    };
    let rows = [row(0), row(1), row(2), row(3), row(4), row(5), row(6), row(7)];
    let mut columns = [zero; 16];
    columns[..8].copy_from_slice(&avx512::transpose_halves_u32(&rows));
    columns
}

compression! {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn compress(__m512i)
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
pub(super) fn xor(a: __m512i, b: __m512i) -> __m512i {
    _mm512_xor_si512(a, b)
}

#[target_feature(enable = "avx512f")]
#[inline]
pub(super) fn rotate<const BITS: i32>(a: __m512i) -> __m512i {
    _mm512_ror_epi32::<BITS>(a)
}

/// [`hash16`] for eight lanes.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn hash8(inputs: &[&[u8]; 8], known: Known, node: Node, digests: &mut [Digest; 8]) {
    let mut value = avx2::initial();
    let counter = avx2::counters(node);
    let shape = lanes::shape(inputs, known, blocks);
    for block in 0..shape.longest {
        let columns = narrow::load_blocks(inputs, block);
        let [len, flags] = match shape.len {
            Some(len) => {
                [avx2::splat(block_len(len, block)), avx2::splat(block_flags(len, node, block))]
            }
            None => lens_and_flags(inputs, node, block).map(|words| x86::avx2::words(&words)),
        };
        narrow::compress::<16>(&mut value, &columns, counter, len, flags);
        shape.take_ended(block, digests, || x86::avx2::digests_u32(value));
    }
}

mod narrow {
    use core::arch::x86_64::*;

    use super::super::{
        avx2::{add, splat, xor},
        rounds::compression,
    };
    use crate::x86::{avx2, avx512};

    /// Block `block` of each input as sixteen columns, zeros where an input has ended.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
    #[inline]
    pub(super) fn load_blocks(inputs: &[&[u8]; 8], block: usize) -> [__m256i; 16] {
        let zero = _mm256_setzero_si256();
        let (mut low, mut high) = ([zero; 8], [zero; 8]);
        for lane in 0..8 {
            let rest = inputs[lane].get(64 * block..).unwrap_or_default();
            let row = match rest.first_chunk() {
                Some(whole) => avx512::load(whole),
                None => avx512::load_partial(rest),
            };
            low[lane] = _mm512_castsi512_si256(row);
            high[lane] = _mm512_extracti64x4_epi64::<1>(row);
        }
        let (low, high) = (avx2::transpose_u32(low), avx2::transpose_u32(high));
        let mut columns = [zero; 16];
        columns[..8].copy_from_slice(&low);
        columns[8..].copy_from_slice(&high);
        columns
    }

    compression! {
        #[target_feature(enable = "avx512f,avx512vl,avx2")]
        #[inline]
        pub(super) fn compress(__m256i)
    }

    #[target_feature(enable = "avx512f,avx512vl")]
    #[inline]
    fn rotate<const BITS: i32>(a: __m256i) -> __m256i {
        _mm256_ror_epi32::<BITS>(a)
    }
}
