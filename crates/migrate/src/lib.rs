//! Moving a state from one tree to another, and making sure that it is the same: [`from_mpt`] and
//! [`to_mpt`]; and the two files of EIP-8347 (draft of July 2026), byte for byte, read and written
//! as streams:
//!
//! - [`preimages`]: the addresses and slot keys of a state, in the order of its Merkle Patricia
//!   trie;
//! - [`snapshot`]: the leaves of its partitioned binary tree, under their root.
//!
//! Both files are canonical: one state has one file, so independent makers compare digests. Readers
//! are strict: what is not canonical is refused, with the offset at which it is not.

#![forbid(unsafe_code)]

mod back;
mod bal;
mod bal_json;
mod by_name;
mod catch_up;
mod convert;
mod error;
mod file;
mod forward;
mod names;
pub mod preimages;
pub mod snapshot;
mod transfer;
mod work;

pub use bal::{AccessList, ListError};
pub use by_name::{convert, has_way};
pub use catch_up::{CatchUp, CatchUpError, ListedBlock};
pub use convert::{Converted, from_mpt, to_mpt};
pub use error::MigrateError;
pub use file::{Digested, FileError, Flaw};
pub use names::NameSource;
pub use transfer::{
    Imported, Named, export_preimages, export_snapshot, import_snapshot, match_preimages,
};
pub use work::{At, Counts, Stage, Work};
