//! Scalars as signed integers, and their digits.

use crate::field::{Fr, sub_limbs};

/// Bits of the largest magnitude a [`SignedScalar`] holds: those of the group order.
pub(crate) const SCALAR_BITS: usize = 253;

/// An integer between -2^253 and 2^253, by which a basis point is multiplied.
///
/// Work on a scalar is proportional to the length of its magnitude, so the difference of two
/// 128-bit halves is kept as a 129-bit number with a sign rather than as a 253-bit residue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedScalar {
    magnitude: [u64; 4],
    negative: bool,
}

impl SignedScalar {
    /// `new - old`, both integers with limbs least significant first.
    ///
    /// # Panics
    /// If the difference is 2^253 or more in magnitude. Integers below 2^253 and canonical scalars
    /// ([`Fr::to_limbs`]) never differ by that much.
    pub fn between(old: [u64; 4], new: [u64; 4]) -> Self {
        let (difference, negative) = sub_limbs(&new, &old);
        let magnitude = if negative { sub_limbs(&old, &new).0 } else { difference };
        assert!(magnitude[3] < 1 << (SCALAR_BITS - 192), "scalar is longer than 253 bits");
        Self { magnitude, negative }
    }

    /// Whether this is 0.
    pub fn is_zero(&self) -> bool {
        self.magnitude == [0; 4]
    }

    /// The residue modulo the group order.
    pub fn to_field(&self) -> Fr {
        let residue = Fr::from_limbs(self.magnitude);
        if self.negative { -residue } else { residue }
    }

    /// Hands out the non-zero digits `(position, digit, negative)`, where the digit is between 1
    /// and half the base.
    #[inline]
    pub(crate) fn for_each_digit(&self, base: &Base, mut take: impl FnMut(usize, usize, bool)) {
        let [a, b, c, d] = add_limbs(&self.magnitude, &base.halves);
        let limbs = [a, b, c, d, 0];
        let half = 1 << (base.bits - 1);
        // A carry goes one position beyond the last bit, and no further.
        let length = 256 - self.leading_zeros();
        for position in 0..base.count.min(length / base.bits + 2) {
            let (limb, shift) = (position * base.bits / 64, position * base.bits % 64);
            let word = u128::from(limbs[limb]) | u128::from(limbs[limb + 1]) << 64;
            let raw = (word >> shift) as usize & (2 * half - 1);
            let (digit, negative) = match position + 1 < base.count {
                true => (raw.abs_diff(half), raw < half),
                false => (raw, false),
            };
            if digit != 0 {
                take(position, digit, negative != self.negative);
            }
        }
    }

    fn leading_zeros(&self) -> usize {
        let empty = self.magnitude.iter().rev().take_while(|limb| **limb == 0).count();
        let zeros = |limb: &u64| limb.leading_zeros() as usize;
        empty * 64 + self.magnitude[..4 - empty].last().map_or(0, zeros)
    }
}

/// A base of 2^bits in which scalars are written: digits are between minus half of it and half of
/// it.
///
/// Half of the base is added at each position but the last one. Then there are no carries to
/// follow: what a position has of the sum is its digit, and half of the base.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Base {
    bits: usize,
    /// How many digits there are.
    count: usize,
    halves: [u64; 4],
}

impl Base {
    pub(crate) const fn new(bits: usize) -> Self {
        let count = window_count(bits);
        let (mut halves, mut position) = ([0; 4], 0);
        while position + 1 < count {
            let bit = position * bits + bits - 1;
            halves[bit / 64] |= 1 << (bit % 64);
            position += 1;
        }
        Self { bits, count, halves }
    }
}

fn add_limbs(a: &[u64; 4], b: &[u64; 4]) -> [u64; 4] {
    let mut carry = false;
    std::array::from_fn(|i| {
        let (sum, over) = a[i].overflowing_add(b[i]);
        let (sum, carried) = sum.overflowing_add(u64::from(carry));
        carry = over | carried;
        sum
    })
}

impl From<Fr> for SignedScalar {
    /// The canonical integer, which is not negative.
    fn from(scalar: Fr) -> Self {
        Self { magnitude: scalar.to_limbs(), negative: false }
    }
}

/// How many digits in base `2^bits` a scalar has. The last one leaves room for a carry.
pub(crate) const fn window_count(bits: usize) -> usize {
    (SCALAR_BITS + 1).div_ceil(bits)
}

/// The largest digit at the last position.
pub(crate) const fn last_digit_max(bits: usize) -> usize {
    1 << (SCALAR_BITS - (window_count(bits) - 1) * bits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn digits_spell_the_scalar(
            old in any::<[u64; 4]>(), new in any::<[u64; 4]>(), bits in 2usize..=16,
        ) {
            let (old, new) = (Fr::from_limbs(old), Fr::from_limbs(new));
            let scalar = SignedScalar::between(old.to_limbs(), new.to_limbs());
            prop_assert_eq!(scalar.to_field(), new - old);
            let mut sum = Fr::ZERO;
            let mut limit = true;
            scalar.for_each_digit(&Base::new(bits), |position, digit, negative| {
                let mut term = Fr::from(digit as u64);
                for _ in 0..position * bits {
                    term = term.double();
                }
                sum += if negative { -term } else { term };
                limit &= digit <= 1 << (bits - 1);
                limit &= position + 1 < window_count(bits) || digit <= last_digit_max(bits);
            });
            prop_assert!(limit);
            prop_assert_eq!(sum, new - old);
        }
    }

    #[test]
    fn a_half_with_marker_takes_17_bytes() {
        let scalar = SignedScalar::between([u64::MAX, u64::MAX, 1, 0], [0; 4]);
        let mut positions = Vec::new();
        scalar.for_each_digit(&Base::new(8), |position, _, _| positions.push(position));
        assert_eq!(positions, [0, 16]);
    }
}
