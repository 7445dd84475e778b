//! The portable kernel. Entries hold the 256-bit Montgomery form.

use super::{Entry, Pick};
use crate::field::{Fq, ROOT_EXPONENT};
use crate::group::{Affine, Element};

pub(super) fn pack(point: &Affine) -> Entry {
    Entry([*point.x.montgomery(), *point.y.montgomery(), *point.dxy().montgomery()])
}

pub(super) fn sum(entries: &[Entry], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
    let mut start = 0;
    for (sum, &end) in sums.iter_mut().zip(ends) {
        for pick in &picks[start..end as usize] {
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

pub(super) fn root_powers(elements: &[Fq]) -> Vec<Fq> {
    elements.iter().map(|element| element.pow(&ROOT_EXPONENT)).collect()
}
