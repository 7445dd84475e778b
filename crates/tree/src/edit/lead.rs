//! Going down from node to node, each made of the item of a page.

use super::{Body, DEPTH_MAX, Group, Halt, Member, NONE, Node, Sheet, Walk, Walked};
use crate::batch::{Op, OpKind};
use crate::cache::LinkCell;
use crate::image::{Codec, MEMBER_COMMIT_AT, PageKind};
use crate::node::Span;
use crate::outline::{self, Entry, Kind};
use crate::page_key::PageKey;
use crate::scheme::Scheme;

/// Where an item lies, and what it is a child of.
struct Item<'a, C> {
    sheet: Sheet<'a, C>,
    page: u32,
    entry: u16,
    /// Which of its parent's children it is.
    seat: u16,
    owned: bool,
    /// The digit at which it hangs.
    depth: usize,
    parent: u32,
}

/// Where going into an item led.
enum Led<'a, C> {
    /// To the operation's value.
    Here,
    /// Into a node that the way goes on from, and the page that the items in it are in.
    Into(u32, Sheet<'a, C>),
    /// Elsewhere than to a value of the operation's key and its length.
    Astray,
}

/// An operation that is walked: its key and its value.
#[derive(Clone, Copy)]
struct Goal<'a> {
    path: &'a [u8],
    key: Span,
    value: Span,
    digits: usize,
}

impl Node {
    /// The node of an item that a key passes; what else there is to say of it is yet to be.
    #[inline(always)]
    fn new<C>(body: Body, item: &Item<'_, C>, key: Span, fork: usize) -> Self {
        Self {
            body,
            owned: item.owned,
            kept: false,
            in_row: false,
            known: false,
            page: item.page,
            entry: item.entry,
            at: Self::NOWHERE,
            payload: 0,
            len: 0,
            seat: item.seat,
            from: 0,
            end: 0,
            inner: item.page,
            group: NONE,
            first: NONE,
            last: NONE,
            next: NONE,
            key,
            value: Span::EMPTY,
            depth: item.depth as u32,
            fork: fork as u32,
            height: 0,
            commit: NONE,
        }
    }
}

impl<'a, S: Scheme> Walk<'a, S> {
    /// The largest digit.
    pub(super) const MOST: u8 = Codec::<S>::WIDTH.mask();
    const OWNER_DIGITS: usize = match S::OWNER {
        Some(owner) => owner.bytes * Codec::<S>::WIDTH.per_byte(),
        None => 0,
    };

    /// Goes down from the last open node to the value of an operation's key. `false` if it is not there.
    pub(super) fn lead(&mut self, op: usize) -> Result<bool, Halt> {
        let Op { key, kind: OpKind::Put(value), .. } = self.ops[op] else { return Ok(false) };
        let path = &self.bytes[key.range()];
        let goal = Goal { path, key, value, digits: path.len() * Codec::<S>::WIDTH.per_byte() };
        let mut item = match self.desk.stack.last() {
            Some(&node) => {
                let sheet = self.sheet(self.edits.nodes[node as usize].inner);
                let node = self.pass(node, sheet, goal);
                self.child(node, sheet, goal)?
            }
            // Another operation has been below the top, and closed it.
            None if !self.edits.nodes.is_empty() => None,
            None => Some(self.top(goal)?),
        };
        while let Some(found) = item {
            if self.desk.stack.len() == DEPTH_MAX {
                break;
            }
            let entry = found.sheet.entry(found.entry);
            let led = match entry.kind {
                Kind::Branch | Kind::Apart => self.enter_branch(&found, entry, goal)?,
                Kind::Terminal => self.enter_terminal(&found, entry, goal)?,
                _ => Led::Astray,
            };
            item = match led {
                Led::Here => return Ok(true),
                Led::Into(node, sheet) => {
                    let node = self.pass(node, sheet, goal);
                    self.child(node, sheet, goal)?
                }
                Led::Astray => None,
            };
        }
        Ok(false)
    }

    /// The item of the root page.
    fn top(&mut self, goal: Goal<'a>) -> Result<Item<'a, S::Commit>, Halt> {
        self.desk.around.clear();
        let page = self.open(&self.pages.top, goal, (NONE, 0, 0), PageKind::Root)?;
        let sheet = self.sheet(page);
        // A store may have given another one since the tree was opened.
        let is_head = self
            .root
            .is_some_and(|root| std::ptr::eq(&*root.row, sheet.row) || *root.row == *sheet.row);
        if !is_head || sheet.outline.entries.is_empty() {
            return Err(Halt::Not);
        }
        Ok(Item { sheet, page, entry: 0, seat: 0, owned: false, depth: 0, parent: NONE })
    }

    /// Goes down from a branch as long as its children are in its page and are branches that skip nothing: what
    /// [`Walk::child`] and [`Walk::enter_branch`] do, who know of all the rest. Answers the last of them.
    #[inline(always)]
    fn pass(&mut self, mut parent: u32, sheet: Sheet<'a, S::Commit>, goal: Goal<'a>) -> u32 {
        let &Node { body, fork, inner, mut from, mut end, last, owned, .. } =
            &self.edits.nodes[parent as usize];
        if body != Body::Fork || last != NONE {
            return parent;
        }
        let among_owners = S::OWNER.is_some() && !owned;
        let limit = if among_owners { Self::OWNER_DIGITS } else { usize::MAX };
        let (mut depth, limit) = (fork as usize + 1, limit.min(goal.digits));
        while depth < limit && self.desk.stack.len() < DEPTH_MAX {
            let digit = Codec::<S>::WIDTH.digit(goal.path, depth - 1);
            let Some(seat) = sheet.outline.find(from..end, digit, Self::MOST) else { break };
            let entry = sheet.entry(seat);
            if entry.kind != Kind::Branch || entry.span > 0 || !entry.keeps {
                break;
            }
            if S::DIGIT_BITS == 1 && self.ops.len() == 1 {
                sheet.outline.fetch_other(sheet.row, from..end, seat);
            }
            let number = self.edits.nodes.len() as u32;
            let above = &mut self.edits.nodes[parent as usize];
            (above.first, above.last) = (number, number);
            let within = entry.within();
            (from, end) = (within.start, within.end);
            let item = Item { sheet, page: inner, entry: seat, seat, owned, depth, parent };
            let mut node = Node::new(Body::Fork, &item, goal.key, depth);
            (node.from, node.end) = (from, end);
            (node.kept, node.at) = (true, entry.at + MEMBER_COMMIT_AT as u16);
            node.in_row = S::DIGIT_BITS == 1;
            node.known = sheet.outline.knows(Some(seat));
            self.edits.nodes.push(node);
            self.desk.stack.push(number);
            parent = number;
            depth += 1;
        }
        parent
    }

    /// The child of an open node that an operation goes on to.
    #[inline(always)]
    fn child(
        &mut self,
        parent: u32,
        sheet: Sheet<'a, S::Commit>,
        goal: Goal<'a>,
    ) -> Result<Option<Item<'a, S::Commit>>, Halt> {
        let &Node { body, fork, inner, from, end, last, owned, .. } =
            &self.edits.nodes[parent as usize];
        let depth = fork as usize;
        if S::DIGIT_BITS > 1 {
            self.desk.around.clear();
        }
        if goal.digits <= depth {
            return Ok(None);
        }
        if body != Body::Fork {
            // Not if another operation has been below it, and closed it.
            let open = from > 0 && last == NONE;
            let (page, entry) = (inner, from);
            let item = Item { sheet, page, entry, seat: 0, owned: true, depth, parent };
            return Ok(open.then_some(item));
        }
        let digit = Codec::<S>::WIDTH.digit(goal.path, depth);
        let Some(seat) = sheet.outline.find(from..end, digit, Self::MOST) else { return Ok(None) };
        // As above.
        if last != NONE && self.edits.nodes[last as usize].seat == seat {
            return Ok(None);
        }
        if S::DIGIT_BITS == 1 && self.ops.len() == 1 {
            sheet.outline.fetch_other(sheet.row, from..end, seat);
        }
        let (page, entry, depth) = (inner, seat, depth + 1);
        let mut item = Item { sheet, page, entry, seat, owned, depth, parent };
        if S::DIGIT_BITS > 1 && sheet.entry(seat).kind.is_in_group() {
            (item.page, item.entry) = self.in_group(parent, goal, digit, (page, seat))?;
            item.sheet = self.sheet(item.page);
        }
        Ok(Some(item))
    }

    /// The page and the entry of the item that a branch's child in a group is. A group may be in another one.
    fn in_group(
        &mut self,
        node: u32,
        goal: Goal<'a>,
        digit: u8,
        mut place: (u32, u16),
    ) -> Result<(u32, u16), Halt> {
        let mut around = 0;
        loop {
            let (page, seat) = place;
            let entry = self.sheet(page).entry(seat);
            if !entry.kind.is_in_group() {
                return Ok(place);
            }
            if entry.span <= around {
                return Err(Halt::Not);
            }
            around = entry.span;
            self.desk.around.push(place);
            let page = match self.group(node, entry.span, digit) {
                Some(page) => page,
                None => self.open_group(node, goal, place, digit)?,
            };
            let sheet = self.sheet(page);
            let seat =
                sheet.outline.find(sheet.outline.top(), digit, Self::MOST).ok_or(Halt::Not)?;
            let found = sheet.entry(seat);
            if found.kind.is_terminal() != entry.kind.is_terminal() {
                return Err(Halt::Not);
            }
            place = (page, seat);
        }
    }

    /// The page of a branch's group, if it was opened before.
    fn group(&self, node: u32, bits: u8, digit: u8) -> Option<u32> {
        let mut group = self.edits.nodes[node as usize].group;
        let rest = S::DIGIT_BITS - bits;
        while let Some(found) = self.desk.groups.get(group as usize) {
            if found.bits == bits && found.digit >> rest == digit >> rest {
                return Some(found.page);
            }
            group = found.next;
        }
        None
    }

    /// Opens the group of a branch that `digit` is in, and that a page has the members of; not if it does not hold
    /// just these.
    fn open_group(
        &mut self,
        node: u32,
        goal: Goal<'a>,
        (page, seat): (u32, u16),
        digit: u8,
    ) -> Result<u32, Halt> {
        let Node { inner, from, end, fork, group, .. } = self.edits.nodes[node as usize];
        let of = self.sheet(page).outline;
        let bits = of.entries[usize::from(seat)].span;
        let place = (page, fork as usize, bits);
        let opened = self.open(of.link(seat), goal, place, PageKind::Group)?;
        let range = if page == inner { from..end } else { of.top() };
        let rest = S::DIGIT_BITS - bits;
        let members = &of.entries[usize::from(range.start)..usize::from(range.end)];
        let members = members.iter().filter(|entry| {
            entry.kind.is_in_group() && entry.span == bits && entry.digit >> rest == digit >> rest
        });
        let held = self.sheet(opened).outline;
        let held = held.entries[..usize::from(held.top().end)].iter();
        let shown = |entry: &Entry| (entry.digit, entry.kind.is_terminal());
        if !members.map(shown).eq(held.map(shown)) {
            return Err(Halt::Not);
        }
        let number = self.desk.groups.len() as u32;
        self.desk.groups.push(Group { bits, digit, page: opened, next: group });
        self.edits.nodes[node as usize].group = number;
        Ok(opened)
    }

    fn enter_terminal(
        &mut self,
        item: &Item<'a, S::Commit>,
        entry: &Entry,
        goal: Goal<'a>,
    ) -> Result<Led<'a, S::Commit>, Halt> {
        let Sheet { row, outline } = item.sheet;
        let stored = self.codec.inline_terminal(row, entry.at.into(), item.depth);
        let Some(stored) = stored else { return Ok(Led::Astray) };
        let among_owners = S::OWNER.is_some() && !item.owned;
        let whole = if among_owners { Self::OWNER_DIGITS } else { goal.digits };
        let suffix = stored.suffix;
        if suffix.end() != whole || suffix.common(goal.path) < suffix.len() {
            return Ok(Led::Astray);
        }
        let is_here = !among_owners || goal.digits == whole;
        let mut node = Node::new(Body::Owner, item, goal.key, whole);
        node.owned = true;
        (node.payload, node.len) = (stored.payload.start as u16, stored.payload.len() as u16);
        if stored.owns {
            node.from = entry.within().start;
            // What is owned carries what it commits to, unless the page is forged.
            outline.commit(self.codec, row, node.from).ok_or(Halt::Not)?;
        }
        if let Some(at) = stored.commit {
            if self.codec.scheme.commit_bytes(&row[at..]) != S::COMMIT_BYTES {
                return Err(Halt::Not);
            }
            (node.kept, node.at) = (true, at as u16);
        }
        if is_here {
            let value = &self.bytes[goal.value.range()];
            if stored.owns && !among_owners || value.len() != stored.payload.len() {
                return Ok(Led::Astray);
            }
            if *value == row[stored.payload] {
                return Ok(Led::Here);
            }
            (node.body, node.value, self.desk.changed) = (Body::Value, goal.value, true);
        } else if !stored.owns {
            return Ok(Led::Astray);
        }
        let number = self.attach(item, node)?;
        if stored.owns {
            self.desk.stack.push(number);
        } else {
            self.shut(number);
        }
        Ok(if is_here { Led::Here } else { Led::Into(number, item.sheet) })
    }

    #[inline(always)]
    fn enter_branch(
        &mut self,
        item: &Item<'a, S::Commit>,
        entry: &Entry,
        goal: Goal<'a>,
    ) -> Result<Led<'a, S::Commit>, Halt> {
        if !entry.keeps {
            return Err(Halt::Not);
        }
        // Among owners nothing forks below their keys, unless a page is forged.
        let among_owners = S::OWNER.is_some() && !item.owned;
        let limit = if among_owners { Self::OWNER_DIGITS } else { usize::MAX };
        let fork = item.depth + usize::from(entry.span);
        if fork >= goal.digits.min(limit) || entry.span > 0 && !self.passes(item, entry, goal)? {
            return Ok(Led::Astray);
        }
        let mut node = Node::new(Body::Fork, item, goal.key, fork);
        let (mut sheet, mut within) = (item.sheet, entry.within());
        if entry.kind == Kind::Apart {
            let link = sheet.outline.link(item.entry);
            node.inner = self.open(link, goal, (item.page, fork, 0), PageKind::Body)?;
            sheet = self.sheet(node.inner);
            within = sheet.outline.top();
        }
        if S::DIGIT_BITS > 1 && self.ops.len() == 1 {
            sheet.outline.fetch_commits(sheet.row, within.clone());
        }
        (node.from, node.end) = (within.start, within.end);
        (node.kept, node.at) = (true, entry.at + MEMBER_COMMIT_AT as u16);
        node.in_row = S::DIGIT_BITS == 1;
        node.known = sheet.outline.knows(node.around());
        let number = self.attach(item, node)?;
        self.desk.stack.push(number);
        Ok(Led::Into(number, sheet))
    }

    /// Whether an operation's key has the digits that a branch skips.
    fn passes(
        &self,
        item: &Item<'a, S::Commit>,
        entry: &Entry,
        goal: Goal<'a>,
    ) -> Result<bool, Halt> {
        let branch = self.codec.plain_branch(item.sheet.row, entry.at.into(), item.depth);
        let (skip, _) = branch.ok_or(Halt::Not)?;
        Ok(skip.common(goal.path) == skip.len())
    }

    /// Makes an item a node.
    #[inline(always)]
    fn attach(&mut self, item: &Item<'a, S::Commit>, mut node: Node) -> Result<u32, Halt> {
        let number = self.edits.nodes.len() as u32;
        if S::DIGIT_BITS > 1 && !self.desk.around.is_empty() {
            node.kept = true;
            self.note_members(number)?;
        }
        if let Some(parent) = self.edits.nodes.get_mut(item.parent as usize) {
            let before = std::mem::replace(&mut parent.last, number);
            if before == NONE {
                parent.first = number;
            } else {
                self.edits.nodes[before as usize].next = number;
            }
        }
        self.edits.nodes.push(node);
        Ok(number)
    }

    /// Notes where else it is kept what a node in groups commits to.
    fn note_members(&mut self, node: u32) -> Result<(), Halt> {
        for &(page, entry) in &self.desk.around {
            let member = self.sheet(page).entry(entry);
            if !member.keeps {
                return Err(Halt::Not);
            }
            let at = member.at + MEMBER_COMMIT_AT as u16;
            self.edits.members.push(Member { page, entry, at, node });
        }
        Ok(())
    }

    /// Opens the page at some first digits of an operation's key, and bits behind them, that another leads to.
    fn open(
        &mut self,
        cell: &LinkCell,
        goal: Goal<'a>,
        (above, digits, bits): (u32, usize, u8),
        kind: PageKind,
    ) -> Result<u32, Halt> {
        let bits = digits * Codec::<S>::WIDTH.bits() + usize::from(bits);
        let link = match self.pages.follow(cell) {
            Some(link) => link,
            None => {
                let key = PageKey::page(self.space, goal.path, bits);
                let Some(link) = self.pages.find(&key) else {
                    self.desk.missing = Some(key);
                    return Err(Halt::Missing);
                };
                cell.set(link);
                link
            }
        };
        let start = if kind == PageKind::Root { 0 } else { digits + 1 };
        let build = |row: &[u8]| outline::of(self.codec, row, start);
        let outline = self.pages.outline(link.slot, build).ok_or(Halt::Not)?;
        if outline.kind != kind {
            return Err(Halt::Not);
        }
        if self.ops.len() == 1 {
            outline.fetch();
            outline.fetch_links();
        }
        self.edits.pages.push(Walked { link, key: goal.key, bits: bits as u32 });
        if bits > 0 {
            let above = self.edits.pages.get(above as usize).map_or(0, |page| page.bits);
            self.desk.scouts.note(bits, above as usize);
        }
        Ok(self.edits.pages.len() as u32 - 1)
    }
}
