//! Segments: sealed objects with the pieces of rows over a stretch of blocks.
//!
//! ```text
//! segment = part* | index | footer
//! part    = group*                                                some 32 KiB
//! group   = shared, length (LEB128 each), rest of the key | length (LEB128) | piece*
//! piece   = blocks since the piece before, or since the segment's first (LEB128)
//!         | length * 2 + 1 (LEB128) | edit
//!         | (length * 4 + kind) * 2 (LEB128) | bytes
//! kind    = 0 the row went, 1 the row, 2 length (LEB128) and changes of so many zeros,
//!           3 changes of the row before
//! edit    = so many bytes of the row before stay (LEB128) | what stands in it from there on
//! index   = count (LEB128) | entry* | filter
//! entry   = shared, length (LEB128 each), rest of the first key | its first block since the
//!           segment's (LEB128) | length of the part (LEB128) | xxh3-64 of the part (8)
//! footer  = "SPINARCH" | format (4) | zeros (4) | archive (16) | first block (8) | last block (8)
//!         | where the index begins (8) | its length (8) | its xxh3-64 (8)
//!         | xxh3-64 of the footer so far (8)
//! ```
//! Integers are little-endian. A key is a table (1) and a row's key in it. Changes are as in
//! docs/page-log.md.
//!
//! Invariants:
//! - groups rise by key, pieces of a key by block; a key's pieces may go on in the next part;
//! - a part that begins with a piece of a key that another part holds earlier pieces of begins with
//!   a row that needs none of them, unless that many changes follow each other;
//! - what a part, an index or a manifest says is used only once its checksum is right.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use spinney_log::{Bytes, put_number};
use xxhash_rust::xxh3::xxh3_64;

use crate::bloom::{self, Bloom};
use crate::error::ArchiveError;
use crate::objects::{Objects, Upload};

/// A part is closed once it has so many bytes.
const PART_BYTES: usize = 32 << 10;
/// A part is closed even within changes of a row that follow each other once it has so many.
const PART_BYTES_MAX: usize = 256 << 10;
/// No index is larger.
const INDEX_BYTES_MAX: u64 = 1 << 30;

const MAGIC: &[u8; 8] = b"SPINARCH";
/// The format of manifests and segments.
pub(crate) const FORMAT: u32 = 3;

/// What a piece says of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gone,
    Whole,
    Sparse,
    Changed,
    Edited,
}

impl Kind {
    /// Whether it takes no other piece to read it.
    pub(crate) const fn stands_alone(self) -> bool {
        !matches!(self, Self::Changed | Self::Edited)
    }

    /// What a piece of `length` bytes begins with: an edit, as most of all pieces are, with one
    /// byte.
    const fn head(self, length: u64) -> u64 {
        match self {
            Self::Gone => length << 3,
            Self::Whole => (length << 2 | 1) << 1,
            Self::Sparse => (length << 2 | 2) << 1,
            Self::Changed => (length << 2 | 3) << 1,
            Self::Edited => length << 1 | 1,
        }
    }

    /// The kind and the length that a piece begins with.
    const fn of_head(head: u64) -> (Self, u64) {
        match (head & 1, head >> 1 & 3) {
            (1, _) => (Self::Edited, head >> 1),
            (_, 0) => (Self::Gone, head >> 3),
            (_, 1) => (Self::Whole, head >> 3),
            (_, 2) => (Self::Sparse, head >> 3),
            _ => (Self::Changed, head >> 3),
        }
    }
}

/// What a row became at a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) block: u64,
    pub(crate) kind: Kind,
    pub(crate) bytes: &'a [u8],
}

/// A segment, as the manifest names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SegmentInfo {
    /// The object's name.
    pub name: String,
    /// The first block that it has pieces of.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// How often its pieces were merged.
    pub level: u32,
    /// The object's length in bytes.
    pub bytes: u64,
    /// How many keys it has pieces of.
    pub keys: u64,
    /// How many pieces those are.
    pub pieces: u64,
    /// Where the index begins.
    pub index_at: u64,
    /// How long it is.
    pub index_bytes: u64,
    /// Its xxh3-64, in hex.
    pub index_sum: String,
}

/// Writes one segment.
///
/// Fields: what lies in the part, the group and the index under way, and where each ends.
#[derive(Debug)]
pub(crate) struct SegmentWriter {
    upload: Box<dyn Upload>,
    info: SegmentInfo,
    archive: [u8; 16],
    part: Vec<u8>,
    /// The last key of the part.
    key: Vec<u8>,
    /// The first key of the part, and its first block.
    part_first: Option<(Vec<u8>, u64)>,
    /// The key that pieces are added to, and the block of the last of them.
    group: Vec<u8>,
    before: u64,
    /// Its pieces.
    body: Vec<u8>,
    entries: Vec<u8>,
    parts: u64,
    /// The first key of the part before.
    indexed: Vec<u8>,
    hashes: Vec<u128>,
    /// How many bytes of parts were written.
    written: u64,
}

impl SegmentWriter {
    /// A segment of blocks `first` to `last`.
    pub(crate) fn new(
        objects: &dyn Objects,
        archive: [u8; 16],
        name: String,
        (first, last): (u64, u64),
        level: u32,
    ) -> Result<Self, ArchiveError> {
        let upload = objects.upload(&name)?;
        let (bytes, keys, pieces, index_at, index_bytes) = (0, 0, 0, 0, 0);
        let index_sum = String::new();
        let info = SegmentInfo {
            name,
            first,
            last,
            level,
            bytes,
            keys,
            pieces,
            index_at,
            index_bytes,
            index_sum,
        };
        Ok(Self {
            upload,
            info,
            archive,
            part: Vec::new(),
            key: Vec::new(),
            part_first: None,
            group: Vec::new(),
            before: 0,
            body: Vec::new(),
            entries: Vec::new(),
            parts: 0,
            indexed: Vec::new(),
            hashes: Vec::new(),
            written: 0,
        })
    }

    /// Begins with a key, which comes behind all keys before.
    pub(crate) fn begin(&mut self, key: &[u8]) {
        self.hashes.push(bloom::hash(key));
        self.info.keys += 1;
        self.group.clear();
        self.group.extend_from_slice(key);
        self.before = self.info.first;
    }

    /// Adds a piece of the key that was begun, later than all before.
    pub(crate) fn piece(&mut self, piece: &Piece<'_>) -> Result<(), ArchiveError> {
        let full = self.part.len() + self.body.len();
        // In front of its first piece a key has nothing in the segment that it could need.
        let is_first = self.body.is_empty();
        if full >= PART_BYTES && (is_first || piece.kind.stands_alone() || full >= PART_BYTES_MAX) {
            self.end();
            self.close_part()?;
            self.before = self.info.first;
        }
        if self.part_first.is_none() {
            self.part_first = Some((self.group.clone(), piece.block));
        }
        put_number(&mut self.body, piece.block - self.before);
        put_number(&mut self.body, piece.kind.head(piece.bytes.len() as u64));
        self.body.extend_from_slice(piece.bytes);
        self.before = piece.block;
        self.info.pieces += 1;
        Ok(())
    }

    /// Ends the key that was begun.
    pub(crate) fn end(&mut self) {
        if self.body.is_empty() {
            return;
        }
        put_key(&mut self.part, &self.key, &self.group);
        put_number(&mut self.part, self.body.len() as u64);
        self.part.append(&mut self.body);
        self.key.clear();
        self.key.extend_from_slice(&self.group);
    }

    fn close_part(&mut self) -> Result<(), ArchiveError> {
        let Some((key, block)) = self.part_first.take() else { return Ok(()) };
        self.upload.write(&self.part)?;
        put_key(&mut self.entries, &self.indexed, &key);
        put_number(&mut self.entries, block - self.info.first);
        put_number(&mut self.entries, self.part.len() as u64);
        self.entries.extend_from_slice(&xxh3_64(&self.part).to_le_bytes());
        self.indexed = key;
        self.parts += 1;
        self.written += self.part.len() as u64;
        self.part.clear();
        self.key.clear();
        Ok(())
    }

    /// Writes index and footer, and makes the object durable.
    pub(crate) fn finish(mut self) -> Result<SegmentInfo, ArchiveError> {
        self.close_part()?;
        let mut index = Vec::with_capacity(self.entries.len());
        put_number(&mut index, self.parts);
        index.append(&mut self.entries);
        index.extend_from_slice(Bloom::of(&self.hashes).bytes());
        let (mut info, sum) = (self.info, xxh3_64(&index));
        info.index_at = self.written;
        info.index_bytes = index.len() as u64;
        info.index_sum = format!("{sum:016x}");
        let footer = footer(&info, self.archive, sum);
        info.bytes = info.index_at + info.index_bytes + footer.len() as u64;
        self.upload.write(&index)?;
        self.upload.write(&footer)?;
        self.upload.finish()?;
        Ok(info)
    }
}

/// What a segment of an archive ends with, whose index has this checksum.
pub(crate) fn footer(info: &SegmentInfo, archive: [u8; 16], sum: u64) -> Vec<u8> {
    let mut footer = MAGIC.to_vec();
    footer.extend_from_slice(&FORMAT.to_le_bytes());
    footer.extend_from_slice(&[0; 4]);
    footer.extend_from_slice(&archive);
    for number in [info.first, info.last, info.index_at, info.index_bytes, sum] {
        footer.extend_from_slice(&number.to_le_bytes());
    }
    let seal = xxh3_64(&footer);
    footer.extend_from_slice(&seal.to_le_bytes());
    footer
}

fn put_key(out: &mut Vec<u8>, before: &[u8], key: &[u8]) {
    let shared = before.iter().zip(key).take_while(|(a, b)| a == b).count();
    put_number(out, shared as u64);
    put_number(out, (key.len() - shared) as u64);
    out.extend_from_slice(&key[shared..]);
}

/// Makes the next key of the one before.
fn next_key(bytes: &mut Bytes<'_>, key: &mut Vec<u8>) -> Option<()> {
    let (shared, rest) = (bytes.size()?, bytes.size()?);
    if shared > key.len() {
        return None;
    }
    key.truncate(shared);
    key.extend_from_slice(bytes.take(rest)?);
    Some(())
}

/// Where a part lies, and what it begins with.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) key: Box<[u8]>,
    block: u64,
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    sum: u64,
}

/// The index of a segment.
#[derive(Debug)]
pub(crate) struct Index {
    pub(crate) parts: Vec<Part>,
    bloom: Bloom,
}

impl Index {
    /// Reads the index that a manifest names.
    pub(crate) fn read(objects: &dyn Objects, info: &SegmentInfo) -> Result<Self, ArchiveError> {
        let (bytes, _) = Self::bytes(objects, info)?;
        Self::parse(&bytes, info)
            .ok_or_else(|| corrupt(objects, &info.name, "its index is malformed"))
    }

    /// The bytes of the index that a manifest names, and their checksum.
    pub(crate) fn bytes(
        objects: &dyn Objects,
        info: &SegmentInfo,
    ) -> Result<(Vec<u8>, u64), ArchiveError> {
        if info.index_bytes > INDEX_BYTES_MAX {
            return Err(corrupt(objects, &info.name, "its index is larger than any"));
        }
        let range = info.index_at..info.index_at.saturating_add(info.index_bytes);
        let bytes = objects.read(&info.name, range)?;
        let sum = xxh3_64(&bytes);
        match format!("{sum:016x}") == info.index_sum {
            true => Ok((bytes, sum)),
            false => Err(corrupt(objects, &info.name, "its index is not the one that was written")),
        }
    }

    fn parse(bytes: &[u8], info: &SegmentInfo) -> Option<Self> {
        let mut bytes = Bytes::new(bytes);
        let (count, mut key, mut at, mut parts) = (bytes.number()?, Vec::new(), 0, Vec::new());
        for _ in 0..count {
            next_key(&mut bytes, &mut key)?;
            let block = info.first.checked_add(bytes.number()?)?;
            let len = bytes.number()?;
            let sum = u64::from_le_bytes(bytes.take(8)?.try_into().ok()?);
            parts.push(Part { key: key[..].into(), block, at, bytes: len, sum });
            at = at.checked_add(len)?;
        }
        let sorted = parts.is_sorted_by(|a, b| (&a.key, a.block) < (&b.key, b.block));
        let bloom = Bloom::from_bytes(bytes.rest().to_vec());
        (sorted && at == info.index_at).then_some(Self { parts, bloom })
    }

    /// The part with the last piece of a key at or before a block, if there is any.
    pub(crate) fn floor(&self, key: &[u8], block: u64) -> Option<usize> {
        self.parts.partition_point(|part| (&*part.key, part.block) <= (key, block)).checked_sub(1)
    }

    /// The parts that may have pieces of keys between two bounds, the upper one exclusive.
    pub(crate) fn between(&self, low: &[u8], high: &[u8]) -> Range<usize> {
        let from = self.parts.partition_point(|part| &*part.key < low).saturating_sub(1);
        let end = self.parts.partition_point(|part| &*part.key < high);
        from..end.max(from)
    }

    /// Whether there may be pieces of a key.
    pub(crate) fn may_have(&self, hash: u128) -> bool {
        self.bloom.may_have(hash)
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| size_of::<Part>() + part.key.len()).sum();
        parts + self.bloom.bytes().len()
    }
}

impl Part {
    /// Whether these bytes are the part's.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        xxh3_64(bytes) == self.sum
    }
}

pub(crate) fn corrupt(objects: &dyn Objects, name: &str, what: &str) -> ArchiveError {
    ArchiveError::Corrupt { place: format!("{}/{name}", objects.place()), what: what.into() }
}

/// The groups of a part, one after another.
#[derive(Debug)]
pub(crate) struct Groups<'a> {
    bytes: Bytes<'a>,
    first: u64,
    key: Vec<u8>,
}

impl<'a> Groups<'a> {
    /// Of a part of a segment whose first block this is.
    pub(crate) const fn new(part: &'a [u8], first: u64) -> Self {
        Self { bytes: Bytes::new(part), first, key: Vec::new() }
    }

    /// Of the rest of a part, behind a group of a key.
    pub(crate) const fn after(rest: &'a [u8], first: u64, key: Vec<u8>) -> Self {
        Self { bytes: Bytes::new(rest), first, key }
    }

    /// How many bytes there are behind the last group.
    pub(crate) const fn left(&self) -> usize {
        self.bytes.rest().len()
    }

    pub(crate) fn into_key(self) -> Vec<u8> {
        self.key
    }

    /// The key that the last group is of.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Goes to the next group; `None` behind the last one.
    pub(crate) fn next(&mut self) -> Option<Result<Pieces<'a>, Malformed>> {
        if self.bytes.is_empty() {
            return None;
        }
        let mut read = || {
            next_key(&mut self.bytes, &mut self.key)?;
            let len = self.bytes.size()?;
            let bytes = Bytes::new(self.bytes.take(len)?);
            Some(Pieces { bytes, block: self.first })
        };
        let group = read();
        if group.is_none() {
            // Nothing behind it can be told.
            self.bytes = Bytes::new(&[]);
        }
        Some(group.ok_or(Malformed))
    }

    /// The pieces of a key.
    pub(crate) fn find(&mut self, key: &[u8]) -> Result<Option<Pieces<'a>>, Malformed> {
        while let Some(pieces) = self.next() {
            let pieces = pieces?;
            match self.key[..].cmp(key) {
                std::cmp::Ordering::Less => {}
                std::cmp::Ordering::Equal => return Ok(Some(pieces)),
                std::cmp::Ordering::Greater => return Ok(None),
            }
        }
        Ok(None)
    }
}

/// A part's bytes are none of a part, though its checksum is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The pieces of a group.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a> {
    bytes: Bytes<'a>,
    block: u64,
}

impl<'a> Pieces<'a> {
    /// Of what is left of a group behind a piece of a block.
    pub(crate) const fn new(bytes: Bytes<'a>, block: u64) -> Self {
        Self { bytes, block }
    }

    pub(crate) const fn bytes_left(&self) -> usize {
        self.bytes.rest().len()
    }

    /// The next one.
    pub(crate) fn next(&mut self) -> Option<Result<Piece<'a>, Malformed>> {
        if self.bytes.is_empty() {
            return None;
        }
        let mut read = || {
            let block = self.block.checked_add(self.bytes.number()?)?;
            let (kind, length) = Kind::of_head(self.bytes.number()?);
            let bytes = self.bytes.take(length.try_into().ok()?)?;
            self.block = block;
            Some(Piece { block, kind, bytes })
        };
        let piece = read();
        if piece.is_none() {
            self.bytes = Bytes::new(&[]);
        }
        Some(piece.ok_or(Malformed))
    }
}
