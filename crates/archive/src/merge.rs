//! Merging: many successive segments become one.
//!
//! Invariants:
//! - a merged segment answers for each key and block as those that it is made of do;
//! - in a segment of the last level the first piece of each key stands alone, so it is read without
//!   any other;
//! - where blocks in front are cut off, what is left of them is each row at the first block that
//!   stays: one piece there, which stands alone. Their witnesses and numbers go.

use std::sync::Arc;

use crate::cursor::{Cursor, OwnPiece, least_key};
use crate::error::ArchiveError;
use crate::forms::{WHOLE_EVERY, apply, put_piece_over, whole};
use crate::segment::{Kind, Malformed, Piece, SegmentInfo, SegmentWriter};
use crate::shared::{Segment, Shared};
use crate::slice::Slice;
use crate::window::is_of_earlier;

/// What a merge needs.
pub(crate) struct Merge<'a> {
    /// Where the segments lie.
    pub(crate) shared: &'a Shared,
    /// Segments that rise by block; those from `from` on are merged.
    pub(crate) segments: &'a [Arc<Segment>],
    pub(crate) from: usize,
    /// Whether the merged segment is one of the last level.
    pub(crate) stands_alone: bool,
    /// The first and the last block that stay. Where earlier ones are cut off, the merged segment
    /// is one of the last level.
    pub(crate) blocks: (u64, u64),
    /// What of the keys stays; all of them without it.
    pub(crate) slice: Option<&'a Slice>,
}

impl Merge<'_> {
    /// Makes one segment.
    pub(crate) fn run(self, mut out: SegmentWriter) -> Result<SegmentInfo, ArchiveError> {
        let objects = &*self.shared.objects;
        let merged = &self.segments[self.from..];
        let (first, last) = self.blocks;
        let cut = merged.iter().any(|segment| segment.info.first < first).then_some(first);
        let mut cursors = Vec::with_capacity(merged.len());
        for segment in merged {
            cursors.push(Cursor::new(objects, &segment.info)?);
        }
        while let Some(key) = least_key(&cursors) {
            let stays = self.slice.is_none_or(|slice| slice.holds(&key));
            let mut kept = KeptPieces::new(&key, cut, Row::Unknown);
            for cursor in cursors.iter_mut().filter(|cursor| cursor.key() == Some(&key)) {
                if !stays {
                    cursor.pass(&key)?;
                    continue;
                }
                while let Some(piece) = cursor.next_piece(&key)? {
                    if piece.block > last || is_of_earlier(&key, piece.block, first) {
                        continue;
                    }
                    if !piece.kind.stands_alone() && !kept.row.is_known() {
                        if !self.stands_alone {
                            kept.write(&piece, &mut out)?;
                            continue;
                        }
                        kept.row = self.row_before(&key, piece.block)?;
                    }
                    kept.follow(piece, &mut out, || cursor.malformed())?;
                }
            }
            kept.end(&mut out)?;
        }
        out.finish()
    }

    /// The row that the segments in front lead to.
    fn row_before(&self, key: &[u8], block: u64) -> Result<Row, ArchiveError> {
        let older = &self.segments[..self.from];
        let bare = match block.checked_sub(1) {
            Some(before) => self.shared.bare_at(older, key, before)?,
            None => None,
        };
        Ok(Row::before(bare))
    }
}

/// What stays of the pieces of a key.
pub(crate) struct KeptPieces<'a> {
    key: &'a [u8],
    /// The first block that stays, where earlier ones are cut off.
    cut: Option<u64>,
    pub(crate) row: Row,
    /// Whether pieces up to that block have led to the row, and it is not written yet.
    held: bool,
    begun: bool,
}

impl<'a> KeptPieces<'a> {
    pub(crate) const fn new(key: &'a [u8], cut: Option<u64>, row: Row) -> Self {
        Self { key, cut, row, held: false, begun: false }
    }

    /// Goes on by a piece, which is written so that the first of all stands alone.
    pub(crate) fn follow(
        &mut self,
        mut piece: OwnPiece,
        out: &mut SegmentWriter,
        malformed: impl Fn() -> ArchiveError,
    ) -> Result<(), ArchiveError> {
        let held = self.cut.is_some_and(|cut| piece.block <= cut);
        if !held {
            self.write_held(out)?;
        }
        self.row.follow(&mut piece).map_err(|_| malformed())?;
        if held {
            self.held = true;
            return Ok(());
        }
        self.write(&piece, out)
    }

    /// The row at the first block that stays.
    fn write_held(&mut self, out: &mut SegmentWriter) -> Result<(), ArchiveError> {
        let Some(block) = self.cut.filter(|_| std::mem::take(&mut self.held)) else {
            return Ok(());
        };
        let Row::Known { bare: Some(bare), since } = &mut self.row else { return Ok(()) };
        *since = 0;
        let (kind, bytes) = whole(bare);
        self.write(&OwnPiece { block, kind, bytes }, out)
    }

    fn write(&mut self, piece: &OwnPiece, out: &mut SegmentWriter) -> Result<(), ArchiveError> {
        if !std::mem::replace(&mut self.begun, true) {
            out.begin(self.key);
        }
        let OwnPiece { block, kind, ref bytes } = *piece;
        out.piece(&Piece { block, kind, bytes })
    }

    pub(crate) fn end(&mut self, out: &mut SegmentWriter) -> Result<(), ArchiveError> {
        self.write_held(out)?;
        out.end();
        Ok(())
    }
}

/// The row that pieces lead to.
pub(crate) enum Row {
    /// No piece of the segment stood alone yet.
    Unknown,
    /// It is this; changes took so many bytes since it was written whole.
    Known { bare: Option<Vec<u8>>, since: usize },
}

impl Row {
    /// The row that later pieces go on from; the first changes of it are written as a whole.
    pub(crate) const fn before(bare: Option<Vec<u8>>) -> Self {
        Self::Known { bare, since: usize::MAX / 2 }
    }

    const fn is_known(&self) -> bool {
        matches!(self, Self::Known { .. })
    }

    /// Goes on by a piece. It stands alone where changes took enough, and nowhere else: in the
    /// segment that it is from it may have had to.
    fn follow(&mut self, piece: &mut OwnPiece) -> Result<(), Malformed> {
        let (before, mut since) = match std::mem::replace(self, Self::Unknown) {
            Self::Known { bare, since } => (bare, since),
            Self::Unknown => (None, 0),
        };
        let bare = match (piece.kind, before) {
            (Kind::Whole | Kind::Sparse, Some(before)) => {
                let bare = apply(piece.kind, &piece.bytes, None)?;
                if let Some(bare) = &bare {
                    piece.bytes.clear();
                    piece.kind = put_piece_over(&before, bare, &mut since, &mut piece.bytes);
                }
                bare
            }
            (kind, before) => {
                let bare = apply(kind, &piece.bytes, before)?;
                since = since.saturating_add(piece.bytes.len());
                match &bare {
                    Some(bare) if !kind.stands_alone() => {
                        if since > bare.len() * WHOLE_EVERY {
                            (piece.kind, piece.bytes) = whole(bare);
                            since = 0;
                        }
                    }
                    _ => since = 0,
                }
                bare
            }
        };
        *self = Self::Known { bare, since };
        Ok(())
    }
}
