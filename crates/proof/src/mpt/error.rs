use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::error::Hex;

/// Why a proof does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProofError {
    /// A node that its parent, or the root, names by its digest is not in the proof.
    Missing {
        /// The Keccak-256 digest of the node's RLP.
        digest: [u8; 32],
    },
    /// A node is nothing that a trie has.
    Malformed {
        /// Which node of the list, or the one that it is embedded in.
        index: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A node lies on no path that the proof is about.
    Unused {
        /// Which node of the list.
        index: usize,
    },
    /// What is claimed of a key is not what its path shows.
    Differs {
        /// The key, slot or address.
        key: Vec<u8>,
        /// What the trie holds, in words.
        proven: String,
        /// What is claimed, in words.
        claimed: String,
    },
    /// No key is asked for.
    Nothing,
    /// A range ends before it starts.
    Bounds {
        /// Its first key.
        start: Vec<u8>,
        /// Its last key.
        end: Vec<u8>,
    },
    /// The entries of a range cannot be those of any trie.
    Entry {
        /// Which entry.
        index: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The entries of a range are not those that the trie holds there.
    Range {
        /// Where they differ, up to a digit: the first bytes of the keys below.
        prefix: Vec<u8>,
    },
}

impl fmt::Display for ProofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { digest } => write!(f, "the proof lacks the node 0x{}", Hex(digest)),
            Self::Malformed { index, what } => {
                write!(f, "node {index} of the proof is malformed: {what}")
            }
            Self::Unused { index } => {
                write!(f, "node {index} of the proof proves nothing that was asked")
            }
            Self::Differs { key, proven, claimed } => {
                write!(f, "key 0x{}: the trie holds {proven}, not {claimed}", Hex(key))
            }
            Self::Nothing => f.write_str("no key is asked for, so the proof says nothing"),
            Self::Bounds { start, end } => {
                write!(f, "the range ends at 0x{}, before it starts at 0x{}", Hex(end), Hex(start))
            }
            Self::Entry { index, what } => write!(f, "entry {index} of the range: {what}"),
            Self::Range { prefix } => {
                write!(f, "the trie holds other entries below 0x{}", Hex(prefix))
            }
        }
    }
}

impl core::error::Error for ProofError {}
