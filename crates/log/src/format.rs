//! The bytes of the log: see docs/page-log.md.

use smallvec::SmallVec;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::key::Key;

/// Records begin at multiples of it.
pub(crate) const BLOCK: u64 = 4_096;
pub(crate) const HEADER_BYTES: usize = 144;
pub(crate) const FORMAT_BYTES: usize = 40;
/// The format written here.
pub(crate) const FORMAT: u32 = 3;
const FORMAT_MAGIC: &[u8; 8] = b"SPNYLOG\n";
const RECORD_MAGIC: u32 = u32::from_le_bytes(*b"SPRC");

/// The flag of a record that closes the log.
pub(crate) const CLOSING: u32 = 1;
/// A stretch begins with the first key.
pub(crate) const FIRST: u8 = 1;
/// A stretch goes on to the last key.
pub(crate) const LAST: u8 = 2;

/// The mark of a commit that has none.
pub(crate) const NO_MARK: u64 = u64::MAX;

/// Which log a record belongs to.
pub(crate) type StoreId = [u8; 16];

/// The file that says that this is a log.
pub(crate) fn format_file(id: StoreId) -> [u8; FORMAT_BYTES] {
    let mut file = [0; FORMAT_BYTES];
    file[..8].copy_from_slice(FORMAT_MAGIC);
    file[8..12].copy_from_slice(&FORMAT.to_le_bytes());
    file[16..32].copy_from_slice(&id);
    let hash = xxh3_64(&file[..32]);
    file[32..].copy_from_slice(&hash.to_le_bytes());
    file
}

/// What is wrong with a file that is not the format's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoFormat {
    Damaged,
    Unknown(u32),
    Other,
}

pub(crate) fn read_format(file: &[u8]) -> Result<StoreId, NoFormat> {
    let mut bytes = Bytes(file);
    if bytes.take(8) != Some(FORMAT_MAGIC) {
        return Err(NoFormat::Other);
    }
    let mut parts = || Some((bytes.u32()?, bytes.u32()?, bytes.array::<16>()?, bytes.u64()?));
    let (format, _, id, hash) = parts().ok_or(NoFormat::Damaged)?;
    match format {
        _ if xxh3_64(&file[..32]) != hash => Err(NoFormat::Damaged),
        FORMAT => Ok(id),
        format => Err(NoFormat::Unknown(format)),
    }
}

/// The header of a record.
// Fields: those of the record on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) flags: u32,
    pub(crate) id: StoreId,
    pub(crate) segment: u64,
    pub(crate) commit: u64,
    pub(crate) before: u64,
    pub(crate) before_end: u64,
    pub(crate) oldest: u64,
    /// Segment and offset.
    pub(crate) replay: (u64, u64),
    pub(crate) chain: u64,
    pub(crate) entries: u32,
    /// How many commits are kept.
    pub(crate) keep: u32,
    pub(crate) index_bytes: u64,
    pub(crate) data_bytes: u64,
    pub(crate) index_hash: u64,
    pub(crate) data_hash: u64,
    /// What the commit is called; [`NO_MARK`] where it is called nothing.
    pub(crate) mark: u64,
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = Vec::with_capacity(HEADER_BYTES);
        out.extend_from_slice(&RECORD_MAGIC.to_le_bytes());
        out.extend_from_slice(&self.flags.to_le_bytes());
        out.extend_from_slice(&self.id);
        let numbers = [
            self.segment,
            self.commit,
            self.before,
            self.before_end,
            self.oldest,
            self.replay.0,
            self.replay.1,
            self.chain,
            u64::from(self.entries) | u64::from(self.keep) << 32,
            self.index_bytes,
            self.data_bytes,
            self.index_hash,
            self.data_hash,
            self.mark,
        ];
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
        out.extend_from_slice(&xxh3_64(&out).to_le_bytes());
        out.try_into().expect("the parts have this length")
    }

    /// The header that bytes begin with, if it is one of this log and sound.
    pub(crate) fn decode(bytes: &[u8], id: StoreId) -> Option<Self> {
        let head = bytes.get(..HEADER_BYTES)?;
        let mut rest = Bytes(head);
        if rest.u32()? != RECORD_MAGIC || xxh3_64(&head[..HEADER_BYTES - 8]) != hash_of(head) {
            return None;
        }
        let header = Self {
            flags: rest.u32()?,
            id: rest.array()?,
            segment: rest.u64()?,
            commit: rest.u64()?,
            before: rest.u64()?,
            before_end: rest.u64()?,
            oldest: rest.u64()?,
            replay: (rest.u64()?, rest.u64()?),
            chain: rest.u64()?,
            entries: rest.u32()?,
            keep: rest.u32()?,
            index_bytes: rest.u64()?,
            data_bytes: rest.u64()?,
            index_hash: rest.u64()?,
            data_hash: rest.u64()?,
            mark: rest.u64()?,
        };
        // Lengths that no file has are not believed.
        let long = header.index_bytes.max(header.data_bytes) > u64::from(u32::MAX);
        (header.id == id && !long).then_some(header)
    }

    /// What the next record has as its chain.
    pub(crate) fn hash(&self) -> u64 {
        hash_of(&self.encode())
    }

    pub(crate) const fn len(&self) -> u64 {
        (HEADER_BYTES as u64 + self.index_bytes + self.data_bytes).next_multiple_of(BLOCK)
    }

    /// Where its data begins, from where it begins.
    pub(crate) const fn data_at(&self) -> u64 {
        HEADER_BYTES as u64 + self.index_bytes
    }
}

fn hash_of(header: &[u8]) -> u64 {
    Bytes(&header[HEADER_BYTES - 8..]).u64().unwrap_or_default()
}

/// The hash of a row.
pub(crate) fn row_hash(key: &[u8], row: &[u8]) -> u64 {
    xxh3_64_with_seed(row, xxh3_64(key))
}

/// Part of a row: all of it, or a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) segment: u32,
    pub(crate) at: u32,
    pub(crate) len: u32,
}

pub(crate) type Pieces = SmallVec<[Piece; 9]>;

/// Where a row lies: whole, and the deltas since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    pub(crate) pieces: Pieces,
}

impl Entry {
    pub(crate) fn bytes(&self) -> u64 {
        self.pieces.iter().map(|piece| u64::from(piece.len)).sum()
    }
}

/// Bytes of a key at most.
pub(crate) const KEY_BYTES_MAX: usize = u16::MAX as usize;

/// Appends a number as LEB128, in its shortest form.
pub fn put_number(out: &mut impl Extend<u8>, mut number: u64) {
    while number > 0x7f {
        out.extend([number as u8 | 0x80]);
        number >>= 7;
    }
    out.extend([number as u8]);
}

/// Appends where a row lies.
pub(crate) fn put_entry(out: &mut impl Extend<u8>, entry: &Entry) {
    out.extend(entry.hash.to_le_bytes());
    put_number(out, entry.pieces.len() as u64);
    for piece in &entry.pieces {
        put_number(out, u64::from(piece.segment));
        put_number(out, u64::from(piece.at));
        put_number(out, u64::from(piece.len));
    }
}

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// From the front of these.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether none are left.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that are left.
    pub const fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// So many bytes; nothing if there are fewer.
    pub fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        self.0.split_off(..bytes)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A number in LEB128; nothing if that ends too soon, or is too large.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// Where a row lies; nothing if that is no entry.
    pub(crate) fn entry(&mut self) -> Option<Entry> {
        let hash = self.u64()?;
        let mut pieces = Pieces::new();
        for _ in 0..self.number()? {
            let mut number = || u32::try_from(self.number()?).ok();
            let (segment, at, len) = (number()?, number()?, number()?);
            pieces.push(Piece { segment, at, len });
        }
        (!pieces.is_empty()).then_some(Entry { hash, pieces })
    }

    /// The bytes of an entry, with how many its row takes and the oldest segment that it lies in;
    /// nothing if these are none.
    pub(crate) fn held(&mut self) -> Option<Held<'a>> {
        let all = self.0;
        self.take(size_of::<u64>())?;
        let (mut bytes, mut oldest) = (0, None);
        for _ in 0..self.number()? {
            let mut number = || u32::try_from(self.number()?).ok();
            let (segment, _, len) = (number()?, number()?, number()?);
            bytes += u64::from(len);
            oldest = Some(oldest.map_or(segment, |oldest: u32| oldest.min(segment)));
        }
        let entry = &all[..all.len() - self.0.len()];
        oldest.map(|oldest| Held { entry, bytes, oldest })
    }

    /// As [`number`](Self::number), for a length.
    pub fn size(&mut self) -> Option<usize> {
        self.number()?.try_into().ok()
    }
}

/// Where a row lies, as [`put_entry`] writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held<'a> {
    pub(crate) entry: &'a [u8],
    /// Bytes of its pieces.
    pub(crate) bytes: u64,
    /// The oldest segment that one lies in.
    pub(crate) oldest: u32,
}

/// An entry of a record's index. Where its data lies is the reader's to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    Removed(Key),
    Whole(Key, u32, u64),
    Delta(Key, u32, u64),
    Range(Key, Key),
    Held(Key, Held<'a>),
    Covered(u8, Key),
}

/// Writes the index of a record.
#[derive(Debug, Default)]
pub(crate) struct IndexWriter {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: u32,
    last: Key,
}

impl IndexWriter {
    fn begin(&mut self, kind: u8, key: &[u8]) {
        self.entries += 1;
        self.bytes.push(kind);
        self.key(key);
    }

    fn key(&mut self, key: &[u8]) {
        let shared = self.last.iter().zip(key).take_while(|(a, b)| a == b).count();
        put_number(&mut self.bytes, shared as u64);
        put_number(&mut self.bytes, (key.len() - shared) as u64);
        self.bytes.extend_from_slice(&key[shared..]);
        self.last.go_on(shared, &key[shared..]);
    }

    pub(crate) fn removed(&mut self, key: &[u8]) {
        self.begin(0, key);
    }

    pub(crate) fn row(&mut self, is_delta: bool, key: &[u8], data: usize, hash: u64) {
        self.begin(1 + u8::from(is_delta), key);
        put_number(&mut self.bytes, data as u64);
        self.bytes.extend_from_slice(&hash.to_le_bytes());
    }

    pub(crate) fn range(&mut self, low: &[u8], high: &[u8]) {
        self.begin(3, low);
        self.key(high);
    }

    /// A row, and where it lies as [`put_entry`] writes it.
    pub(crate) fn held(&mut self, key: &[u8], entry: &[u8]) {
        self.begin(4, key);
        self.bytes.extend_from_slice(entry);
    }

    /// Puts entries behind these that were written by themselves.
    pub(crate) fn append(&mut self, other: Self) {
        // The first key there shares nothing with the one before, whatever that is.
        self.bytes.extend_from_slice(&other.bytes);
        self.entries += other.entries;
        self.last = other.last;
    }

    pub(crate) fn covered(&mut self, flags: u8, key: &[u8]) {
        self.entries += 1;
        self.bytes.extend_from_slice(&[5, flags]);
        self.key(key);
    }
}

/// Reads the index of a record.
#[derive(Debug)]
pub(crate) struct IndexReader<'a> {
    bytes: Bytes<'a>,
    last: Key,
}

impl<'a> IndexReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes: Bytes(bytes), last: Key::new() }
    }

    fn key(&mut self) -> Option<Key> {
        let (shared, rest) = (self.bytes.size()?, self.bytes.size()?);
        if shared > self.last.len() {
            return None;
        }
        let rest = self.bytes.take(rest)?;
        if shared + rest.len() > KEY_BYTES_MAX {
            return None;
        }
        self.last.go_on(shared, rest);
        Some(self.last.clone())
    }

    fn item(&mut self) -> Option<Item<'a>> {
        match self.bytes.u8()? {
            0 => self.key().map(Item::Removed),
            kind @ 1..=2 => {
                let key = self.key()?;
                let data = u32::try_from(self.bytes.number()?).ok()?;
                let hash = self.bytes.u64()?;
                let item = if kind == 1 { Item::Whole } else { Item::Delta };
                Some(item(key, data, hash))
            }
            3 => Some(Item::Range(self.key()?, self.key()?)),
            4 => {
                let key = self.key()?;
                Some(Item::Held(key, self.bytes.held()?))
            }
            5 => {
                let flags = self.bytes.u8()?;
                Some(Item::Covered(flags, self.key()?))
            }
            _ => None,
        }
    }
}

impl<'a> Iterator for IndexReader<'a> {
    /// `None` for bytes that are no entry.
    type Item = Option<Item<'a>>;

    fn next(&mut self) -> Option<Option<Item<'a>>> {
        (!self.bytes.is_empty()).then(|| self.item())
    }
}
