//! The portable kernel. Entries hold the 256-bit Montgomery form.

use super::prefetch::prefetch;
use super::{Entry, Kernel, Pick};
use crate::field::{Fq, Fr};
use crate::group::{Affine, Element, batch::to_affine_many};

/// How many picks ahead entries are asked for.
const PREFETCH_PICKS: usize = 4;

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

pub(super) fn fill_windows(starts: &[Affine], len: usize, out: &mut [Entry]) {
    let mut multiples = Vec::with_capacity(len);
    for (window, start) in out.chunks_mut(len).zip(starts) {
        let dxy = start.dxy();
        let mut multiple = Element::from(*start);
        multiples.clear();
        for _ in 0..window.len() {
            multiples.push(multiple);
            multiple = multiple.add_prepared(start.x, start.y, dxy);
        }
        let affine = to_affine_many(&multiples, Kernel::PORTABLE);
        for (entry, multiple) in window.iter_mut().zip(&affine) {
            *entry = pack(multiple);
        }
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
