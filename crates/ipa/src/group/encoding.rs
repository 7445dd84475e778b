//! Bytes of group elements.

use super::element::{Affine, CURVE_D, Element};
use crate::field::{Fq, Fr, ROOT_EXPONENT, SYMBOL_EXPONENT, SquareRoots};
use crate::kernel::{Encoded, Kernel};

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
        let x = Fq::from_be_bytes(bytes)?;
        decompress(&[x]).next().unwrap_or(Err(DecodeError::NotOnCurve))
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
        let located = |(index, result): (usize, Result<_, _>)| result.map_err(|e| (index, e));
        decompress(&xs).enumerate().map(located).collect()
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
        point.is_on_curve().then(|| point.into()).ok_or(DecodeError::NotOnCurve)
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
        // Z is not zero in the group. Trusted bytes outside of it must not bring about a panic.
        let inverse = self.z.invert().unwrap_or_default();
        self.to_affine(inverse).normalized()
    }
}

/// [`Element::from_uncompressed_trusted`] of each, side by side; nothing where it is refused.
pub(crate) fn decode_trusted(encodings: &[[u8; 64]], kernel: Kernel) -> Vec<Option<Element>> {
    let integer = |bytes: &[u8]| -> [u64; 4] {
        let (words, _) = bytes.as_chunks::<8>();
        std::array::from_fn(|i| u64::from_be_bytes(words[3 - i]))
    };
    let points: Vec<[[u64; 4]; 2]> =
        encodings.iter().map(|bytes| [integer(&bytes[..32]), integer(&bytes[32..])]).collect();
    let mut elements = kernel.decode(&points);
    for (element, point) in elements.iter_mut().zip(&points) {
        if !point.iter().all(Fq::is_canonical) {
            *element = None;
        }
    }
    elements
}

/// [`Element::to_uncompressed`] and [`Element::map_to_field`] of each, the latter as 32
/// little-endian bytes, for one inversion.
pub(crate) fn encode_and_map(elements: &[Element], kernel: Kernel) -> Vec<([u8; 64], [u8; 32])> {
    let encode = |encoded: Encoded| {
        let mut bytes = [0; 64];
        let limbs = encoded.x.iter().rev().chain(encoded.y.iter().rev());
        for (out, limb) in bytes.chunks_exact_mut(8).zip(limbs) {
            out.copy_from_slice(&limb.to_be_bytes());
        }
        (bytes, Fr::le_bytes_of_base_integer(encoded.ratio))
    };
    kernel.encode(elements).into_iter().map(encode).collect()
}

/// The element of each x, if there is one.
pub(crate) fn decompress(
    xs: &[Fq],
) -> impl Iterator<Item = Result<Element, DecodeError>> + use<'_> {
    // y^2 = u / v with u = 1 - a x^2 and v = 1 - d x^2; neither is ever zero, as a and d are not
    // squares. The point is in the group when u is a square.
    let mut us = Vec::with_capacity(xs.len());
    let mut ratios = Vec::with_capacity(2 * xs.len());
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
    let mut bases = ratios;
    bases.extend_from_slice(&us);
    let mut powers = kernel.pow_many(&bases, &ROOT_EXPONENT);
    let u_powers = powers.split_off(xs.len());
    let symbols: Vec<Fq> = u_powers.iter().zip(&us).map(|(p, u)| p.square() * *u).collect();
    let symbols = kernel.pow_many(&symbols, &SYMBOL_EXPONENT);
    let found = xs.iter().copied().zip(bases).zip(powers).zip(symbols);
    found.map(|(((x, ratio), power), symbol)| {
        let root = SquareRoots::shared().root_from_power(ratio, power);
        let y = root.ok_or(DecodeError::NotOnCurve)?;
        if symbol != Fq::ONE {
            return Err(DecodeError::NotInSubgroup);
        }
        // A zero x stands for the neutral element, whichever y it came with.
        let y = if y.is_largest() != x.is_zero() { y } else { -y };
        Ok(Affine { x, y }.into())
    })
}
