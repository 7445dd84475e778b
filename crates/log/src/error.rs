//! What can go wrong.

use std::fmt;
use std::io;

/// Why a log could not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Another writer has the log open.
    #[error("{place} is in use by another process")]
    Busy {
        /// The log.
        place: String,
    },
    /// The bytes at this place are damaged.
    #[error("{place} is damaged: {what}")]
    Corrupt {
        /// The log, and what of it.
        place: String,
        /// What is wrong there.
        what: String,
    },
    /// What is there is no log, or one of a newer format.
    #[error("{place} is no page log: {what}")]
    Foreign {
        /// The place.
        place: String,
        /// What is there instead.
        what: String,
    },
    /// That commit is not kept, or was never made.
    #[error(
        "{place} has no commit {commit} any more: the oldest kept is {oldest}, the newest {newest}"
    )]
    Gone {
        /// The log.
        place: String,
        /// The commit that was asked for.
        commit: u64,
        /// The oldest one that can be read.
        oldest: u64,
        /// The last one.
        newest: u64,
    },
    /// The disk failed.
    #[error("{place}: {source}")]
    Io {
        /// The file.
        place: String,
        /// What the system says.
        source: io::Error,
    },
    /// There is no log.
    #[error("there is no page log at {place}")]
    Missing {
        /// Where it was looked for.
        place: String,
    },
    /// A write failed before, so that nobody knows what the disk has.
    #[error("{place}: an earlier write failed; close the log and open it again")]
    Poisoned {
        /// The log.
        place: String,
    },
    /// It was opened for reading.
    #[error("{place}: it was opened read-only")]
    ReadOnly {
        /// The log.
        place: String,
    },
    /// A key, a row or a commit is longer than the format can say.
    #[error("{place}: {what} of {bytes} bytes is too long: {bytes_max} is the most")]
    TooLong {
        /// The log.
        place: String,
        /// What it is.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
}

pub(crate) fn corrupt(place: impl fmt::Display, what: impl Into<String>) -> LogError {
    LogError::Corrupt { place: place.to_string(), what: what.into() }
}

pub(crate) fn failed(place: &str) -> impl Fn(io::Error) -> LogError {
    move |source| LogError::Io { place: place.into(), source }
}
