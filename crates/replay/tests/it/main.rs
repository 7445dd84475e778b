//! Integration tests of the replay, in one binary.

mod chains;
mod shared;
