//! Stored branches of bits whose neighbours keep what they commit to: entered without being decoded.
//!
//! Nearly all branches that a batch meets stand as they are in a page, with all of the operations below
//! their skips: what they commit to is not asked for, only their children are listed. Where a single put goes
//! on, as it does through most of them, they are *turns*: on the way back each is a node with one child
//! exchanged, and no frame is made.

use std::ops::Range;

use super::patch::is_patched;
use super::{Apply, At, Outcome, Spot};
use crate::batch::{Op, OpKind};
use crate::node::{Child, Link, Place, Span};
use crate::open::{Children, Halt, Looked, Opener, Piece, within};
use crate::scheme::Scheme;

/// Whether branches of a scheme are entered: where they are not patched, where no change is noted and no child
/// is in a group.
pub(super) const fn is_entered<S: Scheme>() -> bool {
    !is_patched::<S>() && !S::DELTAS && S::DIGIT_BITS == 1
}

/// A branch on the way of a single put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    /// Where its children start among the old ones, and the one that the put goes on to.
    from: usize,
    to: usize,
    /// The digit at which it forks, and where it hangs.
    fork: usize,
    spot: Spot,
    /// The page that was opened for its body, if one was.
    page: Option<usize>,
}

/// A stored branch.
struct Entered {
    fork: usize,
    body: Children,
}

impl<S: Scheme> Apply<'_, S> {
    /// Goes on into a stored branch that all of the operations are below: `false` if it is another one, and
    /// then nothing has changed.
    pub(super) fn enter(
        &mut self,
        child: &Child,
        spot: Spot,
        ops: &Range<usize>,
    ) -> Result<bool, Halt> {
        let first = ops.start;
        if self.op(first).kind == OpKind::Clear {
            return Ok(false);
        }
        let Some(Entered { fork, body }) = self.find_entry(child, spot, ops) else {
            return Ok(false);
        };
        let (first_page, from) = (self.open.seg.pages.len(), self.old.len());
        self.set_path(first, fork);
        let value = self.open.children(body, fork, &mut self.old)?;
        let pages = first_page..self.open.seg.pages.len();
        let at = At { spot, ops: ops.clone(), pages, existed: true, cleared: false, was: None };
        self.push_fork(at, self.op(first).key, fork, from..self.old.len(), value)?;
        Ok(true)
    }

    /// The branch, if it is a stored one that all of the operations are below.
    fn find_entry(&self, child: &Child, spot: Spot, ops: &Range<usize>) -> Option<Entered> {
        let Link::Stored { segment, page, at } = child.link else { return None };
        let row = self.open.chain().row(segment, page);
        let (skip, body) = self.open.codec.plain_branch(row, usize::from(at), spot.depth)?;
        let (fork, digits) = (skip.end(), skip.len());
        let (first, last) = (ops.start, ops.end - 1);
        if digits > 0 {
            let same = |op: usize| skip.common(self.key(op)) == digits;
            if !same(first) || first != last && !same(last) {
                return None;
            }
        }
        let body = match body {
            Some((from, to)) => Children::Stored { segment, page, from, to },
            None => Children::Apart,
        };
        (fork < self.forks_below(first, spot)).then_some(Entered { fork, body })
    }

    /// Visits a child with a single put.
    pub(super) fn put_down(
        &mut self,
        child: Child,
        spot: Spot,
        ops: Range<usize>,
    ) -> Result<Option<Outcome>, Halt> {
        let (bottom, old, op) = (self.turns.len(), self.old.len(), ops.start);
        let outcome =
            self.turn_down(child, spot, op).and_then(|(child, spot)| self.put_at(child, spot, ops));
        if let Ok(Outcome::Now(child)) = outcome {
            return Ok(Some(Outcome::Now(self.turn_up(bottom, child, op))));
        }
        self.turns.truncate(bottom);
        self.old.truncate(old);
        outcome.map(Some)
    }

    /// Goes down as long as there are branches to enter; answers the child at which that ends.
    fn turn_down(
        &mut self,
        mut child: Child,
        mut spot: Spot,
        op: usize,
    ) -> Result<(Child, Spot), Halt> {
        // Keys of pages are read from any path that is long enough.
        self.set_path(op, self.digits(op));
        while !child.terminal
            && let Some(Entered { fork, body }) = self.find_entry(&child, spot, &(op..op + 1))
        {
            let (first_page, from) = (self.open.seg.pages.len(), self.old.len());
            let value = self.open.children(body, fork, &mut self.old)?;
            let digit = self.op(op).digit(self.ops.bytes, fork, Opener::<S>::WIDTH);
            let to = self.old[from..].iter().position(|child| child.digit == digit);
            let (Some(to), None) = (to, value) else {
                // No branch that was written is like that.
                self.old.truncate(from);
                break;
            };
            let to = from + to;
            let page = (self.open.seg.pages.len() > first_page).then_some(first_page);
            self.turns.push(Turn { from, to, fork, spot, page });
            (child, spot) = (self.old[to], Spot { depth: fork + 1, digit, owned: spot.owned });
        }
        Ok((child, spot))
    }

    /// What comes of a single put where no more branches are entered: the frame that it may take has nothing
    /// else to visit.
    fn put_at(&mut self, child: Child, spot: Spot, ops: Range<usize>) -> Result<Outcome, Halt> {
        if let Some(branch) = self.part(&child, spot, ops.start) {
            return Ok(Outcome::Now(branch));
        }
        let frames = self.frames.len();
        let mut outcome = self.try_visit(Some(child), spot, ops)?;
        while self.frames.len() > frames {
            outcome = self.resume(outcome).map_err(Halt::Failed)?;
        }
        Ok(outcome.expect("the last frame has an outcome"))
    }

    /// A branch of a stored terminal and of the one that a put makes beside it; nothing if something else is
    /// here, or the put's own key.
    fn part(&mut self, child: &Child, spot: Spot, op: usize) -> Option<Child> {
        let Link::Stored { segment, page, at } = child.link else { return None };
        let row = self.open.chain().row(segment, page);
        let there = self.open.codec.inline_terminal(row, usize::from(at), spot.depth)?;
        let (depth, digits) = (spot.depth, there.suffix.len());
        let same = there.suffix.common(self.key(op));
        let fork = depth + same;
        let Op { key, kind: OpKind::Put(value), .. } = self.op(op) else { return None };
        if there.owns || same == digits || fork >= self.digits(op) {
            return None;
        }
        let below = there.suffix.digit(same);
        let place = Place::in_page(segment, page, within(row, there.suffix.aligned()));
        let suffix = Piece { place, start: depth, digits };
        let payload = Span::new(there.payload.start, there.payload.len());
        let payload = Place::in_page(segment, page, payload);
        self.set_path_with(op, depth, &suffix);
        let (moved, looked) = (self.push_path(), Looked::Terminal { suffix, payload, owned: None });
        let was = self.open.was(child, &looked, depth);
        let from = self.old.len();
        let digit = Opener::<S>::WIDTH.digit(self.key(op), fork);
        let (key, value) = (self.ops.place(key), self.ops.place(value));
        for (key, digit, payload, was) in [(moved, below, payload, was), (key, digit, value, None)]
        {
            let made = self.make_terminal(key, fork + 1, digit, payload, (None, was));
            let Outcome::Now(child) = made else { unreachable!("a terminal is made") };
            self.old.push(child);
        }
        self.old[from..].sort_unstable_by_key(|child| child.digit);
        let path = key.first(fork.div_ceil(Opener::<S>::WIDTH.per_byte()));
        Some(self.make_branch((path, depth, fork), from, None, spot.digit, None))
    }

    /// Makes the branches above a child anew, down to turn `bottom`; answers the topmost.
    fn turn_up(&mut self, bottom: usize, mut child: Child, op: usize) -> Child {
        let key = self.ops.place(self.op(op).key);
        while self.turns.len() > bottom {
            let Turn { from, to, fork, spot, page } = self.turns.pop().expect("there is one more");
            if let Some(page) = page {
                self.open.seg.pages[page].stale = true;
            }
            self.old[to] = Child { digit: self.old[to].digit, ..child };
            let path = key.first(fork.div_ceil(Opener::<S>::WIDTH.per_byte()));
            child = self.make_branch((path, spot.depth, fork), from, None, spot.digit, None);
        }
        child
    }
}
