//! The inner product argument: a committed vector has a known inner product with a public one.
//!
//! After Bootle et al., "Efficient Zero-Knowledge Arguments for Arithmetic Circuits in the Discrete
//! Log Setting", 2016, and Buenz et al., "Bulletproofs", 2018, without blinding. Eight rounds halve
//! the vectors a and b and the basis G:
//!
//! ```text
//! L = <a_R, G_L> + <a_R, b_L> Q'        a = a_L + x a_R
//! R = <a_L, G_R> + <a_L, b_R> Q'        b = b_L + 1/x b_R,  G = G_L + 1/x G_R
//! ```
//!
//! G is not folded round by round. A folded basis point is a sum over points of the reference
//! string, whose multiples are in the table: `coefficients[i]` is the factor that point i has come
//! to, the product of the inverse challenges of the rounds in which it was in the right half. Only
//! once few points are left does the prover compute them, to go on with a small basis.

use super::bytes::read;
use super::domain::{Domain, Values, inner_product};
use super::{ProofError, Transcript};
use crate::crs::{Crs, PRODUCT_BASIS, VECTOR_LEN};
use crate::field::Fr;
use crate::group::Element;
use crate::msm::Multiples;

/// Rounds that halve a vector to one value.
const ROUNDS: usize = VECTOR_LEN.ilog2() as usize;

/// How few basis points have to be left for the prover to compute them: by then the table, in which
/// every round costs the same, is the slower way.
const FOLDED_LEN: usize = 16;

/// Bytes of an [`InnerProductProof`].
pub const INNER_PRODUCT_PROOF_BYTES: usize = 32 * (2 * ROUNDS + 1);

/// A proof that a committed vector, taken as the values of a polynomial at 0 to 255, takes a
/// certain value at a certain point.
///
/// Bytes: L of the eight rounds, R of the eight rounds, the last scalar (little-endian).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InnerProductProof {
    left: [Element; ROUNDS],
    right: [Element; ROUNDS],
    last: Fr,
}

impl InnerProductProof {
    /// Opens a polynomial, given by its values on the domain, at any point.
    ///
    /// `commitment` must be that to `values`; of another one the proof does not hold.
    pub fn prove(
        crs: &Crs,
        transcript: &mut Transcript,
        commitment: &Element,
        values: &[Fr; VECTOR_LEN],
        point: Fr,
    ) -> Self {
        let mut b = Domain::shared().weights_at(point);
        let mut a = *values;
        let result = inner_product(&a, &b);
        let weight = begin(transcript, commitment, point, result);
        let mut basis = Basis { crs, folded: None, coefficients: vec![Fr::ONE; VECTOR_LEN] };
        let mut proof = Self::default();
        for round in 0..ROUNDS {
            let half = VECTOR_LEN >> (round + 1);
            let products = [
                weight * inner_product(&a[half..2 * half], &b[..half]),
                weight * inner_product(&a[..half], &b[half..2 * half]),
            ];
            let [left, right] = basis.cross_terms(&a, half, products);
            let (challenge, inverse) = draw(transcript, &left, &right);
            (proof.left[round], proof.right[round]) = (left, right);
            fold(&mut a, half, challenge);
            fold(&mut b, half, inverse);
            basis.halve(half, inverse);
        }
        proof.last = a[0];
        proof
    }

    /// Checks that the polynomial committed to is `value` at `point`.
    ///
    /// # Errors
    /// [`ProofError::DoesNotHold`].
    pub fn verify(
        &self,
        crs: &Crs,
        transcript: &mut Transcript,
        commitment: &Element,
        point: Fr,
        value: Fr,
    ) -> Result<(), ProofError> {
        let weight = begin(transcript, commitment, point, value);
        let mut coefficients = [Fr::ONE; VECTOR_LEN];
        let mut points = Vec::with_capacity(2 * ROUNDS);
        let mut factors = Vec::with_capacity(2 * ROUNDS);
        for (round, (left, right)) in self.left.iter().zip(&self.right).enumerate() {
            let (challenge, inverse) = draw(transcript, left, right);
            points.extend([*left, *right]);
            factors.extend([challenge, inverse]);
            extend_coefficients(&mut coefficients, VECTOR_LEN >> (round + 1), inverse);
        }
        // commitment + value Q' + sum of x L + 1/x R = last * (G + b Q'), with G and b folded.
        let folded_b = inner_product(&coefficients, &Domain::shared().weights_at(point));
        let product = weight * (value - self.last * folded_b);
        let fixed = coefficients
            .iter()
            .map(|&coefficient| -(self.last * coefficient))
            .chain([product])
            .enumerate();
        let sum = *commitment + crs.mixed_sum(fixed, &points, &factors);
        if sum.is_identity() { Ok(()) } else { Err(ProofError::DoesNotHold) }
    }

    /// Reads a proof of foreign origin.
    ///
    /// # Errors
    /// If the length is not [`INNER_PRODUCT_PROOF_BYTES`], a point is not a group element or the
    /// scalar is not canonical.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProofError> {
        let (points, last) = read::<{ 2 * ROUNDS }>(bytes)?;
        Ok(Self::from_parts(&points, last))
    }

    /// The bytes of the proof.
    pub fn to_bytes(&self) -> [u8; INNER_PRODUCT_PROOF_BYTES] {
        let mut bytes = [0; INNER_PRODUCT_PROOF_BYTES];
        let encodings = self.elements().map(|element| element.to_compressed());
        for (out, encoding) in
            bytes.chunks_exact_mut(32).zip(encodings.chain([self.last.to_le_bytes()]))
        {
            out.copy_from_slice(&encoding);
        }
        bytes
    }

    /// From the points in the order of the bytes.
    pub(super) fn from_parts(points: &[Element; 2 * ROUNDS], last: Fr) -> Self {
        let mut proof = Self { last, ..Self::default() };
        for (place, point) in proof.left.iter_mut().chain(&mut proof.right).zip(points) {
            *place = *point;
        }
        proof
    }

    fn elements(&self) -> impl Iterator<Item = &Element> {
        self.left.iter().chain(&self.right)
    }
}

impl Default for InnerProductProof {
    /// All zero: a proof of nothing but the zero vector.
    fn default() -> Self {
        Self {
            left: [Element::IDENTITY; ROUNDS],
            right: [Element::IDENTITY; ROUNDS],
            last: Fr::ZERO,
        }
    }
}

/// Absorbs the statement; the result weighs the inner product against the commitment.
fn begin(transcript: &mut Transcript, commitment: &Element, point: Fr, value: Fr) -> Fr {
    transcript.domain_separator(b"ipa");
    transcript.append_element(b"C", commitment);
    transcript.append_scalar(b"input point", &point);
    transcript.append_scalar(b"output point", &value);
    transcript.challenge(b"w")
}

/// Absorbs a round; the challenge and its inverse. A zero challenge, which nobody can bring about,
/// counts as its own inverse: the proof then fails.
fn draw(transcript: &mut Transcript, left: &Element, right: &Element) -> (Fr, Fr) {
    transcript.append_element(b"L", left);
    transcript.append_element(b"R", right);
    let challenge = transcript.challenge(b"x");
    (challenge, challenge.invert().unwrap_or(Fr::ZERO))
}

/// The basis G of a prover: points of the reference string, or what was folded of them, each with
/// the factor it has come to.
struct Basis<'a> {
    crs: &'a Crs,
    folded: Option<Multiples>,
    coefficients: Vec<Fr>,
}

impl Basis<'_> {
    /// L and R of a round, normalised, given their weighted products of a and b.
    fn cross_terms(&self, a: &Values, half: usize, products: [Fr; 2]) -> [Element; 2] {
        // Point i is met with the value that sits across from it in the other half.
        let terms = |side: usize| {
            let points = (0..self.coefficients.len()).filter(move |i| i & half == side);
            points.map(move |i| (i, a[(i & (2 * half - 1)) ^ half] * self.coefficients[i]))
        };
        let products = products.map(|product| (PRODUCT_BASIS, product));
        let mut sums = match &self.folded {
            None => {
                let sums = [0, half].into_iter().zip(products);
                self.crs.multiply_sums(&mut sums.map(|(side, q)| terms(side).chain([q])))
            }
            Some(points) => {
                let products = &mut products.into_iter().map(std::iter::once);
                let products = self.crs.multiply_sums(products);
                let sums = points.multiply_sums([0, half].map(terms));
                sums.into_iter().zip(products).map(|(sum, product)| sum + product).collect()
            }
        };
        Element::normalize_many(&mut sums);
        [sums[0], sums[1]]
    }

    /// Goes on to half as many points.
    fn halve(&mut self, half: usize, inverse: Fr) {
        extend_coefficients(&mut self.coefficients, half, inverse);
        if half == FOLDED_LEN {
            let members = |first: usize| (first..VECTOR_LEN).step_by(FOLDED_LEN);
            let terms = |first: usize| members(first).map(|i| (i, self.coefficients[i]));
            let points = self.crs.multiply_sums(&mut (0..FOLDED_LEN).map(terms));
            self.folded = Some(Multiples::new(self.crs.kernel(), &points));
            self.coefficients = vec![Fr::ONE; FOLDED_LEN];
        }
    }
}

/// `left + factor * right`, in place of the left half.
fn fold(values: &mut Values, half: usize, factor: Fr) {
    let (left, right) = values.split_at_mut(half);
    for (left, right) in left.iter_mut().zip(right) {
        *left += factor * *right;
    }
}

/// Multiplies the factors of all basis points that are in a right half.
fn extend_coefficients(coefficients: &mut [Fr], half: usize, inverse: Fr) {
    for (_, coefficient) in coefficients.iter_mut().enumerate().filter(|(i, _)| i & half != 0) {
        *coefficient *= inverse;
    }
}
