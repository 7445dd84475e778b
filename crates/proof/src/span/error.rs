//! Why a proof over time does not hold.

use core::fmt;

use crate::error::Hex;

/// Why bytes are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_structs, reason = "it says where and what")]
pub struct BadFrame {
    /// Where in the bytes.
    pub at: usize,
    /// What is wrong there.
    pub what: &'static str,
}

impl fmt::Display for BadFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.at, self.what)
    }
}

impl core::error::Error for BadFrame {}

/// Why a proof over time does not hold. `E` says why the proof of a block does not.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpanError<E> {
    /// Its bytes are none.
    Frames {
        /// Which part of it.
        part: &'static str,
        /// What is wrong.
        error: BadFrame,
    },
    /// It has not one proof a block.
    Blocks {
        /// Which part of it.
        part: &'static str,
        /// How many blocks it is of.
        blocks: u64,
        /// For how many its frames hold, or more.
        found: u64,
    },
    /// It has not the frames of each slot.
    Slots {
        /// How many slots.
        slots: usize,
        /// Of how many it has frames.
        found: usize,
    },
    /// It is of no block, or of blocks that no chain has.
    Range,
    /// The proof of a block is of a root that is not trusted.
    Root {
        /// The block.
        block: u64,
        /// The root of the proof.
        got: [u8; 32],
    },
    /// The proof of a block does not hold.
    Proof {
        /// The block.
        block: u64,
        /// Of which slot, if it is of one.
        slot: Option<[u8; 32]>,
        /// Why not.
        error: E,
    },
    /// What a frame has is no proof of the keys.
    Items {
        /// The block.
        block: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl<E: fmt::Display> fmt::Display for SpanError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frames { part, error } => write!(f, "{part}: {error}"),
            Self::Blocks { part, blocks, found } => {
                write!(f, "{part}: it holds for {found} blocks, and is said to be of {blocks}")
            }
            Self::Slots { slots, found } => {
                write!(f, "it has {slots} slots, and proofs of {found}")
            }
            Self::Range => f.write_str("it is of no blocks"),
            Self::Root { block, got } => {
                write!(
                    f,
                    "block {block}: the proof is of root 0x{}, which is not trusted",
                    Hex(got)
                )
            }
            Self::Proof { block, slot: None, error } => write!(f, "block {block}: {error}"),
            Self::Proof { block, slot: Some(slot), error } => {
                write!(f, "block {block}, slot 0x{}: {error}", Hex(slot))
            }
            Self::Items { block, what } => write!(f, "block {block}: {what}"),
        }
    }
}

impl<E: core::error::Error + 'static> core::error::Error for SpanError<E> {}
