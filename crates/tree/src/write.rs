//! Cutting new nodes into pages.
//!
//! Pages are cut by path bit: a virtual binary tree runs through the children of every branch. Bottom
//! up, the residual image of a bit prefix is the residuals of its two halves; where it exceeds
//! [`CUT_BYTES`] it becomes a page and leaves a reference. The cut depends only on what lies below, so
//! pages are a function of the entries.
//!
//! Nodes are written children first, in the order of their segments; each leaves the bytes of its item,
//! which its parent copies. An untouched item is copied from the page it was read from.

use std::ops::Range;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use crate::digits::Run;
use crate::error::TreeError;
use crate::image::{
    CUT_BYTES, Codec, FORK_VALUE_BYTES_MAX, INLINE_BYTES_MAX, Member, OVERFLOW_BYTES,
    OWNED_BYTES_MAX, Overflowed, PAGE_BYTES_MAX, PageKind, PutBranch, PutTerminal, SKIP_BYTES_MAX,
    seal, set_digit,
};
use crate::node::{Body, Branch, Chain, Child, Link, Place, Segment, Span, Terminal, overflow_of};
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
    /// All pages written, whether they differ or not: what the tree holds at these keys from now on.
    pub(crate) emitted: Vec<PageKey>,
}

struct Writer<'a, S: Scheme> {
    codec: Codec<'a, S>,
    space: Space,
    chain: Chain<'a, S::Commit>,
    /// The item bytes of every node written so far, by segment and node.
    items: Vec<Vec<Span>>,
    bytes: Vec<u8>,
    emitted: Vec<(PageKey, Arc<[u8]>)>,
    /// A row being sealed, and the body of the branch being written.
    row: Vec<u8>,
    body: Vec<u8>,
    /// The items of the branch being written.
    parts: Vec<Part>,
}

/// An item of the branch being written.
#[derive(Clone, Debug)]
struct Part {
    /// For a group that was not opened, its first child's.
    digit: u8,
    bytes: Range<usize>,
}

/// The rows of all nodes reachable from `root`; `settled` says of each segment whether its rows are in
/// the store already, and which they are.
pub(crate) fn rows<S: Scheme>(
    codec: Codec<'_, S>,
    space: Space,
    segments: &[Arc<Segment<S::Commit>>],
    root: Option<&Child<S::Commit>>,
    settled: &[Option<Arc<Vec<PageKey>>>],
    stored: &dyn Fn(&PageKey) -> Option<Arc<[u8]>>,
) -> Result<Rows, TreeError> {
    let chain = Chain { older: segments, last: None };
    let mut writer = Writer {
        codec,
        space,
        chain,
        items: segments.iter().map(|s| vec![Span::EMPTY; s.nodes.len()]).collect(),
        bytes: Vec::new(),
        emitted: Vec::new(),
        row: Vec::new(),
        body: Vec::new(),
        parts: Vec::new(),
    };
    if let Some(root) = root
        && let Link::Made { segment, node } = root.link
    {
        writer.write(root, segment, node)?;
    }
    Ok(difference(space, segments, settled, root, writer.emitted, stored))
}

/// What differs between the rows written and those of the store.
fn difference<C: Copy>(
    space: Space,
    segments: &[Arc<Segment<C>>],
    settled: &[Option<Arc<Vec<PageKey>>>],
    root: Option<&Child<C>>,
    emitted: Vec<(PageKey, Arc<[u8]>)>,
    stored: &dyn Fn(&PageKey) -> Option<Arc<[u8]>>,
) -> Rows {
    let mut rows = Rows::default();
    let unchanged = root.is_some_and(|root| matches!(root.link, Link::Stored { .. }));
    let mut stale: HashMap<&PageKey, Option<Arc<[u8]>>> = HashMap::new();
    let mut cleared = false;
    for (segment, settled) in segments.iter().zip(settled) {
        match settled {
            Some(keys) => stale.extend(keys.iter().map(|key| (key, stored(key)))),
            None => {
                for page in segment.pages.iter().filter(|page| page.stale) {
                    stale.insert(&page.key, Some(Arc::clone(&page.row)));
                }
                for dropped in &segment.dropped {
                    for kind in [RowKind::Page, RowKind::Overflow] {
                        let range = PageKey::below(space, kind, &dropped.path, dropped.bits);
                        rows.drops.extend(range);
                    }
                    cleared = true;
                }
            }
        }
    }
    if unchanged {
        return Rows::default();
    }
    let mut kept: HashSet<PageKey> = HashSet::with_capacity(emitted.len());
    for (key, row) in emitted {
        // A row in a dropped range is gone by the time the rows are written.
        let same = !cleared && matches!(stale.get(&key), Some(Some(old)) if **old == *row);
        kept.insert(key.clone());
        if !same {
            rows.puts.push((key, row));
        }
    }
    rows.deletes.extend(stale.into_keys().filter(|key| !kept.contains(*key)).cloned());
    rows.emitted.extend(kept);
    rows
}

impl<S: Scheme> Writer<'_, S> {
    fn write(&mut self, root: &Child<S::Commit>, segment: u32, node: u32) -> Result<(), TreeError> {
        for (index, nodes) in self.reachable(segment, node).into_iter().enumerate() {
            for node in nodes {
                let top = (index as u32, node) == (segment, node_of(root));
                self.node(index as u32, node, top)?;
            }
        }
        let item = self.items[segment as usize][node as usize].range();
        let key = PageKey::page(self.space, &[], 0);
        let bytes = std::mem::take(&mut self.bytes);
        self.emit(key, PageKind::Root, &bytes[item]);
        self.bytes = bytes;
        Ok(())
    }

    /// The nodes of each segment that the root reaches, children before their parents.
    fn reachable(&self, segment: u32, node: u32) -> Vec<Vec<u32>> {
        let mut seen: Vec<Vec<bool>> =
            self.items.iter().map(|nodes| vec![false; nodes.len()]).collect();
        let mut todo = vec![(segment, node)];
        seen[segment as usize][node as usize] = true;
        while let Some((segment, node)) = todo.pop() {
            let home = self.chain.segment(segment);
            let mut reach = |child: &Child<S::Commit>| {
                if let Link::Made { segment, node } = child.link
                    && !std::mem::replace(&mut seen[segment as usize][node as usize], true)
                {
                    todo.push((segment, node));
                }
            };
            match &home.nodes[node as usize].body {
                Body::Terminal(terminal) => terminal.owned.iter().for_each(&mut reach),
                Body::Branch(branch) => home.children(branch.children).iter().for_each(&mut reach),
            }
        }
        let numbers =
            |seen: Vec<bool>| (0..).zip(seen).filter_map(|(node, seen)| seen.then_some(node));
        seen.into_iter().map(|seen| numbers(seen).collect()).collect()
    }

    fn node(&mut self, segment: u32, index: u32, top: bool) -> Result<(), TreeError> {
        let node = self.chain.node(segment, index);
        let commit = node.commit.expect("nodes commit before they are written");
        let from = self.bytes.len();
        match &node.body {
            Body::Terminal(terminal) => self.terminal(segment, terminal, commit, top)?,
            Body::Branch(branch) => self.branch(segment, branch, commit, top)?,
        }
        self.items[segment as usize][index as usize] = Span::new(from, self.bytes.len() - from);
        Ok(())
    }

    /// Appends a terminal's item. It carries its commitment if it is to, or if it overflows.
    fn terminal(
        &mut self,
        segment: u32,
        terminal: &Terminal<S::Commit>,
        commit: S::Commit,
        carries: bool,
    ) -> Result<(), TreeError> {
        let home = self.chain.segment(segment);
        let owned = match &terminal.owned {
            Some(child) => Some(self.owned(child)?),
            None => None,
        };
        let suffix = terminal.suffix(&home.bytes, Codec::<S>::WIDTH);
        let payload = self.chain.bytes(terminal.payload);
        let key = &home.bytes[terminal.key.range()];
        let overflow = self.overflow(key, terminal.depth, suffix, payload, INLINE_BYTES_MAX);
        let commit = (carries || overflow.is_some()).then_some(commit);
        let put = PutTerminal {
            digit: Some(0),
            suffix,
            payload,
            overflow,
            commit,
            owned: owned.as_deref(),
        };
        self.codec.put_terminal(&mut self.bytes, &put);
        Ok(())
    }

    /// Writes overflowing bytes to rows of their own, at the place where the node's run starts.
    fn overflow(
        &mut self,
        path: &[u8],
        depth: u32,
        run: Run<'_>,
        payload: &[u8],
        limit: usize,
    ) -> Option<Overflowed> {
        let (over, blob) = overflow_of(run, payload, limit)?;
        let bits = depth as usize * Codec::<S>::WIDTH.bits();
        for (index, part) in blob.chunks(OVERFLOW_BYTES).enumerate() {
            let index = u16::try_from(index).expect("values are bounded");
            let key = PageKey::overflow(self.space, path, bits, index);
            self.emit(key, PageKind::Overflow, part);
        }
        Some(over)
    }

    /// The item bytes of what a terminal owns: it always carries its commitment.
    fn owned(&mut self, child: &Child<S::Commit>) -> Result<Vec<u8>, TreeError> {
        match child.link {
            Link::Made { segment, node } => {
                let made = self.chain.node(segment, node);
                let Body::Terminal(terminal) = &made.body else {
                    let item = self.items[segment as usize][node as usize].range();
                    return Ok(self.bytes[item].to_vec());
                };
                let commit = made.commit.expect("nodes commit before they are written");
                let from = self.bytes.len();
                self.terminal(segment, terminal, commit, true)?;
                let item = self.bytes[from..].to_vec();
                self.bytes.truncate(from);
                Ok(item)
            }
            Link::Stored { segment, page, at } => {
                let owner = S::OWNER.expect("only owners own");
                let start = owner.bytes * Codec::<S>::WIDTH.per_byte();
                Ok(self.stored(segment, page, at as usize, start)?.to_vec())
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

    /// Appends a branch's item. The root's body is never cut off; an owned one's is sooner.
    fn branch(
        &mut self,
        segment: u32,
        branch: &Branch,
        commit: S::Commit,
        top: bool,
    ) -> Result<(), TreeError> {
        let home = self.chain.segment(segment);
        let path = &home.bytes[branch.path.range()];
        let from = self.bytes.len();
        let mut body = std::mem::take(&mut self.body);
        self.put_body(segment, branch, path, &mut body)?;
        let owned = S::OWNER.is_some_and(|owner| {
            branch.depth as usize == owner.bytes * Codec::<S>::WIDTH.per_byte()
        });
        let limit = if owned { OWNED_BYTES_MAX } else { CUT_BYTES };
        let apart = !top && body.len() > limit;
        if apart {
            let bits = branch.fork as usize * Codec::<S>::WIDTH.bits();
            self.emit(PageKey::page(self.space, path, bits), PageKind::Body, &body);
        }
        let skip = branch.skip(&home.bytes, Codec::<S>::WIDTH);
        let overflow = self.overflow(path, branch.depth, skip, &[], SKIP_BYTES_MAX);
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
        let children = self.chain.segment(segment).children(branch.children);
        let mut parts = std::mem::take(&mut self.parts);
        parts.clear();
        self.gather(children, branch, &mut parts)?;
        let mut cutter = Cutter { writer: self, children, fork: branch.fork, path };
        cutter.cut(&parts, 0, body);
        self.parts = parts;
        Ok(())
    }

    fn fork_value(&mut self, branch: &Branch, path: &[u8], value: Place, body: &mut Vec<u8>) {
        let fork = branch.fork as usize;
        let payload = self.chain.bytes(value);
        let nothing = Run::cut(&[], fork, 0, Codec::<S>::WIDTH);
        let overflow = self.overflow(path, branch.fork, nothing, payload, FORK_VALUE_BYTES_MAX);
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

    /// Lays out the items of a branch's children behind `self.bytes`.
    fn gather(
        &mut self,
        children: &[Child<S::Commit>],
        branch: &Branch,
        parts: &mut Vec<Part>,
    ) -> Result<(), TreeError> {
        let whole = u32::from(S::DIGIT_BITS);
        let mut index = 0;
        while index < children.len() {
            let child = &children[index];
            let from = self.bytes.len();
            index += 1;
            match child.link {
                Link::Made { segment, node } => {
                    let item = self.items[segment as usize][node as usize].range();
                    self.bytes.extend_from_within(item);
                    set_digit(&mut self.bytes[from..], child.digit);
                }
                Link::Stored { segment, page, at } => {
                    let home = &self.chain.segment(segment).pages[page as usize];
                    let start = branch.fork as usize + 1;
                    let parsed = self.codec.node(&home.row, at as usize, start);
                    let (_, end) = parsed.map_err(|what| corrupt(&home.key, what))?;
                    self.bytes.extend_from_slice(&home.row[at as usize..end]);
                    set_digit(&mut self.bytes[from..], child.digit);
                }
                Link::Group { bits: cut } => {
                    let rest = whole - u32::from(cut);
                    let prefix = child.digit >> rest << rest;
                    let same = |c: &&Child<S::Commit>| c.digit >> rest << rest == prefix;
                    let count = 1 + children[index..].iter().take_while(same).count();
                    let members = children[index - 1..index - 1 + count].iter().map(member);
                    self.codec.put_group(&mut self.bytes, prefix, cut, members);
                    index += count - 1;
                }
            }
            parts.push(Part { digit: child.digit, bytes: from..self.bytes.len() });
        }
        Ok(())
    }

    fn emit(&mut self, key: PageKey, kind: PageKind, bytes: &[u8]) {
        seal(key.as_bytes(), kind, bytes, &mut self.row);
        assert!(self.row.len() <= PAGE_BYTES_MAX, "a page of {} bytes", self.row.len());
        self.emitted.push((key, Arc::from(&self.row[..])));
    }
}

/// Cuts the children of one branch into groups.
struct Cutter<'w, 'a, S: Scheme> {
    writer: &'w mut Writer<'a, S>,
    children: &'w [Child<S::Commit>],
    fork: u32,
    path: &'w [u8],
}

impl<S: Scheme> Cutter<'_, '_, S> {
    /// Appends the residual image of `parts`, which share the first `bits` bits of their digits. The
    /// depth of the recursion is the width of a digit.
    fn cut(&mut self, parts: &[Part], bits: u32, out: &mut Vec<u8>) {
        let whole = u32::from(S::DIGIT_BITS);
        match parts {
            [] => return,
            [part] => {
                out.extend_from_slice(&self.writer.bytes[part.bytes.clone()]);
                return;
            }
            _ => {}
        }
        let from = out.len();
        let half = parts.partition_point(|p| p.digit >> (whole - 1 - bits) & 1 == 0);
        self.cut(&parts[..half], bits + 1, out);
        self.cut(&parts[half..], bits + 1, out);
        let forks = half > 0 && half < parts.len();
        if bits == 0 || !forks || out.len() - from <= CUT_BYTES {
            return;
        }
        let prefix = parts[0].digit >> (whole - bits) << (whole - bits);
        let fork = self.fork as usize;
        let mut path = self.path.to_vec();
        Codec::<S>::WIDTH.append(&mut path, fork, prefix);
        let bit = fork * Codec::<S>::WIDTH.bits();
        let key = PageKey::page(self.writer.space, &path, bit + bits as usize);
        self.writer.emit(key, PageKind::Group, &out[from..]);
        out.truncate(from);
        let same = |c: &&Child<S::Commit>| c.digit >> (whole - bits) << (whole - bits) == prefix;
        let members: Vec<_> = self.children.iter().filter(same).map(member).collect();
        self.writer.codec.put_group(out, prefix, bits as u8, members.into_iter());
    }
}

fn member<C: Copy>(child: &Child<C>) -> Member<C> {
    Member { digit: child.digit, terminal: child.terminal, commit: child.commit() }
}

fn node_of<C>(child: &Child<C>) -> u32 {
    match child.link {
        Link::Made { node, .. } => node,
        _ => unreachable!("a root that was made"),
    }
}
