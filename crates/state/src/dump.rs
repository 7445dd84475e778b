//! All that a state holds, account by account.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256};
use spinney_tree::mpt::{MptState, NodeRef};
use spinney_tree::{Entries, PageStore, Snapshot, Table, Tree};

use crate::Account;
use crate::error::StateError;
use crate::mpt_entries::{decode_account, decode_slot};
use crate::mpt_state::State;

impl<P: PageStore> State<P> {
    /// The accounts of the last commit with their storage, in order of their hashed addresses.
    ///
    /// # Errors
    /// If the store fails, or holds no Merkle Patricia trie.
    pub fn dump(&self) -> Result<Dump<'_, P>, StateError> {
        let (mpt, snapshot) = (self.mpt()?, self.store.snapshot()?);
        Ok(Dump { mpt, snapshot, missing_code: false })
    }
}

/// The content of a state: see [`State::dump`].
#[derive(Debug)]
pub struct Dump<'a, P: PageStore + 'a> {
    mpt: &'a Tree<MptState>,
    snapshot: P::Snapshot<'a>,
    missing_code: bool,
}

/// An account of a dump.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DumpedAccount {
    /// The Keccak-256 digest of its address.
    pub key: B256,
    /// Its address.
    pub address: Address,
    /// Nonce, balance and code hash.
    pub account: Account,
    /// The root of its storage.
    pub storage_root: B256,
    /// Its code, empty where it has none; `None` where the store lacks it
    /// ([`Dump::allow_missing_code`]).
    pub code: Option<Bytes>,
    /// Its slots that are not zero, in order of their hashes.
    pub storage: Vec<(B256, U256)>,
}

impl<'a, P: PageStore + 'a> Dump<'a, P> {
    /// Whether accounts are given whose code the store lacks: where only its hash was ever given,
    /// by state differences. Unless told so, they are errors.
    pub const fn allow_missing_code(&mut self, allow: bool) {
        self.missing_code = allow;
    }

    /// The accounts, in order of their hashed addresses. An account's storage is held in memory. An
    /// account whose code the store lacks is an error, [`StateError::NoCode`], and ends them.
    pub fn accounts(&self) -> impl Iterator<Item = Result<DumpedAccount, StateError>> + '_ {
        let entries = self.mpt.entries(&self.snapshot, None, b"");
        Accounts { dump: self, entries, next: None, failed: false }
    }

    fn preimage<const N: usize>(&self, hash: &[u8]) -> Result<[u8; N], StateError> {
        let row = self.snapshot.read(Table::Preimages, hash)?;
        let missing = || StateError::NoPreimage { hash: B256::from_slice(hash) };
        row.as_deref().and_then(|row| row.try_into().ok()).ok_or_else(missing)
    }

    fn begin(&self, entry: &spinney_tree::Entry<NodeRef>) -> Result<DumpedAccount, StateError> {
        let account = decode_account(&entry.value)?;
        let (key, address) =
            (B256::from_slice(&entry.key), self.preimage::<20>(&entry.key)?.into());
        let code = match account.code_hash {
            KECCAK256_EMPTY => Some(Bytes::new()),
            hash => {
                let row = self.snapshot.read(Table::Codes, hash.as_slice())?;
                if row.is_none() && !self.missing_code {
                    let address = Some(address);
                    return Err(StateError::NoCode { account: key, address, hash });
                }
                row.map(|row| Bytes::copy_from_slice(&row))
            }
        };
        let empty = spinney_tree::mpt::EMPTY_ROOT;
        Ok(DumpedAccount {
            key,
            address,
            account,
            storage_root: entry.owned.map_or(empty, |top| top.digest()).into(),
            code,
            storage: Vec::new(),
        })
    }
}

struct Accounts<'d, 'a, P: PageStore> {
    dump: &'d Dump<'a, P>,
    entries: Entries<'d, MptState>,
    next: Option<DumpedAccount>,
    failed: bool,
}

impl<'a, P: PageStore + 'a> Accounts<'_, 'a, P> {
    fn advance(&mut self) -> Result<Option<DumpedAccount>, StateError> {
        for entry in self.entries.by_ref() {
            let entry = entry?;
            if entry.key.len() == 32 {
                let begun = self.dump.begin(&entry)?;
                if let Some(done) = self.next.replace(begun) {
                    return Ok(Some(done));
                }
                continue;
            }
            let slot = self.dump.preimage::<32>(entry.key.get(32..).unwrap_or_default())?.into();
            let value = decode_slot(&entry.value)?;
            if let Some(account) = &mut self.next {
                account.storage.push((slot, value));
            }
        }
        Ok(self.next.take())
    }
}

impl<'a, P: PageStore + 'a> Iterator for Accounts<'_, 'a, P> {
    type Item = Result<DumpedAccount, StateError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance();
        self.failed = next.is_err();
        next.transpose()
    }
}
