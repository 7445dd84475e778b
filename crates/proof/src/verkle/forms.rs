//! The proof, and its bytes.

use alloc::vec::Vec;
use core::fmt;

use spinney_ipa::{MULTIPROOF_BYTES, Multiproof, ProofError};

use super::diff::StateDiff;
use super::node::Status;

/// A proof of the values in a [`StateDiff`]. It answers nothing until it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    pub(super) other_stems: Vec<[u8; 31]>,
    /// A byte a stem: what its path ends with, and how long it is.
    pub(super) statuses: Vec<u8>,
    /// By path; that of the root node is the root.
    pub(super) commitments: Vec<[u8; 32]>,
    pub(super) multiproof: Multiproof,
}

/// Why bytes are no proof.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// The bytes end within a part, or go on behind the last one.
    Length {
        /// Which part.
        what: &'static str,
        /// Where it would end.
        at: u64,
        /// How many bytes there are.
        len: usize,
    },
    /// The multiproof is none.
    Multiproof(ProofError),
}

impl From<ProofError> for Malformed {
    fn from(error: ProofError) -> Self {
        Self::Multiproof(error)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length { what, at, len } => write!(
                f,
                "{what} ends at byte {at} of {len}: the proof is cut off or goes on behind its end"
            ),
            Self::Multiproof(error) => write!(f, "the multiproof is malformed: {error}"),
        }
    }
}

impl core::error::Error for Malformed {}

impl Proof {
    /// A proof of these parts.
    pub const fn new(
        other_stems: Vec<[u8; 31]>,
        statuses: Vec<u8>,
        commitments: Vec<[u8; 32]>,
        multiproof: Multiproof,
    ) -> Self {
        Self { other_stems, statuses, commitments, multiproof }
    }

    /// A byte a stem, in order: what its path ends with, and how long that is.
    pub fn statuses(&self) -> &[u8] {
        &self.statuses
    }

    /// The commitments of the nodes on the paths, in order of paths, but that of the root node.
    pub fn commitments(&self) -> &[[u8; 32]] {
        &self.commitments
    }

    /// What opens them.
    pub const fn multiproof(&self) -> &Multiproof {
        &self.multiproof
    }

    /// The stems that stand where keys would, in order.
    pub fn other_stems(&self) -> &[[u8; 31]] {
        &self.other_stems
    }

    /// The stems of a difference that the proof says end in nothing, deeper than below the root:
    /// their absence is **not shown**, even where the proof verifies.
    ///
    /// A leaf commits to `[1, stem, C1, C2, 0, ..]`. Put where an internal node is said to be, it
    /// opens to nothing at every digit from 4 on, and the format of go-verkle has nothing that says
    /// which of the two a commitment is: its openings are fixed by the keys. So whoever holds a
    /// leaf can show its own stem absent one digit deeper. The root is no leaf, and where another
    /// stem stands in the place, its mark is opened: those absences are sound, as is every
    /// presence.
    pub fn unsure_stems(&self, diff: &StateDiff) -> Vec<[u8; 31]> {
        let unsure = |byte: u8| match Status::read(byte) {
            Some((Status::Empty, depth)) => depth > 1,
            _ => false,
        };
        let stems = diff.0.iter().zip(&self.statuses);
        stems.filter(|(_, byte)| unsure(**byte)).map(|(entry, _)| entry.stem).collect()
    }

    /// The bytes of rust-verkle: each list after its length (u32, LE), then the multiproof.
    ///
    /// ```text
    /// length, other stem (31)* | length, status (1)* | length, commitment (32)* | multiproof (576)
    /// status = what is at the end of a stem's path: 0 nothing, 1 another stem, 2 the stem
    ///          | bytes of the path << 3
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut list = |count: usize, bytes: &[u8]| {
            // A proof in memory has fewer than 2^32 stems and nodes.
            out.extend_from_slice(&(count as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        list(self.other_stems.len(), self.other_stems.as_flattened());
        list(self.statuses.len(), &self.statuses);
        list(self.commitments.len(), self.commitments.as_flattened());
        out.extend_from_slice(&self.multiproof.to_bytes());
        out
    }

    /// Reads the bytes of a proof. Commitments are looked at when it is verified.
    ///
    /// # Errors
    /// If the bytes are cut off or go on, or the multiproof is malformed.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut rest = Rest { bytes, at: 0 };
        let other_stems = rest.list::<31>("a list of stems")?.to_vec();
        let statuses = rest.list::<1>("a list of statuses")?.as_flattened().to_vec();
        let commitments = rest.list::<32>("a list of commitments")?.to_vec();
        let multiproof = rest.take("the multiproof", MULTIPROOF_BYTES as u64)?;
        if rest.at != bytes.len() {
            let (at, len) = (rest.at as u64, bytes.len());
            return Err(Malformed::Length { what: "the multiproof", at, len });
        }
        let multiproof = Multiproof::from_bytes(multiproof)?;
        Ok(Self { other_stems, statuses, commitments, multiproof })
    }
}

struct Rest<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Rest<'a> {
    fn take(&mut self, what: &'static str, len: u64) -> Result<&'a [u8], Malformed> {
        let end = (self.at as u64).saturating_add(len);
        let cut_off = Malformed::Length { what, at: end, len: self.bytes.len() };
        let end = usize::try_from(end).map_err(|_| cut_off.clone())?;
        let part = self.bytes.get(self.at..end).ok_or(cut_off)?;
        self.at = end;
        Ok(part)
    }

    fn list<const N: usize>(&mut self, what: &'static str) -> Result<&'a [[u8; N]], Malformed> {
        let count = self.take(what, 4)?.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte));
        // Below 2^32 times 32.
        Ok(self.take(what, count.saturating_mul(N as u64))?.as_chunks().0)
    }
}
