//! What was at the place of a store before it was made, so that what is refused leaves it as it
//! was.

use spinney_tree::{PageStore as _, RootRecord, Snapshot as _, StoreError, Table, TreeId};

use crate::any::{AnyStore, Location, OpenFor};
use crate::creation::Missing;
use crate::files::Files;
use crate::folder::Folder;
use crate::log_store::LogStore;
#[cfg(feature = "sqlite")]
use crate::sqlite::{SqliteStore, lock_of};

/// Memory for a store that is only looked at.
const CACHE_BYTES: usize = 1 << 20;

/// What was at a place before a store was made there: see [`Location::before`].
#[derive(Debug)]
pub struct Before {
    location: Location,
    had_store: bool,
    missing: Missing,
}

impl Location {
    /// Notes what is there. Where what comes next is refused, [`Before::restore`] leaves it so
    /// again.
    ///
    /// ```
    /// use spinney_store::{Location, OpenFor};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let location = Location::Redb(folder.path().join("new/state"));
    /// let before = location.before();
    /// let store = location.open(OpenFor::Filling, 1 << 20)?;
    /// // Nothing was committed: the store goes, and the folders that were made for it.
    /// assert!(before.restore(store)?);
    /// assert!(!folder.path().join("new").exists());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn before(&self) -> Before {
        let files = Files::System;
        let missing = match self {
            Self::Redb(at) => Missing::of(&files, &Folder::new(&files, at).lock()),
            Self::Log(at) => Missing::of(&files, &LogStore::lock_of(at)),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(at) => Missing::of(&files, &lock_of(at)),
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => Missing::default(),
        };
        // Whatever cannot be opened is somebody's.
        let opened = self.open(OpenFor::Reading, CACHE_BYTES);
        let had_store = !matches!(opened, Err(StoreError::Missing { .. }));
        Before { location: self.clone(), had_store, missing }
    }
}

impl Before {
    /// Whether there was a store, sound or not.
    pub const fn had_store(&self) -> bool {
        self.had_store
    }

    /// Closes a store. If it was made since and nothing was committed to it but states of block 0,
    /// which follow from what they were made of, it is removed, with the folders that were made for
    /// it. Answers whether nothing is left of it.
    ///
    /// # Errors
    /// If it cannot be closed, looked into, or removed.
    pub fn restore(self, store: AnyStore) -> Result<bool, StoreError> {
        let closed = store.close();
        if self.had_store {
            return closed.map(|()| false);
        }
        // After a failure only a store that is opened anew can be read.
        let store = self.location.open(OpenFor::Writing, CACHE_BYTES)?;
        let mut has_more = false;
        store.snapshot()?.scan(Table::Roots, &[], None, &mut |key, row| {
            has_more = !is_of_genesis(key, row);
            !has_more
        })?;
        if has_more {
            return store.close().map(|()| false);
        }
        self.remove(store).map(|()| true)
    }

    /// Closes a store that was made since and removes it, whatever it holds, with the folders that
    /// were made for it.
    ///
    /// # Errors
    /// If it cannot be closed or removed.
    pub fn remove(self, store: AnyStore) -> Result<(), StoreError> {
        let files = Files::System;
        match (&self.location, store) {
            // On a server it may not be finished, so that nobody else finds it.
            #[cfg(feature = "postgres")]
            (Location::Postgres(_), AnyStore::Postgres(store)) => {
                store.discard()?;
                store.close()
            }
            (Location::Redb(at), store) => {
                // What is removed may be broken.
                drop(store);
                Folder::new(&files, at).remove(&self.missing)
            }
            (Location::Log(at), store) => {
                drop(store);
                LogStore::remove(&files, at, &self.missing)
            }
            #[cfg(feature = "sqlite")]
            (Location::Sqlite(at), store) => {
                drop(store);
                SqliteStore::remove(&files, at, &self.missing)
            }
            #[cfg(feature = "postgres")]
            (Location::Postgres(_), store) => store.close(),
        }
    }
}

/// Whether a root record is that of block 0.
fn is_of_genesis(key: &[u8], row: &[u8]) -> bool {
    let Ok(id) = key.try_into().map(u32::from_be_bytes) else { return false };
    let record = RootRecord::decode(TreeId(id), row).ok();
    record.and_then(|record| record.block).is_some_and(|block| block.number == 0)
}
