//! Reads the Merkle-sum trees that a Taproot Assets daemon (tapd) keeps in SQLite or PostgreSQL,
//! and verifies every hash and sum on the way. It never writes.
//!
//! ```no_run
//! let mut database = spinney_tapd::Database::sqlite("tapd.db")?;
//! for namespace in database.namespaces()? {
//!     let report = database.read(&namespace.name, &mut |key, leaf| {
//!         println!("{:02x?} counts {}", key, leaf.sum);
//!         Ok::<_, spinney_tapd::TapdError>(())
//!     })?;
//!     println!("{}: {} leaves, {} findings", namespace.name, report.leaves, report.damage.len());
//! }
//! # Ok::<_, spinney_tapd::TapdError>(())
//! ```
//!
//! # What such a database looks like
//! ```text
//! mssmt_nodes(hash_key, l_hash_key, r_hash_key, key, value, sum, namespace)
//!     primary key (hash_key, namespace)
//! mssmt_roots(namespace, root_hash)
//! ```
//! A branch has both of its children's hashes, a compacted leaf a key and a value, a leaf at depth
//! 256 a value alone. What real ones hold beside that, and what is made of it:
//! - an empty child is its well-known hash, with or without a row: both are empty;
//! - chains of branches with one child, left by deletions: read as they are;
//! - sums are 64 unsigned bits in a signed column: read as such;
//! - equal subtrees at different places are one row, with the key of one of them: the bits of a key
//!   above its row are those of the way that leads there;
//! - rows that nothing leads to: not read;
//! - namespaces whose tree was emptied have nodes at most, and no root: not listed.
//!
//! Invariants:
//! - a leaf is handed on only if every hash from the root down to it holds;
//! - what is read is one view of the database, however many queries it takes;
//! - memory: some thousand rows at a time, and values of 16 MiB at most.

#![forbid(unsafe_code)]

mod error;
mod postgres_source;
mod source;
mod sqlite_source;
mod walk;

use std::path::Path;

use spinney_postgres::Address;

pub use error::TapdError;
pub use source::Namespace;
use source::Source;
pub use walk::{Damage, Flaw, OnLeaf, Report};

/// The longest value of a leaf: as in Taproot Assets.
pub const VALUE_BYTES_MAX: usize = (1 << 24) - 1;

/// A database that is open for reading.
#[derive(Debug)]
pub struct Database {
    source: Box<dyn Source>,
}

impl Database {
    /// Opens an SQLite database. tapd may be running.
    ///
    /// # Errors
    /// If there is none, it cannot be read, or it has no tables of tapd.
    pub fn sqlite(file: impl AsRef<Path>) -> Result<Self, TapdError> {
        Ok(Self { source: Box::new(sqlite_source::Sqlite::open(file.as_ref())?) })
    }

    /// Opens a PostgreSQL database by its address. tapd may be running.
    ///
    /// # Errors
    /// If it cannot be reached, or has no tables of tapd.
    pub fn postgres(address: &Address) -> Result<Self, TapdError> {
        Ok(Self { source: Box::new(postgres_source::Postgres::open(address)?) })
    }

    /// The trees, by name.
    ///
    /// # Errors
    /// If the database fails.
    pub fn namespaces(&mut self) -> Result<Vec<Namespace>, TapdError> {
        self.source.namespaces()
    }

    /// Reads a tree, and gives `leaf` every leaf of it whose hashes hold, each once, in no order.
    ///
    /// Damage does not end it: what is sound is read, and the rest reported.
    ///
    /// # Errors
    /// If there is no such tree, the database fails, or `leaf` does.
    pub fn read<E: From<TapdError>>(
        &mut self,
        namespace: &str,
        leaf: &mut OnLeaf<'_, E>,
    ) -> Result<Report, E> {
        walk::Walk::new(&mut *self.source, namespace)?.run(leaf)
    }
}
