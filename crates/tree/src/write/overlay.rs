//! Rows that are written as copies of what they were.
//!
//! In the usual batch values change and sizes do not, and then a page differs from its row in a few stretches:
//! the values, and what the branches above them commit to. Pages are cut by the sizes of items alone, so a page
//! none of whose items takes more or fewer bytes holds what it held, and its row is copied once, and what
//! changed is laid over the copy where it stands.
//!
//! Invariants:
//! - rows are a stack: a branch finds that of its body where its parent's is or puts it on top, those of its
//!   groups above it, and takes off what it put on;
//! - while a row is on the stack, only items that stay where they were are read from it: elsewhere it may be
//!   half one thing and half the other.

use std::ops::Range;
use std::sync::Arc;

use crate::image::{FRAME_BYTES, PAGE_BYTES_MAX, PageKind, SUM_BYTES, seal_in_place};
use crate::node::OpenPage;
use crate::page_key::PageKey;
use crate::row::Row;

/// Where an item stood: a row of the stack, and the place in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub(super) row: u32,
    pub(super) at: u16,
}

/// Names an opened page: its segment, and its place among the segment's.
pub(super) type PageId = (u32, u32);

/// A row of the last commit, and what it is by now. Its memory is used for one row after another.
#[derive(Debug)]
struct Laid<'a> {
    id: PageId,
    page: &'a OpenPage,
    bytes: Vec<u8>,
}

/// The stack of rows that are being laid over, and those that are done.
#[derive(Debug)]
pub(super) struct Overlay<'a> {
    rows: Vec<Laid<'a>>,
    /// Memory for more rows.
    memory: Vec<Vec<u8>>,
    /// How many of them are on the stack.
    depth: u32,
    /// Rows that differ from what they were.
    pub(super) done: Vec<(PageKey, Row)>,
    /// The opened pages whose rows are done, or stay as they are; and how many of them are stale.
    pub(super) taken: Vec<PageId>,
    pub(super) stale: usize,
    /// Whether rows that are the same are done, too: what is stored may be dropped before they are written.
    pub(super) all: bool,
}

impl<'a> Overlay<'a> {
    /// With room for so many rows to be done, and memory for those on the stack.
    pub(super) fn new(room: usize, all: bool, memory: Vec<Vec<u8>>) -> Self {
        let (done, taken) = (Vec::with_capacity(room), Vec::with_capacity(room));
        Self { rows: Vec::with_capacity(8), memory, depth: 0, done, taken, stale: 0, all }
    }

    /// The memory of all rows that were on the stack.
    pub(super) fn memory(&mut self) -> Vec<Vec<u8>> {
        let mut memory = std::mem::take(&mut self.memory);
        memory.extend(self.rows.drain(..).map(|row| row.bytes));
        memory
    }

    /// How many rows are on the stack.
    pub(super) const fn depth(&self) -> u32 {
        self.depth
    }

    /// Puts a row on the stack and answers its place there.
    pub(super) fn open(&mut self, id: PageId, page: &'a OpenPage) -> u32 {
        let place = self.depth;
        self.depth += 1;
        if let Some(row) = self.rows.get_mut(place as usize) {
            (row.id, row.page) = (id, page);
        } else {
            let memory = self.memory.pop();
            let bytes = memory.unwrap_or_else(|| Vec::with_capacity(PAGE_BYTES_MAX));
            self.rows.push(Laid { id, page, bytes });
        }
        let bytes = &mut self.rows[place as usize].bytes;
        bytes.clear();
        bytes.extend_from_slice(&page.row);
        place
    }

    /// Takes off all rows but the first `depth`.
    pub(super) const fn close(&mut self, depth: u32) {
        self.depth = depth;
    }

    /// Whether a row is that of an opened page: ranges of a batch open pages for themselves.
    pub(super) fn is(&self, row: u32, id: PageId, page: &OpenPage) -> bool {
        let row = &self.rows[row as usize];
        row.id == id || Arc::ptr_eq(&row.page.row, &page.row)
    }

    /// Whether a range of a row is all that the page of a branch's body holds.
    pub(super) fn is_whole_body(&self, row: u32, range: &Range<usize>) -> bool {
        let row = &self.rows[row as usize].bytes;
        *range == (FRAME_BYTES..row.len()) && row[SUM_BYTES] == PageKind::Body as u8
    }

    /// The page whose row it was.
    pub(super) fn page(&self, row: u32) -> &'a OpenPage {
        self.rows[row as usize].page
    }

    /// A row as it is by now. Items are as long as they were.
    pub(super) fn bytes(&self, row: u32) -> &[u8] {
        &self.rows[row as usize].bytes
    }

    /// Lays bytes over a row.
    pub(super) fn lay(&mut self, row: u32, at: usize, bytes: &[u8]) {
        self.rows[row as usize].bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A row is what its page is to be.
    pub(super) fn finish(&mut self, row: u32) {
        self.put(row, self.all);
    }

    /// The root page is what it is to be: a state that was made has one, be it the same.
    pub(super) fn finish_top(&mut self) {
        self.put(0, true);
    }

    fn put(&mut self, row: u32, same: bool) {
        let Laid { id, page, bytes } = &mut self.rows[row as usize];
        self.taken.push(*id);
        self.stale += usize::from(page.stale);
        // Nobody looks at the checksum before it is made.
        if same || bytes[SUM_BYTES..] != page.row[SUM_BYTES..] {
            seal_in_place(page.key.as_bytes(), bytes);
            self.done.push((page.key.clone(), Row::from(&bytes[..])));
        }
    }
}
