//! Every block's rows of a store, in sealed objects that are read by range.
#![forbid(unsafe_code)]

mod folder;
mod objects;
mod place;
#[cfg(feature = "remote")]
mod remote;

pub use folder::Folder;
pub use objects::{Listed, ObjectError, Objects, Upload};
pub use place::{PlaceError, place};
#[cfg(feature = "remote")]
pub use remote::{Patience, Remote, RemoteOptions};
