//! Making the file of a store so that nobody sees it before it is whole.
//!
//! ```text
//! FILE        a whole store, from the moment it has that name
//! FILE.new    a store that is being created, or whose creation was cut off
//! LOCK        locked while a store is being created; empty
//! ```
//!
//! Invariants:
//! - a store is made under the other name, synced, and renamed;
//! - what is left under that name is of no use to anyone, and the next creation removes it.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use spinney_tree::StoreError;

use crate::guard::backend;

/// A path with something added to its last name.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(suffix);
    name.into()
}

/// Where a store is to be made.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    /// The store, as messages name it.
    pub(crate) place: &'a Path,
    /// Its file.
    pub(crate) file: PathBuf,
    /// Locked meanwhile.
    pub(crate) lock: PathBuf,
}

impl Site<'_> {
    /// Creates a store: `fill` makes one in the file whose name it is given, and closes it.
    ///
    /// Cut off at any point, there is either no store or a whole one. Answers with the lock.
    pub(crate) fn create<E: From<StoreError>>(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), E>,
    ) -> Result<Lock, E> {
        let lock = self.prepare()?;
        let unfinished = beside(&self.file, ".new");
        let made = fill(&unfinished).and_then(|()| {
            self.publish(&unfinished).map_err(|e| backend(self.place.display(), e).into())
        });
        match made {
            Ok(()) => Ok(lock),
            Err(error) => {
                // The error to report is the one that is there already.
                let _ = fs::remove_file(&unfinished);
                Err(error)
            }
        }
    }

    /// Makes sure that a store can be made here, and keeps others from making one meanwhile.
    fn prepare(&self) -> Result<Lock, StoreError> {
        let folder = folder_of(&self.file);
        fs::create_dir_all(folder).map_err(|error| backend(folder.display(), error))?;
        let lock = lock(&self.lock, self.place)?;
        match self.file.try_exists() {
            Ok(false) => Ok(lock),
            Ok(true) => {
                let there = io::Error::new(ErrorKind::AlreadyExists, "there is a store already");
                Err(backend(self.place.display(), there))
            }
            Err(error) => Err(backend(self.place.display(), error)),
        }
    }

    fn publish(&self, unfinished: &Path) -> io::Result<()> {
        fs::rename(unfinished, &self.file)?;
        let folder = folder_of(&self.file);
        sync_folder(folder)?;
        match folder.parent() {
            Some(parent) if parent != Path::new("") => sync_folder(parent),
            _ => Ok(()),
        }
    }
}

/// The folder that a file is in.
fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A lock file that is locked.
///
/// It is unlocked by name and not by closing the file: a child process has the files of its parent open
/// for as long as it has not become another program, and would keep the lock that long.
#[derive(Debug)]
pub(crate) struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // If this fails, closing the file is what is left.
        let _ = self.0.unlock();
    }
}

/// Takes a lock file, which is made if need be, or says that the store at `place` is in use.
pub(crate) fn lock(path: &Path, place: &Path) -> Result<Lock, StoreError> {
    let lock = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|error| backend(path.display(), error))?;
    match lock.try_lock() {
        Ok(()) => Ok(Lock(lock)),
        Err(TryLockError::WouldBlock) => {
            Err(StoreError::Busy { place: place.display().to_string() })
        }
        // Without locks, as on some network file systems, it is for the user to keep others away.
        Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(Lock(lock)),
        Err(TryLockError::Error(error)) => Err(backend(path.display(), error)),
    }
}

/// A new file in place of whatever was left there.
pub(crate) fn blank(path: &Path) -> Result<File, StoreError> {
    remove(path)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    options.open(path).map_err(|error| backend(path.display(), error))
}

/// Removes a file, if there is one.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(backend(path.display(), error)),
        _ => Ok(()),
    }
}

/// Makes the names in a folder durable, where the system has a way to.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
