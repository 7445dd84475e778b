//! Branches in pages that keep all of their children, some of them changed: the usual case by far.
//!
//! Such a branch is made anew as a *patch*: what its page says of its children, a slot each, and those that
//! changed. Nothing is copied, and when it is written, its bytes are the old ones with those of the changed
//! children laid over them. What patches are not for (a child that comes, a value at the fork, a group
//! within a group that says what its members commit to, a terminal that overflowed, bodies that no page
//! has) is left to the general frames, and a branch that turns out to lose a child is handed over to them.

use std::ops::Range;

use smallvec::SmallVec;

use super::{Apply, At, Frame, FrameKind, Outcome, Spot, share_end};
use crate::error::TreeError;
use crate::image::{
    Codec, MEMBER_COMMIT_AT, PAGE_BYTES_MAX, PageKind, SUM_BYTES, Skimmed, is_overflowed,
};
use crate::node::{
    Body, Branch, Change, Child, Kids, Link, Patch, Segment, Slot, SlotState, Span, WasAt,
};
use crate::open::{Children, Halt, Opener};
use crate::page_key::PageKey;
use crate::scheme::Scheme;

/// How many children are looked ahead at.
const HITS_AHEAD: usize = 8;

/// Whether branches of a scheme are patched: not where pages keep what every terminal commits to.
pub(super) const fn is_patched<S: Scheme>() -> bool {
    !S::KEEP_TERMINALS
}

/// Whether a terminal with this tag is one that patches are for: its bytes did not overflow, and what it
/// commits to is in no other place than any item's.
fn plain<S: Scheme>(tag: u8, carries: bool) -> bool {
    if S::DELTAS { !is_overflowed(tag) } else { !carries }
}

/// A branch whose changed children are being visited.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patching {
    pub(super) fork: usize,
    pub(super) patch: Patch,
    /// Where its hits start, and the one that is visited.
    pub(super) from: usize,
    pub(super) next: usize,
    /// The height of the tallest child made anew, and 1.
    pub(super) height: u32,
    /// Whether a child is gone.
    pub(super) gone: bool,
}

/// A child that operations concern.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub(super) slot: u32,
    pub(super) ops: (u32, u32),
}

impl<S: Scheme> Apply<'_, S> {
    /// Starts to patch the branch of `at`, if it is one to be patched: `false` if it is not, and then
    /// nothing has changed but that the page of its body may be open.
    pub(super) fn patch(
        &mut self,
        at: &mut At,
        fork: usize,
        body: &mut Children,
    ) -> Result<bool, Halt> {
        if fork >= self.forks_below(at.ops.start, at.spot) {
            return Ok(false);
        }
        if let Children::Apart = *body {
            let page = self.open_body(at.ops.start, fork)?;
            let to = self.open.seg.pages[page as usize].row.len();
            *body = Children::Stored { segment: self.open.here, page, from: SUM_BYTES + 1, to };
            at.pages.end = self.open.seg.pages.len();
        }
        let (slots, groups, hits) =
            (self.open.seg.slots.len(), self.open.seg.groups.len(), self.hits.len());
        let halt = match self.list(*body, fork) {
            Some(patch) if self.hit(&at.ops, fork, slots) => {
                match self.open_groups(patch, fork, hits) {
                    Ok(Some(patch)) => {
                        self.push_patch(at, fork, patch, hits);
                        return Ok(true);
                    }
                    Ok(None) => None,
                    Err(halt) => Some(halt),
                }
            }
            _ => None,
        };
        self.open.seg.slots.truncate(slots);
        self.open.seg.groups.truncate(groups);
        self.hits.truncate(hits);
        halt.map_or(Ok(false), Err)
    }

    fn push_patch(&mut self, at: &mut At, fork: usize, patch: Patch, from: usize) {
        let kind = Patching { fork, patch, from, next: from, height: 1, gone: false };
        self.frames.push(Frame {
            kind: FrameKind::Patch(kind),
            digit: at.spot.digit,
            depth: at.spot.depth,
            owned: at.spot.owned,
            ops: at.ops.clone(),
            pages: at.pages.clone(),
            groups: SmallVec::new(),
            existed: at.existed,
            changed: at.cleared,
            was: at.was,
            changes: self.changes.len(),
        });
    }

    /// Lists the children of a branch as slots; nothing if it is not one to be patched, or not sound.
    fn list(&mut self, body: Children, fork: usize) -> Option<Patch> {
        match body {
            Children::Stored { segment, page, from, to } => {
                self.list_stored((segment, page), from..to, fork)
            }
            Children::Made { segment, node } => self.list_made(segment, node),
            Children::Apart => unreachable!("its page was opened"),
        }
    }

    pub(super) fn list_stored(
        &mut self,
        (segment, page): (u32, u32),
        range: Range<usize>,
        fork: usize,
    ) -> Option<Patch> {
        let (codec, older, here) = (self.open.codec, self.open.older, self.open.here);
        let Segment { pages, slots, groups, .. } = &mut *self.open.seg;
        let row = match segment {
            segment if segment == here => &pages[page as usize].row,
            _ => &older[segment as usize].pages[page as usize].row,
        };
        if row.len() > PAGE_BYTES_MAX {
            return None;
        }
        let (first, mut at) = (slots.len(), range.start);
        let bytes = row.get(..range.end)?;
        while at < range.end {
            let (item, end) = codec.skim(bytes, at, fork + 1).ok()?;
            let slot = Slot {
                at: at as u16,
                item: 0,
                digit: 0,
                bits: 0,
                group: 0,
                terminal: false,
                state: SlotState::Same,
                beside: Child::NOWHERE,
            };
            match item {
                Skimmed::Branch { digit } => slots.push(Slot { digit, ..slot }),
                Skimmed::Terminal { digit, carries } if plain::<S>(bytes[at], carries) => {
                    slots.push(Slot { digit, terminal: true, ..slot });
                }
                Skimmed::Group { bits, mut from, count } => {
                    for _ in 0..count {
                        let (digit, terminal, next) = codec.member(&bytes[..end], from).ok()?;
                        slots.push(Slot { at: from as u16, digit, bits, terminal, ..slot });
                        from = next;
                    }
                }
                Skimmed::Value | Skimmed::Terminal { .. } => return None,
            }
            at = end;
        }
        let rising = slots[first..].windows(2).all(|pair| pair[0].digit < pair[1].digit);
        let base = 1usize << S::DIGIT_BITS;
        if !rising || usize::from(slots.last()?.digit) >= base {
            return None;
        }
        let slots = Span::new(first, slots.len() - first);
        let groups = Span::new(groups.len(), 0);
        let (from, to) = (range.start as u16, range.end as u16);
        Some(Patch { segment, page, from, to, slots, groups })
    }

    /// As an earlier batch patched it: what it knows comes along.
    fn list_made(&mut self, segment: u32, node: u32) -> Option<Patch> {
        if segment == self.open.here {
            return None;
        }
        let home = &*self.open.older[segment as usize];
        let Body::Branch(Branch { children: Kids::Patched(patch), .. }) =
            home.nodes[node as usize].body
        else {
            return None;
        };
        let seg = &mut *self.open.seg;
        let (first, groups) = (seg.slots.len(), seg.groups.len());
        seg.groups.extend_from_slice(&home.groups[patch.groups.range()]);
        for slot in &home.slots[patch.slots.range()] {
            let mut slot = *slot;
            if slot.state == SlotState::Changed {
                let child = home.children[slot.beside as usize];
                slot.beside = seg.children.len() as u32;
                seg.children.push(child);
            } else if slot.beside != Child::NOWHERE {
                slot.beside = seg.push_commit(home.commits[slot.beside as usize]);
            }
            seg.slots.push(slot);
        }
        let slots = Span::new(first, seg.slots.len() - first);
        Some(Patch { slots, groups: Span::new(groups, seg.groups.len() - groups), ..patch })
    }

    /// Finds the children that operations concern, among the slots from `first` on: `false` if one of them
    /// is not there.
    fn hit(&mut self, ops: &Range<usize>, fork: usize, first: usize) -> bool {
        let (mut ops, mut slot) = (ops.clone(), first);
        let slots = &self.open.seg.slots;
        while !ops.is_empty() {
            let digit = self.op(ops.start).digit(self.ops.bytes, fork, Opener::<S>::WIDTH);
            while slots.get(slot).is_some_and(|slot| slot.digit < digit) {
                slot += 1;
            }
            if slots.get(slot).is_none_or(|slot| slot.digit != digit) {
                return false;
            }
            let end = share_end::<S>(self.ops, &ops, (fork, digit));
            self.hits.push(Hit { slot: slot as u32, ops: (ops.start as u32, end as u32) });
            ops.start = end;
        }
        true
    }

    /// Opens the groups that hits are in. Those whose page is missing are struck off: this pass is thrown
    /// away, but others go on. Nothing if a group is not one to be patched.
    fn open_groups(
        &mut self,
        mut patch: Patch,
        fork: usize,
        from: usize,
    ) -> Result<Option<Patch>, Halt> {
        self.ask_for_groups(fork, from);
        let (mut kept, mut missing) = (from, false);
        for hit in from..self.hits.len() {
            let Hit { slot, ops } = self.hits[hit];
            let mut halted = false;
            // A group may be in another one.
            while !halted && self.open.seg.slots[slot as usize].is_in_unopened_group() {
                match self.open_group_of(&mut patch, fork, slot as usize, ops.0 as usize) {
                    Ok(true) => {}
                    Ok(false) => return Ok(None),
                    Err(Halt::Missing) => halted = true,
                    Err(failed) => return Err(failed),
                }
            }
            if halted {
                missing = true;
                continue;
            }
            self.hits[kept] = self.hits[hit];
            kept += 1;
        }
        self.hits.truncate(kept);
        if missing && kept == from { Err(Halt::Missing) } else { Ok(Some(patch)) }
    }

    /// Has the pages of groups brought together, where several are to be opened.
    fn ask_for_groups(&mut self, fork: usize, from: usize) {
        let mut keys = SmallVec::<[PageKey; 8]>::new();
        for hit in from..self.hits.len() {
            let Hit { slot, ops } = self.hits[hit];
            let slot = self.open.seg.slots[slot as usize];
            if slot.is_in_unopened_group() {
                self.set_path(ops.0 as usize, fork);
                Opener::<S>::WIDTH.append(&mut self.open.path, fork, slot.digit);
                let key = self.open.key(fork, usize::from(slot.bits));
                if keys.last() != Some(&key) {
                    keys.push(key);
                }
            }
        }
        if keys.len() > 1 {
            (self.open.ahead)(&keys);
        }
    }

    /// Opens the group of a slot: `false` if it does not hold just what the branch says, or a group.
    pub(super) fn open_group_of(
        &mut self,
        patch: &mut Patch,
        fork: usize,
        slot: usize,
        op: usize,
    ) -> Result<bool, Halt> {
        let width = Opener::<S>::WIDTH;
        let Slot { digit, bits, .. } = self.open.seg.slots[slot];
        self.set_path(op, fork);
        width.append(&mut self.open.path, fork, digit);
        let page = self.open.page(fork, usize::from(bits), PageKind::Group)?;
        let (codec, older, here) = (self.open.codec, self.open.older, self.open.here);
        let Segment { pages, slots, groups, commits, .. } = &mut *self.open.seg;
        let row = &pages[page as usize].row;
        let base = match patch.segment {
            segment if segment == here => &pages[patch.page as usize].row,
            segment => &older[segment as usize].pages[patch.page as usize].row,
        };
        if row.len() > PAGE_BYTES_MAX {
            return Ok(false);
        }
        groups.push((here, page));
        patch.groups.len += 1;
        let Ok(number) = u8::try_from(patch.groups.len) else { return Ok(false) };
        let rest = S::DIGIT_BITS - bits;
        let slots = &mut slots[patch.slots.range()];
        let first = slots.partition_point(|slot| slot.digit >> rest < digit >> rest);
        let mut members = slots[first..]
            .iter_mut()
            .take_while(|slot| slot.digit >> rest == digit >> rest)
            .filter(|slot| slot.bits == bits);
        let mut at = SUM_BYTES + 1;
        while at < row.len() {
            let Ok((item, end)) = codec.skim(row, at, fork + 1) else { return Ok(false) };
            let (digit, terminal) = match item {
                Skimmed::Branch { digit } => (digit, false),
                Skimmed::Terminal { digit, carries } if plain::<S>(row[at], carries) => {
                    (digit, true)
                }
                // Its members commit to nothing here: it stays as it is, whatever becomes of them.
                Skimmed::Group { bits: inner, mut from, count } if S::DELTAS && inner > bits => {
                    for _ in 0..count {
                        let Ok((digit, terminal, next)) = codec.member(&row[..end], from) else {
                            return Ok(false);
                        };
                        match members.next() {
                            Some(slot) if (slot.digit, slot.terminal) == (digit, terminal) => {
                                slot.bits = inner;
                            }
                            _ => return Ok(false),
                        }
                        from = next;
                    }
                    at = end;
                    continue;
                }
                _ => return Ok(false),
            };
            let Some(slot) = members.next() else { return Ok(false) };
            if (digit, terminal) != (slot.digit, slot.terminal) {
                return Ok(false);
            }
            (slot.item, slot.group) = (at as u16, number);
            if terminal && !S::DELTAS {
                // Its own item does not carry what the group's says of it.
                let commit =
                    codec.scheme.decode_commit(&base[usize::from(slot.at) + MEMBER_COMMIT_AT..]);
                slot.beside = commits.len() as u32;
                commits.push(commit.expect("it was skimmed").0);
            }
            at = end;
        }
        Ok(members.next().is_none())
    }

    /// Visits the children that are hit, until one of them needs a frame of its own.
    pub(super) fn advance_hits(&mut self, mut frame: Frame) -> Result<Option<Outcome>, TreeError> {
        loop {
            let FrameKind::Patch(patching) = &frame.kind else { unreachable!("only patches") };
            let Some(&Hit { slot, ops }) = self.hits.get(patching.next) else {
                return self.finish_patch(frame).map(Some);
            };
            if (patching.next - patching.from).is_multiple_of(HITS_AHEAD) {
                self.ask_for_bodies(patching);
            }
            let slot = &self.open.seg.slots[slot as usize];
            let child = self.open.seg.kid(&patching.patch, slot);
            let spot = Spot { depth: patching.fork + 1, digit: child.digit, owned: frame.owned };
            // The frame waits on the stack while its child is visited.
            self.frames.push(frame);
            let Some(outcome) = self.visit(Some(child), spot, ops.0 as usize..ops.1 as usize)?
            else {
                return Ok(None);
            };
            frame = self.frames.pop().expect("the frame just pushed");
            self.take_hit(&mut frame, outcome);
        }
    }

    /// Has the pages of the next children brought together, if they have pages of their own.
    fn ask_for_bodies(&mut self, patching: &Patching) {
        let next = patching.next..self.hits.len().min(patching.next + HITS_AHEAD);
        if next.len() == 1 {
            return;
        }
        let fork = patching.fork;
        let mut keys = SmallVec::<[PageKey; HITS_AHEAD]>::new();
        for hit in next {
            let Hit { slot, ops } = self.hits[hit];
            let child = self.open.seg.kid(&patching.patch, &self.open.seg.slots[slot as usize]);
            let Link::Stored { segment, page, at } = child.link else { continue };
            if Codec::<S>::has_page(self.open.chain().row(segment, page), usize::from(at)) {
                self.set_path(ops.0 as usize, fork);
                Opener::<S>::WIDTH.append(&mut self.open.path, fork, child.digit);
                // Below a skip its page has another key.
                keys.push(self.open.key(fork + 1, 0));
            }
        }
        (self.open.ahead)(&keys);
    }

    /// Takes up what became of the child just visited.
    pub(super) fn take_hit(&mut self, frame: &mut Frame, outcome: Outcome) {
        let FrameKind::Patch(patching) = &mut frame.kind else { unreachable!("only patches") };
        let slot = self.hits[patching.next].slot as usize;
        patching.next += 1;
        if S::DELTAS && frame.was.is_some() {
            let old = self.open.seg.kid(&patching.patch, &self.open.seg.slots[slot]);
            self.changes.extend(Change::of((old.digit, Some(old)), outcome));
        }
        match outcome {
            Outcome::Same => return,
            Outcome::Gone => {
                patching.gone = true;
                self.open.seg.slots[slot].state = SlotState::Gone;
            }
            Outcome::Now(child) => {
                patching.height = patching.height.max(self.height(&child) + 1);
                self.put_changed(slot, child);
            }
        }
        frame.changed = true;
    }

    /// Puts a child that was made anew in its slot.
    pub(super) fn put_changed(&mut self, slot: usize, child: Child) {
        let seg = &mut *self.open.seg;
        let beside = seg.children.len() as u32;
        let slot = &mut seg.slots[slot];
        seg.children.push(Child { digit: slot.digit, ..child });
        (slot.state, slot.beside) = (SlotState::Changed, beside);
    }

    /// Makes the branch anew.
    fn finish_patch(&mut self, frame: Frame) -> Result<Outcome, TreeError> {
        let FrameKind::Patch(patching) = frame.kind else { unreachable!("only patches") };
        let Patching { fork, patch, from, height, gone, .. } = patching;
        self.hits.truncate(from);
        if !frame.changed {
            self.changes.truncate(frame.changes);
            return Ok(Outcome::Same);
        }
        if gone {
            return self.hand_over(frame, fork, &patch);
        }
        self.retire(frame.pages.clone());
        let changes = self.keep_changes(frame.changes);
        let place = (frame.ops.start, frame.depth as u32, fork as u32);
        Ok(Outcome::Now(self.make_patched(place, patch, height, frame.digit, (frame.was, changes))))
    }

    /// Makes a branch that hangs at a depth and forks at a digit of an operation's key.
    pub(super) fn make_patched(
        &mut self,
        (op, depth, fork): (usize, u32, u32),
        patch: Patch,
        height: u32,
        digit: u8,
        (was, changes): (WasAt, Span),
    ) -> Child {
        self.retire_groups(&patch);
        let Segment { nodes, slots, siblings, .. } = &mut *self.open.seg;
        if !S::DELTAS {
            let node = nodes.len() as u32;
            let bare = patch.slots.range().filter(|&slot| slots[slot].uncommitted());
            siblings.extend(bare.map(|slot| (slot as u32, node)));
        }
        let bytes = (fork as usize).div_ceil(Opener::<S>::WIDTH.per_byte());
        let path = self.ops.place(self.op(op).key).first(bytes);
        let children = Kids::Patched(patch);
        let body = Body::Branch(Branch { path, depth, fork, children, value: None, was, changes });
        let link = self.push_node(body, height);
        Child { link, commit: Child::NOWHERE, digit, terminal: false }
    }

    /// Leaves a branch that lost a child to those that restore the normal form.
    fn hand_over(
        &mut self,
        frame: Frame,
        fork: usize,
        patch: &Patch,
    ) -> Result<Outcome, TreeError> {
        let path = self.op(frame.ops.start).key;
        self.retire_groups(patch);
        let (base, out) = (self.old.len(), self.out.len());
        let seg = &*self.open.seg;
        let left = seg.slots[patch.slots.range()].iter().filter(|s| s.state != SlotState::Gone);
        self.out.extend(left.map(|slot| seg.kid(patch, slot)));
        let kind = FrameKind::Fork { path, fork, base, old: base..base, out, value: None };
        self.finish_fork(Frame { kind, ..frame })
    }

    fn retire_groups(&mut self, patch: &Patch) {
        let Segment { pages, groups, .. } = &mut *self.open.seg;
        for &(segment, page) in &groups[patch.groups.range()] {
            if segment == self.open.here {
                pages[page as usize].stale = true;
            }
        }
    }
}
