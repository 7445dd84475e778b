//! The log: a store of `spinney_log` in a directory.
//!
//! ```text
//! DIR/spinney.log/        the log: see docs/page-log.md
//! DIR/spinney.log.new/    a store that is being created or removed: see the module `creation`
//! DIR/spinney.lock        locked meanwhile
//! key of the log = table (1) | key of the row; preimages share rows: see the module `packed`
//! ```

mod disk;
mod packed;

use std::io::ErrorKind;
use std::marker::PhantomData;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use spinney_log::{Batch, Keep, Key, Log, LogError, Options, Shipped, Stats};
use spinney_tree::{
    CommitOf, KeptCommits, PageStore, RootRecord, RowOver, Snapshot, StoreError, Table, TreeId,
    WriteSet, names,
};

use crate::creation::{self, Missing, Site, beside, folder_of};
use crate::files::{Files, Found};
use crate::guard::{backend, corrupt, foreign};
use crate::stats::{IoCounts, StoreStats, TableStats};
use disk::LogFolder;
use packed::{Changed, PACKED, PackedError, is_packed};

const FOLDER: &str = "spinney.log";
const LOCK: &str = "spinney.lock";

/// A store in a directory: an append-only log of what commits changed.
///
/// Each commit is durable when it returns, by one write and one sync. Any number of threads may
/// read and commit; commits take turns. Rows are read from files each time: the memory of the store
/// is that of its index.
///
/// # Other processes
/// One process has a store open for writing; a second one gets [`StoreError::Busy`]. Any number may
/// [open it read-only](Self::open_read_only): each of their snapshots is of the last commit that
/// was durable when it was taken, and holds the files that it needs for as long as it lives, or its
/// process.
///
/// # After a failure
/// If a commit fails in its write, all further commits fail until the store is opened again; what
/// is read is the state before that commit. Opened again, it is before that commit or after it. A
/// disk that is full before the write leaves everything as it was.
///
/// ```
/// use spinney_store::LogStore;
/// use spinney_tree::{PageStore, Snapshot, Table, WriteSet};
///
/// let folder = tempfile::tempdir()?;
/// let store = LogStore::open_or_create(folder.path())?;
/// let mut set = WriteSet::new();
/// set.put(Table::Meta, b"head", *b"12");
/// store.commit(&set)?;
///
/// let reader = LogStore::open_read_only(folder.path())?;
/// let snapshot = reader.snapshot()?;
/// let row = snapshot.read(Table::Meta, b"head")?;
/// assert_eq!(row.as_deref(), Some(&b"12"[..]));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LogStore {
    log: Log,
    place: PathBuf,
    /// Names it in this process, as [`CommitOf`] has it.
    number: u64,
    /// Held by who changes rows that share one: what they are made of stays.
    sharing: Mutex<()>,
}

impl LogStore {
    /// Creates a store in a directory, which is made if need be.
    ///
    /// # Errors
    /// If there is a store already, or the directory cannot be written.
    pub fn create(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::create_by(&Files::System, directory.as_ref(), Self::close)
    }

    /// Creates a store that `fill` puts rows into, and closes. Nobody sees it before that is done.
    pub(crate) fn create_by<E: From<StoreError>>(
        files: &Files,
        directory: &Path,
        fill: impl FnOnce(Self) -> Result<(), E>,
    ) -> Result<Self, E> {
        if files.find(directory).is_ok_and(|found| matches!(found, Some(Found::File(_)))) {
            return Err(not_a_directory(directory).into());
        }
        let (file, lock) = (directory.join(FOLDER), Self::lock_of(directory));
        let site = Site { files, place: directory, file, lock, suffixes: &[] };
        let make = |unfinished: &Path| {
            let named = |error| backend(unfinished.display(), error);
            files.remove_all(unfinished).map_err(named)?;
            files.create_folder(unfinished).map_err(named)?;
            let folder = LogFolder::new(files, unfinished);
            let log = Log::create(folder, Options::default()).map_err(|e| told(directory, e))?;
            fill(Self::of(log, directory))
        };
        site.create(make, |_| Self::open_made(files, directory))
    }

    /// Opens a store for reading and writing.
    ///
    /// # Errors
    /// [`StoreError::Missing`] if there is none, [`StoreError::Busy`] if somebody has it open for
    /// writing, [`StoreError::Foreign`] if it is something else or of a newer format,
    /// [`StoreError::Corrupt`] if it is damaged.
    pub fn open(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_on(&Files::System, directory.as_ref())
    }

    pub(crate) fn open_on(files: &Files, directory: &Path) -> Result<Self, StoreError> {
        // A process that ended may have left its names uncertain, also of a store that it was
        // removing.
        let certain = || {
            let synced = files.sync_folder(directory);
            let synced = synced.and_then(|()| files.sync_folder(folder_of(directory)));
            synced.map_err(|error| backend(directory.display(), error))
        };
        let opened = Self::open_made(files, directory);
        let is_left = || matches!(files.find(&unfinished(directory)), Ok(Some(_)));
        match &opened {
            Ok(_) => certain()?,
            Err(StoreError::Missing { .. }) if is_left() => certain()?,
            Err(_) => {}
        }
        opened
    }

    /// Opens a store whose name is certain.
    fn open_made(files: &Files, directory: &Path) -> Result<Self, StoreError> {
        let open = |folder| Log::open(folder, Options::default());
        Self::open_by(files, directory, open)
    }

    /// Opens a store for reading and writing, after creating it if there is none.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_or_create_on(&Files::System, directory.as_ref())
    }

    pub(crate) fn open_or_create_on(files: &Files, directory: &Path) -> Result<Self, StoreError> {
        match Self::open_on(files, directory) {
            Err(StoreError::Missing { .. }) => Self::create_by(files, directory, Self::close),
            opened => opened,
        }
    }

    /// Opens a store for reading, also while another process writes it, and also where nothing can
    /// be written.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for `Busy`.
    pub fn open_read_only(directory: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::open_read_only_on(&Files::System, directory.as_ref())
    }

    pub(crate) fn open_read_only_on(files: &Files, directory: &Path) -> Result<Self, StoreError> {
        Self::open_by(files, directory, Log::open_read_only)
    }

    fn open_by(
        files: &Files,
        directory: &Path,
        open: impl FnOnce(LogFolder) -> Result<Log, LogError>,
    ) -> Result<Self, StoreError> {
        let folder = directory.join(FOLDER);
        match files.find(&folder) {
            Ok(Some(Found::Folder)) => {}
            Ok(None) => return Err(StoreError::Missing { place: directory.display().to_string() }),
            Ok(Some(Found::File(_))) => return Err(foreign(folder.display(), "it is a file")),
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                return Err(not_a_directory(directory));
            }
            Err(error) => return Err(backend(folder.display(), error)),
        }
        let log = open(LogFolder::new(files, &folder)).map_err(|error| told(directory, error))?;
        let store = Self::of(log, directory);
        store.refuse_earlier()?;
        Ok(store)
    }

    /// A view for users of the store.
    const fn lent(&self, snapshot: spinney_log::Snapshot) -> LogSnapshot<'_> {
        LogSnapshot { snapshot, store: self }
    }

    fn of(log: Log, directory: &Path) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { log, place: directory.to_owned(), number, sharing: Mutex::new(()) }
    }

    /// Refuses a store from before preimages shared rows.
    fn refuse_earlier(&self) -> Result<(), StoreError> {
        let snapshot = self.log.snapshot().map_err(|error| self.told(error))?;
        let mut earlier = false;
        snapshot.keys(&[PACKED as u8], &mut |key, _, _| {
            earlier = key[0] == PACKED as u8;
            false
        });
        if earlier {
            let what = "an earlier build wrote its preimages one by one; fill it anew";
            return Err(foreign(self.place.display(), what));
        }
        Ok(())
    }

    /// Whether a directory has a store of this kind, sound or not.
    pub fn is_at(directory: impl AsRef<Path>) -> bool {
        directory.as_ref().join(FOLDER).is_dir()
    }

    /// The lock of those who make a store, or remove it.
    pub(crate) fn lock_of(directory: &Path) -> PathBuf {
        directory.join(LOCK)
    }

    /// What is to go with the store: the lock, and the directory if nothing else lies in it.
    pub(crate) fn own(directory: &Path) -> Missing {
        Missing::from([Self::lock_of(directory), directory.to_owned()])
    }

    /// Removes what a removal, or a creation, that was cut off left where no store is.
    pub(crate) fn remove_rest(files: &Files, at: &Path) -> Result<(), StoreError> {
        let own = [Self::lock_of(at), unfinished(at)];
        let found = match files.find(at) {
            Ok(Some(Found::Folder)) => files.list(at),
            _ => return Ok(()),
        };
        let found = found.map_err(|error| backend(at.display(), error))?;
        let is_own = |path: &PathBuf| own.iter().any(|own| path.starts_with(own));
        if found.is_empty() || !found.iter().all(is_own) {
            return Ok(());
        }
        Self::remove(files, at, &Self::own(at))
    }

    /// Removes the store, and of the folders those that were missing before.
    pub(crate) fn remove(files: &Files, at: &Path, missing: &Missing) -> Result<(), StoreError> {
        let _creation = files.lock(&Self::lock_of(at), at)?;
        let (folder, gone) = (at.join(FOLDER), unfinished(at));
        let removed = files
            .remove_all(&gone)
            // Cut off, it is what the next creation removes.
            .and_then(|()| match creation::withdraw(files, &folder, &gone) {
                Err(error) if error.kind() == ErrorKind::NotFound => files.sync_folder(at),
                withdrawn => withdrawn,
            })
            .and_then(|()| files.remove_all(&gone));
        removed.map_err(|error| backend(at.display(), error))?;
        missing.remove(files);
        Ok(())
    }

    /// Bytes and calls that passed between the store and its files since it was opened.
    pub fn io(&self) -> IoCounts {
        let counts = self.log.counts();
        IoCounts {
            bytes_read: counts.bytes_read,
            reads: counts.reads,
            bytes_written: counts.bytes_written,
            writes: counts.writes,
            syncs: counts.syncs,
            round_trips: 0,
        }
    }

    /// What the store holds. Bytes of rows are those of what they are made of: whole rows and
    /// deltas.
    ///
    /// # Errors
    /// If its folder cannot be read.
    pub fn stats(&self) -> Result<StoreStats, StoreError> {
        let log = self.log_stats()?;
        let snapshot = self.log.snapshot().map_err(|error| self.told(error))?;
        let mut tables: Vec<_> = Table::ALL.into_iter().map(TableStats::new).collect();
        snapshot.keys(&[], &mut |key, _, bytes| {
            let table = if is_packed(key) { PACKED as u8 } else { key[0] };
            if let Some(found) = tables.get_mut(usize::from(table)) {
                found.rows += 1;
                found.stored_bytes += key.len() as u64 - 1 + bytes;
            }
            true
        });
        tables[PACKED as usize].rows = packed::count(&snapshot).map_err(|e| self.told(e))?;
        Ok(StoreStats { tables, file_bytes: log.file_bytes })
    }

    /// What the log holds, and what cleaning has to do.
    ///
    /// # Errors
    /// If its folder cannot be read.
    pub fn log_stats(&self) -> Result<Stats, StoreError> {
        self.log.stats().map_err(|error| self.told(error))
    }

    /// Says which commits can be read besides the last one, from now on.
    ///
    /// # Errors
    /// If the store was opened read-only.
    pub fn set_keep(&self, keep: Keep) -> Result<(), StoreError> {
        self.log.set_keep(keep).map_err(|error| self.told(error))
    }

    /// Hands each block whose commit the log keeps to `visit`, with the number of that commit in
    /// the log, until it answers `false`: the newest block first. All are as of one moment.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn kept_blocks(&self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), StoreError> {
        self.log.marks(visit).map_err(|error| self.told(error))
    }

    /// A view of an earlier commit of the log that is kept.
    ///
    /// # Errors
    /// If it is not kept, or cannot be read.
    pub fn at(&self, commit: u64) -> Result<LogSnapshot<'_>, StoreError> {
        let snapshot = self.log.at(commit).map_err(|error| self.told(error))?;
        Ok(self.lent(snapshot))
    }

    /// Takes the state back to an earlier commit of the log that is kept: by one commit that has
    /// its rows, those of trees that have names apart, which stay as they are. Each tree counts
    /// that commit as its next one. Rows that differ are in memory at once. Nobody else is to
    /// commit meanwhile, and a tree that was opened before is to be opened again.
    ///
    /// ```
    /// use spinney_store::{Keep, LogStore};
    /// use spinney_tree::{PageStore, Snapshot, Table, WriteSet};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let store = LogStore::create(folder.path())?;
    /// store.set_keep(Keep::All)?;
    /// for head in [*b"12", *b"13"] {
    ///     let mut set = WriteSet::new();
    ///     set.put(Table::Meta, b"head", head);
    ///     store.commit(&set)?;
    /// }
    /// store.go_back(1)?;
    /// let row = store.snapshot()?.read(Table::Meta, b"head")?.map(|row| row.to_vec());
    /// assert_eq!(row.as_deref(), Some(&b"12"[..]));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If it is not kept, or what differs cannot be read or written. Then nothing is changed.
    pub fn go_back(&self, commit: u64) -> Result<(), StoreError> {
        let (then, now) = (self.at(commit)?, PageStore::snapshot(self)?);
        let (mut set, mut shared, mut outcome) = (WriteSet::new(), Vec::new(), Ok(()));
        then.snapshot.differences(&now.snapshot, &mut |key| {
            outcome = if is_packed(key) {
                let row = |of: &LogSnapshot<'_>| of.snapshot.get(key).map_err(|e| self.told(e));
                let rows = row(&then).and_then(|then| Ok((then, row(&now)?)));
                rows.map(|(row, before)| {
                    shared.push(Changed { key: Key::from_slice(key), row, before });
                })
            } else {
                take_back(&then, &now, key, &mut set)
            };
            outcome.is_ok()
        });
        outcome?;
        set.sort();
        self.commit_with(&set, &shared)
    }

    /// Commits a write set, but for rows that share one: these are given.
    fn commit_with(&self, set: &WriteSet, shared: &[Changed]) -> Result<(), StoreError> {
        let mut batch = Batch::new();
        for (table, low, high) in set.drops().filter(|(table, ..)| *table != PACKED) {
            batch.remove_between(key_of(table, low), key_of(table, high));
        }
        let rows = set.rows_over();
        batch.reserve(rows.len() + shared.len());
        let mut block = None;
        for change in rows.filter(|change| change.table != PACKED) {
            block = block.max(block_of(&change));
            let key = key_of(change.table, change.key);
            match change.row {
                Some(row) => batch.put(key, row, change.before),
                None => batch.remove(key),
            }
        }
        shared.iter().for_each(|change| change.put_into(&mut batch));
        if let Some(block) = block {
            batch.mark(block);
        }
        self.log.commit(&mut batch).map_err(|error| self.told(error))
    }

    /// Copies what a second directory, which is made if need be, lacks of this store: a store of
    /// its own, that can be opened for reading at any moment.
    ///
    /// # Errors
    /// If there is something else, somebody writes it, or a disk fails. What was copied stays.
    pub fn ship(&self, directory: impl AsRef<Path>) -> Result<Shipped, StoreError> {
        let (files, directory) = (Files::System, directory.as_ref());
        let folder = directory.join(FOLDER);
        files.create_folder(&folder).map_err(|error| backend(folder.display(), error))?;
        let shipped = self.log.ship(&LogFolder::new(&files, &folder));
        shipped.map_err(|error| told(directory, error))
    }

    /// Reads everything and verifies every hash.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] at the first damage found.
    pub fn check(&self) -> Result<(), StoreError> {
        self.log.check().map_err(|error| self.told(error))
    }

    /// Moves rows together and gives room back to the file system.
    ///
    /// # Errors
    /// If it was opened read-only, or the disk fails.
    pub fn compact(&self) -> Result<(), StoreError> {
        self.log.compact().map_err(|error| self.told(error))
    }

    /// Closes the store and says whether that went well; dropping it does the same without saying
    /// so.
    ///
    /// # Errors
    /// If the disk fails. No commit is lost.
    pub fn close(self) -> Result<(), StoreError> {
        let Self { log, place, .. } = self;
        log.close().map_err(|error| told(&place, error))
    }

    fn told(&self, error: LogError) -> StoreError {
        told(&self.place, error)
    }
}

/// A store that is being created or removed, or whose making or removal was cut off.
fn unfinished(directory: &Path) -> PathBuf {
    beside(&directory.join(FOLDER), ".new")
}

fn not_a_directory(path: &Path) -> StoreError {
    foreign(path.display(), "it is a file, where the directory of a store was expected")
}

/// A log's error as a store's. `store` is the directory that the user named.
fn told(store: &Path, error: LogError) -> StoreError {
    let store = store.display();
    match error {
        LogError::Busy { .. } => StoreError::Busy { place: store.to_string() },
        LogError::Corrupt { place, what } => corrupt(place, what),
        LogError::Foreign { place, what } => foreign(place, what),
        LogError::Io { place, source } => backend(place, source),
        LogError::Missing { .. } => StoreError::Missing { place: store.to_string() },
        LogError::Poisoned { .. } => {
            backend(store, "an earlier write failed; close the store and open it again")
        }
        LogError::ReadOnly { .. } => backend(store, "it was opened read-only"),
        other => backend(store, other),
    }
}

fn of_packed(store: &Path, error: PackedError) -> StoreError {
    error.told(&store.display().to_string(), |error| told(store, error))
}

/// The block that a row brings a tree to: that of a root record which names one.
fn block_of(change: &RowOver<'_>) -> Option<u64> {
    let row = change.row.filter(|_| change.table == Table::Roots)?;
    let tree = change.key.try_into().ok().map(u32::from_be_bytes)?;
    let block = RootRecord::decode(TreeId(tree), row).ok()?.block?;
    Some(block.number)
}

/// Puts a row of one commit over that of another into a write set, by its key in the log.
fn take_back(
    then: &LogSnapshot<'_>,
    now: &LogSnapshot<'_>,
    key: &[u8],
    set: &mut WriteSet,
) -> Result<(), StoreError> {
    let table = key
        .split_first()
        .and_then(|(table, key)| Table::ALL.get(usize::from(*table)).map(|table| (*table, key)));
    let Some((table, key)) = table.filter(|(table, key)| !names::is_row_of_named(*table, key))
    else {
        return Ok(());
    };
    let Some(row) = then.read(table, key)? else {
        set.delete(table, key);
        return Ok(());
    };
    let tree = (table == Table::Roots).then(|| key.try_into().map(u32::from_be_bytes));
    match tree {
        Some(Ok(tree)) => {
            let later = now.read(table, key)?;
            let row = RootRecord::again(TreeId(tree), &row, later.as_deref());
            set.put(
                table,
                key,
                row.map_err(|error| corrupt(then.store.place.display(), error.to_string()))?,
            );
        }
        _ => set.put(table, key, row.row),
    }
    Ok(())
}

fn key_of(table: Table, key: &[u8]) -> Key {
    Key::of(table as u8, key)
}

impl PageStore for LogStore {
    type Snapshot<'a> = LogSnapshot<'a>;

    fn snapshot(&self) -> Result<LogSnapshot<'_>, StoreError> {
        let snapshot = self.log.snapshot().map_err(|error| self.told(error))?;
        Ok(self.lent(snapshot))
    }

    fn snapshot_of(&self, block: u64) -> Result<Option<LogSnapshot<'_>>, StoreError> {
        let snapshot = self.log.at_mark(block).map_err(|error| self.told(error))?;
        Ok(snapshot.map(|snapshot| self.lent(snapshot)))
    }

    fn kept_commits(&self) -> Result<Option<KeptCommits>, StoreError> {
        let mut kept: Option<KeptCommits> = None;
        self.kept_blocks(&mut |block, _| {
            let kept = kept.get_or_insert(KeptCommits { count: 0, first: block, last: block });
            (kept.count, kept.first) = (kept.count + 1, block);
            true
        })?;
        Ok(kept)
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        let is_any = set.rows().any(|(table, ..)| table == PACKED)
            || set.drops().any(|(table, ..)| table == PACKED);
        if !is_any {
            return self.commit_with(set, &[]);
        }
        let _sharing = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.log.snapshot().map_err(|error| self.told(error))?;
        let shared = packed::changes(&snapshot, set);
        let shared = shared.map_err(|error| of_packed(&self.place, error))?;
        // The log changes its index in place where nobody else holds it.
        drop(snapshot);
        self.commit_with(set, &shared)
    }
}

/// A view of one commit of a [`LogStore`].
#[derive(Debug)]
pub struct LogSnapshot<'a> {
    snapshot: spinney_log::Snapshot,
    store: &'a LogStore,
}

impl LogSnapshot<'_> {
    /// The number of the log's commit.
    pub fn commit(&self) -> u64 {
        self.snapshot.commit()
    }
}

impl Snapshot for LogSnapshot<'_> {
    type Row<'s>
        = LogRow<'s>
    where
        Self: 's;

    fn read<'s>(&'s self, table: Table, key: &[u8]) -> Result<Option<LogRow<'s>>, StoreError> {
        let row = if table == PACKED {
            packed::read(&self.snapshot, key)
                .map_err(|error| of_packed(&self.store.place, error))?
        } else {
            self.snapshot
                .get(&key_of(table, key))
                .map_err(|error| told(&self.store.place, error))?
        };
        Ok(row.map(|row| LogRow { row, snapshot: PhantomData }))
    }

    fn shows(&self) -> Option<CommitOf> {
        Some(CommitOf { store: self.store.number, commit: self.snapshot.commit() })
    }

    fn scan(
        &self,
        table: Table,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), StoreError> {
        if table == PACKED {
            let scanned = packed::scan(&self.snapshot, low, high, visit);
            return scanned.map_err(|error| of_packed(&self.store.place, error));
        }
        let end = [table as u8 + 1];
        let high = high.map_or_else(|| Key::from_slice(&end), |high| key_of(table, high));
        let scanned = self
            .snapshot
            .scan(&key_of(table, low), Some(&high), &mut |key, row| visit(&key[1..], row));
        scanned.map_err(|error| told(&self.store.place, error))
    }
}

/// A row lent by a [`LogSnapshot`].
#[derive(Debug)]
pub struct LogRow<'s> {
    row: Vec<u8>,
    snapshot: PhantomData<&'s ()>,
}

impl Deref for LogRow<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.row
    }
}
