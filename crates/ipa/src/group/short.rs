//! Curve points in short Weierstrass form, `y^2 = x^3 + a x + b`.
//!
//! There an addition of affine points takes six products, that for a shared inversion included,
//! where one in extended coordinates takes eight; and a prepared point is two coordinates, not
//! three. So tables are kept in this form, and many sums are built from them at a time.
//!
//! Invariants:
//! - the form has no neutral element here, and formulas do not double: two points with one x are
//!   met by whoever adds;
//! - Edwards coordinates (x, y) are `C u + SHIFT` and `C v` here, with `u = (1 + y) / (1 - y)` and
//!   `v = u / x`; so the point (0, 1) has no counterpart, and (0, -1), which stands for the same
//!   element, is the one with y = 0.

use super::element::Element;
use crate::field::Fq;

/// `(a + d) / 6`, a and d being the coefficients of the Edwards form.
pub(crate) const SHIFT: Fq = Fq::from_limbs([
    0xc891a87d84178ed1,
    0xaf0f7e94e94fca97,
    0x188e44aec311d927,
    0x5de00fbdcf0964d2,
]);

/// `(a - d) / 4`.
pub(crate) const SCALE: Fq = Fq::from_limbs([
    0x53258341b9dca9c6,
    0x20e40a26a205081a,
    0x419e4909eea8ea4f,
    0x5b0b37099cace355,
]);

/// An affine point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Short {
    pub(crate) x: Fq,
    pub(crate) y: Fq,
}

impl Short {
    /// What an element's coordinates are divided by: zero of the neutral element alone.
    pub(crate) fn denominator(element: &Element) -> Fq {
        (element.z - element.y) * element.x
    }

    /// The point of an element, given the inverse of [`Self::denominator`].
    pub(crate) fn of(element: &Element, inverse: Fq) -> Self {
        let scaled = (element.z + element.y) * inverse * SCALE;
        Self { x: scaled * element.x + SHIFT, y: scaled * element.z }
    }

    /// The negative where asked.
    #[inline]
    pub(crate) fn negated_if(self, negated: bool) -> Self {
        if negated { Self { y: -self.y, ..self } } else { self }
    }

    /// The sum, given the inverse of `other.x - self.x`.
    #[inline]
    pub(crate) fn add(&self, other: &Self, inverse: Fq) -> Self {
        let slope = (other.y - self.y) * inverse;
        let x = slope.square() - self.x - other.x;
        Self { x, y: slope * (self.x - x) - self.y }
    }
}

/// A sum of points, its coordinates over powers of one denominator: x is X / ZZ, y is Y / ZZZ.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Running {
    x: Fq,
    y: Fq,
    zz: Fq,
    zzz: Fq,
}

impl Running {
    /// Adds a point (madd-2008-s of the coordinates called xyzz). `false` if both have one x: then
    /// nothing was added.
    pub(crate) fn add(&mut self, other: &Short) -> bool {
        let p = other.x * self.zz - self.x;
        if p.is_zero() {
            return false;
        }
        let r = other.y * self.zzz - self.y;
        let pp = p.square();
        let ppp = p * pp;
        let q = self.x * pp;
        let x = r.square() - ppp - q.double();
        let y = r * (q - x) - self.y * ppp;
        *self = Self { x, y, zz: self.zz * pp, zzz: self.zzz * ppp };
        true
    }

    pub(crate) fn to_element(self) -> Element {
        if self.y.is_zero() {
            // (0, -1).
            return Element::IDENTITY;
        }
        let u = self.x - SHIFT * self.zz;
        let scale = SCALE * self.zz;
        let (above, below) = (u + scale, u - scale);
        let square = self.zz.square();
        Element {
            x: u * above * square,
            y: below * self.y * self.zzz,
            z: above * self.y * self.zzz,
            t: u * below * square,
        }
    }
}

impl From<Short> for Running {
    fn from(point: Short) -> Self {
        Self { x: point.x, y: point.y, zz: Fq::ONE, zzz: Fq::ONE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::Fr;
    use crate::group::element::CURVE_D;

    fn short(element: &Element) -> Short {
        let inverse = Short::denominator(element).invert().expect("not the neutral element");
        Short::of(element, inverse)
    }

    fn multiple(k: u64) -> Element {
        Element::generator() * Fr::from(k)
    }

    #[test]
    fn constants_are_what_they_are_said_to_be() {
        let a = -Fq::from(5);
        assert_eq!(SHIFT * Fq::from(6), a + CURVE_D);
        assert_eq!(SCALE * Fq::from(4), a - CURVE_D);
    }

    #[test]
    fn points_come_back_and_add_up() {
        let mut running = Running::from(short(&multiple(1)));
        assert_eq!(running.to_element(), multiple(1));
        let mut sum = 1;
        for k in 2..20 {
            let (a, b) = (short(&multiple(sum)), short(&multiple(k * k)));
            let added = a.add(&b, (b.x - a.x).invert().expect("they differ"));
            assert!(running.add(&b));
            sum += k * k;
            assert_eq!(added, short(&multiple(sum)));
            assert_eq!(Running::from(added).to_element(), multiple(sum));
            assert_eq!(running.to_element(), multiple(sum));
        }
        let b = short(&multiple(sum));
        assert!(!running.add(&b) && !running.add(&b.negated_if(true)));
        assert_eq!(running.to_element(), multiple(sum));
    }

    #[test]
    fn a_sum_that_is_the_other_point_of_the_neutral_element() {
        // (x, y) and (x, -y) differ by (0, -1), on which all formulas but one hold.
        let point = multiple(7);
        let other = Element { y: -point.y, t: -point.t, ..point };
        let mut running = Running::from(short(&point));
        assert!(running.add(&short(&other)));
        assert!(running.to_element().is_identity());
    }
}
