//! The library through its public face, over every store.

mod model;
#[path = "../../../store/tests/it/server.rs"]
mod server;
mod threads;
mod trees;

use std::path::PathBuf;

use spinney::{Database, DatabaseOptions, Error};
use tempfile::TempDir;

/// Where a database is.
enum Place {
    Redb(TempDir),
    Sqlite(TempDir),
    Postgres(String),
}

impl Place {
    fn redb() -> Self {
        Self::Redb(tempfile::tempdir().unwrap())
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
        [Self::redb(), Self::sqlite()].into_iter().chain(Self::postgres())
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Redb(folder) => folder.path().join("db"),
            Self::Sqlite(folder) => folder.path().join("db.sqlite"),
            Self::Postgres(_) => PathBuf::new(),
        }
    }

    fn with(&self, options: DatabaseOptions) -> Result<Database, Error> {
        match self {
            Self::Redb(_) => options.open(self.path()),
            Self::Sqlite(_) => options.sqlite(self.path()),
            Self::Postgres(url) => options.postgres(url.clone()),
        }
    }

    fn open(&self) -> Database {
        self.with(DatabaseOptions::new()).unwrap()
    }
}
