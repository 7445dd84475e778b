//! Where the addresses and slot keys behind hashed keys come from.
//!
//! A store of a tree that is not the Merkle Patricia trie keeps them in the order of the trie, in
//! its table of preimages: so they can be matched and listed in one pass.
//!
//! ```text
//! hash of the address (32)                          -> address (20)
//! hash of the address (32) | hash of the slot (32)  -> slot key (32)
//! ```
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::VecDeque;
use std::fs::File;
use std::path::Path;

use alloy_primitives::{Address, B256, keccak256};
use spinney_tree::{Snapshot, Table, WriteSet};

use crate::error::MigrateError;
use crate::file::FileError;
use crate::preimages::Reader;

/// Rows of a listing that are read at once.
const ROWS: usize = 4_096;

/// Where preimages come from.
#[derive(Clone, Copy, Debug)]
pub enum NameSource<'a> {
    /// What the store itself keeps.
    Store,
    /// A preimage file, which has to match the state exactly.
    File(&'a Path),
}

/// Preimages in the order of the trie.
pub(crate) trait Names {
    /// The next account: hash and address. Slots of the one before are passed over.
    fn account(&mut self) -> Result<Option<(B256, Address)>, MigrateError>;

    /// The next slot of the account: hash and key.
    fn slot(&mut self) -> Result<Option<(B256, B256)>, MigrateError>;

    /// Whether each of them has to have a leaf.
    fn is_exact(&self) -> bool;
}

impl NameSource<'_> {
    /// The preimages of a state that a snapshot keeps in the order of the trie.
    pub(crate) fn open<'n, N: Snapshot>(
        &self,
        snapshot: &'n N,
    ) -> Result<Box<dyn Names + 'n>, MigrateError> {
        Ok(match self {
            Self::Store => Box::new(Listing { snapshot, from: Vec::new(), rows: VecDeque::new() }),
            Self::File(path) => Box::new(open_file(path)?),
        })
    }
}

/// The preimages of a file.
pub(crate) fn open_file(path: &Path) -> Result<FileNames, MigrateError> {
    let file = File::open(path).map_err(|error| FileError::Io { at: 0, error })?;
    Ok(FileNames(Reader::new(file)))
}

/// A preimage file.
pub(crate) struct FileNames(Reader<File>);

impl Names for FileNames {
    fn account(&mut self) -> Result<Option<(B256, Address)>, MigrateError> {
        Ok(self.0.account()?.map(|account| (account.hash, account.address)))
    }

    fn slot(&mut self) -> Result<Option<(B256, B256)>, MigrateError> {
        Ok(self.0.slot()?.map(|slot| (keccak256(slot), slot)))
    }

    fn is_exact(&self) -> bool {
        true
    }
}

/// A row's key and value.
type Row = (Vec<u8>, Vec<u8>);

/// The rows of a store's table.
struct Listing<'n, N> {
    snapshot: &'n N,
    /// Where to read on.
    from: Vec<u8>,
    rows: VecDeque<Row>,
}

impl<N: Snapshot> Listing<'_, N> {
    fn peek(&mut self) -> Result<Option<&Row>, MigrateError> {
        if self.rows.is_empty() {
            let rows = &mut self.rows;
            self.snapshot.scan(Table::Preimages, &self.from, None, &mut |key, row| {
                rows.push_back((key.to_vec(), row.to_vec()));
                rows.len() < ROWS
            })?;
            if let Some((last, _)) = self.rows.back() {
                self.from = [&last[..], &[0]].concat();
            }
        }
        Ok(self.rows.front())
    }

    fn take<const B: usize>(&mut self) -> Result<(Vec<u8>, [u8; B]), MigrateError> {
        let (key, row) = self.rows.pop_front().unwrap_or_default();
        match row.try_into() {
            Ok(row) => Ok((key, row)),
            Err(_) => Err(MigrateError::Malformed { what: "no preimage", key }),
        }
    }
}

impl<N: Snapshot> Names for Listing<'_, N> {
    fn account(&mut self) -> Result<Option<(B256, Address)>, MigrateError> {
        // Slots that nobody asked for; and, beside a trie, those that stand under their own hash
        // alone.
        while self.peek()?.is_some_and(|(key, row)| key.len() == 64 || row.len() == 32) {
            self.rows.pop_front();
        }
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let (key, address) = self.take::<20>()?;
        match B256::try_from(&key[..]) {
            Ok(hash) => Ok(Some((hash, address.into()))),
            Err(_) => Err(MigrateError::Malformed { what: "no preimage", key }),
        }
    }

    fn slot(&mut self) -> Result<Option<(B256, B256)>, MigrateError> {
        if self.peek()?.is_none_or(|(key, _)| key.len() != 64) {
            return Ok(None);
        }
        let (key, slot) = self.take::<32>()?;
        Ok(Some((
            B256::try_from(key.get(32..).unwrap_or_default()).unwrap_or_default(),
            slot.into(),
        )))
    }

    fn is_exact(&self) -> bool {
        false
    }
}

/// Keeps an account's preimage in the order of the trie.
pub(crate) fn put_account(hash: &B256, address: &Address, set: &mut WriteSet) {
    set.put(Table::Preimages, hash.as_slice(), address.to_vec());
}

/// Keeps a slot's preimage in the order of the trie.
pub(crate) fn put_slot(account: &B256, hash: &B256, slot: &B256, set: &mut WriteSet) {
    set.put(Table::Preimages, [*account, *hash].concat().as_slice(), slot.to_vec());
}
