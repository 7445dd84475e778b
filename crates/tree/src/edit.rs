//! Values in the places of others of their length: no node comes, goes or moves, so no page is cut again, and
//! none of the machinery is needed that makes nodes.
//!
//! The operations of a batch are walked page by page over the outlines of the pages in the cache (`outline.rs`): all
//! that go on in a page at once, and the pages below it go on a list, so that each level of pages is known, and asked
//! for, before the walk comes to it (`edit/down.rs`). What they pass is noted, branches and terminals that are to be
//! committed to anew: where in which page a value or a commitment is to stand, and which of their children changed.
//! These are the *edits*. Pages below which there is no other are committed to as soon as some of them were walked,
//! the others from the end of the list to its start, a thousand nodes at a time (`edit/commit.rs`). The rows of a
//! batch are copies of the pages with its edits (`edit/rows.rs`).
//! Operations that lead elsewhere than to a value of their key and its length are left: they are applied to the
//! edited pages, as any batch is to the last commit's.
//!
//! Invariants:
//! - a batch of which many operations are left, one that removes owners or prefixes, a page that is not as
//!   expected and a commitment of an unusual length leave no trace here, and the batch is applied as any other;
//! - a walk holds the cache for a turn, and borrows its pages; between turns it knows them by links, and ends in vain
//!   if any page went meanwhile;
//! - a page comes behind the one above it among those walked, and a node behind its parent: from the last to the first
//!   all that is below a node is met before it is;
//! - the nodes of a page are two runs of numbers, that of those its walk passed and that of its terminals;
//! - edits are made of the last commit's pages only, and the state that has them is only asked for its root
//!   and its rows: who reads its nodes, or stands on it, gets those that the ordinary descent makes of the
//!   same operations (`Pending::twin`);
//! - roots and rows are those of the ordinary descent (`tests/it/edited.rs`); over pages of builds before, which keep
//!   what is left out now, roots are.

mod commit;
mod down;
mod rows;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::batch::{Op, OpKind};
use crate::cache::{Link, Pages};
use crate::costs::Meter;
use crate::image::Codec;
use crate::levels::Ranks;
use crate::node::{OpenPage, Segment};
use crate::outline::{Entry, Outline};
use crate::page_key::{PageKey, Space};
use crate::scheme::Scheme;

pub(crate) use commit::Passed;
use down::Item;
pub(crate) use rows::{rewritten, rows};

/// Larger batches are better split over the threads.
const OPS_MAX: usize = 1 << 14;
/// Pages that no more operations than these go on to are walked together, level by level: while those above are in the
/// core's cache.
const OPS_AT_ONCE: u32 = 1 << 10;
/// So many nodes, or pages, are walked before they are committed to, while what they are made of is in the core's
/// cache, and before others may change the cache of pages.
const NODES_A_TURN: usize = 1 << 10;
const PAGES_A_TURN: usize = 1 << 6;
/// How many children beside the way may be on their way from memory.
const BESIDE_BEHIND: usize = 12;
/// Where more operations than these, and than this share of all, are no edits, the walk is not worth it.
const LEFT_MIN: usize = 2;
const LEFT_SHARE: usize = 8;
/// Chains of prefixes may be as deep as a key is long; they are left to others.
const DEPTH_MAX: u16 = 1 << 10;

/// What a walk passed and what is to change of it. Its commitments are among the segment's.
#[derive(Debug, Default)]
pub(crate) struct Edits {
    nodes: Vec<Node>,
    kids: Vec<Kid>,
    pages: Vec<Walked>,
    members: Vec<Member>,
    /// How long the rows of all pages are.
    row_bytes: usize,
}

impl Edits {
    pub(crate) fn clear(&mut self) {
        self.row_bytes = 0;
        self.nodes.clear();
        self.kids.clear();
        self.pages.clear();
        self.members.clear();
    }

    /// Bytes of memory.
    pub(crate) fn capacity(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
            + self.kids.capacity() * size_of::<Kid>()
            + self.pages.capacity() * size_of::<Walked>()
            + self.members.capacity() * size_of::<Member>()
    }
}

/// Some numbers, one behind another.
#[derive(Clone, Copy, Debug, Default)]
struct Numbers {
    from: u32,
    end: u32,
}

impl Numbers {
    const fn range(self) -> std::ops::Range<usize> {
        self.from as usize..self.end as usize
    }

    const fn len(self) -> u32 {
        self.end - self.from
    }
}

/// A page that a walk came to: where it is in the cache, and an operation whose key's first bits are its path.
#[derive(Clone, Copy, Debug)]
struct Walked {
    link: Link,
    op: u32,
    bits: u32,
    /// The nodes in it, and the members: those that the walk passed, and those that came of its terminals.
    nodes: [Numbers; 2],
    members: [Numbers; 2],
    /// Whether it is to be committed to after pages below it.
    waits: bool,
}

/// A member of a group whose item is a node, if it changed: where its page keeps what that commits to, and the number
/// of that among the kids.
#[derive(Clone, Copy, Debug)]
struct Member {
    entry: u16,
    at: u16,
    kid: u32,
}

/// A child that operations go on to: its entry where its parent's children are (its parent's if it has none), its
/// digit, and its node, or [`NONE`] if it does not change.
#[derive(Clone, Copy, Debug)]
struct Kid {
    seat: u16,
    digit: u8,
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
    /// Its page and its entry there, or [`Node::NO_ENTRY`]; where the row keeps what it commits to, or
    /// [`Node::NOWHERE`].
    page: u32,
    entry: u16,
    at: u16,
    /// The value in the row: where, and how many bytes.
    payload: u16,
    len: u16,
    /// The page and the entries of its children. Of an owner the entry of what it owns, or, if that has none, its own;
    /// or nothing.
    from: u16,
    end: u16,
    inner: u32,
    /// Its children that operations go on to, in order of their digits.
    kids: Numbers,
    parent: u32,
    /// Of a branch in a binary tree with one child that operations go on to, the other's number among
    /// [`Desk::beside`], or [`NONE`].
    other: u32,
    /// An operation whose key passes it; of a terminal that gets a value, the one that puts it.
    op: u32,
    /// The digits at which it hangs and, of a branch, forks; of a terminal, ends.
    depth: u32,
    fork: u32,
    /// How many nodes are above it, and the most that are in a row below.
    level: u16,
    height: u16,
    /// The commitment, among the segment's.
    commit: u32,
}

/// No node, no page.
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
    const NO_ENTRY: u16 = u16::MAX;

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

/// A page that the walk is to come to: the link to it, where that is kept, and the operations that go on there.
#[derive(Clone, Copy, Debug)]
struct Ahead {
    link: Link,
    above: u32,
    entry: u16,
    /// Of the page of a group, how many bits of a digit its members share.
    bits: u8,
    /// The node whose children are in it, or [`NONE`] above the root.
    node: u32,
    ops: Numbers,
}

/// The other child of a branch in a binary tree: its page and its entry.
#[derive(Clone, Copy, Debug)]
struct Beside {
    page: u32,
    entry: u16,
}

/// What a walk needs, kept from one to the next.
#[derive(Debug)]
pub(crate) struct Desk<S: Scheme> {
    /// The pages to come to later, the first of them on top.
    later: Vec<Ahead>,
    /// The pages that are walked together, each behind the one above it, and the one of them that is next.
    list: Vec<Ahead>,
    next: usize,
    /// The pages from here on are committed to once all on the list are walked.
    floor: usize,
    /// How many pages and nodes turns before walked.
    before: (usize, usize),
    /// Once all on the list are walked, how many pages are yet to be looked at on the way up.
    up: Option<usize>,
    /// Items of a page that are yet to be gone into, and the terminals that operations of this turn came to, in order
    /// of their pages.
    stack: Vec<Item>,
    ends: Vec<Item>,
    /// Whether a value changed.
    changed: bool,
    /// Children beside the way in a binary tree, and what as many of them as have come from memory commit to, if that
    /// is known: so who commits to a branch looks at no page.
    beside: Vec<Beside>,
    others: Vec<Option<S::Commit>>,
    /// Nodes that are committed to at once, each before its parent.
    closed: Vec<u32>,
    /// Operations that led astray.
    left: Vec<u32>,
    siblings: Vec<Sibling>,
    /// Branches of whose children all that they commit to is known once the siblings are committed to.
    learned: Vec<u32>,
    /// The page that the walk waits for.
    missing: Option<PageKey>,
    ranks: Ranks,
    out: Vec<S::Commit>,
    scratch: S::Scratch,
}

impl<S: Scheme> Default for Desk<S> {
    fn default() -> Self {
        Self {
            later: Vec::new(),
            list: Vec::new(),
            next: 0,
            floor: 0,
            before: (0, 0),
            up: None,
            stack: Vec::new(),
            ends: Vec::new(),
            changed: false,
            beside: Vec::new(),
            others: Vec::new(),
            closed: Vec::new(),
            left: Vec::new(),
            siblings: Vec::new(),
            learned: Vec::new(),
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
        (self.next, self.floor, self.before) = (0, 0, (0, 0));
        (self.up, self.changed) = (None, false);
        self.later.clear();
        self.list.clear();
        self.stack.clear();
        self.ends.clear();
        self.beside.clear();
        self.others.clear();
        self.closed.clear();
        self.left.clear();
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
    // All others lead astray.
    let all = input.ops.len();
    let puts = input.ops.iter().filter(|op| matches!(op.kind, OpKind::Put(_))).count();
    S::COMMIT_BYTES.is_some()
        && all <= OPS_MAX
        && puts > 0
        && all - puts <= LEFT_MIN + all / LEFT_SHARE
        && input.ops.iter().all(alone)
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

impl<'a, C: Copy> Sheet<'a, C> {
    /// That of a page named by its place among those that a walk came to.
    #[inline]
    fn of(pages: &'a Pages<C>, walked: &[Walked], page: u32) -> Self {
        let (row, outline) = pages.outlined(walked[page as usize].link.slot);
        Self { row, outline }
    }

    #[inline(always)]
    fn entry(&self, entry: u16) -> &'a Entry {
        &self.outline.entries[usize::from(entry)]
    }
}

/// A turn of a walk over the pages of the cache.
pub(crate) struct Walk<'a, S: Scheme> {
    codec: Codec<'a, S>,
    space: Space,
    pages: &'a Pages<S::Commit>,
    /// The root page of the last commit.
    root: Option<&'a OpenPage>,
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
    /// A turn over the operations of a segment, which gets edits and commitments. `head` is the last commit's.
    pub(crate) fn new(
        (codec, space, head): (Codec<'a, S>, Space, &'a Segment<S::Commit>),
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
            root: head.pages.first(),
            ops: ops.as_slice(),
            bytes: bytes.as_slice(),
            edits,
            commits,
            desk,
            meter,
        }
    }

    /// Walks some more pages, or commits to some.
    pub(crate) fn turn(mut self) -> Edited<S::Commit> {
        match self.walk() {
            Ok(false) => Edited::Yet,
            // Without an edit of a value nothing changed, whatever was passed.
            Ok(true) if !self.desk.changed => Edited::Same,
            Ok(true) => Edited::Top(self.commits[self.edits.nodes[0].commit as usize]),
            Err(Halt::Missing) => match self.desk.missing.take() {
                Some(key) => Edited::Missing(key),
                None => unreachable!("it was noted"),
            },
            Err(Halt::Not) => Edited::Not,
        }
    }

    /// Whether the walk is done.
    fn walk(&mut self) -> Result<bool, Halt> {
        if self.edits.pages.is_empty() && self.desk.later.is_empty() && self.desk.list.is_empty() {
            self.begin();
        }
        if self.desk.up.is_none() {
            self.fill_list()?;
            self.walk_pages()?;
            let is_walked = self.desk.next == self.desk.list.len();
            if is_walked && self.ops.len() == 1 {
                if self.desk.changed {
                    self.commit_way()?;
                }
                return Ok(true);
            }
            if !is_walked || self.desk.list.is_empty() && !self.desk.later.is_empty() {
                return Ok(false);
            }
            self.desk.up = Some(self.edits.pages.len());
        }
        let is_last = self.desk.later.is_empty();
        if is_last {
            self.desk.floor = 0;
        }
        if !self.commit_upwards()? {
            return Ok(false);
        }
        self.desk.up = None;
        if is_last {
            self.desk.left.sort_unstable();
        }
        Ok(is_last)
    }

    /// Once all pages on the list are walked, puts those there that are next. Pages with more operations than fit are
    /// walked at once.
    fn fill_list(&mut self) -> Result<(), Halt> {
        if self.desk.next < self.desk.list.len() {
            return Ok(());
        }
        self.desk.list.clear();
        self.desk.next = 0;
        while let Some(&page) = self.desk.later.last()
            && page.ops.len() > OPS_AT_ONCE
            && self.edits.pages.len() < self.desk.before.0 + PAGES_A_TURN
        {
            self.walk_page(page)?;
            self.walk_ends()?;
            self.desk.later.pop();
            self.desk.later.extend(self.desk.list.drain(..).rev());
        }
        self.desk.floor = self.edits.pages.len();
        let mut ops = 0;
        while let Some(page) = self.desk.later.pop_if(|page| ops + page.ops.len() <= OPS_AT_ONCE) {
            ops += page.ops.len();
            self.desk.list.push(page);
        }
        Ok(())
    }

    /// Walks pages on the list, and commits to those with none below.
    fn walk_pages(&mut self) -> Result<(), Halt> {
        while self.desk.next < self.desk.list.len()
            && self.edits.pages.len() < self.desk.before.0 + PAGES_A_TURN
            && self.edits.nodes.len() < self.desk.before.1 + NODES_A_TURN
        {
            self.look_ahead();
            self.walk_page(self.desk.list[self.desk.next])?;
            self.desk.next += 1;
            self.gather(self.desk.beside.len().saturating_sub(BESIDE_BEHIND));
        }
        self.walk_ends()?;
        self.gather(self.desk.beside.len());
        if self.desk.left.len() > LEFT_MIN + self.ops.len() / LEFT_SHARE {
            return Err(Halt::Not);
        }
        let pages = self.desk.before.0..self.edits.pages.len();
        self.desk.before = (pages.end, self.edits.nodes.len());
        if self.ops.len() == 1 {
            // Its way is committed to at once.
            return Ok(());
        }
        for page in pages.rev() {
            if !self.edits.pages[page].waits {
                self.close(page);
            }
        }
        self.commit()
    }

    /// Commits to pages that others are below, from the last on. Whether that were all.
    fn commit_upwards(&mut self) -> Result<bool, Halt> {
        let mut up = self.desk.up.unwrap_or_default();
        while up > self.desk.floor && self.desk.closed.len() < NODES_A_TURN {
            up -= 1;
            if std::mem::take(&mut self.edits.pages[up].waits) {
                self.close(up);
            }
        }
        self.desk.up = Some(up);
        self.commit()?;
        Ok(up == self.desk.floor)
    }

    /// Notes that the nodes of a page will not change any more, each before its parent.
    fn close(&mut self, page: usize) {
        let [passed, ends] = self.edits.pages[page].nodes;
        for number in ends.range().rev().chain(passed.range().rev()) {
            let Node { parent, height, .. } = self.edits.nodes[number];
            if let Some(parent) = self.edits.nodes.get_mut(parent as usize) {
                parent.height = parent.height.max(height + 1);
            }
            self.desk.closed.push(number as u32);
        }
    }

    fn key(&self, op: u32) -> &'a [u8] {
        &self.bytes[self.ops[op as usize].key.range()]
    }

    /// A page that the walk came to.
    #[inline]
    fn sheet(&self, page: u32) -> Sheet<'a, S::Commit> {
        Sheet::of(self.pages, &self.edits.pages, page)
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
    // They name operations by their places.
    seg.edits.clear();
    let mut number = 0;
    seg.ops.retain(|_| {
        number += 1;
        desk.left.binary_search(&(number - 1)).is_err()
    });
}
