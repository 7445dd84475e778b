use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::prelude::*;
use spinney_tree::{BlockId, MemoryStore, PageStore, Snapshot, StoreError, Table, WriteSet};

use super::{Allocation, Sizes, SortedAllocation};
use crate::{AccountChange, Change, Changes, State, StateError};

const BLOCK: BlockId = BlockId { number: 0, hash: [7; 32] };

fn sizes() -> impl Strategy<Value = Sizes> {
    (1usize..9, 1usize..4_000, 1usize..5_000).prop_map(|(range_leaves, commit_bytes, preimages)| {
        Sizes { range_leaves, commit_bytes, preimages }
    })
}

/// Few addresses, slots and codes, so that they meet again.
fn accounts() -> impl Strategy<Value = BTreeMap<Address, AccountChange>> {
    let slots = prop::collection::btree_map(any::<u8>(), 1u64..4, 0..12);
    let account = (0u64..3, any::<u64>(), 0u8..4, slots);
    prop::collection::btree_map(any::<u8>(), account, 0..40).prop_map(|accounts| {
        let change = |(nonce, balance, code, slots): (u64, u64, u8, BTreeMap<u8, u64>)| {
            let code = (code > 0).then(|| Bytes::from(vec![code; 40]));
            AccountChange {
                fresh: false,
                nonce: Some(nonce),
                balance: Some(U256::from(balance)),
                code_hash: code.as_ref().map(keccak256),
                code,
                storage: slots
                    .into_iter()
                    .map(|(slot, value)| (B256::with_last_byte(slot), U256::from(value)))
                    .collect(),
            }
        };
        accounts.into_iter().map(|(at, all)| (Address::with_last_byte(at), change(all))).collect()
    })
}

fn few_accounts() -> impl Strategy<Value = BTreeMap<Address, AccountChange>> {
    accounts().prop_map(|accounts| accounts.into_iter().take(6).collect())
}

fn sorted(
    accounts: impl Iterator<Item = (Address, AccountChange)>,
    memory: usize,
    sizes: Sizes,
) -> SortedAllocation {
    let mut allocation = Allocation::new(memory).unwrap();
    for (address, change) in accounts {
        allocation.account(address, &change).unwrap();
    }
    SortedAllocation { sizes, ..allocation.sort().unwrap() }
}

/// Rows of a table; of pages without generation and checksum.
fn rows(store: &impl PageStore, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut take = |key: &[u8], row: &[u8]| {
        let from = if table == Table::Pages { 8 } else { 0 };
        rows.push((key[from..].to_vec(), row[from..].to_vec()));
        true
    };
    store.snapshot().unwrap().scan(table, &[], None, &mut take).unwrap();
    rows
}

/// A store that fails at its n-th commit, and at all after it.
struct Faulty {
    store: MemoryStore,
    left: AtomicU64,
}

impl PageStore for Faulty {
    type Snapshot<'a> = <MemoryStore as PageStore>::Snapshot<'a>;

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, StoreError> {
        self.store.snapshot()
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        let left =
            self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        match left {
            Ok(_) => self.store.commit(set),
            Err(_) => Err(StoreError::Missing { place: "the moon".into() }),
        }
    }
}

const TABLES: [Table; 5] =
    [Table::Pages, Table::Codes, Table::Preimages, Table::Meta, Table::History];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_fill_leaves_what_changes_would(
        accounts in accounts(),
        sizes in sizes(),
        backwards in any::<bool>(),
        memory in prop::sample::select(vec![64usize, 4 << 10, 1 << 20]),
        keep in any::<bool>(),
    ) {
        let mut one = State::open(MemoryStore::new(), 1 << 20).unwrap();
        one.keep_preimages(keep);
        one.set_genesis(B256::ZERO);
        let written = |(at, change)| (at, Change::Written(change));
        let changes = accounts.clone().into_iter().map(written);
        let root = one.apply(&Changes { accounts: changes.collect() }).unwrap();
        one.seal(BLOCK).unwrap();
        one.commit().unwrap();

        let mut order: Vec<_> = accounts.into_iter().collect();
        if backwards {
            order.reverse();
        }
        let allocation = sorted(order.clone().into_iter(), memory, sizes);
        prop_assert_eq!(allocation.root(), root);
        let mut two = State::open(MemoryStore::new(), 1 << 20).unwrap();
        two.keep_preimages(keep);
        two.set_genesis(B256::ZERO);
        two.fill(allocation, BLOCK).unwrap();
        prop_assert_eq!((two.root(), two.block(), two.commit_number()), (root, Some(BLOCK), 1));
        for table in TABLES {
            prop_assert!(rows(two.store(), table) == rows(one.store(), table), "{}", table);
        }
        let findings = two.check(|_| {}).unwrap();
        prop_assert!(findings.is_empty());
        let again = two.fill(sorted(order.into_iter(), memory, sizes), BLOCK).unwrap_err();
        prop_assert!(matches!(again, StateError::NotEmpty));
    }

    /// Whichever commit fails, nothing of a state is seen; and the same call, or that of another
    /// genesis, makes what it would have made.
    #[test]
    fn a_fill_that_is_cut_off_leaves_no_state(
        accounts in few_accounts(),
        other in few_accounts(),
        sizes in sizes(),
        same in any::<bool>(),
    ) {
        let allocation =
            |accounts: &BTreeMap<_, _>| sorted(accounts.clone().into_iter(), 1 << 20, sizes);
        for left in 0.. {
            let store = Faulty { store: MemoryStore::new(), left: left.into() };
            let mut state = State::open(&store, 1 << 20).unwrap();
            let done = state.fill(allocation(&accounts), BLOCK).is_ok();
            drop(state);
            let mut after = State::open(&store.store, 1 << 20).unwrap();
            if done || after.block().is_some() {
                // All that may fail behind the last commit is the removal of what is old.
                prop_assert_eq!(after.root(), allocation(&accounts).root());
                let findings = after.check(|_| {}).unwrap();
                prop_assert!(findings.is_empty());
                if done {
                    break;
                }
                continue;
            }
            prop_assert_eq!(after.commit_number(), 0);
            prop_assert!(rows(&store.store, Table::Roots).is_empty());
            let next = if same { &accounts } else { &other };
            after.fill(allocation(next), BLOCK).unwrap();
            let mut whole = State::open(MemoryStore::new(), 1 << 20).unwrap();
            whole.fill(allocation(next), BLOCK).unwrap();
            prop_assert_eq!(after.root(), whole.root());
            for table in [Table::Pages, Table::Meta, Table::Roots] {
                prop_assert!(rows(after.store(), table) == rows(whole.store(), table), "{}", table);
            }
        }
    }
}

#[test]
fn what_comes_twice_is_named() {
    let (one, change) = (Address::with_last_byte(1), AccountChange::default());
    let mut allocation = Allocation::new(1 << 20).unwrap();
    allocation.account(one, &change).unwrap();
    allocation.account(one, &change).unwrap();
    let error = allocation.sort().unwrap_err().to_string();
    assert_eq!(error, format!("account {one:?} is given twice"));

    let (slot, mut allocation) = (B256::with_last_byte(9), Allocation::new(1 << 20).unwrap());
    for value in 1..3 {
        allocation.slot(one, slot, U256::from(value)).unwrap();
    }
    allocation.account(one, &change).unwrap();
    let error = allocation.sort().unwrap_err().to_string();
    assert_eq!(error, format!("slot {slot:?} is given twice"));

    let mut allocation = Allocation::new(1 << 20).unwrap();
    allocation.slot(one, slot, U256::ONE).unwrap();
    assert!(matches!(allocation.sort().unwrap_err(), StateError::Tree(_)));
}
