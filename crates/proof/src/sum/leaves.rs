//! Many leaves hashed side by side, in bounded memory.

use alloc::vec::Vec;

use spinney_hash::{Digest, Inputs, sha256, sha256_many};

use super::{BOUND_LEAF, Profile};

/// How many bytes of leaves wait to be hashed together; a leaf that is longer is hashed alone.
const WAITING_BYTES: usize = 1 << 20;

/// The hashes of leaves, in the order in which they are put in.
#[derive(Debug, Default)]
pub struct LeafHashes {
    bytes: Vec<u8>,
    /// Where each leaf that waits ends in `bytes`.
    ends: Vec<u32>,
    digests: Vec<Digest>,
}

impl LeafHashes {
    /// Forgets them all.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.digests.clear();
    }

    /// Adds a leaf.
    pub fn push(&mut self, profile: Profile, value: &[u8], sum: u64) {
        if self.bytes.len() + value.len() > WAITING_BYTES {
            self.hash();
        }
        profile.put_leaf(value, sum, &mut self.bytes);
        if value.len() > WAITING_BYTES {
            self.digests.push(sha256(&self.bytes));
            self.bytes = Vec::new();
        } else {
            // Far below 4 GiB: what waits and this one were just bounded.
            self.ends.push(self.bytes.len() as u32);
        }
    }

    /// Hashes what waits.
    fn hash(&mut self) {
        let known = self.digests.len();
        self.digests.resize(known + self.ends.len(), [0; 32]);
        match &mut self.digests[known..] {
            [] => {}
            [one] => *one = sha256(&self.bytes),
            many => sha256_many(Inputs::new(&self.bytes, &self.ends), many),
        }
        self.bytes.clear();
        self.ends.clear();
    }

    /// The hash of each leaf.
    pub fn finish(&mut self) -> &[Digest] {
        self.hash();
        &self.digests
    }
}

impl Profile {
    /// Appends what a leaf hashes.
    pub(super) fn put_leaf(self, value: &[u8], sum: u64, out: &mut Vec<u8>) {
        if self == Self::Bound {
            out.push(BOUND_LEAF);
        }
        out.extend_from_slice(value);
        out.extend_from_slice(&sum.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use super::{LeafHashes, WAITING_BYTES};
    use crate::sum::{Leaf, Profile};

    /// Lengths on both sides of every bound, so that each way to hash is taken between others.
    #[test]
    fn leaves_of_any_length_hash_as_they_do_alone() {
        let lengths = [0, 32, WAITING_BYTES - 40, 7, WAITING_BYTES, 1, WAITING_BYTES + 1, 56, 3];
        for profile in [Profile::Compatible, Profile::Bound] {
            let leaves: Vec<_> = (1_u8..)
                .zip(lengths)
                .map(|(n, length)| Leaf { value: vec![n; length], sum: u64::from(n) << 40 })
                .collect();
            let mut hashes = LeafHashes::default();
            for (index, leaf) in leaves.iter().enumerate() {
                hashes.push(profile, &leaf.value, leaf.sum);
                assert!(hashes.bytes.len() <= WAITING_BYTES + 9, "after leaf {index}");
            }
            let alone: Vec<_> = leaves.iter().map(|leaf| profile.leaf(leaf).hash).collect();
            assert_eq!(hashes.finish(), alone, "{profile:?}");
        }
    }
}
