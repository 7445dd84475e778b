//! Applying operations to one node: what is built, replaced, forked off or listed.

use super::open::Seen;
use super::{Frame, Ops, Outcome, Piece, Update, Visit, Visited, Wait, Waiting};
use crate::batch::{Op, OpKind};
use crate::error::TreeError;
use crate::image::Codec;
use crate::node::{
    Bucket, Fate, ForkValue, KeyAt, Link, Made, NO_ENTRY, NONE, Node, NodeKind, PageRef, Place,
    Previous, TouchedChild,
};
use crate::page::Within;
use crate::scheme::{Scheme, implicit_owners};

impl<S: Scheme> Update<'_, S> {
    /// Applies operations to what is there, and to nothing.
    pub(super) fn enter(&mut self, mut visit: Visit) -> Result<(), TreeError> {
        let existed = visit.link.is_some();
        let mut seen = None;
        if let Some(link) = visit.link {
            let Some(found) = self.resolve(link, &visit)? else {
                self.work.waits.push(Wait::again(visit));
                return Ok(());
            };
            seen = Some(found);
        }
        let mut cleared = false;
        while visit.ops.len() > 0 && self.op(visit.ops.from).kind == OpKind::Clear {
            if let (Some(found), Some(link)) = (&seen, visit.link) {
                match self.reach(found, &visit) {
                    Reach::Covers => {
                        let path = self.key_at(visit.ops.from);
                        self.leave_overflow(found.overflowed, visit.hung, path);
                        self.drop_child(link, &visit)?;
                        (seen, cleared) = (None, true);
                        visit.link = None;
                    }
                    Reach::Misses => {}
                    Reach::Below => break,
                }
            }
            visit.ops.from += 1;
        }
        if visit.ops.len() == 0 {
            self.settle(&visit, if cleared { Outcome::Gone } else { Outcome::Same });
            return Ok(());
        }
        let frame = Frame {
            existed,
            changed: cleared,
            hung: visit.hung,
            stood: seen.as_ref().map_or(NONE, |seen| self.push_stood(seen)),
            valued: seen.as_ref().is_some_and(|seen| seen.fork_value == ForkValue::Stored),
            over: Made::NOTHING,
        };
        match seen {
            None => self.build(&visit, frame),
            Some(seen) if seen.kind == NodeKind::Leaf => self.enter_leaf(&visit, frame, &seen),
            Some(seen) => self.enter_branch(&visit, frame, &seen),
        }
    }

    /// What a prefix deletion does to a node.
    fn reach(&self, seen: &Seen, visit: &Visit) -> Reach {
        let (op, branch) = (visit.ops.from, seen.kind == NodeKind::Branch);
        let same = self.run(&seen.piece).common(self.key(op)) as u32;
        if visit.depth + same >= self.digits(op) {
            Reach::Covers
        } else if same < seen.piece.digits {
            Reach::Misses
        } else if branch || Self::among_owners(visit) {
            Reach::Below
        } else {
            Reach::Misses
        }
    }

    /// How many digits of a run all of the operations have.
    fn common(&self, piece: &Piece, ops: Ops) -> u32 {
        let run = self.run(piece);
        run.common(self.key(ops.from)).min(run.common(self.key(ops.end - 1))) as u32
    }

    /// Nothing is here yet.
    fn build(&mut self, visit: &Visit, frame: Frame) -> Result<(), TreeError> {
        if self.is_lone(visit) {
            if Self::among_owners(visit) {
                return self.enter_owner(visit, frame, None);
            }
            let op = *self.op(visit.ops.from);
            let OpKind::Put(value) = op.kind else {
                self.settle(visit, if frame.existed { Outcome::Gone } else { Outcome::Same });
                return Ok(());
            };
            let end = self.digits(visit.ops.from);
            let node = self.leaf(visit, end, self.place(value), Fate::Made);
            self.push_node(visit, node, frame);
            return Ok(());
        }
        let node = self.fork(visit, visit.depth + self.shared(visit));
        let number = self.push_node(visit, node, frame);
        self.spread(number, visit.ops, None)
    }

    /// A leaf that a visit comes to, or makes.
    fn leaf(&self, visit: &Visit, end: u32, value: Place, fate: Fate) -> Node {
        let key = self.key_at(visit.ops.from);
        Node { value, fate, fork: end, ..Self::node(visit, NodeKind::Leaf, key) }
    }

    /// A branch of which nothing is known but where it forks.
    fn fork(&self, visit: &Visit, fork: u32) -> Node {
        Node { fork, ..Self::node(visit, NodeKind::Branch, self.key_at(visit.ops.from)) }
    }

    const fn node(visit: &Visit, kind: NodeKind, key: KeyAt) -> Node {
        Node {
            kind,
            fate: Fate::Open,
            fork_value: ForkValue::None,
            owned: visit.owned,
            digit: visit.digit,
            entry: NO_ENTRY,
            entry_page: PageRef::NOWHERE,
            base: PageRef::NOWHERE,
            within: Within { from: 0, end: 0 },
            body: (0, 0),
            depth: visit.depth,
            fork: 0,
            height: 0,
            key,
            value: Place::NOTHING,
            changes: 0,
            change_count: 0,
            buckets: NONE,
            previous: NONE,
            lifted: NONE,
        }
    }

    /// Notes a stored item whose bytes overflowed.
    fn push_stood(&mut self, seen: &Seen) -> u32 {
        let Some(overflowed) = seen.overflowed else { return NONE };
        self.work.stood.push(overflowed);
        self.work.stood.len() as u32 - 1
    }

    /// Adds a node, which comes of a visit.
    fn push_node(&mut self, visit: &Visit, node: Node, frame: Frame) -> u32 {
        let number = self.arena.nodes.len() as u32;
        self.settle(visit, Outcome::Made(Made { arena: self.here, node: number }));
        self.arena.nodes.push(node);
        self.arena.commits.push(None);
        self.work.frames.push(frame);
        number
    }

    fn enter_leaf(&mut self, visit: &Visit, frame: Frame, seen: &Seen) -> Result<(), TreeError> {
        let (first, end) = (visit.ops.from, visit.depth + seen.piece.digits);
        let same = self.common(&seen.piece, visit.ops);
        if same == seen.piece.digits && self.is_lone(visit) {
            if Self::among_owners(visit) {
                return self.enter_owner(visit, frame, Some(seen));
            }
            if self.digits(first) == end {
                self.replace(visit, frame, seen);
                return Ok(());
            }
        }
        if same < seen.piece.digits && self.is_lone_delete(visit.ops) {
            self.settle(visit, Outcome::Same);
            return Ok(());
        }
        // The leaf moves below a new fork.
        let fork = visit.depth + same.min(self.shared(visit));
        let mut node = self.fork(visit, fork);
        if end == fork {
            (node.fork_value, node.value) = (ForkValue::Put, seen.value);
            let number = self.push_node(visit, node, frame);
            return self.spread(number, visit.ops, None);
        }
        let number = self.push_node(visit, node, frame);
        self.spread(number, visit.ops, Some((seen, visit.hung)))
    }

    fn enter_branch(&mut self, visit: &Visit, frame: Frame, seen: &Seen) -> Result<(), TreeError> {
        let end = visit.depth + seen.piece.digits;
        let same = match seen.piece.digits {
            0 => 0,
            _ => self.common(&seen.piece, visit.ops),
        };
        if same < seen.piece.digits {
            if self.is_lone_delete(visit.ops) {
                self.settle(visit, Outcome::Same);
                return Ok(());
            }
            // The branch moves below a new fork in its prefix.
            let node = self.fork(visit, visit.depth + same);
            let number = self.push_node(visit, node, frame);
            return self.spread(number, visit.ops, Some((seen, visit.hung)));
        }
        let mut node = self.fork(visit, end);
        (node.base, node.within, node.body) = (seen.base, seen.within, seen.body);
        (node.fork_value, node.value) = (seen.fork_value, seen.value);
        if visit.hung == visit.depth {
            (node.entry_page, node.entry) = (seen.entry_page, seen.entry);
        }
        if Codec::<S>::DELTAS {
            node.previous = self.push_previous(seen.link, visit.hung);
        }
        node.buckets = self.copy_buckets(seen.over);
        let number = self.push_node(visit, node, Frame { over: seen.over, ..frame });
        match seen.out_of_line {
            Some(handle) => {
                let (path, bits) = (self.key_at(visit.ops.from), end * Self::WIDTH.bits() as u32);
                let what = Waiting::Body { node: number, ops: visit.ops };
                self.work.waits.push(Wait { what, handle, path, bits });
                Ok(())
            }
            None => self.spread(number, visit.ops, None),
        }
    }

    /// Notes what a node stands for.
    pub(super) fn push_previous(&mut self, link: Link, depth: u32) -> u32 {
        self.arena.previous.push(Previous { link, depth });
        self.arena.previous.len() as u32 - 1
    }

    pub(super) fn copy_buckets(&mut self, old: Made) -> u32 {
        let mut first = NONE;
        if S::LAYOUT.digit_bits > 1 && old.is_something() {
            let mut next = self.chain().node(old).buckets;
            while let Some(&bucket) = self.arena_of(old.arena).buckets.get(next as usize) {
                next = bucket.next;
                first = self.push_bucket(bucket.page, first);
            }
        }
        first
    }

    pub(super) fn push_bucket(&mut self, page: PageRef, next: u32) -> u32 {
        self.arena.buckets.push(Bucket { page, next });
        self.arena.buckets.len() as u32 - 1
    }

    /// The one key of a leaf that owns nothing.
    fn replace(&mut self, visit: &Visit, frame: Frame, seen: &Seen) {
        let (stood, path) = (self.stood(&frame), self.key_at(visit.ops.from));
        match self.op(visit.ops.from).kind {
            OpKind::Put(value) => {
                let value = self.place(value);
                if self.chain().bytes(value) == self.chain().bytes(seen.value)
                    && visit.hung == visit.depth
                {
                    self.settle(visit, Outcome::Same);
                    return;
                }
                let end = visit.depth + seen.piece.digits;
                let mut node = self.leaf(visit, end, value, Fate::Made);
                if visit.hung == visit.depth {
                    (node.entry_page, node.entry) = (seen.entry_page, seen.entry);
                }
                self.push_node(visit, node, frame);
            }
            _ => self.settle(visit, Outcome::Gone),
        }
        self.leave_overflow(stood, visit.hung, path);
    }

    /// An owner, and what it owns.
    fn enter_owner(
        &mut self,
        visit: &Visit,
        mut frame: Frame,
        seen: Option<&Seen>,
    ) -> Result<(), TreeError> {
        let mut ops = visit.ops;
        let first = *self.op(ops.from);
        let mut value = seen.map(|seen| seen.value);
        let is_put = |update: &Self, op: u32| matches!(update.op(op).kind, OpKind::Put(_));
        let puts = (ops.from..ops.end).any(|op| is_put(self, op));
        if implicit_owners::<S>() && seen.is_none() && puts {
            value = Some(Place::NOTHING);
        }
        frame.changed |= seen.is_none();
        if self.digits(ops.from) == Self::OWNER_DIGITS && first.kind != OpKind::Clear {
            ops.from += 1;
            match first.kind {
                OpKind::Put(put) => {
                    let put = self.place(put);
                    let chain = self.chain();
                    if value.is_none_or(|old| chain.bytes(old) != chain.bytes(put)) {
                        (value, frame.changed) = (Some(put), true);
                    }
                }
                _ => value = None,
            }
        }
        let Some(value) = value else {
            let owner_bytes = Self::OWNER_DIGITS as usize / Self::WIDTH.per_byte();
            if let Some(op) = (ops.from..ops.end).find(|&op| is_put(self, op)) {
                return Err(TreeError::Ownerless { key: self.key(op).to_vec(), owner_bytes });
            }
            if let Some(seen) = seen {
                self.leave_overflow(self.stood(&frame), visit.hung, self.key_at(visit.ops.from));
                if seen.owns {
                    // Owners' keys are short enough for a range.
                    self.drop_below(visit.ops.from, Self::OWNER_DIGITS);
                }
            }
            self.settle(visit, if frame.existed { Outcome::Gone } else { Outcome::Same });
            return Ok(());
        };
        let mut node = self.leaf(visit, Self::OWNER_DIGITS, value, Fate::Open);
        let mut older = None;
        if let Some(seen) = seen {
            if visit.hung == visit.depth {
                (node.entry_page, node.entry) = (seen.entry_page, seen.entry);
            }
            (node.base, node.within) = (seen.base, seen.within);
            frame.over = seen.over;
            older = self.older_change(seen.over, 0);
            if Codec::<S>::DELTAS && seen.owns {
                node.previous = self.push_previous(seen.link, visit.hung);
            }
        }
        let (base, within) = (node.base, node.within);
        let number = self.push_node(visit, node, frame);
        if older.is_some() || ops.len() > 0 {
            self.enter_owned(number, older, (base, within), ops);
        }
        Ok(())
    }

    /// What an owner owns, beside the stored entry of it, if there is one: listed, and visited
    /// where there are operations.
    fn enter_owned(
        &mut self,
        number: u32,
        older: Option<TouchedChild>,
        (base, within): (PageRef, Within),
        ops: Ops,
    ) {
        let stored = Link::Stored { page: base, entry: within.from };
        let link = match older {
            Some(change) => change.made.is_something().then_some(Link::Made(change.made)),
            None => (within.len() > 0).then_some(stored),
        };
        let entry = if within.len() > 0 { within.from } else { NO_ENTRY };
        let made = older.map_or(Made::NOTHING, |change| change.made);
        let fresh = older.is_none();
        let child = TouchedChild { digit: 0, fresh, entry, page: base, made };
        let change = self.push_change(child, Visited::of(None));
        let node = &mut self.arena.nodes[number as usize];
        (node.changes, node.change_count) = (change, 1);
        if ops.len() == 0 {
            self.work.visited[change as usize].outcome = Some(Outcome::Same);
            return;
        }
        let (depth, hung, parent) = (Self::OWNER_DIGITS, Self::OWNER_DIGITS, number);
        let below = Visit { link, ops, depth, hung, parent, change, digit: 0, owned: true };
        self.work.stack.push(below);
    }

    /// A listed child of what was made before.
    pub(super) fn older_change(&self, over: Made, index: usize) -> Option<TouchedChild> {
        if !over.is_something() {
            return None;
        }
        let arena = self.arena_of(over.arena);
        arena.changes[arena.nodes[over.node as usize].changes()].get(index).copied()
    }

    /// Lists a child, and answers its place among all.
    pub(super) fn push_change(&mut self, child: TouchedChild, visited: Visited) -> u32 {
        self.arena.changes.push(child);
        self.work.visited.push(visited);
        self.arena.changes.len() as u32 - 1
    }

    /// The first of some operations, as many as have a digit there. Shares are small as a rule, so
    /// the search gallops from the front.
    fn share(&self, ops: Ops, at: u32, digit: u8) -> Ops {
        let bytes = self.batch.bytes;
        let has = |op: &Op| op.digit(bytes, at as usize, Self::WIDTH) == digit;
        if ops.len() == 1 || has(self.op(ops.end - 1)) {
            return ops;
        }
        let all = &self.batch.list[ops.range()];
        let (mut low, mut step) = (1, 1);
        while low + step <= all.len() && has(&all[low + step - 1]) {
            low += step;
            step *= 2;
        }
        let count = low + all[low..all.len().min(low + step)].partition_point(has);
        Ops { from: ops.from, end: ops.from + count as u32 }
    }

    /// A child of a node in which it moves, from where it hung: its digit is that at the fork of
    /// its own run.
    fn moved(&mut self, node: &Node, seen: &Seen, hung: u32) -> (TouchedChild, Visited) {
        let digit = self.run(&seen.piece).digit((node.fork - node.depth) as usize);
        let made = match seen.link {
            Link::Made(made) => made,
            Link::Stored { .. } => Made::NOTHING,
        };
        let page = PageRef::NOWHERE;
        let child = TouchedChild { digit, fresh: true, entry: NO_ENTRY, page, made };
        self.work.moves.push((seen.link, hung));
        (child, Visited { outcome: None, moves: self.work.moves.len() as u32 - 1 })
    }

    /// Applies the operation on the key that ends at a fork, if there is one; lists the children of
    /// the branch that operations go on to, or that were listed before, and visits the former.
    /// `moves` is a node that comes below the fork, and where it hung.
    pub(super) fn spread(
        &mut self,
        number: u32,
        mut ops: Ops,
        moves: Option<(&Seen, u32)>,
    ) -> Result<(), TreeError> {
        if self.digits(ops.from) == self.arena.nodes[number as usize].fork {
            self.put_at_fork(number, ops.from);
            ops.from += 1;
        }
        let node = self.arena.nodes[number as usize];
        let over = self.work.frames[number as usize].over;
        let moves = moves.map(|(seen, hung)| self.moved(&node, seen, hung));
        let listed = |update: &Self, index: usize| match &moves {
            Some(moved) if index == 0 => Some(*moved),
            Some(_) => None,
            None => {
                let change = update.older_change(over, index)?;
                Some((TouchedChild { fresh: false, ..change }, Visited::of(None)))
            }
        };
        let (first, bottom) = (self.arena.changes.len() as u32, self.work.stack.len());
        let mut index = 0;
        let mut next = listed(self, 0);
        while ops.len() > 0 || next.is_some() {
            let next_op = (ops.len() > 0).then(|| self.op(ops.from));
            let digit =
                next_op.map(|op| op.digit(self.batch.bytes, node.fork as usize, Self::WIDTH));
            if let Some((child, visited)) = next
                && digit.is_none_or(|digit| child.digit < digit)
            {
                self.push_change(child, Visited { outcome: Some(Outcome::Same), ..visited });
                index += 1;
                next = listed(self, index);
                continue;
            }
            let Some(digit) = digit else { break };
            let share = self.share(ops, node.fork, digit);
            ops.from = share.end;
            let (depth, parent, owned) = (node.fork + 1, number, node.owned);
            let change = self.arena.changes.len() as u32;
            let mut visit =
                Visit { link: None, ops: share, depth, hung: depth, parent, change, digit, owned };
            let Some((child, visited)) = next.filter(|(child, _)| child.digit == digit) else {
                self.visit_child(&node, visit)?;
                continue;
            };
            index += 1;
            next = listed(self, index);
            self.push_change(child, visited);
            visit.link = match self.moves(&visited) {
                Some((link, hung)) => {
                    visit.hung = hung;
                    Some(link)
                }
                None => child.made.is_something().then_some(Link::Made(child.made)),
            };
            self.work.stack.push(visit);
        }
        // The first is to be on top.
        self.work.stack[bottom..].reverse();
        let node = &mut self.arena.nodes[number as usize];
        (node.changes, node.change_count) = (first, self.arena.changes.len() as u32 - first);
        if node.base != PageRef::NOWHERE {
            let (base, within) = (node.base, node.within);
            self.arena_of(base.arena).pages[base.page as usize].fetch_commits(within);
        }
        Ok(())
    }

    /// Applies an operation to the value of the key that ends at a branch's fork.
    fn put_at_fork(&mut self, number: u32, op: u32) {
        let node = self.arena.nodes[number as usize];
        let (fork_value, value) = match self.op(op).kind {
            OpKind::Put(new) => {
                let new = self.place(new);
                let chain = self.chain();
                if node.fork_value != ForkValue::None && chain.bytes(node.value) == chain.bytes(new)
                {
                    return;
                }
                (ForkValue::Put, new)
            }
            _ if node.fork_value == ForkValue::None => return,
            _ => (ForkValue::None, Place::NOTHING),
        };
        let node = &mut self.arena.nodes[number as usize];
        (node.fork_value, node.value) = (fork_value, value);
        self.work.frames[number as usize].changed = true;
    }

    /// Lists a child that was not listed before, and visits what is stored there, if anything is.
    fn visit_child(&mut self, node: &Node, mut visit: Visit) -> Result<(), TreeError> {
        let (digit, parent) = (visit.digit, visit.parent);
        let page = node.base;
        let mut child =
            TouchedChild { digit, fresh: true, entry: NO_ENTRY, page, made: Made::NOTHING };
        let mut bucket = None;
        if page != PageRef::NOWHERE {
            let base = &self.arena_of(page.arena).pages[page.page as usize];
            match base.find(node.within, digit, Self::WIDTH.mask()) {
                Some(entry) if base.entry(entry).kind.is_in_bucket() => bucket = Some(entry),
                Some(entry) => {
                    child.entry = entry;
                    visit.link = Some(Link::Stored { page, entry });
                }
                None if S::LAYOUT.digit_bits > 1 => {
                    bucket = base.bucket_of(node.within, digit, S::LAYOUT.digit_bits);
                }
                None => {}
            }
        }
        self.push_change(child, Visited::of(None));
        match bucket {
            Some(entry) => self.visit_bucket_entry(parent, (page, node.within, entry), visit),
            None => {
                self.work.stack.push(visit);
                Ok(())
            }
        }
    }
}

/// How far a prefix deletion reaches.
enum Reach {
    Covers,
    Misses,
    Below,
}
