//! What may be wrong with a node's answer.

use std::fmt;

use crate::url::Url;

/// JSON-RPC's error of a method that is not there.
const NO_METHOD: i64 = -32601;

/// Why a node gave no answer, or not the one that was asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Nobody answers there, or the connection broke.
    #[error("{url}: {error}")]
    Unreachable {
        /// The node.
        url: Url,
        /// What went wrong.
        error: String,
    },
    /// It refuses the request as HTTP does.
    #[error("{url} answers with status {status}")]
    Status {
        /// The node.
        url: Url,
        /// The status.
        status: u16,
    },
    /// It answers with an error of its own.
    #[error("{method}: the node says: {message} ({code})")]
    Refused {
        /// What was asked.
        method: &'static str,
        /// The code of the error.
        code: i64,
        /// What it says.
        message: String,
    },
    /// What it answers is not what was asked for.
    #[error("{method}: {what}")]
    Answer {
        /// What was asked.
        method: &'static str,
        /// What is wrong.
        what: String,
    },
}

impl NodeError {
    pub(crate) fn answer(method: &'static str, what: impl fmt::Display) -> Self {
        Self::Answer { method, what: what.to_string() }
    }

    pub(crate) fn is_unknown_method(&self) -> bool {
        matches!(self, Self::Refused { code: NO_METHOD, .. })
    }
}
