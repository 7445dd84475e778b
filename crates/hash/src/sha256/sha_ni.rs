//! The SHA instructions on one to four independent inputs, whose chains of rounds interleave: one
//! chain waits four cycles for each of its instructions, and four of them fill the wait.
//!
//! The instructions keep a state as two vectors, ABEF and CDGH from the highest word down.

use core::arch::x86_64::*;

use super::{
    blocks,
    rounds::{CONSTANTS, INITIAL, SCHEDULE_AFTER_64},
};
use crate::Digest;

/// The digest of each input.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
pub(super) fn hash<const N: usize>(inputs: &[&[u8]; N], digests: &mut [Digest; N]) {
    if let Some(pairs) = pairs(inputs) {
        return hash_pairs(&pairs, digests);
    }
    let mut states = [initial(); N];
    let blocks = inputs.map(|input| blocks(input.len()));
    for block in 0..blocks.into_iter().fold(0, usize::max) {
        let mut messages = [[_mm_setzero_si128(); 4]; N];
        for n in 0..N {
            messages[n] = match inputs[n].get(64 * block..).and_then(|rest| rest.first_chunk()) {
                Some(whole) => load_block(whole),
                None => load_last(inputs[n], block),
            };
        }
        compress(&mut states, messages);
        for n in 0..N {
            if blocks[n] == block + 1 {
                digests[n] = store_digest(words_of(states[n]));
            }
        }
    }
}

/// The inputs, if they are 64 bytes each.
#[inline]
fn pairs<'a, const N: usize>(inputs: &[&'a [u8]; N]) -> Option<[&'a [u8; 64]; N]> {
    let mut pairs = [&[0; 64]; N];
    for (pair, input) in pairs.iter_mut().zip(inputs) {
        *pair = (*input).try_into().ok()?;
    }
    Some(pairs)
}

/// The digests of 64-byte inputs: their second block is padding alone, and known.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
fn hash_pairs<const N: usize>(pairs: &[&[u8; 64]; N], digests: &mut [Digest; N]) {
    let mut states = [initial(); N];
    let mut messages = [[_mm_setzero_si128(); 4]; N];
    for n in 0..N {
        messages[n] = load_block(pairs[n]);
    }
    compress(&mut states, messages);
    let before = states;
    for quad in SCHEDULE_AFTER_64.as_chunks().0 {
        let words = load_words(quad);
        for state in &mut states {
            *state = rounds(*state, words);
        }
    }
    for n in 0..N {
        digests[n] = store_digest(words_of(sum(states[n], before[n])));
    }
}

/// Takes each hash up one level beside its sibling: the children, the one of bit `n` of `right` on
/// the right, then the tail of known schedule.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
pub(super) fn climb<const N: usize>(
    hashes: &mut [[__m128i; 2]; N],
    tails: &[[__m128i; 16]; N],
    siblings: &[&Digest; N],
    right: u16,
) {
    let mut messages = [[_mm_setzero_si128(); 4]; N];
    for n in 0..N {
        let (hash, sibling) = (hashes[n], load_digest(siblings[n]));
        let right = _mm_set1_epi32(-i32::from((right >> n) & 1));
        messages[n] = [
            _mm_blendv_epi8(hash[0], sibling[0], right),
            _mm_blendv_epi8(hash[1], sibling[1], right),
            _mm_blendv_epi8(sibling[0], hash[0], right),
            _mm_blendv_epi8(sibling[1], hash[1], right),
        ];
    }
    let mut states = [initial(); N];
    compress(&mut states, messages);
    let before = states;
    for quad in 0..16 {
        for (state, tail) in states.iter_mut().zip(tails) {
            *state = rounds(*state, tail[quad]);
        }
    }
    for n in 0..N {
        hashes[n] = words_of(sum(states[n], before[n]));
    }
}

/// The schedule of a block, constants added.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
pub(super) fn schedule(block: &[u8; 64]) -> [__m128i; 16] {
    let mut message = load_block(block);
    let mut words = [_mm_setzero_si128(); 16];
    macro_rules! four_words {
        ($($i:literal)*) => {$(
            if $i >= 4 {
                expand::<$i>(&mut message);
            }
            let constants = load_words(CONSTANTS[4 * $i..].first_chunk().expect("64 constants"));
            words[$i] = _mm_add_epi32(message[$i % 4], constants);
        )*};
    }
    four_words!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    words
}

/// One block of each input.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn compress<const N: usize>(states: &mut [[__m128i; 2]; N], mut messages: [[__m128i; 4]; N]) {
    let before = *states;
    // Unrolled by hand, so that the four words of each message keep their registers.
    macro_rules! four_rounds {
        ($($i:literal)*) => {$({
            let constants = load_words(CONSTANTS[4 * $i..].first_chunk().expect("64 constants"));
            for n in 0..N {
                if $i >= 4 {
                    expand::<$i>(&mut messages[n]);
                }
                let words = _mm_add_epi32(messages[n][$i % 4], constants);
                states[n] = rounds(states[n], words);
            }
        })*};
    }
    four_rounds!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    for n in 0..N {
        states[n] = sum(states[n], before[n]);
    }
}

/// Four rounds.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn rounds([abef, cdgh]: [__m128i; 2], words: __m128i) -> [__m128i; 2] {
    let cdgh = _mm_sha256rnds2_epu32(cdgh, abef, words);
    let abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32::<0x0e>(words));
    [abef, cdgh]
}

/// Replaces schedule words `4 * I - 16..4 * I - 12`, at `I % 4`, by `4 * I..4 * I + 4`.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn expand<const I: usize>(words: &mut [__m128i; 4]) {
    let (w0, w4, w8, w12) =
        (words[I % 4], words[(I + 1) % 4], words[(I + 2) % 4], words[(I + 3) % 4]);
    let sum = _mm_add_epi32(_mm_sha256msg1_epu32(w0, w4), _mm_alignr_epi8::<4>(w12, w8));
    words[I % 4] = _mm_sha256msg2_epu32(sum, w12);
}

#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn initial() -> [__m128i; 2] {
    let [a, b, c, d, e, f, g, h] = INITIAL.map(u32::cast_signed);
    [_mm_set_epi32(a, b, e, f), _mm_set_epi32(c, d, g, h)]
}

#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn sum(a: [__m128i; 2], b: [__m128i; 2]) -> [__m128i; 2] {
    [_mm_add_epi32(a[0], b[0]), _mm_add_epi32(a[1], b[1])]
}

/// A state's words in order, first word lowest.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn words_of([abef, cdgh]: [__m128i; 2]) -> [__m128i; 2] {
    let (abef, cdgh) = (_mm_shuffle_epi32::<0x1b>(abef), _mm_shuffle_epi32::<0x1b>(cdgh));
    [_mm_unpacklo_epi64(abef, cdgh), _mm_unpackhi_epi64(abef, cdgh)]
}

/// The digest of eight words, first word lowest.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
pub(super) fn store_digest([low, high]: [__m128i; 2]) -> Digest {
    let mut digest = [0; 32];
    let (low, high) = (swap_bytes(low), swap_bytes(high));
    // SAFETY: two stores of 16 bytes fill the 32 writable bytes of `digest`, at any alignment.
    #[expect(unsafe_code, reason = "vector stores take pointers")]
    unsafe {
        _mm_storeu_si128(digest.as_mut_ptr().cast(), low);
        _mm_storeu_si128(digest.as_mut_ptr().add(16).cast(), high);
    }
    digest
}

/// The eight words of a digest, first word lowest.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
pub(super) fn load_digest(digest: &Digest) -> [__m128i; 2] {
    // SAFETY: two loads of 16 bytes take the 32 readable bytes of `digest`, at any alignment.
    #[expect(unsafe_code, reason = "vector loads take pointers")]
    let (low, high) = unsafe {
        (_mm_loadu_si128(digest.as_ptr().cast()), _mm_loadu_si128(digest.as_ptr().add(16).cast()))
    };
    [swap_bytes(low), swap_bytes(high)]
}

#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn load_block(block: &[u8; 64]) -> [__m128i; 4] {
    let ([low, high], []) = block.as_chunks() else { unreachable!("64 = 32 + 32") };
    let ([a, b], [c, d]) = (load_digest(low), load_digest(high));
    [a, b, c, d]
}

/// Block `block` of `input`, which is not whole, with its padding. It is put together in registers:
/// a load that follows smaller stores to the same place would wait for them.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn load_last(input: &[u8], block: usize) -> [__m128i; 4] {
    let mut words = [_mm_setzero_si128(); 4];
    for (quad, words) in words.iter_mut().enumerate() {
        let start = 64 * block + 16 * quad;
        let bytes = match input.get(start..) {
            None => continue,
            Some(rest) => match rest.first_chunk() {
                Some(whole) => load_bytes(whole),
                None => load_end(input, rest.len()),
            },
        };
        *words = swap_bytes(bytes);
    }
    if blocks(input.len()) == block + 1 {
        let bits = (8 * input.len() as u64).cast_signed();
        // The length is one big-endian number, so its words stand high before low.
        let length = _mm_shuffle_epi32::<0b_10_11_01_00>(_mm_set_epi64x(bits, 0));
        words[3] = _mm_or_si128(words[3], length);
    }
    words
}

/// The last `count` bytes of `input`, fewer than 16, and the mark after them.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn load_end(input: &[u8], count: usize) -> __m128i {
    /// From entry `16 - n` on: moves the last `n` bytes of a vector to its start.
    static TO_START: [u8; 32] = {
        let mut order = [0x80; 32];
        let mut i = 0;
        while i < 16 {
            order[i] = i as u8;
            i += 1;
        }
        order
    };
    /// From entry `15 - n` on: a vector with the mark at byte `n`.
    static MARK: [u8; 32] = {
        let mut bytes = [0; 32];
        bytes[15] = 0x80;
        bytes
    };
    let bytes = match input.last_chunk() {
        Some(end) => {
            let order =
                load_bytes(TO_START[16 - count..].first_chunk().expect("count is below 16"));
            _mm_shuffle_epi8(load_bytes(end), order)
        }
        None => {
            let mut bytes = [0; 16];
            bytes[..count].copy_from_slice(input);
            load_bytes(&bytes)
        }
    };
    _mm_or_si128(bytes, load_bytes(MARK[15 - count..].first_chunk().expect("count is below 16")))
}

#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn load_bytes(bytes: &[u8; 16]) -> __m128i {
    // SAFETY: `bytes` is 16 readable bytes, and the load asks for no alignment.
    #[expect(unsafe_code, reason = "vector loads take pointers")]
    unsafe {
        _mm_loadu_si128(bytes.as_ptr().cast())
    }
}

#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn load_words(words: &[u32; 4]) -> __m128i {
    // SAFETY: `words` is 16 readable bytes, and the load asks for no alignment.
    #[expect(unsafe_code, reason = "vector loads take pointers")]
    unsafe {
        _mm_loadu_si128(words.as_ptr().cast())
    }
}

/// From big-endian words to words, and back.
#[target_feature(enable = "avx,sha,sse4.1,ssse3")]
#[inline]
fn swap_bytes(words: __m128i) -> __m128i {
    _mm_shuffle_epi8(words, _mm_setr_epi8(3, 2, 1, 0, 7, 6, 5, 4, 11, 10, 9, 8, 15, 14, 13, 12))
}
