//! A file of the disk as redb uses one.

use std::fmt;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use redb::{BackendError, StorageBackend};

use super::disk::NodeId;
use super::handle::FaultDisk;

/// An open file. It stays the same one when its name changes.
#[derive(Clone)]
pub(crate) struct FaultFile {
    pub(super) disk: FaultDisk,
    /// Its name when it was opened.
    pub(super) path: PathBuf,
    pub(super) node: NodeId,
}

impl fmt::Debug for FaultFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl FaultFile {
    /// Opens a file that is there.
    pub(crate) fn open(disk: &FaultDisk, path: &Path) -> io::Result<Self> {
        let node = disk.lock().find(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { disk: disk.clone(), path: path.to_owned(), node })
    }

    /// Makes a file that is not there yet.
    pub(crate) fn create(disk: &FaultDisk, path: &Path) -> io::Result<Self> {
        let node = {
            let mut disk = disk.lock();
            if disk.find(path).is_some() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            disk.create(path)?
        };
        Ok(Self { disk: disk.clone(), path: path.to_owned(), node })
    }

    pub(crate) fn length(&self) -> u64 {
        self.disk.lock().bytes(self.node).len() as u64
    }

    /// Fills `out` from an offset on; answers how many bytes there were.
    pub(crate) fn read_at(&self, offset: u64, out: &mut [u8]) -> usize {
        let disk = self.disk.lock();
        let rest = usize::try_from(offset).ok().and_then(|at| disk.bytes(self.node).get(at..));
        let found = rest.unwrap_or_default();
        let length = found.len().min(out.len());
        out[..length].copy_from_slice(&found[..length]);
        length
    }
}

impl StorageBackend for FaultFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.length())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let whole = self.read_at(offset, out) == out.len();
        if whole { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.lock().set_length(&self.path, self.node, length)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.lock().sync(&self.path, self.node)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.lock().write(&self.path, self.node, offset, data)
    }

    fn try_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn try_lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(true)
    }

    fn lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn lock_shared_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn unlock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<(), BackendError> {
        Ok(())
    }

    fn query_lock_range(&self, _: Bound<u64>, _: Bound<u64>) -> Result<bool, BackendError> {
        Ok(false)
    }
}
