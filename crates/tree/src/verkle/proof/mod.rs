//! Proofs of many keys, present or absent, in the forms of go-verkle and rust-verkle.
//!
//! A proof opens every commitment on the paths of the keys at the places that the paths take, all by one
//! [multiproof](spinney_ipa::Multiproof). What it opens to follows from the keys, their values and the
//! commitments below, so those and a byte a stem are all that it holds.
//!
//! Nodes have *paths*: an internal node the bytes that lead to it, a leaf as many bytes of its stem as
//! its parent has and one more, and its halves those and a 2 or a 3. Commitments come in order of paths,
//! openings in order of (path, place).
//!
//! The bytes of the [`Proof`] have one form, and a verifier takes no other: scalars and points are
//! canonical, statuses have no unknown bits, and there are as many stems and commitments as are used.
//!
//! **A limit of the format**: nothing in it says whether a commitment is that of a leaf or of an internal
//! node, so a present stem can be shown absent one digit below its leaf. [`Proof::unsure_stems`] names
//! the stems of a proof for which that is possible.

#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

mod diff;
mod forms;
mod json;
#[expect(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "it reads a tree and no foreign bytes"
)]
mod make;
mod post;
mod shape;
mod verify;

pub use diff::{StateDiff, StemDiff, SuffixDiff};
pub use forms::{Malformed, Proof};
pub use shape::ProofFault;
pub use verify::Verified;

/// What is at the end of a stem's path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    /// Nothing.
    Empty,
    /// Another stem.
    Other,
    /// The stem itself.
    Present,
}

impl Status {
    /// The byte of a stem whose path ends at `depth` bytes.
    const fn byte(self, depth: usize) -> u8 {
        (depth as u8) << 3
            | match self {
                Self::Empty => 0,
                Self::Other => 1,
                Self::Present => 2,
            }
    }

    /// What a byte says: a status, and how long the path is. Unknown bits say nothing.
    const fn read(byte: u8) -> Option<(Self, usize)> {
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

/// The openings of a node: 1 and the stem of a leaf, and its halves.
const LEAF_MARK: u8 = 0;
const LEAF_STEM: u8 = 1;
const LEAF_HALVES: u8 = 2;

/// The half of a suffix.
const fn half(suffix: u8) -> u8 {
    suffix / 128
}

/// A suffix's two places in its half: of the low 16 bytes of its value, and of the high ones.
const fn places(suffix: u8) -> [u8; 2] {
    let low = suffix << 1;
    [low, low | 1]
}
