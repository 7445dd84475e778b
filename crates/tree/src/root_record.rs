//! The root record: one row a tree, written with every commit.
//!
//! ```text
//! version (u16) | scheme (u16) | hash (u16) | generation (u32) | commit (u64)
//! | block flag (u8) | block number (u64) | block hash (32) | length of the root (u8) | root
//! | xxh3-64 of the row's key and all before (u64)
//! ```
//! Integers are big-endian, the checksum little-endian like that of pages.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use crate::error::TreeError;
use crate::ids::{BlockId, SchemeId, TreeId};
use crate::image::{SUM_BYTES, checksum};
use crate::rows::ReadRows;
use crate::scheme::Scheme;
use crate::store::Table;

/// The newest format of pages that this program knows. Those of version 1 keep what owned values
/// commit to; trees that leave it out have version 2 from their next commit on, whatever else they
/// still hold.
const VERSION: u16 = 2;

/// The format of the pages that a tree of a scheme is written with.
pub(crate) const fn version<S: Scheme>() -> u16 {
    if S::LAYOUT.keep_owned_values { 1 } else { VERSION }
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
    /// The record of a tree, if there is one.
    pub(crate) fn read(tree: TreeId, rows: &dyn ReadRows) -> Result<Option<Self>, TreeError> {
        let mut record = None;
        let see = &mut |row: &[u8]| record = Some(Self::decode(tree, row));
        rows.show(Table::Roots, &Self::key(tree), see)?;
        record.transpose()
    }

    /// The row's key in [`Table::Roots`].
    pub fn key(tree: TreeId) -> [u8; 4] {
        tree.0.to_be_bytes()
    }

    /// The row of a record.
    #[expect(clippy::expect_used, reason = "it writes a root of a scheme, and reads nothing")]
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

    /// The row of what an earlier record says, as a commit after that of a later one: whoever knows
    /// the later one then sees that the tree went on.
    ///
    /// # Errors
    /// As [`decode`](Self::decode), of either row.
    pub fn again(tree: TreeId, earlier: &[u8], later: Option<&[u8]>) -> Result<Vec<u8>, TreeError> {
        let mut record = Self::decode(tree, earlier)?;
        let later = later.map(|row| Self::decode(tree, row)).transpose()?;
        record.commit = later.map_or(record.commit, |later| later.commit.saturating_add(1));
        Ok(record.encode(tree))
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
        let short = || corrupt("it is too short");
        let version = u16::from_be_bytes(array(&mut rest).ok_or_else(short)?);
        if version == 0 || version > VERSION {
            return Err(TreeError::Version { tree, found: version, newest: VERSION });
        }
        let scheme = SchemeId {
            tree: u16::from_be_bytes(array(&mut rest).ok_or_else(short)?),
            hash: u16::from_be_bytes(array(&mut rest).ok_or_else(short)?),
        };
        let generation = u32::from_be_bytes(array(&mut rest).ok_or_else(short)?);
        let commit = u64::from_be_bytes(array(&mut rest).ok_or_else(short)?);
        let [has_block] = array(&mut rest).ok_or_else(short)?;
        let number = u64::from_be_bytes(array(&mut rest).ok_or_else(short)?);
        let hash = array(&mut rest).ok_or_else(short)?;
        let block = (has_block == 1).then_some(BlockId { number, hash });
        let [len] = array(&mut rest).ok_or_else(short)?;
        let (root, behind) = rest.split_at_checked(len.into()).ok_or_else(short)?;
        if !behind.is_empty() {
            return Err(corrupt("it is too long"));
        }
        let root = root.to_vec();
        Ok(Self { version, scheme, generation, commit, block, root })
    }
}

/// Takes the first bytes off.
fn array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*first)
}
