//! What a database and its trees have in common: the store, how it is opened, whose turn it is to
//! write, and which trees there are.

use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

#[cfg(not(any(feature = "redb", feature = "sqlite", feature = "postgres")))]
use spinney_tree::MemoryStore;
use spinney_tree::names::{self, FIRST_ID};
use spinney_tree::{
    PageStore, RootRecord, SchemeId, Snapshot, StoreError, Table, TreeId, WriteSet,
};

use crate::error::Error;

/// The store of a database that is not told another: of any kind that the crate has.
#[cfg(any(feature = "redb", feature = "sqlite", feature = "postgres"))]
pub type AnyStore = spinney_store::AnyStore;
/// The store of a database that is not told another: of any kind that the crate has.
#[cfg(not(any(feature = "redb", feature = "sqlite", feature = "postgres")))]
pub type AnyStore = MemoryStore;

/// How a database is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseOptions {
    pub(crate) tree_cache: usize,
    pub(crate) store_cache: usize,
    pub(crate) read_only: bool,
}

impl Default for DatabaseOptions {
    fn default() -> Self {
        Self { tree_cache: 64 << 20, store_cache: 64 << 20, read_only: false }
    }
}

impl DatabaseOptions {
    /// A cache of 64 MiB for each open tree, and as much for the store; to read and to write.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bounds the bytes of pages that each open tree keeps in memory.
    #[must_use]
    pub const fn tree_cache(mut self, bytes: usize) -> Self {
        self.tree_cache = bytes;
        self
    }

    /// Bounds the bytes that the store keeps of its file, where it is in a file.
    #[must_use]
    pub const fn store_cache(mut self, bytes: usize) -> Self {
        self.store_cache = bytes;
        self
    }

    /// Opens to read, also while another process writes. States can be prepared and proven, and
    /// none committed.
    #[must_use]
    pub const fn read_only(mut self, read_only: bool) -> Self {
        self.read_only = read_only;
        self
    }
}

/// What a database and its trees have in common.
pub(crate) struct Shared<P> {
    pub(crate) store: P,
    pub(crate) options: DatabaseOptions,
    /// Whose turn it is to write.
    turn: Mutex<()>,
    /// Trees that somebody has open.
    pub(crate) open: Mutex<HashMap<TreeId, Weak<dyn Any + Send + Sync>>>,
}

/// A tree of the store, by its name.
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) id: TreeId,
    pub(crate) scheme: SchemeId,
}

impl<P: PageStore> Shared<P> {
    pub(crate) fn new(store: P, options: DatabaseOptions) -> Self {
        Self { store, options, turn: Mutex::default(), open: Mutex::default() }
    }

    /// Waits for the turn to write.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        // There is nothing behind the lock that a panic could have left halfway.
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) const fn writable(&self) -> Result<(), Error> {
        if self.options.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Gives a name to a new tree, durably.
    pub(crate) fn create(&self, name: &str, scheme: SchemeId) -> Result<Known, Error> {
        let mut set = WriteSet::new();
        let named = names::create(name, scheme, &self.store.snapshot()?, &mut set)?;
        set.sort();
        self.store.commit(&set)?;
        Ok(Known { name: named.name, id: named.id, scheme })
    }
}

/// The tree of a name.
pub(crate) fn find(snapshot: &impl Snapshot, name: &str) -> Result<Option<Known>, Error> {
    if is_of_command(name) {
        let mut trees = command_trees(snapshot)?.into_iter();
        return Ok(trees.find(|tree| tree.name == name));
    }
    let named = names::find(snapshot, name)?;
    Ok(named.map(|tree| Known { name: tree.name, id: tree.id, scheme: tree.scheme }))
}

/// The root record of a tree, if it was committed to.
pub(crate) fn record_of(
    snapshot: &impl Snapshot,
    id: TreeId,
) -> Result<Option<RootRecord>, spinney_tree::TreeError> {
    let row = snapshot.read(Table::Roots, &RootRecord::key(id))?;
    row.map(|row| RootRecord::decode(id, &row)).transpose()
}

/// The trees without a registered name: those of a state, or of raw keys, that the `spinney`
/// command keeps.
pub(crate) fn command_trees(snapshot: &impl Snapshot) -> Result<Vec<Known>, Error> {
    let mut found: Vec<Result<Known, Error>> = Vec::new();
    let high = FIRST_ID.to_be_bytes();
    let scanned: Result<(), StoreError> =
        snapshot.scan(Table::Roots, &[], Some(&high), &mut |key, row| {
            let id = TreeId(key.try_into().map_or(0, u32::from_be_bytes));
            let record = RootRecord::decode(id, row);
            let known = record.map(|record| {
                let name = command_name(record.scheme);
                Known { name, id, scheme: record.scheme }
            });
            found.push(known.map_err(|error| Error::of(&id.to_string(), error)));
            true
        });
    scanned?;
    found.into_iter().collect()
}

/// What the command calls a tree of a scheme.
fn command_name(scheme: SchemeId) -> String {
    match scheme.tree {
        1 | 2 => "mpt".into(),
        _ => scheme.to_string(),
    }
}

/// Whether the command has a tree that it calls so.
pub(crate) fn is_of_command(name: &str) -> bool {
    let hashed = (3..=4).flat_map(|tree| (1..=3).map(move |hash| SchemeId { tree, hash }));
    let others = [SchemeId { tree: 1, hash: 0 }, SchemeId { tree: 6, hash: 0 }];
    hashed.chain(others).any(|scheme| command_name(scheme) == name)
}
