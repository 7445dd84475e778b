//! Ethereum state: accounts, code and storage over the tree engine.
//!
//! [`State`] keeps the state in a store; [`Changes`] say what a block does to it; [`StateRead`] is how an
//! executor reads it.
#![forbid(unsafe_code)]

mod account;
mod change;
mod lazy;
mod mpt_state;

pub use account::{Account, EMPTY_CODE_HASH};
pub use change::{AccountChange, Change, Changes, StateRead};
pub use mpt_state::{Dump, DumpedAccount, MPT, State, StateError, StateTimes};
