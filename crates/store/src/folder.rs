//! The directory of a store.
//!
//! ```text
//! DIR/spinney.redb        the rows
//! DIR/spinney.redb.new    a store that is being created: see the module `creation`
//! DIR/spinney.lock        locked meanwhile
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use spinney_tree::StoreError;

use crate::creation::{self, Site, blank};
use crate::guard::{backend, corrupt, foreign};

const FILE: &str = "spinney.redb";
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

    /// Removes the store, and the directory if nothing else lies in it.
    pub(crate) fn remove(&self) -> Result<(), StoreError> {
        let lock = self.path.join(LOCK);
        let _creation = creation::lock(&lock, &self.path)?;
        creation::remove(&self.file())?;
        creation::remove(&lock)?;
        let _ = fs::remove_dir(&self.path);
        Ok(())
    }

    /// Creates a store: `fill` makes one in the file it is given, and closes it.
    ///
    /// Cut off at any point, there is either no store or a whole one.
    pub(crate) fn create<E: From<StoreError>>(
        &self,
        fill: impl FnOnce(&dyn Fn() -> Result<File, StoreError>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.path.is_file() {
            return Err(self.not_a_directory().into());
        }
        let lock = self.path.join(LOCK);
        let site = Site { place: &self.path, file: self.file(), lock };
        site.create(|unfinished| fill(&|| blank(unfinished)))?;
        Ok(())
    }
}
