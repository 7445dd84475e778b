//! Why a bisection ends without an answer.

use alloy_primitives::{Address, B256};
use spinney_proof::mpt::ProofError;
use spinney_proof::mpt::partial::PartialError;
use spinney_state::StateError;

use crate::error::NodeError;

/// Why two sides could not be compared. Sides are named by their addresses; a store is `the store`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BisectError {
    /// A node gave no answer, or not the one that was asked for.
    #[error("{}", of_node(.side, .error))]
    Node {
        /// The node.
        side: String,
        /// What went wrong.
        error: Box<NodeError>,
    },
    /// A node does not have a block that it is to have.
    #[error("{side} has no block {block}")]
    NoBlock {
        /// The node.
        side: String,
        /// The block.
        block: u64,
    },
    /// A proof does not hold under the state root of the node's own header.
    #[error(
        "{side}: its proof of account {address} at block {block} does not hold under the state \
         root {root} of its own header: {error}"
    )]
    Proof {
        /// The node.
        side: String,
        /// The account.
        address: Address,
        /// The block.
        block: u64,
        /// The root in the node's header.
        root: B256,
        /// What is wrong with it.
        error: Box<ProofError>,
    },
    /// Nodes that are proven are none of a trie of accounts or slots.
    #[error("{side}: the trie is damaged: {error}")]
    Trie {
        /// The side.
        side: String,
        /// What is wrong with it.
        error: PartialError,
    },
    /// A leaf that is proven holds no account, or no slot.
    #[error("{side}: what the trie holds under key {key} is no {what}")]
    Leaf {
        /// The side.
        side: String,
        /// The hashed key.
        key: B256,
        /// An account or a slot.
        what: &'static str,
    },
    /// Code is not behind its hash.
    #[error(
        "{side}: the code of account {address} has the hash {found}, and its leaf names {named}"
    )]
    Code {
        /// The side.
        side: String,
        /// The account.
        address: Address,
        /// The hash in the account's leaf.
        named: B256,
        /// The hash of the bytes.
        found: B256,
    },
    /// There is no block whose state both sides have.
    #[error(
        "no block is common: {left} has blocks {} to {}, {right} has {} to {}{}",
        .blocks[0].0, .blocks[0].1, .blocks[1].0, .blocks[1].1, wanted(*.from, *.to)
    )]
    NoCommonBlock {
        /// The first side.
        left: String,
        /// The second one.
        right: String,
        /// The first and the last block of each.
        blocks: [(u64, u64); 2],
        /// The first block that was asked for.
        from: Option<u64>,
        /// The last one.
        to: Option<u64>,
    },
    /// It asked as often, or for as long, as it may.
    #[error("{asks} questions were asked, and more are needed than are allowed")]
    Unfinished {
        /// How many questions were asked.
        asks: u64,
    },
    /// The store stands at no block.
    #[error("the store holds the state of no block")]
    NoState,
    /// The store failed.
    #[error(transparent)]
    State(Box<StateError>),
}

impl From<StateError> for BisectError {
    fn from(error: StateError) -> Self {
        Self::State(Box::new(error))
    }
}

fn of_node(side: &str, error: &NodeError) -> String {
    match error {
        // They name the node themselves.
        NodeError::Unreachable { .. } | NodeError::Status { .. } => error.to_string(),
        _ => format!("{side}: {error}"),
    }
}

fn wanted(from: Option<u64>, to: Option<u64>) -> String {
    match (from, to) {
        (None, None) => String::new(),
        (Some(from), None) => format!(", and blocks from {from} on are wanted"),
        (None, Some(to)) => format!(", and blocks up to {to} are wanted"),
        (Some(from), Some(to)) => format!(", and blocks {from} to {to} are wanted"),
    }
}
