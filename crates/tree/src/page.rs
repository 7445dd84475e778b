//! Resident pages: a row and its index.
//!
//! A row is written to be small: where an item lies is known once all before it are passed over,
//! and most leaves carry no commitment. So each row is parsed once, when it is loaded or
//! written, and its *index* says of each item where it lies, what it is, which items are in it,
//! and, where somebody has had to know, what it commits to. Nobody else parses rows.
//!
//! Invariants:
//! - the children of a branch, and what a leaf owns, are entries side by side; those of a page
//!   that are in no other item come first;
//! - nothing that is owned owns anything; digits rise among siblings, and each is one of the
//!   tree's;
//! - buckets within buckets are cut at more bits, so no walk through pages goes on for ever;
//! - what an entry commits to is what its item in this very row does: another row has another page.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod commits;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use spinney_hash::prefetch;

use crate::error::TreeError;
use crate::image::{
    Codec, FRAME_BYTES, Item, LeafBody, LeafView, Malformed, NodeView, PAGE_BYTES_MAX, PageKind,
    PrefixView, SUM_BYTES,
};
use crate::page_key::{PageKey, describe};
use crate::scheme::{Differences, Owned, Scheme};
use commits::LeafCommits;
use spinney_proof::digits::Run;

/// A page of the last commit, or of one before that a state still stands on.
///
/// What a reader needs comes first, so that it comes from memory together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Page<C> {
    pub(crate) row: Arc<[u8]>,
    entries: Arc<[IndexEntry]>,
    /// Where the pages are that entries lead to.
    handles: Option<Arc<[HandleCell]>>,
    /// What leaves commit to that the row does not say.
    commits: LeafCommits<C>,
    /// How many entries are in no other.
    top: u16,
    pub(crate) kind: PageKind,
    /// Of a bucket's page, how many bits of a digit its entries share.
    pub(crate) bits: u8,
    /// Whether the body that the page holds begins with the value of the key that ends at its fork.
    pub(crate) valued: bool,
    /// Where the cache has it, or the page that it is to take the place of.
    pub(crate) place: HandleCell,
    pub(crate) key: PageKey,
}

/// An item of a page, or a bucket entry that has a page of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexEntry {
    /// Where it lies in the row.
    pub(crate) at: u16,
    pub(crate) end: u16,
    /// Of a branch with its children here, where their items begin.
    pub(crate) body: u16,
    /// The entries of what is in it; or the number of the handle to the page of that.
    first: u16,
    count: u16,
    pub(crate) digit: u8,
    pub(crate) kind: Kind,
    /// Of a branch, how many digits its prefix has, if they are fewer than 255; of a bucket entry,
    /// the bits of its bucket.
    pub(crate) span: u8,
    flags: u8,
    commit: u16,
}

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Leaf,
    /// A branch, with its children in the same page.
    Branch,
    /// A branch whose children have a page of their own.
    OutOfLine,
    /// A child whose item is in the page of its bucket.
    LeafInBucket,
    BranchInBucket,
}

impl Kind {
    pub(crate) const fn is_leaf(self) -> bool {
        matches!(self, Self::Leaf | Self::LeafInBucket)
    }

    pub(crate) const fn is_in_bucket(self) -> bool {
        matches!(self, Self::LeafInBucket | Self::BranchInBucket)
    }
}

/// Its bytes, or its prefix's, are in overflow rows.
const OVERFLOWED: u8 = 1;
/// A branch's body begins with a value.
const VALUED: u8 = 2;

/// What the row keeps of a commitment: see [`IndexEntry::commit`].
const IN_ROW: u16 = u16::MAX;
/// Behind a leaf's value.
const CARRIED: u16 = u16::MAX - 1;
/// It follows from the value.
const OF_VALUE: u16 = u16::MAX - 2;
/// Nobody is told: an owned value that pages leave to its owner.
const LEFT_OUT: u16 = u16::MAX - 3;

impl IndexEntry {
    const fn new(at: usize, end: usize, digit: u8, kind: Kind) -> Self {
        let (at, end) = (at as u16, end as u16);
        let (body, first, count, span, flags) = (0, 0, 0, 0, 0);
        Self { at, end, body, first, count, digit, kind, span, flags, commit: IN_ROW }
    }

    /// The entries of its children, or of what it owns.
    pub(crate) const fn within(&self) -> Within {
        match self.kind {
            Kind::Leaf | Kind::Branch => {
                Within { from: self.first, end: self.first.wrapping_add(self.count) }
            }
            _ => Within { from: 0, end: 0 },
        }
    }

    pub(crate) const fn is_overflowed(&self) -> bool {
        self.flags & OVERFLOWED != 0
    }

    pub(crate) const fn is_valued(&self) -> bool {
        self.flags & VALUED != 0
    }

    /// Of a branch, whether it forks where it hangs.
    pub(crate) const fn has_no_prefix(&self) -> bool {
        self.span == 0 && !self.is_overflowed()
    }

    /// Of a branch, whether its prefix certainly has so many digits.
    pub(crate) const fn has_prefix_of(&self, digits: usize) -> bool {
        digits < u8::MAX as usize && self.span as usize == digits && !self.is_overflowed()
    }

    pub(crate) const fn owns(&self) -> bool {
        self.kind.is_leaf() && self.count > 0
    }

    pub(crate) const fn len(&self) -> usize {
        self.end.wrapping_sub(self.at) as usize
    }

    const fn range(&self) -> Range<usize> {
        self.at as usize..self.end as usize
    }
}

/// Entries side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Within {
    pub(crate) from: u16,
    pub(crate) end: u16,
}

impl Within {
    pub(crate) const fn len(self) -> usize {
        self.end.wrapping_sub(self.from) as usize
    }

    pub(crate) const fn range(self) -> Range<u16> {
        self.from..self.end
    }
}

/// The place of a page in the cache and how often that was given away: it leads to its page or to
/// nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Where a handle is kept, once somebody went that way.
#[derive(Debug, Default)]
pub(crate) struct HandleCell(AtomicU64);

impl HandleCell {
    pub(crate) fn get(&self) -> Handle {
        let packed = self.0.load(Ordering::Relaxed);
        Handle { slot: packed as u32, generation: (packed >> 32) as u32 }
    }

    pub(crate) fn set(&self, Handle { slot, generation }: Handle) {
        self.0.store(u64::from(generation) << 32 | u64::from(slot), Ordering::Relaxed);
    }
}

/// How many digits the keys of owners have; 0 where there are none.
pub(crate) const fn owner_digits<S: Scheme>() -> usize {
    match S::LAYOUT.owner {
        Some(owner) => owner.bytes.saturating_mul(Codec::<S>::WIDTH.per_byte()),
        None => 0,
    }
}

pub(crate) fn corrupt(key: &PageKey, what: &str) -> TreeError {
    TreeError::Corrupt { page: describe(key.as_bytes()), what: what.into() }
}

impl<C: Copy> Page<C> {
    /// Parses a row whose place has so many bits. `known` says what leaves commit to that do not
    /// carry it, by where they lie, in order.
    pub(crate) fn parse<S: Scheme<Commit = C>>(
        codec: Codec<'_, S>,
        key: PageKey,
        row: Arc<[u8]>,
        bits: usize,
        known: &[(u16, C)],
        lists: &mut Lists<C>,
    ) -> Result<Self, TreeError> {
        lists.clear();
        let Parsed { top, valued, kind, bits } =
            Parser::parse(codec, &row, bits, known, lists).map_err(|what| corrupt(&key, what))?;
        let entries = lists.entries[..].into();
        let handles = (!lists.handles.is_empty()).then(|| lists.handles.drain(..).collect());
        let commits = match known {
            [] => LeafCommits::unknown(lists.commits.len() as u16),
            _ => LeafCommits::told(lists.commits[..].into()),
        };
        let place = HandleCell::default();
        Ok(Self { key, row, entries, handles, commits, top, kind, bits, valued, place })
    }

    /// A page that differs from this one in values and commitments alone: `known` says of entries
    /// what they commit to now.
    pub(crate) fn renewed(&self, row: Arc<[u8]>, known: &[(u16, C)]) -> Self {
        let place = |entry: u16| self.entries.get(usize::from(entry)).map(|entry| entry.commit);
        let news = known.iter().filter_map(|&(entry, commit)| Some((place(entry)?, commit)));
        let commits = self.commits.renewed(news);
        let (entries, handles) = (Arc::clone(&self.entries), self.handles.clone());
        let Self { top, kind, bits, valued, .. } = *self;
        let (key, place) = (self.key.clone(), HandleCell::default());
        Self { key, row, entries, handles, commits, top, kind, bits, valued, place }
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        let handles = self.handles.as_ref().map_or(0, |handles| size_of_val(&handles[..]));
        let (entries, commits) = (size_of_val(&self.entries[..]), self.commits.bytes());
        let parts = [self.key.heap_bytes(), self.row.len(), entries, commits];
        parts.into_iter().fold(size_of::<Self>().saturating_add(handles), usize::saturating_add)
    }

    #[inline(always)]
    #[expect(clippy::indexing_slicing, reason = "numbers of entries come from this very index")]
    pub(crate) fn entry(&self, entry: u16) -> &IndexEntry {
        &self.entries[usize::from(entry)]
    }

    /// The entries that are in no other.
    pub(crate) const fn top(&self) -> Within {
        Within { from: 0, end: self.top }
    }

    pub(crate) fn entries(&self, within: Within) -> &[IndexEntry] {
        self.entries.get(usize::from(within.from)..usize::from(within.end)).unwrap_or_default()
    }

    /// The entry of a digit among siblings.
    #[inline]
    pub(crate) fn find(&self, among: Within, digit: u8, most: u8) -> Option<u16> {
        // Where there is one for each digit, nothing needs to be read.
        if among.len() == usize::from(most).wrapping_add(1) {
            return Some(among.from.wrapping_add(u16::from(digit)));
        }
        // So many digits have none: an entry is no further in front of its digit's place than that.
        let lacking = usize::from(most).saturating_add(1).saturating_sub(among.len());
        let (first, entries) = (usize::from(digit).saturating_sub(lacking), self.entries(among));
        let end = entries.len().min(usize::from(digit).saturating_add(1));
        let near = entries.get(first..end)?;
        let place = match near.len() {
            0..=16 => near.iter().position(|entry| entry.digit >= digit)?,
            _ => near.partition_point(|entry| entry.digit < digit),
        };
        let is_it = near.get(place).is_some_and(|entry| entry.digit == digit);
        is_it.then_some(among.from.wrapping_add(first.wrapping_add(place) as u16))
    }

    /// The first bits, and how many, of the bucket that a digit belongs to which is not among
    /// siblings, though others of its bucket are; and one of these.
    pub(crate) fn bucket_of(&self, among: Within, digit: u8, width: u8) -> Option<u16> {
        let entries = self.entries(among);
        let place = entries.partition_point(|entry| entry.digit < digit);
        let near = [place.checked_sub(1), Some(place)];
        near.into_iter().flatten().find_map(|at| {
            let entry = entries.get(at)?;
            let rest = u32::from(width.saturating_sub(entry.span));
            let same = entry.kind.is_in_bucket()
                && u16::from(entry.digit) >> rest == u16::from(digit) >> rest;
            same.then_some(among.from.wrapping_add(at as u16))
        })
    }

    /// Where the page is that an entry's children have, or that the entries of its bucket have.
    pub(crate) fn handle(&self, entry: u16) -> Option<&HandleCell> {
        self.handles.as_ref()?.get(usize::from(self.entry(entry).first))
    }

    /// Takes over what is known of the page before at the same place, as far as branches have no
    /// prefix: where pages are that both lead to, and, where nothing is known of this one yet, what
    /// leaves commit to that are the same.
    pub(crate) fn take_over(&self, old: &Self) {
        let handles = self.handles.as_deref().zip(old.handles.as_deref());
        let handles = handles.filter(|(mine, others)| !std::ptr::eq(*mine, *others));
        let (commits, others) = (&self.commits, &old.commits);
        let learns = commits.count() > 0 && commits.is_unknown() && !others.is_unknown();
        if handles.is_none() && !learns || (self.kind, self.bits) != (old.kind, old.bits) {
            return;
        }
        let mut alike: SmallVec<[(Within, Within); 32]> = SmallVec::new();
        alike.push((self.top(), old.top()));
        while let Some((here, there)) = alike.pop() {
            let mut before = old.entries(there).iter().peekable();
            for (number, entry) in (here.from..).zip(self.entries(here)) {
                while before.next_if(|old| old.digit < entry.digit).is_some() {}
                let Some(previous) = before.next_if(|old| old.digit == entry.digit) else {
                    continue;
                };
                let leads_on = match (entry.kind, previous.kind) {
                    (Kind::Leaf, Kind::Leaf) if learns => {
                        if let Some(commit) = old.commits.get(previous.commit)
                            && self.row.get(entry.range()) == old.row.get(previous.range())
                        {
                            self.learn(number, commit);
                        }
                        false
                    }
                    (Kind::Branch, Kind::Branch)
                        if entry.has_no_prefix() && previous.has_no_prefix() =>
                    {
                        alike.push((entry.within(), previous.within()));
                        false
                    }
                    (Kind::OutOfLine, Kind::OutOfLine) => {
                        entry.has_no_prefix() && previous.has_no_prefix()
                    }
                    _ => {
                        let are_in_buckets =
                            entry.kind.is_in_bucket() && previous.kind.is_in_bucket();
                        are_in_buckets && entry.span == previous.span
                    }
                };
                if let Some((mine, others)) = handles.filter(|_| leads_on)
                    && let Some(mine) = mine.get(usize::from(entry.first))
                    && let Some(other) = others.get(usize::from(previous.first))
                {
                    mine.set(other.get());
                }
            }
        }
    }

    /// What an entry commits to, if anybody knows; its run begins at digit `start`.
    #[inline(always)]
    pub(crate) fn commit<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        entry: &IndexEntry,
        start: usize,
    ) -> Option<C> {
        match entry.commit {
            IN_ROW => codec.kept(&self.row, entry.at.into()),
            CARRIED | OF_VALUE | LEFT_OUT => self.told(codec, entry, start),
            place => self.commits.get(place),
        }
    }

    fn told<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        entry: &IndexEntry,
        start: usize,
    ) -> Option<C> {
        if entry.commit == LEFT_OUT {
            return None;
        }
        let view = self.leaf(codec, entry, start).ok()?;
        match (entry.commit, view.body) {
            (CARRIED, _) => view.commit,
            (_, LeafBody::Inline { value, .. }) => Some(S::Differences::value_commit(value)),
            (_, LeafBody::Overflow(_)) => Some(S::Differences::value_commit(&[])),
        }
    }

    /// Notes what an entry commits to that the row does not keep, for all who come after.
    pub(crate) fn learn(&self, entry: u16, commit: C) {
        self.commits.learn(self.entry(entry).commit, commit);
    }

    /// What is known of the commitments of leaves that the row does not keep, with where they
    /// lie.
    pub(crate) fn known(&self) -> impl Iterator<Item = (u16, C)> + '_ {
        let entries = if self.commits.is_unknown() { &[][..] } else { &self.entries };
        let leaves = entries.iter().filter(|entry| entry.kind == Kind::Leaf);
        leaves.filter_map(|entry| Some((entry.at, self.commits.get(entry.commit)?)))
    }

    /// What a leaf is, as its page holds it.
    pub(crate) fn leaf<'a, S: Scheme<Commit = C>>(
        &'a self,
        codec: Codec<'_, S>,
        entry: &IndexEntry,
        start: usize,
    ) -> Result<LeafView<'a, C>, TreeError> {
        let node = codec.node(&self.row, entry.at.into(), start);
        match node.map_err(|what| corrupt(&self.key, what))?.0 {
            NodeView::Leaf(view) => Ok(view),
            NodeView::Branch(_) => Err(corrupt(&self.key, "a branch is where a leaf was")),
        }
    }

    /// The suffix and the value of a leaf that has them here.
    #[inline]
    pub(crate) fn inline_leaf<'a, S: Scheme<Commit = C>>(
        &'a self,
        codec: Codec<'_, S>,
        entry: &IndexEntry,
        start: usize,
    ) -> Option<(Run<'a>, Range<usize>)> {
        codec.inline_leaf(&self.row, entry.at.into(), start)
    }

    /// The prefix of a branch, if it is here.
    #[inline]
    pub(crate) fn prefix<'a, S: Scheme<Commit = C>>(
        &'a self,
        codec: Codec<'_, S>,
        entry: &IndexEntry,
        start: usize,
    ) -> Result<PrefixView<'a>, TreeError> {
        if entry.has_no_prefix() {
            return Ok(PrefixView::Inline(Run::cut(&[], start, 0, Codec::<S>::WIDTH)));
        }
        if let Some((prefix, _)) = codec.plain_branch(&self.row, entry.at.into(), start) {
            return Ok(PrefixView::Inline(prefix));
        }
        match codec.node(&self.row, entry.at.into(), start) {
            Ok((NodeView::Branch(view), _)) => Ok(view.prefix),
            _ => Err(corrupt(&self.key, "a leaf is where a branch was")),
        }
    }

    /// Where the value lies in front of a body that begins at a place and has these children, if
    /// there is one.
    pub(crate) fn value_range(&self, body: u16, children: Within) -> Option<Range<usize>> {
        let first = self.entries(children).first()?;
        let head = if first.kind.is_in_bucket() { BUCKET_HEAD } else { 0 };
        let (from, end) = (usize::from(body), usize::from(first.at).saturating_sub(head));
        (from < end).then_some(from..end)
    }

    /// The value at the front of a body, whose branch forks at digit `fork`, and where its item
    /// ends.
    pub(crate) fn value<'a, S: Scheme<Commit = C>>(
        &'a self,
        codec: Codec<'_, S>,
        at: usize,
        fork: usize,
    ) -> Result<(LeafView<'a, C>, usize), TreeError> {
        match codec.item(&self.row, at, fork) {
            Ok((Item::Value(view), end)) => Ok((view, end)),
            Ok(_) => Err(corrupt(&self.key, "an item is not the value it should be")),
            Err(what) => Err(corrupt(&self.key, what)),
        }
    }

    /// What a leaf owns, at one of the entries; nothing if nobody knows what it commits to.
    pub(crate) fn owned<'a, S: Scheme<Commit = C>>(
        &'a self,
        codec: Codec<'_, S>,
        owned: u16,
    ) -> Result<Owned<'a, C>, TreeError> {
        let (entry, start) = (self.entry(owned), owner_digits::<S>());
        if entry.commit == LEFT_OUT {
            let view = self.leaf(codec, entry, start)?;
            if let LeafBody::Inline { suffix, value } = view.body {
                return Ok(Owned::Value(suffix, value));
            }
        }
        let commit = self.commit(codec, entry, start);
        commit.map(Owned::Commit).ok_or_else(|| corrupt(&self.key, UNCOMMITTED))
    }

    /// Whether what an entry commits to is to be computed by whoever needs it.
    #[inline]
    pub(crate) fn is_uncommitted(&self, entry: &IndexEntry) -> bool {
        entry.commit < self.commits.count() && self.commits.get(entry.commit).is_none()
    }

    pub(crate) fn fetch_entries(&self) {
        prefetch(&self.entries);
    }

    /// Asks for the index of some entries.
    pub(crate) fn fetch(&self, within: Within) {
        prefetch(self.entries(within));
    }

    /// Asks for the row.
    pub(crate) fn fetch_row(&self) {
        prefetch(&self.row);
    }

    /// Asks for the index, with the commitments that the row does not keep.
    pub(crate) fn fetch_index(&self) {
        self.fetch_entries();
        self.handles.iter().for_each(|handles| prefetch(handles));
        self.commits.fetch();
    }

    /// Asks for what a branch with these children is committed to with.
    pub(crate) fn fetch_commits(&self, within: Within) {
        for entry in self.entries(within) {
            if !self.commits.fetch_one(entry.commit) {
                let item = self.row.get(entry.at.into()..).unwrap_or_default();
                prefetch(item.get(..COMMIT_BYTES_AHEAD).unwrap_or(item));
            }
        }
    }
}

/// What of an item is asked for to read what it commits to.
const COMMIT_BYTES_AHEAD: usize = 34;

/// What stands in front of the entries of a bucket.
pub(crate) const BUCKET_HEAD: usize = 4;

/// What is wrong with a node that its parent counts on to carry its commitment.
const UNCOMMITTED: &str = "an owned leaf has no commitment";
/// A bucket is cut at more bits than the one it lies in; else a walk would never end.
pub(crate) const NESTED: &str = "a bucket lies in one that is no larger";

/// Items of a page that are yet to be noted: where they lie, at which digit their runs start, the
/// entry that they are in, and whether they belong to an owner.
#[derive(Debug)]
struct Body {
    range: Range<usize>,
    start: usize,
    parent: Option<usize>,
    owned: bool,
    /// Whether they are what a leaf owns itself.
    is_owned: bool,
}

/// Lists that are filled while a row is parsed, kept from one row to the next.
#[derive(Debug)]
pub(crate) struct Lists<C> {
    entries: Vec<IndexEntry>,
    commits: Vec<Option<C>>,
    handles: Vec<HandleCell>,
    bodies: Vec<Body>,
}

impl<C> Default for Lists<C> {
    fn default() -> Self {
        let (entries, commits, handles, bodies) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { entries, commits, handles, bodies }
    }
}

impl<C> Lists<C> {
    fn clear(&mut self) {
        self.entries.clear();
        self.commits.clear();
        self.handles.clear();
        self.bodies.clear();
    }
}

/// What a row is as a whole.
struct Parsed {
    top: u16,
    valued: bool,
    kind: PageKind,
    bits: u8,
}

struct Parser<'a, S: Scheme> {
    codec: Codec<'a, S>,
    row: &'a [u8],
    known: &'a [(u16, S::Commit)],
    lists: &'a mut Lists<S::Commit>,
    top: u16,
    valued: bool,
    kind: PageKind,
    /// How many bits of a digit those of a bucket's page share.
    bits: u8,
}

impl<'a, S: Scheme> Parser<'a, S> {
    fn parse(
        codec: Codec<'a, S>,
        row: &'a [u8],
        bits: usize,
        known: &'a [(u16, S::Commit)],
        lists: &'a mut Lists<S::Commit>,
    ) -> Result<Parsed, Malformed> {
        if !(FRAME_BYTES..=PAGE_BYTES_MAX).contains(&row.len()) {
            return Err("it is longer than a page, or shorter than its frame");
        }
        let kind =
            row.get(SUM_BYTES).copied().and_then(PageKind::of).ok_or("it is of no known kind")?;
        let width = Codec::<S>::WIDTH.bits();
        let of_bucket =
            if kind == PageKind::Bucket { bits.checked_rem(width).unwrap_or(0) as u8 } else { 0 };
        let mut parser =
            Self { codec, row, known, lists, top: 0, valued: false, kind, bits: of_bucket };
        if kind != PageKind::Overflow {
            parser.bodies(bits.checked_div(width).unwrap_or(0).saturating_add(1))?;
        }
        let Self { top, valued, kind, bits, .. } = parser;
        Ok(Parsed { top, valued, kind, bits })
    }

    /// Notes all items, those that are in others behind all that are not.
    fn bodies(&mut self, below: usize) -> Result<(), Malformed> {
        let start = if self.kind == PageKind::Root { 0 } else { below };
        let owned = S::LAYOUT.owner.is_some() && start > owner_digits::<S>();
        let (range, parent) = (FRAME_BYTES..self.row.len(), None);
        self.lists.bodies.push(Body { range, start, parent, owned, is_owned: false });
        let mut next = 0;
        while let Some(&Body { ref range, start, parent, owned, is_owned }) =
            self.lists.bodies.get(next)
        {
            let (range, first) = (range.clone(), self.lists.entries.len());
            self.body(range, start, parent, (owned, is_owned))?;
            let count = self.lists.entries.len().saturating_sub(first) as u16;
            match parent.map(|parent| self.lists.entries.get_mut(parent)) {
                Some(Some(parent)) => (parent.first, parent.count) = (first as u16, count),
                Some(None) => return Err("an item is in none"),
                None => self.top = count,
            }
            next = next.saturating_add(1);
        }
        if self.kind == PageKind::Root && self.top != 1 {
            return Err("a root page does not hold one node");
        }
        Ok(())
    }

    /// Notes the items of a body, and the bodies in them.
    fn body(
        &mut self,
        Range { start: from, end }: Range<usize>,
        start: usize,
        parent: Option<usize>,
        owned: (bool, bool),
    ) -> Result<(), Malformed> {
        let first = self.lists.entries.len();
        let mut at = from;
        while at < end {
            at = self.item(parent, (at, at == from), start, owned)?;
        }
        if at > end {
            return Err("an item goes beyond the branch that it is in");
        }
        let own = self.lists.entries.get(first..).unwrap_or_default();
        if !own.is_sorted_by(|a, b| a.digit < b.digit) {
            return Err("children are out of order");
        }
        if own.last().is_some_and(|last| last.digit > Codec::<S>::WIDTH.mask()) {
            return Err("a child has no digit of the tree");
        }
        if own.is_empty() {
            return Err("a branch has no children");
        }
        Ok(())
    }

    /// Notes the item at `at`, which may be the first of its body, all entries of it if it is
    /// a bucket. Answers where it ends.
    fn item(
        &mut self,
        parent: Option<usize>,
        (at, is_first): (usize, bool),
        start: usize,
        (owned, is_owned): (bool, bool),
    ) -> Result<usize, Malformed> {
        let (item, end) = self.codec.item(self.row, at, start)?;
        match item {
            Item::Value(_) => {
                if !is_first || self.kind == PageKind::Root && parent.is_none() {
                    return Err("a value is not in front of a branch's children");
                }
                match parent {
                    Some(_) if is_owned => return Err("an owned item is no plain node"),
                    Some(parent) => {
                        if let Some(parent) = self.lists.entries.get_mut(parent) {
                            parent.flags |= VALUED;
                        }
                    }
                    None if self.kind == PageKind::Bucket => return Err("a bucket holds a value"),
                    None => self.valued = true,
                }
            }
            Item::Node { digit, node: NodeView::Leaf(view) } => {
                self.leaf(&view, (at, end, digit), (owned, is_owned))?;
            }
            Item::Node { digit, node: NodeView::Branch(view) } => {
                let among_owners = S::LAYOUT.owner.is_some() && !owned;
                let fork = start.saturating_add(view.prefix.len());
                if among_owners && fork >= owner_digits::<S>() {
                    return Err("a branch of owners forks beyond their keys");
                }
                let kind = if view.body.is_some() { Kind::Branch } else { Kind::OutOfLine };
                let mut entry = IndexEntry::new(at, end, digit, kind);
                match view.prefix {
                    PrefixView::Inline(run) => entry.span = run.len().min(255) as u8,
                    PrefixView::Overflow(_) => entry.flags = OVERFLOWED,
                }
                if kind == Kind::OutOfLine {
                    entry.first = self.handle();
                }
                if let Some((from, to)) = view.body {
                    entry.body = from as u16;
                    let (range, start) = (from..to, fork.saturating_add(1));
                    let parent = Some(self.lists.entries.len());
                    self.lists.bodies.push(Body { range, start, parent, owned, is_owned: false });
                }
                self.lists.entries.push(entry);
            }
            Item::Bucket { bits, first: member } => {
                if bits <= self.bits && parent.is_none() {
                    return Err(NESTED);
                }
                let (mut from, first) = (member, self.handle());
                while from < end {
                    let (digit, leaf, behind) = self.codec.member(self.row, from)?;
                    let kind = if leaf { Kind::LeafInBucket } else { Kind::BranchInBucket };
                    if !Codec::<S>::DELTAS {
                        self.codec.kept(self.row, from).ok_or("a commitment is malformed")?;
                    }
                    let new = IndexEntry::new(from, behind, digit, kind);
                    self.lists.entries.push(IndexEntry { span: bits, first, ..new });
                    from = behind;
                }
            }
        }
        Ok(end)
    }

    fn leaf(
        &mut self,
        view: &LeafView<'_, S::Commit>,
        (at, end, digit): (usize, usize, u8),
        (owned, is_owned): (bool, bool),
    ) -> Result<(), Malformed> {
        let mut entry = IndexEntry::new(at, end, digit, Kind::Leaf);
        let parent = Some(self.lists.entries.len());
        if matches!(view.body, LeafBody::Overflow(_)) {
            entry.flags = OVERFLOWED;
        }
        if let Some(from) = view.owned {
            if owned {
                return Err("what is owned owns something");
            }
            let (range, start) = (from..end, owner_digits::<S>());
            self.lists.bodies.push(Body { range, start, parent, owned: true, is_owned: true });
        }
        let carried = view.commit.is_some();
        entry.commit = match carried {
            true if Codec::<S>::DELTAS => IN_ROW,
            false if Codec::<S>::DELTAS && (is_owned || view.owned.is_some()) => {
                return Err(UNCOMMITTED);
            }
            false if Codec::<S>::DELTAS => OF_VALUE,
            false if is_owned && !S::LAYOUT.keep_owned_values && !entry.is_overflowed() => LEFT_OUT,
            false if is_owned => return Err(UNCOMMITTED),
            false if entry.is_overflowed() => {
                return Err("an overflowed leaf has no commitment");
            }
            false if S::LAYOUT.keep_leaves => return Err("a leaf has no commitment"),
            true => CARRIED,
            false => {
                let number = self.lists.commits.len();
                self.lists.commits.push(self.known_at(at));
                number as u16
            }
        };
        self.lists.entries.push(entry);
        Ok(())
    }

    /// What the leaf there commits to, if whoever wrote the row said so.
    fn known_at(&self, at: usize) -> Option<S::Commit> {
        let place = self.known.binary_search_by_key(&(at as u16), |known| known.0).ok()?;
        Some(self.known.get(place)?.1)
    }

    /// Makes room for a handle.
    fn handle(&mut self) -> u16 {
        let number = self.lists.handles.len();
        self.lists.handles.push(HandleCell::default());
        number as u16
    }
}
