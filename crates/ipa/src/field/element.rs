//! What both fields share: one macro writes the element type over [`super::montgomery`].

/// The bytes are an integer that is not below the modulus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field element is not below the modulus")]
pub struct NotCanonical;

/// Writes a field element type with its arithmetic.
macro_rules! prime_field {
    ($(#[$doc:meta])* $name:ident, $modulus:ident, $prime:expr) => {
        const $modulus: crate::field::montgomery::Modulus =
            crate::field::montgomery::Modulus::new($prime);

        $(#[$doc])*
        ///
        /// Kept fully reduced in Montgomery form (R = 2^256), so equality compares limbs.
        /// All operations may take variable time.
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        pub struct $name([u64; 4]);

        impl $name {
            /// 0.
            pub const ZERO: Self = Self([0; 4]);
            /// 1.
            pub const ONE: Self = Self($modulus.one);
            /// The modulus as an integer, limbs least significant first.
            pub const MODULUS: [u64; 4] = $modulus.prime;

            /// The residue of any 256-bit integer, limbs least significant first.
            pub const fn from_limbs(limbs: [u64; 4]) -> Self {
                Self($modulus.to_montgomery(&limbs))
            }

            /// The canonical integer, limbs least significant first.
            #[inline]
            pub const fn to_limbs(&self) -> [u64; 4] {
                $modulus.to_integer(&self.0)
            }

            /// Decodes 32 little-endian bytes.
            ///
            /// # Errors
            /// If the integer is not below the modulus.
            pub const fn from_le_bytes(
                bytes: &[u8; 32],
            ) -> Result<Self, crate::field::NotCanonical> {
                let limbs = Self::limbs_of(bytes);
                if $modulus.contains(&limbs) {
                    Ok(Self::from_limbs(limbs))
                } else {
                    Err(crate::field::NotCanonical)
                }
            }

            /// The residue of 32 little-endian bytes, whatever integer they hold.
            pub const fn from_le_bytes_reduced(bytes: &[u8; 32]) -> Self {
                Self::from_limbs(Self::limbs_of(bytes))
            }

            /// The canonical integer as 32 little-endian bytes.
            pub fn to_le_bytes(&self) -> [u8; 32] {
                let mut bytes = [0; 32];
                for (out, limb) in bytes.chunks_exact_mut(8).zip(self.to_limbs()) {
                    out.copy_from_slice(&limb.to_le_bytes());
                }
                bytes
            }

            /// Whether this is 0.
            #[inline]
            pub const fn is_zero(&self) -> bool {
                (self.0[0] | self.0[1] | self.0[2] | self.0[3]) == 0
            }

            /// `2 * self`.
            #[inline]
            pub const fn double(&self) -> Self {
                Self($modulus.add(&self.0, &self.0))
            }

            /// `self^2`.
            #[inline]
            pub const fn square(&self) -> Self {
                Self($modulus.mul(&self.0, &self.0))
            }

            /// The multiplicative inverse, or `None` of zero.
            pub fn invert(&self) -> Option<Self> {
                let inverse = crate::field::inversion::invert(&self.0, &$modulus.prime)?;
                Some(Self($modulus.correct_inverse(&inverse)))
            }

            /// Replaces every element by its inverse, and zero by zero, for one inversion and
            /// three multiplications an element.
            pub fn invert_many(elements: &mut [Self]) {
                let mut products = Vec::with_capacity(elements.len());
                let mut product = Self::ONE;
                for element in elements.iter() {
                    products.push(product);
                    if !element.is_zero() {
                        product *= *element;
                    }
                }
                let Some(mut inverse) = product.invert() else {
                    unreachable!("a product of non-zero elements is zero")
                };
                for (element, before) in elements.iter_mut().zip(products).rev() {
                    if !element.is_zero() {
                        let next = inverse * *element;
                        *element = inverse * before;
                        inverse = next;
                    }
                }
            }

            const fn limbs_of(bytes: &[u8; 32]) -> [u64; 4] {
                let mut limbs = [0; 4];
                let mut i = 32;
                while i > 0 {
                    i -= 1;
                    limbs[i / 8] = limbs[i / 8] << 8 | bytes[i] as u64;
                }
                limbs
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::ZERO
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let [a, b, c, d] = self.to_limbs();
                f.write_str(stringify!($name))?;
                write!(f, "(0x{d:016x}{c:016x}{b:016x}{a:016x})")
            }
        }

        impl From<u64> for $name {
            fn from(integer: u64) -> Self {
                Self::from_limbs([integer, 0, 0, 0])
            }
        }

        impl std::ops::Add for $name {
            type Output = Self;
            #[inline]
            fn add(self, other: Self) -> Self {
                Self($modulus.add(&self.0, &other.0))
            }
        }

        impl std::ops::Sub for $name {
            type Output = Self;
            #[inline]
            fn sub(self, other: Self) -> Self {
                Self($modulus.sub(&self.0, &other.0))
            }
        }

        impl std::ops::Mul for $name {
            type Output = Self;
            #[inline]
            fn mul(self, other: Self) -> Self {
                Self($modulus.mul(&self.0, &other.0))
            }
        }

        impl std::ops::Neg for $name {
            type Output = Self;
            #[inline]
            fn neg(self) -> Self {
                Self($modulus.sub(&[0; 4], &self.0))
            }
        }

        impl std::ops::AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl std::ops::SubAssign for $name {
            #[inline]
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }

        impl std::ops::MulAssign for $name {
            #[inline]
            fn mul_assign(&mut self, other: Self) {
                *self = *self * other;
            }
        }

        impl std::iter::Sum for $name {
            fn sum<I: Iterator<Item = Self>>(elements: I) -> Self {
                elements.fold(Self::ZERO, |sum, element| sum + element)
            }
        }
    };
}

pub(super) use prime_field;
