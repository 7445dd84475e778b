//! Reads blocks, executes them on a state, and checks everything their headers say.
#![forbid(unsafe_code)]

mod config;
mod dao;
mod diff;
mod error;
mod evm;
mod execute;
mod genesis;
mod json;
mod overlay;
mod replay;
mod requests;
mod rules;
mod sample;
mod source;
mod textbook;
mod world;

pub use config::{ChainConfig, Fork};
pub use diff::{BlockDiff, DIFF_LINE_LEN_MAX, DiffError, DiffReader, MisfitError, check_changes};
pub use error::{BadBlock, Check, ReplayError, SourceError};
pub use genesis::{Genesis, GenesisError, parse_alloc};
pub use replay::{BlockReport, BlockTimes, Event, Replay, RunOptions, Summary};
pub use rules::Head;
pub use sample::{SampleChain, SampleOptions};
pub use source::{BLOCK_LEN_MAX, ChainBlock, ChainReader, Transaction};
pub use textbook::TextbookState;
pub use world::{SealedBlock, WorldState};
