//! Execution witnesses: all that a block needs of the state before it, and of the chain.
//!
//! The form is the canonical one of the execution specifications (`build_execution_witness`): nodes
//! and codes once each, in order of their bytes; headers ascending; code only where the same
//! account had it before the block and it was read.
//!
//! A replay notes what a block [reads](BlockReads). [`WitnessMaker`], or a state that keeps
//! witnesses, collects the nodes on those paths, and those that survive beside what the block
//! deletes. [`Witness::check`] executes the block again on nothing else: the header is checked as
//! in a replay, its state root included. [`WitnessState`] is the state of a witness by itself.

mod binary;
mod check;
mod collapses;
mod doctor;
mod finder;
mod forms;
mod make;
mod nodes;
mod partial_state;
mod reads;
mod record;
mod ssz;
mod state;

use alloy_primitives::{Address, B256, Bytes};
use serde::{Deserialize, Serialize};
use spinney_state::StateError;
use spinney_tree::mpt::partial::PartialError;

pub use self::{
    binary::{BinaryWitness, BinaryWitnessError, BinaryWitnessMaker},
    doctor::{Diagnosis, Finding, FindingKind, Findings, PartCounts, witness_differences},
    finder::BlockFinder,
    forms::{GivenWitness, WitnessFileError, WitnessForm, WitnessReader},
    make::{MadeWitness, WitnessMaker},
    reads::BlockReads,
    ssz::SszError,
    state::WitnessState,
};
pub(crate) use self::{
    make::{Before, keep_witness},
    record::Recorder,
};
use crate::error::ReplayError;

/// All that a block needs to be executed: the JSON is that of `debug_executionWitness`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Witness {
    /// Trie nodes in RLP, of accounts and storage, each once, in order of their bytes.
    pub state: Vec<Bytes>,
    /// Code that is read where the same account had it before the block, in order of its bytes.
    pub codes: Vec<Bytes>,
    /// Addresses and slots that are looked up, in order of their bytes, each once; none where they
    /// were not asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<Bytes>,
    /// Headers in RLP, without a gap, up to the block's parent: that one alone, unless the block
    /// asks for the hash of an older one.
    pub headers: Vec<Bytes>,
}

/// Why a state out of a witness cannot answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WitnessStateError {
    /// A trie node is missing or malformed.
    #[error("account {account}{}: {source}", SlotSuffix(*.slot))]
    Node {
        /// The account that it is needed for.
        account: Address,
        /// The slot that it is needed for, in the storage of the account.
        slot: Option<B256>,
        /// What is wrong with it.
        #[source]
        source: PartialError,
    },
    /// The leaf of an account or a slot holds something else.
    #[error("account {account}{}: its leaf holds 0x{bytes}", SlotSuffix(*.slot))]
    Leaf {
        /// The account.
        account: Address,
        /// The slot.
        slot: Option<B256>,
        /// What it holds.
        bytes: String,
    },
}

struct SlotSuffix(Option<B256>);

impl std::fmt::Display for SlotSuffix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |slot| write!(f, ", slot {slot}"))
    }
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
        error: Box<WitnessStateError>,
    },
}
