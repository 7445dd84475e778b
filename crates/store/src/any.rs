//! One type for all stores.

use std::ops::Deref;

use spinney_tree::{MemorySnapshot, MemoryStore, PageStore, Snapshot, StoreError, Table, WriteSet};

use crate::redb_store::RedbStore;
use crate::snapshot::{RedbRow, RedbSnapshot};
use crate::stats::{IoCounts, StoreStats, TableStats};

/// A store of a kind that is chosen at run time.
///
/// ```
/// use spinney_store::{AnyStore, RedbStore};
/// use spinney_tree::{PageStore, Snapshot, Table};
///
/// let folder = tempfile::tempdir()?;
/// for store in [AnyStore::memory(), RedbStore::create(folder.path(), 1 << 20)?.into()] {
///     assert!(store.snapshot()?.read(Table::Meta, b"head")?.is_none());
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyStore {
    /// In memory.
    Memory(MemoryStore),
    /// In a directory.
    Redb(RedbStore),
}

impl AnyStore {
    /// An empty store in memory.
    pub fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    /// Bytes and calls that passed between the store and its file; none in memory.
    pub fn io(&self) -> IoCounts {
        match self {
            Self::Memory(_) => IoCounts::default(),
            Self::Redb(store) => store.io(),
        }
    }

    /// What the store holds. This reads all of it once.
    ///
    /// # Errors
    /// If it cannot be read or is damaged.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        match self {
            Self::Memory(store) => memory_stats(&store.snapshot()?),
            Self::Redb(store) => store.stats(),
        }
    }

    /// Closes the store and says whether that went well.
    ///
    /// # Errors
    /// As [`RedbStore::close`].
    pub fn close(self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redb(store) => store.close(),
        }
    }
}

fn memory_stats(snapshot: &MemorySnapshot) -> Result<StoreStats, StoreError> {
    let mut tables = Vec::with_capacity(Table::ALL.len());
    for table in Table::ALL {
        let mut found = TableStats::new(table);
        snapshot.scan(table, &[], None, &mut |key, row| {
            found.rows += 1;
            found.stored_bytes += (key.len() + row.len()) as u64;
            true
        })?;
        tables.push(found);
    }
    Ok(StoreStats { tables, file_bytes: 0 })
}

impl From<MemoryStore> for AnyStore {
    fn from(store: MemoryStore) -> Self {
        Self::Memory(store)
    }
}

impl From<RedbStore> for AnyStore {
    fn from(store: RedbStore) -> Self {
        Self::Redb(store)
    }
}

impl PageStore for AnyStore {
    type Snapshot<'a> = AnySnapshot<'a>;

    fn snapshot(&self) -> Result<AnySnapshot<'_>, StoreError> {
        Ok(match self {
            Self::Memory(store) => AnySnapshot::Memory(store.snapshot()?),
            Self::Redb(store) => AnySnapshot::Redb(store.snapshot()?),
        })
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.commit(set),
            Self::Redb(store) => store.commit(set),
        }
    }
}

/// A view of an [`AnyStore`].
#[derive(Debug)]
#[non_exhaustive]
pub enum AnySnapshot<'a> {
    /// Of a store in memory.
    Memory(MemorySnapshot),
    /// Of a store in a directory.
    Redb(RedbSnapshot<'a>),
}

impl Snapshot for AnySnapshot<'_> {
    type Row<'s>
        = AnyRow<'s>
    where
        Self: 's;

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<AnyRow<'s>>, StoreError> {
        Ok(match self {
            Self::Memory(snapshot) => snapshot.read(table, key)?.map(AnyRow::Memory),
            Self::Redb(snapshot) => snapshot.read(table, key)?.map(AnyRow::Redb),
        })
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        match self {
            Self::Memory(snapshot) => snapshot.scan(table, low, high, visit),
            Self::Redb(snapshot) => snapshot.scan(table, low, high, visit),
        }
    }
}

/// A row lent by an [`AnySnapshot`].
#[derive(Debug)]
#[non_exhaustive]
pub enum AnyRow<'s> {
    /// Of a store in memory.
    Memory(&'s [u8]),
    /// Of a store in a directory.
    Redb(RedbRow<'s>),
}

impl Deref for AnyRow<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(row) => row,
            Self::Redb(row) => row,
        }
    }
}
