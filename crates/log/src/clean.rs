//! Moving what is alive out of the oldest segments, a part with each commit.

use std::collections::HashSet;
use std::sync::Arc;

use crate::batch::Batch;
use crate::error::{LogError, corrupt};
use crate::format::{IndexReader, Item, Piece};
use crate::key::Key;
use crate::log::Keep;
use crate::open::Needed;
use crate::view::View;
use crate::write::{Cleaned, Moved, Writer, index_bytes};

/// The segment that is being cleaned.
#[derive(Clone, Debug)]
pub(crate) struct Victim {
    segment: u32,
    /// The next record.
    at: u64,
    /// What the one before holds.
    pieces: Arc<[(Key, Piece)]>,
    /// The first of it that was not looked at.
    next: usize,
}

/// What a record does besides its commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chore {
    /// Cleaning and the index keep pace with the commit.
    Pace,
    /// So many bytes are moved.
    Move(u64),
    /// So many bytes of the index are written, and nothing is moved.
    Index(usize),
}

/// One commit's part of cleaning.
#[derive(Debug)]
pub(crate) struct Cleaning {
    victim: Option<Victim>,
    gone: usize,
    chore: Chore,
    pub(crate) own_bytes: u64,
}

impl Writer {
    /// Bytes of segments above which rows are moved.
    pub(crate) fn allowed(&self, rows: u64) -> u64 {
        (self.live + index_bytes(rows)) / 4 * 7 + self.segment_bytes()
    }

    pub(crate) fn begin_cleaning(&self, chore: Chore) -> Cleaning {
        Cleaning { victim: self.victim.clone(), gone: 0, chore, own_bytes: 0 }
    }
}

impl Cleaning {
    pub(crate) fn end(self) -> Cleaned {
        Cleaned { at: self.victim, gone: self.gone, own_bytes: self.own_bytes }
    }

    /// Chooses the rows that a commit moves.
    pub(crate) fn choose(
        &mut self,
        writer: &Writer,
        view: &View,
        batch: &Batch<'_>,
    ) -> Result<Moved, LogError> {
        let mut moved = Moved::default();
        let over = writer.used_bytes().saturating_sub(writer.allowed(view.index.len()));
        let (forced, bytes_max) = match self.chore {
            Chore::Pace => (false, (over / 8).max(writer.own_bytes)),
            Chore::Move(bytes) => (true, bytes),
            Chore::Index(_) => return Ok(moved),
        };
        if matches!(writer.keep, Keep::All) || (over == 0 && !forced) {
            return Ok(moved);
        }
        let rows = view.index.len();
        let share = writer.share(2 * rows, rows, writer.own_bytes as usize);
        let looks_max = if forced { usize::MAX } else { (2 * batch.changes.len() + 64).max(share) };
        let (mut bytes, mut looks) = (0, 0);
        let mut seen: HashSet<Key> = HashSet::new();
        while bytes < bytes_max && looks < looks_max {
            // The segment that is written to is never cleaned.
            let Some(needed) = writer.used.get(self.gone) else { break };
            if self.gone + 1 >= writer.used.len() {
                break;
            }
            let number = needed.segment.number;
            let victim = match &mut self.victim {
                Some(victim) if victim.segment == number => victim,
                other => {
                    let gone: u64 = writer.used.iter().take(self.gone).map(|used| used.end).sum();
                    if !forced && writer.used_bytes() - gone <= writer.allowed(view.index.len()) {
                        break;
                    }
                    other.insert(Victim { segment: number, at: 0, pieces: Arc::default(), next: 0 })
                }
            };
            let Some((key, piece)) = victim.pieces.get(victim.next) else {
                if victim.at >= needed.end {
                    (self.victim, self.gone) = (None, self.gone + 1);
                } else {
                    looks += 1;
                    victim.read(writer, needed)?;
                }
                continue;
            };
            looks += 1;
            victim.next += 1;
            let Some(entry) = view.index.get(key) else { continue };
            if !entry.pieces.contains(piece) || batch.drops(key) || !seen.insert(key.clone()) {
                continue;
            }
            if let Some(number) = batch.place_of(key) {
                moved.whole.insert(number);
                continue;
            }
            bytes += entry.bytes();
            moved.rows.push(key.clone());
        }
        Ok(moved)
    }
}

impl Victim {
    /// Lists the pieces of the next record.
    fn read(&mut self, writer: &Writer, needed: &Needed) -> Result<(), LogError> {
        let segment = &needed.segment;
        let header = segment.header(self.at, writer.files.id)?;
        let Some(header) = header.filter(|header| header.segment == u64::from(self.segment)) else {
            return Err(corrupt(&segment.place, format!("there is no record at {}", self.at)));
        };
        let index = segment.index(self.at, &header)?;
        let mut data = self.at + header.data_at();
        let mut pieces = Vec::new();
        for item in IndexReader::new(&index) {
            match item {
                Some(Item::Whole(key, len, _) | Item::Delta(key, len, _)) => {
                    let piece = Piece { segment: self.segment, at: data as u32, len };
                    data += u64::from(len);
                    pieces.push((key, piece));
                }
                Some(_) => {}
                None => {
                    let what = format!("the record at {} has an entry that is none", self.at);
                    return Err(corrupt(&segment.place, what));
                }
            }
        }
        self.at += header.len();
        (self.pieces, self.next) = (pieces.into(), 0);
        Ok(())
    }
}
