//! The library through its public face, over every store.

mod model;
#[path = "../../../store/tests/it/server.rs"]
mod server;
mod threads;
mod trees;

use std::path::PathBuf;

use spinney::{AnyStore, Database, DatabaseOptions, Error};
use spinney_store::RedbStore;
use tempfile::TempDir;

/// Where a database is.
enum Place {
    /// A log.
    Folder(TempDir),
    Redb(TempDir),
    Sqlite(TempDir),
    Postgres(String),
}

impl Place {
    fn folder() -> Self {
        Self::Folder(tempfile::tempdir().unwrap())
    }

    /// A folder that has a store of redb's.
    fn redb() -> Self {
        let place = Self::Redb(tempfile::tempdir().unwrap());
        RedbStore::create(place.path(), 1 << 20).unwrap().close().unwrap();
        place
    }

    fn sqlite() -> Self {
        Self::Sqlite(tempfile::tempdir().unwrap())
    }

    /// None, and a line that says so, where there is no server.
    fn postgres() -> Option<Self> {
        Some(Self::Postgres(server::shared()?.schema().0))
    }

    /// All that there are here.
    fn all() -> impl Iterator<Item = Self> {
        [Self::folder(), Self::redb(), Self::sqlite()].into_iter().chain(Self::postgres())
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Folder(folder) | Self::Redb(folder) => folder.path().join("db"),
            Self::Sqlite(folder) => folder.path().join("db.sqlite"),
            Self::Postgres(_) => PathBuf::new(),
        }
    }

    fn with(&self, options: DatabaseOptions) -> Result<Database, Error> {
        match self {
            Self::Folder(_) | Self::Redb(_) => options.open(self.path()),
            Self::Sqlite(_) => options.sqlite(self.path()),
            Self::Postgres(url) => options.postgres(url.clone()),
        }
    }

    fn open(&self) -> Database {
        self.with(DatabaseOptions::new()).unwrap()
    }
}

#[test]
fn a_directory_is_opened_as_what_it_was_made() {
    assert!(matches!(Place::folder().open().store(), AnyStore::Log(_)));
    assert!(matches!(Place::redb().open().store(), AnyStore::Redb(_)));
}

/// A state that holds nothing leaves an empty tree where it is, and what others stand on.
#[test]
fn an_empty_tree_stays_where_it_is() {
    let place = Place::folder();
    let db = place.open();
    let tree = db.tree::<spinney::Mpt>("animals").unwrap();
    let first = tree.batch().put(b"doe", b"reindeer").prepare().unwrap();
    first.batch().delete(b"doe").prepare().unwrap().commit().unwrap();
    assert!(tree.view().get(b"doe").unwrap().is_none());
    first.commit().unwrap();
    drop((first, tree, db));
    let tree = place.open().tree::<spinney::Mpt>("animals").unwrap();
    assert_eq!(tree.view().get(b"doe").unwrap().as_deref(), Some(&b"reindeer"[..]));
}
