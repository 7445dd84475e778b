//! The names of the sum trees of a store: see [`spinney_tree::names`].

use alloy_primitives::hex;
use spinney_tree::names::{self, NameError, NamedTree};
use spinney_tree::sum::{Profile, Sum};
use spinney_tree::{PageStore, Scheme, Snapshot, TreeError, TreeId, WriteSet};

use super::{SumError, turns};

pub use spinney_tree::names::NAME_BYTES_MAX;

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
    let named = names::list(snapshot)?.into_iter();
    named.filter(|named| named.scheme.tree == Sum::default().id().tree).map(of_sum).collect()
}

fn of_sum(named: NamedTree) -> Result<Namespace, SumError> {
    let NamedTree { name, id, scheme, .. } = named;
    let profiles = [Profile::Compatible, Profile::Bound];
    match profiles.into_iter().find(|profile| Sum { profile: *profile }.id() == scheme) {
        Some(profile) => Ok(Namespace { name, id, profile }),
        None => {
            let key = hex::encode([b"sum:", name.as_bytes()].concat());
            Err(SumError::Damaged { key, what: "its profile is not of this version".to_owned() })
        }
    }
}

/// The tree of a name.
pub(super) fn find(snapshot: &impl Snapshot, name: &str) -> Result<Option<Namespace>, SumError> {
    match names::find(snapshot, name)? {
        Some(named) if named.scheme.tree != Sum::default().id().tree => {
            Err(SumError::OtherTree { name: named.name, scheme: named.scheme })
        }
        named => named.map(of_sum).transpose(),
    }
}

/// Gives a name an id, durably; one that has an id keeps it.
pub(super) fn create<P: PageStore>(
    store: &P,
    name: &str,
    profile: Profile,
) -> Result<Namespace, SumError> {
    let _turn = turns::names();
    let snapshot = store.snapshot()?;
    if let Some(known) = find(&snapshot, name)? {
        return Ok(known);
    }
    let mut set = WriteSet::new();
    let named = names::create(name, Sum { profile }.id(), &snapshot, &mut set)?;
    drop(snapshot);
    set.sort();
    store.commit(&set)?;
    Ok(Namespace { name: named.name, id: named.id, profile })
}

/// Puts the removal of a name into a write set.
pub(super) fn remove(
    name: &str,
    snapshot: &impl Snapshot,
    set: &mut WriteSet,
) -> Result<(), SumError> {
    let named = names::find(snapshot, name)?;
    let named = named.ok_or_else(|| SumError::Removed { name: name.to_owned() })?;
    Ok(names::remove(&named, snapshot, set)?)
}

impl From<NameError> for SumError {
    fn from(error: NameError) -> Self {
        match error {
            NameError::Length { bytes, most } => Self::Name { bytes, most },
            NameError::Damaged { key, what } => {
                Self::Damaged { key: hex::encode(key), what: what.to_owned() }
            }
            NameError::Store(error) => Self::Tree(TreeError::from(error)),
            _ => Self::NoId,
        }
    }
}
