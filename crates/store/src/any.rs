//! One type for all stores.

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;

#[cfg(feature = "postgres")]
use spinney_postgres::Address;
use spinney_tree::{
    CommitOf, KeptCommits, MemorySnapshot, MemoryStore, PageStore, Snapshot, StoreError, Table,
    WriteSet,
};

use crate::creation;
use crate::files::Files;
use crate::folder::Folder;
use crate::guard::backend;
use crate::log_store::{LogRow, LogSnapshot, LogStore};
#[cfg(feature = "postgres")]
use crate::postgres::{PostgresSnapshot, PostgresStore};
use crate::redb_store::RedbStore;
use crate::snapshot::{RedbRow, RedbSnapshot};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use crate::sql::SqlRow;
#[cfg(feature = "sqlite")]
use crate::sqlite::{self, SqliteSnapshot, SqliteStore};
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
    /// In a directory, as a log.
    Log(LogStore),
    /// In a SQLite file.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteStore),
    /// In a PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres(PostgresStore),
}

/// Where a store is, or is to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Location {
    /// The directory of a redb store.
    Redb(PathBuf),
    /// The directory of a log.
    Log(PathBuf),
    /// The file of a SQLite store.
    #[cfg(feature = "sqlite")]
    Sqlite(PathBuf),
    /// The schema of a PostgreSQL store.
    #[cfg(feature = "postgres")]
    Postgres(Address),
}

/// What a store is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenFor {
    /// To write it; made if there is none.
    Filling,
    /// To write it.
    Writing,
    /// To read it, also while another process writes it.
    Reading,
}

/// As messages name the place: an address without its password.
impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redb(path) | Self::Log(path) => path.display().fmt(f),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(path) => path.display().fmt(f),
            #[cfg(feature = "postgres")]
            Self::Postgres(address) => address.fmt(f),
        }
    }
}

impl Location {
    /// A directory: of a redb store if there is one, else of a log.
    pub fn directory(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        if !LogStore::is_at(&path) && RedbStore::is_at(&path) {
            Self::Redb(path)
        } else {
            Self::Log(path)
        }
    }

    /// Opens the store there. The memory for pages of the file is `cache_bytes`.
    ///
    /// # Errors
    /// As those of its kind: [`RedbStore::open`], [`SqliteStore::open`], [`PostgresStore::open`].
    pub fn open(&self, what_for: OpenFor, cache_bytes: usize) -> Result<AnyStore, StoreError> {
        self.open_on(&Files::System, what_for, cache_bytes)
    }

    pub(crate) fn open_on(
        &self,
        files: &Files,
        what_for: OpenFor,
        cache: usize,
    ) -> Result<AnyStore, StoreError> {
        use OpenFor::{Filling, Reading, Writing};
        Ok(match (self, what_for) {
            (Self::Redb(at), Filling) => RedbStore::open_or_create_on(files, at, cache)?.into(),
            (Self::Redb(at), Writing) => RedbStore::open_on(files, at, cache)?.into(),
            (Self::Redb(at), Reading) => RedbStore::open_read_only_on(files, at, cache)?.into(),
            (Self::Log(at), Filling) => LogStore::open_or_create_on(files, at)?.into(),
            (Self::Log(at), Writing) => LogStore::open_on(files, at)?.into(),
            (Self::Log(at), Reading) => LogStore::open_read_only_on(files, at)?.into(),
            #[cfg(feature = "sqlite")]
            (Self::Sqlite(at), Filling) => SqliteStore::open_or_create_on(files, at, cache)?.into(),
            #[cfg(feature = "sqlite")]
            (Self::Sqlite(at), Writing) => SqliteStore::open_on(files, at, cache)?.into(),
            #[cfg(feature = "sqlite")]
            (Self::Sqlite(at), Reading) => SqliteStore::open_read_only_on(files, at, cache)?.into(),
            #[cfg(feature = "postgres")]
            (Self::Postgres(at), Filling) => PostgresStore::open_or_create(at)?.into(),
            #[cfg(feature = "postgres")]
            (Self::Postgres(at), Writing) => PostgresStore::open(at)?.into(),
            #[cfg(feature = "postgres")]
            (Self::Postgres(at), Reading) => PostgresStore::open_read_only(at)?.into(),
        })
    }

    /// Removes the store there with all that it holds. There is no way back.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, [`StoreError::Busy`] if somebody has it open for
    /// writing, or if it cannot be removed.
    pub fn remove(&self) -> Result<(), StoreError> {
        self.remove_on(&Files::System)
    }

    pub(crate) fn remove_on(&self, files: &Files) -> Result<(), StoreError> {
        match self {
            Self::Redb(at) => {
                // Refused while there is a writer, and whatever is no store.
                RedbStore::open_on(files, at, 0)?.close()?;
                let folder = Folder::new(files, at);
                folder.remove(&folder.own())
            }
            Self::Log(at) => {
                LogStore::open_on(files, at)?.close()?;
                LogStore::remove(files, at, &LogStore::own(at))
            }
            #[cfg(feature = "sqlite")]
            Self::Sqlite(at) => {
                SqliteStore::open_on(files, at, 0)?.close()?;
                SqliteStore::remove(files, at, &[sqlite::lock_of(at)].into())
            }
            #[cfg(feature = "postgres")]
            Self::Postgres(at) => PostgresStore::remove(at),
        }
    }

    /// Gives the store of files here, which was closed, the place `target`, where nothing is yet.
    /// Everything is made durable before it has that name, and the name itself afterwards.
    ///
    /// ```
    /// # use spinney_store::{Location, OpenFor};
    /// # let folder = tempfile::tempdir()?;
    /// let part = Location::Sqlite(folder.path().join("state.part"));
    /// let whole = Location::Sqlite(folder.path().join("state.sqlite"));
    /// part.open(OpenFor::Filling, 1 << 20)?.close()?;
    /// part.publish(&whole)?;
    /// whole.open(OpenFor::Writing, 1 << 20)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the store is not whole in the file that is renamed, since its log could not be carried
    /// over; if there is something at the target, both are not of one kind of file, or the disk
    /// fails. Then nothing has the target's name.
    pub fn publish(&self, target: &Self) -> Result<(), StoreError> {
        self.publish_on(&Files::System, target)
    }

    pub(crate) fn publish_on(&self, files: &Files, target: &Self) -> Result<(), StoreError> {
        let (from, to) = match (self, target) {
            (Self::Redb(from), Self::Redb(to)) | (Self::Log(from), Self::Log(to)) => (from, to),
            #[cfg(feature = "sqlite")]
            (Self::Sqlite(from), Self::Sqlite(to)) => {
                sqlite::alone(files, from, from)?;
                (from, to)
            }
            _ => return Err(backend(self, "only files can be renamed, and to their own kind")),
        };
        if let Self::Log(_) = self {
            LogStore::remove_rest(files, to)?;
        }
        match files.find(to) {
            Ok(None) => {}
            Ok(Some(_)) => return Err(backend(target, "there is something already")),
            Err(error) => return Err(backend(target, error)),
        }
        creation::publish(files, from, to).map_err(|error| backend(target, error))?;
        #[cfg(feature = "sqlite")]
        if let Self::Sqlite(from) = self {
            // The lock has the name of what is gone.
            let _ = files.remove(&sqlite::lock_of(from));
        }
        Ok(())
    }

    /// As [`go_on`](Self::go_on), but what was begun on a server and never finished is dropped.
    ///
    /// # Errors
    /// As [`go_on`](Self::go_on).
    pub fn begin(&self, cache_bytes: usize) -> Result<AnyStore, StoreError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(at) => Ok(PostgresStore::begin(at)?.into()),
            _ => self.open(OpenFor::Filling, cache_bytes),
        }
    }

    /// Begins a store on a server that nobody sees before it is [finished](AnyStore::finish), or
    /// goes on with one that was begun and is not. Files have no such state: they are made under
    /// another name.
    ///
    /// # Errors
    /// If there is a finished store already, somebody else is filling it, or it cannot be made.
    pub fn go_on(&self, cache_bytes: usize) -> Result<AnyStore, StoreError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(at) => Ok(PostgresStore::go_on(at)?.into()),
            _ => self.open(OpenFor::Filling, cache_bytes),
        }
    }

    /// Creates a store that `fill` puts rows into. Nobody sees it before `fill` is done: refused or
    /// cut off, there is no store.
    ///
    /// ```
    /// # use spinney_store::Location;
    /// # use spinney_tree::{PageStore, StoreError, Table, WriteSet};
    /// # let folder = tempfile::tempdir()?;
    /// let location = Location::Sqlite(folder.path().join("state.sqlite"));
    /// let store = location.create_filled(1 << 20, |store| {
    ///     let mut set = WriteSet::new();
    ///     set.put(Table::Meta, b"head", *b"12");
    ///     store.commit(&set)
    /// })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there is a store already, none can be made, or `fill` fails.
    pub fn create_filled<E: From<StoreError>>(
        &self,
        cache_bytes: usize,
        fill: impl FnOnce(&AnyStore) -> Result<(), E>,
    ) -> Result<AnyStore, E> {
        self.create_filled_on(&Files::System, cache_bytes, fill)
    }

    pub(crate) fn create_filled_on<E: From<StoreError>>(
        &self,
        files: &Files,
        cache_bytes: usize,
        fill: impl FnOnce(&AnyStore) -> Result<(), E>,
    ) -> Result<AnyStore, E> {
        Ok(match self {
            Self::Redb(at) => RedbStore::create_by(files, at, cache_bytes, |store| {
                let store = AnyStore::from(store);
                fill(&store)?;
                Ok::<_, E>(store.close()?)
            })?
            .into(),
            Self::Log(at) => LogStore::create_by(files, at, |store| {
                let store = AnyStore::from(store);
                fill(&store)?;
                Ok::<_, E>(store.close()?)
            })?
            .into(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(at) => SqliteStore::create_by(files, at, cache_bytes, |store| {
                let store = AnyStore::from(store);
                fill(&store)?;
                Ok::<_, E>(store.close()?)
            })?
            .into(),
            #[cfg(feature = "postgres")]
            Self::Postgres(at) => {
                let store = AnyStore::from(PostgresStore::begin(at)?);
                let filled = fill(&store).and_then(|()| Ok(store.finish()?));
                if let (Err(error), AnyStore::Postgres(store)) = (filled, &store) {
                    // What is left the next creation removes; the first error says more.
                    let _ = store.discard();
                    return Err(error);
                }
                store
            }
        })
    }
}

impl AnyStore {
    /// Ends the making of a store that was [begun](Location::go_on) on a server: from now on it is
    /// there.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub fn finish(&self) -> Result<(), StoreError> {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.finish(),
            _ => Ok(()),
        }
    }

    /// An empty store in memory.
    pub fn memory() -> Self {
        Self::Memory(MemoryStore::new())
    }

    /// Bytes and calls that passed between the store and its file or server; none in memory.
    pub fn io(&self) -> IoCounts {
        match self {
            Self::Memory(_) => IoCounts::default(),
            Self::Redb(store) => store.io(),
            Self::Log(store) => store.io(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.io(),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.io(),
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
            Self::Log(store) => store.stats(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.stats(),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.stats(),
        }
    }

    /// The kind of store.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redb(_) => "redb",
            Self::Log(_) => "log",
            #[cfg(feature = "sqlite")]
            Self::Sqlite(_) => "sqlite",
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => "postgres",
        }
    }

    /// Reads everything and verifies what the store itself has to verify it by; nothing in memory.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] at the first damage found.
    pub fn check(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redb(store) => store.check(),
            Self::Log(store) => store.check(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.check(),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.check(),
        }
    }

    /// Gives space that no row uses back to the file system.
    ///
    /// # Errors
    /// If others read the store, or it cannot be written or is damaged.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redb(store) => store.compact().map(drop),
            Self::Log(store) => store.compact(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.compact(),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.compact(),
        }
    }

    /// Closes the store and says whether that went well.
    ///
    /// # Errors
    /// As those of its kind.
    pub fn close(self) -> Result<(), StoreError> {
        match self {
            Self::Memory(_) => Ok(()),
            Self::Redb(store) => store.close(),
            Self::Log(store) => store.close(),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.close(),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.close(),
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

impl From<LogStore> for AnyStore {
    fn from(store: LogStore) -> Self {
        Self::Log(store)
    }
}

#[cfg(feature = "sqlite")]
impl From<SqliteStore> for AnyStore {
    fn from(store: SqliteStore) -> Self {
        Self::Sqlite(store)
    }
}

#[cfg(feature = "postgres")]
impl From<PostgresStore> for AnyStore {
    fn from(store: PostgresStore) -> Self {
        Self::Postgres(store)
    }
}

impl PageStore for AnyStore {
    type Snapshot<'a> = AnySnapshot<'a>;

    fn snapshot(&self) -> Result<AnySnapshot<'_>, StoreError> {
        Ok(match self {
            Self::Memory(store) => AnySnapshot::Memory(store.snapshot()?),
            Self::Redb(store) => AnySnapshot::Redb(store.snapshot()?),
            Self::Log(store) => AnySnapshot::Log(store.snapshot()?),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => AnySnapshot::Sqlite(store.snapshot()?),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => AnySnapshot::Postgres(store.snapshot()?),
        })
    }

    fn snapshot_of(&self, block: u64) -> Result<Option<AnySnapshot<'_>>, StoreError> {
        match self {
            Self::Log(store) => Ok(store.snapshot_of(block)?.map(AnySnapshot::Log)),
            _ => Ok(None),
        }
    }

    fn kept_commits(&self) -> Result<Option<KeptCommits>, StoreError> {
        match self {
            Self::Log(store) => store.kept_commits(),
            _ => Ok(None),
        }
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        match self {
            Self::Memory(store) => store.commit(set),
            Self::Redb(store) => store.commit(set),
            Self::Log(store) => store.commit(set),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(store) => store.commit(set),
            #[cfg(feature = "postgres")]
            Self::Postgres(store) => store.commit(set),
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
    /// Of a log.
    Log(LogSnapshot<'a>),
    /// Of a store in a SQLite file.
    #[cfg(feature = "sqlite")]
    Sqlite(SqliteSnapshot<'a>),
    /// Of a store in a PostgreSQL database.
    #[cfg(feature = "postgres")]
    Postgres(PostgresSnapshot<'a>),
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
            Self::Log(snapshot) => snapshot.read(table, key)?.map(AnyRow::Log),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(snapshot) => snapshot.read(table, key)?.map(AnyRow::Sql),
            #[cfg(feature = "postgres")]
            Self::Postgres(snapshot) => snapshot.read(table, key)?.map(AnyRow::Sql),
        })
    }

    fn read_many<'s>(
        &'s self,
        table: Table,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<AnyRow<'s>>>, StoreError> {
        #[cfg(any(feature = "sqlite", feature = "postgres"))]
        let sql = |rows: Vec<Option<SqlRow<'s>>>| {
            rows.into_iter().map(|row| row.map(AnyRow::Sql)).collect()
        };
        match self {
            #[cfg(feature = "sqlite")]
            Self::Sqlite(snapshot) => snapshot.read_many(table, keys).map(sql),
            #[cfg(feature = "postgres")]
            Self::Postgres(snapshot) => snapshot.read_many(table, keys).map(sql),
            Self::Memory(_) | Self::Redb(_) | Self::Log(_) => {
                keys.iter().map(|key| self.read(table, key)).collect()
            }
        }
    }

    fn is_far(&self) -> bool {
        match self {
            #[cfg(feature = "postgres")]
            Self::Postgres(_) => true,
            _ => false,
        }
    }

    fn shows(&self) -> Option<CommitOf> {
        match self {
            Self::Log(snapshot) => snapshot.shows(),
            _ => None,
        }
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
            Self::Log(snapshot) => snapshot.scan(table, low, high, visit),
            #[cfg(feature = "sqlite")]
            Self::Sqlite(snapshot) => snapshot.scan(table, low, high, visit),
            #[cfg(feature = "postgres")]
            Self::Postgres(snapshot) => snapshot.scan(table, low, high, visit),
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
    /// Of a log.
    Log(LogRow<'s>),
    /// Of a store over SQL.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    Sql(SqlRow<'s>),
}

impl Deref for AnyRow<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Memory(row) => row,
            Self::Redb(row) => row,
            Self::Log(row) => row,
            #[cfg(any(feature = "sqlite", feature = "postgres"))]
            Self::Sql(row) => row,
        }
    }
}
