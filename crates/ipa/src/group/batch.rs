//! Operations on many elements that share one inversion.

use super::element::{Affine, Element};
use crate::field::{Fq, Fr};
use crate::kernel::Kernel;

impl Element {
    /// Brings every element to Z = 1 and to the curve point with the larger y.
    ///
    /// Afterwards the encoders cost no inversion, and equal elements have equal coordinates.
    pub fn normalize_many(elements: &mut [Self]) {
        Kernel::detect().normalize(elements);
    }

    /// The 32-byte form of each element, for one inversion.
    pub fn compress_many(elements: &[Self]) -> Vec<[u8; 32]> {
        let mut elements = elements.to_vec();
        Self::normalize_many(&mut elements);
        elements.iter().map(Self::to_compressed).collect()
    }

    /// The scalar a parent commits to in place of this commitment: the integer x/y modulo the order
    /// of the group; 0 of the neutral element (EIP-6800 `group_to_scalar_field`).
    pub fn map_to_field(&self) -> Fr {
        // y is not zero in the group. Trusted bytes outside of it must not bring about a panic.
        let inverse = self.y.invert().unwrap_or_default();
        Fr::from_base_integer((self.x * inverse).to_limbs())
    }

    /// [`Self::map_to_field`] of each element, for one inversion.
    pub fn map_to_field_many(elements: &[Self]) -> Vec<Fr> {
        Kernel::detect().ratios(elements).into_iter().map(Fr::from_base_integer).collect()
    }

    /// [`Self::normalize_many`] and [`Self::map_to_field_many`] together, for one inversion: what a
    /// tree wants of a level of new commitments, points to store and scalars for the parents.
    pub fn normalize_and_map_many(elements: &mut [Self]) -> Vec<Fr> {
        Kernel::detect().normalize(elements).into_iter().map(Fr::from_base_integer).collect()
    }
}

/// The affine points of elements, for one inversion; the sign is left as it is.
pub(crate) fn to_affine_many(elements: &[Element], kernel: Kernel) -> Vec<Affine> {
    let mut inverses: Vec<Fq> = elements.iter().map(|element| element.z).collect();
    kernel.invert_many(&mut inverses);
    elements.iter().zip(inverses).map(|(element, inverse)| element.to_affine(inverse)).collect()
}
