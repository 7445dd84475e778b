//! What trees, schemes and blocks are called.

use std::fmt;

/// Names a tree within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

impl fmt::Display for TreeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tree {}", self.0)
    }
}

/// A block, by number and hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockId {
    /// Its number.
    pub number: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

/// The discriminant of a scheme, as the root record keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchemeId {
    /// Which tree.
    pub tree: u16,
    /// Which hash, or 0 where the tree fixes it.
    pub hash: u16,
}

impl fmt::Display for SchemeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.tree, self.hash) {
            (1, 0) => f.write_str("mpt over raw keys"),
            (2, 0) => f.write_str("mpt over Ethereum state"),
            (3, 1) => f.write_str("ubt:keccak"),
            (3, 2) => f.write_str("ubt:sha256"),
            (3, 3) => f.write_str("ubt:blake3"),
            (4, 1) => f.write_str("pbt:keccak"),
            (4, 2) => f.write_str("pbt:sha256"),
            (4, 3) => f.write_str("pbt:blake3"),
            (5, 0) => f.write_str("sum"),
            (5, 1) => f.write_str("sum:bound"),
            (6, 0) => f.write_str("verkle"),
            (tree, hash) => write!(f, "unknown scheme {tree}/{hash}"),
        }
    }
}
