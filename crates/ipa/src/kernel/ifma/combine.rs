//! Linear combinations of vectors of scalars.

use super::lanes::{LaneField, Lanes, WIDTH};
use crate::field::Fr;

/// Terms after which pending sums are reduced. A term is `< 1.3 r`, and a sum must stay `< 141 r`.
const TERMS_MAX: usize = 64;

/// Adds `factor * vector` of all terms to `sums`. All have the same length, a multiple of eight.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add_scaled(sums: &mut [Fr], terms: &[(Fr, &[Fr])]) {
    let mut pending = load_all(sums);
    let one = Lanes::splat(&ONE);
    for terms in terms.chunks(TERMS_MAX) {
        for (factor, vector) in terms {
            let factor = Lanes::load_times_16([factor.words(); WIDTH]);
            for (sum, chunk) in pending.iter_mut().zip(vector.chunks_exact(WIDTH)) {
                *sum = sum.plus(&Lanes::load(words(chunk)).mul(&factor)).carry();
            }
        }
        for sum in &mut pending {
            *sum = sum.mul(&one);
        }
    }
    store_all(&pending, sums);
}

/// See [`crate::kernel::Kernel::add_quotients`].
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add_quotients(
    sums: &mut [Fr],
    groups: &[(u8, &[Fr])],
    inverses: &[Fr],
    weights: &[Fr],
) -> Vec<Fr> {
    let mut pending = load_all(sums);
    let one = Lanes::splat(&ONE);
    let mut dots = Vec::with_capacity(groups.len());
    for groups in groups.chunks(TERMS_MAX) {
        for &(index, values) in groups {
            let index = usize::from(index);
            let value = Lanes::load([values[index].words(); WIDTH]);
            let inverses = &inverses[sums.len() - 1 - index..];
            let mut dot = Lanes::splat(&[0; 4]);
            for (row, sum) in pending.iter_mut().enumerate() {
                let row = row * WIDTH..(row + 1) * WIDTH;
                // < 2 r times < 16 r: a share is < 1.3 r.
                let difference = Lanes::load(words(&values[row.clone()])).minus(&value);
                let share = difference
                    .plus_primes::<1>()
                    .carry()
                    .mul(&Lanes::load_times_16(words(&inverses[row.clone()])));
                *sum = sum.plus(&share).carry();
                let weight = Lanes::load_times_16(words(&weights[row]));
                // 32 rows: < 38 r.
                dot = dot.plus(&share.mul(&weight)).carry();
            }
            dots.push(dot.mul(&one).to_reduced().into_iter().map(Fr::from_words).sum());
        }
        for sum in &mut pending {
            *sum = sum.mul(&one);
        }
    }
    store_all(&pending, sums);
    dots
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn load_all(scalars: &[Fr]) -> Vec<Lanes<Fr>> {
    let mut rows = Vec::with_capacity(scalars.len() / WIDTH);
    rows.extend(scalars.chunks_exact(WIDTH).map(|chunk| Lanes::load(words(chunk))));
    rows
}

#[target_feature(enable = "avx512f,avx512ifma")]
fn store_all(rows: &[Lanes<Fr>], scalars: &mut [Fr]) {
    let one = Lanes::splat(&ONE);
    for (chunk, row) in scalars.chunks_exact_mut(WIDTH).zip(rows) {
        for (out, words) in chunk.iter_mut().zip(row.mul(&one).to_reduced()) {
            *out = Fr::from_words(words);
        }
    }
}

/// R = 2^260 modulo r, 1 in the lanes' form: a product with it reduces and changes nothing else.
const ONE: [u64; 4] = {
    let times_16 = Fr::ONE.double().double().double().double();
    *times_16.montgomery()
};

#[inline]
fn words(chunk: &[Fr]) -> [&[u64; 4]; WIDTH] {
    std::array::from_fn(|lane| chunk[lane].words())
}
