//! What blocks named by digests: code, addresses and slots.
//!
//! A store keeps code and preimages when it goes back, so an undo does not say which of them a
//! block brought. The old values of its history say whose code and slots changed, by themselves.

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256, KECCAK256_EMPTY, keccak256};
use spinney_tree::{PageStore, Snapshot as _, Table};

use crate::error::StateError;
use crate::history_row::key;
use crate::keep::decode;
use crate::mpt_state::State;
use crate::undo::{Before, Slot};
use crate::{Account, StateRead as _};

/// Keys of [`Table::Codes`] and [`Table::Preimages`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Named {
    /// Of codes.
    pub codes: BTreeSet<B256>,
    /// Of addresses and slots.
    pub preimages: BTreeSet<B256>,
}

impl Named {
    fn code(&mut self, account: Account) {
        if account.code_hash != KECCAK256_EMPTY {
            self.codes.insert(account.code_hash);
        }
    }

    fn slots(&mut self, slots: impl IntoIterator<Item = Slot>) {
        self.preimages.extend(slots.into_iter().map(Slot::hash));
    }

    /// Notes what an old value names, and answers whether more than that may have been named: the
    /// account's code, and all of its slots.
    fn old(&mut self, address: Address, before: Before) -> (bool, bool) {
        self.preimages.insert(keccak256(address));
        match before {
            Before::Absent => (true, true),
            Before::Changed(old) => {
                let has_code = old.code_hash.is_some();
                self.codes.extend(old.code_hash.filter(|hash| *hash != KECCAK256_EMPTY));
                self.slots(old.storage.into_keys());
                (has_code, false)
            }
            Before::Whole(old) => {
                self.code(old.account);
                self.slots(old.storage.into_keys());
                (true, true)
            }
        }
    }
}

impl<P: PageStore> State<P> {
    /// The digests of all code, addresses and slots that the blocks behind one wrote, up to the
    /// last commit: those that they brought are among them. `None` where there is no Merkle
    /// Patricia trie, whose history does not say.
    ///
    /// # Errors
    /// If the store fails, or its history is damaged.
    pub fn named_behind(&self, block: u64) -> Result<Option<Named>, StateError> {
        if !self.has_mpt() {
            return Ok(None);
        }
        let (mut named, mut outcome) = (Named::default(), Ok(()));
        let (mut with_code, mut with_slots) = (BTreeSet::new(), BTreeSet::new());
        let mut take = |number: &[u8], row: &[u8]| {
            outcome = decode(number, row).map(|record| {
                for (address, before) in record.undo.accounts {
                    let (code, slots) = named.old(address, before);
                    with_code.extend(code.then_some(address));
                    with_slots.extend(slots.then_some(address));
                }
            });
            outcome.is_ok()
        };
        if let Some(first) = block.checked_add(1) {
            self.store.snapshot()?.scan(Table::History, &key(first), None, &mut take)?;
        }
        outcome?;
        // Whatever came and went in between is an old value; the rest is there.
        for address in with_code {
            self.account(address)?.into_iter().for_each(|account| named.code(account));
        }
        for address in with_slots {
            let slots = self.slots(address)?.into_iter().flatten();
            named.slots(slots.map(Slot::Known));
        }
        Ok(Some(named))
    }
}
