//! Committing to what a walk passed, level by level, lowest first.

use std::ops::Range;
use std::time::Instant;

use super::{Body, Desk, Editor, Node, Payload, Sibling};
use crate::digits::Run;
use crate::image::Codec;
use crate::node::Segment;
use crate::open::stored_terminal;
use crate::outline::Outline;
use crate::scheme::{BranchJob, Children, JobKey, Scheme, TerminalJob};

/// What jobs are made of.
struct View<'a, S: Scheme> {
    codec: Codec<'a, S>,
    seg: &'a Segment<S::Commit>,
    nodes: &'a [Node],
    closed: &'a [u32],
    outlines: &'a [Outline<S::Commit>],
}

impl<S: Scheme> Clone for View<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Scheme> Copy for View<'_, S> {}

/// The children of a branch that a walk passed: some entries of an outline.
#[derive(Debug)]
pub(crate) struct Passed<'a, S: Scheme> {
    codec: Codec<'a, S>,
    row: &'a [u8],
    outline: &'a Outline<S::Commit>,
    entries: Range<u16>,
    /// The child that changed and is next.
    changed: u32,
    nodes: &'a [Node],
    commits: &'a [S::Commit],
}

impl<S: Scheme> Clone for Passed<'_, S> {
    fn clone(&self) -> Self {
        Self { entries: self.entries.clone(), ..*self }
    }
}

impl<'a, S: Scheme> Passed<'a, S> {
    /// The next child's entry and, if it changed, its node.
    fn kid(&mut self) -> Option<(u16, Option<&'a Node>)> {
        let entry = self.entries.next()?;
        let changed = self.nodes.get(self.changed as usize).filter(|node| node.seat == entry);
        if let Some(changed) = changed {
            self.changed = changed.next;
        }
        Some((entry, changed))
    }

    /// What a child that did not change commits to.
    fn commit(&self, entry: u16) -> Option<S::Commit> {
        self.outline.commit(self.codec, self.row, entry)
    }
}

/// A child's digit and what it commits to.
impl<S: Scheme> Iterator for Passed<'_, S> {
    type Item = (u8, S::Commit);

    fn next(&mut self) -> Option<(u8, S::Commit)> {
        let (entry, node) = self.kid()?;
        let commit = match node {
            Some(node) => self.commits[node.commit as usize],
            None => self.commit(entry).expect("siblings commit before parents"),
        };
        Some((self.outline.entries[usize::from(entry)].digit, commit))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl<S: Scheme> ExactSizeIterator for Passed<'_, S> {}

impl<S: Scheme> Editor<'_, S> {
    /// Commits to all nodes that are closed; nothing if a commitment is not of the usual length.
    pub(super) fn commit(&mut self) -> Option<()> {
        let start = Instant::now();
        let answer = self.commit_closed();
        self.meter.hashed_since(start);
        answer
    }

    fn commit_closed(&mut self) -> Option<()> {
        self.commit_siblings()?;
        let closed = std::mem::take(&mut self.desk.closed);
        let heights = || closed.iter().map(|&node| &self.desk.nodes[node as usize]);
        let answer = if (0..).zip(heights()).all(|(index, node)| node.height == index) {
            closed.iter().try_for_each(|&node| self.commit_one(node))
        } else {
            let rank = |node: &Node| {
                node.height as usize * 2 + usize::from(matches!(node.body, Body::Fork { .. }))
            };
            let mut ranks = std::mem::take(&mut self.desk.ranks);
            ranks.sort(heights().map(rank));
            let answer =
                (0..ranks.count()).try_for_each(|rank| self.commit_level(&closed, ranks.of(rank)));
            self.desk.ranks = ranks;
            answer
        };
        self.desk.closed = closed;
        self.desk.closed.clear();
        answer
    }

    /// Commits to the terminals beside those that changed: pages keep no commitments to them.
    fn commit_siblings(&mut self) -> Option<()> {
        let mut siblings = std::mem::take(&mut self.desk.siblings);
        siblings.clear();
        let (view, out, scratch) = self.split();
        for &parent in view.closed {
            if let Body::Fork { page, .. } = view.nodes[parent as usize].body {
                let mut kids = passed(view, parent);
                while let Some((entry, node)) = kids.kid() {
                    if node.is_none() && kids.commit(entry).is_none() {
                        siblings.push(Sibling { page, entry, parent });
                    }
                }
            }
        }
        let mut sound = true;
        let jobs = siblings.iter().map_while(|sibling| {
            let job = sibling_job(view, sibling);
            sound &= job.is_some();
            job
        });
        if !siblings.is_empty() {
            view.codec.scheme.commit_terminals(jobs, scratch, out);
        }
        if sound {
            for (Sibling { page, entry, .. }, commit) in siblings.iter().zip(&*out) {
                view.outlines[*page as usize].learn(*entry, *commit);
            }
        }
        self.desk.siblings = siblings;
        sound.then_some(())
    }

    fn commit_one(&mut self, node: u32) -> Option<()> {
        let (view, out, scratch) = self.split();
        if let Body::Fork { .. } = view.nodes[node as usize].body {
            view.codec.scheme.commit_branch(branch_job(view, node), scratch, out);
        } else {
            view.codec.scheme.commit_terminal(terminal_job(view, node), scratch, out);
        }
        let commit = out[0];
        self.keep(node, &commit)
    }

    /// Commits to nodes of one height, named by their places among those that are closed.
    fn commit_level(&mut self, closed: &[u32], level: &[u32]) -> Option<()> {
        let Some(&first) = level.first() else { return Some(()) };
        let (view, out, scratch) = self.split();
        let nodes = level.iter().map(|&place| closed[place as usize]);
        if let Body::Fork { .. } = view.nodes[closed[first as usize] as usize].body {
            let jobs = nodes.clone().map(|node| branch_job(view, node));
            view.codec.scheme.commit_branches(jobs, scratch, out);
        } else {
            let jobs = nodes.clone().map(|node| terminal_job(view, node));
            view.codec.scheme.commit_terminals(jobs, scratch, out);
        }
        let out = std::mem::take(&mut self.desk.out);
        let answer = nodes.zip(&out).try_for_each(|(node, commit)| self.keep(node, commit));
        self.desk.out = out;
        answer
    }

    fn keep(&mut self, node: u32, commit: &S::Commit) -> Option<()> {
        let place = self.seg.push_commit(*commit);
        let node = &mut self.desk.nodes[node as usize];
        node.commit = place;
        let usual = !node.kept || Some(self.codec.scheme.encoded_bytes(commit)) == S::COMMIT_BYTES;
        usual.then_some(())
    }

    /// What jobs are made of, and what they are committed to with.
    fn split(&mut self) -> (View<'_, S>, &mut Vec<S::Commit>, &mut S::Scratch) {
        let Desk { nodes, closed, outlines, out, scratch, .. } = &mut *self.desk;
        out.clear();
        (View { codec: self.codec, seg: self.seg, nodes, closed, outlines }, out, scratch)
    }
}

fn key<'a, S: Scheme>(view: View<'a, S>, node: &Node) -> &'a [u8] {
    &view.seg.bytes[view.seg.ops[node.op as usize].key.range()]
}

fn terminal_job<S: Scheme>(view: View<'_, S>, node: u32) -> TerminalJob<'_, S::Commit> {
    let node = &view.nodes[node as usize];
    let key = &key(view, node)[..node.fork as usize / Codec::<S>::WIDTH.per_byte()];
    let suffix = Run::of(key, node.depth as usize, node.fork as usize, Codec::<S>::WIDTH);
    let put = || view.seg.value_of(node.op as usize);
    let (payload, owned) = match node.body {
        Body::Owner { page, payload, owned, child } => {
            let row = &view.seg.pages[page as usize].row;
            let payload = match payload {
                Payload::Put => put(),
                Payload::Stored { at, len } => &row[usize::from(at)..][..usize::from(len)],
            };
            let owned = match child {
                Some(child) => view.seg.commits[view.nodes[child as usize].commit as usize],
                None => view.outlines[page as usize]
                    .commit(view.codec, row, owned)
                    .expect("what is owned carries it"),
            };
            (payload, Some(owned))
        }
        _ => (put(), None),
    };
    TerminalJob { key: JobKey::Whole(key), suffix, payload, owned, was: None }
}

fn branch_job<S: Scheme>(view: View<'_, S>, node: u32) -> BranchJob<'_, S> {
    let children = Children::passed(passed(view, node));
    let node = &view.nodes[node as usize];
    let (depth, fork) = (node.depth as usize, node.fork as usize);
    let skip = Run::of(key(view, node), depth, fork, Codec::<S>::WIDTH);
    BranchJob { skip, children, value: None, changes: None }
}

/// The children of a branch.
fn passed<S: Scheme>(view: View<'_, S>, node: u32) -> Passed<'_, S> {
    let Node { body, first, .. } = view.nodes[node as usize];
    let Body::Fork { page, from, end, .. } = body else { unreachable!("a level of branches") };
    Passed {
        codec: view.codec,
        row: &view.seg.pages[page as usize].row,
        outline: &view.outlines[page as usize],
        entries: from..end,
        changed: first,
        nodes: view.nodes,
        commits: &view.seg.commits,
    }
}

fn sibling_job<'a, S: Scheme>(
    view: View<'a, S>,
    sibling: &Sibling,
) -> Option<TerminalJob<'a, S::Commit>> {
    let Sibling { page, entry, parent } = *sibling;
    let entry = &view.outlines[page as usize].entries[usize::from(entry)];
    let parent = &view.nodes[parent as usize];
    let row = &view.seg.pages[page as usize].row;
    let fork = parent.fork as usize;
    let key = JobKey::Below { path: key(view, parent), fork, digit: Some(entry.digit) };
    stored_terminal(view.codec, row, entry.at.into(), fork + 1, key).ok()
}
