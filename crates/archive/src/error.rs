//! What can go wrong.

use spinney_state::StateError;
use spinney_tree::{StoreError, TreeError};

use crate::objects::ObjectError;

/// Why an archive could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// An object could not be read or written.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// An object is damaged, or it is another one than its archive wrote.
    #[error("{place} is damaged, or is another object: {what}")]
    Corrupt {
        /// The object, and what of it.
        place: String,
        /// What is wrong there.
        what: String,
    },
    /// There is no archive.
    #[error("there is no archive at {place}")]
    Missing {
        /// Where it was looked for.
        place: String,
    },
    /// There is an archive already.
    #[error("there is an archive at {place} already")]
    Exists {
        /// The place.
        place: String,
    },
    /// The archive is of a format that this version does not read.
    #[error("{place} is of format {found}, and this program reads format {newest}")]
    Format {
        /// The manifest.
        place: String,
        /// Its format.
        found: u32,
        /// The newest that is known.
        newest: u32,
    },
    /// A block outside of the archive.
    #[error("{place} holds blocks {first} to {last}, not block {block}")]
    Outside {
        /// The archive.
        place: String,
        /// The block that was asked for.
        block: u64,
        /// The first one that is held.
        first: u64,
        /// The last one.
        last: u64,
    },
    /// Another writer has taken the archive over.
    #[error("another writer has taken {place} over: manifest {number} is not ours")]
    Fenced {
        /// The archive.
        place: String,
        /// The manifest that the other one made.
        number: u64,
    },
    /// A block is not what is trusted of it, or not what its roots stand for.
    #[error("block {block} is wrong: {what}")]
    Block {
        /// The block.
        block: u64,
        /// What is wrong with it.
        what: String,
    },
    /// What is to be added does not follow what is there.
    #[error("block {block} cannot be added to {place}: {what}")]
    Order {
        /// The archive.
        place: String,
        /// The block.
        block: u64,
        /// Why.
        what: String,
    },
    /// Another archive cannot be put in front of this one.
    #[error("{older} cannot be joined to {place}: {what}")]
    Join {
        /// The archive.
        place: String,
        /// The one that is to be put in front.
        older: String,
        /// Why.
        what: String,
    },
    /// An archive cannot be sliced.
    #[error("{place} cannot be sliced: {what}")]
    Slice {
        /// The archive.
        place: String,
        /// Why.
        what: String,
    },
    /// What was asked for is outside of a slice: nothing is said of whether it is there.
    #[error("{place} is a slice of {accounts} accounts, and {what} is outside of it")]
    Sliced {
        /// The slice.
        place: String,
        /// How many accounts it has.
        accounts: usize,
        /// What was asked for.
        what: String,
    },
    /// The state of a block could not be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// A row of a tree is no page of it.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The store that is archived failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ArchiveError {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Object(error) if error.is_retryable())
    }

    /// As readers of stores are told.
    pub(crate) fn into_store_error(self) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Corrupt { place, what } => StoreError::Corrupt { place, what },
            Self::Missing { place } => StoreError::Missing { place },
            Self::Object(ObjectError::Missing { place }) => {
                StoreError::Corrupt { place, what: "the object is missing".into() }
            }
            error => StoreError::Backend { place: "an archive".into(), source: Box::new(error) },
        }
    }
}
