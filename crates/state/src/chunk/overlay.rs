//! Accounts and slots as blocks left them, over the state that the blocks began on.
//!
//! ```text
//! hash of the address (32)
//!     -> epoch (u32), 0 gone | 1 there, nonce (u64), balance (32), code hash (32)
//! hash of the address (32), hash of the slot (32)
//!     -> epoch (u32), value (32), slot (32)
//! ```
//! An account's *epoch* is how often it went, or was made again. What was written in an earlier
//! epoch, or lies below where the epoch is not 0, is no more. So whoever destroys an account writes
//! one entry.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::path::Path;

use alloy_primitives::{B256, U256};
use spinney_pipeline::{Latest, PipelineError};
use spinney_tree::mpt::{account_value, slot_value};
use spinney_tree::{Batch, Entry, TreeError};

use crate::error::StateError;
use crate::mpt_entries::{Keys, account_after, slot_key};
use crate::{Account, Change, Changes};

/// An account that the blocks wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) epoch: u32,
    /// None where it is gone.
    pub(super) account: Option<Account>,
}

impl Written {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.epoch.to_be_bytes().to_vec();
        let Some(account) = &self.account else {
            bytes.push(0);
            return bytes;
        };
        bytes.push(1);
        bytes.extend_from_slice(&account.nonce.to_be_bytes());
        bytes.extend_from_slice(&account.balance.to_be_bytes::<32>());
        bytes.extend_from_slice(account.code_hash.as_slice());
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let epoch = u32::from_be_bytes(take(&mut bytes)?);
        let account = match take(&mut bytes)? {
            [0] => None,
            [1] => Some(Account {
                nonce: u64::from_be_bytes(take(&mut bytes)?),
                balance: U256::from_be_bytes(take::<32>(&mut bytes)?),
                code_hash: B256::new(take(&mut bytes)?),
            }),
            _ => return None,
        };
        bytes.is_empty().then_some(Self { epoch, account })
    }
}

/// A slot that the blocks wrote.
struct WrittenSlot {
    epoch: u32,
    value: U256,
    slot: B256,
}

impl WrittenSlot {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = self.epoch.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.value.to_be_bytes::<32>());
        bytes.extend_from_slice(self.slot.as_slice());
        bytes
    }

    fn decode(mut bytes: &[u8]) -> Option<Self> {
        let epoch = u32::from_be_bytes(take(&mut bytes)?);
        let value = U256::from_be_bytes(take::<32>(&mut bytes)?);
        let slot = B256::new(take(&mut bytes)?);
        bytes.is_empty().then_some(Self { epoch, value, slot })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    bytes.split_off(..N)?.first_chunk().copied()
}

/// What the blocks wrote, in memory or in runs.
#[derive(Debug)]
pub(super) struct Overlay(Latest);

impl Overlay {
    pub(super) fn new(dir: &Path, memory: usize) -> Self {
        Self(Latest::new(dir, memory))
    }

    /// Keys, bytes, and bytes on disk.
    pub(super) fn size(&self) -> (u64, u64, u64) {
        (self.0.keys(), self.0.bytes(), self.0.spilled())
    }

    /// How many keys were written, each counted once.
    pub(super) fn count(&mut self) -> Result<u64, StateError> {
        if self.0.spilled() == 0 {
            return Ok(self.0.keys());
        }
        let mut count = 0;
        self.0.each::<PipelineError>(|_, _| {
            count += 1;
            Ok(())
        })?;
        Ok(count)
    }

    pub(super) fn clear(&mut self) -> Result<(), StateError> {
        Ok(self.0.clear()?)
    }

    /// An account, if it was written.
    pub(super) fn account(&self, key: B256) -> Result<Option<Written>, StateError> {
        let Some(bytes) = self.0.get(key.as_slice())? else { return Ok(None) };
        Ok(Some(Written::decode(&bytes).expect("these are our own bytes")))
    }

    /// A slot, if it was written since its account began this epoch.
    pub(super) fn slot(&self, key: &[u8; 64], epoch: u32) -> Result<Option<U256>, StateError> {
        let Some(bytes) = self.0.get(key)? else { return Ok(None) };
        let written = WrittenSlot::decode(&bytes).expect("these are our own bytes");
        Ok((written.epoch == epoch).then_some(written.value))
    }

    /// The slots of an account that were written in this epoch.
    pub(super) fn slots(
        &self,
        account: B256,
        epoch: u32,
    ) -> Result<BTreeMap<B256, U256>, StateError> {
        let written = self.0.below(account.as_slice())?;
        let slots = written.iter().filter(|(key, _)| key.len() == 64);
        let slots =
            slots.map(|(_, bytes)| WrittenSlot::decode(bytes).expect("these are our own bytes"));
        let slots = slots.filter(|written| written.epoch == epoch);
        Ok(slots.map(|written| (written.slot, written.value)).collect())
    }

    /// Takes up what a block did, given the accounts before it.
    pub(super) fn put(
        &mut self,
        changes: &Changes,
        keys: &Keys,
        old: &[Option<Account>],
    ) -> Result<(), StateError> {
        for ((change, keys), old) in changes.accounts.values().zip(&keys.0).zip(old) {
            let mut epoch = self.account(keys.account)?.map_or(0, |written| written.epoch);
            let Change::Written(change) = change else {
                if old.is_some() {
                    let gone = Written { epoch: epoch + 1, account: None };
                    self.0.put(keys.account.as_slice(), &gone.encode())?;
                }
                continue;
            };
            let (account, moved) = account_after(change, *old);
            epoch += u32::from(change.fresh);
            if moved || change.fresh {
                let written = Written { epoch, account: Some(account) };
                self.0.put(keys.account.as_slice(), &written.encode())?;
            }
            for (hash, (slot, value)) in keys.slots.iter().zip(&change.storage) {
                let written = WrittenSlot { epoch, value: *value, slot: *slot };
                self.0.put(&slot_key(keys.account, *hash), &written.encode())?;
            }
        }
        Ok(())
    }

    /// All that was written as one batch on the state below.
    pub(super) fn batch(&mut self) -> Result<Batch, StateError> {
        let (mut batch, mut reader) = (Batch::new(), EntryReader::default());
        self.0.each::<PipelineError>(|key, bytes| {
            match reader.read(key, bytes) {
                Leaf::Begins { value } => {
                    batch.delete_prefix(key);
                    if let Some(value) = value {
                        batch.put(key, &value);
                    }
                }
                // Zero is the empty value, which deletes.
                Leaf::Is(value) => batch.put(key, &value.unwrap_or_default()),
                Leaf::Old => {}
            }
            Ok(())
        })?;
        Ok(batch)
    }

    /// All leaves of the state below, as what was written leaves them, in order of keys.
    pub(super) fn leaves<C>(
        &mut self,
        below: impl Iterator<Item = Result<Entry<C>, TreeError>>,
        mut take: impl FnMut(&[u8], &[u8]) -> Result<(), StateError>,
    ) -> Result<(), StateError> {
        let (mut below, mut reader) = (below.peekable(), EntryReader::default());
        let mut dropped: Option<Vec<u8>> = None;
        self.0.each::<StateError>(|key, bytes| {
            pass(&mut below, Some(key), dropped.as_deref(), &mut take)?;
            // What was there under this key is replaced.
            below.next_if(|entry| matches!(entry, Ok(entry) if entry.key == key));
            match reader.read(key, bytes) {
                Leaf::Begins { value } => {
                    dropped = Some(key.to_vec());
                    value.map_or(Ok(()), |value| take(key, &value))
                }
                Leaf::Is(Some(value)) => take(key, &value),
                Leaf::Is(None) | Leaf::Old => Ok(()),
            }
        })?;
        pass(&mut below, None, dropped.as_deref(), &mut take)
    }
}

/// Hands on the leaves before a key, those of a dropped account apart.
fn pass<C, I: Iterator<Item = Result<Entry<C>, TreeError>>>(
    below: &mut Peekable<I>,
    upto: Option<&[u8]>,
    dropped: Option<&[u8]>,
    take: &mut impl FnMut(&[u8], &[u8]) -> Result<(), StateError>,
) -> Result<(), StateError> {
    let comes_first = |entry: &Result<Entry<C>, TreeError>| match (entry, upto) {
        (Ok(entry), Some(upto)) => &entry.key[..] < upto,
        _ => true,
    };
    while let Some(entry) = below.next_if(comes_first) {
        let entry = entry?;
        if dropped.is_none_or(|account| !entry.key.starts_with(account)) {
            take(&entry.key, &entry.value)?;
        }
    }
    Ok(())
}

/// What an entry means for the tree.
enum Leaf {
    /// All that an account had below is gone; the value is what it is now, if it is.
    Begins { value: Option<Vec<u8>> },
    /// The leaf has this value, or is not there.
    Is(Option<Vec<u8>>),
    /// It was written in an earlier epoch.
    Old,
}

/// Reads entries in their order.
#[derive(Default)]
struct EntryReader {
    /// The account that was written last, and its epoch.
    account: Vec<u8>,
    epoch: u32,
}

impl EntryReader {
    fn read(&mut self, key: &[u8], bytes: &[u8]) -> Leaf {
        if key.len() == 32 {
            let written = Written::decode(bytes).expect("these are our own bytes");
            key.clone_into(&mut self.account);
            self.epoch = written.epoch;
            let value = written.account.map(|Account { nonce, balance, code_hash }| {
                account_value(nonce, &balance.to_be_bytes(), &code_hash.0)
            });
            return if self.epoch > 0 { Leaf::Begins { value } } else { Leaf::Is(value) };
        }
        let epoch =
            if key.starts_with(&self.account) && !self.account.is_empty() { self.epoch } else { 0 };
        let written = WrittenSlot::decode(bytes).expect("these are our own bytes");
        if written.epoch != epoch {
            return Leaf::Old;
        }
        Leaf::Is((!written.value.is_zero()).then(|| slot_value(&written.value.to_be_bytes())))
    }
}
