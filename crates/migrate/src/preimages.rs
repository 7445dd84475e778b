//! The preimage file: which address and which slot keys the hashed keys of a state stand for.
//!
//! ```text
//! file     account*
//! account  address (20) | number of slots (4, BE) | slot key (32)*
//! ```
//! Accounts ascend by Keccak-256 of their address, the slot keys of one account by Keccak-256 of
//! theirs: the order of the Merkle Patricia trie. None comes twice. An account without storage has
//! no slots.
//!
//! ```
//! use alloy_primitives::{Address, B256};
//! use spinney_migrate::preimages::{Reader, Writer};
//!
//! let mut writer = Writer::new(Vec::new());
//! writer.account(Address::repeat_byte(1), 1)?;
//! writer.slot(B256::repeat_byte(2))?;
//! let (written, file) = writer.finish()?;
//! assert_eq!(file.len(), 20 + 4 + 32);
//!
//! let mut reader = Reader::new(&file[..]);
//! assert_eq!(reader.account()?.unwrap().address, Address::repeat_byte(1));
//! assert_eq!(reader.slot()?, Some(B256::repeat_byte(2)));
//! assert_eq!((reader.slot()?, reader.account()?), (None, None));
//! assert_eq!(reader.finish()?, written);
//! # Ok::<_, spinney_migrate::FileError>(())
//! ```
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::io::{Read, Write};

use alloy_primitives::{Address, B256, keccak256};

use crate::file::{Digested, FileError, Flaw, Input, Output, hex};

/// An account of a preimage file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its address.
    pub address: Address,
    /// Keccak-256 of it: its key in the trie.
    pub hash: B256,
    /// The number of its slots that are not zero.
    pub slots: u32,
}

/// Accounts and slots as they pass.
#[derive(Debug, Default)]
struct PreimageOrder {
    account: Option<Account>,
    /// Slots of the account that passed.
    passed: u32,
    /// The hash of the last one.
    slot: Option<B256>,
}

impl PreimageOrder {
    fn account(&mut self, address: Address, slots: u32) -> Result<Account, Flaw> {
        self.complete()?;
        let hash = keccak256(address);
        if self.account.is_some_and(|before| before.hash >= hash) {
            return Err(Flaw::Order { what: "account", key: hex(address.as_slice()) });
        }
        let account = Account { address, hash, slots };
        *self = Self { account: Some(account), passed: 0, slot: None };
        Ok(account)
    }

    fn slot(&mut self, slot: B256) -> Result<(), Flaw> {
        let hash = keccak256(slot);
        if self.slot.is_some_and(|before| before >= hash) {
            return Err(Flaw::Order { what: "slot key", key: hex(slot.as_slice()) });
        }
        self.slot = Some(hash);
        self.passed = self.passed.saturating_add(1);
        match self.account {
            Some(account) if self.passed <= account.slots => Ok(()),
            account => Err(Self::count(account, self.passed)),
        }
    }

    /// Whether the last account has all of its slots.
    fn complete(&self) -> Result<(), Flaw> {
        match self.account {
            Some(account) if account.slots != self.passed => {
                Err(Self::count(Some(account), self.passed))
            }
            _ => Ok(()),
        }
    }

    fn count(account: Option<Account>, has: u32) -> Flaw {
        let (address, says) = account.map(|a| (a.address, a.slots)).unwrap_or_default();
        Flaw::SlotCount { address: hex(address.as_slice()), says, has }
    }
}

/// Writes a preimage file.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: Output<W>,
    order: PreimageOrder,
}

impl<W: Write> Writer<W> {
    /// An empty file.
    pub fn new(out: W) -> Self {
        Self { out: Output::new(out), order: PreimageOrder::default() }
    }

    /// Begins an account, which so many slots follow.
    ///
    /// # Errors
    /// If it is not behind the one before it, that one lacks slots, or nothing can be written.
    pub fn account(&mut self, address: Address, slots: u32) -> Result<(), FileError> {
        let at = self.out.at();
        let begun = self.order.account(address, slots);
        begun.map_err(|flaw| FileError::Invalid { at, flaw })?;
        self.out.put(address.as_slice())?;
        self.out.put(&slots.to_be_bytes())
    }

    /// Writes a slot key of the account that was begun last.
    ///
    /// # Errors
    /// If it is not behind the one before it or is one too many, or nothing can be written.
    pub fn slot(&mut self, slot: B256) -> Result<(), FileError> {
        let at = self.out.at();
        self.order.slot(slot).map_err(|flaw| FileError::Invalid { at, flaw })?;
        self.out.put(slot.as_slice())
    }

    /// Ends the file, and answers with what it went into; that is not synced.
    ///
    /// # Errors
    /// If the last account lacks slots, or nothing can be written.
    pub fn finish(self) -> Result<(Digested, W), FileError> {
        let at = self.out.at();
        self.order.complete().map_err(|flaw| FileError::Invalid { at, flaw })?;
        self.out.end()
    }
}

/// Reads a preimage file, in memory that does not grow with it.
#[derive(Debug)]
pub struct Reader<R> {
    input: Input<R>,
    order: PreimageOrder,
}

impl<R: Read> Reader<R> {
    /// The beginning of a file.
    pub fn new(file: R) -> Self {
        Self { input: Input::new(file), order: PreimageOrder::default() }
    }

    /// The next account, after the slots of the one before it that nobody asked for.
    ///
    /// # Errors
    /// If the file is not valid, or cannot be read.
    pub fn account(&mut self) -> Result<Option<Account>, FileError> {
        while self.slot()?.is_some() {}
        let at = self.input.at();
        let mut record = [0; 24];
        if !self.input.take_or_end(&mut record, "an account")? {
            return Ok(None);
        }
        let address = Address::from_slice(&record[..20]);
        let slots = u32::from_be_bytes([record[20], record[21], record[22], record[23]]);
        let account = self.order.account(address, slots);
        account.map(Some).map_err(|flaw| FileError::Invalid { at, flaw })
    }

    /// The next slot key of the account that was read last; `None` after its last one.
    ///
    /// # Errors
    /// If the file is not valid, or cannot be read.
    pub fn slot(&mut self) -> Result<Option<B256>, FileError> {
        if self.order.account.is_none_or(|account| account.slots == self.order.passed) {
            return Ok(None);
        }
        let at = self.input.at();
        let mut slot = B256::ZERO;
        self.input.take(&mut slot.0, "the slots of an account")?;
        self.order.slot(slot).map_err(|flaw| FileError::Invalid { at, flaw })?;
        Ok(Some(slot))
    }

    /// Reads what is left, and answers for the whole file.
    ///
    /// # Errors
    /// If the file is not valid, or cannot be read.
    pub fn finish(mut self) -> Result<Digested, FileError> {
        while self.account()?.is_some() {}
        self.input.end()
    }
}
