//! The log: opening, reading, committing, closing.

use std::hash::{BuildHasher as _, Hasher as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::batch::Batch;
use crate::disk::Disk;
use crate::error::{LogError, corrupt, failed};
use crate::follow::Follower;
use crate::format::{FORMAT_BYTES, StoreId, format_file};
use crate::open::{FORMAT_FILE, Files, find, identify};
use crate::options::{Chore, Keep, Options};
use crate::past::Marks;
use crate::ship::Shipped;
use crate::view::{Counts, Meter, Snapshot, View};
use crate::write::Writer;

/// An append-only store of rows: bytes by key, in order of keys.
///
/// Each commit is durable when it returns. Any number of threads may read and commit; commits take
/// turns. One process has a log open for writing, any number may have it open for reading: see
/// docs/page-log.md.
#[derive(Debug)]
pub struct Log {
    files: Files,
    state: RwLock<Arc<View>>,
    access: Access,
    /// Commits of the past that were read last.
    past: Mutex<Vec<Arc<View>>>,
    marks: Mutex<Marks>,
}

#[derive(Debug)]
enum Access {
    Writer(Box<Mutex<Writer>>),
    Reader(Box<Mutex<Follower>>),
}

/// What a log holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The last commit.
    pub commit: u64,
    /// Its rows.
    pub rows: u64,
    /// Bytes of what those are made of: whole rows and deltas.
    pub live_bytes: u64,
    /// Bytes of the segments that rows are in.
    pub used_bytes: u64,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// All files of segments, free ones included.
    pub files: u64,
    /// Deltas that wait to be applied to their rows when those are read.
    pub deltas: u64,
    /// The oldest segment that rows are in, and the newest.
    pub segments: (u64, u64),
    /// The oldest commit that can be read.
    pub oldest_commit: u64,
    /// Bytes of segments above which rows are moved so that the oldest can go.
    pub allowed_bytes: u64,
    /// Segments without rows that cannot go yet: somebody reads them, or a commit that is kept.
    pub held_segments: u64,
    /// Bytes of memory that the index takes, about.
    pub index_bytes: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that no other log has.
fn new_id() -> StoreId {
    let draw = || std::hash::RandomState::new().build_hasher().finish().to_le_bytes();
    let mut id = StoreId::default();
    id[..8].copy_from_slice(&draw());
    id[8..].copy_from_slice(&draw());
    id
}

impl Log {
    /// Makes a log in a folder that is there.
    ///
    /// # Errors
    /// If there is a log already, another process is making one, or the disk fails.
    pub fn create(disk: impl Disk + 'static, options: Options) -> Result<Self, LogError> {
        let place = disk.place();
        let Some(lock) = disk.lock().map_err(failed(&place))? else {
            return Err(LogError::Busy { place });
        };
        match identify(&disk) {
            Err(LogError::Missing { .. }) => {}
            Err(error) => return Err(error),
            Ok(_) => {
                let source = std::io::ErrorKind::AlreadyExists.into();
                return Err(LogError::Io { place, source });
            }
        }
        let made = disk.create(FORMAT_FILE).and_then(|file| {
            file.write_at(&format_file(new_id()), 0)?;
            file.sync()?;
            disk.sync_names()
        });
        if let Err(error) = made {
            let _ = disk.remove(FORMAT_FILE);
            return Err(failed(&place)(error));
        }
        drop(lock);
        Self::open(disk, options)
    }

    /// Opens a log for reading and writing.
    ///
    /// # Errors
    /// [`LogError::Missing`] if there is none, [`LogError::Busy`] if another writer has it,
    /// [`LogError::Foreign`] if it is something else or of a newer format, [`LogError::Corrupt`] if
    /// it is damaged.
    pub fn open(disk: impl Disk + 'static, options: Options) -> Result<Self, LogError> {
        let id = identify(&disk)?;
        let place = disk.place();
        let Some(lock) = disk.lock().map_err(failed(&place))? else {
            return Err(LogError::Busy { place });
        };
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let files = Files { disk, id, meter: Arc::new(Meter::default()), writable: true };
        let Some(mut found) = find(&files)? else {
            return Err(corrupt(place, "its files change while nobody may change them"));
        };
        let writer = Writer::new(files.clone(), options, &mut found, lock)?;
        let access = Access::Writer(Box::new(Mutex::new(writer)));
        drop(found.replay);
        Ok(Self {
            files,
            state: RwLock::new(Arc::new(found.view)),
            access,
            past: Mutex::default(),
            marks: Mutex::default(),
        })
    }

    /// Opens a log for reading, also while another process writes it. Nothing is written.
    ///
    /// # Errors
    /// As [`open`](Self::open), but for `Busy`.
    pub fn open_read_only(disk: impl Disk + 'static) -> Result<Self, LogError> {
        let id = identify(&disk)?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let files = Files { disk, id, meter: Arc::new(Meter::default()), writable: false };
        let (follower, view) = Follower::start(&files)?;
        let access = Access::Reader(Box::new(Mutex::new(follower)));
        Ok(Self {
            files,
            state: RwLock::new(Arc::new(view)),
            access,
            past: Mutex::default(),
            marks: Mutex::default(),
        })
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A view of the last commit.
    ///
    /// # Errors
    /// If another process writes the log, and what it wrote cannot be read.
    pub fn snapshot(&self) -> Result<Snapshot, LogError> {
        let Access::Reader(follower) = &self.access else {
            return Ok(Snapshot { view: self.view(), _pin: None });
        };
        let mut follower = lock(follower);
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let pin = follower.refresh(&self.files, &mut state)?;
        Ok(Snapshot { view: Arc::clone(&state), _pin: pin })
    }

    /// A view of an earlier commit that is kept. It costs reading the index as of that commit once;
    /// after that it is as any other.
    ///
    /// # Errors
    /// [`LogError::Gone`] if it is not kept.
    pub fn at(&self, commit: u64) -> Result<Snapshot, LogError> {
        self.behind(self.snapshot()?, commit)
    }

    /// A view of the commit that a [mark](Batch::mark) means: the last one with the smallest mark
    /// that is not below it, of the commits since the last one whose mark is below it. So where
    /// marks are numbers of blocks, it is the state of that block, or else of the next one that
    /// there is; of several that had the number, one after the other was taken back, it is the last
    /// one. `None` where there is none, or the log keeps the last commit alone.
    ///
    /// ```
    /// use spinney_log::{Batch, Folder, Keep, Log, Options};
    ///
    /// let folder = tempfile::tempdir()?;
    /// let log = Log::create(Folder::new(folder.path()), Options::default().keep(Keep::All))?;
    /// for block in [2_u64, 4, 6] {
    ///     let row = block.to_be_bytes();
    ///     let mut batch = Batch::new();
    ///     batch.put(b"block", &row, None);
    ///     batch.mark(block);
    ///     log.commit(&mut batch)?;
    /// }
    /// let snapshot = log.at_mark(3)?.unwrap();
    /// assert_eq!(snapshot.get(b"block")?.unwrap(), 4_u64.to_be_bytes());
    /// assert!(log.at_mark(7)?.is_none());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if a record is damaged, [`LogError::Io`] if one cannot be read.
    pub fn at_mark(&self, mark: u64) -> Result<Option<Snapshot>, LogError> {
        let now = self.snapshot()?;
        if self.keep() == Keep::Commits(1) {
            return Ok(None);
        }
        let found = lock(&self.marks).find(&self.files, &now.view, mark)?;
        found.map(|commit| self.behind(now, commit)).transpose()
    }

    /// Hands each mark that has a commit of its own to `visit`, with the number of that commit,
    /// until it answers `false`: the highest mark first. All are as of one moment. Nothing is shown
    /// of a log that keeps the last commit alone. `visit` is not to ask the log for marks.
    ///
    /// ```
    /// # use spinney_log::{Batch, Folder, Keep, Log, Options};
    /// # let folder = tempfile::tempdir()?;
    /// # let log = Log::create(Folder::new(folder.path()), Options::default().keep(Keep::All))?;
    /// // Blocks 3 and 4 were taken back, and 3 came again.
    /// for block in [2_u64, 3, 4, 3] {
    ///     let row = block.to_be_bytes();
    ///     let mut batch = Batch::new();
    ///     batch.put(b"block", &row, None);
    ///     batch.mark(block);
    ///     log.commit(&mut batch)?;
    /// }
    /// let mut marks = Vec::new();
    /// log.marks(&mut |mark, commit| {
    ///     marks.push((mark, commit));
    ///     true
    /// })?;
    /// assert_eq!(marks, [(3, 4), (2, 1)]);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`at_mark`](Self::at_mark).
    pub fn marks(&self, visit: &mut dyn FnMut(u64, u64) -> bool) -> Result<(), LogError> {
        let now = self.snapshot()?;
        if self.keep() == Keep::Commits(1) {
            return Ok(());
        }
        lock(&self.marks).each(&self.files, &now.view, visit)
    }

    /// Which commits can be read besides the last one.
    pub fn keep(&self) -> Keep {
        match &self.access {
            Access::Writer(writer) => lock(writer).keep,
            Access::Reader(follower) => lock(follower).keep(),
        }
    }

    fn behind(&self, now: Snapshot, commit: u64) -> Result<Snapshot, LogError> {
        let Snapshot { view, _pin } = now;
        if commit == view.commit {
            return Ok(Snapshot { view, _pin });
        }
        let mut past = lock(&self.past);
        if let Some(found) = past.iter().find(|past| past.commit == commit) {
            return Ok(Snapshot { view: Arc::clone(found), _pin });
        }
        let found = crate::past::find(&self.files, &view, commit)?;
        let found = Arc::new(found);
        if self.keeps_views() {
            past.truncate(3);
            past.insert(0, Arc::clone(&found));
        }
        Ok(Snapshot { view: found, _pin })
    }

    /// Views of the past hold their segments: only where those stay anyway.
    fn keeps_views(&self) -> bool {
        matches!(&self.access, Access::Writer(_)) && self.keep() == Keep::All
    }

    /// Applies a batch: all of it, durably, or none.
    ///
    /// # Errors
    /// [`LogError::Io`] if the disk fails or is full. If that was in the write itself, the log
    /// refuses all further commits as [`LogError::Poisoned`] until it is opened again; then it is
    /// before the commit or after it.
    pub fn commit(&self, batch: &mut Batch<'_>) -> Result<(), LogError> {
        if batch.is_empty() {
            return Ok(());
        }
        self.write(batch, Chore::Pace)
    }

    fn writer(&self) -> Result<MutexGuard<'_, Writer>, LogError> {
        let place = || self.files.disk.place();
        let Access::Writer(writer) = &self.access else {
            return Err(LogError::ReadOnly { place: place() });
        };
        let writer = lock(writer);
        if writer.is_poisoned { Err(LogError::Poisoned { place: place() }) } else { Ok(writer) }
    }

    fn write(&self, batch: &mut Batch<'_>, chore: Chore) -> Result<(), LogError> {
        let mut writer = self.writer()?;
        writer.commit(self.view(), batch, chore, |change| {
            let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
            // In place, unless a snapshot has it.
            change(Arc::make_mut(&mut state))
        })
    }

    /// Moves all rows that share a segment with what nobody needs, and gives the room back.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn compact(&self) -> Result<(), LogError> {
        const PART: u64 = 8 << 20;
        let newest = self.writer()?.used.back().map_or(0, |used| used.segment.number);
        let is_left = |writer: &Writer| {
            writer.keep != Keep::All
                && writer.used_bytes() > writer.live / 16 * 17 + writer.segment_bytes()
                && writer.used.front().is_some_and(|used| used.segment.number < newest)
        };
        while is_left(&*self.writer()?) {
            self.write(&mut Batch::new(), Chore::Move(PART))?;
        }
        // Segments without rows go once the index that opening reads lies behind them.
        while self.writer()?.keep != Keep::All && self.writer()?.is_index_behind() {
            self.write(&mut Batch::new(), Chore::Index(PART as usize))?;
        }
        self.writer()?.trim(0);
        Ok(())
    }

    /// Which commits are kept from now on. The log remembers it with the next commit.
    ///
    /// # Errors
    /// If it was opened read-only.
    pub fn set_keep(&self, keep: Keep) -> Result<(), LogError> {
        self.writer()?.set_keep(keep)
    }

    /// Bytes and calls that passed between the log and its disk since it was opened.
    pub fn counts(&self) -> Counts {
        self.files.meter.counts()
    }

    /// What the log holds. This reads nothing of the rows.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn stats(&self) -> Result<Stats, LogError> {
        let view = self.snapshot()?.view;
        let mut stats = Stats { commit: view.commit, rows: view.index.len(), ..Stats::default() };
        for row in view.index.from(&[]) {
            let entry = row.entry();
            stats.live_bytes += entry.bytes();
            stats.deltas += entry.pieces.len() as u64 - 1;
        }
        stats.index_bytes = view.index.memory();
        stats.file_bytes = FORMAT_BYTES as u64;
        for name in self.files.names()? {
            if let Some((segment, _)) = self.files.open(&name)? {
                stats.files += 1;
                stats.file_bytes += segment.length()?;
            }
        }
        let number = |segment: Option<&u32>| segment.copied().unwrap_or_default().into();
        let segments = &view.segments;
        stats.segments = (number(segments.keys().next()), number(segments.keys().next_back()));
        stats.used_bytes = stats.file_bytes - FORMAT_BYTES as u64;
        stats.oldest_commit = crate::past::oldest(&self.files, &view)?;
        if let Access::Writer(writer) = &self.access {
            let writer = lock(writer);
            stats.used_bytes = writer.used_bytes();
            stats.allowed_bytes = writer.allowed(view.index.len());
            stats.held_segments = writer.retired.len() as u64;
            if let Some((commit, _)) = writer.kept.front() {
                stats.oldest_commit = *commit;
            } else if matches!(writer.keep, Keep::Commits(_)) {
                stats.oldest_commit = view.commit;
            }
        }
        Ok(stats)
    }

    /// Reads everything and verifies every hash: of the records that are needed, and of each row.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] at the first damage found.
    pub fn check(&self) -> Result<(), LogError> {
        let Snapshot { view, _pin } = self.snapshot()?;
        crate::past::check(&self.files, &view)?;
        for row in view.index.from(&[]) {
            view.row(row.key, &row.entry())?;
        }
        Ok(())
    }

    /// Copies what another folder, which is there, lacks of this log. That is a log of its own, of
    /// the commits of this one, and can be read at any moment; nobody is to write it.
    ///
    /// # Errors
    /// If there is something else, somebody writes it, or a disk fails; what was copied stays.
    pub fn ship(&self, to: &impl Disk) -> Result<Shipped, LogError> {
        let Snapshot { view, _pin } = self.snapshot()?;
        let Some(_lock) = to.lock().map_err(failed(&to.place()))? else {
            return Err(LogError::Busy { place: to.place() });
        };
        crate::ship::ship(&self.files, &view, to)
    }

    /// Closes the log and says whether that went well; dropping it does the same without saying so.
    ///
    /// # Errors
    /// If the disk fails. No commit is lost.
    pub fn close(self) -> Result<(), LogError> {
        self.release()
    }

    fn release(&self) -> Result<(), LogError> {
        match &self.access {
            Access::Writer(writer) => lock(writer).close(),
            Access::Reader(_) => Ok(()),
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Every commit is durable already.
        let _ = self.release();
    }
}
