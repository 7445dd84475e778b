/// SplitMix64: one seed, one sequence, on every machine.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(end)) >> 64) as u64
    }

    /// True once in `count` times.
    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// An index below `end`, which is not zero: a magnitude at random, then a number of it, so that
    /// each doubling of the index is about as likely as the one before. Few are met often, most
    /// hardly ever, as with accounts.
    pub(crate) fn skewed(&mut self, end: usize) -> usize {
        let magnitudes = u64::from(usize::BITS - end.leading_zeros());
        let limit = 1_u64 << self.below(magnitudes);
        let index = limit - 1 + self.below(limit);
        usize::try_from(index).unwrap_or(usize::MAX) % end
    }

    pub(crate) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_be_bytes()[..chunk.len()]);
        }
        bytes
    }
}
