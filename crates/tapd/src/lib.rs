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
//! mssmt_nodes(hash_key, l_hash_key, r_hash_key, key, value, sum, namespace)  primary key (hash_key, namespace)
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

mod postgres_source;
mod source;
mod sqlite_source;
mod walk;

use std::path::Path;

use spinney_postgres::{Address, ServerError};
use spinney_tree::sum::SumNode;

use source::Source;
pub use walk::{Damage, Flaw, OnLeaf, Report};

/// The longest value of a leaf: as in Taproot Assets.
pub const VALUE_BYTES_MAX: usize = (1 << 24) - 1;

/// Why a database cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TapdError {
    /// There is none.
    #[error("there is no database at {0}")]
    Missing(String),
    /// It is something else.
    #[error("{place} is no database of tapd: {what}")]
    Foreign {
        /// The file, or the address without its password.
        place: String,
        /// What is not as it should be.
        what: String,
    },
    /// It has no tree of that name.
    #[error("{place} has no tree \"{namespace}\"; it has {has}")]
    NoTree {
        /// The file, or the address without its password.
        place: String,
        /// The name that was asked for.
        namespace: String,
        /// Some of those that are there.
        has: String,
    },
    /// The database failed.
    #[error("{place}: {what}")]
    Failed {
        /// The file, or the address without its password.
        place: String,
        /// What it says.
        what: String,
    },
    /// The server failed, or cannot be reached.
    #[error("{place}: {source}")]
    Server {
        /// The address without its password.
        place: String,
        /// Why.
        source: ServerError,
    },
    /// A few rows stand for a tree of more leaves than there can be.
    #[error(
        "the {rows} rows of the tree \"{namespace}\" stand for more than {nodes} nodes, by sharing; \
         no tree of hashed keys does"
    )]
    Shared {
        /// The tree.
        namespace: String,
        /// Its rows.
        rows: u64,
        /// Nodes that were seen before giving up.
        nodes: u64,
    },
}

/// A tree of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Its name, as "multiverse-issuance".
    pub name: String,
    /// Its root as the database has it; `None` if its row is missing or unreadable, which
    /// [`Database::read`] says more of.
    pub root: Option<SumNode>,
    /// Rows of nodes, those that nothing leads to included.
    pub rows: u64,
}

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
