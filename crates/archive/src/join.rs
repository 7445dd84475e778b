//! Joining: the beginning of an archive moves back to that of an older one, which holds its first
//! block, too.
//!
//! Invariants:
//! - each row at each block is as it was in the archive that held the block; those of the first
//!   block of the newer one are that one's;
//! - what the newer one needs of rows that did not change in its first segment are the pieces of
//!   the older one: its own are dropped.

use std::collections::BTreeMap;

use spinney_tree::{RootRecord, Snapshot as _, Table, TreeId};

use crate::archive::{Archive, AtBlock, Contents};
use crate::cursor::{Cursor, OwnPiece, copy, least_key};
use crate::error::ArchiveError;
use crate::forms::{apply, whole};
use crate::hex::hex;
use crate::merge::{KeptPieces, Merge, Row};
use crate::segment::{Kind, SegmentInfo, SegmentWriter};
use crate::window::is_of_no_block;
use crate::writer::{CACHE_BYTES, Writer};

impl Writer {
    /// Puts the blocks of an older archive in front. It has to hold the first block of this one,
    /// with the same roots. Answers how many blocks were added.
    ///
    /// # Errors
    /// [`ArchiveError::Join`] if the older one does not fit, with what differs;
    /// [`ArchiveError::Fenced`] if another writer has taken over; if an object is damaged, or a
    /// place fails. Then nothing was added, and the writer has to be opened again.
    pub fn join(&mut self, older: &Archive) -> Result<u64, ArchiveError> {
        let contents = older.contents();
        self.fits(older)?;
        let (objects, begins) = (&**older.objects(), contents.manifest.first);
        let (first, level) = (self.contents.manifest.first, self.options.last_level());
        let mut forms = self.contents.forms.clone();
        for &tree in &contents.manifest.trees {
            forms.learn(tree)?;
        }
        let end = contents.segments.partition_point(|segment| segment.info.first < first);
        let segments = &contents.segments[..end];
        let are_whole = segments
            .iter()
            .take_while(|segment| segment.info.level >= level && segment.info.last < first);
        let from = are_whole.count();
        let mut joined = Vec::with_capacity(from + 2);
        for segment in &segments[..from] {
            let (archive, name) = (self.archive_id(), self.name());
            joined.push(copy((objects, &segment.info), &*self.shared.objects, archive, name)?);
        }
        if let Some(segment) = segments.get(from) {
            let blocks = (segment.info.first, first - 1);
            let out = self.segment(blocks, level)?;
            let shared = older.shared();
            joined.push(
                Merge { shared, segments, from, stands_alone: true, blocks, slice: None }
                    .run(out)?,
            );
        }
        joined.push(self.first_over(older, &contents)?);
        self.replace(0..1, joined, |manifest| {
            (manifest.first, manifest.trees) = (begins, forms.trees());
        })?;
        Ok(first - begins)
    }

    /// The first segment, without what an older archive has of it.
    fn first_over(
        &mut self,
        older: &Archive,
        contents: &Contents,
    ) -> Result<SegmentInfo, ArchiveError> {
        let first = self.contents.manifest.first;
        let info = self.contents.segments[0].info.clone();
        let out = self.segment((info.first, info.last), info.level)?;
        let mut cursors = Vec::new();
        // A segment that begins with the first block here has pieces of that one.
        let there = contents.segments.iter().take_while(|segment| segment.info.first <= first);
        for segment in there {
            cursors.push(Cursor::new(&**older.objects(), &segment.info)?);
        }
        let ours = Cursor::new(&*self.shared.objects, &info)?;
        Over { first, older: cursors, ours, out }.run()
    }

    /// Whether an older archive holds the first block of this one, the same block with the same
    /// roots.
    fn fits(&self, older: &Archive) -> Result<(), ArchiveError> {
        let no = |what: String| {
            let (place, older) = (self.shared.objects.place(), older.objects().place());
            Err(ArchiveError::Join { place, older, what })
        };
        for (it, slice) in [("it", &older.contents().slice), ("the other", &self.contents.slice)] {
            if slice.is_some() {
                return no(format!("{it} is a slice of some accounts"));
            }
        }
        let first = self.contents.manifest.first;
        let (begins, ends) = older.blocks();
        if begins >= first {
            return no(format!(
                "it begins with block {begins}, and what is to be put in front begins before \
                 block {first}"
            ));
        }
        if ends < first {
            return no(format!(
                "it ends with block {ends}, and has to hold block {first}, with which the archive \
                 begins"
            ));
        }
        let ours = self.archive(CACHE_BYTES)?;
        let hash = |archive: &Archive| -> Result<String, ArchiveError> {
            let block = archive.block(first)?;
            Ok(block.map_or_else(|| "none".into(), |block| format!("0x{}", hex(&block.hash))))
        };
        let (there, here) = (hash(older)?, hash(&ours)?);
        if there != here {
            return no(format!(
                "they are of different chains: the hash of block {first} is {there} there, and \
                 {here} here"
            ));
        }
        let (there, here) = (roots(&older.at(first)?)?, roots(&ours.at(first)?)?);
        let differs = there.keys().chain(here.keys()).find(|id| there.get(id) != here.get(id));
        if let Some(id) = differs {
            let of = |roots: &BTreeMap<TreeId, String>| {
                roots.get(id).cloned().unwrap_or_else(|| "not kept".into())
            };
            let (there, here) = (of(&there), of(&here));
            return no(format!("{id} at block {first} is {there} there, and {here} here"));
        }
        Ok(())
    }
}

/// What the trees of a state are at a block. Trees by name are as they were when their archive was
/// begun, so they may differ.
fn roots(view: &AtBlock) -> Result<BTreeMap<TreeId, String>, ArchiveError> {
    let mut roots = BTreeMap::new();
    for tree in view.trees() {
        let id = TreeId(tree.id);
        let Some(row) = view.read(Table::Roots, &RootRecord::key(id))? else { continue };
        let record = RootRecord::decode(id, &row)?;
        if record.block.is_some() {
            roots.insert(id, format!("{} with root 0x{}", record.scheme, hex(&record.root)));
        }
    }
    Ok(roots)
}

/// What the first segment of an archive is made of, once an older one lies in front.
struct Over<'a> {
    first: u64,
    /// Over the older one's segments, up to that with the first block here.
    older: Vec<Cursor<'a>>,
    ours: Cursor<'a>,
    out: SegmentWriter,
}

/// The rows of a key that an older archive has: at the block before the first one here, and at
/// this.
struct Older {
    before: Option<Vec<u8>>,
    there: Option<Vec<u8>>,
}

impl Over<'_> {
    fn run(mut self) -> Result<SegmentInfo, ArchiveError> {
        while let Some(key) = least_key(self.older.iter().chain([&self.ours])) {
            let older = self.older(&key)?;
            let mut kept = KeptPieces::new(&key, None, Row::before(older.before.clone()));
            let mut piece = match self.ours.key() == Some(&key) {
                true => self.ours.next_piece(&key)?,
                false => None,
            };
            let first = match piece.take_if(|piece| piece.block == self.first) {
                Some(first) => {
                    let row = apply(first.kind, &first.bytes, None);
                    let row = row.map_err(|_| self.ours.malformed())?;
                    (row != older.before).then_some(first)
                }
                None => self.without(&key, older),
            };
            if piece.is_none() && self.ours.key() == Some(&key) {
                piece = self.ours.next_piece(&key)?;
            }
            if let Some(first) = first {
                kept.follow(first, &mut self.out, || self.ours.malformed())?;
            }
            while let Some(next) = piece {
                kept.follow(next, &mut self.out, || self.ours.malformed())?;
                piece = self.ours.next_piece(&key)?;
            }
            kept.end(&mut self.out)?;
        }
        self.out.finish()
    }

    /// The piece at the first block of a key that has no row there.
    fn without(&self, key: &[u8], older: Older) -> Option<OwnPiece> {
        let block = self.first;
        let Older { before, there } = older;
        if !is_of_no_block(key) {
            return before.map(|_| OwnPiece { block, kind: Kind::Gone, bytes: Vec::new() });
        }
        let row = there.filter(|row| before.as_ref() != Some(row))?;
        let (kind, bytes) = whole(&row);
        Some(OwnPiece { block, kind, bytes })
    }

    fn older(&mut self, key: &[u8]) -> Result<Older, ArchiveError> {
        let mut older = Older { before: None, there: None };
        for cursor in self.older.iter_mut().filter(|cursor| cursor.key() == Some(key)) {
            while let Some(piece) = cursor.next_piece(key)? {
                if piece.block > self.first {
                    continue;
                }
                let row = apply(piece.kind, &piece.bytes, older.there.take());
                older.there = row.map_err(|_| cursor.malformed())?;
                if piece.block < self.first {
                    older.before.clone_from(&older.there);
                }
            }
        }
        Ok(older)
    }
}
