//! The Fiat-Shamir transcript: a hash of all that was said, from which challenges are drawn.

use sha2::{Digest, Sha256};

use crate::field::Fr;
use crate::group::Element;

/// A transcript over SHA-256, byte for byte that of the other Verkle implementations.
///
/// Labels are absorbed as they are, before what they name. A challenge restarts the hash, which
/// then begins with the challenge itself.
#[derive(Clone, Debug)]
pub struct Transcript {
    hash: Sha256,
}

impl Transcript {
    /// A transcript that begins with a protocol's name. Tree proofs use `b"vt"`.
    pub fn new(label: &[u8]) -> Self {
        Self { hash: Sha256::new().chain_update(label) }
    }

    /// Marks the beginning of a sub-protocol.
    pub fn domain_separator(&mut self, label: &[u8]) {
        self.hash.update(label);
    }

    /// Absorbs a scalar.
    pub fn append_scalar(&mut self, label: &[u8], scalar: &Fr) {
        self.append(label, &scalar.to_le_bytes());
    }

    /// Absorbs a group element. Costs an inversion unless the element is normalised.
    pub fn append_element(&mut self, label: &[u8], element: &Element) {
        self.append(label, &element.to_compressed());
    }

    /// Absorbs the bytes of a scalar or an element.
    pub(super) fn append(&mut self, label: &[u8], bytes: &[u8; 32]) {
        self.hash.update(label);
        self.hash.update(bytes);
    }

    /// Draws a challenge that depends on all that was absorbed.
    pub fn challenge(&mut self, label: &[u8]) -> Fr {
        self.hash.update(label);
        let digest: [u8; 32] = self.hash.finalize_reset().into();
        let challenge = Fr::from_le_bytes_reduced(&digest);
        self.append_scalar(label, &challenge);
        challenge
    }
}
