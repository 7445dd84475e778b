//! Moving what is alive out of the oldest segments, a part with each commit.

use crate::batch::Batch;
use crate::error::LogError;
use crate::format::Entry;
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
        let rows = view.index.len();
        let over = writer.used_bytes().saturating_sub(writer.allowed(rows));
        let (forced, bytes_max) = match self.chore {
            Chore::Pace => (false, (over / 8).max(writer.own_bytes)),
            Chore::Move(bytes) => (true, bytes),
            Chore::Index(_) => return Ok(Moved::default()),
        };
        if matches!(writer.keep, Keep::All) || (over == 0 && !forced) {
            return Ok(Moved::default());
        }
        let share = writer.share(2 * rows, rows, writer.own_bytes as usize);
        let looks = if forced { usize::MAX } else { (2 * batch.changes.len() + 64).max(share) };
        let moved = Moved::default();
        let mut choice = Choice { view, batch, moved, bytes: 0, bytes_max, looks };
        while !choice.is_made() {
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
                    if !forced && writer.used_bytes() - gone <= writer.allowed(rows) {
                        break;
                    }
                    other.insert(Victim::of(number))
                }
            };
            if victim.next < victim.pieces.len() {
                choice.look_at(victim);
            } else if victim.at < needed.end {
                // Deltas take time to be read, though none to be looked up.
                let deltas = victim.read(writer.files.id, needed)?;
                choice.looks = choice.looks.saturating_sub(1 + deltas);
            } else {
                (self.victim, self.gone) = (None, self.gone + 1);
            }
        }
        Ok(choice.moved)
    }
}

/// The rows that a commit moves, while they are chosen.
struct Choice<'a> {
    view: &'a View,
    batch: &'a Batch<'a>,
    moved: Moved,
    bytes: u64,
    bytes_max: u64,
    /// How many more entries of records may be passed.
    looks: usize,
}

impl Choice<'_> {
    const fn is_made(&self) -> bool {
        self.bytes >= self.bytes_max || self.looks == 0
    }

    /// Goes through the whole rows of a record that are left.
    fn look_at(&mut self, victim: &mut Victim) {
        let pieces = &victim.pieces[victim.next..];
        let entries = self.view.index.get_each(pieces.iter().map(|(key, _)| &key[..]));
        for ((key, piece), entry) in pieces.iter().zip(entries) {
            if self.is_made() {
                return;
            }
            self.looks -= 1;
            victim.next += 1;
            // No live row begins in an older segment, so each is met once, where it begins.
            let is_alive = |entry: &Entry| entry.pieces.first() == Some(piece);
            let Some(entry) = entry.filter(is_alive).filter(|_| !self.batch.drops(key)) else {
                continue;
            };
            if let Some(number) = self.batch.place_of(key) {
                self.moved.whole.insert(number);
                continue;
            }
            self.bytes += entry.bytes();
            self.moved.rows.push((key.clone(), entry));
        }
    }
}
