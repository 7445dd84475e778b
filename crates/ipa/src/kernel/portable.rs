//! The portable kernel. Entries hold the 256-bit Montgomery form.

use super::multiples::{Ahead, Multiple, Task, point};
use super::prefetch::prefetch;
use super::{Encoded, Entry, Kernel, Pick};
use crate::field::{Fq, Fr};
use crate::group::short::{Running, Short};
use crate::group::{Affine, Element};

/// How many picks ahead entries are asked for.
const PREFETCH_PICKS: usize = 4;

/// The same where nothing but loading is done with them at first.
const PREFETCH_POINTS: usize = 16;

pub(super) fn pack(point: &Affine) -> Entry {
    Entry([*point.x.montgomery(), *point.y.montgomery(), *point.dxy().montgomery()])
}

pub(super) fn sum(entries: &[Entry], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
    let mut start = 0;
    for (sum, &end) in sums.iter_mut().zip(ends) {
        for (index, pick) in picks.iter().enumerate().take(end as usize).skip(start) {
            if let Some(ahead) = picks.get(index + PREFETCH_PICKS) {
                prefetch(&entries[ahead.index()]);
            }
            let [x, y, dxy] = entries[pick.index()].0.map(Fq::from_montgomery);
            *sum = if pick.is_negated() {
                sum.add_prepared(-x, y, -dxy)
            } else {
                sum.add_prepared(x, y, dxy)
            };
        }
        start = end as usize;
    }
}

/// A form in which multiples are kept.
pub(super) trait Form: Sized {
    /// What an element's coordinates are divided by.
    fn denominator(element: &Element) -> Fq;

    /// The form of an element, given the inverse of that.
    fn of(element: &Element, inverse: Fq) -> Self;
}

impl Form for Entry {
    fn denominator(element: &Element) -> Fq {
        element.z
    }

    fn of(element: &Element, inverse: Fq) -> Self {
        pack(&element.to_affine(inverse))
    }
}

impl Form for Multiple {
    fn denominator(element: &Element) -> Fq {
        Short::denominator(element)
    }

    fn of(element: &Element, inverse: Fq) -> Self {
        let Short { x, y } = Short::of(element, inverse);
        Self([*x.montgomery(), *y.montgomery()])
    }
}

#[inline]
pub(super) fn unpack(multiple: &Multiple) -> Short {
    let [x, y] = multiple.0.map(Fq::from_montgomery);
    Short { x, y }
}

pub(super) fn fill_windows<F: Form>(starts: &[Affine], len: usize, out: &mut [F]) {
    let (mut multiples, mut inverses) = (Vec::with_capacity(len), Vec::with_capacity(len));
    for (window, start) in out.chunks_mut(len).zip(starts) {
        let dxy = start.dxy();
        let mut multiple = Element::from(*start);
        multiples.clear();
        for _ in 0..window.len() {
            multiples.push(multiple);
            multiple = multiple.add_prepared(start.x, start.y, dxy);
        }
        inverses.clear();
        inverses.extend(multiples.iter().map(F::denominator));
        Fq::invert_many(&mut inverses);
        for (out, (multiple, inverse)) in window.iter_mut().zip(multiples.iter().zip(&inverses)) {
            *out = F::of(multiple, *inverse);
        }
    }
}

/// The points of many sums, which are added by pairs.
#[derive(Debug, Default)]
pub(super) struct Batch {
    points: Vec<Short>,
    /// The first point of each sum, and how many there are.
    spans: Vec<(usize, usize)>,
    /// The products of all differences before one.
    products: Vec<Fq>,
}

impl Batch {
    /// Adds the points of each task to its sum; or does nothing, where two that meet have one x.
    pub(super) fn add_to(
        &mut self,
        table: &[Multiple],
        picks: &[Pick],
        tasks: &[Task],
        ahead: &mut Ahead<'_>,
        sums: &mut [Element],
    ) -> bool {
        self.points.clear();
        self.spans.clear();
        for task in tasks {
            self.spans.push((self.points.len(), task.len));
            let picks = &picks[task.from..];
            for at in 0..task.len {
                if let Some(ahead) = picks.get(at + PREFETCH_POINTS) {
                    prefetch(&table[ahead.index()]);
                }
                self.points.push(point(Kernel::PORTABLE, table, picks[at]));
            }
        }
        while self.spans.iter().any(|span| span.1 > 1) {
            if !self.halve(ahead) {
                return false;
            }
        }
        for (task, span) in tasks.iter().zip(&self.spans) {
            sums[task.sum] += Running::from(self.points[span.0]).to_element();
        }
        true
    }

    /// Adds the points of each sum by pairs: so half as many are left. `false` if two have one x.
    fn halve(&mut self, ahead: &mut Ahead<'_>) -> bool {
        let Self { points, spans, products } = self;
        products.clear();
        let mut product = Fq::ONE;
        let half = |len: usize| len.div_ceil(2);
        for &(first, len) in &*spans {
            let (low, high) = points[first..first + len].split_at(half(len));
            for (a, b) in low.iter().zip(high) {
                products.push(product);
                product *= b.x - a.x;
            }
        }
        let Some(mut inverse) = product.invert() else { return false };
        for (first, len) in spans.iter_mut().rev() {
            let (low, high) = points[*first..*first + *len].split_at_mut(half(*len));
            *len = low.len();
            for (index, (a, b)) in low.iter_mut().zip(high).enumerate().rev() {
                if index % Ahead::AT_ONCE == 0 {
                    ahead.ask();
                }
                let before = products.pop().expect("there is one for each pair");
                let difference = b.x - a.x;
                *a = a.add(b, inverse * before);
                inverse *= difference;
            }
        }
        true
    }
}

pub(super) fn weighted_sums(buckets: &[Element], len: usize) -> Vec<Element> {
    let weighted_sum = |window: &[Element]| {
        let mut running = Element::IDENTITY;
        let mut weighted = Element::IDENTITY;
        for bucket in window.iter().rev() {
            running += *bucket;
            weighted += running;
        }
        weighted
    };
    buckets.chunks_exact(len).map(weighted_sum).collect()
}

pub(super) fn add_scaled(sums: &mut [Fr], terms: &[(Fr, &[Fr])]) {
    for (factor, vector) in terms {
        for (sum, value) in sums.iter_mut().zip(*vector).filter(|(_, value)| !value.is_zero()) {
            *sum += *factor * *value;
        }
    }
}

pub(super) fn add_quotients(
    sums: &mut [Fr],
    groups: &[(u8, &[Fr])],
    inverses: &[Fr],
    weights: &[Fr],
) -> Vec<Fr> {
    let last = sums.len() - 1;
    let mut add = |&(index, values): &(u8, &[Fr])| {
        let index = usize::from(index);
        let mut dot = Fr::ZERO;
        for (i, (sum, value)) in sums.iter_mut().zip(values).enumerate() {
            let share = (*value - values[index]) * inverses[last + i - index];
            *sum += share;
            dot += share * weights[i];
        }
        dot
    };
    groups.iter().map(&mut add).collect()
}

pub(super) fn pow_many(elements: &[Fq], exponent: &[u64; 4]) -> Vec<Fq> {
    elements.iter().map(|element| element.pow(exponent)).collect()
}

pub(super) fn ratios(elements: &[Element]) -> Vec<[u64; 4]> {
    let mut inverses: Vec<Fq> = elements.iter().map(|element| element.y).collect();
    Fq::invert_many(&mut inverses);
    let ratio = |(element, inverse): (&Element, Fq)| (element.x * inverse).to_limbs();
    elements.iter().zip(inverses).map(ratio).collect()
}

pub(super) fn encode(elements: &[Element]) -> Vec<Encoded> {
    let mut inverses: Vec<Fq> = elements.iter().map(|element| element.y * element.z).collect();
    Fq::invert_many(&mut inverses);
    let encode = |(element, inverse): (&Element, Fq)| {
        let ratio = element.x * inverse * element.z;
        let Affine { x, y } = element.to_affine(inverse * element.y);
        Encoded::of(x.to_limbs(), y.to_limbs(), ratio.to_limbs())
    };
    elements.iter().zip(inverses).map(encode).collect()
}

pub(super) fn decode(points: &[[[u64; 4]; 2]]) -> Vec<Option<Element>> {
    let decode = |point: &[[u64; 4]; 2]| {
        let [x, y] = point.map(Fq::from_limbs);
        let point = Affine { x, y };
        point.is_on_curve().then(|| point.into())
    };
    points.iter().map(decode).collect()
}

pub(super) fn normalize(elements: &mut [Element]) -> Vec<[u64; 4]> {
    let mut inverses: Vec<Fq> = elements.iter().map(|element| element.y * element.z).collect();
    Fq::invert_many(&mut inverses);
    let normalize = |(element, inverse): (&mut Element, Fq)| {
        let ratio = element.x * inverse * element.z;
        *element = element.to_affine(inverse * element.y).normalized().into();
        ratio.to_limbs()
    };
    elements.iter_mut().zip(inverses).map(normalize).collect()
}
