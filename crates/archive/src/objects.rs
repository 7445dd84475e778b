//! Where an archive's objects lie: a folder, or a bucket of an object store.
//!
//! Invariants that every place keeps:
//! - an object is there whole or not at all, and is never changed once it is there;
//! - [`Objects::create`] makes an object only where there is none: of two who race, one is told so;
//! - what a call answered is durable.

use std::error::Error as StdError;
use std::fmt::Debug;
use std::ops::Range;

/// Why an object could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    /// There is no such object.
    #[error("{place} is missing")]
    Missing {
        /// The object.
        place: String,
    },
    /// The object ends before what was asked for.
    #[error("{place} ends before byte {end}: it was cut off, or it is another object")]
    Short {
        /// The object.
        place: String,
        /// Where what was asked for ends.
        end: u64,
    },
    /// The place failed: a full disk, a dropped connection, wrong credentials.
    #[error("{place}: {source}")]
    Failed {
        /// The object, or the place as a whole.
        place: String,
        /// Whether the same call may succeed later.
        retryable: bool,
        /// What the place says.
        source: Box<dyn StdError + Send + Sync>,
    },
}

impl ObjectError {
    /// Whether the same call may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Failed { retryable: true, .. })
    }
}

/// An object of a listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name, without what the place puts in front of all names.
    pub name: String,
    /// Its length in bytes.
    pub bytes: u64,
}

/// A place for objects. Names are ASCII letters, digits, `-` and `.`.
pub trait Objects: Debug + Send + Sync {
    /// The place, as messages name it, without credentials.
    fn place(&self) -> String;

    /// All objects whose names begin like this, in order of names; whoever made them.
    ///
    /// # Errors
    /// If the place fails.
    fn list(&self, prefix: &str) -> Result<Vec<Listed>, ObjectError>;

    /// A whole object, if there is one and it has at most `most` bytes.
    ///
    /// # Errors
    /// If the place fails; [`ObjectError::Failed`], not retryable, for a larger object.
    fn get(&self, name: &str, most: u64) -> Result<Option<Vec<u8>>, ObjectError>;

    /// The bytes of a range, all of them.
    ///
    /// # Errors
    /// If the place fails; if there is no such object, or it ends before that.
    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, ObjectError>;

    /// As [`read`](Self::read), many at once: one answer each, in order.
    fn read_many(&self, wants: &[(&str, Range<u64>)]) -> Vec<Result<Vec<u8>, ObjectError>> {
        wants.iter().map(|(name, range)| self.read(name, range.clone())).collect()
    }

    /// Makes an object, unless there is one of this name: then the answer is `false`.
    ///
    /// # Errors
    /// If the place fails. Whether there is an object then is open.
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool, ObjectError>;

    /// Begins an object that is written piece by piece. It is there once it is finished; one of
    /// the same name is replaced.
    ///
    /// # Errors
    /// If the place fails.
    fn upload(&self, name: &str) -> Result<Box<dyn Upload>, ObjectError>;

    /// The names of what was begun and never became an object, where [`remove`](Self::remove)
    /// takes them: each begins with the name that the object was to have.
    ///
    /// # Errors
    /// If the place fails.
    fn unfinished(&self) -> Result<Vec<String>, ObjectError> {
        Ok(Vec::new())
    }

    /// Removes an object, if there is one.
    ///
    /// # Errors
    /// If the place fails.
    fn remove(&self, name: &str) -> Result<(), ObjectError>;
}

/// An object that is being written. What is dropped unfinished leaves no object.
pub trait Upload: Debug + Send {
    /// Appends bytes.
    ///
    /// # Errors
    /// If the place fails.
    fn write(&mut self, bytes: &[u8]) -> Result<(), ObjectError>;

    /// Makes the object durable and gives it its name.
    ///
    /// # Errors
    /// If the place fails.
    fn finish(self: Box<Self>) -> Result<(), ObjectError>;
}
