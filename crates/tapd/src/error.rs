//! What can go wrong.

use spinney_postgres::ServerError;

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
        "the {rows} rows of the tree \"{namespace}\" stand for more than {nodes} nodes, by \
         sharing; no tree of hashed keys does"
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
