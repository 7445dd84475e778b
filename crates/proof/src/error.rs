//! What the verifiers of all trees say in the same words.

use alloc::vec::Vec;
use core::fmt;

/// A verified proof is asked for a key that it is not about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotProven {
    /// The key.
    pub key: Vec<u8>,
}

impl fmt::Display for NotProven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing was proven of key 0x{}", Hex(&self.key))
    }
}

impl core::error::Error for NotProven {}

/// Bytes as they are shown: two hex digits each.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
