//! The files of EIP-8347, sound and not, and states that move between trees.

mod catch_up;
mod convert;
mod files;
mod made;
mod preimages;
mod snapshot;
