//! The way up: what came of each node, and the normal form restored.
//!
//! Invariants:
//! - a node is looked at when all below it are finished; one for which a page is missing waits, and
//!   those above it;
//! - a branch that is left with one child gives its place to it. A node that moves is made anew
//!   where it hangs now, with its body at hand: whether that has a page of its own is another
//!   question there.

use std::sync::Arc;

use super::{Frame, Outcome, Update, Visited};
use crate::error::TreeError;
use crate::image::Codec;
use crate::node::{
    Fate, ForkValue, KeyAt, Link, Made, NO_ENTRY, NONE, Node, NodeKind, PageRef, Place,
    TouchedChild,
};
use crate::page::{Handle, Page};
use crate::page_key::PageKey;
use crate::scheme::{Scheme, implicit_owners};

/// A child of a branch: its digit, where it is, and the digit at which it hung before the batch, if
/// it moves.
type HungChild = (u8, Link, Option<u32>);

impl<S: Scheme> Update<'_, S> {
    /// Finishes the nodes from a number on. Answers whether that is done, or pages are missing.
    pub(super) fn finish(&mut self, from: u32) -> Result<bool, TreeError> {
        let mut blocked = std::mem::take(&mut self.work.blocked);
        if blocked.is_empty() {
            for node in (from..self.arena.nodes.len() as u32).rev() {
                if self.arena.nodes[node as usize].fate == Fate::Open && !self.finish_node(node)? {
                    self.block(node);
                }
            }
        } else {
            for node in blocked.drain(..) {
                if !self.finish_node(node)? {
                    self.block(node);
                }
            }
        }
        Ok(self.work.blocked.is_empty())
    }

    fn block(&mut self, node: u32) {
        self.arena.nodes[node as usize].fate = Fate::Waits;
        self.work.blocked.push(node);
    }

    /// What became of a visit, as far as it is known.
    pub(super) fn resolved(&self, outcome: Outcome) -> Option<Outcome> {
        let Outcome::Made(made) = outcome else { return Some(outcome) };
        if made.arena != self.here {
            return Some(outcome);
        }
        let node = &self.arena.nodes[made.node as usize];
        match node.fate {
            Fate::Open | Fate::Waits => None,
            Fate::Same => Some(Outcome::Same),
            Fate::Gone => Some(Outcome::Gone),
            Fate::Made => Some(outcome),
            Fate::Lifted => Some(Outcome::Made(Made { arena: self.here, node: node.lifted })),
        }
    }

    /// Not if a page is missing.
    fn finish_node(&mut self, number: u32) -> Result<bool, TreeError> {
        let (node, frame) = (self.arena.nodes[number as usize], self.work.frames[number as usize]);
        let mut changed = frame.changed;
        for change in node.changes() {
            let outcome = self.work.visited[change].outcome.unwrap_or(Outcome::Same);
            let Some(outcome) = self.resolved(outcome) else { return Ok(false) };
            self.work.visited[change].outcome = Some(outcome);
            changed |= outcome != Outcome::Same && self.is_change(change, outcome);
        }
        if !changed {
            self.arena.nodes[number as usize].fate = Fate::Same;
            return Ok(true);
        }
        match node.kind {
            NodeKind::Leaf => {
                self.finish_owner(number, &node, frame);
                Ok(true)
            }
            NodeKind::Branch => self.finish_branch(number, &node, frame),
        }
    }

    /// What was not there does not go.
    fn is_change(&self, change: usize, outcome: Outcome) -> bool {
        let (child, visited) = (&self.arena.changes[change], &self.work.visited[change]);
        let was_there =
            child.made.is_something() || visited.moves() || child.fresh && child.stands();
        outcome != Outcome::Gone || was_there
    }

    fn finish_owner(&mut self, number: u32, node: &Node, frame: Frame) {
        self.compact(number);
        let owns = match self.arena.changes.get(node.changes as usize) {
            Some(change) if self.arena.nodes[number as usize].change_count > 0 => {
                change.made.is_something()
            }
            _ => node.within.len() > 0,
        };
        let gone = !owns && implicit_owners::<S>();
        if gone {
            self.leave_overflow(self.stood(&frame), frame.hung, node.key);
        }
        let height = self.height(number);
        let node = &mut self.arena.nodes[number as usize];
        node.height = height;
        node.fate = match (gone, frame.existed) {
            (false, _) => Fate::Made,
            (true, true) => Fate::Gone,
            (true, false) => Fate::Same,
        };
    }

    /// Whether there is a child at a listed place, once the batch is applied.
    fn is_there(&self, change: usize) -> bool {
        let (child, visited) = (&self.arena.changes[change], &self.work.visited[change]);
        match visited.outcome {
            Some(Outcome::Made(_)) => true,
            Some(Outcome::Gone) => false,
            _ => child.made.is_something() || visited.moves() || child.fresh && child.stands(),
        }
    }

    fn finish_branch(&mut self, number: u32, node: &Node, frame: Frame) -> Result<bool, TreeError> {
        let stands = node.changes().filter(|&change| self.arena.changes[change].stands()).count();
        let listed = node.changes().filter(|&change| self.is_there(change)).count();
        let count = node.within.len().saturating_sub(stands) + listed;
        let valued = node.fork_value != ForkValue::None;
        if valued && count > 0 && !S::LAYOUT.prefix_keys && !self.refuse_prefix(node)? {
            return Ok(false);
        }
        match (count, valued) {
            (0, false) => {
                self.leave(node, frame);
                let gone = if frame.existed { Fate::Gone } else { Fate::Same };
                self.arena.nodes[number as usize].fate = gone;
            }
            (0, true) => {
                self.leave(node, frame);
                let nothing = Self::node_at(node, NodeKind::Leaf);
                self.arena.nodes[number as usize] =
                    Node { fork: node.fork, value: node.value, ..nothing };
            }
            (1, false) => {
                let Some(lifted) = self.lift(node)? else { return Ok(false) };
                self.leave(node, frame);
                let node = &mut self.arena.nodes[number as usize];
                (node.fate, node.lifted) = (Fate::Lifted, lifted);
            }
            _ => {
                if !self.move_below(node)? {
                    return Ok(false);
                }
                if node.entry_page == PageRef::NOWHERE {
                    self.leave_overflow(self.stood(&frame), frame.hung, node.key);
                }
                if frame.valued && node.fork_value != ForkValue::Stored {
                    self.leave_value(node);
                }
                self.compact(number);
                let height = self.height(number);
                let node = &mut self.arena.nodes[number as usize];
                (node.fate, node.height) = (Fate::Made, height);
            }
        }
        Ok(true)
    }

    /// Another node where a branch hangs.
    const fn node_at(node: &Node, kind: NodeKind) -> Node {
        Node {
            kind,
            fate: Fate::Made,
            fork_value: ForkValue::None,
            owned: node.owned,
            digit: node.digit,
            entry: NO_ENTRY,
            entry_page: PageRef::NOWHERE,
            base: PageRef::NOWHERE,
            within: crate::page::Within { from: 0, end: 0 },
            body: (0, 0),
            depth: node.depth,
            fork: 0,
            height: 0,
            key: node.key,
            value: Place::NOTHING,
            changes: 0,
            change_count: 0,
            buckets: NONE,
            previous: NONE,
            lifted: NONE,
        }
    }

    /// One more than the height of the tallest node below.
    fn height(&self, number: u32) -> u32 {
        let node = &self.arena.nodes[number as usize];
        let height = |change: &TouchedChild| match change.made.arena == self.here {
            true => self.arena.nodes[change.made.node as usize].height + 1,
            false => 0,
        };
        self.arena.changes[node.changes()].iter().map(height).max().unwrap_or(0)
    }

    /// Leaves of the listed children of a node those that are not as they are stored.
    fn compact(&mut self, number: u32) {
        let node = self.arena.nodes[number as usize];
        let mut to = node.changes as usize;
        for from in node.changes() {
            let mut child = self.arena.changes[from];
            match self.work.visited[from].outcome {
                Some(Outcome::Made(made)) => (child.made, child.fresh) = (made, true),
                Some(Outcome::Gone) => {
                    let was_there = child.made.is_something() || child.fresh;
                    (child.made, child.fresh) = (Made::NOTHING, was_there);
                }
                // It is as it is stored, or was never there.
                _ if child.fresh => continue,
                _ => {}
            }
            // Who follows differences is told what an earlier batch had made and this one took
            // away.
            let is_told = Codec::<S>::DELTAS && child.fresh;
            if child.made.is_something() || child.stands() || is_told {
                self.arena.changes[to] = child;
                to += 1;
            }
        }
        self.arena.nodes[number as usize].change_count = to as u32 - node.changes;
    }

    /// The pages that a branch had to itself, and its overflow rows, are left.
    fn leave(&mut self, node: &Node, frame: Frame) {
        if self.has_own_page(node) {
            self.arena.left.push(node.base);
        }
        let mut next = node.buckets;
        while let Some(&bucket) = self.arena.buckets.get(next as usize) {
            self.arena.left.push(bucket.page);
            next = bucket.next;
        }
        self.leave_overflow(self.stood(&frame), frame.hung, node.key);
        if frame.valued {
            self.leave_value(node);
        }
    }

    fn has_own_page(&self, node: &Node) -> bool {
        node.base != PageRef::NOWHERE && {
            let page = self.chain().page(node.base);
            page.kind == crate::image::PageKind::Body && node.within == page.top()
        }
    }

    /// The overflow rows of a stored value at a fork are left.
    fn leave_value(&mut self, node: &Node) {
        if node.base == PageRef::NOWHERE {
            return;
        }
        let page = Arc::clone(self.chain().page(node.base));
        let value = page.value(self.codec, node.body.0.into(), node.fork as usize);
        if let Ok((view, _)) = value
            && let crate::image::LeafBody::Overflow(over) = view.body
        {
            self.leave_rows(over, node.fork, node.key);
        }
    }

    /// Makes those children anew that moved below a fork. Not if a page is missing.
    fn move_below(&mut self, node: &Node) -> Result<bool, TreeError> {
        for change in node.changes() {
            let visited = self.work.visited[change];
            let (Some((link, hung)), Some(Outcome::Same)) = (self.moves(&visited), visited.outcome)
            else {
                continue;
            };
            let digit = self.arena.changes[change].digit;
            let place = (node.fork + 1, digit, node.owned);
            let Some(moved) = self.move_to(link, (node.key, hung), place)? else {
                return Ok(false);
            };
            let made = Made { arena: self.here, node: moved };
            self.work.visited[change] = Visited::of(Some(Outcome::Made(made)));
        }
        Ok(true)
    }

    /// Has the only child of a branch take its place. Nothing if a page is missing.
    fn lift(&mut self, node: &Node) -> Result<Option<u32>, TreeError> {
        let place = (node.depth, node.digit, node.owned);
        let there = node.changes().find(|&change| self.is_there(change));
        let mut stored = None;
        if let Some(change) = there {
            let (child, visited) = (self.arena.changes[change], self.work.visited[change]);
            match (visited.outcome, self.moves(&visited)) {
                (Some(Outcome::Made(made)), _) if made.arena == self.here => {
                    return Ok(Some(self.lift_made(made.node, node)));
                }
                (Some(Outcome::Made(made)), _) => {
                    return self.move_to(Link::Made(made), (node.key, node.fork + 1), place);
                }
                (_, Some((link, hung))) => return self.move_to(link, (node.key, hung), place),
                _ if child.made.is_something() => {
                    let path = (node.key, node.fork + 1);
                    return self.move_to(Link::Made(child.made), path, place);
                }
                _ => stored = Some((child.digit, child.page, child.entry)),
            }
        }
        let Some(child) = stored.map_or_else(|| self.untouched(node), |child| Ok(Some(child)))?
        else {
            return Ok(None);
        };
        let (digit, page, entry) = child;
        let path = self.compose_digit(node.key, node.fork, digit);
        self.move_to(Link::Stored { page, entry }, (path, node.fork + 1), place)
    }

    /// The one stored child of a branch that is not listed. Nothing if the page of its bucket is
    /// missing.
    fn untouched(&mut self, node: &Node) -> Result<Option<(u8, PageRef, u16)>, TreeError> {
        let listed = |digit: u8| {
            self.arena.changes[node.changes()]
                .iter()
                .any(|change| change.digit == digit && change.stands())
        };
        let page = self.chain().page(node.base);
        let found = (node.within.range()).find(|&entry| !listed(page.entry(entry).digit));
        let Some(entry) = found else {
            return Err(crate::page::corrupt(&page.key, "a branch has no children"));
        };
        self.out_of_buckets(node, (node.base, entry))
    }

    /// Where the item of a child is, which may be in the page of a bucket. Nothing if that is
    /// missing.
    fn out_of_buckets(
        &mut self,
        node: &Node,
        (mut page, mut entry): (PageRef, u16),
    ) -> Result<Option<(u8, PageRef, u16)>, TreeError> {
        let mut among = node.within;
        let digit = self.chain().page(page).entry(entry).digit;
        while self.chain().page(page).entry(entry).kind.is_in_bucket() {
            let bucket = match self.bucket_in(node, page, entry) {
                Some(bucket) => bucket,
                None => match self.read_bucket(node, (page, among, entry))? {
                    Some(bucket) => bucket,
                    None => return Ok(None),
                },
            };
            let opened = self.chain().page(bucket);
            among = opened.top();
            let found = opened.find(among, digit, Self::WIDTH.mask());
            let lacks = "it lacks a child of its bucket";
            entry = found.ok_or_else(|| crate::page::corrupt(&opened.key, lacks))?;
            page = bucket;
        }
        Ok(Some((digit, page, entry)))
    }

    /// A node of this batch moves up, with a branch that it is alone in.
    fn lift_made(&mut self, number: u32, above: &Node) -> u32 {
        let node = self.arena.nodes[number as usize];
        if node.is_branch() && node.entry_page != PageRef::NOWHERE {
            let stood = self.stood(&self.work.frames[number as usize]);
            self.leave_overflow(stood, node.depth, node.key);
        }
        let node = &mut self.arena.nodes[number as usize];
        (node.depth, node.digit) = (above.depth, above.digit);
        (node.entry_page, node.entry) = (PageRef::NOWHERE, NO_ENTRY);
        // It may have been committed to where it was.
        self.arena.commits[number as usize] = None;
        number
    }

    /// The page of the body of a branch at a fork. Where it is missing, that is noted.
    fn body_at(&mut self, handle: Handle, key: KeyAt, fork: u32) -> Option<Arc<Page<S::Commit>>> {
        let bits = fork as usize * Self::WIDTH.bits();
        let bytes = self.chain().path(key, fork, Self::WIDTH);
        let page_key = PageKey::page(self.space, bytes, bits);
        let page = self.source.page(Some(handle), &page_key);
        if page.is_none() {
            self.work.missing.push((page_key, bits as u32));
        }
        page
    }

    /// Lists, for the node that was made last, the children that the node before it lists.
    fn list_older(&mut self, number: u32, over: Made) {
        let mut index = 0;
        while let Some(change) = self.older_change(over, index) {
            let change = TouchedChild { fresh: false, ..change };
            self.push_change(change, Visited::of(Some(Outcome::Same)));
            index += 1;
        }
        self.arena.nodes[number as usize].change_count = index as u32;
    }

    /// Makes a node anew at another depth; `hung` is the digit of `path` at which it hung. Nothing
    /// if a page is missing.
    pub(super) fn move_to(
        &mut self,
        link: Link,
        (path, hung): (KeyAt, u32),
        (depth, digit, owned): (u32, u8, bool),
    ) -> Result<Option<u32>, TreeError> {
        let Some(seen) = self.resolve_at(link, (path, hung), hung)? else { return Ok(None) };
        let fork = hung + seen.piece.digits;
        let key = match link {
            Link::Made(made) => self.chain().node(made).key,
            Link::Stored { .. } => self.compose((path, hung), &seen.piece),
        };
        let body = match seen.out_of_line {
            Some(handle) => match self.body_at(handle, key, fork) {
                Some(page) => Some(page),
                None => return Ok(None),
            },
            None => None,
        };
        let is_past = match (seen.kind, seen.owns) {
            (NodeKind::Leaf, false) => S::LAYOUT.keep_leaves,
            _ => Codec::<S>::DELTAS,
        };
        let previous = if is_past { self.push_previous(link, hung) } else { NONE };
        let buckets = self.copy_buckets(seen.over);
        let number = self.arena.nodes.len() as u32;
        let place = self.arena.changes.len() as u32;
        self.arena.nodes.push(Node {
            kind: seen.kind,
            fate: Fate::Made,
            fork_value: seen.fork_value,
            owned,
            digit,
            entry: NO_ENTRY,
            entry_page: PageRef::NOWHERE,
            base: seen.base,
            within: seen.within,
            body: seen.body,
            depth,
            fork,
            height: 0,
            key,
            value: seen.value,
            changes: place,
            change_count: 0,
            buckets,
            previous,
            lifted: NONE,
        });
        self.arena.commits.push(None);
        let over = seen.over;
        self.work.frames.push(Frame {
            existed: true,
            changed: true,
            hung,
            stood: NONE,
            valued: seen.fork_value == ForkValue::Stored,
            over,
        });
        self.list_older(number, over);
        if let Some(page) = body
            && !self.open_body(number, page)?
        {
            // What was made is of no account.
            self.arena.nodes[number as usize].fate = Fate::Gone;
            return Ok(None);
        }
        self.leave_overflow(seen.overflowed, hung, key);
        Ok(Some(number))
    }

    /// Refuses keys that begin other keys, in trees that have no such keys: a value is at the fork
    /// of a branch, and a child is below it. Not if a page is missing that is needed to name both.
    fn refuse_prefix(&mut self, node: &Node) -> Result<bool, TreeError> {
        let chain = self.chain();
        let prefix = chain.key(node, Self::WIDTH).to_vec();
        match self.first_key(*node)? {
            Some(key) => Err(TreeError::PrefixKey { prefix, key }),
            None => Ok(false),
        }
    }

    /// The first key below a branch of this batch. Nothing if a page is missing.
    fn first_key(&mut self, mut node: Node) -> Result<Option<Vec<u8>>, TreeError> {
        let mut arena = self.here;
        let mut open = true;
        loop {
            let Some((digit, link, moves)) = self.first_child(&node, arena, open)? else {
                return Ok(None);
            };
            open = false;
            if let Link::Made(made) = link {
                (node, arena) = (*self.chain().node(made), made.arena);
            } else {
                let (path, hung) = match moves {
                    Some(hung) => (node.key, hung),
                    None => (self.compose_digit(node.key, node.fork, digit), node.fork + 1),
                };
                let place = (node.fork + 1, digit, node.owned);
                let Some(moved) = self.move_to(link, (path, hung), place)? else {
                    return Ok(None);
                };
                arena = self.here;
                // It is of no account, but for what it says.
                node = self.arena.nodes[moved as usize];
                self.arena.nodes[moved as usize].fate = Fate::Gone;
            }
            if !node.is_branch() {
                return Ok(Some(self.chain().key(&node, Self::WIDTH).to_vec()));
            }
        }
    }

    /// The first child of a branch; of an `open` one not all children are listed as they are to be.
    /// Nothing if a page is missing.
    fn first_child(
        &mut self,
        node: &Node,
        arena: u32,
        open: bool,
    ) -> Result<Option<HungChild>, TreeError> {
        let changes = self.chain().changes(arena, node).to_vec();
        let mut listed = None;
        let mut gone = Vec::new();
        for (number, change) in node.changes().zip(&changes) {
            let mut link = change.made.is_something().then_some(Link::Made(change.made));
            let (mut is_there, mut moves) = (link.is_some(), None);
            if open {
                let visited = self.work.visited[number];
                is_there = self.is_there(number);
                match (visited.outcome, self.moves(&visited)) {
                    (Some(Outcome::Made(made)), _) => link = Some(Link::Made(made)),
                    (_, Some((moved, hung))) => (link, moves) = (Some(moved), Some(hung)),
                    _ => {}
                }
            }
            if change.stands() && (!is_there || link.is_some()) {
                gone.push(change.digit);
            }
            if let Some(link) = link.filter(|_| is_there && listed.is_none()) {
                listed = Some((change.digit, link, moves));
            }
        }
        let stored = if node.base == PageRef::NOWHERE {
            None
        } else {
            let page = self.chain().page(node.base);
            let found = node.within.range().find(|&at| !gone.contains(&page.entry(at).digit));
            found.map(|at| (page.entry(at).digit, at))
        };
        match (listed, stored) {
            (Some(listed), None) => Ok(Some(listed)),
            (Some(listed), Some((digit, _))) if listed.0 <= digit => Ok(Some(listed)),
            (_, Some((_, entry))) => {
                let found = self.out_of_buckets(node, (node.base, entry))?;
                Ok(found.map(|(digit, page, entry)| (digit, Link::Stored { page, entry }, None)))
            }
            (None, None) => Err(TreeError::Corrupt {
                page: "a pending state".into(),
                what: "a branch has no children".into(),
            }),
        }
    }

    /// The page of a bucket that was opened for a branch.
    fn bucket_in(&self, node: &Node, above: PageRef, member: u16) -> Option<PageRef> {
        let chain = self.chain();
        let entry = chain.page(above).entry(member);
        let rest = S::LAYOUT.digit_bits - entry.span;
        chain.buckets(self.here, node).find(|bucket| {
            let page = chain.page(*bucket);
            let first = page.entries(page.top()).first();
            page.bits == entry.span
                && first.is_some_and(|first| first.digit >> rest == entry.digit >> rest)
        })
    }

    /// Reads the page of a bucket. Nothing if it is missing.
    fn read_bucket(
        &mut self,
        node: &Node,
        (above, among, member): (PageRef, crate::page::Within, u16),
    ) -> Result<Option<PageRef>, TreeError> {
        let page = Arc::clone(self.chain().page(above));
        let entry = page.entry(member);
        let path = self.compose_digit(node.key, node.fork, entry.digit);
        let bits = node.fork as usize * Self::WIDTH.bits() + usize::from(entry.span);
        let bytes = self.chain().path(path, node.fork + 1, Self::WIDTH);
        let key = PageKey::page(self.space, bytes, bits);
        let handle = page.handle(member).map(crate::page::HandleCell::get);
        let Some(found) = self.source.page(handle, &key) else {
            self.work.missing.push((key, bits as u32));
            return Ok(None);
        };
        self.check_bucket((above, among, member), &found)?;
        Ok(Some(self.push_page(found)))
    }
}
