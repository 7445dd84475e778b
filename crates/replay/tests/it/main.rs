//! Integration tests of the replay, in one binary.

mod amsterdam;
mod bad_blocks;
mod chains;
mod collisions;
mod dao;
mod differences;
mod doctor;
mod engine;
mod genesis;
mod layers;
mod made;
mod ommers;
mod pipeline;
mod proofs;
mod samples;
mod shared;
mod system_calls;
mod traces;
mod unwind;
mod witness_ring;
mod witnesses;
