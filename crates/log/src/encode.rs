//! What a commit's own rows are in its record: entries of the index, and rows or deltas.

use std::collections::HashSet;

use spinney_hash::prefetch;

use crate::batch::{Batch, Change};
use crate::delta;
use crate::format::{IndexWriter, row_hash};
use crate::view::View;

/// Deltas that a row has at most.
const CHAIN: usize = 8;
/// Changes from which on two threads share them: a thread wakes in a twentieth of the time that
/// these take.
const SHARED: usize = 512;

/// Entries, and the bytes that belong to them.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) index: IndexWriter,
    pub(crate) data: Vec<u8>,
}

/// Makes them of a commit, onto the view before it.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    pub(crate) view: &'a View,
    pub(crate) batch: &'a Batch<'a>,
    /// Places of the changes that are to lie in one piece.
    pub(crate) whole: &'a HashSet<usize>,
}

impl Encoder<'_> {
    /// Puts them behind `to`.
    pub(crate) fn encode(&self, to: &mut Encoded) {
        let changes = &self.batch.changes[..];
        if changes.len() < SHARED {
            return self.part(0, changes, to);
        }
        let half = changes.len() / 2;
        let mut rest = Encoded::default();
        rayon::join(
            || self.part(0, &changes[..half], to),
            || self.part(half, &changes[half..], &mut rest),
        );
        to.index.append(rest.index);
        to.data.append(&mut rest.data);
    }

    /// Puts changes behind `to`, the first of which is at `place` in the batch.
    fn part(&self, place: usize, changes: &[Change<'_>], to: &mut Encoded) {
        for (number, change) in changes.iter().enumerate() {
            if let Some(next) = changes.get(number + 1) {
                // Rows are read whole, and lie anywhere in memory.
                next.row.into_iter().chain(next.before).for_each(prefetch);
            }
            self.row(change, self.whole.contains(&(place + number)), to);
        }
    }

    fn row(&self, change: &Change<'_>, is_whole: bool, to: &mut Encoded) {
        let key = &change.key[..];
        let old = self.view.index.get(key).filter(|_| !self.batch.drops(key));
        let Some(row) = change.row else {
            if old.is_some() {
                to.index.removed(key);
            }
            return;
        };
        let from = to.data.len();
        let is_delta = match (&old, change.before) {
            (Some(old), Some(before)) if old.pieces.len() <= CHAIN => {
                !is_whole
                    && row_hash(key, before) == old.hash
                    && delta::diff(before, row, row.len() / 2, &mut to.data)
            }
            _ => false,
        };
        if !is_delta {
            to.data.extend_from_slice(row);
        }
        to.index.row(is_delta, key, to.data.len() - from, row_hash(key, row));
    }
}
