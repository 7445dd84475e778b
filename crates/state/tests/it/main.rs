//! The state, seen from outside.

mod history;
mod kept;
mod reader;
mod spans;
mod sums;
mod textbook;
