//! Many lone subtrees rising beside empty ones, on full lanes.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::SmallVec;
use spinney_hash::{Digest, SumClimb, sha256_equal, sha256_sum_climb};

use super::{BOUND_BRANCH, DEPTH, Profile, goes_right};

/// How many climbs are handed to the kernel at a time: they lie on the stack.
const CLIMBS: usize = 64;

/// How many levels all climbs of this process have hashed so far.
static LEVELS: AtomicU64 = AtomicU64::new(0);

/// How many levels lone leaves and subtrees have been hashed up beside empty ones so far, in all trees of
/// the process: nearly all that a tree costs. For measuring, and for tests that something costs nothing.
pub fn levels_climbed() -> u64 {
    LEVELS.load(Ordering::Relaxed)
}

/// A subtree that rises from one depth to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rise {
    pub(super) hash: Digest,
    pub(super) sum: u64,
    /// The path, as users write keys.
    pub(super) key: [u8; 32],
    pub(super) from: u16,
    pub(super) to: u16,
}

impl Profile {
    /// Takes every subtree up to where it is to be.
    pub(super) fn climb(self, rises: &mut [Rise]) {
        let levels = rises.iter().map(|rise| u64::from(rise.from.saturating_sub(rise.to))).sum();
        LEVELS.fetch_add(levels, Ordering::Relaxed);
        match self {
            Self::Compatible => climb_compatible(self.empty(), rises),
            Self::Bound => climb_bound(self.empty(), rises),
        }
    }

    /// How many bytes a branch hashes.
    pub(super) const fn branch_bytes(self) -> usize {
        match self {
            Self::Compatible => 72,
            Self::Bound => 81,
        }
    }

    /// Appends what a branch hashes. Sums have been checked; those of a damaged page may be anything.
    pub(super) fn put_branch(self, left: (&Digest, u64), right: (&Digest, u64), out: &mut Vec<u8>) {
        match self {
            Self::Compatible => {
                out.extend_from_slice(left.0);
                out.extend_from_slice(right.0);
                out.extend_from_slice(&left.1.wrapping_add(right.1).to_be_bytes());
            }
            Self::Bound => {
                out.push(BOUND_BRANCH);
                out.extend_from_slice(left.0);
                out.extend_from_slice(&left.1.to_be_bytes());
                out.extend_from_slice(right.0);
                out.extend_from_slice(&right.1.to_be_bytes());
            }
        }
    }
}

fn climb_compatible(empty: &[Digest; DEPTH + 1], rises: &mut [Rise]) {
    for part in rises.chunks_mut(CLIMBS) {
        let mut climbs = SmallVec::<[SumClimb<'_>; CLIMBS]>::new();
        for &Rise { hash, sum, ref key, from, to } in &*part {
            climbs.push(SumClimb { hash, sum, path: key, from, to });
        }
        sha256_sum_climb(&mut climbs, empty);
        let mut hashes = [[0; 32]; CLIMBS];
        for (hash, climb) in hashes.iter_mut().zip(&climbs) {
            *hash = climb.hash;
        }
        drop(climbs);
        for (rise, hash) in part.iter_mut().zip(hashes) {
            (rise.hash, rise.from) = (hash, rise.to);
        }
    }
}

/// No part of a level is the same for the next one, so levels are hashed like any inputs.
fn climb_bound(empty: &[Digest; DEPTH + 1], rises: &mut [Rise]) {
    let below = |rise: &Rise| rise.to < rise.from;
    let mut climbing: Vec<_> = rises.iter_mut().filter(|rise| below(rise)).collect();
    let mut inputs = Vec::with_capacity(climbing.len() * Profile::Bound.branch_bytes());
    let mut hashes = vec![[0; 32]; climbing.len()];
    while !climbing.is_empty() {
        inputs.clear();
        for rise in &mut climbing {
            let sibling = (&empty[usize::from(rise.from)], 0);
            rise.from -= 1;
            let here = (&rise.hash, rise.sum);
            let right = goes_right(&rise.key, rise.from.into());
            let (left, right) = if right { (sibling, here) } else { (here, sibling) };
            Profile::Bound.put_branch(left, right, &mut inputs);
        }
        let hashes = &mut hashes[..climbing.len()];
        sha256_equal(&inputs, Profile::Bound.branch_bytes(), hashes);
        for (rise, hash) in climbing.iter_mut().zip(hashes) {
            rise.hash = *hash;
        }
        climbing.retain(|rise| below(rise));
    }
}
