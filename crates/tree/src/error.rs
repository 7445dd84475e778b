//! What can go wrong in a tree.

use crate::scheme::Refused;
use crate::store::StoreError;
use crate::{SchemeId, TreeId};

/// Why a tree refused or failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// Two operations of one batch name the same key.
    #[error("two operations on key 0x{} in one batch", hex(.key))]
    Duplicate {
        /// The key.
        key: Vec<u8>,
    },
    /// The tree takes no such key or value.
    #[error("key 0x{}: {source}", hex(.key))]
    Refused {
        /// The key.
        key: Vec<u8>,
        /// Why not.
        source: Refused,
    },
    /// A key is too long for any tree.
    #[error("a key of {got} bytes; the limit is {limit} (key 0x{}...)", hex(&.key[..16]))]
    KeyTooLong {
        /// The key.
        key: Vec<u8>,
        /// Its length in bytes.
        got: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A value is too large for any tree.
    #[error("key 0x{}: a value of {got} bytes; the limit is {limit}", hex(.key))]
    ValueTooLong {
        /// The key.
        key: Vec<u8>,
        /// The value's length in bytes.
        got: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A batch is larger than the engine takes at once.
    #[error("a batch of {got} bytes; the limit is {limit}: split it")]
    BatchTooLarge {
        /// Bytes of keys and values.
        got: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A key was put whose owner does not exist: storage without an account.
    #[error("key 0x{} has no owner 0x{}", hex(.key), hex(&.key[..*.owner_bytes]))]
    Ownerless {
        /// The key.
        key: Vec<u8>,
        /// The length of its owner's key.
        owner_bytes: usize,
    },
    /// The pending state does not stand on the last commit.
    #[error("the pending state stands on commit {base}, and the tree is at commit {head}")]
    Stale {
        /// What the pending state was prepared on.
        base: u64,
        /// What the tree holds.
        head: u64,
    },
    /// A page is damaged, or does not fit the page above it.
    #[error("{page} is damaged: {what}")]
    Corrupt {
        /// The page.
        page: String,
        /// What is wrong with it.
        what: String,
    },
    /// A snapshot is not of the tree's last commit: it is older, or another writer has moved on.
    #[error("the snapshot shows commit {found} of {tree}, which is at commit {head}")]
    OtherSnapshot {
        /// The tree.
        tree: TreeId,
        /// The commit that the snapshot shows.
        found: u64,
        /// The commit that the tree is at.
        head: u64,
    },
    /// The store holds another kind of tree under this id.
    #[error("{tree} of the store is {found}, not {expected}")]
    OtherScheme {
        /// The tree.
        tree: TreeId,
        /// What the store holds.
        found: SchemeId,
        /// What was asked for.
        expected: SchemeId,
    },
    /// The tree was written by another version of this program.
    #[error("{tree} has format version {found}; this program knows up to {newest}")]
    Version {
        /// The tree.
        tree: TreeId,
        /// The version in its root record.
        found: u16,
        /// The newest version known here.
        newest: u16,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
