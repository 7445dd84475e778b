//! Tests of the engine through its public face.

mod binary;
mod binary_proofs;
mod binary_readings;
mod binary_vectors;
mod edited;
mod evicted;
mod forged;
mod held;
mod model;
mod mutations;
mod partial;
mod patched;
mod proofs;
mod ranges;
mod raw;
mod rebuild;
mod sorted;
mod state;
mod structured;
mod sum;
mod sum_tree;
mod verified;
mod verkle;
mod verkle_proofs;
mod verkle_vectors;
