//! Sealed records: all that a run leaves behind is made of them.
//!
//! ```text
//! record = version (u16), kind (u8), length (u32), so many bytes, xxh3-64 of all that (u64)
//! ```
//! Integers are big-endian. A record says where it ends, so one may follow another.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use xxhash_rust::xxh3::xxh3_64;

use crate::options::FORMAT;

const HEAD_BYTES: usize = 7;
const SUM_BYTES: usize = 8;

/// What a record holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A run as a whole, in the store.
    Run = 1,
    /// A range that was built, in the store.
    Range = 2,
    /// A range that was begun.
    Started = 3,
    /// The head of a run file.
    File = 4,
    /// Leaves.
    Block = 5,
    /// Where the blocks of a file are.
    Index = 6,
    /// All leaves are in run files.
    Sorted = 7,
}

/// Why bytes are no such record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    Short,
    Version(u16),
    Kind,
    Checksum,
}

impl Unreadable {
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::Short => "a record is cut off",
            Self::Version(_) => "a record is of another version",
            Self::Kind => "a record is of another kind",
            Self::Checksum => "a record's checksum is wrong",
        }
    }
}

/// Appends a record.
#[expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "it writes what this program made, and reads nothing"
)]
pub(crate) fn put(kind: Kind, body: &[u8], out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(&FORMAT.to_be_bytes());
    out.push(kind as u8);
    out.extend_from_slice(&u32::try_from(body.len()).expect("records are bounded").to_be_bytes());
    out.extend_from_slice(body);
    let sum = xxh3_64(&out[from..]);
    out.extend_from_slice(&sum.to_be_bytes());
}

/// The body of the record at the front of bytes, and what is behind it.
pub(crate) fn take(kind: Kind, bytes: &[u8]) -> Result<(&[u8], &[u8]), Unreadable> {
    let len = whole_len(kind, bytes)?;
    let (record, rest) = bytes.split_at_checked(len).ok_or(Unreadable::Short)?;
    let (sealed, sum) = record.split_last_chunk::<SUM_BYTES>().ok_or(Unreadable::Short)?;
    if *sum != xxh3_64(sealed).to_be_bytes() {
        return Err(Unreadable::Checksum);
    }
    Ok((sealed.get(HEAD_BYTES..).ok_or(Unreadable::Short)?, rest))
}

/// The length of the whole record whose first bytes these are.
pub(crate) fn whole_len(kind: Kind, bytes: &[u8]) -> Result<usize, Unreadable> {
    let [v0, v1, of_kind, len @ ..] =
        *bytes.first_chunk::<HEAD_BYTES>().ok_or(Unreadable::Short)?;
    let version = u16::from_be_bytes([v0, v1]);
    if version != FORMAT {
        return Err(Unreadable::Version(version));
    }
    if of_kind != kind as u8 {
        return Err(Unreadable::Kind);
    }
    let body = u32::from_be_bytes(len) as usize;
    Ok(body.saturating_add(HEAD_BYTES).saturating_add(SUM_BYTES))
}

/// The bytes that [`whole_len`] has to see.
pub(crate) const PEEK_BYTES: usize = HEAD_BYTES;

/// Takes fields off the front of a record's body.
#[derive(Debug)]
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.0.split_off(..N)?.first_chunk().copied()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        self.0.split_off(..len)
    }

    /// A key, behind its length.
    pub(crate) fn key(&mut self) -> Option<&'a [u8]> {
        let len = self.u16()?;
        self.bytes(usize::from(len))
    }
}

/// Appends a key behind its length.
#[expect(clippy::expect_used, reason = "it writes a key that a tree took, and reads nothing")]
pub(crate) fn put_key(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&u16::try_from(key.len()).expect("keys are bounded").to_be_bytes());
    out.extend_from_slice(key);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// P1 to P4 of the records.
        #[test]
        fn p1_p2_p3_a_record_is_read_with_any_tail_and_never_cut_or_changed(
            body in prop::collection::vec(any::<u8>(), 0..200),
            tail in prop::collection::vec(any::<u8>(), 0..80),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut bytes = Vec::new();
            put(Kind::Range, &body, &mut bytes);
            let len = bytes.len();
            bytes.extend_from_slice(&tail);
            prop_assert_eq!(take(Kind::Range, &bytes), Ok((&body[..], &tail[..])));
            let cut = at.index(len);
            prop_assert!(take(Kind::Range, &bytes[..cut]).is_err());
            bytes[cut] ^= flip;
            prop_assert!(take(Kind::Range, &bytes).is_err());
        }
    }

    #[test]
    fn p5_another_version_is_told() {
        let mut bytes = Vec::new();
        put(Kind::Run, b"body", &mut bytes);
        assert_eq!(take(Kind::Range, &bytes), Err(Unreadable::Kind));
        bytes[1] = 9;
        assert_eq!(take(Kind::Run, &bytes), Err(Unreadable::Version(9)));
    }
}
