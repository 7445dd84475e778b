//! What the two binary trees have in common: commitments are digests, nothing is 32 zeros, and
//! proofs.

mod prove;

use spinney_hash::{Digest, HashFunction, Inputs};
pub(crate) use spinney_proof::binary::EMPTY;

use crate::error::Refused;
use crate::ids::SchemeId;
use crate::scheme::Scheme;

/// Proofs of the binary trees: [`spinney_proof::binary`].
pub mod proof {
    pub use spinney_proof::NotProven;
    pub use spinney_proof::binary::{KeysProof, ProofError, VerifiedKeys, Word};

    pub use super::BinaryTree;
}

/// A binary tree over the engine: [`Ubt`](crate::ubt::Ubt) and [`Pbt`](crate::pbt::Pbt).
pub trait BinaryTree:
    Scheme<Commit = Digest, Root = Digest> + spinney_proof::binary::BinaryRules
{
}

impl<S> BinaryTree for S where
    S: Scheme<Commit = Digest, Root = Digest> + spinney_proof::binary::BinaryRules
{
}

/// The discriminant of a tree with a hash.
pub(crate) const fn scheme_id(tree: u16, hash: HashFunction) -> SchemeId {
    let hash = match hash {
        HashFunction::Keccak256 => 1,
        HashFunction::Sha256 => 2,
        HashFunction::Blake3 => 3,
    };
    SchemeId { tree, hash }
}

/// Values are words.
pub(crate) fn admit_value(value: Option<&[u8]>) -> Result<bool, Refused> {
    match value.map(<[u8]>::len) {
        None | Some(32) => Ok(true),
        Some(got) => Err(Refused::ValueLength { got, expected: "32 bytes" }),
    }
}

/// Digests of inputs, end to end in one buffer, appended to `out`.
#[derive(Debug, Default)]
pub(crate) struct Hasher {
    pub(crate) bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl Hasher {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
    }

    /// The input ends here.
    pub(crate) fn end(&mut self) {
        let end = u32::try_from(self.bytes.len()).expect("a level is split before it fills 4 GiB");
        self.ends.push(end);
    }

    /// Inputs of any lengths.
    pub(crate) fn finish(&self, hash: HashFunction, out: &mut Vec<Digest>) {
        let first = out.len();
        out.resize(first + self.ends.len(), EMPTY);
        match &mut out[first..] {
            // No need to set up lanes.
            [one] => *one = hash.hash(&self.bytes),
            many => hash.hash_many(Inputs::new(&self.bytes, &self.ends), many),
        }
    }

    /// Inputs of `len` bytes each, which need not be told where they end.
    pub(crate) fn finish_equal(&self, hash: HashFunction, len: usize, out: &mut Vec<Digest>) {
        let first = out.len();
        out.resize(first + self.bytes.len() / len, EMPTY);
        match &mut out[first..] {
            [one] => *one = hash.hash(&self.bytes),
            many => hash.hash_equal(&self.bytes, len, many),
        }
    }
}
