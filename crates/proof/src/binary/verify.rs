//! Verifying proofs of keys: one pass over the bytes, with an explicit stack.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::cell::Cell;

use spinney_hash::Digest;

use super::{EMPTY, PBT_BRANCH, PBT_KEY_BYTES_MAX, PBT_LEAF, ProofError, Rules, STEM_BYTES, Word};
use crate::path::{Step, StepKind};

/// Bits of a stem.
const STEM_BITS: usize = 8 * STEM_BYTES;
/// Bits of a key in a UBT.
const UBT_BITS: usize = 256;

/// What is said of a key.
#[derive(Clone, Debug)]
struct KeyClaim<'p> {
    key: &'p [u8],
    value: Option<Word>,
    neighbour: bool,
    /// Whether, being a neighbour, it shows something.
    used: Cell<bool>,
}

/// Where a node is: the claims whose keys lead there, which share their first `depth` bits.
#[derive(Clone, Copy, Debug)]
struct Place<'c, 'p> {
    claims: &'c [KeyClaim<'p>],
    depth: usize,
    /// Whether it is within a stem.
    within: bool,
}

/// What is left to do.
#[derive(Clone, Copy, Debug)]
enum Task<'c, 'p> {
    Node(Place<'c, 'p>),
    Hash,
    /// Both sides are there.
    Fork(Fork<'c, 'p>),
    /// What this stem, at this depth, holds is there.
    Stem(&'p [u8], usize),
}

#[derive(Clone, Copy, Debug)]
struct Fork<'c, 'p> {
    place: Place<'c, 'p>,
    prefix: usize,
    /// The bits of the prefix, packed, where they are not those of the keys.
    bits: Option<&'p [u8]>,
    /// How many bytes of the proof say this, with the sides that are hashes, and how many are.
    cost: (usize, usize),
    /// The claims that go right.
    right: &'c [KeyClaim<'p>],
}

/// A side of a fork, or what a whole node hashes to.
#[derive(Clone, Copy, Debug)]
struct ForkSide {
    digest: Digest,
    /// Whether the proof opens it down to a leaf.
    leaf: bool,
}

impl ForkSide {
    const NOTHING: Self = Self { digest: EMPTY, leaf: false };
}

/// Takes each node of a proof, children before parents, with a key that leads to it.
type Visit<'v> = &'v mut dyn FnMut(&[u8], Step);

/// Checks that the claims and the proof have this root. Shows each node to `visit`.
pub(super) fn run(
    rules: Rules,
    root: &Digest,
    values: &BTreeMap<Vec<u8>, Option<Word>>,
    proof: &[u8],
    visit: Visit<'_>,
) -> Result<(), ProofError> {
    let mut claims: Vec<_> = values.iter().map(|(key, value)| claim(key, *value, false)).collect();
    let mut reader = Reader { proof, at: 0 };
    let got = if claims.is_empty() {
        return Err(ProofError::Nothing);
    } else if proof.is_empty() {
        if claims.iter().any(|claim| claim.value.is_some()) {
            return reader.malformed("it is of an empty tree, and a key is claimed present");
        }
        EMPTY
    } else {
        reader.neighbours(rules, &mut claims)?;
        let (tasks, sides) = (Vec::new(), Vec::new());
        Verifier { rules, reader, tasks, sides, visit }.root(&claims)?
    };
    if got == *root { Ok(()) } else { Err(ProofError::Root { expected: *root, got }) }
}

/// A node as it is seen from `key`, if it lies on its path; `other` leads to it.
pub(super) fn on_path(key: &[u8], other: &[u8], mut step: Step) -> Option<Step> {
    if (0..step.depth).any(|at| bit(key, at) != bit(other, at)) {
        return None;
    }
    let is_other = match step.kind {
        StepKind::Leaf => key != other,
        StepKind::Stem => key.get(..STEM_BYTES) != other.get(..STEM_BYTES),
        _ => false,
    };
    if is_other {
        step.kind = StepKind::Other;
    }
    Some(step)
}

fn claim(key: &[u8], value: Option<Word>, neighbour: bool) -> KeyClaim<'_> {
    KeyClaim { key, value, neighbour, used: Cell::new(false) }
}

/// Bit `index`, the most significant one of the first byte first; zero behind the end.
fn bit(bytes: &[u8], index: usize) -> u8 {
    bytes.get(index / 8).map_or(0, |byte| byte.rotate_left((index % 8) as u32) >> 7)
}

fn bits(bytes: &[u8]) -> usize {
    bytes.len().saturating_mul(8)
}

/// The claims that a key is present.
fn present<'c, 'p>(claims: &'c [KeyClaim<'p>]) -> impl Iterator<Item = &'c KeyClaim<'p>> {
    claims.iter().filter(|claim| claim.value.is_some())
}

/// The proof's bytes, from the first to the last.
#[derive(Clone, Copy, Debug)]
struct Reader<'p> {
    proof: &'p [u8],
    at: usize,
}

impl<'p> Reader<'p> {
    fn malformed<T>(&self, what: &'static str) -> Result<T, ProofError> {
        Err(ProofError::Malformed { at: self.at, what })
    }

    fn take(&mut self, len: usize) -> Result<&'p [u8], ProofError> {
        let end = self.at.saturating_add(len);
        match self.proof.get(self.at..end) {
            Some(bytes) => {
                self.at = end;
                Ok(bytes)
            }
            None => self.malformed("it ends early"),
        }
    }

    fn byte(&mut self) -> Result<u8, ProofError> {
        Ok(self.take(1)?.first().copied().unwrap_or_default())
    }

    fn word(&mut self) -> Result<Word, ProofError> {
        Ok(self.take(32)?.first_chunk().copied().unwrap_or_default())
    }

    /// A number below 2^28, in its shortest form.
    fn number(&mut self) -> Result<usize, ProofError> {
        let mut number = 0;
        for (index, unit) in [1, 1 << 7, 1 << 14, 1 << 21].into_iter().enumerate() {
            let byte = self.byte()?;
            number |= usize::from(byte & 0x7f).saturating_mul(unit);
            if byte < 0x80 {
                if byte == 0 && index > 0 {
                    return self.malformed("a number is not in its shortest form");
                }
                return Ok(number);
            }
        }
        self.malformed("a number is out of bounds")
    }

    /// Reads the neighbours, and puts them among the claims.
    fn neighbours(
        &mut self,
        rules: Rules,
        claims: &mut Vec<KeyClaim<'p>>,
    ) -> Result<(), ProofError> {
        let mut last: Option<&[u8]> = None;
        for _ in 0..self.number()? {
            let len = self.number()?;
            let key = self.take(len)?;
            if rules.check_key(key).is_err() {
                return self.malformed("the tree has no keys of a neighbour's length");
            }
            if last.replace(key).is_some_and(|last| last >= key) {
                return self.malformed("the neighbours are out of order");
            }
            claims.push(claim(key, Some(self.word()?), true));
        }
        claims.sort_unstable_by_key(|claim| claim.key);
        if !claims.is_sorted_by(|a, b| a.key < b.key) {
            return self.malformed("a neighbour is a key claimed");
        }
        Ok(())
    }
}

struct Verifier<'c, 'p, 'v> {
    rules: Rules,
    reader: Reader<'p>,
    tasks: Vec<Task<'c, 'p>>,
    sides: Vec<ForkSide>,
    visit: Visit<'v>,
}

impl<'c, 'p> Verifier<'c, 'p, '_> {
    /// The root of what is claimed.
    fn root(&mut self, claims: &'c [KeyClaim<'p>]) -> Result<Digest, ProofError> {
        self.tasks.push(Task::Node(Place { claims, depth: 0, within: false }));
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Node(place) => self.node(place)?,
                Task::Hash => {
                    let digest = self.reader.word()?;
                    if digest == EMPTY {
                        return self.malformed("a side of a fork is empty");
                    }
                    self.sides.push(ForkSide { digest, leaf: false });
                }
                Task::Fork(fork) => self.fork(&fork)?,
                Task::Stem(stem, depth) => {
                    let held = self.side()?;
                    let digest = self.rules.hash.hash(&[stem, &[0], &held.digest].concat());
                    let digits = STEM_BITS.saturating_sub(depth);
                    self.seen(stem, StepKind::Stem, (depth, digits), digest, (1, 0));
                    self.sides.push(ForkSide { digest, ..held });
                }
            }
        }
        if self.reader.at < self.reader.proof.len() {
            return self.malformed("there are bytes behind its end");
        }
        if claims.iter().any(|claim| claim.neighbour && !claim.used.get()) {
            return self.malformed("a neighbour shows nothing");
        }
        Ok(self.side()?.digest)
    }

    fn malformed<T>(&self, what: &'static str) -> Result<T, ProofError> {
        self.reader.malformed(what)
    }

    /// Shows a node: where it begins and how many bits it takes, bytes that say it, and hashes
    /// beside the path.
    fn seen(
        &mut self,
        key: &[u8],
        kind: StepKind,
        (depth, digits): (usize, usize),
        digest: Digest,
        (bytes, siblings): (usize, usize),
    ) {
        let digest = Some(digest);
        (self.visit)(key, Step { kind, depth, digits, digest, bytes, siblings, sum: None });
    }

    /// The side that was done last.
    fn side(&mut self) -> Result<ForkSide, ProofError> {
        match self.sides.pop() {
            Some(side) => Ok(side),
            None => self.malformed("it has fewer nodes than its forks have sides"),
        }
    }

    fn node(&mut self, place: Place<'c, 'p>) -> Result<(), ProofError> {
        match self.reader.byte()? {
            0 => self.open_fork(place, false),
            1 => self.open_fork(place, true),
            2 if self.rules.stems && !place.within => self.open_stem(place),
            2 => self.leaf(place),
            _ => self.malformed("a node is of no known kind"),
        }
    }

    fn open_stem(&mut self, place: Place<'c, 'p>) -> Result<(), ProofError> {
        let shown = present(place.claims).next();
        let Some((shown, stem)) =
            shown.and_then(|claim| Some((claim, claim.key.get(..STEM_BYTES)?)))
        else {
            return self.malformed("a stem is reached, and nothing in it is claimed present");
        };
        let of_stem = |claim: &KeyClaim<'_>| claim.key.starts_with(stem);
        let mut runs = place.claims.chunk_by(|a, b| of_stem(a) == of_stem(b));
        let claims = runs.find(|run| run.first().is_some_and(of_stem)).unwrap_or_default();
        if present(place.claims).any(|claim| !of_stem(claim)) {
            return self.malformed("one stem is reached by keys of two that are claimed present");
        }
        if present(claims).all(|claim| claim.neighbour) {
            uses(place.claims, shown);
        }
        self.tasks.push(Task::Stem(stem, place.depth));
        self.tasks.push(Task::Node(Place { claims, depth: STEM_BITS, within: true }));
        Ok(())
    }

    fn leaf(&mut self, place: Place<'c, 'p>) -> Result<(), ProofError> {
        let mut present = present(place.claims);
        let (Some(claim), None) = (present.next(), present.next()) else {
            return self
                .malformed("a leaf is reached by no key that is claimed present, or by two");
        };
        uses(place.claims, claim);
        let hash = self.rules.hash;
        let value = claim.value.unwrap_or_default();
        let side = if self.rules.stems {
            let leaf = ForkSide { digest: hash.hash(&value), leaf: true };
            self.climb(leaf, (place.depth..UBT_BITS).map(|at| bit(claim.key, at)))?
        } else {
            ForkSide { digest: hash.hash(&[&[PBT_LEAF], claim.key, &value].concat()), leaf: true }
        };
        let digits = bits(claim.key).saturating_sub(place.depth);
        self.seen(claim.key, StepKind::Leaf, (place.depth, digits), side.digest, (1, 0));
        self.sides.push(side);
        Ok(())
    }

    fn open_fork(&mut self, place: Place<'c, 'p>, leaving: bool) -> Result<(), ProofError> {
        let Place { claims, depth, within } = place;
        let start = self.reader.at;
        let prefix = self.reader.number()?;
        let end = match (self.rules.stems, within) {
            (false, _) => 8 * PBT_KEY_BYTES_MAX,
            (true, false) => STEM_BITS,
            (true, true) => UBT_BITS,
        };
        let fork = depth.saturating_add(prefix);
        if fork >= end {
            return self.malformed("a fork is deeper than the tree");
        }
        let packed = if leaving { Some(self.reader.take(prefix.div_ceil(8))?) } else { None };
        if packed.is_some_and(|packed| (prefix..bits(packed)).any(|at| bit(packed, at) != 0)) {
            return self.malformed("bits behind a prefix are not zero");
        }
        let first = claims.first().map(|claim| claim.key).unwrap_or_default();
        if packed.is_none() && bits(first) <= fork {
            return self.malformed("a key ends above a fork that it is to go through");
        }
        let below = |claim: &KeyClaim<'_>| {
            let same = |(at, skipped): (usize, usize)| match packed {
                Some(packed) => bit(claim.key, at) == bit(packed, skipped),
                None => bit(claim.key, at) == bit(first, at),
            };
            bits(claim.key) > fork && (depth..fork).zip(0..).all(same)
        };
        // Keys in order: those that go on below stand together.
        let mut runs = claims.chunk_by(|a, b| below(a) == below(b));
        let on = runs.find(|run| run.first().is_some_and(below)).unwrap_or_default();
        if (on.len() == claims.len()) == leaving {
            return self.malformed("whether a key leaves at a fork is said wrongly");
        }
        if present(claims).any(|claim| !below(claim)) {
            return self.malformed("a key that is claimed present leaves at a fork");
        }
        let (left, right) = on.split_at(on.partition_point(|claim| bit(claim.key, fork) == 0));
        let siblings = usize::from(left.is_empty()).saturating_add(right.is_empty().into());
        // The byte before says that it is a fork.
        let said = self.reader.at.saturating_sub(start).saturating_add(1);
        let cost = (said.saturating_add(siblings.saturating_mul(32)), siblings);
        self.tasks.push(Task::Fork(Fork { place, prefix, bits: packed, cost, right }));
        for claims in [right, left] {
            let depth = fork.saturating_add(1);
            self.tasks.push(match claims.is_empty() {
                true => Task::Hash,
                false => Task::Node(Place { claims, depth, within }),
            });
        }
        Ok(())
    }

    fn fork(&mut self, fork: &Fork<'c, 'p>) -> Result<(), ProofError> {
        let Fork { place: Place { claims, depth, .. }, prefix, bits, right: to_right, .. } = *fork;
        let (right, left) = (self.side()?, self.side()?);
        let first = claims.first().map(|claim| claim.key).unwrap_or_default();
        let at = (depth..depth.saturating_add(prefix)).zip(0..);
        let skipped: Vec<u8> = match bits {
            Some(bits) => at.map(|(_, skipped)| bit(bits, skipped)).collect(),
            None => at.map(|(at, _)| bit(first, at)).collect(),
        };
        let side = if self.rules.stems {
            if reads_as_stem(&left) {
                tells_apart(to_right);
            }
            let joined = self.join(left, right)?;
            if skipped.contains(&1) {
                tells_apart(claims);
            }
            self.climb(joined, skipped.into_iter())?
        } else {
            let mut input = vec![PBT_BRANCH];
            // Below 65,536: a fork is above the end of every key.
            input.extend_from_slice(&(prefix as u16).to_be_bytes());
            let pack = |bits: &[u8]| bits.iter().rev().fold(0, |byte, bit| byte >> 1 | bit << 7);
            input.extend(skipped.chunks(8).map(pack));
            input.extend_from_slice([left.digest, right.digest].as_flattened());
            let digest = self.rules.hash.hash(&input);
            ForkSide { digest, leaf: left.leaf || right.leaf }
        };
        let place = (depth, prefix.saturating_add(1));
        self.seen(first, StepKind::Fork, place, side.digest, fork.cost);
        self.sides.push(side);
        Ok(())
    }

    /// Two sides of a UBT, of which one may be empty.
    ///
    /// They have to be told from a stem: see the module.
    fn join(&self, left: ForkSide, right: ForkSide) -> Result<ForkSide, ProofError> {
        if reads_as_stem(&left) && right.digest != EMPTY && !right.leaf {
            return self
                .malformed("a fork reads as a stem, and no leaf on its right side is shown");
        }
        let digest = self.rules.hash.hash([left.digest, right.digest].as_flattened());
        Ok(ForkSide { digest, leaf: left.leaf || right.leaf })
    }

    /// A side up beside nothing, along bits topmost first.
    fn climb(
        &self,
        side: ForkSide,
        bits: impl DoubleEndedIterator<Item = u8>,
    ) -> Result<ForkSide, ProofError> {
        bits.rev().try_fold(side, |side, bit| match bit {
            0 => self.join(side, ForkSide::NOTHING),
            _ => self.join(ForkSide::NOTHING, side),
        })
    }
}

/// Whether a left side can be a stem and the zero behind it.
fn reads_as_stem(left: &ForkSide) -> bool {
    left.digest.ends_with(&[0])
}

/// Where a leaf stands alone, keys claimed absent may end, too: then a neighbour has shown it.
fn uses(claims: &[KeyClaim<'_>], neighbour: &KeyClaim<'_>) {
    if claims.iter().any(|claim| !claim.neighbour) {
        neighbour.used.set(true);
    }
}

/// A leaf among these tells a fork from a stem: the first neighbour, if no key claimed is present.
fn tells_apart(claims: &[KeyClaim<'_>]) {
    if present(claims).all(|claim| claim.neighbour)
        && let Some(neighbour) = present(claims).next()
    {
        neighbour.used.set(true);
    }
}
