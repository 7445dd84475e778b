//! What can go wrong in a tree.

use crate::ids::{SchemeId, TreeId};
use crate::store::StoreError;

/// Why a scheme takes no such key or value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// The key's length does not suit the tree.
    #[error("a key of {got} bytes where the tree takes {expected}")]
    KeyLength {
        /// The key's length in bytes.
        got: usize,
        /// What the tree takes.
        expected: &'static str,
    },
    /// The value's length does not suit the tree.
    #[error("a value of {got} bytes where the tree takes {expected}")]
    ValueLength {
        /// The value's length in bytes.
        got: usize,
        /// What the tree takes.
        expected: &'static str,
    },
    /// The value's bytes mean nothing to the tree.
    #[error("the value is malformed: {0}")]
    Value(&'static str),
}

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
    /// A key would begin another one, in a tree that has no such keys.
    #[error(
        "key 0x{} begins key 0x{}: no key of this tree may begin another",
        brief(.prefix),
        brief(.key)
    )]
    PrefixKey {
        /// The shorter key.
        prefix: Vec<u8>,
        /// A key that begins with it.
        key: Vec<u8>,
    },
    /// The values of a batch, or of the tree after it, weigh more than the tree takes: of a sum
    /// tree, their sums overflow.
    #[error(
        "the sum of the leaves overflows 64 bits (integer overflow): {} would come to {weight}, \
         and the most is {limit}",
        if *.batch { "the batch alone" } else { "the tree" }
    )]
    Overweight {
        /// Whether it is the batch by itself.
        batch: bool,
        /// What they would come to.
        weight: u128,
        /// The most that there may be.
        limit: u64,
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
    /// The entries of a tree have another root than its record says: a row is old, forged or lost.
    #[error(
        "{tree} is damaged: its entries have root 0x{}, and its record says 0x{}",
        hex(.computed),
        hex(.stored)
    )]
    OtherRoot {
        /// The tree.
        tree: TreeId,
        /// What its record says.
        stored: Vec<u8>,
        /// What its entries make.
        computed: Vec<u8>,
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
    /// Another rebuild or a sweep has removed what a rebuild wrote.
    #[error(
        "the rebuild of {tree} was swept away: another one began, or its store was swept; begin \
         again"
    )]
    Swept {
        /// The tree.
        tree: TreeId,
    },
    /// Leaves that have to come sorted, each key once, do not.
    #[error(
        "key 0x{} comes behind 0x{}: leaves have to come sorted, each key once",
        hex(.key),
        hex(.before)
    )]
    Unsorted {
        /// The key before it.
        before: Vec<u8>,
        /// The key.
        key: Vec<u8>,
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

/// At most the first 64 bytes.
fn brief(bytes: &[u8]) -> String {
    match bytes.get(..64) {
        Some(first) if bytes.len() > 64 => format!("{}.. ({} bytes)", hex(first), bytes.len()),
        _ => hex(bytes),
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
