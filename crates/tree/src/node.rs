//! Nodes in memory.
//!
//! What a tree holds stays in the bytes of its pages; only nodes that a batch makes anew are decoded.
//! They live in *segments*: a batch fills one, and never changes those of its ancestors.
//!
//! Invariants:
//! - a [`Link`] names a segment by its place in the chain of segments from the committed head down to
//!   the pending state that holds the link; a child state's chain begins with its parent's;
//! - within a chain a node's children come before it: in an earlier segment, or earlier in its own;
//! - a branch in a segment has at least two children, counting its value, in order of digits;
//! - `path` and `key` of a node are whole: the bits of the path from the top of the tree.

use std::sync::Arc;

use crate::digits::{Run, Width};
use crate::image::Overflowed;
use crate::page_key::PageKey;

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

    pub(crate) fn range(self) -> std::ops::Range<usize> {
        self.at as usize..(self.at + self.len) as usize
    }
}

/// Where a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// A node made by a batch.
    Made { segment: u32, node: u32 },
    /// An item in an opened page.
    Stored { segment: u32, page: u32, at: u32 },
    /// An item in a group's page that was not opened: `bits` first bits of its digit name it.
    Group { bits: u8 },
}

/// A child of a branch.
#[derive(Clone, Copy, Debug)]
pub struct Child<C> {
    pub(crate) link: Link,
    pub(crate) commit: Option<C>,
    pub(crate) digit: u8,
    pub(crate) terminal: bool,
}

impl<C: Copy> Child<C> {
    /// The child's digit.
    pub const fn digit(&self) -> u8 {
        self.digit
    }

    /// Whether the child is a terminal, else a branch.
    pub const fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// The child's commitment.
    ///
    /// # Panics
    /// If the child is not committed yet; in a [`BranchJob`](crate::BranchJob) it always is.
    pub fn commit(&self) -> C {
        self.commit.expect("children commit before their parent")
    }
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
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Terminal<C> {
    pub(crate) key: Span,
    /// The digit at which the node's suffix starts.
    pub(crate) depth: u32,
    pub(crate) payload: Place,
    pub(crate) owned: Option<Child<C>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch {
    pub(crate) path: Span,
    /// The digit at which the node's skip starts.
    pub(crate) depth: u32,
    /// The digit at which it forks: the first one beyond its skip.
    pub(crate) fork: u32,
    pub(crate) children: Span,
    pub(crate) value: Option<Place>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<C> {
    Terminal(Terminal<C>),
    Branch(Branch),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<C> {
    pub(crate) body: Body<C>,
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

/// What one batch made.
#[derive(Clone, Debug)]
pub(crate) struct Segment<C> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) nodes: Vec<Node<C>>,
    pub(crate) children: Vec<Child<C>>,
    pub(crate) pages: Vec<OpenPage>,
    pub(crate) dropped: Vec<Dropped>,
}

impl<C: Copy> Segment<C> {
    pub(crate) const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            nodes: Vec::new(),
            children: Vec::new(),
            pages: Vec::new(),
            dropped: Vec::new(),
        }
    }

    /// Forgets all nodes, pages and bytes beyond the first `bytes`.
    pub(crate) fn reset(&mut self, bytes: usize) {
        self.bytes.truncate(bytes);
        self.nodes.clear();
        self.children.clear();
        self.pages.clear();
        self.dropped.clear();
    }

    pub(crate) fn push_bytes(&mut self, bytes: &[u8]) -> Span {
        let span = Span::new(self.bytes.len(), bytes.len());
        self.bytes.extend_from_slice(bytes);
        span
    }

    pub(crate) fn children(&self, span: Span) -> &[Child<C>] {
        &self.children[span.range()]
    }
}

/// The segments from the committed head down to a pending state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain<'a, C> {
    pub(crate) older: &'a [Arc<Segment<C>>],
    /// The segment being filled, if one is: its index is `older.len()`.
    pub(crate) last: Option<&'a Segment<C>>,
}

impl<'a, C: Copy> Chain<'a, C> {
    pub(crate) fn segment(&self, index: u32) -> &'a Segment<C> {
        match self.older.get(index as usize) {
            Some(segment) => segment,
            None => self.last.expect("a link names a segment of its chain"),
        }
    }

    pub(crate) fn node(&self, segment: u32, node: u32) -> &'a Node<C> {
        &self.segment(segment).nodes[node as usize]
    }

    pub(crate) fn bytes(&self, place: Place) -> &'a [u8] {
        let segment = self.segment(place.segment);
        match segment.pages.get(place.page as usize) {
            Some(page) if place.page != Place::NO_PAGE => &page.row[place.span.range()],
            _ => &segment.bytes[place.span.range()],
        }
    }

    /// The bytes of an opened page, checksum and kind included.
    pub(crate) fn row(&self, segment: u32, page: u32) -> &'a [u8] {
        &self.segment(segment).pages[page as usize].row
    }
}

impl<C> Terminal<C> {
    pub(crate) fn suffix<'a>(&self, bytes: &'a [u8], width: Width) -> Run<'a> {
        let key = &bytes[self.key.range()];
        Run::of(key, self.depth as usize, width.count(key), width)
    }
}

impl Branch {
    pub(crate) fn skip<'a>(&self, bytes: &'a [u8], width: Width) -> Run<'a> {
        Run::of(&bytes[self.path.range()], self.depth as usize, self.fork as usize, width)
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
