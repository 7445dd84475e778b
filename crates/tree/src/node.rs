//! Nodes in memory.
//!
//! What a tree holds stays in the bytes of its pages; only nodes that a batch makes anew are decoded.
//! They live in *segments*: a batch fills its own, and never changes those of its ancestors. The first
//! segment of a batch holds the bytes of its operations, the last its topmost nodes; those between were
//! filled by other threads, each from a range of keys.
//!
//! Invariants:
//! - a [`Link`] names a segment by its place in the chain of segments from the committed head down to
//!   the pending state that holds the link; a child state's chain begins with its parent's;
//! - within a chain a node's children come before it: in an earlier segment, or earlier in its own;
//! - a branch in a segment has at least two children, counting its value, in order of digits;
//! - `path` and `key` of a node are whole: the bits of the path from the top of the tree;
//! - the commitment of a child that pages do not keep is in `commits` of the segment whose node has the
//!   child, once its level is committed to; but for a value that is all its owner owns, where pages leave that out:
//!   its owner is committed to with the value itself ([`Chain::owned`]).

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use smallvec::SmallVec;

use crate::batch::Op;
use crate::digits::{Run, Width};
use crate::edit::Edits;
use crate::image::{Codec, MEMBER_COMMIT_AT, Overflowed};
use crate::open::stored_owned;
use crate::page_key::PageKey;
use crate::row::Row;
use crate::scheme::{Owned, Scheme, WasTerminal};

/// A stretch of a segment's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

impl Span {
    pub(crate) const EMPTY: Self = Self { at: 0, len: 0 };

    pub(crate) fn new(at: usize, len: usize) -> Self {
        let fit = |n| u32::try_from(n).expect("a batch's bytes are bounded below 4 GiB");
        Self { at: fit(at), len: fit(len) }
    }

    pub(crate) const fn range(self) -> std::ops::Range<usize> {
        self.at as usize..(self.at + self.len) as usize
    }
}

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// A node made by a batch.
    Made { segment: u32, node: u32 },
    /// An item in an opened page.
    Stored { segment: u32, page: u32, at: u16 },
    /// An item in a group's page that was not opened: `bits` first bits of its digit name it, and `at`
    /// is its entry in the group's item.
    Group { segment: u32, page: u32, at: u16, bits: u8 },
}

/// A child of a branch or of an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child {
    pub(crate) link: Link,
    /// Where among the segment's its commitment is, or [`Child::NOWHERE`].
    pub(crate) commit: u32,
    pub(crate) digit: u8,
    pub(crate) terminal: bool,
}

impl Child {
    /// The commitment is where the link points to, or not known yet.
    pub(crate) const NOWHERE: u32 = u32::MAX;
    /// Whether its commitment is among those of the segment of its parent.
    pub(crate) const fn is_beside(&self) -> bool {
        self.commit != Self::NOWHERE
    }

    /// Whether its commitment has to be computed: that of a stored terminal that does not carry it.
    pub(crate) const fn uncommitted(&self) -> bool {
        self.terminal && self.commit == Self::NOWHERE && matches!(self.link, Link::Stored { .. })
    }
}

/// What a node stands for that was made anew, where the scheme asks what it committed to: that is read
/// where it lies, once the new node is committed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Was {
    /// The node, at the same key or fork.
    pub(crate) node: Child,
    /// What the terminal owned.
    pub(crate) owned: Option<Child>,
    /// The digit at which the node hung.
    pub(crate) depth: u32,
}

/// Where among its segment's a node's [`Was`] is; nothing where it is not known, or nobody asks.
pub(crate) type WasAt = Option<NonZeroU32>;

/// A child that changed: its digit, the one that was there, and the one that is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    pub(crate) digit: u8,
    pub(crate) old: Option<Child>,
    pub(crate) new: Option<Child>,
}

/// The topmost node of a state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Top<C> {
    pub(crate) child: Child,
    pub(crate) commit: C,
}

/// Where bytes lie: in an opened page of a segment, or in the segment's own bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) segment: u32,
    /// The page, or [`Place::NO_PAGE`] for the segment's own bytes.
    pub(crate) page: u32,
    pub(crate) span: Span,
}

impl Place {
    const NO_PAGE: u32 = u32::MAX;

    pub(crate) const fn in_segment(segment: u32, span: Span) -> Self {
        Self { segment, page: Self::NO_PAGE, span }
    }

    pub(crate) const fn in_page(segment: u32, page: u32, span: Span) -> Self {
        Self { segment, page, span }
    }

    /// The first `bytes` bytes of it.
    pub(crate) fn first(self, bytes: usize) -> Self {
        debug_assert!(bytes <= self.span.len as usize);
        Self { span: Span { at: self.span.at, len: bytes as u32 }, ..self }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal {
    pub(crate) key: Place,
    /// The digit at which the node's suffix starts.
    pub(crate) depth: u32,
    pub(crate) payload: Place,
    pub(crate) owned: Option<Child>,
    pub(crate) was: WasAt,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch {
    pub(crate) path: Place,
    /// The digit at which the node's skip starts.
    pub(crate) depth: u32,
    /// The digit at which it forks: the first one beyond its skip.
    pub(crate) fork: u32,
    pub(crate) children: Kids,
    pub(crate) value: Option<Place>,
    pub(crate) was: WasAt,
    /// What changed since; of no account where nothing was.
    pub(crate) changes: Span,
}

/// The children of a branch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kids {
    /// Listed in the segment.
    Listed(Span),
    /// Those of a branch in a page, but for some that changed.
    Patched(Patch),
}

/// A branch as a page has it, some of whose children changed: none came, none went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patch {
    /// The opened page that holds its body as it was.
    pub(crate) segment: u32,
    pub(crate) page: u32,
    /// Where in it the body lies.
    pub(crate) from: u16,
    pub(crate) to: u16,
    /// Its children, among the slots of the node's segment.
    pub(crate) slots: Span,
    /// The groups that were opened, among the segment's.
    pub(crate) groups: Span,
}

/// A child of a patched branch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    /// Where the item, or the member of a group, lies in the branch's body.
    pub(crate) at: u16,
    /// Where the item lies in the page of its group, if that is open.
    pub(crate) item: u16,
    pub(crate) digit: u8,
    /// The bits of its group, the innermost one that is known; 0 if it is in none.
    pub(crate) bits: u8,
    /// The number of its group among those opened, from 1 on; 0 if it is not open.
    pub(crate) group: u8,
    pub(crate) terminal: bool,
    pub(crate) state: SlotState,
    /// The place among the segment's children of one that changed; else of its commitment among the
    /// segment's, or [`Child::NOWHERE`].
    pub(crate) beside: u32,
}

/// What became of a child of a patched branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    Same,
    Changed,
    /// Only until the branch is made anew without it.
    Gone,
}

impl Slot {
    /// Whether its item lies in the page of a group that is not open.
    pub(crate) const fn is_in_unopened_group(&self) -> bool {
        self.bits > 0 && self.group == 0 && matches!(self.state, SlotState::Same)
    }

    /// Whether its commitment has to be computed: that of a stored terminal that does not carry it.
    pub(crate) const fn uncommitted(&self) -> bool {
        self.terminal
            && self.bits == 0
            && self.beside == Child::NOWHERE
            && matches!(self.state, SlotState::Same)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Body {
    Terminal(Terminal),
    Branch(Branch),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<C> {
    pub(crate) body: Body,
    /// Nodes of one height commit together; below them all are lower. A terminal that owns nothing
    /// made by the same batch has height 0.
    pub(crate) height: u32,
    pub(crate) commit: Option<C>,
}

/// A page that a batch opened.
#[derive(Clone, Debug)]
pub(crate) struct OpenPage {
    pub(crate) key: PageKey,
    pub(crate) row: Arc<[u8]>,
    /// Whether a node in it was made anew, so that the page has to be written anew or removed.
    pub(crate) stale: bool,
}

/// A place below which all stored rows go.
#[derive(Clone, Debug)]
pub(crate) struct Dropped {
    pub(crate) path: Vec<u8>,
    pub(crate) bits: usize,
}

/// What one batch made, or a part of it.
#[derive(Debug)]
pub(crate) struct Segment<C> {
    pub(crate) bytes: Vec<u8>,
    /// The operations of the batch, sorted; in its first segment.
    pub(crate) ops: Vec<Op>,
    pub(crate) nodes: Vec<Node<C>>,
    pub(crate) children: Vec<Child>,
    /// Commitments of children: see [`Child::commit`].
    pub(crate) commits: Vec<C>,
    /// Children that are to be committed to, though nothing changed in them: where they are in
    /// `children`, or in `slots`, and the node whose children they are.
    pub(crate) siblings: Vec<(u32, u32)>,
    /// The children of patched branches.
    pub(crate) slots: Vec<Slot>,
    /// The groups' pages that were opened for patched branches, by segment and page.
    pub(crate) groups: Vec<(u32, u32)>,
    /// See [`Branch::changes`].
    pub(crate) changes: Vec<Change>,
    /// Named by [`WasAt`], from 1 on.
    pub(crate) pasts: Vec<Was>,
    pub(crate) pages: Vec<OpenPage>,
    /// What is to change in the pages of the last commit, if the batch is one that only edits them.
    pub(crate) edits: Edits,
    /// The pages with their edits, if a part of the batch stands on them.
    pub(crate) rewritten: Vec<(PageKey, Row)>,
    pub(crate) dropped: Vec<Dropped>,
    /// The batch's, in its last segment, or in that of its edits; of no batch in others.
    pub(crate) layer: Arc<Layer>,
}

/// Names a batch: its last segment, and that of every copy made anew on a later commit.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    /// 0 is no batch's.
    pub(crate) id: u64,
    /// Whether the batch is committed.
    settled: AtomicBool,
}

impl Layer {
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::Release);
    }
}

impl<C: Copy> Segment<C> {
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            ops: Vec::new(),
            nodes: Vec::new(),
            children: Vec::new(),
            commits: Vec::new(),
            siblings: Vec::new(),
            slots: Vec::new(),
            groups: Vec::new(),
            changes: Vec::new(),
            pasts: Vec::new(),
            pages: Vec::new(),
            edits: Edits::default(),
            rewritten: Vec::new(),
            dropped: Vec::new(),
            layer: Arc::default(),
        }
    }

    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ops.clear();
        self.nodes.clear();
        self.children.clear();
        self.commits.clear();
        self.siblings.clear();
        self.slots.clear();
        self.groups.clear();
        self.changes.clear();
        self.pasts.clear();
        self.pages.clear();
        self.edits.clear();
        self.rewritten.clear();
        self.dropped.clear();
        match Arc::get_mut(&mut self.layer) {
            Some(layer) => *layer = Layer::default(),
            None => self.layer = Arc::default(),
        }
    }

    /// Bytes of memory held, used or not; shared pages apart.
    pub(crate) fn capacity(&self) -> usize {
        let keys = self.rewritten.iter().map(|(key, _)| key.as_bytes().len()).sum::<usize>();
        // All of them are in one block.
        keys + self.rewritten.first().map_or(0, |(_, row)| row.memory())
            + self.bytes.capacity()
            + self.ops.capacity() * size_of::<Op>()
            + self.nodes.capacity() * size_of::<Node<C>>()
            + self.children.capacity() * size_of::<Child>()
            + self.commits.capacity() * size_of::<C>()
            + self.siblings.capacity() * size_of::<(u32, u32)>()
            + self.changes.capacity() * size_of::<Change>()
            + self.pasts.capacity() * size_of::<Was>()
            + self.pages.capacity() * size_of::<OpenPage>()
            + self.edits.capacity()
            + self.slots.capacity() * size_of::<Slot>()
            + self.groups.capacity() * size_of::<(u32, u32)>()
            + self.dropped.capacity() * size_of::<Dropped>()
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Span {
        let span = Span::new(self.bytes.len(), bytes.len());
        self.bytes.extend_from_slice(bytes);
        span
    }

    pub(crate) fn push_commit(&mut self, commit: C) -> u32 {
        self.commits.push(commit);
        u32::try_from(self.commits.len() - 1).expect("a batch's bytes are bounded below 4 GiB")
    }

    pub(crate) fn push_was(&mut self, was: Was) -> WasAt {
        self.pasts.push(was);
        let count = u32::try_from(self.pasts.len()).expect("a batch makes fewer nodes");
        NonZeroU32::new(count)
    }

    pub(crate) fn was(&self, at: WasAt) -> Option<&Was> {
        Some(&self.pasts[at?.get() as usize - 1])
    }

    pub(crate) fn children(&self, span: Span) -> &[Child] {
        &self.children[span.range()]
    }

    /// A child of a patched branch.
    pub(crate) fn kid(&self, patch: &Patch, slot: &Slot) -> Child {
        let Slot { at, digit, bits, terminal, .. } = *slot;
        if slot.state == SlotState::Changed {
            return self.children[slot.beside as usize];
        }
        let (segment, page) = (patch.segment, patch.page);
        let link = match (bits, slot.group) {
            (0, _) => Link::Stored { segment, page, at },
            (_, 0) => Link::Group { segment, page, at, bits },
            (_, group) => {
                let group = patch.groups.at + u32::from(group) - 1;
                let (segment, page) = self.groups[group as usize];
                Link::Stored { segment, page, at: slot.item }
            }
        };
        Child { link, commit: slot.beside, digit, terminal }
    }
}

/// The children of one branch.
pub(crate) type KidList = SmallVec<[Child; 16]>;

/// The segments from the committed head down to a pending state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a, C> {
    pub(crate) older: &'a [Arc<Segment<C>>],
    /// The segment being filled, if one is, and its index: `older.len()` or above.
    pub(crate) last: Option<(u32, &'a Segment<C>)>,
}

impl<'a, C: Copy> Chain<'a, C> {
    /// Of a state that is complete.
    pub(crate) const fn of(segments: &'a [Arc<Segment<C>>]) -> Self {
        Self { older: segments, last: None }
    }

    pub(crate) fn segment(&self, index: u32) -> &'a Segment<C> {
        match self.last {
            Some((here, last)) if here == index => last,
            _ => &self.older[index as usize],
        }
    }

    pub(crate) fn node(&self, segment: u32, node: u32) -> &'a Node<C> {
        &self.segment(segment).nodes[node as usize]
    }

    #[inline]
    pub(crate) fn bytes(&self, place: Place) -> &'a [u8] {
        let segment = self.segment(place.segment);
        if place.page == Place::NO_PAGE {
            &segment.bytes[place.span.range()]
        } else {
            &segment.pages[place.page as usize].row[place.span.range()]
        }
    }

    /// The bytes of an opened page, checksum and kind included.
    pub(crate) fn row(&self, segment: u32, page: u32) -> &'a [u8] {
        &self.segment(segment).pages[page as usize].row
    }

    /// The commitment of a child of a node in segment `home`; all below the node are committed.
    #[inline]
    pub(crate) fn commit<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        home: u32,
        child: &Child,
    ) -> C {
        if child.is_beside() {
            return self.segment(home).commits[child.commit as usize];
        }
        match child.link {
            Link::Made { segment, node } => {
                self.node(segment, node).commit.expect("children commit before their parent")
            }
            Link::Stored { segment, page, at } | Link::Group { segment, page, at, .. } => {
                debug_assert!(S::DELTAS || !child.uncommitted(), "no page has it");
                let (row, at) = (self.row(segment, page), usize::from(at));
                if S::DELTAS {
                    return codec.kept_commit(row, at);
                }
                // Branches and the members of a group carry it at the same distance.
                let bytes = &row[at + MEMBER_COMMIT_AT..];
                let (commit, _) = codec.scheme.decode_commit(bytes).expect("it was skimmed");
                commit
            }
        }
    }

    /// What a terminal of segment `home` owns; all of it is committed to, but for a value whose commitment pages do not
    /// keep.
    #[inline]
    pub(crate) fn owned<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        home: u32,
        child: &Child,
    ) -> Owned<'a, C> {
        if let Link::Stored { segment, page, at } = child.link
            && !S::KEEP_OWNED_VALUES
            && child.uncommitted()
        {
            let owned = stored_owned(codec, self.row(segment, page), usize::from(at));
            return owned.expect("it was parsed when its owner was looked into");
        }
        Owned::Commit(self.commit(codec, home, child))
    }

    /// What a terminal of segment `home` committed to before.
    pub(crate) fn was_terminal<S: Scheme<Commit = C>>(
        &self,
        codec: Codec<'_, S>,
        home: u32,
        was: WasAt,
    ) -> Option<WasTerminal<C>> {
        let Was { node, owned, depth } = self.segment(home).was(was)?;
        let commit = |child: &Child| self.commit(codec, home, child);
        let owned = owned.as_ref().map(commit);
        Some(WasTerminal { commit: commit(node), depth: *depth as usize, owned })
    }

    /// The children of a branch of segment `home`.
    pub(crate) fn kids(&self, home: u32, kids: &Kids) -> KidList {
        let home = self.segment(home);
        match kids {
            Kids::Listed(span) => KidList::from_slice(home.children(*span)),
            Kids::Patched(patch) => {
                home.slots[patch.slots.range()].iter().map(|slot| home.kid(patch, slot)).collect()
            }
        }
    }

    /// The rest of a terminal's key.
    pub(crate) fn suffix(&self, terminal: &Terminal, width: Width) -> Run<'a> {
        let key = self.bytes(terminal.key);
        Run::of(key, terminal.depth as usize, width.count(key), width)
    }

    /// The digits between a branch's parent and its fork.
    pub(crate) fn skip(&self, branch: &Branch, width: Width) -> Run<'a> {
        let path = self.bytes(branch.path);
        Run::of(path, branch.depth as usize, branch.fork as usize, width)
    }
}

/// How the bytes of a terminal or a skip overflow, if they do.
pub(crate) fn overflow_of(
    run: Run<'_>,
    payload: &[u8],
    limit: usize,
) -> Option<(Overflowed, Vec<u8>)> {
    if run.aligned().len() + payload.len() <= limit {
        return None;
    }
    let mut blob = Vec::with_capacity(run.aligned().len() + payload.len());
    run.write(&mut blob);
    blob.extend_from_slice(payload);
    let sum = crate::image::overflow_checksum(&blob);
    Some((Overflowed { digits: run.len(), payload: payload.len(), sum }, blob))
}
