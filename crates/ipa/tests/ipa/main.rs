//! The crate through its public surface: vectors of other implementations, arkworks as oracle,
//! foreign bytes.

mod banderwagon;
mod commitments;
mod oracle;
mod proofs;
mod vectors;
