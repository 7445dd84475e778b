//! 256-bit rows and lanes.

use core::arch::x86_64::*;

use crate::Digest;

/// 32 bytes.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn load(row: &[u8; 32]) -> __m256i {
    // SAFETY: `row` is 32 readable bytes, and the load asks for no alignment.
    unsafe { _mm256_loadu_si256(row.as_ptr().cast()) }
}

/// The bytes of `row`, fewer than 32, then the byte `mark`, then zeros.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn load_marked(row: &[u8], mark: u8) -> __m256i {
    let (words, tail) = (row.len() / 4, row.len() % 4);
    let end = match row.last_chunk() {
        Some(end) => (u64::from(u32::from_le_bytes(*end)) >> (8 * (4 - tail))) as u32,
        None => row.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte)),
    };
    let end = _mm256_set1_epi32((end | u32::from(mark) << (8 * tail)).cast_signed());
    let (index, words) = (_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), words as i32);
    // A masked load from an empty slice's address is sound but very slow if no page is there.
    let row = if row.is_empty() { &[0; 32][..0] } else { row };
    let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(words), index);
    // SAFETY: the mask selects whole words inside `row` alone; the others are neither read nor
    // faulted on.
    let whole = unsafe { _mm256_maskload_epi32(row.as_ptr().cast(), mask) };
    let at_end = _mm256_cmpeq_epi32(_mm256_set1_epi32(words), index);
    _mm256_or_si256(whole, _mm256_and_si256(at_end, end))
}

/// One word for each lane, the same in memory order.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn words(words: &[u32; 8]) -> __m256i {
    // SAFETY: `words` is 32 readable bytes, and the load asks for no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

/// The lanes in memory order.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn to_words(lanes: __m256i) -> [u32; 8] {
    let mut words = [0; 8];
    // SAFETY: `words` is 32 writable bytes, and the store asks for no alignment.
    unsafe { _mm256_storeu_si256(words.as_mut_ptr().cast(), lanes) };
    words
}

/// The 32 bytes of a row.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn to_bytes(row: __m256i) -> [u8; 32] {
    let mut bytes = [0; 32];
    // SAFETY: `bytes` is 32 writable bytes, and the store asks for no alignment.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), row) };
    bytes
}

/// Rows to columns: word `i` of row `j` becomes word `j` of column `i`.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn transpose_u64(rows: [__m256i; 4]) -> [__m256i; 4] {
    let [r0, r1, r2, r3] = rows;
    let (a0, b0) = (_mm256_unpacklo_epi64(r0, r1), _mm256_unpackhi_epi64(r0, r1));
    let (a1, b1) = (_mm256_unpacklo_epi64(r2, r3), _mm256_unpackhi_epi64(r2, r3));
    let ((c0, c2), (c1, c3)) = (halves(a0, a1), halves(b0, b1));
    [c0, c1, c2, c3]
}

/// Rows to columns: word `i` of row `j` becomes word `j` of column `i`.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn transpose_u32(rows: [__m256i; 8]) -> [__m256i; 8] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = rows;
    let low = transpose_halves(r0, r1, r2, r3);
    let high = transpose_halves(r4, r5, r6, r7);
    let (c0, c4) = halves(low[0], high[0]);
    let (c1, c5) = halves(low[1], high[1]);
    let (c2, c6) = halves(low[2], high[2]);
    let (c3, c7) = halves(low[3], high[3]);
    [c0, c1, c2, c3, c4, c5, c6, c7]
}

/// The digests that eight columns of 32-bit words make up.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn digests_u32(columns: [__m256i; 8]) -> [Digest; 8] {
    let [r0, r1, r2, r3, r4, r5, r6, r7] = transpose_u32(columns);
    [
        to_bytes(r0),
        to_bytes(r1),
        to_bytes(r2),
        to_bytes(r3),
        to_bytes(r4),
        to_bytes(r5),
        to_bytes(r6),
        to_bytes(r7),
    ]
}

/// The digests that four columns of 64-bit words make up.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) fn digests_u64(columns: [__m256i; 4]) -> [Digest; 4] {
    let [r0, r1, r2, r3] = transpose_u64(columns);
    [to_bytes(r0), to_bytes(r1), to_bytes(r2), to_bytes(r3)]
}

/// The low 128 bits of both, and the high ones.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(a: __m256i, b: __m256i) -> (__m256i, __m256i) {
    (_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x31>(a, b))
}

/// In each 128 bits, word `i` of row `j` becomes word `j` of column `i`.
#[target_feature(enable = "avx2")]
#[inline]
fn transpose_halves(r0: __m256i, r1: __m256i, r2: __m256i, r3: __m256i) -> [__m256i; 4] {
    let (a, b) = (_mm256_unpacklo_epi32(r0, r1), _mm256_unpackhi_epi32(r0, r1));
    let (c, d) = (_mm256_unpacklo_epi32(r2, r3), _mm256_unpackhi_epi32(r2, r3));
    [
        _mm256_unpacklo_epi64(a, c),
        _mm256_unpackhi_epi64(a, c),
        _mm256_unpacklo_epi64(b, d),
        _mm256_unpackhi_epi64(b, d),
    ]
}
