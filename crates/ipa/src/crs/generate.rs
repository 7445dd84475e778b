//! How the points come about: hashing to x, so that nobody knows a relation between them.

use std::sync::LazyLock;

use sha2::{Digest, Sha256};

use super::VECTOR_LEN;
use crate::field::Fq;
use crate::group::{Element, decompress};

const SEED: &[u8] = b"eth_verkle_oct_2021";

/// The points of the vector, all normalised, then that of inner products. Found at first use.
pub(super) fn points() -> &'static [Element] {
    static POINTS: LazyLock<Vec<Element>> = LazyLock::new(find);
    &POINTS
}

fn find() -> Vec<Element> {
    let mut points = Vec::with_capacity(VECTOR_LEN + 1);
    let mut next = 0;
    while points.len() < VECTOR_LEN {
        // About a quarter of all x belong to an element.
        let count = 4 * (VECTOR_LEN - points.len()) as u64;
        let xs: Vec<Fq> = (next..next + count).map(hash_to_coordinate).collect();
        points.extend(decompress(&xs).flatten().take(VECTOR_LEN - points.len()));
        next += count;
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
