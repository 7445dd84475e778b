//! Touched nodes.
//!
//! What a tree holds stays in its pages; what a batch changes is a tree of *touched nodes* in an
//! *arena* that the batch fills, and nobody changes afterwards. A touched branch is the stored body
//! that it stands on, if any, and a short list of the children that are not as they are there. A
//! new branch stands on nothing and lists all. To replace, to insert and to delete differ only in
//! that list; a batch upon a pending state copies the list of the branch that it touches again.
//!
//! Invariants:
//! - a [`Made`] names a node by its arena, counted from the last commit's own down to the pending
//!   state that holds the name; a child state's arenas begin with its parent's. A [`PageRef`] names
//!   a page in the same way;
//! - a touched node has two children at least, counting its value, of which those that it lists
//!   come in order of digits;
//! - a listed child was made; one that stands in the place of a stored item says which. A stored
//!   item moves only as a node made of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::batch::{Op, Span};
use crate::image::{Codec, Overflowed};
use crate::page::{Page, Within, owner_digits};
use crate::page_key::PageKey;
use crate::scheme::{Owned, PreviousLeaf, Scheme};
use spinney_proof::digits::{Run, Width};

/// No node, no page, no number.
pub(crate) const NONE: u32 = u32::MAX;
/// No entry.
pub(crate) const NO_ENTRY: u16 = u16::MAX;

/// An opened page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageRef {
    pub(crate) arena: u32,
    pub(crate) page: u32,
}

impl PageRef {
    pub(crate) const NOWHERE: Self = Self { arena: NONE, page: NONE };
}

/// A touched node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Made {
    pub(crate) arena: u32,
    pub(crate) node: u32,
}

impl Made {
    pub(crate) const NOTHING: Self = Self { arena: NONE, node: NONE };

    pub(crate) const fn is_something(self) -> bool {
        self.arena != NONE
    }
}

/// A node: made by a batch, or an item of an opened page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Made(Made),
    Stored { page: PageRef, entry: u16 },
}

/// The topmost node of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Top<C> {
    pub(crate) link: Link,
    pub(crate) commit: C,
}

/// Where bytes lie: in an opened page, among those of a batch, or among those that a descent
/// composed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) arena: u32,
    pub(crate) page: u32,
    pub(crate) span: Span,
}

impl Place {
    const OF_BATCH: u32 = NONE;
    const COMPOSED: u32 = NONE - 1;
    pub(crate) const NOTHING: Self = Self { arena: 0, page: Self::OF_BATCH, span: Span::EMPTY };

    pub(crate) const fn of_batch(arena: u32, span: Span) -> Self {
        Self { arena, page: Self::OF_BATCH, span }
    }

    pub(crate) const fn composed(arena: u32, span: Span) -> Self {
        Self { arena, page: Self::COMPOSED, span }
    }

    pub(crate) const fn in_page(page: PageRef, span: Span) -> Self {
        Self { arena: page.arena, page: page.page, span }
    }

    /// Whether it is among the bytes of a batch.
    pub(crate) const fn is_of_batch(self) -> bool {
        self.page == Self::OF_BATCH
    }

    /// The page of its arena, if it is in one.
    pub(crate) fn row(self) -> Option<usize> {
        (self.page < Self::COMPOSED).then_some(self.page as usize)
    }
}

/// Where a key, or a path, begins: its end is its owner's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyAt {
    pub(crate) arena: u32,
    at: u32,
}

impl KeyAt {
    const COMPOSED: u32 = 1 << 31;

    pub(crate) const fn of_batch(arena: u32, span: Span) -> Self {
        Self { arena, at: span.at }
    }

    pub(crate) fn composed(arena: u32, at: usize) -> Self {
        assert!(at < Self::COMPOSED as usize, "a batch's bytes are bounded");
        Self { arena, at: at as u32 | Self::COMPOSED }
    }

    /// Where its digits from one to another are.
    pub(crate) const fn place(self, from: u32, end: u32, width: Width) -> Place {
        let at = (self.at & !Self::COMPOSED) + from / width.per_byte() as u32;
        let len = width.span(from as usize, (end - from) as usize) as u32;
        let page = if self.at & Self::COMPOSED > 0 { Place::COMPOSED } else { Place::OF_BATCH };
        Place { arena: self.arena, page, span: Span { at, len } }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    Leaf,
    Branch,
}

/// What became of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Nobody knows yet.
    Open,
    /// What is below it is yet to be looked at once more, when a page is at hand.
    Waits,
    /// Nothing changed.
    Same,
    Gone,
    /// It is a node of the state.
    Made,
    /// Its only child took its place.
    Lifted,
}

/// The value of the key that ends at a branch's fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForkValue {
    None,
    /// In front of the stored body.
    Stored,
    Put,
}

/// A touched node.
// Fields: side by side, since the passes over a level read most of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) fate: Fate,
    pub(crate) fork_value: ForkValue,
    /// Whether it lies below an owner.
    pub(crate) owned: bool,
    /// The digit at which it hangs in its parent.
    pub(crate) digit: u8,
    /// The entry of the item that it stands for, in `entry_page`, if it hangs where that does.
    pub(crate) entry: u16,
    pub(crate) entry_page: PageRef,
    /// The page and the entries of its stored children, or of what it owns.
    pub(crate) base: PageRef,
    pub(crate) within: Within,
    /// Where in that page the body is: the value, and the items of all children.
    pub(crate) body: (u16, u16),
    pub(crate) depth: u32,
    /// Of a branch, the digit at which it forks; of a leaf, that at which it ends.
    pub(crate) fork: u32,
    /// How many nodes of its batch are in a row below it.
    pub(crate) height: u32,
    pub(crate) key: KeyAt,
    /// A leaf's value, or that at a branch's fork.
    pub(crate) value: Place,
    /// The children that are not as they are stored.
    pub(crate) changes: u32,
    pub(crate) change_count: u32,
    /// The first of the pages of buckets that were opened for it, or [`NONE`].
    pub(crate) buckets: u32,
    /// Where among the arena's the node is that it stands for, if the scheme asks; else [`NONE`].
    pub(crate) previous: u32,
    /// The node that took its place.
    pub(crate) lifted: u32,
}

impl Node {
    pub(crate) const fn is_branch(&self) -> bool {
        matches!(self.kind, NodeKind::Branch)
    }

    pub(crate) const fn changes(&self) -> std::ops::Range<usize> {
        self.changes as usize..(self.changes + self.change_count) as usize
    }
}

/// A child that is not as it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TouchedChild {
    pub(crate) digit: u8,
    /// Whether it is the batch's doing, and not that of one before.
    pub(crate) fresh: bool,
    /// The item that it stands for, if there is one, in the page where that is or would be.
    pub(crate) entry: u16,
    pub(crate) page: PageRef,
    /// What is there now, or nothing.
    pub(crate) made: Made,
}

impl TouchedChild {
    /// Whether it stands for a stored item.
    pub(crate) const fn stands(&self) -> bool {
        self.entry != NO_ENTRY
    }
}

/// The page of a bucket that was opened for a branch, and the number of the next one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket {
    pub(crate) page: PageRef,
    pub(crate) next: u32,
}

/// What a node stands for that was made anew, where the scheme asks what it committed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Previous {
    /// The node, at the same key or fork.
    pub(crate) link: Link,
    /// The digit at which it hung.
    pub(crate) depth: u32,
}

/// A place below which all stored rows go.
#[derive(Clone, Debug)]
pub(crate) struct Dropped {
    pub(crate) path: Vec<u8>,
    pub(crate) bits: usize,
}

/// What one batch made, or a part of it.
// Fields: one list for each kind of thing that a batch makes.
#[derive(Debug)]
pub(crate) struct Arena<C> {
    /// The keys and values of the batch's operations, shared with who reads some.
    pub(crate) bytes: Arc<Vec<u8>>,
    /// The operations, sorted.
    pub(crate) ops: Vec<Op>,
    /// Paths and values that the descent composed.
    pub(crate) text: Vec<u8>,
    pub(crate) nodes: Vec<Node>,
    /// What each node commits to.
    pub(crate) commits: Vec<Option<C>>,
    pub(crate) changes: Vec<TouchedChild>,
    pub(crate) buckets: Vec<Bucket>,
    pub(crate) previous: Vec<Previous>,
    /// The pages that the batch opened.
    pub(crate) pages: Vec<Arc<Page<C>>>,
    /// Those that branches had to themselves which are no more.
    pub(crate) left: Vec<PageRef>,
    /// Overflow rows that are no more.
    pub(crate) left_rows: Vec<PageKey>,
    pub(crate) dropped: Vec<Dropped>,
    /// The batch's, in its first arena; of no batch in others.
    pub(crate) batch: Arc<BatchId>,
}

/// Names a batch, and every copy of it that is made anew on a later commit.
#[derive(Debug, Default)]
pub(crate) struct BatchId {
    /// 0 is no batch's.
    pub(crate) id: u64,
    committed: AtomicBool,
}

impl BatchId {
    pub(crate) fn is_committed(&self) -> bool {
        self.committed.load(Ordering::Acquire)
    }

    pub(crate) fn set_committed(&self) {
        self.committed.store(true, Ordering::Release);
    }
}

impl<C: Copy> Arena<C> {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Arc::default(),
            ops: Vec::new(),
            text: Vec::new(),
            nodes: Vec::new(),
            commits: Vec::new(),
            changes: Vec::new(),
            buckets: Vec::new(),
            previous: Vec::new(),
            pages: Vec::new(),
            left: Vec::new(),
            left_rows: Vec::new(),
            dropped: Vec::new(),
            batch: Arc::default(),
        }
    }

    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        match Arc::get_mut(&mut self.bytes) {
            Some(bytes) => bytes.clear(),
            None => self.bytes = Arc::default(),
        }
        self.ops.clear();
        self.text.clear();
        self.nodes.clear();
        self.commits.clear();
        self.changes.clear();
        self.buckets.clear();
        self.previous.clear();
        self.pages.clear();
        self.left.clear();
        self.left_rows.clear();
        self.dropped.clear();
        match Arc::get_mut(&mut self.batch) {
            Some(batch) => *batch = BatchId::default(),
            None => self.batch = Arc::default(),
        }
    }

    /// Bytes of memory held, used or not; shared pages apart.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
            + self.ops.capacity() * size_of::<Op>()
            + self.text.capacity()
            + self.nodes.capacity() * size_of::<Node>()
            + self.commits.capacity() * size_of::<Option<C>>()
            + self.changes.capacity() * size_of::<TouchedChild>()
            + self.buckets.capacity() * size_of::<Bucket>()
            + self.previous.capacity() * size_of::<Previous>()
            + self.pages.capacity() * size_of::<Arc<Page<C>>>()
            + self.left.capacity() * size_of::<PageRef>()
            + self.dropped.capacity() * size_of::<Dropped>()
    }
}

/// The arenas from the last commit's own down to a pending state's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a, C> {
    pub(crate) older: &'a [Arc<Arena<C>>],
    /// The arena being filled, if one is, and its number: `older.len()` or above.
    pub(crate) last: Option<(u32, &'a Arena<C>)>,
}

impl<'a, C: Copy> Chain<'a, C> {
    /// Of a state that is complete.
    pub(crate) const fn of(arenas: &'a [Arc<Arena<C>>]) -> Self {
        Self { older: arenas, last: None }
    }

    #[inline(always)]
    pub(crate) fn arena(&self, number: u32) -> &'a Arena<C> {
        match self.last {
            Some((here, last)) if here == number => last,
            _ => &self.older[number as usize],
        }
    }

    #[inline(always)]
    pub(crate) fn node(&self, made: Made) -> &'a Node {
        &self.arena(made.arena).nodes[made.node as usize]
    }

    #[inline(always)]
    pub(crate) fn page(&self, page: PageRef) -> &'a Arc<Page<C>> {
        &self.arena(page.arena).pages[page.page as usize]
    }

    /// The listed children of a node in an arena.
    #[inline(always)]
    pub(crate) fn changes(&self, arena: u32, node: &Node) -> &'a [TouchedChild] {
        &self.arena(arena).changes[node.changes()]
    }

    #[inline]
    pub(crate) fn bytes(&self, place: Place) -> &'a [u8] {
        let arena = self.arena(place.arena);
        match place.page {
            Place::OF_BATCH => &arena.bytes[place.span.range()],
            Place::COMPOSED => &arena.text[place.span.range()],
            page => &arena.pages[page as usize].row[place.span.range()],
        }
    }

    /// The bytes that hold the first `digits` digits of a key or a path.
    #[inline]
    pub(crate) fn path(&self, key: KeyAt, digits: u32, width: Width) -> &'a [u8] {
        let arena = self.arena(key.arena);
        let text = if key.at & KeyAt::COMPOSED > 0 { &arena.text[..] } else { &arena.bytes[..] };
        let at = (key.at & !KeyAt::COMPOSED) as usize;
        &text[at..at + (digits as usize).div_ceil(width.per_byte())]
    }

    /// A node's key, or the path to its fork.
    #[inline]
    pub(crate) fn key(&self, node: &Node, width: Width) -> &'a [u8] {
        self.path(node.key, node.fork, width)
    }

    /// The digits between a node's parent and its fork, or its end.
    #[inline]
    pub(crate) fn run(&self, node: &Node, width: Width) -> Run<'a> {
        Run::of(self.key(node, width), node.depth as usize, node.fork as usize, width)
    }

    /// The pages of buckets that were opened for a node in an arena.
    pub(crate) fn buckets(&self, arena: u32, node: &Node) -> impl Iterator<Item = PageRef> + 'a {
        let buckets = &self.arena(arena).buckets;
        let mut next = node.buckets;
        std::iter::from_fn(move || {
            let bucket = buckets.get(next as usize)?;
            next = bucket.next;
            Some(bucket.page)
        })
    }

    /// What a made node commits to.
    #[inline(always)]
    pub(crate) fn commit(&self, made: Made) -> C {
        let commit = self.arena(made.arena).commits[made.node as usize];
        commit.expect("children commit before their parent")
    }

    /// What a node commits to whose run starts at digit `start`.
    pub(crate) fn commit_of<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        link: Link,
        start: usize,
    ) -> Option<C> {
        match link {
            Link::Made(made) => self.arena(made.arena).commits[made.node as usize],
            Link::Stored { page, entry } => {
                let page = self.page(page);
                page.commit(codec, page.entry(entry), start)
            }
        }
    }

    /// What a leaf in an arena owns.
    #[inline]
    pub(crate) fn owned<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        arena: u32,
        node: &Node,
    ) -> Option<Owned<'a, C>> {
        if let Some(change) = self.changes(arena, node).first() {
            return change.made.is_something().then(|| Owned::Commit(self.commit(change.made)));
        }
        if node.within.len() == 0 {
            return None;
        }
        // It was looked at when its owner was.
        self.page(node.base).owned(codec, node.within.from).ok()
    }

    /// What a leaf committed to before.
    pub(crate) fn previous_leaf<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        arena: u32,
        previous: u32,
    ) -> Option<PreviousLeaf<C>> {
        let Previous { link, depth } = *self.arena(arena).previous.get(previous as usize)?;
        let commit = self.commit_of(codec, link, depth as usize)?;
        let owned = match link {
            _ if !Codec::<S>::DELTAS => None,
            Link::Made(made) => self.owned(codec, made.arena, self.node(made)),
            Link::Stored { page, entry } => {
                let (page, within) = (self.page(page), self.page(page).entry(entry).within());
                (within.len() > 0).then(|| page.owned(codec, within.from).ok()).flatten()
            }
        };
        let owned = match owned {
            Some(Owned::Commit(commit)) => Some(commit),
            _ => None,
        };
        Some(PreviousLeaf { commit, depth: depth as usize, owned })
    }

    /// What a child of a branch committed to before the branch's batch.
    pub(crate) fn commit_before<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        previous: Link,
        change: &TouchedChild,
        start: usize,
    ) -> Option<C> {
        if let Link::Made(made) = previous {
            let changes = self.changes(made.arena, self.node(made));
            if let Ok(at) = changes.binary_search_by_key(&change.digit, |change| change.digit) {
                let made = changes[at].made;
                return made.is_something().then(|| self.commit(made));
            }
        }
        let stored = Link::Stored { page: change.page, entry: change.entry };
        if change.stands() { self.commit_of(codec, stored, start) } else { None }
    }
}

/// Whether a node hangs right below an owner.
pub(crate) const fn hangs_below_owner<S: Scheme>(depth: u32) -> bool {
    S::LAYOUT.owner.is_some() && depth as usize == owner_digits::<S>()
}

/// How the bytes of a leaf or a prefix overflow, if they do.
pub(crate) fn overflow_of(
    run: Run<'_>,
    value: &[u8],
    limit: usize,
) -> Option<(Overflowed, Vec<u8>)> {
    if run.aligned().len() + value.len() <= limit {
        return None;
    }
    let mut blob = Vec::with_capacity(run.aligned().len() + value.len());
    run.write(&mut blob);
    blob.extend_from_slice(value);
    let sum = crate::image::overflow_checksum(&blob);
    Some((Overflowed { digits: run.len(), value: value.len(), sum }, blob))
}
