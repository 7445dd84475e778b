//! The way from a root down to a key, as a proof shows it: for those who draw or count it.

use core::fmt;

/// What a node on the path of a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StepKind {
    /// A node with a child for each digit that goes on, in a trie or a Verkle tree.
    Branch,
    /// Digits that all keys below share.
    Extension,
    /// A node with two sides, below bits that all keys below share.
    Fork,
    /// The first 31 bytes of keys, above 256 places.
    Stem,
    /// Half of the places of a stem in a Verkle tree.
    Half,
    /// The leaf of the key.
    Leaf,
    /// The leaf, or the stem, of another key, which stands where the key would stand.
    Other,
}

impl fmt::Display for StepKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Branch => "branch",
            Self::Extension => "extension",
            Self::Fork => "fork",
            Self::Stem => "stem",
            Self::Half => "half stem",
            Self::Leaf => "leaf",
            Self::Other => "other leaf",
        })
    }
}

/// A node on the path of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// What it is.
    pub kind: StepKind,
    /// How many digits of the key lead to it: hex digits in a Merkle Patricia trie, bytes in a
    /// Verkle tree, bits in the others.
    pub depth: usize,
    /// How many more the node itself takes.
    pub digits: usize,
    /// What the node above, or the root, holds of it; `None` where it is embedded in that node.
    pub digest: Option<[u8; 32]>,
    /// How many bytes of the proof it takes, with the hashes beside the path.
    pub bytes: usize,
    /// How many hashes beside the path it has.
    pub siblings: usize,
    /// The sum of what is below it, in a sum tree.
    pub sum: Option<u64>,
}
