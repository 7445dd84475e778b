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
pub(crate) mod handle;
pub(crate) mod log_file;
pub(crate) mod redb_file;
pub(crate) mod vfs;

use std::path::{Path, PathBuf};

use spinney_tree::StoreError;

use self::disk::Disk;
use self::redb_file::FaultFile;
use crate::any::{AnyStore, Location, OpenFor};
use crate::files::Files;
use crate::guard::backend;
use crate::redb_store::{Access, RedbStore};

pub use self::disk::{Fault, Operation, Stop, Survivors};
pub use self::handle::FaultDisk;

const CACHE_BYTES: usize = 1 << 20;
/// Where the store of those is who name no place.
const ALONE: &str = "the test disk";

impl FaultDisk {
    /// A disk with a redb store that has these bytes and no name, as
    /// [`open_store`](Self::open_store) opens it.
    pub fn with_image(image: Vec<u8>) -> Self {
        Self::from_disk(Disk::of([(PathBuf::from(ALONE), image)]))
    }

    /// The bytes of the redb store without a name, synced or not.
    pub fn image(&self) -> Vec<u8> {
        self.file(Path::new(ALONE)).unwrap_or_default()
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
            let found = FaultFile::open(self, path).or_else(|_| FaultFile::create(self, path));
            Ok(Box::new(found.map_err(|error| backend(ALONE, error))?) as _)
        };
        RedbStore::assemble(open, ALONE.to_owned(), None, CACHE_BYTES, access)
    }

    fn files(&self) -> Files {
        Files::from(self.clone())
    }
}
