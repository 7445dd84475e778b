//! Applying a sorted batch: one descent that makes new nodes beside the old ones.
//!
//! The descent is a machine with an explicit stack of frames, one a branch (or owner) on the way down,
//! so a chain of 8,192 keys needs no deep stack. A frame hands each child its share of the operations
//! and collects the children that come back; when it is done it restores the normal form.
//!
//! Invariants:
//! - nothing older than the segment being filled changes, so a refused or discarded batch leaves no trace;
//! - a subtree in which nothing changes comes back as it was: [`Outcome::Same`];
//! - a page on the way that the caller cannot give at once is put on a list, and the descent goes on
//!   elsewhere; the caller reads the whole list in one call and starts over: pages are read level by level;
//! - a branch left with one child takes that child's place: the child is made anew at its new depth.

mod down;
mod lone;
mod patch;
mod settle;

use std::ops::Range;

use smallvec::SmallVec;

use crate::batch::{Op, OpKind};
use crate::error::TreeError;
use crate::node::{Change, Child, Link, Place, Span, WasAt};
use crate::open::{Children, Halt, Looked, Opener, Piece};
use crate::scheme::{Scheme, implicit_owners};
use crate::split::Tasks;
use down::Turn;
use lone::Step;
use patch::{Hit, Patching, is_patched};

/// What became of a child.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome {
    Same,
    Gone,
    Now(Child),
}

impl Change {
    /// What became of the child at a digit; nothing if it did not change.
    fn of((digit, old): (u8, Option<Child>), outcome: Outcome) -> Option<Self> {
        let new = match outcome {
            Outcome::Same => return None,
            Outcome::Gone => None,
            Outcome::Now(child) => Some(child),
        };
        Some(Self { digit, old, new })
    }
}

/// A branch, or an owner, whose children are being visited.
#[derive(Debug)]
struct Frame {
    kind: FrameKind,
    digit: u8,
    depth: usize,
    /// Whether it lies below an owner.
    owned: bool,
    ops: Range<usize>,
    /// The pages opened to look into the node.
    pages: Range<usize>,
    /// The groups opened since.
    groups: SmallVec<[u32; 4]>,
    /// Whether there was anything here before.
    existed: bool,
    changed: bool,
    /// What was here, where the scheme follows differences.
    was: WasAt,
    /// Where the frame's changes start.
    changes: usize,
}

#[derive(Debug)]
enum FrameKind {
    Fork {
        /// The key of an operation, whose first `fork` digits are the path of the fork.
        path: Span,
        fork: usize,
        /// Where this frame's old children start.
        base: usize,
        /// The old children not visited yet.
        old: Range<usize>,
        /// Where this frame's new children start.
        out: usize,
        value: Option<Place>,
    },
    Owner {
        key: Place,
        payload: Place,
        owned: Option<Child>,
    },
    /// A branch in a page that keeps all of its children.
    Patch(Patching),
}

/// The operations of a batch, sorted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ops<'a> {
    pub(crate) list: &'a [Op],
    /// Their keys and values, and the segment that holds them.
    pub(crate) bytes: &'a [u8],
    pub(crate) home: u32,
}

impl Ops<'_> {
    fn place(&self, span: Span) -> Place {
        Place::in_segment(self.home, span)
    }
}

/// The stacks of a descent, kept from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Stacks {
    frames: Vec<Frame>,
    old: Vec<Child>,
    out: Vec<Child>,
    /// The children of a group.
    opened: Vec<Child>,
    changes: Vec<Change>,
    hits: Vec<Hit>,
    steps: Vec<Step>,
    turns: Vec<Turn>,
    path: Vec<u8>,
}

impl Stacks {
    fn clear(&mut self) {
        self.frames.clear();
        self.old.clear();
        self.out.clear();
        self.opened.clear();
        self.changes.clear();
        self.hits.clear();
        self.steps.clear();
        self.turns.clear();
        self.path.clear();
    }
}

/// Applies operations to a tree.
pub(crate) struct Apply<'a, S: Scheme> {
    pub(crate) open: Opener<'a, S>,
    pub(crate) ops: Ops<'a>,
    /// Ranges of operations that others apply.
    pub(crate) tasks: &'a mut Tasks,
    frames: Vec<Frame>,
    old: Vec<Child>,
    out: Vec<Child>,
    opened: Vec<Child>,
    changes: Vec<Change>,
    hits: Vec<Hit>,
    steps: Vec<Step>,
    turns: Vec<Turn>,
    owner_digits: usize,
}

/// Where a descent starts, and which operations it applies.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) old: Option<Child>,
    pub(crate) spot: Spot,
    pub(crate) ops: Range<usize>,
}

impl<'a, S: Scheme> Apply<'a, S> {
    /// Applies the operations of `start`. Answers what became of the child that was there; the keys of
    /// pages that are missing are left in `missing`: if there are any, the answer is of no use and the
    /// segment is to be cleared.
    pub(crate) fn run(
        mut open: Opener<'a, S>,
        ops: Ops<'a>,
        start: Start,
        (tasks, stacks): (&'a mut Tasks, &mut Stacks),
        missing: &mut Vec<crate::page_key::PageKey>,
    ) -> Result<Outcome, TreeError> {
        stacks.clear();
        let Stacks { frames, old, out, opened, changes, hits, steps, turns, path } =
            std::mem::take(stacks);
        open.path = path;
        open.missing = std::mem::take(missing);
        let owner_digits = S::OWNER.map_or(0, |o| o.bytes * Opener::<S>::WIDTH.per_byte());
        let mut apply = Self {
            open,
            ops,
            tasks,
            frames,
            old,
            out,
            opened,
            changes,
            hits,
            steps,
            turns,
            owner_digits,
        };
        let outcome = apply.descend(start);
        *missing = std::mem::take(&mut apply.open.missing);
        let Self { open: Opener { path, .. }, frames, old, out, opened, changes, .. } = apply;
        let (hits, steps, turns) = (apply.hits, apply.steps, apply.turns);
        *stacks = Stacks { frames, old, out, opened, changes, hits, steps, turns, path };
        outcome
    }

    fn descend(&mut self, start: Start) -> Result<Outcome, TreeError> {
        let mut outcome = self.visit(start.old, start.spot, start.ops)?;
        while !self.frames.is_empty() {
            outcome = self.resume(outcome)?;
        }
        debug_assert!(self.out.is_empty());
        Ok(outcome.expect("the last frame has an outcome"))
    }

    fn op(&self, op: usize) -> Op {
        self.ops.list[op]
    }

    pub(crate) fn key(&self, op: usize) -> &'a [u8] {
        &self.ops.bytes[self.ops.list[op].key.range()]
    }

    fn digits(&self, op: usize) -> usize {
        self.op(op).key.len as usize * Opener::<S>::WIDTH.per_byte()
    }

    /// How many digits from `depth` on the first and the last of `ops` share, within their zone.
    fn shared(&self, ops: &Range<usize>, spot: Spot) -> usize {
        let (first, last) = (ops.start, ops.end - 1);
        let depth = spot.depth;
        let mut limit = self.digits(first).min(self.digits(last));
        if self.among_owners(spot) {
            limit = limit.min(self.owner_digits);
        }
        let width = Opener::<S>::WIDTH;
        width.common(self.key(first), self.key(last), depth, limit - depth)
    }

    /// Whether terminals here are owners. Depth alone does not tell: owners that differ in their last
    /// digit hang where what they own begins.
    const fn among_owners(&self, spot: Spot) -> bool {
        S::OWNER.is_some() && !spot.owned
    }

    /// Whether all of `ops` concern one terminal.
    fn lone(&self, ops: &Range<usize>, spot: Spot) -> bool {
        if self.among_owners(spot) {
            self.digits(ops.start) >= self.owner_digits
                && self.shared(ops, spot) == self.owner_digits - spot.depth
        } else {
            ops.len() == 1 && self.op(ops.start).kind != OpKind::Clear
        }
    }

    /// Visits what is at `depth` under the path of the operations: either answers at once, or pushes a
    /// frame whose outcome is to come.
    fn visit(
        &mut self,
        old: Option<Child>,
        spot: Spot,
        ops: Range<usize>,
    ) -> Result<Option<Outcome>, TreeError> {
        if let Some(outcome) = self.tasks.meet(&old, spot, &ops) {
            return Ok(Some(outcome));
        }
        let answer = match old {
            Some(child) if is_patched::<S>() && self.is_put(&ops) => {
                self.visit_alone(child, spot, ops)
            }
            // What was made has frames: a chain of it would take as deep a stack.
            Some(child)
                if down::is_entered::<S>()
                    && matches!(child.link, Link::Stored { .. })
                    && self.is_put(&ops) =>
            {
                self.put_down(child, spot, ops)
            }
            _ => self.try_visit(old, spot, ops),
        };
        match answer {
            Ok(outcome) => Ok(outcome),
            // The page is on the list; what comes of this pass is thrown away.
            Err(Halt::Missing) => Ok(Some(Outcome::Same)),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    fn try_visit(
        &mut self,
        old: Option<Child>,
        spot: Spot,
        mut ops: Range<usize>,
    ) -> Result<Option<Outcome>, Halt> {
        if let Some(child) = &old
            && down::is_entered::<S>()
            && self.enter(child, spot, &ops)?
        {
            return Ok(None);
        }
        let depth = spot.depth;
        let existed = old.is_some();
        let first_page = self.open.seg.pages.len();
        let mut looked = None;
        if let Some(child) = old {
            self.set_path(ops.start, depth);
            looked = Some((child, self.open.look(&child, depth)?));
        }
        while !ops.is_empty() && self.op(ops.start).kind == OpKind::Clear {
            if let Some((child, node)) = looked {
                match self.reach(&node, ops.start, spot) {
                    Reach::Covers => {
                        self.drop_child(&child, depth, ops.start)?;
                        self.retire(first_page..self.open.seg.pages.len());
                        looked = None;
                    }
                    Reach::Misses => {}
                    Reach::Below => break,
                }
            }
            ops.start += 1;
        }
        if ops.is_empty() {
            let gone = existed && looked.is_none();
            return Ok(Some(if gone { Outcome::Gone } else { Outcome::Same }));
        }
        let pages = first_page..self.open.seg.pages.len();
        let cleared = existed && looked.is_none();
        let was = looked.and_then(|(child, node)| self.open.was(&child, &node, spot.depth));
        let at = At { spot, ops, pages, existed, cleared, was };
        match looked {
            None => self.build(at),
            Some((_, Looked::Terminal { suffix, payload, owned })) => {
                self.visit_terminal(at, suffix, payload, owned)
            }
            Some((_, Looked::Branch { skip, body })) => self.visit_branch(at, skip, body),
        }
    }

    /// Makes the path of an operation, up to `depth`, the current one.
    pub(crate) fn set_path(&mut self, op: usize, depth: usize) {
        let whole = depth.div_ceil(Opener::<S>::WIDTH.per_byte());
        let key = &self.key(op)[..whole];
        self.open.path.clear();
        self.open.path.extend_from_slice(key);
    }

    /// Makes the path of an operation, up to `depth`, and a piece that follows it the current one.
    fn set_path_with(&mut self, op: usize, depth: usize, piece: &Piece) {
        self.set_path(op, depth);
        self.extend_path(depth, piece);
    }

    /// Continues the current path, of `depth` digits, with a piece.
    pub(crate) fn extend_path(&mut self, depth: usize, piece: &Piece) {
        let mut path = std::mem::take(&mut self.open.path);
        Opener::<S>::WIDTH.truncate(&mut path, depth);
        self.open.run(piece).extend(&mut path, 0);
        self.open.path = path;
    }

    /// What a prefix deletion does to a node.
    fn reach(&self, node: &Looked, op: usize, spot: Spot) -> Reach {
        let (piece, branch) = match node {
            Looked::Terminal { suffix, .. } => (suffix, false),
            Looked::Branch { skip, .. } => (skip, true),
        };
        let same = self.open.run(piece).common(self.key(op));
        if spot.depth + same >= self.digits(op) {
            Reach::Covers
        } else if same < piece.digits {
            Reach::Misses
        } else if branch || self.among_owners(spot) {
            Reach::Below
        } else {
            Reach::Misses
        }
    }

    /// Nothing is here yet.
    fn build(&mut self, at: At) -> Result<Option<Outcome>, Halt> {
        let nothing = if at.existed { Outcome::Gone } else { Outcome::Same };
        if self.lone(&at.ops, at.spot) {
            if self.among_owners(at.spot) {
                return self.visit_owner(None, at);
            }
            let op = self.op(at.ops.start);
            let OpKind::Put(value) = op.kind else { return Ok(Some(nothing)) };
            let payload = self.ops.place(value);
            return Ok(Some(self.make_terminal(
                self.ops.place(op.key),
                at.spot.depth,
                at.spot.digit,
                payload,
                (None, None),
            )));
        }
        let fork = at.spot.depth + self.shared(&at.ops, at.spot);
        let path = self.op(at.ops.start).key;
        let old = self.old.len()..self.old.len();
        self.push_fork(at, path, fork, old, None)
    }

    fn visit_terminal(
        &mut self,
        mut at: At,
        suffix: Piece,
        payload: Place,
        owned: Option<Child>,
    ) -> Result<Option<Outcome>, Halt> {
        let end = at.spot.depth + suffix.digits;
        let zoned = self.among_owners(at.spot);
        let run = self.open.run(&suffix);
        let same = run.common(self.key(at.ops.start)).min(run.common(self.key(at.ops.end - 1)));
        if self.lone(&at.ops, at.spot) && same == suffix.digits {
            if zoned {
                return self.visit_owner(Some((payload, owned)), at);
            }
            if self.digits(at.ops.start) == end {
                return Ok(Some(self.replace(&at, payload)));
            }
        }
        if same < suffix.digits && self.lone_delete(&at.ops) {
            return Ok(Some(Outcome::Same));
        }
        // The terminal moves below a new fork.
        let fork = at.spot.depth + same.min(self.shared(&at.ops, at.spot));
        let path = self.op(at.ops.start).key;
        let from = self.old.len();
        let mut value = None;
        if end == fork {
            value = Some(payload);
        } else {
            self.set_path_with(at.ops.start, at.spot.depth, &suffix);
            let key = self.push_path();
            let below = suffix_digit(&self.open, &suffix, fork - at.spot.depth);
            let owned = (owned, at.was.take());
            let Outcome::Now(carried) = self.make_terminal(key, fork + 1, below, payload, owned)
            else {
                unreachable!("a terminal is made")
            };
            self.old.push(carried);
        }
        self.push_fork(at, path, fork, from..self.old.len(), value)
    }

    fn visit_branch(
        &mut self,
        mut at: At,
        skip: Piece,
        mut body: Children,
    ) -> Result<Option<Outcome>, Halt> {
        let run = self.open.run(&skip);
        let same = run.common(self.key(at.ops.start)).min(run.common(self.key(at.ops.end - 1)));
        let end = at.spot.depth + skip.digits;
        if same < skip.digits && self.lone_delete(&at.ops) {
            return Ok(Some(Outcome::Same));
        }
        if is_patched::<S>() && same == skip.digits && self.patch(&mut at, end, &mut body)? {
            return Ok(None);
        }
        // All of the branch's children are needed: to commit to it anew, or to hand on.
        self.set_path_with(at.ops.start, at.spot.depth, &skip);
        let from = self.old.len();
        let mut children = std::mem::take(&mut self.old);
        let value = self.open.children(body, end, &mut children);
        self.old = children;
        let value = value?;
        at.pages.end = self.open.seg.pages.len();
        let path = self.op(at.ops.start).key;
        if same == skip.digits {
            return self.push_fork(at, path, end, from..self.old.len(), value);
        }
        // The branch moves below a new fork in its skip.
        let fork = at.spot.depth + same;
        let below = suffix_digit(&self.open, &skip, same);
        self.set_path_with(at.ops.start, at.spot.depth, &skip);
        let lower_path = self.push_path();
        let was = at.was.take();
        let lower = self.make_branch((lower_path, fork + 1, end), from, value, below, was);
        self.old.push(lower);
        self.push_fork(at, path, fork, from..self.old.len(), None)
    }

    /// Whether there is nothing but the deletion of one key.
    fn lone_delete(&self, ops: &Range<usize>) -> bool {
        ops.len() == 1 && self.op(ops.start).kind == OpKind::Delete
    }

    /// The current path as bytes of the segment.
    fn push_path(&mut self) -> Place {
        let span = self.open.seg.push_bytes(&self.open.path);
        Place::in_segment(self.open.here, span)
    }

    /// The one key of a terminal that owns nothing.
    fn replace(&mut self, at: &At, payload: Place) -> Outcome {
        let op = self.op(at.ops.start);
        let outcome = match op.kind {
            OpKind::Put(value) => {
                if self.ops.bytes[value.range()] == *self.open.chain().bytes(payload) {
                    return Outcome::Same;
                }
                let (key, value) = (self.ops.place(op.key), self.ops.place(value));
                self.make_terminal(key, at.spot.depth, at.spot.digit, value, (None, None))
            }
            OpKind::Delete => Outcome::Gone,
            OpKind::Clear => unreachable!("prefix deletions come first"),
        };
        self.retire(at.pages.clone());
        outcome
    }

    /// An owner, and what it owns.
    fn visit_owner(
        &mut self,
        old: Option<(Place, Option<Child>)>,
        mut at: At,
    ) -> Result<Option<Outcome>, Halt> {
        let owner_op = at.ops.start;
        let first = self.op(owner_op);
        let owner_bytes = self.owner_digits / Opener::<S>::WIDTH.per_byte();
        let key = self.ops.place(first.key).first(owner_bytes);
        let mut payload = old.map(|old| old.0);
        if implicit_owners::<S>() {
            let put = |op: usize| matches!(self.op(op).kind, OpKind::Put(_));
            if old.is_none() && at.ops.clone().any(put) {
                payload = Some(self.ops.place(Span::EMPTY));
            }
        }
        let mut changed = false;
        if first.key.len as usize == owner_bytes && first.kind != OpKind::Clear {
            at.ops.start += 1;
            match first.kind {
                OpKind::Put(value) => {
                    changed = self.differs(payload, value);
                    payload = if changed { Some(self.ops.place(value)) } else { payload };
                }
                _ => payload = None,
            }
        }
        let Some(payload) = payload else {
            let put = |op: &usize| matches!(self.op(*op).kind, OpKind::Put(_));
            if let Some(op) = at.ops.clone().find(put) {
                let key = self.key(op).to_vec();
                return Err(TreeError::Ownerless { key, owner_bytes }.into());
            }
            if let Some((_, owned)) = old {
                self.retire(at.pages);
                if owned.is_some() {
                    // Owners' keys are short enough for a range.
                    self.drop_below(owner_op, owner_bytes * 8);
                }
            }
            return Ok(Some(if at.existed { Outcome::Gone } else { Outcome::Same }));
        };
        let owned = old.and_then(|old| old.1);
        let ops = at.ops.clone();
        let frame = Frame {
            kind: FrameKind::Owner { key, payload, owned },
            digit: at.spot.digit,
            depth: at.spot.depth,
            owned: at.spot.owned,
            ops: at.ops,
            pages: at.pages,
            groups: SmallVec::new(),
            existed: at.existed,
            changed: changed || old.is_none(),
            was: at.was,
            changes: self.changes.len(),
        };
        if ops.is_empty() {
            return Ok(Some(self.finish_owner(frame, Outcome::Same)));
        }
        let below = Spot { depth: self.owner_digits, digit: 0, owned: true };
        // Owners do not nest, so neither does this call.
        self.frames.push(frame);
        let Some(outcome) = self.visit(owned, below, ops)? else { return Ok(None) };
        let frame = self.frames.pop().expect("the owner's frame was just pushed");
        Ok(Some(self.finish_owner(frame, outcome)))
    }

    /// Whether a value that is put is not what is there.
    fn differs(&self, old: Option<Place>, new: Span) -> bool {
        old.is_none_or(|old| *self.open.chain().bytes(old) != self.ops.bytes[new.range()])
    }

    fn push_fork(
        &mut self,
        at: At,
        path: Span,
        fork: usize,
        old: Range<usize>,
        mut value: Option<Place>,
    ) -> Result<Option<Outcome>, Halt> {
        let mut ops = at.ops;
        let mut changed = at.cleared;
        if self.digits(ops.start) == fork {
            let op = self.op(ops.start);
            ops.start += 1;
            match op.kind {
                OpKind::Put(new) => {
                    let differs = self.differs(value, new);
                    changed |= differs;
                    value = if differs { Some(self.ops.place(new)) } else { value };
                }
                _ => {
                    changed |= value.is_some();
                    value = None;
                }
            }
        }
        let (base, out) = (old.start, self.out.len());
        self.frames.push(Frame {
            kind: FrameKind::Fork { path, fork, base, old, out, value },
            digit: at.spot.digit,
            depth: at.spot.depth,
            owned: at.spot.owned,
            ops,
            pages: at.pages,
            groups: SmallVec::new(),
            existed: at.existed,
            changed,
            was: at.was,
            changes: self.changes.len(),
        });
        Ok(None)
    }

    /// Starts the frame on top of the stack, or takes its child's outcome into it, and goes on. The answer is
    /// the frame's own outcome, or nothing if it stays on the stack, below one that is to be resumed first.
    fn resume(&mut self, outcome: Option<Outcome>) -> Result<Option<Outcome>, TreeError> {
        let top = self.frames.len() - 1;
        if let FrameKind::Fork { .. } = self.frames[top].kind {
            if let Some(outcome) = outcome {
                self.take(top, outcome);
            }
            return self.advance(top);
        }
        let mut frame = self.frames.pop().expect("there is one on top");
        match (&frame.kind, outcome) {
            (FrameKind::Owner { .. }, Some(outcome)) => Ok(Some(self.finish_owner(frame, outcome))),
            (FrameKind::Owner { .. }, None) => unreachable!("an owner waits for what it owns"),
            (_, Some(outcome)) => {
                self.take_hit(&mut frame, outcome);
                self.advance_hits(frame)
            }
            (_, None) => self.advance_hits(frame),
        }
    }

    /// Puts a visited child among the new ones of frame `top`. The visited child is the next old one, if its
    /// digit is that of the operations just done.
    fn take(&mut self, top: usize, outcome: Outcome) {
        let frame = &mut self.frames[top];
        let FrameKind::Fork { fork, ref mut old, .. } = frame.kind else {
            unreachable!("only forks have digits")
        };
        let Ops { list, bytes, .. } = self.ops;
        let digit = list[frame.ops.start - 1].digit(bytes, fork, Opener::<S>::WIDTH);
        let was =
            self.old.get(old.start).copied().filter(|c| old.start < old.end && c.digit == digit);
        if was.is_some() {
            old.start += 1;
        }
        if S::DELTAS && frame.was.is_some() {
            self.changes.extend(Change::of((digit, was), outcome));
        }
        match outcome {
            Outcome::Same => self.out.extend(was),
            Outcome::Gone => frame.changed = true,
            Outcome::Now(child) => {
                frame.changed = true;
                self.out.push(Child { digit, ..child });
            }
        }
    }

    /// Visits the children of frame `top`, the last one, that operations concern, until one of them needs a
    /// frame of its own.
    fn advance(&mut self, top: usize) -> Result<Option<Outcome>, TreeError> {
        'child: loop {
            let frame = &mut self.frames[top];
            let FrameKind::Fork { path, fork, ref mut old, out, .. } = frame.kind else {
                unreachable!("only forks advance")
            };
            if frame.ops.is_empty() {
                self.out.extend_from_slice(&self.old[old.clone()]);
                old.start = old.end;
                let frame = self.frames.pop().expect("it is on top");
                return self.finish_fork(frame).map(Some);
            }
            let first = frame.ops.start;
            let digit = self.ops.list[first].digit(self.ops.bytes, fork, Opener::<S>::WIDTH);
            while old.start < old.end && self.old[old.start].digit < digit {
                self.out.push(self.old[old.start]);
                old.start += 1;
            }
            frame.ops.start = share_end::<S>(self.ops, &frame.ops, (fork, digit));
            let (share, old, owned) = (first..frame.ops.start, old.clone(), frame.owned);
            // A child in a group, and a new one that belongs into a group, need all of its children.
            while let Some((digit, bits)) =
                group_of::<S>(&self.out[out..], &self.old[old.clone()], digit)
            {
                match self.open_group(path, fork, digit, bits, (out, old.clone())) {
                    Ok(()) => {
                        self.frames[top].groups.push(self.open.seg.pages.len() as u32 - 1);
                    }
                    Err(Halt::Missing) => continue 'child,
                    Err(Halt::Failed(error)) => return Err(error),
                }
            }
            let next = self.old[old].first().copied();
            let child = next.filter(|child| child.digit == digit);
            // The frame waits on the stack while its child is visited.
            let Some(outcome) = self.visit(child, Spot { depth: fork + 1, digit, owned }, share)?
            else {
                return Ok(None);
            };
            self.take(top, outcome);
        }
    }

    /// Makes the first `digits` digits of an operation's key the current path.
    pub(crate) fn compose(&mut self, key: Span, digits: usize) {
        let bytes = digits.div_ceil(Opener::<S>::WIDTH.per_byte());
        let from = key.at as usize;
        self.open.path.clear();
        self.open.path.extend_from_slice(&self.ops.bytes[from..from + bytes]);
    }

    /// Opens a group and points all of its children, visited already or not, to where they are.
    fn open_group(
        &mut self,
        path: Span,
        fork: usize,
        digit: u8,
        bits: u8,
        (out, old): (usize, Range<usize>),
    ) -> Result<(), Halt> {
        self.compose(path, fork);
        self.opened.clear();
        self.open.group(fork, digit, bits, &mut self.opened)?;
        let mut found = 0;
        for child in self.out[out..].iter_mut().chain(&mut self.old[old]) {
            if !matches!(child.link, Link::Group { bits: b, .. } if b == bits) {
                continue;
            }
            let Ok(at) = self.opened.binary_search_by_key(&child.digit, |c| c.digit) else {
                continue;
            };
            let opened = self.opened[at];
            if opened.terminal != child.terminal {
                continue;
            }
            child.commit = if child.terminal && !S::DELTAS && opened.commit == Child::NOWHERE {
                // Its own item does not carry what the group's says of it.
                let (codec, here) = (self.open.codec, self.open.here);
                let commit = self.open.chain().commit(codec, here, child);
                self.open.seg.push_commit(commit)
            } else {
                opened.commit
            };
            child.link = opened.link;
            found += 1;
        }
        if found == self.opened.len() {
            return Ok(());
        }
        let page = self.open.seg.pages.len() as u32 - 1;
        let here = self.open.here;
        Err(self
            .open
            .corrupt_page(here, page, "its children are not those its parent names")
            .into())
    }
}

/// Where a node hangs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub(crate) depth: usize,
    /// Its digit in its parent.
    pub(crate) digit: u8,
    /// Whether it lies below an owner.
    pub(crate) owned: bool,
}

/// What a visit is about.
#[derive(Debug)]
struct At {
    spot: Spot,
    ops: Range<usize>,
    pages: Range<usize>,
    /// Whether there was anything here before.
    existed: bool,
    /// Whether a prefix deletion of the same batch removed it.
    cleared: bool,
    was: WasAt,
}

/// How far a prefix deletion reaches.
enum Reach {
    Covers,
    Misses,
    Below,
}

/// Where the operations end that have `digit` at the fork. Shares are small as a rule, so the search
/// gallops from the front.
fn share_end<S: Scheme>(
    Ops { list: all, bytes, .. }: Ops<'_>,
    ops: &Range<usize>,
    (fork, digit): (usize, u8),
) -> usize {
    let same = |op: &Op| op.digit(bytes, fork, Opener::<S>::WIDTH) == digit;
    let (mut low, mut step) = (ops.start + 1, 1);
    while low + step <= ops.end && same(&all[low + step - 1]) {
        low += step;
        step *= 2;
    }
    low + all[low..ops.end.min(low + step)].partition_point(same)
}

/// The group, not opened yet, that a digit belongs to: one of its children, and its bits. Children of a
/// group are neighbours, so it shows on one side of the digit or the other.
fn group_of<S: Scheme>(before: &[Child], after: &[Child], digit: u8) -> Option<(u8, u8)> {
    if S::DIGIT_BITS == 1 {
        return None;
    }
    before.last().into_iter().chain(after.first()).find_map(|child| match child.link {
        Link::Group { bits, .. } => {
            let rest = S::DIGIT_BITS - bits;
            (child.digit >> rest == digit >> rest).then_some((child.digit, bits))
        }
        _ => None,
    })
}

fn suffix_digit<S: Scheme>(open: &Opener<'_, S>, piece: &Piece, index: usize) -> u8 {
    open.run(piece).digit(index)
}
