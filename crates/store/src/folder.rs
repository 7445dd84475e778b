//! The directory of a store.
//!
//! ```text
//! DIR/spinney.redb        the rows
//! DIR/spinney.redb.new    a store that is being created, or whose creation was cut off
//! DIR/spinney.lock        locked while a store is being created; empty
//! ```
//!
//! Invariants:
//! - `spinney.redb` is a whole store from the moment it has that name: it is made under the other name,
//!   synced and renamed;
//! - what `spinney.redb.new` holds is of no use to anyone, and the next creation removes it.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use spinney_tree::StoreError;

use crate::guard::{backend, corrupt, foreign};

const FILE: &str = "spinney.redb";
const UNFINISHED: &str = "spinney.redb.new";
const LOCK: &str = "spinney.lock";

/// What a redb file begins with.
const MAGIC: [u8; 9] = [b'r', b'e', b'd', b'b', 0x1A, 0x0A, 0xA9, 0x0D, 0x0A];

/// The directory that a user named.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    pub(crate) fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.path.join(FILE)
    }

    pub(crate) fn exists(&self) -> Result<bool, StoreError> {
        let file = self.file();
        match file.try_exists() {
            Ok(exists) => Ok(exists),
            Err(error) if error.kind() == ErrorKind::NotADirectory => Err(self.not_a_directory()),
            Err(error) => Err(backend(file.display(), error)),
        }
    }

    /// The file of a store, open, and certain to be redb's.
    pub(crate) fn open_file(&self, writable: bool) -> Result<File, StoreError> {
        let path = self.file();
        let mut file = match OpenOptions::new().read(true).write(writable).open(&path) {
            Ok(file) => file,
            Err(error) => return Err(self.cannot_open(error)),
        };
        let mut start = Vec::with_capacity(MAGIC.len());
        let length = file.metadata().map_err(|error| backend(path.display(), error))?;
        if length.is_dir() {
            return Err(foreign(path.display(), "it is a directory"));
        }
        (&mut file)
            .take(MAGIC.len() as u64)
            .read_to_end(&mut start)
            .map_err(|error| backend(path.display(), error))?;
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

    /// Creates a store: `fill` makes one in the file it is given, and closes it.
    ///
    /// Cut off at any point, there is either no store or a whole one.
    pub(crate) fn create(
        &self,
        fill: impl FnOnce(&dyn Fn() -> Result<File, StoreError>) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        if self.path.is_file() {
            return Err(self.not_a_directory());
        }
        fs::create_dir_all(&self.path).map_err(|error| backend(self.path.display(), error))?;
        let lock = self.lock()?;
        if self.exists()? {
            let there = io::Error::new(ErrorKind::AlreadyExists, "there is a store already");
            return Err(backend(self.path.display(), there));
        }
        let unfinished = self.path.join(UNFINISHED);
        let made = fill(&|| blank(&unfinished))
            .and_then(|()| self.publish(&unfinished).map_err(|e| backend(self.path.display(), e)));
        if made.is_err() {
            // The error to report is the one that is there already.
            let _ = fs::remove_file(&unfinished);
        }
        drop(lock);
        made
    }

    /// Two creations at a time would fill one file.
    fn lock(&self) -> Result<File, StoreError> {
        let path = self.path.join(LOCK);
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(|error| backend(path.display(), error))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => {
                Err(StoreError::Busy { place: self.path.display().to_string() })
            }
            // Without locks, as on some network file systems, it is for the user not to create twice.
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => Ok(lock),
            Err(TryLockError::Error(error)) => Err(backend(path.display(), error)),
        }
    }

    fn publish(&self, unfinished: &Path) -> io::Result<()> {
        fs::rename(unfinished, self.file())?;
        sync_folder(&self.path)?;
        match self.path.parent() {
            Some(parent) if parent != Path::new("") => sync_folder(parent),
            _ => Ok(()),
        }
    }
}

/// A new file in place of whatever was left there.
fn blank(path: &Path) -> Result<File, StoreError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(backend(path.display(), error));
        }
        _ => {}
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    options.open(path).map_err(|error| backend(path.display(), error))
}

/// Makes the names in a folder durable, where the system has a way to.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}
