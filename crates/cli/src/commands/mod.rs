//! The verbs, a file or a folder each, and what all of them are.

pub(crate) mod archive;
pub(crate) mod bench;
pub(crate) mod bisect;
pub(crate) mod catch_up;
pub(crate) mod completions;
pub(crate) mod convert;
pub(crate) mod db;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod follow;
pub(crate) mod import;
pub(crate) mod proof;
pub(crate) mod reference;
pub(crate) mod replay;
pub(crate) mod root;
pub(crate) mod serve;
pub(crate) mod snapshot;
pub(crate) mod stage;
pub(crate) mod state_root;
pub(crate) mod sums;
pub(crate) mod vectors;
pub(crate) mod witness;
