//! The root record: one row a tree, written with every commit.
//!
//! ```text
//! version (u16) | scheme (u16) | hash (u16) | generation (u32) | commit (u64)
//! | block flag (u8) | block number (u64) | block hash (32) | length of the root (u8) | root
//! | xxh3-64 of the row's key and all before (u64)
//! ```
//! Integers are big-endian, the checksum little-endian like that of pages.

use crate::error::TreeError;
use crate::image::{SUM_BYTES, checksum};
use crate::scheme::{Scheme, SchemeId};
use crate::{BlockId, TreeId};

/// The newest format of pages that this program knows. Those of version 1 keep what owned values commit to; trees that
/// leave it out have version 2 from their next commit on, whatever else they still hold.
const VERSION: u16 = 2;

/// The format of the pages that a tree of a scheme is written with.
pub(crate) const fn version<S: Scheme>() -> u16 {
    if S::KEEP_OWNED_VALUES { 1 } else { VERSION }
}

/// What a store says of a tree.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RootRecord {
    /// The format version of its pages.
    pub version: u16,
    /// Its scheme and hash.
    pub scheme: SchemeId,
    /// Which generation of pages it stands on.
    pub generation: u32,
    /// How many commits were made to it.
    pub commit: u64,
    /// The block whose state it holds, if it was told.
    pub block: Option<BlockId>,
    /// The root, as the scheme writes it.
    pub root: Vec<u8>,
}

impl RootRecord {
    /// The row's key in [`Table::Roots`](crate::Table::Roots).
    pub fn key(tree: TreeId) -> [u8; 4] {
        tree.0.to_be_bytes()
    }

    pub(crate) fn encode(&self, tree: TreeId) -> Vec<u8> {
        let mut row = Vec::with_capacity(96);
        row.extend_from_slice(&self.version.to_be_bytes());
        row.extend_from_slice(&self.scheme.tree.to_be_bytes());
        row.extend_from_slice(&self.scheme.hash.to_be_bytes());
        row.extend_from_slice(&self.generation.to_be_bytes());
        row.extend_from_slice(&self.commit.to_be_bytes());
        let block = self.block.unwrap_or_default();
        row.push(u8::from(self.block.is_some()));
        row.extend_from_slice(&block.number.to_be_bytes());
        row.extend_from_slice(&block.hash);
        row.push(u8::try_from(self.root.len()).expect("roots are short"));
        row.extend_from_slice(&self.root);
        let sum = checksum(&Self::key(tree), &row);
        row.extend_from_slice(&sum.to_le_bytes());
        row
    }

    /// Reads a record.
    ///
    /// # Errors
    /// If the bytes are damaged, or of a newer version than this program knows.
    pub fn decode(tree: TreeId, row: &[u8]) -> Result<Self, TreeError> {
        let corrupt = |what: &str| TreeError::Corrupt {
            page: format!("the root record of {tree}"),
            what: what.into(),
        };
        let (mut rest, sum) = row
            .len()
            .checked_sub(SUM_BYTES)
            .and_then(|at| row.split_at_checked(at))
            .ok_or_else(|| corrupt("it is too short"))?;
        if checksum(&Self::key(tree), rest).to_le_bytes() != sum {
            return Err(corrupt("its checksum does not match"));
        }
        let mut take = |len: usize| {
            let (part, tail) =
                rest.split_at_checked(len).ok_or_else(|| corrupt("it is too short"))?;
            rest = tail;
            Ok::<_, TreeError>(part)
        };
        let version = u16::from_be_bytes(array(take(2)?));
        if version == 0 || version > VERSION {
            return Err(TreeError::Version { tree, found: version, newest: VERSION });
        }
        let scheme = SchemeId {
            tree: u16::from_be_bytes(array(take(2)?)),
            hash: u16::from_be_bytes(array(take(2)?)),
        };
        let generation = u32::from_be_bytes(array(take(4)?));
        let commit = u64::from_be_bytes(array(take(8)?));
        let has_block = take(1)?[0] == 1;
        let number = u64::from_be_bytes(array(take(8)?));
        let hash = array(take(32)?);
        let block = has_block.then_some(BlockId { number, hash });
        let len = usize::from(take(1)?[0]);
        let root = take(len)?.to_vec();
        if !rest.is_empty() {
            return Err(corrupt("it is too long"));
        }
        Ok(Self { version, scheme, generation, commit, block, root })
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("as many bytes were taken")
}
