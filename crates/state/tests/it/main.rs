//! The state, seen from outside.

mod history;
mod kept;
mod sums;
mod textbook;
