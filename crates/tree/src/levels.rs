//! Committing to the nodes that a batch made, level by level, lowest first.
//!
//! A level is all nodes of one height, wherever they hang: leaves of every depth commit in one call, so
//! that hashing fills its lanes. Large levels are split over the cores; a handful of nodes wakes no
//! thread. Beside the new nodes, level 0 holds the untouched sibling terminals
//! whose commitment pages do not keep.

use std::sync::Arc;

use rayon::prelude::*;

use crate::error::TreeError;
use crate::image::{Codec, SUM_BYTES};
use crate::node::{Body, Branch, Chain, Child, Kids, Link, Segment};
use crate::open::{corrupt, stored_terminal};
use crate::scheme::{BranchJob, Changes, Children, JobKey, Scheme, TerminalJob};

/// How many nodes a scheme commits to in one call: enough to fill every lane, few enough that their
/// bytes stay in the cache.
const CHUNK: usize = 1_024;
/// A level of fewer nodes is committed to on the caller's thread.
const PARALLEL_NODES_MIN: usize = 4 * CHUNK;

/// How much of a stored node is fetched for what it commits to.
const KEPT_BYTES: usize = 160;

/// Buffers kept from one batch to the next.
#[derive(Debug)]
pub(crate) struct Levels<S: Scheme> {
    ranks: Ranks,
    out: Vec<S::Commit>,
    scratch: S::Scratch,
}

impl<S: Scheme> Default for Levels<S> {
    fn default() -> Self {
        Self { ranks: Ranks::default(), out: Vec::new(), scratch: S::Scratch::default() }
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

/// Nodes of one rank commit in one call: terminals of a height, then its branches.
const fn rank(height: u32, body: &Body) -> usize {
    height as usize * 2 + matches!(body, Body::Branch(_)) as usize
}

impl<S: Scheme> Levels<S> {
    /// Commits to all nodes of `seg`, which is segment `here` of its chain.
    pub(crate) fn run(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Segment<S::Commit>>],
        here: u32,
        seg: &mut Segment<S::Commit>,
    ) -> Result<(), TreeError> {
        self.commit_siblings(codec, older, here, seg)?;
        // The path of one operation: each node stands on the one before it.
        if (0..).zip(&seg.nodes).all(|(index, node)| node.height == index) {
            self.commit_path(codec, older, here, seg);
            return Ok(());
        }
        self.ranks.sort(seg.nodes.iter().map(|node| rank(node.height, &node.body)));
        (0..self.ranks.count())
            .try_for_each(|rank| self.commit_level(codec, older, here, seg, rank))
    }

    fn commit_path(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Segment<S::Commit>>],
        here: u32,
        seg: &mut Segment<S::Commit>,
    ) {
        for node in 0..seg.nodes.len() as u32 {
            self.out.clear();
            let chain = Chain { older, last: Some((here, seg)) };
            let (scheme, scratch, out) = (codec.scheme, &mut self.scratch, &mut self.out);
            match seg.nodes[node as usize].body {
                Body::Terminal(_) => {
                    scheme.commit_terminal(terminal_job(codec, chain, here, node), scratch, out);
                }
                Body::Branch(_) => {
                    scheme.commit_branch(branch_job(codec, chain, here, node), scratch, out);
                }
            }
            seg.nodes[node as usize].commit = Some(out[0]);
        }
    }

    fn commit_siblings(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Segment<S::Commit>>],
        here: u32,
        seg: &mut Segment<S::Commit>,
    ) -> Result<(), TreeError> {
        if seg.siblings.is_empty() {
            return Ok(());
        }
        let chain = Chain { older, last: Some((here, seg)) };
        in_chunks::<S, _>(
            &seg.siblings,
            &mut self.scratch,
            &mut self.out,
            |part, scratch, out| {
                let mut failed = None;
                let jobs = part.iter().map_while(|&(child, parent)| {
                    match sibling_job(codec, chain, here, child, parent) {
                        Ok(job) => Some(job),
                        Err(error) => {
                            failed = Some(error);
                            None
                        }
                    }
                });
                codec.scheme.commit_terminals(jobs, scratch, out);
                failed.map_or(Ok(()), Err)
            },
        )?;
        let Segment { siblings, children, slots, nodes, commits, .. } = seg;
        for (&(child, parent), commit) in siblings.iter().zip(&self.out) {
            let beside = match &nodes[parent as usize].body {
                Body::Branch(Branch { children: Kids::Patched(_), .. }) => {
                    &mut slots[child as usize].beside
                }
                _ => &mut children[child as usize].commit,
            };
            *beside = commits.len() as u32;
            commits.push(*commit);
        }
        Ok(())
    }

    fn commit_level(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Segment<S::Commit>>],
        here: u32,
        seg: &mut Segment<S::Commit>,
        rank: usize,
    ) -> Result<(), TreeError> {
        let chain = Chain { older, last: Some((here, seg)) };
        let nodes = self.ranks.of(rank);
        if nodes.is_empty() {
            return Ok(());
        }
        let is_terminal = matches!(seg.nodes[nodes[0] as usize].body, Body::Terminal(_));
        in_chunks::<S, _>(nodes, &mut self.scratch, &mut self.out, |part, scratch, out| {
            if S::DELTAS {
                fetch_past(chain, here, part);
            }
            if S::KEEP_TERMINALS {
                fetch_below(chain, here, part);
            }
            if is_terminal {
                let jobs = part.iter().map(|&node| terminal_job(codec, chain, here, node));
                codec.scheme.commit_terminals(jobs, scratch, out);
            } else {
                let jobs = part.iter().map(|&node| branch_job(codec, chain, here, node));
                codec.scheme.commit_branches(jobs, scratch, out);
            }
            Ok(())
        })?;
        assert_eq!(self.out.len(), nodes.len(), "a scheme commits to every job");
        for (&node, commit) in nodes.iter().zip(&self.out) {
            seg.nodes[node as usize].commit = Some(*commit);
        }
        Ok(())
    }
}

/// Commits to a level a chunk at a time, large levels on all cores. The answers are in order.
fn in_chunks<S: Scheme, T: Sync>(
    level: &[T],
    scratch: &mut S::Scratch,
    out: &mut Vec<S::Commit>,
    commit: impl Fn(&[T], &mut S::Scratch, &mut Vec<S::Commit>) -> Result<(), TreeError> + Sync,
) -> Result<(), TreeError> {
    out.clear();
    if level.len() < PARALLEL_NODES_MIN {
        return level.chunks(CHUNK).try_for_each(|part| commit(part, scratch, out));
    }
    let parts: Result<Vec<_>, TreeError> = level
        .par_chunks(CHUNK)
        .map_init(S::Scratch::default, |scratch, part| {
            let mut out = Vec::with_capacity(part.len());
            commit(part, scratch, &mut out)?;
            Ok(out)
        })
        .collect();
    parts?.iter().for_each(|part| out.extend_from_slice(part));
    Ok(())
}

/// Reads of each commitment that nodes follow by difference a byte of each cache line: so all of them come
/// from memory side by side. The jobs are made one after another, and would wait for each.
fn fetch_past<C: Copy>(chain: Chain<'_, C>, here: u32, nodes: &[u32]) {
    const LINE_BYTES: usize = 64;
    let home = chain.segment(here);
    let lines = |child: &Child| match child.link {
        Link::Stored { segment, page, at } => {
            let row = chain.row(segment, page);
            let from = usize::from(at).min(row.len());
            let bytes = &row[from..row.len().min(from + KEPT_BYTES)];
            bytes.iter().step_by(LINE_BYTES).fold(0, |sum, byte| sum ^ byte)
        }
        _ => 0,
    };
    let mut sum = 0;
    for &node in nodes {
        let (was, changes) = match &home.nodes[node as usize].body {
            Body::Terminal(terminal) => (terminal.was, &[][..]),
            Body::Branch(branch) => (branch.was, &home.changes[branch.changes.range()]),
        };
        if let Some(was) = home.was(was) {
            sum ^= lines(&was.node) ^ was.owned.as_ref().map_or(0, lines);
        }
        for old in changes.iter().filter_map(|change| change.old.as_ref()) {
            sum ^= lines(old);
        }
    }
    std::hint::black_box(sum);
}

/// Reads a little of what each node's job reads first, one after another with nothing between: so the nodes'
/// lines and those of what their children commit to come from memory side by side.
fn fetch_below<C: Copy>(chain: Chain<'_, C>, here: u32, nodes: &[u32]) {
    let home = chain.segment(here);
    let mut sum = 0;
    for &node in nodes {
        let Body::Branch(Branch { children: Kids::Listed(span), .. }) =
            home.nodes[node as usize].body
        else {
            continue;
        };
        for child in home.children(span) {
            sum ^= match child.link {
                Link::Made { segment, node } if segment == here => {
                    u32::from(home.nodes[node as usize].commit.is_some())
                }
                Link::Stored { segment, page, at } if !child.is_beside() => {
                    u32::from(chain.row(segment, page)[usize::from(at)])
                }
                _ => 0,
            };
        }
    }
    std::hint::black_box(sum);
}

#[inline(always)]
fn terminal_job<'a, S: Scheme>(
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    here: u32,
    node: u32,
) -> TerminalJob<'a, S::Commit> {
    let Body::Terminal(terminal) = &chain.node(here, node).body else {
        unreachable!("a level of terminals")
    };
    TerminalJob {
        key: JobKey::Whole(chain.bytes(terminal.key)),
        suffix: chain.suffix(terminal, Codec::<S>::WIDTH),
        payload: chain.bytes(terminal.payload),
        owned: terminal.owned.map(|child| chain.owned(codec, here, &child)),
        was: chain.was_terminal(codec, here, terminal.was),
    }
}

#[inline(always)]
fn branch_job<'a, S: Scheme>(
    codec: Codec<'a, S>,
    chain: Chain<'a, S::Commit>,
    here: u32,
    node: u32,
) -> BranchJob<'a, S> {
    let Body::Branch(branch) = &chain.node(here, node).body else {
        unreachable!("a level of branches")
    };
    let home = chain.segment(here);
    let children = match &branch.children {
        Kids::Listed(span) => Children::of(codec.scheme, chain, here, home.children(*span)),
        Kids::Patched(patch) => Children::patched(codec.scheme, chain, here, patch),
    };
    let changes = home.was(branch.was).map(|was| Changes {
        was: chain.commit(codec, here, &was.node),
        scheme: codec.scheme,
        chain,
        home: here,
        list: &home.changes[branch.changes.range()],
    });
    BranchJob {
        changes,
        skip: chain.skip(branch, Codec::<S>::WIDTH),
        children,
        value: branch.value.map(|value| chain.bytes(value)),
    }
}

/// A terminal in an opened page, to commit to: its bytes lie in the page, else it would carry its
/// commitment.
fn sibling_job<'a, S: Scheme>(
    codec: Codec<'_, S>,
    chain: Chain<'a, S::Commit>,
    here: u32,
    child: u32,
    parent: u32,
) -> Result<TerminalJob<'a, S::Commit>, TreeError> {
    let Body::Branch(parent) = &chain.node(here, parent).body else {
        unreachable!("only branches have siblings")
    };
    let home = chain.segment(here);
    let (digit, segment, page, at) = match &parent.children {
        Kids::Listed(_) => {
            let child = &home.children[child as usize];
            let Link::Stored { segment, page, at } = child.link else {
                unreachable!("only stored terminals lack a commitment")
            };
            (child.digit, segment, page, at)
        }
        Kids::Patched(patch) => {
            let slot = &home.slots[child as usize];
            (slot.digit, patch.segment, patch.page, slot.at)
        }
    };
    let (fork, digit) = (parent.fork as usize, Some(digit));
    let start = fork + 1;
    let page = &chain.segment(segment).pages[page as usize];
    debug_assert!(usize::from(at) > SUM_BYTES);
    let key = JobKey::Below { path: chain.bytes(parent.path), fork, digit };
    stored_terminal(codec, &page.row, usize::from(at), start, key)
        .map_err(|what| corrupt(&page.key, what))
}
