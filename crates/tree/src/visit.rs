//! Walking to many keys at once.
//!
//! One walk meets every node on the path of any of the keys, each once, with the commitments of all
//! of its children. Nothing is hashed but the leaves beside a path whose commitment nobody knows
//! yet: those beside some nodes in one call, and threads share the nodes where they are many.

use std::ops::Range;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::TreeError;
use crate::image::Codec;
use crate::levels::stored_leaf;
use crate::node::Link;
use crate::page::Page;
use crate::read::{At, Child, Digits, Fork, Halt, Reader, Resolved, Value};
use crate::scheme::{BranchJob, ChildList, JobKey, LeafJob, PreviousLeaf, Scheme};
use spinney_proof::digits::{Run, Width};

/// A node on the path of some keys.
pub(crate) struct NodeVisit<'a, S: Scheme> {
    /// The keys whose path leads to the node.
    pub(crate) keys: Range<usize>,
    /// The key that ends at the node and has a value there.
    pub(crate) found: Option<usize>,
    /// What it commits to, where that is known; always if the scheme follows differences.
    pub(crate) commit: Option<S::Commit>,
    pub(crate) node: VisitedNode<'a, S>,
}

pub(crate) enum VisitedNode<'a, S: Scheme> {
    Leaf(LeafJob<'a, S::Commit>),
    /// A branch, and the keys that go past its prefix.
    Branch(BranchJob<'a, ChildList<'a, S::Commit>>, Range<usize>),
}

/// A node that the walk has yet to resolve.
pub(crate) struct PathNode<C> {
    place: PathPlace<C>,
    depth: usize,
    keys: Range<usize>,
}

enum PathPlace<C> {
    At(At<C>),
    /// The child at a digit of a branch, in the page of a bucket.
    BucketEntry(Arc<Fork<C>>, u8),
}

/// The children of a branch: their digits and commitments.
pub(crate) type Committed<S> = Vec<(u8, Option<<S as Scheme>::Commit>)>;

/// A node that the walk has resolved: all that it is made of is at hand.
enum Opened<C> {
    Leaf(OpenedLeaf<C>),
    Branch(OpenedBranch<C>),
}

struct OpenedLeaf<C> {
    at: At<C>,
    suffix: Digits,
    value: Value,
    owned: Option<At<C>>,
}

struct OpenedBranch<C> {
    at: At<C>,
    prefix: Digits,
    /// The path to the fork; none where the first key on the node's path leads there.
    path: Option<Vec<u8>>,
    fork: Fork<C>,
    value: Option<Value>,
    children: Vec<Child<C>>,
}

/// Where a node is, and what it is made of.
type OpenedNode<C> = (PathNode<C>, Opened<C>);

/// So many nodes are resolved before any is visited.
const TOGETHER: usize = 256;
/// So many nodes the leaves beside them are hashed of in one call: they fill all lanes, and stay
/// in the cache. Of more, threads take so many at a time.
const HASHED_TOGETHER: usize = 64;

pub(crate) struct KeyWalk<'k, S: Scheme> {
    keys: &'k [&'k [u8]],
    scratch: S::Scratch,
    commits: Vec<S::Commit>,
    /// The nodes that were resolved, and are to be visited.
    opened: Vec<OpenedNode<S::Commit>>,
    list: Committed<S>,
    /// Lists of children that are done with, for the next ones.
    spare: Vec<Vec<Child<S::Commit>>>,
}

/// Shows `visit` all nodes on the paths of `keys`, which strictly rise, by a reader that waits for
/// no page.
pub(crate) fn visit_read<S: Scheme>(
    reader: &Reader<'_, S>,
    top: Option<Link>,
    keys: &[&[u8]],
    visit: &mut dyn FnMut(NodeVisit<'_, S>),
) -> Result<(), Halt> {
    let mut walk = KeyWalk::to(keys);
    let (mut ahead, mut halted) = (walk.start(reader, top), Vec::new());
    while !ahead.is_empty() {
        walk.step(reader, &mut ahead, &mut halted, visit)?;
    }
    if halted.is_empty() { Ok(()) } else { Err(Halt::Missing) }
}

impl<'k, S: Scheme> KeyWalk<'k, S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    pub(crate) fn to(keys: &'k [&'k [u8]]) -> Self {
        let (commits, opened, list) = (Vec::new(), Vec::new(), Vec::new());
        Self { keys, scratch: S::Scratch::default(), commits, opened, list, spare: Vec::new() }
    }

    pub(crate) fn start(
        &self,
        reader: &Reader<'_, S>,
        top: Option<Link>,
    ) -> Vec<PathNode<S::Commit>> {
        let all = 0..self.keys.len();
        let ahead = |top| PathNode { place: PathPlace::At(reader.at(top)), depth: 0, keys: all };
        top.filter(|_| !self.keys.is_empty()).map(ahead).into_iter().collect()
    }

    /// Meets the last of the nodes ahead, and puts in their place what lies below them on the paths
    /// of the keys. Those whose pages are not at hand are `halted`, and not met.
    pub(crate) fn step(
        &mut self,
        reader: &Reader<'_, S>,
        ahead: &mut Vec<PathNode<S::Commit>>,
        halted: &mut Vec<PathNode<S::Commit>>,
        visit: &mut dyn FnMut(NodeVisit<'_, S>),
    ) -> Result<(), TreeError> {
        let mut opened = std::mem::take(&mut self.opened);
        for next in ahead.drain(ahead.len().saturating_sub(TOGETHER)..).rev() {
            match self.open(reader, &next) {
                Ok(Some(node)) => opened.push((next, node)),
                Ok(None) => {}
                Err(Halt::Missing) => halted.push(next),
                Err(Halt::Failed(error)) => return Err(error),
            }
        }
        let with = (&mut self.scratch, &mut self.commits);
        commit_leaves(reader.codec, self.keys, &mut opened, with)?;
        for (next, node) in opened.drain(..) {
            match node {
                Opened::Leaf(leaf) => {
                    ahead.extend(self.visit_leaf(reader, &next, leaf, visit)?);
                }
                Opened::Branch(branch) => self.visit_branch(reader, &next, branch, visit, ahead),
            }
        }
        self.opened = opened;
        Ok(())
    }

    /// Looks into a node, if there is one.
    fn open(
        &mut self,
        reader: &Reader<'_, S>,
        next: &PathNode<S::Commit>,
    ) -> Result<Option<Opened<S::Commit>>, Halt> {
        let path = self.keys[next.keys.start];
        let at = match &next.place {
            PathPlace::At(at) => at.clone(),
            PathPlace::BucketEntry(fork, digit) => {
                let child = reader.child(fork, path, next.depth - 1, *digit)?;
                let Some(child) = child else { return Ok(None) };
                child
            }
        };
        let (prefix, fork) = match reader.resolve(&at, path, next.depth)? {
            Resolved::Leaf { suffix, value, owned } => {
                let leaf = OpenedLeaf { at, suffix, value, owned };
                return Ok(Some(Opened::Leaf(leaf)));
            }
            Resolved::Branch { prefix, fork } => (prefix, fork),
        };
        let end = prefix.run().end();
        let own = Self::own_path(prefix.run(), path);
        let path = own.as_deref().unwrap_or(path);
        let fork = reader.opened(fork, path, end)?;
        let value = reader.fork_value(&fork, path, end)?;
        let mut children = self.spare.pop().unwrap_or_default();
        reader.children(&fork, (path, end), Codec::<S>::DELTAS, &mut children)?;
        Ok(Some(Opened::Branch(OpenedBranch { at, prefix, path: own, fork, value, children })))
    }

    /// The path to a node's fork, where that is not the way of a key that leads to the node: it may
    /// leave the prefix.
    fn own_path(prefix: Run<'_>, key: &[u8]) -> Option<Vec<u8>> {
        if prefix.is_empty() {
            return None;
        }
        let mut path = key.to_vec();
        path.resize(path.len().max(prefix.start().div_ceil(Self::WIDTH.per_byte())), 0);
        Self::WIDTH.truncate(&mut path, prefix.start());
        prefix.extend(&mut path, 0);
        Some(path)
    }

    fn visit_leaf(
        &self,
        reader: &Reader<'_, S>,
        next: &PathNode<S::Commit>,
        leaf: OpenedLeaf<S::Commit>,
        visit: &mut dyn FnMut(NodeVisit<'_, S>),
    ) -> Result<Option<PathNode<S::Commit>>, TreeError> {
        let OpenedLeaf { at, suffix, value, owned } = leaf;
        let commit = reader.commit(&at, next.depth);
        let previous = commit.filter(|_| S::LAYOUT.keep_leaves);
        let previous =
            previous.map(|commit| PreviousLeaf { commit, depth: next.depth, owned: None });
        let run = suffix.run();
        let (found, longer) = self.split(&next.keys, run);
        let owns = match &owned {
            Some(owned) => Some(reader.owned(owned)?),
            None => None,
        };
        let path = self.keys[next.keys.start];
        let key = JobKey::Below { path, fork: next.depth, digit: None };
        let keys = next.keys.clone();
        let job = LeafJob { key, suffix: run, value: &value, owned: owns, previous };
        visit(NodeVisit { keys, found, commit, node: VisitedNode::Leaf(job) });
        let below =
            |at| PathNode { place: PathPlace::At(at), depth: run.end(), keys: longer.clone() };
        Ok(owned.filter(|_| !longer.is_empty()).map(below))
    }

    fn visit_branch(
        &mut self,
        reader: &Reader<'_, S>,
        next: &PathNode<S::Commit>,
        branch: OpenedBranch<S::Commit>,
        visit: &mut dyn FnMut(NodeVisit<'_, S>),
        ahead: &mut Vec<PathNode<S::Commit>>,
    ) {
        let OpenedBranch { at, prefix, path: _, fork, value, mut children } = branch;
        let run = prefix.run();
        let end = run.end();
        let (found, longer) = self.split(&next.keys, run);
        let reached = found.map_or(longer.start, |found| found)..longer.end;
        self.list.clear();
        self.list.extend(children.iter().map(|child| (child.digit, child.commit)));
        let job =
            BranchJob { prefix: run, children: ChildList(&self.list), value: value.as_deref() };
        visit(NodeVisit {
            keys: next.keys.clone(),
            found: found.filter(|_| value.is_some()),
            commit: reader.commit(&at, next.depth),
            node: VisitedNode::Branch(job, reached),
        });
        // Children in pages of buckets are looked for once it is their turn.
        let fork = children.iter().any(|child| child.at.is_none()).then(|| Arc::new(fork));
        let mut from = longer.start;
        while from < longer.end {
            let digit = Self::WIDTH.digit(self.keys[from], end);
            let same = |key: &&&[u8]| Self::WIDTH.digit(key, end) == digit;
            let count = self.keys[from..longer.end].iter().take_while(same).count();
            if let Some(child) = children.iter().find(|child| child.digit == digit) {
                let place = match (&child.at, &fork) {
                    (Some(at), _) => Some(PathPlace::At(at.clone())),
                    (None, fork) => {
                        fork.as_ref().map(|fork| PathPlace::BucketEntry(Arc::clone(fork), digit))
                    }
                };
                let keys = from..from + count;
                ahead.extend(place.map(|place| PathNode { place, depth: end + 1, keys }));
            }
            from += count;
        }
        children.clear();
        self.spare.push(children);
    }

    /// The key that ends with `run`, and those that go on below it.
    fn split(&self, keys: &Range<usize>, run: Run<'_>) -> (Option<usize>, Range<usize>) {
        let on = |index: &usize| run.common(self.keys[*index]) == run.len();
        let Some(first) = keys.clone().find(on) else { return (None, keys.end..keys.end) };
        let end = first + (first..keys.end).take_while(on).count();
        let found = Self::WIDTH.count(self.keys[first]) == run.end();
        (found.then_some(first), first + usize::from(found)..end)
    }
}

/// Computes what those children of opened branches commit to of which nobody knows it, and keeps
/// it.
fn commit_leaves<S: Scheme>(
    codec: Codec<'_, S>,
    keys: &[&[u8]],
    opened: &mut [OpenedNode<S::Commit>],
    with: (&mut S::Scratch, &mut Vec<S::Commit>),
) -> Result<(), TreeError> {
    if opened.len() <= HASHED_TOGETHER {
        return commit_beside(codec, keys, opened, with);
    }
    let buffers = || (S::Scratch::default(), Vec::new());
    opened.par_chunks_mut(HASHED_TOGETHER).try_for_each_init(buffers, |(scratch, commits), part| {
        commit_beside(codec, keys, part, (scratch, commits))
    })
}

/// The same, in one call.
fn commit_beside<S: Scheme>(
    codec: Codec<'_, S>,
    keys: &[&[u8]],
    opened: &mut [OpenedNode<S::Commit>],
    (scratch, commits): (&mut S::Scratch, &mut Vec<S::Commit>),
) -> Result<(), TreeError> {
    let branches = opened.iter().filter_map(|(next, node)| match node {
        Opened::Branch(branch) => Some((next, branch)),
        Opened::Leaf(_) => None,
    });
    let jobs = branches.flat_map(|(next, branch)| {
        let path = branch.path.as_deref().unwrap_or(keys[next.keys.start]);
        jobs(codec, &branch.children, (path, branch.prefix.run().end()))
    });
    commit_jobs(codec.scheme, jobs, (scratch, commits))?;
    let mut computed = commits.iter().copied();
    for (_, node) in opened {
        if let Opened::Branch(OpenedBranch { children, .. }) = node {
            learn(children, &mut computed);
        }
    }
    Ok(())
}

/// A child of which nobody knows what it commits to: its page and entry.
fn unknown<C>(child: &Child<C>) -> Option<(&Arc<Page<C>>, u16)> {
    match (&child.at, &child.commit) {
        (Some(At::Stored(page, entry)), None) => Some((page, *entry)),
        _ => None,
    }
}

/// The leaves among a branch's children of which nobody knows what they commit to.
fn jobs<'a, S: Scheme>(
    codec: Codec<'a, S>,
    children: &'a [Child<S::Commit>],
    (path, fork): (&'a [u8], usize),
) -> impl Iterator<Item = Result<LeafJob<'a, S::Commit>, TreeError>> {
    children.iter().filter_map(unknown).map(move |(page, number)| {
        let entry = page.entry(number);
        let key = JobKey::Below { path, fork, digit: Some(entry.digit) };
        stored_leaf(codec, page, entry, fork + 1, key)
    })
}

/// Commits to leaves, each as it is read.
fn commit_jobs<'a, S: Scheme>(
    scheme: &S,
    jobs: impl Iterator<Item = Result<LeafJob<'a, S::Commit>, TreeError>>,
    (scratch, commits): (&mut S::Scratch, &mut Vec<S::Commit>),
) -> Result<(), TreeError> {
    let mut failed = None;
    let read = jobs.map_while(|job| job.map_err(|error| failed = Some(error)).ok());
    commits.clear();
    scheme.commit_leaves(read, scratch, commits);
    failed.map_or(Ok(()), Err)
}

/// Notes what they commit to, there and in their pages.
fn learn<C: Copy>(children: &mut [Child<C>], computed: &mut impl Iterator<Item = C>) {
    for child in children {
        let Some((page, entry)) = unknown(child) else { continue };
        let commit = computed.next();
        commit.into_iter().for_each(|commit| page.learn(entry, commit));
        child.commit = commit;
    }
}

/// Computes what those children of a branch commit to of which nobody knows it, and keeps it.
pub(crate) fn commit_children<S: Scheme>(
    reader: &Reader<'_, S>,
    children: &mut [Child<S::Commit>],
    at: (&[u8], usize),
    (scratch, commits): (&mut S::Scratch, &mut Vec<S::Commit>),
) -> Result<(), TreeError> {
    let jobs = jobs(reader.codec, children, at);
    commit_jobs(reader.codec.scheme, jobs, (scratch, commits))?;
    learn(children, &mut commits.iter().copied());
    Ok(())
}
