//! Values in the places of others of their length: no node comes, goes or moves, so no page is cut again, and
//! none of the machinery is needed that makes nodes.
//!
//! The operations of a batch are walked in order over the outlines of the stored pages (`outline.rs`). What they pass
//! is noted: branches that are to be committed to anew, with those of their children that changed, and *edits*: where
//! in which page a value or a commitment is to stand. The rows of it are copies of the pages with their edits (`edit/rows.rs`).
//! Operations that lead elsewhere than to a value of their key and its length are left: they are applied to the
//! edited pages, as any batch is to the last commit's.
//!
//! Invariants:
//! - a batch of which many operations are left, one that removes owners or prefixes, a page that is not as
//!   expected and a commitment of an unusual length leave no trace here, and the batch is applied as any other;
//! - edits are made of the last commit's pages only, and the state that has them is only asked for its root
//!   and its rows: who reads its nodes, or stands on it, gets those that the ordinary descent makes of the
//!   same operations (`Pending::twin`);
//! - roots and rows are those of the ordinary descent (`tests/it/edited.rs`).

mod ahead;
mod commit;
mod rows;

use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;

use crate::batch::{Op, OpKind};
use crate::cache::{Link, LinkCell, Pages};
use crate::costs::Meter;
use crate::image::{Codec, MEMBER_COMMIT_AT, PageKind};
use crate::levels::Ranks;
use crate::node::{Segment, Span};
use crate::outline::{self, Entry, Kind, Outline};
use crate::page_key::{PageKey, Space};
use crate::scheme::Scheme;

use ahead::Scouts;
pub(crate) use commit::Passed;
pub(crate) use rows::{rewritten, rows};

/// Larger batches are better split over the threads.
const OPS_MAX: usize = 1 << 14;
/// So many operations are walked before others may change the cache.
const OPS_A_TURN: usize = 1 << 8;
/// So many nodes are walked before they are committed to: while what they are made of is in the cache.
const NODES_AT_ONCE: usize = 1 << 10;
/// Where more operations than these, and than this share of all, are no edits, the walk is not worth it.
const LEFT_MIN: usize = 2;
const LEFT_SHARE: usize = 8;
/// Chains of prefixes may be as deep as a key is long; they are left to others.
const DEPTH_MAX: usize = 1 << 10;

/// What a walk passed and what is to change of it. Its commitments are among the segment's.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    nodes: Vec<Node>,
    pages: Vec<Walked>,
    members: Vec<Member>,
}

impl Edits {
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.pages.clear();
        self.members.clear();
    }

    /// Bytes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.pages.capacity() * size_of::<Walked>()
            + self.members.capacity() * size_of::<Member>()
    }
}

/// A page that a walk came to: where it is in the cache, and a key of the segment's whose first bits are its path.
#[derive(Clone, Copy, Debug)]
struct Walked {
    link: Link,
    key: Span,
    bits: u32,
}

/// A member of a group whose item is a node: where the group's branch keeps what that commits to.
#[derive(Clone, Copy, Debug)]
struct Member {
    page: u32,
    entry: u16,
    at: u16,
    node: u32,
}

/// A node that is to be committed to anew.
#[derive(Clone, Copy, Debug)]
struct Node {
    body: Body,
    /// Whether what hangs below it belongs to an owner.
    owned: bool,
    /// Whether a page holds what it commits to, and whether the outline has it from there.
    kept: bool,
    in_row: bool,
    /// Whether the outline knows what each of its children commits to.
    known: bool,
    /// Its page and its entry there; where the row keeps what it commits to, or [`Node::NOWHERE`].
    page: u32,
    entry: u16,
    at: u16,
    /// The value in the row: where, and how many bytes.
    payload: u16,
    len: u16,
    /// Which of its parent's children it is: an entry of the page that the parent's are in.
    seat: u16,
    /// The page and the entries of its children; what an owner owns, or nothing.
    from: u16,
    end: u16,
    inner: u32,
    /// The first of the groups that were opened for it.
    group: u32,
    /// Its children that changed, a list in order of their digits, and the next child of its parent.
    first: u32,
    last: u32,
    next: u32,
    /// A key that passes it, and the value to put, of a terminal that gets one.
    key: Span,
    value: Span,
    /// The digits at which it hangs and, of a branch, forks; of a terminal, ends.
    depth: u32,
    fork: u32,
    height: u32,
    /// The commitment, among the segment's.
    commit: u32,
}

/// No node, and no group.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// A terminal that gets a value.
    Value,
    /// A terminal that keeps its value, and owns something that changes.
    Owner,
    Fork,
}

impl Node {
    const NOWHERE: u16 = 0;

    /// The node of an item that a key passes; what else there is to say of it is yet to be.
    #[inline(always)]
    fn new<C>(body: Body, item: &Item<'_, C>, key: Span, fork: usize) -> Self {
        Self {
            body,
            owned: item.owned,
            kept: false,
            in_row: false,
            known: false,
            page: item.page,
            entry: item.entry,
            at: Self::NOWHERE,
            payload: 0,
            len: 0,
            seat: item.seat,
            from: 0,
            end: 0,
            inner: item.page,
            group: NONE,
            first: NONE,
            last: NONE,
            next: NONE,
            key,
            value: Span::EMPTY,
            depth: item.depth as u32,
            fork: fork as u32,
            height: 0,
            commit: NONE,
        }
    }

    /// The entry that its children are in; nothing if they have a page of their own.
    const fn around(&self) -> Option<u16> {
        if self.inner == self.page { Some(self.entry) } else { None }
    }
}

/// A terminal that is to be committed to, though it did not change: its page, its entry, and its parent.
#[derive(Clone, Copy, Debug)]
struct Sibling {
    page: u32,
    entry: u16,
    parent: u32,
}

/// The page of a group that was opened for a branch.
#[derive(Clone, Copy, Debug)]
struct Group {
    bits: u8,
    /// A digit of it.
    digit: u8,
    page: u32,
    next: u32,
}

/// What a walk needs, kept from one to the next.
#[derive(Debug)]
pub(crate) struct Desk<S: Scheme> {
    /// The operation that is next, and whether the walk began with it.
    next: usize,
    begun: bool,
    /// Whether a value changed.
    changed: bool,
    groups: Vec<Group>,
    /// The members of groups, the outermost first, that hold what the item gone into commits to: page and entry.
    around: SmallVec<[(u32, u16); 4]>,
    /// The nodes on the way to the last operation.
    stack: Vec<u32>,
    /// Nodes below which no operation will come.
    closed: Vec<u32>,
    /// Operations that led astray.
    left: Vec<u32>,
    siblings: Vec<Sibling>,
    /// Branches of whose children all that they commit to is known once the siblings are committed to.
    learned: Vec<u32>,
    /// How deep, in bits, the page lies that was opened last, and those in which operations ended last.
    deepest: usize,
    depths: [usize; 2],
    scouts: Scouts,
    /// The page that the walk waits for.
    missing: Option<PageKey>,
    ranks: Ranks,
    out: Vec<S::Commit>,
    scratch: S::Scratch,
}

impl<S: Scheme> Default for Desk<S> {
    fn default() -> Self {
        Self {
            next: 0,
            begun: false,
            changed: false,
            groups: Vec::new(),
            around: SmallVec::new(),
            stack: Vec::new(),
            closed: Vec::new(),
            left: Vec::new(),
            siblings: Vec::new(),
            learned: Vec::new(),
            deepest: 0,
            depths: [0; 2],
            scouts: Scouts::default(),
            missing: None,
            ranks: Ranks::default(),
            out: Vec::new(),
            scratch: S::Scratch::default(),
        }
    }
}

impl<S: Scheme> Desk<S> {
    /// Gets ready for another batch.
    pub(crate) fn clear(&mut self) {
        (self.next, self.begun, self.changed) = (0, false, false);
        self.groups.clear();
        self.stack.clear();
        self.closed.clear();
        self.left.clear();
        self.scouts.clear();
        self.missing = None;
    }

    /// Whether some operations led astray.
    pub(crate) const fn is_part(&self) -> bool {
        !self.left.is_empty()
    }
}

/// What came of a walk, or of a turn of it.
#[derive(Debug)]
pub(crate) enum Edited<C> {
    /// The walk is to go on.
    Yet,
    /// It is to go on once a page is in the cache.
    Missing(PageKey),
    /// The batch is to be applied as any other.
    Not,
    /// All values were there already.
    Same,
    /// What the top commits to now.
    Top(C),
}

/// Why a walk does not go on.
enum Halt {
    /// The page in [`Desk::missing`] is not in the cache.
    Missing,
    /// The batch, or a page, is not one for a walk.
    Not,
}

/// Whether a batch in a segment may be one that mostly puts values in the places of others.
pub(crate) fn may_edit<S: Scheme>(input: &Segment<S::Commit>) -> bool {
    // What is below a prefix, or below an owner that goes, must not change first.
    let alone = |op: &Op| match op.kind {
        OpKind::Put(_) => true,
        OpKind::Delete => S::OWNER.is_none_or(|owner| op.key.len as usize > owner.bytes),
        OpKind::Clear => false,
    };
    S::COMMIT_BYTES.is_some() && input.ops.len() <= OPS_MAX && input.ops.iter().all(alone)
}

/// Whether batches are worth trying: after each that was in vain, twice as many are not tried, up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Trial {
    /// How many batches are yet to be passed over, and how many were after the last one in vain.
    waits: AtomicU32,
    last: AtomicU32,
}

impl Trial {
    const WAITS_MAX: u32 = 64;

    /// Whether this batch is tried.
    pub(crate) fn is_due(&self) -> bool {
        let waits = self.waits.load(Ordering::Relaxed);
        // Others may count at the same time: then a batch more or less is tried.
        self.waits.store(waits.saturating_sub(1), Ordering::Relaxed);
        waits == 0
    }

    pub(crate) fn note(&self, fitted: bool) {
        let last = self.last.load(Ordering::Relaxed);
        let next = if fitted { 0 } else { (2 * last).clamp(1, Self::WAITS_MAX) };
        self.last.store(next, Ordering::Relaxed);
        self.waits.store(next, Ordering::Relaxed);
    }
}

/// A page that a walk came to.
#[derive(Debug)]
struct Sheet<'a, C> {
    row: &'a [u8],
    outline: &'a Outline<C>,
}

impl<C> Clone for Sheet<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<C> Copy for Sheet<'_, C> {}

impl<'a, C> Sheet<'a, C> {
    #[inline(always)]
    fn entry(&self, entry: u16) -> &'a Entry {
        &self.outline.entries[usize::from(entry)]
    }
}

/// Where an item lies, and what it is a child of.
struct Item<'a, C> {
    sheet: Sheet<'a, C>,
    page: u32,
    entry: u16,
    /// Which of its parent's children it is.
    seat: u16,
    owned: bool,
    /// The digit at which it hangs.
    depth: usize,
    parent: u32,
}

/// Where going into an item led.
enum Led<'a, C> {
    /// To the operation's value.
    Here,
    /// Into a node that the way goes on from, and the page that the items in it are in.
    Into(u32, Sheet<'a, C>),
    /// Elsewhere than to a value of the operation's key and its length.
    Astray,
}

/// An operation that is walked: its key and its value.
#[derive(Clone, Copy)]
struct Goal<'a> {
    path: &'a [u8],
    key: Span,
    value: Span,
    digits: usize,
}

/// A turn of a walk over the pages of the cache.
pub(crate) struct Walk<'a, S: Scheme> {
    codec: Codec<'a, S>,
    space: Space,
    pages: &'a Pages<S::Commit>,
    /// The operations, and their bytes.
    ops: &'a [Op],
    bytes: &'a [u8],
    /// What comes of them.
    edits: &'a mut Edits,
    commits: &'a mut Vec<S::Commit>,
    desk: &'a mut Desk<S>,
    meter: &'a Meter,
}

impl<'a, S: Scheme> Walk<'a, S> {
    /// The largest digit.
    const MOST: u8 = Codec::<S>::WIDTH.mask();
    const OWNER_DIGITS: usize = match S::OWNER {
        Some(owner) => owner.bytes * Codec::<S>::WIDTH.per_byte(),
        None => 0,
    };

    /// A turn over the operations of a segment, which gets edits and commitments.
    pub(crate) fn new(
        (codec, space): (Codec<'a, S>, Space),
        pages: &'a Pages<S::Commit>,
        seg: &'a mut Segment<S::Commit>,
        desk: &'a mut Desk<S>,
        meter: &'a Meter,
    ) -> Self {
        let Segment { bytes, ops, edits, commits, .. } = seg;
        Self {
            codec,
            space,
            pages,
            ops: ops.as_slice(),
            bytes: bytes.as_slice(),
            edits,
            commits,
            desk,
            meter,
        }
    }

    /// Walks some more of the operations.
    pub(crate) fn turn(mut self) -> Edited<S::Commit> {
        match self.walk() {
            Ok(()) if self.desk.next < self.ops.len() => Edited::Yet,
            // Without an edit of a value nothing changed, whatever was passed.
            Ok(()) if !self.desk.changed => Edited::Same,
            Ok(()) => Edited::Top(self.commits[self.edits.nodes[0].commit as usize]),
            Err(Halt::Missing) => match self.desk.missing.take() {
                Some(key) => Edited::Missing(key),
                None => unreachable!("it was noted"),
            },
            Err(Halt::Not) => Edited::Not,
        }
    }

    fn walk(&mut self) -> Result<(), Halt> {
        let end = self.ops.len().min(self.desk.next + OPS_A_TURN);
        while self.desk.next < end {
            let op = self.desk.next;
            if !std::mem::replace(&mut self.desk.begun, true) {
                if op > 0 {
                    self.close(self.common(op - 1, op));
                }
                self.look_ahead(op);
            }
            if !self.lead(op)? {
                self.desk.left.push(op as u32);
                if self.desk.left.len() > LEFT_MIN + self.ops.len() / LEFT_SHARE {
                    return Err(Halt::Not);
                }
            }
            (self.desk.next, self.desk.begun) = (op + 1, false);
            let [last, _] = self.desk.depths;
            if self.desk.deepest != last {
                self.desk.depths = [self.desk.deepest, last];
            }
            if self.desk.closed.len() >= NODES_AT_ONCE {
                self.commit()?;
            }
        }
        if end == self.ops.len() {
            while let Some(node) = self.desk.stack.pop() {
                self.shut(node);
            }
            self.commit()?;
        }
        Ok(())
    }

    fn key(&self, op: usize) -> &'a [u8] {
        &self.bytes[self.ops[op].key.range()]
    }

    /// How many first digits two operations share.
    fn common(&self, a: usize, b: usize) -> usize {
        let (a, b) = (self.key(a), self.key(b));
        let limit = a.len().min(b.len()) * Codec::<S>::WIDTH.per_byte();
        Codec::<S>::WIDTH.common(a, b, 0, limit)
    }

    /// Closes the nodes below which keys differ from the next one's, which has `common` digits of the last.
    fn close(&mut self, common: usize) {
        while let Some(&node) = self.desk.stack.last()
            && self.edits.nodes[node as usize].fork as usize > common
        {
            self.desk.stack.pop();
            self.shut(node);
        }
    }

    /// Notes that a node, whose parent is the last open one, will not change any more.
    fn shut(&mut self, node: u32) {
        self.desk.closed.push(node);
        let height = self.edits.nodes[node as usize].height;
        if let Some(&parent) = self.desk.stack.last() {
            let parent = &mut self.edits.nodes[parent as usize];
            parent.height = parent.height.max(height + 1);
        }
    }

    /// A page that the walk came to.
    #[inline]
    fn sheet(&self, page: u32) -> Sheet<'a, S::Commit> {
        let page = self.pages.at(self.edits.pages[page as usize].link.slot);
        Sheet { row: &page.row, outline: page.outline().expect("a walk came to it") }
    }

    /// Goes down from the last open node to the value of an operation's key. `false` if it is not there.
    fn lead(&mut self, op: usize) -> Result<bool, Halt> {
        let Op { key, kind: OpKind::Put(value), .. } = self.ops[op] else { return Ok(false) };
        let path = &self.bytes[key.range()];
        let goal = Goal { path, key, value, digits: path.len() * Codec::<S>::WIDTH.per_byte() };
        let mut item = match self.desk.stack.last() {
            Some(&node) => {
                let sheet = self.sheet(self.edits.nodes[node as usize].inner);
                let node = self.pass(node, sheet, goal);
                self.child(node, sheet, goal)?
            }
            // Another operation has been below the top, and closed it.
            None if !self.edits.nodes.is_empty() => None,
            None => Some(self.top(goal)?),
        };
        while let Some(found) = item {
            if self.desk.stack.len() == DEPTH_MAX {
                break;
            }
            let entry = found.sheet.entry(found.entry);
            let led = match entry.kind {
                Kind::Branch | Kind::Apart => self.enter_branch(&found, entry, goal)?,
                Kind::Terminal => self.enter_terminal(&found, entry, goal)?,
                _ => Led::Astray,
            };
            item = match led {
                Led::Here => return Ok(true),
                Led::Into(node, sheet) => {
                    let node = self.pass(node, sheet, goal);
                    self.child(node, sheet, goal)?
                }
                Led::Astray => None,
            };
        }
        Ok(false)
    }

    /// The item of the root page.
    fn top(&mut self, goal: Goal<'a>) -> Result<Item<'a, S::Commit>, Halt> {
        self.desk.around.clear();
        let page = self.open(&self.pages.top, goal, (0, 0), PageKind::Root)?;
        let sheet = self.sheet(page);
        if sheet.outline.entries.is_empty() {
            return Err(Halt::Not);
        }
        Ok(Item { sheet, page, entry: 0, seat: 0, owned: false, depth: 0, parent: NONE })
    }

    /// Goes down from a branch as long as its children are in its page and are branches that skip nothing: what
    /// [`Walk::child`] and [`Walk::enter_branch`] do, who know of all the rest. Answers the last of them.
    #[inline(always)]
    fn pass(&mut self, mut parent: u32, sheet: Sheet<'a, S::Commit>, goal: Goal<'a>) -> u32 {
        let &Node { body, fork, inner, mut from, mut end, last, owned, .. } =
            &self.edits.nodes[parent as usize];
        if body != Body::Fork || last != NONE {
            return parent;
        }
        let among_owners = S::OWNER.is_some() && !owned;
        let limit = if among_owners { Self::OWNER_DIGITS } else { usize::MAX };
        let (mut depth, limit) = (fork as usize + 1, limit.min(goal.digits));
        while depth < limit && self.desk.stack.len() < DEPTH_MAX {
            let digit = Codec::<S>::WIDTH.digit(goal.path, depth - 1);
            let Some(seat) = sheet.outline.find(from..end, digit, Self::MOST) else { break };
            let entry = sheet.entry(seat);
            if entry.kind != Kind::Branch || entry.span > 0 || !entry.keeps {
                break;
            }
            if S::DIGIT_BITS == 1 && self.ops.len() == 1 {
                let other = if seat == from { end - 1 } else { from };
                sheet.outline.fetch_commit(sheet.row, other);
            }
            let number = self.edits.nodes.len() as u32;
            let above = &mut self.edits.nodes[parent as usize];
            (above.first, above.last) = (number, number);
            let within = entry.within();
            (from, end) = (within.start, within.end);
            self.edits.nodes.push(Node {
                body: Body::Fork,
                owned,
                kept: true,
                in_row: S::DIGIT_BITS == 1,
                known: sheet.outline.knows(Some(seat)),
                page: inner,
                entry: seat,
                at: entry.at + MEMBER_COMMIT_AT as u16,
                payload: 0,
                len: 0,
                seat,
                from,
                end,
                inner,
                group: NONE,
                first: NONE,
                last: NONE,
                next: NONE,
                key: goal.key,
                value: Span::EMPTY,
                depth: depth as u32,
                fork: depth as u32,
                height: 0,
                commit: NONE,
            });
            self.desk.stack.push(number);
            parent = number;
            depth += 1;
        }
        parent
    }

    /// The child of an open node that an operation goes on to.
    #[inline(always)]
    fn child(
        &mut self,
        parent: u32,
        sheet: Sheet<'a, S::Commit>,
        goal: Goal<'a>,
    ) -> Result<Option<Item<'a, S::Commit>>, Halt> {
        let &Node { body, fork, inner, from, end, last, owned, .. } =
            &self.edits.nodes[parent as usize];
        let depth = fork as usize;
        if S::DIGIT_BITS > 1 {
            self.desk.around.clear();
        }
        if goal.digits <= depth {
            return Ok(None);
        }
        if body != Body::Fork {
            // Not if another operation has been below it, and closed it.
            let open = from > 0 && last == NONE;
            let (page, entry) = (inner, from);
            let item = Item { sheet, page, entry, seat: 0, owned: true, depth, parent };
            return Ok(open.then_some(item));
        }
        let digit = Codec::<S>::WIDTH.digit(goal.path, depth);
        let Some(seat) = sheet.outline.find(from..end, digit, Self::MOST) else { return Ok(None) };
        // As above.
        if last != NONE && self.edits.nodes[last as usize].seat == seat {
            return Ok(None);
        }
        if S::DIGIT_BITS == 1 && self.ops.len() == 1 {
            let other = if seat == from { end - 1 } else { from };
            sheet.outline.fetch_commit(sheet.row, other);
        }
        let (page, entry, depth) = (inner, seat, depth + 1);
        let mut item = Item { sheet, page, entry, seat, owned, depth, parent };
        if S::DIGIT_BITS > 1 && sheet.entry(seat).kind.is_in_group() {
            (item.page, item.entry) = self.in_group(parent, goal, digit, (page, seat))?;
            item.sheet = self.sheet(item.page);
        }
        Ok(Some(item))
    }

    /// The page and the entry of the item that a branch's child in a group is. A group may be in another one.
    fn in_group(
        &mut self,
        node: u32,
        goal: Goal<'a>,
        digit: u8,
        mut place: (u32, u16),
    ) -> Result<(u32, u16), Halt> {
        let mut around = 0;
        loop {
            let (page, seat) = place;
            let entry = self.sheet(page).entry(seat);
            if !entry.kind.is_in_group() {
                return Ok(place);
            }
            if entry.span <= around {
                return Err(Halt::Not);
            }
            around = entry.span;
            self.desk.around.push(place);
            let page = match self.group(node, entry.span, digit) {
                Some(page) => page,
                None => self.open_group(node, goal, place, digit)?,
            };
            let sheet = self.sheet(page);
            let seat =
                sheet.outline.find(sheet.outline.top(), digit, Self::MOST).ok_or(Halt::Not)?;
            let found = sheet.entry(seat);
            if found.kind.is_terminal() != entry.kind.is_terminal() {
                return Err(Halt::Not);
            }
            place = (page, seat);
        }
    }

    /// The page of a branch's group, if it was opened before.
    fn group(&self, node: u32, bits: u8, digit: u8) -> Option<u32> {
        let mut group = self.edits.nodes[node as usize].group;
        let rest = S::DIGIT_BITS - bits;
        while let Some(found) = self.desk.groups.get(group as usize) {
            if found.bits == bits && found.digit >> rest == digit >> rest {
                return Some(found.page);
            }
            group = found.next;
        }
        None
    }

    /// Opens the group of a branch that `digit` is in, and that a page has the members of; not if it does not hold
    /// just these.
    fn open_group(
        &mut self,
        node: u32,
        goal: Goal<'a>,
        (page, seat): (u32, u16),
        digit: u8,
    ) -> Result<u32, Halt> {
        let Node { inner, from, end, fork, group, .. } = self.edits.nodes[node as usize];
        let of = self.sheet(page).outline;
        let bits = of.entries[usize::from(seat)].span;
        let place = (fork as usize, bits);
        let opened = self.open(of.link(seat), goal, place, PageKind::Group)?;
        let range = if page == inner { from..end } else { of.top() };
        let rest = S::DIGIT_BITS - bits;
        let members = &of.entries[usize::from(range.start)..usize::from(range.end)];
        let members = members.iter().filter(|entry| {
            entry.kind.is_in_group() && entry.span == bits && entry.digit >> rest == digit >> rest
        });
        let held = self.sheet(opened).outline;
        let held = held.entries[..usize::from(held.top().end)].iter();
        let shown = |entry: &Entry| (entry.digit, entry.kind.is_terminal());
        if !members.map(shown).eq(held.map(shown)) {
            return Err(Halt::Not);
        }
        let number = self.desk.groups.len() as u32;
        self.desk.groups.push(Group { bits, digit, page: opened, next: group });
        self.edits.nodes[node as usize].group = number;
        Ok(opened)
    }

    fn enter_terminal(
        &mut self,
        item: &Item<'a, S::Commit>,
        entry: &Entry,
        goal: Goal<'a>,
    ) -> Result<Led<'a, S::Commit>, Halt> {
        let Sheet { row, outline } = item.sheet;
        let stored = self.codec.inline_terminal(row, entry.at.into(), item.depth);
        let Some(stored) = stored else { return Ok(Led::Astray) };
        let among_owners = S::OWNER.is_some() && !item.owned;
        let whole = if among_owners { Self::OWNER_DIGITS } else { goal.digits };
        let suffix = stored.suffix;
        if suffix.end() != whole || suffix.common(goal.path) < suffix.len() {
            return Ok(Led::Astray);
        }
        let is_here = !among_owners || goal.digits == whole;
        let mut node = Node::new(Body::Owner, item, goal.key, whole);
        node.owned = true;
        (node.payload, node.len) = (stored.payload.start as u16, stored.payload.len() as u16);
        if stored.owns {
            node.from = entry.within().start;
            // What is owned carries what it commits to, unless the page is forged.
            outline.commit(self.codec, row, node.from).ok_or(Halt::Not)?;
        }
        if let Some(at) = stored.commit {
            if self.codec.scheme.commit_bytes(&row[at..]) != S::COMMIT_BYTES {
                return Err(Halt::Not);
            }
            (node.kept, node.at) = (true, at as u16);
        }
        if is_here {
            let value = &self.bytes[goal.value.range()];
            if stored.owns && !among_owners || value.len() != stored.payload.len() {
                return Ok(Led::Astray);
            }
            if *value == row[stored.payload] {
                return Ok(Led::Here);
            }
            (node.body, node.value, self.desk.changed) = (Body::Value, goal.value, true);
        } else if !stored.owns {
            return Ok(Led::Astray);
        }
        let number = self.attach(item, node)?;
        if stored.owns {
            self.desk.stack.push(number);
        } else {
            self.shut(number);
        }
        Ok(if is_here { Led::Here } else { Led::Into(number, item.sheet) })
    }

    #[inline(always)]
    fn enter_branch(
        &mut self,
        item: &Item<'a, S::Commit>,
        entry: &Entry,
        goal: Goal<'a>,
    ) -> Result<Led<'a, S::Commit>, Halt> {
        if !entry.keeps {
            return Err(Halt::Not);
        }
        // Among owners nothing forks below their keys, unless a page is forged.
        let among_owners = S::OWNER.is_some() && !item.owned;
        let limit = if among_owners { Self::OWNER_DIGITS } else { usize::MAX };
        let fork = item.depth + usize::from(entry.span);
        if fork >= goal.digits.min(limit) || entry.span > 0 && !self.passes(item, entry, goal)? {
            return Ok(Led::Astray);
        }
        let mut node = Node::new(Body::Fork, item, goal.key, fork);
        let (mut sheet, mut within) = (item.sheet, entry.within());
        if entry.kind == Kind::Apart {
            let link = sheet.outline.link(item.entry);
            node.inner = self.open(link, goal, (fork, 0), PageKind::Body)?;
            sheet = self.sheet(node.inner);
            within = sheet.outline.top();
        }
        if S::DIGIT_BITS > 1 && self.ops.len() == 1 {
            sheet.outline.fetch_commits(sheet.row, within.clone());
        }
        (node.from, node.end) = (within.start, within.end);
        (node.kept, node.at) = (true, entry.at + MEMBER_COMMIT_AT as u16);
        node.in_row = S::DIGIT_BITS == 1;
        node.known = sheet.outline.knows(node.around());
        let number = self.attach(item, node)?;
        self.desk.stack.push(number);
        Ok(Led::Into(number, sheet))
    }

    /// Whether an operation's key has the digits that a branch skips.
    fn passes(
        &self,
        item: &Item<'a, S::Commit>,
        entry: &Entry,
        goal: Goal<'a>,
    ) -> Result<bool, Halt> {
        let branch = self.codec.plain_branch(item.sheet.row, entry.at.into(), item.depth);
        let (skip, _) = branch.ok_or(Halt::Not)?;
        Ok(skip.common(goal.path) == skip.len())
    }

    /// Makes an item a node.
    #[inline(always)]
    fn attach(&mut self, item: &Item<'a, S::Commit>, mut node: Node) -> Result<u32, Halt> {
        let number = self.edits.nodes.len() as u32;
        if S::DIGIT_BITS > 1 && !self.desk.around.is_empty() {
            node.kept = true;
            self.note_members(number)?;
        }
        if let Some(parent) = self.edits.nodes.get_mut(item.parent as usize) {
            let before = std::mem::replace(&mut parent.last, number);
            if before == NONE {
                parent.first = number;
            } else {
                self.edits.nodes[before as usize].next = number;
            }
        }
        self.edits.nodes.push(node);
        Ok(number)
    }

    /// Notes where else it is kept what a node in groups commits to.
    fn note_members(&mut self, node: u32) -> Result<(), Halt> {
        for &(page, entry) in &self.desk.around {
            let member = self.sheet(page).entry(entry);
            if !member.keeps {
                return Err(Halt::Not);
            }
            let at = member.at + MEMBER_COMMIT_AT as u16;
            self.edits.members.push(Member { page, entry, at, node });
        }
        Ok(())
    }

    /// Opens the page at some first digits of an operation's key, and bits behind them.
    fn open(
        &mut self,
        cell: &LinkCell,
        goal: Goal<'a>,
        (digits, bits): (usize, u8),
        kind: PageKind,
    ) -> Result<u32, Halt> {
        let bits = digits * Codec::<S>::WIDTH.bits() + usize::from(bits);
        let link = match self.pages.follow(cell) {
            Some(link) => link,
            None => {
                let key = PageKey::page(self.space, goal.path, bits);
                let Some(link) = self.pages.find(&key) else {
                    self.desk.missing = Some(key);
                    return Err(Halt::Missing);
                };
                cell.set(link);
                link
            }
        };
        let start = if kind == PageKind::Root { 0 } else { digits + 1 };
        let build = |row: &[u8]| outline::of(self.codec, row, start);
        let outline = self.pages.outline(link.slot, build).ok_or(Halt::Not)?;
        if outline.kind != kind {
            return Err(Halt::Not);
        }
        if self.ops.len() == 1 {
            outline.fetch();
            outline.fetch_links();
        }
        self.edits.pages.push(Walked { link, key: goal.key, bits: bits as u32 });
        self.desk.deepest = bits;
        Ok(self.edits.pages.len() as u32 - 1)
    }
}

/// Moves the operations that led astray to another segment.
pub(crate) fn set_apart<S: Scheme>(
    desk: &Desk<S>,
    seg: &mut Segment<S::Commit>,
    rest: &mut Segment<S::Commit>,
) {
    for &op in &desk.left {
        let op = seg.ops[op as usize];
        let key = rest.push_bytes(&seg.bytes[op.key.range()]);
        let kind = match op.kind {
            OpKind::Put(value) => OpKind::Put(rest.push_bytes(&seg.bytes[value.range()])),
            kind => kind,
        };
        rest.ops.push(op.elsewhere(key, kind));
    }
    let mut number = 0;
    seg.ops.retain(|_| {
        number += 1;
        desk.left.binary_search(&(number - 1)).is_err()
    });
}
