//! What can go wrong in a database.

use spinney_tree::names::NameError;
use spinney_tree::{SchemeId, StoreError, TreeError};

/// Why a database refused or failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tree of this name is there, and it is of another kind, or has another hash.
    #[error("{name:?} is a tree {found}, and not {asked}: give the other one another name")]
    OtherScheme {
        /// The name.
        name: String,
        /// What the tree of this name is.
        found: SchemeId,
        /// What was asked for.
        asked: SchemeId,
    },
    /// There is no tree of this name.
    #[error("there is no tree {name:?}: the store holds {}", listed(.held))]
    NoTree {
        /// The name.
        name: String,
        /// The names that there are.
        held: Vec<String>,
    },
    /// Trees that the `spinney` command makes go by this name.
    #[error(
        "the name {name:?} is that of the command's own tree, which this store does not \
         hold: take another"
    )]
    Reserved {
        /// The name.
        name: String,
    },
    /// The `spinney` command keeps this tree, along with other rows: it can be read and proven
    /// here.
    #[error("tree {name:?} is kept by the spinney command, and can only be read here")]
    CommandTree {
        /// The name.
        name: String,
    },
    /// The tree was dropped, by this handle or another.
    #[error("tree {name:?} was dropped meanwhile: open it again to have a new one")]
    Dropped {
        /// The name.
        name: String,
    },
    /// Another state was committed since this one was prepared.
    #[error(
        "tree {tree:?} has moved on: the state stands on commit {base}, and the tree is at commit \
         {head}: prepare it again"
    )]
    Stale {
        /// The tree.
        tree: String,
        /// What the pending state was prepared on.
        base: u64,
        /// What the tree is at.
        head: u64,
    },
    /// Two states of one tree cannot both be committed: one of them can stand on the other.
    #[error("two states of tree {tree:?} in one commit: commit the one that stands on the other")]
    TwoStates {
        /// The tree.
        tree: String,
    },
    /// A state of another database.
    #[error("the state of tree {tree:?} belongs to another database")]
    OtherDatabase {
        /// The tree.
        tree: String,
    },
    /// The database was opened to be read.
    #[error("the database was opened read-only")]
    ReadOnly,
    /// No tree may have such a name, or the names of the store are damaged.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The tree refused or failed.
    #[error("tree {tree:?}: {source}")]
    Tree {
        /// Its name.
        tree: String,
        /// What it says.
        source: TreeError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}

impl Error {
    /// What a tree says, by its name.
    pub(crate) fn of(tree: &str, error: TreeError) -> Self {
        let tree = tree.to_owned();
        match error {
            TreeError::Stale { base, head } => Self::Stale { tree, base, head },
            TreeError::Store(error) => Self::Store(error),
            source => Self::Tree { tree, source },
        }
    }
}
