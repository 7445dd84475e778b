use spinney_hash::keccak256;

/// What a parent holds of a child in a Merkle Patricia trie: the child's RLP if that is shorter than 32
/// bytes, else its Keccak-256 digest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct NodeRef {
    /// 32 for a digest, else the length of the RLP.
    len: u8,
    /// Zero beyond `len`.
    bytes: [u8; 32],
}

impl NodeRef {
    pub(super) fn inline(rlp: &[u8]) -> Self {
        debug_assert!(!rlp.is_empty() && rlp.len() < 32);
        let mut bytes = [0; 32];
        bytes[..rlp.len()].copy_from_slice(rlp);
        Self { len: rlp.len() as u8, bytes }
    }

    pub(super) const fn hashed(digest: [u8; 32]) -> Self {
        Self { len: 32, bytes: digest }
    }

    /// The Keccak-256 digest of the node, also of a short one.
    pub fn digest(&self) -> [u8; 32] {
        if self.len == 32 { self.bytes } else { keccak256(&self.bytes[..usize::from(self.len)]) }
    }

    /// Appends what a parent's RLP holds.
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        if self.len == 32 {
            out.push(0xa0);
        }
        out.extend_from_slice(&self.bytes[..usize::from(self.len)]);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.len);
        out.extend_from_slice(&self.bytes[..usize::from(self.len)]);
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
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

impl std::fmt::Debug for NodeRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = if self.len == 32 { "digest" } else { "rlp" };
        write!(f, "{kind} 0x{}", crate::error::hex(&self.bytes[..usize::from(self.len)]))
    }
}
