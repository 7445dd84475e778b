//! Groups of sixteen inputs of one length, at most a block, one group after another.
//!
//! Transposing a group takes as many shuffles as a seventh of its rounds, all of them on one port,
//! and the CPU does not look far enough ahead to fill the other one meanwhile. So three groups are
//! under way: beside each half round of one, some bytes of the group after the next are moved to
//! where they are wanted, some words of the next are transposed, and some digests of the one before
//! are stored. What goes from step to step goes through memory.
//!
//! Two of the four steps of a transposition are moves of sixteen bytes, by loads and stores alone:
//! they have ports of their own. They are done one group ahead of what reads them, since a wide
//! load that follows narrow stores too soon waits for them.

use std::arch::x86_64::*;

use super::{
    WHOLE_INPUT,
    avx512::{add, initial, rotate, splat, xor},
    block_flags,
    rounds::rounds,
};
use crate::{Digest, x86::avx512};

/// The inputs of a group.
pub(super) const LANES: usize = 16;

/// One group alone is quicker without being moved about first.
pub(super) const GROUPS_MIN: usize = 2;

/// Sixteen bytes of an input or of a digest.
type Quarter = [u8; 16];

/// Quarters that are transposed together, one of each of four lanes; or what they become.
type Row = [Quarter; 4];

/// Those groups under way, in memory.
#[repr(align(64))]
struct UnderWay {
    /// Row `4 * q + j` is quarter `q` of lanes `j`, `4 + j`, `8 + j` and `12 + j`. Of the next group
    /// and of the one after it, by turns.
    quarters: [[Row; 16]; 2],
    /// Word `i` of each lane. Of this group and of the next, by turns.
    columns: [[__m512i; 16]; 2],
    /// Word `i` of each lane's digest, of the group before.
    values: [__m512i; 8],
    /// Row `4 * h + j` is half `h` of the digests of lanes `j`, `4 + j`, `8 + j` and `12 + j`.
    halves: [Row; 8],
}

/// The digests of inputs of `QUARTERS * 16` bytes that lie end to end, in whole groups.
///
/// # Panics
/// If the inputs and the digests are not so many.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi1,bmi2")]
pub(super) fn hash_groups<const QUARTERS: usize>(inputs: &[u8], digests: &mut [Digest]) {
    let (inputs, []) = inputs.as_chunks() else { panic!("inputs are whole quarters") };
    let (inputs, []) = inputs.as_chunks::<QUARTERS>() else { panic!("inputs are whole") };
    let (inputs, []) = inputs.as_chunks::<LANES>() else { panic!("groups are whole") };
    let (digests, []) = digests.as_chunks_mut::<LANES>() else { panic!("groups are whole") };
    assert_eq!(inputs.len(), digests.len(), "one digest for each input");
    let Some(last) = inputs.len().checked_sub(1) else { return };

    let len = splat(16 * QUARTERS as u32);
    let flags = splat(block_flags(16 * QUARTERS, WHOLE_INPUT, 0));
    let zero = _mm512_setzero_si512();
    let UnderWay { quarters, columns, values, halves } = &mut UnderWay {
        quarters: [[[[0; 16]; 4]; 16]; 2],
        columns: [[zero; 16]; 2],
        values: [zero; 8],
        halves: [[[0; 16]; 4]; 8],
    };
    for ahead in 0..2 {
        for lane in 0..LANES {
            move_quarters(&inputs[last.min(ahead)], lane, &mut quarters[ahead]);
        }
    }
    for q in 0..QUARTERS {
        transpose_inputs(&quarters[0], q, &mut columns[0]);
    }
    for group in 0..=last {
        // At the ends, groups that are not there are others that are: what is stored before the
        // first group's digests gives way to them, and the last group is loaded again.
        let after_next = &inputs[last.min(group + 2)];
        let before = &mut digests[group.saturating_sub(1)];
        let (this, next) = (group % 2, (group + 1) % 2);
        macro_rules! beside {
            ($half_round:expr) => {
                match $half_round {
                    step @ 0..8 => {
                        move_quarters(after_next, 2 * step, &mut quarters[this]);
                        move_quarters(after_next, 2 * step + 1, &mut quarters[this]);
                        if step < 2 {
                            transpose_digests(values, step, halves);
                        }
                    }
                    step @ 8..12 => {
                        if step - 8 < QUARTERS {
                            transpose_inputs(&quarters[next], step - 8, &mut columns[next]);
                        }
                        store_digests(halves, step - 8, before);
                    }
                    _ => {}
                }
            };
        }
        let [h0, h1, h2, h3, h4, h5, h6, h7] = initial();
        let mut v = [h0, h1, h2, h3, h4, h5, h6, h7, h0, h1, h2, h3, zero, zero, len, flags];
        rounds!(v, columns[this], 4 * QUARTERS, beside, 0 1 2 3 4 5 6);
        for i in 0..8 {
            values[i] = xor(v[i], v[8 + i]);
        }
    }
    for half in 0..2 {
        transpose_digests(values, half, halves);
    }
    for lane in 0..4 {
        store_digests(halves, lane, &mut digests[last]);
    }
}

/// Moves the bytes of one lane to where they are transposed from.
#[target_feature(enable = "avx512f")]
#[inline]
fn move_quarters<const QUARTERS: usize>(
    group: &[[Quarter; QUARTERS]; LANES],
    lane: usize,
    rows: &mut [Row; 16],
) {
    for q in 0..QUARTERS {
        rows[4 * q + lane % 4][lane / 4] = group[lane][q];
    }
}

/// Quarter `q` of all lanes becomes four columns of words.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose_inputs(rows: &[Row; 16], q: usize, columns: &mut [__m512i; 16]) {
    let row = |j: usize| {
        let row = rows[4 * q + j].as_flattened();
        avx512::load(row.try_into().expect("four quarters"))
    };
    let words = avx512::transpose_quarters(row(0), row(1), row(2), row(3));
    columns[4 * q..][..4].copy_from_slice(&words);
}

/// Four words of all digests become half `half` of each.
#[target_feature(enable = "avx512f")]
#[inline]
fn transpose_digests(values: &[__m512i; 8], half: usize, halves: &mut [Row; 8]) {
    let words = &values[4 * half..];
    let rows = avx512::transpose_quarters(words[0], words[1], words[2], words[3]);
    for (to, row) in halves[4 * half..].iter_mut().zip(rows) {
        to.as_flattened_mut().copy_from_slice(&avx512::to_bytes(row));
    }
}

/// Stores the digests of lanes `j`, `4 + j`, `8 + j` and `12 + j`.
#[target_feature(enable = "avx512f")]
#[inline]
fn store_digests(halves: &[Row; 8], j: usize, digests: &mut [Digest; LANES]) {
    for i in 0..4 {
        let (quarters, []) = digests[4 * i + j].as_chunks_mut() else {
            unreachable!("32 = 2 * 16")
        };
        for (half, quarter) in quarters.iter_mut().enumerate() {
            *quarter = halves[4 * half + j][i];
        }
    }
}
