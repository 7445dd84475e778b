//! Coming by pages, and looking into what is there.

use std::ops::Range;
use std::sync::Arc;

use foldhash::HashMap;
use spinney_hash::prefetch;

use super::{Piece, Update, Visit};
use crate::cache::Cache;
use crate::error::TreeError;
use crate::image::{
    FRAME_BYTES, OVERFLOW_BYTES, Overflowed, PageKind, SkipView, TerminalBody, overflow_checksum,
};
use crate::node::{ForkValue, KeyAt, Link, Made, Node, NodeKind, PageRef, Place, Span};
use crate::page::{Handle, Kind, Page, Within, corrupt};
use crate::page_key::PageKey;
use crate::scheme::Scheme;
use crate::update::Ops;
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

/// Something that waits for a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) what: Waiting,
    /// Where it may be in the cache.
    pub(super) handle: Handle,
    /// Its place: the first bits of a path.
    pub(super) path: KeyAt,
    pub(super) bits: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Waiting {
    /// A visit that is to be tried again, when overflow rows are at hand.
    Again(Visit),
    /// A branch whose children have a page of their own.
    Body { node: u32, ops: Ops },
    /// A child in the page of a group: the page, and the member there that says so, or another one
    /// of the group.
    Member { node: u32, above: PageRef, among: Within, member: u16, visit: Visit },
}

impl Wait {
    const NO_HANDLE: Handle = Handle { slot: u32::MAX, generation: 0 };

    pub(super) const fn again(visit: Visit) -> Self {
        let path = KeyAt::of_batch(0, Span::EMPTY);
        Self { what: Waiting::Again(visit), handle: Self::NO_HANDLE, path, bits: 0 }
    }
}

/// A node, looked into.
// Fields: all that an item says, looked up once for whoever visits it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub(super) link: Link,
    pub(super) kind: NodeKind,
    /// Its skip, or its suffix, from where it is to hang.
    pub(super) piece: Piece,
    pub(super) payload: Place,
    pub(super) value: ForkValue,
    pub(super) seat: PageRef,
    pub(super) entry: u16,
    pub(super) base: PageRef,
    pub(super) within: Within,
    pub(super) body: (u16, u16),
    /// Where its children's page may be, if they have one that is not open.
    pub(super) apart: Option<Handle>,
    /// Whether it owns something.
    pub(super) owns: bool,
    /// The node that it is, if a batch made it.
    pub(super) over: Made,
    /// The stored item that it is, if its bytes are in rows of their own.
    pub(super) overflowed: Option<(PageRef, u16)>,
}

impl<'a, S: Scheme> Update<'a, S> {
    /// Looks into what is there; nothing if overflow rows are missing.
    pub(super) fn look(&mut self, link: Link, visit: &Visit) -> Result<Option<Seen>, TreeError> {
        let path = self.key_at(visit.ops.from);
        self.look_at(link, (path, visit.hung), visit.depth)
    }

    /// Looks into a node that hung at a digit of a path, for it to hang at `depth`.
    pub(super) fn look_at(
        &mut self,
        link: Link,
        (path, hung): (KeyAt, u32),
        depth: u32,
    ) -> Result<Option<Seen>, TreeError> {
        match link {
            Link::Made(made) => Ok(Some(self.look_made(made, depth))),
            Link::Stored { page, entry } => self.look_stored((page, entry), (path, hung), depth),
        }
    }

    fn look_made(&self, made: Made, depth: u32) -> Seen {
        let node = self.chain().node(made);
        let piece = self.piece_of(node.key, depth, node.fork);
        let owned = self.chain().kids(made.arena, node).first();
        let owns = match owned {
            Some(kid) => kid.made.is_something(),
            None => node.within.len() > 0,
        };
        Seen {
            link: Link::Made(made),
            kind: node.kind,
            piece,
            payload: node.payload,
            value: node.value,
            seat: node.seat,
            entry: node.entry,
            base: node.base,
            within: node.within,
            body: node.body,
            apart: None,
            owns: owns && !node.is_branch(),
            over: made,
            overflowed: self.overflowed_seat(node.seat, node.entry),
        }
    }

    /// A seat, if the bytes of the item there are in rows of their own.
    fn overflowed_seat(&self, seat: PageRef, entry: u16) -> Option<(PageRef, u16)> {
        let page = self.arena_of_page(seat)?;
        page.entry(entry).is_overflowed().then_some((seat, entry))
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
        (seat, number): (PageRef, u16),
        (path, hung): (KeyAt, u32),
        depth: u32,
    ) -> Result<Option<Seen>, TreeError> {
        let codec = self.codec;
        let page = Arc::clone(&self.arena_of(seat.arena).pages[seat.page as usize]);
        let entry = page.entry(number);
        let link = Link::Stored { page: seat, entry: number };
        let mut seen = Seen {
            link,
            kind: NodeKind::Terminal,
            piece: Piece { place: Place::NOTHING, start: hung, digits: 0 },
            payload: Place::NOTHING,
            value: ForkValue::None,
            seat,
            entry: number,
            base: seat,
            within: entry.within(),
            body: (entry.body, entry.end),
            apart: None,
            owns: entry.owns(),
            over: Made::NOTHING,
            overflowed: entry.is_overflowed().then_some((seat, number)),
        };
        let start = hung as usize;
        match entry.kind {
            Kind::Terminal if !entry.is_overflowed() => {
                let found = page.inline_terminal(codec, entry, start);
                let (suffix, payload) =
                    found.ok_or_else(|| corrupt(&page.key, "a terminal is malformed"))?;
                let place = Place::in_page(seat, within(&page.row, suffix.aligned()));
                seen.piece = Piece { place, start: hung, digits: suffix.len() as u32 };
                seen.payload = Place::in_page(seat, span(payload));
            }
            Kind::Terminal => {
                let TerminalBody::Overflow(over) = page.terminal(codec, entry, start)?.body else {
                    return Err(corrupt(&page.key, "a terminal is malformed"));
                };
                let Some((run, payload)) = self.overflow(path, hung, over)? else {
                    return Ok(None);
                };
                (seen.piece, seen.payload) = (run, payload);
            }
            Kind::Branch | Kind::Apart => {
                seen.kind = NodeKind::Branch;
                if !self.look_at_branch(&page, (path, hung), &mut seen)? {
                    return Ok(None);
                }
            }
            Kind::TerminalInGroup | Kind::BranchInGroup => {
                return Err(corrupt(&page.key, "the branch above it names a group of one child"));
            }
        }
        seen.piece = trimmed(seen.piece, depth, Self::WIDTH);
        Ok(Some(seen))
    }

    /// What a stored branch skips, where its body is, and the value at its fork; `false` if a row
    /// is missing.
    fn look_at_branch(
        &mut self,
        page: &Page<S::Commit>,
        (path, hung): (KeyAt, u32),
        seen: &mut Seen,
    ) -> Result<bool, TreeError> {
        let (seat, number) = (seen.seat, seen.entry);
        let entry = page.entry(number);
        match page.skip(self.codec, entry, hung as usize)? {
            SkipView::Inline(run) => {
                let place = Place::in_page(seat, within(&page.row, run.aligned()));
                seen.piece = Piece { place, start: hung, digits: run.len() as u32 };
            }
            SkipView::Overflow(over) => {
                let Some((run, _)) = self.overflow(path, hung, over)? else { return Ok(false) };
                seen.piece = run;
            }
        }
        if entry.kind == Kind::Apart {
            let handle = page.handle(number).map(crate::page::HandleCell::get);
            seen.apart = Some(handle.unwrap_or(Wait::NO_HANDLE));
            (seen.base, seen.within) = (PageRef::NOWHERE, Within::default());
        } else if entry.is_valued() {
            let fork = hung + seen.piece.digits;
            let body = entry.body.into();
            // The path to the fork is at hand: the item's own digits follow those of the path.
            let path = self.compose((path, hung), &seen.piece);
            let Some(value) = self.stored_value(seat, body, (path, fork))? else {
                return Ok(false);
            };
            (seen.value, seen.payload) = (ForkValue::Stored, value);
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
            TerminalBody::Inline { payload, .. } => {
                Ok(Some(Place::in_page(base, within(&page.row, payload))))
            }
            TerminalBody::Overflow(over) => {
                Ok(self.overflow(path, fork, over)?.map(|(_, payload)| payload))
            }
        }
    }

    /// Brings overflowed bytes into the arena: a run that starts at the end of a path, and a
    /// payload. Nothing if rows are missing.
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
        let payload = Place::composed(self.here, Span::new(at + split, over.payload));
        Ok(Some((Piece { place, start: digits, digits: over.digits as u32 }, payload)))
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
            Kind::Terminal => page.terminal(self.codec, entry, start).ok().map(|view| view.body),
            _ => None,
        };
        let over = match over {
            Some(TerminalBody::Overflow(over)) => Some(over),
            Some(TerminalBody::Inline { .. }) => None,
            None => match page.skip(self.codec, entry, start) {
                Ok(SkipView::Overflow(over)) => Some(over),
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
                (node.seat, node.entry)
            }
            Waiting::Member { above, member, .. } => (above, member),
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
            Waiting::Member { node, above, among, member, visit } => {
                // Others may have opened it meanwhile.
                if self.opened_group(node, above, member).is_none() {
                    self.open_group(node, (above, among, member), page)?;
                }
                self.visit_member(node, (above, among, member), visit)
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
            (node.value, node.payload) = (ForkValue::Stored, value);
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

    /// The page of the group that a member says, if it was opened for a branch.
    pub(super) fn opened_group(&self, node: u32, above: PageRef, member: u16) -> Option<PageRef> {
        let entry = *self.arena_of_page(above)?.entry(member);
        let rest = S::LAYOUT.digit_bits - entry.span;
        let chain = self.chain();
        let mut groups = chain.groups(self.here, &self.arena.nodes[node as usize]);
        groups.find(|group| {
            let page = chain.page(*group);
            let first = page.entries(page.top()).first();
            page.bits == entry.span
                && first.is_some_and(|first| first.digit >> rest == entry.digit >> rest)
        })
    }

    /// Notes the page of a group of a branch's children; not if it does not hold just those that
    /// the page above has.
    pub(super) fn open_group(
        &mut self,
        node: u32,
        (above, among, member): (PageRef, Within, u16),
        page: Arc<Page<S::Commit>>,
    ) -> Result<(), TreeError> {
        self.check_group((above, among, member), &page)?;
        let page = self.push_page(page);
        let next = self.arena.nodes[node as usize].groups;
        self.arena.nodes[node as usize].groups = self.push_group(page, next);
        Ok(())
    }

    /// Refuses the page of a group that does not hold just the children that the page above has.
    pub(super) fn check_group(
        &self,
        (above, among, member): (PageRef, Within, u16),
        page: &Page<S::Commit>,
    ) -> Result<(), TreeError> {
        if page.kind != PageKind::Group {
            return Err(corrupt(&page.key, "it is of another kind than its parent says"));
        }
        let chain = self.chain();
        let parent = chain.page(above);
        let entry = parent.entry(member);
        let rest = S::LAYOUT.digit_bits - entry.span;
        let members = parent.entries(among).iter().filter(|other| {
            other.kind.is_in_group()
                && other.span == entry.span
                && other.digit >> rest == entry.digit >> rest
        });
        let shown = |entry: &crate::page::Entry| (entry.digit, entry.kind.is_terminal());
        if !members.map(shown).eq(page.entries(page.top()).iter().map(shown)) {
            return Err(corrupt(&page.key, "its children are not those its parent names"));
        }
        Ok(())
    }

    /// Visits a child that is, or would be, in the page of a group: when that is open.
    pub(super) fn visit_member(
        &mut self,
        node: u32,
        (above, among, member): (PageRef, Within, u16),
        mut visit: Visit,
    ) -> Result<(), TreeError> {
        let (mut above, mut among, mut member) = (above, among, member);
        loop {
            let Some(group) = self.opened_group(node, above, member) else {
                let page = self.chain().page(above);
                let bits = page.entry(member).span;
                let handle = page.handle(member).map(crate::page::HandleCell::get);
                let fork = self.arena.nodes[node as usize].fork;
                let what = Waiting::Member { node, above, among, member, visit };
                self.work.waits.push(Wait {
                    what,
                    handle: handle.unwrap_or(Wait::NO_HANDLE),
                    path: self.key_at(visit.ops.from),
                    bits: fork * Self::WIDTH.bits() as u32 + u32::from(bits),
                });
                return Ok(());
            };
            let page = self.chain().page(group);
            let top = page.top();
            let found = page.find(top, visit.digit, Self::WIDTH.mask());
            let nested = match found {
                Some(entry) if page.entry(entry).kind.is_in_group() => Some(entry),
                Some(_) => None,
                None => page.group_of(top, visit.digit, S::LAYOUT.digit_bits),
            };
            if let Some(entry) = nested {
                (above, among, member) = (group, top, entry);
                continue;
            }
            let kid = &mut self.arena.kids[visit.kid as usize];
            kid.page = group;
            if let Some(entry) = found {
                kid.entry = entry;
                visit.link = Some(Link::Stored { page: group, entry });
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
