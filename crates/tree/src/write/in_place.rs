//! Nodes that stay: items as long as those in whose place they come, laid over the rows that these are in.

use std::ops::Range;

use super::overlay::Seat;
use super::{Item, Visit, Writer, body_limit, carries};
use crate::error::TreeError;
use crate::image::{Codec, MEMBER_COMMIT_AT};
use crate::node::{Body, Branch, Kids, Link, Patch, SlotState, Terminal};
use crate::open::corrupt;
use crate::scheme::Scheme;
use crate::tail::Stretch;

impl<S: Scheme> Writer<'_, S> {
    /// Lays a node over the one at a seat, with all that was made below it, if all of that stays in this row. Most
    /// nodes do, and this is the short way. Else nothing is lost: what stays of it is laid there again.
    pub(super) fn lay_node(
        &mut self,
        (segment, node): (u32, u32),
        seat: Seat,
        owned: bool,
        levels: u32,
    ) -> bool {
        let node = self.chain.node(segment, node);
        let commit = node.commit.expect("nodes commit before they are written");
        match &node.body {
            Body::Terminal(terminal) => self.lay_terminal(terminal, commit, seat, owned, levels),
            Body::Branch(branch) => self.lay_branch((segment, branch), commit, seat, levels),
        }
    }

    /// A terminal of the same key, with a value of the same length.
    fn lay_terminal(
        &mut self,
        terminal: &Terminal,
        commit: S::Commit,
        Seat { row, at }: Seat,
        owned: bool,
        levels: u32,
    ) -> bool {
        let (bytes, at) = (self.overlay.bytes(row), usize::from(at));
        let Some(there) = self.codec.inline_terminal(bytes, at, terminal.depth as usize) else {
            return false;
        };
        let key = self.chain.bytes(terminal.key);
        let payload = self.chain.bytes(terminal.payload);
        let owns = terminal.owned.is_some();
        let carries = carries::<S>(owned, owns);
        let same_key = there.suffix.end() == Codec::<S>::WIDTH.count(key)
            && there.suffix.common(key) == there.suffix.len();
        if !same_key
            || payload.len() != there.payload.len()
            || carries != there.commit.is_some()
            || owns != there.owns
        {
            return false;
        }
        let (value, commit_at, end) = (there.payload.start, there.commit, there.end);
        let owned_stays = match terminal.owned.map(|child| child.link) {
            None => true,
            Some(Link::Made { segment, node }) => {
                let seat = Seat { row, at: end as u16 };
                levels > 0 && self.lay_node((segment, node), seat, true, levels - 1)
            }
            Some(link) => self.is_at(link, row, end),
        };
        if !owned_stays {
            return false;
        }
        self.overlay.lay(row, value, payload);
        commit_at.is_none_or(|at| self.commit_stays(commit, row, at))
    }

    /// A patched branch with its body in the same row, all of whose changed children stay there.
    fn lay_branch(
        &mut self,
        (segment, branch): (u32, &Branch),
        commit: S::Commit,
        seat: Seat,
        levels: u32,
    ) -> bool {
        let Kids::Patched(patch) = &branch.children else { return false };
        let (id, page) = self.opened((patch.segment, patch.page));
        if levels == 0 || patch.groups.len > 0 || !self.overlay.is(seat.row, id, page) {
            return false;
        }
        let home = self.chain.segment(segment);
        for slot in &home.slots[patch.slots.range()] {
            if slot.state != SlotState::Changed {
                continue;
            }
            let child = &home.children[slot.beside as usize];
            let Link::Made { segment, node } = child.link else { return false };
            let seat = Seat { row: seat.row, at: slot.at };
            if child.terminal != slot.terminal
                || !self.lay_node((segment, node), seat, false, levels - 1)
            {
                return false;
            }
        }
        let range = usize::from(patch.from)..usize::from(patch.to);
        range.len() <= body_limit::<S>(branch)
            && self.branch_stays(seat, branch, (seat.row, &range), false, commit)
    }

    /// Where what a terminal owned stood, if there was such a terminal in its place.
    pub(super) fn seat_of_owned(&self, visit: &Visit, terminal: &Terminal) -> Option<Seat> {
        let Seat { row, at } = visit.seat?;
        let old = self.overlay.bytes(row);
        let there = self.codec.inline_terminal(old, usize::from(at), terminal.depth as usize)?;
        there.owns.then_some(Seat { row, at: there.end as u16 })
    }

    /// Whether a terminal, whose item but for what it owns is in `head`, stays: then that is laid over what
    /// was there.
    pub(super) fn terminal_stays(&mut self, visit: &Visit, terminal: &Terminal) -> bool {
        let Some(Seat { row, at }) = visit.seat else { return false };
        let (old, at) = (self.overlay.bytes(row), usize::from(at));
        let Some(there) = self.codec.inline_terminal(old, at, terminal.depth as usize) else {
            return false;
        };
        let end = there.end;
        let owned_stays = match terminal.owned.map(|child| child.link) {
            None => true,
            Some(Link::Made { .. }) => self.items[visit.items].stays,
            Some(link) => self.is_at(link, row, end),
        };
        let stays = owned_stays && self.head[0] == old[at] && self.head.len() == end - at;
        if stays {
            self.overlay.lay(row, at, &self.head);
        }
        stays
    }

    /// Whether an untouched item is at a place of a row.
    fn is_at(&self, link: Link, row: u32, at: usize) -> bool {
        let Link::Stored { segment, page, at: stored } = link else { return false };
        let (id, page) = self.opened((segment, page));
        usize::from(stored) == at && self.overlay.is(row, id, page)
    }

    /// Whether all changed children of a patched branch stay, and take as many bytes where the branch says what
    /// the members of its groups commit to. Then that is laid over what was there, and its groups are done.
    pub(super) fn children_stay(&mut self, visit: &Visit, patch: &Patch) -> bool {
        if !self.items[visit.items..].iter().all(|item| item.stays) {
            return false;
        }
        let home = self.chain.segment(visit.segment);
        if !S::DELTAS && patch.groups.len > 0 {
            let members = home.slots[patch.slots.range()].iter().filter(|slot| slot.bits > 0);
            for slot in members.filter(|slot| slot.state == SlotState::Changed) {
                let child = &home.children[slot.beside as usize];
                let commit = self.chain.commit(self.codec, visit.segment, child);
                let at = usize::from(slot.at) + MEMBER_COMMIT_AT;
                if !self.commit_stays(commit, visit.body, at) {
                    return false;
                }
            }
        }
        for group in 0..patch.groups.len {
            self.overlay.finish(visit.groups + group);
        }
        true
    }

    /// Whether a branch stays whose body does, at a range of a row: then its commitment is laid over the one
    /// before it.
    pub(super) fn branch_stays(
        &mut self,
        seat: Seat,
        branch: &Branch,
        (row, range): (u32, &Range<usize>),
        apart: bool,
        commit: S::Commit,
    ) -> bool {
        let old = self.overlay.bytes(seat.row);
        let was = self.codec.plain_branch(old, usize::from(seat.at), branch.depth as usize);
        let Some((skip, body)) = was else { return false };
        let there = match body {
            Some((from, to)) => !apart && seat.row == row && *range == (from..to),
            None => apart,
        };
        let same_skip = skip.len() == (branch.fork - branch.depth) as usize
            && skip.common(self.chain.bytes(branch.path)) == skip.len();
        let at = usize::from(seat.at) + MEMBER_COMMIT_AT;
        there && same_skip && self.commit_stays(commit, seat.row, at)
    }

    /// Whether a commitment takes as many bytes as that in its place: then it is laid over it.
    fn commit_stays(&mut self, commit: S::Commit, row: u32, at: usize) -> bool {
        self.commit.clear();
        self.codec.scheme.encode_commit(&commit, &mut self.commit);
        let old = &self.overlay.bytes(row)[at..];
        let stays = self.codec.scheme.commit_bytes(old) == Some(self.commit.len());
        if stays {
            self.overlay.lay(row, at, &self.commit);
        }
        stays
    }

    /// Whether an item that was written takes as many bytes as the one whose place it takes.
    pub(super) fn stays_after_all(&mut self, visit: &Visit) -> bool {
        let Some(Seat { row, at }) = visit.seat else { return false };
        let start = match &self.chain.node(visit.segment, visit.node).body {
            Body::Terminal(terminal) => terminal.depth,
            Body::Branch(branch) => branch.depth,
        };
        let (old, at) = (self.overlay.bytes(row), usize::from(at));
        let item = self.tail.since(visit.from);
        let fits = self.codec.skim(old, at, start as usize);
        if fits.is_ok_and(|(_, end)| end - at == item.len()) {
            self.overlay.lay(row, at, item);
            self.tail.cut(visit.from);
            return true;
        }
        false
    }

    /// Puts an item that stays, whose run starts at digit `start`, among those that do not.
    pub(super) fn bring_back(&mut self, seat: Seat, start: usize) -> Result<Stretch, TreeError> {
        let (bytes, at) = (self.overlay.bytes(seat.row), usize::from(seat.at));
        let skimmed = self.codec.skim(bytes, at, start);
        let (_, end) = skimmed.map_err(|what| corrupt(&self.overlay.page(seat.row).key, what))?;
        let from = self.tail.len();
        self.tail.put(&bytes[at..end]);
        Ok(Stretch { from, to: self.tail.len() })
    }

    /// Puts the changed children of a patched branch that stay among those that do not.
    pub(super) fn bring_all_back(
        &mut self,
        visit: &Visit,
        patch: &Patch,
        start: usize,
    ) -> Result<(), TreeError> {
        let slots = &self.chain.segment(visit.segment).slots[patch.slots.range()];
        let changed = slots.iter().filter(|slot| slot.state == SlotState::Changed);
        for (item, slot) in (visit.items..self.items.len()).rev().zip(changed) {
            if self.items[item].stays {
                let seat = visit.seat_of(slot).expect("its item stays there");
                let at = self.bring_back(seat, start)?;
                self.items[item] = Item { at, stays: false, ..self.items[item] };
            }
        }
        Ok(())
    }
}
