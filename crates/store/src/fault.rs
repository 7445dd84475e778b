//! A disk that fails on demand: for the tests of whatever writes to a store.
//!
//! A [`FaultDisk`] is a file in memory which knows what would be left of it after a power cut. It
//! counts the operations that change it, writes, changes of length and syncs, and can be told to
//! [stop](Stop) at one of them. Tests loop over all:
//!
//! ```
//! use spinney_store::fault::{FaultDisk, Stop, Survivors};
//! use spinney_tree::{PageStore, Snapshot, Table, WriteSet};
//!
//! let mut set = WriteSet::new();
//! set.put(Table::Meta, b"head", *b"1");
//! let blank = FaultDisk::new();
//! blank.create_store()?.close()?;
//!
//! for operation in 0.. {
//!     let disk = FaultDisk::with_image(blank.image());
//!     let store = disk.open_store()?;
//!     disk.stop_at(disk.operations() + operation, Stop::Fail);
//!     let committed = store.commit(&set).is_ok();
//!     drop(store);
//!
//!     let store = disk.after_power_cut(Survivors::Nothing).open_store()?;
//!     let found = store.snapshot()?.read(Table::Meta, b"head")?.is_some();
//!     assert!(found || !committed, "a commit that returned is durable");
//!     if committed {
//!         break;
//!     }
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::{BackendError, StorageBackend};
use spinney_tree::StoreError;

use crate::redb_store::{Access, RedbStore};

const CACHE_BYTES: usize = 1 << 20;
/// A damaged file may ask for any length, and here it would be memory.
const DISK_BYTES_MAX: u64 = 1 << 28;

/// How a disk stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// That operation and all later ones fail, as on a full or a dead disk.
    Fail,
    /// That operation and all later ones seem to succeed, and nothing of them is left after a power cut:
    /// the moment of the cut, seen by a process that does not notice.
    Freeze,
}

/// What a power cut leaves of the changes made since the last sync. Disks do not write in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Survivors {
    /// All of them.
    All,
    /// None of them.
    Nothing,
    /// Some, chosen by this seed, of the writes perhaps only a part.
    Some(u64),
}

/// A file in memory that fails on demand. Clones are the same disk.
///
/// It grants every lock, so it is for the test to open no two stores on one disk at a time.
#[derive(Clone, Default)]
pub struct FaultDisk {
    disk: Arc<Mutex<Disk>>,
}

#[derive(Default)]
struct Disk {
    /// What reads see.
    live: Vec<u8>,
    /// What the last sync made certain.
    durable: Vec<u8>,
    /// What was changed since.
    pending: Vec<Change>,
    operations: u64,
    stop: Option<(u64, Stop)>,
}

#[derive(Clone)]
enum Change {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl Change {
    fn apply(&self, image: &mut Vec<u8>) {
        match self {
            Self::Write(at, data) => {
                if image.len() < at + data.len() {
                    image.resize(at + data.len(), 0);
                }
                image[*at..at + data.len()].copy_from_slice(data);
            }
            Self::Length(length) => image.resize(*length, 0),
        }
    }
}

impl Disk {
    /// Counts an operation. Answers whether it reaches the disk.
    fn operate(&mut self) -> io::Result<bool> {
        let operation = self.operations;
        self.operations += 1;
        match self.stop {
            Some((at, Stop::Fail)) if operation >= at => {
                Err(io::Error::from(io::ErrorKind::StorageFull))
            }
            Some((at, Stop::Freeze)) if operation >= at => Ok(false),
            _ => Ok(true),
        }
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        let reaches = self.operate()?;
        change.apply(&mut self.live);
        if reaches {
            self.pending.push(change);
        }
        Ok(())
    }
}

impl fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.lock();
        f.debug_struct("FaultDisk")
            .field("bytes", &disk.live.len())
            .field("operations", &disk.operations)
            .field("stop", &disk.stop)
            .finish_non_exhaustive()
    }
}

impl FaultDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk with these bytes on it.
    pub fn with_image(image: Vec<u8>) -> Self {
        let disk = Disk { durable: image.clone(), live: image, ..Disk::default() };
        Self { disk: Arc::new(Mutex::new(disk)) }
    }

    /// What is on the disk, synced or not.
    pub fn image(&self) -> Vec<u8> {
        self.lock().live.clone()
    }

    /// How many writes, changes of length and syncs there were.
    pub fn operations(&self) -> u64 {
        self.lock().operations
    }

    /// Stops the disk at an operation, counted from 0 since the disk was made.
    pub fn stop_at(&self, operation: u64, how: Stop) {
        self.lock().stop = Some((operation, how));
    }

    /// Lets a stopped disk go on.
    pub fn resume(&self) {
        self.lock().stop = None;
    }

    /// The disk that is found when the power comes back.
    pub fn after_power_cut(&self, survivors: Survivors) -> Self {
        let disk = self.lock();
        let mut image = disk.durable.clone();
        match survivors {
            Survivors::Nothing => {}
            Survivors::All => disk.pending.iter().for_each(|change| change.apply(&mut image)),
            Survivors::Some(seed) => survive(&disk.pending, seed, &mut image),
        }
        Self::with_image(image)
    }

    /// Creates a store on the disk, which is empty.
    ///
    /// # Errors
    /// As [`RedbStore::create`].
    pub fn create_store(&self) -> Result<RedbStore, StoreError> {
        self.store(Access::Create)
    }

    /// Opens the store that is on the disk.
    ///
    /// # Errors
    /// As [`RedbStore::open`].
    pub fn open_store(&self) -> Result<RedbStore, StoreError> {
        self.store(Access::Write)
    }

    /// Opens the store that is on the disk for reading.
    ///
    /// # Errors
    /// As [`RedbStore::open_read_only`].
    pub fn open_store_read_only(&self) -> Result<RedbStore, StoreError> {
        self.store(Access::ReadOnly)
    }

    fn store(&self, access: Access) -> Result<RedbStore, StoreError> {
        let place = "the test disk".to_owned();
        RedbStore::assemble(|| Ok(self.clone()), place, None, CACHE_BYTES, access)
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Applies each change with even chances, whole or, if a write, in part.
fn survive(pending: &[Change], seed: u64, image: &mut Vec<u8>) {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    let mut draw = || {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for change in pending {
        match (draw() % 4, change) {
            (0 | 1, _) => {}
            (2, Change::Write(at, data)) => {
                let kept = (draw() % (data.len() as u64 + 1)) as usize;
                Change::Write(*at, data[..kept].to_vec()).apply(image);
            }
            _ => change.apply(image),
        }
    }
}

impl StorageBackend for FaultDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().live.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let disk = self.lock();
        let start = usize::try_from(offset).ok().filter(|start| *start <= disk.live.len());
        let found = start.and_then(|start| disk.live[start..].get(..out.len()));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        if length > DISK_BYTES_MAX {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.lock().change(Change::Length(length as usize))
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.lock();
        if disk.operate()? {
            let mut durable = std::mem::take(&mut disk.durable);
            disk.pending.drain(..).for_each(|change| change.apply(&mut durable));
            disk.durable = durable;
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset > DISK_BYTES_MAX {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.lock().change(Change::Write(offset as usize, data.to_vec()))
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
