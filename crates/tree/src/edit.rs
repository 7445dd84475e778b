//! Values in the places of others of their length: no node comes, goes or moves, so no page is cut again, and
//! none of the machinery is needed that makes nodes.
//!
//! The operations of a batch are walked in order over the pages as they are stored. What they pass is noted:
//! branches that are to be committed to anew, with the places of their children, and *edits*: where in which page
//! a value or a commitment is to stand. The rows of it are copies of the pages with their edits (`edit/rows.rs`).
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
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::batch::{Op, OpKind};
use crate::costs::Meter;
use crate::image::{
    Codec, MEMBER_COMMIT_AT, PAGE_BYTES_MAX, PageKind, SUM_BYTES, Skimmed, is_terminal,
};
use crate::levels::Ranks;
use crate::node::{OpenPage, Segment};
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
/// How many operations are looked ahead.
const OPS_AHEAD: usize = 4;
/// Chains of prefixes may be as deep as a key is long; they are left to others.
const DEPTH_MAX: usize = 1 << 10;

/// Something that is to stand elsewhere in a page than what stands there, in as many bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edit {
    /// The page, among those of the segment, and where in its row.
    page: u32,
    at: u16,
    what: What,
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
    /// A branch: the page of its body and its children among the slots.
    Fork { page: u32, slots: u32, count: u16 },
}

/// The value of an owner.
#[derive(Clone, Copy, Debug)]
enum Payload {
    /// As it was, in the owner's page.
    Stored { at: u16, len: u16 },
    /// That of the node's operation.
    Put,
}

/// A child of a branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Where the item, or the member of a group, lies in the page of the branch's body.
    at: u16,
    /// Where the item lies in its page.
    item: u16,
    /// The page of the item, or [`Slot::NOWHERE`] if it is in a group that is not open.
    page: u32,
    digit: u8,
    /// The bits of its group, the innermost one that is known, or 0.
    bits: u8,
    terminal: bool,
    state: State,
    /// The groups around its own that hold what it commits to: the first one's place among the desk's, or
    /// [`Slot::NOWHERE`].
    around: u32,
}

/// What a group holds of a member of a group within it.
#[derive(Clone, Copy, Debug)]
struct Around {
    page: u32,
    at: u16,
    next: u32,
}

impl Slot {
    const NOWHERE: u32 = u32::MAX;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Same,
    /// It is a node.
    Changed(u32),
    /// It did not change; what it commits to is among the segment's commitments.
    Committed(u32),
}

/// What a walk needs, kept from one to the next.
#[derive(Debug)]
pub(crate) struct Desk<S: Scheme> {
    nodes: Vec<Node>,
    slots: Vec<Slot>,
    arounds: Vec<Around>,
    /// The nodes on the way to the last operation.
    stack: Vec<u32>,
    /// Nodes below which no operation will come.
    closed: Vec<u32>,
    /// Operations that led astray.
    left: Vec<u32>,
    siblings: Vec<(u32, u32)>,
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
            slots: Vec::new(),
            arounds: Vec::new(),
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
    at: u16,
    /// The digit at which it hangs.
    depth: usize,
    owned: bool,
    from: From,
}

#[derive(Clone, Copy, Debug)]
enum From {
    Top,
    Slot { node: u32, slot: u32 },
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

/// A walk over the pages below a root page.
pub(crate) struct Editor<'a, S: Scheme> {
    pub(crate) codec: Codec<'a, S>,
    pub(crate) space: Space,
    /// Holds the operations; gets pages, edits and commitments.
    pub(crate) seg: &'a mut Segment<S::Commit>,
    /// A page, if it is at hand.
    pub(crate) fetch: &'a dyn Fn(&PageKey) -> Option<Arc<[u8]>>,
    /// Told of a page that is soon to be fetched.
    pub(crate) ahead: &'a dyn Fn(&PageKey),
    pub(crate) desk: &'a mut Desk<S>,
    pub(crate) meter: &'a Meter,
}

impl<S: Scheme> Editor<'_, S> {
    const OWNER_DIGITS: usize = match S::OWNER {
        Some(owner) => owner.bytes * Codec::<S>::WIDTH.per_byte(),
        None => 0,
    };

    /// Walks all operations of the segment from the item at `at` of the root page.
    pub(crate) fn run(
        mut self,
        root: OpenPage,
        at: u16,
        rest: &mut Segment<S::Commit>,
    ) -> Edited<S::Commit> {
        self.clear();
        if root.row.len() > PAGE_BYTES_MAX {
            return Edited::Not;
        }
        self.seg.pages.push(root);
        let top = Item { page: 0, at, depth: 0, owned: false, from: From::Top };
        match self.walk(top) {
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
        self.desk.slots.clear();
        self.desk.arounds.clear();
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
        let next = if self.seg.ops.len() == 1 { op } else { op + OPS_AHEAD };
        if next >= self.seg.ops.len() {
            return;
        }
        let key = self.key(next);
        let bits = self.desk.depths.into_iter().filter(|&bits| bits > 0 && bits <= key.len() * 8);
        for bits in bits {
            (self.ahead)(&PageKey::page(self.space, key, bits));
        }
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
        let Node { body, fork, owned: zone, .. } = self.desk.nodes[node as usize];
        match body {
            Body::Value => unreachable!("values are never open"),
            Body::Owner { page, owned, child: None, .. }
                if owned > 0 && self.digits(op) > fork as usize =>
            {
                let (depth, from) = (fork as usize, From::Owner { node });
                Some(Led::On(Item { page, at: owned, depth, owned: true, from }))
            }
            Body::Owner { .. } => Some(Led::Astray),
            Body::Fork { slots, count, .. } => {
                if self.digits(op) <= fork as usize {
                    return Some(Led::Astray);
                }
                let width = Codec::<S>::WIDTH;
                let digit = self.op(op).digit(&self.seg.bytes, fork as usize, width);
                let mut all = slots..slots + u32::from(count);
                let Some(slot) = all.find(|&slot| self.desk.slots[slot as usize].digit == digit)
                else {
                    return Some(Led::Astray);
                };
                let mut found = self.desk.slots[slot as usize];
                if found.state != State::Same {
                    return Some(Led::Astray);
                }
                // A group may be in another one.
                while found.page == Slot::NOWHERE {
                    self.open_group(op, fork as usize, (slots, count), found.bits, digit)?;
                    found = self.desk.slots[slot as usize];
                }
                let (depth, from) = (fork as usize + 1, From::Slot { node, slot });
                Some(Led::On(Item { page: found.page, at: found.item, depth, owned: zone, from }))
            }
        }
    }

    /// Goes into an item.
    fn enter(&mut self, item: Item, op: usize) -> Option<Led> {
        let row = &self.seg.pages[item.page as usize].row;
        if is_terminal(row.get(usize::from(item.at)..).filter(|item| !item.is_empty())?) {
            self.enter_terminal(item, op)
        } else {
            self.enter_branch(item, op)
        }
    }

    fn enter_terminal(&mut self, item: Item, op: usize) -> Option<Led> {
        let row = &self.seg.pages[item.page as usize].row;
        let stored = self.codec.inline_terminal(row, usize::from(item.at), item.depth)?;
        let among_owners = S::OWNER.is_some() && !item.owned;
        let whole = if among_owners { Self::OWNER_DIGITS } else { self.digits(op) };
        let suffix = stored.suffix;
        if suffix.end() != whole || suffix.common(self.key(op)) < suffix.len() {
            return Some(Led::Astray);
        }
        let (payload, carried, owned) = (stored.payload.clone(), stored.commit, stored.owned());
        let (at, len) = (payload.start as u16, payload.len());
        let mut node = Node {
            body: Body::Value,
            op: op as u32,
            depth: item.depth as u32,
            fork: whole as u32,
            height: 0,
            owned: true,
            kept: carried.is_some(),
            commit: u32::MAX,
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
                let (page, owned) = (item.page, owned as u16);
                node.body = Body::Owner { page, payload: Payload::Put, owned, child: None };
            }
            let open = matches!(node.body, Body::Owner { .. });
            let number = self.attach(item, node, carried)?;
            self.edit(item.page, usize::from(at), What::Value { op: op as u32 });
            if open {
                self.desk.stack.push(number);
            } else {
                self.shut(number);
            }
            return Some(Led::Here);
        }
        let Some(owned) = owned else { return Some(Led::Astray) };
        let (page, owned) = (item.page, owned as u16);
        let payload = Payload::Stored { at, len: len as u16 };
        node.body = Body::Owner { page, payload, owned, child: None };
        let number = self.attach(item, node, carried)?;
        self.desk.stack.push(number);
        self.child(number, op)
    }

    fn enter_branch(&mut self, item: Item, op: usize) -> Option<Led> {
        let row = &self.seg.pages[item.page as usize].row;
        let (skip, body) = self.codec.plain_branch(row, usize::from(item.at), item.depth)?;
        let (fork, differs) = (skip.end(), skip.common(self.key(op)) < skip.len());
        // Among owners nothing forks below their keys, unless a page is forged.
        let among_owners = S::OWNER.is_some() && !item.owned;
        let limit = if among_owners { Self::OWNER_DIGITS } else { usize::MAX };
        if differs || fork >= self.digits(op).min(limit) {
            return Some(Led::Astray);
        }
        let (page, range) = match body {
            Some((from, to)) => (item.page, from..to),
            None => {
                let page = self.open(op, fork, 0, PageKind::Body)?;
                (page, SUM_BYTES + 1..self.seg.pages[page as usize].row.len())
            }
        };
        let slots = self.desk.slots.len() as u32;
        let count = self.list(page, range, fork)?;
        let node = Node {
            body: Body::Fork { page, slots, count },
            op: op as u32,
            depth: item.depth as u32,
            fork: fork as u32,
            height: 0,
            owned: item.owned,
            kept: true,
            commit: u32::MAX,
        };
        let commit = usize::from(item.at) + MEMBER_COMMIT_AT;
        let number = self.attach(item, node, Some(commit))?;
        self.desk.stack.push(number);
        self.child(number, op)
    }

    /// Makes an item a node, and notes where what it commits to is kept: at `commit` of its page, and by its
    /// group. Nothing if that is not of the usual length.
    fn attach(&mut self, item: Item, mut node: Node, commit: Option<usize>) -> Option<u32> {
        let number = self.desk.nodes.len() as u32;
        if let Some(at) = commit {
            self.edit_commit(item.page, at, number)?;
        }
        match item.from {
            From::Top => {}
            From::Slot { node: parent, slot } => {
                let slot = &mut self.desk.slots[slot as usize];
                slot.state = State::Changed(number);
                let Slot { bits, at, mut around, .. } = *slot;
                if bits > 0 {
                    let Body::Fork { page, .. } = self.desk.nodes[parent as usize].body else {
                        unreachable!("only branches have slots")
                    };
                    node.kept = true;
                    self.edit_commit(page, usize::from(at) + MEMBER_COMMIT_AT, number)?;
                    while around != Slot::NOWHERE {
                        let Around { page, at, next } = self.desk.arounds[around as usize];
                        self.edit_commit(page, usize::from(at) + MEMBER_COMMIT_AT, number)?;
                        around = next;
                    }
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

    fn edit_commit(&mut self, page: u32, at: usize, node: u32) -> Option<()> {
        let old = &self.seg.pages[page as usize].row[at..];
        if self.codec.scheme.commit_bytes(old) != S::COMMIT_BYTES {
            return None;
        }
        self.edit(page, at, What::Commit { node });
        Some(())
    }

    fn edit(&mut self, page: u32, at: usize, what: What) {
        self.seg.edits.push(Edit { page, at: at as u16, what });
    }

    /// Opens the page at the first `digits` digits and `bits` bits of an operation's key.
    fn open(&mut self, op: usize, digits: usize, bits: u8, kind: PageKind) -> Option<u32> {
        let bits = digits * Codec::<S>::WIDTH.bits() + usize::from(bits);
        let key = PageKey::page(self.space, self.key(op), bits);
        let row = (self.fetch)(&key)?;
        if row.get(SUM_BYTES) != Some(&(kind as u8)) || row.len() > PAGE_BYTES_MAX {
            return None;
        }
        self.seg.pages.push(OpenPage { key, row, stale: false });
        self.desk.deepest = bits;
        Some(self.seg.pages.len() as u32 - 1)
    }

    /// Lists the children of a branch; nothing if they are not what this module is for.
    fn list(&mut self, page: u32, range: Range<usize>, fork: usize) -> Option<u16> {
        let slots = &mut self.desk.slots;
        let row = self.seg.pages[page as usize].row.get(..range.end)?;
        let (first, mut at, mut least) = (slots.len(), range.start, 0);
        let mut push = |slot: Slot| {
            let rises = slot.digit >= least && slot.digit <= Codec::<S>::WIDTH.mask();
            least = slot.digit.saturating_add(1);
            slots.push(slot);
            rises.then_some(())
        };
        while at < row.len() {
            let (item, end) = self.codec.skim(row, at, fork + 1).ok()?;
            let slot = Slot {
                at: at as u16,
                item: at as u16,
                page,
                digit: 0,
                bits: 0,
                terminal: false,
                state: State::Same,
                around: Slot::NOWHERE,
            };
            match item {
                Skimmed::Branch { digit } => push(Slot { digit, ..slot })?,
                Skimmed::Terminal { digit, carries: false } => {
                    push(Slot { digit, terminal: true, ..slot })?;
                }
                Skimmed::Group { bits, mut from, count } => {
                    for _ in 0..count {
                        let (digit, terminal, next) = self.codec.member(&row[..end], from).ok()?;
                        let (at, page) = (from as u16, Slot::NOWHERE);
                        push(Slot { at, page, digit, bits, terminal, ..slot })?;
                        from = next;
                    }
                }
                Skimmed::Value | Skimmed::Terminal { .. } => return None,
            }
            at = end;
        }
        Some((slots.len() - first) as u16)
    }

    /// Opens the group that `digit` of a branch is in, and notes where its members lie; nothing if it does not
    /// hold just what the branch says.
    fn open_group(
        &mut self,
        op: usize,
        fork: usize,
        (slots, count): (u32, u16),
        bits: u8,
        digit: u8,
    ) -> Option<()> {
        let page = self.open(op, fork, bits, PageKind::Group)?;
        let row = &self.seg.pages[page as usize].row;
        let rest = S::DIGIT_BITS - bits;
        let range = slots as usize..slots as usize + usize::from(count);
        let Desk { slots, arounds, .. } = &mut *self.desk;
        let mut members = slots[range]
            .iter_mut()
            .filter(|slot| slot.bits == bits && slot.digit >> rest == digit >> rest);
        let mut at = SUM_BYTES + 1;
        while at < row.len() {
            let (item, end) = self.codec.skim(row, at, fork + 1).ok()?;
            let (digit, terminal) = match item {
                Skimmed::Branch { digit } => (digit, false),
                Skimmed::Terminal { digit, carries: false } => (digit, true),
                Skimmed::Group { bits: inner, mut from, count } if inner > bits => {
                    for _ in 0..count {
                        let (digit, terminal, next) = self.codec.member(&row[..end], from).ok()?;
                        let slot = members.next()?;
                        if (digit, terminal) != (slot.digit, slot.terminal) {
                            return None;
                        }
                        arounds.push(Around { page, at: from as u16, next: slot.around });
                        (slot.bits, slot.around) = (inner, arounds.len() as u32 - 1);
                        from = next;
                    }
                    at = end;
                    continue;
                }
                _ => return None,
            };
            let slot = members.next()?;
            if (digit, terminal) != (slot.digit, slot.terminal) {
                return None;
            }
            (slot.item, slot.page) = (at as u16, page);
            at = end;
        }
        members.next().is_none().then_some(())
    }
}
