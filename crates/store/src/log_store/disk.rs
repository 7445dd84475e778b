//! The folder of a log, on the system or on a test's disk.

use std::any::Any;
use std::io;
use std::path::{Path, PathBuf};

use spinney_log::{Disk, DiskFile};
use spinney_tree::StoreError;

#[cfg(feature = "faults")]
use crate::fault::log_file::LogFile;
use crate::files::{Files, Opened};

#[derive(Clone, Debug)]
pub(super) struct LogFolder {
    files: Files,
    path: PathBuf,
}

impl LogFolder {
    pub(super) fn new(files: &Files, path: &Path) -> Self {
        Self { files: files.clone(), path: path.to_owned() }
    }
}

fn file(opened: Opened) -> Box<dyn DiskFile> {
    match opened {
        Opened::System(file) => Box::new(file),
        #[cfg(feature = "faults")]
        Opened::Fault(file) => Box::new(LogFile::from(file)),
    }
}

impl Disk for LogFolder {
    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let names = |paths: Vec<PathBuf>| {
            let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
            paths.iter().filter_map(name).collect()
        };
        self.files.list(&self.path).map(names)
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn DiskFile>> {
        self.files.open(&self.path.join(name), writable).map(file)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.files.create(&self.path.join(name)).map(file)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.remove(&self.path.join(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        self.files.sync_folder(&self.path)
    }

    fn lock(&self) -> io::Result<Option<Box<dyn Any + Send + Sync>>> {
        match self.files.lock(&self.path.join("LOCK"), &self.path) {
            Ok(lock) => Ok(Some(Box::new(lock))),
            Err(StoreError::Busy { .. }) => Ok(None),
            Err(StoreError::Backend { source, .. }) => Err(match source.downcast::<io::Error>() {
                Ok(error) => *error,
                Err(other) => io::Error::other(other),
            }),
            Err(error) => Err(io::Error::other(error)),
        }
    }
}
