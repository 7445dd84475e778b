//! Every block's rows of a store, in sealed objects that are read by range.
//!
//! An [`Archive`] answers what a store held after any of its blocks: [`Archive::at`] is a store
//! itself, which takes no commits, so whatever reads a store reads an archive. A [`Writer`] adds
//! blocks: of each row what changed, without what follows from its other bytes. Its objects lie in
//! a [`Folder`], or wherever [`Objects`] are kept; they are never changed, and one writer at a time
//! adds to them. [`Growing`] adds the blocks of a store while something fills it.
//!
//! What a row means is no business of this crate, but for the commitments in pages, which
//! [`bare_rows`] leaves out and computes again. The format is in docs/archive.md.
//!
//! [`bare_rows`]: spinney_tree::bare_rows
#![forbid(unsafe_code)]

mod accounts;
mod archive;
mod blocks;
mod bloom;
mod cache;
mod check;
mod cursor;
mod error;
mod extend;
mod folder;
mod forms;
mod growing;
mod hex;
mod join;
mod manifest;
mod merge;
mod objects;
mod overlay;
mod place;
#[cfg(feature = "remote")]
mod remote;
mod sample;
mod segment;
mod shared;
mod slice;
mod slicing;
mod window;
mod writer;

pub use accounts::AccountsError;
pub use archive::{Archive, AtBlock};
pub use blocks::{CheckedBlocks, Header};
pub use check::Checked;
pub use error::ArchiveError;
pub use extend::{Extended, Source};
pub use folder::Folder;
pub use forms::TreeInfo;
pub use growing::{GrowError, GrowEvent, GrowOptions, Growing, all_trees};
pub use manifest::Manifest;
pub use objects::{Listed, ObjectError, Objects, Upload};
pub use place::{PlaceError, place};
#[cfg(feature = "remote")]
pub use remote::{Patience, Remote, RemoteOptions};
pub use segment::SegmentInfo;
pub use shared::Reads;
pub use slice::{SliceInfo, SlicedCode};
pub use slicing::Wanted;
pub use window::Window;
pub use writer::{Options, RowChange, Writer};
