//! The BLAKE3 compression function (BLAKE3 paper, section 2.2), written once and compiled for words
//! and for vectors of words.

/// The initial chaining value, that of SHA-256.
pub(super) const INITIAL: [u32; 8] = [
    0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19,
];

/// Which message word each place of each round takes: the permutation of table 2, again and again.
pub(super) const SCHEDULE: [[usize; 16]; 7] = {
    let permutation = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
    let mut schedule = [[0; 16]; 7];
    let mut i = 0;
    while i < 16 {
        schedule[0][i] = i;
        i += 1;
    }
    let mut round = 1;
    while round < 7 {
        i = 0;
        while i < 16 {
            schedule[round][i] = schedule[round - 1][permutation[i]];
            i += 1;
        }
        round += 1;
    }
    schedule
};

/// Defines the compression over some word; wants these functions in scope, on that word:
/// `splat(u32)`, `add(a, b)`, `xor(a, b)`, `rotate::<N>(a)` to the right.
///
/// `$name::<WORDS>(value, block, counter, len, flags)` replaces the chaining value `value`; message
/// words from `WORDS` on must be zeros and cost nothing.
macro_rules! compression {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($word:ty)) => {
        $(#[$attribute])*
        $visibility fn $name<const WORDS: usize>(
            value: &mut [$word; 8],
            block: &[$word; 16],
            counter: [$word; 2],
            len: $word,
            flags: $word,
        ) {
            let initial = $crate::blake3::rounds::INITIAL;
            let mut v = [
                value[0], value[1], value[2], value[3], value[4], value[5], value[6], value[7],
                splat(initial[0]), splat(initial[1]), splat(initial[2]), splat(initial[3]),
                counter[0], counter[1], len, flags,
            ];
            macro_rules! nothing {
                ($half:expr) => {};
            }
            $crate::blake3::rounds::rounds!(v, add, block, WORDS, nothing, 0 1 2 3 4 5 6);
            for i in 0..8 {
                value[i] = xor(v[i], v[8 + i]);
            }
        }
    };
}

/// Unrolls rounds, so that each of them knows its message words: those from `$words` on are zeros,
/// the others are added by `$add_word(a, word)`. What `$beside!(n)` says is done after half `n` of
/// the quarter rounds, four halves a round.
macro_rules! rounds {
    ($v:ident, $add_word:ident, $block:expr, $words:expr, $beside:ident, $($round:literal)*) => {$({
        use $crate::blake3::rounds::quarters;
        const WORD: [usize; 16] = $crate::blake3::rounds::SCHEDULE[$round];
        quarters!($v, $add_word, $block, $words, WORD, $beside!(4 * $round),
            [0 4 8 12 0 1] [1 5 9 13 2 3] [2 6 10 14 4 5] [3 7 11 15 6 7]);
        $beside!(4 * $round + 1);
        quarters!($v, $add_word, $block, $words, WORD, $beside!(4 * $round + 2),
            [0 5 10 15 8 9] [1 6 11 12 10 11] [2 7 8 13 12 13] [3 4 9 14 14 15]);
        $beside!(4 * $round + 3);
    })*};
}

/// Four independent quarter rounds G, step by step side by side, so that none waits for another:
/// each is four places in the state and two in the round's message. `$between` is done half-way.
macro_rules! quarters {
    ($v:ident, $add_word:ident, $block:expr, $words:expr, $word:ident, $between:stmt,
     $([$a:literal $b:literal $c:literal $d:literal $x:literal $y:literal])*) => {
        $(if $word[$x] < $words {
            $v[$a] = $add_word($v[$a], $block[$word[$x]]);
        })*
        $($v[$a] = add($v[$a], $v[$b]);)*
        $($v[$d] = rotate::<16>(xor($v[$d], $v[$a]));)*
        $($v[$c] = add($v[$c], $v[$d]);)*
        $($v[$b] = rotate::<12>(xor($v[$b], $v[$c]));)*
        $between
        $(if $word[$y] < $words {
            $v[$a] = $add_word($v[$a], $block[$word[$y]]);
        })*
        $($v[$a] = add($v[$a], $v[$b]);)*
        $($v[$d] = rotate::<8>(xor($v[$d], $v[$a]));)*
        $($v[$c] = add($v[$c], $v[$d]);)*
        $($v[$b] = rotate::<7>(xor($v[$b], $v[$c]));)*
    };
}

pub(super) use {compression, quarters, rounds};
