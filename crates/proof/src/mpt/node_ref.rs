use alloc::vec::Vec;
use core::fmt;

use spinney_hash::keccak256;

use crate::error::Hex;

/// What a parent holds of a child in a Merkle Patricia trie: the child's RLP if that is shorter
/// than 32 bytes, else its Keccak-256 digest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeRef {
    /// 32 for a digest, else the length of the RLP.
    len: u8,
    /// Zero beyond `len`.
    bytes: [u8; 32],
}

impl NodeRef {
    /// What a parent holds of a short node.
    ///
    /// # Panics
    /// If the RLP has 32 bytes or more.
    #[inline]
    pub fn inline(rlp: &[u8]) -> Self {
        debug_assert!(!rlp.is_empty() && rlp.len() < 32);
        let mut bytes = [0; 32];
        bytes[..rlp.len()].copy_from_slice(rlp);
        Self { len: rlp.len() as u8, bytes }
    }

    /// What a parent holds of the node with this digest.
    #[inline]
    pub const fn hashed(digest: [u8; 32]) -> Self {
        Self { len: 32, bytes: digest }
    }

    /// What a parent holds of the node with this RLP.
    #[inline]
    pub fn of(rlp: &[u8]) -> Self {
        if rlp.len() < 32 { Self::inline(rlp) } else { Self::hashed(keccak256(rlp)) }
    }

    /// The Keccak-256 digest of the node, also of a short one.
    #[inline]
    pub fn digest(&self) -> [u8; 32] {
        if self.len == 32 { self.bytes } else { keccak256(&self.bytes[..usize::from(self.len)]) }
    }

    /// The node's RLP, if it is short.
    #[inline]
    pub fn inlined(&self) -> Option<&[u8]> {
        (self.len < 32).then(|| &self.bytes[..usize::from(self.len)])
    }

    /// How many bytes a parent's RLP holds of it.
    #[inline]
    pub const fn rlp_bytes(&self) -> usize {
        if self.len == 32 { 33 } else { self.len as usize }
    }

    /// The most bytes that a parent's RLP holds of a child.
    pub const RLP_BYTES_MAX: usize = 33;

    /// Writes what a parent's RLP holds to the front of `out`; answers how many bytes that are.
    #[inline]
    pub fn lay(&self, out: &mut [u8]) -> usize {
        let len = self.rlp_bytes();
        if let (32, Some(item)) = (self.len, out.first_chunk_mut::<{ Self::RLP_BYTES_MAX }>()) {
            // Of one size, so that no call is needed to copy it.
            item[0] = 0xa0;
            item[1..].copy_from_slice(&self.bytes);
        } else {
            out[..len].copy_from_slice(&self.bytes[..len]);
        }
        len
    }

    /// Appends what a parent's RLP holds.
    #[inline]
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut item = [0; Self::RLP_BYTES_MAX];
        let len = self.lay(&mut item);
        out.extend_from_slice(&item[..len]);
    }

    /// Appends it as pages keep it: its length, then its bytes.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.len);
        out.extend_from_slice(&self.bytes[..usize::from(self.len)]);
    }

    /// The length in bytes of what [`NodeRef::encode`] appends.
    #[inline]
    pub const fn kept_bytes(&self) -> usize {
        1 + self.len as usize
    }

    /// That of a digest.
    pub const DIGEST_BYTES: usize = 33;

    /// The length in bytes of what [`NodeRef::decode`] reads.
    #[inline]
    pub fn encoded_bytes(bytes: &[u8]) -> Option<usize> {
        let len = usize::from(*bytes.first()?);
        (1..=32).contains(&len).then_some(1 + len).filter(|&all| all <= bytes.len())
    }

    /// Reads what [`NodeRef::encode`] appends off the front, with its length in bytes.
    #[inline]
    pub fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        // By far the most are digests.
        if let Some((&[32], rest)) = bytes.split_first_chunk::<1>()
            && let Some(&bytes) = rest.first_chunk::<32>()
        {
            return Some((Self { len: 32, bytes }, 33));
        }
        let (&len, rest) = bytes.split_first()?;
        if len == 0 || len > 32 {
            return None;
        }
        let part = rest.get(..usize::from(len))?;
        let mut all = [0; 32];
        all[..part.len()].copy_from_slice(part);
        Some((Self { len, bytes: all }, 1 + part.len()))
    }
}

impl fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.len == 32 { "digest" } else { "rlp" };
        write!(f, "{kind} 0x{}", Hex(&self.bytes[..usize::from(self.len)]))
    }
}
