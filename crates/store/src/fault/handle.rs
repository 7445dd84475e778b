//! The handle on a disk: what tests tell it, and what they learn of it. Which stores lie on the
//! disk it does not know, so that what stores need of files can be built on it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::disk::{Disk, Fault, Operation, Stop, Survivors};

/// A disk in memory that fails on demand. Clones are the same disk, a [copy](Self::copy) is another
/// one.
///
/// redb's locks within its file are all granted, so it is for the test to open no two writers of a
/// redb store at a time. Who uses SQLite stores on one disk from several threads takes turns.
#[derive(Clone, Default)]
pub struct FaultDisk {
    pub(super) disk: Arc<Mutex<Disk>>,
    /// Whose turn it is at SQLite, whose VFS keeps a copy of the log's index for each connection.
    pub(super) turn: Arc<Mutex<()>>,
}

impl fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let disk = self.lock();
        f.debug_struct("FaultDisk")
            .field("files", &disk.files().count())
            .field("operations", &disk.operations())
            .field("stop", &disk.stop())
            .finish_non_exhaustive()
    }
}

impl FaultDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle on a disk that nobody has yet.
    pub(super) fn from_disk(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)), turn: Arc::default() }
    }

    /// The bytes of a file, synced or not.
    pub fn file(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.lock();
        disk.find(path).map(|node| disk.bytes(node).to_vec())
    }

    /// The names of all files.
    pub fn names(&self) -> Vec<PathBuf> {
        self.lock().files().map(|(path, _)| path.to_owned()).collect()
    }

    /// Another disk with the same files, all of them synced, and nothing to go wrong. It counts
    /// from 0.
    pub fn copy(&self) -> Self {
        self.after_power_cut_of(|disk| {
            Disk::of(disk.files().map(|(path, bytes)| (path.to_owned(), bytes.to_vec())))
        })
    }

    /// How many operations there were.
    pub fn operations(&self) -> u64 {
        self.lock().operations()
    }

    /// The operations so far, in order.
    pub fn log(&self) -> Vec<Operation> {
        self.lock().log().to_vec()
    }

    /// Stops the disk at an operation, counted from 0 since the disk was made.
    pub fn stop_at(&self, operation: u64, how: Stop) {
        self.lock().stop_at(Some((operation, how)));
    }

    /// Lets one operation go wrong, counted from 0 since the disk was made. There may be several.
    pub fn fault_at(&self, operation: u64, fault: Fault) {
        self.lock().fault_at(operation, fault);
    }

    /// Bounds the bytes of all files together; a write beyond that fails as on a full disk.
    pub fn set_room(&self, bytes: Option<u64>) {
        self.lock().room = bytes;
    }

    /// Lets a stopped disk go on, with all faults forgotten that are to come.
    pub fn resume(&self) {
        self.lock().stop_at(None);
    }

    /// The disk that is found when the power comes back.
    pub fn after_power_cut(&self, survivors: Survivors) -> Self {
        self.after_power_cut_of(|disk| disk.after_power_cut(survivors))
    }

    /// The disk that the next process finds when one was killed: nothing is lost, and nobody has it
    /// open. It counts from 0, and nothing is to go wrong.
    pub fn after_kill(&self) -> Self {
        self.after_power_cut_of(Disk::after_kill)
    }

    fn after_power_cut_of(&self, left: impl FnOnce(&Disk) -> Disk) -> Self {
        Self::from_disk(left(&self.lock()))
    }

    /// The disk, while nobody else uses it.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a lock file; answers whether nobody had it.
    pub(crate) fn try_lock(&self, path: &Path) -> bool {
        self.lock().locks.insert(path.to_owned())
    }

    /// Gives a lock file back.
    pub(crate) fn unlock(&self, path: &Path) {
        self.lock().locks.remove(path);
    }

    /// Lets `work` use SQLite while nobody else on the disk does.
    pub(crate) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}
