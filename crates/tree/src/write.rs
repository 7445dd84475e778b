//! Cutting new nodes into pages.
//!
//! Pages are cut by path bit: a virtual binary tree runs through the children of every branch. Bottom
//! up, the residual image of a bit prefix is the residuals of its two halves; where it exceeds
//! [`CUT_BYTES`] it becomes a page and leaves a reference. The cut depends only on what lies below, so
//! pages are a function of the entries.
//!
//! Nodes are written from the end of their page to its start (`tail.rs`), children first and the last of them
//! first of all: so an item stands where it is to be as soon as it is written. An untouched item is copied
//! from the page it was read from, and a patched branch is the bytes that its page has, with the items of the
//! changed children laid over theirs.

use std::ops::RangeInclusive;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use spinney_hash::prefetch;

use crate::cut::{Cutter, Emitted, Part, may_cut};
use crate::digits::Run;
use crate::error::TreeError;
use crate::image::{
    CUT_BYTES, Codec, FORK_VALUE_BYTES_MAX, FRAME_BYTES, INLINE_BYTES_MAX, MEMBER_COMMIT_AT,
    Member, PageKind, PutBranch, PutTerminal, SKIP_BYTES_MAX, set_digit,
};
use crate::node::{
    Body, Branch, Chain, Child, Kids, Link, Patch, Place, Segment, Slot, SlotState, Terminal,
};
use crate::open::corrupt;
use crate::page_key::{PageKey, RowKind, Space};
use crate::scheme::Scheme;
use crate::tail::{Stretch, Tail};

/// The rows of a pending state that differ from the store's.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Pages and overflow rows to write.
    pub(crate) puts: Vec<(PageKey, Arc<[u8]>)>,
    /// Rows to remove.
    pub(crate) deletes: Vec<PageKey>,
    /// Ranges to drop first: exclusive bounds.
    pub(crate) drops: Vec<(Vec<u8>, Vec<u8>)>,
}

struct Writer<'a, S: Scheme> {
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    /// The items of nodes whose parents are not written yet.
    tail: Tail,
    /// Where they are, the last child of a node first.
    items: Vec<Item>,
    emitted: Emitted,
    /// What stands in front of other items.
    head: Vec<u8>,
    /// The body of a branch that is not just its items.
    body: Vec<u8>,
    /// A group of its children being patched.
    group: Vec<u8>,
    /// A commitment being compared or written.
    member: Vec<u8>,
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
    at: Stretch,
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
}

/// The rows of all nodes reachable from `root`. None of the segments is committed yet, but for the first,
/// which is the last commit's own.
pub(crate) fn rows<S: Scheme>(
    codec: Codec<'_, S>,
    space: Space,
    segments: &[Arc<Segment<S::Commit>>],
    root: Option<&Child>,
) -> Result<Rows, TreeError> {
    let chain = Chain::of(segments);
    let mut writer = Writer {
        codec,
        chain,
        tail: Tail::default(),
        items: Vec::new(),
        emitted: Emitted::new(space),
        head: Vec::new(),
        body: Vec::new(),
        group: Vec::new(),
        member: Vec::new(),
        parts: Vec::new(),
        met: (u32::MAX, u32::MAX),
    };
    if let Some(root) = root
        && let Link::Made { segment, node } = root.link
    {
        writer.write(segment, node)?;
    }
    Ok(difference(space, segments, root, writer.emitted.rows))
}

/// What differs between the rows written and those of the store.
fn difference<C: Copy>(
    space: Space,
    segments: &[Arc<Segment<C>>],
    root: Option<&Child>,
    emitted: Vec<(PageKey, Arc<[u8]>)>,
) -> Rows {
    let mut rows = Rows::default();
    let unchanged = root.is_some_and(|root| matches!(root.link, Link::Stored { .. }));
    let mut stale: HashMap<&PageKey, &Arc<[u8]>> = HashMap::with_capacity(emitted.len());
    let mut cleared = false;
    for segment in segments {
        for page in segment.pages.iter().filter(|page| page.stale) {
            stale.insert(&page.key, &page.row);
        }
        for dropped in &segment.dropped {
            for kind in [RowKind::Page, RowKind::Overflow] {
                let range = PageKey::below(space, kind, &dropped.path, dropped.bits);
                rows.drops.extend(range);
            }
            cleared = true;
        }
    }
    if unchanged {
        return Rows::default();
    }
    rows.puts.reserve(emitted.len());
    for (key, row) in emitted {
        let old = stale.remove(&key);
        // A row in a dropped range is gone by the time the rows are written.
        let same = !cleared && old.is_some_and(|old| **old == *row);
        if !same {
            rows.puts.push((key, row));
        }
    }
    // No row is written twice, so what is left was not written again.
    rows.deletes.extend(stale.into_keys().cloned());
    rows
}

impl<S: Scheme> Writer<'_, S> {
    /// Writes the nodes below one, children before their parents, and then itself as the root page. Only
    /// items on the way from the root are held, so that memory does not grow with what is written.
    fn write(&mut self, segment: u32, node: u32) -> Result<(), TreeError> {
        let mut todo = vec![self.visit(segment, node, 0, false)];
        while let Some(visit) = todo.last_mut() {
            if let Some(child) = self.next_made(visit)? {
                todo.push(child);
                continue;
            }
            let visit = *visit;
            todo.pop();
            self.node(&visit, todo.is_empty())?;
            self.items.truncate(visit.items);
            self.note(visit.digit, visit.from);
        }
        let key = PageKey::page(self.emitted.space, &[], 0);
        self.emitted.emit_framed(key, PageKind::Root, self.tail.framed(FRAME_BYTES, 0));
        Ok(())
    }

    fn visit(&self, segment: u32, node: u32, digit: u8, owned: bool) -> Visit {
        let left = match &self.chain.node(segment, node).body {
            Body::Terminal(terminal) => usize::from(terminal.owned.is_some()),
            Body::Branch(Branch { children: Kids::Listed(span), .. }) => span.range().len(),
            Body::Branch(Branch { children: Kids::Patched(patch), .. }) => {
                patch.slots.range().len()
            }
        };
        Visit { segment, node, digit, owned, left, items: self.items.len(), from: self.tail.len() }
    }

    /// Notes that what was put since there were `from` bytes is an item.
    fn note(&mut self, digit: u8, from: usize) {
        self.items.push(Item { digit, at: Stretch { from, to: self.tail.len() } });
    }

    /// The next child made by a batch of a node that is visited; untouched ones before it are written. Of a
    /// patched branch, untouched ones stay where they are.
    fn next_made(&mut self, visit: &mut Visit) -> Result<Option<Visit>, TreeError> {
        let home = self.chain.segment(visit.segment);
        match &home.nodes[visit.node as usize].body {
            Body::Terminal(terminal) => {
                let unwritten = std::mem::take(&mut visit.left) > 0;
                match terminal.owned.as_ref().filter(|_| unwritten).map(|child| child.link) {
                    Some(Link::Made { segment, node }) => {
                        return Ok(Some(self.visit(segment, node, 0, true)));
                    }
                    Some(Link::Stored { segment, page, at }) => {
                        self.keep_owned(segment, page, at)?;
                    }
                    Some(Link::Group { .. }) => unreachable!("an owned node is in no group"),
                    None => {}
                }
            }
            Body::Branch(Branch { children: Kids::Listed(span), fork, .. }) => {
                let children = home.children(*span);
                while let Some(child) = children[..visit.left].last() {
                    if let Link::Made { segment, node } = child.link {
                        visit.left -= 1;
                        return Ok(Some(self.visit(segment, node, child.digit, false)));
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
                        return Ok(Some(self.visit(segment, node, child.digit, false)));
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
                self.note(child.digit, from);
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
                self.note(children[0].digit, from);
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

    /// Writes a node's item in front of its children's, or in their place.
    fn node(&mut self, visit: &Visit, top: bool) -> Result<(), TreeError> {
        let node = self.chain.node(visit.segment, visit.node);
        let commit = node.commit.expect("nodes commit before they are written");
        match &node.body {
            Body::Terminal(terminal) => {
                self.terminal(visit, terminal, commit, top);
                Ok(())
            }
            Body::Branch(branch) => self.branch(visit, branch, commit, top),
        }
    }

    /// Writes a terminal. It carries its commitment if it is owned, is the top or overflows, or if its tree
    /// keeps all of them.
    fn terminal(&mut self, visit: &Visit, terminal: &Terminal, commit: S::Commit, top: bool) {
        let suffix = self.chain.suffix(terminal, Codec::<S>::WIDTH);
        let payload = self.chain.bytes(terminal.payload);
        let key = self.chain.bytes(terminal.key);
        let overflow =
            self.emitted.overflow::<S>(key, terminal.depth, suffix, payload, INLINE_BYTES_MAX);
        let owns = terminal.owned.is_some();
        let carries =
            top || visit.owned || overflow.is_some() || S::KEEP_TERMINALS || (S::DELTAS && owns);
        let put = PutTerminal {
            digit: Some(visit.digit),
            suffix,
            payload,
            overflow,
            commit: carries.then_some(commit),
            // Its item stands there already.
            owned: owns.then_some(&[]),
        };
        self.head.clear();
        self.codec.put_terminal(&mut self.head, &put);
        self.tail.put(&self.head);
    }

    /// Writes a branch. The root's body is never cut off; an owned one's is sooner.
    fn branch(
        &mut self,
        visit: &Visit,
        branch: &Branch,
        commit: S::Commit,
        top: bool,
    ) -> Result<(), TreeError> {
        let path = self.chain.bytes(branch.path);
        self.finish_body(visit, branch, path)?;
        let owned = S::OWNER.is_some_and(|owner| {
            branch.depth as usize == owner.bytes * Codec::<S>::WIDTH.per_byte()
        });
        let limit = if owned { S::OWNED_BODY_BYTES } else { CUT_BYTES };
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
        let body = (!apart).then(|| self.tail.since(visit.from));
        let put = PutBranch { digit: visit.digit, commit, skip, overflow, body };
        self.head.clear();
        self.codec.put_branch_head(&mut self.head, &put);
        self.tail.put(&self.head);
        Ok(())
    }

    /// Makes a branch's body of its children's items: large groups are cut off.
    fn finish_body(
        &mut self,
        visit: &Visit,
        branch: &Branch,
        path: &[u8],
    ) -> Result<(), TreeError> {
        let patched = match &branch.children {
            Kids::Listed(_) => false,
            Kids::Patched(patch) => {
                let patched = self.patch_body(visit, patch, branch.fork as usize)?;
                if !patched {
                    self.lay_out(visit, branch)?;
                }
                patched
            }
        };
        if !patched && may_cut::<S>(branch.fork, self.tail.len() - visit.from) {
            self.cut_groups(visit, branch, path);
        }
        if let Some(value) = branch.value {
            self.fork_value(branch, path, value);
        }
        Ok(())
    }

    /// Writes all children of a patched branch, those that changed are written already, as if it were none.
    fn lay_out(&mut self, visit: &Visit, branch: &Branch) -> Result<(), TreeError> {
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
                self.note(item.digit, from);
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

    /// Writes a patched branch's body, and the groups that were opened, as they were but for the children
    /// that changed. Pages are cut by the sizes of items alone: if one has another size, or a commitment
    /// has, nothing is written, and the answer is `false`.
    fn patch_body(&mut self, visit: &Visit, patch: &Patch, fork: usize) -> Result<bool, TreeError> {
        let home = self.chain.segment(visit.segment);
        let slots = &home.slots[patch.slots.range()];
        let changed = || slots.iter().filter(|slot| slot.state == SlotState::Changed);
        let (first, end) = (visit.items, self.items.len());
        let items = || (first..end).rev();
        for (item, slot) in items().zip(changed()) {
            let len = self.items[item].at.len();
            if !self.fits(visit.segment, patch, (slot, len), fork)? {
                return Ok(false);
            }
        }
        let base = usize::from(patch.from);
        let mut body = std::mem::take(&mut self.body);
        body.clear();
        body.extend_from_slice(
            &self.chain.row(patch.segment, patch.page)[base..usize::from(patch.to)],
        );
        for (item, slot) in items().zip(changed()) {
            let child = &home.children[slot.beside as usize];
            let at = usize::from(slot.at) - base;
            if slot.bits == 0 {
                splice(&mut body, at, self.tail.stretch(self.items[item].at), slot.digit);
            } else if !S::DELTAS {
                self.member.clear();
                let commit = self.chain.commit(self.codec, visit.segment, child);
                self.codec.scheme.encode_commit(&commit, &mut self.member);
                body[at + MEMBER_COMMIT_AT..][..self.member.len()].copy_from_slice(&self.member);
            }
        }
        for (number, &(segment, page)) in (1..).zip(&home.groups[patch.groups.range()]) {
            let page = &self.chain.segment(segment).pages[page as usize];
            self.group.clear();
            self.group.extend_from_slice(&page.row[FRAME_BYTES..]);
            for (item, slot) in items().zip(changed()).filter(|(_, slot)| slot.group == number) {
                let at = usize::from(slot.item) - FRAME_BYTES;
                splice(&mut self.group, at, self.tail.stretch(self.items[item].at), slot.digit);
            }
            self.emitted.emit(page.key.clone(), PageKind::Group, &self.group);
        }
        self.tail.cut(visit.from);
        self.tail.put(&body);
        self.body = body;
        Ok(true)
    }

    /// Whether a child that changed takes as many bytes as before, wherever it stands.
    fn fits(
        &mut self,
        segment: u32,
        patch: &Patch,
        (slot, len): (&Slot, usize),
        fork: usize,
    ) -> Result<bool, TreeError> {
        let home = self.chain.segment(segment);
        let child = &home.children[slot.beside as usize];
        let (mut place, mut at) = ((patch.segment, patch.page), usize::from(slot.at));
        if slot.bits > 0 {
            if !S::DELTAS {
                self.member.clear();
                let commit = self.chain.commit(self.codec, segment, child);
                self.codec.scheme.encode_commit(&commit, &mut self.member);
                let old = &self.chain.row(place.0, place.1)[at + MEMBER_COMMIT_AT..];
                if self.codec.scheme.commit_bytes(old) != Some(self.member.len()) {
                    return Ok(false);
                }
            }
            place = home.groups[patch.groups.range()][usize::from(slot.group) - 1];
            at = usize::from(slot.item);
        }
        let page = &self.chain.segment(place.0).pages[place.1 as usize];
        let skimmed = self.codec.skim(&page.row, at, fork + 1);
        let (_, end) = skimmed.map_err(|what| corrupt(&page.key, what))?;
        Ok(child.terminal == slot.terminal && len == end - at)
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

fn member<S: Scheme>(
    codec: Codec<'_, S>,
    chain: Chain<'_, S::Commit>,
    home: u32,
    child: &Child,
) -> Member<S::Commit> {
    let commit = (!S::DELTAS).then(|| chain.commit(codec, home, child));
    Member { digit: child.digit, terminal: child.terminal, commit }
}

/// Writes an item over one of the same size.
fn splice(body: &mut [u8], at: usize, item: &[u8], digit: u8) {
    let place = &mut body[at..at + item.len()];
    place.copy_from_slice(item);
    set_digit(place, digit);
}
