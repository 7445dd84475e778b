//! What may be wrong with a node's answer, and why following cannot go on.

use std::fmt;

use alloy_primitives::B256;
use spinney_replay::ReplayError;
use spinney_state::StateError;

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

/// Why following cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FollowError {
    /// The node has another genesis.
    #[error("the node's chain begins with {got}, and the genesis given is {expected}")]
    OtherChain {
        /// The hash of the genesis given.
        expected: B256,
        /// The hash of the node's.
        got: B256,
    },
    /// The state was filled from another genesis.
    #[error("the store was filled from the genesis {got}, and the one given is {expected}")]
    OtherGenesis {
        /// The hash of the genesis given.
        expected: B256,
        /// The hash of the state's.
        got: B256,
    },
    /// The state stands at no block.
    #[error("the state stands at no block")]
    NoBlock,
    /// The node left blocks that the state cannot take back.
    #[error(
        "the node left the chain before block {oldest}, the oldest that the state can go back to"
    )]
    TooDeep {
        /// The oldest block that is kept.
        oldest: u64,
    },
    /// The node left a block that it had called final.
    #[error(
        "the node left the chain behind block {ancestor}, and had called block {finalized} final"
    )]
    Final {
        /// The last block that both chains have.
        ancestor: u64,
        /// The last one that was final.
        finalized: u64,
    },
    /// A block is bad, or the state failed.
    #[error(transparent)]
    Replay(Box<ReplayError<StateError>>),
    /// The state failed between blocks.
    #[error(transparent)]
    State(#[from] StateError),
}

impl From<ReplayError<StateError>> for FollowError {
    fn from(error: ReplayError<StateError>) -> Self {
        Self::Replay(Box::new(error))
    }
}
