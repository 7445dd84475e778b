//! Committing to the nodes that a batch made, level by level, lowest first.
//!
//! A level is all nodes of one height, wherever they hang: leaves of every depth commit in one
//! call, so that hashing fills its lanes. Before the first level those untouched leaves beside
//! them are committed to whose commitment pages do not keep; what came of that is kept beside their
//! items.

use std::iter::once;
use std::sync::Arc;

use crate::error::TreeError;
use crate::image::Codec;
use crate::node::{Arena, Chain, Fate, ForkValue, Made, Node, PageRef, Previous, TouchedChild};
use crate::page::{IndexEntry, Page, corrupt};
use crate::scheme::{BranchJob, ChildChange, Children, JobKey, LeafJob, Scheme};
use spinney_proof::digits::Run;

/// How many nodes a scheme commits to in one call: enough to fill every lane, few enough that their
/// bytes stay in the cache.
const CHUNK: usize = 1_024;
/// How much of a stored node is fetched for what it commits to.
const KEPT_BYTES: usize = 160;
const LINE_BYTES: usize = 64;

/// Buffers kept from one batch to the next.
#[derive(Debug)]
pub(crate) struct Levels<S: Scheme> {
    nodes: Vec<u32>,
    siblings: Vec<Sibling>,
    ranks: Ranks,
    out: Vec<S::Commit>,
    scratch: S::Scratch,
}

impl<S: Scheme> Default for Levels<S> {
    fn default() -> Self {
        Self {
            nodes: Vec::new(),
            siblings: Vec::new(),
            ranks: Ranks::default(),
            out: Vec::new(),
            scratch: S::Scratch::default(),
        }
    }
}

/// Nodes sorted by rank, by counting.
#[derive(Debug, Default)]
pub(crate) struct Ranks {
    order: Vec<u32>,
    /// Where each rank ends in `order`.
    ends: Vec<u32>,
}

impl Ranks {
    /// Sorts nodes 0, 1, 2 .. of these ranks.
    pub(crate) fn sort(&mut self, ranks: impl ExactSizeIterator<Item = usize> + Clone) {
        self.ends.clear();
        for rank in ranks.clone() {
            if self.ends.len() <= rank {
                self.ends.resize(rank + 1, 0);
            }
            self.ends[rank] += 1;
        }
        let mut next = 0;
        for end in &mut self.ends {
            next += std::mem::replace(end, next);
        }
        self.order.clear();
        self.order.resize(ranks.len(), 0);
        for (node, rank) in (0..).zip(ranks) {
            let at = &mut self.ends[rank];
            self.order[*at as usize] = node;
            *at += 1;
        }
    }

    /// The ranks are all below this.
    pub(crate) const fn count(&self) -> usize {
        self.ends.len()
    }

    /// The nodes of a rank.
    pub(crate) fn of(&self, rank: usize) -> &[u32] {
        let from = rank.checked_sub(1).map_or(0, |below| self.ends[below]);
        &self.order[from as usize..self.ends[rank] as usize]
    }
}

/// Nodes of one rank commit in one call: leaves of a height, then its branches.
const fn rank(node: &Node) -> usize {
    node.height as usize * 2 + node.is_branch() as usize
}

/// A stored leaf that is to be committed to, though nothing changed in it: its page and entry,
/// and its parent.
#[derive(Clone, Copy, Debug)]
struct Sibling {
    page: PageRef,
    entry: u16,
    parent: u32,
}

impl<S: Scheme> Levels<S> {
    /// Commits to the nodes from a number on of an arena, which is `here` in its chain. Each by
    /// itself, if they are the way of one operation.
    pub(crate) fn run(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Arena<S::Commit>>],
        (here, arena): (u32, &mut Arena<S::Commit>),
        (from, alone): (u32, bool),
    ) -> Result<(), TreeError> {
        self.nodes.clear();
        for (number, node) in (from..).zip(&arena.nodes[from as usize..]) {
            if node.fate == Fate::Made && arena.commits[number as usize].is_none() {
                self.nodes.push(number);
            }
        }
        self.siblings.clear();
        if !Codec::<S>::DELTAS {
            let chain = Chain { older, last: Some((here, arena)) };
            for &number in &self.nodes {
                note_siblings(chain, here, number, &mut self.siblings);
            }
        }
        self.commit_siblings(codec, Chain { older, last: Some((here, arena)) })?;
        if alone {
            for index in (0..self.nodes.len()).rev() {
                let node = self.nodes[index];
                self.out.clear();
                let chain = Chain { older, last: Some((here, arena)) };
                let (scheme, scratch, out) = (codec.scheme, &mut self.scratch, &mut self.out);
                if arena.nodes[node as usize].is_branch() {
                    let job = branch_job(codec, chain, here, node);
                    scheme.commit_branches(once(job), scratch, out);
                } else {
                    let job = leaf_job(codec, chain, here, node);
                    scheme.commit_leaves(once(job), scratch, out);
                }
                arena.commits[node as usize] = self.out.first().copied();
            }
            return Ok(());
        }
        let nodes = std::mem::take(&mut self.nodes);
        self.ranks.sort(nodes.iter().map(|&node| rank(&arena.nodes[node as usize])));
        for rank in 0..self.ranks.count() {
            self.commit_level(codec, older, (here, arena), (&nodes, rank));
        }
        self.nodes = nodes;
        Ok(())
    }

    /// Commits to stored leaves, and notes beside their items what they commit to.
    fn commit_siblings(
        &mut self,
        codec: Codec<'_, S>,
        chain: Chain<'_, S::Commit>,
    ) -> Result<(), TreeError> {
        for part in self.siblings.chunks(CHUNK) {
            self.out.clear();
            let mut failed = None;
            let jobs = part.iter().map_while(|sibling| match sibling_job(codec, chain, sibling) {
                Ok(job) => Some(job),
                Err(error) => {
                    failed = Some(error);
                    None
                }
            });
            codec.scheme.commit_leaves(jobs, &mut self.scratch, &mut self.out);
            if let Some(failed) = failed {
                return Err(failed);
            }
            for (sibling, commit) in part.iter().zip(&self.out) {
                chain.page(sibling.page).learn(sibling.entry, *commit);
            }
        }
        Ok(())
    }

    fn commit_level(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Arena<S::Commit>>],
        (here, arena): (u32, &mut Arena<S::Commit>),
        (nodes, rank): (&[u32], usize),
    ) {
        for part in self.ranks.of(rank).chunks(CHUNK) {
            self.out.clear();
            let chain = Chain { older, last: Some((here, arena)) };
            if Codec::<S>::DELTAS {
                fetch_before(chain, here, part.iter().map(|&place| nodes[place as usize]));
            }
            let (scheme, scratch, out) = (codec.scheme, &mut self.scratch, &mut self.out);
            let numbers = part.iter().map(|&place| nodes[place as usize]);
            let Some(first) = numbers.clone().next() else { continue };
            if arena.nodes[first as usize].is_branch() {
                let jobs = numbers.clone().map(|node| branch_job(codec, chain, here, node));
                scheme.commit_branches(jobs, scratch, out);
            } else {
                let jobs = numbers.clone().map(|node| leaf_job(codec, chain, here, node));
                scheme.commit_leaves(jobs, scratch, out);
            }
            assert_eq!(out.len(), part.len(), "a scheme commits to every job");
            for (node, commit) in numbers.zip(&*out) {
                arena.commits[node as usize] = Some(*commit);
            }
        }
    }
}

/// The children of a touched branch: those that are stored, but for those that are listed.
#[derive(Debug)]
pub(crate) struct Touched<'a, S: Scheme> {
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    page: Option<&'a Page<S::Commit>>,
    stored: &'a [IndexEntry],
    changes: &'a [TouchedChild],
    /// The digit at which the runs of children begin.
    start: usize,
    /// What the branch stands for, if the scheme asks.
    before: Option<&'a Previous>,
}

impl<S: Scheme> Clone for Touched<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Scheme> Copy for Touched<'_, S> {}

impl<S: Scheme> Touched<'_, S> {
    /// What a stored child commits to.
    #[inline(always)]
    fn stored(&self, entry: &IndexEntry) -> S::Commit {
        let commit = self.page.and_then(|page| page.commit(self.codec, entry, self.start));
        commit.expect("siblings commit before parents")
    }
}

/// A child's digit and what it commits to.
impl<S: Scheme> Iterator for Touched<'_, S> {
    type Item = (u8, S::Commit);

    #[inline]
    fn next(&mut self) -> Option<(u8, S::Commit)> {
        loop {
            let stored = self.stored.first();
            if let Some((change, changes)) = self.changes.split_first()
                && stored.is_none_or(|entry| change.digit <= entry.digit)
            {
                self.changes = changes;
                if stored.is_some_and(|entry| change.digit == entry.digit) {
                    self.stored = &self.stored[1..];
                }
                if change.made.is_something() {
                    return Some((change.digit, self.chain.commit(change.made)));
                }
                continue;
            }
            let (entry, rest) = self.stored.split_first()?;
            self.stored = rest;
            return Some((entry.digit, self.stored(entry)));
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count =
            |is: fn(&TouchedChild) -> bool| self.changes.iter().filter(|change| is(change)).count();
        let made = count(|change| change.made.is_something());
        let len = self.stored.len() + made - count(TouchedChild::stands);
        (len, Some(len))
    }
}

impl<S: Scheme> ExactSizeIterator for Touched<'_, S> {}

impl<S: Scheme> Children<S::Commit> for Touched<'_, S> {
    #[inline]
    fn iter(&self) -> impl ExactSizeIterator<Item = (u8, S::Commit)> {
        *self
    }

    #[inline(always)]
    fn pair(&self) -> Option<[S::Commit; 2]> {
        let [first, second] = match (self.stored, self.changes) {
            ([left, right], [change]) if change.stands() && change.made.is_something() => {
                let commit = self.chain.commit(change.made);
                if change.digit == left.digit {
                    [(change.digit, commit), (right.digit, self.stored(right))]
                } else {
                    [(left.digit, self.stored(left)), (change.digit, commit)]
                }
            }
            _ => {
                let mut all = *self;
                let pair = [all.next()?, all.next()?];
                if all.next().is_some() {
                    return None;
                }
                pair
            }
        };
        (first.0 == 0 && second.0 == 1).then_some([first.1, second.1])
    }

    fn changes(&self) -> Option<(S::Commit, impl Iterator<Item = ChildChange<S::Commit>>)> {
        let Self { codec, chain, changes, start, .. } = *self;
        let before = self.before?;
        let previous = chain.commit_of(codec, before.link, before.depth as usize)?;
        let fresh = changes.iter().filter(|change| change.fresh);
        let changes = fresh.map(move |change| {
            let old = chain.commit_before(codec, before.link, change, start);
            let new = change.made.is_something().then(|| chain.commit(change.made));
            (change.digit, old, new)
        });
        Some((previous, changes))
    }
}

/// Notes the stored children of a branch whose commitments are to be computed.
#[inline]
fn note_siblings<C: Copy>(chain: Chain<'_, C>, here: u32, parent: u32, out: &mut Vec<Sibling>) {
    let node = chain.node(Made { arena: here, node: parent });
    if !node.is_branch() || node.base == PageRef::NOWHERE {
        return;
    }
    let page = chain.page(node.base);
    let mut changes = chain.changes(here, node);
    for (entry, stored) in (node.within.from..).zip(page.entries(node.within)) {
        while let Some((change, rest)) = changes.split_first()
            && change.digit < stored.digit
        {
            changes = rest;
        }
        let is_listed = changes.first().is_some_and(|change| change.digit == stored.digit);
        if !is_listed && page.is_uncommitted(stored) {
            out.push(Sibling { page: node.base, entry, parent });
        }
    }
}

/// Reads of each commitment that nodes follow by difference a byte of each cache line: so all of
/// them come from memory side by side. The jobs are made one after another, and would wait for
/// each.
fn fetch_before<C: Copy>(chain: Chain<'_, C>, here: u32, nodes: impl Iterator<Item = u32>) {
    let mut sum = 0;
    for node in nodes {
        let node = chain.node(Made { arena: here, node });
        for change in
            chain.changes(here, node).iter().filter(|change| change.fresh && change.stands())
        {
            let page = chain.page(change.page);
            let from = usize::from(page.entry(change.entry).at);
            let bytes = &page.row[from..page.row.len().min(from + KEPT_BYTES)];
            sum = bytes.iter().step_by(LINE_BYTES).fold(sum, |sum, byte| sum ^ byte);
        }
    }
    std::hint::black_box(sum);
}

#[inline(always)]
fn leaf_job<'a, S: Scheme>(
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    here: u32,
    number: u32,
) -> LeafJob<'a, S::Commit> {
    let node = chain.node(Made { arena: here, node: number });
    let key = chain.key(node, Codec::<S>::WIDTH);
    LeafJob {
        key: JobKey::Whole(key),
        suffix: Run::of(key, node.depth as usize, node.fork as usize, Codec::<S>::WIDTH),
        value: chain.bytes(node.value),
        owned: chain.owned(codec, here, node),
        previous: chain.previous_leaf(codec, here, node.previous),
    }
}

#[inline(always)]
pub(crate) fn branch_job<'a, S: Scheme>(
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    here: u32,
    number: u32,
) -> BranchJob<'a, Touched<'a, S>> {
    let node = chain.node(Made { arena: here, node: number });
    let (changes, start) = (chain.changes(here, node), node.fork as usize + 1);
    let page = (node.base != PageRef::NOWHERE).then(|| &**chain.page(node.base));
    let stored = page.map_or(&[][..], |page| page.entries(node.within));
    let before =
        chain.arena(here).previous.get(node.previous as usize).filter(|_| Codec::<S>::DELTAS);
    BranchJob {
        prefix: chain.run(node, Codec::<S>::WIDTH),
        children: Touched { codec, chain, page, stored, changes, start, before },
        value: (node.fork_value != ForkValue::None).then(|| chain.bytes(node.value)),
    }
}

fn sibling_job<'a, S: Scheme>(
    codec: Codec<'_, S>,
    chain: Chain<'a, S::Commit>,
    sibling: &Sibling,
) -> Result<LeafJob<'a, S::Commit>, TreeError> {
    let here = chain.last.map_or(0, |last| last.0);
    let parent = chain.node(Made { arena: here, node: sibling.parent });
    let page: &'a Page<S::Commit> = chain.page(sibling.page);
    let entry = page.entry(sibling.entry);
    let (path, fork) = (chain.key(parent, Codec::<S>::WIDTH), parent.fork as usize);
    let key = JobKey::Below { path, fork, digit: Some(entry.digit) };
    stored_leaf(codec, page, entry, fork + 1, key)
}

/// A leaf in a page, to commit to: its bytes lie there, else it would carry its commitment.
pub(crate) fn stored_leaf<'a, S: Scheme>(
    codec: Codec<'_, S>,
    page: &'a Page<S::Commit>,
    entry: &IndexEntry,
    start: usize,
    key: JobKey<'a>,
) -> Result<LeafJob<'a, S::Commit>, TreeError> {
    let Some((suffix, value)) = page.inline_leaf(codec, entry, start) else {
        return Err(corrupt(&page.key, "an overflowed leaf has no commitment"));
    };
    let owned = match entry.owns() {
        true => Some(page.owned(codec, entry.within().from)?),
        false => None,
    };
    Ok(LeafJob { key, suffix, value: &page.row[value], owned, previous: None })
}
