//! The unified binary tree of EIP-7864, as geth and the specification's own code keep it.
//!
//! A key is a *stem* of 31 bytes and a place in it; values have 32 bytes. A stem hashes itself and
//! the root of a full tree over its 256 places; stems hang in a tree over their bits, in which a
//! lone stem rises for free and each bit that stems share costs a node with an empty side. Two
//! empty sides are empty: 32 zero bytes. A value of zeros is a value.
//!
//! Digits are bits. A stem is an implicit owner of its values, so it takes room and work in
//! proportion to them: a value alone in its half of the stem is hashed up to the fork, as a fork is
//! up to the one above it. Every fork is a branch whose commitment lies in its page, so one changed
//! value of 256 costs its own hash, its sibling's, and eight pairs.

pub mod reference;

use spinney_hash::{Digest, HashFunction};
pub use spinney_proof::binary::{STEM_BYTES, Ubt};

use crate::binary::{EMPTY, Hasher, admit_value, scheme_id};
use crate::error::Refused;
use crate::ids::SchemeId;
use crate::scheme::Engine;
use crate::scheme::{BranchJob, Children, Layout, LeafJob, Owned, Owner, Scheme};
use spinney_proof::digits::Run;

/// Buffers of the scheme.
#[derive(Debug, Default)]
pub struct UbtScratch {
    hasher: Hasher,
    digests: Vec<Digest>,
    climbs: Vec<Climb>,
    /// The bits of all climbs, a byte each.
    bits: Vec<u8>,
    stems: Vec<u8>,
    stem_slots: Vec<u32>,
}

/// A commitment on its way up beside nothing.
#[derive(Clone, Copy, Debug)]
struct Climb {
    slot: u32,
    /// Where its bits start, topmost first, and how many are left.
    from: u32,
    left: u32,
}

impl Scheme for Ubt {
    const LAYOUT: Layout = Layout {
        owner: Some(Owner { bytes: STEM_BYTES, implicit: true }),
        // Nine hashes, where a page without has a fifth more stems of one value.
        keep_owned_values: false,
        cut_bytes: 1_300,
        owned_cut_bytes: 1_300,
        ..Layout::of_digits(1)
    };

    type Commit = Digest;
    type Root = Digest;
    type Scratch = UbtScratch;
    type Differences = ();
    type Weights = ();

    fn id(&self) -> SchemeId {
        scheme_id(3, self.hash)
    }

    #[inline(never)]
    fn engine() -> Engine<Self> {
        Engine::here()
    }

    fn admit(&self, key: &[u8], value: Option<&[u8]>) -> Result<bool, Refused> {
        match key.len() {
            32 => admit_value(value),
            got => Err(Refused::KeyLength { got, expected: "32 bytes" }),
        }
    }

    fn commit_leaves<'a>(
        &self,
        mut jobs: impl Iterator<Item = LeafJob<'a, Digest>>,
        scratch: &mut UbtScratch,
        out: &mut Vec<Digest>,
    ) {
        if let Some(job) = alone(&mut jobs) {
            out.push(leaf(self.hash, &job, &mut scratch.stems));
            return;
        }
        scratch.start();
        for job in jobs {
            let slot = out.len() as u32;
            out.push(EMPTY);
            let (suffix, value) = match job.owned {
                Some(Owned::Commit(owned)) => {
                    scratch.stem(slot, &job, &owned);
                    continue;
                }
                Some(Owned::Value(suffix, value)) => {
                    // It is hashed by the time that the stem is.
                    scratch.stem(slot | UbtScratch::CLIMBS, &job, &EMPTY);
                    (suffix, value)
                }
                None => (job.suffix, job.value),
            };
            scratch.hasher.bytes.extend_from_slice(&fixed(value));
            scratch.climb(slot, suffix.digits());
        }
        scratch.finish(self.hash, 32, out);
    }

    fn commit_branches<'a, B: Children<Digest>>(
        &self,
        mut jobs: impl Iterator<Item = BranchJob<'a, B>>,
        scratch: &mut UbtScratch,
        out: &mut Vec<Digest>,
    ) {
        if let Some(job) = alone(&mut jobs) {
            let fork = self.hash.hash(sides(&job).as_flattened());
            out.push(rise(self.hash, fork, job.prefix));
            return;
        }
        scratch.start();
        for job in jobs {
            scratch.hasher.bytes.extend_from_slice(sides(&job).as_flattened());
            scratch.climb(out.len() as u32, job.prefix.digits());
            out.push(EMPTY);
        }
        scratch.finish(self.hash, 64, out);
    }

    fn root(&self, top: Option<&Digest>) -> Digest {
        top.copied().unwrap_or(EMPTY)
    }
}

/// The only job of a level, which needs no lanes.
#[inline(always)]
fn alone<T>(jobs: &mut impl Iterator<Item = T>) -> Option<T> {
    if jobs.size_hint() == (1, Some(1)) { jobs.next() } else { None }
}

/// Commits to one leaf.
fn leaf(hash: HashFunction, job: &LeafJob<'_, Digest>, stem: &mut Vec<u8>) -> Digest {
    let climb = |suffix, value| rise(hash, hash.hash(&fixed(value)), suffix);
    let owned = match job.owned {
        Some(Owned::Commit(owned)) => owned,
        Some(Owned::Value(suffix, value)) => climb(suffix, value),
        None => return climb(job.suffix, job.value),
    };
    stem.clear();
    put_stem(job, &owned, stem);
    hash.hash(stem)
}

/// Appends what a stem is hashed of, beside the commitment to what it owns. In a page that others
/// made it may have any length.
fn put_stem(job: &LeafJob<'_, Digest>, owned: &Digest, out: &mut Vec<u8>) {
    let end = out.len() + STEM_BYTES;
    job.put_key(out);
    out.resize(end, 0);
    out.push(0);
    out.extend_from_slice(owned);
}

/// The value of a leaf: a page that others made may hold anything.
fn fixed(value: &[u8]) -> Digest {
    value.first_chunk().copied().unwrap_or_default()
}

/// What the two children of a branch commit to.
#[inline(always)]
fn sides(job: &BranchJob<'_, impl Children<Digest>>) -> [Digest; 2] {
    job.children.pair().unwrap_or_else(|| {
        // A page that others made may hold anything.
        let mut sides = [EMPTY; 2];
        job.children.iter().for_each(|(digit, commit)| sides[usize::from(digit & 1)] = commit);
        sides
    })
}

/// Takes one commitment up beside nothing.
#[inline]
fn rise(hash: HashFunction, mut digest: Digest, run: Run<'_>) -> Digest {
    for side in run.digits().rev() {
        let mut sides = [EMPTY; 2];
        sides[usize::from(side)] = digest;
        digest = hash.hash(sides.as_flattened());
    }
    digest
}

impl UbtScratch {
    fn start(&mut self) {
        self.hasher.clear();
        self.climbs.clear();
        self.bits.clear();
        self.stems.clear();
        self.stem_slots.clear();
    }

    /// Marks the slot of a stem whose value is on its way up.
    const CLIMBS: u32 = 1 << 31;

    fn stem(&mut self, slot: u32, job: &LeafJob<'_, Digest>, owned: &Digest) {
        put_stem(job, owned, &mut self.stems);
        self.stem_slots.push(slot);
    }

    fn climb(&mut self, slot: u32, bits: impl Iterator<Item = u8>) {
        let from = self.bits.len();
        self.bits.extend(bits);
        let left = (self.bits.len() - from) as u32;
        self.climbs.push(Climb { slot, from: from as u32, left });
    }

    /// Hashes what is in the hasher, `len` bytes a climb, and takes each climb to its end; then
    /// stems.
    fn finish(&mut self, hash: HashFunction, len: usize, out: &mut [Digest]) {
        self.hash(hash, len);
        loop {
            for (climb, digest) in self.climbs.iter().zip(&self.digests) {
                out[climb.slot as usize] = *digest;
            }
            self.climbs.retain(|climb| climb.left > 0);
            if self.climbs.is_empty() {
                break;
            }
            self.hasher.clear();
            for climb in &mut self.climbs {
                climb.left -= 1;
                let mut sides = [EMPTY; 2];
                let side = self.bits[(climb.from + climb.left) as usize];
                sides[usize::from(side)] = out[climb.slot as usize];
                self.hasher.bytes.extend_from_slice(sides.as_flattened());
            }
            self.hash(hash, 64);
        }
        if self.stem_slots.is_empty() {
            return;
        }
        std::mem::swap(&mut self.hasher.bytes, &mut self.stems);
        let (stems, _) = self.hasher.bytes.as_chunks_mut::<64>();
        for (slot, stem) in self.stem_slots.iter_mut().zip(stems) {
            if *slot & Self::CLIMBS > 0 {
                *slot ^= Self::CLIMBS;
                stem[32..].copy_from_slice(&out[*slot as usize]);
            }
        }
        self.hash(hash, 64);
        for (slot, digest) in self.stem_slots.iter().zip(&self.digests) {
            out[*slot as usize] = *digest;
        }
    }

    fn hash(&mut self, hash: HashFunction, len: usize) {
        self.digests.clear();
        self.hasher.finish_equal(hash, len, &mut self.digests);
    }
}
