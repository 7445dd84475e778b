//! Many chains of node hashes at once: the climb of the Merkle-sum sparse Merkle tree.
//!
//! A node of that tree is `SHA256(left || right || sum as 8 bytes big-endian)`, 72 bytes in two
//! blocks. Where a lone subtree rises beside empty ones, its sum stays, and so does the whole
//! second block (the sum and the padding): its message schedule is expanded once a climb instead of
//! once a level.
//!
//! Invariants:
//! - Lanes `0..active` each hold an unfinished climb; `depth` is where its hash stands, above `to`.
//! - A lane that finishes takes the next climb at once, or else the last active lane moves into it,
//!   so that climbs of any lengths keep the lanes full until fewer are left than there are lanes.
//! - A climber that is told so gives up when too few are left, and leaves them where they are, for
//!   one with fewer lanes to go on with.

use super::rounds::schedule;
use crate::Digest;

/// One climb: a subtree's hash, and where it goes.
#[derive(Clone, Copy, Debug)]
pub struct SumClimb {
    /// The hash of the subtree at depth `from`.
    pub hash: Digest,
    /// The sum of the subtree, which empty siblings leave as it is.
    pub sum: u64,
    /// The path of the subtree; bit `d` is `(path[d / 8] >> (d % 8)) & 1`, and 0 is left. Bits
    /// `to..from` are read.
    pub path: [u8; 32],
    /// The depth that the hash is given for, at most 256; after the climb, `to`.
    pub from: u16,
    /// The depth that the hash is wanted for, not below `from`.
    pub to: u16,
}

impl SumClimb {
    fn is_right(&self, depth: u16) -> bool {
        (self.path[usize::from(depth / 8)] >> (depth % 8)) & 1 == 1
    }
}

/// Most lanes of any kernel.
pub(super) const LANES_MAX: usize = 16;

/// The kernels of a backend, with the lanes' hashes and schedules in the layout that suits it.
pub(super) trait Climber {
    /// How many lanes there are, at most [`LANES_MAX`].
    const LANES: usize;

    /// Starts a climb in a lane.
    fn put(&mut self, lane: usize, hash: &Digest, sum: u64);

    /// The hash in a lane.
    fn hash(&self, lane: usize) -> Digest;

    /// Copies a lane onto another one.
    fn copy(&mut self, from: usize, to: usize);

    /// Takes lanes `0..active` up one level, each beside its sibling; bit `i` of `right` says that
    /// lane `i` is the right child.
    fn level(&mut self, siblings: &[&Digest; LANES_MAX], right: u16, active: usize);
}

/// A lane's place in its climb.
#[derive(Clone, Copy)]
struct Place {
    climb: usize,
    depth: u16,
}

/// Runs climbs until fewer than `least` are left, at least one: 1 runs all of them.
pub(super) fn climb<C: Climber>(
    climber: &mut C,
    climbs: &mut [SumClimb],
    empty: &[Digest],
    least: usize,
) {
    let mut places = [Place { climb: 0, depth: 0 }; LANES_MAX];
    let mut next = 0;
    let mut active = 0;
    loop {
        while active < C::LANES
            && let Some(place) = start(climber, climbs, &mut next, active)
        {
            places[active] = place;
            active += 1;
        }
        if active < least {
            for (lane, place) in places[..active].iter().enumerate() {
                let climb = &mut climbs[place.climb];
                (climb.hash, climb.from) = (climber.hash(lane), place.depth);
            }
            return;
        }
        let mut siblings = [&[0; 32]; LANES_MAX];
        let mut right = 0;
        let mut finished = false;
        for (lane, place) in places[..active].iter_mut().enumerate() {
            let climb = &climbs[place.climb];
            siblings[lane] = &empty[usize::from(place.depth)];
            place.depth -= 1;
            right |= u16::from(climb.is_right(place.depth)) << lane;
            finished |= place.depth == climb.to;
        }
        climber.level(&siblings, right, active);
        if finished {
            active = retire(climber, climbs, &mut places, active);
        }
    }
}

/// Puts the next climb that has any level to climb into a lane.
fn start(
    climber: &mut impl Climber,
    climbs: &[SumClimb],
    next: &mut usize,
    lane: usize,
) -> Option<Place> {
    let offset = climbs[*next..].iter().position(|climb| climb.to < climb.from);
    let Some(offset) = offset else {
        *next = climbs.len();
        return None;
    };
    let index = *next + offset;
    *next = index + 1;
    let climb = &climbs[index];
    climber.put(lane, &climb.hash, climb.sum);
    Some(Place { climb: index, depth: climb.from })
}

/// Takes the hashes of the lanes that arrived, and closes the gaps; returns how many lanes are
/// left.
fn retire(
    climber: &mut impl Climber,
    climbs: &mut [SumClimb],
    places: &mut [Place; LANES_MAX],
    mut active: usize,
) -> usize {
    for lane in (0..active).rev() {
        let climb = &mut climbs[places[lane].climb];
        if places[lane].depth == climb.to {
            (climb.hash, climb.from) = (climber.hash(lane), climb.to);
            active -= 1;
            if lane != active {
                climber.copy(active, lane);
                places[lane] = places[active];
            }
        }
    }
    active
}

/// The schedule of the second block of a node, constants added.
pub(super) fn tail_schedule(sum: u64) -> [u32; 64] {
    schedule(tail_block(sum))
}

/// The second block of a node: its sum, the padding, and the length of 72 bytes in bits.
pub(super) fn tail_block(sum: u64) -> [u32; 16] {
    let mut block = [0; 16];
    (block[0], block[1]) = ((sum >> 32) as u32, sum as u32);
    block[2] = 0x8000_0000;
    block[15] = 8 * 72;
    block
}
