//! What the tests share.

use std::collections::BTreeMap;
use std::ops::Deref;

use spinney_store::{LogStore, PostgresStore, RedbStore, SqliteStore};
use spinney_tree::{PageStore, Snapshot, Table, WriteSet};
use tempfile::TempDir;

pub(crate) const CACHE_BYTES: usize = 1 << 20;

/// A store and the folder that goes when it goes.
pub(crate) struct Held<S> {
    store: S,
    _folder: Option<TempDir>,
}

impl<S> Held<S> {
    pub(crate) fn new(store: impl Into<S>, folder: Option<TempDir>) -> Self {
        Self { store: store.into(), _folder: folder }
    }
}

impl<S> Deref for Held<S> {
    type Target = S;

    fn deref(&self) -> &S {
        &self.store
    }
}

/// A new redb store in a folder of its own.
pub(crate) fn redb<S: From<RedbStore>>() -> Held<S> {
    let folder = tempfile::tempdir().unwrap();
    let store = RedbStore::create(folder.path(), CACHE_BYTES).unwrap();
    Held::new(store, Some(folder))
}

/// A new log in a folder of its own.
pub(crate) fn log<S: From<LogStore>>() -> Held<S> {
    let folder = tempfile::tempdir().unwrap();
    let store = LogStore::create(folder.path()).unwrap();
    Held::new(store, Some(folder))
}

/// A new SQLite store in a folder of its own.
pub(crate) fn sqlite<S: From<SqliteStore>>() -> Held<S> {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::create(folder.path().join("store"), CACHE_BYTES).unwrap();
    Held::new(store, Some(folder))
}

/// A new PostgreSQL store in a schema of its own, where there is a server.
#[cfg(unix)]
pub(crate) fn postgres<S: From<PostgresStore>>() -> Option<Held<S>> {
    let (url, _) = crate::server::shared()?.schema();
    Some(Held::new(PostgresStore::create(&url.into()).unwrap(), None))
}

/// The same, in what engines of PostgreSQL's protocol share.
#[cfg(unix)]
pub(crate) fn portable<S: From<PostgresStore>>() -> Option<Held<S>> {
    let (url, _) = crate::server::shared()?.schema();
    Some(Held::new(PostgresStore::create(&crate::portable::of(&url)).unwrap(), None))
}

/// All rows of a store.
pub(crate) type Contents = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

pub(crate) fn contents(store: &impl PageStore) -> Contents {
    contents_of(&store.snapshot().unwrap())
}

pub(crate) fn contents_of(snapshot: &impl Snapshot) -> Contents {
    let mut all = Contents::new();
    for table in Table::ALL {
        for (key, row) in rows(snapshot, table, b"", None) {
            all.insert((table, key), row);
        }
    }
    all
}

pub(crate) fn rows(
    snapshot: &impl Snapshot,
    table: Table,
    low: &[u8],
    high: Option<&[u8]>,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        found.push((key.to_vec(), row.to_vec()));
        true
    };
    snapshot.scan(table, low, high, &mut visit).unwrap();
    found
}

pub(crate) fn read(store: &impl PageStore, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    let snapshot = store.snapshot().unwrap();
    let row = snapshot.read(table, key).unwrap();
    row.map(|row| row.to_vec())
}

/// A write set of these rows in one table.
pub(crate) fn puts<K: AsRef<[u8]>, V: AsRef<[u8]>>(
    table: Table,
    rows: impl IntoIterator<Item = (K, V)>,
) -> WriteSet {
    let mut set = WriteSet::new();
    for (key, value) in rows {
        set.put(table, key.as_ref(), value.as_ref());
    }
    set
}
