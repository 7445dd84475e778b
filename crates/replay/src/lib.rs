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
//! | take blocks from their access lists, without executing them | [`Replay::run_listed`] |
//! | read, write and apply state differences | [`DiffReader`], [`BlockDiff`], [`replay_diffs`] |
//! | read traces of geth's `prestateTracer`, replay them | [`TraceReader`], [`Replay::traced`] |
//! | write them | [`TraceWriter`] |
//! | read a dump of a state, or an allocation, account by account | [`read_state_file`] |
//! | read one slot by slot | [`read_state_slots`] |
//! | put one into a state, or into a tree that is built anew | [`StateFiller`], [`gather_state`] |
//! | write one | [`write_state_file`] |
//! | read batches of raw keys, or of leaves with sums | [`BatchLine`], [`SumLine`] |
//! | read dumps of raw trees, and of sum trees | [`EntryLines`], [`LeafLines`] |
//! | make a chain to try things on | [`SampleChain`] |
//! | make and check execution witnesses | [`WitnessMaker`], [`Witness`] |
//! | execute on one | [`WitnessState`] |
//! | make those of a binary tree | [`BinaryWitnessMaker`] |
//! | look for the block that one is of | [`BlockFinder`] |
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
mod batch_line;
mod block_state;
mod config;
mod dao;
mod database;
mod diff;
mod diff_replay;
mod dump_lines;
mod engine;
mod error;
mod evm;
mod execute;
mod failure;
mod genesis;
mod genesis_json;
mod json;
mod lines;
mod listed;
mod ommers;
mod overlay;
mod replay;
mod report;
mod requests;
mod roots;
mod rules;
mod run;
mod sample;
mod senders;
mod source;
mod state_dump;
mod state_file;
mod state_fill;
mod state_gather;
mod sum_line;
mod textbook;
mod touch;
mod trace;
mod trace_writer;
mod values;
mod witness;
mod world;

pub use batch_line::{BatchLine, BatchLines};
pub use config::{ChainConfig, Fork, UnknownFork};
pub use database::{DatabaseError, StateDatabase};
pub use diff::{BlockDiff, DIFF_LINE_LEN_MAX, DiffError, DiffReader, MisfitError, check_changes};
pub use diff_replay::{DiffEvent, DiffReplayError, replay_diffs};
pub use dump_lines::{DumpLineError, DumpedEntry, EntryLines, LeafLines};
pub use error::{BadBlock, Check, ReplayError, SourceError};
pub use genesis::{Genesis, GenesisError, parse_alloc};
pub use listed::{ListLines, ListedError, ListsError};
/// The EVM, in the version that [`StateDatabase`] is made for.
pub use revm;

pub use replay::Replay;
pub use report::{BlockReport, BlockStarts, BlockTimes, Event, RunOptions, Step, Summary};
pub use rules::Head;
pub use sample::{SampleChain, SampleOptions};
pub use source::{BLOCK_LEN_MAX, ChainBlock, ChainReader, Transaction};
pub use state_dump::{StateDumpError, StateDumpOptions, write_state_file};
pub use state_file::{StateFile, StateFileError, StateTaker, read_state_file, read_state_slots};
pub use state_fill::{FillError, FilledState, StateFiller};
pub use state_gather::{GatherError, GatheredState, gather_state, whose_key};
pub use sum_line::SumLine;
pub use textbook::TextbookState;
pub use trace::{BlockTrace, TraceReader, TransactionTrace};
pub use trace_writer::TraceWriter;
pub use witness::{
    BinaryWitness, BinaryWitnessError, BinaryWitnessMaker, BlockFinder, BlockReads, Diagnosis,
    Finding, FindingKind, Findings, GivenWitness, MadeWitness, PartCounts, SszError, Witness,
    WitnessError, WitnessFileError, WitnessForm, WitnessMaker, WitnessReader, WitnessState,
    WitnessStateError, witness_differences,
};
pub use world::{CommittedState, SealedBlock, WorldState};
