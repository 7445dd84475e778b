//! What is left of a range, and its bytes.

use crate::grow::{SortedItem, What};
use crate::image::{PAGE_BYTES_MAX, SUM_BYTES};
use crate::scheme::{Commitment, KEY_BYTES_MAX, Scheme};

/// The pieces of a tree along the edges of a range: what its neighbours are needed for.
///
/// ```text
/// summary = count (u32), piece*
/// piece   = key length (u16), key, 0, value length (u32), value           a leaf
///         | key length (u16), key, 1, commitment, length (u32), item      a subtree's first key
/// ```
/// Integers are big-endian; commitments and items are those of pages.
#[derive(Debug)]
pub struct Summary<S: Scheme> {
    pub(super) pieces: Vec<Remnant<S::Commit>>,
}

impl<S: Scheme> Clone for Summary<S> {
    fn clone(&self) -> Self {
        Self { pieces: self.pieces.clone() }
    }
}

/// A leaf, or a subtree that is written but for its item.
#[derive(Clone, Debug)]
pub(super) struct Remnant<C> {
    /// The key of the leaf, or of the subtree's first.
    pub(super) key: Box<[u8]>,
    /// See [`SortedItem::edge`]; of a summary's first piece it is known by the join.
    pub(super) edge: i32,
    pub(super) piece: RemnantPiece<C>,
}

#[derive(Clone, Debug)]
pub(super) enum RemnantPiece<C> {
    Leaf(Box<[u8]>),
    /// Its commitment, and the bytes of its item.
    Subtree(C, Box<[u8]>),
}

impl<C> RemnantPiece<C> {
    /// The bytes of a subtree's item.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Leaf(_) => &[],
            Self::Subtree(_, bytes) => bytes,
        }
    }
}

impl<C: Copy> Remnant<C> {
    pub(super) fn item(&self) -> SortedItem<'_, C> {
        let what = match &self.piece {
            RemnantPiece::Leaf(value) => What::Leaf(value),
            RemnantPiece::Subtree(commit, _) => What::Done(*commit),
        };
        SortedItem { key: &self.key, edge: self.edge, what }
    }
}

impl<S: Scheme> Summary<S> {
    /// How many pieces there are.
    pub const fn len(&self) -> usize {
        self.pieces.len()
    }

    /// Whether the range had no leaves.
    pub const fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let length = |out: &mut Vec<u8>, len: usize| {
            out.extend_from_slice(&u32::try_from(len).expect("values are bounded").to_be_bytes());
        };
        length(out, self.pieces.len());
        for kept in &self.pieces {
            let key_bytes = u16::try_from(kept.key.len()).expect("keys are bounded");
            out.extend_from_slice(&key_bytes.to_be_bytes());
            out.extend_from_slice(&kept.key);
            let bytes = match &kept.piece {
                RemnantPiece::Leaf(value) => {
                    out.push(0);
                    value
                }
                RemnantPiece::Subtree(commit, bytes) => {
                    out.push(1);
                    commit.encode(out);
                    bytes
                }
            };
            length(out, bytes.len());
            out.extend_from_slice(bytes);
        }
    }

    /// Reads a summary off the front of bytes, and answers what is behind it; `None` if there is
    /// none. Takes no more memory than the bytes have. What the pieces say of each other is checked
    /// by the join.
    pub fn decode<'b>(scheme: &S, bytes: &'b [u8]) -> Option<(Self, &'b [u8])> {
        let mut rest = bytes;
        let count = u32::from_be_bytes(*rest.split_off(..4)?.first_chunk()?);
        let mut pieces = Vec::new();
        for _ in 0..count {
            let key_bytes = u16::from_be_bytes(*rest.split_off(..2)?.first_chunk()?);
            if usize::from(key_bytes) > KEY_BYTES_MAX {
                return None;
            }
            let key: Box<[u8]> = rest.split_off(..usize::from(key_bytes))?.into();
            let commit = match rest.split_off_first()? {
                0 => None,
                1 => {
                    let (commit, len) = S::Commit::decode(rest)?;
                    rest.split_off(..len)?;
                    Some(commit)
                }
                _ => return None,
            };
            let len = u32::from_be_bytes(*rest.split_off(..4)?.first_chunk()?);
            let bytes: Box<[u8]> = rest.split_off(..usize::try_from(len).ok()?)?.into();
            let piece = match commit {
                None if scheme.admit(&key, Some(&bytes)) == Ok(true) => RemnantPiece::Leaf(bytes),
                Some(commit) if bytes.len() <= ITEM_BYTES_MAX => {
                    RemnantPiece::Subtree(commit, bytes)
                }
                _ => return None,
            };
            // Edges follow from keys: forged ones cannot be.
            pieces.push(Remnant { key, edge: 0, piece });
        }
        Some((Self { pieces }, rest))
    }
}

/// No item is larger: that of the topmost node, which fills a page by itself.
const ITEM_BYTES_MAX: usize = PAGE_BYTES_MAX - SUM_BYTES - 1;
