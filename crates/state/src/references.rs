//! What a state refers to outside of its tree: contract code by its hash, and what is behind hashed
//! keys.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::HashMap;

use alloy_primitives::{Address, B256, KECCAK256_EMPTY};
use spinney_tree::{PageStore, Snapshot, Table};

use crate::error::StateError;
use crate::mpt_entries::decode_account;
use crate::mpt_state::State;

/// How many digests are looked up in one call.
const TOGETHER: usize = 1_024;
/// Faults beyond which nobody looks for more.
const FAULTS_MAX: usize = 1_000;

impl<P: PageStore> State<P> {
    /// What the last commit refers to and the store lacks: the code of each account, by
    /// [`StateError::NoCode`], and the preimages of addresses and slots, by
    /// [`StateError::NoPreimage`], if the store keeps any. `progress` is told the entries read.
    ///
    /// # Errors
    /// If the store fails or a page is damaged.
    pub fn check_references(
        &self,
        mut progress: impl FnMut(u64),
    ) -> Result<Vec<StateError>, StateError> {
        let snapshot = self.store.snapshot()?;
        let mut check = Check { snapshot: &snapshot, preimages: false, faults: Vec::new() };
        snapshot.scan(Table::Preimages, &[], None, &mut |_, _| {
            check.preimages = true;
            false
        })?;
        let mut codes = HashMap::new();
        let mut names = Vec::new();
        for (entry, read) in self.mpt()?.entries(&snapshot, None, b"").zip(1..) {
            let entry = entry?;
            let (account, slot) = entry.key.split_at_checked(32).unwrap_or((&entry.key, &[]));
            if slot.is_empty() {
                let hash = decode_account(&entry.value)?.code_hash;
                if hash != KECCAK256_EMPTY {
                    // Code that several accounts have is looked up once, and named by the first.
                    codes.entry(hash).or_insert_with(|| hash_of(account));
                }
                names.push(hash_of(account));
            } else {
                names.push(hash_of(slot));
            }
            if names.len() >= TOGETHER {
                check.preimages(&mut names)?;
                progress(read);
            }
            if check.faults.len() >= FAULTS_MAX {
                return Ok(check.faults);
            }
        }
        check.preimages(&mut names)?;
        check.codes(&codes)?;
        Ok(check.faults)
    }
}

fn hash_of(bytes: &[u8]) -> B256 {
    B256::try_from(bytes).unwrap_or_default()
}

struct Check<'s, N> {
    snapshot: &'s N,
    /// Whether the store keeps preimages.
    preimages: bool,
    faults: Vec<StateError>,
}

impl<N: Snapshot> Check<'_, N> {
    /// Which of some digests have no row.
    fn missing(&self, table: Table, digests: &[B256]) -> Result<Vec<B256>, StateError> {
        let keys: Vec<&[u8]> = digests.iter().map(B256::as_slice).collect();
        let rows = self.snapshot.read_many(table, &keys)?;
        let missing = digests.iter().zip(&rows).filter(|(_, row)| row.is_none());
        Ok(missing.map(|(digest, _)| *digest).collect())
    }

    fn preimages(&mut self, names: &mut Vec<B256>) -> Result<(), StateError> {
        if self.preimages {
            let missing = self.missing(Table::Preimages, names)?;
            self.faults.extend(missing.into_iter().map(|hash| StateError::NoPreimage { hash }));
        }
        names.clear();
        Ok(())
    }

    fn codes(&mut self, codes: &HashMap<B256, B256>) -> Result<(), StateError> {
        let mut hashes: Vec<B256> = codes.keys().copied().collect();
        hashes.sort_unstable();
        for some in hashes.chunks(TOGETHER) {
            for hash in self.missing(Table::Codes, some)? {
                let account = codes.get(&hash).copied().unwrap_or_default();
                let row = self.snapshot.read(Table::Preimages, account.as_slice())?;
                let address = row.and_then(|row| Address::try_from(&row[..]).ok());
                self.faults.push(StateError::NoCode { account, address, hash });
            }
        }
        Ok(())
    }
}
