//! Roots that are trusted, by the numbers of blocks.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;

use alloy_primitives::B256;

/// The roots of one tree that are trusted, each to be that of a block.
///
/// ```
/// use spinney_document::TrustedRoots;
///
/// let root = "0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421";
/// let roots = TrustedRoots::parse(&format!("17 {root}\n18 {root}\n"))?;
/// assert!(roots.trusts(17, &root.parse()?));
/// assert_eq!(roots.lacks(17, 19), Some(19));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedRoots(BTreeMap<u64, B256>);

/// Why roots cannot be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RootsError {
    /// A line is not a number, a space and a root.
    #[error("line {0}: it names no block and root")]
    Line(usize),
    /// A block would have two roots.
    #[error("block {block} has two roots, {one} and {other}")]
    Two {
        /// The block.
        block: u64,
        /// One of them.
        one: B256,
        /// The other.
        other: B256,
    },
}

impl TrustedRoots {
    /// Reads lines of a block's number and a root, with a space between them.
    ///
    /// # Errors
    /// If a line is none, or a block has two roots.
    pub fn parse(text: &str) -> Result<Self, RootsError> {
        let mut roots = Self::default();
        for (line, text) in (1..).zip(text.lines()) {
            let malformed = RootsError::Line(line);
            let mut words = text.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (None, ..) => {}
                (Some(block), Some(root), None) => {
                    let block = block.parse().map_err(|_| malformed)?;
                    roots.add(block, root.parse().map_err(|_| malformed)?)?;
                }
                _ => return Err(malformed),
            }
        }
        Ok(roots)
    }

    /// Trusts a root to be that of a block.
    ///
    /// # Errors
    /// If another one is trusted already.
    pub fn add(&mut self, block: u64, root: B256) -> Result<(), RootsError> {
        match self.0.insert(block, root) {
            Some(one) if one != root => Err(RootsError::Two { block, one, other: root }),
            _ => Ok(()),
        }
    }

    /// Whether a root is that of a block.
    pub fn trusts(&self, block: u64, root: &B256) -> bool {
        self.0.get(&block) == Some(root)
    }

    /// The first block that a root is trusted of.
    pub fn block_of(&self, root: &B256) -> Option<u64> {
        self.0.iter().find(|(_, known)| *known == root).map(|(block, _)| *block)
    }

    /// The first of some blocks that has no root.
    pub fn lacks(&self, first: u64, last: u64) -> Option<u64> {
        (first..=last).find(|block| !self.0.contains_key(block))
    }
}
