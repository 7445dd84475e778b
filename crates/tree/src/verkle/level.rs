//! Commitments of many nodes at once.
//!
//! Jobs are gathered as differences, each to the element it is added to; then all are added, all
//! elements are brought to the form that pages keep, and all are mapped to scalars for one
//! inversion. The nodes of a prefix follow, those at one distance from their forks together.

use spinney_ipa::{Crs, Delta, Element, Fr, SignedScalar};

use spinney_proof::verkle::{limbs, terms};

use super::commit::{Commit, CommitKind, Point};
use crate::scheme::{LeafJob, PreviousLeaf};
use spinney_proof::digits::Run;

/// What a branch is in the Verkle tree.
pub(super) enum Shape<'a> {
    /// The values of a stem.
    Values,
    /// An internal node, and those of its prefix.
    Internal(Run<'a>),
}

/// A level of nodes that are being committed to.
#[derive(Debug, Default)]
pub struct Level {
    jobs: Vec<Job>,
    /// What elements were before, as pages have them.
    starts: Vec<[u8; 64]>,
    deltas: Vec<Delta>,
    /// The prefixes of all climbs, end to end.
    prefixes: Vec<u8>,
    climbs: Vec<VerkleClimb>,
}

#[derive(Clone, Copy, Debug)]
enum Job {
    Value([u8; 32]),
    /// Each half: as it was, or an element.
    Halves([Result<Point, u32>; 2]),
    /// An element.
    Node(u32),
}

/// A node below one-child nodes, or at the top of the tree.
#[derive(Clone, Copy, Debug)]
struct VerkleClimb {
    job: u32,
    /// Where its digits are among the prefixes; they are taken from the end.
    from: u32,
    left: u32,
    top: bool,
}

const NOTHING: [u64; 4] = [0; 4];

impl Level {
    pub(super) fn clear(&mut self) {
        self.jobs.clear();
        self.starts.clear();
        self.deltas.clear();
        self.prefixes.clear();
        self.climbs.clear();
    }

    fn start(&mut self, element: [u8; 64]) -> u32 {
        self.starts.push(element);
        self.starts.len() as u32 - 1
    }

    fn add(&mut self, target: u32, basis: u8, old: [u64; 4], new: [u64; 4]) {
        if old != new {
            let amount = SignedScalar::between(old, new);
            self.deltas.push(Delta { target, basis, amount });
        }
    }

    fn add_value(&mut self, target: u32, suffix: u8, old: Option<[u8; 32]>, new: Option<[u8; 32]>) {
        let first = suffix % 128 * 2;
        let (old, new) = (terms(old), terms(new));
        self.add(target, first, old[0], new[0]);
        self.add(target, first + 1, old[1], new[1]);
    }

    /// A value below a stem of several.
    pub(super) fn value(&mut self, bytes: &[u8]) {
        let CommitKind::Value(value) = Commit::of_value(bytes).0 else { unreachable!("a value") };
        self.jobs.push(Job::Value(value));
    }

    /// The only value of a stem.
    pub(super) fn half(&mut self, suffix: u8, bytes: &[u8]) {
        let target = self.start(Point::IDENTITY.element);
        let value = bytes.first_chunk().copied().unwrap_or_default();
        self.add_value(target, suffix, None, Some(value));
        let mut halves = [Ok(Point::IDENTITY); 2];
        halves[usize::from(suffix / 128)] = Err(target);
        self.jobs.push(Job::Halves(halves));
    }

    /// A stem with these values.
    pub(super) fn stem(&mut self, job: &LeafJob<'_, Commit>, halves: &[Point; 2]) {
        let (target, old) = match &job.previous {
            Some(PreviousLeaf { commit, owned: Some(owned), .. }) => {
                (self.start(commit.own()), owned.halves())
            }
            _ => {
                let target = self.start(Point::IDENTITY.element);
                let from = self.prefixes.len();
                job.put_key(&mut self.prefixes);
                let mut stem = [0; 32];
                // A page that others made may hold a stem of any length.
                let bytes = self.prefixes[from..].iter().take(31);
                stem.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
                self.prefixes.truncate(from);
                self.add(target, 0, NOTHING, [1, 0, 0, 0]);
                self.add(target, 1, NOTHING, limbs(&stem));
                (target, [Point::IDENTITY; 2])
            }
        };
        for (basis, (old, new)) in (2..).zip(old.iter().zip(halves)) {
            self.add(target, basis, limbs(&old.scalar), limbs(&new.scalar));
        }
        self.jobs.push(Job::Node(target));
        if job.suffix.start() == 0 {
            // It hangs in the root node by its first byte.
            let first = job.suffix.digits().next().unwrap_or_default();
            self.climb([first].into_iter(), true);
        }
    }

    /// A branch, what it committed to before, and each digit's child then and now.
    pub(super) fn branch(
        &mut self,
        shape: Shape<'_>,
        previous: Option<&Commit>,
        changes: impl Iterator<Item = (u8, Option<Commit>, Option<Commit>)>,
    ) {
        match shape {
            Shape::Values => {
                let old = previous.map_or([Point::IDENTITY; 2], Commit::halves);
                let mut halves = old.map(Ok);
                for (suffix, old, new) in changes {
                    let half = &mut halves[usize::from(suffix / 128)];
                    let target = match *half {
                        Err(target) => target,
                        Ok(point) => {
                            let target = self.start(point.element);
                            *half = Err(target);
                            target
                        }
                    };
                    self.add_value(target, suffix, word(old), word(new));
                }
                self.jobs.push(Job::Halves(halves));
            }
            Shape::Internal(prefix) => {
                let own = previous.map_or(Point::IDENTITY.element, Commit::own);
                let target = self.start(own);
                for (digit, old, new) in changes {
                    let scalar = |commit: Option<Commit>| {
                        commit.map_or(NOTHING, |commit| limbs(&commit.scalar()))
                    };
                    self.add(target, digit, scalar(old), scalar(new));
                }
                self.jobs.push(Job::Node(target));
                if !prefix.is_empty() || prefix.start() == 0 {
                    self.climb(prefix.digits(), prefix.start() == 0);
                }
            }
        }
    }

    /// The last job is below one-child nodes at these digits.
    fn climb(&mut self, digits: impl Iterator<Item = u8>, top: bool) {
        let from = self.prefixes.len();
        self.prefixes.extend(digits);
        let left = (self.prefixes.len() - from) as u32;
        let job = self.jobs.len() as u32 - 1;
        self.climbs.push(VerkleClimb { job, from: from as u32, left, top });
    }

    /// Commits to all jobs, in order.
    pub(super) fn finish(&mut self, crs: &Crs, out: &mut Vec<Commit>) {
        // An element that is none, in a page that somebody forged, stands for nothing.
        let mut elements: Vec<Element> = crs
            .decode_trusted_many(&self.starts)
            .into_iter()
            .map(Option::unwrap_or_default)
            .collect();
        crs.add_deltas(&mut elements, &self.deltas);
        let written = crs.encode_and_map_many(&elements);
        let point = |target: u32| {
            let (element, scalar) = written[target as usize];
            Point { element, scalar }
        };
        let from = out.len();
        out.extend(self.jobs.iter().map(|job| {
            Commit(match *job {
                Job::Value(value) => CommitKind::Value(value),
                Job::Halves(halves) => {
                    CommitKind::Halves(halves.map(|half| half.unwrap_or_else(point)))
                }
                Job::Node(target) => CommitKind::Node(point(target)),
            })
        }));
        self.rise(crs, &mut out[from..]);
    }

    /// Takes every climb to its end.
    fn rise(&mut self, crs: &Crs, out: &mut [Commit]) {
        let climbs = std::mem::take(&mut self.climbs);
        for climb in climbs.iter().filter(|climb| climb.top && climb.left == 0) {
            let commit = &mut out[climb.job as usize];
            let own = commit.own();
            commit.0 = CommitKind::Top { own, root: own };
        }
        let mut left: Vec<VerkleClimb> =
            climbs.iter().copied().filter(|climb| climb.left > 0).collect();
        while !left.is_empty() {
            let terms: Vec<[(u8, Fr); 1]> = left
                .iter()
                .map(|climb| {
                    let digit = self.prefixes[(climb.from + climb.left - 1) as usize];
                    [(digit, out[climb.job as usize].in_parent())]
                })
                .collect();
            let terms: Vec<&[(u8, Fr)]> = terms.iter().map(|term| &term[..]).collect();
            let nodes = crs.encode_and_map_many(&crs.commit_sparse_many(&terms));
            for (climb, (root, scalar)) in left.iter_mut().zip(nodes) {
                climb.left -= 1;
                let commit = &mut out[climb.job as usize];
                let own = commit.own();
                commit.0 = if climb.top && climb.left == 0 {
                    CommitKind::Top { own, root }
                } else {
                    CommitKind::Node(Point { element: own, scalar })
                };
            }
            left.retain(|climb| climb.left > 0);
        }
        self.climbs = climbs;
    }
}

/// The value of a child of a stem.
fn word(commit: Option<Commit>) -> Option<[u8; 32]> {
    match commit?.0 {
        CommitKind::Value(value) => Some(value),
        _ => None,
    }
}
