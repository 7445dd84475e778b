//! What of the command line its tests, and others, use as a library.
//!
//! [`vectors`] runs files of inputs and expected roots.
#![forbid(unsafe_code)]

pub mod vectors;
