//! Group elements and the group law.
//!
//! Invariants:
//! - Coordinates are extended twisted Edwards ones: x = X/Z, y = Y/Z, T = XY/Z, Z is not zero.
//! - The point lies in the subgroup of order 2r of the curve, in which (x, y) and (-x, -y) are one
//!   Banderwagon element. The two points at infinity lie outside it, so the addition formulas
//!   below have no exceptions.

use std::ops::{Add, AddAssign, Mul, Neg, Sub, SubAssign};

use crate::field::{Fq, Fr};

/// The curve coefficient d; a is -5.
pub(crate) const CURVE_D: Fq = Fq::from_limbs([
    0xb369f2f5188d58e7,
    0xcb66677177e54f92,
    0xc66e3bf86be3b6d8,
    0x6389c12633c267cb,
]);

const GENERATOR_X: Fq = Fq::from_limbs([
    0xe1e71866a252ae18,
    0x2b79c022ad998465,
    0x743711777bbe42f3,
    0x29c132cc2c0b34c5,
]);

const GENERATOR_Y: Fq = Fq::from_limbs([
    0x5e3167b6cc974166,
    0x358cad81eee46460,
    0x157d8b50badcd586,
    0x2a6c669eda123e0f,
]);

/// An element of Banderwagon, the group that commitments live in.
///
/// Equality is that of the group: two curve points that differ by the sign of both coordinates are
/// one element. All operations may take variable time.
#[derive(Clone, Copy)]
pub struct Element {
    pub(crate) x: Fq,
    pub(crate) y: Fq,
    pub(crate) z: Fq,
    pub(crate) t: Fq,
}

/// One of the two curve points of an element, by its affine coordinates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Affine {
    pub(crate) x: Fq,
    pub(crate) y: Fq,
}

impl Element {
    /// The neutral element.
    pub const IDENTITY: Self = Self { x: Fq::ZERO, y: Fq::ONE, z: Fq::ONE, t: Fq::ZERO };

    /// The generator of Bandersnatch; inner product arguments commit to the product with it.
    pub fn generator() -> Self {
        Affine { x: GENERATOR_X, y: GENERATOR_Y }.into()
    }

    /// Whether this is the neutral element.
    pub const fn is_identity(&self) -> bool {
        // Of the subgroup only (0, 1) and (0, -1) have x = 0.
        self.x.is_zero()
    }

    /// `2 * self` (dbl-2008-hwcd).
    pub fn double(&self) -> Self {
        let (a, b) = (self.x.square(), self.y.square());
        let c = self.z.square().double();
        let d = -times_five(a);
        let e = (self.x + self.y).square() - a - b;
        let g = d + b;
        let (f, h) = (g - c, d - b);
        Self { x: e * f, y: g * h, z: f * g, t: e * h }
    }

    /// `self + (x, y)`, given `d * x * y` (madd-2008-hwcd, with the product by d prepared).
    #[inline]
    pub(crate) fn add_prepared(&self, x: Fq, y: Fq, dxy: Fq) -> Self {
        let (a, b, c) = (self.x * x, self.y * y, self.t * dxy);
        let e = (self.x + self.y) * (x + y) - a - b;
        let (f, g, h) = (self.z - c, self.z + c, b + times_five(a));
        Self { x: e * f, y: g * h, z: f * g, t: e * h }
    }

    /// The affine point, given `1 / Z`.
    pub(crate) fn to_affine(self, inverse_z: Fq) -> Affine {
        Affine { x: self.x * inverse_z, y: self.y * inverse_z }
    }
}

impl Affine {
    /// Whether the coordinates satisfy the curve equation.
    pub(crate) fn is_on_curve(&self) -> bool {
        let (xx, yy) = (self.x.square(), self.y.square());
        yy - times_five(xx) == Fq::ONE + CURVE_D * xx * yy
    }

    /// `d * x * y`.
    pub(crate) fn dxy(&self) -> Fq {
        CURVE_D * self.x * self.y
    }

    /// The curve point that stands for the element wherever bytes are written: the one with the
    /// larger y, and (0, 1) of the neutral element.
    pub(crate) fn normalized(self) -> Self {
        if self.x.is_zero() {
            Self { x: Fq::ZERO, y: Fq::ONE }
        } else if self.y.is_largest() {
            self
        } else {
            Self { x: -self.x, y: -self.y }
        }
    }
}

impl From<Affine> for Element {
    fn from(point: Affine) -> Self {
        Self { x: point.x, y: point.y, z: Fq::ONE, t: point.x * point.y }
    }
}

impl Default for Element {
    fn default() -> Self {
        Self::IDENTITY
    }
}

impl PartialEq for Element {
    fn eq(&self, other: &Self) -> bool {
        // y is never zero within the subgroup, so this compares x/y.
        self.x * other.y == other.x * self.y
    }
}

impl Eq for Element {}

impl std::fmt::Debug for Element {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Element(0x")?;
        for byte in self.to_compressed() {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

impl Add for Element {
    type Output = Self;

    /// add-2008-hwcd.
    fn add(self, other: Self) -> Self {
        let (a, b) = (self.x * other.x, self.y * other.y);
        let c = CURVE_D * self.t * other.t;
        let d = self.z * other.z;
        let e = (self.x + self.y) * (other.x + other.y) - a - b;
        let (f, g, h) = (d - c, d + c, b + times_five(a));
        Self { x: e * f, y: g * h, z: f * g, t: e * h }
    }
}

impl Neg for Element {
    type Output = Self;

    fn neg(self) -> Self {
        Self { x: -self.x, t: -self.t, ..self }
    }
}

impl Sub for Element {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self + -other
    }
}

impl AddAssign for Element {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Element {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Mul<Fr> for Element {
    type Output = Self;

    /// Four bits at a time; for many products use [`crate::Crs`] or [`crate::multiply_sum`].
    fn mul(self, scalar: Fr) -> Self {
        let mut multiples = [Self::IDENTITY; 16];
        for i in 1..16 {
            multiples[i] = multiples[i - 1] + self;
        }
        let limbs = scalar.to_limbs();
        (0..64).rev().fold(Self::IDENTITY, |sum, i| {
            let digit = (limbs[i / 16] >> (i % 16 * 4)) & 15;
            sum.double().double().double().double() + multiples[digit as usize]
        })
    }
}

impl std::iter::Sum for Element {
    fn sum<I: Iterator<Item = Self>>(elements: I) -> Self {
        elements.fold(Self::IDENTITY, |sum, element| sum + element)
    }
}

#[inline]
fn times_five(x: Fq) -> Fq {
    x.double().double() + x
}
