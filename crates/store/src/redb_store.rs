//! The redb store: opening, committing, closing.
//!
//! ```text
//! redb table   key        value
//! spinney      "format"   store format version (4, LE), sealed    what makes it a store of ours
//! pages ..     row key    row, sealed                             one redb table a [`Table`]
//! ```
//!
//! | format | what is new |
//! |---|---|
//! | 1 | the tables pages, roots, codes, preimages and meta |
//! | 2 | the table history |
//!
//! An older format is brought up to date when the store is opened for writing, in one transaction;
//! opened read-only it is read as it is, and its missing tables are empty. A newer one is refused.
//!
//! Invariants:
//! - a store that opens has the format row and all tables: both are made before it gets its name;
//! - every commit is durable when it returns, and leaves what a reopen needs beside the rows
//!   (`quick_repair`), so that no reopen walks the file.

use std::fmt;
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use redb::{
    Builder, ConcurrencyMode, Database, DatabaseError, Durability, ReadOnlyDatabase, ReadOnlyTable,
    ReadTransaction, ReadableDatabase, ReadableTableMetadata, StorageBackend, StorageError,
    TableDefinition, WriteTransaction,
};
use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};

use crate::files::{Files, Opened};
use crate::folder::Folder;
use crate::guard::{backend, corrupt, foreign, guarded};
use crate::metered::{Meter, Metered};
use crate::redb_rows::{self, Bytes, RowChange, definition};
use crate::seal::{self, SEAL_BYTES};
use crate::snapshot::RedbSnapshot;
use crate::stats::{IoCounts, StoreStats, TableStats};

/// The newest format described above.
const FORMAT: u32 = 2;
const HEADER: TableDefinition<'_, Bytes, Bytes> = TableDefinition::new("spinney");
const FORMAT_KEY: &[u8] = b"format";
/// What the header's seals are seeded with, in place of a table.
const HEADER_SEED: u64 = u64::MAX;

/// The first format that has a table.
const fn since(table: Table) -> u32 {
    match table {
        Table::History => 2,
        _ => 1,
    }
}

/// A store in a directory: one file of the embedded database redb.
///
/// Each commit is durable when it returns. Any number of threads may read and commit; commits take
/// turns. The store's memory is `cache_bytes`, for pages of the file read or not yet written.
///
/// # Other processes
/// One process has a store open for writing; a second one gets [`StoreError::Busy`]. Meanwhile any
/// number of processes may [open it read-only](Self::open_read_only), before or after the writer
/// opens it: each of their snapshots is of the last commit that was durable when it was taken, and
/// stays as it is while the writer goes on. What a snapshot shows cannot be reclaimed, so one held
/// for long, in whichever process, makes the file grow.
///
/// This needs locks on ranges of a file: there are such on Linux, macOS and Windows and on most of
/// their file systems. Where there are none, a writer and readers exclude one another, as `Busy`.
///
/// # After a failure
/// If a commit fails with [`StoreError::Backend`], because the disk is full for instance, all
/// further commits fail until the store is opened again, and so do reads that the cache does not
/// answer; what can be read is the state before that commit. Opened again, the store is in the
/// state before the commit or, if the failure came in its very last step, after it; in no other.
///
/// # Damage
/// Rows carry checksums, so a damaged row is [`StoreError::Corrupt`]. Damage to what leads to a row
/// can make it seem absent: [`check`](Self::check) finds that, and root records are counted at each
/// opening. One bit of a redb file, the lowest of byte 9, has no checksum over it: it says which of
/// the last two commits holds, and flipped, in a store that was not closed, it undoes the last
/// commit.
///
/// redb takes its record of free space on trust. Where that is damaged, a commit or a close may
/// fail, or overwrite rows (whose checksums then show it), or, for seven of 47,768 flipped bits
/// tried, make redb panic twice at once, which ends the process. So what may be damaged is opened
/// read-only, or checked as soon as it is open.
///
/// ```
/// use spinney_store::RedbStore;
/// use spinney_tree::{PageStore, Snapshot, Table, WriteSet};
///
/// let folder = tempfile::tempdir()?;
/// let store = RedbStore::open_or_create(folder.path(), 1 << 20)?;
/// let mut set = WriteSet::new();
/// set.put(Table::Meta, b"head", *b"12");
/// store.commit(&set)?;
///
/// let reader = RedbStore::open_read_only(folder.path(), 1 << 20)?;
/// let snapshot = reader.snapshot()?;
/// let row = snapshot.read(Table::Meta, b"head")?;
/// assert_eq!(row.as_deref(), Some(&b"12"[..]));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct RedbStore {
    handle: Handle,
    place: String,
    file: Option<PathBuf>,
    meter: Arc<Meter>,
    /// What the file said when it was opened.
    format: u32,
}

enum Handle {
    Writer(Database),
    Reader(ReadOnlyDatabase),
    Closed,
}

/// How a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Create,
    ReadOnly,
    Write,
}

impl fmt::Debug for RedbStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbStore").field("place", &self.place).finish_non_exhaustive()
    }
}

impl RedbStore {
    /// Creates a store in a directory, which is made if need be.
    ///
    /// ```
    /// # use spinney_store::RedbStore;
    /// # let folder = tempfile::tempdir()?;
    /// let store = RedbStore::create(folder.path().join("state"), 1 << 20)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there is a store already, or the directory cannot be written.
    pub fn create(directory: impl AsRef<Path>, cache_bytes: usize) -> Result<Self, StoreError> {
        Self::create_filled(directory, cache_bytes, |_| Ok(()))
    }

    /// Creates a store that `fill` puts rows into, in as many commits as it likes. Nobody sees it
    /// before `fill` is done: refused or cut off, there is no store, and nothing is left of it but
    /// a file that the next creation removes.
    ///
    /// ```
    /// # use spinney_store::RedbStore;
    /// # use spinney_tree::{PageStore, StoreError, Table, WriteSet};
    /// # let folder = tempfile::tempdir()?;
    /// let store = RedbStore::create_filled(folder.path(), 1 << 20, |store| {
    ///     assert!(matches!(RedbStore::open(&folder, 1 << 20), Err(StoreError::Missing { .. })));
    ///     let mut set = WriteSet::new();
    ///     set.put(Table::Meta, b"head", *b"12");
    ///     store.commit(&set)
    /// })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`RedbStore::create`], or if `fill` fails.
    pub fn create_filled<E: From<StoreError>>(
        directory: impl AsRef<Path>,
        cache_bytes: usize,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        Self::create_by(&Files::System, directory.as_ref(), cache_bytes, |store| {
            fill(&store)?;
            Ok(store.close()?)
        })
    }

    /// As [`RedbStore::create_filled`], where `fill` also closes the store.
    pub(crate) fn create_by<E: From<StoreError>>(
        files: &Files,
        directory: &Path,
        cache_bytes: usize,
        fill: impl FnOnce(Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        let folder = Folder::new(files, directory);
        let make = |blank: &dyn Fn() -> Result<Opened, StoreError>| {
            let place = folder.file().display().to_string();
            let open = || blank()?.into_backend();
            let store = Self::assemble(open, place, None, cache_bytes, Access::Create)?;
            fill(store)
        };
        folder.create(make, || Self::open_on(files, directory, cache_bytes))
    }

    /// Opens a store for reading and writing.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, [`StoreError::Busy`] if another process, or this
    /// one, has it open for writing, [`StoreError::Foreign`] if it is something else or of a newer
    /// format, [`StoreError::Corrupt`] if it is damaged.
    pub fn open(directory: impl AsRef<Path>, cache_bytes: usize) -> Result<Self, StoreError> {
        Self::open_on(&Files::System, directory.as_ref(), cache_bytes)
    }

    pub(crate) fn open_on(
        files: &Files,
        directory: &Path,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        Self::open_file(Folder::new(files, directory), cache_bytes, Access::Write)
    }

    /// Opens a store for reading and writing, after creating it if there is none.
    ///
    /// # Errors
    /// As [`RedbStore::open`] and [`RedbStore::create`].
    pub fn open_or_create(
        directory: impl AsRef<Path>,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        Self::open_or_create_on(&Files::System, directory.as_ref(), cache_bytes)
    }

    pub(crate) fn open_or_create_on(
        files: &Files,
        directory: &Path,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        if Folder::new(files, directory).exists()? {
            Self::open_on(files, directory, cache_bytes)
        } else {
            Self::create_by(files, directory, cache_bytes, Self::close)
        }
    }

    /// Whether a directory has a store of this kind, sound or not, or what is left of one that was
    /// being made.
    pub fn is_at(directory: impl AsRef<Path>) -> bool {
        Folder::new(&Files::System, directory.as_ref()).is_begun()
    }

    /// Opens a store for reading, also while another process writes it, and also where nothing can
    /// be written.
    ///
    /// # Errors
    /// As [`RedbStore::open`]; and [`StoreError::Backend`] if the last writer was cut off and none
    /// has opened the store since.
    pub fn open_read_only(
        directory: impl AsRef<Path>,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        Self::open_read_only_on(&Files::System, directory.as_ref(), cache_bytes)
    }

    pub(crate) fn open_read_only_on(
        files: &Files,
        directory: &Path,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        Self::open_file(Folder::new(files, directory), cache_bytes, Access::ReadOnly)
    }

    fn open_file(folder: Folder, cache_bytes: usize, access: Access) -> Result<Self, StoreError> {
        let file = folder.file();
        let place = file.display().to_string();
        let open = || folder.open_file(access != Access::ReadOnly)?.into_backend();
        Self::assemble(open, place, Some(file), cache_bytes, access)
    }

    /// Opens a store on what `disk` answers, which is asked again if it has no range locks.
    pub(crate) fn assemble(
        disk: impl Fn() -> Result<Box<dyn StorageBackend>, StoreError>,
        place: String,
        file: Option<PathBuf>,
        cache_bytes: usize,
        access: Access,
    ) -> Result<Self, StoreError> {
        let meter = Arc::new(Meter::default());
        let attempt = |mode| -> Result<Result<Handle, DatabaseError>, StoreError> {
            let disk = Metered::new(disk()?, Arc::clone(&meter));
            guarded(&place, || Ok(connect(disk, mode, cache_bytes, access)))
        };
        let mut opened = attempt(ConcurrencyMode::SingleWriter)?;
        if matches!(opened, Err(DatabaseError::Storage(StorageError::Unsupported))) {
            opened = attempt(ConcurrencyMode::ExclusiveWriter)?;
        }
        let handle = guarded(&place, || Ok(opened?))?;
        let mut store = Self { handle, place, file, meter, format: FORMAT };
        if access == Access::Create {
            store.update(0)?;
        }
        store.inspect(access)?;
        Ok(store)
    }

    /// Makes a file of an older format a store of this one; an empty redb file has format 0.
    fn update(&self, from: u32) -> Result<(), StoreError> {
        self.write(|transaction| {
            let mut row = [0; size_of::<u32>() + SEAL_BYTES];
            seal::write(HEADER_SEED, FORMAT_KEY, &FORMAT.to_le_bytes(), &mut row);
            transaction.open_table(HEADER)?.insert(FORMAT_KEY, &row[..])?;
            for table in Table::ALL.into_iter().filter(|table| since(*table) > from) {
                transaction.open_table(definition(table))?;
            }
            Ok(())
        })
    }

    /// Refuses what is no store of ours, or one whose trees would seem to be empty; brings an older
    /// format up to date where it may.
    fn inspect(&mut self, access: Access) -> Result<(), StoreError> {
        match self.format()? {
            None => Err(foreign(&self.place, "it is a redb database of another program")),
            Some(0) => Err(foreign(&self.place, "there is no store format 0")),
            Some(newer) if newer > FORMAT => Err(foreign(
                &self.place,
                format!(
                    "its store format is {newer}, and this program knows formats up to {FORMAT}"
                ),
            )),
            Some(format) => {
                self.format = format;
                self.inspect_roots()?;
                if format < FORMAT && access != Access::ReadOnly {
                    self.update(format)?;
                    self.format = FORMAT;
                }
                Ok(())
            }
        }
    }

    fn format(&self) -> Result<Option<u32>, StoreError> {
        let row = guarded(&self.place, || {
            let table = match self.begin()?.open_table(HEADER) {
                Err(redb::TableError::TableDoesNotExist(_)) => return Ok(None),
                table => table?,
            };
            let row = table.get(FORMAT_KEY)?;
            Ok(row.map(|row| seal::read(HEADER_SEED, FORMAT_KEY, row.value()).map(<[u8]>::to_vec)))
        })?;
        match row.map(|row| row.as_deref().map(<[u8; 4]>::try_from)) {
            None => Ok(None),
            Some(Some(Ok(version))) => Ok(Some(u32::from_le_bytes(version))),
            Some(_) => Err(corrupt(&self.place, "its format row does not match its checksum")),
        }
    }

    /// A root record that cannot be found makes its tree look empty, and the next commit would make
    /// it so. There are as many as trees: all are read and counted.
    fn inspect_roots(&self) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        let mut found = 0;
        snapshot.scan(Table::Roots, &[], None, &mut |_, _| {
            found += 1;
            true
        })?;
        let expected = snapshot.rows(Table::Roots)?;
        if found == expected {
            return Ok(());
        }
        let what = format!("it has {found} of {expected} root records");
        Err(corrupt(&self.place, what))
    }

    /// Bytes and calls that passed between the store and its file since it was opened.
    pub fn io(&self) -> IoCounts {
        self.meter.counts()
    }

    /// What the store holds. This reads the whole file once.
    ///
    /// ```
    /// # use spinney_store::RedbStore;
    /// # use spinney_tree::{PageStore, Table, WriteSet};
    /// # let folder = tempfile::tempdir()?;
    /// # let store = RedbStore::create(folder.path(), 1 << 20)?;
    /// let mut set = WriteSet::new();
    /// set.put(Table::Codes, b"digest", *b"code");
    /// store.commit(&set)?;
    /// let stats = store.stats()?;
    /// assert_eq!(stats.tables[Table::Codes as usize].rows, 1);
    /// assert!(stats.file_bytes > 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        let mut tables = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            tables.push(guarded(&self.place, || {
                let mut found = TableStats::new(table);
                let Some(opened) = self.open_table(&self.begin()?, table)? else {
                    return Ok(found);
                };
                let stats = opened.stats()?;
                found.rows = opened.len()?;
                found.stored_bytes = stats.stored_bytes();
                found.metadata_bytes = stats.metadata_bytes();
                found.fragmented_bytes = stats.fragmented_bytes();
                Ok(found)
            })?);
        }
        let length = self.file.as_ref().and_then(|file| file.metadata().ok());
        let file_bytes = length.map_or(self.meter.file_bytes(), |length| length.len());
        Ok(StoreStats { tables, file_bytes })
    }

    /// Reads everything and verifies every checksum: of the rows and, unless the store was opened
    /// read-only, of redb's pages and its record of free space. A wrong record is repaired, and
    /// reported.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let mut store = spinney_store::RedbStore::create(folder.path(), 1 << 20)?;
    /// store.check()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] at the first damage found.
    pub fn check(&mut self) -> Result<(), StoreError> {
        if let Handle::Writer(database) = &mut self.handle
            && !guarded(&self.place, || Ok(database.check_integrity()?))?
        {
            let what = "its record of free space was wrong, and has been made anew";
            return Err(corrupt(&self.place, what));
        }
        let snapshot = self.snapshot()?;
        for table in Table::ALL {
            let mut found = 0;
            snapshot.scan(table, &[], None, &mut |_, _| {
                found += 1;
                true
            })?;
            let expected = snapshot.rows(table)?;
            if found != expected {
                let what = format!("its table {table} has {found} of {expected} rows");
                return Err(corrupt(&self.place, what));
            }
        }
        Ok(())
    }

    /// Gives space that no row uses back to the file system, as far as that can be done. Answers
    /// whether the file became any denser.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # let mut store = spinney_store::RedbStore::create(folder.path(), 1 << 20)?;
    /// store.compact()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If another process reads the store, or the file cannot be written or is damaged.
    pub fn compact(&mut self) -> Result<bool, StoreError> {
        let Handle::Writer(database) = &mut self.handle else {
            return Err(self.read_only());
        };
        guarded(&self.place, || Ok(database.compact()?))
    }

    /// Closes the store and says whether that went well; dropping it does the same without saying
    /// so.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// let store = spinney_store::RedbStore::create(folder.path(), 1 << 20)?;
    /// store.close()?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be written any more. No commit is lost, but the next open may take
    /// longer.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.release()
    }

    fn release(&mut self) -> Result<(), StoreError> {
        let handle = mem::replace(&mut self.handle, Handle::Closed);
        guarded(&self.place, || match handle {
            Handle::Writer(database) => Ok(database.close()?),
            Handle::Reader(database) => Ok(database.close()?),
            Handle::Closed => Ok(()),
        })
    }

    fn begin(&self) -> Result<ReadTransaction, redb::Error> {
        match &self.handle {
            Handle::Writer(database) => Ok(database.begin_read()?),
            Handle::Reader(database) => Ok(database.begin_read()?),
            Handle::Closed => Err(redb::Error::DatabaseClosed),
        }
    }

    /// Opens a table; `None` where the store's format has no such table. One that should be there
    /// and is not is an error: its rows would seem to be absent.
    fn open_table(
        &self,
        transaction: &ReadTransaction,
        table: Table,
    ) -> Result<Option<ReadOnlyTable<Bytes, Bytes>>, redb::TableError> {
        match transaction.open_table(definition(table)) {
            Err(redb::TableError::TableDoesNotExist(_)) if since(table) > self.format => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Runs `work` in one durable transaction.
    fn write(
        &self,
        work: impl FnOnce(&WriteTransaction) -> Result<(), redb::Error>,
    ) -> Result<(), StoreError> {
        let Handle::Writer(database) = &self.handle else {
            return Err(self.read_only());
        };
        guarded(&self.place, || {
            let mut transaction = database.begin_write()?;
            transaction.set_durability(Durability::Immediate)?;
            transaction.set_quick_repair(true);
            work(&transaction)?;
            Ok(transaction.commit()?)
        })
    }

    fn read_only(&self) -> StoreError {
        backend(&self.place, "it was opened read-only")
    }
}

impl Drop for RedbStore {
    fn drop(&mut self) {
        // Every commit is durable already: what fails here costs the next open some time.
        let _ = self.release();
    }
}

impl PageStore for RedbStore {
    type Snapshot<'a> = RedbSnapshot<'a>;

    fn snapshot(&self) -> Result<RedbSnapshot<'_>, StoreError> {
        let tables = guarded(&self.place, || {
            let transaction = self.begin()?;
            let open = |table| self.open_table(&transaction, table);
            Ok(Table::ALL.into_iter().map(open).collect::<Result<Vec<_>, _>>()?)
        })?;
        Ok(RedbSnapshot::new(tables, &self.place))
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        if set.is_empty() {
            return Ok(());
        }
        let mut rows: Vec<RowChange<'_>> = set.rows().collect();
        // Sets come sorted as a rule, and then this is one pass. Equal keys keep their order.
        rows.sort_by_key(|(table, key, _)| (*table, *key));
        self.write(|transaction| {
            for table in Table::ALL {
                let drops = set.drops().filter(|drop| drop.0 == table);
                let start = rows.partition_point(|row| row.0 < table);
                let end = rows.partition_point(|row| row.0 <= table);
                redb_rows::apply(transaction, table, drops, &rows[start..end])?;
            }
            Ok(())
        })
    }
}

fn connect(
    disk: Metered,
    mode: ConcurrencyMode,
    cache_bytes: usize,
    access: Access,
) -> Result<Handle, DatabaseError> {
    let mut builder = Builder::new();
    builder.set_cache_size(cache_bytes).set_concurrency_mode(mode);
    Ok(match access {
        Access::ReadOnly => Handle::Reader(builder.open_read_only_with_backend(disk)?),
        Access::Create | Access::Write => Handle::Writer(builder.create_with_backend(disk)?),
    })
}

#[cfg(test)]
mod tests {
    use redb::WriteTransaction;
    use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};

    use super::{FORMAT_KEY, HEADER, HEADER_SEED, RedbSnapshot, RedbStore, definition};
    use crate::fault::{FaultDisk, Stop, Survivors};
    use crate::seal::{self, SEAL_BYTES};
    use crate::snapshot::RedbRow;
    use crate::{AnySnapshot, AnyStore};

    /// A store whose format row is this value, sealed.
    fn with_format(value: &[u8]) -> Result<RedbStore, StoreError> {
        let disk = FaultDisk::new();
        let store = disk.create_store().unwrap();
        let mut row = vec![0; value.len() + SEAL_BYTES];
        seal::write(HEADER_SEED, FORMAT_KEY, value, &mut row);
        let put = |row: &[u8]| {
            store.write(|transaction| {
                transaction.open_table(HEADER)?.insert(FORMAT_KEY, row)?;
                Ok(())
            })
        };
        put(&row).unwrap();
        store.close().unwrap();
        disk.open_store()
    }

    #[test]
    fn this_format_opens() {
        with_format(&2_u32.to_le_bytes()).unwrap().snapshot().unwrap();
    }

    #[test]
    fn a_newer_format_is_refused_and_named() {
        let error = with_format(&3_u32.to_le_bytes()).unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }));
        assert_eq!(
            error.to_string(),
            "the test disk is not a spinney store: its store format is 3, and this program knows \
             formats up to 2"
        );
    }

    /// A store as format 1 has it: without the table that came later.
    fn of_format_1() -> FaultDisk {
        let disk = FaultDisk::new();
        let store = disk.create_store().unwrap();
        let mut set = WriteSet::new();
        set.put(Table::Meta, b"key", *b"value");
        store.commit(&set).unwrap();
        let mut row = [0; size_of::<u32>() + SEAL_BYTES];
        seal::write(HEADER_SEED, FORMAT_KEY, &1_u32.to_le_bytes(), &mut row);
        let downgrade = |transaction: &WriteTransaction| {
            transaction.open_table(HEADER)?.insert(FORMAT_KEY, &row[..])?;
            transaction.delete_table(definition(Table::History))?;
            Ok(())
        };
        store.write(downgrade).unwrap();
        store.close().unwrap();
        disk
    }

    fn row(store: &RedbStore, table: Table) -> Option<Vec<u8>> {
        let snapshot = store.snapshot().unwrap();
        let row = snapshot.read(table, b"key").unwrap();
        row.map(|row| row.to_vec())
    }

    #[test]
    fn an_older_format_is_read_as_it_is_and_brought_up_to_date_by_a_writer() {
        let disk = of_format_1();
        let before = disk.image();
        let reader = disk.open_store_read_only().unwrap();
        assert_eq!(reader.format().unwrap(), Some(1));
        assert_eq!(row(&reader, Table::Meta).unwrap(), b"value");
        assert_eq!(row(&reader, Table::History), None);
        assert_eq!(reader.stats().unwrap().tables[Table::History as usize].rows, 0);
        drop(reader);
        assert!(disk.image() == before, "a reader writes nothing");

        let mut store = disk.open_store().unwrap();
        assert_eq!(store.format().unwrap(), Some(2));
        assert_eq!(row(&store, Table::Meta).unwrap(), b"value");
        let mut set = WriteSet::new();
        set.put(Table::History, b"key", *b"undo");
        store.commit(&set).unwrap();
        store.check().unwrap();
        drop(store);
        assert_eq!(row(&disk.open_store_read_only().unwrap(), Table::History).unwrap(), b"undo");
    }

    /// Each write and sync of the opening that updates a store fails in turn.
    #[test]
    fn an_update_of_the_format_that_is_cut_off_is_made_good() {
        let old = of_format_1().image();
        for operation in 0.. {
            let disk = FaultDisk::with_image(old.clone());
            disk.stop_at(operation, Stop::Fail);
            let opened = disk.open_store().is_ok();
            let finished = disk.operations() <= operation;
            let store = disk.after_power_cut(Survivors::Some(operation)).open_store().unwrap();
            assert_eq!(store.format().unwrap(), Some(2));
            assert_eq!(row(&store, Table::Meta).unwrap(), b"value");
            assert_eq!(row(&store, Table::History), None);
            if finished {
                assert!(opened && operation > 3, "{operation} operations are too few to be all");
                break;
            }
        }
    }

    /// A table that should be there and is not is damage, not an empty table.
    #[test]
    fn a_missing_table_of_this_format_is_damage() {
        let disk = FaultDisk::new();
        let store = disk.create_store().unwrap();
        let drop_it = |transaction: &WriteTransaction| {
            transaction.delete_table(definition(Table::History))?;
            Ok(())
        };
        store.write(drop_it).unwrap();
        drop(store);
        let error = disk.open_store().unwrap_err();
        assert_eq!(error.to_string(), "the test disk is damaged: its table history is missing");
    }

    #[test]
    fn a_format_that_never_was_is_refused() {
        assert!(matches!(with_format(&[0; 4]), Err(StoreError::Foreign { .. })));
        assert!(matches!(with_format(&[1]), Err(StoreError::Corrupt { .. })));
    }

    #[test]
    fn stores_snapshots_and_rows_cross_threads() {
        const fn check<T: Send + Sync>() {}
        check::<RedbStore>();
        check::<RedbSnapshot<'_>>();
        check::<RedbRow<'_>>();
        check::<AnyStore>();
        check::<AnySnapshot<'_>>();
    }
}
