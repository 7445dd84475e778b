//! Segments that are read from front to end.

use std::ops::Range;
use std::sync::Arc;

use spinney_log::Bytes;

use crate::error::ArchiveError;
use crate::objects::Objects;
use crate::segment::{Groups, Index, Kind, Piece, Pieces, SegmentInfo, corrupt, footer};
use crate::shared::Segment;

/// So many bytes are read of a segment in one go.
const READ_BYTES: u64 = 4 << 20;

/// A segment that is read from front to end.
pub(crate) struct Cursor<'a> {
    objects: &'a dyn Objects,
    info: &'a SegmentInfo,
    index: Index,
    /// Parts in memory, and the first part behind them.
    parts: Vec<u8>,
    next: usize,
    /// Where each part in memory ends, from the last one on.
    ends: Vec<usize>,
    /// Where the next group begins, and where the part that it is in ends.
    at: usize,
    end: usize,
    key: Vec<u8>,
    has_key: bool,
    /// Where the pieces of the key lie that are left.
    pieces: Range<usize>,
    block: u64,
}

/// The keys of segments from one on, for those who ask for rising ones.
pub(crate) struct Keys<'a>(Vec<Cursor<'a>>);

impl<'a> Keys<'a> {
    pub(crate) fn new(
        objects: &'a dyn Objects,
        segments: &'a [Arc<Segment>],
        from: &[u8],
    ) -> Result<Self, ArchiveError> {
        let cursors = segments.iter().map(|segment| Cursor::at(objects, &segment.info, from));
        Ok(Self(cursors.collect::<Result<_, _>>()?))
    }

    /// Whether there are pieces of a key, which is above all that were asked for before.
    pub(crate) fn have(&mut self, key: &[u8]) -> Result<bool, ArchiveError> {
        let mut found = false;
        for cursor in &mut self.0 {
            cursor.go_to(key)?;
            found |= cursor.key() == Some(key);
        }
        Ok(found)
    }
}

/// A piece with bytes of its own.
pub(crate) struct OwnPiece {
    pub(crate) block: u64,
    pub(crate) kind: Kind,
    pub(crate) bytes: Vec<u8>,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(
        objects: &'a dyn Objects,
        info: &'a SegmentInfo,
    ) -> Result<Self, ArchiveError> {
        Self::at(objects, info, &[])
    }

    /// At the first key from another one on.
    fn at(
        objects: &'a dyn Objects,
        info: &'a SegmentInfo,
        from: &[u8],
    ) -> Result<Self, ArchiveError> {
        let mut cursor = Self::unread(objects, info)?;
        cursor.next = cursor.index.floor(from, 0).unwrap_or_default();
        cursor.next_group()?;
        cursor.go_to(from)?;
        Ok(cursor)
    }

    /// In front of all parts.
    fn unread(objects: &'a dyn Objects, info: &'a SegmentInfo) -> Result<Self, ArchiveError> {
        Ok(Self {
            objects,
            info,
            index: Index::read(objects, info)?,
            parts: Vec::new(),
            next: 0,
            ends: Vec::new(),
            at: 0,
            end: 0,
            key: Vec::new(),
            has_key: false,
            pieces: 0..0,
            block: 0,
        })
    }

    /// Goes on to the first key from another one on.
    fn go_to(&mut self, key: &[u8]) -> Result<(), ArchiveError> {
        while self.key().is_some_and(|at| at < key) {
            self.next_group()?;
        }
        Ok(())
    }

    pub(crate) fn malformed(&self) -> ArchiveError {
        corrupt(self.objects, &self.info.name, "a part is malformed")
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        self.has_key.then_some(&self.key)
    }

    /// Reads some parts more. Answers `false` behind the last one.
    fn read_parts(&mut self) -> Result<bool, ArchiveError> {
        let parts = self.index.parts.get(self.next..).unwrap_or_default();
        let Some(first) = parts.first() else { return Ok(false) };
        let mut bytes = 0;
        let few = parts.iter().take_while(|part| {
            bytes += part.bytes;
            bytes <= READ_BYTES
        });
        let parts = &parts[..few.count().max(1)];
        let end = parts.iter().fold(first.at, |_, part| part.at + part.bytes);
        self.parts = self.objects.read(&self.info.name, first.at..end)?;
        let mut at = 0;
        let mut ends = Vec::with_capacity(parts.len());
        for part in parts {
            let to = at + part.bytes as usize;
            if !self.parts.get(at..to).is_some_and(|bytes| part.is(bytes)) {
                let what = "a part is not what was written";
                return Err(corrupt(self.objects, &self.info.name, what));
            }
            ends.push(to);
            at = to;
        }
        ends.reverse();
        self.next += parts.len();
        (self.ends, self.at, self.end) = (ends, 0, 0);
        Ok(true)
    }

    /// Goes to the next group. Behind the last one there is no key.
    fn next_group(&mut self) -> Result<(), ArchiveError> {
        if self.at == self.end {
            if self.ends.is_empty() && !self.read_parts()? {
                self.has_key = false;
                return Ok(());
            }
            self.end = self.ends.pop().unwrap_or_default();
            self.key.clear();
        }
        let part = &self.parts[self.at..self.end];
        let mut groups = Groups::after(part, self.info.first, std::mem::take(&mut self.key));
        let group = groups.next();
        let left = groups.left();
        self.key = groups.into_key();
        let group = group.and_then(Result::ok).ok_or_else(|| self.malformed())?;
        let (end, len) = (self.end - left, group.bytes_left());
        self.pieces = end - len..end;
        (self.at, self.block, self.has_key) = (end, self.info.first, true);
        Ok(())
    }

    /// Goes past a key that the cursor is at.
    pub(crate) fn pass(&mut self, key: &[u8]) -> Result<(), ArchiveError> {
        while self.key() == Some(key) {
            self.next_group()?;
        }
        Ok(())
    }

    /// The next piece of a key that the cursor is at; behind the last one it goes on to the next
    /// key.
    pub(crate) fn next_piece(&mut self, key: &[u8]) -> Result<Option<OwnPiece>, ArchiveError> {
        while self.pieces.is_empty() {
            self.next_group()?;
            if self.key() != Some(key) {
                return Ok(None);
            }
        }
        let bytes = Bytes::new(&self.parts[self.pieces.clone()]);
        let mut pieces = Pieces::new(bytes, self.block);
        let piece = match pieces.next() {
            Some(Ok(Piece { block, kind, bytes })) => {
                OwnPiece { block, kind, bytes: bytes.to_vec() }
            }
            _ => return Err(self.malformed()),
        };
        self.pieces.start = self.pieces.end - pieces.bytes_left();
        self.block = piece.block;
        Ok(Some(piece))
    }
}

/// The least key that cursors are at.
pub(crate) fn least_key<'a>(cursors: impl IntoIterator<Item = &'a Cursor<'a>>) -> Option<Vec<u8>> {
    cursors.into_iter().filter_map(Cursor::key).min().map(<[u8]>::to_vec)
}

/// Copies a segment to another archive: all of it is checked.
pub(crate) fn copy(
    (objects, info): (&dyn Objects, &SegmentInfo),
    to: &dyn Objects,
    archive: [u8; 16],
    name: String,
) -> Result<SegmentInfo, ArchiveError> {
    let mut cursor = Cursor::unread(objects, info)?;
    let mut upload = to.upload(&name)?;
    while cursor.read_parts()? {
        upload.write(&cursor.parts)?;
    }
    let (index, sum) = Index::bytes(objects, info)?;
    let copied = SegmentInfo { name, ..info.clone() };
    upload.write(&index)?;
    upload.write(&footer(&copied, archive, sum))?;
    upload.finish()?;
    Ok(copied)
}
