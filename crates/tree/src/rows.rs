//! Snapshots and stores of any kind, each behind one interface that has no type parameter: so the
//! engine is compiled once for a scheme, and not again for each store.
//!
//! A page costs one call through a pointer and no memory beside its own, in which it stays.

use std::fmt;
use std::sync::Arc;

use crate::store::{CommitOf, KeptCommits, PageStore, Snapshot, StoreError, Table, WriteSet};

/// What the engine asks of a [`Snapshot`].
pub(crate) trait ReadRows {
    /// Shows a row to `see`, if it is there, and answers whether it is.
    fn show(
        &self,
        table: Table,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, StoreError>;

    /// Reads a row that is to stay in memory.
    fn row(&self, table: Table, key: &[u8]) -> Result<Option<Arc<[u8]>>, StoreError>;

    /// Reads many of them in one call, one answer a key, in order.
    fn rows(&self, table: Table, keys: &[&[u8]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError>;

    /// As [`Snapshot::is_far`].
    fn is_far(&self) -> bool;

    /// As [`Snapshot::shows`].
    fn shows(&self) -> Option<CommitOf>;

    /// As [`Snapshot::scan`].
    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;
}

impl<N: Snapshot> ReadRows for N {
    fn show(
        &self,
        table: Table,
        key: &[u8],
        see: &mut dyn FnMut(&[u8]),
    ) -> Result<bool, StoreError> {
        let row = self.read(table, key)?;
        row.as_deref().into_iter().for_each(see);
        Ok(row.is_some())
    }

    fn row(&self, table: Table, key: &[u8]) -> Result<Option<Arc<[u8]>>, StoreError> {
        Ok(self.read(table, key)?.map(N::keep))
    }

    fn rows(&self, table: Table, keys: &[&[u8]]) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        let rows = self.read_many(table, keys)?;
        Ok(rows.into_iter().map(|row| row.map(N::keep)).collect())
    }

    fn is_far(&self) -> bool {
        Snapshot::is_far(self)
    }

    fn shows(&self) -> Option<CommitOf> {
        Snapshot::shows(self)
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        Snapshot::scan(self, table, low, high, visit)
    }
}

/// A [`PageStore`], whatever its type.
pub(crate) trait KeepRows: Send + Sync {
    /// As [`PageStore::snapshot`].
    fn view(&self) -> Result<Box<dyn ReadRows + '_>, StoreError>;

    /// As [`PageStore::snapshot_of`].
    fn view_of(&self, block: u64) -> Result<Option<Box<dyn ReadRows + '_>>, StoreError>;

    /// As [`PageStore::kept_commits`].
    fn kept(&self) -> Result<Option<KeptCommits>, StoreError>;

    /// As [`PageStore::commit`].
    fn write(&self, set: &WriteSet) -> Result<(), StoreError>;

    /// As [`PageStore::commit_owned`].
    fn put(&self, set: WriteSet) -> Result<(), StoreError>;

    /// As [`PageStore::unsettled`].
    fn waiting(&self) -> usize;

    /// As [`PageStore::settle`].
    fn wait(&self) -> Result<(), StoreError>;
}

impl<P: PageStore> KeepRows for P {
    fn view(&self) -> Result<Box<dyn ReadRows + '_>, StoreError> {
        Ok(Box::new(self.snapshot()?))
    }

    fn view_of(&self, block: u64) -> Result<Option<Box<dyn ReadRows + '_>>, StoreError> {
        Ok(self
            .snapshot_of(block)?
            .map(|snapshot| -> Box<dyn ReadRows + '_> { Box::new(snapshot) }))
    }

    fn kept(&self) -> Result<Option<KeptCommits>, StoreError> {
        self.kept_commits()
    }

    fn write(&self, set: &WriteSet) -> Result<(), StoreError> {
        self.commit(set)
    }

    fn put(&self, set: WriteSet) -> Result<(), StoreError> {
        self.commit_owned(set)
    }

    fn waiting(&self) -> usize {
        self.unsettled()
    }

    fn wait(&self) -> Result<(), StoreError> {
        self.settle()
    }
}

/// A store of any kind behind one type, shared by its clones.
///
/// What is generic over stores is compiled anew for each type of store. A program that has stores
/// of several types and wants it compiled once hands it this one; a row then costs a copy and a
/// call through a pointer.
///
/// ```
/// use spinney_tree::{MemoryStore, PageStore, SharedStore, Snapshot, Table, WriteSet};
///
/// let memory = MemoryStore::new();
/// let store = SharedStore::new(&memory);
/// let mut set = WriteSet::new();
/// set.put(Table::Meta, b"head", *b"1");
/// store.commit(&set)?;
/// assert_eq!(*store.snapshot()?.read(Table::Meta, b"head")?.unwrap(), *b"1");
/// assert!(memory.snapshot()?.read(Table::Meta, b"head")?.is_some());
/// # Ok::<_, spinney_tree::StoreError>(())
/// ```
#[derive(Clone)]
pub struct SharedStore<'s>(Arc<dyn KeepRows + 's>);

impl<'s> SharedStore<'s> {
    /// Takes a store, which may be a lent one.
    pub fn new<P: PageStore + 's>(store: P) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for SharedStore<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedStore").finish_non_exhaustive()
    }
}

impl PageStore for SharedStore<'_> {
    type Snapshot<'a>
        = SharedSnapshot<'a>
    where
        Self: 'a;

    fn snapshot(&self) -> Result<SharedSnapshot<'_>, StoreError> {
        self.0.view().map(SharedSnapshot)
    }

    fn snapshot_of(&self, block: u64) -> Result<Option<SharedSnapshot<'_>>, StoreError> {
        Ok(self.0.view_of(block)?.map(SharedSnapshot))
    }

    fn kept_commits(&self) -> Result<Option<KeptCommits>, StoreError> {
        self.0.kept()
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        self.0.write(set)
    }

    fn commit_owned(&self, set: WriteSet) -> Result<(), StoreError> {
        self.0.put(set)
    }

    fn unsettled(&self) -> usize {
        self.0.waiting()
    }

    fn settle(&self) -> Result<(), StoreError> {
        self.0.wait()
    }
}

/// A view of a [`SharedStore`].
pub struct SharedSnapshot<'a>(Box<dyn ReadRows + 'a>);

impl fmt::Debug for SharedSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedSnapshot").finish_non_exhaustive()
    }
}

impl Snapshot for SharedSnapshot<'_> {
    type Row<'s>
        = Arc<[u8]>
    where
        Self: 's;

    fn read(&self, table: Table, key: &[u8]) -> Result<Option<Arc<[u8]>>, StoreError> {
        self.0.row(table, key)
    }

    fn read_many(
        &self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Arc<[u8]>>>, StoreError> {
        self.0.rows(table, keys)
    }

    fn keep<'s>(row: Arc<[u8]>) -> Arc<[u8]>
    where
        Self: 's,
    {
        row
    }

    fn is_far(&self) -> bool {
        self.0.is_far()
    }

    fn shows(&self) -> Option<CommitOf> {
        self.0.shows()
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        self.0.scan(table, low, high, visit)
    }
}
