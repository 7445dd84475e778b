//! What it takes to take a tree back: old leaves, where accounts do not tell them.
//!
//! ```text
//! root before (32) | leaves | metadata
//! leaves    count, (length, what the keys begin with, count, (last byte (1), value)*)*
//! value     length (1: 0 to 32) and so many bytes, without leading zeros, or 0xff: absent
//! metadata  count, (length, key, 0: absent, or length of the row + 1, row)*
//! ```
//! Numbers are LEB128, keys in order.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;

use alloy_primitives::{B256, U256};

use crate::row_bytes::{Bytes, Fault, NO_VALUE, put_leb128, put_word};

/// No key of a state is longer; a longer one would be written once and read 256 times.
const KEY_START_MAX: usize = 128;

/// The last byte of a key, and the value there was.
type Last = (u8, Option<[u8; 32]>);

/// Turns a tree after some changes into the tree before them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LeafUndo {
    /// The root before.
    pub(crate) root: B256,
    /// The old values of leaves; `None` where there was none.
    pub(crate) leaves: BTreeMap<Vec<u8>, Option<[u8; 32]>>,
    /// The old rows of what the state remembers of the tree; `None` where there was none.
    pub(crate) metadata: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl LeafUndo {
    /// Takes up what it takes to undo later changes.
    pub(crate) fn extend(&mut self, newer: Self) {
        for (key, value) in newer.leaves {
            self.leaves.entry(key).or_insert(value);
        }
        for (key, row) in newer.metadata {
            self.metadata.entry(key).or_insert(row);
        }
    }

    #[expect(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        reason = "it writes what this program made, and reads nothing"
    )]
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.root.as_slice());
        let mut groups: Vec<(&[u8], Vec<Last>)> = Vec::new();
        for (key, value) in &self.leaves {
            let (last, start) = key.split_last().expect("a tree has no empty key");
            match groups.last_mut() {
                Some((of, group)) if *of == start => group.push((*last, *value)),
                _ => groups.push((start, vec![(*last, *value)])),
            }
        }
        put_leb128(groups.len() as u64, out);
        for (start, group) in groups {
            put_bytes(start, out);
            put_leb128(group.len() as u64, out);
            for (last, value) in group {
                out.push(last);
                match value {
                    Some(value) => put_word(U256::from_be_bytes(value), 0, out),
                    None => out.push(NO_VALUE),
                }
            }
        }
        put_leb128(self.metadata.len() as u64, out);
        for (key, row) in &self.metadata {
            put_bytes(key, out);
            match row {
                None => out.push(0),
                Some(row) => {
                    put_leb128(row.len() as u64 + 1, out);
                    out.extend_from_slice(row);
                }
            }
        }
    }

    pub(crate) fn decode(bytes: &mut Bytes<'_>) -> Result<Self, Fault> {
        let mut undo = Self { root: bytes.array()?.into(), ..Self::default() };
        for _ in 0..bytes.leb128()? {
            let start = bytes.counted()?;
            if start.len() > KEY_START_MAX {
                return Err(format!("a key of {} bytes", start.len().saturating_add(1)));
            }
            for _ in 0..bytes.leb128()? {
                let key = [start, &[bytes.byte()?]].concat();
                let value = match bytes.byte()? {
                    NO_VALUE => None,
                    length => Some(bytes.word(length)?.to_be_bytes()),
                };
                if undo.leaves.insert(key, value).is_some() {
                    return Err("a leaf is there twice".into());
                }
            }
        }
        for _ in 0..bytes.leb128()? {
            let key = bytes.counted()?.to_vec();
            let row = match bytes.leb128()? {
                0 => None,
                more => Some(bytes.take_len(more.saturating_sub(1))?.to_vec()),
            };
            if undo.metadata.insert(key, row).is_some() {
                return Err("a note is there twice".into());
            }
        }
        Ok(undo)
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_leb128(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}
