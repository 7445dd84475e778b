//! What a state is, written down as maps: obviously right. And changes by chance.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::prelude::*;
use spinney_state::{Account, AccountChange, Change, Changes, StateRead};
use spinney_tree::{PageStore, Snapshot, Table};

pub(crate) const ADDRESSES: u8 = 6;
pub(crate) const SLOTS: u8 = 12;

/// Accounts with their slots that are not zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Textbook(BTreeMap<Address, (Account, BTreeMap<B256, U256>)>);

impl Textbook {
    pub(crate) fn apply(&mut self, changes: &Changes) {
        for (address, change) in &changes.accounts {
            let Change::Written(change) = change else {
                self.0.remove(address);
                continue;
            };
            if change.fresh {
                self.0.remove(address);
            }
            let (account, storage) = self.0.entry(*address).or_default();
            account.nonce = change.nonce.unwrap_or(account.nonce);
            account.balance = change.balance.unwrap_or(account.balance);
            account.code_hash = change.code_hash.unwrap_or(account.code_hash);
            for (slot, value) in &change.storage {
                match value.is_zero() {
                    true => drop(storage.remove(slot)),
                    false => drop(storage.insert(*slot, *value)),
                }
            }
        }
    }

    /// Every account and slot that can be is as it is here.
    #[track_caller]
    pub(crate) fn assert_is<S: StateRead>(&self, state: &S) {
        for address in (0..ADDRESSES).map(Address::with_last_byte) {
            let expected = self.0.get(&address);
            let account = state.account(address).unwrap();
            assert_eq!(account, expected.map(|(account, _)| *account), "{address}");
            for slot in (0..SLOTS).map(B256::with_last_byte) {
                let value = expected.and_then(|(_, storage)| storage.get(&slot)).copied();
                assert_eq!(state.storage(address, slot).unwrap(), value.unwrap_or_default());
            }
            if let Some(account) = account {
                let code = state.code(account.code_hash).unwrap().expect("it was given");
                assert_eq!(keccak256(code), account.code_hash);
            }
        }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let slot = (0..SLOTS).prop_map(B256::with_last_byte);
    let storage = prop::collection::btree_map(slot, (0_u64..3).prop_map(U256::from), 0..7);
    let code = prop::option::weighted(0.2, 0_u8..4);
    let fresh = prop::bool::weighted(0.2);
    let field = || prop::option::of(0_u64..3);
    (fresh, field(), field(), code, storage).prop_map(|(fresh, nonce, balance, code, storage)| {
        let code = code.map(|n| Bytes::from(vec![n; usize::from(n) * 9]));
        Change::Written(AccountChange {
            fresh,
            nonce,
            balance: balance.map(U256::from),
            code_hash: code.as_ref().map(keccak256),
            code,
            storage,
        })
    })
}

pub(crate) fn changes() -> impl Strategy<Value = Changes> {
    let change = prop_oneof![1 => Just(Change::Deleted), 3 => change()];
    let address = (0..ADDRESSES).prop_map(Address::with_last_byte);
    prop::collection::btree_map(address, change, 0..4).prop_map(|accounts| Changes { accounts })
}

pub(crate) type Rows = Vec<(Vec<u8>, Vec<u8>)>;

pub(crate) fn rows(store: &impl PageStore, table: Table) -> Rows {
    let mut rows = Rows::new();
    let mut add = |key: &[u8], row: &[u8]| {
        rows.push((key.to_vec(), row.to_vec()));
        true
    };
    store.snapshot().unwrap().scan(table, &[], None, &mut add).unwrap();
    rows
}
