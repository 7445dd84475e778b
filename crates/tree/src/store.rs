//! The one interface between engine and disk.
//!
//! A store is a handful of ordered tables of byte rows, read through snapshots and changed by
//! atomic commits. Rows read through a snapshot borrow from it; a commit owns what it writes. The
//! engine knows no backend, and a backend knows no tree.

use std::error::Error as StdError;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use smallvec::SmallVec;

/// The tables of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Table {
    /// Pages of all trees: see docs/reference/formats.md.
    Pages = 0,
    /// One root record a tree.
    Roots = 1,
    /// Contract code by its Keccak-256 digest.
    Codes = 2,
    /// What is behind a hashed key.
    Preimages = 3,
    /// What the store as a whole remembers: block numbers, options.
    Meta = 4,
    /// One row a block: what it takes to go back before it.
    History = 5,
}

impl Table {
    /// All tables, in order.
    pub const ALL: [Self; 6] =
        [Self::Pages, Self::Roots, Self::Codes, Self::Preimages, Self::Meta, Self::History];

    /// The table's name, as backends and reports show it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pages => "pages",
            Self::Roots => "roots",
            Self::Codes => "codes",
            Self::Preimages => "preimages",
            Self::Meta => "meta",
            Self::History => "history",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a store could not do what it was asked. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// Another process has the store open for writing.
    #[error("{place} is in use by another process")]
    Busy {
        /// The store.
        place: String,
    },
    /// The bytes at this place are damaged.
    #[error("{place} is damaged: {what}")]
    Corrupt {
        /// The store, and what of it.
        place: String,
        /// What is wrong there.
        what: String,
    },
    /// The backend failed: a full disk, a closed connection, a missing permission.
    #[error("{place}: {source}")]
    Backend {
        /// The store.
        place: String,
        /// What the backend says.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// This is no store of ours, or one of another version.
    #[error("{place} is not a spinney store: {what}")]
    Foreign {
        /// The store.
        place: String,
        /// What is there instead.
        what: String,
    },
    /// There is no store at this place.
    #[error("there is no store at {place}")]
    Missing {
        /// Where it was looked for.
        place: String,
    },
}

/// The blocks whose commits a store keeps: see [`PageStore::kept_commits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptCommits {
    /// How many blocks.
    pub count: u64,
    /// The first of them. Not all blocks up to the last one need be among them.
    pub first: u64,
    /// The last of them.
    pub last: u64,
}

/// Where rows are kept. Any number of readers see the last commit while one writer prepares the
/// next.
pub trait PageStore: Send + Sync {
    /// A consistent view of the last commit.
    type Snapshot<'a>: Snapshot
    where
        Self: 'a;

    /// Opens a view of the last commit.
    fn snapshot(&self) -> Result<Self::Snapshot<'_>, StoreError>;

    /// Opens a view of an earlier commit that is kept: the one that brought the trees to a block,
    /// or the first one after it that is kept. `None` where there is none, and of a store that
    /// keeps the last commit alone.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn snapshot_of(&self, _block: u64) -> Result<Option<Self::Snapshot<'_>>, StoreError> {
        Ok(None)
    }

    /// The blocks whose commits are kept: those that [`snapshot_of`](Self::snapshot_of) shows the
    /// very states of. `None` where there are none, and of a store that keeps the last commit
    /// alone.
    ///
    /// # Errors
    /// If the store cannot be read.
    fn kept_commits(&self) -> Result<Option<KeptCommits>, StoreError> {
        Ok(None)
    }

    /// Applies a write set: all of it, durably, or none. A store that [writes behind](Self::settle)
    /// may answer before it is durable.
    fn commit(&self, set: &WriteSet) -> Result<(), StoreError>;

    /// As [`commit`](Self::commit), and takes the set over: a store that writes behind keeps it as
    /// it is.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    fn commit_owned(&self, set: WriteSet) -> Result<(), StoreError> {
        self.commit(&set)
    }

    /// How many commits are not durable yet: none, unless the store writes behind.
    fn unsettled(&self) -> usize {
        0
    }

    /// Waits until all that was committed is durable.
    ///
    /// # Errors
    /// If a commit that was taken could not be written.
    fn settle(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store that is lent: several trees may share it, and its owner closes it.
impl<P: PageStore> PageStore for &P {
    type Snapshot<'a>
        = P::Snapshot<'a>
    where
        Self: 'a;

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, StoreError> {
        P::snapshot(self)
    }

    fn snapshot_of(&self, block: u64) -> Result<Option<Self::Snapshot<'_>>, StoreError> {
        P::snapshot_of(self, block)
    }

    fn kept_commits(&self) -> Result<Option<KeptCommits>, StoreError> {
        P::kept_commits(self)
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        P::commit(self, set)
    }

    fn commit_owned(&self, set: WriteSet) -> Result<(), StoreError> {
        P::commit_owned(self, set)
    }

    fn unsettled(&self) -> usize {
        P::unsettled(self)
    }

    fn settle(&self) -> Result<(), StoreError> {
        P::settle(self)
    }
}

/// A commit of a store that is open: see [`Snapshot::shows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "stores make them")]
pub struct CommitOf {
    /// Names the store as it is open: no other one has it in this process.
    pub store: u64,
    /// Counts its commits.
    pub commit: u64,
}

/// A consistent view of a store.
pub trait Snapshot {
    /// A row's bytes, lent by the snapshot.
    type Row<'s>: Deref<Target = [u8]>
    where
        Self: 's;

    /// Reads one row.
    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<Self::Row<'s>>, StoreError>;

    /// Reads many rows in one call, one answer a key, in order.
    fn read_many<'s>(
        &'s self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Self::Row<'s>>>, StoreError> {
        keys.iter().map(|key| self.read(table, key)).collect()
    }

    /// A row that is to stay in memory: a copy, unless the store shares its rows.
    fn keep<'s>(row: Self::Row<'s>) -> Arc<[u8]>
    where
        Self: 's,
    {
        Arc::from(&*row)
    }

    /// Whether each call is answered from afar, so that one call that asks for more than is there
    /// costs less than a second one.
    fn is_far(&self) -> bool {
        false
    }

    /// Names the commit that the snapshot shows, where the store can: in this process, two
    /// snapshots of the same name hold the same rows. A tree that has found a snapshot to show its
    /// last commit reads the root record in no other snapshot of that name.
    fn shows(&self) -> Option<CommitOf> {
        None
    }

    /// Hands each row with `low <= key < high` to `visit`, in order of keys, until it answers
    /// `false`.
    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError>;
}

/// Rows to write and to remove, applied as one. Ranges are dropped first.
#[derive(Clone, Debug, Default)]
pub struct WriteSet {
    drops: Vec<(Table, Vec<u8>, Vec<u8>)>,
    rows: Vec<Change>,
}

/// A row to write, or to remove where there is no value; and the row before, where that is known.
type Change = (Table, Key, Option<Arc<[u8]>>, Option<Arc<[u8]>>);

/// A row of a write set: see [`WriteSet::rows_over`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RowOver<'a> {
    /// Its table.
    pub table: Table,
    /// Its key.
    pub key: &'a [u8],
    /// The row to write, or `None` to remove it.
    pub row: Option<&'a [u8]>,
    /// The row of the last commit, where the writer had it.
    pub before: Option<&'a [u8]>,
}

/// The key of a row. Those of most pages need no memory of their own.
type Key = SmallVec<[u8; 44]>;

impl WriteSet {
    /// Nothing to write.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes a row, over whatever is there.
    pub fn put(&mut self, table: Table, key: &[u8], value: impl Into<Arc<[u8]>>) {
        self.rows.push((table, Key::from_slice(key), Some(value.into()), None));
    }

    /// Writes a row over another one. A store that writes what changed takes that from `before`,
    /// which has to be the row of the last commit.
    pub fn put_over(
        &mut self,
        table: Table,
        key: &[u8],
        value: impl Into<Arc<[u8]>>,
        before: Option<Arc<[u8]>>,
    ) {
        self.rows.push((table, Key::from_slice(key), Some(value.into()), before));
    }

    /// Removes a row, if there is one.
    pub fn delete(&mut self, table: Table, key: &[u8]) {
        self.rows.push((table, Key::from_slice(key), None, None));
    }

    /// Removes all rows with `low < key < high` that were there before this write set.
    pub fn drop_range(&mut self, table: Table, low: Vec<u8>, high: Vec<u8>) {
        self.drops.push((table, low, high));
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.drops.is_empty() && self.rows.is_empty()
    }

    /// Makes room for so many rows more.
    pub(crate) fn reserve(&mut self, rows: usize) {
        self.rows.reserve(rows);
    }

    /// Sorts the rows by table and key, as B-trees like them. The last write of a key wins.
    pub fn sort(&mut self) {
        /// So many rows are sorted as they are.
        const FEW_ROWS: usize = 16;
        if self.rows.is_sorted_by(|a, b| (a.0, &a.1) < (b.0, &b.1)) {
            return;
        }
        if self.rows.len() <= FEW_ROWS {
            self.rows.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
            // Of rows with one key the last one stays: it takes the place of the one before it.
            self.rows.dedup_by(|later, first| {
                let same = (later.0, &later.1) == (first.0, &first.1);
                if same {
                    std::mem::swap(later, first);
                }
                same
            });
            return;
        }
        // Rows of one tree begin alike. What follows decides as a rule, and moves with its row's
        // place alone.
        let first = self.rows[0].1.clone();
        let alike = self.rows.iter().fold(first.len(), |alike, (_, key, ..)| {
            let same = |(a, b): &(&u8, &u8)| a == b;
            first[..alike].iter().zip(&key[..]).take_while(same).count()
        });
        let head = |key: &[u8]| {
            let rest = &key[alike..];
            let mut head = [0; 8];
            let len = rest.len().min(head.len());
            head[..len].copy_from_slice(&rest[..len]);
            u64::from_be_bytes(head)
        };
        let places = self.rows.iter().zip(0..);
        let mut order: Vec<(Table, u64, usize)> =
            places.map(|(row, place)| (row.0, head(&row.1), place)).collect();
        let rows = &self.rows;
        order.sort_unstable_by(|a, b| {
            let first = (a.0, a.1).cmp(&(b.0, b.1));
            first.then_with(|| (&rows[a.2].1, a.2).cmp(&(&rows[b.2].1, b.2)))
        });
        // Of rows with one key the last one stays.
        let same = |a: usize, b: usize| {
            (self.rows[a].0, &self.rows[a].1) == (self.rows[b].0, &self.rows[b].1)
        };
        let mut kept = Vec::with_capacity(order.len());
        for (index, &(.., place)) in order.iter().enumerate() {
            if order.get(index + 1).is_none_or(|next| !same(place, next.2)) {
                kept.push(place);
            }
        }
        let mut take = |place: usize| {
            let (table, key, value, before) = &mut self.rows[place];
            (*table, std::mem::take(key), value.take(), before.take())
        };
        self.rows = kept.into_iter().map(&mut take).collect();
    }

    /// What a sorted set does to one row: a value, or `None` where it removes the row; nothing
    /// where it does not name the row.
    ///
    /// ```
    /// # use spinney_tree::{Table, WriteSet};
    /// let mut set = WriteSet::new();
    /// set.put(Table::Meta, b"b", *b"value");
    /// set.delete(Table::Meta, b"a");
    /// set.sort();
    /// assert_eq!(set.row(Table::Meta, b"a"), Some(None));
    /// assert_eq!(set.row(Table::Meta, b"b").flatten().unwrap()[..], *b"value");
    /// assert_eq!(set.row(Table::Meta, b"c"), None);
    /// ```
    pub fn row(&self, table: Table, key: &[u8]) -> Option<Option<&Arc<[u8]>>> {
        let place =
            self.rows.binary_search_by(|row| (row.0, &row.1[..]).cmp(&(table, key))).ok()?;
        Some(self.rows[place].2.as_ref())
    }

    /// The rows of a sorted set with `low <= key < high`, in order.
    pub fn rows_between<'s>(
        &'s self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> impl Iterator<Item = (&'s [u8], Option<&'s [u8]>)> {
        let before = |(of, key): (Table, &[u8])| {
            self.rows.partition_point(|row| (row.0, &row.1[..]) < (of, key))
        };
        let from = before((table, low));
        let to = match high {
            Some(high) => before((table, high)),
            None => self.rows.partition_point(|row| row.0 <= table),
        };
        self.rows[from..to.max(from)].iter().map(|(_, key, row, _)| (&key[..], row.as_deref()))
    }

    /// The ranges to drop: table, lower and upper bound, both exclusive.
    pub fn drops(&self) -> impl ExactSizeIterator<Item = (Table, &[u8], &[u8])> {
        self.drops.iter().map(|(table, low, high)| (*table, &low[..], &high[..]))
    }

    /// The rows: a value to write, or `None` to remove.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = (Table, &[u8], Option<&[u8]>)> {
        self.changes().map(|(table, key, row)| (table, key, row.map(|row| &**row)))
    }

    pub(crate) fn changes(
        &self,
    ) -> impl ExactSizeIterator<Item = (Table, &[u8], Option<&Arc<[u8]>>)> {
        self.rows.iter().map(|(table, key, row, _)| (*table, &key[..], row.as_ref()))
    }

    /// The rows, each with the row before, where that is known.
    pub fn rows_over(&self) -> impl ExactSizeIterator<Item = RowOver<'_>> {
        self.rows.iter().map(|(table, key, row, before)| RowOver {
            table: *table,
            key,
            row: row.as_deref(),
            before: before.as_deref(),
        })
    }

    /// Bytes of keys and values written to a table: the logical size of the commit.
    pub fn bytes(&self, table: Table) -> u64 {
        let row = |(_, key, value): (Table, &[u8], Option<&[u8]>)| {
            value.map_or(0, |value| (key.len() + value.len()) as u64)
        };
        self.rows().filter(|row| row.0 == table).map(row).sum()
    }

    /// How many rows of a table are written.
    pub fn count(&self, table: Table) -> u64 {
        self.rows().filter(|row| row.0 == table && row.2.is_some()).count() as u64
    }
}
