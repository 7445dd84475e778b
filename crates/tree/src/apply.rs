//! Applying a sorted batch: one descent that makes new nodes beside the old ones.
//!
//! The descent is a machine with an explicit stack of frames, one a branch (or owner) on the way down,
//! so a chain of 8,192 keys needs no deep stack. A frame hands each child its share of the operations
//! and collects the children that come back; when it is done it restores the normal form.
//!
//! Invariants:
//! - nothing older than the segment being filled changes, so a refused or discarded batch leaves no trace;
//! - a subtree in which nothing changes comes back as it was: [`Outcome::Same`];
//! - a page on the way that is not at hand is put on a list, and the descent goes on elsewhere; the
//!   caller reads the whole list in one call and starts over. So pages are read level by level;
//! - a branch left with one child takes that child's place: the child is made anew at its new depth.

use std::ops::Range;

use crate::batch::{Op, OpKind};
use crate::error::TreeError;
use crate::node::{Body, Branch, Child, Link, Node, Place, Span, Terminal};
use crate::open::{Children, Halt, Looked, Opener, Piece};
use crate::scheme::Scheme;

/// What became of a child.
#[derive(Clone, Copy, Debug)]
enum Outcome<C> {
    Same,
    Gone,
    Now(Child<C>),
}

/// A branch, or an owner, whose children are being visited.
#[derive(Debug)]
struct Frame<C> {
    kind: FrameKind<C>,
    digit: u8,
    depth: usize,
    /// Whether it lies below an owner.
    owned: bool,
    ops: Range<usize>,
    /// The pages opened to look into the node.
    pages: Range<usize>,
    /// The groups opened since.
    groups: Vec<usize>,
    /// Whether there was anything here before.
    existed: bool,
    changed: bool,
}

#[derive(Debug)]
enum FrameKind<C> {
    Fork {
        /// Bytes whose first `fork` digits are the path of the fork.
        path: Span,
        fork: usize,
        /// Where this frame's old children start.
        base: usize,
        /// The old children not visited yet.
        old: Range<usize>,
        /// Where this frame's new children start.
        out: usize,
        value: Option<Place>,
    },
    Owner {
        key: Span,
        payload: Place,
        owned: Option<Child<C>>,
    },
}

/// Applies operations to a tree.
pub(crate) struct Apply<'a, S: Scheme> {
    pub(crate) open: Opener<'a, S>,
    pub(crate) ops: &'a [Op],
    frames: Vec<Frame<S::Commit>>,
    old: Vec<Child<S::Commit>>,
    out: Vec<Child<S::Commit>>,
    owner_digits: usize,
}

impl<'a, S: Scheme> Apply<'a, S> {
    pub(crate) fn new(open: Opener<'a, S>, ops: &'a [Op]) -> Self {
        let owner_digits = S::OWNER.map_or(0, |o| o.bytes * Opener::<S>::WIDTH.per_byte());
        Self { open, ops, frames: Vec::new(), old: Vec::new(), out: Vec::new(), owner_digits }
    }

    /// Applies all operations below `root`. Answers the new root, and the keys of pages that are
    /// missing: if there are any, the answer is of no use and the segment is to be reset.
    #[expect(clippy::type_complexity, reason = "the two halves of one answer")]
    pub(crate) fn run(
        mut self,
        root: Option<Child<S::Commit>>,
    ) -> Result<(Option<Child<S::Commit>>, Vec<crate::page_key::PageKey>), TreeError> {
        let mut outcome =
            self.visit(root, Spot { depth: 0, digit: 0, owned: false }, 0..self.ops.len())?;
        while let Some(frame) = self.frames.pop() {
            outcome = self.resume(frame, outcome)?;
        }
        debug_assert!(self.out.is_empty());
        let root = match outcome.expect("the last frame has an outcome") {
            Outcome::Same => root,
            Outcome::Gone => None,
            Outcome::Now(child) => Some(child),
        };
        Ok((root, self.open.missing))
    }

    fn key(&self, op: usize) -> &[u8] {
        &self.open.seg.bytes[self.ops[op].key.range()]
    }

    fn digits(&self, op: usize) -> usize {
        self.ops[op].key.len as usize * Opener::<S>::WIDTH.per_byte()
    }

    /// How many digits from `depth` on the first and the last of `ops` share, within their zone.
    fn shared(&self, ops: &Range<usize>, spot: Spot) -> usize {
        let (first, last) = (ops.start, ops.end - 1);
        let depth = spot.depth;
        let mut limit = self.digits(first).min(self.digits(last));
        if self.among_owners(spot) {
            limit = limit.min(self.owner_digits);
        }
        let width = Opener::<S>::WIDTH;
        width.common(self.key(first), self.key(last), depth, limit - depth)
    }

    /// Whether terminals here are owners. Depth alone does not tell: owners that differ in their last
    /// digit hang where what they own begins.
    const fn among_owners(&self, spot: Spot) -> bool {
        S::OWNER.is_some() && !spot.owned
    }

    /// Whether all of `ops` concern one terminal.
    fn lone(&self, ops: &Range<usize>, spot: Spot) -> bool {
        if self.among_owners(spot) {
            self.digits(ops.start) >= self.owner_digits
                && self.shared(ops, spot) == self.owner_digits - spot.depth
        } else {
            ops.len() == 1 && self.ops[ops.start].kind != OpKind::Clear
        }
    }

    /// Visits what is at `depth` under the path of the operations: either answers at once, or pushes a
    /// frame whose outcome is to come.
    fn visit(
        &mut self,
        old: Option<Child<S::Commit>>,
        spot: Spot,
        ops: Range<usize>,
    ) -> Result<Option<Outcome<S::Commit>>, TreeError> {
        match self.try_visit(old, spot, ops) {
            Ok(outcome) => Ok(outcome),
            // The page is on the list; what comes of this pass is thrown away.
            Err(Halt::Missing) => Ok(Some(Outcome::Same)),
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    fn try_visit(
        &mut self,
        old: Option<Child<S::Commit>>,
        spot: Spot,
        mut ops: Range<usize>,
    ) -> Result<Option<Outcome<S::Commit>>, Halt> {
        let depth = spot.depth;
        let existed = old.is_some();
        let first_page = self.open.seg.pages.len();
        let mut looked = None;
        if let Some(child) = old {
            self.set_path(ops.start, depth);
            looked = Some((child, self.open.look(&child, depth)?));
        }
        while !ops.is_empty() && self.ops[ops.start].kind == OpKind::Clear {
            if let Some((child, node)) = looked {
                match self.reach(&node, ops.start, spot) {
                    Reach::Covers => {
                        self.drop_child(&child, depth, ops.start)?;
                        self.retire(first_page..self.open.seg.pages.len());
                        looked = None;
                    }
                    Reach::Misses => {}
                    Reach::Below => break,
                }
            }
            ops.start += 1;
        }
        if ops.is_empty() {
            let gone = existed && looked.is_none();
            return Ok(Some(if gone { Outcome::Gone } else { Outcome::Same }));
        }
        let pages = first_page..self.open.seg.pages.len();
        let cleared = existed && looked.is_none();
        let at = At { spot, ops, pages, existed, cleared };
        match looked {
            None => self.build(at),
            Some((child, Looked::Terminal { suffix, payload, owned })) => {
                self.visit_terminal(&child, at, suffix, payload, owned)
            }
            Some((_, Looked::Branch { skip, body })) => self.visit_branch(at, skip, body),
        }
    }

    /// Makes the path of an operation, up to `depth`, the current one.
    pub(crate) fn set_path(&mut self, op: usize, depth: usize) {
        let whole = depth.div_ceil(Opener::<S>::WIDTH.per_byte());
        let key = self.ops[op].key.range();
        self.open.path.clear();
        let (path, bytes) = (&mut self.open.path, &self.open.seg.bytes);
        path.extend_from_slice(&bytes[key][..whole]);
    }

    /// Makes the path of an operation, up to `depth`, and a piece that follows it the current one.
    fn set_path_with(&mut self, op: usize, depth: usize, piece: &Piece) {
        self.set_path(op, depth);
        self.extend_path(depth, piece);
    }

    /// Continues the current path, of `depth` digits, with a piece.
    pub(crate) fn extend_path(&mut self, depth: usize, piece: &Piece) {
        let mut path = std::mem::take(&mut self.open.path);
        Opener::<S>::WIDTH.truncate(&mut path, depth);
        self.open.run(piece).extend(&mut path, 0);
        self.open.path = path;
    }

    /// What a prefix deletion does to a node.
    fn reach(&self, node: &Looked<S::Commit>, op: usize, spot: Spot) -> Reach {
        let (piece, branch) = match node {
            Looked::Terminal { suffix, .. } => (suffix, false),
            Looked::Branch { skip, .. } => (skip, true),
        };
        let same = self.open.run(piece).common(self.key(op));
        if spot.depth + same >= self.digits(op) {
            Reach::Covers
        } else if same < piece.digits {
            Reach::Misses
        } else if branch || self.among_owners(spot) {
            Reach::Below
        } else {
            Reach::Misses
        }
    }

    /// Nothing is here yet.
    fn build(&mut self, at: At) -> Result<Option<Outcome<S::Commit>>, Halt> {
        let nothing = if at.existed { Outcome::Gone } else { Outcome::Same };
        if self.lone(&at.ops, at.spot) {
            if self.among_owners(at.spot) {
                return self.visit_owner(None, at);
            }
            let op = self.ops[at.ops.start];
            let OpKind::Put(value) = op.kind else { return Ok(Some(nothing)) };
            let payload = Place::in_segment(self.open.here(), value);
            return Ok(Some(self.make_terminal(
                op.key,
                at.spot.depth,
                at.spot.digit,
                payload,
                None,
            )));
        }
        let fork = at.spot.depth + self.shared(&at.ops, at.spot);
        let path = self.ops[at.ops.start].key;
        let old = self.old.len()..self.old.len();
        self.push_fork(at, path, fork, old, None)
    }

    fn visit_terminal(
        &mut self,
        child: &Child<S::Commit>,
        at: At,
        suffix: Piece,
        payload: Place,
        owned: Option<Child<S::Commit>>,
    ) -> Result<Option<Outcome<S::Commit>>, Halt> {
        let end = at.spot.depth + suffix.digits;
        let zoned = self.among_owners(at.spot);
        let run = self.open.run(&suffix);
        let same = run.common(self.key(at.ops.start)).min(run.common(self.key(at.ops.end - 1)));
        if self.lone(&at.ops, at.spot) && same == suffix.digits {
            if zoned {
                return self.visit_owner(Some((payload, owned)), at);
            }
            if self.digits(at.ops.start) == end {
                return Ok(Some(self.replace(&at, payload)));
            }
        }
        // The terminal moves below a new fork.
        let fork = at.spot.depth + same.min(self.shared(&at.ops, at.spot));
        let path = self.ops[at.ops.start].key;
        let from = self.old.len();
        let mut value = None;
        if end == fork {
            value = Some(payload);
        } else {
            self.set_path_with(at.ops.start, at.spot.depth, &suffix);
            let key = self.push_path();
            let below = suffix_digit(&self.open, &suffix, fork - at.spot.depth);
            let Outcome::Now(carried) = self.make_terminal(key, fork + 1, below, payload, owned)
            else {
                unreachable!("a terminal is made")
            };
            self.old.push(Child { commit: None, terminal: child.terminal, ..carried });
        }
        self.push_fork(at, path, fork, from..self.old.len(), value)
    }

    fn visit_branch(
        &mut self,
        mut at: At,
        skip: Piece,
        body: Children,
    ) -> Result<Option<Outcome<S::Commit>>, Halt> {
        let run = self.open.run(&skip);
        let same = run.common(self.key(at.ops.start)).min(run.common(self.key(at.ops.end - 1)));
        let end = at.spot.depth + skip.digits;
        // All of the branch's children are needed: to commit to it anew, or to hand on.
        self.set_path_with(at.ops.start, at.spot.depth, &skip);
        let from = self.old.len();
        let mut children = std::mem::take(&mut self.old);
        let value = self.open.children(body, end, &mut children);
        self.old = children;
        let value = value?;
        at.pages.end = self.open.seg.pages.len();
        let path = self.ops[at.ops.start].key;
        if same == skip.digits {
            return self.push_fork(at, path, end, from..self.old.len(), value);
        }
        // The branch moves below a new fork in its skip.
        let fork = at.spot.depth + same;
        let below = suffix_digit(&self.open, &skip, same);
        self.set_path_with(at.ops.start, at.spot.depth, &skip);
        let lower_path = self.push_path();
        let lower = self.make_branch(lower_path, fork + 1, end, from, value, below);
        self.old.push(lower);
        self.push_fork(at, path, fork, from..self.old.len(), None)
    }

    /// The current path as bytes of the segment.
    fn push_path(&mut self) -> Span {
        let path = std::mem::take(&mut self.open.path);
        let span = self.open.seg.push_bytes(&path);
        self.open.path = path;
        span
    }

    /// The one key of a terminal that owns nothing.
    fn replace(&mut self, at: &At, payload: Place) -> Outcome<S::Commit> {
        let op = self.ops[at.ops.start];
        let outcome = match op.kind {
            OpKind::Put(value) => {
                let value = Place::in_segment(self.open.here(), value);
                let chain = self.open.chain();
                if chain.bytes(value) == chain.bytes(payload) {
                    return Outcome::Same;
                }
                self.make_terminal(op.key, at.spot.depth, at.spot.digit, value, None)
            }
            OpKind::Delete => Outcome::Gone,
            OpKind::Clear => unreachable!("prefix deletions come first"),
        };
        self.retire(at.pages.clone());
        outcome
    }

    /// An owner, and what it owns.
    fn visit_owner(
        &mut self,
        old: Option<(Place, Option<Child<S::Commit>>)>,
        mut at: At,
    ) -> Result<Option<Outcome<S::Commit>>, Halt> {
        let first = self.ops[at.ops.start];
        let owner_bytes = self.owner_digits / Opener::<S>::WIDTH.per_byte();
        let key = Span { at: first.key.at, len: owner_bytes as u32 };
        let mut payload = old.map(|old| old.0);
        let mut changed = false;
        if first.key.len == key.len && first.kind != OpKind::Clear {
            at.ops.start += 1;
            let chain = self.open.chain();
            match first.kind {
                OpKind::Put(value) => {
                    let value = Place::in_segment(self.open.here(), value);
                    changed = payload.is_none_or(|old| chain.bytes(old) != chain.bytes(value));
                    payload = if changed { Some(value) } else { payload };
                }
                _ => payload = None,
            }
        }
        let Some(payload) = payload else {
            if let Some(op) = at.ops.clone().find(|&op| matches!(self.ops[op].kind, OpKind::Put(_)))
            {
                let key = self.key(op).to_vec();
                return Err(TreeError::Ownerless { key, owner_bytes }.into());
            }
            if let Some((_, owned)) = old {
                self.retire(at.pages);
                if owned.is_some() {
                    // Owners' keys are short enough for a range.
                    self.drop_below(key, owner_bytes * 8);
                }
            }
            return Ok(Some(if at.existed { Outcome::Gone } else { Outcome::Same }));
        };
        let owned = old.and_then(|old| old.1);
        let ops = at.ops.clone();
        let frame = Frame {
            kind: FrameKind::Owner { key, payload, owned },
            digit: at.spot.digit,
            depth: at.spot.depth,
            owned: at.spot.owned,
            ops: at.ops,
            pages: at.pages,
            groups: Vec::new(),
            existed: at.existed,
            changed: changed || old.is_none(),
        };
        if ops.is_empty() {
            return Ok(Some(self.finish_owner(frame, Outcome::Same)));
        }
        let below = Spot { depth: self.owner_digits, digit: 0, owned: true };
        // Owners do not nest, so neither does this call.
        self.frames.push(frame);
        let Some(outcome) = self.visit(owned, below, ops)? else { return Ok(None) };
        let frame = self.frames.pop().expect("the owner's frame was just pushed");
        Ok(Some(self.finish_owner(frame, outcome)))
    }

    fn push_fork(
        &mut self,
        at: At,
        path: Span,
        fork: usize,
        old: Range<usize>,
        mut value: Option<Place>,
    ) -> Result<Option<Outcome<S::Commit>>, Halt> {
        let mut ops = at.ops;
        let mut changed = at.cleared;
        if self.digits(ops.start) == fork {
            let op = self.ops[ops.start];
            ops.start += 1;
            let chain = self.open.chain();
            match op.kind {
                OpKind::Put(new) => {
                    let new = Place::in_segment(self.open.here(), new);
                    let differs = value.is_none_or(|old| chain.bytes(old) != chain.bytes(new));
                    changed |= differs;
                    value = if differs { Some(new) } else { value };
                }
                _ => {
                    changed |= value.is_some();
                    value = None;
                }
            }
        }
        let (base, out) = (old.start, self.out.len());
        self.frames.push(Frame {
            kind: FrameKind::Fork { path, fork, base, old, out, value },
            digit: at.spot.digit,
            depth: at.spot.depth,
            owned: at.spot.owned,
            ops,
            pages: at.pages,
            groups: Vec::new(),
            existed: at.existed,
            changed,
        });
        Ok(None)
    }

    /// Starts a frame, or takes its child's outcome into it, and goes on. The answer is the frame's own
    /// outcome, or nothing if the frame is back on the stack below one that is to be resumed first.
    fn resume(
        &mut self,
        mut frame: Frame<S::Commit>,
        outcome: Option<Outcome<S::Commit>>,
    ) -> Result<Option<Outcome<S::Commit>>, TreeError> {
        if let Some(outcome) = outcome {
            if matches!(frame.kind, FrameKind::Owner { .. }) {
                return Ok(Some(self.finish_owner(frame, outcome)));
            }
            self.take(&mut frame, outcome);
        }
        self.advance(frame)
    }

    /// Puts a visited child among the new ones. The visited child is the next old one, if its digit is
    /// that of the operations just done.
    fn take(&mut self, frame: &mut Frame<S::Commit>, outcome: Outcome<S::Commit>) {
        let FrameKind::Fork { fork, old, .. } = &mut frame.kind else {
            unreachable!("only forks have digits")
        };
        let digit = Opener::<S>::WIDTH
            .digit(&self.open.seg.bytes[self.ops[frame.ops.start - 1].key.range()], *fork);
        let was =
            self.old.get(old.start).copied().filter(|c| old.start < old.end && c.digit == digit);
        if was.is_some() {
            old.start += 1;
        }
        match outcome {
            Outcome::Same => self.out.extend(was),
            Outcome::Gone => frame.changed = true,
            Outcome::Now(child) => {
                frame.changed = true;
                self.out.push(Child { digit, ..child });
            }
        }
    }

    /// Visits the children that operations concern, until one of them needs a frame of its own.
    fn advance(
        &mut self,
        mut frame: Frame<S::Commit>,
    ) -> Result<Option<Outcome<S::Commit>>, TreeError> {
        'child: loop {
            let FrameKind::Fork { path, fork, ref mut old, out, .. } = frame.kind else {
                unreachable!("only forks advance")
            };
            if frame.ops.is_empty() {
                self.out.extend_from_slice(&self.old[old.clone()]);
                old.start = old.end;
                return self.finish_fork(frame).map(Some);
            }
            let width = Opener::<S>::WIDTH;
            let digit = width.digit(self.key(frame.ops.start), fork);
            while old.start < old.end && self.old[old.start].digit < digit {
                self.out.push(self.old[old.start]);
                old.start += 1;
            }
            let share = frame.ops.start
                ..share_end::<S>(&self.open.seg.bytes, self.ops, &frame.ops, (fork, digit));
            frame.ops.start = share.end;
            // A child in a group, and a new one that belongs into a group, need all of its children.
            while let Some((digit, bits)) =
                group_of::<S>(&self.out[out..], &self.old[old.clone()], digit)
            {
                match self.open_group(path, fork, digit, bits, (out, old.clone())) {
                    Ok(()) => frame.groups.push(self.open.seg.pages.len() - 1),
                    Err(Halt::Missing) => continue 'child,
                    Err(Halt::Failed(error)) => return Err(error),
                }
            }
            let next = self.old[old.clone()].first().copied();
            let child = next.filter(|child| child.digit == digit);
            let spot = Spot { depth: fork + 1, digit, owned: frame.owned };
            // The frame waits on the stack while its child is visited.
            self.frames.push(frame);
            let Some(outcome) = self.visit(child, spot, share)? else {
                return Ok(None);
            };
            frame = self.frames.pop().expect("the frame just pushed");
            self.take(&mut frame, outcome);
        }
    }

    /// Opens a group and points all of its children, visited already or not, to where they are.
    fn open_group(
        &mut self,
        path: Span,
        fork: usize,
        digit: u8,
        bits: u8,
        (out, old): (usize, Range<usize>),
    ) -> Result<(), Halt> {
        self.open.path.clear();
        let bytes = fork.div_ceil(Opener::<S>::WIDTH.per_byte());
        let from = path.at as usize;
        self.open.path.extend_from_slice(&self.open.seg.bytes[from..from + bytes]);
        let mut opened = Vec::new();
        self.open.group(fork, digit, bits, &mut opened)?;
        let mut found = 0;
        for child in self.out[out..].iter_mut().chain(&mut self.old[old]) {
            if child.link == (Link::Group { bits })
                && let Ok(at) = opened.binary_search_by_key(&child.digit, |c| c.digit)
            {
                child.link = opened[at].link;
                found += 1;
            }
        }
        if found == opened.len() {
            return Ok(());
        }
        let page = self.open.seg.pages.len() as u32 - 1;
        let here = self.open.here();
        Err(self
            .open
            .corrupt_page(here, page, "its children are not those its parent names")
            .into())
    }

    /// Restores the normal form of a branch whose children have all been visited.
    fn finish_fork(&mut self, frame: Frame<S::Commit>) -> Result<Outcome<S::Commit>, TreeError> {
        let FrameKind::Fork { path, fork, base, out, value, .. } = frame.kind else {
            unreachable!("only forks finish here")
        };
        self.old.truncate(base);
        let count = self.out.len() - out;
        if !frame.changed {
            self.out.truncate(out);
            return Ok(Outcome::Same);
        }
        self.retire(frame.pages.clone());
        for &page in &frame.groups {
            self.open.seg.pages[page].stale = true;
        }
        let outcome = match (count, value) {
            (0, None) if frame.existed => Outcome::Gone,
            (0, None) => Outcome::Same,
            (0, Some(payload)) => {
                let len = fork / Opener::<S>::WIDTH.per_byte();
                let key = Span { at: path.at, len: len as u32 };
                self.make_terminal(key, frame.depth, frame.digit, payload, None)
            }
            (1, None) => self.lift(path, fork, out, &frame)?,
            _ => {
                let bytes = fork.div_ceil(Opener::<S>::WIDTH.per_byte());
                let path = Span { at: path.at, len: bytes as u32 };
                Outcome::Now(self.make_branch_of_out(path, &frame, fork, out, value))
            }
        };
        self.out.truncate(out);
        Ok(outcome)
    }

    /// The only child of a branch takes its place.
    fn lift(
        &mut self,
        path: Span,
        fork: usize,
        index: usize,
        frame: &Frame<S::Commit>,
    ) -> Result<Outcome<S::Commit>, TreeError> {
        let lifted = self.try_lift(path, fork, index, frame);
        match lifted {
            Ok(child) => Ok(Outcome::Now(child)),
            Err(Halt::Missing) => {
                // This pass is thrown away. A stand-in keeps frames above from looking into the child
                // at a depth that is not its own.
                let stand_in = self.open.seg.push_bytes(&[]);
                let nothing = Place::in_segment(self.open.here(), stand_in);
                Ok(self.make_terminal(stand_in, 0, frame.digit, nothing, None))
            }
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    fn try_lift(
        &mut self,
        path: Span,
        fork: usize,
        index: usize,
        frame: &Frame<S::Commit>,
    ) -> Result<Child<S::Commit>, Halt> {
        let first_page = self.open.seg.pages.len();
        let here = self.open.here();
        let child = self.out[index];
        if let Link::Made { segment, node } = child.link
            && segment == here
        {
            let node = &mut self.open.seg.nodes[node as usize];
            match &mut node.body {
                Body::Terminal(terminal) => terminal.depth = frame.depth as u32,
                Body::Branch(branch) => branch.depth = frame.depth as u32,
            }
            return Ok(Child { digit: frame.digit, ..child });
        }
        let width = Opener::<S>::WIDTH;
        let bytes = fork.div_ceil(width.per_byte());
        let mut composed = self.open.seg.bytes[path.at as usize..path.at as usize + bytes].to_vec();
        width.append(&mut composed, fork, child.digit);
        self.open.path = composed;
        let lifted = match self.open.look(&child, fork + 1)? {
            Looked::Terminal { suffix, payload, owned } => {
                self.extend_path(fork + 1, &suffix);
                let key = self.push_path();
                match self.make_terminal(key, frame.depth, frame.digit, payload, owned) {
                    Outcome::Now(child) => child,
                    _ => unreachable!("a terminal is made"),
                }
            }
            Looked::Branch { skip, body } => {
                self.extend_path(fork + 1, &skip);
                let end = fork + 1 + skip.digits;
                let from = self.old.len();
                let mut children = std::mem::take(&mut self.old);
                let value = self.open.children(body, end, &mut children);
                self.old = children;
                let value = value?;
                let path = self.push_path();
                self.make_branch(path, frame.depth, end, from, value, frame.digit)
            }
        };
        self.retire(first_page..self.open.seg.pages.len());
        Ok(lifted)
    }

    fn finish_owner(
        &mut self,
        frame: Frame<S::Commit>,
        outcome: Outcome<S::Commit>,
    ) -> Outcome<S::Commit> {
        let FrameKind::Owner { key, payload, owned } = frame.kind else {
            unreachable!("only owners finish here")
        };
        let owned = match outcome {
            Outcome::Same if !frame.changed => return Outcome::Same,
            Outcome::Same => owned,
            Outcome::Gone => None,
            Outcome::Now(child) => Some(Child { digit: 0, ..child }),
        };
        self.retire(frame.pages);
        self.make_terminal(key, frame.depth, frame.digit, payload, owned)
    }

    fn make_terminal(
        &mut self,
        key: Span,
        depth: usize,
        digit: u8,
        payload: Place,
        owned: Option<Child<S::Commit>>,
    ) -> Outcome<S::Commit> {
        let height = owned.map_or(0, |child| self.height(&child) + u32::from(self.fresh(&child)));
        let terminal = Terminal { key, depth: depth as u32, payload, owned };
        let link = self.push_node(Body::Terminal(terminal), height);
        Outcome::Now(Child { link, commit: None, digit, terminal: true })
    }

    /// Makes a branch of the old children from `from` on, and forgets them.
    fn make_branch(
        &mut self,
        path: Span,
        depth: usize,
        fork: usize,
        from: usize,
        value: Option<Place>,
        digit: u8,
    ) -> Child<S::Commit> {
        let at = self.open.seg.children.len();
        let children = self.old.split_off(from);
        self.open.seg.children.extend_from_slice(&children);
        self.branch_of(path, depth, fork, Span::new(at, children.len()), value, digit)
    }

    fn make_branch_of_out(
        &mut self,
        path: Span,
        frame: &Frame<S::Commit>,
        fork: usize,
        out: usize,
        value: Option<Place>,
    ) -> Child<S::Commit> {
        let at = self.open.seg.children.len();
        self.open.seg.children.extend_from_slice(&self.out[out..]);
        let span = Span::new(at, self.out.len() - out);
        self.branch_of(path, frame.depth, fork, span, value, frame.digit)
    }

    fn branch_of(
        &mut self,
        path: Span,
        depth: usize,
        fork: usize,
        children: Span,
        value: Option<Place>,
        digit: u8,
    ) -> Child<S::Commit> {
        let tallest = self.open.seg.children(children).iter().map(|c| self.height(c)).max();
        let height = tallest.unwrap_or(0) + 1;
        let (depth, fork) = (depth as u32, fork as u32);
        let link =
            self.push_node(Body::Branch(Branch { path, depth, fork, children, value }), height);
        Child { link, commit: None, digit, terminal: false }
    }

    fn push_node(&mut self, body: Body<S::Commit>, height: u32) -> Link {
        let node = u32::try_from(self.open.seg.nodes.len()).expect("a batch makes fewer nodes");
        self.open.seg.nodes.push(Node { body, height, commit: None });
        Link::Made { segment: self.open.here(), node }
    }

    /// Whether the child is made by this batch, and so not committed yet.
    fn fresh(&self, child: &Child<S::Commit>) -> bool {
        matches!(child.link, Link::Made { segment, .. } if segment == self.open.here())
    }

    fn height(&self, child: &Child<S::Commit>) -> u32 {
        match child.link {
            Link::Made { segment, node } if segment == self.open.here() => {
                self.open.seg.nodes[node as usize].height
            }
            _ => 0,
        }
    }

    /// The pages that were opened for a node hold it no longer.
    pub(crate) fn retire(&mut self, pages: Range<usize>) {
        for page in &mut self.open.seg.pages[pages] {
            page.stale = true;
        }
    }
}

/// Where a node hangs.
#[derive(Clone, Copy, Debug)]
struct Spot {
    depth: usize,
    /// Its digit in its parent.
    digit: u8,
    /// Whether it lies below an owner.
    owned: bool,
}

/// What a visit is about.
#[derive(Debug)]
struct At {
    spot: Spot,
    ops: Range<usize>,
    pages: Range<usize>,
    /// Whether there was anything here before.
    existed: bool,
    /// Whether a prefix deletion of the same batch removed it.
    cleared: bool,
}

/// How far a prefix deletion reaches.
enum Reach {
    Covers,
    Misses,
    Below,
}

/// Where the operations end that have `digit` at the fork. Shares are small as a rule, so the search
/// gallops from the front.
fn share_end<S: Scheme>(
    bytes: &[u8],
    all: &[Op],
    ops: &Range<usize>,
    (fork, digit): (usize, u8),
) -> usize {
    let same = |op: &Op| Opener::<S>::WIDTH.digit(&bytes[op.key.range()], fork) == digit;
    let (mut low, mut step) = (ops.start + 1, 1);
    while low + step <= ops.end && same(&all[low + step - 1]) {
        low += step;
        step *= 2;
    }
    low + all[low..ops.end.min(low + step)].partition_point(same)
}

/// The group, not opened yet, that a digit belongs to: one of its children, and its bits. Children of a
/// group are neighbours, so it shows on one side of the digit or the other.
fn group_of<S: Scheme>(
    before: &[Child<S::Commit>],
    after: &[Child<S::Commit>],
    digit: u8,
) -> Option<(u8, u8)> {
    before.last().into_iter().chain(after.first()).find_map(|child| match child.link {
        Link::Group { bits } => {
            let rest = S::DIGIT_BITS - bits;
            (child.digit >> rest == digit >> rest).then_some((child.digit, bits))
        }
        _ => None,
    })
}

fn suffix_digit<S: Scheme>(open: &Opener<'_, S>, piece: &Piece, index: usize) -> u8 {
    open.run(piece).digit(index)
}
