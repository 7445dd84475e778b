//! Sums of products over arbitrary points: of few points with small multiples of each (Straus), of
//! many with buckets of equal digits (Pippenger).

use crate::field::Fr;
use crate::group::{Element, batch::to_affine_many};
use crate::kernel::{Entry, Kernel, Pick};
use crate::scalar::{Base, SignedScalar, window_count};
use crate::sums::Sums;

/// Points up to which their multiples cost less than buckets.
const MULTIPLES_POINTS_MAX: usize = 64;

/// Bits of a digit where multiples are used.
const MULTIPLES_BITS: usize = 4;

/// The sum of `scalars[i] * points[i]`.
///
/// Uses all threads of the current rayon pool when there is enough work.
///
/// # Panics
/// If the slices differ in length.
pub fn multiply_sum(points: &[Element], scalars: &[Fr]) -> Element {
    multiply_sum_with(Kernel::detect(), points, scalars)
}

pub(crate) fn multiply_sum_with(kernel: Kernel, points: &[Element], scalars: &[Fr]) -> Element {
    assert_eq!(points.len(), scalars.len(), "one scalar per point");
    if points.len() <= MULTIPLES_POINTS_MAX {
        let multiples = Multiples::new(kernel, points);
        return multiples.multiply_sums([scalars.iter().copied().enumerate()])[0];
    }
    // In parts whose digits are counted in 32 bits.
    let parts = points.chunks(1 << 24).zip(scalars.chunks(1 << 24));
    parts.map(|(points, scalars)| multiply_sum_by_buckets(kernel, points, scalars)).sum()
}

/// The sum over windows k of `2^(k bits) * windows[k]`.
fn combine(windows: &[Element], bits: usize) -> Element {
    windows.iter().rev().fold(Element::IDENTITY, |total, window| {
        (0..bits).fold(total, |total, _| total.double()) + *window
    })
}

/// Small multiples of a few points, for several sums of products with them.
pub(crate) struct Multiples {
    kernel: Kernel,
    entries: Vec<Entry>,
}

impl Multiples {
    /// How many multiples a point has: one for each digit.
    const COUNT: usize = 1 << (MULTIPLES_BITS - 1);

    /// Computes the multiples of each point.
    pub(crate) fn new(kernel: Kernel, points: &[Element]) -> Self {
        let mut entries = vec![Entry::ZERO; points.len() * Self::COUNT];
        kernel.fill_windows(&to_affine_many(points, kernel), Self::COUNT, &mut entries);
        Self { kernel, entries }
    }

    /// For each sum, its terms (index of a point, scalar) multiplied out.
    pub(crate) fn multiply_sums<T>(&self, sums: impl IntoIterator<Item = T>) -> Vec<Element>
    where
        T: IntoIterator<Item = (usize, Fr)>,
    {
        let count = window_count(MULTIPLES_BITS);
        let mut windows = Sums::default();
        for terms in sums {
            let mut digits = vec![Vec::new(); count];
            for (index, scalar) in terms {
                SignedScalar::from(scalar).for_each_digit(
                    &const { Base::new(MULTIPLES_BITS) },
                    |position, digit, negative| {
                        digits[position].push(Pick::new(index * Self::COUNT + digit - 1, negative));
                    },
                );
            }
            for picks in &digits {
                windows.picks.extend_from_slice(picks);
                windows.finish_sum();
            }
        }
        let mut sums = vec![Element::IDENTITY; windows.len()];
        windows.add_to(self.kernel, &self.entries, &mut sums);
        sums.chunks_exact(count).map(|windows| combine(windows, MULTIPLES_BITS)).collect()
    }
}

fn multiply_sum_by_buckets(kernel: Kernel, points: &[Element], scalars: &[Fr]) -> Element {
    let points = to_affine_many(points, kernel);
    let entries: Vec<Entry> = points.iter().map(|point| kernel.pack(point)).collect();
    let scalars: Vec<SignedScalar> = scalars.iter().map(|&scalar| scalar.into()).collect();
    let bits = window_bits(points.len());
    let mut sums = vec![Element::IDENTITY; window_count(bits) << (bits - 1)];
    sort_into_buckets(&scalars, bits).add_to(kernel, &entries, &mut sums);
    combine(&kernel.weighted_sums(&sums, 1 << (bits - 1)), bits)
}

/// The window that costs least: every window adds each point once, and each bucket takes two longer
/// additions and about as much again to set up its sum.
fn window_bits(points: usize) -> usize {
    let cost = |bits: &usize| window_count(*bits) * (2 * points + (10 << (bits - 1)));
    (2..=13).min_by_key(cost).unwrap_or(2)
}

/// For every window and every digit from 1 on, the points with that digit there.
fn sort_into_buckets(scalars: &[SignedScalar], bits: usize) -> Sums {
    let (base, count) = (Base::new(bits), window_count(bits) << (bits - 1));
    let bucket = |position: usize, digit: usize| (position << (bits - 1)) + digit - 1;
    let mut next = vec![0u32; count + 1];
    for scalar in scalars {
        scalar.for_each_digit(&base, |position, digit, _| next[bucket(position, digit) + 1] += 1);
    }
    for i in 0..count {
        next[i + 1] += next[i];
    }
    let mut picks = vec![Pick::new(0, false); next[count] as usize];
    for (index, scalar) in scalars.iter().enumerate() {
        scalar.for_each_digit(&base, |position, digit, negative| {
            let slot = &mut next[bucket(position, digit)];
            picks[*slot as usize] = Pick::new(index, negative);
            *slot += 1;
        });
    }
    next.truncate(count);
    Sums::new(picks, next)
}
