//! Views of a redb store, and the rows they lend.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::fmt;
use std::mem;
use std::ops::{Bound, Deref};

use redb::{AccessGuard, Range, ReadOnlyTable, ReadableTable, ReadableTableMetadata};
use spinney_tree::{Snapshot, StoreError, Table};

use crate::guard::{corrupt, guarded};
use crate::seal::{self, SEAL_BYTES};

type Rows = ReadOnlyTable<&'static [u8], &'static [u8]>;

/// A view of a [`RedbStore`](crate::RedbStore), which later commits leave alone.
///
/// It cannot outlive its store:
///
/// ```compile_fail,E0505
/// # use spinney_store::RedbStore;
/// # use spinney_tree::{PageStore, Snapshot, Table};
/// # let folder = tempfile::tempdir().unwrap();
/// let store = RedbStore::create(folder.path(), 1 << 20).unwrap();
/// let snapshot = store.snapshot().unwrap();
/// drop(store);
/// snapshot.read(Table::Meta, b"head").unwrap();
/// ```
///
/// nor can a store be closed or compacted under it:
///
/// ```compile_fail,E0502
/// # use spinney_store::RedbStore;
/// # use spinney_tree::{PageStore, Snapshot, Table};
/// # let folder = tempfile::tempdir().unwrap();
/// let mut store = RedbStore::create(folder.path(), 1 << 20).unwrap();
/// let snapshot = store.snapshot().unwrap();
/// store.compact().unwrap();
/// snapshot.read(Table::Meta, b"head").unwrap();
/// ```
pub struct RedbSnapshot<'a> {
    /// In the order of [`Table::ALL`]; `None` where the store's format has no such table. Empty
    /// only while it is dropped.
    tables: Vec<Option<Rows>>,
    /// Borrowed from the store, so that it outlives the snapshot.
    place: &'a str,
}

/// Names a row in an error.
pub(crate) struct At<'a>(pub(crate) &'a str, pub(crate) Table, pub(crate) &'a [u8]);

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, table {}, row 0x", self.0, self.1)?;
        self.2.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RedbSnapshot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbSnapshot").field("place", &self.place).finish_non_exhaustive()
    }
}

impl<'a> RedbSnapshot<'a> {
    pub(crate) const fn new(tables: Vec<Option<Rows>>, place: &'a str) -> Self {
        Self { tables, place }
    }

    /// How many rows redb says a table has.
    pub(crate) fn rows(&self, table: Table) -> Result<u64, StoreError> {
        let Some(Some(rows)) = self.tables.get(table as usize) else { return Ok(0) };
        guarded(self.place, || Ok(rows.len()?))
    }
}

impl Drop for RedbSnapshot<'_> {
    fn drop(&mut self) {
        let tables = mem::take(&mut self.tables);
        // A lock poisoned by damage found before makes redb panic here.
        let _ = guarded(self.place, || {
            drop(tables);
            Ok(())
        });
    }
}

impl Snapshot for RedbSnapshot<'_> {
    type Row<'s>
        = RedbRow<'s>
    where
        Self: 's;

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<RedbRow<'s>>, StoreError> {
        let Some(Some(rows)) = self.tables.get(table as usize) else { return Ok(None) };
        let at = At(self.place, table, key);
        let found = guarded(&at, || {
            let row = ReadableTable::get(rows, key)?;
            Ok(row.map(|row| (seal::read(table as u64, key, row.value()).is_some(), row)))
        })?;
        match found {
            None => Ok(None),
            Some((true, row)) => Ok(Some(RedbRow { row })),
            Some((false, _)) => Err(broken(at)),
        }
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        let Some(Some(rows)) = self.tables.get(table as usize) else { return Ok(()) };
        if high.is_some_and(|high| high <= low) {
            return Ok(());
        }
        let bounds = (Bound::Included(low), high.map_or(Bound::Unbounded, Bound::Excluded));
        let start = At(self.place, table, low);
        let mut rows = guarded(&start, || Ok(ReadableTable::range::<&[u8]>(rows, bounds)?))?;
        while let Some((key, row)) = guarded(&start, || next(&mut rows))? {
            // The visitor's own panics are none of ours: it runs outside the guard.
            let (key, stored) = (key.value(), row.value());
            let Some(value) = seal::read(table as u64, key, stored) else {
                return Err(broken(At(self.place, table, key)));
            };
            if !visit(key, value) {
                break;
            }
        }
        Ok(())
    }
}

type Pair<'a> = (AccessGuard<'a, &'static [u8]>, AccessGuard<'a, &'static [u8]>);

/// The next pair of a range, touched once, so that it can be touched again outside the guard.
fn next<'a>(
    rows: &mut Range<'a, &'static [u8], &'static [u8]>,
) -> Result<Option<Pair<'a>>, redb::Error> {
    let Some(pair) = rows.next() else {
        return Ok(None);
    };
    let (key, row) = pair?;
    let _ = (key.value(), row.value());
    Ok(Some((key, row)))
}

pub(crate) fn broken(at: At<'_>) -> StoreError {
    corrupt(at, "it does not match its checksum")
}

/// A row lent by a [`RedbSnapshot`]: the bytes are those of redb's own page.
///
/// It cannot outlive its snapshot:
///
/// ```compile_fail,E0505
/// # use spinney_store::RedbStore;
/// # use spinney_tree::{PageStore, Snapshot, Table};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = RedbStore::create(folder.path(), 1 << 20).unwrap();
/// let snapshot = store.snapshot().unwrap();
/// let row = snapshot.read(Table::Meta, b"head").unwrap();
/// drop(snapshot);
/// assert_eq!(row.as_deref(), None);
/// ```
///
/// nor can a slice of it outlive the row:
///
/// ```compile_fail,E0597
/// # use spinney_store::RedbStore;
/// # use spinney_tree::{PageStore, Snapshot, Table};
/// # let folder = tempfile::tempdir().unwrap();
/// # let store = RedbStore::create(folder.path(), 1 << 20).unwrap();
/// let snapshot = store.snapshot().unwrap();
/// let slice: &[u8] = {
///     let row = snapshot.read(Table::Meta, b"head").unwrap().unwrap();
///     &row[..]
/// };
/// assert!(slice.is_empty());
/// ```
pub struct RedbRow<'s> {
    row: AccessGuard<'s, &'static [u8]>,
}

impl Deref for RedbRow<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let stored = self.row.value();
        stored.split_last_chunk::<SEAL_BYTES>().map_or(&[], |(value, _)| value)
    }
}

impl fmt::Debug for RedbRow<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedbRow").field(&&**self).finish()
    }
}
