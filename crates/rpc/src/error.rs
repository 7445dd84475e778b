//! What is answered where there is no result: codes as the field has them.

use alloy_primitives::B256;
use spinney_archive::ArchiveError;
use spinney_state::StateError;
use spinney_state::sum::SumError;
use spinney_tree::{StoreError, TreeError};

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// What was sent is no JSON.
    #[error("{0}")]
    Parse(String),
    /// It is JSON, and no request.
    #[error("{0}")]
    Request(String),
    #[error("the method {0} does not exist or is not available")]
    Method(String),
    #[error("{0}")]
    Params(String),
    /// The store failed, or is damaged.
    #[error("{0}")]
    Internal(String),
    /// The store, as it is, cannot answer.
    #[error("{0}")]
    Unable(String),
    /// There is no such block, or it is not known here.
    #[error("{0}")]
    NotFound(String),
    #[error("request timed out")]
    TimedOut,
    #[error("response too large: more than {0} bytes")]
    TooLarge(usize),
    /// There is more to do than is taken on.
    #[error("{0}")]
    Busy(&'static str),
    /// What an archive lies on did not answer: the same request may succeed.
    #[error("resource unavailable, try again: {0}")]
    Unavailable(String),
    /// The state was there once, and is not kept.
    #[error("pruned history unavailable: {0}")]
    Pruned(String),
}

impl Fault {
    pub(crate) fn no_pending() -> Self {
        Self::NotFound("header not found: no pending block is made".into())
    }

    pub(crate) fn not_among(hash: &B256, first: u64, last: u64) -> Self {
        Self::NotFound(format!("header not found: {hash} is not among blocks {first} to {last}"))
    }

    /// Those of JSON-RPC 2.0, of EIP-1474, and of the execution APIs (4444).
    pub(crate) const fn code(&self) -> i32 {
        match self {
            Self::Parse(_) => -32700,
            Self::Request(_) => -32600,
            Self::Method(_) => -32601,
            Self::Params(_) => -32602,
            Self::Internal(_) => -32603,
            Self::Unable(_) => -32000,
            Self::NotFound(_) => -32001,
            Self::TimedOut | Self::Unavailable(_) => -32002,
            Self::TooLarge(_) => -32003,
            Self::Busy(_) => -32005,
            Self::Pruned(_) => 4444,
        }
    }

    /// As metrics have it.
    pub(crate) const fn outcome(&self) -> &'static str {
        match self {
            Self::Parse(_) | Self::Request(_) => "invalid_request",
            Self::Method(_) => "no_method",
            Self::Params(_) => "invalid_params",
            Self::Internal(_) => "failed",
            Self::Unable(_) => "unable",
            Self::NotFound(_) => "not_found",
            Self::TimedOut => "timed_out",
            Self::TooLarge(_) => "too_large",
            Self::Busy(_) => "busy",
            Self::Unavailable(_) => "unavailable",
            Self::Pruned(_) => "pruned",
        }
    }
}

/// An error with all that is behind it.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

impl From<StateError> for Fault {
    fn from(error: StateError) -> Self {
        match error {
            StateError::NotKept { block, kept: Some((oldest, newest)) } if block > newest => {
                let known = format!("the last block is {newest}, the oldest kept {oldest}");
                Self::NotFound(format!("header not found: block {block}; {known}"))
            }
            StateError::NotKept { block, kept: Some((oldest, newest)) } if oldest == newest => {
                let known = format!("that of block {newest} alone is");
                Self::Pruned(format!("the state of block {block} is not kept; {known}"))
            }
            StateError::NotKept { block, kept: Some((oldest, newest)) } => Self::Pruned(format!(
                "the state of block {block} is not kept; those of blocks {oldest} to {newest} are"
            )),
            StateError::NotKept { .. } | StateError::NoMpt { .. } => {
                Self::Unable(error.to_string())
            }
            other => failed(&other),
        }
    }
}

/// What is wrong with the store, or with the archive in its place.
fn failed(error: &(dyn std::error::Error + 'static)) -> Fault {
    let mut causes = std::iter::successors(Some(error), |error| error.source());
    let archives = causes.find_map(|cause| cause.downcast_ref::<ArchiveError>());
    match archives {
        Some(error) if error.is_retryable() => Fault::Unavailable(error.to_string()),
        Some(error @ ArchiveError::Sliced { .. }) => Fault::Pruned(error.to_string()),
        _ => Fault::Internal(chain(error)),
    }
}

impl From<TreeError> for Fault {
    fn from(error: TreeError) -> Self {
        failed(&error)
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        failed(&error)
    }
}

impl From<ArchiveError> for Fault {
    fn from(error: ArchiveError) -> Self {
        match error {
            ArchiveError::Outside { block, first, last, .. } => {
                StateError::NotKept { block, kept: Some((first, last)) }.into()
            }
            other => failed(&other),
        }
    }
}

impl From<SumError> for Fault {
    fn from(error: SumError) -> Self {
        match error {
            SumError::Name { .. } => Self::Params(error.to_string()),
            SumError::OtherTree { .. } => Self::Unable(error.to_string()),
            other => failed(&other),
        }
    }
}
