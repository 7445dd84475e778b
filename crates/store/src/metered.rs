//! A backend of redb that counts what passes through it.

use std::io;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{BackendError, StorageBackend};

use crate::stats::IoCounts;

/// Counters that a store and its backend share.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes_read: AtomicU64,
    reads: AtomicU64,
    bytes_written: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    round_trips: AtomicU64,
    file_bytes: AtomicU64,
}

impl Meter {
    pub(crate) fn counts(&self) -> IoCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoCounts {
            bytes_read: count(&self.bytes_read),
            reads: count(&self.reads),
            bytes_written: count(&self.bytes_written),
            writes: count(&self.writes),
            syncs: count(&self.syncs),
            round_trips: count(&self.round_trips),
        }
    }

    pub(crate) fn read(&self, calls: u64, bytes: u64) {
        self.reads.fetch_add(calls, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn wrote(&self, calls: u64, bytes: u64) {
        self.writes.fetch_add(calls, Ordering::Relaxed);
        self.bytes_written.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn synced(&self, times: u64) {
        self.syncs.fetch_add(times, Ordering::Relaxed);
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn round_trip(&self) {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
    }

    /// The file's length, as far as redb was told.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.file_bytes.load(Ordering::Relaxed)
    }
}

/// Counts calls and bytes, and hands everything on: locks too, as redb's locks are its backend's.
#[derive(Debug)]
pub(crate) struct Metered {
    inner: Box<dyn StorageBackend>,
    meter: Arc<Meter>,
}

impl Metered {
    pub(crate) fn new(inner: Box<dyn StorageBackend>, meter: Arc<Meter>) -> Self {
        Self { inner, meter }
    }
}

impl StorageBackend for Metered {
    fn len(&self) -> io::Result<u64> {
        let length = self.inner.len()?;
        self.meter.file_bytes.store(length, Ordering::Relaxed);
        Ok(length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.meter.read(1, out.len() as u64);
        self.inner.read(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.inner.set_len(length)?;
        self.meter.file_bytes.store(length, Ordering::Relaxed);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.meter.synced(1);
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.meter.wrote(1, data.len() as u64);
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.inner.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.inner.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.inner.query_lock_range(start, end)
    }
}
