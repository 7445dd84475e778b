//! The names of the sum trees of a store: rows of [`Table::Meta`].
//!
//! ```text
//! "sum:" | name (1 to 512 bytes)  ->  tree id (u32 BE) | hash of the scheme (u16 BE)
//! ```
//! Ids are given from 65,536 up, each above all before it.

use alloy_primitives::hex;
use spinney_tree::sum::{Profile, Sum};
use spinney_tree::{PageStore, Scheme, Snapshot, Table, TreeId, WriteSet};

use super::SumError;

const PREFIX: &[u8] = b"sum:";
/// The first key behind all that begin with the prefix.
const BEHIND: &[u8] = b"sum;";
/// The first id: below it are the trees that have one of their own.
const FIRST: u32 = 1 << 16;
const NAME_BYTES_MAX: usize = 512;

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

/// Gives a name an id, durably.
pub(super) fn create<P: PageStore>(
    store: &P,
    name: &str,
    profile: Profile,
) -> Result<Namespace, SumError> {
    let key = key_of(name)?;
    let taken = namespaces(&store.snapshot()?)?;
    let last = taken.iter().map(|known| known.id.0).max();
    let id = last.map_or(FIRST, |last| last.saturating_add(1));
    let mut row = id.to_be_bytes().to_vec();
    row.extend_from_slice(&Sum { profile }.id().hash.to_be_bytes());
    let mut set = WriteSet::new();
    set.put(Table::Meta, &key, row);
    store.commit(&set)?;
    Ok(Namespace { name: name.to_owned(), id: TreeId(id), profile })
}

/// Puts the removal of a name into a write set.
pub(super) fn remove(name: &str, set: &mut WriteSet) -> Result<(), SumError> {
    set.delete(Table::Meta, &key_of(name)?);
    Ok(())
}
