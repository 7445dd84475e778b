//! What the nodes of the tree commit to, and where.

use spinney_ipa::Fr;

/// How many bytes of a key are its stem.
pub const STEM_BYTES: usize = 31;

/// What is at the end of a stem's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Nothing.
    Empty,
    /// Another stem.
    Other,
    /// The stem itself.
    Present,
}

impl Status {
    /// The byte of a stem whose path ends at `depth` bytes.
    pub const fn byte(self, depth: usize) -> u8 {
        (depth as u8) << 3
            | match self {
                Self::Empty => 0,
                Self::Other => 1,
                Self::Present => 2,
            }
    }

    /// What a byte says: a status, and how long the path is. Unknown bits say nothing.
    pub const fn read(byte: u8) -> Option<(Self, usize)> {
        let status = match byte & 7 {
            0 => Self::Empty,
            1 => Self::Other,
            2 => Self::Present,
            _ => return None,
        };
        let depth = (byte >> 3) as usize;
        if depth == 0 { None } else { Some((status, depth)) }
    }
}

/// Where a leaf commits to 1.
pub const LEAF_MARK: u8 = 0;
/// Where a leaf commits to its stem.
pub const LEAF_STEM: u8 = 1;
/// Where a leaf commits to its halves: here, and at the next place.
pub const LEAF_HALVES: u8 = 2;

/// The half of a suffix.
pub const fn half(suffix: u8) -> u8 {
    suffix / 128
}

/// A suffix's two places in its half: of the low 16 bytes of its value, and of the high ones.
pub const fn places(suffix: u8) -> [u8; 2] {
    let low = suffix << 1;
    [low, low | 1]
}

/// The limbs of a scalar, least significant first.
pub fn limbs(scalar: &[u8; 32]) -> [u64; 4] {
    let mut limbs = [0; 4];
    for (limb, bytes) in limbs.iter_mut().zip(scalar.as_chunks::<8>().0) {
        *limb = u64::from_le_bytes(*bytes);
    }
    limbs
}

const NOTHING: [u64; 4] = [0; 4];

/// The terms of a value: its basis points and limbs. The first half carries the mark of presence.
pub fn terms(value: Option<[u8; 32]>) -> [[u64; 4]; 2] {
    let Some(value) = value else { return [NOTHING; 2] };
    let [a, b, c, d] = limbs(&value);
    [[a, b, 1, 0], [c, d, 0, 0]]
}

/// What a leaf commits to in place of its stem.
pub fn stem_scalar(stem: &[u8; 31]) -> Fr {
    let mut wide = [0; 32];
    wide[..31].copy_from_slice(stem);
    Fr::from_limbs(limbs(&wide))
}
