//! What a store holds and what it cost.

use std::ops::Sub;

use spinney_tree::Table;

/// What passed between a store and its file since it was opened.
///
/// ```
/// # use spinney_store::RedbStore;
/// # use spinney_tree::{PageStore, Table, WriteSet};
/// # let folder = tempfile::tempdir()?;
/// # let store = RedbStore::create(folder.path(), 1 << 20)?;
/// let before = store.io();
/// let mut set = WriteSet::new();
/// set.put(Table::Meta, b"key", *b"value");
/// store.commit(&set)?;
/// let commit = store.io() - before;
/// assert!(commit.bytes_written >= 8 && commit.syncs >= 1);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct IoCounts {
    /// Bytes asked of read calls: those that the store's cache did not answer.
    pub bytes_read: u64,
    /// Read calls.
    pub reads: u64,
    /// Bytes handed to write calls.
    pub bytes_written: u64,
    /// Write calls.
    pub writes: u64,
    /// Waits for the disk.
    pub syncs: u64,
    /// Questions to a server, each answered before the next; none where there is no server.
    pub round_trips: u64,
}

impl Sub for IoCounts {
    type Output = Self;

    /// What passed since `earlier`.
    fn sub(self, earlier: Self) -> Self {
        Self {
            bytes_read: self.bytes_read - earlier.bytes_read,
            reads: self.reads - earlier.reads,
            bytes_written: self.bytes_written - earlier.bytes_written,
            writes: self.writes - earlier.writes,
            syncs: self.syncs - earlier.syncs,
            round_trips: self.round_trips - earlier.round_trips,
        }
    }
}

/// What a store holds: see [`RedbStore::stats`](crate::RedbStore::stats).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// One entry a table, in the order of [`Table::ALL`].
    pub tables: Vec<TableStats>,
    /// The length of the file, free space included. 0 in memory.
    pub file_bytes: u64,
}

impl StoreStats {
    /// Bytes of the file that no table takes: free space, which later commits use and
    /// [compaction](crate::RedbStore::compact) gives back, and the backend's own records. 0 in
    /// memory.
    pub fn unused_bytes(&self) -> u64 {
        let taken =
            |table: &TableStats| table.stored_bytes + table.metadata_bytes + table.fragmented_bytes;
        self.file_bytes.saturating_sub(self.tables.iter().map(taken).sum())
    }
}

/// What a table holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableStats {
    /// Which one.
    pub table: Table,
    /// Its rows.
    pub rows: u64,
    /// Bytes of its keys and values, with 8 for the seal of each row.
    pub stored_bytes: u64,
    /// Bytes that lead to them: branches, offsets.
    pub metadata_bytes: u64,
    /// Bytes within its pages that hold nothing.
    pub fragmented_bytes: u64,
}

impl TableStats {
    pub(crate) const fn new(table: Table) -> Self {
        Self { table, rows: 0, stored_bytes: 0, metadata_bytes: 0, fragmented_bytes: 0 }
    }
}
