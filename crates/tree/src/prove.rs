//! Walking to many keys at once, for those who prove them.
//!
//! One walk meets every node on the path of any of the keys, each once, with the commitments of all of
//! its children. Pages are read level by level, as by a batch: a node whose page is not at hand waits,
//! the walk goes on elsewhere, and then all that waited is read in one call. Nothing is hashed but the
//! terminals beside a path whose commitment pages do not keep.

use std::ops::Range;
use std::sync::Arc;

use crate::digits::{Run, Width};
use crate::error::TreeError;
use crate::image::{Codec, unseal};
use crate::node::{Child, Link, Segment};
use crate::open::{Children, Halt, Looked, Opener, Piece, corrupt};
use crate::page_key::PageKey;
use crate::scheme::{BranchJob, Children as Listed, JobKey, Scheme, TerminalJob};
use crate::store::{Snapshot, Table};
use crate::tree::{Pending, Tree};

/// A node on the path of some keys.
pub(crate) struct Met<'a, S: Scheme> {
    /// The keys whose path leads to the node.
    pub(crate) keys: Range<usize>,
    /// The key that ends at the node and has a value there.
    pub(crate) found: Option<usize>,
    /// What it commits to, if the scheme follows differences.
    pub(crate) commit: Option<S::Commit>,
    pub(crate) node: MetNode<'a, S>,
}

pub(crate) enum MetNode<'a, S: Scheme> {
    Terminal(TerminalJob<'a, S::Commit>),
    /// A branch, and the keys that go past its skip.
    Branch(BranchJob<'a, S>, Range<usize>),
}

/// A node that the walk has yet to look into.
struct Ahead {
    child: Child,
    depth: usize,
    keys: Range<usize>,
}

impl<S: Scheme> Tree<S> {
    /// Shows `visit` all nodes on the paths of `keys`, which strictly rise, in `state` or in the last
    /// commit; a node comes before those below it.
    pub(crate) fn visit_paths<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<S>>,
        keys: &[&[u8]],
        visit: &mut dyn FnMut(Met<'_, S>),
    ) -> Result<(), TreeError> {
        let mut walk = Walk { keys, scratch: S::Scratch::default(), commits: Vec::new() };
        let mut waiting: Option<Vec<Ahead>> = None;
        self.lend(snapshot, state, keys, |open, top| {
            let all = 0..keys.len();
            let start = || {
                let top = top.filter(|_| !keys.is_empty());
                top.map(|child| Ahead { child, depth: 0, keys: all }).into_iter().collect()
            };
            let mut ahead = waiting.take().unwrap_or_else(start);
            let mut halted = Vec::new();
            while let Some(next) = ahead.pop() {
                match walk.step(open, &next, visit) {
                    Ok(below) => ahead.extend(below),
                    Err(Halt::Missing) => halted.push(next),
                    Err(Halt::Failed(error)) => return Err(error),
                }
            }
            waiting = Some(halted);
            Ok(())
        })
    }
}

impl<S: Scheme> Tree<S> {
    /// Lends the nodes of `state`, or of the last commit: `step` looks into them as far as it can, and
    /// is called again, with the pages it missed at hand, until it misses none.
    ///
    /// From afar, all pages that may be on the way to a few `keys` are read in the first call.
    pub(crate) fn lend<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<S>>,
        keys: &[&[u8]],
        mut step: impl FnMut(&mut Opener<'_, S>, Option<Child>) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        if let Some(state) = state {
            self.standing(state)?;
        }
        let (older, top) = self.nodes(snapshot, state)?;
        let mut segment = Segment::new();
        let mut loaded = Pages::default();
        loop {
            let fetch = |key: &PageKey| loaded.get(key).cloned().or_else(|| self.cache.get(key));
            let mut open = Opener {
                codec: self.codec(),
                space: self.space,
                older,
                here: older.len() as u32,
                seg: &mut segment,
                fetch: &fetch,
                ahead: &|keys| self.cache.fetch(keys),
                missing: Vec::new(),
                path: Vec::new(),
            };
            step(&mut open, top.map(|top| top.child))?;
            let mut missing = open.missing;
            if missing.is_empty() {
                return Ok(());
            }
            missing.sort_unstable();
            missing.dedup();
            // The same snapshot is looked at once.
            if loaded.is_empty() {
                self.current(snapshot)?;
                if (1..=AHEAD_KEYS_MAX).contains(&keys.len()) && snapshot.is_far() {
                    loaded.extend(self.read_ahead(snapshot, keys)?);
                    missing.retain(|key| !loaded.contains_key(key));
                }
            }
            if !missing.is_empty() {
                let rows = self.read_rows_of(snapshot, &missing)?;
                loaded.extend(missing.into_iter().zip(rows));
            }
        }
    }

    /// The pages on the way to keys, down to a depth that few of them lie below.
    fn read_ahead<N: Snapshot>(&self, snapshot: &N, keys: &[&[u8]]) -> Result<Pages, TreeError> {
        let places = |key: &&[u8]| {
            let most = AHEAD_BITS.min(8 * key.len());
            (1..=most).map(|bits| PageKey::page(self.space, key, bits)).collect::<Vec<_>>()
        };
        let mut wanted: Vec<_> = keys.iter().flat_map(places).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let bytes: Vec<&[u8]> = wanted.iter().map(PageKey::as_bytes).collect();
        let rows = snapshot.read_many(Table::Pages, &bytes)?;
        let mut found = Pages::default();
        for (key, row) in wanted.iter().zip(rows) {
            if let Some(row) = row {
                unseal(key.as_bytes(), &row).map_err(|what| corrupt(key, what))?;
                found.insert(key.clone(), Arc::<[u8]>::from(&*row));
            }
        }
        self.cache.put(found.iter().map(|(key, row)| (key.clone(), Some(Arc::clone(row)))));
        Ok(found)
    }
}

/// Pages that were read.
type Pages = foldhash::HashMap<PageKey, Arc<[u8]>>;

/// How many keys are worth asking ahead for.
const AHEAD_KEYS_MAX: usize = 16;
/// How deep: below it lie few pages even of a billion keys.
const AHEAD_BITS: usize = 40;

/// The children of a branch: their digits and commitments.
type Committed<S> = Vec<(u8, Option<<S as Scheme>::Commit>)>;

struct Walk<'k, S: Scheme> {
    keys: &'k [&'k [u8]],
    scratch: S::Scratch,
    commits: Vec<S::Commit>,
}

impl<S: Scheme> Walk<'_, S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    /// Meets one node; answers what lies below it on the paths of the keys.
    fn step(
        &mut self,
        open: &mut Opener<'_, S>,
        next: &Ahead,
        visit: &mut dyn FnMut(Met<'_, S>),
    ) -> Result<Vec<Ahead>, Halt> {
        open.path.clear();
        open.path.extend_from_slice(self.keys[next.keys.start]);
        if let Link::Group { bits, .. } = next.child.link {
            return Ok(vec![self.out_of_group(open, next, bits)?]);
        }
        let looked = open.look(&next.child, next.depth)?;
        match looked {
            Looked::Terminal { suffix, payload, owned } => {
                // Proving commits to nothing anew but what climbs.
                let was = match S::KEEP_TERMINALS {
                    true => open.was(&next.child, &looked, next.depth),
                    false => None,
                };
                let was = open.chain().was_terminal(open.codec, open.here, was);
                let suffix = open.run(&suffix);
                let (found, longer) = self.split(&next.keys, suffix);
                let payload = open.chain().bytes(payload);
                let owns = owned.map(|child| open.chain().owned(open.codec, open.here, &child));
                let key = JobKey::Below { path: &open.path, fork: next.depth, digit: None };
                let (keys, own) = (next.keys.clone(), own(open, &next.child));
                let job = TerminalJob { key, suffix, payload, owned: owns, was };
                visit(Met { keys, found, commit: own, node: MetNode::Terminal(job) });
                let below = |child| Ahead { child, depth: suffix.end(), keys: longer.clone() };
                Ok(owned.filter(|_| !longer.is_empty()).map(below).into_iter().collect())
            }
            Looked::Branch { skip, body } => self.branch(open, next, (skip, body), visit),
        }
    }

    fn branch(
        &mut self,
        open: &mut Opener<'_, S>,
        next: &Ahead,
        (skip, body): (Piece, Children),
        visit: &mut dyn FnMut(Met<'_, S>),
    ) -> Result<Vec<Ahead>, Halt> {
        let fork = next.depth + skip.digits;
        // The keys may leave the skip: the path to the fork is the node's own.
        let mut path = std::mem::take(&mut open.path);
        Self::WIDTH.truncate(&mut path, next.depth);
        open.run(&skip).extend(&mut path, 0);
        open.path = path;
        let mut children = Vec::new();
        let value = open.children(body, fork, &mut children)?;
        if S::DELTAS {
            open_groups(open, fork, &mut children)?;
        }
        let (found, longer) = self.split(&next.keys, open.run(&skip));
        let reached = found.map_or(longer.start, |found| found)..longer.end;
        let mut below = Vec::new();
        let mut from = longer.start;
        while from < longer.end {
            let digit = Self::WIDTH.digit(self.keys[from], fork);
            let same = |key: &&&[u8]| Self::WIDTH.digit(key, fork) == digit;
            let count = self.keys[from..longer.end].iter().take_while(same).count();
            if let Some(child) = children.iter().find(|child| child.digit == digit) {
                let (child, keys) = (*child, from..from + count);
                below.push(Ahead { child, depth: fork + 1, keys });
            }
            from += count;
        }
        let list = self.commit_children(open, &children, fork)?;
        let value = value.map(|place| open.chain().bytes(place));
        let children = Listed::list(&list);
        let job = BranchJob { skip: open.run(&skip), children, value, changes: None };
        visit(Met {
            keys: next.keys.clone(),
            found: found.filter(|_| value.is_some()),
            commit: own(open, &next.child),
            node: MetNode::Branch(job, reached),
        });
        Ok(below)
    }

    /// The key that ends with `run`, and those that go on below it.
    fn split(&self, keys: &Range<usize>, run: Run<'_>) -> (Option<usize>, Range<usize>) {
        let on = |index: &usize| run.common(self.keys[*index]) == run.len();
        let Some(first) = keys.clone().find(on) else { return (None, keys.end..keys.end) };
        let end = first + (first..keys.end).take_while(on).count();
        let found = Self::WIDTH.count(self.keys[first]) == run.end();
        (found.then_some(first), first + usize::from(found)..end)
    }

    /// The child itself, out of the group that it lies in.
    fn out_of_group(
        &self,
        open: &mut Opener<'_, S>,
        next: &Ahead,
        bits: u8,
    ) -> Result<Ahead, Halt> {
        let mut members = Vec::new();
        open.group(next.depth - 1, next.child.digit, bits, &mut members)?;
        let child = members.iter().find(|child| child.digit == next.child.digit);
        let Some(child) = child else {
            let page = open.seg.pages.len() as u32 - 1;
            let what = "it lacks a child that the page above names";
            return Err(open.corrupt_page(open.here, page, what).into());
        };
        Ok(Ahead { child: *child, depth: next.depth, keys: next.keys.clone() })
    }

    /// The commitments of a branch's children; those of terminals that pages do not keep are computed.
    fn commit_children(
        &mut self,
        open: &mut Opener<'_, S>,
        children: &[Child],
        fork: usize,
    ) -> Result<Committed<S>, Halt> {
        if S::DELTAS {
            let commit = |child: &Child| (child.digit, Some(committed(open, child)));
            return Ok(children.iter().map(commit).collect());
        }
        let mut looked = Vec::new();
        for child in children.iter().filter(|child| child.uncommitted()) {
            if let Looked::Terminal { suffix, payload, owned, .. } = open.look(child, fork + 1)? {
                looked.push((child.digit, suffix, payload, owned));
            }
        }
        self.commits.clear();
        let jobs = looked.iter().map(|(digit, suffix, payload, owned)| TerminalJob {
            key: JobKey::Below { path: &open.path, fork, digit: Some(*digit) },
            suffix: open.run(suffix),
            payload: open.chain().bytes(*payload),
            owned: owned.map(|child| open.chain().owned(open.codec, open.here, &child)),
            was: None,
        });
        open.codec.scheme.commit_terminals(jobs, &mut self.scratch, &mut self.commits);
        let mut computed = self.commits.iter().copied();
        let mut commit = |child: &Child| match child.uncommitted() {
            true => computed.next(),
            false => Some(committed(open, child)),
        };
        Ok(children.iter().map(|child| (child.digit, commit(child))).collect::<Vec<_>>())
    }
}

/// Opens the groups among the children of a branch, which do not say what those commit to: all that
/// are missing are asked for together.
fn open_groups<S: Scheme>(
    open: &mut Opener<'_, S>,
    fork: usize,
    children: &mut Vec<Child>,
) -> Result<(), Halt> {
    let path = open.path.clone();
    while children.iter().any(|child| matches!(child.link, Link::Group { .. })) {
        let (mut opened, mut members) = (Vec::new(), Vec::new());
        let (mut missing, mut behind) = (false, None);
        for child in &*children {
            let Link::Group { bits, .. } = child.link else {
                opened.push(*child);
                continue;
            };
            // The first child of a group brings all of them.
            if behind.is_some_and(|last| child.digit <= last) {
                continue;
            }
            open.path.clone_from(&path);
            members.clear();
            match open.group(fork, child.digit, bits, &mut members) {
                Err(Halt::Missing) => {
                    missing = true;
                    let rest = S::DIGIT_BITS - bits;
                    behind = Some(child.digit | ((1u16 << rest) - 1) as u8);
                }
                Ok(()) => {
                    behind = members.last().map(|last| last.digit);
                    opened.append(&mut members);
                }
                Err(failed) => return Err(failed),
            }
        }
        if missing {
            return Err(Halt::Missing);
        }
        *children = opened;
    }
    open.path = path;
    Ok(())
}

/// What a node that is met commits to, where that is at hand and asked for.
fn own<S: Scheme>(open: &Opener<'_, S>, child: &Child) -> Option<S::Commit> {
    S::DELTAS.then(|| committed(open, child))
}

/// The commitment of a child that was looked up here, and has one.
fn committed<S: Scheme>(open: &Opener<'_, S>, child: &Child) -> S::Commit {
    open.chain().commit(open.codec, open.here, child)
}
