//! The kernel for AVX-512 IFMA: eight tasks side by side.
//!
//! Entries hold Montgomery forms with R = 2^260, reduced and packed into four words. Field elements
//! come and go in the crate's own form, with R = 2^256.

mod affine;
mod batch;
mod buckets;
mod combine;
mod lanes;
mod points;
mod sum;
#[cfg(test)]
mod tests;
mod windows;

use std::cell::RefCell;

pub(super) use batch::Batch;
use lanes::{Lanes, WIDTH};

use super::multiples::{Ahead, Multiple, Task};
use super::{Encoded, Entry, Pick};
use crate::field::{Fq, Fr};
use crate::group::short::Short;
use crate::group::{Affine, Element};

/// Tasks that run side by side.
pub(super) const LANES: usize = WIDTH;

/// Proof that this machine has the instructions; only [`Ifma::detect`] makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ifma(());

impl Ifma {
    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512ifma");
        // As on a CPU without one of them: see .ci/kernels.
        #[cfg(test)]
        let found = found && std::env::var_os("SPINNEY_WITHOUT").is_none();
        found.then_some(Self(()))
    }

    pub(super) fn sum(self, entries: &[Entry], picks: &[Pick], ends: &[u32], sums: &mut [Element]) {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { sum::sum(entries, picks, ends, sums) }
    }

    /// Lends the thread's memory for batches.
    pub(super) fn with_batch(self, work: impl FnOnce(&mut Batch)) {
        thread_local! {
            static BATCH: RefCell<Batch> = RefCell::default();
        }
        BATCH.with_borrow_mut(work);
    }

    /// See [`super::portable::Batch::add_to`].
    pub(super) fn add_batch(
        self,
        batch: &mut Batch,
        table: &[Multiple],
        picks: &[Pick],
        tasks: &[Task],
        ahead: &mut Ahead<'_>,
        sums: &mut [Element],
    ) -> bool {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { batch::add_to(batch, table, picks, tasks, ahead, sums) }
    }

    pub(super) fn fill_windows(self, starts: &[Affine], len: usize, out: &mut [Entry]) {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { windows::fill_windows(starts, len, out) }
    }

    pub(super) fn fill_table(self, starts: &[Affine], len: usize, out: &mut [Multiple]) {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { windows::fill_windows(starts, len, out) }
    }

    pub(super) fn weighted_sums(self, buckets: &[Element], len: usize) -> Vec<Element> {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { buckets::weighted_sums(buckets, len) }
    }

    pub(super) fn add_scaled(self, sums: &mut [Fr], terms: &[(Fr, &[Fr])]) {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { combine::add_scaled(sums, terms) }
    }

    pub(super) fn add_quotients(
        self,
        sums: &mut [Fr],
        groups: &[(u8, &[Fr])],
        inverses: &[Fr],
        weights: &[Fr],
    ) -> Vec<Fr> {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { combine::add_quotients(sums, groups, inverses, weights) }
    }

    pub(super) fn pow_many(self, elements: &[Fq], exponent: &[u64; 4]) -> Vec<Fq> {
        let mut powers = Vec::with_capacity(elements.len().next_multiple_of(WIDTH));
        for chunk in elements.chunks(WIDTH) {
            if let [alone] = chunk {
                powers.push(alone.pow(exponent));
                continue;
            }
            // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
            powers.extend(unsafe { pow(&padded(chunk), exponent) });
        }
        powers.truncate(elements.len());
        powers
    }

    pub(super) fn invert_many(self, elements: &mut [Fq]) {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { invert(elements) }
    }

    pub(super) fn ratios(self, elements: &[Element]) -> Vec<[u64; 4]> {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { affine::ratios(elements) }
    }

    pub(super) fn encode(self, elements: &[Element]) -> Vec<Encoded> {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { affine::encode(elements) }
    }

    pub(super) fn decode(self, points: &[[[u64; 4]; 2]]) -> Vec<Option<Element>> {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { affine::decode(points) }
    }

    pub(super) fn normalize(self, elements: &mut [Element]) -> Vec<[u64; 4]> {
        // SAFETY: `self` exists, so the machine has AVX-512F and AVX-512IFMA.
        unsafe { affine::normalize(elements) }
    }
}

pub(super) fn pack(point: &Affine) -> Entry {
    let times_16 = |x: Fq| *x.double().double().double().double().montgomery();
    Entry([times_16(point.x), times_16(point.y), times_16(point.dxy())])
}

/// From 16 times the crate's form.
pub(super) fn unpack(multiple: &Multiple) -> Short {
    const SIXTEENTH: Fq = Fq::from_montgomery(power_of_two(252));
    let [x, y] = multiple.0.map(|words| Fq::from_montgomery(words) * SIXTEENTH);
    Short { x, y }
}

/// Up to eight elements, and ones in the lanes left over.
fn padded(elements: &[Fq]) -> [Fq; WIDTH] {
    std::array::from_fn(|lane| elements.get(lane).copied().unwrap_or(Fq::ONE))
}

fn words(elements: &[Fq; WIDTH]) -> [&[u64; 4]; WIDTH] {
    std::array::from_fn(|lane| elements[lane].montgomery())
}

/// R = 2^260 modulo q, as an integer: 1 in the lanes' form.
const ONE: [u64; 4] = power_of_two(260);

/// Takes a value from the lanes' form to the crate's, by a product.
const FROM_LANES: [u64; 4] = power_of_two(256);

/// Takes a value from the crate's form to the lanes', by a product: 2^264 over R is 2^4.
const TO_LANES: [u64; 4] = power_of_two(264);

/// `2^exponent` modulo q, as an integer.
const fn power_of_two(exponent: u32) -> [u64; 4] {
    let mut power = Fq::ONE;
    let mut done = 0;
    while done < exponent {
        power = power.double();
        done += 1;
    }
    power.to_limbs()
}

/// Four bits of the exponent at a time.
#[target_feature(enable = "avx512f,avx512ifma")]
fn pow(elements: &[Fq; WIDTH], exponent: &[u64; 4]) -> [Fq; WIDTH] {
    let base = Lanes::<Fq>::load_times_16(words(elements));
    let mut powers = [Lanes::splat(&ONE); 16];
    for i in 1..16 {
        powers[i] = powers[i - 1].mul(&base);
    }
    let digits = (0..64).rev().map(|i| (exponent[i / 16] >> (i % 16 * 4)) & 15);
    let mut digits = digits.skip_while(|&digit| digit == 0);
    let mut result = powers[digits.next().unwrap_or(0) as usize];
    for digit in digits {
        for _ in 0..4 {
            result = result.mul(&result);
        }
        if digit != 0 {
            result = result.mul(&powers[digit as usize]);
        }
    }
    let back = Lanes::splat(&FROM_LANES);
    result.mul(&back).to_reduced().map(Fq::from_montgomery)
}

/// One chain of products in each lane; their ends are inverted together.
///
/// `load` gives eight elements `< 16 q` and not zero. `SCALE` is the power of two that the prefix
/// products carry along and pass on to each result: `finish` gets `2^SCALE` times the inverses of
/// eight elements, `< 1.91 q`, and which eight.
#[target_feature(enable = "avx512f,avx512ifma")]
fn invert_rows<const SCALE: u32>(
    rows: usize,
    load: impl Fn(usize) -> Lanes<Fq>,
    mut finish: impl FnMut(usize, &Lanes<Fq>),
) {
    let mut products = Vec::with_capacity(rows);
    let mut product = Lanes::splat(&const { power_of_two(SCALE) });
    for row in 0..rows {
        products.push(product);
        product = product.mul(&load(row));
    }
    // Begins < 16 q and stays < 8.3 q.
    let mut inverse = invert_ends::<SCALE>(product);
    for row in (0..rows).rev() {
        finish(row, &inverse.mul(&products[row]));
        inverse = inverse.mul(&load(row));
    }
}

/// Eight elements from `row * 8` on, ones in place of those that are missing or zero, and the set
/// of the lanes where that is so.
#[target_feature(enable = "avx512f,avx512ifma")]
fn load_invertible(elements: &[Fq], row: usize) -> (Lanes<Fq>, u8) {
    let chunk = padded(&elements[row * WIDTH..elements.len().min((row + 1) * WIDTH)]);
    let zeros = (0..WIDTH).fold(0, |set, lane| set | u8::from(chunk[lane].is_zero()) << lane);
    (Lanes::load_times_16(words(&chunk)).blend(zeros, &Lanes::splat(&ONE)), zeros)
}

/// The inverses, in the lanes' form and `< 16 q`, of eight products that carry along `2^SCALE`.
#[target_feature(enable = "avx512f,avx512ifma")]
fn invert_ends<const SCALE: u32>(products: Lanes<Fq>) -> Lanes<Fq> {
    // `2^SCALE` is divided out; the elements' own form brings in 2^256 and loading 2^4.
    let mut ends = products.to_reduced().map(Fq::from_limbs);
    Fq::invert_many(&mut ends);
    let scale = Fq::from_limbs(const { power_of_two(SCALE) });
    Lanes::load_times_16(words(&ends.map(|end| end * scale)))
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn invert(elements: &mut [Fq]) {
    let mut inverses = vec![Fq::ZERO; elements.len()];
    let none = Lanes::splat(&[0; 4]);
    let load = |row: usize| load_invertible(elements, row).0;
    invert_rows::<256>(elements.len().div_ceil(WIDTH), load, |row, lanes| {
        let lanes = lanes.blend(load_invertible(elements, row).1, &none);
        for (out, inverse) in inverses[row * WIDTH..].iter_mut().zip(lanes.to_reduced()) {
            *out = Fq::from_montgomery(inverse);
        }
    });
    elements.copy_from_slice(&inverses);
}
