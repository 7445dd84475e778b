//! What a descent makes: new nodes, and the normal form restored on the way up.
//!
//! Invariants:
//! - a branch has two children at least, counting its value; one that is left with a single child gives
//!   its place to it;
//! - a node's height is known when it is made, and an untouched neighbour that no page keeps the
//!   commitment of is noted with its parent.

use std::ops::Range;

use super::{Apply, Frame, FrameKind, Outcome};
use crate::error::TreeError;
use crate::node::{Body, Branch, Child, Kids, Link, Node, Place, Span, Terminal, WasAt};
use crate::open::{Halt, Looked, Opener};
use crate::scheme::{Scheme, implicit_owners};

impl<S: Scheme> Apply<'_, S> {
    /// Restores the normal form of a branch whose children have all been visited.
    pub(super) fn finish_fork(&mut self, frame: Frame) -> Result<Outcome, TreeError> {
        let FrameKind::Fork { path, fork, base, out, value, .. } = frame.kind else {
            unreachable!("only forks finish here")
        };
        self.old.truncate(base);
        let changes = self.keep_changes(frame.changes);
        let count = self.out.len() - out;
        if !frame.changed {
            self.out.truncate(out);
            return Ok(Outcome::Same);
        }
        if value.is_some() && count > 0 && !S::PREFIX_KEYS {
            self.refuse_prefix(path, fork, self.out[out])?;
        }
        self.retire(frame.pages.clone());
        for &page in &frame.groups {
            self.open.seg.pages[page as usize].stale = true;
        }
        let outcome = match (count, value) {
            (0, None) if frame.existed => Outcome::Gone,
            (0, None) => Outcome::Same,
            (0, Some(payload)) => {
                let len = fork / Opener::<S>::WIDTH.per_byte();
                let key = self.ops.place(path).first(len);
                self.make_terminal(key, frame.depth, frame.digit, payload, (None, None))
            }
            (1, None) => self.lift(path, fork, out, &frame)?,
            _ => {
                let bytes = fork.div_ceil(Opener::<S>::WIDTH.per_byte());
                let path = self.ops.place(path).first(bytes);
                let was = (frame.was, changes);
                Outcome::Now(self.make_branch_of_out(path, &frame, fork, out, value, was))
            }
        };
        self.out.truncate(out);
        Ok(outcome)
    }

    /// Moves a frame's changes, those from `from` on, to the segment.
    pub(super) fn keep_changes(&mut self, from: usize) -> Span {
        let at = self.open.seg.changes.len();
        self.open.seg.changes.extend(self.changes.drain(from..));
        Span::new(at, self.open.seg.changes.len() - at)
    }

    /// The only child of a branch takes its place.
    fn lift(
        &mut self,
        path: Span,
        fork: usize,
        index: usize,
        frame: &Frame,
    ) -> Result<Outcome, TreeError> {
        let lifted = self.try_lift(path, fork, index, frame);
        match lifted {
            Ok(child) => Ok(Outcome::Now(child)),
            Err(Halt::Missing) => {
                // This pass is thrown away. A stand-in keeps frames above from looking into the child
                // at a depth that is not its own.
                let nothing = self.ops.place(Span { at: 0, len: 0 });
                Ok(self.make_terminal(nothing, 0, frame.digit, nothing, (None, None)))
            }
            Err(Halt::Failed(error)) => Err(error),
        }
    }

    fn try_lift(
        &mut self,
        path: Span,
        fork: usize,
        index: usize,
        frame: &Frame,
    ) -> Result<Child, Halt> {
        let first_page = self.open.seg.pages.len();
        let here = self.open.here;
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
        self.compose(path, fork);
        width.append(&mut self.open.path, fork, child.digit);
        let looked = self.open.look(&child, fork + 1)?;
        let was = self.open.was(&child, &looked, fork + 1);
        let lifted = match looked {
            Looked::Terminal { suffix, payload, owned } => {
                self.extend_path(fork + 1, &suffix);
                let key = self.push_path();
                match self.make_terminal(key, frame.depth, frame.digit, payload, (owned, was)) {
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
                self.make_branch((path, frame.depth, end), from, value, frame.digit, was)
            }
        };
        self.retire(first_page..self.open.seg.pages.len());
        Ok(lifted)
    }

    pub(super) fn finish_owner(&mut self, frame: Frame, outcome: Outcome) -> Outcome {
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
        if owned.is_none() && implicit_owners::<S>() {
            return if frame.existed { Outcome::Gone } else { Outcome::Same };
        }
        self.make_terminal(key, frame.depth, frame.digit, payload, (owned, frame.was))
    }

    pub(super) fn make_terminal(
        &mut self,
        key: Place,
        depth: usize,
        digit: u8,
        payload: Place,
        (owned, was): (Option<Child>, WasAt),
    ) -> Outcome {
        let height = owned.map_or(0, |child| self.height(&child) + u32::from(self.fresh(&child)));
        let terminal = Terminal { key, depth: depth as u32, payload, owned, was };
        let link = self.push_node(Body::Terminal(terminal), height);
        Outcome::Now(Child { link, commit: Child::NOWHERE, digit, terminal: true })
    }

    /// Makes a branch of the old children from `from` on, and forgets them. None of them changed.
    pub(super) fn make_branch(
        &mut self,
        place: (Place, usize, usize),
        from: usize,
        value: Option<Place>,
        digit: u8,
        was: WasAt,
    ) -> Child {
        let at = self.open.seg.children.len();
        self.open.seg.children.extend_from_slice(&self.old[from..]);
        let count = self.old.len() - from;
        self.old.truncate(from);
        self.branch_of(place, Span::new(at, count), value, digit, (was, Span::EMPTY))
    }

    fn make_branch_of_out(
        &mut self,
        path: Place,
        frame: &Frame,
        fork: usize,
        out: usize,
        value: Option<Place>,
        was: (WasAt, Span),
    ) -> Child {
        let at = self.open.seg.children.len();
        self.open.seg.children.extend_from_slice(&self.out[out..]);
        let span = Span::new(at, self.out.len() - out);
        self.branch_of((path, frame.depth, fork), span, value, frame.digit, was)
    }

    fn branch_of(
        &mut self,
        (path, depth, fork): (Place, usize, usize),
        children: Span,
        value: Option<Place>,
        digit: u8,
        (was, changes): (WasAt, Span),
    ) -> Child {
        let (here, seg) = (self.open.here, &mut *self.open.seg);
        let mut tallest = 0;
        // The node pushed below.
        let parent = seg.nodes.len() as u32;
        for index in children.range() {
            let child = &seg.children[index];
            match child.link {
                Link::Made { segment, node } if segment == here => {
                    tallest = tallest.max(seg.nodes[node as usize].height);
                }
                _ if !S::DELTAS && child.uncommitted() => seg.siblings.push((index as u32, parent)),
                _ => {}
            }
        }
        let (depth, fork) = (depth as u32, fork as u32);
        let children = Kids::Listed(children);
        let body = Body::Branch(Branch { path, depth, fork, children, value, was, changes });
        let link = self.push_node(body, tallest + 1);
        Child { link, commit: Child::NOWHERE, digit, terminal: false }
    }

    pub(super) fn push_node(&mut self, body: Body, height: u32) -> Link {
        let node = u32::try_from(self.open.seg.nodes.len()).expect("a batch makes fewer nodes");
        self.open.seg.nodes.push(Node { body, height, commit: None });
        Link::Made { segment: self.open.here, node }
    }

    /// Whether the child is made by this batch, and so not committed yet.
    fn fresh(&self, child: &Child) -> bool {
        matches!(child.link, Link::Made { segment, .. } if segment == self.open.here)
    }

    pub(super) fn height(&self, child: &Child) -> u32 {
        match child.link {
            Link::Made { segment, node } if segment == self.open.here => {
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
