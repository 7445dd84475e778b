//! Many chains of node hashes at once: the climb of the Merkle-sum sparse Merkle tree.
//!
//! A node of that tree is `SHA256(left || right || sum as 8 bytes big-endian)`, 72 bytes in two
//! blocks. Where a lone subtree rises beside empty ones, its sum stays, and so does the whole
//! second block (the sum and the padding): its message schedule is expanded once a climb instead of
//! once a level.
//!
//! Where all lanes are at one depth they are *in step*: one sibling serves them all, and the sides
//! of eight levels come from one byte of each path. So climbs that start and end alike go side by
//! side.
//!
//! Invariants:
//! - Lanes `0..active` each hold an unfinished climb; `depth` is where its hash stands, above `to`.
//! - Lanes that finish take the next climbs at once, or once those that are about to arrive have
//!   arrived too, and the last active lanes move into those that nothing is left for: so climbs of
//!   any lengths keep the lanes full until fewer are left than there are lanes.
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

/// Most lanes of any kernel.
pub(super) const LANES_MAX: usize = 16;
/// So many climbs are sorted at a time.
const WINDOW: usize = 256;
/// Lanes wait for others that have no more levels to go than this, and set out in step with them.
const LINGER: u16 = 2;

/// What stands beside the lanes.
#[derive(Clone, Copy)]
pub(super) enum Siblings<'a> {
    /// The same beside all of them: they are in step.
    One(&'a Digest),
    Each(&'a [&'a Digest; LANES_MAX]),
}

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
    fn level(&mut self, siblings: Siblings<'_>, right: u16, active: usize);
}

/// A lane's place in its climb.
#[derive(Clone, Copy)]
struct Place {
    climb: usize,
    path: [u8; 32],
    depth: u16,
    to: u16,
}

impl Place {
    fn is_right(&self, depth: u16) -> bool {
        (self.path[usize::from(depth / 8)] >> (depth % 8)) & 1 == 1
    }
}

/// Climbs that have any level to climb, those next to one another that go the same way.
struct Queue {
    /// Where the window ends.
    end: usize,
    /// The climbs of the window, by their distances from its end.
    order: [u16; WINDOW],
    len: usize,
    /// The next of them.
    at: usize,
}

impl Queue {
    const fn new() -> Self {
        Self { end: 0, order: [0; WINDOW], len: 0, at: 0 }
    }

    fn next(&mut self, climbs: &[SumClimb]) -> Option<usize> {
        while self.at == self.len {
            if self.end == climbs.len() {
                return None;
            }
            self.fill(climbs);
        }
        self.at += 1;
        Some(self.end - usize::from(self.order[self.at - 1]))
    }

    /// Goes on to the next window.
    fn fill(&mut self, climbs: &[SumClimb]) {
        let start = self.end;
        self.end = climbs.len().min(start + WINDOW);
        (self.len, self.at) = (0, 0);
        for (index, climb) in climbs[..self.end].iter().enumerate().skip(start) {
            if climb.to < climb.from {
                self.order[self.len] = (self.end - index) as u16;
                self.len += 1;
            }
        }
        let way = |back: &u16| {
            let climb = &climbs[self.end - usize::from(*back)];
            (climb.from, climb.to)
        };
        let order = &mut self.order[..self.len];
        if !order.is_sorted_by_key(way) {
            order.sort_unstable_by_key(way);
        }
    }
}

/// Runs climbs until fewer than `least` are left, at least one: 1 runs all of them.
pub(super) fn climb<C: Climber>(
    climber: &mut C,
    climbs: &mut [SumClimb],
    empty: &[Digest],
    least: usize,
) {
    let nowhere = Place { climb: 0, path: [0; 32], depth: 0, to: 0 };
    let mut places = [nowhere; LANES_MAX];
    let mut queue = Queue::new();
    let mut active = 0;
    loop {
        let togo = places[..active].iter().map(|place| place.depth - place.to).max();
        if togo.is_none_or(|togo| togo > LINGER) {
            while active < C::LANES
                && let Some(index) = queue.next(climbs)
            {
                let SumClimb { hash, sum, path, from, to } = climbs[index];
                climber.put(active, &hash, sum);
                places[active] = Place { climb: index, path, depth: from, to };
                active += 1;
            }
            if active < least {
                for (lane, place) in places[..active].iter().enumerate() {
                    let climb = &mut climbs[place.climb];
                    (climb.hash, climb.from) = (climber.hash(lane), place.depth);
                }
                return;
            }
        }
        rise(climber, &mut places[..active], empty);
        active = retire(climber, climbs, &mut places, active);
    }
}

/// Takes the lanes up until the first of them arrives.
fn rise<C: Climber>(climber: &mut C, places: &mut [Place], empty: &[Digest]) {
    let (active, depth) = (places.len(), places[0].depth);
    let levels = places.iter().map(|place| place.depth - place.to).min().unwrap_or(0);
    if places.iter().all(|place| place.depth == depth) {
        let mut rights = [0; 8];
        for here in (depth - levels..depth).rev() {
            if here + 1 == depth || here % 8 == 7 {
                rights = sides(places, usize::from(here / 8));
            }
            let sibling = Siblings::One(&empty[usize::from(here) + 1]);
            climber.level(sibling, rights[usize::from(here % 8)], active);
        }
        places.iter_mut().for_each(|place| place.depth -= levels);
        return;
    }
    for _ in 0..levels {
        let mut siblings = [&[0; 32]; LANES_MAX];
        let mut right = 0;
        for (lane, place) in places.iter_mut().enumerate() {
            siblings[lane] = &empty[usize::from(place.depth)];
            place.depth -= 1;
            right |= u16::from(place.is_right(place.depth)) << lane;
        }
        climber.level(Siblings::Each(&siblings), right, active);
    }
}

/// For each bit of byte `byte` of the paths: the lanes in which it is set.
fn sides(places: &[Place], byte: usize) -> [u16; 8] {
    let mut bytes = [[0; 8]; 2];
    for (to, place) in bytes.as_flattened_mut().iter_mut().zip(places) {
        *to = place.path[byte];
    }
    let [low, high] = bytes.map(|bytes| transpose_bits(u64::from_le_bytes(bytes)).to_le_bytes());
    core::array::from_fn(|bit| u16::from_le_bytes([low[bit], high[bit]]))
}

/// Bit `i` of byte `j` becomes bit `j` of byte `i`.
const fn transpose_bits(mut bits: u64) -> u64 {
    // Blocks of one bit beside the diagonal, of two, of four.
    let mut swap = (bits ^ bits >> 7) & 0x00aa_00aa_00aa_00aa;
    bits ^= swap ^ swap << 7;
    swap = (bits ^ bits >> 14) & 0x0000_cccc_0000_cccc;
    bits ^= swap ^ swap << 14;
    swap = (bits ^ bits >> 28) & 0x0000_0000_f0f0_f0f0;
    bits ^ swap ^ swap << 28
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
        if places[lane].depth == places[lane].to {
            let climb = &mut climbs[places[lane].climb];
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
