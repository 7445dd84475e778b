//! Looking into nodes, wherever they are: made by a batch, in an opened page, in one not yet opened.

use std::sync::Arc;

use crate::digits::{Run, Width};
use crate::error::TreeError;
use crate::image::{
    Codec, Item, NodeView, OVERFLOW_BYTES, Overflowed, PageKind, SUM_BYTES, SkipView, TerminalBody,
    TerminalView, overflow_checksum,
};
use crate::node::{Body, Chain, Child, Link, OpenPage, Place, Segment, Span};
use crate::page_key::{PageKey, Space, describe};
use crate::read::NESTED;
use crate::scheme::Scheme;

/// How many overflow rows are asked for before any was found.
const OVERFLOW_ROWS_AHEAD: usize = 16;

/// A digit run in a segment or a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) place: Place,
    pub(crate) start: usize,
    pub(crate) digits: usize,
}

/// A node, looked into.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Looked<C> {
    Terminal { suffix: Piece, payload: Place, owned: Option<Child<C>> },
    Branch { skip: Piece, body: Children },
}

/// Where a branch's children are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Children {
    Made {
        segment: u32,
        node: u32,
    },
    /// In an opened page, from one byte to another.
    Stored {
        segment: u32,
        page: u32,
        from: usize,
        to: usize,
    },
    /// In a page of their own.
    Apart,
}

/// What could not be looked into: a page is missing (its key is on the list), or something failed.
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

/// Opens pages into a segment.
pub(crate) struct Opener<'a, S: Scheme> {
    pub(crate) codec: Codec<'a, S>,
    pub(crate) space: Space,
    pub(crate) older: &'a [Arc<Segment<S::Commit>>],
    pub(crate) seg: &'a mut Segment<S::Commit>,
    pub(crate) fetch: &'a dyn Fn(&PageKey) -> Option<Arc<[u8]>>,
    pub(crate) missing: Vec<PageKey>,
    /// A path being composed.
    pub(crate) path: Vec<u8>,
}

impl<'a, S: Scheme> Opener<'a, S> {
    pub(crate) const WIDTH: Width = Codec::<S>::WIDTH;

    /// The index of the segment being filled.
    pub(crate) fn here(&self) -> u32 {
        self.older.len() as u32
    }

    pub(crate) fn chain(&self) -> Chain<'_, S::Commit> {
        Chain { older: self.older, last: Some(self.seg) }
    }

    pub(crate) fn run(&self, piece: &Piece) -> Run<'_> {
        Run::cut(self.chain().bytes(piece.place), piece.start, piece.digits, Self::WIDTH)
    }

    /// Opens the page at the first `digits` digits and `bits` bits of `self.path`.
    pub(crate) fn page(&mut self, digits: usize, bits: usize, kind: PageKind) -> Result<u32, Halt> {
        let bits = digits * Self::WIDTH.bits() + bits;
        let key = PageKey::page(self.space, &self.path, bits);
        self.row(key, kind)
    }

    fn row(&mut self, key: PageKey, kind: PageKind) -> Result<u32, Halt> {
        let Some(row) = (self.fetch)(&key) else {
            self.missing.push(key);
            return Err(Halt::Missing);
        };
        if row.get(SUM_BYTES) != Some(&(kind as u8)) {
            return Err(corrupt(&key, "it is of another kind than its parent says").into());
        }
        self.seg.pages.push(OpenPage { key, row, stale: false });
        Ok(self.seg.pages.len() as u32 - 1)
    }

    /// Reads overflowed bytes at the first `digits` digits of `self.path` into the segment.
    fn overflow(&mut self, digits: usize, over: Overflowed, start: usize) -> Result<Span, Halt> {
        let len = over.bytes(start, Self::WIDTH);
        let rows = len.div_ceil(OVERFLOW_BYTES);
        let bits = digits * Self::WIDTH.bits();
        let key = |space, path: &[u8], index: usize| -> Result<PageKey, Halt> {
            let index = u16::try_from(index).map_err(|_| {
                let page = describe(PageKey::overflow(space, path, bits, 0).as_bytes());
                TreeError::Corrupt { page, what: "it claims to be larger than any value".into() }
            })?;
            Ok(PageKey::overflow(space, path, bits, index))
        };
        let first = self.seg.pages.len();
        let mut missing = false;
        // A forged length names rows that are not there: no more are asked for than twice those found.
        let mut credit = OVERFLOW_ROWS_AHEAD;
        for index in 0..rows {
            let key = key(self.space, &self.path, index)?;
            match self.row(key, PageKind::Overflow) {
                Ok(_) => credit += 2,
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
        let at = self.seg.bytes.len();
        for index in first..self.seg.pages.len() {
            let row = Arc::clone(&self.seg.pages[index].row);
            self.seg.bytes.extend_from_slice(&row[SUM_BYTES + 1..]);
        }
        let bytes = &self.seg.bytes[at..];
        if bytes.len() != len || overflow_checksum(bytes) != over.sum {
            let key = key(self.space, &self.path, 0)?;
            return Err(corrupt(&key, "the bytes are not those its page names").into());
        }
        Ok(Span::new(at, len))
    }

    /// Looks into a child whose run starts at digit `depth`; `self.path` begins with its `depth` digits.
    pub(crate) fn look(
        &mut self,
        child: &Child<S::Commit>,
        depth: usize,
    ) -> Result<Looked<S::Commit>, Halt> {
        match child.link {
            Link::Made { segment, node } => Ok(self.look_made(segment, node)),
            Link::Stored { segment, page, at } => {
                self.look_stored(segment, page, at as usize, depth)
            }
            // A group has two children at least, and is opened before one of them is looked into.
            Link::Group { .. } => {
                let key = PageKey::page(self.space, &self.path, depth * Self::WIDTH.bits());
                Err(corrupt(&key, "the branch above it names a group of one child").into())
            }
        }
    }

    fn look_made(&self, segment: u32, node: u32) -> Looked<S::Commit> {
        let home = self.chain().segment(segment);
        match home.nodes[node as usize].body {
            Body::Terminal(terminal) => {
                let start = terminal.depth as usize;
                let whole = terminal.key.len as usize * Self::WIDTH.per_byte();
                let suffix = in_segment(segment, terminal.key, start, whole - start, Self::WIDTH);
                Looked::Terminal { suffix, payload: terminal.payload, owned: terminal.owned }
            }
            Body::Branch(branch) => {
                let (start, end) = (branch.depth as usize, branch.fork as usize);
                let skip = in_segment(segment, branch.path, start, end - start, Self::WIDTH);
                Looked::Branch { skip, body: Children::Made { segment, node } }
            }
        }
    }

    fn look_stored(
        &mut self,
        segment: u32,
        page: u32,
        at: usize,
        depth: usize,
    ) -> Result<Looked<S::Commit>, Halt> {
        let row = self.chain().row(segment, page);
        let (node, _) = self
            .codec
            .node(row, at, depth)
            .map_err(|what| self.corrupt_page(segment, page, what))?;
        match node {
            NodeView::Terminal(view) => {
                let part = |bytes: &[u8]| Place::in_page(segment, page, within(row, bytes));
                let inline = match view.body {
                    TerminalBody::Inline { suffix, payload } => Ok((
                        Piece { place: part(suffix.aligned()), start: depth, digits: suffix.len() },
                        part(payload),
                    )),
                    TerminalBody::Overflow(over) => Err(over),
                };
                let owned = self.owned(segment, page, &view)?;
                let (suffix, payload) = match inline {
                    Ok(inline) => inline,
                    Err(over) => self.overflowed(over, depth, depth)?,
                };
                Ok(Looked::Terminal { suffix, payload, owned })
            }
            NodeView::Branch(view) => {
                let body = match view.body {
                    Some((from, to)) => Children::Stored { segment, page, from, to },
                    None => Children::Apart,
                };
                let skip = match view.skip {
                    SkipView::Inline(run) => Piece {
                        place: Place::in_page(segment, page, within(row, run.aligned())),
                        start: depth,
                        digits: run.len(),
                    },
                    SkipView::Overflow(over) => self.overflowed(over, depth, depth)?.0,
                };
                Ok(Looked::Branch { skip, body })
            }
        }
    }

    fn overflowed(
        &mut self,
        over: Overflowed,
        digits: usize,
        start: usize,
    ) -> Result<(Piece, Place), Halt> {
        let span = self.overflow(digits, over, start)?;
        let split = Self::WIDTH.span(start, over.digits);
        let here = self.here();
        let head = Span { at: span.at, len: split as u32 };
        let tail = Span { at: span.at + split as u32, len: over.payload as u32 };
        let piece = Piece { place: Place::in_segment(here, head), start, digits: over.digits };
        Ok((piece, Place::in_segment(here, tail)))
    }

    /// The owned child of a stored terminal.
    fn owned(
        &self,
        segment: u32,
        page: u32,
        view: &TerminalView<'_, S::Commit>,
    ) -> Result<Option<Child<S::Commit>>, Halt> {
        let (Some(at), Some(owner)) = (view.owned, S::OWNER) else { return Ok(None) };
        let start = owner.bytes * Self::WIDTH.per_byte();
        let row = self.chain().row(segment, page);
        let failed = |what| self.corrupt_page(segment, page, what);
        let (node, _) = self.codec.node(row, at, start).map_err(failed)?;
        let (terminal, commit) = match node {
            NodeView::Terminal(view) => (true, view.commit),
            NodeView::Branch(view) => (false, Some(view.commit)),
        };
        let link = Link::Stored { segment, page, at: at as u32 };
        Ok(Some(Child { link, commit, digit: 0, terminal }))
    }

    /// Appends the children of a branch to `out` and answers its value. `self.path` begins with its
    /// `fork` digits.
    pub(crate) fn children(
        &mut self,
        body: Children,
        fork: usize,
        out: &mut Vec<Child<S::Commit>>,
    ) -> Result<Option<Place>, Halt> {
        let (segment, page, from, to) = match body {
            Children::Made { segment, node } => {
                let chain = self.chain();
                let Body::Branch(branch) = chain.node(segment, node).body else {
                    unreachable!("a branch was looked into")
                };
                out.extend_from_slice(chain.segment(segment).children(branch.children));
                return Ok(branch.value);
            }
            Children::Stored { segment, page, from, to } => (segment, page, from, to),
            Children::Apart => {
                let page = self.page(fork, 0, PageKind::Body)?;
                (self.here(), page, SUM_BYTES + 1, self.seg.pages[page as usize].row.len())
            }
        };
        self.items(segment, page, from, to, fork, out)
    }

    /// Opens the group of children that shares the first `bits` bits of `digit`; appends its children.
    pub(crate) fn group(
        &mut self,
        fork: usize,
        digit: u8,
        bits: u8,
        out: &mut Vec<Child<S::Commit>>,
    ) -> Result<(), Halt> {
        // The group's path: the branch's, then the first bits of the digit.
        Self::WIDTH.append(&mut self.path, fork, digit);
        let page = self.page(fork, usize::from(bits), PageKind::Group)?;
        let to = self.seg.pages[page as usize].row.len();
        let value = self.items(self.here(), page, SUM_BYTES + 1, to, fork, out)?;
        let nested =
            |child: &Child<S::Commit>| matches!(child.link, Link::Group { bits: b } if b <= bits);
        if out.iter().any(nested) {
            return Err(self.corrupt_page(self.here(), page, NESTED).into());
        }
        match value {
            None => Ok(()),
            Some(_) => Err(self.corrupt_page(self.here(), page, "a group holds a value").into()),
        }
    }

    fn items(
        &mut self,
        segment: u32,
        page: u32,
        from: usize,
        to: usize,
        fork: usize,
        out: &mut Vec<Child<S::Commit>>,
    ) -> Result<Option<Place>, Halt> {
        let (base, mut value, mut at) = (out.len(), None, from);
        let row = match self.older.get(segment as usize) {
            Some(older) => Arc::clone(&older.pages[page as usize].row),
            None => Arc::clone(&self.seg.pages[page as usize].row),
        };
        while at < to {
            let item = self.codec.item(&row[..to], at, fork + 1);
            let (item, end) = item.map_err(|what| self.corrupt_page(segment, page, what))?;
            match item {
                Item::Value(_) => {
                    // Its suffix has no digits, and so no bytes, at whatever depth it is parsed.
                    value = Some(self.fork_value(segment, page, &row, at, fork)?);
                }
                Item::Node { digit, node } => {
                    let (terminal, commit) = match node {
                        NodeView::Terminal(view) => (true, view.commit),
                        NodeView::Branch(view) => (false, Some(view.commit)),
                    };
                    let link = Link::Stored { segment, page, at: at as u32 };
                    out.push(Child { link, commit, digit, terminal });
                }
                Item::Group { bits, members, .. } => {
                    for member in self.codec.members(members) {
                        let member =
                            member.map_err(|what| self.corrupt_page(segment, page, what))?;
                        let link = Link::Group { bits };
                        let (digit, terminal) = (member.digit, member.terminal);
                        out.push(Child { link, commit: Some(member.commit), digit, terminal });
                    }
                }
            }
            at = end;
        }
        if out[base..].windows(2).any(|pair| pair[0].digit >= pair[1].digit) {
            return Err(self.corrupt_page(segment, page, "children are out of order").into());
        }
        let base_digits = 1usize << S::DIGIT_BITS;
        if out[base..].last().is_some_and(|last| usize::from(last.digit) >= base_digits) {
            return Err(self
                .corrupt_page(segment, page, "a child has no digit of the tree")
                .into());
        }
        Ok(value)
    }

    fn fork_value(
        &mut self,
        segment: u32,
        page: u32,
        row: &Arc<[u8]>,
        at: usize,
        fork: usize,
    ) -> Result<Place, Halt> {
        let view = self.codec.value(row, at, fork);
        let view = view.map_err(|what| self.corrupt_page(segment, page, what))?;
        match view.body {
            TerminalBody::Inline { payload, .. } => {
                Ok(Place::in_page(segment, page, within(row, payload)))
            }
            TerminalBody::Overflow(over) => Ok(self.overflowed(over, fork, fork)?.1),
        }
    }

    pub(crate) fn corrupt_page(&self, segment: u32, page: u32, what: &str) -> TreeError {
        corrupt(&self.chain().segment(segment).pages[page as usize].key, what)
    }
}

pub(crate) fn corrupt(key: &PageKey, what: &str) -> TreeError {
    TreeError::Corrupt { page: describe(key.as_bytes()), what: what.into() }
}

/// Where `part`, a piece of `whole`, lies in it.
fn within(whole: &[u8], part: &[u8]) -> Span {
    let at = if part.is_empty() { 0 } else { part.as_ptr() as usize - whole.as_ptr() as usize };
    Span::new(at, part.len())
}

fn in_segment(segment: u32, whole: Span, start: usize, digits: usize, width: Width) -> Piece {
    let (first, _) = width.locate(start);
    let len = width.span(start, digits);
    let first = if digits == 0 { 0 } else { first };
    let span = Span { at: whole.at + first as u32, len: len as u32 };
    Piece { place: Place::in_segment(segment, span), start, digits }
}
