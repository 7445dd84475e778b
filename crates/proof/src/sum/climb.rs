//! Many lone subtrees rising beside empty ones, on full lanes.

use alloc::vec;
use alloc::vec::Vec;
#[cfg(feature = "std")]
use core::sync::atomic::{AtomicU64, Ordering};

use spinney_hash::{Digest, SumClimb, sha256_equal, sha256_sum_climb};

use super::{BOUND_BRANCH, EmptyHashes, Profile, goes_right};

/// How many levels all climbs of this process have hashed so far.
#[cfg(feature = "std")]
static LEVELS: AtomicU64 = AtomicU64::new(0);

/// How many levels lone leaves and subtrees have been hashed up beside empty ones so far, in all
/// trees of the process: nearly all that a tree costs. For measuring, and for tests that something
/// costs nothing.
#[cfg(feature = "std")]
pub fn levels_climbed() -> u64 {
    LEVELS.load(Ordering::Relaxed)
}

impl Profile {
    /// Takes every subtree up to where it is to be.
    pub fn climb(self, rises: &mut [SumClimb]) {
        #[cfg(feature = "std")]
        {
            let levels = rises.iter().map(|rise| u64::from(rise.from.saturating_sub(rise.to)));
            LEVELS.fetch_add(levels.sum(), Ordering::Relaxed);
        }
        match self {
            Self::Compatible => sha256_sum_climb(rises, &*self.empty()),
            Self::Bound => climb_bound(&self.empty(), rises),
        }
    }

    /// How many bytes a branch hashes.
    #[inline]
    pub const fn branch_bytes(self) -> usize {
        match self {
            Self::Compatible => 72,
            Self::Bound => 81,
        }
    }

    /// Appends what a branch hashes. Sums have been checked; those of a damaged page may be
    /// anything.
    #[inline]
    pub fn put_branch(self, left: (&Digest, u64), right: (&Digest, u64), out: &mut Vec<u8>) {
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

/// No part of a level is the same for the next one, so levels are hashed like any inputs.
fn climb_bound(empty: &EmptyHashes, rises: &mut [SumClimb]) {
    let below = |rise: &SumClimb| rise.to < rise.from;
    let mut climbing: Vec<_> = rises.iter_mut().filter(|rise| below(rise)).collect();
    let mut inputs = Vec::with_capacity(climbing.len() * Profile::Bound.branch_bytes());
    let mut hashes = vec![[0; 32]; climbing.len()];
    while !climbing.is_empty() {
        inputs.clear();
        for rise in &mut climbing {
            let sibling = (&empty[usize::from(rise.from)], 0);
            rise.from -= 1;
            let here = (&rise.hash, rise.sum);
            let right = goes_right(&rise.path, rise.from.into());
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
