//! The SQLite store: opening, committing, closing.
//!
//! ```text
//! table     key        value
//! spinney   "format"   store format version (4, LE), sealed      what makes it a store of ours,
//! spinney   "roots"    number of root records (8, LE), sealed    with its application id "Spin"
//! pages ..  row key    row, sealed                               one SQL table a [`Table`]
//! ```
//!
//! | format | what is new |
//! |---|---|
//! | 1 | the tables above |
//!
//! Tables have row ids, and pages of SQLite 4 KiB: measured against 8 and 16 KiB, with and without
//! row ids, that writes the fewest bytes a changed row (2.6 times the row, others 3.3 to 8.3). A
//! row without a row id that exceeds 1,002 bytes would overflow its page.
//!
//! Invariants:
//! - a store that opens has the header rows and all tables: both are made before it gets its name;
//! - one process has `FILE.lock` locked while it may write;
//! - no file of SQLite's is opened by anything but SQLite while a connection is open: closing it
//!   would drop SQLite's own locks.

mod changes;
mod error;
mod snapshot;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use spinney_tree::{PageStore, Snapshot, StoreError, Table, WriteSet};

use crate::creation::{self, Missing, Site, beside};
use crate::files::{Files, Found, Lock};
use crate::guard::{backend, corrupt, foreign};
use crate::metered::Meter;
use crate::stats::{IoCounts, StoreStats};
use changes::{ROOTS_KEY, apply, put_header};
use error::{NO_DATABASE, StatementError};
pub use snapshot::SqliteSnapshot;

/// The newest format described above.
const FORMAT: u32 = 1;
const FORMAT_KEY: &[u8] = b"format";
/// "Spin", in the header of the file.
const APPLICATION_ID: u32 = 0x5370_696E;
const PAGE_BYTES: u64 = 4_096;
const FRAME_HEADER_BYTES: u64 = 24;
const WAL_HEADER_BYTES: u64 = 32;
/// The length of the log, in pages, beyond which it is carried over to the file: a commit of 1,000
/// leaves writes some 700, and the one that carries over takes half as long again.
const CHECKPOINT_FRAMES: u64 = 8_192;
/// How long a program that knows nothing of us may hold SQLite's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// What lies beside the file of a store that is open, by what SQLite adds to its name.
const SUFFIXES: [&str; 2] = ["-wal", "-shm"];
/// Connections for readers that are kept open.
const IDLE_READERS_MAX: usize = 4;
/// Parts of the cache: each connection has one of its own.
const CACHE_PARTS: usize = 4;

/// A store in one SQLite file, with SQLite's `-wal` and `-shm` beside it while it is open.
///
/// Each commit is durable when it returns (write-ahead log, `synchronous=FULL`). Any number of
/// threads may read and commit; commits take turns. Each connection caches a quarter of
/// `cache_bytes`: one writes, and each snapshot that is open reads by one.
///
/// # Other processes
/// One process has a store open for writing; a second one gets [`StoreError::Busy`]. Any number may
/// open it [read-only](Self::open_read_only) meanwhile: SQLite readers and the writer do not wait
/// for one another. A snapshot held for long keeps the log from being reused, so it grows. SQLite
/// needs shared memory for that: no network file systems.
///
/// # After a failure
/// A commit that fails has changed nothing, and the next one may succeed.
///
/// # Damage
/// Rows carry checksums, so a damaged row is [`StoreError::Corrupt`]. Damage to what leads to a row
/// can make it seem absent: [`check`](Self::check) finds that, and root records are counted at each
/// opening. A log that is cut off or damaged ends before the first commit that is not whole: SQLite
/// cannot tell that from a power cut.
///
/// ```
/// use spinney_store::SqliteStore;
/// use spinney_tree::{PageStore, Snapshot, Table, WriteSet};
///
/// let folder = tempfile::tempdir()?;
/// let file = folder.path().join("state.sqlite");
/// let store = SqliteStore::open_or_create(&file, 1 << 20)?;
/// let mut set = WriteSet::new();
/// set.put(Table::Meta, b"head", *b"12");
/// store.commit(&set)?;
///
/// let reader = SqliteStore::open_read_only(&file, 1 << 20)?;
/// let snapshot = reader.snapshot()?;
/// let row = snapshot.read(Table::Meta, b"head")?;
/// assert_eq!(row.as_deref(), Some(&b"12"[..]));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct SqliteStore {
    /// Emptied only by closing. Before the lock, so that it goes first.
    writer: Option<Mutex<WalWriter>>,
    /// Readers that nobody uses.
    idle: Mutex<Vec<Connection>>,
    files: Files,
    /// Nobody can change the file, nor make one beside it.
    immutable: bool,
    /// Locked by the one that may write.
    _lock: Option<Lock>,
    file: PathBuf,
    place: String,
    cache_bytes: usize,
    meter: Meter,
}

struct WalWriter {
    connection: Connection,
    log: Log,
}

/// Where the write-ahead log stood after a commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Log {
    /// How often it began anew.
    run: u32,
    frames: u64,
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("place", &self.place).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Creates a store in a file; its directory is made if need be.
    ///
    /// ```
    /// # use spinney_store::SqliteStore;
    /// # let folder = tempfile::tempdir()?;
    /// let store = SqliteStore::create(folder.path().join("state.sqlite"), 1 << 20)?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If there is a file already, or the directory cannot be written.
    pub fn create(file: impl AsRef<Path>, cache_bytes: usize) -> Result<Self, StoreError> {
        Self::create_filled(file, cache_bytes, |_| Ok(()))
    }

    /// Creates a store that `fill` puts rows into, in as many commits as it likes. Nobody sees it
    /// before `fill` is done: refused or cut off, there is no store, and nothing is left of it but
    /// files that the next creation removes.
    ///
    /// # Errors
    /// As [`SqliteStore::create`], or if `fill` fails.
    pub fn create_filled<E: From<StoreError>>(
        file: impl AsRef<Path>,
        cache_bytes: usize,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        Self::create_by(&Files::System, file.as_ref(), cache_bytes, |store| {
            fill(&store)?;
            Ok(store.close()?)
        })
    }

    /// As [`SqliteStore::create_filled`], where `fill` also closes the store.
    pub(crate) fn create_by<E: From<StoreError>>(
        files: &Files,
        file: &Path,
        cache_bytes: usize,
        fill: impl FnOnce(Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        let (owned, lock) = (file.to_owned(), lock_of(file));
        let site = Site { files, place: file, file: owned, lock, suffixes: &SUFFIXES };
        let make = |unfinished: &Path| {
            // A log that lies beside a new file would be taken for its own.
            for left in [log_of(unfinished), shared_of(unfinished)] {
                creation::remove(files, &left)?;
            }
            // SQLite fills what is empty, and gives what it makes beside it the same mode.
            drop(creation::blank(files, unfinished)?);
            let mut store = Self::connect(files, unfinished, file, cache_bytes, None)?;
            store.make()?;
            fill(store)?;
            alone(files, unfinished, file)?;
            for left in [log_of(file), shared_of(file)] {
                creation::remove(files, &left)?;
            }
            Ok::<_, E>(())
        };
        site.create(make, |lock| Self::open_locked(files, file, cache_bytes, lock))
    }

    /// Opens a store for reading and writing.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, [`StoreError::Busy`] if another process, or this
    /// one, has it open for writing, [`StoreError::Foreign`] if it is something else or of a newer
    /// format, [`StoreError::Corrupt`] if it is damaged.
    pub fn open(file: impl AsRef<Path>, cache_bytes: usize) -> Result<Self, StoreError> {
        Self::open_on(&Files::System, file.as_ref(), cache_bytes)
    }

    pub(crate) fn open_on(
        files: &Files,
        file: &Path,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        look(files, file)?;
        let lock = files.lock(&lock_of(file), file)?;
        Self::open_locked(files, file, cache_bytes, lock)
    }

    fn open_locked(
        files: &Files,
        file: &Path,
        cache_bytes: usize,
        lock: Lock,
    ) -> Result<Self, StoreError> {
        sync_log(files, file)?;
        let store = Self::connect(files, file, file, cache_bytes, Some(lock))?;
        store.inspect()?;
        Ok(store)
    }

    /// Opens a store for reading and writing, after creating it if there is none.
    ///
    /// # Errors
    /// As [`SqliteStore::open`] and [`SqliteStore::create`].
    pub fn open_or_create(file: impl AsRef<Path>, cache_bytes: usize) -> Result<Self, StoreError> {
        Self::open_or_create_on(&Files::System, file.as_ref(), cache_bytes)
    }

    pub(crate) fn open_or_create_on(
        files: &Files,
        file: &Path,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        match look(files, file) {
            Err(StoreError::Missing { .. }) => {
                Self::create_by(files, file, cache_bytes, Self::close)
            }
            _ => Self::open_on(files, file, cache_bytes),
        }
    }

    /// Opens a store for reading, also while another process writes it, and also on a read-only
    /// file system.
    ///
    /// # Errors
    /// As [`SqliteStore::open`]; and [`StoreError::Backend`] where SQLite may not make the shared
    /// memory that it needs beside the file, or where a read-only file system has a log beside the
    /// store.
    pub fn open_read_only(file: impl AsRef<Path>, cache_bytes: usize) -> Result<Self, StoreError> {
        Self::open_read_only_on(&Files::System, file.as_ref(), cache_bytes)
    }

    pub(crate) fn open_read_only_on(
        files: &Files,
        file: &Path,
        cache_bytes: usize,
    ) -> Result<Self, StoreError> {
        look(files, file)?;
        let mut store = Self::assemble(files, file, file, cache_bytes);
        if files.is_read_only(file) {
            // SQLite would make shared memory beside the file. A log that is left has commits of
            // its own.
            let log = files.find(&log_of(file)).map_err(|error| backend(file.display(), error))?;
            if !matches!(log, None | Some(Found::File(0))) {
                let what = "its log has commits that are not in its file, and cannot be read on a \
                            read-only file system; open it once where it can be written";
                return Err(backend(file.display(), what));
            }
            store.immutable = true;
        }
        store.inspect()?;
        Ok(store)
    }

    /// Removes the files of a store that nobody has open for writing, and of its lock and the
    /// folders those that were missing before.
    pub(crate) fn remove(files: &Files, file: &Path, missing: &Missing) -> Result<(), StoreError> {
        let _lock = files.lock(&lock_of(file), file)?;
        creation::remove_certainly(files, file)?;
        for part in [log_of(file), shared_of(file)] {
            creation::remove(files, &part)?;
        }
        missing.remove(files);
        Ok(())
    }

    fn assemble(files: &Files, file: &Path, place: &Path, cache_bytes: usize) -> Self {
        Self {
            files: files.clone(),
            immutable: false,
            writer: None,
            idle: Mutex::default(),
            _lock: None,
            file: file.to_owned(),
            place: place.display().to_string(),
            cache_bytes,
            meter: Meter::default(),
        }
    }

    /// Opens or makes a file for writing.
    fn connect(
        files: &Files,
        file: &Path,
        place: &Path,
        cache_bytes: usize,
        lock: Option<Lock>,
    ) -> Result<Self, StoreError> {
        let mut store = Self::assemble(files, file, place, cache_bytes);
        let new = lock.is_none();
        store._lock = lock;
        let connection = store.run(|| {
            let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            flags.set(OpenFlags::SQLITE_OPEN_CREATE, new);
            let connection = store.open_connection(flags)?;
            if new {
                connection.pragma_update(None, "page_size", PAGE_BYTES as i64)?;
                connection.pragma_update(None, "application_id", APPLICATION_ID as i32)?;
            } else {
                store.identify(&connection)?;
            }
            // In this order: changing the mode of another program's database would change its file.
            let mode: String =
                connection
                    .pragma_update_and_check(None, "journal_mode", "wal", |row| row.get(0))?;
            if mode != "wal" {
                let what = format!("SQLite can keep no write-ahead log here, only \"{mode}\"");
                return Err(backend(&store.place, what).into());
            }
            connection.pragma_update(None, "synchronous", "full")?;
            connection.pragma_update(None, "fullfsync", true)?;
            connection.pragma_update(None, "wal_autocheckpoint", 0)?;
            Ok(connection)
        })?;
        store.writer = Some(Mutex::new(WalWriter { connection, log: Log::default() }));
        Ok(store)
    }

    fn open_connection(&self, flags: OpenFlags) -> Result<Connection, StatementError> {
        let connection = self.files.connect(&self.file, flags, self.immutable)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let kib = (self.cache_bytes / CACHE_PARTS).div_ceil(1 << 10).min(i32::MAX as usize);
        connection.pragma_update(None, "cache_size", -(kib as i64))?;
        connection.pragma_update(None, "cell_size_check", true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.set_prepared_statement_cache_capacity(8 * Table::ALL.len());
        Ok(connection)
    }

    /// Refuses a database of another program.
    fn identify(&self, connection: &Connection) -> Result<(), StatementError> {
        let found: i32 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
        if found as u32 == APPLICATION_ID {
            return Ok(());
        }
        Err(foreign(&self.place, "it is a SQLite database of another program").into())
    }

    /// Makes the tables of a new file.
    fn make(&mut self) -> Result<(), StoreError> {
        self.write(|connection| {
            let names = ["spinney"].into_iter().chain(Table::ALL.map(Table::name));
            for name in names {
                connection.execute_batch(&format!(
                    "CREATE TABLE {name}(key BLOB NOT NULL PRIMARY KEY, value BLOB NOT NULL) STRICT"
                ))?;
            }
            put_header(connection, FORMAT_KEY, &FORMAT.to_le_bytes())?;
            put_header(connection, ROOTS_KEY, &0_u64.to_le_bytes())
        })
    }

    /// Refuses what is no store of ours, or one whose trees would seem to be empty.
    fn inspect(&self) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        match snapshot.header::<4>(FORMAT_KEY)?.map(u32::from_le_bytes) {
            Some(FORMAT) => {}
            None => return Err(corrupt(&self.place, "its format row is missing")),
            Some(0) => return Err(foreign(&self.place, "there is no store format 0")),
            Some(newer) => {
                let what = format!(
                    "its store format is {newer}, and this program knows formats up to {FORMAT}"
                );
                return Err(foreign(&self.place, what));
            }
        }
        for table in Table::ALL {
            if !snapshot.has(table)? {
                return Err(corrupt(&self.place, format!("its table {table} is missing")));
            }
        }
        // A root record that cannot be found makes its tree look empty, and the next commit would
        // make it so. There are as many as trees.
        let mut found = 0;
        snapshot.scan(Table::Roots, &[], None, &mut |_, _| {
            found += 1;
            true
        })?;
        match snapshot.header::<8>(ROOTS_KEY)?.map(u64::from_le_bytes) {
            Some(expected) if expected == found => Ok(()),
            Some(expected) => {
                let what = format!("it has {found} of {expected} root records");
                Err(corrupt(&self.place, what))
            }
            None => Err(corrupt(&self.place, "its number of root records is missing")),
        }
    }

    /// What passed since the store was opened. SQLite does not say what it reads from its file:
    /// read are the bytes of rows, and one call a statement; written are the pages of the log and
    /// those that are carried over to the file, each of the latter counted as often as it is in the
    /// log.
    pub fn io(&self) -> IoCounts {
        self.meter.counts()
    }

    /// What the store holds. This reads the whole file once.
    ///
    /// # Errors
    /// If the file cannot be read or is damaged.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        let tables = self.snapshot()?.table_stats()?;
        let length = |file: &Path| match self.files.find(file) {
            Ok(Some(Found::File(bytes))) => bytes,
            _ => 0,
        };
        Ok(StoreStats { tables, file_bytes: length(&self.file) + length(&log_of(&self.file)) })
    }

    /// Reads everything and verifies it: the checksums of rows, and the structure of the file.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] at the first damage found.
    pub fn check(&self) -> Result<(), StoreError> {
        let snapshot = self.snapshot()?;
        snapshot.check_structure()?;
        for table in Table::ALL {
            snapshot.scan(table, &[], None, &mut |_, _| true)?;
        }
        drop(snapshot);
        self.inspect()
    }

    /// Gives space that no row uses back to the file system.
    ///
    /// # Errors
    /// If the store was opened read-only, is in use by another process, or cannot be written.
    pub fn compact(&mut self) -> Result<(), StoreError> {
        self.idle.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        let writer = self.writer()?;
        self.run(|| {
            writer.connection.execute_batch("VACUUM")?;
            if carry_over(&writer.connection)? {
                return Ok(());
            }
            Err(StoreError::Busy { place: self.place.clone() }.into())
        })
    }

    /// Closes the store and says whether that went well; dropping it does the same without saying
    /// so.
    ///
    /// The log is carried over to the file, and removed. Only where another process reads the store
    /// does it stay, and the last one to close the store carries it over.
    ///
    /// # Errors
    /// If the log cannot be carried over to the file. No commit is lost: the log stays beside the
    /// file.
    pub fn close(mut self) -> Result<(), StoreError> {
        self.idle.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let WalWriter { connection, .. } =
            writer.into_inner().unwrap_or_else(PoisonError::into_inner);
        let carried = self.run(|| {
            // Who reads may do so for as long as it likes: there is no waiting.
            connection.busy_timeout(Duration::ZERO)?;
            carry_over(&connection)
        });
        let closed = self.run(|| connection.close().map_err(|(_, error)| error.into()));
        carried.map(drop).and(closed)
    }

    fn writer(&self) -> Result<MutexGuard<'_, WalWriter>, StoreError> {
        match &self.writer {
            Some(writer) => Ok(writer.lock().unwrap_or_else(PoisonError::into_inner)),
            None => Err(backend(&self.place, "it was opened read-only")),
        }
    }

    /// Runs `work` in one durable transaction.
    fn write(
        &self,
        work: impl FnOnce(&Connection) -> Result<(), StatementError>,
    ) -> Result<(), StoreError> {
        let mut writer = self.writer()?;
        self.run(|| {
            let immediate = TransactionBehavior::Immediate;
            let transaction = writer.connection.transaction_with_behavior(immediate)?;
            work(&transaction)?;
            Ok(transaction.commit()?)
        })?;
        self.meter.synced(1);
        // The commit is durable. What fails here is tried again after the next one.
        let _ = self.run(|| self.tend_log(&mut writer));
        Ok(())
    }

    /// Counts what a commit wrote, and carries a long log over to the file.
    fn tend_log(&self, writer: &mut WalWriter) -> Result<(), StatementError> {
        let (frames, carried) = self.checkpoint(&writer.connection, "NOOP")?;
        // While the file is open its log is not removed, and SQLite takes no locks on it.
        let log =
            Log { run: run_of_log(&self.files, &log_of(&self.file)).unwrap_or_default(), frames };
        let new = if log.run == writer.log.run {
            frames.saturating_sub(writer.log.frames)
        } else {
            self.meter.wrote(1, WAL_HEADER_BYTES);
            self.meter.synced(1);
            frames
        };
        self.meter.wrote(new, new * (PAGE_BYTES + FRAME_HEADER_BYTES));
        writer.log = log;
        if frames - carried.min(frames) > CHECKPOINT_FRAMES {
            let (_, now) = self.checkpoint(&writer.connection, "PASSIVE")?;
            let moved = now.saturating_sub(carried);
            self.meter.wrote(moved, moved * PAGE_BYTES);
            self.meter.synced(2);
        }
        Ok(())
    }

    /// Frames in the log, and how many of them are in the file.
    fn checkpoint(
        &self,
        connection: &Connection,
        mode: &str,
    ) -> Result<(u64, u64), StatementError> {
        let sql = format!("PRAGMA wal_checkpoint({mode})");
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        let row = |row: &rusqlite::Row<'_>| Ok((count(row.get(1)?), count(row.get(2)?)));
        Ok(connection.prepare_cached(&sql)?.query_row([], row)?)
    }

    /// A connection for a reader: one that is idle, or a new one.
    fn reader(&self) -> Result<Connection, StatementError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(connection) = idle {
            return Ok(connection);
        }
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = self.open_connection(flags)?;
        self.identify(&connection)?;
        Ok(connection)
    }

    fn give_back(&self, connection: Connection) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_READERS_MAX {
            idle.push(connection);
        }
    }

    fn run<T>(&self, work: impl FnOnce() -> Result<T, StatementError>) -> Result<T, StoreError> {
        self.files.in_turn(work).map_err(|error| error.into_store_error(&self.place))
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        let idle = self.idle.get_mut().unwrap_or_else(PoisonError::into_inner);
        let writer = &mut self.writer;
        self.files.in_turn(|| {
            idle.clear();
            drop(writer.take());
        });
    }
}

impl PageStore for SqliteStore {
    type Snapshot<'a> = SqliteSnapshot<'a>;

    fn snapshot(&self) -> Result<SqliteSnapshot<'_>, StoreError> {
        let connection = self.run(|| {
            let connection = self.reader()?;
            connection.prepare_cached("BEGIN")?.execute([])?;
            // SQLite takes its snapshot with the first read.
            let sql = "SELECT value FROM spinney WHERE key = ?1";
            connection.prepare_cached(sql)?.exists([FORMAT_KEY])?;
            Ok(connection)
        })?;
        Ok(SqliteSnapshot::new(connection, self))
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        if set.is_empty() {
            return Ok(());
        }
        self.write(|connection| apply(connection, set))
    }
}

/// Carries the whole log over to the file, syncs the file and empties the log. Answers whether
/// nobody who reads the store kept it from that.
fn carry_over(connection: &Connection) -> Result<bool, StatementError> {
    let row = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
        Ok((row.get::<_, bool>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    })?;
    let (busy, frames, carried) = row;
    Ok(!busy && frames == carried)
}

/// Makes durable what a process has left of its log. The log may have commits whose sync failed, or
/// was never reached: SQLite shows them, so they have to stay. Where the log was removed, it may
/// have had a commit that was reported as failed and is not in the file: so it must not come back.
fn sync_log(files: &Files, file: &Path) -> Result<(), StoreError> {
    let log = log_of(file);
    let named = |error| backend(log.display(), error);
    if let Some(Found::File(1..)) = files.find(&log).map_err(named)? {
        files.sync(&log).map_err(named)?;
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    files.sync_folder(folder.unwrap_or(Path::new("."))).map_err(named)
}

/// Makes sure that a store which was closed is whole in its one file, before the file gets another
/// name: a log that is left would stay behind with the old one.
pub(crate) fn alone(files: &Files, file: &Path, place: &Path) -> Result<(), StoreError> {
    let log = log_of(file);
    let left = match files.find(&log).map_err(|error| backend(log.display(), error))? {
        Some(Found::File(bytes)) => bytes,
        _ => 0,
    };
    if left > 0 {
        let what = format!("{left} bytes of its log were not carried over to its file");
        return Err(backend(place.display(), what));
    }
    creation::remove(files, &log)?;
    creation::remove(files, &shared_of(file))
}

/// Looks whether there is a file that may be a store, without opening it.
fn look(files: &Files, file: &Path) -> Result<(), StoreError> {
    let place = file.display();
    match files.find(file).map_err(|error| backend(&place, error))? {
        Some(Found::Folder) => {
            Err(foreign(place, "it is a directory, where the file of a store was expected"))
        }
        Some(Found::File(0)) => Err(foreign(place, "it is an empty file")),
        // Less than a page of any size is what SQLite takes for a new file.
        Some(Found::File(bytes)) if bytes < 512 => Err(foreign(place, NO_DATABASE)),
        Some(Found::File(_)) => Ok(()),
        None => Err(StoreError::Missing { place: place.to_string() }),
    }
}

pub(crate) fn lock_of(file: &Path) -> PathBuf {
    beside(file, ".lock")
}

fn log_of(file: &Path) -> PathBuf {
    beside(file, "-wal")
}

fn shared_of(file: &Path) -> PathBuf {
    beside(file, "-shm")
}

/// The checkpoint sequence number in the header of a log.
fn run_of_log(files: &Files, log: &Path) -> io::Result<u32> {
    let header = files.open(log, false)?.start(16)?;
    let run = header.get(12..).and_then(<[u8]>::first_chunk);
    run.map(|run| u32::from_be_bytes(*run)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use spinney_tree::StoreError;

    use super::{FORMAT_KEY, SqliteSnapshot, SqliteStore, put_header};
    use crate::sql::SqlRow;

    /// A newer store, with all that belongs to it.
    #[test]
    fn formats_that_this_program_does_not_know_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store");
        for (format, said) in
            [(2, "its store format is 2, and this program"), (0, "no store format 0")]
        {
            let store = SqliteStore::open_or_create(&file, 0).unwrap();
            let format = u32::to_le_bytes(format);
            store.write(|connection| put_header(connection, FORMAT_KEY, &format)).unwrap();
            drop(store);
            for open in [SqliteStore::open, SqliteStore::open_read_only] {
                let error = open(&file, 0).unwrap_err();
                assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
                assert!(error.to_string().contains(said), "{error}");
            }
            std::fs::remove_file(&file).unwrap();
        }
    }

    #[test]
    fn stores_snapshots_and_rows_cross_threads() {
        const fn check<T: Send + Sync>() {}
        check::<SqliteStore>();
        check::<SqliteSnapshot<'_>>();
        check::<SqlRow<'_>>();
    }
}
