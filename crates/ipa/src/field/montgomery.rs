//! Arithmetic modulo a prime below 2^255, on four 64-bit limbs in Montgomery form with R = 2^256.
//!
//! Invariants:
//! - limbs are least significant first;
//! - every value handed in or out is fully reduced, so equal residues have equal limbs;
//! - the modulus leaves the top bit of its last limb free, so a sum of two residues fits 256 bits
//!   and the multiplication below never carries out of its fourth limb.
//!
//! Variable time: all the data of this crate is public.

/// A modulus and what Montgomery arithmetic derives from it.
pub(crate) struct Modulus {
    /// The prime.
    pub(crate) prime: [u64; 4],
    /// `-prime^-1 mod 2^64`.
    negated_inverse: u64,
    /// 1 in Montgomery form.
    pub(crate) one: [u64; 4],
    /// `R^2`, which brings an integer into Montgomery form.
    r2: [u64; 4],
    /// `R^3`, which corrects an inverse that was taken of a Montgomery form.
    r3: [u64; 4],
}

impl Modulus {
    /// Derives the constants of `prime`.
    pub(crate) const fn new(prime: [u64; 4]) -> Self {
        assert!(prime[0] & 1 == 1 && prime[3] < (1 << 63));
        let mut inverse = 1u64;
        let mut round = 0;
        while round < 6 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(prime[0].wrapping_mul(inverse)));
            round += 1;
        }
        let mut this = Self {
            prime,
            negated_inverse: inverse.wrapping_neg(),
            one: [0; 4],
            r2: [0; 4],
            r3: [0; 4],
        };
        let mut power = [1, 0, 0, 0];
        let mut bit = 0;
        while bit < 512 {
            if bit == 256 {
                this.one = power;
            }
            power = this.add(&power, &power);
            bit += 1;
        }
        this.r2 = power;
        this.r3 = this.mul(&power, &power);
        this
    }

    /// `a + b`.
    #[inline(always)]
    pub(crate) const fn add(&self, a: &[u64; 4], b: &[u64; 4]) -> [u64; 4] {
        let (r0, c) = carrying_add(a[0], b[0], false);
        let (r1, c) = carrying_add(a[1], b[1], c);
        let (r2, c) = carrying_add(a[2], b[2], c);
        let (r3, _) = carrying_add(a[3], b[3], c);
        self.reduce_once(&[r0, r1, r2, r3])
    }

    /// `a - b`.
    #[inline(always)]
    pub(crate) const fn sub(&self, a: &[u64; 4], b: &[u64; 4]) -> [u64; 4] {
        let (difference, borrow) = sub_limbs(a, b);
        let mask = if borrow { u64::MAX } else { 0 };
        let p = &self.prime;
        let (r0, c) = carrying_add(difference[0], p[0] & mask, false);
        let (r1, c) = carrying_add(difference[1], p[1] & mask, c);
        let (r2, c) = carrying_add(difference[2], p[2] & mask, c);
        let (r3, _) = carrying_add(difference[3], p[3] & mask, c);
        [r0, r1, r2, r3]
    }

    /// `a * b / R`, by rows: one row of the product, then one of the reduction.
    #[inline(always)]
    pub(crate) const fn mul(&self, a: &[u64; 4], b: &[u64; 4]) -> [u64; 4] {
        let p = &self.prime;
        let mut t = [0u64; 4];
        let mut i = 0;
        while i < 4 {
            let (t0, high) = mul_add(a[0], b[i], t[0], 0);
            let m = t0.wrapping_mul(self.negated_inverse);
            let (_, carry) = mul_add(m, p[0], t0, 0);
            let (t1, high) = mul_add(a[1], b[i], t[1], high);
            let (r0, carry) = mul_add(m, p[1], t1, carry);
            let (t2, high) = mul_add(a[2], b[i], t[2], high);
            let (r1, carry) = mul_add(m, p[2], t2, carry);
            let (t3, high) = mul_add(a[3], b[i], t[3], high);
            let (r2, carry) = mul_add(m, p[3], t3, carry);
            t = [r0, r1, r2, carry + high];
            i += 1;
        }
        self.reduce_once(&t)
    }

    /// Subtracts the prime once where `a` is not below it.
    #[inline(always)]
    const fn reduce_once(&self, a: &[u64; 4]) -> [u64; 4] {
        let (reduced, borrow) = sub_limbs(a, &self.prime);
        if borrow { *a } else { reduced }
    }

    /// An integer below 2^256, which need not be reduced, in Montgomery form.
    pub(crate) const fn to_montgomery(&self, integer: &[u64; 4]) -> [u64; 4] {
        // The rows stay within four limbs because the other factor is reduced.
        self.mul(&self.r2, integer)
    }

    /// The integer of a Montgomery form.
    #[inline(always)]
    pub(crate) const fn to_integer(&self, a: &[u64; 4]) -> [u64; 4] {
        self.mul(a, &[1, 0, 0, 0])
    }

    /// Corrects the integer inverse of a Montgomery form to the Montgomery form of the inverse.
    pub(crate) const fn correct_inverse(&self, inverse: &[u64; 4]) -> [u64; 4] {
        self.mul(inverse, &self.r3)
    }

    /// Whether an integer is below the prime.
    pub(crate) const fn contains(&self, integer: &[u64; 4]) -> bool {
        sub_limbs(integer, &self.prime).1
    }
}

/// `a - b` modulo 2^256, and the borrow.
#[inline(always)]
pub(crate) const fn sub_limbs(a: &[u64; 4], b: &[u64; 4]) -> ([u64; 4], bool) {
    let (r0, c) = borrowing_sub(a[0], b[0], false);
    let (r1, c) = borrowing_sub(a[1], b[1], c);
    let (r2, c) = borrowing_sub(a[2], b[2], c);
    let (r3, c) = borrowing_sub(a[3], b[3], c);
    ([r0, r1, r2, r3], c)
}

#[inline(always)]
const fn carrying_add(a: u64, b: u64, carry: bool) -> (u64, bool) {
    let (sum, first) = a.overflowing_add(b);
    let (sum, second) = sum.overflowing_add(carry as u64);
    (sum, first | second)
}

#[inline(always)]
const fn borrowing_sub(a: u64, b: u64, borrow: bool) -> (u64, bool) {
    let (difference, first) = a.overflowing_sub(b);
    let (difference, second) = difference.overflowing_sub(borrow as u64);
    (difference, first | second)
}

/// The low and the high limb of `a * b + c + d`, which cannot overflow two limbs.
#[inline(always)]
const fn mul_add(a: u64, b: u64, c: u64, d: u64) -> (u64, u64) {
    let wide = a as u128 * b as u128 + c as u128 + d as u128;
    (wide as u64, (wide >> 64) as u64)
}
