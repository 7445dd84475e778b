//! Coming by pages, and looking into what is there.

use std::ops::Range;
use std::sync::Arc;

use foldhash::HashMap;
use spinney_hash::prefetch;

use super::{Piece, Update, Visit, Wait, Waiting};
use crate::batch::Span;
use crate::cache::Cache;
use crate::error::TreeError;
use crate::image::{
    FRAME_BYTES, LeafBody, OVERFLOW_BYTES, Overflowed, PageKind, PrefixView, overflow_checksum,
};
use crate::node::{ForkValue, KeyAt, Link, Made, Node, NodeKind, PageRef, Place};
use crate::page::{Handle, Kind, Page, Within, corrupt};
use crate::page_key::PageKey;
use crate::scheme::Scheme;
use spinney_proof::digits::Width;

/// How many overflow rows are asked for before any was found.
const OVERFLOW_ROWS_AHEAD: usize = 16;

/// So many pages ahead a page's slot is asked for, what says where its parts are, and its index.
const SLOTS_AHEAD: usize = 14;
const PAGES_AHEAD: usize = 9;
const ENTRIES_AHEAD: usize = 5;

/// A page that is to be read: its key, and how many bits its place has.
pub(crate) type Missing = (PageKey, u32);

/// Pages read for a batch: what the cache may have evicted again.
pub(crate) type Loaded<C> = HashMap<PageKey, Arc<Page<C>>>;

/// Where a descent finds pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'a, C> {
    pub(crate) cache: &'a Cache<C>,
    pub(crate) loaded: &'a Loaded<C>,
}

impl<C: Copy> Source<'_, C> {
    /// A page that is at hand.
    pub(crate) fn page(&self, handle: Option<Handle>, key: &PageKey) -> Option<Arc<Page<C>>> {
        if let Some(page) = self.loaded.get(key) {
            return Some(Arc::clone(page));
        }
        let pages = self.cache.pages();
        let at = handle.and_then(|handle| pages.page(handle));
        let found = match at {
            Some(page) => Some(page),
            None => pages.page(pages.find(key)?),
        };
        found.cloned()
    }
}

impl Wait {
    const NO_HANDLE: Handle = Handle { slot: u32::MAX, generation: 0 };

    pub(super) const fn again(visit: Visit) -> Self {
        let path = KeyAt::of_batch(0, Span::EMPTY);
        Self { what: Waiting::Again(visit), handle: Self::NO_HANDLE, path, bits: 0 }
    }
}

/// A node, resolved.
// Fields: all that an item says, looked up once for whoever visits it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) link: Link,
    pub(super) kind: NodeKind,
    /// Its prefix, or its suffix, from where it is to hang.
    pub(super) piece: Piece,
    pub(super) value: Place,
    pub(super) fork_value: ForkValue,
    pub(super) entry_page: PageRef,
    pub(super) entry: u16,
    pub(super) base: PageRef,
    pub(super) within: Within,
    pub(super) body: (u16, u16),
    /// Where its children's page may be, if they have one that is not open.
    pub(super) out_of_line: Option<Handle>,
    /// Whether it owns something.
    pub(super) owns: bool,
    /// The node that it is, if a batch made it.
    pub(super) over: Made,
    /// The stored item that it is, if its bytes are in rows of their own.
    pub(super) overflowed: Option<(PageRef, u16)>,
}

impl<'a, S: Scheme> Update<'a, S> {
    /// Looks into what is there; nothing if overflow rows are missing.
    pub(super) fn resolve(&mut self, link: Link, visit: &Visit) -> Result<Option<Seen>, TreeError> {
        let path = self.key_at(visit.ops.from);
        self.resolve_at(link, (path, visit.hung), visit.depth)
    }

    /// Looks into a node that hung at a digit of a path, for it to hang at `depth`.
    pub(super) fn resolve_at(
        &mut self,
        link: Link,
        (path, hung): (KeyAt, u32),
        depth: u32,
    ) -> Result<Option<Seen>, TreeError> {
        match link {
            Link::Made(made) => Ok(Some(self.resolve_made(made, depth))),
            Link::Stored { page, entry } => self.look_stored((page, entry), (path, hung), depth),
        }
    }

    fn resolve_made(&self, made: Made, depth: u32) -> Seen {
        let node = self.chain().node(made);
        let piece = self.piece_of(node.key, depth, node.fork);
        let owned = self.chain().changes(made.arena, node).first();
        let owns = match owned {
            Some(change) => change.made.is_something(),
            None => node.within.len() > 0,
        };
        Seen {
            link: Link::Made(made),
            kind: node.kind,
            piece,
            value: node.value,
            fork_value: node.fork_value,
            entry_page: node.entry_page,
            entry: node.entry,
            base: node.base,
            within: node.within,
            body: node.body,
            out_of_line: None,
            owns: owns && !node.is_branch(),
            over: made,
            overflowed: self.overflowed_entry(node.entry_page, node.entry),
        }
    }

    /// A entry_page, if the bytes of the item there are in rows of their own.
    fn overflowed_entry(&self, entry_page: PageRef, entry: u16) -> Option<(PageRef, u16)> {
        let page = self.arena_of_page(entry_page)?;
        page.entry(entry).is_overflowed().then_some((entry_page, entry))
    }

    fn arena_of_page(&self, page: PageRef) -> Option<&Arc<Page<S::Commit>>> {
        if page == PageRef::NOWHERE {
            return None;
        }
        Some(&self.arena_of(page.arena).pages[page.page as usize])
    }

    /// Digits of a path, from one to another.
    pub(super) fn piece_of(&self, key: KeyAt, from: u32, end: u32) -> Piece {
        let place = key.place(from, end, Self::WIDTH);
        Piece { place, start: from, digits: end - from }
    }

    fn look_stored(
        &mut self,
        (entry_page, number): (PageRef, u16),
        (path, hung): (KeyAt, u32),
        depth: u32,
    ) -> Result<Option<Seen>, TreeError> {
        let codec = self.codec;
        let page = Arc::clone(&self.arena_of(entry_page.arena).pages[entry_page.page as usize]);
        let entry = page.entry(number);
        let link = Link::Stored { page: entry_page, entry: number };
        let mut seen = Seen {
            link,
            kind: NodeKind::Leaf,
            piece: Piece { place: Place::NOTHING, start: hung, digits: 0 },
            value: Place::NOTHING,
            fork_value: ForkValue::None,
            entry_page,
            entry: number,
            base: entry_page,
            within: entry.within(),
            body: (entry.body, entry.end),
            out_of_line: None,
            owns: entry.owns(),
            over: Made::NOTHING,
            overflowed: entry.is_overflowed().then_some((entry_page, number)),
        };
        let start = hung as usize;
        match entry.kind {
            Kind::Leaf if !entry.is_overflowed() => {
                let found = page.inline_leaf(codec, entry, start);
                let (suffix, value) =
                    found.ok_or_else(|| corrupt(&page.key, "a leaf is malformed"))?;
                let place = Place::in_page(entry_page, within(&page.row, suffix.aligned()));
                seen.piece = Piece { place, start: hung, digits: suffix.len() as u32 };
                seen.value = Place::in_page(entry_page, span(value));
            }
            Kind::Leaf => {
                let LeafBody::Overflow(over) = page.leaf(codec, entry, start)?.body else {
                    return Err(corrupt(&page.key, "a leaf is malformed"));
                };
                let Some((run, value)) = self.overflow(path, hung, over)? else {
                    return Ok(None);
                };
                (seen.piece, seen.value) = (run, value);
            }
            Kind::Branch | Kind::OutOfLine => {
                seen.kind = NodeKind::Branch;
                if !self.resolve_branch(&page, (path, hung), &mut seen)? {
                    return Ok(None);
                }
            }
            Kind::LeafInBucket | Kind::BranchInBucket => {
                return Err(corrupt(&page.key, "the branch above it names a bucket of one child"));
            }
        }
        seen.piece = trimmed(seen.piece, depth, Self::WIDTH);
        Ok(Some(seen))
    }

    /// The prefix of a stored branch, where its body is, and the value at its fork; `false` if a
    /// row is missing.
    fn resolve_branch(
        &mut self,
        page: &Page<S::Commit>,
        (path, hung): (KeyAt, u32),
        seen: &mut Seen,
    ) -> Result<bool, TreeError> {
        let (entry_page, number) = (seen.entry_page, seen.entry);
        let entry = page.entry(number);
        match page.prefix(self.codec, entry, hung as usize)? {
            PrefixView::Inline(run) => {
                let place = Place::in_page(entry_page, within(&page.row, run.aligned()));
                seen.piece = Piece { place, start: hung, digits: run.len() as u32 };
            }
            PrefixView::Overflow(over) => {
                let Some((run, _)) = self.overflow(path, hung, over)? else { return Ok(false) };
                seen.piece = run;
            }
        }
        if entry.kind == Kind::OutOfLine {
            let handle = page.handle(number).map(crate::page::HandleCell::get);
            seen.out_of_line = Some(handle.unwrap_or(Wait::NO_HANDLE));
            (seen.base, seen.within) = (PageRef::NOWHERE, Within::default());
        } else if entry.is_valued() {
            let fork = hung + seen.piece.digits;
            let body = entry.body.into();
            // The path to the fork is at hand: the item's own digits follow those of the path.
            let path = self.compose((path, hung), &seen.piece);
            let Some(value) = self.stored_value(entry_page, body, (path, fork))? else {
                return Ok(false);
            };
            (seen.fork_value, seen.value) = (ForkValue::Stored, value);
        }
        Ok(true)
    }

    /// A path and digits that follow its first ones, as bytes of the arena.
    pub(super) fn compose(&mut self, (path, digits): (KeyAt, u32), piece: &Piece) -> KeyAt {
        let mut bytes = std::mem::take(&mut self.work.path);
        bytes.clear();
        bytes.extend_from_slice(self.chain().path(path, digits, Self::WIDTH));
        Self::WIDTH.truncate(&mut bytes, digits as usize);
        self.run(piece).extend(&mut bytes, 0);
        let at = self.arena.text.len();
        self.arena.text.extend_from_slice(&bytes);
        self.work.path = bytes;
        KeyAt::composed(self.here, at)
    }

    /// A path, and one digit behind its first ones, as bytes of the arena.
    pub(super) fn compose_digit(&mut self, path: KeyAt, digits: u32, digit: u8) -> KeyAt {
        let mut bytes = std::mem::take(&mut self.work.path);
        bytes.clear();
        bytes.extend_from_slice(self.chain().path(path, digits, Self::WIDTH));
        Self::WIDTH.append(&mut bytes, digits as usize, digit);
        let at = self.arena.text.len();
        self.arena.text.extend_from_slice(&bytes);
        self.work.path = bytes;
        KeyAt::composed(self.here, at)
    }

    /// The value in front of the body of a branch that forks at the end of a path; nothing if
    /// overflow rows are missing.
    pub(super) fn stored_value(
        &mut self,
        base: PageRef,
        at: usize,
        (path, fork): (KeyAt, u32),
    ) -> Result<Option<Place>, TreeError> {
        let page = Arc::clone(&self.arena_of(base.arena).pages[base.page as usize]);
        let (view, _) = page.value(self.codec, at, fork as usize)?;
        match view.body {
            LeafBody::Inline { value, .. } => {
                Ok(Some(Place::in_page(base, within(&page.row, value))))
            }
            LeafBody::Overflow(over) => {
                Ok(self.overflow(path, fork, over)?.map(|(_, value)| value))
            }
        }
    }

    /// Brings overflowed bytes into the arena: a run that starts at the end of a path, and a
    /// value. Nothing if rows are missing.
    fn overflow(
        &mut self,
        path: KeyAt,
        digits: u32,
        over: Overflowed,
    ) -> Result<Option<(Piece, Place)>, TreeError> {
        let len = over.bytes(digits as usize, Self::WIDTH);
        let (rows, missing) = (len.div_ceil(OVERFLOW_BYTES), self.work.missing.len());
        // A forged length names rows that are not there: no more are asked for than twice those
        // found.
        let mut credit = OVERFLOW_ROWS_AHEAD;
        let at = self.arena.text.len();
        for index in 0..rows {
            let Some(key) = self.overflow_key(path, digits, index) else {
                let first = self.overflow_key(path, digits, 0);
                let key = first.unwrap_or_else(|| PageKey::page(self.space, &[], 0));
                return Err(corrupt(&key, "it claims to be larger than any value"));
            };
            let Some(page) = self.source.page(None, &key) else {
                self.work.missing.push((key, 0));
                credit -= 1;
                if credit == 0 {
                    break;
                }
                continue;
            };
            credit += 2;
            if page.kind != PageKind::Overflow {
                return Err(corrupt(&page.key, "it is of another kind than its parent says"));
            }
            self.arena.text.extend_from_slice(&page.row[FRAME_BYTES..]);
            self.arena.pages.push(page);
        }
        if self.work.missing.len() > missing {
            self.arena.text.truncate(at);
            return Ok(None);
        }
        let bytes = &self.arena.text[at..];
        if bytes.len() != len || overflow_checksum(bytes) != over.sum {
            let key = self.overflow_key(path, digits, 0);
            let key = key.unwrap_or_else(|| PageKey::page(self.space, &[], 0));
            return Err(corrupt(&key, "the bytes are not those its page names"));
        }
        let split = Self::WIDTH.span(digits as usize, over.digits);
        let place = Place::composed(self.here, Span::new(at, split));
        let value = Place::composed(self.here, Span::new(at + split, over.value));
        Ok(Some((Piece { place, start: digits, digits: over.digits as u32 }, value)))
    }

    fn overflow_key(&self, path: KeyAt, digits: u32, index: usize) -> Option<PageKey> {
        let path = self.chain().path(path, digits, Self::WIDTH);
        let bits = digits as usize * Self::WIDTH.bits();
        Some(PageKey::overflow(self.space, path, bits, u16::try_from(index).ok()?))
    }

    /// Notes that the overflow rows of a stored item that hung at a digit of a path are no more.
    pub(super) fn leave_overflow(&mut self, stood: Option<(PageRef, u16)>, hung: u32, path: KeyAt) {
        let Some((page, entry)) = stood else { return };
        let page = Arc::clone(&self.arena_of(page.arena).pages[page.page as usize]);
        let (entry, start) = (page.entry(entry), hung as usize);
        let over = match entry.kind {
            Kind::Leaf => page.leaf(self.codec, entry, start).ok().map(|view| view.body),
            _ => None,
        };
        let over = match over {
            Some(LeafBody::Overflow(over)) => Some(over),
            Some(LeafBody::Inline { .. }) => None,
            None => match page.prefix(self.codec, entry, start) {
                Ok(PrefixView::Overflow(over)) => Some(over),
                _ => None,
            },
        };
        if let Some(over) = over {
            self.leave_rows(over, hung, path);
        }
    }

    pub(super) fn leave_rows(&mut self, over: Overflowed, digits: u32, path: KeyAt) {
        let len = over.bytes(digits as usize, Self::WIDTH);
        for index in 0..len.div_ceil(OVERFLOW_BYTES) {
            let Some(key) = self.overflow_key(path, digits, index) else { return };
            self.arena.left_rows.push(key);
        }
    }

    /// Opens the pages that are waited for, as many as are at hand, and walks on in them.
    pub(super) fn open_waits(&mut self) -> Result<(), TreeError> {
        // What is met now waits in another list.
        let spare = std::mem::take(&mut self.work.spare);
        let mut waits = std::mem::replace(&mut self.work.waits, spare);
        let mut found = std::mem::take(&mut self.work.found);
        self.find(&waits, &mut found);
        let mut answer = Ok(());
        for (wait, page) in waits.drain(..).zip(found.drain(..)) {
            if answer.is_err() {
                continue;
            }
            answer = match (wait.what, page) {
                (Waiting::Again(visit), _) => self.enter(visit),
                (_, Some(page)) => self.open(wait, page),
                (_, None) => {
                    let key = self.wait_key(&wait);
                    match self.source.loaded.get(&key).cloned() {
                        Some(page) => self.open(wait, page),
                        None => {
                            self.work.missing.push((key, wait.bits));
                            self.work.waits.push(wait);
                            Ok(())
                        }
                    }
                }
            };
            if answer.is_ok() {
                answer = self.walk();
            }
        }
        (self.work.spare, self.work.found) = (waits, found);
        answer
    }

    /// Finds the pages that are waited for in the cache.
    fn find(&self, waits: &[Wait], found: &mut Vec<Option<Arc<Page<S::Commit>>>>) {
        let pages = self.source.cache.pages();
        for (number, wait) in waits.iter().enumerate() {
            let ahead = |ahead: usize| waits.get(number + ahead).map(|wait| wait.handle);
            ahead(SLOTS_AHEAD).into_iter().for_each(|handle| pages.fetch_slot(handle));
            ahead(PAGES_AHEAD).into_iter().for_each(|handle| pages.fetch_page(handle));
            ahead(ENTRIES_AHEAD).into_iter().for_each(|handle| pages.fetch_entries(handle));
            let page = match wait.what {
                Waiting::Again(_) => None,
                _ => match pages.page(wait.handle) {
                    Some(page) => Some(page),
                    None => {
                        let handle = pages.find(&self.wait_key(wait));
                        if let Some(handle) = handle {
                            self.keep_handle(wait, handle);
                        }
                        handle.and_then(|handle| pages.page(handle))
                    }
                },
            };
            found.push(page.cloned());
        }
    }

    /// Keeps where a page was found beside the entry that leads to it.
    fn keep_handle(&self, wait: &Wait, handle: Handle) {
        let (page, entry) = match wait.what {
            Waiting::Body { node, .. } => {
                let node = &self.arena.nodes[node as usize];
                (node.entry_page, node.entry)
            }
            Waiting::BucketEntry { above, member, .. } => (above, member),
            Waiting::Again(_) => return,
        };
        if let Some(cell) = self.arena_of_page(page).and_then(|page| page.handle(entry)) {
            cell.set(handle);
        }
    }

    pub(super) fn wait_key(&self, wait: &Wait) -> PageKey {
        let digits = wait.bits.div_ceil(Self::WIDTH.bits() as u32);
        let path = self.chain().path(wait.path, digits, Self::WIDTH);
        PageKey::page(self.space, path, wait.bits as usize)
    }

    /// Opens a page, and goes on in it.
    fn open(&mut self, wait: Wait, page: Arc<Page<S::Commit>>) -> Result<(), TreeError> {
        match wait.what {
            Waiting::Again(visit) => self.enter(visit),
            Waiting::Body { node, ops } => {
                if self.open_body(node, page)? {
                    return self.spread(node, ops, None);
                }
                // It is opened once more, when the value at the fork is at hand.
                self.work.waits.push(wait);
                Ok(())
            }
            Waiting::BucketEntry { node, above, among, member, visit } => {
                // Others may have opened it meanwhile.
                if self.opened_bucket(node, above, member).is_none() {
                    self.open_bucket(node, (above, among, member), page)?;
                }
                self.visit_bucket_entry(node, (above, among, member), visit)
            }
        }
    }

    /// Has a branch stand on the page of its body. Not if its value is not at hand.
    pub(super) fn open_body(
        &mut self,
        node: u32,
        page: Arc<Page<S::Commit>>,
    ) -> Result<bool, TreeError> {
        if page.kind != PageKind::Body {
            return Err(corrupt(&page.key, "it is of another kind than its parent says"));
        }
        let (within, valued, end) = (page.top(), page.valued, page.row.len() as u16);
        prefetch(&page.row[..page.row.len().min(1)]);
        let base = self.push_page(page);
        if valued {
            let Node { key, fork, .. } = self.arena.nodes[node as usize];
            let Some(value) = self.stored_value(base, FRAME_BYTES, (key, fork))? else {
                return Ok(false);
            };
            let number = node as usize;
            let node = &mut self.arena.nodes[number];
            (node.fork_value, node.value) = (ForkValue::Stored, value);
            self.work.frames[number].valued = true;
        }
        let node = &mut self.arena.nodes[node as usize];
        (node.base, node.within, node.body) = (base, within, (FRAME_BYTES as u16, end));
        Ok(true)
    }

    pub(super) fn push_page(&mut self, page: Arc<Page<S::Commit>>) -> PageRef {
        self.arena.pages.push(page);
        PageRef { arena: self.here, page: self.arena.pages.len() as u32 - 1 }
    }

    /// The page of the bucket that a bucket entry says, if it was opened for a branch.
    pub(super) fn opened_bucket(&self, node: u32, above: PageRef, member: u16) -> Option<PageRef> {
        let entry = *self.arena_of_page(above)?.entry(member);
        let rest = S::LAYOUT.digit_bits - entry.span;
        let chain = self.chain();
        let mut buckets = chain.buckets(self.here, &self.arena.nodes[node as usize]);
        buckets.find(|bucket| {
            let page = chain.page(*bucket);
            let first = page.entries(page.top()).first();
            page.bits == entry.span
                && first.is_some_and(|first| first.digit >> rest == entry.digit >> rest)
        })
    }

    /// Notes the page of a bucket of a branch's children; not if it does not hold just those that
    /// the page above has.
    pub(super) fn open_bucket(
        &mut self,
        node: u32,
        (above, among, member): (PageRef, Within, u16),
        page: Arc<Page<S::Commit>>,
    ) -> Result<(), TreeError> {
        self.check_bucket((above, among, member), &page)?;
        let page = self.push_page(page);
        let next = self.arena.nodes[node as usize].buckets;
        self.arena.nodes[node as usize].buckets = self.push_bucket(page, next);
        Ok(())
    }

    /// Refuses the page of a bucket that does not hold just the children that the page above has.
    pub(super) fn check_bucket(
        &self,
        (above, among, member): (PageRef, Within, u16),
        page: &Page<S::Commit>,
    ) -> Result<(), TreeError> {
        if page.kind != PageKind::Bucket {
            return Err(corrupt(&page.key, "it is of another kind than its parent says"));
        }
        let chain = self.chain();
        let parent = chain.page(above);
        let entry = parent.entry(member);
        let rest = S::LAYOUT.digit_bits - entry.span;
        let members = parent.entries(among).iter().filter(|other| {
            other.kind.is_in_bucket()
                && other.span == entry.span
                && other.digit >> rest == entry.digit >> rest
        });
        let shown = |entry: &crate::page::IndexEntry| (entry.digit, entry.kind.is_leaf());
        if !members.map(shown).eq(page.entries(page.top()).iter().map(shown)) {
            return Err(corrupt(&page.key, "its children are not those its parent names"));
        }
        Ok(())
    }

    /// Visits a child that is, or would be, in the page of a bucket: when that is open.
    pub(super) fn visit_bucket_entry(
        &mut self,
        node: u32,
        (above, among, member): (PageRef, Within, u16),
        mut visit: Visit,
    ) -> Result<(), TreeError> {
        let (mut above, mut among, mut member) = (above, among, member);
        loop {
            let Some(bucket) = self.opened_bucket(node, above, member) else {
                let page = self.chain().page(above);
                let bits = page.entry(member).span;
                let handle = page.handle(member).map(crate::page::HandleCell::get);
                let fork = self.arena.nodes[node as usize].fork;
                let what = Waiting::BucketEntry { node, above, among, member, visit };
                self.work.waits.push(Wait {
                    what,
                    handle: handle.unwrap_or(Wait::NO_HANDLE),
                    path: self.key_at(visit.ops.from),
                    bits: fork * Self::WIDTH.bits() as u32 + u32::from(bits),
                });
                return Ok(());
            };
            let page = self.chain().page(bucket);
            let top = page.top();
            let found = page.find(top, visit.digit, Self::WIDTH.mask());
            let nested = match found {
                Some(entry) if page.entry(entry).kind.is_in_bucket() => Some(entry),
                Some(_) => None,
                None => page.bucket_of(top, visit.digit, S::LAYOUT.digit_bits),
            };
            if let Some(entry) = nested {
                (above, among, member) = (bucket, top, entry);
                continue;
            }
            let change = &mut self.arena.changes[visit.change as usize];
            change.page = bucket;
            if let Some(entry) = found {
                change.entry = entry;
                visit.link = Some(Link::Stored { page: bucket, entry });
            }
            self.work.stack.push(visit);
            return Ok(());
        }
    }
}

/// Of a run that started where a node hung, the digits from where it is to hang on.
fn trimmed(piece: Piece, depth: u32, width: Width) -> Piece {
    let Piece { place, start, digits } = piece;
    let per_byte = width.per_byte() as u32;
    let span = place.span;
    if depth > start {
        let digits = digits.saturating_sub(depth - start);
        let skipped = if digits == 0 { span.len } else { depth / per_byte - start / per_byte };
        let span = Span { at: span.at + skipped, len: span.len - skipped };
        return Piece { place: Place { span, ..place }, start: depth, digits };
    }
    piece
}

const fn span(range: Range<usize>) -> Span {
    Span { at: range.start as u32, len: (range.end - range.start) as u32 }
}

/// Where `part`, a piece of `whole`, lies in it.
fn within(whole: &[u8], part: &[u8]) -> Span {
    let at = if part.is_empty() { 0 } else { part.as_ptr() as usize - whole.as_ptr() as usize };
    Span::new(at, part.len())
}
