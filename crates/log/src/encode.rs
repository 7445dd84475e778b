//! Turning the changes of a commit into what its record says of them: entries of the index, and
//! rows or deltas.
//!
//! Invariant: entries and data come in the order of the changes, however many threads encode them.

use std::collections::HashSet;

use spinney_hash::prefetch;

use crate::batch::{Batch, Change};
use crate::delta;
use crate::format::{Entry, IndexWriter, row_hash};
use crate::view::View;

/// Deltas that a row has at most.
const CHAIN: usize = 8;
/// Two threads share the changes of a commit from this number on, as they do batches of the tree.
const SHARED: usize = 512;

/// Entries of the index, and the rows and deltas that they are of.
#[derive(Debug, Default)]
pub(crate) struct Encoded {
    pub(crate) index: IndexWriter,
    pub(crate) data: Vec<u8>,
}

/// Encodes the changes of a commit against the view before it.
#[derive(Debug)]
pub(crate) struct Encoder<'a> {
    pub(crate) view: &'a View,
    pub(crate) batch: &'a Batch<'a>,
    /// Places of the changes that are to lie in one piece.
    pub(crate) whole: &'a HashSet<usize>,
}

impl Encoder<'_> {
    /// Appends all changes to `to`.
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

    /// Appends some changes to `to`, the first of which is at `place` in the batch.
    fn part(&self, place: usize, changes: &[Change<'_>], to: &mut Encoded) {
        let rows = self.view.index.get_each(changes.iter().map(|change| &change.key[..]));
        for (number, (change, old)) in changes.iter().zip(rows).enumerate() {
            if let Some(next) = changes.get(number + 1) {
                // Rows are read whole, and lie anywhere in memory.
                next.row.into_iter().chain(next.before).for_each(prefetch);
            }
            let old = old.filter(|_| !self.batch.drops(&change.key));
            self.row(change, old, self.whole.contains(&(place + number)), to);
        }
    }

    /// Appends one change of the row that is `old`.
    fn row(&self, change: &Change<'_>, old: Option<Entry>, is_whole: bool, to: &mut Encoded) {
        let key = &change.key[..];
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
