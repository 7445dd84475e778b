//! Why statements fail, and what a store says of it.

use std::io;

use rusqlite::ErrorCode;
use spinney_tree::StoreError;

use crate::guard::{backend, corrupt, foreign};

/// What is said of a file that SQLite cannot read.
pub(super) const NO_DATABASE: &str = "it is no SQLite database";

/// Why a statement failed: SQLite's reasons, or ours.
#[derive(Debug)]
pub(super) enum StatementError {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for StatementError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<StoreError> for StatementError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl StatementError {
    /// The same as an error of the store at `place`.
    pub(super) fn into_store_error(self, place: &str) -> StoreError {
        let error = match self {
            Self::Store(error) => return error,
            Self::Sqlite(error) => error,
        };
        let kind = match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                return StoreError::Busy { place: place.to_owned() };
            }
            Some(ErrorCode::DatabaseCorrupt) => return corrupt(place, error.to_string()),
            Some(ErrorCode::NotADatabase) => return foreign(place, NO_DATABASE),
            Some(ErrorCode::DiskFull) => io::ErrorKind::StorageFull,
            Some(ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                io::ErrorKind::PermissionDenied
            }
            // A table or a column that should be there.
            Some(ErrorCode::Unknown) => return corrupt(place, error.to_string()),
            _ => io::ErrorKind::Other,
        };
        match kind {
            io::ErrorKind::Other => backend(place, error),
            kind => backend(place, io::Error::from(kind)),
        }
    }
}
