//! Values in the places of others of their length: no node comes, goes or moves, so no page is cut again, and
//! none of the machinery is needed that makes nodes.
//!
//! The operations of a batch are walked in order over the outlines of the pages in the cache (`outline.rs`). What they
//! pass is noted, branches and terminals that are to be committed to anew: where in which page a value or a commitment
//! is to stand, and which of their children changed. These are the *edits*. The rows of a batch are copies of the pages
//! with its edits (`edit/rows.rs`).
//! Operations that lead elsewhere than to a value of their key and its length are left: they are applied to the
//! edited pages, as any batch is to the last commit's.
//!
//! Invariants:
//! - a batch of which many operations are left, one that removes owners or prefixes, a page that is not as
//!   expected and a commitment of an unusual length leave no trace here, and the batch is applied as any other;
//! - a walk holds the cache for a turn, and borrows its pages; between turns it knows them by links, and ends in vain
//!   if any page went meanwhile;
//! - edits are made of the last commit's pages only, and the state that has them is only asked for its root
//!   and its rows: who reads its nodes, or stands on it, gets those that the ordinary descent makes of the
//!   same operations (`Pending::twin`);
//! - roots and rows are those of the ordinary descent (`tests/it/edited.rs`).

mod ahead;
mod commit;
mod lead;
mod rows;

use std::sync::atomic::{AtomicU32, Ordering};

use smallvec::SmallVec;

use crate::batch::{Op, OpKind};
use crate::cache::{Link, Pages};
use crate::costs::Meter;
use crate::image::Codec;
use crate::levels::Ranks;
use crate::node::{OpenPage, Segment, Span};
use crate::outline::{Entry, Outline};
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

impl<'a, C: Copy> Sheet<'a, C> {
    /// That of a page named by its place among those that a walk came to.
    #[inline]
    fn of(pages: &'a Pages<C>, walked: &[Walked], page: u32) -> Self {
        let page = pages.at(walked[page as usize].link.slot);
        Self { row: &page.row, outline: page.outline().expect("a walk came to it") }
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
    let mut number = 0;
    seg.ops.retain(|_| {
        number += 1;
        desk.left.binary_search(&(number - 1)).is_err()
    });
}
