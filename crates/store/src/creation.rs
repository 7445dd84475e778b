//! Making the file of a store so that nobody sees it before it is whole.
//!
//! ```text
//! FILE        a whole store, from the moment it has that name
//! FILE.new    a store that is being created, or whose creation was cut off
//! LOCK        locked while a store is being created; empty
//! ```
//!
//! Invariants:
//! - a store is made under the other name, synced with its folder, and renamed;
//! - what fails before or after the renaming leaves no file under the final name: only a store that
//!   its maker has opened under it keeps it;
//! - what fails leaves neither the lock nor folders that were not there before;
//! - what a cut leaves under the other name is of no use to anyone, and the next creation removes
//!   it.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use spinney_tree::StoreError;

use crate::files::{Files, Found, Lock, Opened};
use crate::guard::backend;

/// What was not there when a store was to be made: its lock file and folders, the innermost first.
#[derive(Debug, Default)]
pub(crate) struct Missing(Vec<PathBuf>);

impl<const N: usize> From<[PathBuf; N]> for Missing {
    fn from(paths: [PathBuf; N]) -> Self {
        Self(paths.into())
    }
}

impl Missing {
    /// Looks for a lock file, and for the folders above it.
    pub(crate) fn of(files: &Files, lock: &Path) -> Self {
        let named = lock.ancestors().take_while(|path| *path != Path::new(""));
        let missing = named.take_while(|path| matches!(files.find(path), Ok(None)));
        Self(missing.map(Path::to_owned).collect())
    }

    /// Removes what was made of them since, as far as nothing else lies there. The lock has to be
    /// held, or to be nobody's.
    pub(crate) fn remove(&self, files: &Files) {
        let Some(lock) = self.0.first() else { return };
        // What cannot be removed stays: the error to report is the one that is there already.
        let _ = files.remove(lock);
        self.remove_folders(files);
    }

    /// Removes the folders that were made since, as far as nothing lies there.
    pub(crate) fn remove_folders(&self, files: &Files) {
        for folder in self.0.iter().skip(1) {
            if files.remove_folder(folder).is_err() {
                return;
            }
        }
    }
}

/// A path with something added to its last name.
pub(crate) fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(suffix);
    name.into()
}

/// Where a store is to be made.
#[derive(Debug)]
pub(crate) struct Site<'a> {
    pub(crate) files: &'a Files,
    /// The store, as messages name it.
    pub(crate) place: &'a Path,
    /// Its file.
    pub(crate) file: PathBuf,
    /// Locked meanwhile.
    pub(crate) lock: PathBuf,
    /// Files that may lie beside the store's, by what is added to its name.
    pub(crate) suffixes: &'static [&'static str],
}

impl Site<'_> {
    /// Creates a store: `fill` makes one in the file whose name it is given, and closes it; `open`
    /// opens it under its final name, while others are still kept from making one.
    ///
    /// Cut off at any point, there is either no store or a whole one. If anything fails, there is
    /// none.
    pub(crate) fn create<T, E: From<StoreError>>(
        &self,
        fill: impl FnOnce(&Path) -> Result<(), E>,
        open: impl FnOnce(Lock) -> Result<T, StoreError>,
    ) -> Result<T, E> {
        let missing = Missing::of(self.files, &self.lock);
        let lock = self.lock().inspect_err(|_| missing.remove_folders(self.files))?;
        let unfinished = beside(&self.file, ".new");
        let named = |error| backend(self.place.display(), error);
        if let Err(error) = self.check_absent() {
            missing.remove(self.files);
            return Err(error.into());
        }
        let made = fill(&unfinished)
            .and_then(|()| Ok(publish(self.files, &unfinished, &self.file).map_err(named)?));
        if let Err(error) = made {
            self.discard(&unfinished);
            missing.remove(self.files);
            return Err(error);
        }
        match open(lock) {
            Ok(store) => Ok(store),
            // Somebody has it already: it is theirs now.
            Err(busy @ StoreError::Busy { .. }) => Err(busy.into()),
            Err(error) => {
                if let Ok(_lock) = self.files.lock(&self.lock, self.place) {
                    self.discard(&self.file);
                    missing.remove(self.files);
                }
                Err(error.into())
            }
        }
    }

    /// Removes what failed. The error to report is the one that is there already.
    fn discard(&self, file: &Path) {
        let (files, folder) = (self.files, folder_of(file));
        let mut gone = file.to_owned();
        if file == self.file && matches!(files.find(file), Ok(Some(Found::Folder))) {
            // Its files go one by one, and what is left of them must not have the name of a store.
            // Where the name cannot be taken from it for certain, a whole store keeps it.
            gone = beside(file, ".new");
            if withdraw(files, file, &gone).is_err() {
                return;
            }
        }
        let _ = files.remove_all(&gone);
        for suffix in self.suffixes {
            let _ = files.remove(&beside(file, suffix));
        }
        let _ = files.sync_folder(folder);
    }

    /// Keeps others from making a store here.
    fn lock(&self) -> Result<Lock, StoreError> {
        let folder = folder_of(&self.file);
        self.files.create_folder(folder).map_err(|error| backend(folder.display(), error))?;
        self.files.lock(&self.lock, self.place)
    }

    /// Refuses to make a store where there is one.
    fn check_absent(&self) -> Result<(), StoreError> {
        match self.files.find(&self.file) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => {
                let there = io::Error::new(ErrorKind::AlreadyExists, "there is a store already");
                Err(backend(self.place.display(), there))
            }
            Err(error) => Err(backend(self.place.display(), error)),
        }
    }
}

/// Gives a file or a folder with files in it the name `to`, which nothing has yet. All of it is
/// synced first, and afterwards the name. If that fails, it keeps its first name.
pub(crate) fn publish(files: &Files, from: &Path, to: &Path) -> io::Result<()> {
    files.sync(from)?;
    let folder = folder_of(to);
    files.sync_folder(folder)?;
    files.rename(from, to)?;
    let named = files.sync_folder(folder).and_then(|()| match folder.parent() {
        Some(parent) if parent != Path::new("") => files.sync_folder(parent),
        _ => Ok(()),
    });
    if named.is_err() {
        // A name that is not certain is not kept. Where this fails too, a whole store has it.
        let _ = files.rename(to, from);
    }
    named
}

/// Takes its name from a store in a folder, and certainly, before a file of it goes. If that fails,
/// it keeps it.
pub(crate) fn withdraw(files: &Files, store: &Path, gone: &Path) -> io::Result<()> {
    files.rename(store, gone)?;
    let synced = files.sync_folder(folder_of(store));
    if synced.is_err() {
        let _ = files.rename(gone, store);
    }
    synced
}

/// The folder that a file is in.
pub(crate) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    }
}

/// A new file in place of whatever was left there.
pub(crate) fn blank(files: &Files, path: &Path) -> Result<Opened, StoreError> {
    remove(files, path)?;
    files.create(path).map_err(|error| backend(path.display(), error))
}

/// Removes a file, if there is one.
pub(crate) fn remove(files: &Files, path: &Path) -> Result<(), StoreError> {
    files.remove(path).map_err(|error| backend(path.display(), error))
}

/// Removes the file of a store for good: it is not there again after a power cut.
pub(crate) fn remove_certainly(files: &Files, path: &Path) -> Result<(), StoreError> {
    remove(files, path)?;
    files.sync_folder(folder_of(path)).map_err(|error| backend(path.display(), error))
}
