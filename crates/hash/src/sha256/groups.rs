//! Inputs of 64 bytes, pairs of digests, sixteen at a time in the 32-bit lanes of 512-bit
//! registers.

use super::{
    avx512::{add, choose, initial, majority, rotate, shift, splat, xor3},
    rounds::{CONSTANTS, SCHEDULE_AFTER_64, sixteen},
};
use crate::{
    Digest,
    x86::groups::{Groups, UnderWay},
};

/// The digests of inputs of 64 bytes that lie end to end, in whole groups.
///
/// # Panics
/// If the inputs and the digests are not so many, or none.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn hash_groups(inputs: &[u8], digests: &mut [Digest]) {
    let mut under_way = UnderWay::new();
    let mut groups = Groups::<4, true>::new(inputs, digests, &mut under_way);
    while let Some(mut group) = groups.next() {
        let mut before = initial();
        let (mut s, mut w) = (before, *group.columns());
        for (i, constants) in CONSTANTS.as_chunks::<16>().0.iter().enumerate() {
            if i > 0 {
                sixteen!(expand, w);
            }
            sixteen!(round, s, |j| add(w[j], splat(constants[j])));
            group.beside(2 * i);
            group.beside(2 * i + 1);
        }
        for (sum, word) in before.iter_mut().zip(s) {
            *sum = add(*sum, word);
        }
        s = before;
        for (i, words) in SCHEDULE_AFTER_64.as_chunks::<16>().0.iter().enumerate() {
            sixteen!(round, s, |j| splat(words[j]));
            group.beside(8 + i);
        }
        for (word, sum) in s.iter_mut().zip(before) {
            *word = add(*word, sum);
        }
        group.finish(s);
    }
    groups.finish();
}
