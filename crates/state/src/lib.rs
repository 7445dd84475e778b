//! Ethereum state: accounts, code and storage over the tree engine.
#![forbid(unsafe_code)]

mod account;
mod change;

pub use account::{Account, EMPTY_CODE_HASH};
pub use change::{AccountChange, Change, Changes, StateRead};
