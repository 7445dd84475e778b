//! How the points come about: hashing to x, so that nobody knows a relation between them.

use sha2::{Digest, Sha256};

use super::VECTOR_LEN;
use crate::field::Fq;
use crate::group::Element;

const SEED: &[u8] = b"eth_verkle_oct_2021";

/// The points of the vector, then that of inner products, all normalised.
pub(super) fn points() -> Vec<Element> {
    let mut points = Vec::with_capacity(VECTOR_LEN + 1);
    let mut counter = 0u64;
    while points.len() < VECTOR_LEN {
        let x = hash_to_coordinate(counter);
        points.extend(Element::from_compressed(&x.to_be_bytes()));
        counter += 1;
    }
    points.push(Element::generator());
    points
}

/// SHA-256 of the seed and a counter, as a big-endian integer modulo q.
fn hash_to_coordinate(counter: u64) -> Fq {
    let mut digest: [u8; 32] =
        Sha256::new().chain_update(SEED).chain_update(counter.to_be_bytes()).finalize().into();
    digest.reverse();
    Fq::from_le_bytes_reduced(&digest)
}
