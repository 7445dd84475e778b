//! Committing to what a walk passed, level by level, lowest first.

use std::time::Instant;

use super::{Body, Desk, Editor, Node, Payload, Slot, State};
use crate::digits::Run;
use crate::image::{Codec, MEMBER_COMMIT_AT};
use crate::node::Segment;
use crate::open::stored_terminal;
use crate::scheme::{BranchJob, Children, JobKey, Scheme, TerminalJob};

/// What jobs are made of.
struct View<'a, S: Scheme> {
    codec: Codec<'a, S>,
    seg: &'a Segment<S::Commit>,
    nodes: &'a [Node],
    slots: &'a [Slot],
}

impl<S: Scheme> Clone for View<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Scheme> Copy for View<'_, S> {}

/// The children of a branch that a walk passed.
#[derive(Debug)]
pub(crate) struct Passed<'a, S: Scheme> {
    scheme: &'a S,
    row: &'a [u8],
    slots: &'a [Slot],
    nodes: &'a [Node],
    commits: &'a [S::Commit],
}

impl<S: Scheme> Passed<'_, S> {
    pub(crate) const fn len(&self) -> usize {
        self.slots.len()
    }

    /// A child's digit and what it commits to.
    pub(crate) fn child(&self, index: usize) -> (u8, S::Commit) {
        let slot = &self.slots[index];
        let commit = match slot.state {
            State::Changed(node) => self.commits[self.nodes[node as usize].commit as usize],
            State::Committed(commit) => self.commits[commit as usize],
            State::Same => {
                let kept = &self.row[usize::from(slot.at) + MEMBER_COMMIT_AT..];
                self.scheme.decode_commit(kept).expect("it was skimmed").0
            }
        };
        (slot.digit, commit)
    }
}

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
        for &node in &self.desk.closed {
            if let Body::Fork { slots, count, .. } = self.desk.nodes[node as usize].body {
                let bare = |&slot: &u32| {
                    let slot = &self.desk.slots[slot as usize];
                    slot.terminal && slot.bits == 0 && slot.state == State::Same
                };
                let all = (slots..slots + u32::from(count)).filter(bare);
                siblings.extend(all.map(|slot| (slot, node)));
            }
        }
        let (view, out, scratch) = self.split();
        let mut sound = true;
        let jobs = siblings.iter().map_while(|&(slot, node)| {
            let job = sibling_job(view, slot, node);
            sound &= job.is_some();
            job
        });
        if !siblings.is_empty() {
            view.codec.scheme.commit_terminals(jobs, scratch, out);
        }
        if sound {
            for (&(slot, _), commit) in siblings.iter().zip(&self.desk.out) {
                let state = State::Committed(self.seg.push_commit(*commit));
                self.desk.slots[slot as usize].state = state;
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
        let Desk { nodes, slots, out, scratch, .. } = &mut *self.desk;
        out.clear();
        (View { codec: self.codec, seg: self.seg, nodes, slots }, out, scratch)
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
                None => view.codec.owned_commit(row, usize::from(owned)),
            };
            (payload, Some(owned))
        }
        _ => (put(), None),
    };
    TerminalJob { key: JobKey::Whole(key), suffix, payload, owned, was: None }
}

fn branch_job<S: Scheme>(view: View<'_, S>, node: u32) -> BranchJob<'_, S> {
    let node = &view.nodes[node as usize];
    let Body::Fork { page, slots, count } = node.body else { unreachable!("a level of branches") };
    let slots = &view.slots[slots as usize..][..usize::from(count)];
    let row = &view.seg.pages[page as usize].row[..];
    let (scheme, nodes, commits) = (view.codec.scheme, view.nodes, &view.seg.commits[..]);
    BranchJob {
        skip: Run::of(key(view, node), node.depth as usize, node.fork as usize, Codec::<S>::WIDTH),
        children: Children::passed(Passed { scheme, row, slots, nodes, commits }),
        value: None,
        changes: None,
    }
}

fn sibling_job<S: Scheme>(
    view: View<'_, S>,
    slot: u32,
    node: u32,
) -> Option<TerminalJob<'_, S::Commit>> {
    let (slot, node) = (&view.slots[slot as usize], &view.nodes[node as usize]);
    let row = &view.seg.pages[slot.page as usize].row;
    let (fork, digit) = (node.fork as usize, Some(slot.digit));
    let key = JobKey::Below { path: key(view, node), fork, digit };
    stored_terminal(view.codec, row, usize::from(slot.at), fork + 1, key).ok()
}
