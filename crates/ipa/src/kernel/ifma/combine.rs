//! Linear combinations of vectors of scalars.

use super::lanes::{LaneField, Lanes, WIDTH};
use crate::field::Fr;

/// Terms after which pending sums are reduced. A term is `< 1.2 r`, and a sum must stay `< 141 r`.
const TERMS_MAX: usize = 64;

/// Adds `factor * vector` of all terms to `sums`. All have the same length, a multiple of eight.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn add_scaled(sums: &mut [Fr], terms: &[(Fr, &[Fr])]) {
    let mut pending = Vec::<Lanes<Fr>>::with_capacity(sums.len() / WIDTH);
    pending.extend(sums.chunks_exact(WIDTH).map(|chunk| Lanes::load(words(chunk))));
    // 1 in the lanes' form: a product with it reduces and changes nothing else.
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
    for (chunk, sum) in sums.chunks_exact_mut(WIDTH).zip(&pending) {
        for (out, words) in chunk.iter_mut().zip(sum.mul(&one).to_reduced()) {
            *out = Fr::from_words(words);
        }
    }
}

/// R = 2^260 modulo r.
const ONE: [u64; 4] = {
    let times_16 = Fr::ONE.double().double().double().double();
    *times_16.montgomery()
};

#[inline]
fn words(chunk: &[Fr]) -> [&[u64; 4]; WIDTH] {
    std::array::from_fn(|lane| chunk[lane].words())
}
