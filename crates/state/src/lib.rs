//! Ethereum state: accounts, code and storage over the tree engine.
//!
//! [`State`] keeps the state in a store; [`Changes`] say what a block does to it; [`StateRead`] is
//! how an executor reads it. With the state goes a history of its last blocks: it can be [taken
//! back](State::unwind_to) to one of them, or [looked at](State::at) as it was then. [`embed`] has
//! the state in the binary trees and the Verkle tree, alone, or [beside](State::add_tree) the
//! Merkle Patricia trie and one another; [`sum`] has Merkle-sum trees by name.
#![forbid(unsafe_code)]

mod account;
mod allocation;
mod change;
mod chunk;
mod copy;
mod differences;
mod dump;
pub mod embed;
mod error;
mod history;
mod history_row;
mod keep;
mod lazy;
mod leaf_undo;
mod leaves;
mod mpt_entries;
mod mpt_state;
mod named;
mod preimages;
mod prove;
mod reader;
mod references;
mod row_bytes;
mod secondary;
mod state_tree;
mod store_check;
pub mod sum;
mod tree_name;
mod tree_set;
mod undo;
mod witnesses;

pub use account::{Account, EMPTY_CODE_HASH};
pub use allocation::{Allocation, SortedAllocation};
pub use change::{AccountChange, Change, Changes, StateRead};
pub use chunk::{ChunkBuild, ChunkOptions, ChunkReport, Chunks};
pub use copy::{CopiedRows, CopyError, copy_rows, copy_table};
pub use dump::{Dump, DumpedAccount};
pub use error::StateError;
pub use history::KeptState;
pub use keep::{KeepHistory, Kept, keeps_block, kept_blocks, kept_range};
pub use leaves::{leaf_of_slot, leaves_of, root_of};
pub use mpt_entries::MPT;
pub use mpt_state::{State, StateTimes};
pub use named::Named;
pub use preimages::{Preimages, SortedPreimages};
pub use prove::{Mark, kept_witness};
pub use reader::Reader;
pub use state_tree::TreeReport;
pub use store_check::{CheckError, CheckPart, StoreCheck, check_store};
pub use tree_name::{TreeName, UnknownTree};
pub use tree_set::{
    HeldError, HeldRecord, TreeSet, TreeSetError, newest_block, root_records, state_records,
    verify_entries,
};
pub use witnesses::KeptWitness;
