use crate::error::hex;

/// Why a proof does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// A node that its parent, or the root, names by its digest is not in the proof.
    #[error("the proof lacks the node 0x{}", hex(.digest))]
    Missing {
        /// The Keccak-256 digest of the node's RLP.
        digest: [u8; 32],
    },
    /// A node is nothing that a trie has.
    #[error("node {index} of the proof is malformed: {what}")]
    Malformed {
        /// Which node of the list, or the one that it is embedded in.
        index: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A node lies on no path that the proof is about.
    #[error("node {index} of the proof proves nothing that was asked")]
    Unused {
        /// Which node of the list.
        index: usize,
    },
    /// What is claimed of a key is not what its path shows.
    #[error("key 0x{}: the trie holds {proven}, not {claimed}", hex(.key))]
    Differs {
        /// The key, slot or address.
        key: Vec<u8>,
        /// What the trie holds, in words.
        proven: String,
        /// What is claimed, in words.
        claimed: String,
    },
    /// No key is asked for.
    #[error("no key is asked for, so the proof says nothing")]
    Nothing,
    /// A range ends before it starts.
    #[error("the range ends at 0x{}, before it starts at 0x{}", hex(.end), hex(.start))]
    Bounds {
        /// Its first key.
        start: Vec<u8>,
        /// Its last key.
        end: Vec<u8>,
    },
    /// The entries of a range cannot be those of any trie.
    #[error("entry {index} of the range: {what}")]
    Entry {
        /// Which entry.
        index: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The entries of a range are not those that the trie holds there.
    #[error("the trie holds other entries below 0x{}", hex(.prefix))]
    Range {
        /// Where they differ, up to a digit: the first bytes of the keys below.
        prefix: Vec<u8>,
    },
}

/// A verified proof is asked for a key that it is not about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing was proven of key 0x{}", hex(.key))]
pub struct NotProven {
    /// The key.
    pub key: Vec<u8>,
}
