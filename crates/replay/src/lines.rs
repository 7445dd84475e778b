//! Files of one JSON document a line, with memory for one line.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::io::{self, BufRead};

/// The most bytes that a line may have: room for a genesis allocation of mainnet many times over.
pub const DIFF_LINE_LEN_MAX: u64 = 256 << 20;

/// Why state differences or traces were refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiffError {
    /// The file could not be read.
    #[error("line {line}: {error}")]
    Io {
        /// The line, from 1.
        line: u64,
        /// What went wrong.
        #[source]
        error: io::Error,
    },
    /// The line is no JSON, or not what it should be.
    #[error("line {line}: {error}")]
    Json {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        #[source]
        error: serde_json::Error,
    },
    /// The line is too long.
    #[error("line {line}: expected at most {expected} bytes")]
    TooLong {
        /// The line, from 1.
        line: u64,
        /// The most that is taken.
        expected: u64,
    },
}

/// Reads line by line; blank lines are passed over.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    line: u64,
    failed: bool,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(input: R) -> Self {
        Self { input, line: 0, failed: false }
    }

    /// The line that was read last, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// What `parse` makes of the next line. Behind an error of reading there is none.
    pub(crate) fn next<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Option<Result<T, DiffError>> {
        if self.failed { None } else { self.read(parse).transpose() }
    }

    fn read<T>(
        &mut self,
        parse: impl FnOnce(&[u8]) -> Result<T, serde_json::Error>,
    ) -> Result<Option<T>, DiffError> {
        let mut raw = Vec::new();
        loop {
            let line = self.line.saturating_add(1);
            raw.clear();
            let mut limited = io::Read::take(&mut self.input, DIFF_LINE_LEN_MAX + 1);
            let len = limited.read_until(b'\n', &mut raw).map_err(|error| {
                self.failed = true;
                DiffError::Io { line, error }
            })?;
            if len == 0 {
                return Ok(None);
            }
            self.line = line;
            if len as u64 > DIFF_LINE_LEN_MAX {
                self.failed = true;
                return Err(DiffError::TooLong { line, expected: DIFF_LINE_LEN_MAX });
            }
            if !raw.trim_ascii().is_empty() {
                return parse(&raw).map(Some).map_err(|error| DiffError::Json { line, error });
            }
        }
    }
}
