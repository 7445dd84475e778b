//! The scalar field: integers modulo the order of Banderwagon.

use super::element::prime_field;

prime_field!(
    /// A scalar: an element of the field of Banderwagon's prime order
    /// r = 0x1cfb69d4ca675f520cce760202687600ff8f87007419047174fd06b52876e7e1, 253 bits.
    ///
    /// Encoded as 32 little-endian bytes (EIP-6800).
    Fr,
    ORDER,
    [0x74fd06b52876e7e1, 0xff8f870074190471, 0x0cce760202687600, 0x1cfb69d4ca675f52]
);

impl Fr {
    /// The residue of an integer that is below the base field's modulus, which is below 5r: the
    /// last step of [`crate::Element::map_to_field`].
    pub(crate) const fn from_base_integer(limbs: [u64; 4]) -> Self {
        Self::from_limbs(limbs)
    }

    /// [`Self::from_base_integer`] as 32 little-endian bytes.
    pub(crate) fn le_bytes_of_base_integer(mut limbs: [u64; 4]) -> [u8; 32] {
        loop {
            let (rest, borrow) = super::sub_limbs(&limbs, &Self::MODULUS);
            if borrow {
                break;
            }
            limbs = rest;
        }
        let mut bytes = [0; 32];
        for (out, limb) in bytes.chunks_exact_mut(8).zip(limbs) {
            out.copy_from_slice(&limb.to_le_bytes());
        }
        bytes
    }
}

/// Only vector kernels look inside.
#[cfg(any(test, target_arch = "x86_64"))]
impl Fr {
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
}
