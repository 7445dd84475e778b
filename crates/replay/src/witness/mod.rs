//! Execution witnesses: all that a block needs of the state before it, and of the chain.
//!
//! [`WitnessMaker`] executes blocks on a whole state, notes what each reads, and collects the nodes on
//! those paths, and those that survive beside what a block deletes. [`Witness::check`] executes the block
//! again on nothing else: the header is checked as in a replay, its state root included.

mod check;
mod make;
mod nodes;
mod partial_state;
mod record;

use alloy_primitives::{B256, Bytes};
use serde::{Deserialize, Serialize};
use spinney_state::StateError;
use spinney_tree::mpt::partial::PartialError;

pub use self::make::WitnessMaker;
use crate::error::ReplayError;

/// All that a block needs to be executed: the JSON is that of `debug_executionWitness`, with the block's
/// number, hash and state root beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[non_exhaustive]
pub struct Witness {
    /// The block's number.
    pub number: u64,
    /// Its hash.
    pub hash: B256,
    /// The root of the state after it.
    pub root: B256,
    /// Trie nodes in RLP, of accounts and storage, each once, in order of their digests.
    pub state: Vec<Bytes>,
    /// Code that is executed or copied, in order of its digests.
    pub codes: Vec<Bytes>,
    /// Addresses that are looked up, each followed by its slots that are.
    pub keys: Vec<Bytes>,
    /// Headers in RLP, without a gap, up to the block's parent: that one alone, unless the block asks for
    /// the hash of an older one.
    pub headers: Vec<Bytes>,
}

/// Why a state out of a witness cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessStateError {
    /// A trie node is missing or malformed.
    #[error(transparent)]
    Node(#[from] PartialError),
    /// The leaf of an account or a slot holds something else.
    #[error("the leaf of {what} holds 0x{bytes}")]
    Leaf {
        /// An account or a slot, by its digest.
        what: String,
        /// What it holds.
        bytes: String,
    },
}

/// Why a witness could not be made, or does not hold.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessError {
    /// A header is none, or does not follow the one before it.
    #[error("header {index} of the witness: {what}")]
    Header {
        /// Which of the headers.
        index: usize,
        /// What is wrong with it.
        what: String,
    },
    /// The block cannot be executed on the witness, or the outcome is not what its header says.
    #[error("on the witness alone: {0}")]
    Check(#[source] Box<ReplayError<WitnessStateError>>),
    /// The block is bad on the whole state already, or the state fails.
    #[error(transparent)]
    Replay(#[from] Box<ReplayError<StateError>>),
    /// The state that the witness was being made from failed.
    #[error(transparent)]
    State(#[from] StateError),
    /// What the block did cannot be done to the nodes collected.
    #[error("block {number}: {error}")]
    Make {
        /// The block.
        number: u64,
        /// Why not.
        #[source]
        error: WitnessStateError,
    },
}
