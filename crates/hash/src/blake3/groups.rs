//! Inputs of one length, at most a block, sixteen at a time in the 32-bit lanes of 512-bit
//! registers.

use core::arch::x86_64::*;

use super::{
    WHOLE_INPUT,
    avx512::{add, initial, rotate, splat, xor},
    block_flags,
    rounds::rounds,
};
use crate::{
    Digest,
    x86::{
        avx512,
        groups::{Groups, UnderWay},
    },
};

/// The digests of inputs of `QUARTERS * 16` bytes that lie end to end, in whole groups.
///
/// # Panics
/// If the inputs and the digests are not so many, or none.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn hash_groups<const QUARTERS: usize>(inputs: &[u8], digests: &mut [Digest]) {
    let len = splat(16 * QUARTERS as u32);
    let flags = splat(block_flags(16 * QUARTERS, WHOLE_INPUT, 0));
    let zero = _mm512_setzero_si512();
    let mut under_way = UnderWay::new();
    let mut groups = Groups::<QUARTERS, false>::new(inputs, digests, &mut under_way);
    while let Some(mut group) = groups.next() {
        let [h0, h1, h2, h3, h4, h5, h6, h7] = initial();
        let mut v = [h0, h1, h2, h3, h4, h5, h6, h7, h0, h1, h2, h3, zero, zero, len, flags];
        macro_rules! beside {
            ($half:expr) => {
                group.step($half)
            };
        }
        rounds!(v, add_word, group.columns(), 4 * QUARTERS, beside, 0 1 2 3 4 5 6);
        let mut values = [zero; 8];
        for i in 0..8 {
            values[i] = xor(v[i], v[8 + i]);
        }
        group.finish(values);
    }
    groups.finish();
}

/// Adds a message word ahead of whatever is added next. The compiler would rather add it last, when
/// the rest of the sum has been waited for: a tenth of the time of the rounds.
#[target_feature(enable = "avx512f")]
#[inline]
fn add_word(a: __m512i, word: __m512i) -> __m512i {
    avx512::apart(add(a, word))
}
