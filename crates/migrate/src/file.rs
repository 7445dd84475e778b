//! What the two files share: bytes that are counted and hashed as they pass, and how they are
//! refused.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt;
use std::io::{self, BufReader, BufWriter, Read, Write};

use alloy_primitives::{B256, Keccak256};
use serde::Serialize;

/// Bytes that are read or written at once.
const BUFFER_BYTES: usize = 1 << 16;

/// Why a file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read or written.
    #[error("at byte {at}: {error}")]
    Io {
        /// Bytes that passed before.
        at: u64,
        /// Why not.
        error: io::Error,
    },
    /// Its bytes are not those of such a file.
    #[error("at byte {at}: {flaw}")]
    Invalid {
        /// Where the record begins that is not as it should be.
        at: u64,
        /// What is wrong.
        flaw: Flaw,
    },
}

/// What is wrong with a file, or with what should become one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Flaw {
    /// It ends inside a record.
    #[error("the file ends inside {0}")]
    Truncated(&'static str),
    /// It goes on behind its last record.
    #[error("the file goes on behind its last record")]
    Trailing,
    /// A record is not behind the one before it.
    #[error("{what} 0x{key} is not behind the one before it")]
    Order {
        /// What kind of record.
        what: &'static str,
        /// Its key, in hexadecimal.
        key: String,
    },
    /// An account says that it has another number of slots than it has.
    #[error("account 0x{address} says {says} slots and has {has}")]
    SlotCount {
        /// Its address, in hexadecimal.
        address: String,
        /// The number that stands there.
        says: u32,
        /// The number that follows.
        has: u32,
    },
    /// The file says that it has another number of leaves than it has.
    #[error("the file says {says} leaves and has {has}")]
    LeafCount {
        /// The number that stands at its beginning.
        says: u64,
        /// The number that follows.
        has: u64,
    },
    /// A record is not in its canonical form.
    #[error("a leaf is not canonical: {0}")]
    Leaf(&'static str),
    /// A key is none of the tree's.
    #[error("0x{key} is no key of the tree: {what}")]
    Key {
        /// The key, in hexadecimal.
        key: String,
        /// Why not.
        what: &'static str,
    },
    /// The leaves make another root.
    #[error("the leaves have the root 0x{is}, and the file says 0x{says}")]
    Root {
        /// The root at the beginning of the file, in hexadecimal.
        says: String,
        /// The root of the leaves, in hexadecimal.
        is: String,
    },
}

/// A whole file that has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Digested {
    /// Keccak-256 of all its bytes: what makers of the same file compare.
    pub digest: B256,
    /// Its length in bytes.
    pub bytes: u64,
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    alloy_primitives::hex::encode(bytes)
}

/// Bytes that come in.
pub(crate) struct Input<R> {
    bytes: BufReader<R>,
    hasher: Keccak256,
    at: u64,
}

impl<R> fmt::Debug for Input<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Input").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<R: Read> Input<R> {
    pub(crate) fn new(bytes: R) -> Self {
        let bytes = BufReader::with_capacity(BUFFER_BYTES, bytes);
        Self { bytes, hasher: Keccak256::new(), at: 0 }
    }

    /// Bytes that passed.
    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    /// Fills `out`, or answers `false` if the file ends right here.
    pub(crate) fn take_or_end(
        &mut self,
        out: &mut [u8],
        what: &'static str,
    ) -> Result<bool, FileError> {
        let start = self.at;
        let mut filled = 0;
        while filled < out.len() {
            match self.bytes.read(out.get_mut(filled..).unwrap_or_default()) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => {
                    return Err(FileError::Invalid { at: start, flaw: Flaw::Truncated(what) });
                }
                Ok(read) => filled = filled.saturating_add(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let at = start.saturating_add(filled as u64);
                    return Err(FileError::Io { at, error });
                }
            }
        }
        self.hasher.update(&*out);
        self.at = self.at.saturating_add(out.len() as u64);
        Ok(true)
    }

    /// Fills `out`.
    pub(crate) fn take(&mut self, out: &mut [u8], what: &'static str) -> Result<(), FileError> {
        match self.take_or_end(out, what)? {
            true => Ok(()),
            false => Err(FileError::Invalid { at: self.at, flaw: Flaw::Truncated(what) }),
        }
    }

    /// Makes sure that nothing follows.
    pub(crate) fn end(mut self) -> Result<Digested, FileError> {
        let at = self.at;
        match self.take_or_end(&mut [0], "nothing")? {
            true => Err(FileError::Invalid { at, flaw: Flaw::Trailing }),
            false => Ok(Digested { digest: self.hasher.finalize(), bytes: at }),
        }
    }
}

/// Bytes that go out.
pub(crate) struct Output<W: Write> {
    bytes: BufWriter<W>,
    hasher: Keccak256,
    at: u64,
}

impl<W: Write> fmt::Debug for Output<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("at", &self.at).finish_non_exhaustive()
    }
}

impl<W: Write> Output<W> {
    pub(crate) fn new(bytes: W) -> Self {
        let bytes = BufWriter::with_capacity(BUFFER_BYTES, bytes);
        Self { bytes, hasher: Keccak256::new(), at: 0 }
    }

    pub(crate) const fn at(&self) -> u64 {
        self.at
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.bytes.write_all(bytes).map_err(|error| FileError::Io { at: self.at, error })?;
        self.hasher.update(bytes);
        self.at = self.at.saturating_add(bytes.len() as u64);
        Ok(())
    }

    /// What it was, and what it went into; not synced.
    pub(crate) fn end(self) -> Result<(Digested, W), FileError> {
        let at = self.at;
        let done = self.bytes.into_inner();
        let inner = done.map_err(|error| FileError::Io { at, error: error.into_error() })?;
        Ok((Digested { digest: self.hasher.finalize(), bytes: at }, inner))
    }
}
