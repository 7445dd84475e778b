//! Digests of many inputs in one call.
//!
//! A level of a tree offers thousands of independent inputs; hashing them together lets a core fill
//! all of its lanes. Callers lay the inputs end to end in one buffer and hand it over as [`Inputs`].
//!
//! ```
//! use spinney_hash::{Inputs, keccak256, keccak256_many};
//!
//! let mut digests = [[0; 32]; 2];
//! keccak256_many(Inputs::new(b"doedog", &[3, 6]), &mut digests);
//! assert_eq!(digests, [keccak256(b"doe"), keccak256(b"dog")]);
//! ```
#![forbid(unsafe_code)]

mod keccak256;

pub use keccak256::{keccak256, keccak256_many};

/// A 32-byte digest.
pub type Digest = [u8; 32];

/// Many inputs laid end to end: input `i` is `bytes[ends[i - 1]..ends[i]]`, the first one starts at 0.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    bytes: &'a [u8],
    ends: &'a [u32],
}

impl<'a> Inputs<'a> {
    /// Wraps a buffer and the end offset of each input.
    ///
    /// # Panics
    /// If `ends` decreases, or if its last entry is not the length of `bytes`.
    pub fn new(bytes: &'a [u8], ends: &'a [u32]) -> Self {
        assert!(ends.is_sorted(), "input ends decrease");
        assert_eq!(
            ends.last().map_or(0, |&end| end as usize),
            bytes.len(),
            "inputs do not fill the buffer"
        );
        Self { bytes, ends }
    }

    /// The number of inputs.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no input at all.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Each input in turn.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, mut start) = (self.bytes, 0);
        self.ends.iter().map(move |&end| {
            let input = &bytes[start..end as usize];
            start = end as usize;
            input
        })
    }
}
