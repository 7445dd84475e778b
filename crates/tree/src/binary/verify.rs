//! Verifying proofs of keys: one pass over the bytes, with an explicit stack.

use std::collections::BTreeMap;
use std::ops::Range;

use spinney_hash::{Digest, HashFunction};

use super::EMPTY;
use super::proof::{BinaryTree, ProofError, Word, check_key};
use crate::pbt;
use crate::scheme::KEY_BYTES_MAX;
use crate::ubt::STEM_BYTES;

/// Bits of a stem.
const STEM_BITS: usize = 8 * STEM_BYTES;
/// Bits of a key in a UBT.
const UBT_BITS: usize = 256;

/// What is said of a key.
#[derive(Clone, Debug)]
struct Claim<'p> {
    key: &'p [u8],
    value: Option<Word>,
    witness: bool,
    /// Whether, being a witness, it shows something.
    used: bool,
}

/// Where a node is: the keys whose path leads there, which share their first `depth` bits.
#[derive(Clone, Debug)]
struct Place {
    keys: Range<usize>,
    depth: usize,
    /// Whether it is within a stem.
    within: bool,
}

/// What is left to do.
#[derive(Clone, Debug)]
enum Task<'p> {
    Node(Place),
    Hash,
    /// Both sides are there.
    Fork(Fork<'p>),
    /// What the stem of a key holds is there.
    Stem {
        key: usize,
    },
}

#[derive(Clone, Debug)]
struct Fork<'p> {
    place: Place,
    skip: usize,
    /// The bits of the skip, packed, where they are not those of the keys.
    bits: Option<&'p [u8]>,
}

struct Verifier<'p, S> {
    tree: &'p S,
    hash: HashFunction,
    claims: Vec<Claim<'p>>,
    proof: &'p [u8],
    at: usize,
    tasks: Vec<Task<'p>>,
    digests: Vec<Digest>,
}

/// Checks that the claims and the proof have this root.
pub(super) fn run<S: BinaryTree>(
    tree: &S,
    root: &Digest,
    values: &BTreeMap<Vec<u8>, Option<Word>>,
    proof: &[u8],
) -> Result<(), ProofError> {
    let claims = values
        .iter()
        .map(|(key, value)| Claim { key, value: *value, witness: false, used: false })
        .collect();
    let hash = tree.hash();
    let (tasks, digests) = (Vec::new(), Vec::new());
    let mut verifier = Verifier { tree, hash, claims, proof, at: 0, tasks, digests };
    let got = verifier.root()?;
    if got == *root { Ok(()) } else { Err(ProofError::Root { expected: *root, got }) }
}

fn bit(bytes: &[u8], index: usize) -> u8 {
    bytes[index / 8] >> (7 - index % 8) & 1
}

impl<'p, S: BinaryTree> Verifier<'p, S> {
    fn root(&mut self) -> Result<Digest, ProofError> {
        if self.proof.is_empty() {
            return match self.claims.iter().find(|claim| claim.value.is_some()) {
                None => Ok(EMPTY),
                Some(_) => self.malformed("it is of an empty tree, and a key is claimed present"),
            };
        }
        if self.claims.is_empty() {
            return self.malformed("no key is claimed, and there is a proof");
        }
        self.witnesses()?;
        let keys = 0..self.claims.len();
        self.tasks.push(Task::Node(Place { keys, depth: 0, within: false }));
        while let Some(task) = self.tasks.pop() {
            match task {
                Task::Node(place) => self.node(place)?,
                Task::Hash => {
                    let hash = self.take(32)?.try_into().expect("32 bytes");
                    if hash == EMPTY {
                        return self.malformed("a side of a fork is empty");
                    }
                    self.digests.push(hash);
                }
                Task::Fork(fork) => self.fork(&fork)?,
                Task::Stem { key } => {
                    let held = self.digests.pop().expect("a node leaves a digest");
                    let stem = &self.claims[key].key[..STEM_BYTES];
                    self.digests.push(self.hash.hash(&[stem, &[0], &held].concat()));
                }
            }
        }
        if self.at < self.proof.len() {
            return self.malformed("there are bytes behind its end");
        }
        if self.claims.iter().any(|claim| claim.witness && !claim.used) {
            return self.malformed("a witness shows nothing");
        }
        Ok(self.digests.pop().expect("the top node leaves a digest"))
    }

    fn malformed<T>(&self, what: &'static str) -> Result<T, ProofError> {
        Err(ProofError::Malformed { at: self.at, what })
    }

    fn take(&mut self, len: usize) -> Result<&'p [u8], ProofError> {
        match self.proof[self.at..].get(..len) {
            Some(bytes) => {
                self.at += len;
                Ok(bytes)
            }
            None => self.malformed("it ends early"),
        }
    }

    /// A number below 2^28, in its shortest form.
    fn number(&mut self) -> Result<usize, ProofError> {
        let mut number = 0;
        for shift in [0, 7, 14, 21] {
            let byte = self.take(1)?[0];
            number |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                if byte == 0 && shift > 0 {
                    return self.malformed("a number is not in its shortest form");
                }
                return Ok(number);
            }
        }
        self.malformed("a number is out of bounds")
    }

    /// Reads the witnesses, and puts them among the claims.
    fn witnesses(&mut self) -> Result<(), ProofError> {
        let mut last: Option<&[u8]> = None;
        for _ in 0..self.number()? {
            let len = self.number()?;
            let key = self.take(len)?;
            if check_key(self.tree, key).is_err() {
                return self.malformed("the tree has no keys of a witness's length");
            }
            if last.replace(key).is_some_and(|last| last >= key) {
                return self.malformed("the witnesses are out of order");
            }
            let value = Some(self.take(32)?.try_into().expect("32 bytes"));
            self.claims.push(Claim { key, value, witness: true, used: false });
        }
        self.claims.sort_unstable_by_key(|claim| claim.key);
        if self.claims.windows(2).any(|pair| pair[0].key == pair[1].key) {
            return self.malformed("a witness is a key claimed");
        }
        Ok(())
    }

    fn node(&mut self, place: Place) -> Result<(), ProofError> {
        match self.take(1)?[0] {
            0 => self.open_fork(place, false),
            1 => self.open_fork(place, true),
            2 if S::STEMS && !place.within => self.open_stem(place),
            2 => self.leaf(&place),
            _ => self.malformed("a node is of no known kind"),
        }
    }

    /// The only key that is present among some; all others are shown absent.
    fn present(&self, keys: &Range<usize>) -> impl Iterator<Item = usize> + '_ {
        keys.clone().filter(|&key| self.claims[key].value.is_some())
    }

    /// Where a leaf stands alone, keys claimed absent may end, too: then a witness has shown it.
    fn uses(&mut self, keys: &Range<usize>, witness: usize) {
        let asked = self.claims[keys.clone()].iter().any(|claim| !claim.witness);
        if asked && self.claims[witness].witness {
            self.claims[witness].used = true;
        }
    }

    fn open_stem(&mut self, place: Place) -> Result<(), ProofError> {
        let Some(key) = self.present(&place.keys).next() else {
            return self.malformed("a stem is reached, and nothing in it is claimed present");
        };
        let stem = &self.claims[key].key[..STEM_BYTES];
        let same = |&key: &usize| self.claims[key].key.starts_with(stem);
        let from = place.keys.clone().find(same).expect("the key itself has its stem");
        let to = from + (from..place.keys.end).take_while(same).count();
        if self.present(&place.keys).any(|key| !(from..to).contains(&key)) {
            return self.malformed("one stem is reached by keys of two that are claimed present");
        }
        if self.present(&(from..to)).all(|key| self.claims[key].witness) {
            self.uses(&place.keys, key);
        }
        self.tasks.push(Task::Stem { key });
        let within = Place { keys: from..to, depth: STEM_BITS, within: true };
        self.tasks.push(Task::Node(within));
        Ok(())
    }

    fn leaf(&mut self, place: &Place) -> Result<(), ProofError> {
        let mut present = self.present(&place.keys);
        let (first, second) = (present.next(), present.next());
        drop(present);
        let (Some(key), None) = (first, second) else {
            return self
                .malformed("a leaf is reached by no key that is claimed present, or by two");
        };
        self.uses(&place.keys, key);
        let claim = &self.claims[key];
        let value = claim.value.expect("a key that is present");
        let digest = if S::STEMS {
            let depth = place.depth;
            climb(self.hash, self.hash.hash(&value), depth..UBT_BITS, |at| bit(claim.key, at))
        } else {
            self.hash.hash(&[&[pbt::LEAF], claim.key, &value].concat())
        };
        self.digests.push(digest);
        Ok(())
    }

    fn open_fork(&mut self, place: Place, leaving: bool) -> Result<(), ProofError> {
        let Place { keys, depth, within } = place;
        let skip = self.number()?;
        let end = match (S::STEMS, within) {
            (false, _) => 8 * KEY_BYTES_MAX,
            (true, false) => STEM_BITS,
            (true, true) => UBT_BITS,
        };
        let fork = depth + skip;
        if fork >= end {
            return self.malformed("a fork is deeper than the tree");
        }
        let bits = if leaving { Some(self.take(skip.div_ceil(8))?) } else { None };
        if bits.is_some_and(|bits| (skip..8 * bits.len()).any(|at| bit(bits, at) != 0)) {
            return self.malformed("bits behind a skip are not zero");
        }
        let first = self.claims[keys.start].key;
        if bits.is_none() && 8 * first.len() <= fork {
            return self.malformed("a key ends above a fork that it is to go through");
        }
        let below = |claim: &Claim<'_>| {
            let same = |at: usize| match bits {
                Some(bits) => bit(claim.key, depth + at) == bit(bits, at),
                None => bit(claim.key, depth + at) == bit(first, depth + at),
            };
            8 * claim.key.len() > fork && (0..skip).all(same)
        };
        let from = keys.clone().find(|&key| below(&self.claims[key])).unwrap_or(keys.end);
        let to = from + self.claims[from..keys.end].iter().take_while(|claim| below(claim)).count();
        if ((from..to) == keys) == leaving {
            return self.malformed("whether a key leaves at a fork is said wrongly");
        }
        if self.present(&(keys.start..from)).chain(self.present(&(to..keys.end))).next().is_some() {
            return self.malformed("a key that is claimed present leaves at a fork");
        }
        let right = self.claims[from..to].partition_point(|claim| bit(claim.key, fork) == 0) + from;
        self.tasks.push(Task::Fork(Fork { place: Place { keys, depth, within }, skip, bits }));
        for side in [right..to, from..right] {
            self.tasks.push(match side.is_empty() {
                true => Task::Hash,
                false => Task::Node(Place { keys: side, depth: fork + 1, within }),
            });
        }
        Ok(())
    }

    fn fork(&mut self, fork: &Fork<'p>) -> Result<(), ProofError> {
        let Fork { place: Place { keys, depth, within }, skip, bits } = fork;
        let (Some(right), Some(left)) = (self.digests.pop(), self.digests.pop()) else {
            unreachable!("two nodes leave two digests")
        };
        let first = self.claims[keys.start].key;
        let skipped = |at: usize| match bits {
            Some(bits) => bit(bits, at),
            None => bit(first, depth + at),
        };
        if !S::STEMS {
            let mut input = vec![pbt::BRANCH];
            // Below 65,536: a fork is above the end of every key.
            input.extend_from_slice(&(*skip as u16).to_be_bytes());
            let from = input.len();
            input.resize(from + skip.div_ceil(8), 0);
            for at in 0..*skip {
                input[from + at / 8] |= skipped(at) << (7 - at % 8);
            }
            input.extend_from_slice([left, right].as_flattened());
            self.digests.push(self.hash.hash(&input));
            return Ok(());
        }
        let reads_as_stem = |claim: &Claim<'_>| claim.key.starts_with(&left[..STEM_BYTES]);
        if !within && left[STEM_BYTES] == 0 && self.claims[keys.clone()].iter().any(reads_as_stem) {
            return self.malformed("a side of a fork reads as the stem of a key");
        }
        let joined = self.hash.hash([left, right].as_flattened());
        self.digests.push(climb(self.hash, joined, 0..*skip, skipped));
        Ok(())
    }
}

/// A digest up beside nothing, along bits topmost first.
fn climb(
    hash: HashFunction,
    digest: Digest,
    bits: Range<usize>,
    bit: impl Fn(usize) -> u8,
) -> Digest {
    bits.rev().fold(digest, |digest, at| {
        let mut sides = [EMPTY; 2];
        sides[usize::from(bit(at))] = digest;
        hash.hash(sides.as_flattened())
    })
}
