//! A disk that fails on demand: for the tests of whatever writes to a store.
//!
//! A [`FaultDisk`] is a small file system in memory, which knows what would be left of it after a
//! power cut. [redb](Location::Redb), [SQLite](Location::Sqlite) and [log](Location::Log) stores
//! lie on it as they lie in files: SQLite by a VFS, and what the stores do with files themselves
//! too. The disk counts the operations that change it, each [write, change of length, sync,
//! creation, renaming, removal and sync of a folder](Operation), and each can be told to go wrong:
//! to [stop](Stop) the disk there, or to be a [fault](Fault) alone.
//!
//! Only the feature `faults` has it: it is for tests. Tests loop over all operations:
//!
//! ```
//! use spinney_store::fault::{FaultDisk, Stop, Survivors};
//! use spinney_store::{Location, OpenFor};
//! use spinney_tree::{PageStore, Snapshot, Table, WriteSet};
//!
//! let mut set = WriteSet::new();
//! set.put(Table::Meta, b"head", *b"1");
//! let log = Location::Log("log".into());
//! for at in [Location::Redb("state".into()), Location::Sqlite("state.sqlite".into()), log] {
//!     let blank = FaultDisk::new();
//!     blank.open(&at, OpenFor::Filling, 1 << 20)?.close()?;
//!
//!     for operation in 0.. {
//!         let disk = blank.copy();
//!         disk.stop_at(operation, Stop::Fail);
//!         let committed = match disk.open(&at, OpenFor::Writing, 1 << 20) {
//!             Ok(store) => store.commit(&set).is_ok(),
//!             Err(_) => false,
//!         };
//!
//!         let disk = disk.after_power_cut(Survivors::Nothing);
//!         let store = disk.open(&at, OpenFor::Writing, 1 << 20)?;
//!         let found = store.snapshot()?.read(Table::Meta, b"head")?.is_some();
//!         assert!(found || !committed, "a commit that returned is durable");
//!         if committed {
//!             break;
//!         }
//!     }
//! }
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to expect
//! - After a [`Stop`], [`Fault::Full`], [`Fault::Broken`], [`Fault::Short`] or
//!   [no room](FaultDisk::set_room), and with any [`Survivors`], a store opens, in the state before
//!   the operation's commit or after it, and checks sound.
//! - After [`Fault::Lost`], [`Fault::Torn`] or [`Fault::Misdirected`], where the disk lied, it is
//!   in the state of some commit, or opening, reading or checking it answers an error: it is never
//!   in another state that checks sound.

mod disk;
mod log_file;
mod redb_file;
mod vfs;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spinney_tree::StoreError;

use self::disk::{Disk, NodeId};
use crate::any::{AnyStore, Location, OpenFor};
use crate::files::{Files, Found};
use crate::guard::backend;
use crate::redb_store::{Access, RedbStore};

pub(crate) use self::log_file::LogFile;
pub(crate) use self::redb_file::FaultFile;
pub(crate) use self::vfs::{VFS, name_of};

const CACHE_BYTES: usize = 1 << 20;
/// Where the store of those is who name no place.
const ALONE: &str = "the test disk";

/// How a disk stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stop {
    /// That operation and all later ones fail, as on a full disk.
    Fail,
    /// That operation and all later ones fail, as on a disk that broke.
    Break,
    /// That operation and all later ones seem to succeed, and nothing of them is left after a power
    /// cut: the moment of the cut, seen by a process that does not notice.
    Freeze,
}

/// What goes wrong with one operation. Those after it go well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It fails, as on a full disk.
    Full,
    /// It fails, as on a disk that is broken there.
    Broken,
    /// Of a write the first half is done, and it fails as on a full disk. Others just fail.
    Short,
    /// It seems done. What it did is read back as long as the disk runs, and is not there after a
    /// power cut, whatever was synced since.
    Lost,
    /// As [`Lost`](Self::Lost), but the first half of a write is there.
    Torn,
    /// As [`Lost`](Self::Lost), but a write is there in another place of its file, chosen by this
    /// seed.
    Misdirected(u64),
}

/// What a power cut leaves of the changes made since the last sync. Disks do not write in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Survivors {
    /// All of them.
    All,
    /// None of them.
    Nothing,
    /// Some, chosen by this seed, of the writes perhaps only a part: so later ones without the
    /// earlier.
    Some(u64),
}

/// What changes a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// A file is made.
    Create(PathBuf),
    /// So many bytes are written at an offset: the offset, then the number.
    Write(PathBuf, u64, u64),
    /// A file is given a length in bytes.
    SetLength(PathBuf, u64),
    /// What was written to a file is made certain.
    Sync(PathBuf),
    /// A file or a folder is given another name: from, to.
    Rename(PathBuf, PathBuf),
    /// A file is removed.
    Remove(PathBuf),
    /// The names in a folder are made certain.
    SyncFolder(PathBuf),
}

/// A disk in memory that fails on demand. Clones are the same disk, a [copy](Self::copy) is another
/// one.
///
/// redb's locks within its file are all granted, so it is for the test to open no two writers of a
/// redb store at a time. Who uses SQLite stores on one disk from several threads takes turns.
#[derive(Clone, Default)]
pub struct FaultDisk {
    disk: Arc<Mutex<Disk>>,
    /// Whose turn it is at SQLite, whose VFS keeps a copy of the log's index for each connection.
    turn: Arc<Mutex<()>>,
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

    fn from_disk(disk: Disk) -> Self {
        Self { disk: Arc::new(Mutex::new(disk)), turn: Arc::default() }
    }

    /// A disk with a redb store that has these bytes and no name, as
    /// [`open_store`](Self::open_store) opens it.
    pub fn with_image(image: Vec<u8>) -> Self {
        Self::from_disk(Disk::of([(PathBuf::from(ALONE), image)]))
    }

    /// The bytes of the redb store without a name, synced or not.
    pub fn image(&self) -> Vec<u8> {
        self.file(Path::new(ALONE)).unwrap_or_default()
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

    /// Opens the store there, as [`Location::open`]; on a disk no server is to be found.
    ///
    /// # Errors
    /// As [`Location::open`].
    pub fn open(
        &self,
        at: &Location,
        what_for: OpenFor,
        cache_bytes: usize,
    ) -> Result<AnyStore, StoreError> {
        at.open_on(&self.files(), what_for, cache_bytes)
    }

    /// Makes a store, as [`Location::create_filled`].
    ///
    /// # Errors
    /// As [`Location::create_filled`].
    pub fn create_filled<E: From<StoreError>>(
        &self,
        at: &Location,
        cache_bytes: usize,
        fill: impl FnOnce(&AnyStore) -> Result<(), E>,
    ) -> Result<AnyStore, E> {
        at.create_filled_on(&self.files(), cache_bytes, fill)
    }

    /// Gives a store its name, as [`Location::publish`].
    ///
    /// # Errors
    /// As [`Location::publish`].
    pub fn publish(&self, from: &Location, to: &Location) -> Result<(), StoreError> {
        from.publish_on(&self.files(), to)
    }

    /// Removes a store, as [`Location::remove`].
    ///
    /// # Errors
    /// As [`Location::remove`].
    pub fn remove(&self, at: &Location) -> Result<(), StoreError> {
        at.remove_on(&self.files())
    }

    /// Creates a redb store without a name on the disk, which is empty.
    ///
    /// # Errors
    /// As [`RedbStore::create`].
    pub fn create_store(&self) -> Result<RedbStore, StoreError> {
        self.alone(Access::Create)
    }

    /// Opens the redb store without a name.
    ///
    /// # Errors
    /// As [`RedbStore::open`].
    pub fn open_store(&self) -> Result<RedbStore, StoreError> {
        self.alone(Access::Write)
    }

    /// Opens the redb store without a name for reading.
    ///
    /// # Errors
    /// As [`RedbStore::open_read_only`].
    pub fn open_store_read_only(&self) -> Result<RedbStore, StoreError> {
        self.alone(Access::ReadOnly)
    }

    fn alone(&self, access: Access) -> Result<RedbStore, StoreError> {
        let path = Path::new(ALONE);
        let open = || {
            let found = self.open_file(path).or_else(|_| self.create_file(path));
            Ok(Box::new(found.map_err(|error| backend(ALONE, error))?) as _)
        };
        RedbStore::assemble(open, ALONE.to_owned(), None, CACHE_BYTES, access)
    }

    fn files(&self) -> Files {
        Files::from(self.clone())
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn find(&self, path: &Path) -> Option<Found> {
        let disk = self.lock();
        match disk.find(path) {
            Some(node) => Some(Found::File(disk.bytes(node).len() as u64)),
            None => disk.exists(path).then_some(Found::Folder),
        }
    }

    pub(crate) fn open_file(&self, path: &Path) -> io::Result<FaultFile> {
        let node = self.lock().find(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(FaultFile { disk: self.clone(), path: path.to_owned(), node })
    }

    pub(crate) fn create_file(&self, path: &Path) -> io::Result<FaultFile> {
        let mut disk = self.lock();
        if disk.find(path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let node = disk.create(path)?;
        Ok(FaultFile { disk: self.clone(), path: path.to_owned(), node })
    }

    pub(crate) fn try_lock(&self, path: &Path) -> bool {
        self.lock().locks.insert(path.to_owned())
    }

    pub(crate) fn unlock(&self, path: &Path) {
        self.lock().locks.remove(path);
    }

    pub(crate) fn in_turn<T>(&self, work: impl FnOnce() -> T) -> T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        work()
    }
}
