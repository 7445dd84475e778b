//! One put, straight down: what most branches see of a batch of scattered keys.
//!
//! As long as there are stored branches to patch, each is a *step*: its children are listed, and the one that
//! the put goes on to is looked for. What is at the bottom, and is not just a value that takes another's place,
//! is left to the general frames. On the way back each step is a node; if what came of the bottom is not known
//! yet, or a child is gone, each is a frame instead.

use std::ops::Range;

use smallvec::SmallVec;

use super::patch::{Hit, Patching};
use super::{Apply, Frame, FrameKind, Outcome, Spot};
use crate::batch::{Op, OpKind};
use crate::image::{PageKind, SUM_BYTES};
use crate::node::{Change, Child, Link, Patch, Span, Was, WasAt};
use crate::open::{Halt, Opener};
use crate::scheme::{Scheme, implicit_owners};

/// A branch on the way down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    patch: Patch,
    /// The child that the put goes on to.
    slot: u32,
    /// The same among the hits.
    hit: u32,
    /// The digit at which it forks, and where it hangs.
    fork: u32,
    depth: u32,
    digit: u8,
    owned: bool,
    /// The page that was opened for its body, if one was.
    page: Option<u32>,
    was: WasAt,
}

impl<S: Scheme> Apply<'_, S> {
    /// Whether there is one operation, and it is a put.
    pub(super) fn is_put(&self, ops: &Range<usize>) -> bool {
        ops.len() == 1 && matches!(self.op(ops.start).kind, OpKind::Put(_))
    }

    /// Visits a child with a single put: the answer is as [`Apply::visit`]'s.
    pub(super) fn visit_alone(
        &mut self,
        child: Child,
        spot: Spot,
        ops: Range<usize>,
    ) -> Result<Option<Outcome>, Halt> {
        let (bottom, hits) = (self.steps.len(), self.hits.len());
        let above @ (frames, _) = (self.frames.len(), self.changes.len());
        let visited = match self.step_down(child, spot, ops.start) {
            Ok((child, spot)) => match self.overwrite(&child, spot, ops.start) {
                Some(outcome) => Ok(Some(outcome)),
                None => self.try_visit(Some(child), spot, ops.clone()),
            },
            Err(halt) => Err(halt),
        };
        match visited {
            Ok(Some(Outcome::Now(child))) => {
                let child = self.step_up(bottom, child, ops.start);
                self.hits.truncate(hits);
                Ok(Some(Outcome::Now(child)))
            }
            // A pass in which a page is missing is thrown away.
            Ok(Some(Outcome::Same)) | Err(Halt::Missing) => {
                self.steps.truncate(bottom);
                self.hits.truncate(hits);
                Ok(Some(Outcome::Same))
            }
            Ok(None) => {
                self.steps_to_frames(bottom, above, ops);
                Ok(None)
            }
            Ok(Some(Outcome::Gone)) => {
                self.steps_to_frames(bottom, above, ops);
                let mut outcome = Outcome::Gone;
                while self.frames.len() > frames {
                    outcome = self
                        .resume(Some(outcome))
                        .map_err(Halt::Failed)?
                        .expect("a frame with a single hit is done once that was visited");
                }
                Ok(Some(outcome))
            }
            Err(failed) => Err(failed),
        }
    }

    /// Goes down as long as there are branches to patch; answers the child at which that ends.
    fn step_down(
        &mut self,
        mut child: Child,
        mut spot: Spot,
        op: usize,
    ) -> Result<(Child, Spot), Halt> {
        while !child.terminal
            && let Some(below) = self.step(&child, spot, op)?
        {
            (child, spot) = below;
        }
        Ok((child, spot))
    }

    /// Takes a stored branch as a step and answers the child that the put goes on to; nothing if the branch
    /// is left to others.
    fn step(
        &mut self,
        child: &Child,
        spot: Spot,
        op: usize,
    ) -> Result<Option<(Child, Spot)>, Halt> {
        let Link::Stored { segment, page, at } = child.link else { return Ok(None) };
        let row = self.open.chain().row(segment, page);
        let Some((skip, body)) = self.open.codec.plain_branch(row, usize::from(at), spot.depth)
        else {
            return Ok(None);
        };
        let fork = skip.end();
        let differs = !skip.is_empty() && skip.common(self.key(op)) < skip.len();
        if differs || fork >= self.forks_below(op, spot) {
            return Ok(None);
        }
        let (place, range, opened) = match body {
            Some((from, to)) => ((segment, page), from..to, None),
            None => {
                let page = self.open_body(op, fork)?;
                let to = self.open.seg.pages[page as usize].row.len();
                ((self.open.here, page), SUM_BYTES + 1..to, Some(page))
            }
        };
        let (slots, groups) = (self.open.seg.slots.len(), self.open.seg.groups.len());
        let listed = self.list_stored(place, range, fork);
        let Some((patch, slot)) = self.find(listed, fork, op)? else {
            self.open.seg.slots.truncate(slots);
            self.open.seg.groups.truncate(groups);
            return Ok(None);
        };
        let was = if S::DELTAS {
            let was = Was { node: *child, owned: None, depth: spot.depth as u32 };
            self.open.seg.push_was(was)
        } else {
            None
        };
        let hit = self.hits.len() as u32;
        self.hits.push(Hit { slot, ops: (op as u32, op as u32 + 1) });
        self.steps.push(Step {
            patch,
            slot,
            hit,
            fork: fork as u32,
            depth: spot.depth as u32,
            digit: spot.digit,
            owned: spot.owned,
            page: opened,
            was,
        });
        let child = self.open.seg.kid(&patch, &self.open.seg.slots[slot as usize]);
        Ok(Some((child, Spot { depth: fork + 1, digit: child.digit, owned: spot.owned })))
    }

    /// Opens the page of the body of a branch that forks at `fork`.
    pub(super) fn open_body(&mut self, op: usize, fork: usize) -> Result<u32, Halt> {
        self.set_path(op, fork);
        self.open.page(fork, 0, PageKind::Body)
    }

    /// Branches that are patched fork above this digit: among owners nothing forks below their keys, unless
    /// a page is forged.
    pub(super) fn forks_below(&self, op: usize, spot: Spot) -> usize {
        let limit = if self.among_owners(spot) { self.owner_digits } else { usize::MAX };
        self.digits(op).min(limit)
    }

    /// The child of a listed branch that an operation goes on to, its group opened.
    fn find(
        &mut self,
        listed: Option<Patch>,
        fork: usize,
        op: usize,
    ) -> Result<Option<(Patch, u32)>, Halt> {
        let Some(mut patch) = listed else { return Ok(None) };
        let digit = self.op(op).digit(self.ops.bytes, fork, Opener::<S>::WIDTH);
        let mut slots = patch.slots.range();
        let Some(slot) = slots.find(|&slot| self.open.seg.slots[slot].digit == digit) else {
            return Ok(None);
        };
        while self.open.seg.slots[slot].is_in_unopened_group() {
            if !self.open_group_of(&mut patch, fork, slot, op)? {
                return Ok(None);
            }
        }
        Ok(Some((patch, slot as u32)))
    }

    /// Puts a value in the place of another one of a stored key, which alone is at hand, or is alone below
    /// its owner; nothing if that is not what is here.
    fn overwrite(&mut self, child: &Child, spot: Spot, op: usize) -> Option<Outcome> {
        let Link::Stored { segment, page, at } = child.link else { return None };
        if S::DELTAS || !child.terminal {
            return None;
        }
        let row = self.open.chain().row(segment, page);
        let stored = self.open.codec.inline_terminal(row, usize::from(at), spot.depth)?;
        let key = self.key(op);
        let whole = if self.among_owners(spot) { self.owner_digits } else { self.digits(op) };
        if stored.suffix.end() != whole || stored.suffix.common(key) < stored.suffix.len() {
            return None;
        }
        let Some(owned) = stored.owned() else {
            let same = self.is_put_of(&row[stored.payload], op);
            return (!self.among_owners(spot)).then(|| self.exchange(same, spot, op));
        };
        if !implicit_owners::<S>() || !stored.payload.is_empty() {
            return None;
        }
        let value = self.open.codec.inline_terminal(row, owned, whole)?;
        if value.owns
            || value.suffix.end() != self.digits(op)
            || value.suffix.common(key) < value.suffix.len()
        {
            return None;
        }
        let (same, below) =
            (self.is_put_of(&row[value.payload], op), Spot { depth: whole, digit: 0, owned: true });
        let Outcome::Now(value) = self.exchange(same, below, op) else {
            return Some(Outcome::Same);
        };
        let key = self.ops.place(self.op(op).key);
        let key = key.first(whole / Opener::<S>::WIDTH.per_byte());
        let payload = self.ops.place(Span::EMPTY);
        Some(self.make_terminal(key, spot.depth, spot.digit, payload, (Some(value), None)))
    }

    /// Whether an operation puts what is there already.
    fn is_put_of(&self, old: &[u8], op: usize) -> bool {
        matches!(self.op(op).kind, OpKind::Put(value) if self.ops.bytes[value.range()] == *old)
    }

    /// A terminal with the value that an operation puts, unless that is there already.
    fn exchange(&mut self, same: bool, spot: Spot, op: usize) -> Outcome {
        let Op { key, kind: OpKind::Put(value), .. } = self.op(op) else {
            unreachable!("it is a put")
        };
        if same {
            return Outcome::Same;
        }
        let (key, value) = (self.ops.place(key), self.ops.place(value));
        self.make_terminal(key, spot.depth, spot.digit, value, (None, None))
    }

    /// Makes the branches above a child anew, down to step `bottom`; answers the topmost.
    fn step_up(&mut self, bottom: usize, mut child: Child, op: usize) -> Child {
        let mut height = self.height(&child);
        while self.steps.len() > bottom {
            let step = self.steps.pop().expect("there is one more");
            if let Some(page) = step.page {
                self.open.seg.pages[page as usize].stale = true;
            }
            height += 1;
            let slot = step.slot as usize;
            let changes = if S::DELTAS {
                let old = self.open.seg.kid(&step.patch, &self.open.seg.slots[slot]);
                let changes = &mut self.open.seg.changes;
                changes.extend(Change::of((old.digit, Some(old)), Outcome::Now(child)));
                Span::new(changes.len() - 1, 1)
            } else {
                Span::EMPTY
            };
            self.put_changed(slot, child);
            let place = (op, step.depth, step.fork);
            child = self.make_patched(place, step.patch, height, step.digit, (step.was, changes));
        }
        child
    }

    /// Makes frames of the steps from `bottom` on, below those that were pushed since there were `at`, and
    /// `changes`.
    fn steps_to_frames(&mut self, bottom: usize, (at, changes): (usize, usize), ops: Range<usize>) {
        let frames: SmallVec<[Frame; 16]> = self.steps[bottom..]
            .iter()
            .map(|step| {
                let (from, fork) = (step.hit as usize, step.fork as usize);
                let page = step.page.map(|page| page as usize);
                let patching =
                    Patching { fork, patch: step.patch, from, next: from, height: 1, gone: false };
                Frame {
                    kind: FrameKind::Patch(patching),
                    digit: step.digit,
                    depth: step.depth as usize,
                    owned: step.owned,
                    ops: ops.clone(),
                    pages: page.map_or(0..0, |page| page..page + 1),
                    groups: SmallVec::new(),
                    existed: true,
                    changed: false,
                    was: step.was,
                    changes,
                }
            })
            .collect();
        self.steps.truncate(bottom);
        self.frames.splice(at..at, frames);
    }
}
