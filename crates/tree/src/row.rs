//! The bytes of rows on their way to a store: each in memory of its own, or those of one batch behind one another.
//!
//! A batch that edits ten thousand pages makes as many rows of some 2 KB. To ask for memory for each and to give it
//! back takes longer than to copy them, and who writes here and there waits for memory that no cache has. In a block
//! rows lie in the order in which they are made, and its memory is used for one batch after another.
//!
//! Invariants:
//! - a block does not change while anybody has one of its rows;
//! - caches and stores have rows in memory of their own ([`Row::own`]), the same for all who ask: so none of their rows
//!   keeps a block, and a cache and a store in memory have one copy between them. Write sets, and states some of whose
//!   operations are made upon edited pages, keep the block.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use spinney_hash::prefetch;

/// A row's bytes, shared.
#[derive(Clone)]
pub(crate) enum Row {
    /// In memory of their own.
    Own(Arc<[u8]>),
    /// One of a block, by its number.
    InBlock(Arc<Block>, u32),
}

impl Deref for Row {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(row) => row,
            Self::InBlock(block, number) => block.row(*number as usize),
        }
    }
}

impl<T: Into<Arc<[u8]>>> From<T> for Row {
    fn from(row: T) -> Self {
        Self::Own(row.into())
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl Row {
    /// The row in memory of its own: that of a block is made for the first who asks.
    pub(crate) fn own(&self) -> &Arc<[u8]> {
        match self {
            Self::Own(row) => row,
            Self::InBlock(block, number) => {
                block.own[*number as usize].get_or_init(|| Arc::from(&**self))
            }
        }
    }

    /// Bytes of memory held: of a block, by all of its rows.
    pub(crate) fn memory(&self) -> usize {
        match self {
            Self::Own(row) => row.len(),
            Self::InBlock(block, _) => block.memory(),
        }
    }

    /// Puts the row in the place of an older one: over it if it is as long, nobody else has that one, and nobody has
    /// this one in memory of its own.
    pub(crate) fn replace(&self, old: &mut Arc<[u8]>) {
        if let Self::InBlock(block, number) = self
            && block.own[*number as usize].get().is_none()
            && let Some(old) = Arc::get_mut(old).filter(|old| old.len() == self.len())
        {
            old.copy_from_slice(self);
        } else {
            *old = Arc::clone(self.own());
        }
    }
}

/// Rows behind one another.
#[derive(Default)]
pub(crate) struct Block {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
    /// Those that somebody has in memory of their own.
    own: Vec<OnceLock<Arc<[u8]>>>,
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rows of {} bytes", self.ends.len(), self.bytes.len())
    }
}

impl Block {
    /// One with room for so many rows of so many bytes in all: in the memory of an older one, if that is enough and
    /// nobody has a row of that any more.
    pub(crate) fn anew(old: Arc<Self>, rows: usize, bytes: usize) -> Self {
        let mut block = Arc::into_inner(old).unwrap_or_default();
        block.clear();
        if block.bytes.capacity() < bytes {
            // Nothing is to be copied.
            block.bytes = Vec::new();
            block.bytes.reserve_exact(bytes + bytes / 8);
        }
        block.ends.reserve(rows);
        block.own.reserve(rows);
        block
    }

    /// Forgets all rows and keeps the memory, but for what somebody has of its own.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.own.clear();
    }

    /// Bytes of memory, used or not, and of the rows that somebody has of its own.
    fn memory(&self) -> usize {
        let own = self.own.iter().filter_map(OnceLock::get);
        self.capacity() + own.map(|row| row.len()).sum::<usize>()
    }

    /// Bytes of memory, used or not.
    pub(crate) const fn capacity(&self) -> usize {
        self.bytes.capacity()
            + self.ends.capacity() * size_of::<usize>()
            + self.own.capacity() * size_of::<OnceLock<Arc<[u8]>>>()
    }

    fn row(&self, number: usize) -> &[u8] {
        let from = if number == 0 { 0 } else { self.ends[number - 1] };
        &self.bytes[from..self.ends[number]]
    }

    /// Adds a copy of a row, which `change` changes: kept if that says so.
    #[inline]
    pub(crate) fn push_if(&mut self, row: &[u8], change: impl FnOnce(&mut [u8]) -> bool) -> bool {
        // Who writes where no cache is waits for it when it is read again: what is written after this one and the
        // next comes by then.
        let spare = self.bytes.spare_capacity_mut();
        let (from, end) = (2 * row.len(), 3 * row.len());
        prefetch(&spare[from.min(spare.len())..end.min(spare.len())]);
        let from = self.bytes.len();
        self.bytes.extend_from_slice(row);
        let kept = change(&mut self.bytes[from..]);
        if kept {
            self.ends.push(self.bytes.len());
            self.own.push(OnceLock::new());
        } else {
            self.bytes.truncate(from);
        }
        kept
    }

    /// Its rows, shared by all who have one.
    pub(crate) fn rows(self: &Arc<Self>) -> impl ExactSizeIterator<Item = Row> {
        (0..self.ends.len()).map(|number| Row::InBlock(Arc::clone(self), number as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(rows: &[&[u8]]) -> Arc<Block> {
        fill(Block::default(), rows)
    }

    fn fill(mut block: Block, rows: &[&[u8]]) -> Arc<Block> {
        for row in rows {
            block.push_if(row, |copy| {
                copy.reverse();
                true
            });
        }
        Arc::new(block)
    }

    #[test]
    fn rows_lie_behind_one_another_and_those_that_are_not_kept_leave_no_trace() {
        let mut block = Block::default();
        for (row, kept) in [(&b"abc"[..], true), (b"", true), (b"xyz", false), (b"de", true)] {
            let change = |copy: &mut [u8]| {
                copy.reverse();
                kept
            };
            assert_eq!(block.push_if(row, change), kept);
        }
        let rows: Vec<Row> = Arc::new(block).rows().collect();
        let rows: Vec<&[u8]> = rows.iter().map(|row| &**row).collect();
        assert_eq!(rows, [&b"cba"[..], b"", b"ed"]);
    }

    #[test]
    fn memory_is_used_again_once_nobody_has_a_row() {
        let first = block(&[b"first"]);
        let held = first.rows().next().expect("it has one");
        let second = fill(Block::anew(first, 1, 5), &[b"other"]);
        assert_eq!((&*held, second.row(0)), (&b"tsrif"[..], &b"rehto"[..]));
        drop(held);
        let place = second.bytes.as_ptr();
        let third = fill(Block::anew(second, 1, 5), &[b"third"]);
        assert_eq!(
            (third.bytes.as_ptr(), third.row(0), third.ends.len()),
            (place, &b"driht"[..], 1)
        );
    }

    #[test]
    fn a_row_of_its_own_is_the_same_for_all() {
        let row = block(&[b"row"]).rows().next().expect("it has one");
        let (one, other) = (row.clone(), row);
        assert!(Arc::ptr_eq(one.own(), other.own()));
        assert_eq!(**one.own(), *b"wor");
    }

    #[test]
    fn a_row_is_put_over_one_that_nobody_else_has() {
        let row = block(&[b"new"]).rows().next().expect("it has one");
        let mut old: Arc<[u8]> = Arc::from(&b"old"[..]);
        let place = old.as_ptr();
        row.replace(&mut old);
        assert_eq!((&*old, old.as_ptr()), (&b"wen"[..], place));

        // Not where somebody reads it, nor where it has another length.
        let mut old: Arc<[u8]> = Arc::from(&b"old"[..]);
        let read = Arc::clone(&old);
        row.replace(&mut old);
        assert_eq!((&*old, &*read), (&b"wen"[..], &b"old"[..]));
        let mut longer: Arc<[u8]> = Arc::from(&b"longer"[..]);
        row.replace(&mut longer);
        assert_eq!(&*longer, b"wen");

        // By now it is in memory of its own, which all share.
        let mut other: Arc<[u8]> = Arc::from(&b"old"[..]);
        row.replace(&mut other);
        assert!(Arc::ptr_eq(&other, row.own()) && Arc::ptr_eq(&other, &longer));
    }
}
