//! Bytes of group elements.

use super::element::{Affine, CURVE_D, Element};
use crate::field::{Fq, ROOT_EXPONENT, SquareRoots};
use crate::kernel::Kernel;

/// Why bytes are not a group element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A coordinate is not below the modulus of the base field.
    #[error("coordinate is not below the modulus")]
    NotCanonical,
    /// No point of the curve has the coordinates.
    #[error("point is not on the curve")]
    NotOnCurve,
    /// The point is on the curve, yet stands for no Banderwagon element.
    #[error("point is not in the correct subgroup")]
    NotInSubgroup,
}

impl From<crate::field::NotCanonical> for DecodeError {
    fn from(_: crate::field::NotCanonical) -> Self {
        Self::NotCanonical
    }
}

impl Element {
    /// Decodes the 32-byte form of untrusted origin: the big-endian x of the curve point with the
    /// larger y. Zeros are the neutral element.
    ///
    /// Every element has one such form, and no other bytes are accepted.
    ///
    /// # Errors
    /// If x is not canonical, no curve point has it, or the point is outside the group.
    pub fn from_compressed(bytes: &[u8; 32]) -> Result<Self, DecodeError> {
        let mut element = [Self::IDENTITY];
        decompress(&[Fq::from_be_bytes(bytes)?], &mut element).map_err(|(_, error)| error)?;
        Ok(element[0])
    }

    /// Decodes many 32-byte forms for one inversion and square roots side by side.
    ///
    /// # Errors
    /// If any is refused by [`Self::from_compressed`]: the index of the first one found, and why.
    pub fn from_compressed_many(encodings: &[[u8; 32]]) -> Result<Vec<Self>, (usize, DecodeError)> {
        let mut xs = Vec::with_capacity(encodings.len());
        for (index, bytes) in encodings.iter().enumerate() {
            xs.push(Fq::from_be_bytes(bytes).map_err(|error| (index, error.into()))?);
        }
        let mut elements = vec![Self::IDENTITY; xs.len()];
        decompress(&xs, &mut elements)?;
        Ok(elements)
    }

    /// Decodes the 64-byte form (x, then y, big-endian) of *trusted* origin: bytes this program
    /// wrote itself. Either of the two curve points of an element is accepted.
    ///
    /// That the coordinates are canonical and on the curve is checked. That the point is in the
    /// group is not: bytes of foreign origin may decode to something the group law breaks on.
    ///
    /// # Errors
    /// If a coordinate is not canonical or the point is not on the curve.
    pub fn from_uncompressed_trusted(bytes: &[u8; 64]) -> Result<Self, DecodeError> {
        let coordinate = |half: &[u8]| {
            let mut bytes = [0; 32];
            bytes.copy_from_slice(half);
            Fq::from_be_bytes(&bytes)
        };
        let point = Affine { x: coordinate(&bytes[..32])?, y: coordinate(&bytes[32..])? };
        if point.is_on_curve() { Ok(point.into()) } else { Err(DecodeError::NotOnCurve) }
    }

    /// The 32-byte form. Costs an inversion unless the element is normalised
    /// ([`Self::normalize_many`]).
    pub fn to_compressed(&self) -> [u8; 32] {
        self.normal_point().x.to_be_bytes()
    }

    /// The 64-byte form of the curve point with the larger y, so that equal elements have equal
    /// bytes. Costs an inversion unless the element is normalised ([`Self::normalize_many`]).
    pub fn to_uncompressed(&self) -> [u8; 64] {
        let point = self.normal_point();
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&point.x.to_be_bytes());
        bytes[32..].copy_from_slice(&point.y.to_be_bytes());
        bytes
    }

    /// The affine curve point that is written out.
    fn normal_point(&self) -> Affine {
        if self.z == Fq::ONE {
            return Affine { x: self.x, y: self.y }.normalized();
        }
        let Some(inverse) = self.z.invert() else { unreachable!("Z of a group element is zero") };
        self.to_affine(inverse).normalized()
    }
}

/// Finds the element of each canonical x.
fn decompress(xs: &[Fq], elements: &mut [Element]) -> Result<(), (usize, DecodeError)> {
    // y^2 = u / v with u = 1 - a x^2 and v = 1 - d x^2; neither is ever zero, as a and d are not
    // squares. The point is in the group when u is a square.
    let mut us = Vec::with_capacity(xs.len());
    let mut ratios = Vec::with_capacity(xs.len());
    for x in xs {
        let xx = x.square();
        us.push(Fq::ONE + xx.double().double() + xx);
        ratios.push(Fq::ONE - CURVE_D * xx);
    }
    Fq::invert_many(&mut ratios);
    for (ratio, u) in ratios.iter_mut().zip(&us) {
        *ratio *= *u;
    }
    let kernel = Kernel::detect();
    let ratio_powers = kernel.pow_many(&ratios, &ROOT_EXPONENT);
    let u_powers = kernel.pow_many(&us, &ROOT_EXPONENT);
    let roots = SquareRoots::shared();
    for (i, element) in elements.iter_mut().enumerate() {
        let Some(y) = roots.root_from_power(ratios[i], ratio_powers[i]) else {
            return Err((i, DecodeError::NotOnCurve));
        };
        if crate::field::legendre_from_power(us[i], u_powers[i]) != 1 {
            return Err((i, DecodeError::NotInSubgroup));
        }
        let y = if y.is_largest() { y } else { -y };
        *element = if xs[i].is_zero() { Element::IDENTITY } else { Affine { x: xs[i], y }.into() };
    }
    Ok(())
}
