//! Splitmix64, which large states and random vectors are drawn from: one seed, one sequence.

/// The generator, begun with its seed.
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    /// The next number.
    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
