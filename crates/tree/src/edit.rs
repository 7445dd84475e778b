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

mod commit;
mod rows;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;

use crate::batch::{Op, OpKind};
use crate::costs::Meter;
use crate::image::{Codec, MEMBER_COMMIT_AT, PageKind, SUM_BYTES};
use crate::levels::Ranks;
use crate::node::{OpenPage, Segment};
use crate::outline::{Entry, Kind, Outline, Outlined};
use crate::page_key::{PageKey, Space};
use crate::scheme::Scheme;

pub(crate) use commit::Passed;
pub(crate) use rows::{rewritten, rows};

/// Larger batches are better split over the threads.
const OPS_MAX: usize = 1 << 14;
/// So many nodes are walked before they are committed to: while what they are made of is in the cache.
const NODES_AT_ONCE: usize = 1 << 10;
/// Where more operations than these, and than this share of all, are no edits, the walk is not worth it.
const LEFT_MIN: usize = 2;
const LEFT_SHARE: usize = 8;
/// How many operations are looked ahead: for the outline of a page, and then for what is read of it.
const OPS_AHEAD: usize = 8;
const OPS_NEAR: usize = 4;
/// So many operations' pages are found together: the processor waits for several at once.
const OPS_AT_ONCE: usize = 4;
/// Chains of prefixes may be as deep as a key is long; they are left to others.
const DEPTH_MAX: usize = 1 << 10;

/// Something that is to stand elsewhere in a page than what stands there, in as many bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    /// The page, among those of the segment, and where in its row, or [`Edit::NOWHERE`] if that keeps no such thing.
    page: u32,
    at: u16,
    /// Of a commitment, the entry of the page's outline, and whether that has it from the row.
    entry: u16,
    in_row: bool,
    what: What,
}

impl Edit {
    const NOWHERE: u16 = 0;
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// The value that an operation puts.
    Value { op: u32 },
    /// What a node commits to: while the walk goes on its number, then the commitment's among the segment's.
    Commit { node: u32 },
}

/// A node that is to be committed to anew.
#[derive(Clone, Copy, Debug)]
struct Node {
    body: Body,
    /// An operation whose key passes it.
    op: u32,
    /// The digits at which it hangs and, of a branch, forks; of a terminal, ends.
    depth: u32,
    fork: u32,
    height: u32,
    /// Whether what hangs below it belongs to an owner.
    owned: bool,
    /// Whether a page holds what it commits to.
    kept: bool,
    /// The commitment, among the segment's.
    commit: u32,
    /// Which of its parent's children it is: an entry of the page that the parent's are in.
    seat: u16,
    /// Its children that changed, a list in order of their digits, and the next child of its parent.
    first: u32,
    last: u32,
    next: u32,
}

/// No node, and no group.
const NONE: u32 = u32::MAX;

impl Node {
    /// One that an operation's key passes, at a digit; what else there is to say of it is yet to be.
    const fn new(body: Body, op: usize, depth: usize) -> Self {
        Self {
            body,
            op: op as u32,
            depth: depth as u32,
            fork: 0,
            height: 0,
            owned: false,
            kept: false,
            commit: NONE,
            seat: 0,
            first: NONE,
            last: NONE,
            next: NONE,
        }
    }
}

/// A terminal that is to be committed to, though it did not change: its page, its entry, and its parent.
#[derive(Clone, Copy, Debug)]
struct Sibling {
    page: u32,
    entry: u16,
    parent: u32,
}

#[derive(Clone, Copy, Debug)]
enum Body {
    /// A terminal with the value of its operation.
    Value,
    /// A terminal that owns something.
    Owner {
        page: u32,
        payload: Payload,
        owned: u16,
        /// What is owned, if that changed.
        child: Option<u32>,
    },
    /// A branch: the page of its children and their entries, and the first of the groups that were opened for it.
    Fork { page: u32, from: u16, end: u16, group: u32 },
}

/// The value of an owner.
#[derive(Clone, Copy, Debug)]
enum Payload {
    /// As it was, in the owner's page.
    Stored { at: u16, len: u16 },
    /// That of the node's operation.
    Put,
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
    nodes: Vec<Node>,
    /// Those of the segment's pages.
    outlines: Vec<Outline<S::Commit>>,
    groups: Vec<Group>,
    /// The members of groups, the outermost first, that hold what the item gone into commits to: page and entry.
    around: Vec<(u32, u16)>,
    /// The nodes on the way to the last operation.
    stack: Vec<u32>,
    /// Nodes below which no operation will come.
    closed: Vec<u32>,
    /// Operations that led astray.
    left: Vec<u32>,
    siblings: Vec<Sibling>,
    /// How deep, in bits, the page lies that was opened last, and those in which operations ended last.
    deepest: usize,
    depths: [usize; 2],
    ranks: Ranks,
    out: Vec<S::Commit>,
    scratch: S::Scratch,
}

impl<S: Scheme> Default for Desk<S> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            outlines: Vec::new(),
            groups: Vec::new(),
            around: Vec::new(),
            stack: Vec::new(),
            closed: Vec::new(),
            left: Vec::new(),
            siblings: Vec::new(),
            deepest: 0,
            depths: [0; 2],
            ranks: Ranks::default(),
            out: Vec::new(),
            scratch: S::Scratch::default(),
        }
    }
}

/// What came of a walk.
#[derive(Debug)]
pub(crate) enum Edited<C> {
    /// The batch is to be applied as any other.
    Not,
    /// All values were there already.
    Same,
    /// What the top commits to now.
    Top(C),
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

/// Where an item lies, and what it is a child of.
#[derive(Clone, Copy, Debug)]
struct Item {
    page: u32,
    entry: u16,
    /// The digit at which it hangs.
    depth: usize,
    owned: bool,
    from: From,
}

#[derive(Clone, Copy, Debug)]
enum From {
    Top,
    Fork { node: u32, seat: u16 },
    Owner { node: u32 },
}

/// Where an operation led.
enum Led {
    /// To a value of its key.
    Here,
    /// On.
    On(Item),
    /// Elsewhere than to a value of its key and its length.
    Astray,
}

/// Finds a page by its key and the digit at which its items' runs start.
type Fetch<'a, C> = dyn Fn(&PageKey, usize) -> Option<Outlined<C>> + 'a;

/// Who is told of pages that are soon to be fetched.
pub(crate) struct Ahead<'a> {
    pub(crate) far: &'a dyn Fn(&[PageKey]),
    /// Told of each page once more when that is nearer, of the key that is looked for in it, and at which digit its
    /// items hang.
    pub(crate) near: &'a dyn Fn(&PageKey, &[u8], usize),
}

/// A walk over the pages below a root page.
pub(crate) struct Editor<'a, S: Scheme> {
    pub(crate) codec: Codec<'a, S>,
    pub(crate) space: Space,
    /// Holds the operations; gets pages, edits and commitments.
    pub(crate) seg: &'a mut Segment<S::Commit>,
    /// A page whose items' runs start at a digit, if it is at hand and sound.
    pub(crate) fetch: &'a Fetch<'a, S::Commit>,
    pub(crate) ahead: Ahead<'a>,
    pub(crate) desk: &'a mut Desk<S>,
    pub(crate) meter: &'a Meter,
}

impl<S: Scheme> Editor<'_, S> {
    const OWNER_DIGITS: usize = match S::OWNER {
        Some(owner) => owner.bytes * Codec::<S>::WIDTH.per_byte(),
        None => 0,
    };

    /// Walks all operations of the segment from the item of the root page.
    pub(crate) fn run(
        mut self,
        root: OpenPage,
        outline: Outline<S::Commit>,
        rest: &mut Segment<S::Commit>,
    ) -> Edited<S::Commit> {
        self.clear();
        self.seg.pages.push(root);
        self.desk.outlines.push(outline);
        let top = Item { page: 0, entry: 0, depth: 0, owned: false, from: From::Top };
        let walked = self.walk(top);
        // Those of the commit change in their places once nobody reads them.
        self.desk.outlines.clear();
        match walked {
            // Without an edit of a value nothing changed, whatever was passed.
            Some(true) => {
                self.settle(rest);
                Edited::Top(self.seg.commits[self.desk.nodes[0].commit as usize])
            }
            Some(false) => {
                self.settle(rest);
                Edited::Same
            }
            None => {
                self.seg.pages.clear();
                self.seg.edits.clear();
                self.seg.commits.clear();
                Edited::Not
            }
        }
    }

    /// Names commitments where edits named nodes, and moves the operations that led astray.
    fn settle(&mut self, rest: &mut Segment<S::Commit>) {
        let Desk { nodes, left, .. } = &mut *self.desk;
        for edit in &mut self.seg.edits {
            match &mut edit.what {
                What::Commit { node } => *node = nodes[*node as usize].commit,
                What::Value { op } => *op -= left.partition_point(|left| left < op) as u32,
            }
        }
        for &op in &*left {
            let op = self.seg.ops[op as usize];
            let key = rest.push_bytes(&self.seg.bytes[op.key.range()]);
            let kind = match op.kind {
                OpKind::Put(value) => OpKind::Put(rest.push_bytes(&self.seg.bytes[value.range()])),
                kind => kind,
            };
            rest.ops.push(op.elsewhere(key, kind));
        }
        if !left.is_empty() {
            let mut number = 0;
            self.seg.ops.retain(|_| {
                number += 1;
                left.binary_search(&(number - 1)).is_err()
            });
        }
    }

    fn clear(&mut self) {
        self.desk.nodes.clear();
        self.desk.outlines.clear();
        self.desk.groups.clear();
        self.desk.stack.clear();
        self.desk.closed.clear();
        self.desk.left.clear();
    }

    /// Whether anything changes; nothing if the batch is not one of these.
    fn walk(&mut self, top: Item) -> Option<bool> {
        let mut before: Option<usize> = None;
        for op in 0..self.seg.ops.len() {
            let common = before.map_or(0, |before| self.common(before, op));
            self.close(common);
            self.look_ahead(op);
            if !matches!(self.op(op).kind, OpKind::Put(_)) || !self.lead(top, op)? {
                self.desk.left.push(op as u32);
                if self.desk.left.len() > LEFT_MIN + self.seg.ops.len() / LEFT_SHARE {
                    return None;
                }
            }
            before = Some(op);
            let [last, _] = self.desk.depths;
            if self.desk.deepest != last {
                self.desk.depths = [self.desk.deepest, last];
            }
            if self.desk.closed.len() >= NODES_AT_ONCE {
                self.commit()?;
            }
        }
        self.close_all();
        self.commit()?;
        Some(self.seg.edits.iter().any(|edit| matches!(edit.what, What::Value { .. })))
    }

    /// Asks for the page in which an operation that is soon to come ends, if that lies as deep as one of the last:
    /// so it comes from memory meanwhile.
    fn look_ahead(&mut self, op: usize) {
        let all = self.seg.ops.len();
        let far = match (all, op % OPS_AT_ONCE) {
            (1, _) => op..1,
            (_, 0) => op + OPS_AHEAD..all.min(op + OPS_AHEAD + OPS_AT_ONCE),
            _ => 0..0,
        };
        if !far.is_empty() {
            let keys: SmallVec<[PageKey; 2 * OPS_AT_ONCE]> =
                far.flat_map(|op| self.ends(op)).map(|(key, _)| key).collect();
            (self.ahead.far)(&keys);
        }
        if op + OPS_NEAR < all {
            for (page, bits) in self.ends(op + OPS_NEAR) {
                let digit = bits / Codec::<S>::WIDTH.bits();
                (self.ahead.near)(&page, self.key(op + OPS_NEAR), digit);
            }
        }
    }

    /// The pages in which an operation ends if they lie as deep, in bits, as one of the last.
    fn ends(&self, op: usize) -> impl Iterator<Item = (PageKey, usize)> {
        let key = self.key(op);
        let bits = self.desk.depths.into_iter().filter(|&bits| bits > 0 && bits <= key.len() * 8);
        bits.map(|bits| (PageKey::page(self.space, key, bits), bits))
    }

    fn op(&self, op: usize) -> Op {
        self.seg.ops[op]
    }

    fn key(&self, op: usize) -> &[u8] {
        &self.seg.bytes[self.op(op).key.range()]
    }

    /// The digits of an operation's key.
    fn digits(&self, op: usize) -> usize {
        self.op(op).key.len as usize * Codec::<S>::WIDTH.per_byte()
    }

    /// How many first digits two operations share.
    fn common(&self, a: usize, b: usize) -> usize {
        let limit = self.digits(a).min(self.digits(b));
        Codec::<S>::WIDTH.common(self.key(a), self.key(b), 0, limit)
    }

    /// Closes the nodes below which keys differ from the next one's, which has `common` digits of the last.
    fn close(&mut self, common: usize) {
        while let Some(&node) = self.desk.stack.last()
            && self.desk.nodes[node as usize].fork as usize > common
        {
            self.desk.stack.pop();
            self.shut(node);
        }
    }

    fn close_all(&mut self) {
        while let Some(node) = self.desk.stack.pop() {
            self.shut(node);
        }
    }

    /// Notes that a node, whose parent is the last open one, will not change any more.
    fn shut(&mut self, node: u32) {
        let Desk { nodes, stack, closed, .. } = &mut *self.desk;
        closed.push(node);
        let height = nodes[node as usize].height;
        if let Some(&parent) = stack.last() {
            let parent = &mut nodes[parent as usize];
            parent.height = parent.height.max(height + 1);
        }
    }

    /// Goes down from the last open node to the value of an operation's key. `false` if it is not there.
    fn lead(&mut self, top: Item, op: usize) -> Option<bool> {
        let mut led = match self.desk.stack.last() {
            None if self.desk.nodes.is_empty() => Led::On(top),
            // Another operation has been below the top, and closed it.
            None => Led::Astray,
            Some(&node) => self.child(node, op)?,
        };
        loop {
            match led {
                Led::Here => return Some(true),
                Led::Astray => return Some(false),
                Led::On(item) if self.desk.stack.len() < DEPTH_MAX => led = self.enter(item, op)?,
                Led::On(_) => return Some(false),
            }
        }
    }

    /// The child of an open node that an operation goes on to.
    fn child(&mut self, node: u32, op: usize) -> Option<Led> {
        let Node { body, fork, owned: zone, last, .. } = self.desk.nodes[node as usize];
        self.desk.around.clear();
        match body {
            Body::Value => unreachable!("values are never open"),
            Body::Owner { page, owned, child: None, .. }
                if owned > 0 && self.digits(op) > fork as usize =>
            {
                let (depth, from) = (fork as usize, From::Owner { node });
                Some(Led::On(Item { page, entry: owned, depth, owned: true, from }))
            }
            Body::Owner { .. } => Some(Led::Astray),
            Body::Fork { page, from, end, .. } => {
                if self.digits(op) <= fork as usize {
                    return Some(Led::Astray);
                }
                let width = Codec::<S>::WIDTH;
                let digit = self.op(op).digit(&self.seg.bytes, fork as usize, width);
                let outline = &self.desk.outlines[page as usize];
                let Some(seat) = outline.find(from..end, digit) else {
                    return Some(Led::Astray);
                };
                let kind = outline.entries[usize::from(seat)].kind;
                // Another operation has been below it, and closed it.
                if last != NONE && self.desk.nodes[last as usize].seat == seat {
                    return Some(Led::Astray);
                }
                let (page, entry) = if kind.is_in_group() {
                    self.in_group((node, op), digit, (page, seat))?
                } else {
                    (page, seat)
                };
                let (depth, from) = (fork as usize + 1, From::Fork { node, seat });
                Some(Led::On(Item { page, entry, depth, owned: zone, from }))
            }
        }
    }

    /// The page and the entry of the item that a branch's child in a group is. A group may be in another one.
    fn in_group(
        &mut self,
        (node, op): (u32, usize),
        digit: u8,
        mut place: (u32, u16),
    ) -> Option<(u32, u16)> {
        let mut around = 0;
        loop {
            let (page, seat) = place;
            let entry = &self.desk.outlines[page as usize].entries[usize::from(seat)];
            if !entry.kind.is_in_group() {
                return Some(place);
            }
            let (bits, terminal) = (entry.span, entry.kind.is_terminal());
            if bits <= around {
                return None;
            }
            around = bits;
            self.desk.around.push(place);
            let group = self.group(node, bits, digit);
            let page = match group {
                Some(page) => page,
                None => self.open_group((node, op), page, bits, digit)?,
            };
            let outline = &self.desk.outlines[page as usize];
            let seat = outline.find(outline.top(), digit)?;
            if outline.entries[usize::from(seat)].kind.is_terminal() != terminal {
                return None;
            }
            place = (page, seat);
        }
    }

    /// The page of a branch's group, if it was opened before.
    fn group(&self, node: u32, bits: u8, digit: u8) -> Option<u32> {
        let Body::Fork { mut group, .. } = self.desk.nodes[node as usize].body else { return None };
        let rest = S::DIGIT_BITS - bits;
        while let Some(found) = self.desk.groups.get(group as usize) {
            if found.bits == bits && found.digit >> rest == digit >> rest {
                return Some(found.page);
            }
            group = found.next;
        }
        None
    }

    /// Opens the group of a branch that `digit` is in, and that `page` has the members of; nothing if it does not hold
    /// just these.
    fn open_group(
        &mut self,
        (node, op): (u32, usize),
        page: u32,
        bits: u8,
        digit: u8,
    ) -> Option<u32> {
        let Node { body: Body::Fork { page: body, from, end, group }, fork, .. } =
            self.desk.nodes[node as usize]
        else {
            unreachable!("only branches have groups")
        };
        let opened = self.open(op, fork as usize, bits, PageKind::Group)?;
        let of = &self.desk.outlines[page as usize];
        let range = if page == body { from..end } else { of.top() };
        let rest = S::DIGIT_BITS - bits;
        let members = &of.entries[usize::from(range.start)..usize::from(range.end)];
        let members = members.iter().filter(|entry| {
            entry.kind.is_in_group() && entry.span == bits && entry.digit >> rest == digit >> rest
        });
        let held = &self.desk.outlines[opened as usize];
        let held = held.entries[..usize::from(held.top().end)].iter();
        let shown = |entry: &Entry| (entry.digit, entry.kind.is_terminal());
        if !members.map(shown).eq(held.map(shown)) {
            return None;
        }
        let number = self.desk.groups.len() as u32;
        self.desk.groups.push(Group { bits, digit, page: opened, next: group });
        if let Body::Fork { group, .. } = &mut self.desk.nodes[node as usize].body {
            *group = number;
        }
        Some(opened)
    }

    /// Goes into an item.
    fn enter(&mut self, item: Item, op: usize) -> Option<Led> {
        match self.entry(item).kind {
            Kind::Terminal => self.enter_terminal(item, op),
            Kind::Branch | Kind::Apart => self.enter_branch(item, op),
            _ => Some(Led::Astray),
        }
    }

    fn entry(&self, item: Item) -> &Entry {
        &self.desk.outlines[item.page as usize].entries[usize::from(item.entry)]
    }

    fn enter_terminal(&mut self, item: Item, op: usize) -> Option<Led> {
        let row = &self.seg.pages[item.page as usize].row;
        let at = usize::from(self.entry(item).at);
        let Some(stored) = self.codec.inline_terminal(row, at, item.depth) else {
            return Some(Led::Astray);
        };
        let among_owners = S::OWNER.is_some() && !item.owned;
        let whole = if among_owners { Self::OWNER_DIGITS } else { self.digits(op) };
        let suffix = stored.suffix;
        if suffix.end() != whole || suffix.common(self.key(op)) < suffix.len() {
            return Some(Led::Astray);
        }
        let (payload, carried) = (stored.payload.clone(), stored.commit);
        let owned = stored.owns.then(|| self.entry(item).within().start);
        if let Some(owned) = owned {
            // What is owned carries what it commits to, unless the page is forged.
            self.desk.outlines[item.page as usize].commit(self.codec, row, owned)?;
        }
        let (at, len) = (payload.start as u16, payload.len());
        let mut node = Node {
            fork: whole as u32,
            owned: true,
            kept: carried.is_some(),
            ..Node::new(Body::Value, op, item.depth)
        };
        if !among_owners || self.digits(op) == whole {
            let value = self.seg.value_of(op);
            if owned.is_some() && !among_owners || value.len() != len {
                return Some(Led::Astray);
            }
            if *value == row[payload] {
                return Some(Led::Here);
            }
            if let (true, Some(owned)) = (among_owners, owned) {
                let page = item.page;
                node.body = Body::Owner { page, payload: Payload::Put, owned, child: None };
            }
            let open = matches!(node.body, Body::Owner { .. });
            let number = self.attach(item, node, carried)?;
            let what = What::Value { op: op as u32 };
            self.seg.edits.push(Edit { page: item.page, at, entry: 0, in_row: true, what });
            if open {
                self.desk.stack.push(number);
            } else {
                self.shut(number);
            }
            return Some(Led::Here);
        }
        let Some(owned) = owned else { return Some(Led::Astray) };
        let payload = Payload::Stored { at, len: len as u16 };
        node.body = Body::Owner { page: item.page, payload, owned, child: None };
        let number = self.attach(item, node, carried)?;
        self.desk.stack.push(number);
        self.child(number, op)
    }

    fn enter_branch(&mut self, item: Item, op: usize) -> Option<Led> {
        let entry = self.entry(item);
        let (kind, within, span) = (entry.kind, entry.within(), usize::from(entry.span));
        let (fork, kept) = (item.depth + span, usize::from(entry.at) + MEMBER_COMMIT_AT);
        if !entry.keeps {
            return None;
        }
        // Among owners nothing forks below their keys, unless a page is forged.
        let among_owners = S::OWNER.is_some() && !item.owned;
        let limit = if among_owners { Self::OWNER_DIGITS } else { usize::MAX };
        if fork >= self.digits(op).min(limit) || span > 0 && !self.passes(item, op)? {
            return Some(Led::Astray);
        }
        let (page, Range { start: from, end }) = match kind {
            Kind::Branch => (item.page, within),
            _ => {
                let page = self.open(op, fork, 0, PageKind::Body)?;
                (page, self.desk.outlines[page as usize].top())
            }
        };
        if S::DIGIT_BITS > 1 {
            let row = &self.seg.pages[page as usize].row;
            self.desk.outlines[page as usize].fetch_commits(row, from..end);
        }
        let node = Node {
            fork: fork as u32,
            owned: item.owned,
            kept: true,
            ..Node::new(Body::Fork { page, from, end, group: NONE }, op, item.depth)
        };
        let number = self.attach(item, node, Some(kept))?;
        self.desk.stack.push(number);
        self.child(number, op)
    }

    /// Whether an operation's key has the digits that a branch skips.
    fn passes(&self, item: Item, op: usize) -> Option<bool> {
        let row = &self.seg.pages[item.page as usize].row;
        let (skip, _) = self.codec.plain_branch(row, self.entry(item).at.into(), item.depth)?;
        Some(skip.common(self.key(op)) == skip.len())
    }

    /// Makes an item a node, and notes where what it commits to is kept: at `kept` of its page, and by its
    /// groups. Nothing if that is not of the usual length.
    fn attach(&mut self, item: Item, mut node: Node, kept: Option<usize>) -> Option<u32> {
        let number = self.desk.nodes.len() as u32;
        let at = match kept {
            Some(at) => {
                let old = &self.seg.pages[item.page as usize].row[at..];
                let usual = || self.codec.scheme.commit_bytes(old) == S::COMMIT_BYTES;
                if !self.entry(item).keeps && !usual() {
                    return None;
                }
                at as u16
            }
            None => Edit::NOWHERE,
        };
        let what = What::Commit { node: number };
        let in_row = S::DIGIT_BITS == 1 && self.entry(item).keeps;
        let (page, entry) = (item.page, item.entry);
        self.seg.edits.push(Edit { page, at, entry, in_row, what });
        match item.from {
            From::Top => {}
            From::Fork { node: parent, seat } => {
                for &(page, entry) in &self.desk.around {
                    let member = &self.desk.outlines[page as usize].entries[usize::from(entry)];
                    if !member.keeps {
                        return None;
                    }
                    let at = member.at + MEMBER_COMMIT_AT as u16;
                    self.seg.edits.push(Edit { page, at, entry, in_row: false, what });
                    node.kept = true;
                }
                node.seat = seat;
                let nodes = &mut self.desk.nodes;
                let Node { first, last, .. } = &mut nodes[parent as usize];
                let before = std::mem::replace(last, number);
                if before == NONE {
                    *first = number;
                } else {
                    nodes[before as usize].next = number;
                }
            }
            From::Owner { node: parent } => {
                let Body::Owner { child, .. } = &mut self.desk.nodes[parent as usize].body else {
                    unreachable!("only owners own")
                };
                *child = Some(number);
            }
        }
        self.desk.nodes.push(node);
        Some(number)
    }

    /// Opens the page at the first `digits` digits and `bits` bits of an operation's key.
    fn open(&mut self, op: usize, digits: usize, bits: u8, kind: PageKind) -> Option<u32> {
        let bits = digits * Codec::<S>::WIDTH.bits() + usize::from(bits);
        let key = PageKey::page(self.space, self.key(op), bits);
        let (row, outline) = (self.fetch)(&key, digits + 1)?;
        if row.get(SUM_BYTES) != Some(&(kind as u8)) {
            return None;
        }
        self.seg.pages.push(OpenPage { key, row, stale: false });
        self.desk.outlines.push(outline);
        self.desk.deepest = bits;
        Some(self.seg.pages.len() as u32 - 1)
    }
}
