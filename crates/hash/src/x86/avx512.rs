//! 512-bit rows and lanes.

use core::arch::{asm, x86_64::*};

use crate::Digest;

/// The 64 bytes of a whole row.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn load(row: &[u8; 64]) -> __m512i {
    // SAFETY: `row` is 64 readable bytes, and the load asks for no alignment.
    unsafe { _mm512_loadu_si512(row.as_ptr().cast()) }
}

/// An array of what a function says of each of sixteen lanes. Unrolled, as an array that a loop
/// fills goes through memory.
macro_rules! each_lane {
    ($row:expr) => {
        [
            $row(0),
            $row(1),
            $row(2),
            $row(3),
            $row(4),
            $row(5),
            $row(6),
            $row(7),
            $row(8),
            $row(9),
            $row(10),
            $row(11),
            $row(12),
            $row(13),
            $row(14),
            $row(15),
        ]
    };
}

pub(crate) use each_lane;

/// `a` itself, but the compiler does not see how it came about, and so does not put the operations
/// before and after it in another order.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn apart(mut a: __m512i) -> __m512i {
    // SAFETY: there is no instruction, so nothing but `a` can be touched, and `a` keeps its value.
    unsafe { asm!("/* {0} */", inout(zmm_reg) a, options(pure, nomem, nostack, preserves_flags)) };
    a
}

/// The first 64 bytes of `row`, with zeros where it is shorter.
#[target_feature(enable = "avx512f,avx512bw,bmi2")]
#[inline]
pub(crate) fn load_partial(row: &[u8]) -> __m512i {
    // A masked load from an empty slice's address is sound but very slow if no page is there.
    let row = if row.is_empty() { &[0; 64][..0] } else { row };
    let mask = low_bits(row.len());
    // SAFETY: the mask selects bytes inside `row` alone; the others are neither read nor faulted
    // on.
    unsafe { _mm512_maskz_loadu_epi8(mask, row.as_ptr().cast()) }
}

/// One word for each lane, the same in memory order.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn words(words: &[u32; 16]) -> __m512i {
    // SAFETY: `words` is 64 readable bytes, and the load asks for no alignment.
    unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
}

/// The lanes in memory order.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn to_words(lanes: __m512i) -> [u32; 16] {
    let mut words = [0; 16];
    // SAFETY: `words` is 64 writable bytes, and the store asks for no alignment.
    unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), lanes) };
    words
}

/// From big-endian words to words, and back.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub(crate) fn swap_bytes(words: __m512i) -> __m512i {
    let order = _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12);
    _mm512_shuffle_epi8(words, _mm512_broadcast_i32x4(order))
}

/// A mask of the `count` lowest bits, all of them from 64 on.
#[target_feature(enable = "bmi2")]
#[inline]
pub(crate) fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { _bzhi_u64(u64::MAX, count as u32) }
}

/// Rows to columns: word `i` of row `j` becomes word `j` of column `i`.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn transpose_u64(rows: [__m512i; 8]) -> [__m512i; 8] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
    // Pairs of rows, then quadruples, then all eight; each step doubles the run of one column.
    let (a0, b0) = (_mm512_unpacklo_epi64(r0, r1), _mm512_unpackhi_epi64(r0, r1));
    let (a1, b1) = (_mm512_unpacklo_epi64(r2, r3), _mm512_unpackhi_epi64(r2, r3));
    let (a2, b2) = (_mm512_unpacklo_epi64(r4, r5), _mm512_unpackhi_epi64(r4, r5));
    let (a3, b3) = (_mm512_unpacklo_epi64(r6, r7), _mm512_unpackhi_epi64(r6, r7));
    let (c0, c2, c4, c6) = quarters(a0, a1, a2, a3);
    let (c1, c3, c5, c7) = quarters(b0, b1, b2, b3);
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

/// Collects the first, second, third and fourth 128 bits of four rows.
#[target_feature(enable = "avx512f")]
#[inline]
fn quarters(
    r0: __m512i,
    r1: __m512i,
    r2: __m512i,
    r3: __m512i,
) -> (__m512i, __m512i, __m512i, __m512i) {
    let (even0, odd0) =
        (_mm512_shuffle_i32x4::<0x88>(r0, r1), _mm512_shuffle_i32x4::<0xdd>(r0, r1));
    let (even1, odd1) =
        (_mm512_shuffle_i32x4::<0x88>(r2, r3), _mm512_shuffle_i32x4::<0xdd>(r2, r3));
    (
        _mm512_shuffle_i32x4::<0x88>(even0, even1),
        _mm512_shuffle_i32x4::<0x88>(odd0, odd1),
        _mm512_shuffle_i32x4::<0xdd>(even0, even1),
        _mm512_shuffle_i32x4::<0xdd>(odd0, odd1),
    )
}

/// In each 128 bits, word `i` of row `j` becomes word `j` of column `i`.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn transpose_quarters(
    r0: __m512i,
    r1: __m512i,
    r2: __m512i,
    r3: __m512i,
) -> [__m512i; 4] {
    let [c0, c1] = transpose_quarters_half(0, [r0, r1, r2, r3]);
    let [c2, c3] = transpose_quarters_half(1, [r0, r1, r2, r3]);
    [c0, c1, c2, c3]
}

/// The first two or the last two columns of [`transpose_quarters`].
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn transpose_quarters_half(half: usize, rows: [__m512i; 4]) -> [__m512i; 2] {
    let [r0, r1, r2, r3] = rows;
    let (a, b) = match half {
        0 => (_mm512_unpacklo_epi32(r0, r1), _mm512_unpacklo_epi32(r2, r3)),
        _ => (_mm512_unpackhi_epi32(r0, r1), _mm512_unpackhi_epi32(r2, r3)),
    };
    [_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b)]
}

/// Rows to columns: word `i` of row `j` becomes word `j` of column `i`.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn transpose_u32(rows: &[__m512i; 16]) -> [__m512i; 16] {
    let a = transpose_quarters(rows[0], rows[1], rows[2], rows[3]);
    let b = transpose_quarters(rows[4], rows[5], rows[6], rows[7]);
    let c = transpose_quarters(rows[8], rows[9], rows[10], rows[11]);
    let d = transpose_quarters(rows[12], rows[13], rows[14], rows[15]);
    let mut columns = [_mm512_setzero_si512(); 16];
    for i in 0..4 {
        (columns[i], columns[4 + i], columns[8 + i], columns[12 + i]) =
            quarters(a[i], b[i], c[i], d[i]);
    }
    columns
}

/// Half rows to columns, for rows of eight words: `rows[i]` holds half rows `i` and `8 + i`; word
/// `i` of half row `j` becomes word `j` of column `i`.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn transpose_halves_u32(rows: &[__m512i; 8]) -> [__m512i; 8] {
    let a = transpose_quarters(rows[0], rows[1], rows[2], rows[3]);
    let b = transpose_quarters(rows[4], rows[5], rows[6], rows[7]);
    let (even, odd) = (
        _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13),
        _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15),
    );
    let mut columns = [_mm512_setzero_si512(); 8];
    for i in 0..4 {
        columns[i] = _mm512_permutex2var_epi64(a[i], even, b[i]);
        columns[4 + i] = _mm512_permutex2var_epi64(a[i], odd, b[i]);
    }
    columns
}

/// The digests that eight columns of 32-bit words make up.
#[target_feature(enable = "avx512f,avx512dq,avx2")]
#[inline]
pub(crate) fn digests_u32(columns: [__m512i; 8]) -> [Digest; 16] {
    let [c0, c1, c2, c3, c4, c5, c6, c7] = columns;
    let low = transpose_quarters(c0, c1, c2, c3);
    let high = transpose_quarters(c4, c5, c6, c7);
    let mut digests = [[0; 32]; 16];
    for i in 0..4 {
        let [d0, d4, d8, d12] = interleave_quarters(low[i], high[i]);
        digests[i] = super::avx2::to_bytes(d0);
        digests[4 + i] = super::avx2::to_bytes(d4);
        digests[8 + i] = super::avx2::to_bytes(d8);
        digests[12 + i] = super::avx2::to_bytes(d12);
    }
    digests
}

/// The digests that four columns of 64-bit words make up.
#[target_feature(enable = "avx512f,avx512dq,avx2")]
#[inline]
pub(crate) fn digests_u64(columns: [__m512i; 4]) -> [Digest; 8] {
    let [d0, d1, d2, d3, d4, d5, d6, d7] = transpose_four_u64(columns);
    let bytes = super::avx2::to_bytes;
    [bytes(d0), bytes(d1), bytes(d2), bytes(d3), bytes(d4), bytes(d5), bytes(d6), bytes(d7)]
}

/// The 128-bit quarters of a row.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn to_quarters(row: __m512i) -> [[u8; 16]; 4] {
    let mut quarters = [[0; 16]; 4];
    // SAFETY: each of them is 16 writable bytes, and the stores ask for no alignment.
    unsafe {
        _mm_storeu_si128(quarters[0].as_mut_ptr().cast(), _mm512_castsi512_si128(row));
        _mm_storeu_si128(quarters[1].as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<1>(row));
        _mm_storeu_si128(quarters[2].as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<2>(row));
        _mm_storeu_si128(quarters[3].as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<3>(row));
    }
    quarters
}

/// Four rows to eight columns: word `i` of row `j` becomes word `j` of column `i`.
#[target_feature(enable = "avx512f,avx512dq,avx2")]
#[inline]
pub(crate) fn transpose_four_u64(rows: [__m512i; 4]) -> [__m256i; 8] {
    let [r0, r1, r2, r3] = rows;
    let [c0, c2, c4, c6] =
        interleave_quarters(_mm512_unpacklo_epi64(r0, r1), _mm512_unpacklo_epi64(r2, r3));
    let [c1, c3, c5, c7] =
        interleave_quarters(_mm512_unpackhi_epi64(r0, r1), _mm512_unpackhi_epi64(r2, r3));
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

/// Row `i` is the `i`-th 128 bits of `low`, then those of `high`.
#[target_feature(enable = "avx512f,avx512dq,avx2")]
#[inline]
fn interleave_quarters(low: __m512i, high: __m512i) -> [__m256i; 4] {
    let (first, last) = (
        _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
        _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15),
    );
    let first = _mm512_permutex2var_epi64(low, first, high);
    let last = _mm512_permutex2var_epi64(low, last, high);
    [
        _mm512_castsi512_si256(first),
        _mm512_extracti64x4_epi64::<1>(first),
        _mm512_castsi512_si256(last),
        _mm512_extracti64x4_epi64::<1>(last),
    ]
}
