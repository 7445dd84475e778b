//! An error that knows its exit code and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::process::ExitCode;

/// What a process tells its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Ok = 0,
    /// The answer is no: a bad block, damage found, roots that differ, a proof that does not hold.
    No = 1,
    /// Usage, or something failed at run time.
    Error = 2,
    /// Interrupted; the same command continues.
    Interrupted = 3,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// An error that knows its exit code and says what to do about it. Further causes may lie below it.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    /// What is to be said line by line.
    pub(crate) details: Vec<String>,
    pub(crate) hint: Option<String>,
    pub(crate) exit: Exit,
    source: Option<anyhow::Error>,
}

impl Failure {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), details: Vec::new(), hint: None, exit: Exit::Error, source: None }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What there is to say besides, each on a line of its own.
    pub(crate) fn details(mut self, details: Vec<String>) -> Self {
        self.details = details;
        self
    }

    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    pub(crate) fn because(mut self, source: impl Into<anyhow::Error>) -> Self {
        self.source = Some(source.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl StdError for Failure {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_ref().map(|source| source.as_ref() as _)
    }
}
