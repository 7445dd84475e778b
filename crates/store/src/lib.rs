//! Stores for the pages of spinney's trees.
//!
//! | store | keeps rows in | for |
//! |---|---|---|
//! | [`MemoryStore`](spinney_tree::MemoryStore) | memory | tests, roots that nobody keeps |
//! | [`RedbStore`] | a directory with one redb file | embedded, crash safe, pure Rust |
//! | [`LogStore`] | a directory with an append-only log | small commits: the fewest bytes each |
//! | [`SqliteStore`] | a SQLite file | programs that keep other data in SQLite already |
//! | [`PostgresStore`] | a schema of a PostgreSQL database | stores that machines share |
//! | [`AnyStore`] | any of these | programs that choose at run time |
//! | [`Frozen`] | a snapshot of any of these | readers in several steps beside a writer |
//! | [`WriteBehind`] | any of these, a commit later | writers that do not wait for the disk |
//!
//! All implement [`PageStore`](spinney_tree::PageStore), and all that can be written pass one
//! conformance suite.
//!
//! ```
//! use spinney_store::RedbStore;
//! use spinney_tree::{Batch, PageStore, Tree, TreeId, mpt::Mpt};
//!
//! let folder = tempfile::tempdir()?;
//! let store = RedbStore::create(folder.path(), 16 << 20)?;
//! let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
//! let mut batch = Batch::new();
//! batch.put(b"doe", b"reindeer");
//! let pending = tree.prepare(&store.snapshot()?, None, batch)?;
//! tree.commit(&store, &pending, None)?;
//! store.close()?;
//!
//! let store = RedbStore::open(folder.path(), 16 << 20)?;
//! let tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
//! assert_eq!(tree.root(), pending.root());
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! SQLite and PostgreSQL are features, `sqlite` and `postgres`, both on unless told otherwise.
#![forbid(unsafe_code)]

mod any;
mod before;
mod behind;
mod creation;
#[cfg(feature = "faults")]
pub mod fault;
mod files;
mod folder;
mod frozen;
mod guard;
mod log_store;
mod metered;
#[cfg(feature = "postgres")]
mod postgres;
mod redb_rows;
mod redb_store;
mod seal;
mod snapshot;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod stats;

pub use any::{AnyRow, AnySnapshot, AnyStore, Location, OpenFor};
pub use before::Before;
pub use behind::{BehindRow, BehindSnapshot, WriteBehind};
pub use files::set_file_mode;
pub use frozen::{Frozen, FrozenSnapshot};
pub use guard::quiet_panics;
pub use log_store::{LogRow, LogSnapshot, LogStore};
#[cfg(feature = "postgres")]
pub use postgres::{PostgresSnapshot, PostgresStore};
pub use redb_store::RedbStore;
pub use snapshot::{RedbRow, RedbSnapshot};
pub use spinney_log::{Keep, Shipped, Stats as LogStats};
#[cfg(feature = "postgres")]
pub use spinney_postgres::Address;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub use sql::SqlRow;
#[cfg(feature = "sqlite")]
pub use sqlite::{SqliteSnapshot, SqliteStore};
pub use stats::{IoCounts, StoreStats, TableStats};
