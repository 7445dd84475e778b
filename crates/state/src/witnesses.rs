//! The witnesses of the last blocks, kept beside the state: a ring of rows in the store.
//!
//! A row has the number of its block in its key, and the block's hash before the witness.
//!
//! Invariants:
//! - the commit that writes the state of a block writes its witness, and removes those that are too
//!   old;
//! - what takes the state back removes the witnesses of the blocks that go.

use alloy_primitives::Bytes;
use alloy_rlp::{Decodable as _, Encodable as _, Header};
use spinney_tree::{BlockId, Table, WriteSet};

/// Rows of [`Table::Meta`] whose keys begin with this, a block's number behind it.
const PREFIX: &[u8] = b"witness/";
/// So many bytes of witnesses may wait for a commit.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The execution witness of a block, as a store keeps it: the parts of the canonical form of the
/// execution specifications.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptWitness {
    /// Trie nodes in RLP.
    pub state: Vec<Bytes>,
    /// Code that the block read.
    pub codes: Vec<Bytes>,
    /// Headers in RLP, up to that of the block's parent.
    pub headers: Vec<Bytes>,
}

impl KeptWitness {
    fn row(&self, block: BlockId) -> Vec<u8> {
        let parts = [&self.state, &self.codes, &self.headers];
        let payload_length = parts.iter().map(|part| part.length()).sum();
        let header = Header { list: true, payload_length };
        let mut row = Vec::with_capacity(block.hash.len() + header.length_with_payload());
        row.extend_from_slice(&block.hash);
        header.encode(&mut row);
        parts.iter().for_each(|part| part.encode(&mut row));
        row
    }

    /// The block's hash, and the witness.
    pub(crate) fn read(row: &[u8]) -> Result<([u8; 32], Self), alloy_rlp::Error> {
        let (hash, mut bytes) = row.split_first_chunk().ok_or(alloy_rlp::Error::InputTooShort)?;
        let mut parts = Header::decode_bytes(&mut bytes, true)?;
        let mut part = || Vec::decode(&mut parts);
        let witness = Self { state: part()?, codes: part()?, headers: part()? };
        match bytes.is_empty() && parts.is_empty() {
            true => Ok((*hash, witness)),
            false => Err(alloy_rlp::Error::UnexpectedLength),
        }
    }
}

/// The ring of a state.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    /// How many to keep; whatever is there stays where nobody says.
    keep: Option<u64>,
    /// Rows that no commit has yet.
    waiting: Vec<(BlockId, Vec<u8>)>,
}

impl Ring {
    /// Says how many to keep.
    pub(crate) const fn keep(&mut self, count: u64) {
        self.keep = Some(count);
    }

    /// Whether any is to be kept.
    pub(crate) fn keeps_any(&self) -> bool {
        self.keep.is_some_and(|count| count > 0)
    }

    /// Has the next commit write the witness of a block.
    pub(crate) fn add(&mut self, block: BlockId, witness: &KeptWitness) {
        self.waiting.push((block, witness.row(block)));
    }

    /// Forgets those of blocks that are not among these.
    pub(crate) fn retain(&mut self, sealed: &[(usize, BlockId)]) {
        self.waiting.retain(|(block, _)| sealed.iter().any(|(_, sealed)| sealed == block));
    }

    /// Whether so much waits for a commit that there should be one.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.iter().map(|(_, row)| row.len()).sum::<usize>() >= WAITING_BYTES_MAX
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Puts what waits into the write set that makes `last` the state's block. The witnesses of
    /// block `from` and those behind it stay, however many these are.
    pub(crate) fn put(&self, last: Option<BlockId>, from: u64, set: &mut WriteSet) {
        let (Some(keep), Some(last)) = (self.keep, last) else { return };
        let oldest = last.number.saturating_add(1).saturating_sub(keep).min(from);
        if oldest > 0 {
            set.drop_range(Table::Meta, PREFIX.to_vec(), key(oldest).to_vec());
        }
        for (block, row) in self.waiting.iter().filter(|(block, _)| block.number >= oldest) {
            set.put(Table::Meta, &key(block.number), row.clone());
        }
    }
}

/// Removes the witnesses of all blocks behind one.
pub(crate) fn drop_behind(number: u64, set: &mut WriteSet) {
    let end = [&key(u64::MAX)[..], &[0]].concat();
    set.drop_range(Table::Meta, key(number).to_vec(), end);
}

pub(crate) fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(PREFIX);
    key[8..].copy_from_slice(&number.to_be_bytes());
    key
}
