//! The base field, with Legendre symbol and square root.

use std::sync::LazyLock;

use super::element::prime_field;
use super::montgomery::sub_limbs;

prime_field!(
    /// A coordinate: an element of the base field of Bandersnatch, which is the scalar field of
    /// BLS12-381, q = 0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001, 255 bits.
    ///
    /// Encoded as 32 big-endian bytes where points are encoded.
    Fq,
    PRIME,
    [0xffffffff00000001, 0x53bda402fffe5bfe, 0x3339d80809a1d805, 0x73eda753299d7d48]
);

/// `q - 1 = 2^TWO_ADICITY * t` with t odd.
const TWO_ADICITY: usize = 32;

/// `(t - 1) / 2`, the exponent both the square root and the Legendre symbol start from.
pub(crate) const ROOT_EXPONENT: [u64; 4] =
    [0x7fff2dff7fffffff, 0x04d0ec02a9ded201, 0x94cebea4199cec04, 0x39f6d3a9];

/// `2^31`: with p that power of x, `(p^2 x)^(2^31)` is `x^((q - 1) / 2)`, which is the Legendre
/// symbol.
pub(crate) const SYMBOL_EXPONENT: [u64; 4] = [1 << (TWO_ADICITY - 1), 0, 0, 0];

/// Bits of a discrete logarithm found with one look-up.
const CHUNK_BITS: usize = 8;
const CHUNKS: usize = TWO_ADICITY / CHUNK_BITS;

impl Fq {
    /// Decodes 32 big-endian bytes.
    ///
    /// # Errors
    /// If the integer is not below the modulus.
    pub fn from_be_bytes(bytes: &[u8; 32]) -> Result<Self, super::NotCanonical> {
        let mut reversed = *bytes;
        reversed.reverse();
        Self::from_le_bytes(&reversed)
    }

    /// The canonical integer as 32 big-endian bytes.
    pub fn to_be_bytes(&self) -> [u8; 32] {
        let mut bytes = self.to_le_bytes();
        bytes.reverse();
        bytes
    }

    /// Whether this is above (q - 1) / 2, that is, lexicographically larger than its negation.
    pub fn is_largest(&self) -> bool {
        Self::is_integer_largest(&self.to_limbs())
    }

    /// Whether an integer is below the modulus.
    pub(crate) fn is_canonical(limbs: &[u64; 4]) -> bool {
        PRIME.contains(limbs)
    }

    /// Whether a reduced integer is above (q - 1) / 2.
    pub(crate) fn is_integer_largest(limbs: &[u64; 4]) -> bool {
        let negated = sub_limbs(&PRIME.prime, limbs).0;
        sub_limbs(&negated, limbs).1
    }

    /// The Legendre symbol: 0 of zero, 1 of a non-zero square, -1 otherwise.
    pub fn legendre(&self) -> i32 {
        if self.is_zero() {
            return 0;
        }
        let symbol = (self.root_power().square() * *self).pow(&SYMBOL_EXPONENT);
        if symbol == Self::ONE { 1 } else { -1 }
    }

    /// A square root, or `None` where there is none. Which of the two it is is not specified.
    pub fn sqrt(&self) -> Option<Self> {
        SquareRoots::shared().root_from_power(*self, self.root_power())
    }

    /// `self^((t - 1) / 2)`.
    fn root_power(&self) -> Self {
        self.pow(&ROOT_EXPONENT)
    }

    /// The Montgomery form, R = 2^256: what kernels load.
    #[inline]
    pub(crate) const fn montgomery(&self) -> &[u64; 4] {
        &self.0
    }

    /// From a reduced Montgomery form, R = 2^256: what kernels store.
    #[inline]
    pub(crate) const fn from_montgomery(limbs: [u64; 4]) -> Self {
        Self(limbs)
    }

    /// `self` to an integer power, limbs least significant first; four bits at a time.
    pub(crate) fn pow(&self, exponent: &[u64; 4]) -> Self {
        let mut powers = [Self::ONE; 16];
        for i in 1..16 {
            powers[i] = powers[i - 1] * *self;
        }
        let digits = (0..64).rev().map(|i| (exponent[i / 16] >> (i % 16 * 4)) & 15);
        let mut digits = digits.skip_while(|&digit| digit == 0);
        let first = powers[digits.next().unwrap_or(0) as usize];
        digits.fold(first, |result, digit| {
            let shifted = result.square().square().square().square();
            if digit == 0 { shifted } else { shifted * powers[digit as usize] }
        })
    }
}

/// Tables of the square root (Tonelli and Shanks, with the discrete logarithm in the group of
/// order 2^32 found eight bits at a time, after Sarkar, "Computing square roots faster than the
/// Tonelli-Shanks/Bernstein algorithm", 2020).
#[derive(Debug)]
pub(crate) struct SquareRoots {
    /// `inverse_powers[i][j] = generator^-(j * 2^(8 i))`.
    inverse_powers: Box<[[Fq; 1 << CHUNK_BITS]; CHUNKS]>,
    /// The low Montgomery limb of `generator^(j * 2^24)`, and j; sorted.
    logarithms: Vec<(u64, u64)>,
}

impl SquareRoots {
    /// The one copy, built at first use.
    pub(crate) fn shared() -> &'static Self {
        static SHARED: LazyLock<SquareRoots> = LazyLock::new(SquareRoots::new);
        &SHARED
    }

    fn new() -> Self {
        // 7 is not a square, so its t-th power generates the group of order 2^32.
        let seven = Fq::from(7);
        let generator = seven.root_power().square() * seven;
        let Some(mut base) = generator.invert() else { unreachable!("a power of 7 is zero") };
        let mut inverse_powers = Box::new([[Fq::ONE; 1 << CHUNK_BITS]; CHUNKS]);
        for row in inverse_powers.iter_mut() {
            for j in 1..row.len() {
                row[j] = row[j - 1] * base;
            }
            base *= row[row.len() - 1];
        }
        let mut order_256 = generator;
        for _ in 0..TWO_ADICITY - CHUNK_BITS {
            order_256 = order_256.square();
        }
        let mut power = Fq::ONE;
        let mut logarithms = Vec::with_capacity(1 << CHUNK_BITS);
        for j in 0..1 << CHUNK_BITS {
            logarithms.push((power.0[0], j));
            power *= order_256;
        }
        logarithms.sort_unstable();
        debug_assert!(logarithms.windows(2).all(|pair| pair[0].0 != pair[1].0));
        Self { inverse_powers, logarithms }
    }

    /// A square root of `x` from `power = x^((t - 1) / 2)`, or `None` where there is none.
    pub(crate) fn root_from_power(&self, x: Fq, power: Fq) -> Option<Fq> {
        if x.is_zero() {
            return Some(x);
        }
        // x * power is a root up to the element x^t of the group of order 2^32: find that
        // element's logarithm, and divide by its half.
        let root = x * power;
        let mut ladder = [root * power; CHUNKS];
        for i in 1..CHUNKS {
            ladder[i] = (0..CHUNK_BITS).fold(ladder[i - 1], |rest, _| rest.square());
        }
        let mut logarithm = 0u64;
        for i in 0..CHUNKS {
            // ladder[CHUNKS - 1 - i] = (x^t)^(2^(24 - 8 i)): the chunks known so far are taken off.
            let mut chunk = ladder[CHUNKS - 1 - i];
            for (known, row) in self.inverse_powers[CHUNKS - 1 - i..].iter().take(i).enumerate() {
                chunk *= row[(logarithm >> (known * CHUNK_BITS)) as usize & 0xff];
            }
            let found = self.logarithms.binary_search_by_key(&chunk.0[0], |entry| entry.0).ok()?;
            logarithm |= self.logarithms[found].1 << (i * CHUNK_BITS);
        }
        if logarithm & 1 == 1 {
            return None;
        }
        let half = logarithm >> 1;
        Some(
            self.inverse_powers.iter().enumerate().fold(root, |root, (i, row)| {
                root * row[(half >> (i * CHUNK_BITS)) as usize & 0xff]
            }),
        )
    }
}
