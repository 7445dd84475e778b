//! Moving what is alive out of the oldest segments, a part with each commit.

use std::collections::HashSet;

use crate::batch::Batch;
use crate::error::LogError;
use crate::key::Key;
use crate::options::{Chore, Keep};
use crate::victim::{Cleaned, Moved, Victim};
use crate::view::View;
use crate::write::{Writer, index_bytes};

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
                    other.insert(Victim::of(number))
                }
            };
            let Some((key, piece)) = victim.pieces.get(victim.next) else {
                if victim.at >= needed.end {
                    (self.victim, self.gone) = (None, self.gone + 1);
                } else {
                    looks += 1;
                    victim.read(writer.files.id, needed)?;
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
            moved.rows.push((key.clone(), entry));
        }
        Ok(moved)
    }
}
