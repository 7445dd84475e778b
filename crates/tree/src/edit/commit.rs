//! Committing to what a walk passed, level by level, lowest first.

use std::time::Instant;

use super::{Body, Desk, Edits, Halt, Kid, NONE, Node, Sheet, Sibling, Walk, Walked};
use crate::batch::{Op, OpKind};
use crate::cache::Pages;
use crate::digits::Run;
use crate::image::Codec;
use crate::open::{stored_owned, stored_terminal};
use crate::outline::Outline;
use crate::scheme::{BranchJob, Children, JobKey, Owned, Scheme, TerminalJob};

/// So many jobs ahead of a branch its children are asked for.
const JOBS_AHEAD: usize = 4;

/// What jobs are made of.
struct View<'a, S: Scheme> {
    codec: Codec<'a, S>,
    pages: &'a Pages<S::Commit>,
    ops: &'a [Op],
    bytes: &'a [u8],
    walked: &'a [Walked],
    nodes: &'a [Node],
    kids: &'a [Kid],
    commits: &'a [S::Commit],
    others: &'a [Option<S::Commit>],
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
    /// The entries yet to come.
    next: u16,
    end: u16,
    /// Those of them yet to come that operations went on to.
    kids: &'a [Kid],
    nodes: &'a [Node],
    commits: &'a [S::Commit],
}

impl<S: Scheme> Clone for Passed<'_, S> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<S: Scheme> Passed<'_, S> {
    /// The next child's entry and, if it changed, its node's number.
    #[inline]
    fn kid(&mut self) -> Option<(u16, Option<u32>)> {
        let entry = self.next;
        if entry == self.end {
            return None;
        }
        self.next += 1;
        match self.kids.split_first() {
            Some((kid, rest)) if kid.seat == entry => {
                self.kids = rest;
                Some((entry, (kid.node != NONE).then_some(kid.node)))
            }
            _ => Some((entry, None)),
        }
    }

    /// The digits of two children and what these commit to, if there are not more or fewer.
    #[inline(always)]
    pub(crate) fn pair(&self) -> Option<[(u8, S::Commit); 2]> {
        let first = usize::from(self.next);
        let [one, two] = self.outline.entries.get(first..usize::from(self.end))? else {
            return None;
        };
        let known = |entry| {
            let known = self.outline.commit_of(self.codec, self.row, entry);
            known.expect("siblings commit before parents")
        };
        let commit = |kid: Option<&Kid>, entry| match kid
            .and_then(|kid| self.nodes.get(kid.node as usize))
        {
            Some(node) => self.commits[node.commit as usize],
            None => known(entry),
        };
        let commits = match self.kids {
            [kid] if kid.seat == self.next => [commit(Some(kid), one), known(two)],
            [kid] => [known(one), commit(Some(kid), two)],
            kids => [commit(kids.first(), one), commit(kids.get(1), two)],
        };
        Some([(one.digit, commits[0]), (two.digit, commits[1])])
    }

    /// What a child that did not change commits to.
    #[inline]
    fn commit(&self, entry: u16) -> Option<S::Commit> {
        self.outline.commit(self.codec, self.row, entry)
    }
}

/// A child's digit and what it commits to.
impl<S: Scheme> Iterator for Passed<'_, S> {
    type Item = (u8, S::Commit);

    #[inline]
    fn next(&mut self) -> Option<(u8, S::Commit)> {
        let (entry, node) = self.kid()?;
        let commit = match node {
            Some(node) => self.commits[self.nodes[node as usize].commit as usize],
            None => self.commit(entry).expect("siblings commit before parents"),
        };
        Some((self.outline.entries[usize::from(entry)].digit, commit))
    }

    #[inline(always)]
    fn fold<B, F: FnMut(B, Self::Item) -> B>(self, init: B, mut tell: F) -> B {
        let Self { codec, row, outline, nodes, commits, mut kids, .. } = self;
        let entries = usize::from(self.next)..usize::from(self.end);
        (self.next..).zip(&outline.entries[entries]).fold(init, |so_far, (number, entry)| {
            let mut node = None;
            if let Some((kid, rest)) = kids.split_first()
                && kid.seat == number
            {
                (node, kids) = (nodes.get(kid.node as usize), rest);
            }
            let commit = match node {
                Some(node) => commits[node.commit as usize],
                None => {
                    let known = outline.commit_of(codec, row, entry);
                    known.expect("siblings commit before parents")
                }
            };
            tell(so_far, (entry.digit, commit))
        })
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = usize::from(self.end - self.next);
        (left, Some(left))
    }
}

impl<S: Scheme> ExactSizeIterator for Passed<'_, S> {}

impl<'a, S: Scheme> Walk<'a, S> {
    /// Commits to all nodes that are closed, level by level; not if a commitment is of an unusual length.
    pub(super) fn commit(&mut self) -> Result<(), Halt> {
        let start = Instant::now();
        let closed = std::mem::take(&mut self.desk.closed);
        let answer = self.commit_all(&closed);
        self.desk.closed = closed;
        self.desk.closed.clear();
        self.meter.hashed_since(start);
        answer
    }

    fn commit_all(&mut self, closed: &[u32]) -> Result<(), Halt> {
        self.commit_siblings(closed.iter().copied())?;
        let heights = closed.iter().map(|&node| &self.edits.nodes[node as usize]);
        let rank = |node: &Node| node.height as usize * 2 + usize::from(node.body == Body::Fork);
        let mut ranks = std::mem::take(&mut self.desk.ranks);
        ranks.sort(heights.map(rank));
        let answer =
            (0..ranks.count()).try_for_each(|rank| self.commit_level(closed, ranks.of(rank)));
        self.desk.ranks = ranks;
        answer
    }

    /// Commits to the way of one operation, each node upon the one before it. To read the clock would take longer than
    /// to hash one of them.
    pub(super) fn commit_way(&mut self) -> Result<(), Halt> {
        let mut way = (0..self.edits.nodes.len() as u32).rev();
        self.commit_siblings(way.clone())?;
        let mut last = None;
        way.try_for_each(|node| self.commit_one(node, &mut last))
    }

    /// Commits to the terminals beside those that changed: pages keep no commitments to them.
    fn commit_siblings(&mut self, closed: impl Iterator<Item = u32>) -> Result<(), Halt> {
        let mut siblings = std::mem::take(&mut self.desk.siblings);
        let mut learned = std::mem::take(&mut self.desk.learned);
        siblings.clear();
        learned.clear();
        for parent in closed {
            let node = &self.edits.nodes[parent as usize];
            if node.body != Body::Fork || node.known {
                continue;
            }
            let (mut kids, mut all) = (passed(self.view(), node, self.sheet(node.inner)), true);
            let page = node.inner;
            while let Some((entry, node)) = kids.kid() {
                if kids.commit(entry).is_none() {
                    match node {
                        Some(_) => all = false,
                        None => siblings.push(Sibling { page, entry, parent }),
                    }
                }
            }
            if all {
                learned.push(parent);
            }
        }
        let sound = self.learn(&siblings);
        for &parent in learned.iter().filter(|_| sound.is_some()) {
            let node = &self.edits.nodes[parent as usize];
            self.sheet(node.inner).outline.know(node.around());
        }
        (self.desk.siblings, self.desk.learned) = (siblings, learned);
        sound.ok_or(Halt::Not)
    }

    /// Nothing if one of them is malformed.
    fn learn(&mut self, siblings: &[Sibling]) -> Option<()> {
        if siblings.is_empty() {
            return Some(());
        }
        let (view, out, scratch) = self.split();
        let mut sound = true;
        let jobs = siblings.iter().map_while(|sibling| {
            let job = sibling_job(view, sibling);
            sound &= job.is_some();
            job
        });
        view.codec.scheme.commit_terminals(jobs, scratch, out);
        for (Sibling { page, entry, .. }, commit) in siblings.iter().zip(&*out).filter(|_| sound) {
            view.sheet(*page).outline.learn(*entry, *commit);
        }
        sound.then_some(())
    }

    /// Commits to a node. `last` is the page that the children of the last one were in.
    #[inline(always)]
    fn commit_one(
        &mut self,
        number: u32,
        last: &mut Option<(u32, Sheet<'a, S::Commit>)>,
    ) -> Result<(), Halt> {
        let inner = self.edits.nodes[number as usize].inner;
        let sheet = match *last {
            Some((page, sheet)) if page == inner => sheet,
            _ => last.insert((inner, self.sheet(inner))).1,
        };
        let (view, out, scratch) = self.split();
        let node = &view.nodes[number as usize];
        if node.body == Body::Fork {
            let job = branch_job_of(view, node, Children::passed(passed(view, node, sheet)));
            view.codec.scheme.commit_branch(job, scratch, out);
        } else {
            view.codec.scheme.commit_terminal(terminal_job(view, node, sheet), scratch, out);
        }
        let commit = out[0];
        self.keep(number, &commit)
    }

    /// Commits to nodes of one height, named by their places among those that are closed.
    fn commit_level(&mut self, closed: &[u32], level: &[u32]) -> Result<(), Halt> {
        let Some(&first) = level.first() else { return Ok(()) };
        let (view, out, scratch) = self.split();
        let numbers = level.iter().map(|&place| closed[place as usize]);
        let nodes = numbers.clone().map(|number| &view.nodes[number as usize]);
        if view.nodes[closed[first as usize] as usize].body == Body::Fork {
            let mut later = nodes.clone().skip(JOBS_AHEAD);
            let jobs = nodes.map(|n| {
                // Of wide branches the children fill lines that the core's nearest cache has lost.
                if S::DIGIT_BITS > 1
                    && let Some(later) = later.next()
                {
                    let sheet = view.sheet(later.inner);
                    sheet.outline.fetch_commits(sheet.row, later.from..later.end);
                }
                branch_job(view, n)
            });
            view.codec.scheme.commit_branches(jobs, scratch, out);
        } else {
            view.codec.scheme.commit_terminals(
                nodes.map(|n| terminal_job(view, n, view.sheet(n.page))),
                scratch,
                out,
            );
        }
        let out = std::mem::take(&mut self.desk.out);
        let answer = numbers.zip(&out).try_for_each(|(number, commit)| self.keep(number, commit));
        self.desk.out = out;
        answer
    }

    fn keep(&mut self, number: u32, commit: &S::Commit) -> Result<(), Halt> {
        let node = &mut self.edits.nodes[number as usize];
        node.commit = self.commits.len() as u32;
        self.commits.push(*commit);
        if node.kept && Some(self.codec.scheme.encoded_bytes(commit)) != S::COMMIT_BYTES {
            return Err(Halt::Not);
        }
        Ok(())
    }

    fn view(&self) -> View<'_, S> {
        let Walk { codec, pages, ops, bytes, .. } = *self;
        let Edits { nodes, kids, pages: walked, .. } = &*self.edits;
        let others = &self.desk.others;
        View { codec, pages, ops, bytes, walked, nodes, kids, commits: self.commits, others }
    }

    /// What jobs are made of, and what they are committed to with.
    fn split(&mut self) -> (View<'_, S>, &mut Vec<S::Commit>, &mut S::Scratch) {
        let Walk { codec, pages, ops, bytes, .. } = *self;
        let Edits { nodes, kids, pages: walked, .. } = &*self.edits;
        let Desk { others, out, scratch, .. } = &mut *self.desk;
        let commits = &*self.commits;
        let view = View { codec, pages, ops, bytes, walked, nodes, kids, commits, others };
        out.clear();
        (view, out, scratch)
    }
}

impl<'a, S: Scheme> View<'a, S> {
    fn sheet(&self, page: u32) -> Sheet<'a, S::Commit> {
        Sheet::of(self.pages, self.walked, page)
    }

    /// A key that passes a node.
    fn key(&self, node: &Node) -> &'a [u8] {
        &self.bytes[self.ops[node.op as usize].key.range()]
    }

    /// What the two children of a node in a binary tree commit to, if they were gathered.
    #[inline(always)]
    fn two(&self, node: &Node) -> Option<[S::Commit; 2]> {
        let commit =
            |kid: &Kid| Some(self.commits[self.nodes.get(kid.node as usize)?.commit as usize]);
        match self.kids(node) {
            [kid] => {
                let other = (*self.others.get(node.other as usize)?)?;
                let commit = commit(kid)?;
                Some(if kid.digit == 0 { [commit, other] } else { [other, commit] })
            }
            [left, right] => Some([commit(left)?, commit(right)?]),
            _ => None,
        }
    }

    /// The children of a node that operations went on to.
    fn kids(&self, node: &Node) -> &'a [Kid] {
        &self.kids[node.kids.range()]
    }
}

/// The job of a terminal on a page.
fn terminal_job<'a, S: Scheme>(
    view: View<'a, S>,
    node: &Node,
    Sheet { row, outline }: Sheet<'a, S::Commit>,
) -> TerminalJob<'a, S::Commit> {
    let width = Codec::<S>::WIDTH;
    let key = &view.key(node)[..node.fork as usize / width.per_byte()];
    let suffix = Run::of(key, node.depth as usize, node.fork as usize, width);
    let payload = match view.ops[node.op as usize].kind {
        OpKind::Put(value) if node.body == Body::Value => &view.bytes[value.range()],
        _ => &row[usize::from(node.payload)..][..usize::from(node.len)],
    };
    let owned = (node.from < node.end).then(|| {
        let child = view.kids(node).first();
        match child.and_then(|kid| view.nodes.get(kid.node as usize)) {
            Some(child) => Owned::Commit(view.commits[child.commit as usize]),
            None => {
                let at = outline.owned(&outline.entries[usize::from(node.entry)]);
                stored_owned(view.codec, row, at).expect("an outline was made of it")
            }
        }
    });
    TerminalJob { key: JobKey::Whole(key), suffix, payload, owned, was: None }
}

/// The job of a branch.
#[inline(always)]
fn branch_job<'a, S: Scheme>(view: View<'a, S>, node: &Node) -> BranchJob<'a, S> {
    let two = if S::DIGIT_BITS == 1 { view.two(node) } else { None };
    let children = match two {
        Some(two) => Children::two(two),
        None => Children::passed(passed(view, node, view.sheet(node.inner))),
    };
    branch_job_of(view, node, children)
}

/// The job of a branch with these children.
#[inline(always)]
fn branch_job_of<'a, S: Scheme>(
    view: View<'a, S>,
    node: &Node,
    children: Children<'a, S>,
) -> BranchJob<'a, S> {
    let (depth, fork) = (node.depth as usize, node.fork as usize);
    let skip = Run::of(view.key(node), depth, fork, Codec::<S>::WIDTH);
    BranchJob { skip, children, value: None, changes: None }
}

/// The children of a branch.
#[inline(always)]
fn passed<'a, S: Scheme>(
    view: View<'a, S>,
    node: &Node,
    Sheet { row, outline }: Sheet<'a, S::Commit>,
) -> Passed<'a, S> {
    Passed {
        codec: view.codec,
        row,
        outline,
        next: node.from,
        end: node.end,
        kids: view.kids(node),
        nodes: view.nodes,
        commits: view.commits,
    }
}

fn sibling_job<'a, S: Scheme>(
    view: View<'a, S>,
    sibling: &Sibling,
) -> Option<TerminalJob<'a, S::Commit>> {
    let Sibling { page, entry, parent } = *sibling;
    let sheet = view.sheet(page);
    let entry = sheet.entry(entry);
    let parent = &view.nodes[parent as usize];
    let (path, fork) = (view.key(parent), parent.fork as usize);
    let key = JobKey::Below { path, fork, digit: Some(entry.digit) };
    stored_terminal(view.codec, sheet.row, entry.at.into(), fork + 1, key).ok()
}
