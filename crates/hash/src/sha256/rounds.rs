//! The SHA-256 compression function (FIPS 180-4, section 6.2), written once and compiled for words
//! and for vectors of words.

use crate::Digest;

/// The round constants: the first 32 fraction bits of the cube roots of the first 64 primes.
#[rustfmt::skip]
pub(super) const CONSTANTS: [u32; 64] = [
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
];

/// The initial hash value: the first 32 fraction bits of the square roots of the first 8 primes.
pub(super) const INITIAL: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// The schedule of the block that pads a 64-byte input, constants added.
pub(super) static SCHEDULE_AFTER_64: [u32; 64] = {
    let mut block = [0; 16];
    block[0] = 0x8000_0000;
    block[15] = 8 * 64;
    schedule(block)
};

/// The 64 words of a block's message schedule, each with its round constant added.
pub(super) const fn schedule(block: [u32; 16]) -> [u32; 64] {
    let mut words = [0u32; 64];
    let mut i = 0;
    while i < 64 {
        words[i] = if i < 16 {
            block[i]
        } else {
            let (x, y) = (words[i - 15], words[i - 2]);
            let s0 = x.rotate_right(7) ^ x.rotate_right(18) ^ (x >> 3);
            let s1 = y.rotate_right(17) ^ y.rotate_right(19) ^ (y >> 10);
            words[i - 16].wrapping_add(s0).wrapping_add(words[i - 7]).wrapping_add(s1)
        };
        i += 1;
    }
    i = 0;
    while i < 64 {
        words[i] = words[i].wrapping_add(CONSTANTS[i]);
        i += 1;
    }
    words
}

/// The words of a digest.
pub(super) fn words_of(digest: &Digest) -> [u32; 8] {
    let mut words = [0; 8];
    for (word, bytes) in words.iter_mut().zip(digest.as_chunks().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    words
}

/// The digest of these words.
pub(super) fn digest_of(words: &[u32; 8]) -> Digest {
    let mut digest = [0; 32];
    for (bytes, word) in digest.as_chunks_mut().0.iter_mut().zip(words) {
        *bytes = word.to_be_bytes();
    }
    digest
}

/// Defines the compression over some word; wants these functions in scope, on that word:
/// `splat(u32)`, `add(a, b)`, `rotate::<N>(a)` and `shift::<N>(a)` to the right, `xor3(a, b, c)`,
/// `choose(a, b, c)` = a ? b : c in each bit, `majority(a, b, c)`.
///
/// `$compress` takes a block; `$expanded` a function from the round to its schedule word with the
/// constant added.
macro_rules! compression {
    ($(#[$attribute:meta])* fn $compress:ident, $expanded:ident($word:ty)) => {
        $(#[$attribute])*
        fn $compress(state: &mut [$word; 8], block: &[$word; 16]) {
            let (mut s, mut w) = (*state, *block);
            for i in 0..4 {
                let constants = &$crate::sha256::rounds::CONSTANTS[16 * i..][..16];
                if i > 0 {
                    $crate::sha256::rounds::sixteen!(expand, w);
                }
                $crate::sha256::rounds::sixteen!(round, s, |i| add(w[i], splat(constants[i])));
            }
            for (sum, word) in state.iter_mut().zip(s) {
                *sum = add(*sum, word);
            }
        }

        $(#[$attribute])*
        fn $expanded(state: &mut [$word; 8], word: impl Fn(usize) -> $word) {
            let mut s = *state;
            for i in 0..4 {
                $crate::sha256::rounds::sixteen!(round, s, |j| word(16 * i + j));
            }
            for (sum, word) in state.iter_mut().zip(s) {
                *sum = add(*sum, word);
            }
        }
    };
}

/// Defines what expands the schedules of all lanes' second blocks at once; wants what
/// [`compression`] wants in scope, and a module `$lanes` that loads words (`words`) and takes them
/// back (`to_words`).
macro_rules! expansion {
    ($(#[$attribute:meta])* fn $expand:ident($words:ty), $lanes:ident) => {
        $(#[$attribute])*
        fn $expand(lanes: &mut $words) {
            let mut words = [splat(0); 16];
            for (word, block) in words.iter_mut().zip(&lanes.block) {
                *word = $lanes::words(block);
            }
            let constants = $crate::sha256::rounds::CONSTANTS.as_chunks::<16>().0;
            let tails = lanes.tail.as_chunks_mut::<16>().0;
            for (i, (tail, constants)) in tails.iter_mut().zip(constants).enumerate() {
                if i > 0 {
                    $crate::sha256::rounds::sixteen!(expand, words);
                }
                for ((tail, word), constant) in tail.iter_mut().zip(words).zip(constants) {
                    *tail = $lanes::to_words(add(word, splat(*constant)));
                }
            }
        }
    };
}

/// Unrolls sixteen rounds, or sixteen words of the message schedule.
macro_rules! sixteen {
    (round, $s:ident, |$i:ident| $word:expr) => {
        $crate::sha256::rounds::sixteen!(
            @round $s, $i, $word, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
        )
    };
    (@round $s:ident, $i:ident, $word:expr, $($n:literal)*) => {$({
        let $i = $n;
        let [a, b, c, d, e, f, g, h] = $s;
        let s1 = xor3(rotate::<6>(e), rotate::<11>(e), rotate::<25>(e));
        let s0 = xor3(rotate::<2>(a), rotate::<13>(a), rotate::<22>(a));
        let t = add(add(add(h, $word), choose(e, f, g)), s1);
        $s = [add(t, add(s0, majority(a, b, c))), a, b, c, add(d, t), e, f, g];
    })*};
    (expand, $w:ident) => {
        $crate::sha256::rounds::sixteen!(@expand $w, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@expand $w:ident, $($n:literal)*) => {$({
        let (x, y) = ($w[($n + 1) % 16], $w[($n + 14) % 16]);
        let s0 = xor3(rotate::<7>(x), rotate::<18>(x), shift::<3>(x));
        let s1 = xor3(rotate::<17>(y), rotate::<19>(y), shift::<10>(y));
        $w[$n] = add(add($w[$n], s0), add($w[($n + 9) % 16], s1));
    })*};
}

pub(super) use {compression, expansion, sixteen};
