//! The state, seen from outside.

mod history;
mod kept;
mod reader;
mod sums;
mod textbook;
