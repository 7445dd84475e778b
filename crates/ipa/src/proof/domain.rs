//! Polynomials by their values at 0, 1 .. 255.
//!
//! With A(X) the product of all X - i, the polynomial that is 1 at i and 0 at the other points of
//! the domain is A(X) / (A'(i) (X - i)), and A'(i) is the product of all i - j with j not i.

use std::sync::LazyLock;

use crate::crs::VECTOR_LEN;
use crate::field::Fr;
use crate::kernel::Kernel;

/// A polynomial of degree below 256 by its values on the domain.
pub(super) type Values = [Fr; VECTOR_LEN];

/// What depends on the domain alone.
pub(super) struct Domain {
    /// `1 / i` for i from -255 to 255, and 0 at 0.
    inverses: [Fr; 2 * VECTOR_LEN - 1],
    /// `A'(i)`.
    derivatives: Values,
    /// `1 / A'(i)`.
    inverse_derivatives: Values,
}

impl Domain {
    /// The one copy, computed at first use.
    pub(super) fn shared() -> &'static Self {
        static SHARED: LazyLock<Domain> = LazyLock::new(Domain::new);
        &SHARED
    }

    fn new() -> Self {
        let last = Fr::from(VECTOR_LEN as u64 - 1);
        let mut inverses = std::array::from_fn(|i| Fr::from(i as u64) - last);
        Fr::invert_many(&mut inverses);
        // A'(i) = i! (255 - i)! (-1)^(255 - i)
        let mut factorials = [Fr::ONE; VECTOR_LEN];
        for i in 1..VECTOR_LEN {
            factorials[i] = factorials[i - 1] * Fr::from(i as u64);
        }
        let mut derivatives = [Fr::ZERO; VECTOR_LEN];
        for (i, derivative) in derivatives.iter_mut().enumerate() {
            let product = factorials[i] * factorials[VECTOR_LEN - 1 - i];
            *derivative = if i % 2 == 1 { product } else { -product };
        }
        let mut inverse_derivatives = derivatives;
        Fr::invert_many(&mut inverse_derivatives);
        Self { inverses, derivatives, inverse_derivatives }
    }

    /// The weights w with `f(point) = sum of w[i] * f(i)` for every f: those of Lagrange, and a
    /// unit vector where the point is in the domain.
    pub(super) fn weights_at(&self, point: Fr) -> Values {
        if let [index @ 0..=255, 0, 0, 0] = point.to_limbs() {
            let mut weights = [Fr::ZERO; VECTOR_LEN];
            weights[index as usize] = Fr::ONE;
            return weights;
        }
        let mut weights = index_values().map(|index| point - index);
        let product = weights.iter().fold(Fr::ONE, |product, &difference| product * difference);
        Fr::invert_many(&mut weights);
        for (weight, inverse) in weights.iter_mut().zip(&self.inverse_derivatives) {
            *weight *= product * *inverse;
        }
        weights
    }

    /// The sum over groups (index, f) of `(f - f(index)) / (X - index)`.
    pub(super) fn sum_quotients(&self, kernel: Kernel, groups: &[(u8, &[Fr])]) -> Values {
        let mut sum = [Fr::ZERO; VECTOR_LEN];
        let shares =
            kernel.add_quotients(&mut sum, groups, &self.inverses, &self.inverse_derivatives);
        // At its own index a quotient has the value that makes its degree fit.
        for ((index, _), share) in groups.iter().zip(shares) {
            let index = usize::from(*index);
            sum[index] -= share * self.derivatives[index];
        }
        sum
    }
}

/// The points of the domain.
fn index_values() -> Values {
    std::array::from_fn(|i| Fr::from(i as u64))
}

/// The sum of products.
pub(super) fn inner_product(a: &[Fr], b: &[Fr]) -> Fr {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `3 X^2 + 5 X + 7`.
    fn polynomial(x: Fr) -> Fr {
        (Fr::from(3) * x + Fr::from(5)) * x + Fr::from(7)
    }

    #[test]
    fn weights_evaluate() {
        let values = index_values().map(polynomial);
        for point in [Fr::ZERO, Fr::from(17), Fr::from(255), Fr::from(256), -Fr::ONE] {
            let weights = Domain::shared().weights_at(point);
            assert_eq!(inner_product(&weights, &values), polynomial(point));
        }
    }

    #[test]
    fn quotients_divide() {
        let values = index_values().map(polynomial);
        for index in [0, 1, 100, 255] {
            let root = Fr::from(u64::from(index));
            let groups = [(index, values.as_slice()), (index, values.as_slice())];
            let quotient = Domain::shared().sum_quotients(Kernel::detect(), &groups);
            // Twice (f(X) - f(z)) / (X - z) = 3 (X + z) + 5.
            let expected =
                index_values().map(|x| (Fr::from(3) * (x + root) + Fr::from(5)).double());
            assert_eq!(quotient, expected);
        }
    }
}
