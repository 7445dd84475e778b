//! The state, seen from outside.

mod chunks;
mod embed;
mod history;
mod kept;
mod reader;
mod spans;
mod sums;
mod textbook;
