//! Cutting new nodes into pages.
//!
//! Pages are cut by path bit: a virtual binary tree runs through the children of every branch. Bottom
//! up, the residual image of a bit prefix is the residuals of its two halves; where it exceeds
//! [`CUT_BYTES`] it becomes a page and leaves a reference. The cut depends only on what lies below, so
//! pages are a function of the entries.
//!
//! Nodes are written children first; each leaves the bytes of its item, which its parent copies. An
//! untouched item is copied from the page it was read from, and a patched branch is the bytes that its page
//! has, with the items of the changed children laid over theirs.

use std::ops::RangeInclusive;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};

use crate::cut::{Cutter, Emitted, Part, may_cut};
use crate::digits::Run;
use crate::error::TreeError;
use crate::image::{
    CUT_BYTES, Codec, FORK_VALUE_BYTES_MAX, INLINE_BYTES_MAX, MEMBER_COMMIT_AT, Member, PageKind,
    PutBranch, PutTerminal, SKIP_BYTES_MAX, SUM_BYTES, set_digit,
};
use crate::node::{
    Body, Branch, Chain, Child, Kids, Link, Patch, Place, Segment, Slot, SlotState, Span, Terminal,
};
use crate::open::corrupt;
use crate::page_key::{PageKey, RowKind, Space};
use crate::scheme::Scheme;

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
    /// The items of nodes whose parents are not written yet, in order.
    items: Vec<Span>,
    /// Where among them the next child is of the node being written.
    used: usize,
    bytes: Vec<u8>,
    emitted: Emitted,
    /// The body of the branch being written.
    body: Vec<u8>,
    /// A group of its children being patched.
    group: Vec<u8>,
    /// A commitment being compared or written.
    member: Vec<u8>,
    /// The items of the branch being written.
    parts: Vec<Part>,
}

/// A node whose children are being written.
#[derive(Clone, Copy, Debug)]
struct Visit {
    segment: u32,
    node: u32,
    /// The next of its children to look at.
    next: usize,
    /// Where its children's items start: their spans, and their bytes.
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
        items: Vec::new(),
        used: 0,
        bytes: Vec::new(),
        emitted: Emitted::new(space),
        body: Vec::new(),
        group: Vec::new(),
        member: Vec::new(),
        parts: Vec::new(),
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
        let mut todo = vec![Visit { segment, node, next: 0, items: 0, from: 0 }];
        while let Some(visit) = todo.last_mut() {
            if let Some((segment, node)) = self.next_made(visit) {
                let (items, from) = (self.items.len(), self.bytes.len());
                todo.push(Visit { segment, node, next: 0, items, from });
                continue;
            }
            let Visit { segment, node, items, from, .. } = *visit;
            todo.pop();
            self.used = items;
            self.node(segment, node, from, todo.is_empty())?;
            self.items.truncate(items);
            self.items.push(Span::new(from, self.bytes.len() - from));
        }
        let key = PageKey::page(self.emitted.space, &[], 0);
        self.emitted.emit(key, PageKind::Root, &self.bytes);
        Ok(())
    }

    /// The next child made by a batch of a node that is visited.
    fn next_made(&self, visit: &mut Visit) -> Option<(u32, u32)> {
        let home = self.chain.segment(visit.segment);
        let made = |child: &Child| match child.link {
            Link::Made { segment, node } => Some((segment, node)),
            _ => None,
        };
        let from = visit.next;
        let mut passed = from;
        let found = match &home.nodes[visit.node as usize].body {
            Body::Terminal(terminal) => {
                passed = 1;
                terminal.owned.as_ref().filter(|_| from == 0).and_then(made)
            }
            Body::Branch(Branch { children: Kids::Listed(span), .. }) => {
                home.children(*span)[from..].iter().find_map(|child| {
                    passed += 1;
                    made(child)
                })
            }
            Body::Branch(Branch { children: Kids::Patched(patch), .. }) => {
                home.slots[patch.slots.range()][from..].iter().find_map(|slot| {
                    passed += 1;
                    let changed = slot.state == SlotState::Changed;
                    changed.then(|| made(&home.children[slot.beside as usize]))?
                })
            }
        };
        visit.next = passed;
        found
    }

    /// The item of the next child that was made, in order.
    fn take_item(&mut self) -> std::ops::Range<usize> {
        self.used += 1;
        self.items[self.used - 1].range()
    }

    /// Writes a node's item at `from`, in place of its children's.
    fn node(&mut self, segment: u32, index: u32, from: usize, top: bool) -> Result<(), TreeError> {
        let node = self.chain.node(segment, index);
        let commit = node.commit.expect("nodes commit before they are written");
        match &node.body {
            Body::Terminal(terminal) => self.terminal(terminal, commit, from, top),
            Body::Branch(branch) => self.branch(segment, branch, commit, from, top),
        }
    }

    /// Writes a terminal's item at `from`. It carries its commitment if it is to, or if it overflows.
    fn terminal(
        &mut self,
        terminal: &Terminal,
        commit: S::Commit,
        from: usize,
        carries: bool,
    ) -> Result<(), TreeError> {
        let owned = match &terminal.owned {
            Some(child) => Some(self.owned(child)?),
            None => None,
        };
        let suffix = self.chain.suffix(terminal, Codec::<S>::WIDTH);
        let payload = self.chain.bytes(terminal.payload);
        let key = self.chain.bytes(terminal.key);
        let overflow =
            self.emitted.overflow::<S>(key, terminal.depth, suffix, payload, INLINE_BYTES_MAX);
        let carries =
            carries || overflow.is_some() || S::KEEP_TERMINALS || (S::DELTAS && owned.is_some());
        let commit = carries.then_some(commit);
        let put = PutTerminal {
            digit: Some(0),
            suffix,
            payload,
            overflow,
            commit,
            owned: owned.as_deref(),
        };
        self.bytes.truncate(from);
        self.codec.put_terminal(&mut self.bytes, &put);
        Ok(())
    }

    /// The item bytes of what a terminal owns: it always carries its commitment.
    fn owned(&mut self, child: &Child) -> Result<Vec<u8>, TreeError> {
        match child.link {
            Link::Made { segment, node } => {
                let made = self.chain.node(segment, node);
                let item = self.take_item();
                let Body::Terminal(terminal) = &made.body else {
                    return Ok(self.bytes[item].to_vec());
                };
                let commit = made.commit.expect("nodes commit before they are written");
                let from = self.bytes.len();
                self.terminal(terminal, commit, from, true)?;
                let item = self.bytes[from..].to_vec();
                self.bytes.truncate(from);
                Ok(item)
            }
            Link::Stored { segment, page, at } => {
                let owner = S::OWNER.expect("only owners own");
                let start = owner.bytes * Codec::<S>::WIDTH.per_byte();
                Ok(self.stored(segment, page, usize::from(at), start)?.to_vec())
            }
            Link::Group { .. } => unreachable!("an owned node is in no group"),
        }
    }

    /// The bytes of an untouched item.
    fn stored(&self, segment: u32, page: u32, at: usize, start: usize) -> Result<&[u8], TreeError> {
        let page = &self.chain.segment(segment).pages[page as usize];
        let (_, end) =
            self.codec.node(&page.row, at, start).map_err(|what| corrupt(&page.key, what))?;
        Ok(&page.row[at..end])
    }

    /// Writes a branch's item at `from`. The root's body is never cut off; an owned one's is sooner.
    fn branch(
        &mut self,
        segment: u32,
        branch: &Branch,
        commit: S::Commit,
        from: usize,
        top: bool,
    ) -> Result<(), TreeError> {
        let path = self.chain.bytes(branch.path);
        let mut body = std::mem::take(&mut self.body);
        self.put_body(segment, branch, path, &mut body)?;
        let owned = S::OWNER.is_some_and(|owner| {
            branch.depth as usize == owner.bytes * Codec::<S>::WIDTH.per_byte()
        });
        let limit = if owned { S::OWNED_BODY_BYTES } else { CUT_BYTES };
        let apart = !top && body.len() > limit;
        if apart {
            let bits = branch.fork as usize * Codec::<S>::WIDTH.bits();
            let key = PageKey::page(self.emitted.space, path, bits);
            self.emitted.emit(key, PageKind::Body, &body);
        }
        let skip = self.chain.skip(branch, Codec::<S>::WIDTH);
        let overflow = self.emitted.overflow::<S>(path, branch.depth, skip, &[], SKIP_BYTES_MAX);
        // The children's items have served.
        self.bytes.truncate(from);
        let put =
            PutBranch { digit: 0, commit, skip, overflow, body: (!apart).then_some(&body[..]) };
        self.codec.put_branch(&mut self.bytes, &put);
        self.body = body;
        Ok(())
    }

    /// Writes a branch's body, its large groups cut off, over whatever `body` holds.
    fn put_body(
        &mut self,
        segment: u32,
        branch: &Branch,
        path: &[u8],
        body: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        body.clear();
        if let Some(value) = branch.value {
            self.fork_value(branch, path, value, body);
        }
        if let Kids::Patched(patch) = &branch.children
            && self.patch_body(segment, patch, branch.fork as usize, body)?
        {
            return Ok(());
        }
        let children = &self.chain.kids(segment, &branch.children)[..];
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        let from = body.len();
        self.gather(segment, children, branch, &mut parts, body)?;
        if !may_cut::<S>(branch.fork, body.len() - from) {
            self.parts = parts;
            return Ok(());
        }
        let laid = self.bytes.len();
        self.bytes.extend_from_slice(&body[from..]);
        body.truncate(from);
        let (codec, chain) = (self.codec, self.chain);
        let member = |child| member(codec, chain, segment, child);
        let members = |digits: RangeInclusive<u8>| {
            children.iter().filter(|child| digits.contains(&child.digit)).map(member).collect()
        };
        let (bytes, emitted) = (&self.bytes[laid..], &mut self.emitted);
        Cutter { codec, bytes, members, fork: branch.fork, path, emitted }.cut(&parts, 0, body);
        self.parts = parts;
        Ok(())
    }

    /// Writes a patched branch's body, and the groups that were opened, as they were but for the children
    /// that changed. Pages are cut by the sizes of items alone: if one has another size, or a commitment
    /// has, nothing is written, and the answer is `false`.
    fn patch_body(
        &mut self,
        segment: u32,
        patch: &Patch,
        fork: usize,
        body: &mut Vec<u8>,
    ) -> Result<bool, TreeError> {
        let home = self.chain.segment(segment);
        let slots = &home.slots[patch.slots.range()];
        let changed = || slots.iter().filter(|slot| slot.state == SlotState::Changed);
        let first = self.used;
        for (item, slot) in (first..).zip(changed()) {
            if !self.fits(segment, patch, (slot, self.items[item]), fork)? {
                return Ok(false);
            }
        }
        let base = usize::from(patch.from);
        body.extend_from_slice(
            &self.chain.row(patch.segment, patch.page)[base..usize::from(patch.to)],
        );
        for (item, slot) in (first..).zip(changed()) {
            let child = &home.children[slot.beside as usize];
            let at = usize::from(slot.at) - base;
            if slot.bits == 0 {
                splice(body, at, &self.bytes[self.items[item].range()], slot.digit);
            } else if !S::DELTAS {
                self.member.clear();
                let commit = self.chain.commit(self.codec, segment, child);
                self.codec.scheme.encode_commit(&commit, &mut self.member);
                body[at + MEMBER_COMMIT_AT..][..self.member.len()].copy_from_slice(&self.member);
            }
        }
        for (number, &(segment, page)) in (1..).zip(&home.groups[patch.groups.range()]) {
            let page = &self.chain.segment(segment).pages[page as usize];
            let mut group = std::mem::take(&mut self.group);
            group.clear();
            group.extend_from_slice(&page.row[SUM_BYTES + 1..]);
            for (item, slot) in (first..).zip(changed()).filter(|(_, slot)| slot.group == number) {
                let at = usize::from(slot.item) - (SUM_BYTES + 1);
                splice(&mut group, at, &self.bytes[self.items[item].range()], slot.digit);
            }
            self.emitted.emit(page.key.clone(), PageKind::Group, &group);
            self.group = group;
        }
        Ok(true)
    }

    /// Whether a child that changed takes as many bytes as before, wherever it stands.
    fn fits(
        &mut self,
        segment: u32,
        patch: &Patch,
        (slot, item): (&Slot, Span),
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
        Ok(child.terminal == slot.terminal && item.len as usize == end - at)
    }

    fn fork_value(&mut self, branch: &Branch, path: &[u8], value: Place, body: &mut Vec<u8>) {
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
        self.codec.put_terminal(body, &put);
    }

    /// Appends the items of a branch's children to `body`; `parts` are counted from where it ended.
    fn gather(
        &mut self,
        home: u32,
        children: &[Child],
        branch: &Branch,
        parts: &mut Vec<Part>,
        body: &mut Vec<u8>,
    ) -> Result<(), TreeError> {
        let whole = u32::from(S::DIGIT_BITS);
        let (mut index, base) = (0, body.len());
        while index < children.len() {
            let child = &children[index];
            let from = body.len();
            index += 1;
            match child.link {
                Link::Made { .. } => {
                    let item = self.take_item();
                    body.extend_from_slice(&self.bytes[item]);
                    set_digit(&mut body[from..], child.digit);
                }
                Link::Stored { segment, page, at } => {
                    let page = &self.chain.segment(segment).pages[page as usize];
                    let (start, at) = (branch.fork as usize + 1, usize::from(at));
                    let skimmed = self.codec.skim(&page.row, at, start);
                    let (_, end) = skimmed.map_err(|what| corrupt(&page.key, what))?;
                    body.extend_from_slice(&page.row[at..end]);
                    set_digit(&mut body[from..], child.digit);
                }
                Link::Group { bits: cut, .. } => {
                    let rest = whole - u32::from(cut);
                    let prefix = child.digit >> rest << rest;
                    let same = |c: &&Child| c.digit >> rest << rest == prefix;
                    let count = 1 + children[index..].iter().take_while(same).count();
                    let (codec, chain) = (self.codec, self.chain);
                    let member = |child| member(codec, chain, home, child);
                    let members = children[index - 1..index - 1 + count].iter().map(member);
                    self.codec.put_group(body, prefix, cut, members);
                    index += count - 1;
                }
            }
            parts.push(Part { digit: child.digit, bytes: from - base..body.len() - base });
        }
        Ok(())
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
