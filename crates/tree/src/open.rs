//! Looking into nodes, wherever they are: made by a batch, in an opened page, in one not yet opened.

use std::sync::Arc;

use crate::digits::{Run, Width};
use crate::error::TreeError;
use crate::image::{
    Codec, InlineTerminal, Malformed, NodeView, OVERFLOW_BYTES, Overflowed, PageKind, SUM_BYTES,
    Skimmed, SkipView, TerminalBody, TerminalView, overflow_checksum,
};
use crate::node::{Body, Chain, Child, Link, OpenPage, Place, Segment, Span, Was, WasAt};
use crate::page_key::{PageKey, Space, describe};
use crate::read::NESTED;
use crate::scheme::{JobKey, Owned, Scheme, TerminalJob};

/// What is wrong with a node that its parent counts on to carry its commitment.
const UNCOMMITTED: &str = "an owned terminal has no commitment";

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
pub(crate) enum Looked {
    Terminal { suffix: Piece, payload: Place, owned: Option<Child> },
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
    /// The index of the segment being filled.
    pub(crate) here: u32,
    pub(crate) seg: &'a mut Segment<S::Commit>,
    pub(crate) fetch: &'a dyn Fn(&PageKey) -> Option<Arc<[u8]>>,
    /// Told of pages that are to be fetched next.
    pub(crate) ahead: &'a dyn Fn(&[PageKey]),
    /// Pages to read before the next try.
    pub(crate) missing: Vec<PageKey>,
    /// A path being composed.
    pub(crate) path: Vec<u8>,
}

impl<'a, S: Scheme> Opener<'a, S> {
    pub(crate) const WIDTH: Width = Codec::<S>::WIDTH;

    pub(crate) fn chain(&self) -> Chain<'_, S::Commit> {
        Chain { older: self.older, last: Some((self.here, self.seg)) }
    }

    pub(crate) fn run(&self, piece: &Piece) -> Run<'_> {
        Run::cut(self.chain().bytes(piece.place), piece.start, piece.digits, Self::WIDTH)
    }

    /// Opens the page at the first `digits` digits and `bits` bits of `self.path`.
    pub(crate) fn page(&mut self, digits: usize, bits: usize, kind: PageKind) -> Result<u32, Halt> {
        self.row(self.key(digits, bits), kind)?;
        Ok(self.seg.pages.len() as u32 - 1)
    }

    /// The key of the page there.
    pub(crate) fn key(&self, digits: usize, bits: usize) -> PageKey {
        PageKey::page(self.space, &self.path, digits * Self::WIDTH.bits() + bits)
    }

    /// Opens a row.
    fn row(&mut self, key: PageKey, kind: PageKind) -> Result<(), Halt> {
        let Some(row) = (self.fetch)(&key) else {
            self.missing.push(key);
            return Err(Halt::Missing);
        };
        if row.get(SUM_BYTES) != Some(&(kind as u8)) {
            return Err(corrupt(&key, "it is of another kind than its parent says").into());
        }
        self.seg.pages.push(OpenPage { key, row, stale: false });
        Ok(())
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
                Ok(()) => credit += 2,
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
    pub(crate) fn look(&mut self, child: &Child, depth: usize) -> Result<Looked, Halt> {
        match child.link {
            Link::Made { segment, node } => Ok(self.look_made(segment, node)),
            Link::Stored { segment, page, at } => {
                self.look_stored(segment, page, usize::from(at), depth)
            }
            // A group has two children at least, and is opened before one of them is looked into.
            Link::Group { .. } => {
                let key = PageKey::page(self.space, &self.path, depth * Self::WIDTH.bits());
                Err(corrupt(&key, "the branch above it names a group of one child").into())
            }
        }
    }

    fn look_made(&mut self, segment: u32, node: u32) -> Looked {
        match self.chain().node(segment, node).body {
            Body::Terminal(terminal) => {
                let start = terminal.depth as usize;
                let whole = terminal.key.span.len as usize * Self::WIDTH.per_byte();
                let suffix = piece_of(terminal.key, start, whole - start, Self::WIDTH);
                let owned = terminal.owned.map(|child| self.bring(segment, child));
                Looked::Terminal { suffix, payload: terminal.payload, owned }
            }
            Body::Branch(branch) => {
                let (start, end) = (branch.depth as usize, branch.fork as usize);
                let skip = piece_of(branch.path, start, end - start, Self::WIDTH);
                Looked::Branch { skip, body: Children::Made { segment, node } }
            }
        }
    }

    /// A child of a node in `segment` as one of a node here: its commitment comes along.
    fn bring(&mut self, segment: u32, child: Child) -> Child {
        if !child.is_beside() || segment == self.here {
            return child;
        }
        let commit = self.chain().segment(segment).commits[child.commit as usize];
        Child { commit: self.seg.push_commit(commit), ..child }
    }

    fn look_stored(
        &mut self,
        segment: u32,
        page: u32,
        at: usize,
        depth: usize,
    ) -> Result<Looked, Halt> {
        let row = self.chain().row(segment, page);
        if let Some(there) = self.codec.inline_terminal(row, at, depth)
            && !there.owns
        {
            let part = |span| Place::in_page(segment, page, span);
            let (bytes, payload) = (within(row, there.suffix.aligned()), there.payload);
            let suffix = Piece { place: part(bytes), start: depth, digits: there.suffix.len() };
            let payload = part(Span::new(payload.start, payload.len()));
            return Ok(Looked::Terminal { suffix, payload, owned: None });
        }
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
                let owned = view.owned;
                let owned = self.owned(segment, page, owned)?;
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
        let here = self.here;
        let head = Span { at: span.at, len: split as u32 };
        let tail = Span { at: span.at + split as u32, len: over.payload as u32 };
        let piece = Piece { place: Place::in_segment(here, head), start, digits: over.digits };
        Ok((piece, Place::in_segment(here, tail)))
    }

    /// The owned child of a stored terminal.
    fn owned(
        &mut self,
        segment: u32,
        page: u32,
        owned: Option<usize>,
    ) -> Result<Option<Child>, Halt> {
        let (Some(at), Some(owner)) = (owned, S::OWNER) else { return Ok(None) };
        let start = owner.bytes * Self::WIDTH.per_byte();
        let row = self.chain().row(segment, page);
        let failed = |what| self.corrupt_page(segment, page, what);
        let (node, _) = self.codec.node(row, at, start).map_err(failed)?;
        let (terminal, commit) = match node {
            NodeView::Terminal(view) => {
                let commit = match view.commit {
                    Some(commit) if !S::DELTAS => self.seg.push_commit(commit),
                    Some(_) => Child::NOWHERE,
                    None => {
                        stored_owned(self.codec, row, at).map_err(failed)?;
                        Child::NOWHERE
                    }
                };
                (true, commit)
            }
            NodeView::Branch(_) => (false, Child::NOWHERE),
        };
        let link = Link::Stored { segment, page, at: at as u16 };
        Ok(Some(Child { link, commit, digit: 0, terminal }))
    }

    /// Appends the children of a branch to `out` and answers its value. `self.path` begins with its
    /// `fork` digits.
    pub(crate) fn children(
        &mut self,
        body: Children,
        fork: usize,
        out: &mut Vec<Child>,
    ) -> Result<Option<Place>, Halt> {
        let (segment, page, from, to) = match body {
            Children::Made { segment, node } => {
                let chain = self.chain();
                let Body::Branch(branch) = chain.node(segment, node).body else {
                    unreachable!("a branch was looked into")
                };
                let from = out.len();
                out.extend_from_slice(&chain.kids(segment, &branch.children));
                for child in &mut out[from..] {
                    *child = self.bring(segment, *child);
                }
                return Ok(branch.value);
            }
            Children::Stored { segment, page, from, to } => (segment, page, from, to),
            Children::Apart => {
                let page = self.page(fork, 0, PageKind::Body)?;
                (self.here, page, SUM_BYTES + 1, self.seg.pages[page as usize].row.len())
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
        out: &mut Vec<Child>,
    ) -> Result<(), Halt> {
        // The group's path: the branch's, then the first bits of the digit.
        Self::WIDTH.append(&mut self.path, fork, digit);
        let page = self.page(fork, usize::from(bits), PageKind::Group)?;
        let (to, first) = (self.seg.pages[page as usize].row.len(), out.len());
        let value = self.items(self.here, page, SUM_BYTES + 1, to, fork, out)?;
        let nested = |child: &Child| matches!(child.link, Link::Group { bits: b, .. } if b <= bits);
        if out[first..].iter().any(nested) {
            return Err(self.corrupt_page(self.here, page, NESTED).into());
        }
        // Whoever asks for it goes on to this one, and would ask again for ever.
        if out[first..].iter().all(|child| child.digit != digit) {
            return Err(self.corrupt_page(self.here, page, "it lacks a child of its group").into());
        }
        match value {
            None => Ok(()),
            Some(_) => Err(self.corrupt_page(self.here, page, "a group holds a value").into()),
        }
    }

    fn items(
        &mut self,
        segment: u32,
        page: u32,
        from: usize,
        to: usize,
        fork: usize,
        out: &mut Vec<Child>,
    ) -> Result<Option<Place>, Halt> {
        let (codec, older, here) = (self.codec, self.older, self.here);
        let Segment { pages, commits, .. } = &mut *self.seg;
        let row: &[u8] = match segment {
            segment if segment == here => &pages[page as usize].row,
            _ => &older[segment as usize].pages[page as usize].row,
        };
        let listed = list(codec, &row[..to], (segment, page), (from, fork), commits, out);
        let Some(at) = listed.map_err(|what| self.corrupt_page(segment, page, what))? else {
            return Ok(None);
        };
        let row = Arc::clone(&self.chain().segment(segment).pages[page as usize].row);
        self.fork_value(segment, page, &row, at, fork).map(Some)
    }

    /// Notes a child that is about to be made anew, or that moves, for what it commits to: nothing where
    /// the scheme does not ask. It hangs at `depth`.
    pub(crate) fn was(&mut self, child: &Child, looked: &Looked, depth: usize) -> WasAt {
        let asks = match looked {
            // Where commitments follow differences, those of values are at hand anyway.
            Looked::Terminal { owned: None, .. } => S::KEEP_TERMINALS,
            _ => S::DELTAS,
        };
        if !asks {
            return None;
        }
        if let Link::Made { segment, node } = child.link {
            let node = self.chain().node(segment, node);
            if node.commit.is_none() {
                // It stands for a node that was, and is not committed to itself.
                let was = match &node.body {
                    Body::Terminal(terminal) => terminal.was,
                    Body::Branch(branch) => branch.was,
                };
                return self.bring_was(segment, was);
            }
        }
        let mut node = *child;
        // It may come from another segment, whose commitments are not at hand; its page is. Those of a page
        // that was opened here were listed here.
        if let Link::Stored { segment, page, at } = child.link
            && S::KEEP_TERMINALS
            && !(segment == self.here && child.is_beside())
        {
            let row = self.chain().row(segment, page);
            let commit = carried(self.codec, row, usize::from(at), depth);
            node.commit = self.seg.push_commit(commit);
        }
        let owned = match looked {
            Looked::Terminal { owned, .. } => *owned,
            Looked::Branch { .. } => None,
        };
        self.seg.push_was(Was { node, owned, depth: depth as u32 })
    }

    /// What a node of a segment stands for, as of a node here.
    fn bring_was(&mut self, segment: u32, at: WasAt) -> WasAt {
        if segment == self.here {
            return at;
        }
        let was = *self.chain().segment(segment).was(at)?;
        let was = Was { node: self.bring(segment, was.node), ..was };
        self.seg.push_was(was)
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

/// Appends the children in `row` from byte `from` on, those of a branch that forks at `fork`, to `out`, and
/// what terminals carry to `commits`; answers where the branch's value is.
fn list<S: Scheme>(
    codec: Codec<'_, S>,
    row: &[u8],
    (segment, page): (u32, u32),
    (from, fork): (usize, usize),
    commits: &mut Vec<S::Commit>,
    out: &mut Vec<Child>,
) -> Result<Option<usize>, Malformed> {
    let (base, mut value, mut at) = (out.len(), None, from);
    while at < row.len() {
        let (item, end) = codec.skim(row, at, fork + 1)?;
        let link = Link::Stored { segment, page, at: at as u16 };
        match item {
            // Its suffix has no digits, and so no bytes, at whatever depth it is parsed.
            Skimmed::Value => value = Some(at),
            Skimmed::Branch { digit } => {
                out.push(Child { link, commit: Child::NOWHERE, digit, terminal: false });
            }
            Skimmed::Terminal { digit, carries } => {
                let mut commit = Child::NOWHERE;
                // Where differences are followed, it stands where a branch's does.
                if carries && !S::DELTAS {
                    commit = commits.len() as u32;
                    commits.push(carried(codec, row, at, fork + 1));
                }
                out.push(Child { link, commit, digit, terminal: true });
            }
            Skimmed::Group { bits, mut from, count } => {
                for _ in 0..count {
                    let (digit, terminal, next) = codec.member(&row[..end], from)?;
                    let link = Link::Group { segment, page, at: from as u16, bits };
                    out.push(Child { link, commit: Child::NOWHERE, digit, terminal });
                    from = next;
                }
            }
        }
        at = end;
    }
    if out[base..].windows(2).any(|pair| pair[0].digit >= pair[1].digit) {
        return Err("children are out of order");
    }
    let base_digits = 1usize << S::DIGIT_BITS;
    if out[base..].last().is_some_and(|last| usize::from(last.digit) >= base_digits) {
        return Err("a child has no digit of the tree");
    }
    Ok(value)
}

/// The commitment that a stored terminal carries.
fn carried<S: Scheme>(codec: Codec<'_, S>, row: &[u8], at: usize, start: usize) -> S::Commit {
    if let Some(InlineTerminal { commit: Some(at), .. }) = codec.inline_terminal(row, at, start)
        && let Some((commit, _)) = codec.scheme.decode_commit(&row[at..])
    {
        return commit;
    }
    match codec.node(row, at, start) {
        Ok((NodeView::Terminal(TerminalView { commit: Some(commit), .. }), _)) => commit,
        _ => unreachable!("it was skimmed: a terminal that carries its commitment"),
    }
}

/// A terminal in a page, to commit to: its bytes lie there, else it would carry its commitment.
pub(crate) fn stored_terminal<'a, S: Scheme>(
    codec: Codec<'_, S>,
    row: &'a [u8],
    at: usize,
    start: usize,
    key: JobKey<'a>,
) -> Result<TerminalJob<'a, S::Commit>, Malformed> {
    if let Some((suffix, payload)) = codec.bare_terminal(row, at, start) {
        return Ok(TerminalJob { key, suffix, payload, owned: None, was: None });
    }
    let (NodeView::Terminal(TerminalView { body, owned, .. }), _) = codec.node(row, at, start)?
    else {
        return Err("a branch has no commitment");
    };
    let TerminalBody::Inline { suffix, payload } = body else {
        return Err("an overflowed terminal has no commitment");
    };
    let owned = owned.map(|at| stored_owned(codec, row, at)).transpose()?;
    Ok(TerminalJob { key, suffix, payload, owned, was: None })
}

/// What a terminal in a page owns: the item at `at`.
pub(crate) fn stored_owned<'a, S: Scheme>(
    codec: Codec<'_, S>,
    row: &'a [u8],
    at: usize,
) -> Result<Owned<'a, S::Commit>, Malformed> {
    let start = S::OWNER.map_or(0, |owner| owner.bytes * Codec::<S>::WIDTH.per_byte());
    if !S::KEEP_OWNED_VALUES
        && let Some((suffix, payload)) = codec.bare_terminal(row, at, start)
    {
        return Ok(Owned::Value(suffix, payload));
    }
    let commit = match codec.node(row, at, start)?.0 {
        NodeView::Terminal(view) => view.commit,
        NodeView::Branch(view) => Some(view.commit),
    };
    commit.map(Owned::Commit).ok_or(UNCOMMITTED)
}

pub(crate) fn corrupt(key: &PageKey, what: &str) -> TreeError {
    TreeError::Corrupt { page: describe(key.as_bytes()), what: what.into() }
}

/// Where `part`, a piece of `whole`, lies in it.
pub(crate) fn within(whole: &[u8], part: &[u8]) -> Span {
    let at = if part.is_empty() { 0 } else { part.as_ptr() as usize - whole.as_ptr() as usize };
    Span::new(at, part.len())
}

/// The digits from `start` on of the path at `whole`.
fn piece_of(whole: Place, start: usize, digits: usize, width: Width) -> Piece {
    let (first, _) = width.locate(start);
    let len = width.span(start, digits);
    let first = if digits == 0 { 0 } else { first };
    let span = Span { at: whole.span.at + first as u32, len: len as u32 };
    Piece { place: Place { span, ..whole }, start, digits }
}
