//! Sums of points of a table, eight sums side by side; see [`crate::kernel::multiples`].

use super::lanes::{Lanes, WIDTH};
use super::points::Points;
use super::{ONE, invert_ends};
use crate::field::Fq;
use crate::group::Element;
use crate::kernel::Pick;
use crate::kernel::multiples::{Ahead, Multiple, Task};
use crate::kernel::prefetch::prefetch;

/// How many rows ahead points are asked for.
const PREFETCH_ROWS: usize = 3;

/// Additions that go on side by side: as many as a core can look ahead at, and more.
const BLOCK: usize = 16;

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
    /// For each row the pick of each sum, and the lanes whose sum has one.
    places: Vec<([Pick; WIDTH], u8)>,
    rows: Vec<Row>,
    groups: Vec<Group>,
    steps: Vec<Step>,
    /// What a block of additions has come to: slopes, and new x.
    slopes: Vec<Lanes<Fq>>,
    xs: Vec<Lanes<Fq>>,
    sums: Vec<Points>,
}

/// An addition of one row to another: the difference that it divides by, and the product of those
/// before it in its chain.
///
/// There are two chains, of every other addition, since the next product could begin long before
/// one is there.
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
        let mut elements = [&Element::IDENTITY; WIDTH];
        for (element, task) in elements.iter_mut().zip(tasks) {
            *element = &sums[task.sum];
        }
        let mut total = *points;
        // What is new begins with nothing.
        if !elements.iter().all(|element| element.is_identity()) {
            total.add(&Points::load_loose(elements));
        }
        for (task, element) in tasks.iter().zip(total.to_elements()) {
            sums[task.sum] = element;
        }
    }
    true
}

impl Batch {
    /// Lays the picks of eight sums side by side, and loads their points row by row.
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn load(&mut self, table: &[Multiple], picks: &[Pick], tasks: &[Task]) {
        self.rows.clear();
        self.groups.clear();
        self.places.clear();
        for tasks in tasks.chunks(WIDTH) {
            let (first, len) = (self.places.len(), tasks[0].len);
            self.groups.push(Group { first, len });
            // The first sum has the most points; where another has no more, it stands in.
            self.places.extend(tasks[0].of(picks).iter().map(|&pick| ([pick; WIDTH], 1)));
            for (lane, task) in tasks.iter().enumerate().skip(1) {
                for ((place, present), &pick) in self.places[first..].iter_mut().zip(task.of(picks))
                {
                    place[lane] = pick;
                    *present |= 1 << lane;
                }
            }
        }
        for row in 0..self.places.len() {
            if let Some((ahead, _)) = self.places.get(row + PREFETCH_ROWS) {
                for pick in ahead {
                    prefetch(&table[pick.index()]);
                }
            }
            let (place, present) = &self.places[row];
            self.rows.push(load_row(table, place, *present));
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
        let Self { rows, steps, slopes, xs, .. } = self;
        slopes.resize(BLOCK, inverse);
        xs.resize(BLOCK, inverse);
        for steps in steps.rchunks(BLOCK) {
            let block = (&mut slopes[..steps.len()], &mut xs[..steps.len()]);
            inverses = add_block(rows, steps, block, inverses, ahead);
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

/// Takes steps, the last one first, and goes on in both chains from the inverses of their products.
/// One product waits for another in each step, so all steps do a part of their work before any does
/// the next.
#[target_feature(enable = "avx512f,avx512ifma")]
fn add_block(
    rows: &mut [Row],
    steps: &[Step],
    (slopes, xs): (&mut [Lanes<Fq>], &mut [Lanes<Fq>]),
    [mut inverse, mut other]: [Lanes<Fq>; 2],
    ahead: &mut Ahead<'_>,
) -> [Lanes<Fq>; 2] {
    for (inverse_here, step) in slopes.iter_mut().zip(steps.iter().rev()) {
        ahead.ask();
        *inverse_here = inverse.mul(&step.before);
        (inverse, other) = (other, inverse.mul(&step.difference));
    }
    for (slope, step) in slopes.iter_mut().zip(steps.iter().rev()) {
        ahead.ask();
        let (a, b) = (&rows[step.low as usize], &rows[step.high as usize]);
        // < 3.1 q times < 1.5 q: < 1.2 q.
        *slope = b.y.minus(&a.y).plus_primes::<2>().carry().mul(slope);
    }
    for ((x, slope), step) in xs.iter_mut().zip(&*slopes).zip(steps.iter().rev()) {
        ahead.ask();
        let (a, b) = (&rows[step.low as usize], &rows[step.high as usize]);
        // < 1.1 q, less up to 2.2 q.
        *x = slope.mul(slope).minus(&a.x).minus(&b.x).plus_primes::<3>().settle();
    }
    for ((x, slope), step) in xs.iter().zip(&*slopes).zip(steps.iter().rev()) {
        ahead.ask();
        let (a, present) = (&rows[step.low as usize], rows[step.high as usize].present);
        // < 3.1 q times < 1.2 q, less up to 1.1 q.
        let rise = a.x.minus(x).plus_primes::<2>().carry().mul(slope);
        let y = rise.minus(&a.y).plus_primes::<2>().settle();
        let (x, y) = (a.x.blend(present, x), a.y.blend(present, &y));
        let sum = &mut rows[step.low as usize];
        (sum.x, sum.y) = (x, y);
    }
    [inverse, other]
}

/// The points that eight picks name.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn load_row(table: &[Multiple], place: &[Pick; WIDTH], present: u8) -> Row {
    let first = &table[place[0].index()].0;
    let (mut xs, mut ys, mut negated) = ([&first[0]; WIDTH], [&first[1]; WIDTH], 0);
    // No closures: they would be calls.
    for lane in 0..WIDTH {
        let [x, y] = &table[place[lane].index()].0;
        (xs[lane], ys[lane]) = (x, y);
        negated |= u8::from(place[lane].is_negated()) << lane;
    }
    let y = Lanes::load(ys);
    let negative = Lanes::splat(&[0; 4]).minus(&y).plus_primes::<1>().carry();
    Row { x: Lanes::load(xs), y: y.blend(negated, &negative), present }
}
