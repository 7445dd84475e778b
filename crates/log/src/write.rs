//! The writer: one record a commit.
//!
//! Invariants:
//! - nothing but the record is written in a commit, by one write, and nobody sees it before it is
//!   synced;
//! - a failure before that write leaves everything as it was, one in it or after it stops the
//!   writer;
//! - the index changes by reading the record that was written.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::batch::Batch;
use crate::encode::{Encoded, Encoder};
use crate::error::{LogError, failed};
use crate::format::{
    BLOCK, CLOSING, FIRST, HEADER_BYTES, Header, IndexWriter, KEY_BYTES_MAX, LAST, NO_MARK,
};
use crate::key::Key;
use crate::open::{Files, Found, Needed, Tail, segment_name};
use crate::options::{Chore, Keep, Options};
use crate::replay::{Cycle, Replay};
use crate::victim::{Cleaned, Victim};
use crate::view::{Segment, View};

/// Bytes of a record at most: offsets in a segment have 32 bits.
const RECORD_BYTES_MAX: u64 = 3 << 30;
const ROW_BYTES_MAX: usize = 1 << 30;
/// Bytes of the index that each record carries at least.
const STRETCH_BYTES: usize = 2_048;
/// Files kept for segments to come.
const SPARE: usize = 1;

/// Bytes of the index of so many rows where it is written, about.
pub(crate) const fn index_bytes(rows: u64) -> u64 {
    rows * 48
}

/// What a commit makes of the view before it.
pub(crate) type Publishing<'a> = dyn FnMut(&mut View) -> Result<(), LogError> + 'a;

// Fields: all that a commit changes, behind one lock.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) files: Files,
    pub(crate) options: Options,
    pub(crate) keep: Keep,
    pub(crate) tail: Option<Tail>,
    /// Room in the file of the last record.
    capacity: u64,
    /// Segments that rows are in, oldest first.
    pub(crate) used: VecDeque<Needed>,
    /// Those whose rows were moved, by number.
    pub(crate) retired: VecDeque<Arc<Segment>>,
    /// Where cleaning is, in the oldest segment.
    pub(crate) victim: Option<Victim>,
    pub(crate) live: u64,
    cycle: Cycle,
    /// The oldest segment that each kept commit needs, oldest commit first.
    pub(crate) kept: VecDeque<(u64, u64)>,
    segments_max: u64,
    files_max: u64,
    pub(crate) is_poisoned: bool,
    pub(crate) _lock: Box<dyn Any + Send + Sync>,
    /// Bytes of rows in the last record that were not moved.
    pub(crate) own_bytes: u64,
    data: Vec<u8>,
    record: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(
        files: Files,
        options: Options,
        found: &mut Found,
        lock: Box<dyn Any + Send + Sync>,
    ) -> Result<Self, LogError> {
        let rest = std::mem::take(&mut found.rest);
        let Found { replay, tail, needed, segments_max, files_max, .. } = &*found;
        let capacity = tail.as_ref().map_or(Ok(0), |tail| tail.segment.length())?;
        let mut writer = Self {
            files,
            options,
            keep: options
                .keep
                .unwrap_or_else(|| Keep::decode(tail.as_ref().map_or(1, |tail| tail.header.keep))),
            tail: tail.clone(),
            capacity,
            used: needed.clone(),
            retired: VecDeque::new(),
            victim: None,
            live: replay.live,
            cycle: replay.cycle.clone(),
            kept: VecDeque::new(),
            segments_max: *segments_max,
            files_max: *files_max,
            is_poisoned: false,
            _lock: lock,
            own_bytes: 0,
            data: Vec::new(),
            record: Vec::new(),
        };
        if tail.is_some() || !rest.is_empty() {
            // A process that was cut off may have left a file whose name is not certain: it would
            // be used.
            let place = writer.files.disk.place();
            writer.files.disk.sync_names().map_err(failed(&place))?;
        }
        writer.find_kept()?;
        if let Some(tail) = tail {
            writer.make_sure(tail, found.is_torn)?;
        }
        let newest = tail.as_ref().map_or(0, |tail| tail.segment.number);
        for segment in rest {
            if segment.number <= newest {
                writer.retired.push_back(segment);
            } else if let Some(torn) = Arc::into_inner(segment) {
                // Its first record was torn. The next one has another number.
                torn.write(&[0; BLOCK as usize], 0)?;
                torn.sync()?;
                writer.retired.push_front(Arc::new(Segment { number: 0, ..torn }));
            }
        }
        Ok(writer)
    }

    /// Writes the last record again as it is: after a failed sync the system may show what the disk
    /// does not have. A torn one behind it goes.
    fn make_sure(&self, tail: &Tail, is_torn: bool) -> Result<(), LogError> {
        let mut record = tail.segment.read(tail.at, tail.header.len() as usize)?;
        if is_torn {
            record.resize(record.len() + BLOCK as usize, 0);
        }
        tail.segment.write(&record, tail.at)?;
        tail.segment.sync()
    }

    /// Which segments the commits need that are kept.
    fn find_kept(&mut self) -> Result<(), LogError> {
        let Keep::Commits(keep) = self.keep else { return Ok(()) };
        if keep <= 1 {
            return Ok(());
        }
        for needed in &self.used {
            let mut at = 0;
            while at < needed.end {
                let Some(header) = needed.segment.header(at, self.files.id)? else { break };
                self.kept.push_back((header.commit, header.oldest));
                at += header.len();
            }
        }
        self.forget();
        Ok(())
    }

    pub(crate) fn set_keep(&mut self, keep: Keep) -> Result<(), LogError> {
        self.keep = keep;
        self.kept.clear();
        self.find_kept()
    }

    fn forget(&mut self) {
        let Keep::Commits(keep) = self.keep else { return };
        let newest = self.kept.back().map_or(0, |kept| kept.0);
        while self.kept.front().is_some_and(|kept| kept.0 + keep <= newest) {
            self.kept.pop_front();
        }
    }

    /// Bytes of the segments that rows are in.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.used.iter().map(|needed| needed.end).sum()
    }

    /// Whether reading the index begins in a segment that no row is in.
    pub(crate) fn is_index_behind(&self) -> bool {
        let oldest = self.used.front().map_or(0, |used| used.segment.number.into());
        self.cycle.whole.0 < oldest
    }

    /// The size of the next segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let held: u64 = self.used_bytes();
        let part = (held / 32).clamp(self.options.segment_bytes_min, 1 << 30);
        1 << part.ilog2()
    }

    /// Makes the record of a commit, writes it, and has `publish` change the index once it is
    /// durable.
    pub(crate) fn commit(
        &mut self,
        view: Arc<View>,
        batch: &mut Batch<'_>,
        chore: Chore,
        publish: impl FnOnce(&mut Publishing<'_>) -> Result<(), LogError>,
    ) -> Result<(), LogError> {
        batch.sort();
        let mut own = Encoded { data: std::mem::take(&mut self.data), ..Encoded::default() };
        own.data.clear();
        let encoded = self.encode(&view, batch, chore, &mut own);
        drop(view);
        self.data = own.data;
        let (index, cycle, victim) = encoded?;
        // Cleaned segments that the new record needs no more.
        let gone = victim.gone;
        let commit = self.tail.as_ref().map_or(0, |tail| tail.header.commit) + 1;
        let mark = batch.mark.or(self.tail.as_ref().map(|tail| tail.header.mark));
        let named = (commit, mark.unwrap_or(NO_MARK));
        let (segment, at) = self.write(&index, named, 0, &cycle, gone)?;
        let tail = self.tail.as_ref().expect("it was just written");
        let header = tail.header;
        (self.victim, self.own_bytes) = (victim.at, victim.own_bytes);
        for needed in self.used.drain(..gone) {
            self.retired.push_back(needed.segment);
        }
        let (mut live, mut new_cycle) = (self.live, self.cycle.clone());
        publish(&mut |view| {
            let mut replay = Replay::onto(std::mem::take(&mut view.index), live, new_cycle.clone());
            let taken = replay.take(&segment, at, &header, &index.bytes);
            (view.index, live, new_cycle) = (replay.index, replay.live, replay.cycle);
            taken?;
            view.commit = commit;
            let segments = Arc::make_mut(&mut view.segments);
            segments.insert(segment.number, Arc::clone(&segment));
            while let Some(first) = segments.first_entry()
                && u64::from(*first.key()) < header.oldest
            {
                first.remove();
            }
            Ok(())
        })?;
        (self.live, self.cycle) = (live, new_cycle);
        if matches!(self.keep, Keep::Commits(2..)) {
            self.kept.push_back((commit, header.oldest));
            self.forget();
        }
        self.trim(SPARE);
        Ok(())
    }

    /// The index and the data of a commit; what cleaning adds to it, and where that is then.
    fn encode(
        &self,
        view: &View,
        batch: &Batch<'_>,
        chore: Chore,
        own: &mut Encoded,
    ) -> Result<(IndexWriter, Cycle, Cleaned), LogError> {
        for change in &batch.changes {
            self.bound("a key", change.key.len(), KEY_BYTES_MAX)?;
            self.bound("a row", change.row.map_or(0, <[u8]>::len), ROW_BYTES_MAX)?;
        }
        let rows: usize =
            batch.changes.iter().filter_map(|change| change.row).map(<[u8]>::len).sum();
        self.bound("a commit", rows, RECORD_BYTES_MAX as usize)?;
        // Rows come behind the stretch of the index, which takes as many bytes as they do.
        for (low, high) in &batch.ranges {
            own.index.range(low, high);
        }
        let mut cleaning = self.begin_cleaning(chore);
        let moved = cleaning.choose(self, view, batch)?;
        Encoder { view, batch, whole: &moved.whole }.encode(own);
        let Encoded { index: own, data } = own;
        let from = data.len();
        cleaning.own_bytes = from as u64;
        for (key, entry) in &moved.rows {
            let row = view.row(key, entry)?;
            own.row(false, key, row.len(), entry.hash);
            data.extend_from_slice(&row);
        }
        self.files.meter.moved((data.len() - from) as u64);
        let stretch_bytes = match chore {
            Chore::Index(bytes) => bytes,
            Chore::Pace | Chore::Move(_) => {
                self.stretch_bytes(view.index.len(), own.bytes.len(), data.len())
            }
        };
        let (mut index, cycle) = self.stretch(view, stretch_bytes);
        index.append(std::mem::take(own));
        Ok((index, cycle, cleaning.end()))
    }

    fn bound(&self, what: &'static str, bytes: usize, bytes_max: usize) -> Result<(), LogError> {
        if bytes <= bytes_max {
            return Ok(());
        }
        let (bytes, bytes_max) = (bytes as u64, bytes_max as u64);
        Err(LogError::TooLong { place: self.files.disk.place(), what, bytes, bytes_max })
    }

    /// How much of `all` a record of so many bytes has to deal with, so that all of it was dealt
    /// with by the time that records fill three quarters of the bytes of rows and those of the
    /// index.
    pub(crate) fn share(&self, all: u64, rows: u64, record: usize) -> usize {
        let pass = (self.live / 4 * 3 + index_bytes(rows)).max(1);
        let share = u128::from(all) * record as u128 / u128::from(pass);
        usize::try_from(share).unwrap_or(usize::MAX)
    }

    /// How many bytes of the index a record carries. At least those of its own entries: then
    /// opening reads no more of entries than of the index. More where the index is large beside the
    /// rows: a segment goes only after the index was written twice behind it, so the index has to
    /// be written as fast as segments fill.
    fn stretch_bytes(&self, rows: u64, own: usize, data: usize) -> usize {
        own.max(STRETCH_BYTES).max(self.share(index_bytes(rows), rows, own + data))
    }

    /// The next stretch of the index, of about so many bytes.
    fn stretch(&self, view: &View, bytes: usize) -> (IndexWriter, Cycle) {
        let mut index = IndexWriter::default();
        let start = self.cycle.next.clone().unwrap_or_default();
        let mut flags = if self.cycle.next.is_none() { FIRST } else { 0 };
        let mut rows = view.index.from(&start);
        let next = loop {
            match rows.next() {
                None => break None,
                Some(row) if index.bytes.len() >= bytes => break Some(Key::from_slice(row.key)),
                Some(row) => index.held(row.key, row.entry),
            }
        };
        if next.is_none() {
            flags |= LAST;
        }
        index.covered(flags, next.as_deref().unwrap_or_default());
        let mut cycle = self.cycle.clone();
        // Zeros stand for the record that is to be written.
        if flags & FIRST != 0 {
            cycle.running = (0, 0);
        }
        if next.is_none() {
            cycle.whole = cycle.running;
        }
        cycle.next = next;
        (index, cycle)
    }

    /// Writes a record behind the last one, or at the start of a new segment, and syncs it. Answers
    /// where it lies.
    fn write(
        &mut self,
        index: &IndexWriter,
        (commit, mark): (u64, u64),
        flags: u32,
        cycle: &Cycle,
        gone: usize,
    ) -> Result<(Arc<Segment>, u64), LogError> {
        let mut header = Header {
            flags,
            id: self.files.id,
            commit,
            keep: self.keep.encode(),
            chain: self.tail.as_ref().map_or(0, |tail| tail.header.hash()),
            entries: index.entries,
            index_bytes: index.bytes.len() as u64,
            data_bytes: self.data.len() as u64,
            index_hash: xxh3_64(&index.bytes),
            data_hash: xxh3_64(&self.data),
            mark,
            ..Header::default()
        };
        // A record that closes the log has room where the last one ends.
        let len = header.len() + if flags & CLOSING == 0 { BLOCK } else { 0 };
        self.bound("a commit", len as usize, RECORD_BYTES_MAX as usize)?;
        let place = self.tail.as_ref().map(|tail| (Arc::clone(&tail.segment), tail.end()));
        let fits = place.filter(|(_, at)| at + len <= self.capacity);
        let is_new = fits.is_none();
        let (segment, at) = match fits {
            Some(place) => place,
            None => (Arc::new(self.new_segment(len)?), 0),
        };
        header.segment = u64::from(segment.number);
        (header.before, header.before_end) = match (&self.tail, self.used.back()) {
            (Some(tail), _) if is_new => (tail.header.segment, tail.end()),
            (Some(tail), _) => (tail.header.before, tail.header.before_end),
            _ => (0, 0),
        };
        let here = (header.segment, at);
        let whole = if cycle.whole == (0, 0) { here } else { cycle.whole };
        header.replay = whole;
        header.oldest = self.oldest_needed(gone, header.segment).min(whole.0);
        let record = &mut self.record;
        record.clear();
        record.reserve(len as usize);
        record.extend_from_slice(&header.encode());
        record.extend_from_slice(&index.bytes);
        record.extend_from_slice(&self.data);
        record.resize(header.len() as usize, 0);
        let done = segment.write(record, at).and_then(|()| segment.sync());
        if is_new {
            segment.file.unlock();
        }
        if let Err(error) = done {
            self.is_poisoned = true;
            return Err(error);
        }
        if is_new {
            self.capacity = segment.length()?;
            let needed = Needed { segment: Arc::clone(&segment), first: header, end: 0 };
            self.used.push_back(needed);
        }
        let tail = Tail { segment: Arc::clone(&segment), at, header };
        if let Some(last) = self.used.back_mut() {
            last.end = tail.end();
        }
        self.tail = Some(tail);
        Ok((segment, at))
    }

    /// The oldest segment that rows are in, or that a kept commit needs, once so many of the used
    /// ones are gone.
    fn oldest_needed(&self, gone: usize, newest: u64) -> u64 {
        let number =
            |needed: Option<&Needed>| needed.map_or(newest, |needed| needed.segment.number.into());
        let kept = match self.keep {
            Keep::All => number(self.used.front()),
            Keep::Commits(_) => self.kept.front().map_or(u64::MAX, |kept| kept.1),
        };
        number(self.used.get(gone)).min(kept)
    }

    /// A file for the next segment, locked: one that nobody needs, or a new one.
    fn new_segment(&mut self, len: u64) -> Result<Segment, LogError> {
        let bytes = self.segment_bytes().max(len);
        let number = u32::try_from(self.segments_max + 1).ok();
        let number =
            number.filter(|number| *number < u32::MAX).ok_or_else(|| LogError::TooLong {
                place: self.files.disk.place(),
                what: "a log",
                bytes: self.segments_max,
                bytes_max: u64::from(u32::MAX),
            })?;
        let mut taken = None;
        while let Some(old) = self.take_retired()? {
            let length = old.length()?;
            if length < len || length > bytes.saturating_mul(4) {
                self.discard(&old);
                continue;
            }
            if length < bytes {
                // Without the room it is as long as it was.
                let _ = old.file.allocate(bytes);
            }
            taken = Some(old);
            break;
        }
        let segment = match taken {
            Some(old) => Segment { number, ..old },
            None => self.new_file(number, bytes)?,
        };
        self.segments_max = number.into();
        Ok(segment)
    }

    fn new_file(&mut self, number: u32, bytes: u64) -> Result<Segment, LogError> {
        let name = segment_name(self.files_max + 1);
        let place = self.files.place(&name);
        let file = self.files.disk.create(&name).map_err(failed(&place))?;
        self.files_max += 1;
        let made = file.allocate(bytes).and_then(|()| {
            file.try_lock(false)?;
            self.files.disk.sync_names()
        });
        if let Err(error) = made {
            // What cannot be removed is found as free when the log is opened again.
            let _ = self.files.disk.remove(&name);
            return Err(failed(&place)(error));
        }
        let meter = Arc::clone(&self.files.meter);
        Ok(Segment { number, name, place, file, meter })
    }

    /// The oldest segment that nobody needs any more, locked.
    fn take_retired(&mut self) -> Result<Option<Segment>, LogError> {
        let needed = self.tail.as_ref().map_or(u64::MAX, |tail| tail.header.oldest);
        let Some(old) = self.retired.front() else { return Ok(None) };
        // Those of lower numbers come first, so that whoever needs one keeps all after it.
        if u64::from(old.number) >= needed
            || Arc::strong_count(old) > 1
            || !old.file.try_lock(false).map_err(failed(&old.place))?
        {
            return Ok(None);
        }
        Ok(self.retired.pop_front().and_then(Arc::into_inner))
    }

    fn discard(&self, old: &Segment) {
        // What stays is free when the log is opened again.
        let _ = self.files.disk.remove(&old.name);
        old.file.unlock();
    }

    /// Removes files that nobody needs, but for so many.
    pub(crate) fn trim(&mut self, spare: usize) {
        while self.retired.len() > spare {
            match self.take_retired() {
                Ok(Some(old)) => self.discard(&old),
                _ => break,
            }
        }
    }

    /// Says that the log was closed, so that damage to its last commit is seen.
    pub(crate) fn close(&mut self) -> Result<(), LogError> {
        let Some(tail) = &self.tail else { return Ok(()) };
        if self.is_poisoned
            || tail.header.flags & CLOSING != 0
            || tail.end() + BLOCK > self.capacity
        {
            return Ok(());
        }
        self.data.clear();
        let (named, cycle) = ((tail.header.commit, tail.header.mark), self.cycle.clone());
        self.write(&IndexWriter::default(), named, CLOSING, &cycle, 0).map(drop)
    }
}

const _: () = assert!(HEADER_BYTES < BLOCK as usize);
