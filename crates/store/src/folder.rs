//! The directory of a store.
//!
//! ```text
//! DIR/spinney.redb        the rows
//! DIR/spinney.redb.new    a store that is being created: see the module `creation`
//! DIR/spinney.lock        locked meanwhile
//! ```

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use spinney_tree::StoreError;

use crate::creation::{self, Missing, Site, beside, blank};
use crate::files::{Files, Found, Opened};
use crate::guard::{backend, corrupt, foreign};

const FILE: &str = "spinney.redb";
const LOCK: &str = "spinney.lock";

/// What a redb file begins with.
const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];

/// The directory that a user named.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    files: Files,
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new(files: &Files, path: &Path) -> Self {
        Self { files: files.clone(), path: path.to_owned() }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    pub(crate) fn exists(&self) -> Result<bool, StoreError> {
        let file = self.file();
        match self.files.find(&file) {
            Ok(found) => Ok(found.is_some()),
            Err(error) if error.kind() == ErrorKind::NotADirectory => Err(self.not_a_directory()),
            Err(error) => Err(backend(file.display(), error)),
        }
    }

    /// Whether there is a store, or what is left of one that was being made.
    pub(crate) fn is_begun(&self) -> bool {
        let there = |path: &Path| matches!(self.files.find(path), Ok(Some(_)));
        there(&self.file()) || there(&beside(&self.file(), ".new"))
    }

    /// The file of a store, open, and certain to be redb's.
    pub(crate) fn open_file(&self, writable: bool) -> Result<Opened, StoreError> {
        let path = self.file();
        let unread = |error| backend(path.display(), error);
        if self.files.find(&path).is_ok_and(|found| found == Some(Found::Folder)) {
            return Err(foreign(path.display(), "it is a directory"));
        }
        let mut file = match self.files.open(&path, writable) {
            Ok(file) => file,
            Err(error) => return Err(self.cannot_open(error)),
        };
        let start = file.start(MAGIC.len()).map_err(unread)?;
        if start == MAGIC {
            return Ok(file);
        }
        Err(match &start[..] {
            [] => foreign(path.display(), "it is an empty file"),
            start if MAGIC.starts_with(start) => {
                corrupt(path.display(), format!("it ends after {} bytes", start.len()))
            }
            start => {
                foreign(path.display(), format!("it begins with \"{}\"", start.escape_ascii()))
            }
        })
    }

    fn cannot_open(&self, error: io::Error) -> StoreError {
        match error.kind() {
            ErrorKind::NotFound => StoreError::Missing { place: self.path.display().to_string() },
            ErrorKind::NotADirectory => self.not_a_directory(),
            ErrorKind::IsADirectory => foreign(self.file().display(), "it is a directory"),
            _ => backend(self.file().display(), error),
        }
    }

    fn not_a_directory(&self) -> StoreError {
        foreign(self.path.display(), "it is a file, where the directory of a store was expected")
    }

    /// Its lock file.
    pub(crate) fn lock(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    /// Removes the store, and of the folders those that were missing before.
    pub(crate) fn remove(&self, missing: &Missing) -> Result<(), StoreError> {
        let _creation = self.files.lock(&self.lock(), &self.path)?;
        creation::remove_certainly(&self.files, &self.file())?;
        missing.remove(&self.files);
        Ok(())
    }

    /// What is to go with the store: its lock, and the directory if nothing else lies in it.
    pub(crate) fn own(&self) -> Missing {
        Missing::from([self.lock(), self.path.clone()])
    }

    /// Creates a store: `fill` makes one in the file it is given, and closes it; `open` opens it.
    ///
    /// Cut off at any point, there is either no store or a whole one.
    pub(crate) fn create<T, E: From<StoreError>>(
        &self,
        fill: impl FnOnce(&dyn Fn() -> Result<Opened, StoreError>) -> Result<(), E>,
        open: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, E> {
        if self.files.find(&self.path).is_ok_and(|found| matches!(found, Some(Found::File(_)))) {
            return Err(self.not_a_directory().into());
        }
        let lock = self.lock();
        let (files, place, file) = (&self.files, &*self.path, self.file());
        let site = Site { files, place, file, lock, suffixes: &[] };
        site.create(|unfinished| fill(&|| blank(files, unfinished)), |_| open())
    }
}
