//! Merging: many successive segments become one.
//!
//! Invariants:
//! - a merged segment answers for each key and block as those that it is made of do;
//! - in a segment of the last level the first piece of each key stands alone, so it is read without
//!   any other.

use std::sync::Arc;

use spinney_log::Bytes;

use crate::archive::{Segment, Shared};
use crate::error::ArchiveError;
use crate::forms::{WHOLE_EVERY, apply, whole};
use crate::objects::Objects;
use crate::segment::{Groups, Index, Kind, Malformed, Piece, SegmentInfo, SegmentWriter, corrupt};

/// So many bytes are read of a segment in one go.
const READ_BYTES: u64 = 4 << 20;

/// A segment that is read from front to end.
struct Cursor<'a> {
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
    pieces: std::ops::Range<usize>,
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
struct OwnPiece {
    block: u64,
    kind: Kind,
    bytes: Vec<u8>,
}

impl<'a> Cursor<'a> {
    fn new(objects: &'a dyn Objects, info: &'a SegmentInfo) -> Result<Self, ArchiveError> {
        Self::at(objects, info, &[])
    }

    /// At the first key from another one on.
    fn at(
        objects: &'a dyn Objects,
        info: &'a SegmentInfo,
        from: &[u8],
    ) -> Result<Self, ArchiveError> {
        let index = Index::read(objects, info)?;
        let next = index.floor(from, 0).unwrap_or_default();
        let mut cursor = Self {
            objects,
            info,
            index,
            parts: Vec::new(),
            next,
            ends: Vec::new(),
            at: 0,
            end: 0,
            key: Vec::new(),
            has_key: false,
            pieces: 0..0,
            block: 0,
        };
        cursor.next_group()?;
        cursor.go_to(from)?;
        Ok(cursor)
    }

    /// Goes on to the first key from another one on.
    fn go_to(&mut self, key: &[u8]) -> Result<(), ArchiveError> {
        while self.key().is_some_and(|at| at < key) {
            self.next_group()?;
        }
        Ok(())
    }

    fn malformed(&self) -> ArchiveError {
        corrupt(self.objects, &self.info.name, "a part is malformed")
    }

    fn key(&self) -> Option<&[u8]> {
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

    /// The next piece of a key that the cursor is at; behind the last one it goes on to the next
    /// key.
    fn next_piece(&mut self, key: &[u8]) -> Result<Option<OwnPiece>, ArchiveError> {
        while self.pieces.is_empty() {
            self.next_group()?;
            if self.key() != Some(key) {
                return Ok(None);
            }
        }
        let bytes = Bytes::new(&self.parts[self.pieces.clone()]);
        let mut pieces = crate::segment::Pieces::new(bytes, self.block);
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

/// What a merge needs.
pub(crate) struct Merge<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) archive: [u8; 16],
    /// Segments that rise by block; those from `from` on are merged.
    pub(crate) segments: &'a [Arc<Segment>],
    pub(crate) from: usize,
    pub(crate) level: u32,
    /// Whether it is the last level.
    pub(crate) stands_alone: bool,
}

impl Merge<'_> {
    /// Makes one segment.
    pub(crate) fn run(self, name: String) -> Result<SegmentInfo, ArchiveError> {
        let (older, merged) = self.segments.split_at(self.from);
        let objects = &*self.shared.objects;
        let (Some(first), Some(last)) = (merged.first(), merged.last()) else {
            return Err(corrupt(objects, &name, "it is made of nothing"));
        };
        let blocks = (first.info.first, last.info.last);
        let mut out = SegmentWriter::new(objects, self.archive, name, blocks, self.level)?;
        let mut cursors = Vec::with_capacity(merged.len());
        for segment in merged {
            cursors.push(Cursor::new(objects, &segment.info)?);
        }
        while let Some(key) = cursors.iter().filter_map(Cursor::key).min().map(<[u8]>::to_vec) {
            out.begin(&key);
            let mut row = Row::Unknown;
            for cursor in cursors.iter_mut().filter(|cursor| cursor.key() == Some(&key)) {
                while let Some(mut piece) = cursor.next_piece(&key)? {
                    if self.stands_alone {
                        if piece.kind == Kind::Changed && matches!(row, Row::Unknown) {
                            let before = piece.block.checked_sub(1);
                            let bare = before
                                .map(|before| self.shared.bare_at(older, &key, before))
                                .transpose()?;
                            row = Row::Known { bare: bare.flatten(), since: usize::MAX / 2 };
                        }
                        row.follow(&mut piece).map_err(|_| cursor.malformed())?;
                    }
                    let OwnPiece { block, kind, ref bytes } = piece;
                    out.piece(&Piece { block, kind, bytes })?;
                }
            }
            out.end();
        }
        out.finish()
    }
}

/// The row that pieces lead to.
enum Row {
    /// No piece of the segment stood alone yet.
    Unknown,
    /// It is this; changes took so many bytes since it was written whole.
    Known { bare: Option<Vec<u8>>, since: usize },
}

impl Row {
    /// Goes on by a piece, which becomes one that stands alone where changes took enough.
    fn follow(&mut self, piece: &mut OwnPiece) -> Result<(), Malformed> {
        let (before, since) = match std::mem::replace(self, Self::Unknown) {
            Self::Known { bare, since } => (bare, since),
            Self::Unknown => (None, 0),
        };
        let bare = apply(piece.kind, &piece.bytes, before)?;
        let mut since = since.saturating_add(piece.bytes.len());
        match &bare {
            Some(bare) if piece.kind == Kind::Changed => {
                if since > bare.len() * WHOLE_EVERY {
                    (piece.kind, piece.bytes) = whole(bare);
                    since = 0;
                }
            }
            _ => since = 0,
        }
        *self = Self::Known { bare, since };
        Ok(())
    }
}
