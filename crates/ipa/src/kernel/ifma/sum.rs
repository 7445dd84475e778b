//! Sums of entries, one sum in each lane at a time.

use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

use super::lanes::{Columns, Lanes, WIDTH};
use super::{FROM_LANES, TO_LANES, words};
use crate::field::Fq;
use crate::group::Element;
use crate::kernel::{Entry, Pick};

/// How many steps ahead entries are asked for: a step takes about as long as a read from memory.
const PREFETCH_STEPS: usize = 3;

/// Eight points in extended coordinates. All are `< 3 q`.
struct Points {
    x: Lanes,
    y: Lanes,
    z: Lanes,
    t: Lanes,
}

/// The limbs of one point: four coordinates of five limbs.
type State = [[u64; 5]; 4];

/// What a lane is at.
#[derive(Clone, Copy)]
struct Progress {
    /// The sum that is being built, if any is left.
    task: Option<usize>,
    /// The next pick.
    next: usize,
    /// The end of the picks.
    end: usize,
}

#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn sum(entries: &[Entry], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
    let mut states = load_states(sums);
    let mut starts = [0].into_iter().chain(ends.iter().map(|&end| end as usize));
    let mut waiting = ends.iter().enumerate().filter_map(|(task, &end)| {
        let (next, end) = (starts.next()?, end as usize);
        (next < end).then_some(Progress { task: Some(task), next, end })
    });
    let mut lanes = [Progress::NONE; WIDTH];
    let mut points = Points::zero();
    loop {
        if lanes.iter().any(|progress| progress.task.is_some() && progress.next == progress.end) {
            let columns = points.to_columns();
            for (lane, progress) in lanes.iter_mut().enumerate() {
                if let Some(task) = progress.task.take_if(|_| progress.next == progress.end) {
                    states[task] = columns.map(|coordinate| coordinate.map(|column| column[lane]));
                }
            }
        }
        for (lane, progress) in lanes.iter_mut().enumerate().filter(|(_, p)| p.task.is_none()) {
            let Some(next) = waiting.next() else { break };
            *progress = next;
            points.set_lane(lane, next.task.map_or(&[[0; 5]; 4], |task| &states[task]));
        }
        let left = |progress: &Progress| progress.end - progress.next;
        let Some(steps) = lanes.iter().filter(|p| p.task.is_some()).map(left).min() else { break };
        run(&mut points, entries, picks, &lanes, steps);
        for progress in lanes.iter_mut().filter(|progress| progress.task.is_some()) {
            progress.next += steps;
        }
    }
    store_states(&states, sums);
}

/// Takes steps in all lanes. A lane without a task follows another one, and is not looked at.
#[target_feature(enable = "avx512f,avx512ifma")]
fn run(
    points: &mut Points,
    entries: &[Entry],
    picks: &[Pick],
    lanes: &[Progress; WIDTH],
    steps: usize,
) {
    let busy = lanes.iter().find(|progress| progress.task.is_some()).unwrap_or(&lanes[0]);
    let lanes: [&[Pick]; WIDTH] = std::array::from_fn(|lane| {
        let progress = if lanes[lane].task.is_some() { &lanes[lane] } else { busy };
        &picks[progress.next..progress.end]
    });
    for step in 0..steps {
        for ahead in lanes.iter().filter_map(|picks| picks.get(step + PREFETCH_STEPS)) {
            prefetch(&entries[ahead.index()]);
        }
        let current: [Pick; WIDTH] = std::array::from_fn(|lane| lanes[lane][step]);
        let negated =
            (0..WIDTH).fold(0, |set, lane| set | u8::from(current[lane].is_negated()) << lane);
        points.add(current.map(|pick| &entries[pick.index()]), negated);
    }
}

#[inline]
fn prefetch(entry: &Entry) {
    let pointer: *const i8 = std::ptr::from_ref(entry).cast();
    // SAFETY: a prefetch reads nothing and cannot fault; both addresses are within the entry.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(pointer);
        _mm_prefetch::<_MM_HINT_T0>(pointer.add(64));
    }
}

impl Points {
    /// Adds an entry in each lane, or subtracts it where the bit of the lane is set
    /// (madd-2008-hwcd, a = -5; see [`Element::add_prepared`]).
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn add(&mut self, entries: [&Entry; WIDTH], negated: u8) {
        let x = Lanes::load(entries.map(|entry| &entry.0[0]));
        let y = Lanes::load(entries.map(|entry| &entry.0[1]));
        let dxy = Lanes::load(entries.map(|entry| &entry.0[2]));
        // Entries are < q, so a, b and c are < 1.09 q; the sign of x and dxy is brought in later,
        // where a and c are added.
        let a = self.x.mul(&x);
        let b = self.y.mul(&y);
        let c = self.t.mul(&dxy);
        // < 6 q times < 3 q: s < 1.52 q.
        let entry_sum = y.pending().plus_primes::<1>().plus_or_minus(negated, &x).carry();
        let s = self.x.plus(&self.y).carry().mul(&entry_sum);
        // e = s - a - b < 5.7 q, f = z - c and g = z + c < 5.1 q, h = b + 5 a < 12.6 q.
        let e = s.minus(&b).plus_primes::<3>().plus_or_minus(!negated, &a).carry();
        let z = self.z.pending().plus_primes::<2>();
        let f = z.plus_or_minus(!negated, &c).carry();
        let g = z.plus_or_minus(negated, &c).carry();
        let h = b.pending().plus_primes::<6>();
        let h = h.plus_or_minus(negated, &a).plus_or_minus_4(negated, &a).carry();
        // < 1.83 q, < 2.83 q, < 1.74 q, < 2.999 q
        *self = Self { x: e.mul(&f), y: g.mul(&h), z: f.mul(&g), t: e.mul(&h) };
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn zero() -> Self {
        let zero = Lanes::splat(&[0; 4]);
        Self { x: zero, y: zero, z: zero, t: zero }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn set_lane(&mut self, lane: usize, state: &State) {
        let [x, y, z, t] = state;
        self.x = self.x.with_lane(lane, x);
        self.y = self.y.with_lane(lane, y);
        self.z = self.z.with_lane(lane, z);
        self.t = self.t.with_lane(lane, t);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn to_columns(&self) -> [Columns; 4] {
        [self.x.to_columns(), self.y.to_columns(), self.z.to_columns(), self.t.to_columns()]
    }
}

impl Progress {
    const NONE: Self = Self { task: None, next: 0, end: 0 };
}

/// The accumulators in the lanes' form, eight at a time.
#[target_feature(enable = "avx512f,avx512ifma")]
fn load_states(sums: &[Element]) -> Vec<State> {
    let mut states = vec![[[0; 5]; 4]; sums.len()];
    let factor = Lanes::splat(&TO_LANES);
    for (states, sums) in states.chunks_mut(WIDTH).zip(sums.chunks(WIDTH)) {
        for (index, coordinate) in COORDINATES.iter().enumerate() {
            let elements: [Fq; WIDTH] =
                std::array::from_fn(|lane| sums.get(lane).map_or(Fq::ZERO, coordinate));
            let columns = Lanes::load(words(&elements)).mul(&factor).to_columns();
            for (lane, state) in states.iter_mut().enumerate() {
                state[index] = columns.map(|column| column[lane]);
            }
        }
    }
    states
}

/// Back to the crate's form.
#[target_feature(enable = "avx512f,avx512ifma")]
fn store_states(states: &[State], sums: &mut [Element]) {
    let factor = Lanes::splat(&FROM_LANES);
    for (states, sums) in states.chunks(WIDTH).zip(sums.chunks_mut(WIDTH)) {
        let coordinates: [[[u64; 4]; WIDTH]; 4] = std::array::from_fn(|index| {
            let mut columns = [[0; WIDTH]; 5];
            for (lane, state) in states.iter().enumerate() {
                for (column, limb) in columns.iter_mut().zip(state[index]) {
                    column[lane] = limb;
                }
            }
            Lanes::from_columns(&columns).mul(&factor).to_reduced()
        });
        for (lane, sum) in sums.iter_mut().enumerate() {
            let [x, y, z, t] = coordinates.map(|numbers| Fq::from_montgomery(numbers[lane]));
            *sum = Element { x, y, z, t };
        }
    }
}

/// The coordinates of an element in the order of a [`State`].
const COORDINATES: [fn(&Element) -> Fq; 4] = [|e| e.x, |e| e.y, |e| e.z, |e| e.t];
