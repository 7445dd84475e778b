//! Integration tests of the replay, in one binary.

mod bad_blocks;
mod chains;
mod dao;
mod differences;
mod engine;
mod genesis;
mod layers;
mod proofs;
mod samples;
mod shared;
mod traces;
mod unwind;
mod witnesses;
