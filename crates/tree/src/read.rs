//! Reading a tree: one key, or all of them in order.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::digits::{Run, Width};
use crate::error::TreeError;
use crate::image::{
    Codec, Item, NodeView, OVERFLOW_BYTES, Overflowed, PageKind, SUM_BYTES, SkipView, TerminalBody,
    TerminalView, overflow_checksum,
};
use crate::node::{Body, Chain, Child, Link, Segment};
use crate::open::{corrupt, stored_owned};
use crate::page_key::{PageKey, Space};
use crate::scheme::{Owned, Scheme, implicit_owners};

/// A value read from a tree. It shares the page that it was read from, so reading copies nothing.
#[derive(Clone)]
pub struct Value(ValueBytes);

#[derive(Clone)]
enum ValueBytes {
    Shared(Arc<[u8]>, Range<usize>),
    Owned(Vec<u8>),
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            ValueBytes::Shared(row, range) => &row[range.clone()],
            ValueBytes::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{}", crate::error::hex(self))
    }
}

impl PartialEq<[u8]> for Value {
    fn eq(&self, other: &[u8]) -> bool {
        **self == *other
    }
}

/// A key, its value, and the commitment of what it owns.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry<C> {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Value,
    /// The commitment of the subtree of the keys that it owns, if it owns any and pages keep that
    /// ([`Scheme::KEEP_OWNED_VALUES`]).
    pub owned: Option<C>,
}

/// Where a node is, on the way down.
#[derive(Clone, Debug)]
enum At {
    Made { segment: u32, node: u32 },
    Row { key: PageKey, row: Arc<[u8]>, at: usize },
}

/// A branch's children, on the way down.
#[derive(Clone, Debug)]
enum Fork {
    Made { segment: u32, node: u32 },
    Row { key: PageKey, row: Arc<[u8]>, range: Range<usize> },
}

/// One step on the way to a key.
enum Step {
    Absent,
    Found(Value),
    Down(At, usize),
}

/// A page's key, its bytes, and where among them its items lie.
type Items = (PageKey, Arc<[u8]>, Range<usize>);

/// How a reader comes by a page.
pub(crate) type Fetch<'a> = dyn Fn(&PageKey) -> Result<Arc<[u8]>, TreeError> + 'a;

/// Reads nodes of one state of a tree.
pub(crate) struct Reader<'a, S: Scheme> {
    pub(crate) codec: Codec<'a, S>,
    pub(crate) space: Space,
    pub(crate) segments: &'a [Arc<Segment<S::Commit>>],
    pub(crate) fetch: &'a Fetch<'a>,
}

impl<S: Scheme> Reader<'_, S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    /// The value of a key. Allocates only where the value overflowed its page or is not committed yet.
    pub(crate) fn get(&self, root: Option<&Child>, key: &[u8]) -> Result<Option<Value>, TreeError> {
        let Some(root) = root else { return Ok(None) };
        let mut step = Step::Down(self.child(root), 0);
        loop {
            step = match step {
                Step::Absent => return Ok(None),
                Step::Found(value) => return Ok(Some(value)),
                Step::Down(at, depth) => self.step(at, key, depth)?,
            };
        }
    }

    fn step(&self, at: At, key: &[u8], depth: usize) -> Result<Step, TreeError> {
        match at {
            At::Made { segment, node } => self.step_made(segment, node, key),
            At::Row { key: page, row, at } => self.step_row(page, row, at, key, depth),
        }
    }

    fn step_made(&self, segment: u32, node: u32, key: &[u8]) -> Result<Step, TreeError> {
        let chain = Chain::of(self.segments);
        match &chain.node(segment, node).body {
            Body::Terminal(terminal) => {
                let suffix = chain.suffix(terminal, Self::WIDTH);
                let owned = terminal.owned.map(|child| self.child(&child));
                Ok(self.meet_terminal(suffix, key, owned, || self.made_value(terminal.payload)))
            }
            Body::Branch(branch) => {
                let skip = chain.skip(branch, Self::WIDTH);
                self.meet_branch(skip, key, || Ok(Fork::Made { segment, node }))
            }
        }
    }

    fn step_row(
        &self,
        page: PageKey,
        row: Arc<[u8]>,
        at: usize,
        key: &[u8],
        depth: usize,
    ) -> Result<Step, TreeError> {
        let (node, _) = self.codec.node(&row, at, depth).map_err(|what| corrupt(&page, what))?;
        match node {
            NodeView::Terminal(view) => {
                let owned = |at| At::Row { key: page.clone(), row: Arc::clone(&row), at };
                let owned = view.owned.map(owned);
                match view.body {
                    TerminalBody::Inline { suffix, payload } => {
                        let value = || shared(&row, payload);
                        Ok(self.meet_terminal(suffix, key, owned, value))
                    }
                    TerminalBody::Overflow(over) => {
                        let bytes = self.overflow(key, depth, over, depth)?;
                        let split = Self::WIDTH.span(depth, over.digits);
                        let suffix = Run::cut(&bytes[..split], depth, over.digits, Self::WIDTH);
                        let value = || Value(ValueBytes::Owned(bytes[split..].to_vec()));
                        Ok(self.meet_terminal(suffix, key, owned, value))
                    }
                }
            }
            NodeView::Branch(view) => {
                let blob;
                let skip = match view.skip {
                    SkipView::Inline(run) => run,
                    SkipView::Overflow(over) => {
                        blob = self.overflow(key, depth, over, depth)?;
                        Run::cut(&blob, depth, over.digits, Self::WIDTH)
                    }
                };
                let fork = depth + skip.len();
                self.meet_branch(skip, key, || match view.body {
                    Some((from, to)) => {
                        Ok(Fork::Row { key: page.clone(), row: Arc::clone(&row), range: from..to })
                    }
                    None => self.body(key, fork),
                })
            }
        }
    }

    fn meet_terminal(
        &self,
        suffix: Run<'_>,
        key: &[u8],
        owned: Option<At>,
        value: impl FnOnce() -> Value,
    ) -> Step {
        if suffix.common(key) < suffix.len() {
            Step::Absent
        } else if suffix.end() == Self::WIDTH.count(key) {
            let is_key = owned.is_none() || !implicit_owners::<S>();
            if is_key { Step::Found(value()) } else { Step::Absent }
        } else {
            owned.map_or(Step::Absent, |at| Step::Down(at, suffix.end()))
        }
    }

    fn meet_branch(
        &self,
        skip: Run<'_>,
        key: &[u8],
        fork: impl FnOnce() -> Result<Fork, TreeError>,
    ) -> Result<Step, TreeError> {
        if skip.common(key) < skip.len() {
            return Ok(Step::Absent);
        }
        let at = skip.end();
        let fork = fork()?;
        if at == Self::WIDTH.count(key) {
            let value = self.fork_value(&fork, key, at)?;
            return Ok(value.map_or(Step::Absent, Step::Found));
        }
        let child = self.descend(fork, key, at, Self::WIDTH.digit(key, at))?;
        Ok(child.map_or(Step::Absent, |child| Step::Down(child, at + 1)))
    }

    /// The body of a branch that is a page of its own.
    fn body(&self, path: &[u8], fork: usize) -> Result<Fork, TreeError> {
        let (key, row) = self.page(path, fork * Self::WIDTH.bits(), PageKind::Body)?;
        let range = SUM_BYTES + 1..row.len();
        Ok(Fork::Row { key, row, range })
    }

    fn page(
        &self,
        path: &[u8],
        bits: usize,
        kind: PageKind,
    ) -> Result<(PageKey, Arc<[u8]>), TreeError> {
        let key = PageKey::page(self.space, path, bits);
        let row = (self.fetch)(&key)?;
        if row.get(SUM_BYTES) != Some(&(kind as u8)) {
            return Err(corrupt(&key, "it is of another kind than its parent says"));
        }
        Ok((key, row))
    }

    fn child(&self, child: &Child) -> At {
        match child.link {
            Link::Made { segment, node } => At::Made { segment, node },
            Link::Stored { segment, page, at } => {
                let page = &self.segments[segment as usize].pages[page as usize];
                let at = usize::from(at);
                At::Row { key: page.key.clone(), row: Arc::clone(&page.row), at }
            }
            Link::Group { .. } => unreachable!("a group is opened before its children"),
        }
    }

    fn fork_value(&self, fork: &Fork, path: &[u8], at: usize) -> Result<Option<Value>, TreeError> {
        match fork {
            Fork::Made { segment, node } => {
                let home = &self.segments[*segment as usize];
                let Body::Branch(branch) = home.nodes[*node as usize].body else {
                    unreachable!("a branch was met")
                };
                Ok(branch.value.map(|place| self.made_value(place)))
            }
            Fork::Row { key, row, range } => {
                if range.is_empty() {
                    return Err(corrupt(key, "a branch has no children"));
                }
                let item = self.codec.item(&row[..range.end], range.start, at + 1);
                match item.map_err(|what| corrupt(key, what))?.0 {
                    Item::Value(view) => self.value(&view, row, path, at).map(Some),
                    _ => Ok(None),
                }
            }
        }
    }

    fn value(
        &self,
        view: &TerminalView<'_, S::Commit>,
        row: &Arc<[u8]>,
        path: &[u8],
        at: usize,
    ) -> Result<Value, TreeError> {
        match view.body {
            TerminalBody::Inline { payload, .. } => Ok(shared(row, payload)),
            TerminalBody::Overflow(over) => {
                Ok(Value(ValueBytes::Owned(self.overflow(path, at, over, at)?)))
            }
        }
    }

    fn made_value(&self, place: crate::node::Place) -> Value {
        let chain = Chain::of(self.segments);
        Value(ValueBytes::Owned(chain.bytes(place).to_vec()))
    }

    /// The child of a branch at a digit.
    fn descend(
        &self,
        fork: Fork,
        path: &[u8],
        at: usize,
        digit: u8,
    ) -> Result<Option<At>, TreeError> {
        let mut above = 0;
        let (mut key, mut row, mut range) = match fork {
            Fork::Made { segment, node } => {
                let home = &self.segments[segment as usize];
                let Body::Branch(branch) = home.nodes[node as usize].body else {
                    unreachable!("a branch was met")
                };
                let children = Chain::of(self.segments).kids(segment, &branch.children);
                let Ok(index) = children.binary_search_by_key(&digit, |child| child.digit) else {
                    return Ok(None);
                };
                let Link::Group { bits, .. } = children[index].link else {
                    return Ok(Some(self.child(&children[index])));
                };
                above = bits;
                self.group(path, at, bits)?
            }
            Fork::Row { key, row, range } => (key, row, range),
        };
        'page: loop {
            let mut from = range.start;
            while from < range.end {
                let item = self.codec.item(&row[..range.end], from, at + 1);
                let (item, end) = item.map_err(|what| corrupt(&key, what))?;
                match item {
                    Item::Node { digit: found, .. } if found == digit => {
                        return Ok(Some(At::Row { key, row, at: from }));
                    }
                    Item::Group { bits, .. } if bits <= above => {
                        return Err(corrupt(&key, NESTED));
                    }
                    Item::Group { digit: prefix, bits, .. }
                        if digit >> (S::DIGIT_BITS - bits) == prefix >> (S::DIGIT_BITS - bits) =>
                    {
                        (key, row, range) = self.group(path, at, bits)?;
                        above = bits;
                        continue 'page;
                    }
                    _ => {}
                }
                from = end;
            }
            return Ok(None);
        }
    }

    fn group(&self, path: &[u8], at: usize, bits: u8) -> Result<Items, TreeError> {
        let bits = at * Self::WIDTH.bits() + usize::from(bits);
        let (key, row) = self.page(path, bits, PageKind::Group)?;
        let range = SUM_BYTES + 1..row.len();
        Ok((key, row, range))
    }

    /// Overflowed bytes at the first `digits` digits of `path`.
    fn overflow(
        &self,
        path: &[u8],
        digits: usize,
        over: Overflowed,
        start: usize,
    ) -> Result<Vec<u8>, TreeError> {
        let len = over.bytes(start, Self::WIDTH);
        let bits = digits * Self::WIDTH.bits();
        let mut bytes = Vec::new();
        for index in 0..=u16::MAX {
            if bytes.len() >= len {
                break;
            }
            let key = PageKey::overflow(self.space, path, bits, index);
            let row = (self.fetch)(&key)?;
            if row.get(SUM_BYTES) != Some(&(PageKind::Overflow as u8)) {
                return Err(corrupt(&key, "it holds no overflowed bytes"));
            }
            if row.len() > SUM_BYTES + 1 + OVERFLOW_BYTES {
                return Err(corrupt(&key, "it holds more bytes than a row takes"));
            }
            bytes.extend_from_slice(&row[SUM_BYTES + 1..]);
        }
        if bytes.len() != len || overflow_checksum(&bytes) != over.sum {
            let key = PageKey::overflow(self.space, path, bits, 0);
            return Err(corrupt(&key, "the bytes are not those its page names"));
        }
        Ok(bytes)
    }
}

/// A group is cut at more bits than the one it lies in; else a walk would never end.
pub(crate) const NESTED: &str = "a group lies in one that is no larger";

fn shared(row: &Arc<[u8]>, part: &[u8]) -> Value {
    let at = if part.is_empty() { 0 } else { part.as_ptr() as usize - row.as_ptr() as usize };
    Value(ValueBytes::Shared(Arc::clone(row), at..at + part.len()))
}

/// A node that the walk has yet to expand.
#[derive(Debug)]
struct Ahead {
    at: At,
    path: Vec<u8>,
    depth: usize,
}

/// What a walk meets, in order of keys.
#[derive(Debug)]
enum Pending<C> {
    Node(Ahead),
    Entry(Entry<C>),
}

/// Walks the entries from `start` on, in order of keys, with an explicit stack.
#[derive(Debug)]
pub(crate) struct Walk<C> {
    stack: Vec<Pending<C>>,
    start: Vec<u8>,
}

impl<C: Copy> Walk<C> {
    pub(crate) fn new<S: Scheme<Commit = C>>(
        reader: &Reader<'_, S>,
        root: Option<&Child>,
        start: &[u8],
    ) -> Self {
        let top =
            |root| Pending::Node(Ahead { at: reader.child(root), path: Vec::new(), depth: 0 });
        Self { stack: root.map(top).into_iter().collect(), start: start.to_vec() }
    }

    /// The next entry that is not before the start.
    pub(crate) fn next<S: Scheme<Commit = C>>(
        &mut self,
        reader: &Reader<'_, S>,
    ) -> Result<Option<Entry<C>>, TreeError> {
        while let Some(top) = self.stack.pop() {
            match top {
                Pending::Entry(entry) if entry.key >= self.start => return Ok(Some(entry)),
                Pending::Entry(_) => {}
                Pending::Node(node) => self.expand(reader, node)?,
            }
        }
        Ok(None)
    }

    /// Whether everything below a path comes before the start.
    fn before(&self, path: &[u8], bits: usize) -> bool {
        let whole = bits / 8;
        let common = whole.min(self.start.len());
        match path[..common].cmp(&self.start[..common]) {
            std::cmp::Ordering::Less => return true,
            std::cmp::Ordering::Greater => return false,
            std::cmp::Ordering::Equal => {}
        }
        if bits.is_multiple_of(8) || self.start.len() <= whole {
            return false;
        }
        let mask = 0xff << (8 - bits % 8);
        path[whole] & mask < self.start[whole] & mask
    }

    fn expand<S: Scheme<Commit = C>>(
        &mut self,
        reader: &Reader<'_, S>,
        node: Ahead,
    ) -> Result<(), TreeError> {
        let width = Reader::<S>::WIDTH;
        let Ahead { at, mut path, depth } = node;
        width.truncate(&mut path, depth);
        match reader.expand(at, path, depth)? {
            Expanded::Terminal { key, value, owned } => {
                let is_key = owned.is_none() || !implicit_owners::<S>();
                let commit = owned.as_ref().and_then(|owned| owned.1);
                if let Some((at, _)) = owned {
                    let depth = width.count(&key);
                    self.stack.push(Pending::Node(Ahead { at, path: key.clone(), depth }));
                }
                if is_key {
                    self.stack.push(Pending::Entry(Entry { key, value, owned: commit }));
                }
            }
            Expanded::Branch { path, fork, value, children } => {
                for (digit, at) in children.into_iter().rev() {
                    let mut below = path.clone();
                    width.append(&mut below, fork, digit);
                    if !self.before(&below, (fork + 1) * width.bits()) {
                        let depth = fork + 1;
                        self.stack.push(Pending::Node(Ahead { at, path: below, depth }));
                    }
                }
                if let Some(value) = value {
                    self.stack.push(Pending::Entry(Entry { key: path, value, owned: None }));
                }
            }
        }
        Ok(())
    }
}

/// A node with all that hangs below it by one step.
enum Expanded<C> {
    /// What it owns: where that is, and what it commits to if pages say so.
    Terminal {
        key: Vec<u8>,
        value: Value,
        owned: Option<(At, Option<C>)>,
    },
    Branch {
        path: Vec<u8>,
        fork: usize,
        value: Option<Value>,
        children: Vec<(u8, At)>,
    },
}

impl<S: Scheme> Reader<'_, S> {
    fn expand(
        &self,
        at: At,
        mut path: Vec<u8>,
        depth: usize,
    ) -> Result<Expanded<S::Commit>, TreeError> {
        let (page, row, at) = match at {
            At::Made { segment, node } => return self.expand_made(segment, node),
            At::Row { key, row, at } => (key, row, at),
        };
        let (node, _) = self.codec.node(&row, at, depth).map_err(|what| corrupt(&page, what))?;
        match node {
            NodeView::Terminal(view) => {
                let owned = match view.owned {
                    Some(at) => {
                        let commit = self.owned_commit(&page, &row, at)?;
                        Some((At::Row { key: page.clone(), row: Arc::clone(&row), at }, commit))
                    }
                    None => None,
                };
                let value = match view.body {
                    TerminalBody::Inline { suffix, payload } => {
                        suffix.extend(&mut path, 0);
                        shared(&row, payload)
                    }
                    TerminalBody::Overflow(over) => {
                        let mut bytes = self.overflow(&path, depth, over, depth)?;
                        let value = bytes.split_off(Self::WIDTH.span(depth, over.digits));
                        Run::cut(&bytes, depth, over.digits, Self::WIDTH).extend(&mut path, 0);
                        Value(ValueBytes::Owned(value))
                    }
                };
                Ok(Expanded::Terminal { key: path, value, owned })
            }
            NodeView::Branch(view) => {
                let fork = depth + view.skip.len();
                match view.skip {
                    SkipView::Inline(run) => run.extend(&mut path, 0),
                    SkipView::Overflow(over) => {
                        let bytes = self.overflow(&path, depth, over, depth)?;
                        Run::cut(&bytes, depth, over.digits, Self::WIDTH).extend(&mut path, 0);
                    }
                }
                let body = match view.body {
                    Some((from, to)) => Fork::Row { key: page, row, range: from..to },
                    None => self.body(&path, fork)?,
                };
                self.expand_fork(&body, path, fork)
            }
        }
    }

    /// What an owned item commits to, if it says so.
    fn owned_commit(
        &self,
        page: &PageKey,
        row: &[u8],
        at: usize,
    ) -> Result<Option<S::Commit>, TreeError> {
        match stored_owned(self.codec, row, at).map_err(|what| corrupt(page, what))? {
            Owned::Commit(commit) => Ok(Some(commit)),
            Owned::Value(..) => Ok(None),
        }
    }

    fn expand_made(&self, segment: u32, node: u32) -> Result<Expanded<S::Commit>, TreeError> {
        let chain = Chain::of(self.segments);
        let owned = |child: Child| match chain.owned(self.codec, segment, &child) {
            Owned::Commit(commit) => (self.child(&child), Some(commit)),
            Owned::Value(..) => (self.child(&child), None),
        };
        match &chain.node(segment, node).body {
            Body::Terminal(terminal) => Ok(Expanded::Terminal {
                key: chain.bytes(terminal.key).to_vec(),
                value: self.made_value(terminal.payload),
                owned: terminal.owned.map(owned),
            }),
            Body::Branch(branch) => {
                let mut path = chain.bytes(branch.path).to_vec();
                Self::WIDTH.truncate(&mut path, branch.fork as usize);
                self.expand_fork(&Fork::Made { segment, node }, path, branch.fork as usize)
            }
        }
    }

    fn expand_fork(
        &self,
        body: &Fork,
        path: Vec<u8>,
        fork: usize,
    ) -> Result<Expanded<S::Commit>, TreeError> {
        let value = self.fork_value(body, &path, fork)?;
        let mut children = Vec::new();
        match body {
            Fork::Made { segment, node } => {
                let home = &self.segments[*segment as usize];
                let Body::Branch(branch) = home.nodes[*node as usize].body else {
                    unreachable!("a branch was met")
                };
                let mut opened: Option<u8> = None;
                for child in &Chain::of(self.segments).kids(*segment, &branch.children) {
                    let Link::Group { bits, .. } = child.link else {
                        children.push((child.digit, self.child(child)));
                        continue;
                    };
                    // The first child of a group brings all of its children.
                    if opened.is_none_or(|last| child.digit > last) {
                        self.open_group(&path, fork, child.digit, bits, &mut children)?;
                        opened = children.last().map(|child| child.0);
                    }
                }
            }
            Fork::Row { key, row, range } => {
                self.collect((key, row), range.clone(), (&path, fork), 0, &mut children)?;
            }
        }
        Ok(Expanded::Branch { path, fork, value, children })
    }

    fn open_group(
        &self,
        path: &[u8],
        fork: usize,
        digit: u8,
        bits: u8,
        out: &mut Vec<(u8, At)>,
    ) -> Result<(), TreeError> {
        let mut below = path.to_vec();
        Self::WIDTH.append(&mut below, fork, digit);
        let (key, row, range) = self.group(&below, fork, bits)?;
        self.collect((&key, &row), range, (path, fork), bits, out)
    }

    /// Groups nest as deep as a digit has bits.
    fn collect(
        &self,
        (key, row): (&PageKey, &Arc<[u8]>),
        range: Range<usize>,
        (path, fork): (&[u8], usize),
        above: u8,
        out: &mut Vec<(u8, At)>,
    ) -> Result<(), TreeError> {
        let mut from = range.start;
        while from < range.end {
            let item = self.codec.item(&row[..range.end], from, fork + 1);
            let (item, end) = item.map_err(|what| corrupt(key, what))?;
            match item {
                Item::Value(_) => {}
                Item::Node { digit, .. } => {
                    out.push((digit, At::Row { key: key.clone(), row: Arc::clone(row), at: from }));
                }
                Item::Group { bits, .. } if bits <= above => return Err(corrupt(key, NESTED)),
                Item::Group { digit, bits, .. } => {
                    self.open_group(path, fork, digit, bits, out)?;
                }
            }
            from = end;
        }
        Ok(())
    }
}
