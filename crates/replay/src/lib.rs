//! Reads blocks, executes them on a state, and checks everything that their headers say.
//!
//! Heavy dependencies (the EVM, signatures, block types) stop in this crate. The state is behind
//! [`WorldState`]; [`TextbookState`] is one in memory, slow and obviously right. Seals of blocks
//! and of ommers are not checked.
//!
//! | to | see |
//! |---|---|
//! | read blocks of a file | [`ChainReader`] |
//! | read geth's `genesis.json`, or its accounts alone | [`Genesis`], [`parse_alloc`] |
//! | run revm over a state of any tree | [`StateDatabase`] |
//! | execute and check blocks | [`Replay`], [`Replay::run_staged`] |
//! | read, write and apply state differences | [`DiffReader`], [`BlockDiff`], [`replay_diffs`] |
//! | read traces of geth's `prestateTracer`, replay them | [`TraceReader`], [`Replay::traced`] |
//! | read a dump of a state, or an allocation, account by account | [`read_state_file`] |
//! | read one slot by slot | [`read_state_slots`] |
//! | make a chain to try things on | [`SampleChain`] |
//! | make and check execution witnesses | [`WitnessMaker`], [`Witness`] |
//! | execute on one | [`WitnessState`] |
//! | say what is wrong with a witness | [`Witness::examine`] |
//! | say how two differ | [`witness_differences`] |
//!
//! ```
//! use spinney_replay::{Replay, RunOptions, SampleChain, SampleOptions, TextbookState};
//!
//! let mut options = SampleOptions::default();
//! options.block_count = 3;
//! let sample = SampleChain::new(options, TextbookState::new())?;
//! let mut replay = Replay::start(sample.genesis(), TextbookState::new())?;
//! // As from a file, where reading can fail.
//! let blocks: Vec<_> = sample.collect::<Result<_, _>>()?;
//! let summary = replay.run(blocks.into_iter().map(Ok), &RunOptions::default(), |_| {})?;
//! assert_eq!(summary.block_count, 3);
//! assert_eq!(replay.state().root(), replay.head().header.state_root);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod ahead;
mod amsterdam;
mod block_state;
mod config;
mod dao;
mod database;
mod diff;
mod diff_replay;
mod engine;
mod error;
mod evm;
mod execute;
mod failure;
mod genesis;
mod genesis_json;
mod json;
mod lines;
mod ommers;
mod overlay;
mod replay;
mod requests;
mod roots;
mod rules;
mod run;
mod sample;
mod senders;
mod source;
mod state_file;
mod textbook;
mod touch;
mod trace;
mod values;
mod witness;
mod world;

pub use config::{ChainConfig, Fork, UnknownFork};
pub use database::{DatabaseError, StateDatabase};
pub use diff::{BlockDiff, DIFF_LINE_LEN_MAX, DiffError, DiffReader, MisfitError, check_changes};
pub use diff_replay::{DiffEvent, DiffReplayError, replay_diffs};
pub use error::{BadBlock, Check, ReplayError, SourceError};
pub use genesis::{Genesis, GenesisError, parse_alloc};
/// The EVM, in the version that [`StateDatabase`] is made for.
pub use revm;

pub use replay::{BlockReport, BlockStarts, BlockTimes, Event, Replay, RunOptions, Step, Summary};
pub use rules::Head;
pub use sample::{SampleChain, SampleOptions};
pub use source::{BLOCK_LEN_MAX, ChainBlock, ChainReader, Transaction};
pub use state_file::{StateFile, StateFileError, StateTaker, read_state_file, read_state_slots};
pub use textbook::TextbookState;
pub use trace::{BlockTrace, TraceReader, TransactionTrace};
pub use witness::{
    BlockReads, Diagnosis, Finding, FindingKind, Findings, GivenWitness, MadeWitness, PartCounts,
    SszError, Witness, WitnessError, WitnessFileError, WitnessForm, WitnessMaker, WitnessReader,
    WitnessState, WitnessStateError, witness_differences,
};
pub use world::{CommittedState, SealedBlock, WorldState};
