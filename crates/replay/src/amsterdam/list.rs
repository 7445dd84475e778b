//! Block-level access lists (EIP-7928): made while a block is executed, and compared.

use std::collections::{BTreeMap, btree_map::Entry};

use alloy_eip7928::{
    AccountChanges, BlockAccessList, compute_block_access_list_hash, total_bal_items,
    validate_block_access_list,
};
use alloy_primitives::{Address, B256, U256, hex};
use revm::state::{
    EvmState,
    bal::{Bal, BlockAccessIndex},
};

use crate::{
    error::Check,
    rules::{Failure, equal},
    source::ChainBlock,
};

/// Gas of the block's limit for each account and slot that its list may have.
const ITEM_GAS: u64 = 2_000;

/// Gathers the list of a block. Indices go up: 0 before the transactions, then one for each, and
/// one more.
#[derive(Debug, Default)]
pub(crate) struct ListBuilder(Bal);

impl ListBuilder {
    /// Takes what a transaction or a system call looked at and changed.
    pub(crate) fn take(&mut self, index: u64, touched: &EvmState) {
        for (address, account) in touched {
            self.0.update_account(BlockAccessIndex::new(index), *address, account);
        }
    }

    /// Notes that an account was looked at.
    pub(crate) fn look(&mut self, address: Address) {
        self.0.accounts.entry(address).or_default();
    }

    /// Takes what was paid outside of transactions.
    pub(crate) fn pay(&mut self, index: u64, address: Address, before: U256, after: U256) {
        let account = self.0.accounts.entry(address).or_default();
        account.account_info.balance_update(BlockAccessIndex::new(index), &before, after);
    }

    /// The list, in its order.
    pub(crate) fn finish(self) -> BlockAccessList {
        self.0.into_alloy_bal()
    }
}

/// Refuses a list that came with a block if it is not the one that the header names, or not in its
/// form.
pub(crate) fn check_given(is_amsterdam: bool, block: &ChainBlock) -> Result<(), Failure> {
    let Some(given) = &block.access_list else { return Ok(()) };
    if !is_amsterdam {
        return Err(Failure::new(Check::Field("access list"), "no value", "a value"));
    }
    let named = block.block.header.block_access_list_hash.unwrap_or_default();
    let what = Check::AccessList;
    equal(what, format!("the list of {named}"), format!("the list of {}", hash_of(given)))?;
    validate_block_access_list(given, block.block.body.transactions.len())
        .map_err(|error| Failure::new(what, "a list in its order", error))
}

/// Compares the list that executing a block made with the header, and with the list that came with
/// the block.
pub(crate) fn check_made(made: &BlockAccessList, block: &ChainBlock) -> Result<(), Failure> {
    let header = &block.block.header;
    let what = Check::AccessList;
    let named = header.block_access_list_hash.unwrap_or_default();
    let hash = hash_of(made);
    if hash != named {
        let first = block.access_list.as_ref().and_then(|given| difference(made, given));
        return Err(match first {
            Some((place, expected, got)) => {
                let place = place.name(block.block.body.transactions.len());
                Failure::new(what, format!("{place}: {expected}"), got)
            }
            None => Failure::new(what, hash, named),
        });
    }
    let (items, most) = (total_bal_items(made), header.gas_limit / ITEM_GAS);
    if items > most {
        let expected = format!("at most {most} accounts and slots for its gas limit");
        return Err(Failure::new(what, expected, items));
    }
    Ok(())
}

fn hash_of(list: &BlockAccessList) -> B256 {
    compute_block_access_list_hash(list)
}

/// A place in a list. They are in order of account, then of what is known of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ListPlace {
    account: Address,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The account itself.
    Account,
    Slot(U256, u64),
    /// A slot that is only read.
    Read(U256),
    Balance(u64),
    Nonce(u64),
    Code(u64),
}

impl ListPlace {
    /// Names the place in a block of so many transactions.
    fn name(&self, transactions: usize) -> String {
        let account = self.account;
        let at = |index: u64| match index.checked_sub(1) {
            None => "before the transactions".to_owned(),
            Some(last) if last >= transactions as u64 => "after the transactions".to_owned(),
            Some(transaction) => format!("transaction {transaction}"),
        };
        match &self.what {
            What::Account => format!("account {account}"),
            What::Read(slot) => format!("account {account}, read of slot {slot:#x}"),
            What::Slot(slot, index) => format!("account {account}, slot {slot:#x}, {}", at(*index)),
            What::Balance(index) => format!("account {account}, balance, {}", at(*index)),
            What::Nonce(index) => format!("account {account}, nonce, {}", at(*index)),
            What::Code(index) => format!("account {account}, code, {}", at(*index)),
        }
    }
}

/// The first place at which two lists differ, with what each has there. Entries that are there
/// twice, or in another order, count as one.
fn difference(
    expected: &[AccountChanges],
    got: &[AccountChanges],
) -> Option<(ListPlace, String, String)> {
    let (mut expected, got) = (entries(expected), entries(got));
    let mut differing = BTreeMap::new();
    for (place, value) in got {
        match expected.remove(&place) {
            Some(other) if other == value => {}
            other => drop(differing.insert(place, (other, Some(value)))),
        }
    }
    for (place, value) in expected {
        if let Entry::Vacant(vacant) = differing.entry(place) {
            vacant.insert((Some(value), None));
        }
    }
    let (place, (expected, got)) = differing.pop_first()?;
    let said = |value: Option<String>| value.unwrap_or_else(|| "nothing there".to_owned());
    Some((place, said(expected), said(got)))
}

fn entries(list: &[AccountChanges]) -> BTreeMap<ListPlace, String> {
    let mut entries = BTreeMap::new();
    for changes in list {
        let mut put = |what, value| {
            entries.insert(ListPlace { account: changes.address, what }, value);
        };
        put(What::Account, "listed".to_owned());
        for slot in &changes.storage_changes {
            for change in &slot.changes {
                let index = change.block_access_index.0;
                put(What::Slot(slot.slot, index), format!("{:#x}", change.new_value));
            }
        }
        for slot in &changes.storage_reads {
            put(What::Read(*slot), "listed".to_owned());
        }
        for change in &changes.balance_changes {
            put(What::Balance(change.block_access_index.0), change.post_balance.to_string());
        }
        for change in &changes.nonce_changes {
            put(What::Nonce(change.block_access_index.0), change.new_nonce.to_string());
        }
        for change in &changes.code_changes {
            put(What::Code(change.block_access_index.0), hex::encode_prefixed(&change.new_code));
        }
    }
    entries
}
