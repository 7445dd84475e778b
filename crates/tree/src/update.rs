//! Applying a sorted batch: one descent that makes touched nodes.
//!
//! The operations go down together. What lies in a page that is at hand is walked at once; the
//! pages below are noted, found in the cache together, and walked in turn: so pages are read level
//! by level, and none twice. On the way down nodes are noted with the children that operations go
//! on to; on the way up (`finish.rs`) they take what came of these, and the normal form is
//! restored.
//!
//! Where many operations are, those of one child at a time go down from there, a thousand or so,
//! and what they made is finished and committed to while it is in the core's cache; or other
//! threads do that, each in an arena of its own.
//!
//! Invariants:
//! - nothing older than the arena being filled changes, so a refused or discarded batch leaves no
//!   trace;
//! - a node comes behind its parent in its arena: from the last to the first all that is below a
//!   node is met before it is;
//! - the descent has no deeper stack than one page's items, however long keys are.

mod clear;
mod enter;
mod finish;
mod open;

use std::ops::Range;
use std::sync::Arc;

use spinney_hash::prefetch;

use crate::batch::{Op, OpKind, Span};
use crate::error::TreeError;
use crate::image::Codec;
use crate::levels::Levels;
use crate::node::{Arena, Chain, KeyAt, Link, Made, NONE, PageRef, Place};
use crate::page::{Handle, Within, owner_digits};
use crate::page_key::Space;
use crate::scheme::Scheme;
pub(crate) use open::{Loaded, Missing, Source};
use spinney_proof::digits::{Run, Width};

/// So many operations go down together: what they make is still in the core's cache when it is
/// committed to.
pub(crate) const OPS_TOGETHER: u32 = 1 << 10;
/// What a leaf takes, as a rule.
const LEAF_BYTES: usize = 128;
/// So many visits ahead what a touched node lists is asked for, and the index of the page that it
/// stands on.
const KIDS_AHEAD: usize = 6;
const ENTRIES_AHEAD: usize = 3;

/// What became of what was visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Same,
    Gone,
    Made(Made),
}

/// Operations side by side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ops {
    pub(crate) from: u32,
    pub(crate) end: u32,
}

impl Ops {
    pub(crate) const fn len(self) -> u32 {
        self.end - self.from
    }

    const fn range(self) -> Range<usize> {
        self.from as usize..self.end as usize
    }
}

/// Something that operations come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Visit {
    /// What is there, if anything is.
    pub(crate) link: Option<Link>,
    pub(crate) ops: Ops,
    /// The digit at which it hangs, and that at which it hung before the batch.
    pub(crate) depth: u32,
    pub(crate) hung: u32,
    /// The node whose child it is, or [`NONE`], and its place among all children, or among those
    /// visited first.
    pub(crate) parent: u32,
    pub(crate) change: u32,
    /// Its digit in its parent.
    pub(crate) digit: u8,
    /// Whether it lies below an owner.
    pub(crate) owned: bool,
}

impl Visit {
    /// The touched node that it comes to.
    const fn made(&self) -> Option<Made> {
        match self.link {
            Some(Link::Made(made)) => Some(made),
            _ => None,
        }
    }
}

/// What is known of a node that is being made.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Whether there was anything before.
    existed: bool,
    changed: bool,
    /// The digit at which it hung before, and the number of the stored item that was there, if its
    /// bytes overflowed.
    hung: u32,
    stood: u32,
    /// Whether its stored body begins with a value that was there when the batch came.
    valued: bool,
    /// The node of a batch before that it stands for.
    over: Made,
}

/// What is known of a child that is being visited.
#[derive(Clone, Copy, Debug)]
struct Visited {
    outcome: Option<Outcome>,
    /// The number of what is to move there, if nothing else came of it, or [`NONE`].
    moves: u32,
}

impl Visited {
    const fn of(outcome: Option<Outcome>) -> Self {
        Self { outcome, moves: NONE }
    }

    const fn moves(&self) -> bool {
        self.moves != NONE
    }
}

/// Something that waits for a page.
#[derive(Clone, Copy, Debug)]
struct Wait {
    what: Waiting,
    /// Where it may be in the cache.
    handle: Handle,
    /// Its place: the first bits of a path.
    path: KeyAt,
    bits: u32,
}

#[derive(Clone, Copy, Debug)]
enum Waiting {
    /// A visit that is to be tried again, when overflow rows are at hand.
    Again(Visit),
    /// A branch whose children have a page of their own.
    Body { node: u32, ops: Ops },
    /// A child in the page of a bucket: the page, and the entry there that says so, or another one
    /// of the bucket.
    BucketEntry { node: u32, above: PageRef, among: Within, member: u16, visit: Visit },
}

/// A node whose pages go: where it hung.
#[derive(Clone, Copy, Debug)]
struct Condemned {
    link: Link,
    path: KeyAt,
    hung: u32,
}

/// What a descent needs, kept from one to the next.
// Fields: one for each buffer.
#[derive(Debug)]
pub(crate) struct Workspace<S: Scheme> {
    stack: Vec<Visit>,
    /// Visits of leaves and of touched nodes, which are looked into when they have come from
    /// memory.
    ends: Vec<Visit>,
    /// What waits for pages.
    waits: Vec<Wait>,
    /// Memory for those that wait next.
    spare: Vec<Wait>,
    found: Vec<Option<Arc<crate::page::Page<S::Commit>>>>,
    /// Visits left to others, of no more operations each than the limit.
    pub(crate) later: Vec<Visit>,
    frames: Vec<Frame>,
    visited: Vec<Visited>,
    /// What moves below a fork, and from which digit.
    moves: Vec<(Link, u32)>,
    /// Stored items whose bytes overflowed.
    stood: Vec<(PageRef, u16)>,
    /// Nodes that wait on the way up.
    blocked: Vec<u32>,
    condemned: Vec<Condemned>,
    path: Vec<u8>,
    pub(crate) missing: Vec<Missing>,
    pub(crate) levels: Levels<S>,
}

impl<S: Scheme> Default for Workspace<S> {
    fn default() -> Self {
        Self {
            stack: Vec::new(),
            ends: Vec::new(),
            waits: Vec::new(),
            spare: Vec::new(),
            found: Vec::new(),
            later: Vec::new(),
            frames: Vec::new(),
            visited: Vec::new(),
            moves: Vec::new(),
            stood: Vec::new(),
            blocked: Vec::new(),
            condemned: Vec::new(),
            path: Vec::new(),
            missing: Vec::new(),
            levels: Levels::default(),
        }
    }
}

impl<S: Scheme> Workspace<S> {
    /// Gets ready for another batch.
    pub(crate) fn clear(&mut self) {
        self.stack.clear();
        self.ends.clear();
        self.waits.clear();
        self.spare.clear();
        self.found.clear();
        self.later.clear();
        self.frames.clear();
        self.visited.clear();
        self.moves.clear();
        self.stood.clear();
        self.blocked.clear();
        self.condemned.clear();
        self.missing.clear();
    }

    /// Puts a visit on the stack.
    pub(crate) fn begin(&mut self, visit: Visit) {
        self.stack.push(visit);
    }

    /// Notes what came of the visit of a child, by its place among all.
    pub(crate) fn set_outcome(&mut self, change: u32, outcome: Outcome) {
        self.visited[change as usize].outcome = Some(outcome);
    }
}

/// A batch's operations, and the arena that holds them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batched<'a> {
    pub(crate) list: &'a [Op],
    pub(crate) bytes: &'a [u8],
    pub(crate) home: u32,
}

/// A descent that fills an arena.
pub(crate) struct Update<'a, S: Scheme> {
    pub(crate) codec: Codec<'a, S>,
    pub(crate) space: Space,
    pub(crate) older: &'a [Arc<Arena<S::Commit>>],
    pub(crate) here: u32,
    pub(crate) arena: &'a mut Arena<S::Commit>,
    pub(crate) batch: Batched<'a>,
    pub(crate) source: Source<'a, S::Commit>,
    pub(crate) work: &'a mut Workspace<S>,
    /// What came of the visits at first.
    pub(crate) outcomes: &'a mut [Outcome],
    /// Visits of no more operations are left to others.
    pub(crate) limit: u32,
}

/// A run of digits: where its bytes are.
#[derive(Clone, Copy, Debug)]
struct Piece {
    place: Place,
    start: u32,
    digits: u32,
}

impl<'a, S: Scheme> Update<'a, S> {
    const WIDTH: Width = Codec::<S>::WIDTH;
    const OWNER_DIGITS: u32 = owner_digits::<S>() as u32;

    /// Goes down as far as pages are at hand; those that are not are among the missing.
    fn descend(&mut self) -> Result<(), TreeError> {
        loop {
            self.walk()?;
            if !self.work.ends.is_empty() {
                let mut ends = std::mem::take(&mut self.work.ends);
                let walked = (0..ends.len()).try_for_each(|number| {
                    let ahead = |ahead: usize| ends.get(number + ahead).and_then(Visit::made);
                    ahead(KIDS_AHEAD).into_iter().for_each(|made| self.fetch_children(made));
                    ahead(ENTRIES_AHEAD).into_iter().for_each(|made| self.fetch_entries(made));
                    self.enter(ends[number])
                });
                ends.clear();
                self.work.ends = ends;
                walked?;
                continue;
            }
            if self.work.waits.is_empty() || !self.work.missing.is_empty() {
                return Ok(());
            }
            self.open_waits()?;
        }
    }

    /// Walks what is on the stack, as far as it is at hand.
    fn walk(&mut self) -> Result<(), TreeError> {
        while let Some(visit) = self.work.stack.pop() {
            self.visit(visit)?;
        }
        Ok(())
    }

    /// Whether nothing is left to be visited.
    fn is_down(&self) -> bool {
        self.work.waits.is_empty() && self.work.stack.is_empty() && self.work.ends.is_empty()
    }

    /// Goes down. Answers whether that is done, or pages are missing.
    pub(crate) fn go_down(&mut self) -> Result<bool, TreeError> {
        self.descend()?;
        Ok(self.is_down())
    }

    /// Goes down, and finishes the nodes from a number on. Answers whether that is done, or pages
    /// are missing.
    pub(crate) fn finish_from(&mut self, from: u32) -> Result<bool, TreeError> {
        if !(self.go_down()? && self.drop_condemned()? && self.finish(from)?) {
            return Ok(false);
        }
        for outcome in 0..self.outcomes.len() {
            if let Some(resolved) = self.resolved(self.outcomes[outcome]) {
                self.outcomes[outcome] = resolved;
            }
        }
        Ok(true)
    }

    fn chain(&self) -> Chain<'_, S::Commit> {
        Chain { older: self.older, last: Some((self.here, self.arena)) }
    }

    fn op(&self, op: u32) -> &'a Op {
        &self.batch.list[op as usize]
    }

    fn key(&self, op: u32) -> &'a [u8] {
        &self.batch.bytes[self.op(op).key.range()]
    }

    fn digits(&self, op: u32) -> u32 {
        self.op(op).key.len * Self::WIDTH.per_byte() as u32
    }

    fn run(&self, piece: &Piece) -> Run<'_> {
        let bytes = self.chain().bytes(piece.place);
        Run::cut(bytes, piece.start as usize, piece.digits as usize, Self::WIDTH)
    }

    /// Where the key of an operation is.
    fn key_at(&self, op: u32) -> KeyAt {
        KeyAt::of_batch(self.batch.home, self.op(op).key)
    }

    fn place(&self, span: Span) -> Place {
        Place::of_batch(self.batch.home, span)
    }

    /// Whether leaves here are owners. Depth alone does not tell: owners that differ in their
    /// last digit hang where what they own begins.
    const fn among_owners(visit: &Visit) -> bool {
        S::LAYOUT.owner.is_some() && !visit.owned
    }

    /// How many digits from its depth on the first and the last of a visit's operations share,
    /// within their zone.
    fn shared(&self, visit: &Visit) -> u32 {
        let (first, last, depth) = (visit.ops.from, visit.ops.end - 1, visit.depth);
        let mut limit = self.digits(first).min(self.digits(last));
        if Self::among_owners(visit) {
            limit = limit.min(Self::OWNER_DIGITS);
        }
        let limit = (limit - depth) as usize;
        Self::WIDTH.common(self.key(first), self.key(last), depth as usize, limit) as u32
    }

    /// Whether all operations concern one leaf.
    fn is_lone(&self, visit: &Visit) -> bool {
        if Self::among_owners(visit) {
            self.digits(visit.ops.from) >= Self::OWNER_DIGITS
                && self.shared(visit) == Self::OWNER_DIGITS - visit.depth
        } else {
            visit.ops.len() == 1 && self.op(visit.ops.from).kind != OpKind::Clear
        }
    }

    /// Whether there is nothing but the deletion of one key.
    fn is_lone_delete(&self, ops: Ops) -> bool {
        ops.len() == 1 && self.op(ops.from).kind == OpKind::Delete
    }

    /// The stored item that was where a node is, if its bytes overflowed.
    fn stood(&self, frame: &Frame) -> Option<(PageRef, u16)> {
        self.work.stood.get(frame.stood as usize).copied()
    }

    /// What is to move to where a child is, and from which digit.
    fn moves(&self, visited: &Visited) -> Option<(Link, u32)> {
        self.work.moves.get(visited.moves as usize).copied()
    }

    /// Notes what came of a visit.
    fn settle(&mut self, visit: &Visit, outcome: Outcome) {
        match visit.parent {
            NONE => self.outcomes[visit.change as usize] = outcome,
            _ => self.work.visited[visit.change as usize].outcome = Some(outcome),
        }
    }

    /// Visits what operations come to, leaves it to others, or waits until it has come from memory.
    fn visit(&mut self, visit: Visit) -> Result<(), TreeError> {
        if visit.ops.len() <= self.limit {
            self.work.later.push(visit);
            return Ok(());
        }
        match visit.link {
            _ if self.batch.list.len() == 1 => {}
            Some(Link::Stored { page, entry }) => {
                let page = &self.arena_of(page.arena).pages[page.page as usize];
                let entry = page.entry(entry);
                if entry.kind.is_leaf() {
                    let at = usize::from(entry.at);
                    prefetch(&page.row[at..page.row.len().min(at + LEAF_BYTES)]);
                    self.work.ends.push(visit);
                    return Ok(());
                }
            }
            Some(Link::Made(made)) => {
                let node = &self.arena_of(made.arena).nodes[made.node as usize];
                prefetch(std::slice::from_ref(node));
                self.work.ends.push(visit);
                return Ok(());
            }
            None => {}
        }
        self.enter(visit)
    }

    /// Asks for what a touched node lists, and for what says where the parts of its page are.
    fn fetch_children(&self, made: Made) {
        let chain = self.chain();
        let node = chain.node(made);
        prefetch(chain.changes(made.arena, node));
        if node.base != PageRef::NOWHERE {
            prefetch(std::slice::from_ref(&**chain.page(node.base)));
        }
    }

    /// Asks for the index of the page that a touched node stands on.
    fn fetch_entries(&self, made: Made) {
        let chain = self.chain();
        let node = chain.node(made);
        if node.base != PageRef::NOWHERE {
            chain.page(node.base).fetch(node.within);
        }
    }

    fn arena_of(&self, number: u32) -> &Arena<S::Commit> {
        if number == self.here { self.arena } else { &self.older[number as usize] }
    }
}
