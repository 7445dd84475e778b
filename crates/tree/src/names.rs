//! The names of the trees of a store: rows of [`Table::Meta`].
//!
//! ```text
//! "sum:"  | name (1 to 512 bytes)  ->  tree id (u32 BE) | hash of the scheme (u16 BE)
//! "tree:" | name (1 to 512 bytes)  ->  tree id (u32 BE) | scheme: tree (u16 BE), hash (u16 BE)
//! "sums"                           ->  the next id (u32 BE)
//! ```
//! Sum trees have rows of the first kind, all others of the second. Ids are given from 65,536 up,
//! each above all before it, also above those of trees that were removed: so a handle on a tree
//! that is gone never stands on another one. Ids below are those of trees without a name: of a
//! state, or of raw keys.
//!
//! A row is written by [`create`] and removed by [`remove`], which only put it into a write set:
//! who calls them is the one that writes to the store at that moment.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use crate::ids::{SchemeId, TreeId};
use crate::rows::ReadRows;
use crate::store::{Snapshot, StoreError, Table, WriteSet};

/// What keys begin with, and the first key behind all of them.
const SUM: (&[u8], &[u8]) = (b"sum:", b"sum;");
const TREE: (&[u8], &[u8]) = (b"tree:", b"tree;");
/// The key of the next id.
const NEXT: &[u8] = b"sums";
/// What a sum tree is in a [`SchemeId`].
const SUM_TREE: u16 = 5;

/// The first id that goes with a name: below it are the trees that have one of their own.
pub const FIRST_ID: u32 = 1 << 16;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// A tree that has a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NamedTree {
    /// Its name.
    pub name: String,
    /// Its id in the store.
    pub id: TreeId,
    /// Its kind and hash.
    pub scheme: SchemeId,
}

/// Why the names of a store cannot be read or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// No tree may have such a name.
    #[error("a name of {bytes} bytes, where 1 to {most} are taken")]
    Length {
        /// The length of the name in bytes.
        bytes: usize,
        /// The longest that there may be.
        most: usize,
    },
    /// Every tree has an id of its own, and all have been given.
    #[error("all ids of trees have been given: make another store")]
    NoId,
    /// What the store says of its names makes no sense.
    #[error("the name under 0x{} is damaged: {what}", crate::error::hex(.key))]
    Damaged {
        /// The row's key.
        key: Vec<u8>,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The trees of a store that have names: the sum trees first, both kinds in order of their names.
///
/// # Errors
/// If the store fails, or a row is damaged.
pub fn list(snapshot: &impl Snapshot) -> Result<Vec<NamedTree>, NameError> {
    all(snapshot)
}

fn all(snapshot: &dyn ReadRows) -> Result<Vec<NamedTree>, NameError> {
    let mut rows = Vec::new();
    for (low, high) in [SUM, TREE] {
        snapshot.scan(Table::Meta, low, Some(high), &mut |key, row| {
            rows.push(decode(key, row));
            true
        })?;
    }
    rows.into_iter().collect()
}

/// Whether a row is of a tree that has a name, or one of the names: no state of a block has it.
pub fn is_row_of_named(table: Table, key: &[u8]) -> bool {
    let is_named =
        |id: &[u8]| id.first_chunk().is_some_and(|id| u32::from_be_bytes(*id) >= FIRST_ID);
    match table {
        Table::Pages | Table::Roots => is_named(key),
        Table::Meta => {
            let under_way = [&b"rebuild"[..], b"pipeline"];
            key == NEXT
                || [SUM, TREE].iter().any(|(prefix, _)| key.starts_with(prefix))
                || under_way.iter().any(|name| key.strip_prefix(*name).is_some_and(is_named))
        }
        Table::Codes | Table::Preimages | Table::History => false,
    }
}

/// The tree of a name.
///
/// # Errors
/// If no tree may have such a name, the store fails, or its row is damaged.
pub fn find(snapshot: &impl Snapshot, name: &str) -> Result<Option<NamedTree>, NameError> {
    for (prefix, _) in [SUM, TREE] {
        let key = key_of(prefix, name)?;
        if let Some(row) = snapshot.read(Table::Meta, &key)? {
            return decode(&key, &row).map(Some);
        }
    }
    Ok(None)
}

/// Puts a name that no tree has yet, with an id of its own, into a write set.
///
/// ```
/// use spinney_tree::mpt::Mpt;
/// use spinney_tree::{MemoryStore, PageStore, Scheme, WriteSet, names};
///
/// let store = MemoryStore::new();
/// let mut set = WriteSet::new();
/// let named = names::create("accounts", Mpt.id(), &store.snapshot()?, &mut set)?;
/// store.commit(&set)?;
/// assert_eq!(names::find(&store.snapshot()?, "accounts")?, Some(named));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If no tree may have such a name, all ids are given, the store fails, or its names are damaged.
pub fn create(
    name: &str,
    scheme: SchemeId,
    snapshot: &impl Snapshot,
    set: &mut WriteSet,
) -> Result<NamedTree, NameError> {
    let id = next_id(snapshot)?;
    let after = id.checked_add(1).ok_or(NameError::NoId)?;
    let mut row = id.to_be_bytes().to_vec();
    if scheme.tree != SUM_TREE {
        row.extend_from_slice(&scheme.tree.to_be_bytes());
    }
    row.extend_from_slice(&scheme.hash.to_be_bytes());
    set.put(Table::Meta, &key_of(prefix_of(scheme), name)?, row);
    set.put(Table::Meta, NEXT, after.to_be_bytes());
    Ok(NamedTree { name: name.to_owned(), id: TreeId(id), scheme })
}

/// Puts the removal of a name into a write set; its id is not given again.
///
/// # Errors
/// If the store fails, or its names are damaged.
pub fn remove(
    named: &NamedTree,
    snapshot: &impl Snapshot,
    set: &mut WriteSet,
) -> Result<(), NameError> {
    set.put(Table::Meta, NEXT, next_id(snapshot)?.to_be_bytes());
    set.delete(Table::Meta, &key_of(prefix_of(named.scheme), &named.name)?);
    Ok(())
}

const fn prefix_of(scheme: SchemeId) -> &'static [u8] {
    if scheme.tree == SUM_TREE { SUM.0 } else { TREE.0 }
}

/// The row's key of a name.
fn key_of(prefix: &[u8], name: &str) -> Result<Vec<u8>, NameError> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok([prefix, name.as_bytes()].concat()),
        bytes => Err(NameError::Length { bytes, most: NAME_BYTES_MAX }),
    }
}

fn decode(key: &[u8], row: &[u8]) -> Result<NamedTree, NameError> {
    let damaged = |what| NameError::Damaged { key: key.to_vec(), what };
    let (is_sum, name) = match (key.strip_prefix(SUM.0), key.strip_prefix(TREE.0)) {
        (Some(name), _) => (true, name),
        (None, Some(name)) => (false, name),
        (None, None) => return Err(damaged("it is the name of no tree")),
    };
    let name = std::str::from_utf8(name).map_err(|_| damaged("its name is no UTF-8"))?.to_owned();
    let two = |bytes: &[u8]| bytes.try_into().map(u16::from_be_bytes).ok();
    let parts = row.split_first_chunk().and_then(|(id, scheme)| {
        let scheme = match is_sum {
            true => SchemeId { tree: SUM_TREE, hash: two(scheme)? },
            false => {
                let (tree, hash) = scheme.split_at_checked(2)?;
                SchemeId { tree: two(tree)?, hash: two(hash)? }
            }
        };
        Some((TreeId(u32::from_be_bytes(*id)), scheme))
    });
    let wrong = if is_sum { "its row is not 6 bytes" } else { "its row is not 8 bytes" };
    let (id, scheme) = parts.ok_or_else(|| damaged(wrong))?;
    Ok(NamedTree { name, id, scheme })
}

/// The id of the next tree. Stores of earlier versions do not say it until a tree is made or
/// removed.
fn next_id(snapshot: &dyn ReadRows) -> Result<u32, NameError> {
    let row = snapshot.row(Table::Meta, NEXT)?;
    let said = row.map(|row| (*row).try_into().map(u32::from_be_bytes)).transpose();
    let damaged = |_| NameError::Damaged {
        key: NEXT.to_vec(),
        what: "the number of the next tree is not 4 bytes",
    };
    let taken = all(snapshot)?.into_iter().map(|known| known.id.0.saturating_add(1)).max();
    Ok(said.map_err(damaged)?.max(taken).unwrap_or(FIRST_ID))
}
