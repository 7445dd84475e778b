//! Folders and files that nobody else may read, put files in, or lead elsewhere.
#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;

use crate::error::{PipelineError, at};

/// Only the user reads and writes there.
#[cfg(unix)]
pub(crate) const FOLDER: u32 = 0o700;
#[cfg(unix)]
const FILE: u32 = 0o600;

/// Makes a folder, or makes sure that the one that is there is the user's alone. A link is refused,
/// since others may lead it elsewhere; so is a folder of another user above it, who may put another
/// one in its place.
pub(crate) fn prepare(dir: &Path) -> Result<(), PipelineError> {
    if let Some(above) = dir.parent().filter(|above| *above != Path::new("")) {
        folder(true, above).map_err(at(above))?;
        let owner = owner(&fs::metadata(above).map_err(at(above))?);
        if owner.is_some_and(|owner| owner != ROOT && Some(owner) != user()) {
            let what = "it lies in a folder of another user";
            return Err(PipelineError::NotOurs { path: dir.to_owned(), what });
        }
    }
    match folder(false, dir) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => inspect(dir),
        made => made.map_err(at(dir)),
    }
}

fn folder(with_those_above: bool, dir: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(with_those_above);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, FOLDER);
    builder.create(dir)
}

fn inspect(dir: &Path) -> Result<(), PipelineError> {
    let found = fs::symlink_metadata(dir).map_err(at(dir))?;
    let refused = |what| Err(PipelineError::NotOurs { path: dir.to_owned(), what });
    if found.file_type().is_symlink() {
        return refused("it is a link");
    }
    if !found.is_dir() {
        return refused("it is no folder");
    }
    if owner(&found) != user() {
        return refused("it belongs to another user");
    }
    #[cfg(unix)]
    if std::os::unix::fs::MetadataExt::mode(&found) & 0o022 != 0 {
        return refused("other users may write there");
    }
    Ok(())
}

const ROOT: u32 = 0;

/// Whose a folder is, where users have numbers.
fn owner(found: &fs::Metadata) -> Option<u32> {
    #[cfg(unix)]
    return Some(std::os::unix::fs::MetadataExt::uid(found));
    #[cfg(not(unix))]
    return None.filter(|_: &u32| found.is_dir());
}

/// As whom the process acts.
fn user() -> Option<u32> {
    #[cfg(unix)]
    return Some(rustix::process::geteuid().as_raw());
    #[cfg(not(unix))]
    return None;
}

/// Makes a file, in place of what has its name; a link is replaced and not followed.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    private().write(true).create_new(true).open(path)
}

/// Opens a file to append to it, or makes it.
pub(crate) fn append(path: &Path) -> io::Result<File> {
    private().append(true).create(true).open(path)
}

/// Opens a file to read it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    private().read(true).open(path)
}

/// Files are the user's alone, and names that are links lead nowhere.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        options.mode(FILE).custom_flags(no_link);
    }
    options
}
