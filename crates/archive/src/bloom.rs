//! Which keys a segment certainly has not.

use xxhash_rust::xxh3::xxh3_128;

/// Bits a key: one key in a hundred that is not there seems to be.
const BITS: usize = 10;
/// Bits that a key sets.
const HASHES: u64 = 7;

/// A Bloom filter (B. H. Bloom, 1970) of keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bloom {
    bytes: Vec<u8>,
}

impl Bloom {
    /// Of keys by their [`hash`].
    pub(crate) fn of(hashes: &[u128]) -> Self {
        let mut bytes = vec![0; (hashes.len() * BITS).div_ceil(8)];
        for &hash in hashes {
            for bit in bits(hash, bytes.len()) {
                bytes[bit / 8] |= 1 << (bit % 8);
            }
        }
        Self { bytes }
    }

    pub(crate) const fn from_bytes(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether a key may be there.
    pub(crate) fn may_have(&self, hash: u128) -> bool {
        bits(hash, self.bytes.len()).all(|bit| self.bytes[bit / 8] & 1 << (bit % 8) != 0)
            && !self.bytes.is_empty()
    }
}

/// What a filter knows of a key.
pub(crate) fn hash(key: &[u8]) -> u128 {
    xxh3_128(key)
}

fn bits(hash: u128, bytes: usize) -> impl Iterator<Item = usize> {
    let (first, step, most) = (hash as u64, (hash >> 64) as u64 | 1, bytes as u64 * 8);
    let count = if most == 0 { 0 } else { HASHES };
    (0..count).map(move |index| (first.wrapping_add(index.wrapping_mul(step)) % most) as usize)
}

#[cfg(test)]
mod tests {
    use super::{Bloom, hash};

    #[test]
    fn keys_are_found_and_most_others_are_not() {
        let keys: Vec<_> = (0..10_000_u32).map(|key| hash(&key.to_be_bytes())).collect();
        let (there, others) = keys.split_at(5_000);
        let bloom = Bloom::of(there);
        assert!(there.iter().all(|&key| bloom.may_have(key)));
        let wrong = others.iter().filter(|&&key| bloom.may_have(key)).count();
        assert!((1..100).contains(&wrong), "{wrong} of 5,000");
        assert!(!Bloom::of(&[]).may_have(keys[0]));
    }
}
