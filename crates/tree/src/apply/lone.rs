//! The way of a single put down through pages that have directories, a step a branch: no frame, nothing
//! parsed; and the branches made anew on the way up.
//!
//! Where the way leads anywhere else (into a page without a directory, a node made by a batch, a terminal,
//! a skip that differs or overflowed, a place where nothing is yet) the general descent goes on below
//! the steps taken. A put removes nothing, so a step keeps all of its children, one of them made anew.

use std::ops::Range;

use super::{Apply, At, Frame, FrameKind, Outcome, Spot};
use crate::batch::OpKind;
use crate::digits::Width;
use crate::directory::{Directory, Fork};
use crate::error::TreeError;
use crate::image::{PageKind, SUM_BYTES};
use crate::node::{Body, Branch, Child, Link, OpenPage, Place, Segment, Span, Was};
use crate::open::{Children, Halt, Opener, Piece, within};
use crate::scheme::Scheme;

/// A branch on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    digit: u8,
    depth: u32,
    /// The digit at which it forks.
    end: u32,
    /// Where its children are listed.
    body: Listing,
    /// The group that the way goes on in: where that is listed, and its bits.
    group: Option<(Listing, u8)>,
    /// The pages opened on the branch's account.
    pages: (u32, u32),
}

/// A branch in the directory of a page.
#[derive(Clone, Copy, Debug)]
struct Listing {
    segment: u32,
    page: u32,
    fork: Fork,
}

/// A child on the way: where it hangs, and which branch of its page it is, if that is known.
#[derive(Clone, Copy, Debug)]
struct Next {
    child: Child,
    spot: Spot,
    fork: Option<u16>,
}

/// Where a step leads.
enum Way {
    On(Next),
    /// To the branch itself: directories lead no further.
    Here,
    /// To the branch's body, in a page that has no directory.
    Into {
        skip: Piece,
        page: u32,
    },
}

/// Where the general descent goes on.
struct Ahead {
    child: Child,
    spot: Spot,
    /// The skip of the child and its body's page, if that is open already.
    body: Option<(Piece, u32)>,
    /// Whether a frame of the steps taken is on the stack.
    stepped: bool,
}

impl<S: Scheme> Apply<'_, S> {
    const WIDTH: Width = Opener::<S>::WIDTH;

    /// Whether there is one operation, and it is a put.
    pub(super) fn is_put(&self, ops: &Range<usize>) -> bool {
        ops.len() == 1 && matches!(self.op(ops.start).kind, OpKind::Put(_))
    }

    /// Visits a branch with a single put, by directories as far as they lead.
    pub(super) fn visit_alone(
        &mut self,
        child: Child,
        spot: Spot,
        ops: Range<usize>,
    ) -> Result<Option<Outcome>, Halt> {
        let Ahead { child, spot, body, stepped } = self.go_down(child, spot, ops.start)?;
        let visited = match body {
            None => self.try_visit(Some(child), spot, ops),
            Some((skip, page)) => {
                let to = self.open.seg.pages[page as usize].row.len();
                let segment = self.open.here;
                let body = Children::Stored { segment, page, from: SUM_BYTES + 1, to };
                let pages = page as usize..page as usize + 1;
                self.visit_branch(
                    At { spot, ops, pages, existed: true, cleared: false, was: Was::NOTHING },
                    skip,
                    body,
                )
            }
        };
        let outcome = match visited {
            // This pass is thrown away.
            Err(Halt::Missing) if stepped => Some(Outcome::Same),
            answer => answer?,
        };
        match outcome {
            Some(outcome) if stepped => {
                let frame = self.frames.pop().expect("the steps just taken");
                self.resume(frame, Some(outcome)).map_err(Halt::Failed)
            }
            outcome => Ok(outcome),
        }
    }

    /// Goes down with the put `op` as far as directories lead.
    fn go_down(&mut self, child: Child, spot: Spot, op: usize) -> Result<Ahead, Halt> {
        let from = self.steps.len();
        let mut next = Next { child, spot, fork: None };
        let body = loop {
            match self.step(&next, op) {
                Ok(Way::On(below)) => next = below,
                Ok(Way::Into { skip, page }) => break Some((skip, page)),
                // What the step opened stays open: the general descent opens what it needs itself.
                Ok(Way::Here) => break None,
                Err(halt) => {
                    self.steps.truncate(from);
                    return Err(halt);
                }
            }
        };
        let stepped = self.steps.len() > from;
        if stepped {
            let kind = FrameKind::Steps { from, op };
            self.frames.push(Frame::bare(kind, spot, op..op + 1));
        }
        Ok(Ahead { child: next.child, spot: next.spot, body, stepped })
    }

    /// Passes a branch, if directories lead further.
    fn step(&mut self, next: &Next, op: usize) -> Result<Way, Halt> {
        let Next { child, spot, fork } = *next;
        let Link::Stored { segment, page, at } = child.link else { return Ok(Way::Here) };
        let first = self.open.seg.pages.len() as u32;
        let (key, digits) = (self.key(op), self.digits(op));
        let open = self.opened(segment, page);
        let Some(directory) = open.directory() else { return Ok(Way::Here) };
        let Some(fork) = fork.or_else(|| directory.fork_at(at)) else { return Ok(Way::Here) };
        let fork = *directory.fork(fork);
        let Some(skip) = fork.skip(&open.row, spot.depth, Self::WIDTH) else {
            return Ok(Way::Here);
        };
        let limit = if self.among_owners(spot) { digits.min(self.owner_digits) } else { digits };
        let end = skip.end();
        if end >= limit || skip.common(key) < skip.len() {
            return Ok(Way::Here);
        }
        let mut body = Listing { segment, page, fork };
        if fork.is_apart() {
            let skip = Piece {
                place: Place::in_page(segment, page, within(&open.row, skip.aligned())),
                start: spot.depth,
                digits: skip.len(),
            };
            self.set_path(op, end);
            let Some(apart) = self.listed_page(end, 0, PageKind::Body)? else {
                return Ok(Way::Into { skip, page: first });
            };
            body = apart;
        }
        let digit = Self::WIDTH.digit(key, end);
        let directory = self.directory(&body);
        let Some(mut entry) = directory.find(&body.fork, digit) else { return Ok(Way::Here) };
        if body.fork.has_value() {
            return Ok(Way::Here);
        }
        let (bits, mut home, mut group) = (directory.entry(entry).group, body, None);
        if bits != 0 {
            self.set_path(op, end);
            Self::WIDTH.append(&mut self.open.path, end, digit);
            let cut = usize::from(bits);
            let Some(listing) = self.listed_page(end, cut, PageKind::Group)? else {
                return Ok(Way::Here);
            };
            let Some(found) = self.find_in_group(&body, (listing, bits), digit) else {
                return Ok(Way::Here);
            };
            (entry, home, group) = (found, listing, Some((listing, bits)));
        }
        let directory = self.directory(&home);
        let below = Next {
            child: directory.child(entry, home.segment, home.page),
            spot: Spot { depth: end + 1, digit, owned: spot.owned },
            fork: directory.fork_of(entry),
        };
        let pages = (first, self.open.seg.pages.len() as u32);
        let (depth, end) = (spot.depth as u32, end as u32);
        self.steps.push(Step { digit: spot.digit, depth, end, body, group, pages });
        Ok(Way::On(below))
    }

    /// Opens the page at the current path, if it has a directory.
    fn listed_page(
        &mut self,
        digits: usize,
        bits: usize,
        kind: PageKind,
    ) -> Result<Option<Listing>, Halt> {
        let page = self.open.page(digits, bits, kind)?;
        let segment = self.open.here;
        let directory = self.opened(segment, page).directory();
        Ok(directory.map(|directory| Listing { segment, page, fork: *directory.whole() }))
    }

    /// Where a child is in its group; nothing if the group does not hold just what its branch says.
    fn find_in_group(
        &self,
        body: &Listing,
        (group, bits): (Listing, u8),
        digit: u8,
    ) -> Option<usize> {
        let (named, held) = (self.directory(body), self.directory(&group));
        let rest = S::DIGIT_BITS - bits;
        let digits = |directory: &Directory<_>, index| directory.entry(index).digit;
        let members = body.fork.children().filter(|&index| {
            let entry = named.entry(index);
            entry.group == bits && entry.digit >> rest == digit >> rest
        });
        let same = members
            .map(|index| digits(named, index))
            .eq(group.fork.children().map(|index| digits(held, index)));
        let found = held.find(&group.fork, digit)?;
        let plain = held.entry(found).group == 0 && !group.fork.has_value();
        (same && plain).then_some(found)
    }

    fn opened(&self, segment: u32, page: u32) -> &OpenPage<S::Commit> {
        &self.open.chain().segment(segment).pages[page as usize]
    }

    fn directory(&self, listing: &Listing) -> &Directory<S::Commit> {
        let open = self.opened(listing.segment, listing.page);
        open.directory().expect("a branch is listed in it")
    }

    /// Makes the branches of the steps from `from` on anew over what became of the child below them.
    pub(super) fn come_up(
        &mut self,
        from: usize,
        op: usize,
        outcome: Outcome,
    ) -> Result<Outcome, TreeError> {
        let mut child = match outcome {
            Outcome::Now(child) => child,
            Outcome::Same => {
                self.steps.truncate(from);
                return Ok(Outcome::Same);
            }
            Outcome::Gone => unreachable!("a put removes nothing"),
        };
        while self.steps.len() > from {
            let step = self.steps.pop().expect("there is one more");
            child = self.remake(&step, child, op);
        }
        Ok(Outcome::Now(child))
    }

    /// A branch with one child made anew.
    fn remake(&mut self, step: &Step, child: Child, op: usize) -> Child {
        let height = self.height(&child) + 1;
        let bytes = (step.end as usize).div_ceil(Self::WIDTH.per_byte());
        let path = self.ops.place(self.op(op).key).first(bytes);
        let children = self.list(step, &child);
        self.retire(step.pages.0 as usize..step.pages.1 as usize);
        let (depth, fork) = (step.depth, step.end);
        let (was, changes) = (Was::NOTHING, Span { at: 0, len: 0 });
        let body = Body::Branch(Branch { path, depth, fork, children, value: None, was, changes });
        let link = self.push_node(body, height);
        Child { link, commit: Child::NOWHERE, digit: step.digit, terminal: false }
    }

    /// Appends the children of a branch to the segment's, `new` among them.
    fn list(&mut self, step: &Step, new: &Child) -> Span {
        let (older, here) = (self.open.older, self.open.here);
        let Segment { pages, children, .. } = &mut *self.open.seg;
        let directory = |listing: &Listing| {
            let page = listing.page as usize;
            let open = match listing.segment {
                segment if segment == here => &pages[page],
                segment => &older[segment as usize].pages[page],
            };
            open.directory().expect("a branch is listed in it")
        };
        let from = children.len();
        let Listing { segment, page, fork } = step.body;
        let body = directory(&step.body);
        children.extend(fork.children().map(|index| body.child(index, segment, page)));
        if let Some((group, bits)) = &step.group {
            let rest = S::DIGIT_BITS - bits;
            let in_group = |child: &&mut Child| {
                matches!(child.link, Link::Group { bits: b, .. } if b == *bits)
                    && child.digit >> rest == new.digit >> rest
            };
            let held = directory(group);
            let members = children[from..].iter_mut().filter(in_group);
            for (child, index) in members.zip(group.fork.children()) {
                *child = held.child(index, group.segment, group.page);
            }
        }
        let at = children[from..].binary_search_by_key(&new.digit, |child| child.digit);
        children[from + at.expect("the way leads to a child")] = *new;
        Span::new(from, children.len() - from)
    }
}
