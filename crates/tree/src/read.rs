//! Reading a tree: one key, or all of them in order.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::error::TreeError;
use crate::image::{
    Codec, FRAME_BYTES, LeafBody, OVERFLOW_BYTES, Overflowed, PageKind, PrefixView,
};
use crate::node::{Arena, Chain, ForkValue, Link, Made, Node, PageRef, Place};
use crate::page::{HandleCell, Kind, Page, Within, corrupt};
use crate::page_key::{PageKey, Space};
use crate::scheme::{Owned, Scheme, implicit_owners};
use spinney_proof::digits::{Run, Width};

/// A value read from a tree. It shares the page that it was read from, so reading copies nothing.
#[derive(Clone)]
pub struct Value(ValueBytes);

#[derive(Clone)]
enum ValueBytes {
    Shared(Arc<[u8]>, Range<usize>),
    Pending(Arc<Vec<u8>>, Range<usize>),
    Owned(Vec<u8>),
}

impl Value {
    /// A value with bytes of its own.
    pub(crate) const fn owned(bytes: Vec<u8>) -> Self {
        Self(ValueBytes::Owned(bytes))
    }
}

impl Deref for Value {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            ValueBytes::Shared(row, range) => &row[range.clone()],
            ValueBytes::Pending(bytes, range) => &bytes[range.clone()],
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
    /// ([`Layout::keep_owned_values`](crate::Layout::keep_owned_values)).
    pub owned: Option<C>,
}

/// What could not be looked into: a page is missing, and its key is on the list; or something
/// failed.
#[derive(Debug)]
pub(crate) enum Halt {
    Missing,
    Failed(TreeError),
}

impl From<TreeError> for Halt {
    fn from(error: TreeError) -> Self {
        Self::Failed(error)
    }
}

impl From<Halt> for TreeError {
    fn from(halt: Halt) -> Self {
        match halt {
            Halt::Failed(error) => error,
            Halt::Missing => {
                Self::Corrupt { page: "a page".into(), what: "nobody reads it".into() }
            }
        }
    }
}

/// Where a node is, on the way down.
#[derive(Debug)]
pub(crate) enum At<C> {
    Made(Made),
    Stored(Arc<Page<C>>, u16),
}

impl<C> Clone for At<C> {
    fn clone(&self) -> Self {
        match self {
            Self::Made(made) => Self::Made(*made),
            Self::Stored(page, entry) => Self::Stored(Arc::clone(page), *entry),
        }
    }
}

/// A branch's children, on the way down.
#[derive(Debug)]
pub(crate) enum Fork<C> {
    Made(Made),
    Stored { page: Arc<Page<C>>, within: Within, body: usize, valued: bool },
}

/// Some digits, and where their bytes are.
#[derive(Clone, Debug)]
pub(crate) struct Digits {
    bytes: Value,
    start: usize,
    len: usize,
    width: Width,
}

impl Digits {
    pub(crate) fn run(&self) -> Run<'_> {
        Run::cut(&self.bytes, self.start, self.len, self.width)
    }
}

/// A node, resolved.
#[derive(Debug)]
pub(crate) enum Resolved<C> {
    Leaf { suffix: Digits, value: Value, owned: Option<At<C>> },
    Branch { prefix: Digits, fork: Fork<C> },
}

/// A child of a branch: its digit, where it is, unless that is in a bucket's page that was not
/// opened, and what it commits to, if that is known.
#[derive(Debug)]
pub(crate) struct Child<C> {
    pub(crate) digit: u8,
    pub(crate) at: Option<At<C>>,
    pub(crate) commit: Option<C>,
}

/// How a reader comes by a page: where it may be, the path to it and how many bits of that its
/// place has.
pub(crate) type Fetch<'a, C> =
    dyn Fn(Option<&HandleCell>, &dyn Fn() -> PageKey, usize) -> Result<Arc<Page<C>>, Halt> + 'a;

/// Reads nodes of one state of a tree.
pub(crate) struct Reader<'a, S: Scheme> {
    pub(crate) codec: Codec<'a, S>,
    pub(crate) space: Space,
    pub(crate) arenas: &'a [Arc<Arena<S::Commit>>],
    pub(crate) fetch: &'a Fetch<'a, S::Commit>,
}

/// One step on the way to a key.
enum Step<C> {
    Absent,
    Found(Value),
    Down(At<C>, usize),
}

impl<'a, S: Scheme> Reader<'a, S> {
    pub(crate) const WIDTH: Width = Codec::<S>::WIDTH;

    pub(crate) const fn chain(&self) -> Chain<'a, S::Commit> {
        Chain::of(self.arenas)
    }

    /// Where a node of the state is.
    pub(crate) fn at(&self, link: Link) -> At<S::Commit> {
        match link {
            Link::Made(made) => At::Made(made),
            Link::Stored { page, entry } => At::Stored(Arc::clone(self.chain().page(page)), entry),
        }
    }

    /// The value of a key. Allocates only where it lies in rows of its own.
    pub(crate) fn get(&self, top: Option<Link>, key: &[u8]) -> Result<Option<Value>, Halt> {
        let Some(top) = top else { return Ok(None) };
        let mut step = Step::Down(self.at(top), 0);
        loop {
            step = match step {
                Step::Absent => return Ok(None),
                Step::Found(value) => return Ok(Some(value)),
                Step::Down(At::Made(made), _) => self.step_made(made, key)?,
                Step::Down(At::Stored(page, entry), depth) => {
                    self.step_stored(page, entry, key, depth)?
                }
            };
        }
    }

    fn step_made(&self, made: Made, key: &[u8]) -> Result<Step<S::Commit>, Halt> {
        let chain = self.chain();
        let node = chain.node(made);
        let run = chain.run(node, Self::WIDTH);
        if run.common(key) < run.len() {
            return Ok(Step::Absent);
        }
        let ends = run.end() == Self::WIDTH.count(key);
        if node.is_branch() {
            if ends {
                let value =
                    (node.fork_value != ForkValue::None).then(|| self.made_value(node.value));
                return Ok(value.map_or(Step::Absent, Step::Found));
            }
            let at = run.end();
            let child = self.child(&Fork::Made(made), key, at, Self::WIDTH.digit(key, at))?;
            return Ok(child.map_or(Step::Absent, |child| Step::Down(child, at + 1)));
        }
        let owned = self.owned_of(made, node);
        Ok(match (ends, owned) {
            (true, Some(_)) if implicit_owners::<S>() => Step::Absent,
            (true, _) => Step::Found(self.made_value(node.value)),
            (false, Some(owned)) => Step::Down(owned, run.end()),
            (false, None) => Step::Absent,
        })
    }

    /// What a made leaf owns.
    fn owned_of(&self, made: Made, node: &Node) -> Option<At<S::Commit>> {
        let chain = self.chain();
        match chain.changes(made.arena, node).first() {
            Some(change) => change.made.is_something().then_some(At::Made(change.made)),
            None if node.within.len() > 0 => {
                Some(At::Stored(Arc::clone(chain.page(node.base)), node.within.from))
            }
            None => None,
        }
    }

    fn step_stored(
        &self,
        page: Arc<Page<S::Commit>>,
        number: u16,
        key: &[u8],
        depth: usize,
    ) -> Result<Step<S::Commit>, Halt> {
        let entry = *page.entry(number);
        if matches!(entry.kind, Kind::Branch | Kind::OutOfLine)
            && entry.has_no_prefix()
            && depth < Self::WIDTH.count(key)
        {
            // The usual way.
            let (mut page, mut within) = (page, entry.within());
            if entry.kind == Kind::OutOfLine {
                let bits = depth * Self::WIDTH.bits();
                page = self.page(page.handle(number), key, bits, PageKind::Body)?;
                within = page.top();
            }
            let digit = Self::WIDTH.digit(key, depth);
            let child = self.stored_child(page, within, (key, depth, digit), None)?;
            return Ok(child.map_or(Step::Absent, |child| Step::Down(child, depth + 1)));
        }
        if entry.kind == Kind::Leaf
            && !entry.is_overflowed()
            && let Some((suffix, value)) = page.inline_leaf(self.codec, &entry, depth)
        {
            if suffix.common(key) < suffix.len() {
                return Ok(Step::Absent);
            }
            let end = suffix.end();
            if end == Self::WIDTH.count(key) {
                let absent = entry.owns() && implicit_owners::<S>();
                let shared = || Value(ValueBytes::Shared(Arc::clone(&page.row), value.clone()));
                return Ok(if absent { Step::Absent } else { Step::Found(shared()) });
            }
            let owned = entry.owns().then(|| entry.within().from);
            return Ok(owned.map_or(Step::Absent, |owned| Step::Down(At::Stored(page, owned), end)));
        }
        match self.resolve(&At::Stored(page, number), key, depth)? {
            Resolved::Leaf { suffix, value, owned } => {
                let run = suffix.run();
                if run.common(key) < run.len() {
                    return Ok(Step::Absent);
                }
                if run.end() == Self::WIDTH.count(key) {
                    let is_key = owned.is_none() || !implicit_owners::<S>();
                    return Ok(if is_key { Step::Found(value) } else { Step::Absent });
                }
                Ok(owned.map_or(Step::Absent, |owned| Step::Down(owned, run.end())))
            }
            Resolved::Branch { prefix, fork } => {
                let run = prefix.run();
                if run.common(key) < run.len() {
                    return Ok(Step::Absent);
                }
                let (at, fork) = (run.end(), self.opened(fork, key, run.end())?);
                if at == Self::WIDTH.count(key) {
                    let value = self.fork_value(&fork, key, at)?;
                    return Ok(value.map_or(Step::Absent, Step::Found));
                }
                let child = self.child(&fork, key, at, Self::WIDTH.digit(key, at))?;
                Ok(child.map_or(Step::Absent, |child| Step::Down(child, at + 1)))
            }
        }
    }

    /// Looks into a node whose run starts at digit `depth` of a path.
    pub(crate) fn resolve(
        &self,
        at: &At<S::Commit>,
        path: &[u8],
        depth: usize,
    ) -> Result<Resolved<S::Commit>, Halt> {
        let (page, number) = match at {
            At::Made(made) => return Ok(self.resolve_made(*made)),
            At::Stored(page, number) => (page, *number),
        };
        let entry = page.entry(number);
        let part = |part: &[u8]| Value(shared(&page.row, part));
        if entry.kind == Kind::Leaf {
            let owned = entry.owns().then(|| At::Stored(Arc::clone(page), entry.within().from));
            let (suffix, value) = match page.leaf(self.codec, entry, depth)?.body {
                LeafBody::Inline { suffix, value } => {
                    (Self::digits(part(suffix.aligned()), depth, suffix.len()), part(value))
                }
                LeafBody::Overflow(over) => {
                    let mut bytes = self.overflow(path, depth, over)?;
                    let value = bytes.split_off(Self::WIDTH.span(depth, over.digits));
                    let run = Value(ValueBytes::Owned(bytes));
                    (Self::digits(run, depth, over.digits), Value(ValueBytes::Owned(value)))
                }
            };
            return Ok(Resolved::Leaf { suffix, value, owned });
        }
        if entry.kind.is_in_bucket() {
            return Err(
                corrupt(&page.key, "the branch above it names a bucket of one child").into()
            );
        }
        let prefix = match page.prefix(self.codec, entry, depth)? {
            PrefixView::Inline(run) => Self::digits(part(run.aligned()), depth, run.len()),
            PrefixView::Overflow(over) => {
                let bytes = Value(ValueBytes::Owned(self.overflow(path, depth, over)?));
                Self::digits(bytes, depth, over.digits)
            }
        };
        let (page, within) = (Arc::clone(page), entry.within());
        let (body, valued) = (entry.body.into(), entry.is_valued());
        let fork = match entry.kind {
            Kind::Branch => Fork::Stored { page, within, body, valued },
            // Its page is opened by who goes on.
            _ => {
                Fork::Stored { page, within: Within { from: number, end: number }, body: 0, valued }
            }
        };
        Ok(Resolved::Branch { prefix, fork })
    }

    fn digits(bytes: Value, start: usize, len: usize) -> Digits {
        Digits { bytes, start, len, width: Self::WIDTH }
    }

    fn resolve_made(&self, made: Made) -> Resolved<S::Commit> {
        let chain = self.chain();
        let node = chain.node(made);
        let run = chain.run(node, Self::WIDTH);
        let bytes = Value(ValueBytes::Owned(run.aligned().to_vec()));
        let digits = Self::digits(bytes, run.start(), run.len());
        if node.is_branch() {
            return Resolved::Branch { prefix: digits, fork: Fork::Made(made) };
        }
        let (value, owned) = (self.made_value(node.value), self.owned_of(made, node));
        Resolved::Leaf { suffix: digits, value, owned }
    }

    /// A branch's children with the page of their own, if they have one; `at` is the digit of the
    /// fork.
    pub(crate) fn opened(
        &self,
        fork: Fork<S::Commit>,
        path: &[u8],
        at: usize,
    ) -> Result<Fork<S::Commit>, Halt> {
        let Fork::Stored { page, within, .. } = &fork else { return Ok(fork) };
        if within.len() > 0 {
            return Ok(fork);
        }
        let page =
            self.page(page.handle(within.from), path, at * Self::WIDTH.bits(), PageKind::Body)?;
        let (within, valued) = (page.top(), page.valued);
        Ok(Fork::Stored { page, within, body: FRAME_BYTES, valued })
    }

    fn page(
        &self,
        handle: Option<&HandleCell>,
        path: &[u8],
        bits: usize,
        kind: PageKind,
    ) -> Result<Arc<Page<S::Commit>>, Halt> {
        let key = || PageKey::page(self.space, path, bits);
        let page = (self.fetch)(handle, &key, bits)?;
        if page.kind != kind {
            return Err(corrupt(&page.key, "it is of another kind than its parent says").into());
        }
        Ok(page)
    }

    /// The value of the key that ends at a fork, whose page is open.
    pub(crate) fn fork_value(
        &self,
        fork: &Fork<S::Commit>,
        path: &[u8],
        at: usize,
    ) -> Result<Option<Value>, Halt> {
        match fork {
            Fork::Made(made) => {
                let node = self.chain().node(*made);
                Ok((node.fork_value != ForkValue::None).then(|| self.made_value(node.value)))
            }
            Fork::Stored { valued: false, .. } => Ok(None),
            Fork::Stored { page, body, .. } => {
                let (view, _) = page.value(self.codec, *body, at)?;
                match view.body {
                    LeafBody::Inline { value, .. } => Ok(Some(Value(shared(&page.row, value)))),
                    LeafBody::Overflow(over) => {
                        Ok(Some(Value(ValueBytes::Owned(self.overflow(path, at, over)?))))
                    }
                }
            }
        }
    }

    fn made_value(&self, place: Place) -> Value {
        let (arena, range) = (self.chain().arena(place.arena), place.span.range());
        Value(match place.row() {
            _ if place.is_of_batch() => ValueBytes::Pending(Arc::clone(&arena.bytes), range),
            Some(page) => ValueBytes::Shared(Arc::clone(&arena.pages[page].row), range),
            None => ValueBytes::Owned(arena.text[range].to_vec()),
        })
    }

    /// The child of a branch, whose page is open, at a digit of a path.
    pub(crate) fn child(
        &self,
        fork: &Fork<S::Commit>,
        path: &[u8],
        at: usize,
        digit: u8,
    ) -> Result<Option<At<S::Commit>>, Halt> {
        let chain = self.chain();
        match fork {
            Fork::Made(made) => {
                let node = chain.node(*made);
                let changes = chain.changes(made.arena, node);
                if let Ok(change) = changes.binary_search_by_key(&digit, |change| change.digit) {
                    let made = changes[change].made;
                    return Ok(made.is_something().then_some(At::Made(made)));
                }
                if node.base == PageRef::NOWHERE {
                    return Ok(None);
                }
                let page = Arc::clone(chain.page(node.base));
                self.stored_child(page, node.within, (path, at, digit), Some(*made))
            }
            Fork::Stored { page, within, .. } => {
                self.stored_child(Arc::clone(page), *within, (path, at, digit), None)
            }
        }
    }

    fn stored_child(
        &self,
        mut page: Arc<Page<S::Commit>>,
        mut within: Within,
        (path, at, digit): (&[u8], usize, u8),
        made: Option<Made>,
    ) -> Result<Option<At<S::Commit>>, Halt> {
        loop {
            let Some(entry) = page.find(within, digit, Self::WIDTH.mask()) else { return Ok(None) };
            if !page.entry(entry).kind.is_in_bucket() {
                return Ok(Some(At::Stored(page, entry)));
            }
            let bucket = self.bucket(&page, entry, (path, at), made)?;
            if bucket.find(bucket.top(), digit, Self::WIDTH.mask()).is_none() {
                return Err(corrupt(&bucket.key, "it lacks a child of its bucket").into());
            }
            (within, page) = (bucket.top(), bucket);
        }
    }

    /// The page of the bucket that a bucket entry names; `path` has its digit at `at`.
    fn bucket(
        &self,
        page: &Page<S::Commit>,
        member: u16,
        (path, at): (&[u8], usize),
        made: Option<Made>,
    ) -> Result<Arc<Page<S::Commit>>, Halt> {
        let entry = page.entry(member);
        if let Some(made) = made {
            let chain = self.chain();
            let rest = S::LAYOUT.digit_bits - entry.span;
            let mut buckets =
                chain.buckets(made.arena, chain.node(made)).map(|bucket| chain.page(bucket));
            let opened = buckets.find(|bucket| {
                let first = bucket.entries(bucket.top()).first();
                bucket.bits == entry.span
                    && first.is_some_and(|first| first.digit >> rest == entry.digit >> rest)
            });
            if let Some(opened) = opened {
                return Ok(Arc::clone(opened));
            }
        }
        let bits = at * Self::WIDTH.bits() + usize::from(entry.span);
        self.page(page.handle(member), path, bits, PageKind::Bucket)
    }

    /// The children of a branch whose page is open. Buckets are opened if that is asked for: else
    /// children in them are nowhere, and say what they commit to.
    pub(crate) fn children(
        &self,
        fork: &Fork<S::Commit>,
        (path, at): (&[u8], usize),
        open: bool,
        out: &mut Vec<Child<S::Commit>>,
    ) -> Result<(), Halt> {
        let chain = self.chain();
        let (page, within, made) = match fork {
            Fork::Stored { page, within, .. } => (Some(page), *within, None),
            Fork::Made(made) => {
                let node = chain.node(*made);
                let base = (node.base != PageRef::NOWHERE).then(|| chain.page(node.base));
                (base, node.within, Some(*made))
            }
        };
        if let Some(page) = page {
            self.stored_children(page, within, ((path, at), made, open), out)?;
        }
        let Some(made) = made else { return Ok(()) };
        let changes = chain.changes(made.arena, chain.node(made));
        out.retain(|child| !changes.iter().any(|change| change.digit == child.digit));
        out.extend(changes.iter().filter(|change| change.made.is_something()).map(|change| {
            Child {
                digit: change.digit,
                at: Some(At::Made(change.made)),
                commit: Some(chain.commit(change.made)),
            }
        }));
        out.sort_unstable_by_key(|child| child.digit);
        Ok(())
    }

    /// Buckets nest as deep as a digit has bits.
    fn stored_children(
        &self,
        page: &Arc<Page<S::Commit>>,
        within: Within,
        ((path, at), made, open): ((&[u8], usize), Option<Made>, bool),
        out: &mut Vec<Child<S::Commit>>,
    ) -> Result<(), Halt> {
        let mut last: Option<u8> = None;
        let mut missing = false;
        out.reserve(within.range().len());
        for number in within.range() {
            let entry = page.entry(number);
            if entry.kind.is_in_bucket() && open {
                // The first entry of a bucket brings all of them.
                if last.is_some_and(|last| entry.digit <= last) {
                    continue;
                }
                let mut below = path.to_vec();
                Self::WIDTH.append(&mut below, at, entry.digit);
                let rest = S::LAYOUT.digit_bits - entry.span;
                last = Some(entry.digit | ((1u16 << rest) - 1) as u8);
                match self.bucket(page, number, (&below, at), made) {
                    Ok(bucket) => {
                        let how = ((path, at), made, open);
                        match self.stored_children(&bucket, bucket.top(), how, out) {
                            Err(Halt::Missing) => missing = true,
                            answer => answer?,
                        }
                    }
                    Err(Halt::Missing) => missing = true,
                    Err(failed) => return Err(failed),
                }
                continue;
            }
            let is_here = !entry.kind.is_in_bucket();
            let at_page = is_here.then(|| At::Stored(Arc::clone(page), number));
            let commit = match Codec::<S>::DELTAS && !is_here {
                true => None,
                false => page.commit(self.codec, entry, at + 1),
            };
            out.push(Child { digit: entry.digit, at: at_page, commit });
        }
        if missing { Err(Halt::Missing) } else { Ok(()) }
    }

    /// Overflowed bytes at the first `digits` digits of `path`.
    fn overflow(&self, path: &[u8], digits: usize, over: Overflowed) -> Result<Vec<u8>, Halt> {
        let len = over.bytes(digits, Self::WIDTH);
        let bits = digits * Self::WIDTH.bits();
        let (mut bytes, mut missing) = (Vec::new(), false);
        // A forged length names rows that are not there: no more are asked for than twice those
        // found.
        let mut credit = 16;
        for index in 0..len.div_ceil(OVERFLOW_BYTES).min(usize::from(u16::MAX) + 1) {
            let key = || PageKey::overflow(self.space, path, bits, index as u16);
            match (self.fetch)(None, &key, 0) {
                Ok(page) if page.kind != PageKind::Overflow => {
                    return Err(corrupt(&page.key, "it holds no overflowed bytes").into());
                }
                Ok(page) => {
                    credit += 2;
                    bytes.extend_from_slice(&page.row[FRAME_BYTES..]);
                }
                Err(Halt::Missing) => {
                    missing = true;
                    credit -= 1;
                    if credit == 0 {
                        break;
                    }
                }
                Err(failed) => return Err(failed),
            }
        }
        if missing {
            return Err(Halt::Missing);
        }
        if bytes.len() != len || crate::image::overflow_checksum(&bytes) != over.sum {
            let key = PageKey::overflow(self.space, path, bits, 0);
            return Err(corrupt(&key, "the bytes are not those its page names").into());
        }
        Ok(bytes)
    }

    /// What a leaf owns: `owned` is where that is.
    pub(crate) fn owned<'p>(&self, owned: &'p At<S::Commit>) -> Result<Owned<'p, S::Commit>, Halt> {
        match owned {
            At::Made(made) => Ok(Owned::Commit(self.chain().commit(*made))),
            At::Stored(page, entry) => Ok(page.owned(self.codec, *entry)?),
        }
    }

    /// What a node commits to whose run starts at a digit.
    pub(crate) fn commit(&self, at: &At<S::Commit>, start: usize) -> Option<S::Commit> {
        match at {
            At::Made(made) => Some(self.chain().commit(*made)),
            At::Stored(page, entry) => page.commit(self.codec, page.entry(*entry), start),
        }
    }
}

/// Where a part of a row is.
fn shared(row: &Arc<[u8]>, part: &[u8]) -> ValueBytes {
    let at = if part.is_empty() { 0 } else { part.as_ptr() as usize - row.as_ptr() as usize };
    ValueBytes::Shared(Arc::clone(row), at..at + part.len())
}
