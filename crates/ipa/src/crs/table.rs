//! Multiples of the basis points, so that a product is a sum of table entries.
//!
//! Layout: for each basis point the windows from the least significant on; for window k of
//! w bits the multiples 1, 2 .. 2^(w-1) of `2^(k w)` times the point. The last window is cut to
//! the digits that occur.

use rayon::prelude::*;

use super::TableOptions;
use crate::group::{Element, batch::to_affine_many};
use crate::kernel::{Kernel, Multiple, Pick, zero_multiples};
use crate::scalar::{Base, SignedScalar, last_digit_max, window_count};

/// The table of all basis points.
pub(super) struct Table {
    entries: Vec<Multiple>,
    rows: Vec<Row>,
}

/// Where the multiples of one basis point are.
#[derive(Clone, Copy)]
struct Row {
    first: usize,
    window_bits: usize,
    base: Base,
}

impl Row {
    const fn len(window_bits: usize) -> usize {
        ((window_count(window_bits) - 1) << (window_bits - 1)) + last_digit_max(window_bits)
    }
}

impl Table {
    /// Computes all multiples, on all threads of the current rayon pool.
    pub(super) fn new(basis: &[Element], options: &TableOptions, kernel: Kernel) -> Self {
        let mut rows = Vec::with_capacity(basis.len());
        let mut total = 0;
        for index in 0..basis.len() {
            let wide = index < options.wide_points;
            let bits = if wide { options.wide_window_bits } else { options.window_bits };
            let window_bits = bits as usize;
            rows.push(Row { first: total, window_bits, base: Base::new(window_bits) });
            total += Row::len(window_bits);
        }
        let mut entries = zero_multiples(total);
        let mut work = Vec::with_capacity(basis.len());
        let mut rest = entries.as_mut_slice();
        for (point, row) in basis.iter().zip(&rows) {
            let (head, tail) = rest.split_at_mut(Row::len(row.window_bits));
            work.push((*point, row.window_bits, head));
            rest = tail;
        }
        work.into_par_iter().for_each(|(point, bits, out)| fill_row(point, bits, out, kernel));
        Self { entries, rows }
    }

    pub(super) fn entries(&self) -> &[Multiple] {
        &self.entries
    }

    /// The memory the entries take.
    pub(super) const fn bytes(&self) -> usize {
        self.entries.len() * size_of::<Multiple>()
    }

    /// Names the entries whose sum is `scalar` times a basis point.
    #[inline]
    pub(super) fn push_picks(&self, basis: usize, scalar: &SignedScalar, picks: &mut Vec<Pick>) {
        let row = &self.rows[basis];
        scalar.for_each_digit(&row.base, |position, digit, negative| {
            let offset = (position << (row.window_bits - 1)) + digit - 1;
            picks.push(Pick::new(row.first + offset, negative));
        });
    }
}

/// Writes the multiples of one point.
fn fill_row(point: Element, window_bits: usize, out: &mut [Multiple], kernel: Kernel) {
    let mut starts = vec![point];
    for position in 1..window_count(window_bits) {
        let doubled = (0..window_bits).fold(starts[position - 1], |point, _| point.double());
        starts.push(doubled);
    }
    kernel.fill_table(&to_affine_many(&starts, kernel), 1 << (window_bits - 1), out);
}
