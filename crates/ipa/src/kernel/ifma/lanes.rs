//! Eight field elements side by side, in AVX-512 registers.
//!
//! Invariants:
//! - A [`Lanes`] has five limbs of 52 bits for each of its eight elements, least significant limb
//!   first: the multiplier of the instruction set is 52 bits wide. Every limb is below 2^52.
//! - Values are Montgomery forms with R = 2^260, reduced lazily: where a function says `< k q`, q
//!   being the modulus, that is what it needs or gives. A product of values below `a q` and `b q`
//!   comes out below `(1 + a b / 35) q`, since R is 35.3 times the base field's modulus and 141
//!   times the scalar field's.
//! - [`PendingSums`] hold limbs that may be negative or longer; they must pass through
//!   [`PendingSums::carry`], with a value that is not negative, before they are multiplied.
//!
//! Every function here needs AVX-512F and AVX-512IFMA, and says so to the compiler, which makes
//! calling it from elsewhere unsafe.

use std::arch::x86_64::*;
use std::marker::PhantomData;

use crate::field::{Fq, Fr, sub_limbs};

/// Elements side by side.
pub(super) const WIDTH: usize = 8;

const LIMB_BITS: u32 = 52;
const LIMB_MASK: u64 = (1 << LIMB_BITS) - 1;

/// Limbs of a value.
const LIMBS: usize = 5;

/// A field that lanes can hold.
pub(super) trait LaneField: Copy {
    /// The modulus q.
    const MODULUS: [u64; 4];
    /// The modulus in limbs of 52 bits.
    const PRIME: [u64; LIMBS];
    /// `-q^-1 mod 2^52`.
    const NEGATED_INVERSE: u64;

    /// 2^52 divided by the modulus's highest limb and 1.
    const RECIPROCAL: u64 = (1 << LIMB_BITS) / (Self::PRIME[LIMBS - 1] + 1);

    /// See [`multiples`].
    const MULTIPLES: [[u64; 2 * WIDTH]; LIMBS] = multiples(&Self::PRIME);

    /// The Montgomery form with R = 2^256.
    fn words(&self) -> &[u64; 4];

    /// From a reduced Montgomery form with R = 2^256.
    fn from_words(words: [u64; 4]) -> Self;
}

impl LaneField for Fq {
    const MODULUS: [u64; 4] = Self::MODULUS;
    const PRIME: [u64; LIMBS] = split(&Self::MODULUS);
    const NEGATED_INVERSE: u64 = negated_inverse(Self::MODULUS[0]);

    #[inline]
    fn words(&self) -> &[u64; 4] {
        self.montgomery()
    }

    #[inline]
    fn from_words(words: [u64; 4]) -> Self {
        Self::from_montgomery(words)
    }
}

impl LaneField for Fr {
    const MODULUS: [u64; 4] = Self::MODULUS;
    const PRIME: [u64; LIMBS] = split(&Self::MODULUS);
    const NEGATED_INVERSE: u64 = negated_inverse(Self::MODULUS[0]);

    #[inline]
    fn words(&self) -> &[u64; 4] {
        self.montgomery()
    }

    #[inline]
    fn from_words(words: [u64; 4]) -> Self {
        Self::from_montgomery(words)
    }
}

/// `-prime^-1 mod 2^52`, given the prime's low word.
const fn negated_inverse(prime: u64) -> u64 {
    let mut inverse = 1u64;
    let mut round = 0;
    while round < 6 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(prime.wrapping_mul(inverse)));
        round += 1;
    }
    inverse.wrapping_neg() & LIMB_MASK
}

/// Eight elements; see the invariants above.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lanes<F>([__m512i; LIMBS], PhantomData<F>);

/// Eight sums of elements whose carries are pending.
#[derive(Clone, Copy)]
pub(super) struct PendingSums<F>([__m512i; LIMBS], PhantomData<F>);

/// The limbs of eight elements in memory: `columns[limb][lane]`.
pub(super) type Columns = [[u64; WIDTH]; LIMBS];

/// Five limbs of a 256-bit number.
pub(super) const fn split(words: &[u64; 4]) -> [u64; LIMBS] {
    [
        words[0] & LIMB_MASK,
        (words[0] >> 52 | words[1] << 12) & LIMB_MASK,
        (words[1] >> 40 | words[2] << 24) & LIMB_MASK,
        (words[2] >> 28 | words[3] << 36) & LIMB_MASK,
        words[3] >> 16,
    ]
}

#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn broadcast(limb: u64) -> __m512i {
    _mm512_set1_epi64(limb.cast_signed())
}

impl<F: LaneField> Lanes<F> {
    /// The same number, below 2^256, in all lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn splat(words: &[u64; 4]) -> Self {
        Self(split(words).map(|limb| broadcast(limb)), PhantomData)
    }

    /// One number of four words for each lane.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn load(numbers: [&[u64; 4]; WIDTH]) -> Self {
        let [a, b, c, d] = transpose(numbers);
        let mask = broadcast(LIMB_MASK);
        Self(
            [
                _mm512_and_si512(a, mask),
                _mm512_and_si512(
                    _mm512_or_si512(_mm512_srli_epi64::<52>(a), _mm512_slli_epi64::<12>(b)),
                    mask,
                ),
                _mm512_and_si512(
                    _mm512_or_si512(_mm512_srli_epi64::<40>(b), _mm512_slli_epi64::<24>(c)),
                    mask,
                ),
                _mm512_and_si512(
                    _mm512_or_si512(_mm512_srli_epi64::<28>(c), _mm512_slli_epi64::<36>(d)),
                    mask,
                ),
                _mm512_srli_epi64::<16>(d),
            ],
            PhantomData,
        )
    }

    /// 16 times one number of four words for each lane: from the Montgomery form with R = 2^256 to
    /// that with R = 2^260. The result is `< 16 q` of numbers below q.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn load_times_16(numbers: [&[u64; 4]; WIDTH]) -> Self {
        let [a, b, c, d] = transpose(numbers);
        let mask = broadcast(LIMB_MASK);
        Self(
            [
                _mm512_and_si512(_mm512_slli_epi64::<4>(a), mask),
                _mm512_and_si512(
                    _mm512_or_si512(_mm512_srli_epi64::<48>(a), _mm512_slli_epi64::<16>(b)),
                    mask,
                ),
                _mm512_and_si512(
                    _mm512_or_si512(_mm512_srli_epi64::<36>(b), _mm512_slli_epi64::<28>(c)),
                    mask,
                ),
                _mm512_and_si512(
                    _mm512_or_si512(_mm512_srli_epi64::<24>(c), _mm512_slli_epi64::<40>(d)),
                    mask,
                ),
                _mm512_srli_epi64::<12>(d),
            ],
            PhantomData,
        )
    }

    /// The limbs, in memory.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn to_columns(self) -> Columns {
        self.0.map(|limb| {
            let mut column = [0; WIDTH];
            // SAFETY: the column has the 64 bytes that are written; no alignment is asked for.
            unsafe { _mm512_storeu_si512(column.as_mut_ptr().cast(), limb) };
            column
        })
    }

    /// Limbs from memory. They are below 2^52.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn from_columns(columns: &Columns) -> Self {
        let mut limbs = [_mm512_setzero_si512(); LIMBS];
        for (limb, column) in limbs.iter_mut().zip(columns) {
            // SAFETY: the column has the 64 bytes that are read; no alignment is asked for.
            *limb = unsafe { _mm512_loadu_si512(column.as_ptr().cast()) };
        }
        Self(limbs, PhantomData)
    }

    /// These lanes, and other limbs in one of them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn with_lane(&self, lane: usize, limbs: &[u64; LIMBS]) -> Self {
        Self(
            std::array::from_fn(|j| {
                _mm512_mask_set1_epi64(self.0[j], 1 << lane, limbs[j].cast_signed())
            }),
            PhantomData,
        )
    }

    /// The number of each lane, of values `< 2 q`, reduced.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn to_reduced(self) -> [[u64; 4]; WIDTH] {
        let columns = self.to_columns();
        std::array::from_fn(|lane| reduced::<F>(columns.map(|column| column[lane])))
    }

    /// The Montgomery product: `< (1 + a b / 35) q` of values `< a q` and `< b q`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn mul(&self, other: &Self) -> Self {
        let zero = _mm512_setzero_si512();
        let mask = broadcast(LIMB_MASK);
        let negated_inverse = broadcast(F::NEGATED_INVERSE);
        let prime = F::PRIME.map(|limb| broadcast(limb));
        // All limbs of the product at once: rows that are shifted take an addition a limb more, and
        // additions compete with the multiplier.
        let mut t = [zero; 2 * LIMBS];
        for (i, &b) in other.0.iter().enumerate() {
            for (j, &a) in self.0.iter().enumerate() {
                t[i + j] = _mm512_madd52lo_epu64(t[i + j], a, b);
                t[i + j + 1] = _mm512_madd52hi_epu64(t[i + j + 1], a, b);
            }
        }
        for i in 0..LIMBS {
            // The multiple of q that clears the lowest limb, of which only a carry is left: it is
            // rounded up.
            let m = _mm512_madd52lo_epu64(zero, t[i], negated_inverse);
            let carry = _mm512_srli_epi64::<LIMB_BITS>(_mm512_add_epi64(t[i], mask));
            t[i + 1] = _mm512_add_epi64(t[i + 1], carry);
            t[i + 1] = _mm512_madd52hi_epu64(t[i + 1], m, prime[0]);
            for j in 1..LIMBS {
                t[i + j] = _mm512_madd52lo_epu64(t[i + j], m, prime[j]);
                t[i + j + 1] = _mm512_madd52hi_epu64(t[i + j + 1], m, prime[j]);
            }
        }
        let mut limbs = [zero; LIMBS];
        let mut carry = zero;
        for (limb, &sum) in limbs[..LIMBS - 1].iter_mut().zip(&t[LIMBS..]) {
            let sum = _mm512_add_epi64(sum, carry);
            *limb = _mm512_and_si512(sum, mask);
            carry = _mm512_srli_epi64::<LIMB_BITS>(sum);
        }
        limbs[LIMBS - 1] = _mm512_add_epi64(t[2 * LIMBS - 1], carry);
        Self(limbs, PhantomData)
    }

    /// These lanes, and those of `other` where the bit of the lane is set.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn blend(&self, lanes: u8, other: &Self) -> Self {
        Self(
            std::array::from_fn(|j| _mm512_mask_blend_epi64(lanes, self.0[j], other.0[j])),
            PhantomData,
        )
    }

    /// Begins a sum with these terms alone.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn pending(&self) -> PendingSums<F> {
        PendingSums(self.0, PhantomData)
    }

    /// Begins a sum.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn plus(&self, other: &Self) -> PendingSums<F> {
        PendingSums(self.0, PhantomData).plus(other)
    }

    /// Begins a difference.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn minus(&self, other: &Self) -> PendingSums<F> {
        PendingSums(self.0, PhantomData).minus(other)
    }
}

impl<F: LaneField> PendingSums<F> {
    /// `self + other`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn plus(&self, other: &Lanes<F>) -> Self {
        Self(std::array::from_fn(|j| _mm512_add_epi64(self.0[j], other.0[j])), PhantomData)
    }

    /// `self - other`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn minus(&self, other: &Lanes<F>) -> Self {
        Self(std::array::from_fn(|j| _mm512_sub_epi64(self.0[j], other.0[j])), PhantomData)
    }

    /// `self + other`, or `self - other` where the bit of the lane is set.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn plus_or_minus(&self, lanes: u8, other: &Lanes<F>) -> Self {
        Self(
            std::array::from_fn(|j| {
                let sum = _mm512_add_epi64(self.0[j], other.0[j]);
                _mm512_mask_sub_epi64(sum, lanes, self.0[j], other.0[j])
            }),
            PhantomData,
        )
    }

    /// `self + 4 * other`, or `self - 4 * other` where the bit of the lane is set.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn plus_or_minus_4(&self, lanes: u8, other: &Lanes<F>) -> Self {
        let times_4 =
            Lanes(std::array::from_fn(|j| _mm512_slli_epi64::<2>(other.0[j])), PhantomData);
        self.plus_or_minus(lanes, &times_4)
    }

    /// Adds `K` times q, so that a difference is not negative.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn plus_primes<const K: u64>(&self) -> Self {
        Self(
            std::array::from_fn(|j| _mm512_add_epi64(self.0[j], broadcast(F::PRIME[j] * K))),
            PhantomData,
        )
    }

    /// The value in limbs below 2^52. It is not negative and `< 35 q`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn carry(&self) -> Lanes<F> {
        let mask = broadcast(LIMB_MASK);
        let mut limbs = self.0;
        let mut carry = _mm512_setzero_si512();
        for limb in &mut limbs[..LIMBS - 1] {
            let sum = _mm512_add_epi64(*limb, carry);
            *limb = _mm512_and_si512(sum, mask);
            carry = _mm512_srai_epi64::<LIMB_BITS>(sum);
        }
        limbs[LIMBS - 1] = _mm512_add_epi64(limbs[LIMBS - 1], carry);
        Lanes(limbs, PhantomData)
    }

    /// The value less a multiple of q: `< 1.1 q`. It is not negative and `< 10 q`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn settle(&self) -> Lanes<F> {
        let mut limbs = self.0;
        // How often q goes into the value and q, told by the highest limb: never more, and less
        // only where the rest is below 1.1 q. What the limbs below carry into it is more than -8.
        let above = _mm512_add_epi64(limbs[LIMBS - 1], broadcast(F::PRIME[LIMBS - 1] - 8));
        let count = _mm512_madd52hi_epu64(_mm512_setzero_si512(), above, broadcast(F::RECIPROCAL));
        for (limb, multiples) in limbs.iter_mut().zip(&F::MULTIPLES) {
            *limb = _mm512_sub_epi64(*limb, lookup(multiples, count));
        }
        Self(limbs, PhantomData).carry()
    }
}

/// In each lane the number at an index below 16.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn lookup(numbers: &[u64; 2 * WIDTH], indices: __m512i) -> __m512i {
    let (low, high) = numbers.split_at(WIDTH);
    let half = |numbers: &[u64]| {
        debug_assert_eq!(numbers.len(), WIDTH);
        // SAFETY: each half has the 64 bytes that are read; no alignment is asked for.
        unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
    };
    _mm512_permutex2var_epi64(half(low), indices, half(high))
}

/// For each limb of q its multiples by -1, 0, 1 .. 14: modulo 2^64, with carries pending.
const fn multiples(prime: &[u64; LIMBS]) -> [[u64; 2 * WIDTH]; LIMBS] {
    let mut multiples = [[0; 2 * WIDTH]; LIMBS];
    let mut limb = 0;
    while limb < LIMBS {
        let mut count = 0;
        while count < 2 * WIDTH {
            multiples[limb][count] = prime[limb].wrapping_mul((count as u64).wrapping_sub(1));
            count += 1;
        }
        limb += 1;
    }
    multiples
}

/// Word i of every number in register i, lane by lane.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn transpose(numbers: [&[u64; 4]; WIDTH]) -> [__m512i; 4] {
    // Rows hold the numbers of lanes j and j + 4.
    let row = |j: usize| {
        let half = |number: &[u64; 4]| {
            // SAFETY: a number has the 32 bytes that are read; no alignment is asked for.
            unsafe { _mm256_loadu_si256(number.as_ptr().cast()) }
        };
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(half(numbers[j])), half(numbers[j + 4]))
    };
    let (r0, r1, r2, r3) = (row(0), row(1), row(2), row(3));
    // Words 0 and 2, then 1 and 3, of two lanes side by side.
    let (even_01, odd_01) = (_mm512_unpacklo_epi64(r0, r1), _mm512_unpackhi_epi64(r0, r1));
    let (even_23, odd_23) = (_mm512_unpacklo_epi64(r2, r3), _mm512_unpackhi_epi64(r2, r3));
    let first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    let second = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    [
        _mm512_permutex2var_epi64(even_01, first, even_23),
        _mm512_permutex2var_epi64(odd_01, first, odd_23),
        _mm512_permutex2var_epi64(even_01, second, even_23),
        _mm512_permutex2var_epi64(odd_01, second, odd_23),
    ]
}

/// The reduced number of limbs whose value is below 2q.
fn reduced<F: LaneField>(limbs: [u64; LIMBS]) -> [u64; 4] {
    let words = [
        limbs[0] | limbs[1] << 52,
        limbs[1] >> 12 | limbs[2] << 40,
        limbs[2] >> 24 | limbs[3] << 28,
        limbs[3] >> 36 | limbs[4] << 16,
    ];
    let (reduced, borrow) = sub_limbs(&words, &F::MODULUS);
    if borrow { words } else { reduced }
}
