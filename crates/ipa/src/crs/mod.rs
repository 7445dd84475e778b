//! The common reference string: the points that vectors are committed to.

mod generate;
mod table;

pub use table::TableOptions;

use rayon::prelude::*;
use table::{Table, Tables};

use crate::field::Fr;
use crate::group::{Element, decode_trusted, encode_and_map};
use crate::kernel::{Kernel, ask_first};
use crate::msm::multiply_sum_with;
use crate::scalar::SignedScalar;
use crate::sums::Sums;

/// Values in a committed vector.
pub const VECTOR_LEN: usize = 256;

/// Where the point of inner products comes in the table, after the vector's points.
pub(crate) const PRODUCT_BASIS: usize = VECTOR_LEN;

/// Deltas in a batch: their digits, at most 127 each, are counted in 32 bits.
const DELTAS_MAX: usize = 1 << 25;

/// Accumulators that one thread updates at a time at least: enough to share inversions.
const PART_TARGETS: usize = 256;

/// The 256 points that vectors are committed to and the one of inner products (EIP-6800), with or
/// without a table of their multiples.
///
/// With a table everything here is several times faster; without one a `Crs` takes no memory and is
/// ready at once (the first of a process finds the points, in milliseconds), which suits a verifier
/// of few proofs.
///
/// ```
/// use spinney_ipa::{Crs, Delta, Element, Fr, SignedScalar};
///
/// let crs = Crs::new();
/// let before = crs.commit(&[Fr::from(3), Fr::from(4)]);
/// let mut after = [before];
/// let amount = SignedScalar::between([4, 0, 0, 0], [1, 0, 0, 0]);
/// crs.add_deltas(&mut after, &[Delta { target: 0, basis: 1, amount }]);
/// assert_eq!(after[0], crs.commit(&[Fr::from(3), Fr::from(1)]));
/// ```
pub struct Crs {
    points: &'static [Element],
    tables: Option<Tables>,
    kernel: Kernel,
}

/// One term of an update: `amount` times basis point `basis`, to be added to accumulator `target`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Index of the accumulator.
    pub target: u32,
    /// Index of the basis point, which is that of the value in its vector.
    pub basis: u8,
    /// New value less old value.
    pub amount: SignedScalar,
}

impl Crs {
    /// The points alone.
    pub fn new() -> Self {
        Self::with_kernel(Kernel::detect())
    }

    /// The points alone, computing with a certain kernel.
    pub fn with_kernel(kernel: Kernel) -> Self {
        Self { points: generate::points(), tables: None, kernel }
    }

    /// The points with a table of their multiples, built on all threads of the current rayon pool.
    ///
    /// # Panics
    /// If a window is not between 2 and 16 bits.
    pub fn with_table(options: &TableOptions) -> Self {
        options.check();
        let points = generate::points();
        let tables = Some(Tables::Whole(Table::new(points, options)));
        Self { points, tables, kernel: options.kernel }
    }

    /// The points with a small table, which is made in a tenth of the time and takes 8 MiB. It
    /// gives way to the table of these options once sums have taken about as long as making that
    /// one does: for a process that may change ten keys or ten million.
    ///
    /// ```
    /// use spinney_ipa::{Crs, Fr, TableOptions};
    ///
    /// let crs = Crs::with_growing_table(&TableOptions::default());
    /// assert!(crs.table_bytes() < 9 << 20);
    /// assert_eq!(crs.commit(&[Fr::from(3)]), Crs::new().commit(&[Fr::from(3)]));
    /// ```
    ///
    /// # Panics
    /// If a window is not between 2 and 16 bits.
    pub fn with_growing_table(options: &TableOptions) -> Self {
        options.check();
        let points = generate::points();
        let tables = Some(Tables::growing(points, options));
        Self { points, tables, kernel: options.kernel }
    }

    /// The points of the vector, in order.
    pub fn points(&self) -> &[Element] {
        &self.points[..VECTOR_LEN]
    }

    /// The point of inner products.
    pub fn product_point(&self) -> Element {
        self.points[PRODUCT_BASIS]
    }

    /// The size of the table that sums use now. A small table that gave way to it stays in memory.
    pub fn table_bytes(&self) -> usize {
        self.tables.as_ref().map_or(0, |tables| tables.current().bytes())
    }

    /// The commitment to a vector; missing values count as zero.
    ///
    /// # Panics
    /// If there are more than 256 values.
    pub fn commit(&self, values: &[Fr]) -> Element {
        assert!(values.len() <= VECTOR_LEN, "a vector has 256 values");
        let terms = values.iter().enumerate().map(|(basis, &value)| (basis, value));
        self.multiply_sums(&mut std::iter::once(terms))[0]
    }

    /// The commitment to each vector, given by its values that are not zero and their indices.
    pub fn commit_sparse_many(&self, vectors: &[&[(u8, Fr)]]) -> Vec<Element> {
        self.multiply_sums(
            &mut vectors
                .iter()
                .map(|vector| vector.iter().map(|&(basis, value)| (usize::from(basis), value))),
        )
    }

    /// Adds every delta to its accumulator. Deltas may come in any order.
    ///
    /// The cost is that of one addition a non-zero digit. Give a whole level of a tree at once:
    /// independent accumulators fill the lanes of the kernel, and the threads of the current rayon
    /// pool.
    ///
    /// # Panics
    /// If a target is not an index of `accumulators`, or there are 2^25 deltas or more.
    pub fn add_deltas(&self, accumulators: &mut [Element], deltas: &[Delta]) {
        let by_target = sort_by_target(deltas, accumulators.len());
        let Some(tables) = &self.tables else {
            for (target, accumulator) in accumulators.iter_mut().enumerate() {
                *accumulator += self.sum_without_table(by_target.of(target));
            }
            return;
        };
        let table = tables.current();
        let sums_of = |first: usize, accumulators: &[Element]| {
            let mut sums = Sums::default();
            for target in first..first + accumulators.len() {
                let known = sums.picks.len();
                for delta in by_target.of(target) {
                    table.push_picks(usize::from(delta.basis), &delta.amount, &mut sums.picks);
                }
                ask_first(table.entries(), &sums.picks, known);
                sums.finish_sum();
            }
            sums
        };
        if accumulators.len() < 2 * PART_TARGETS {
            let sums = sums_of(0, accumulators);
            sums.add_to(self.kernel, table.entries(), accumulators);
            return tables.added(sums.picks.len(), self.points);
        }
        // Finding the entries takes a tenth of the time, so that is shared out as well.
        let part_len = accumulators.len().div_ceil(rayon::current_num_threads()).max(PART_TARGETS);
        let parts = accumulators.par_chunks_mut(part_len).enumerate();
        let picks = parts.map(|(part, accumulators)| {
            let sums = sums_of(part * part_len, accumulators);
            sums.add_on(1, self.kernel, table.entries(), accumulators);
            sums.picks.len()
        });
        tables.added(picks.sum(), self.points);
    }

    fn sum_without_table<'a>(&self, deltas: impl Iterator<Item = &'a Delta>) -> Element {
        let (points, scalars): (Vec<_>, Vec<_>) = deltas
            .map(|delta| (self.points[usize::from(delta.basis)], delta.amount.to_field()))
            .unzip();
        multiply_sum_with(self.kernel, &points, &scalars)
    }

    /// For each sum, its terms (basis index up to [`PRODUCT_BASIS`], scalar) multiplied out.
    pub(crate) fn multiply_sums<T>(&self, terms: &mut dyn Iterator<Item = T>) -> Vec<Element>
    where
        T: Iterator<Item = (usize, Fr)>,
    {
        let Some(tables) = &self.tables else {
            return terms
                .map(|terms| {
                    let (points, scalars): (Vec<_>, Vec<_>) = terms
                        .filter(|(_, scalar)| !scalar.is_zero())
                        .map(|(basis, scalar)| (self.points[basis], scalar))
                        .unzip();
                    multiply_sum_with(self.kernel, &points, &scalars)
                })
                .collect();
        };
        let table = tables.current();
        let mut sums = Sums::default();
        let mut count = 0;
        for terms in terms {
            for (basis, scalar) in terms {
                table.push_picks(basis, &scalar.into(), &mut sums.picks);
            }
            sums.finish_sum();
            count += 1;
        }
        let mut results = vec![Element::IDENTITY; count];
        sums.add_to(self.kernel, table.entries(), &mut results);
        tables.added(sums.picks.len(), self.points);
        results
    }

    /// The sum of products with basis points and with any other points.
    pub(crate) fn mixed_sum(
        &self,
        fixed: impl Iterator<Item = (usize, Fr)>,
        points: &[Element],
        factors: &[Fr],
    ) -> Element {
        if self.tables.is_some() {
            let fixed = self.multiply_sums(&mut std::iter::once(fixed));
            return fixed[0] + multiply_sum_with(self.kernel, points, factors);
        }
        let (mut points, mut factors) = (points.to_vec(), factors.to_vec());
        for (basis, factor) in fixed {
            points.push(self.points[basis]);
            factors.push(factor);
        }
        multiply_sum_with(self.kernel, &points, &factors)
    }

    /// [`Element::from_uncompressed_trusted`] of each encoding; nothing where it is refused.
    ///
    /// ```
    /// use spinney_ipa::{Crs, Element};
    ///
    /// let crs = Crs::new();
    /// let elements = [crs.points()[7], Element::IDENTITY];
    /// let written = crs.encode_and_map_many(&elements);
    /// assert_eq!(written[0].0, elements[0].to_uncompressed());
    /// assert_eq!(written[0].1, elements[0].map_to_field().to_le_bytes());
    /// let read = crs.decode_trusted_many(&[written[0].0, written[1].0, [1; 64]]);
    /// assert_eq!(read, [Some(elements[0]), Some(elements[1]), None]);
    /// ```
    pub fn decode_trusted_many(&self, encodings: &[[u8; 64]]) -> Vec<Option<Element>> {
        decode_trusted(encodings, self.kernel)
    }

    /// What a tree keeps of each new commitment, for one inversion:
    /// [`Element::to_uncompressed`], and [`Element::map_to_field`] as 32 little-endian bytes.
    pub fn encode_and_map_many(&self, elements: &[Element]) -> Vec<([u8; 64], [u8; 32])> {
        encode_and_map(elements, self.kernel)
    }

    /// The kernel it computes with.
    pub const fn kernel(&self) -> Kernel {
        self.kernel
    }
}

impl Default for Crs {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Crs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crs")
            .field("kernel", &self.kernel)
            .field("table_bytes", &self.table_bytes())
            .finish_non_exhaustive()
    }
}

/// Deltas grouped by target.
struct ByTarget<'a> {
    deltas: &'a [Delta],
    order: Vec<u32>,
    ends: Vec<u32>,
}

impl<'a> ByTarget<'a> {
    fn of(&self, target: usize) -> impl Iterator<Item = &'a Delta> + use<'a, '_> {
        let start = if target == 0 { 0 } else { self.ends[target - 1] };
        let deltas = self.deltas;
        self.order[start as usize..self.ends[target] as usize]
            .iter()
            .map(move |&index| &deltas[index as usize])
    }
}

/// Counting sort by target.
fn sort_by_target(deltas: &[Delta], targets: usize) -> ByTarget<'_> {
    assert!(deltas.len() < DELTAS_MAX, "a batch has less than 2^25 deltas");
    let mut ends = vec![0u32; targets + 1];
    for delta in deltas {
        ends[delta.target as usize + 1] += 1;
    }
    for i in 0..targets {
        ends[i + 1] += ends[i];
    }
    let mut order = vec![0; deltas.len()];
    for (index, delta) in deltas.iter().enumerate() {
        let slot = &mut ends[delta.target as usize];
        order[*slot as usize] = index as u32;
        *slot += 1;
    }
    ends.truncate(targets);
    ByTarget { deltas, order, ends }
}
