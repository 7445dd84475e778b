//! The names of the sum trees of a store: rows of [`Table::Meta`].
//!
//! ```text
//! "sum:" | name (1 to 512 bytes)  ->  tree id (u32 BE) | hash of the scheme (u16 BE)
//! "sums"                          ->  the next id (u32 BE)
//! ```
//! Ids are given from 65,536 up, each above all before it, also above those of trees that were removed: so
//! a handle on a tree that is gone never stands on another one.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::hex;
use spinney_tree::sum::{Profile, Sum};
use spinney_tree::{PageStore, Scheme, Snapshot, Table, TreeId, WriteSet};

use super::{SumError, turns};

const PREFIX: &[u8] = b"sum:";
/// The first key behind all that begin with the prefix.
const BEHIND: &[u8] = b"sum;";
/// The key of the next id.
const NEXT: &[u8] = b"sums";
/// The first id: below it are the trees that have one of their own.
const FIRST: u32 = 1 << 16;
/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 512;

/// A sum tree that a store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Namespace {
    /// Its name.
    pub name: String,
    /// Its id in the store.
    pub id: TreeId,
    /// What its branches bind.
    pub profile: Profile,
}

/// The sum trees of a store, in order of their names.
///
/// # Errors
/// If the store fails, or a row is damaged.
pub fn namespaces(snapshot: &impl Snapshot) -> Result<Vec<Namespace>, SumError> {
    let mut rows = Vec::new();
    snapshot.scan(Table::Meta, PREFIX, Some(BEHIND), &mut |key, row| {
        rows.push(decode(key, row));
        true
    })?;
    rows.into_iter().collect()
}

/// The row's key of a name.
fn key_of(name: &str) -> Result<Vec<u8>, SumError> {
    match name.len() {
        1..=NAME_BYTES_MAX => Ok([PREFIX, name.as_bytes()].concat()),
        bytes => Err(SumError::Name { bytes, most: NAME_BYTES_MAX }),
    }
}

fn decode(key: &[u8], row: &[u8]) -> Result<Namespace, SumError> {
    let damaged = |what: &str| SumError::Damaged { key: hex::encode(key), what: what.to_owned() };
    let name = key.strip_prefix(PREFIX).and_then(|name| std::str::from_utf8(name).ok());
    let name = name.ok_or_else(|| damaged("its name is no UTF-8"))?.to_owned();
    let (id, hash) = row
        .split_first_chunk()
        .and_then(|(id, hash)| {
            Some((u32::from_be_bytes(*id), u16::from_be_bytes(hash.try_into().ok()?)))
        })
        .ok_or_else(|| damaged("its row is not 6 bytes"))?;
    let profiles = [Profile::Compatible, Profile::Bound];
    let profile = profiles.into_iter().find(|profile| Sum { profile: *profile }.id().hash == hash);
    let profile = profile.ok_or_else(|| damaged("its profile is not of this version"))?;
    Ok(Namespace { name, id: TreeId(id), profile })
}

/// The tree of a name.
pub(super) fn find(snapshot: &impl Snapshot, name: &str) -> Result<Option<Namespace>, SumError> {
    let key = key_of(name)?;
    snapshot.read(Table::Meta, &key)?.map(|row| decode(&key, &row)).transpose()
}

/// Gives a name an id, durably; one that has an id keeps it.
pub(super) fn create<P: PageStore>(
    store: &P,
    name: &str,
    profile: Profile,
) -> Result<Namespace, SumError> {
    let key = key_of(name)?;
    let _turn = turns::names();
    if let Some(known) = find(&store.snapshot()?, name)? {
        return Ok(known);
    }
    let id = next_id(&store.snapshot()?)?;
    let after = id.checked_add(1).ok_or(SumError::NoId)?;
    let mut row = id.to_be_bytes().to_vec();
    row.extend_from_slice(&Sum { profile }.id().hash.to_be_bytes());
    let mut set = WriteSet::new();
    set.put(Table::Meta, &key, row);
    set.put(Table::Meta, NEXT, after.to_be_bytes());
    set.sort();
    store.commit(&set)?;
    Ok(Namespace { name: name.to_owned(), id: TreeId(id), profile })
}

/// The id of the next tree. Stores of earlier versions do not say it until a tree is made or removed.
fn next_id(snapshot: &impl Snapshot) -> Result<u32, SumError> {
    let row = snapshot.read(Table::Meta, NEXT)?;
    let said = row.map(|row| (*row).try_into().map(u32::from_be_bytes)).transpose();
    let damaged = |_| {
        let what = "the number of the next tree is not 4 bytes".to_owned();
        SumError::Damaged { key: hex::encode(NEXT), what }
    };
    let taken = namespaces(snapshot)?.into_iter().map(|known| known.id.0.saturating_add(1)).max();
    Ok(said.map_err(damaged)?.max(taken).unwrap_or(FIRST))
}

/// Puts the removal of a name into a write set.
pub(super) fn remove(
    name: &str,
    snapshot: &impl Snapshot,
    set: &mut WriteSet,
) -> Result<(), SumError> {
    set.put(Table::Meta, NEXT, next_id(snapshot)?.to_be_bytes());
    set.delete(Table::Meta, &key_of(name)?);
    Ok(())
}
