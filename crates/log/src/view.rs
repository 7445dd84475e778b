//! A commit as readers see it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;

use crate::delta;
use crate::disk::DiskFile;
use crate::error::{LogError, corrupt, failed};
use crate::format::{self, BLOCK, Entry, HEADER_BYTES, Header, Piece, StoreId};
use crate::index::{Index, Row};

/// What passed between a log and its disk since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Bytes that were read.
    pub bytes_read: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Writes.
    pub writes: u64,
    /// Waits for the disk.
    pub syncs: u64,
    /// Bytes of rows that were moved so that a segment may go.
    pub bytes_moved: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Meter {
    bytes_read: AtomicU64,
    reads: AtomicU64,
    bytes_written: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    bytes_moved: AtomicU64,
}

impl Meter {
    pub(crate) fn counts(&self) -> Counts {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            bytes_read: of(&self.bytes_read),
            reads: of(&self.reads),
            bytes_written: of(&self.bytes_written),
            writes: of(&self.writes),
            syncs: of(&self.syncs),
            bytes_moved: of(&self.bytes_moved),
        }
    }

    fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes_read.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes_moved.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// A segment's file, open.
#[derive(Debug)]
pub(crate) struct Segment {
    /// 0 for a file that holds nothing of use.
    pub(crate) number: u32,
    pub(crate) name: String,
    /// The file, as messages name it.
    pub(crate) place: String,
    pub(crate) file: Box<dyn DiskFile>,
    pub(crate) meter: Arc<Meter>,
}

impl Segment {
    /// Reads exactly so many bytes.
    pub(crate) fn read(&self, at: u64, bytes: usize) -> Result<Vec<u8>, LogError> {
        let mut out = vec![0; bytes];
        self.read_into(at, &mut out)?;
        Ok(out)
    }

    pub(crate) fn read_into(&self, at: u64, out: &mut [u8]) -> Result<(), LogError> {
        if self.read_some(at, out)? < out.len() {
            return Err(corrupt(&self.place, "it ends before what it refers to"));
        }
        Ok(())
    }

    /// Reads all of it if that takes no wait; else asks for it, and answers `false`.
    fn read_at_hand(&self, at: u64, out: &mut [u8]) -> bool {
        let is_read = self.file.read_at_hand(out, at);
        if is_read {
            self.meter.read(out.len());
        }
        is_read
    }

    pub(crate) fn read_some(&self, at: u64, out: &mut [u8]) -> Result<usize, LogError> {
        let read = self.file.read_at(out, at).map_err(failed(&self.place))?;
        self.meter.read(read);
        Ok(read)
    }

    pub(crate) fn write(&self, bytes: &[u8], at: u64) -> Result<(), LogError> {
        self.meter.writes.fetch_add(1, Ordering::Relaxed);
        self.meter.bytes_written.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_at(bytes, at).map_err(failed(&self.place))
    }

    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.meter.syncs.fetch_add(1, Ordering::Relaxed);
        self.file.sync().map_err(failed(&self.place))
    }

    pub(crate) fn length(&self) -> Result<u64, LogError> {
        self.file.length().map_err(failed(&self.place))
    }

    /// The header at an offset, if there is one.
    pub(crate) fn header(&self, at: u64, id: StoreId) -> Result<Option<Header>, LogError> {
        let mut head = [0; HEADER_BYTES];
        let read = self.read_some(at, &mut head)?;
        Ok(Header::decode(&head[..read], id))
    }

    /// The index of a record.
    pub(crate) fn index(&self, at: u64, header: &Header) -> Result<Vec<u8>, LogError> {
        let end = at.saturating_add(header.len());
        // Before memory is taken for it.
        if self.length()? < end {
            return Err(corrupt(&self.place, "it ends before what it refers to"));
        }
        let index = self.read(at + HEADER_BYTES as u64, header.index_bytes as usize)?;
        if xxhash_rust::xxh3::xxh3_64(&index) != header.index_hash {
            let what = format!("the index of the record at {at} does not match its hash");
            return Err(corrupt(&self.place, what));
        }
        Ok(index)
    }

    /// Whether all of a record matches its hashes.
    pub(crate) fn is_whole(&self, at: u64, header: &Header) -> Result<bool, LogError> {
        if self.length()? < at.saturating_add(header.len()) {
            return Ok(false);
        }
        match self.index(at, header) {
            Err(LogError::Corrupt { .. }) => return Ok(false),
            index => drop(index?),
        }
        let data = self.read(at + header.data_at(), header.data_bytes as usize)?;
        Ok(xxhash_rust::xxh3::xxh3_64(&data) == header.data_hash)
    }
}

/// A locked file of another process's log. The system unlocks it if this process dies.
#[derive(Debug)]
pub(crate) struct Pin {
    pub(crate) segment: u64,
    pub(crate) file: Box<dyn DiskFile>,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.file.unlock();
    }
}

pub(crate) type Segments = Arc<BTreeMap<u32, Arc<Segment>>>;

/// A commit: where its rows lie, and the files of that.
#[derive(Clone, Debug, Default)]
pub(crate) struct View {
    pub(crate) index: Index,
    pub(crate) segments: Segments,
    pub(crate) commit: u64,
}

impl View {
    pub(crate) fn row(&self, key: &[u8], entry: &Entry) -> Result<Vec<u8>, LogError> {
        let mut row = self.read(&entry.pieces)?;
        if let [first, deltas @ ..] = &entry.pieces[..]
            && !deltas.is_empty()
        {
            let bytes = row.split_off(first.len as usize);
            let mut rest = &bytes[..];
            for piece in deltas {
                let (delta, behind) = rest.split_at(piece.len as usize);
                if delta::apply_in_place(&mut row, delta).is_none() {
                    return Err(damaged(self.segment(*piece)?, key, piece));
                }
                rest = behind;
            }
        }
        if format::row_hash(key, &row) != entry.hash {
            let Some(first) = entry.pieces.first() else {
                return Err(corrupt("the index", "a row without pieces"));
            };
            return Err(damaged(self.segment(*first)?, key, first));
        }
        Ok(row)
    }

    /// Reads pieces, one behind the other.
    fn read(&self, pieces: &[Piece]) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; pieces.iter().map(|piece| piece.len as usize).sum()];
        let (mut rest, mut waits) = (&mut bytes[..], SmallVec::<[_; 9]>::new());
        for piece in pieces {
            let segment = self.segment(*piece)?;
            let (out, behind) = rest.split_at_mut(piece.len as usize);
            rest = behind;
            // All that the disk has to be waited for is asked for before the first wait.
            if pieces.len() == 1 || !segment.read_at_hand(piece.at.into(), out) {
                waits.push((segment, piece, out));
            }
        }
        for (segment, piece, out) in waits {
            segment.read_into(piece.at.into(), out)?;
        }
        Ok(bytes)
    }

    fn segment(&self, piece: Piece) -> Result<&Segment, LogError> {
        let found = self.segments.get(&piece.segment);
        found.map(|segment| &**segment).ok_or_else(|| {
            corrupt("the index", format!("it refers to segment {}, which is gone", piece.segment))
        })
    }
}

fn damaged(segment: &Segment, key: &[u8], piece: &Piece) -> LogError {
    let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    corrupt(&segment.place, format!("row 0x{key} at {} does not match its hash", piece.at))
}

/// A consistent view of one commit: it stays as it is, whatever is committed later.
///
/// ```
/// use spinney_log::{Batch, Folder, Log, Options};
///
/// let folder = tempfile::tempdir()?;
/// let log = Log::create(Folder::new(folder.path()), Options::default())?;
/// let mut batch = Batch::new();
/// batch.put(b"key", b"row", None);
/// log.commit(&mut batch)?;
/// let snapshot = log.snapshot()?;
/// assert_eq!(snapshot.get(b"key")?.as_deref(), Some(&b"row"[..]));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub(crate) view: Arc<View>,
    pub(crate) _pin: Option<Arc<Pin>>,
}

impl Snapshot {
    /// The number of the commit.
    pub fn commit(&self) -> u64 {
        self.view.commit
    }

    /// How many rows there are.
    pub fn rows(&self) -> u64 {
        self.view.index.len()
    }

    /// Reads a row.
    ///
    /// # Errors
    /// [`LogError::Corrupt`] if it does not match its hash, [`LogError::Io`] if it cannot be read.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, LogError> {
        self.view.index.get(key).map(|entry| self.view.row(key, &entry)).transpose()
    }

    /// Hands each row with `low <= key < high` to `visit`, in order of keys, until it answers
    /// `false`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn scan(
        &self,
        low: &[u8],
        high: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), LogError> {
        for row in self.view.index.from(low) {
            let is_above = high.is_some_and(|high| row.key >= high);
            if is_above || !visit(row.key, &self.view.row(row.key, &row.entry())?) {
                break;
            }
        }
        Ok(())
    }

    /// Hands each key whose row here is not what it is in another snapshot of the log to `visit`,
    /// in order of keys, until it answers `false`. Rows of one hash are the same; none is read.
    pub fn differences(&self, other: &Self, visit: &mut dyn FnMut(&[u8]) -> bool) {
        let (mut here, mut there) = (self.view.index.from(&[]), other.view.index.from(&[]));
        let (mut one, mut two) = (here.next(), there.next());
        loop {
            let order = match (one, two) {
                (Some(one), Some(two)) => one.key.cmp(two.key),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (None, None) => return,
            };
            let hash = |row: Option<Row<'_>>| row.map(|row| row.entry().hash);
            let is_same = order.is_eq() && hash(one) == hash(two);
            let differing = if order.is_gt() { two } else { one }.filter(|_| !is_same);
            if differing.is_some_and(|row| !visit(row.key)) {
                return;
            }
            one = if order.is_gt() { one } else { here.next() };
            two = if order.is_lt() { two } else { there.next() };
        }
    }

    /// Hands each key from `low` on to `visit`, with how many pieces its row has and the bytes of
    /// those, until it answers `false`. This reads nothing.
    pub fn keys(&self, low: &[u8], visit: &mut dyn FnMut(&[u8], usize, u64) -> bool) {
        for row in self.view.index.from(low) {
            let entry = row.entry();
            if !visit(row.key, entry.pieces.len(), entry.bytes()) {
                break;
            }
        }
    }
}

/// Whether a file has a record of this log after the one of this segment and commit, anywhere from
/// an offset on.
pub(crate) fn has_later(
    segment: &Segment,
    id: StoreId,
    from: u64,
    last: (u64, u64),
) -> Result<bool, LogError> {
    const PART: usize = 256 << 10;
    let (mut at, mut part) = (from, vec![0; PART]);
    loop {
        let read = segment.read_some(at, &mut part)?;
        for block in part[..read].chunks(BLOCK as usize) {
            if let Some(header) = Header::decode(block, id)
                && (header.segment, header.commit) > last
            {
                return Ok(true);
            }
        }
        if read < PART {
            return Ok(false);
        }
        at += PART as u64;
    }
}
