//! A tree built from ranges of its sorted leaves, each by itself, in any order, by any thread.
//!
//! A range of successive leaves holds whole subtrees, and pieces of others along its two edges. A
//! [`RangeBuilder`] commits to the whole ones and writes their pages; the pieces are its
//! [`Summary`]. A [`Join`] takes the summaries of all ranges in order and makes what lies above and
//! between them, up to the root. [`Ranges`] puts all that into a generation of its own, which
//! appears with its last commit.
//!
//! A range may end anywhere: within the storage of one account, between a key and another that
//! begins with it, after one leaf. What it has to know of its neighbours is the leaf before and the
//! leaf behind.
//!
//! ```
//! use spinney_tree::ranges::Ranges;
//! use spinney_tree::{MemoryStore, PageStore, Tree, TreeId, WriteSet, mpt::Mpt};
//!
//! let store = MemoryStore::new();
//! let mut tree = Tree::open(Mpt, TreeId(1), &store.snapshot()?, 1 << 20)?;
//! let (ranges, _) = Ranges::begin(&mut tree, &store, [7; 32])?;
//! let mut set = WriteSet::new();
//! // The second range first: it begins behind "doe".
//! let mut second = ranges.builder(Some(b"doe"));
//! second.push(b"dog", b"puppy")?;
//! second.push(b"dogglesworth", b"cat")?;
//! let second = second.finish(None)?;
//! let mut first = ranges.builder(None);
//! first.push(b"doe", b"reindeer")?;
//! let first = first.finish(Some(b"dog"))?;
//! for range in [&first, &second] {
//!     range.put_rows(&mut set);
//! }
//! let mut join = ranges.join();
//! for range in [first, second] {
//!     join.add(range.summary)?;
//! }
//! let root = join.finish(&mut set)?;
//! assert_eq!(root[..4], [0x8a, 0xad, 0x78, 0x9d]);
//! ranges.finish(root, None, set)?;
//! assert_eq!(tree.root(), root);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```

mod generation;
mod summary;

use std::mem;
use std::sync::Arc;

use crate::bulk::{check, check_order, weigh};
use crate::cut::Put;
use crate::error::{TreeError, hex};
use crate::grow::{NO_EDGE, Pages, Reducer, SortedItem, What};
use crate::image::{Codec, is_bare_leaf};
use crate::page_key::Space;
use crate::scheme::{Scheme, Weights};
use crate::store::{Table, WriteSet};

pub use generation::Ranges;
pub use summary::Summary;

use summary::{Remnant, RemnantPiece};

/// How many leaves are reduced at a time: few enough that they stay in a core's cache.
const CHUNK_LEAVES: usize = 1_024;
const CHUNK_BYTES: usize = 1 << 20;
/// No item of a child is larger, so no page outgrows its bounds: see docs/design.md, "Writing".
/// Where commitments are points they take 97 bytes, and no value lies at a fork.
const fn child_bytes_max<S: Scheme>() -> usize {
    if Codec::<S>::DELTAS && !S::LAYOUT.prefix_keys { 1_920 } else { 1_855 }
}

/// Builds one range of a tree's sorted leaves: see the module's documentation.
#[derive(Debug)]
pub struct RangeBuilder<S: Scheme> {
    scheme: S,
    held: Held,
    /// The key before those held back.
    before: Option<Vec<u8>>,
    leaves: u64,
    /// What the leaves so far weigh.
    weight: u128,
    remains: Remains<S>,
}

/// Leaves that are held back until there are enough of them.
#[derive(Debug, Default)]
struct Held {
    bytes: Vec<u8>,
    /// Where the key and the value of each leaf end in `bytes`.
    ends: Vec<(usize, usize)>,
}

impl Held {
    fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    fn leaf(&self, index: usize) -> (&[u8], &[u8]) {
        let from = if index == 0 { 0 } else { self.ends[index - 1].1 };
        let (key_end, end) = self.ends[index];
        (&self.bytes[from..key_end], &self.bytes[key_end..end])
    }

    fn is_full(&self) -> bool {
        self.ends.len() >= CHUNK_LEAVES || self.bytes.len() >= CHUNK_BYTES
    }
}

/// A range that was built.
#[derive(Debug)]
pub struct Built<S: Scheme> {
    /// What is left of it for the join.
    pub summary: Summary<S>,
    /// How many leaves it has.
    pub leaves: u64,
    rows: Vec<Put>,
}

impl<S: Scheme> Built<S> {
    /// Puts the rows of the range into a write set.
    pub fn put_rows(&self, set: &mut WriteSet) {
        put(&self.rows, set);
    }

    /// Bytes of the rows, keys included.
    pub fn row_bytes(&self) -> usize {
        self.rows.iter().map(Put::bytes).sum()
    }
}

fn put(rows: &[Put], set: &mut WriteSet) {
    for Put { key, row, .. } in rows {
        set.put(Table::Pages, key.as_bytes(), Arc::clone(row));
    }
}

impl<S: Scheme> RangeBuilder<S> {
    fn new(scheme: S, space: Space, before: Option<&[u8]>) -> Self {
        let (held, before) = (Held::default(), before.map(<[u8]>::to_vec));
        Self { scheme, held, before, leaves: 0, weight: 0, remains: Remains::new(space) }
    }

    /// Takes the next leaf.
    ///
    /// # Errors
    /// If it is not behind the leaf before it, or the tree takes no such leaf. That may show only
    /// when later leaves come; the builder is of no more use then.
    pub fn push(&mut self, key: &[u8], value: &[u8]) -> Result<(), TreeError> {
        if self.held.is_full() {
            self.reduce(Some(key))?;
        }
        if S::Weights::MAX.is_some() {
            self.weight += u128::from(S::Weights::of_value(value));
            weigh::<S>(self.weight)?;
        }
        self.held.push(key, value);
        self.leaves += 1;
        Ok(())
    }

    /// Ends the range; `next` is the first key behind it.
    ///
    /// # Errors
    /// If the last leaves are out of order, or the tree takes no such leaves.
    pub fn finish(mut self, next: Option<&[u8]>) -> Result<Built<S>, TreeError> {
        self.reduce(next)?;
        let edge = match (&self.before, next) {
            (Some(last), Some(next)) => check_order::<S>(last, next)?,
            _ => NO_EDGE,
        };
        self.remains.reduce(&self.scheme, edge)?;
        let Remains { left, pages, .. } = self.remains;
        let rows = pages.emitted.rows;
        Ok(Built { summary: Summary { pieces: left }, leaves: self.leaves, rows })
    }

    /// Reduces the leaves held back; `next` is the key behind them.
    fn reduce(&mut self, next: Option<&[u8]>) -> Result<(), TreeError> {
        let Self { scheme, held, before, remains, .. } = self;
        let Some(last) = held.ends.len().checked_sub(1) else { return Ok(()) };
        let mut items = Vec::with_capacity(held.ends.len());
        let mut previous = before.as_deref();
        for index in 0..held.ends.len() {
            let (key, value) = held.leaf(index);
            let edge = check(scheme, previous, key, value)?;
            items.push(SortedItem { key, edge, what: What::Leaf(value) });
            previous = Some(key);
        }
        let last = held.leaf(last).0;
        let edge = match next {
            Some(next) => check_order::<S>(last, next)?,
            None => NO_EDGE,
        };
        remains.take(scheme, &items, |_| &[], edge);
        if remains.is_many() {
            remains.reduce(scheme, edge)?;
        }
        *before = Some(last.to_vec());
        held.bytes.clear();
        held.ends.clear();
        Ok(())
    }
}

/// What is left of the leaves so far, and the rows of what is not.
#[derive(Debug)]
struct Remains<S: Scheme> {
    left: Vec<Remnant<S::Commit>>,
    /// How many there were after the last reduction of `left` itself.
    least: usize,
    pages: Pages,
    reducer: Reducer<S>,
    scratch: Vec<Remnant<S::Commit>>,
}

impl<S: Scheme> Remains<S> {
    fn new(space: Space) -> Self {
        let (left, scratch) = (Vec::new(), Vec::new());
        Self { left, least: 0, pages: Pages::new(space), reducer: Reducer::default(), scratch }
    }

    fn is_many(&self) -> bool {
        self.left.len() > 2 * self.least + CHUNK_LEAVES
    }

    /// Reduces items into what is left behind all that is.
    fn take<'i>(
        &mut self,
        scheme: &S,
        items: &[SortedItem<'i, S::Commit>],
        written: impl Fn(usize) -> &'i [u8],
        edge: i32,
    ) {
        let Self { left, pages, reducer, .. } = self;
        reducer.reduce(scheme, items, edge, &mut Vec::new());
        pages.write(scheme, reducer, items, &written, |index, made| {
            let item = &items[index];
            let piece = match (made, item.what) {
                // Pages keep no commitment of it, and neither do summaries: it follows from the
                // value.
                (Some((_, bytes)), What::Leaf(value))
                    if Codec::<S>::DELTAS && is_bare_leaf(bytes) =>
                {
                    RemnantPiece::Leaf(value.into())
                }
                (Some((commit, bytes)), _) => RemnantPiece::Subtree(commit, bytes.into()),
                (None, What::Leaf(value)) => RemnantPiece::Leaf(value.into()),
                (None, What::Done(commit)) => RemnantPiece::Subtree(commit, written(index).into()),
            };
            left.push(Remnant { key: item.key.into(), edge: item.edge, piece });
        });
    }

    /// Reduces what is left; `edge` is that of the leaf behind it.
    fn reduce(&mut self, scheme: &S, edge: i32) -> Result<(), TreeError> {
        let old = mem::replace(&mut self.left, mem::take(&mut self.scratch));
        self.left.clear();
        let items: Vec<_> = old.iter().map(Remnant::item).collect();
        check_pieces(scheme, &old, edge)?;
        self.take(scheme, &items, |index| old[index].piece.bytes(), edge);
        drop(items);
        self.least = self.left.len();
        self.scratch = old;
        Ok(())
    }
}

/// Whether the bytes of subtrees are items that may hang where they do: they may come from a
/// checkpoint.
fn check_pieces<S: Scheme>(
    scheme: &S,
    left: &[Remnant<S::Commit>],
    edge: i32,
) -> Result<(), TreeError> {
    for (index, kept) in left.iter().enumerate() {
        let RemnantPiece::Subtree(_, bytes) = &kept.piece else { continue };
        let next = left.get(index + 1);
        let above = kept.edge.max(next.map_or(edge, |next| next.edge));
        // As in `Reducer::depth`.
        let start = if above % 2 == 0 { above / 2 + 1 } else { (above + 1) / 2 };
        let whole = |end: usize| end == bytes.len();
        let sound = bytes.len() >= 2
            && (start == 0 || bytes.len() <= child_bytes_max::<S>())
            && Codec { scheme }.node(bytes, 0, start as usize).is_ok_and(|(_, end)| whole(end))
            && next.is_none_or(|next| !next.key.starts_with(&kept.key));
        if !sound {
            let page = format!("the summary of a range at 0x{}", hex(&kept.key));
            let what = "a subtree's item does not suit its place".into();
            return Err(TreeError::Corrupt { page, what });
        }
    }
    Ok(())
}

/// Joins the summaries of all ranges, in order: see the module's documentation.
///
/// However many ranges there are, it holds what is open at the right edge of the tree.
#[derive(Debug)]
pub struct Join<S: Scheme> {
    scheme: S,
    /// What the pieces so far weigh.
    weight: u128,
    remains: Remains<S>,
}

impl<S: Scheme> Join<S> {
    fn new(scheme: S, space: Space) -> Self {
        Self { scheme, weight: 0, remains: Remains::new(space) }
    }

    /// Takes the summary of the next range.
    ///
    /// # Errors
    /// If the range is not behind the one before it, or what the summary holds cannot be.
    pub fn add(&mut self, summary: Summary<S>) -> Result<(), TreeError> {
        for mut kept in summary.pieces {
            if S::Weights::MAX.is_some() {
                self.weight += u128::from(match &kept.piece {
                    RemnantPiece::Leaf(value) => S::Weights::of_value(value),
                    RemnantPiece::Subtree(commit, _) => S::Weights::below(commit),
                });
                weigh::<S>(self.weight)?;
            }
            kept.edge = match self.remains.left.last() {
                Some(last) => check_order::<S>(&last.key, &kept.key)?,
                None => NO_EDGE,
            };
            if self.remains.is_many() {
                self.remains.reduce(&self.scheme, kept.edge)?;
            }
            self.remains.left.push(kept);
        }
        Ok(())
    }

    /// Bytes of the rows made so far, keys included.
    pub fn row_bytes(&self) -> usize {
        self.remains.pages.emitted.rows.iter().map(Put::bytes).sum()
    }

    /// Moves the rows made so far into a write set.
    pub fn put_rows(&mut self, set: &mut WriteSet) {
        put(&mem::take(&mut self.remains.pages.emitted.rows), set);
    }

    /// Ends the tree: puts the last rows into `set` and answers the root.
    ///
    /// # Errors
    /// If what the summaries hold cannot be.
    pub fn finish(mut self, set: &mut WriteSet) -> Result<S::Root, TreeError> {
        self.remains.reduce(&self.scheme, NO_EDGE)?;
        let root = match &self.remains.left[..] {
            [] => self.scheme.root(None),
            [Remnant { piece: RemnantPiece::Subtree(commit, bytes), .. }] => {
                self.remains.pages.root(bytes);
                self.scheme.root(Some(commit))
            }
            _ => unreachable!("with nothing at either side all items reduce to one"),
        };
        put(&self.remains.pages.emitted.rows, set);
        Ok(root)
    }
}
