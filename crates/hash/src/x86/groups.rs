//! Groups of sixteen inputs of one length, at most 64 bytes, one group after another.
//!
//! To transpose a group takes a hundred shuffles, all of them on one port, and the CPU does not
//! look far enough ahead to fill the others meanwhile. So four groups are under way: beside the
//! rounds of one, the bytes of the group after the next are moved to where they are wanted, the
//! words of the next are transposed, and the digests of the one before are transposed and stored.
//! What goes from step to step goes through memory.
//!
//! Two of the four steps of a transposition are moves of sixteen bytes, loads and stores alone,
//! which have ports of their own. A wide load that follows narrow stores too soon waits for them:
//! so they come a group ahead of what reads them.

use core::arch::x86_64::*;

use super::avx512;
use crate::Digest;

/// The inputs of a group.
pub(crate) const LANES: usize = 16;

/// One group alone is quicker without being moved about first.
pub(crate) const GROUPS_MIN: usize = 2;

/// The steps that are to be done beside each group, in order, but at any time: the moves of a lane,
/// or half the transposition of four rows. The longer a run of shuffles, the more of it the CPU
/// waits for: so they come by fours, as far from each other as they can.
pub(crate) const STEPS: usize = LANES + TRANSPOSITIONS;

/// Of the digests, then of the inputs.
const TRANSPOSITIONS: usize = 4 + 8;

/// Sixteen bytes of an input or of a digest.
type Quarter = [u8; 16];

/// Quarters that are transposed together, one of each of four lanes; or what they become.
type Row = [Quarter; 4];

/// What is on its way from step to step, but the digests.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Words {
    /// Row `4 * q + j` is quarter `q` of lanes `j`, `4 + j`, `8 + j` and `12 + j`.
    quarters: [Row; 16],
    /// Word `i` of each lane.
    columns: [__m512i; 16],
}

/// The words of the digests of the group before.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Digests([__m512i; 8]);

/// What groups under way have in memory.
pub(crate) struct UnderWay {
    words: [Words; 2],
    digests: Digests,
}

impl UnderWay {
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub(crate) fn new() -> Self {
        let zero = _mm512_setzero_si512();
        Self {
            words: [Words { quarters: [[[0; 16]; 4]; 16], columns: [zero; 16] }; 2],
            digests: Digests([zero; 8]),
        }
    }
}

/// Inputs of `QUARTERS * 16` bytes, and their digests.
pub(crate) struct Groups<'a, const QUARTERS: usize, const BIG_ENDIAN: bool> {
    inputs: &'a [[[Quarter; QUARTERS]; LANES]],
    digests: &'a mut [[Digest; LANES]],
    /// The columns of this group, and the quarters of the one after the next.
    this: &'a mut Words,
    /// The columns and the quarters of the next group.
    next: &'a mut Words,
    before: &'a mut Digests,
    begun: usize,
}

/// One group, and what is done for others beside it.
pub(crate) struct Group<'a, const QUARTERS: usize, const BIG_ENDIAN: bool> {
    inputs: &'a [[Quarter; QUARTERS]; LANES],
    this: &'a mut Words,
    next: &'a mut Words,
    before: &'a mut Digests,
    digests: &'a mut [Digest; LANES],
}

impl<'a, const QUARTERS: usize, const BIG_ENDIAN: bool> Groups<'a, QUARTERS, BIG_ENDIAN> {
    /// Starts with inputs that lie end to end, in whole groups.
    ///
    /// # Panics
    /// If the inputs and the digests are not so many, or none.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    pub(crate) fn new(
        inputs: &'a [u8],
        digests: &'a mut [Digest],
        under_way: &'a mut UnderWay,
    ) -> Self {
        let (inputs, []) = inputs.as_chunks() else { panic!("inputs are whole quarters") };
        let (inputs, []) = inputs.as_chunks() else { panic!("inputs are whole") };
        let (inputs, []) = inputs.as_chunks() else { panic!("groups are whole") };
        let (digests, []) = digests.as_chunks_mut() else { panic!("groups are whole") };
        assert!(!inputs.is_empty() && inputs.len() == digests.len(), "one digest for each input");
        let UnderWay { words: [odd, even], digests: before } = under_way;
        for (ahead, words) in [&mut *even, odd].into_iter().enumerate() {
            for lane in 0..LANES {
                move_quarters(&inputs[ahead.min(inputs.len() - 1)], lane, &mut words.quarters);
            }
        }
        for pair in 0..2 * QUARTERS {
            transpose_inputs::<BIG_ENDIAN>(&even.quarters, pair, &mut even.columns);
        }
        // The first group begins by taking its turn.
        Self { inputs, digests, this: odd, next: even, before, begun: 0 }
    }

    /// The next group, once all is done beside the one before.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Group<'_, QUARTERS, BIG_ENDIAN>> {
        let index = self.begun;
        if index == self.inputs.len() {
            return None;
        }
        self.begun += 1;
        core::mem::swap(&mut self.this, &mut self.next);
        Some(Group {
            // Past the end, the last group is moved again, and its words are never used.
            inputs: &self.inputs[(index + 2).min(self.inputs.len() - 1)],
            this: self.this,
            next: self.next,
            before: self.before,
            // Before the first group there are no digests: what is stored then gives way to its
            // own.
            digests: &mut self.digests[index.saturating_sub(1)],
        })
    }

    /// Stores the last digests.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    pub(crate) fn finish(self) {
        for part in 0..4 {
            transpose_digests::<BIG_ENDIAN>(
                &self.before.0,
                part,
                &mut self.digests[self.inputs.len() - 1],
            );
        }
    }
}

impl<const QUARTERS: usize, const BIG_ENDIAN: bool> Group<'_, QUARTERS, BIG_ENDIAN> {
    /// The words of its inputs.
    #[inline]
    pub(crate) fn columns(&self) -> &[__m512i; 16] {
        &self.this.columns
    }

    /// Part `part` of twelve of what is done for other groups beside this one, for rounds that have
    /// registers to spare only in the last four.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    pub(crate) fn beside(&mut self, part: usize) {
        for i in 2 * part..2 * part + 2 {
            match part {
                0..8 => self.move_lane(i),
                _ => self.transpose_inputs(i - LANES),
            }
            if part < 2 {
                self.transpose_digests(i);
            }
        }
    }

    /// Step `step` of [`STEPS`] of the same.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    pub(crate) fn step(&mut self, step: usize) {
        let transposed = TRANSPOSITIONS * step / STEPS;
        if TRANSPOSITIONS * (step + 1) / STEPS == transposed {
            self.move_lane(step - transposed);
        } else if transposed < 4 {
            self.transpose_digests(transposed);
        } else {
            self.transpose_inputs(transposed - 4);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn move_lane(&mut self, lane: usize) {
        move_quarters(self.inputs, lane, &mut self.this.quarters);
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn transpose_inputs(&mut self, pair: usize) {
        if pair < 2 * QUARTERS {
            let Words { quarters, columns } = &mut *self.next;
            transpose_inputs::<BIG_ENDIAN>(quarters, pair, columns);
        }
    }

    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    fn transpose_digests(&mut self, part: usize) {
        transpose_digests::<BIG_ENDIAN>(&self.before.0, part, self.digests);
    }

    /// Takes the words of its digests, once all steps are done.
    #[target_feature(enable = "avx512f,avx512bw")]
    #[inline]
    pub(crate) fn finish(self, values: [__m512i; 8]) {
        self.before.0 = values;
    }
}

/// Moves the bytes of one lane to where they are transposed from.
#[target_feature(enable = "avx512f,avx512bw")]
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

/// Words `2 * pair` and `2 * pair + 1` of all lanes become columns.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn transpose_inputs<const BIG_ENDIAN: bool>(
    rows: &[Row; 16],
    pair: usize,
    columns: &mut [__m512i; 16],
) {
    let row = |j: usize| {
        let row = rows[4 * (pair / 2) + j].as_flattened();
        avx512::load(row.try_into().expect("four quarters"))
    };
    let words = avx512::transpose_quarters_half(pair % 2, [row(0), row(1), row(2), row(3)]);
    for (column, words) in columns[2 * pair..].iter_mut().zip(words) {
        *column = if BIG_ENDIAN { avx512::swap_bytes(words) } else { words };
    }
}

/// Part `2 * half + pair` is half `half` of the digests of lanes `j`, `4 + j`, `8 + j` and `12 +
/// j`, for `j` of `2 * pair` and `2 * pair + 1`.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn transpose_digests<const BIG_ENDIAN: bool>(
    words: &[__m512i; 8],
    part: usize,
    digests: &mut [Digest; LANES],
) {
    let (half, pair) = (part / 2, part % 2);
    let words = &words[4 * half..];
    let rows = avx512::transpose_quarters_half(pair, [words[0], words[1], words[2], words[3]]);
    for (j, row) in (2 * pair..).zip(rows) {
        let row = if BIG_ENDIAN { avx512::swap_bytes(row) } else { row };
        for (i, quarter) in avx512::to_quarters(row).into_iter().enumerate() {
            digests[4 * i + j].as_chunks_mut().0[half] = quarter;
        }
    }
}
