//! Multiples of the basis points, so that a product is a sum of table entries.
//!
//! Layout: for each basis point the windows from the least significant on; for window k of
//! w bits the multiples 1, 2 .. 2^(w-1) of `2^(k w)` times the point. The last window is cut to
//! the digits that occur.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;

use crate::group::{Element, batch::to_affine_many};
use crate::kernel::{Kernel, Multiple, Pick, zero_multiples};
use crate::scalar::{Base, SignedScalar, last_digit_max, window_count};

/// Bits of all windows of the table that a growing one begins with: 8 MiB, in a tenth of the time.
const SMALL_WINDOW_BITS: u32 = 4;

/// Additions that take as long as making an entry of a table, about: 2.5 in portable code.
const ADDITIONS_PER_ENTRY: usize = 2;

/// How much memory to spend on multiples of the basis points.
///
/// A product with a scalar of n bits is a sum of n / `window_bits` entries of 64 bytes; a point
/// has about `254 / window_bits * 2^(window_bits - 1)` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableOptions {
    /// Bits of a digit at most points, 2 to 16. Default 9.
    pub window_bits: u32,
    /// Bits of a digit at the first points, 2 to 16. Default 12.
    pub wide_window_bits: u32,
    /// How many of the first points have wide windows. Default 5: the header of every leaf and the
    /// hash of every key use these, and no others.
    pub wide_points: usize,
    /// Which implementation computes. Default: the fastest the machine has.
    pub kernel: Kernel,
}

impl Default for TableOptions {
    fn default() -> Self {
        Self { window_bits: 9, wide_window_bits: 12, wide_points: 5, kernel: Kernel::detect() }
    }
}

impl TableOptions {
    /// Panics if a window is not between 2 and 16 bits.
    pub(super) fn check(&self) {
        for bits in [self.window_bits, self.wide_window_bits] {
            assert!((2..=16).contains(&bits), "windows have 2 to 16 bits");
        }
    }

    /// Bits of a digit at a point.
    const fn bits_of(&self, index: usize) -> usize {
        (if index < self.wide_points { self.wide_window_bits } else { self.window_bits }) as usize
    }
}

/// A table of the wanted size, or one that begins small and gives way to that.
///
/// Invariant: each sum asks for the current table once, and uses entries of that table alone.
pub(super) enum Tables {
    Whole(Table),
    Growing(Box<Growing>),
}

/// A small table, and the large one that takes its place. Sums with the small one have taken about
/// as long by then as making the large one does.
pub(super) struct Growing {
    small: Table,
    full: OnceLock<Table>,
    options: TableOptions,
    /// How many entries of the small table sums have added.
    added: AtomicUsize,
    /// The number of additions at which the large table is made.
    bound: usize,
}

impl Tables {
    pub(super) fn growing(basis: &[Element], options: &TableOptions) -> Self {
        let small = TableOptions {
            window_bits: options.window_bits.min(SMALL_WINDOW_BITS),
            wide_window_bits: options.wide_window_bits.min(SMALL_WINDOW_BITS),
            ..*options
        };
        Self::Growing(Box::new(Growing {
            small: Table::new(basis, &small),
            full: OnceLock::new(),
            options: *options,
            added: AtomicUsize::new(0),
            bound: Table::len(basis.len(), options) * ADDITIONS_PER_ENTRY,
        }))
    }

    /// The table to sum with now.
    pub(super) fn current(&self) -> &Table {
        match self {
            Self::Whole(table) => table,
            Self::Growing(growing) => growing.full.get().unwrap_or(&growing.small),
        }
    }

    /// Counts entries that a sum has added. The thread that brings the count to its bound makes the
    /// large table. Other threads keep summing with the small one: a thread of the pool that makes
    /// the table must not wait for it.
    pub(super) fn added(&self, picks: usize, basis: &[Element]) {
        let Self::Growing(growing) = self else { return };
        if growing.full.get().is_some() {
            return;
        }
        let before = growing.added.fetch_add(picks, Ordering::Relaxed);
        if before < growing.bound && before + picks >= growing.bound {
            // Set by nobody else: the count passes its bound once.
            let _ = growing.full.set(Table::new(basis, &growing.options));
        }
    }
}

/// The table of all basis points.
pub(super) struct Table {
    entries: Vec<Multiple>,
    rows: Vec<BasisRow>,
}

/// Where the multiples of one basis point are.
#[derive(Clone, Copy)]
struct BasisRow {
    first: usize,
    window_bits: usize,
    base: Base,
}

impl BasisRow {
    const fn len(window_bits: usize) -> usize {
        ((window_count(window_bits) - 1) << (window_bits - 1)) + last_digit_max(window_bits)
    }
}

impl Table {
    /// How many entries the table of so many points has.
    fn len(points: usize, options: &TableOptions) -> usize {
        (0..points).map(|index| BasisRow::len(options.bits_of(index))).sum()
    }

    /// Computes all multiples, on all threads of the current rayon pool.
    pub(super) fn new(basis: &[Element], options: &TableOptions) -> Self {
        let mut rows = Vec::with_capacity(basis.len());
        let mut total = 0;
        for index in 0..basis.len() {
            let window_bits = options.bits_of(index);
            rows.push(BasisRow { first: total, window_bits, base: Base::new(window_bits) });
            total += BasisRow::len(window_bits);
        }
        let mut entries = zero_multiples(total);
        let mut work = Vec::with_capacity(basis.len());
        let mut rest = entries.as_mut_slice();
        for (point, row) in basis.iter().zip(&rows) {
            let (head, tail) = rest.split_at_mut(BasisRow::len(row.window_bits));
            work.push((*point, row.window_bits, head));
            rest = tail;
        }
        work.into_par_iter().for_each(|(point, bits, out)| {
            fill_row(point, bits, out, options.kernel);
        });
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
