//! A file of the disk as a log uses one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend as _;
use spinney_log::DiskFile;

use super::redb_file::FaultFile;

/// An open file of a log, with a lock of its own.
#[derive(Debug)]
pub(crate) struct LogFile {
    file: FaultFile,
    is_pinned: AtomicBool,
}

impl From<FaultFile> for LogFile {
    fn from(file: FaultFile) -> Self {
        Self { file, is_pinned: AtomicBool::new(false) }
    }
}

impl DiskFile for LogFile {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.length())
    }

    fn read_at(&self, out: &mut [u8], at: u64) -> io::Result<usize> {
        Ok(self.file.read_at(at, out))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.file.write(at, bytes)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.file.length() { self.file.set_len(bytes) } else { Ok(()) }
    }

    fn try_lock(&self, shared: bool) -> io::Result<bool> {
        let mut disk = self.file.disk.lock();
        let pins = disk.pins.entry(self.file.node).or_default();
        if shared {
            *pins += 1;
            self.is_pinned.store(true, Ordering::Relaxed);
        }
        Ok(shared || *pins == 0)
    }

    fn unlock(&self) {
        if self.is_pinned.swap(false, Ordering::Relaxed)
            && let Some(pins) = self.file.disk.lock().pins.get_mut(&self.file.node)
        {
            *pins -= 1;
        }
    }
}

impl Drop for LogFile {
    fn drop(&mut self) {
        self.unlock();
    }
}
