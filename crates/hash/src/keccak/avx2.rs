//! Four states in the 64-bit lanes of 256-bit registers; one state in general registers with the
//! BMI instructions that every such CPU has.

use core::{arch::x86_64::*, hint::black_box};

use super::{
    RATE, last_word, portable,
    rounds::{ROUND_CONSTANTS, round},
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
#[inline(never)]
pub(super) fn hash4(inputs: &[&[u8]; 4], known: Known, digests: &mut [Digest; 4]) {
    let mut state = [_mm256_setzero_si256(); 25];
    let shape = lanes::shape(inputs, known, super::blocks);
    for block in 0..shape.longest {
        absorb4(&mut state, inputs, block);
        permute4(&mut state);
        shape.take_ended(block, digests, || {
            avx2::digests_u64([state[0], state[1], state[2], state[3]])
        });
    }
}

/// Adds block `block` of each input, padded, to the states; past its last block an input is zeros.
#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn absorb4(state: &mut [__m256i; 25], inputs: &[&[u8]; 4], block: usize) {
    let rest = |lane: usize| inputs[lane].get(RATE * block..);
    for quad in 0..4 {
        let part = |lane: usize| quad_of(rest(lane), quad);
        let columns = avx2::transpose_u64([part(0), part(1), part(2), part(3)]);
        for (i, column) in columns.into_iter().enumerate() {
            state[4 * quad + i] = _mm256_xor_si256(state[4 * quad + i], column);
        }
    }
    let end = |lane: usize| rest(lane).map_or(0, last_word).cast_signed();
    let column = _mm256_setr_epi64x(end(0), end(1), end(2), end(3));
    state[16] = _mm256_xor_si256(state[16], column);
}

/// Four words of a block, of what is left of an input. They are padded in registers: a load that
/// follows smaller stores to the same place would wait for them.
#[target_feature(enable = "avx2,bmi1,bmi2")]
#[inline]
fn quad_of(rest: Option<&[u8]>, quad: usize) -> __m256i {
    match rest.and_then(|rest| rest.get(32 * quad..)) {
        None => _mm256_setzero_si256(),
        Some(part) => match part.first_chunk() {
            Some(whole) => avx2::load(whole),
            None => avx2::load_marked(part, 0x01),
        },
    }
}

/// The permutation, from one array to another and back. A state has more words than there are
/// registers, and a compiler that knows the arrays moves more about than this.
#[target_feature(enable = "avx2")]
#[inline]
fn permute4(state: &mut [__m256i; 25]) {
    let mut other = *state;
    let (state, other) = (black_box(state), black_box(&mut other));
    for [even, odd] in ROUND_CONSTANTS.as_chunks().0 {
        round!(state, other, *even);
        round!(other, state, *odd);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn neighbours(a: __m256i, b: __m256i) -> __m256i {
    _mm256_xor_si256(a, b)
}

#[target_feature(enable = "avx2")]
#[inline]
fn theta(a: __m256i, neighbours: __m256i) -> __m256i {
    _mm256_xor_si256(a, neighbours)
}

#[target_feature(enable = "avx2")]
#[inline]
fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(a, _mm256_xor_si256(b, c))
}

#[target_feature(enable = "avx2")]
#[inline]
fn rotate<const BITS: i32>(a: __m256i) -> __m256i {
    macro_rules! shifts {
        ($bits:literal) => {
            _mm256_or_si256(_mm256_slli_epi64::<$bits>(a), _mm256_srli_epi64::<{ 64 - $bits }>(a))
        };
    }
    // Whole bytes move in one shuffle.
    match BITS {
        8 => _mm256_shuffle_epi8(
            a,
            _mm256_broadcastsi128_si256(_mm_setr_epi8(
                7, 0, 1, 2, 3, 4, 5, 6, 15, 8, 9, 10, 11, 12, 13, 14,
            )),
        ),
        56 => _mm256_shuffle_epi8(
            a,
            _mm256_broadcastsi128_si256(_mm_setr_epi8(
                1, 2, 3, 4, 5, 6, 7, 0, 9, 10, 11, 12, 13, 14, 15, 8,
            )),
        ),
        // Shifts by constants, said so: whether a variable count is folded depends on inlining.
        1 => shifts!(1),
        2 => shifts!(2),
        3 => shifts!(3),
        6 => shifts!(6),
        10 => shifts!(10),
        14 => shifts!(14),
        15 => shifts!(15),
        18 => shifts!(18),
        20 => shifts!(20),
        21 => shifts!(21),
        25 => shifts!(25),
        27 => shifts!(27),
        28 => shifts!(28),
        36 => shifts!(36),
        39 => shifts!(39),
        41 => shifts!(41),
        43 => shifts!(43),
        44 => shifts!(44),
        45 => shifts!(45),
        55 => shifts!(55),
        61 => shifts!(61),
        62 => shifts!(62),
        _ => unreachable!("no lane rotates by {BITS}"),
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn chi(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
    _mm256_xor_si256(a, _mm256_andnot_si256(b, c))
}

#[target_feature(enable = "avx2")]
#[inline]
fn iota(a: __m256i, constant: u64) -> __m256i {
    _mm256_xor_si256(a, _mm256_set1_epi64x(constant.cast_signed()))
}

/// The digest of one input.
#[target_feature(enable = "bmi1,bmi2")]
pub(super) fn hash1(input: &[u8]) -> Digest {
    portable::sponge(input, |state| scalar::permute(state))
}

mod scalar {
    use super::super::{
        portable::{chi, iota, neighbours, rotate, theta, xor3},
        rounds::permutation,
    };

    permutation! {
        #[target_feature(enable = "bmi1,bmi2")]
        pub(super) fn permute(u64)
    }
}
