//! Sums of points of a table, eight sums side by side; see [`crate::kernel::multiples`].

use super::lanes::{Lanes, WIDTH};
use super::points::Points;
use super::{ONE, invert_ends};
use crate::field::Fq;
use crate::group::Element;
use crate::group::short::{SCALE, SHIFT};
use crate::kernel::Pick;
use crate::kernel::multiples::{Ahead, Multiple, Task};
use crate::kernel::prefetch::prefetch;

/// How many rows ahead points are asked for.
const PREFETCH_ROWS: usize = 4;

/// Additions that go on side by side: as many as a core can look ahead at, and more.
const BLOCK: usize = 16;

const fn in_lanes(constant: Fq) -> [u64; 4] {
    let times_16 = constant.double().double().double().double();
    *times_16.montgomery()
}

pub(super) const SHIFT_LANES: [u64; 4] = in_lanes(SHIFT);
pub(super) const SCALE_LANES: [u64; 4] = in_lanes(SCALE);

/// Affine points of the short form, eight sums in each row: both coordinates are `< 1.1 q`.
#[derive(Clone, Copy, Debug)]
struct Row {
    x: Lanes<Fq>,
    y: Lanes<Fq>,
    /// The lanes whose sum has a point here.
    present: u8,
}

/// Eight sums, whose points are in successive rows. The longest has one in each.
#[derive(Clone, Copy, Debug)]
struct Group {
    first: usize,
    len: usize,
}

impl Group {
    /// The pairs of rows to be added, and how far apart two of them are.
    const fn pairs(&self) -> (std::ops::Range<usize>, usize) {
        let half = self.len.div_ceil(2);
        (self.first..self.first + self.len - half, half)
    }
}

/// Memory for batches, used again and again.
#[derive(Debug, Default)]
pub(in crate::kernel) struct Batch {
    rows: Vec<Row>,
    groups: Vec<Group>,
    steps: Vec<Step>,
    sums: Vec<Points>,
}

/// An addition of one row to another: the difference that it divides by, and the product of those before it
/// in its chain.
///
/// There are two chains, of every other addition, since the next product could begin long before one is
/// there.
#[derive(Clone, Copy, Debug)]
struct Step {
    low: u32,
    high: u32,
    before: Lanes<Fq>,
    difference: Lanes<Fq>,
}

/// Adds the points of each task to its sum. `false`, and nothing done, where two points that meet
/// have one x.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add_to(
    batch: &mut Batch,
    table: &[Multiple],
    picks: &[Pick],
    tasks: &[Task],
    ahead: &mut Ahead<'_>,
    sums: &mut [Element],
) -> bool {
    batch.load(table, picks, tasks);
    while batch.groups.iter().any(|group| group.len > 1) {
        if !batch.halve(ahead) {
            return false;
        }
    }
    if !batch.finish() {
        return false;
    }
    for (tasks, points) in tasks.chunks(WIDTH).zip(&batch.sums) {
        let elements: [Element; WIDTH] = std::array::from_fn(|lane| {
            tasks.get(lane).map_or(Element::IDENTITY, |task| sums[task.sum])
        });
        let mut total = Points::load(&elements);
        total.add(points);
        for (task, element) in tasks.iter().zip(total.to_elements()) {
            sums[task.sum] = element;
        }
    }
    true
}

impl Batch {
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn load(&mut self, table: &[Multiple], picks: &[Pick], tasks: &[Task]) {
        self.rows.clear();
        self.groups.clear();
        let rows = |tasks: &[Task]| tasks[0].len;
        let mut ahead =
            tasks.chunks(WIDTH).flat_map(|tasks| (0..rows(tasks)).map(move |row| (tasks, row)));
        let mut ask = |rows: usize| {
            for (tasks, row) in ahead.by_ref().take(rows) {
                for pick in tasks.iter().filter_map(|task| task.of(picks).get(row)) {
                    prefetch(&table[pick.index()]);
                }
            }
        };
        ask(PREFETCH_ROWS);
        for tasks in tasks.chunks(WIDTH) {
            self.groups.push(Group { first: self.rows.len(), len: rows(tasks) });
            for row in 0..rows(tasks) {
                ask(1);
                self.rows.push(load_row(table, picks, tasks, row));
            }
        }
    }

    /// The difference of two rows' x, 1 where there is but one point.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn difference(&self, low: usize, high: usize) -> Lanes<Fq> {
        let (low, high) = (&self.rows[low], &self.rows[high]);
        let difference = high.x.minus(&low.x).plus_primes::<2>().carry();
        Lanes::splat(&ONE).blend(high.present, &difference)
    }

    /// Adds the points of each sum by pairs: so half as many are left. `false` if two have one x.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn halve(&mut self, ahead: &mut Ahead<'_>) -> bool {
        self.steps.clear();
        // Differences are < 3.1 q: products stay < 1.1 q.
        let (mut product, mut other) = (Lanes::splat(&ONE), Lanes::splat(&ONE));
        for group in &self.groups {
            let (pairs, half) = group.pairs();
            for low in pairs {
                let difference = self.difference(low, low + half);
                let (low, high) = (low as u32, (low + half) as u32);
                self.steps.push(Step { low, high, before: product, difference });
                (product, other) = (other, product.mul(&difference));
            }
        }
        let all = product.mul(&other);
        if all.to_reduced().contains(&[0; 4]) {
            return false;
        }
        // Begins < 16 q, goes on < 2.5 q.
        let inverse = invert_ends::<260>(all);
        let mut inverses = [inverse.mul(&product), inverse.mul(&other)];
        for steps in self.steps.rchunks(BLOCK) {
            inverses = add_block(&mut self.rows, steps, inverses, ahead);
        }
        for group in &mut self.groups {
            group.len = group.pairs().1;
        }
        true
    }

    /// The sums, each in one row, in extended coordinates. `false` if one is the point (0, -1).
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn finish(&mut self) -> bool {
        self.sums.clear();
        let mut product = Lanes::splat(&ONE);
        for group in &self.groups {
            let Row { x, y, present } = &self.rows[group.first];
            let points = Points::of_short(x, y);
            product = product.mul(&Lanes::splat(&ONE).blend(*present, points.z()));
            self.sums.push(points);
        }
        !product.to_reduced().contains(&[0; 4])
    }
}

/// Takes steps, the last one first, and goes on in both chains from the inverses of their products. One
/// product waits for another in each step, so all steps do a part of their work before any does the next.
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_block(
    rows: &mut [Row],
    steps: &[Step],
    [mut inverse, mut other]: [Lanes<Fq>; 2],
    ahead: &mut Ahead<'_>,
) -> [Lanes<Fq>; 2] {
    let mut slopes = [inverse; BLOCK];
    for (inverse_here, step) in slopes.iter_mut().zip(steps.iter().rev()) {
        ahead.ask();
        *inverse_here = inverse.mul(&step.before);
        (inverse, other) = (other, inverse.mul(&step.difference));
    }
    for (slope, step) in slopes.iter_mut().zip(steps.iter().rev()) {
        let (a, b) = (&rows[step.low as usize], &rows[step.high as usize]);
        // < 3.1 q times < 1.5 q: < 1.2 q.
        *slope = b.y.minus(&a.y).plus_primes::<2>().carry().mul(slope);
    }
    let mut xs = slopes;
    for (x, step) in xs.iter_mut().zip(steps.iter().rev()) {
        let (a, b) = (&rows[step.low as usize], &rows[step.high as usize]);
        // < 1.1 q, less up to 2.2 q.
        *x = x.mul(x).minus(&a.x).minus(&b.x).plus_primes::<3>().settle();
    }
    for ((x, slope), step) in xs.iter().zip(&slopes).zip(steps.iter().rev()) {
        let (a, present) = (rows[step.low as usize], rows[step.high as usize].present);
        // < 3.1 q times < 1.2 q, less up to 1.1 q.
        let rise = a.x.minus(x).plus_primes::<2>().carry().mul(slope);
        let y = rise.minus(&a.y).plus_primes::<2>().settle();
        let (x, y) = (a.x.blend(present, x), a.y.blend(present, &y));
        rows[step.low as usize] = Row { x, y, ..a };
    }
    [inverse, other]
}

/// The points that one pick of each sum names.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn load_row(table: &[Multiple], picks: &[Pick], tasks: &[Task], row: usize) -> Row {
    // The first sum has the most points; where another has no more, it stands in.
    let stand_in = tasks[0].of(picks)[row];
    let picked: [Option<Pick>; WIDTH] = std::array::from_fn(|lane| {
        tasks.get(lane).and_then(|task| task.of(picks).get(row)).copied()
    });
    let (mut present, mut negated) = (0, 0);
    for (lane, pick) in picked.iter().enumerate() {
        present |= u8::from(pick.is_some()) << lane;
        negated |= u8::from(pick.is_some_and(Pick::is_negated)) << lane;
    }
    let points = picked.map(|pick| &table[pick.unwrap_or(stand_in).index()].0);
    let y = Lanes::load(points.map(|point| &point[1]));
    let negative = Lanes::splat(&[0; 4]).minus(&y).plus_primes::<1>().carry();
    let x = Lanes::load(points.map(|point| &point[0]));
    Row { x, y: y.blend(negated, &negative), present }
}
