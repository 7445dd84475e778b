//! What views of an archive share: how rows are found in segments.
//!
//! Invariants:
//! - a row at a block is what its last piece at or before that block made of it; pieces are looked
//!   for from the newest segment to the oldest, and within one from the last part to the first;
//! - bytes that are not those that were written are never part of an answer.
//!
//! A range of an object that lies far away costs as much as some hundred kilobytes more of it. So
//! with the part that has a page's row come those with all pages below it, if they are small; root
//! records and the pages that trees begin with come with the index of their segment; and segments
//! that are needed after one that was not enough are read at once.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use spinney_tree::{Table, pages_below, root_page};

use crate::bloom;
use crate::cache::{Cache, Slot};
use crate::error::ArchiveError;
use crate::forms::apply;
use crate::hex::hex;
use crate::objects::Objects;
use crate::segment::{Groups, Index, Kind, Malformed, Part, SegmentInfo, corrupt};

/// Pages below one that is read are read with it if all of these have at most so many bytes.
const BELOW_BYTES: u64 = 768 << 10;
/// The root records of a segment, and the pages that its trees begin with, stay in memory if they
/// have at most so many bytes together.
const ROOTS_BYTES: u64 = 64 << 20;
/// Of more trees these pages are read when they are needed.
const ROOT_PAGES: usize = 16;

/// A segment whose index is read once somebody needs it.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) info: SegmentInfo,
    /// No other segment of this process has it.
    number: u64,
    opened: OnceLock<Opened>,
}

impl Segment {
    pub(crate) fn new(info: SegmentInfo) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self { info, number, opened: OnceLock::new() }
    }
}

/// What is read of a segment once.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) index: Index,
    /// The parts that every proof needs, by their numbers.
    roots: HashMap<usize, Arc<[u8]>>,
}

impl Opened {
    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.index.memory() + self.roots.values().map(|part| part.len()).sum::<usize>()
    }
}

/// What counts requests, for those who measure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reads {
    /// How many ranges were read.
    pub ranges: u64,
    /// How many bytes these had.
    pub bytes: u64,
}

/// What views of an archive share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) objects: Arc<dyn Objects>,
    cache: Cache,
    ranges: AtomicU64,
    bytes: AtomicU64,
}

/// A part that may have pieces of a key, and those that are to be read with it.
struct Want<'s> {
    segment: &'s Segment,
    opened: &'s Opened,
    part: usize,
    with: Range<usize>,
}

/// Parts that nobody has read yet, side by side in a segment.
struct Missing<'s> {
    segment: &'s Segment,
    index: &'s Index,
    parts: Range<usize>,
}

/// What pieces of a key were found so far, from the newest on.
#[derive(Default)]
struct Chain {
    /// What the changes say, one behind the other; of each what it is, and where it ends.
    changes: Vec<u8>,
    ends: Vec<(Kind, usize)>,
    row: Option<Vec<u8>>,
    /// Whether one was found that needs none before it.
    is_whole: bool,
}

impl Missing<'_> {
    fn bytes(&self) -> Range<u64> {
        span(self.index, &self.parts)
    }
}

impl Chain {
    fn note(&mut self, kind: Kind, changes: &[u8]) {
        self.changes.extend_from_slice(changes);
        self.ends.push((kind, self.changes.len()));
    }

    /// What all of that makes.
    fn row(self) -> Result<Option<Vec<u8>>, Malformed> {
        let mut row = self.row;
        for (number, &(kind, end)) in self.ends.iter().enumerate().rev() {
            let from = number.checked_sub(1).map_or(0, |before| self.ends[before].1);
            row = apply(kind, &self.changes[from..end], row)?;
        }
        Ok(row)
    }
}

/// Where parts lie in their segment.
fn span(index: &Index, parts: &Range<usize>) -> Range<u64> {
    let parts = index.parts.get(parts.clone()).unwrap_or_default();
    match (parts.first(), parts.last()) {
        (Some(first), Some(last)) => first.at..last.at + last.bytes,
        _ => 0..0,
    }
}

impl Shared {
    pub(crate) fn new(objects: Arc<dyn Objects>, cache_bytes: usize) -> Self {
        let (ranges, bytes) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { objects, cache: Cache::new(cache_bytes), ranges, bytes }
    }

    /// What was read of the place so far.
    pub(crate) fn reads(&self) -> Reads {
        let (ranges, bytes) = (&self.ranges, &self.bytes);
        Reads { ranges: ranges.load(Ordering::Relaxed), bytes: bytes.load(Ordering::Relaxed) }
    }

    pub(crate) fn clear_cache(&self) {
        self.cache.clear();
    }

    fn count(&self, bytes: u64) {
        self.ranges.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The index of a segment and its root records.
    pub(crate) fn opened<'s>(&self, segment: &'s Segment) -> Result<&'s Opened, ArchiveError> {
        if let Some(opened) = segment.opened.get() {
            return Ok(opened);
        }
        self.count(segment.info.index_bytes);
        let index = Index::read(&*self.objects, &segment.info)?;
        let (mut roots, mut left) = (HashMap::new(), ROOTS_BYTES);
        for parts in root_parts(&index) {
            let bytes = span(&index, &parts);
            let Some(rest) = left.checked_sub(bytes.end - bytes.start) else { break };
            left = rest;
            let from = parts.start;
            let read = self.read(&Missing { segment, index: &index, parts })?;
            roots.extend((from..).zip(read));
        }
        Ok(segment.opened.get_or_init(|| Opened { index, roots }))
    }

    fn slot(&self, segment: &Segment, index: &Index, part: usize) -> Slot {
        let bytes = index.parts[part].bytes as usize;
        self.cache.slot((segment.number, part as u32), bytes)
    }

    /// The bytes of a part, checked.
    pub(crate) fn part(
        &self,
        segment: &Segment,
        opened: &Opened,
        number: usize,
    ) -> Result<Arc<[u8]>, ArchiveError> {
        self.part_with(&Want { segment, opened, part: number, with: number..number + 1 })
    }

    /// The bytes of a part; others come with it if it is not there yet.
    fn part_with(&self, want: &Want<'_>) -> Result<Arc<[u8]>, ArchiveError> {
        let Want { segment, opened, part, .. } = *want;
        if let Some(bytes) = opened.roots.get(&part) {
            return Ok(Arc::clone(bytes));
        }
        self.slot(segment, &opened.index, part).get_or_read(|| {
            let missing = self.missing(want);
            let from = missing.parts.start;
            let read = self.read(&missing)?;
            self.keep(&missing, &read, Some(part));
            Ok(Arc::clone(&read[part - from]))
        })
    }

    /// The parts beside a part that is not there which are to come with it, and are not there
    /// either.
    fn missing<'s>(&self, want: &Want<'s>) -> Missing<'s> {
        let Want { segment, opened, part, ref with } = *want;
        let index = &opened.index;
        let is_there = |part: &usize| {
            self.cache.has((segment.number, *part as u32)) || opened.roots.contains_key(part)
        };
        let from = (with.start..part).rev().find(is_there).map_or(with.start, |there| there + 1);
        let end = (part + 1..with.end).find(is_there).unwrap_or(with.end);
        Missing { segment, index, parts: from.min(part)..end.max(part + 1) }
    }

    fn read(&self, missing: &Missing<'_>) -> Result<Vec<Arc<[u8]>>, ArchiveError> {
        let bytes = missing.bytes();
        self.count(bytes.end - bytes.start);
        let read = self.objects.read(&missing.segment.info.name, bytes)?;
        self.cut(missing, &read)
    }

    /// Cuts what was read into parts, each of which is checked.
    fn cut(&self, missing: &Missing<'_>, bytes: &[u8]) -> Result<Vec<Arc<[u8]>>, ArchiveError> {
        let mut rest = bytes;
        let mut cut = |number: usize| {
            let part = &missing.index.parts[number];
            match rest.split_off(..part.bytes as usize).filter(|bytes| part.is(bytes)) {
                Some(bytes) => Ok(Arc::from(bytes)),
                None => {
                    let what = format!("part {number} is not what was written");
                    Err(corrupt(&*self.objects, &missing.segment.info.name, &what))
                }
            }
        };
        missing.parts.clone().map(&mut cut).collect()
    }

    /// Keeps parts that were read, but for one that somebody else keeps.
    fn keep(&self, missing: &Missing<'_>, parts: &[Arc<[u8]>], but: Option<usize>) {
        for (part, bytes) in missing.parts.clone().zip(parts) {
            if Some(part) != but {
                self.slot(missing.segment, missing.index, part).put(Arc::clone(bytes));
            }
        }
    }

    /// The bare row of a key at a block, from segments that rise by block.
    pub(crate) fn bare_at(
        &self,
        segments: &[Arc<Segment>],
        key: &[u8],
        block: u64,
    ) -> Result<Option<Vec<u8>>, ArchiveError> {
        let mut older = segments.iter().rev();
        let mut chain = Chain::default();
        // One that changed the row is mostly enough. Else many may be needed: twice as many as
        // before at once.
        let mut count = 1;
        while !chain.is_whole {
            let wants = self.wants(&mut older, key, block, count)?;
            if wants.is_empty() {
                break;
            }
            self.fetch(&wants)?;
            for want in &wants {
                self.follow(want, key, block, &mut chain)?;
                if chain.is_whole {
                    break;
                }
            }
            count *= 2;
        }
        chain.row().map_err(|_| ArchiveError::Corrupt {
            place: self.objects.place(),
            what: format!("changes of row 0x{} change no row", hex(key)),
        })
    }

    /// Where the pieces of a key at a block may be, in the next `count` of segments that may have
    /// any.
    fn wants<'s>(
        &self,
        segments: &mut impl Iterator<Item = &'s Arc<Segment>>,
        key: &[u8],
        block: u64,
        count: usize,
    ) -> Result<Vec<Want<'s>>, ArchiveError> {
        let hash = bloom::hash(key);
        let mut wants = Vec::new();
        for segment in segments {
            if segment.info.first > block {
                continue;
            }
            let opened = self.opened(segment)?;
            if opened.index.may_have(hash)
                && let Some(part) = opened.index.floor(key, block)
            {
                wants.push(Want { segment, opened, part, with: with(&opened.index, key, part) });
                if wants.len() == count {
                    break;
                }
            }
        }
        Ok(wants)
    }

    /// Goes on with the pieces that a segment has of a key.
    fn follow(
        &self,
        want: &Want<'_>,
        key: &[u8],
        block: u64,
        chain: &mut Chain,
    ) -> Result<(), ArchiveError> {
        let &Want { segment, opened, .. } = want;
        let malformed =
            |_: Malformed| corrupt(&*self.objects, &segment.info.name, "a part is malformed");
        let mut bytes = self.part_with(want)?;
        let mut bound = block;
        loop {
            let found = last_pieces(&bytes, segment.info.first, key, bound).map_err(malformed)?;
            let Some(found) = found else { return Ok(()) };
            found.changes.iter().rev().for_each(|&(kind, changes)| chain.note(kind, changes));
            if let Some((kind, bytes)) = found.alone {
                chain.row = apply(kind, bytes, None).map_err(malformed)?;
                chain.is_whole = true;
                return Ok(());
            }
            let Some(before) = found.oldest.checked_sub(1) else { return Ok(()) };
            bound = before;
            let Some(part) = opened.index.floor(key, bound) else { return Ok(()) };
            bytes = self.part(segment, opened, part)?;
        }
    }

    /// Reads the parts that rows of these keys at a block begin with, those that are not there yet,
    /// at once.
    pub(crate) fn read_ahead(
        &self,
        segments: &[Arc<Segment>],
        keys: &[Vec<u8>],
        block: u64,
    ) -> Result<(), ArchiveError> {
        let mut wants = Vec::new();
        for key in keys {
            wants.append(&mut self.wants(&mut segments.iter().rev(), key, block, 1)?);
        }
        self.fetch(&wants)
    }

    /// Reads those of some parts that are not there yet at once.
    fn fetch(&self, wants: &[Want<'_>]) -> Result<(), ArchiveError> {
        let mut all: Vec<Missing<'_>> = Vec::new();
        for want in wants {
            let &Want { segment, opened, part, .. } = want;
            let number = segment.number;
            let is_read =
                |other: &Missing<'_>| other.segment.number == number && other.parts.contains(&part);
            if !opened.roots.contains_key(&part)
                && !self.cache.has((number, part as u32))
                && !all.iter().any(is_read)
            {
                all.push(self.missing(want));
            }
        }
        if all.len() < 2 {
            // Whoever needs it reads it.
            return Ok(());
        }
        let range = |missing: &Missing<'_>| missing.bytes();
        let ranges: Vec<_> =
            all.iter().map(|missing| (&missing.segment.info.name[..], range(missing))).collect();
        for (missing, bytes) in all.iter().zip(self.objects.read_many(&ranges)) {
            let bytes = bytes?;
            self.count(bytes.len() as u64);
            self.keep(missing, &self.cut(missing, &bytes)?, None);
        }
        Ok(())
    }
}

/// The parts that every proof needs: those with root records, and of each tree those with the page
/// that it begins with.
fn root_parts(index: &Index) -> Vec<Range<usize>> {
    let mut all = vec![index.between(&[Table::Roots as u8], &[Table::Roots as u8 + 1])];
    let root = |part: &Part| match part.key.split_first() {
        Some((&table, row)) if table == Table::Pages as u8 => root_page(row),
        _ => None,
    };
    let mut roots: Vec<_> = index.parts.iter().filter_map(root).collect();
    roots.dedup();
    for root in roots.iter().take(ROOT_PAGES) {
        let key = [&[Table::Pages as u8], &root[..]].concat();
        all.push(index.between(&key, &[&key[..], &[0]].concat()));
    }
    all.retain(|parts| !parts.is_empty());
    all
}

/// The parts that come with one that may have the row of a key.
fn with(index: &Index, key: &[u8], part: usize) -> Range<usize> {
    let alone = part..part + 1;
    let Some((&table, row)) = key.split_first() else { return alone };
    if table != Table::Pages as u8 {
        return alone;
    }
    let Some((low, high)) = pages_below(row) else { return alone };
    let whole = |bound: Vec<u8>| [&[table], &bound[..]].concat();
    let parts = index.between(&whole(low), &whole(high));
    let bytes = span(index, &parts);
    match parts.contains(&part) && bytes.end - bytes.start <= BELOW_BYTES {
        true => parts,
        false => alone,
    }
}

/// The last pieces of a key in a part, back to one that stands alone.
struct LastPieces<'a> {
    alone: Option<(Kind, &'a [u8])>,
    /// Behind that one, in order.
    changes: Vec<(Kind, &'a [u8])>,
    /// The block of the first of them all.
    oldest: u64,
}

/// Nothing, if the part has none of the key at or before a block.
fn last_pieces<'a>(
    part: &'a [u8],
    first: u64,
    key: &[u8],
    bound: u64,
) -> Result<Option<LastPieces<'a>>, Malformed> {
    let Some(mut pieces) = Groups::new(part, first).find(key)? else { return Ok(None) };
    let mut found: Option<LastPieces<'a>> = None;
    while let Some(piece) = pieces.next() {
        let piece = piece?;
        if piece.block > bound {
            break;
        }
        match (&mut found, piece.kind.stands_alone()) {
            (_, true) => {
                let (alone, oldest) = (Some((piece.kind, piece.bytes)), piece.block);
                found = Some(LastPieces { alone, changes: Vec::new(), oldest });
            }
            (Some(found), false) => found.changes.push((piece.kind, piece.bytes)),
            (None, false) => {
                let (changes, oldest) = (vec![(piece.kind, piece.bytes)], piece.block);
                found = Some(LastPieces { alone: None, changes, oldest });
            }
        }
    }
    Ok(found)
}
