//! Walking to many keys at once, for those who prove them.
//!
//! One walk meets every node on the path of any of the keys, each once, with the commitments of all of
//! its children. Pages are read level by level, as by a batch: a node whose page is not at hand waits,
//! the walk goes on elsewhere, and then all that waited is read in one call. Nothing is hashed but the
//! terminals beside a path whose commitment nobody knows yet.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

use crate::error::TreeError;
use crate::image::Codec;
use crate::levels::stored_terminal;
use crate::node::Link;
use crate::page::{HandleCell, Lists, Page};
use crate::page_key::PageKey;
use crate::read::{At, Child, Digits, Fork, Halt, Looked, Reader};
use crate::scheme::{BranchJob, Children as Listed, JobKey, Scheme, TerminalJob, WasTerminal};
use crate::store::{Snapshot, Table};
use crate::tree::{Pending, Tree};
use crate::update::{Loaded, Missing};
use spinney_proof::digits::{Run, Width};

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
struct Ahead<C> {
    place: Place<C>,
    depth: usize,
    keys: Range<usize>,
}

enum Place<C> {
    At(At<C>),
    /// The child at a digit of a branch, in the page of a group.
    Member(Arc<Fork<C>>, u8),
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
        let mut walk = Walk::to(keys);
        let mut waiting: Option<Vec<Ahead<S::Commit>>> = None;
        self.lend(snapshot, state, keys, |reader, top| {
            let mut ahead = waiting.take().unwrap_or_else(|| walk.start(reader, top));
            let mut halted = Vec::new();
            while let Some(next) = ahead.pop() {
                match walk.step(reader, &next, visit) {
                    Ok(below) => ahead.extend(below),
                    Err(Halt::Missing) => halted.push(next),
                    Err(Halt::Failed(error)) => return Err(error),
                }
            }
            waiting = Some(halted);
            Ok(())
        })
    }

    /// Lends the nodes of `state`, or of the last commit: `step` looks into them as far as it can, and
    /// is called again, with the pages it missed at hand, until it misses none.
    ///
    /// From afar, all pages that may be on the way to a few `keys` are read in the first call.
    pub(crate) fn lend<N: Snapshot>(
        &self,
        snapshot: &N,
        state: Option<&Pending<S>>,
        keys: &[&[u8]],
        mut step: impl FnMut(&Reader<'_, S>, Option<Link>) -> Result<(), TreeError>,
    ) -> Result<(), TreeError> {
        if let Some(state) = state {
            self.standing(state)?;
        }
        let (arenas, top) = self.nodes(state);
        let mut loaded = Loaded::default();
        loop {
            let missing = RefCell::new(Vec::<Missing>::new());
            let fetch = |cell: Option<&HandleCell>, key: &dyn Fn() -> PageKey, bits: usize| {
                if let Some(page) = self.resident(cell, key, &loaded) {
                    return Ok(page);
                }
                missing.borrow_mut().push((key(), bits as u32));
                Err(Halt::Missing)
            };
            let (codec, space) = (self.codec(), self.space);
            step(&Reader { codec, space, arenas, fetch: &fetch }, top)?;
            let mut missing = missing.into_inner();
            if missing.is_empty() {
                return Ok(());
            }
            let few = (1..=AHEAD_KEYS_MAX).contains(&keys.len());
            if loaded.is_empty() && few && snapshot.is_far() {
                self.current(snapshot)?;
                self.read_ahead(snapshot, keys, &mut loaded)?;
                missing.retain(|(key, _)| !loaded.contains_key(key));
            }
            self.load_missing(snapshot, &mut missing, &mut loaded)?;
        }
    }

    /// The pages on the way to keys, down to a depth that few of them lie below.
    fn read_ahead<N: Snapshot>(
        &self,
        snapshot: &N,
        keys: &[&[u8]],
        loaded: &mut Loaded<S::Commit>,
    ) -> Result<(), TreeError> {
        let places = |key: &&[u8]| {
            let most = AHEAD_BITS.min(8 * key.len());
            let place = |bits| (PageKey::page(self.space, key, bits), bits as u32);
            (1..=most).map(place).collect::<Vec<_>>()
        };
        let mut wanted: Vec<Missing> = keys.iter().flat_map(places).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let bytes: Vec<&[u8]> = wanted.iter().map(|(key, _)| key.as_bytes()).collect();
        let rows = snapshot.read_many(Table::Pages, &bytes)?;
        let (mut found, mut lists) = (Vec::new(), Lists::default());
        for ((key, bits), row) in wanted.iter().zip(rows) {
            if let Some(row) = row {
                found.push(self.parsed(key, Arc::from(&*row), *bits, &mut lists)?);
            }
        }
        loaded.extend(found.iter().map(|page| (page.key.clone(), Arc::clone(page))));
        self.cache.put(found);
        Ok(())
    }
}

/// How many keys are worth asking ahead for.
const AHEAD_KEYS_MAX: usize = 16;
/// How deep: below it lie few pages even of a billion keys.
const AHEAD_BITS: usize = 40;

/// The children of a branch: their digits and commitments.
pub(crate) type Committed<S> = Vec<(u8, Option<<S as Scheme>::Commit>)>;

struct Walk<'k, S: Scheme> {
    keys: &'k [&'k [u8]],
    scratch: S::Scratch,
    commits: Vec<S::Commit>,
}

/// Shows `visit` all nodes on the paths of `keys`, which strictly rise, by a reader that waits for no page.
pub(crate) fn visit_read<S: Scheme>(
    reader: &Reader<'_, S>,
    top: Option<Link>,
    keys: &[&[u8]],
    visit: &mut dyn FnMut(Met<'_, S>),
) -> Result<(), Halt> {
    let mut walk = Walk::to(keys);
    let mut ahead = walk.start(reader, top);
    while let Some(next) = ahead.pop() {
        ahead.extend(walk.step(reader, &next, visit)?);
    }
    Ok(())
}

impl<'k, S: Scheme> Walk<'k, S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    fn to(keys: &'k [&'k [u8]]) -> Self {
        Self { keys, scratch: S::Scratch::default(), commits: Vec::new() }
    }

    fn start(&self, reader: &Reader<'_, S>, top: Option<Link>) -> Vec<Ahead<S::Commit>> {
        let all = 0..self.keys.len();
        let ahead = |top| Ahead { place: Place::At(reader.at(top)), depth: 0, keys: all };
        top.filter(|_| !self.keys.is_empty()).map(ahead).into_iter().collect()
    }

    /// Meets one node; answers what lies below it on the paths of the keys.
    fn step(
        &mut self,
        reader: &Reader<'_, S>,
        next: &Ahead<S::Commit>,
        visit: &mut dyn FnMut(Met<'_, S>),
    ) -> Result<Vec<Ahead<S::Commit>>, Halt> {
        let path = self.keys[next.keys.start];
        let at = match &next.place {
            Place::At(at) => at.clone(),
            Place::Member(fork, digit) => {
                let child = reader.child(fork, path, next.depth - 1, *digit)?;
                let Some(child) = child else { return Ok(Vec::new()) };
                child
            }
        };
        match reader.look(&at, path, next.depth)? {
            Looked::Terminal { suffix, payload, owned } => {
                let was = if S::KEEP_TERMINALS { self.was(reader, &at, next.depth) } else { None };
                let run = suffix.run();
                let (found, longer) = self.split(&next.keys, run);
                let owns = match &owned {
                    Some(owned) => Some(reader.owned(owned)?),
                    None => None,
                };
                let key = JobKey::Below { path, fork: next.depth, digit: None };
                let keys = next.keys.clone();
                let commit = if S::DELTAS { reader.commit(&at, next.depth) } else { None };
                let job = TerminalJob { key, suffix: run, payload: &payload, owned: owns, was };
                visit(Met { keys, found, commit, node: MetNode::Terminal(job) });
                let below =
                    |at| Ahead { place: Place::At(at), depth: run.end(), keys: longer.clone() };
                Ok(owned.filter(|_| !longer.is_empty()).map(below).into_iter().collect())
            }
            Looked::Branch { skip, fork } => self.branch(reader, next, (&at, skip, fork), visit),
        }
    }

    /// What a terminal that climbs commits to where it is.
    fn was(
        &self,
        reader: &Reader<'_, S>,
        at: &At<S::Commit>,
        depth: usize,
    ) -> Option<WasTerminal<S::Commit>> {
        Some(WasTerminal { commit: reader.commit(at, depth)?, depth, owned: None })
    }

    fn branch(
        &mut self,
        reader: &Reader<'_, S>,
        next: &Ahead<S::Commit>,
        (at, skip, fork): (&At<S::Commit>, Digits, Fork<S::Commit>),
        visit: &mut dyn FnMut(Met<'_, S>),
    ) -> Result<Vec<Ahead<S::Commit>>, Halt> {
        let run = skip.run();
        let end = run.end();
        // The keys may leave the skip: the path to the fork is the node's own.
        let mut path = self.keys[next.keys.start].to_vec();
        path.resize(path.len().max(next.depth.div_ceil(Self::WIDTH.per_byte())), 0);
        Self::WIDTH.truncate(&mut path, next.depth);
        run.extend(&mut path, 0);
        let fork = reader.opened(fork, &path, end)?;
        let value = reader.fork_value(&fork, &path, end)?;
        let mut children = Vec::new();
        reader.children(&fork, (&path, end), S::DELTAS, &mut children)?;
        let (found, longer) = self.split(&next.keys, run);
        let reached = found.map_or(longer.start, |found| found)..longer.end;
        let with = (&mut self.scratch, &mut self.commits);
        let list = commit_children(reader, &children, (&path, end), with)?;
        let listed = Listed::list(&list);
        let job = BranchJob { skip: run, children: listed, value: value.as_deref(), changes: None };
        visit(Met {
            keys: next.keys.clone(),
            found: found.filter(|_| value.is_some()),
            commit: if S::DELTAS { reader.commit(at, next.depth) } else { None },
            node: MetNode::Branch(job, reached),
        });
        let mut below = Vec::new();
        let (mut from, fork) = (longer.start, Arc::new(fork));
        while from < longer.end {
            let digit = Self::WIDTH.digit(self.keys[from], end);
            let same = |key: &&&[u8]| Self::WIDTH.digit(key, end) == digit;
            let count = self.keys[from..longer.end].iter().take_while(same).count();
            if let Some(child) = children.iter().find(|child| child.digit == digit) {
                let place = match &child.at {
                    Some(at) => Place::At(at.clone()),
                    None => Place::Member(Arc::clone(&fork), digit),
                };
                below.push(Ahead { place, depth: end + 1, keys: from..from + count });
            }
            from += count;
        }
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
}

/// The commitments of a branch's children; those of terminals that nobody knows are computed, and kept.
pub(crate) fn commit_children<S: Scheme>(
    reader: &Reader<'_, S>,
    children: &[Child<S::Commit>],
    (path, fork): (&[u8], usize),
    (scratch, commits): (&mut S::Scratch, &mut Vec<S::Commit>),
) -> Result<Committed<S>, Halt> {
    let stored = |child: &Child<S::Commit>| match (&child.at, child.commit) {
        (Some(At::Stored(page, entry)), None) => Some((Arc::clone(page), *entry)),
        _ => None,
    };
    let unknown: Vec<(Arc<Page<S::Commit>>, u16)> = children.iter().filter_map(stored).collect();
    let mut jobs = Vec::with_capacity(unknown.len());
    for (page, number) in &unknown {
        let entry = page.entry(*number);
        let key = JobKey::Below { path, fork, digit: Some(entry.digit) };
        jobs.push(stored_terminal(reader.codec, page, entry, fork + 1, key)?);
    }
    commits.clear();
    reader.codec.scheme.commit_terminals(jobs.into_iter(), scratch, commits);
    for ((page, entry), commit) in unknown.iter().zip(&*commits) {
        page.learn(*entry, *commit);
    }
    let mut computed = commits.iter().copied();
    let commit = |child: &Child<S::Commit>| match stored(child) {
        Some(_) => (child.digit, computed.next()),
        None => (child.digit, child.commit),
    };
    Ok(children.iter().map(commit).collect())
}
