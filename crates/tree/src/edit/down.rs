//! Going down page by page, all operations that go on in a page at once.

use std::ops::Range;

use spinney_hash::prefetch;

use super::{
    Ahead, Beside, Body, DEPTH_MAX, Desk, Edits, Halt, Kid, Member, NONE, Node, Numbers, Sheet,
    Walk, Walked,
};
use crate::batch::{Op, OpKind};
use crate::image::{Codec, MEMBER_COMMIT_AT, PageKind};
use crate::outline::{self, Entry, Kind};
use crate::page_key::PageKey;
use crate::scheme::Scheme;

/// How many pages ahead of the walk a page's slot is asked for, the start of its row, and its entries.
const SLOTS_AHEAD: usize = 14;
const ROWS_AHEAD: usize = 8;
const ENTRIES_AHEAD: usize = 4;

/// What a terminal takes, as a rule.
const TERMINAL_BYTES: usize = 128;

/// An item that operations go on to: where it lies, its number among the kids of the walk, and at which digit it hangs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    page: u32,
    kid: u32,
    parent: u32,
    depth: u32,
    ops: Numbers,
    entry: u16,
    level: u16,
    owned: bool,
    /// Whether its parent's page keeps what it commits to in a member of a group.
    grouped: bool,
}

impl Node {
    /// The node of an item; what else there is to say of it is yet to be.
    #[inline(always)]
    const fn new(body: Body, item: &Item, ops: Numbers, fork: usize) -> Self {
        Self {
            body,
            owned: item.owned,
            kept: item.grouped,
            in_row: false,
            known: false,
            page: item.page,
            entry: item.entry,
            at: Self::NOWHERE,
            payload: 0,
            len: 0,
            from: 0,
            end: 0,
            inner: item.page,
            kids: Numbers { from: 0, end: 0 },
            parent: item.parent,
            other: NONE,
            op: ops.from,
            depth: item.depth,
            fork: fork as u32,
            level: item.level,
            height: 0,
            commit: NONE,
        }
    }
}

impl<'a, S: Scheme> Walk<'a, S> {
    /// The largest digit.
    const MOST: u8 = Codec::<S>::WIDTH.mask();
    const OWNER_DIGITS: usize = match S::OWNER {
        Some(owner) => owner.bytes * Codec::<S>::WIDTH.per_byte(),
        None => 0,
    };

    /// Puts the root page on the list.
    pub(super) fn begin(&mut self) {
        let (link, ops) = (self.pages.top.get(), Numbers { from: 0, end: self.ops.len() as u32 });
        self.desk.later.push(Ahead { link, above: NONE, entry: 0, bits: 0, node: NONE, ops });
    }

    /// Asks for what pages that are soon to be walked begin with.
    #[inline]
    pub(super) fn look_ahead(&self) {
        let next = self.desk.next;
        if let Some(far) = self.desk.list.get(next + SLOTS_AHEAD) {
            self.pages.fetch_slot(far.link.slot);
            self.pages.fetch_outline(far.link.slot);
            prefetch(self.key(far.ops.from));
        }
        if let Some(soon) = self.desk.list.get(next + ROWS_AHEAD)
            && let Some(row) = self.pages.guess_row(soon.link.slot)
        {
            // What is wanted of it is known only once the entries are read: by then where it is in memory is.
            prefetch(&row[..row.len().min(1)]);
        }
        if let Some(soon) = self.desk.list.get(next + ENTRIES_AHEAD) {
            let slot = soon.link.slot;
            match (self.pages.guess_outline(slot), self.pages.guess_row(slot)) {
                (Some(outline), _) => outline.fetch(),
                (None, Some(row)) => prefetch(row),
                (None, None) => {}
            }
        }
    }

    /// Walks a page: what operations come to in it, but for its terminals.
    pub(super) fn walk_page(&mut self, ahead: Ahead) -> Result<(), Halt> {
        let page = self.open(&ahead)?;
        let (nodes, members) = (self.edits.nodes.len() as u32, self.edits.members.len() as u32);
        let sheet = self.sheet(page);
        if ahead.node == NONE {
            self.enter_root(sheet, &ahead)?;
        } else if ahead.bits > 0 {
            self.enter_group(sheet, page, &ahead)?;
        } else {
            let node = &mut self.edits.nodes[ahead.node as usize];
            let top = sheet.outline.top();
            (node.inner, node.from, node.end) = (page, top.start, top.end);
            node.known = sheet.outline.knows(None);
            self.spread(sheet, ahead.node, ahead.ops)?;
        }
        // The terminal of one operation would come no sooner if others were waited for.
        self.go_in(sheet, self.ops.len() == 1)?;
        self.note_runs(page, 0, (nodes, members));
        Ok(())
    }

    /// Notes that nodes and members from some numbers on are those of a page, or more of them.
    fn note_runs(&mut self, page: u32, run: usize, (nodes, members): (u32, u32)) {
        let Edits { nodes: all_nodes, members: all_members, pages, .. } = &mut *self.edits;
        let walked = &mut pages[page as usize];
        let ends = [
            (&mut walked.nodes[run], nodes, all_nodes.len()),
            (&mut walked.members[run], members, all_members.len()),
        ];
        for (numbers, from, end) in ends {
            let from = if numbers.len() == 0 { from } else { numbers.from };
            *numbers = Numbers { from, end: end as u32 };
        }
    }

    /// Goes into the terminals of the pages of this turn, and into what they own.
    pub(super) fn walk_ends(&mut self) -> Result<(), Halt> {
        for number in 0..self.desk.ends.len() {
            let item = self.desk.ends[number];
            let (nodes, members) = (self.edits.nodes.len() as u32, self.edits.members.len() as u32);
            self.desk.stack.push(item);
            self.go_in(self.sheet(item.page), true)?;
            self.note_runs(item.page, 1, (nodes, members));
        }
        self.desk.ends.clear();
        Ok(())
    }

    /// Opens a page of the list.
    fn open(&mut self, ahead: &Ahead) -> Result<u32, Halt> {
        let (kind, digits) = match self.edits.nodes.get(ahead.node as usize) {
            None => (PageKind::Root, 0),
            Some(node) if ahead.bits > 0 => (PageKind::Group, node.fork as usize),
            Some(node) => (PageKind::Body, node.fork as usize),
        };
        let bits = digits * Codec::<S>::WIDTH.bits() + usize::from(ahead.bits);
        let link = if self.pages.leads(ahead.link) {
            ahead.link
        } else {
            let key = PageKey::page(self.space, self.key(ahead.ops.from), bits);
            let Some(link) = self.pages.find(&key) else {
                self.desk.missing = Some(key);
                return Err(Halt::Missing);
            };
            match kind {
                PageKind::Root => self.pages.top.set(link),
                _ => self.sheet(ahead.above).outline.link(ahead.entry).set(link),
            }
            link
        };
        let start = if kind == PageKind::Root { 0 } else { digits + 1 };
        let build = |row: &[u8]| outline::of(self.codec, row, start);
        let outline = self.pages.outline(link.slot, build).ok_or(Halt::Not)?;
        if outline.kind != kind {
            return Err(Halt::Not);
        }
        if self.ops.len() == 1 {
            outline.fetch();
        }
        outline.fetch_links();
        let (op, bits) = (ahead.ops.from, bits as u32);
        let (nodes, members, waits) = Default::default();
        self.edits.row_bytes += self.pages.row_len(link.slot);
        self.edits.pages.push(Walked { link, op, bits, nodes, members, waits });
        Ok(self.edits.pages.len() as u32 - 1)
    }

    /// Puts the item of the root page on the stack.
    fn enter_root(&mut self, sheet: Sheet<'a, S::Commit>, ahead: &Ahead) -> Result<(), Halt> {
        // A store may have given another one since the tree was opened.
        let is_head = self
            .root
            .is_some_and(|root| std::ptr::eq(&*root.row, sheet.row) || *root.row == *sheet.row);
        if !is_head || sheet.outline.entries.is_empty() {
            return Err(Halt::Not);
        }
        let kid = self.kid(0, 0);
        let (page, parent, depth, entry, level) = (0, NONE, 0, 0, 0);
        let (owned, grouped, ops) = (false, false, ahead.ops);
        let item = Item { page, kid, parent, depth, ops, entry, level, owned, grouped };
        self.desk.stack.push(item);
        Ok(())
    }

    /// Goes into all items on the stack, which lie in one page, and into those in them. Terminals are noted for later,
    /// when they have come from memory, or gone into, too.
    fn go_in(&mut self, sheet: Sheet<'a, S::Commit>, ends: bool) -> Result<(), Halt> {
        while let Some(item) = self.desk.stack.pop() {
            let entry = sheet.entry(item.entry);
            match entry.kind {
                Kind::Branch | Kind::Apart => self.enter_branch(sheet, &item, entry)?,
                Kind::Terminal | Kind::Lone if ends => self.enter_terminal(sheet, &item, entry)?,
                Kind::Terminal | Kind::Lone => {
                    let at = usize::from(entry.at);
                    prefetch(&sheet.row[at..sheet.row.len().min(at + TERMINAL_BYTES)]);
                    self.desk.ends.push(item);
                }
                // A branch of an unusual kind.
                _ => self.leave(item.ops),
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn enter_branch(
        &mut self,
        sheet: Sheet<'a, S::Commit>,
        item: &Item,
        entry: &Entry,
    ) -> Result<(), Halt> {
        if !entry.keeps {
            return Err(Halt::Not);
        }
        // Among owners nothing forks below their keys, unless a page is forged.
        let among_owners = S::OWNER.is_some() && !item.owned;
        let fork = item.depth as usize + usize::from(entry.span);
        let mut ops = item.ops;
        if among_owners && fork >= Self::OWNER_DIGITS || item.level >= DEPTH_MAX {
            self.leave(ops);
            return Ok(());
        }
        if entry.span > 0 {
            let at = entry.at.into();
            let branch = self.codec.plain_branch(sheet.row, at, item.depth as usize);
            let (skip, _) = branch.ok_or(Halt::Not)?;
            ops = self.narrow(ops, |walk, op| skip.common(walk.key(op)) == skip.len());
            if ops.len() == 0 {
                return Ok(());
            }
        }
        let number = self.edits.nodes.len() as u32;
        self.edits.kids[item.kid as usize].node = number;
        let mut node = Node::new(Body::Fork, item, ops, fork);
        (node.kept, node.at) = (true, entry.at + MEMBER_COMMIT_AT as u16);
        node.in_row = S::DIGIT_BITS == 1;
        if entry.kind == Kind::Apart {
            self.edits.nodes.push(node);
            let link = sheet.outline.link(item.entry).get();
            let (above, entry, bits) = (item.page, item.entry, 0);
            self.put_on_list(Ahead { link, above, entry, bits, node: number, ops });
            return Ok(());
        }
        let within = entry.within();
        (node.from, node.end) = (within.start, within.end);
        node.known = sheet.outline.knows(Some(item.entry));
        self.edits.nodes.push(node);
        self.spread(sheet, number, ops)
    }

    /// Puts the children of a branch that operations go on to on the stack, or on the list those in groups.
    #[inline(always)]
    fn spread(
        &mut self,
        sheet: Sheet<'a, S::Commit>,
        mut number: u32,
        mut ops: Numbers,
    ) -> Result<(), Halt> {
        if S::DIGIT_BITS == 1 && ops.len() == 1 {
            number = self.pass(sheet, number, ops);
        }
        let &Node { fork, from, end, owned, level, inner, .. } = &self.edits.nodes[number as usize];
        let width = Codec::<S>::WIDTH;
        let first = self.edits.kids.len();
        let bottom = self.desk.stack.len();
        while ops.len() > 0 {
            let op = &self.ops[ops.from as usize];
            if op.key.len as usize * width.per_byte() <= fork as usize {
                // Keys that end at the fork are before those that go on.
                self.leave(Numbers { end: ops.from + 1, ..ops });
                ops.from += 1;
                continue;
            }
            let digit = op.digit(self.bytes, fork as usize, width);
            let run = self.run(ops, fork as usize, digit);
            ops.from = run.end;
            let Some(seat) = sheet.outline.find(from..end, digit, Self::MOST) else {
                self.leave(run);
                continue;
            };
            let kid = self.kid(seat, digit);
            let entry = sheet.entry(seat);
            if S::DIGIT_BITS > 1 && entry.kind.is_in_group() {
                self.go_to_group(entry, (inner, seat), (number, kid), (run, 0))?;
                continue;
            }
            let (parent, depth, level, grouped) = (number, fork + 1, level + 1, false);
            let (page, entry, ops) = (inner, seat, run);
            let item = Item { page, kid, parent, depth, ops, entry, level, owned, grouped };
            self.desk.stack.push(item);
        }
        // The first is to be on top.
        if self.desk.stack.len() > bottom + 1 {
            self.desk.stack[bottom..].reverse();
        }
        let kids = Numbers { from: first as u32, end: self.edits.kids.len() as u32 };
        self.edits.nodes[number as usize].kids = kids;
        // What the others commit to is read when the branch is committed to.
        if S::DIGIT_BITS > 1 {
            sheet.outline.fetch_commits(sheet.row, from..end);
        } else if kids.len() == 1 {
            let seat = self.edits.kids[first].seat;
            self.edits.nodes[number as usize].other = self.beside(sheet, inner, (from..end, seat));
        }
        Ok(())
    }

    /// Goes down from a branch as long as its children are in its page and are branches that skip nothing, for one
    /// operation: what [`Walk::spread`] and [`Walk::enter_branch`] do, who know of all the rest. Answers the last of
    /// them.
    #[inline(always)]
    fn pass(&mut self, sheet: Sheet<'a, S::Commit>, mut parent: u32, ops: Numbers) -> u32 {
        let &Node { fork, owned, mut level, inner, mut from, mut end, .. } =
            &self.edits.nodes[parent as usize];
        let path = self.key(ops.from);
        let width = Codec::<S>::WIDTH;
        let among_owners = S::OWNER.is_some() && !owned;
        let limit = if among_owners { Self::OWNER_DIGITS } else { usize::MAX };
        let limit = limit.min(path.len() * width.per_byte()) as u32;
        let mut depth = fork + 1;
        while depth < limit && level < DEPTH_MAX {
            let digit = width.digit(path, depth as usize - 1);
            let Some(seat) = sheet.outline.find(from..end, digit, Self::MOST) else { break };
            let entry = sheet.entry(seat);
            if entry.kind != Kind::Branch || entry.span > 0 || !entry.keeps {
                break;
            }
            self.edits.nodes[parent as usize].other = self.beside(sheet, inner, (from..end, seat));
            let (number, kid) = (self.edits.nodes.len() as u32, self.edits.kids.len() as u32);
            self.edits.kids.push(Kid { seat, digit, node: number });
            self.edits.nodes[parent as usize].kids = Numbers { from: kid, end: kid + 1 };
            level += 1;
            (from, end) = (entry.within().start, entry.within().end);
            let (page, entry_at, grouped) = (inner, entry.at + MEMBER_COMMIT_AT as u16, false);
            let entry = seat;
            let item = Item { page, kid, parent, depth, ops, entry, level, owned, grouped };
            let mut node = Node::new(Body::Fork, &item, ops, depth as usize);
            (node.from, node.end, node.at) = (from, end, entry_at);
            (node.kept, node.in_row) = (true, S::DIGIT_BITS == 1);
            node.known = sheet.outline.knows(Some(seat));
            self.edits.nodes.push(node);
            parent = number;
            depth += 1;
        }
        parent
    }

    /// Asks for what the other of two children commits to, and notes it to be gathered. Answers its number. The way of
    /// one operation is committed to before it would be gathered.
    #[inline(always)]
    fn beside(
        &mut self,
        sheet: Sheet<'a, S::Commit>,
        page: u32,
        (among, one): (Range<u16>, u16),
    ) -> u32 {
        if among.len() != 2 {
            return NONE;
        }
        let entry = if one == among.start { among.end - 1 } else { among.start };
        sheet.outline.fetch_commit(sheet.row, entry);
        if self.ops.len() == 1 {
            return NONE;
        }
        self.desk.beside.push(Beside { page, entry });
        self.desk.beside.len() as u32 - 1
    }

    /// Reads what children beside the way commit to, up to a number of them.
    pub(super) fn gather(&mut self, end: usize) {
        let Desk { beside, others, .. } = &mut *self.desk;
        let mut last = None;
        for &Beside { page, entry } in beside.get(others.len()..end).unwrap_or_default() {
            let sheet = match last {
                Some((number, sheet)) if number == page => sheet,
                _ => last.insert((page, Sheet::of(self.pages, &self.edits.pages, page))).1,
            };
            others.push(sheet.outline.commit(self.codec, sheet.row, entry));
        }
    }

    /// The first of some operations, as many as have a digit there.
    #[inline(always)]
    fn run(&self, ops: Numbers, at: usize, digit: u8) -> Numbers {
        let has = |op: &Op| op.digit(self.bytes, at, Codec::<S>::WIDTH) == digit;
        if ops.len() == 1 || has(&self.ops[ops.end as usize - 1]) {
            return ops;
        }
        let count = self.ops[ops.range()].partition_point(has);
        Numbers { end: ops.from + count as u32, ..ops }
    }

    /// Notes that operations go on to a child.
    fn kid(&mut self, seat: u16, digit: u8) -> u32 {
        self.edits.kids.push(Kid { seat, digit, node: NONE });
        self.edits.kids.len() as u32 - 1
    }

    fn put_on_list(&mut self, ahead: Ahead) {
        self.edits.pages[ahead.above as usize].waits = true;
        self.desk.list.push(ahead);
    }

    /// Puts the page of a group on the list, for operations that go on to a member of it, and notes where the member
    /// keeps what it commits to. Groups may be in others, which have fewer bits in common.
    fn go_to_group(
        &mut self,
        entry: &Entry,
        (above, seat): (u32, u16),
        (node, kid): (u32, u32),
        (ops, around): (Numbers, u8),
    ) -> Result<(), Halt> {
        let bits = entry.span;
        if !entry.keeps || bits <= around || bits >= S::DIGIT_BITS {
            return Err(Halt::Not);
        }
        let at = entry.at + MEMBER_COMMIT_AT as u16;
        self.edits.members.push(Member { entry: seat, at, kid });
        let fork = self.edits.nodes[node as usize].fork as usize;
        let group = |op: u32| {
            let digit = self.ops[op as usize].digit(self.bytes, fork, Codec::<S>::WIDTH);
            digit >> (S::DIGIT_BITS - bits)
        };
        if let Some(last) = self.desk.list.last()
            && (last.node, last.above, last.bits) == (node, above, bits)
            && group(last.ops.from) == group(ops.from)
        {
            let last = self.desk.list.len() - 1;
            self.desk.list[last].ops.end = ops.end;
            return Ok(());
        }
        let link = self.sheet(above).outline.link(seat).get();
        self.put_on_list(Ahead { link, above, entry: seat, bits, node, ops });
        Ok(())
    }

    /// Puts the members of a group that operations go on to on the stack; not if its page does not hold just those that
    /// the page above has.
    fn enter_group(
        &mut self,
        sheet: Sheet<'a, S::Commit>,
        page: u32,
        ahead: &Ahead,
    ) -> Result<(), Halt> {
        let node = self.edits.nodes[ahead.node as usize];
        let (fork, width) = (node.fork as usize, Codec::<S>::WIDTH);
        let digit = |op: u32| self.ops[op as usize].digit(self.bytes, fork, width);
        let of = self.sheet(ahead.above).outline;
        let range = if ahead.above == node.inner { node.from..node.end } else { of.top() };
        let rest = S::DIGIT_BITS - ahead.bits;
        let group = digit(ahead.ops.from) >> rest;
        let is_member = |entry: &&Entry| {
            entry.kind.is_in_group() && entry.span == ahead.bits && entry.digit >> rest == group
        };
        let around = of.entries[usize::from(range.start)..usize::from(range.end)].iter();
        let members = around.clone().filter(is_member);
        let top = sheet.outline.top();
        let held = &sheet.outline.entries[..usize::from(top.end)];
        let shown = |entry: &Entry| (entry.digit, entry.kind.is_terminal());
        // Others between them would have it opened twice.
        let mut in_a_row = around.skip_while(|entry| !is_member(entry)).take(held.len());
        if !members.map(shown).eq(held.iter().map(shown))
            || !in_a_row.all(|entry| is_member(&entry))
        {
            return Err(Halt::Not);
        }
        let (mut ops, bottom) = (ahead.ops, self.desk.stack.len());
        while ops.len() > 0 {
            let run = self.run(ops, fork, digit(ops.from));
            ops.from = run.end;
            let kids = &self.edits.kids[node.kids.range()];
            // Those that no child is for were left before.
            let Some(place) = kids.iter().position(|kid| kid.digit == digit(run.from)) else {
                continue;
            };
            let kid = node.kids.from + place as u32;
            let found = sheet.outline.find(top.clone(), digit(run.from), Self::MOST);
            let seat = found.ok_or(Halt::Not)?;
            let entry = sheet.entry(seat);
            if entry.kind.is_in_group() {
                self.go_to_group(entry, (page, seat), (ahead.node, kid), (run, ahead.bits))?;
                continue;
            }
            let (parent, depth, level) = (ahead.node, node.fork + 1, node.level + 1);
            let (entry, owned, grouped, ops) = (seat, node.owned, true, run);
            let item = Item { page, kid, parent, depth, ops, entry, level, owned, grouped };
            self.desk.stack.push(item);
        }
        self.desk.stack[bottom..].reverse();
        Ok(())
    }

    /// Goes into a terminal: the operation on its own value, and those on what it owns.
    fn enter_terminal(
        &mut self,
        sheet: Sheet<'a, S::Commit>,
        item: &Item,
        entry: &Entry,
    ) -> Result<(), Halt> {
        // What it owns alone has its entry.
        let alone = entry.kind == Kind::Lone && item.owned;
        let at = if alone { sheet.outline.owned(entry) } else { entry.at.into() };
        let stored = self.codec.inline_terminal(sheet.row, at, item.depth as usize);
        let Some(stored) = stored else {
            self.leave(item.ops);
            return Ok(());
        };
        let among_owners = S::OWNER.is_some() && !item.owned;
        let suffix = stored.suffix;
        let digits = |walk: &Self, op: u32| Codec::<S>::WIDTH.count(walk.key(op));
        let whole = |walk: &Self, op: u32| {
            if among_owners { Self::OWNER_DIGITS } else { digits(walk, op) }
        };
        let mut ops = self.narrow(item.ops, |walk, op| {
            suffix.end() == whole(walk, op) && suffix.common(walk.key(op)) == suffix.len()
        });
        if ops.len() == 0 {
            return Ok(());
        }
        let whole = whole(self, ops.from);
        let mut node = Node::new(Body::Owner, item, ops, whole);
        node.owned = true;
        if alone {
            node.entry = Node::NO_ENTRY;
        }
        (node.payload, node.len) = (stored.payload.start as u16, stored.payload.len() as u16);
        if stored.owns {
            let lone = entry.kind == Kind::Lone;
            let from = if lone { item.entry } else { entry.within().start };
            (node.from, node.end) = (from, from + 1);
        }
        if let Some(at) = stored.commit {
            if self.codec.scheme.commit_bytes(&sheet.row[at..]) != S::COMMIT_BYTES {
                return Err(Halt::Not);
            }
            (node.kept, node.at) = (true, at as u16);
        }
        if digits(self, ops.from) == whole {
            let own = Numbers { end: ops.from + 1, ..ops };
            ops.from += 1;
            match self.value(own.from) {
                Some(value)
                    if value.len() == stored.payload.len() && (among_owners || !stored.owns) =>
                {
                    if *value != sheet.row[stored.payload] {
                        (node.body, self.desk.changed) = (Body::Value, true);
                    }
                }
                _ => self.leave(own),
            }
        }
        if ops.len() > 0 && !(among_owners && stored.owns) {
            // Of others only one operation is on a key.
            self.leave(ops);
            ops.from = ops.end;
        }
        if node.body == Body::Owner && ops.len() == 0 {
            return Ok(());
        }
        let number = self.edits.nodes.len() as u32;
        self.edits.kids[item.kid as usize].node = number;
        if ops.len() > 0 {
            let kid = self.kid(node.from, 0);
            node.kids = Numbers { from: kid, end: kid + 1 };
            let (page, parent, depth, entry) = (item.page, number, whole as u32, node.from);
            let (owned, grouped, level) = (true, false, item.level + 1);
            let item = Item { page, kid, parent, depth, ops, entry, level, owned, grouped };
            self.desk.stack.push(item);
        }
        self.edits.nodes.push(node);
        Ok(())
    }

    /// The value that an operation puts.
    fn value(&self, op: u32) -> Option<&'a [u8]> {
        match self.ops[op as usize].kind {
            OpKind::Put(value) => Some(&self.bytes[value.range()]),
            _ => None,
        }
    }

    /// Leaves those operations of some that do not fit, which are not between any that do.
    #[inline(always)]
    fn narrow(&mut self, mut ops: Numbers, fits: impl Fn(&Self, u32) -> bool) -> Numbers {
        while ops.len() > 0 && !fits(self, ops.from) {
            self.leave(Numbers { end: ops.from + 1, ..ops });
            ops.from += 1;
        }
        while ops.len() > 1 && !fits(self, ops.end - 1) {
            ops.end -= 1;
            self.leave(Numbers { from: ops.end, end: ops.end + 1 });
        }
        ops
    }

    /// Notes operations that lead astray.
    #[cold]
    fn leave(&mut self, ops: Numbers) {
        self.desk.left.extend(ops.from..ops.end);
    }
}
