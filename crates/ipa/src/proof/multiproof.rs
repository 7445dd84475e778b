//! Many openings of many commitments in one inner product argument.
//!
//! With queries (C_i, f_i, z_i, y_i) and a challenge r, all `f_i(z_i) = y_i` hold (but for a
//! negligible chance) when `g(X) = sum of r^i (f_i(X) - y_i) / (X - z_i)` is a polynomial. The
//! prover commits to g as D. At a random t, g(t) = h(t) - sum of r^i y_i / (t - z_i) with
//! `h(X) = sum of r^i f_i(X) / (t - z_i)`, whose commitment E everyone can compute, so one opening
//! of E - D at t settles it. (Feist, "PCS multiproofs using random evaluation", 2021.)

use rayon::prelude::*;

use super::bytes::read;
use super::domain::{Domain, Values};
use super::inner_product::{INNER_PRODUCT_PROOF_BYTES, InnerProductProof};
use super::{ProofError, Transcript};
use crate::crs::{Crs, VECTOR_LEN};
use crate::field::Fr;
use crate::group::Element;
use crate::kernel::Kernel;
use crate::msm::multiply_sum_with;

/// Bytes of a [`Multiproof`].
pub const MULTIPROOF_BYTES: usize = 32 + INNER_PRODUCT_PROOF_BYTES;

/// What a verifier is told: the vector behind a commitment has a value at an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The commitment to the vector.
    pub commitment: Element,
    /// The index.
    pub index: u8,
    /// The value there.
    pub value: Fr,
}

/// What a prover knows: a commitment, its whole vector and the index to open.
#[derive(Clone, Copy, Debug)]
pub struct ProverOpening<'a> {
    /// The commitment to the vector.
    pub commitment: Element,
    /// The vector.
    pub values: &'a [Fr; VECTOR_LEN],
    /// The index.
    pub index: u8,
}

/// A proof of any number of openings.
///
/// Bytes: D, then those of the [`InnerProductProof`]. The same openings in the same order give the
/// same bytes in every implementation.
///
/// ```
/// use spinney_ipa::{Crs, Fr, Multiproof, Opening, ProverOpening, Transcript};
///
/// let crs = Crs::new();
/// let mut values = [Fr::ZERO; 256];
/// values[9] = Fr::from(81);
/// let commitment = crs.commit(&values);
///
/// let known = [ProverOpening { commitment, values: &values, index: 9 }];
/// let proof = Multiproof::prove(&crs, &mut Transcript::new(b"vt"), &known)?;
///
/// let told = [Opening { commitment, index: 9, value: Fr::from(81) }];
/// let proof = Multiproof::from_bytes(&proof.to_bytes())?;
/// proof.verify(&crs, &mut Transcript::new(b"vt"), &told)?;
/// # Ok::<(), spinney_ipa::ProofError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Multiproof {
    quotient: Element,
    inner_product: InnerProductProof,
}

impl Multiproof {
    /// Proves all openings at once; their values are read from the vectors.
    ///
    /// Commitments must be those to the vectors; with another one the proof does not hold. Uses all
    /// threads of the current rayon pool when there is enough work.
    ///
    /// # Errors
    /// [`ProofError::NoOpenings`].
    pub fn prove(
        crs: &Crs,
        transcript: &mut Transcript,
        openings: &[ProverOpening<'_>],
    ) -> Result<Self, ProofError> {
        let told = openings.iter().map(|opening| Opening {
            commitment: opening.commitment,
            index: opening.index,
            value: opening.values[usize::from(opening.index)],
        });
        let (r, _) = begin(transcript, &told.collect::<Vec<_>>())?;
        let groups = combine_by_index(crs.kernel(), openings, r);
        let quotient_values = sum_quotients(crs.kernel(), &groups);
        let mut quotient = [crs.commit(&quotient_values)];
        Element::normalize_many(&mut quotient);
        transcript.append_element(b"D", &quotient[0]);
        let t = transcript.challenge(b"t");
        let values = sum_at(crs.kernel(), &groups, t);
        let mut combined = [crs.commit(&values)];
        Element::normalize_many(&mut combined);
        transcript.append_element(b"E", &combined[0]);
        let mut difference = values;
        for (value, quotient) in difference.iter_mut().zip(&quotient_values) {
            *value -= *quotient;
        }
        let commitment = combined[0] - quotient[0];
        let inner_product = InnerProductProof::prove(crs, transcript, &commitment, &difference, t);
        Ok(Self { quotient: quotient[0], inner_product })
    }

    /// Checks that every commitment opens as told.
    ///
    /// # Errors
    /// [`ProofError::DoesNotHold`] or [`ProofError::NoOpenings`].
    pub fn verify(
        &self,
        crs: &Crs,
        transcript: &mut Transcript,
        openings: &[Opening],
    ) -> Result<(), ProofError> {
        let (r, encodings) = begin(transcript, openings)?;
        transcript.append_element(b"D", &self.quotient);
        let t = transcript.challenge(b"t");
        let inverses = inverse_distances(t);
        let mut value = Fr::ZERO;
        let mut points: Vec<Element> = Vec::new();
        let mut factors: Vec<Fr> = Vec::new();
        let mut power = Fr::ONE;
        for (i, opening) in openings.iter().enumerate() {
            let factor = power * inverses[usize::from(opening.index)];
            value += factor * opening.value;
            match factors.last_mut() {
                // Openings of one commitment usually come in a row.
                Some(last) if encodings[i] == encodings[i - 1] => *last += factor,
                _ => {
                    points.push(opening.commitment);
                    factors.push(factor);
                }
            }
            power *= r;
        }
        let mut combined = [multiply_sum_with(crs.kernel(), &points, &factors)];
        Element::normalize_many(&mut combined);
        transcript.append_element(b"E", &combined[0]);
        let commitment = combined[0] - self.quotient;
        self.inner_product.verify(crs, transcript, &commitment, t, value)
    }

    /// Reads a proof of foreign origin.
    ///
    /// # Errors
    /// If the length is not [`MULTIPROOF_BYTES`], a point is not a group element or the scalar is
    /// not canonical.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProofError> {
        let ([quotient, points @ ..], last) = read::<{ MULTIPROOF_BYTES / 32 - 1 }>(bytes)?;
        let inner_product = InnerProductProof::from_parts(&points, last);
        Ok(Self { quotient, inner_product })
    }

    /// The bytes of the proof.
    pub fn to_bytes(&self) -> [u8; MULTIPROOF_BYTES] {
        let mut bytes = [0; MULTIPROOF_BYTES];
        bytes[..32].copy_from_slice(&self.quotient.to_compressed());
        bytes[32..].copy_from_slice(&self.inner_product.to_bytes());
        bytes
    }
}

/// Absorbs the openings; r, and the commitments' bytes.
fn begin(
    transcript: &mut Transcript,
    openings: &[Opening],
) -> Result<(Fr, Vec<[u8; 32]>), ProofError> {
    if openings.is_empty() {
        return Err(ProofError::NoOpenings);
    }
    transcript.domain_separator(b"multiproof");
    let commitments: Vec<Element> = openings.iter().map(|opening| opening.commitment).collect();
    let encodings = Element::compress_many(&commitments);
    for (opening, encoding) in openings.iter().zip(&encodings) {
        transcript.append(b"C", encoding);
        transcript.append_scalar(b"z", &Fr::from(u64::from(opening.index)));
        transcript.append_scalar(b"y", &opening.value);
    }
    Ok((transcript.challenge(b"r"), encodings))
}

/// For every index that is opened, the sum of `r^i * f_i` over the openings there.
fn combine_by_index(kernel: Kernel, openings: &[ProverOpening<'_>], r: Fr) -> Vec<(u8, Values)> {
    let mut by_index: Vec<Vec<(Fr, &[Fr])>> = vec![Vec::new(); VECTOR_LEN];
    let mut power = Fr::ONE;
    for opening in openings {
        by_index[usize::from(opening.index)].push((power, opening.values));
        power *= r;
    }
    let combine = |(index, terms): (usize, Vec<(Fr, &[Fr])>)| {
        let mut sum = [Fr::ZERO; VECTOR_LEN];
        kernel.add_scaled(&mut sum, &terms);
        (index as u8, sum)
    };
    by_index
        .into_par_iter()
        .enumerate()
        .filter(|(_, terms)| !terms.is_empty())
        .map(combine)
        .collect()
}

/// g: the sum of `(f - f(index)) / (X - index)`.
fn sum_quotients(kernel: Kernel, groups: &[(u8, Values)]) -> Values {
    let groups: Vec<(u8, &[Fr])> =
        groups.iter().map(|(index, values)| (*index, values.as_slice())).collect();
    groups
        .par_chunks(32)
        .map(|groups| Domain::shared().sum_quotients(kernel, groups))
        .reduce(|| [Fr::ZERO; VECTOR_LEN], |a, b| std::array::from_fn(|i| a[i] + b[i]))
}

/// h: the sum of `f / (t - index)`.
fn sum_at(kernel: Kernel, groups: &[(u8, Values)], t: Fr) -> Values {
    let inverses = inverse_distances(t);
    let terms: Vec<(Fr, &[Fr])> = groups
        .iter()
        .map(|(index, values)| (inverses[usize::from(*index)], values.as_slice()))
        .collect();
    let mut sum = [Fr::ZERO; VECTOR_LEN];
    kernel.add_scaled(&mut sum, &terms);
    sum
}

/// `1 / (t - index)` for every index, 0 where t is the index, which no one can bring about.
fn inverse_distances(t: Fr) -> Values {
    let mut distances = std::array::from_fn(|index| t - Fr::from(index as u64));
    Fr::invert_many(&mut distances);
    distances
}
