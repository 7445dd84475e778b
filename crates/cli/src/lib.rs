//! What of the command line its tests, and others, use as a library.
//!
//! [`trace`] and [`sum_trace`] read what `spinney root` reads, [`document`] and [`spans`] what
//! `spinney verify` reads.
#![forbid(unsafe_code)]

pub mod document;
pub mod spans;
pub mod sum_trace;
pub mod trace;
