//! Nodes computed again as they are met, and compared with what is said above them.
//!
//! A node that is checked commits to what is said above it, so by induction from the root on all
//! that is read below is what the root stands for, whatever seals rows have. Nodes are not trusted
//! for being resident: they are computed again whenever they are met.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::HashMap;
use std::iter::once;
use std::ops::Range;

use crate::error::TreeError;
use crate::image::Codec;
use crate::node::Top;
use crate::page::corrupt;
use crate::page_key::{PageKey, Space};
use crate::read::{Child, Reader};
use crate::scheme::{
    BranchJob, ChildList, Children, Commitment, LeafJob, Owned, Scheme, implicit_owners,
};
use crate::visit::{NodeVisit, VisitedNode, commit_children};
use spinney_proof::digits::{Run, Width};

/// Computes again what nodes commit to.
#[derive(Debug)]
pub(crate) struct Check<S: Scheme> {
    scratch: S::Scratch,
    out: Vec<S::Commit>,
}

impl<S: Scheme> Default for Check<S> {
    fn default() -> Self {
        Self { scratch: S::Scratch::default(), out: Vec::new() }
    }
}

impl<S: Scheme> Check<S> {
    /// A leaf of a walk commits to what is said above it.
    pub(crate) fn leaf(
        &mut self,
        reader: &Reader<'_, S>,
        job: LeafJob<'_, S::Commit>,
        says: S::Commit,
    ) -> Result<(), TreeError> {
        if self.holds_leaf(reader.codec.scheme, job, says) {
            return Ok(());
        }
        let mut key = Vec::new();
        job.put_key(&mut key);
        Err(other::<S>(reader.space, &key, job.suffix.start()))
    }

    /// A branch of a walk commits to what is said above it; its children are told what they do.
    pub(crate) fn branch(
        &mut self,
        reader: &Reader<'_, S>,
        (path, prefix): (&[u8], Run<'_>),
        (children, value): (&mut [Child<S::Commit>], Option<&[u8]>),
        says: S::Commit,
    ) -> Result<(), TreeError> {
        let with = (&mut self.scratch, &mut self.out);
        commit_children(reader, children, (path, prefix.end()), with)?;
        let list: Vec<_> = children.iter().map(|child| (child.digit, child.commit)).collect();
        let children = ChildList(&list);
        let job = BranchJob { prefix, children, value };
        match self.holds_branch(reader.codec.scheme, job, says) {
            true => Ok(()),
            false => Err(other::<S>(reader.space, path, prefix.start())),
        }
    }

    fn holds_leaf(&mut self, scheme: &S, job: LeafJob<'_, S::Commit>, says: S::Commit) -> bool {
        self.out.clear();
        let job = LeafJob { previous: None, ..job };
        scheme.commit_leaves(once(job), &mut self.scratch, &mut self.out);
        self.out.pop().is_some_and(|commit| commit.agrees(&says))
    }

    fn holds_branch(
        &mut self,
        scheme: &S,
        job: BranchJob<'_, ChildList<'_, S::Commit>>,
        says: S::Commit,
    ) -> bool {
        self.out.clear();
        scheme.commit_branches(once(job), &mut self.scratch, &mut self.out);
        self.out.pop().is_some_and(|commit| commit.agrees(&says))
    }
}

/// The node whose run starts at digit `start` of a path is another one than that which is named
/// above.
fn other<S: Scheme>(space: Space, path: &[u8], start: usize) -> TreeError {
    let width = Codec::<S>::WIDTH;
    let bits = start.min(width.count(path)).saturating_mul(width.bits());
    corrupt(&PageKey::page(space, path, bits), OTHER)
}

/// What is wrong with a node that is not the one its parent commits to.
const OTHER: &str = "it is old or forged: it does not hold what is committed to above it";

/// The nodes on the paths of some keys, each checked as it is met.
pub(crate) struct PathCheck<'k, S: Scheme> {
    scheme: &'k S,
    space: Space,
    keys: &'k [&'k [u8]],
    /// Whether a key is deleted; none of them is where this is shorter.
    pub(crate) shrink: &'k [bool],
    check: Check<S>,
    /// What nodes that are yet to be met commit to, by the first key that leads to each; nothing
    /// for a value that is alone in what is owned, which its owner's commitment is of.
    said: HashMap<usize, Option<S::Commit>>,
    survivors: Vec<Vec<u8>>,
    wrong: Option<TreeError>,
}

impl<'k, S: Scheme> PathCheck<'k, S> {
    const WIDTH: Width = Codec::<S>::WIDTH;

    pub(crate) fn new(
        (scheme, space): (&'k S, Space),
        keys: &'k [&'k [u8]],
        top: Option<Top<S::Commit>>,
    ) -> Self {
        let said = top.map(|top| (0, Some(top.commit))).into_iter().collect();
        let (check, survivors) = (Check::default(), Vec::new());
        Self { scheme, space, keys, shrink: &[], check, said, survivors, wrong: None }
    }

    /// Checks one node; `found` is shown its value, if a key is looked for that has it.
    pub(crate) fn visit_node(&mut self, visited: NodeVisit<'_, S>, found: &mut dyn FnMut(&[u8])) {
        let told = self.said.remove(&visited.keys.start);
        let says = told.flatten();
        let path = self.keys.get(visited.keys.start).copied().unwrap_or_default();
        let (holds, start) = match visited.node {
            VisitedNode::Leaf(job) => {
                let is_key = job.owned.is_none() || !implicit_owners::<S>();
                if visited.found.is_some() && is_key {
                    found(job.value);
                }
                if let Some(owned) = &job.owned {
                    self.owned(&visited.keys, visited.found.is_some(), (&job.suffix, owned));
                }
                let start = job.suffix.start();
                (says.is_none_or(|says| self.check.holds_leaf(self.scheme, job, says)), start)
            }
            VisitedNode::Branch(job, reached) => {
                if visited.found.is_some()
                    && let Some(value) = job.value
                {
                    found(value);
                }
                self.children(&visited.keys, reached, &job);
                let start = job.prefix.start();
                (says.is_none_or(|says| self.check.holds_branch(self.scheme, job, says)), start)
            }
        };
        if !(holds && told.is_some()) && self.wrong.is_none() {
            self.wrong = Some(other::<S>(self.space, path, start));
        }
    }

    /// What a leaf owns is met by the keys that go on: those behind the one that ends here.
    fn owned(
        &mut self,
        keys: &Range<usize>,
        ends: bool,
        (suffix, owned): (&Run<'_>, &Owned<'_, S::Commit>),
    ) {
        let on = |key: &&[u8]| suffix.common(key) == suffix.len();
        let first = self.keys.get(keys.clone()).unwrap_or_default();
        if let Some(at) = first.iter().position(on) {
            let first = keys.start.saturating_add(at).saturating_add(usize::from(ends));
            if first >= keys.end {
                // None goes on: the key behind it leads elsewhere.
                return;
            }
            let own = match owned {
                Owned::Commit(own) => Some(*own),
                Owned::Value(..) => None,
            };
            self.said.insert(first, own);
        }
    }

    /// Notes what the children commit to that keys lead to, and the way to the only one that none
    /// leads to, where keys are deleted: it moves up if the others go.
    fn children(
        &mut self,
        keys: &Range<usize>,
        reached: Range<usize>,
        job: &BranchJob<'_, impl Children<S::Commit>>,
    ) {
        let fork = job.prefix.end();
        let mut digits = Vec::new();
        for at in reached.clone() {
            let Some(key) = self.keys.get(at).filter(|key| Self::WIDTH.count(key) > fork) else {
                continue;
            };
            let digit = Self::WIDTH.digit(key, fork);
            if digits.last() != Some(&digit) {
                digits.push(digit);
                if let Some((_, commit)) = job.children.iter().find(|(child, _)| *child == digit) {
                    self.said.insert(at, Some(commit));
                }
            }
        }
        let shrinks = self.shrink.get(keys.clone()).is_some_and(|shrink| shrink.contains(&true));
        let mut others = job.children.iter().filter(|(digit, _)| !digits.contains(digit));
        if shrinks
            && let Some(key) = self.keys.get(reached.start).filter(|_| !reached.is_empty())
            && let (Some((digit, _)), None) = (others.next(), others.next())
        {
            let mut way = key.to_vec();
            Self::WIDTH.truncate(&mut way, fork);
            Self::WIDTH.append(&mut way, fork, digit);
            self.survivors.push(way);
        }
    }

    /// The ways to nodes that may be left alone.
    ///
    /// # Errors
    /// [`TreeError::Corrupt`] for the first node that is not what is committed to above it.
    pub(crate) fn finish(self) -> Result<Vec<Vec<u8>>, TreeError> {
        match self.wrong {
            Some(wrong) => Err(wrong),
            None => Ok(self.survivors),
        }
    }
}
