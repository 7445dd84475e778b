//! Every block's rows of a store, in sealed objects that are read by range.
#![forbid(unsafe_code)]

mod folder;
mod objects;

pub use folder::Folder;
pub use objects::{Listed, ObjectError, Objects, Upload};
