//! Cutting new nodes into pages.
//!
//! Pages are cut by path bit: a virtual binary tree runs through the children of every branch. Bottom
//! up, the residual image of a bit prefix is the residuals of its two halves; where it exceeds
//! [`Scheme::CUT_BYTES`] it becomes a page and leaves a reference. The cut depends only on what lies below, so
//! pages are a function of the entries (those of builds before that a scheme still reads are not: `tests/it/kept.rs`).
//!
//! Children come before their parents, the last of them first of all. An item that takes as many bytes as the one
//! whose place it takes *stays*: it is laid over that one, and a page all of whose new items stay is a copy of its
//! row (`overlay.rs`). Others are written from the end of their page to its start (`tail.rs`): so an item stands
//! where it is to be as soon as it is written, and an untouched one is copied from the page it was read from.

mod in_place;
mod overlay;

use std::ops::RangeInclusive;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use spinney_hash::prefetch;

use crate::cache::Mark;
use crate::cut::{Cutter, Emitted, Part, may_cut};
use crate::digits::Run;
use crate::error::TreeError;
use crate::image::{
    Codec, FORK_VALUE_BYTES_MAX, FRAME_BYTES, INLINE_BYTES_MAX, Member, PAGE_BYTES_MAX, PageKind,
    PutBranch, PutTerminal, SKIP_BYTES_MAX, set_digit,
};
use crate::node::{
    Body, Branch, Chain, Child, Kids, Link, OpenPage, Place, Segment, Slot, SlotState, Terminal,
};
use crate::open::corrupt;
use crate::page_key::{PageKey, RowKind, Space};
use crate::row::{Block, Row};
use crate::scheme::Scheme;
use crate::tail::{Stretch, Tail};
use overlay::{Overlay, PageId, Seat};

/// How many levels of nodes are laid over others at once: more than there are in a page, as a rule.
const LEVELS_AT_ONCE: u32 = 48;

/// The rows of a pending state that differ from the store's.
#[derive(Debug)]
pub(crate) struct Rows<C> {
    /// Pages and overflow rows to write.
    pub(crate) puts: Vec<(PageKey, Row)>,
    /// What entries of those commit to that differ from what they were in nothing else but values.
    pub(crate) marks: Vec<Mark<C>>,
    /// Rows to remove.
    pub(crate) deletes: Vec<PageKey>,
    /// Ranges to drop first: exclusive bounds.
    pub(crate) drops: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<C> Default for Rows<C> {
    fn default() -> Self {
        Self { puts: Vec::new(), marks: Vec::new(), deletes: Vec::new(), drops: Vec::new() }
    }
}

/// Memory that is used for one write set after another.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    todo: Vec<Visit>,
    items: Vec<Item>,
    tail: Tail,
    head: Vec<u8>,
    body: Vec<u8>,
    commit: Vec<u8>,
    parts: Vec<Part>,
    rows: Vec<Vec<u8>>,
    /// The rows of the last batch of edits: memory for those of the next, once nobody else has any.
    pub(crate) block: Arc<Block>,
}

impl Buffers {
    /// Lets go of the rows of the last batch if nobody else has any: somebody may have had them in memory of its own,
    /// which would stay.
    pub(crate) fn forget_rows(&mut self) {
        if let Some(block) = Arc::get_mut(&mut self.block) {
            block.clear();
        }
    }

    /// Forgets everything and keeps the memory, as much as trees of ordinary keys take.
    fn clear(&mut self) {
        const ROWS_KEPT: usize = 32;
        self.todo.clear();
        self.items.clear();
        self.rows.truncate(ROWS_KEPT);
        if self.tail.capacity() > ROWS_KEPT * PAGE_BYTES_MAX {
            self.tail = Tail::default();
        }
        self.tail.cut(0);
    }
}

struct Writer<'a, S: Scheme> {
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    /// The rows in which items stay.
    overlay: Overlay<'a>,
    /// The nodes on the way from the root.
    todo: Vec<Visit>,
    /// The items of nodes whose parents are not written yet, but for those that stay.
    tail: Tail,
    /// Where they are, the last child of a node first.
    items: Vec<Item>,
    emitted: Emitted,
    /// What stands in front of other items.
    head: Vec<u8>,
    /// The body of a branch that is not just its items.
    body: Vec<u8>,
    /// A commitment being laid over the one before it.
    commit: Vec<u8>,
    /// The items of the branch being cut.
    parts: Vec<Part>,
    /// The page that an untouched item was copied from last.
    met: (u32, u32),
}

/// An item that was written.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// For a group that was not opened, its first child's.
    digit: u8,
    /// Where in the tail it is, unless it stays.
    at: Stretch,
    stays: bool,
}

/// A node whose children are being written.
#[derive(Clone, Copy, Debug)]
struct Visit {
    segment: u32,
    node: u32,
    digit: u8,
    /// Whether a terminal owns it: it always carries its commitment then.
    owned: bool,
    /// How many of its children are still to be looked at.
    left: usize,
    /// Where its children's items start: among the items, and among the bytes.
    items: usize,
    from: usize,
    /// Where the item stood that it takes the place of, if it may stay there.
    seat: Option<Seat>,
    /// The rows that were open before it.
    rows: u32,
    /// Of a patched branch, the rows of its body and of its first group.
    body: u32,
    groups: u32,
    /// Whether its branches may stay with all that is below them.
    tries: bool,
}

impl Visit {
    /// Where the item of a changed child of a patched branch stood.
    const fn seat_of(&self, slot: &Slot) -> Option<Seat> {
        match (slot.bits, slot.group) {
            (0, _) => Some(Seat { row: self.body, at: slot.at }),
            (_, 0) => None,
            (_, group) => Some(Seat { row: self.groups + group as u32 - 1, at: slot.item }),
        }
    }
}

/// The rows of all nodes reachable from `root`. None of the segments is committed yet, but for the first,
/// which is the last commit's own.
pub(crate) fn rows<S: Scheme>(
    codec: Codec<'_, S>,
    space: Space,
    segments: &[Arc<Segment<S::Commit>>],
    root: Option<&Child>,
    buffers: &mut Buffers,
) -> Result<Rows<S::Commit>, TreeError> {
    if root.is_some_and(|root| matches!(root.link, Link::Stored { .. })) {
        return Ok(Rows::default());
    }
    let Buffers { todo, items, tail, head, body, commit, parts, rows, block } =
        std::mem::take(buffers);
    let chain = Chain::of(segments);
    let stale = segments.iter().flat_map(|segment| &segment.pages).filter(|page| page.stale);
    let stale = stale.count();
    let cleared = segments.iter().any(|segment| !segment.dropped.is_empty());
    let mut writer = Writer {
        codec,
        chain,
        overlay: Overlay::new(stale + 1, cleared, rows),
        todo,
        tail,
        items,
        emitted: Emitted::new(space),
        head,
        body,
        commit,
        parts,
        met: (u32::MAX, u32::MAX),
    };
    if let Some(Child { link: Link::Made { segment, node }, .. }) = root {
        writer.write((*segment, *node))?;
    }
    let mut rows = Rows::default();
    for dropped in segments.iter().flat_map(|segment| &segment.dropped) {
        for kind in [RowKind::Page, RowKind::Overflow] {
            rows.drops.extend(PageKey::below(space, kind, &dropped.path, dropped.bits));
        }
    }
    let Writer { mut overlay, emitted, todo, items, tail, head, body, commit, parts, .. } = writer;
    let memory = overlay.memory();
    *buffers = Buffers { todo, items, tail, head, body, commit, parts, rows: memory, block };
    buffers.clear();
    rows.difference(segments, stale, overlay, emitted.rows);
    Ok(rows)
}

impl<C: Copy> Rows<C> {
    /// Takes up what differs between the rows written and those of the store.
    fn difference(
        &mut self,
        segments: &[Arc<Segment<C>>],
        stale: usize,
        overlay: Overlay<'_>,
        emitted: Vec<(PageKey, Row)>,
    ) {
        let Overlay { done, taken, stale: taken_stale, all: cleared, .. } = overlay;
        self.puts = done;
        // No row is written twice. As a rule each page that was opened for a change is its copy now.
        if taken_stale == stale {
            self.puts.extend(emitted);
            return;
        }
        let mut is_taken: Vec<Vec<bool>> =
            segments.iter().map(|segment| vec![false; segment.pages.len()]).collect();
        for &(segment, page) in &taken {
            is_taken[segment as usize][page as usize] = true;
        }
        let mut left: HashMap<&PageKey, &Arc<[u8]>> = HashMap::with_capacity(stale - taken_stale);
        for (segment, is_taken) in segments.iter().zip(is_taken) {
            let pages = segment.pages.iter().zip(is_taken);
            let pages = pages.filter(|(page, is_taken)| page.stale && !is_taken);
            left.extend(pages.map(|(page, _)| (&page.key, &page.row)));
        }
        // A page may have been opened twice.
        for (segment, page) in taken {
            left.remove(&segments[segment as usize].pages[page as usize].key);
        }
        for (key, row) in emitted {
            let old = left.remove(&key);
            // A row in a dropped range is gone by the time the rows are written.
            let same = !cleared && old.is_some_and(|old| **old == *row);
            if !same {
                self.puts.push((key, row));
            }
        }
        // What is left was not written again.
        self.deletes.extend(left.into_keys().cloned());
    }
}

impl<'a, S: Scheme> Writer<'a, S> {
    /// Writes the nodes below one, children before their parents, and then itself as the root page. Only
    /// items on the way from the root are held, so that memory does not grow with what is written.
    fn write(&mut self, (segment, node): (u32, u32)) -> Result<(), TreeError> {
        let key = PageKey::page(self.emitted.space, &[], 0);
        // The last commit's own segment has nothing but its root page.
        let root = self.chain.segment(0).pages.first();
        let root = root.filter(|page| page.key == key && page.row.len() <= PAGE_BYTES_MAX);
        let seat =
            root.map(|page| Seat { row: self.overlay.open((0, 0), page), at: FRAME_BYTES as u16 });
        let mut todo = std::mem::take(&mut self.todo);
        todo.push(self.visit((segment, node), 0, false, seat));
        while let Some(visit) = todo.last_mut() {
            if let Some(child) = self.next_made(visit)? {
                todo.push(child);
                continue;
            }
            let visit = *visit;
            todo.pop();
            let stays = self.node(&visit, todo.is_empty())?;
            self.overlay.close(visit.rows);
            self.items.truncate(visit.items);
            let stays = stays || self.stays_after_all(&visit);
            self.note(visit.digit, visit.from, stays);
        }
        self.todo = todo;
        if self.items.pop().is_some_and(|top| top.stays) {
            self.overlay.finish_top();
        } else {
            self.emitted.emit_framed(key, PageKind::Root, self.tail.framed(FRAME_BYTES, 0));
        }
        Ok(())
    }

    fn visit(
        &mut self,
        (segment, node): (u32, u32),
        digit: u8,
        owned: bool,
        seat: Option<Seat>,
    ) -> Visit {
        let (items, from, rows) = (self.items.len(), self.tail.len(), self.overlay.depth());
        let (mut body, mut groups) = (rows, rows);
        let home = self.chain.segment(segment);
        let left = match &home.nodes[node as usize].body {
            Body::Terminal(terminal) => usize::from(terminal.owned.is_some()),
            Body::Branch(Branch { children: Kids::Listed(span), .. }) => span.range().len(),
            Body::Branch(Branch { children: Kids::Patched(patch), .. }) => {
                let (id, page) = self.opened((patch.segment, patch.page));
                body = match seat {
                    Some(seat) if self.overlay.is(seat.row, id, page) => seat.row,
                    _ => self.overlay.open(id, page),
                };
                groups = self.overlay.depth();
                for &group in &home.groups[patch.groups.range()] {
                    let (id, page) = self.opened(group);
                    self.overlay.open(id, page);
                }
                patch.slots.range().len()
            }
        };
        let tries = true;
        Visit { segment, node, digit, owned, left, items, from, seat, rows, body, groups, tries }
    }

    fn opened(&self, id: PageId) -> (PageId, &'a OpenPage) {
        (id, &self.chain.segment(id.0).pages[id.1 as usize])
    }

    /// Notes that what was put since there were `from` bytes is an item, or that one stays.
    fn note(&mut self, digit: u8, from: usize, stays: bool) {
        self.items.push(Item { digit, at: Stretch { from, to: self.tail.len() }, stays });
    }

    /// The next child made by a batch of a node that is visited; untouched ones before it are written. Of a
    /// patched branch and an owner, untouched ones wait until it is known whether they stay where they are.
    fn next_made(&mut self, visit: &mut Visit) -> Result<Option<Visit>, TreeError> {
        let home = self.chain.segment(visit.segment);
        match &home.nodes[visit.node as usize].body {
            Body::Terminal(terminal) => {
                let unwritten = std::mem::take(&mut visit.left) > 0;
                let owned = terminal.owned.as_ref().filter(|_| unwritten);
                if let Some(Child { link: Link::Made { segment, node }, .. }) = owned {
                    let seat = self.seat_of_owned(visit, terminal);
                    return Ok(Some(self.visit((*segment, *node), 0, true, seat)));
                }
            }
            Body::Branch(Branch { children: Kids::Listed(span), fork, .. }) => {
                let children = home.children(*span);
                while let Some(child) = children[..visit.left].last() {
                    if let Link::Made { segment, node } = child.link {
                        visit.left -= 1;
                        return Ok(Some(self.visit((segment, node), child.digit, false, None)));
                    }
                    visit.left -= self.keep(visit.segment, &children[..visit.left], *fork)?;
                }
            }
            Body::Branch(Branch { children: Kids::Patched(patch), .. }) => {
                let slots = &home.slots[patch.slots.range()];
                while let Some(slot) = slots[..visit.left].last() {
                    visit.left -= 1;
                    if slot.state == SlotState::Changed
                        && let child = &home.children[slot.beside as usize]
                        && let Link::Made { segment, node } = child.link
                    {
                        let seat = visit.seat_of(slot).filter(|_| child.terminal == slot.terminal);
                        let tries = child.terminal || visit.tries;
                        if let Some(seat) = seat.filter(|_| tries)
                            && self.lay_node((segment, node), seat, false, LEVELS_AT_ONCE)
                        {
                            self.note(child.digit, self.tail.len(), true);
                            continue;
                        }
                        let mut next = self.visit((segment, node), child.digit, false, seat);
                        // What was tried in vain is not tried again for each branch below it.
                        next.tries = next.body == next.rows;
                        return Ok(Some(next));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Writes the last of some children of a branch, which is untouched, and with it the others of a group
    /// that was not opened. Answers how many they are.
    fn keep(&mut self, home: u32, children: &[Child], fork: u32) -> Result<usize, TreeError> {
        let (child, from) = (&children[children.len() - 1], self.tail.len());
        match child.link {
            Link::Made { .. } => unreachable!("it is untouched"),
            Link::Stored { segment, page, at } => {
                let place = (segment, page);
                let page = &self.chain.segment(segment).pages[page as usize];
                // The batch has been elsewhere since it read the page, and its items are met one by one.
                if std::mem::replace(&mut self.met, place) != place {
                    prefetch(&page.row);
                }
                let (start, at) = (fork as usize + 1, usize::from(at));
                let skimmed = self.codec.skim(&page.row, at, start);
                let (_, end) = skimmed.map_err(|what| corrupt(&page.key, what))?;
                self.tail.put(&page.row[at..end]);
                set_digit(self.tail.front(), child.digit);
                self.note(child.digit, from, false);
                Ok(1)
            }
            Link::Group { bits: cut, .. } => {
                let rest = u32::from(S::DIGIT_BITS) - u32::from(cut);
                let prefix = child.digit >> rest << rest;
                let same = |c: &&Child| c.digit >> rest << rest == prefix;
                let count = children.iter().rev().take_while(same).count();
                let children = &children[children.len() - count..];
                let members =
                    children.iter().map(|child| member(self.codec, self.chain, home, child));
                self.head.clear();
                self.codec.put_group(&mut self.head, prefix, cut, members);
                self.tail.put(&self.head);
                self.note(children[0].digit, from, false);
                Ok(count)
            }
        }
    }

    /// Writes an untouched item that a terminal owns.
    fn keep_owned(&mut self, segment: u32, page: u32, at: u16) -> Result<(), TreeError> {
        let owner = S::OWNER.expect("only owners own");
        let (start, at) = (owner.bytes * Codec::<S>::WIDTH.per_byte(), usize::from(at));
        let page = &self.chain.segment(segment).pages[page as usize];
        let parsed = self.codec.node(&page.row, at, start);
        let (_, end) = parsed.map_err(|what| corrupt(&page.key, what))?;
        self.tail.put(&page.row[at..end]);
        Ok(())
    }

    /// Writes a node's item in front of its children's, or in their place; or answers that it stays.
    fn node(&mut self, visit: &Visit, top: bool) -> Result<bool, TreeError> {
        let node = self.chain.node(visit.segment, visit.node);
        let commit = node.commit.expect("nodes commit before they are written");
        match &node.body {
            Body::Terminal(terminal) => self.terminal(visit, terminal, commit, top),
            Body::Branch(branch) => self.branch(visit, branch, commit, top),
        }
    }

    /// Writes a terminal. It carries its commitment if it is the top or overflows, or if its tree says so.
    fn terminal(
        &mut self,
        visit: &Visit,
        terminal: &Terminal,
        commit: S::Commit,
        top: bool,
    ) -> Result<bool, TreeError> {
        let suffix = self.chain.suffix(terminal, Codec::<S>::WIDTH);
        let payload = self.chain.bytes(terminal.payload);
        let key = self.chain.bytes(terminal.key);
        let overflow =
            self.emitted.overflow::<S>(key, terminal.depth, suffix, payload, INLINE_BYTES_MAX);
        let owns = terminal.owned.is_some();
        let carries = top || overflow.is_some() || carries::<S>(visit.owned, owns);
        let put = PutTerminal {
            digit: Some(visit.digit),
            suffix,
            payload,
            overflow,
            commit: carries.then_some(commit),
            // Its item is somewhere already.
            owned: owns.then_some(&[]),
        };
        self.head.clear();
        self.codec.put_terminal(&mut self.head, &put);
        if self.terminal_stays(visit, terminal) {
            return Ok(true);
        }
        let start = S::OWNER.map_or(0, |owner| owner.bytes * Codec::<S>::WIDTH.per_byte());
        match terminal.owned.map(|child| child.link) {
            Some(Link::Made { .. }) if self.items[visit.items].stays => {
                let seat = self.seat_of_owned(visit, terminal).expect("its item stays there");
                self.bring_back(seat, start)?;
            }
            Some(Link::Stored { segment, page, at }) => {
                self.keep_owned(segment, page, at)?;
            }
            Some(Link::Group { .. }) => unreachable!("an owned node is in no group"),
            Some(Link::Made { .. }) | None => {}
        }
        self.tail.put(&self.head);
        Ok(false)
    }

    /// Writes a branch. The root's body is never cut off; an owned one's is sooner.
    fn branch(
        &mut self,
        visit: &Visit,
        branch: &Branch,
        commit: S::Commit,
        top: bool,
    ) -> Result<bool, TreeError> {
        let path = self.chain.bytes(branch.path);
        let limit = body_limit::<S>(branch);
        let mut finished = false;
        match &branch.children {
            Kids::Patched(patch) if self.children_stay(visit, patch) => {
                let range = usize::from(patch.from)..usize::from(patch.to);
                let apart = !top && range.len() > limit;
                finished = apart && self.overlay.is_whole_body(visit.body, &range);
                if finished {
                    self.overlay.finish(visit.body);
                }
                if finished == apart
                    && let Some(seat) = visit.seat
                    && self.branch_stays(seat, branch, (visit.body, &range), apart, commit)
                {
                    return Ok(true);
                }
                if !finished {
                    self.tail.put(&self.overlay.bytes(visit.body)[range]);
                }
            }
            _ => self.lay_out(visit, branch, path)?,
        }
        let apart = !top && self.tail.len() - visit.from > limit;
        if apart {
            let bits = branch.fork as usize * Codec::<S>::WIDTH.bits();
            let key = PageKey::page(self.emitted.space, path, bits);
            let row = self.tail.framed(FRAME_BYTES, visit.from);
            self.emitted.emit_framed(key, PageKind::Body, row);
            self.tail.cut(visit.from);
        }
        let skip = self.chain.skip(branch, Codec::<S>::WIDTH);
        let overflow = self.emitted.overflow::<S>(path, branch.depth, skip, &[], SKIP_BYTES_MAX);
        let body = (!apart && !finished).then(|| self.tail.since(visit.from));
        let put = PutBranch { digit: visit.digit, commit, skip, overflow, body };
        self.head.clear();
        self.codec.put_branch_head(&mut self.head, &put);
        self.tail.put(&self.head);
        Ok(false)
    }

    /// Makes a branch's body of its children's items: large groups are cut off.
    fn lay_out(&mut self, visit: &Visit, branch: &Branch, path: &[u8]) -> Result<(), TreeError> {
        if let Kids::Patched(patch) = &branch.children {
            self.bring_all_back(visit, patch, branch.fork as usize + 1)?;
            self.put_all(visit, branch)?;
        }
        if may_cut::<S>(branch.fork, self.tail.len() - visit.from) {
            self.cut_groups(visit, branch, path);
        }
        if let Some(value) = branch.value {
            self.fork_value(branch, path, value);
        }
        Ok(())
    }

    /// Writes all children of a patched branch, those that changed are written already, as if it were none.
    fn put_all(&mut self, visit: &Visit, branch: &Branch) -> Result<(), TreeError> {
        let mut bytes = std::mem::take(&mut self.body);
        bytes.clear();
        bytes.extend_from_slice(self.tail.since(visit.from));
        let (end, made) = (self.tail.len(), self.items.split_off(visit.items));
        self.tail.cut(visit.from);
        let (children, mut made) = (self.chain.kids(visit.segment, &branch.children), made.iter());
        let mut left = children.len();
        while let Some(child) = children[..left].last() {
            if matches!(child.link, Link::Made { .. }) {
                let item = made.next().expect("each child that changed was written");
                let from = self.tail.len();
                self.tail.put(&bytes[end - item.at.to..end - item.at.from]);
                self.note(item.digit, from, false);
                left -= 1;
            } else {
                left -= self.keep(visit.segment, &children[..left], branch.fork)?;
            }
        }
        self.body = bytes;
        Ok(())
    }

    /// Cuts large groups off a branch's body.
    fn cut_groups(&mut self, visit: &Visit, branch: &Branch, path: &[u8]) {
        let end = self.tail.len();
        let part =
            |item: &Item| Part { digit: item.digit, bytes: end - item.at.to..end - item.at.from };
        self.parts.clear();
        self.parts.extend(self.items[visit.items..].iter().rev().map(part));
        let children = &self.chain.kids(visit.segment, &branch.children)[..];
        let (codec, chain) = (self.codec, self.chain);
        let member = |child| member(codec, chain, visit.segment, child);
        let members = |digits: RangeInclusive<u8>| {
            children.iter().filter(|child| digits.contains(&child.digit)).map(member).collect()
        };
        let (bytes, emitted) = (self.tail.since(visit.from), &mut self.emitted);
        self.body.clear();
        Cutter { codec, bytes, members, fork: branch.fork, path, emitted }.cut(
            &self.parts,
            0,
            &mut self.body,
        );
        self.tail.cut(visit.from);
        self.tail.put(&self.body);
    }

    /// Writes the value of the key that ends at a branch's fork.
    fn fork_value(&mut self, branch: &Branch, path: &[u8], value: Place) {
        let fork = branch.fork as usize;
        let payload = self.chain.bytes(value);
        let nothing = Run::cut(&[], fork, 0, Codec::<S>::WIDTH);
        let overflow =
            self.emitted.overflow::<S>(path, branch.fork, nothing, payload, FORK_VALUE_BYTES_MAX);
        let put = PutTerminal {
            digit: None,
            suffix: nothing,
            payload,
            overflow,
            commit: None,
            owned: None,
        };
        self.head.clear();
        self.codec.put_terminal(&mut self.head, &put);
        self.tail.put(&self.head);
    }
}

/// What a branch's body may take before it is cut off.
fn body_limit<S: Scheme>(branch: &Branch) -> usize {
    const {
        // What makes sure that no page is too long.
        let limit = crate::image::CUT_BYTES;
        assert!(S::CUT_BYTES <= limit && S::OWNED_CUT_BYTES <= limit);
    }
    let owned = S::OWNER
        .is_some_and(|owner| branch.depth as usize == owner.bytes * Codec::<S>::WIDTH.per_byte());
    if owned { S::OWNED_BODY_BYTES } else { S::CUT_BYTES }
}

fn member<S: Scheme>(
    codec: Codec<'_, S>,
    chain: Chain<'_, S::Commit>,
    home: u32,
    child: &Child,
) -> Member<S::Commit> {
    let commit = (!S::DELTAS).then(|| chain.commit(codec, home, child));
    Member { digit: child.digit, terminal: child.terminal, commit }
}

/// Whether a terminal carries its commitment wherever it is and however long: one that is owned or owns.
const fn carries<S: Scheme>(owned: bool, owns: bool) -> bool {
    owned && S::KEEP_OWNED_VALUES || owns && S::DELTAS || S::KEEP_TERMINALS
}
