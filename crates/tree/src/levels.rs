//! Committing to the nodes that a batch made, level by level, lowest first.
//!
//! A level is all nodes of one height, wherever they hang: leaves of every depth commit in one call, so
//! that hashing fills its lanes. Large levels are split over the cores; a handful of nodes wakes no
//! thread. Beside the new nodes, level 0 holds the untouched sibling terminals
//! whose commitment pages do not keep.

use std::sync::Arc;

use rayon::prelude::*;

use crate::digits::Run;
use crate::error::TreeError;
use crate::image::{Codec, NodeView, SUM_BYTES, TerminalBody};
use crate::node::{Body, Branch, Chain, Child, Link, Segment};
use crate::open::corrupt;
use crate::scheme::{BranchJob, Scheme, TerminalJob};

/// How many nodes a scheme commits to in one call: enough to fill every lane, few enough that their
/// bytes stay in the cache.
const CHUNK: usize = 1_024;
/// A level of fewer nodes is committed to on the caller's thread.
const PARALLEL_NODES_MIN: usize = 4 * CHUNK;

/// Buffers kept from one batch to the next.
#[derive(Debug)]
pub(crate) struct Levels<S: Scheme> {
    todo: Vec<u32>,
    /// Nodes to commit to, sorted by height.
    nodes: Vec<(u32, u32)>,
    /// Untouched sibling terminals: index of the child entry, and the digit where its suffix starts.
    siblings: Vec<(u32, u32)>,
    out: Vec<S::Commit>,
    scratch: S::Scratch,
}

impl<S: Scheme> Default for Levels<S> {
    fn default() -> Self {
        Self {
            todo: Vec::new(),
            nodes: Vec::new(),
            siblings: Vec::new(),
            out: Vec::new(),
            scratch: S::Scratch::default(),
        }
    }
}

impl<S: Scheme> Levels<S> {
    /// Commits to all nodes of `seg` that are reachable from `root`, and to `root` itself.
    pub(crate) fn run(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Segment<S::Commit>>],
        seg: &mut Segment<S::Commit>,
        root: &mut Child<S::Commit>,
    ) -> Result<(), TreeError> {
        let here = older.len() as u32;
        self.collect(here, seg, root);
        self.commit_siblings(codec, older, seg)?;
        let mut from = 0;
        while from < self.nodes.len() {
            let height = self.nodes[from].0;
            let to = from + self.nodes[from..].partition_point(|node| node.0 == height);
            self.commit_level(codec, older, seg, from, to)?;
            from = to;
        }
        if let Link::Made { segment, node } = root.link
            && segment == here
        {
            root.commit = seg.nodes[node as usize].commit;
        }
        Ok(())
    }

    fn collect(&mut self, here: u32, seg: &Segment<S::Commit>, root: &Child<S::Commit>) {
        self.nodes.clear();
        self.siblings.clear();
        self.todo.clear();
        let made = |child: &Child<S::Commit>| match child.link {
            Link::Made { segment, node } if segment == here => Some(node),
            _ => None,
        };
        self.todo.extend(made(root));
        while let Some(index) = self.todo.pop() {
            let node = &seg.nodes[index as usize];
            // Terminals before branches within a level: a key that sorts them apart.
            let rank = match &node.body {
                Body::Terminal(terminal) => {
                    self.todo.extend(terminal.owned.as_ref().and_then(made));
                    node.height * 2
                }
                Body::Branch(branch) => {
                    for (i, child) in branch.children.range().zip(seg.children(branch.children)) {
                        if let Some(node) = made(child) {
                            self.todo.push(node);
                        } else if child.commit.is_none() {
                            self.siblings.push((i as u32, branch.fork + 1));
                        }
                    }
                    node.height * 2 + 1
                }
            };
            self.nodes.push((rank, index));
        }
        self.nodes.sort_unstable();
    }

    fn commit_siblings(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Segment<S::Commit>>],
        seg: &mut Segment<S::Commit>,
    ) -> Result<(), TreeError> {
        if self.siblings.is_empty() {
            return Ok(());
        }
        let chain = Chain { older, last: Some(seg) };
        in_chunks::<S, _>(
            &self.siblings,
            &mut self.scratch,
            &mut self.out,
            |part, scratch, out| {
                let mut failed = None;
                let jobs = part.iter().map_while(|&(child, start)| {
                    match sibling_job(
                        codec,
                        chain,
                        &chain_child(chain, older, child),
                        start as usize,
                    ) {
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
        for (&(child, _), commit) in self.siblings.iter().zip(&self.out) {
            seg.children[child as usize].commit = Some(*commit);
        }
        Ok(())
    }

    fn commit_level(
        &mut self,
        codec: Codec<'_, S>,
        older: &[Arc<Segment<S::Commit>>],
        seg: &mut Segment<S::Commit>,
        from: usize,
        to: usize,
    ) -> Result<(), TreeError> {
        let here = older.len() as u32;
        self.adopt(here, seg, from, to);
        let chain = Chain { older, last: Some(seg) };
        let nodes = &self.nodes[from..to];
        let is_terminal = nodes[0].0.is_multiple_of(2);
        in_chunks::<S, _>(nodes, &mut self.scratch, &mut self.out, |part, scratch, out| {
            if is_terminal {
                let jobs = part.iter().map(|&(_, node)| terminal_job::<S>(chain, here, node));
                codec.scheme.commit_terminals(jobs, scratch, out);
            } else {
                let jobs = part.iter().map(|&(_, node)| branch_job::<S>(chain, here, node));
                codec.scheme.commit_branches(jobs, scratch, out);
            }
            Ok(())
        })?;
        assert_eq!(self.out.len(), nodes.len(), "a scheme commits to every job");
        for (&(_, node), commit) in nodes.iter().zip(&self.out) {
            seg.nodes[node as usize].commit = Some(*commit);
        }
        Ok(())
    }

    /// Copies the commitments of the level's new children to where the jobs read them.
    fn adopt(&self, here: u32, seg: &mut Segment<S::Commit>, from: usize, to: usize) {
        let Segment { nodes, children, .. } = seg;
        for &(_, index) in &self.nodes[from..to] {
            let commit_of = |child: &Child<S::Commit>| match child.link {
                Link::Made { segment, node } if segment == here => nodes[node as usize].commit,
                _ => child.commit,
            };
            match nodes[index as usize].body {
                Body::Branch(Branch { children: span, .. }) => {
                    for child in &mut children[span.range()] {
                        child.commit = commit_of(child);
                    }
                }
                Body::Terminal(terminal) => {
                    if let Some(mut child) = terminal.owned {
                        child.commit = commit_of(&child);
                        let Body::Terminal(terminal) = &mut nodes[index as usize].body else {
                            unreachable!("it is a terminal")
                        };
                        terminal.owned = Some(child);
                    }
                }
            }
        }
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
    out.extend(parts?.into_iter().flatten());
    Ok(())
}

fn chain_child<C: Copy>(chain: Chain<'_, C>, older: &[Arc<Segment<C>>], child: u32) -> Child<C> {
    chain.segment(older.len() as u32).children[child as usize]
}

fn terminal_job<'a, S: Scheme>(
    chain: Chain<'a, S::Commit>,
    here: u32,
    node: u32,
) -> TerminalJob<'a, S::Commit> {
    let segment = chain.segment(here);
    let Body::Terminal(terminal) = &segment.nodes[node as usize].body else {
        unreachable!("a level of terminals")
    };
    TerminalJob {
        suffix: terminal.suffix(&segment.bytes, Codec::<S>::WIDTH),
        payload: chain.bytes(terminal.payload),
        owned: terminal.owned.map(|child| child.commit()),
    }
}

fn branch_job<'a, S: Scheme>(
    chain: Chain<'a, S::Commit>,
    here: u32,
    node: u32,
) -> BranchJob<'a, S::Commit> {
    let segment = chain.segment(here);
    let Body::Branch(branch) = &segment.nodes[node as usize].body else {
        unreachable!("a level of branches")
    };
    BranchJob {
        skip: branch.skip(&segment.bytes, Codec::<S>::WIDTH),
        children: segment.children(branch.children),
        value: branch.value.map(|value| chain.bytes(value)),
    }
}

/// A terminal in an opened page, to commit to: its bytes lie in the page, else it would carry its
/// commitment.
fn sibling_job<'a, S: Scheme>(
    codec: Codec<'_, S>,
    chain: Chain<'a, S::Commit>,
    child: &Child<S::Commit>,
    start: usize,
) -> Result<TerminalJob<'a, S::Commit>, TreeError> {
    let Link::Stored { segment, page, at } = child.link else {
        unreachable!("only stored terminals lack a commitment")
    };
    let page = &chain.segment(segment).pages[page as usize];
    debug_assert!(at as usize > SUM_BYTES);
    let failed = |what| corrupt(&page.key, what);
    let (node, _) = codec.node(&page.row, at as usize, start).map_err(failed)?;
    let NodeView::Terminal(view) = node else {
        return Err(failed("a branch has no commitment"));
    };
    let TerminalBody::Inline { suffix, payload } = view.body else {
        return Err(failed("an overflowed terminal has no commitment"));
    };
    let owned = match (view.owned, S::OWNER) {
        (Some(at), Some(owner)) => {
            let start = owner.bytes * Codec::<S>::WIDTH.per_byte();
            let (node, _) = codec.node(&page.row, at, start).map_err(failed)?;
            let commit = match node {
                NodeView::Terminal(view) => view.commit,
                NodeView::Branch(view) => Some(view.commit),
            };
            Some(commit.ok_or_else(|| failed("an owned terminal has no commitment"))?)
        }
        _ => None,
    };
    let suffix: Run<'a> = suffix;
    Ok(TerminalJob { suffix, payload, owned })
}
