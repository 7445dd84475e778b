//! States that are made up.

use std::ops::ControlFlow;
use std::path::Path;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::prelude::*;
use spinney_migrate::{At, MigrateError, Work};
use spinney_pipeline::Options;
use spinney_state::{AccountChange, Change, Changes, EMPTY_CODE_HASH, State};
use spinney_tree::MemoryStore;

/// How often a property is tried, unless `PROPTEST_CASES` says it: each time writes and syncs
/// files.
pub(crate) fn cases() -> ProptestConfig {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig {
        cases: cases.unwrap_or(12),
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

/// Does work in a folder of its own, in little memory.
pub(crate) fn worked<T>(
    memory: usize,
    work: impl FnOnce(&mut Work<'_>) -> Result<T, MigrateError>,
) -> Result<T, MigrateError> {
    let folder = tempfile::tempdir().expect("a folder can be made");
    work_in(&folder.path().join("leaves"), memory, &mut |_| ControlFlow::Continue(()), work)
}

pub(crate) fn work_in<T>(
    spill: &Path,
    memory: usize,
    watch: &mut dyn FnMut(&At) -> ControlFlow<()>,
    work: impl FnOnce(&mut Work<'_>) -> Result<T, MigrateError>,
) -> Result<T, MigrateError> {
    let mut options = Options::default();
    (options.memory, options.threads, options.in_flight) = (memory, 2, 3);
    work(&mut Work { options, spill, cache: 1 << 20, limit: None, verify: false, watch })
}

/// A state in a Merkle Patricia trie.
pub(crate) fn trie_of(changes: &Changes) -> MemoryStore {
    let mut state = State::open(MemoryStore::new(), 1 << 20).expect("an empty store");
    state.apply(changes).expect("changes make sense");
    state.commit().expect("memory takes it");
    state.into_store()
}

/// Code with pushes that reach over chunks, zeros that are no leaf, and delegations.
fn code() -> impl Strategy<Value = Bytes> {
    let push = prop::collection::vec(prop_oneof![Just(0x7f_u8), Just(0), any::<u8>()], 1..200);
    let zeros = (1_usize..400).prop_map(|length| vec![0; length]);
    let target = any::<[u8; 20]>();
    let delegation = target.prop_map(|target| [&[0xef, 0x01, 0x00][..], &target].concat());
    let long = Just([vec![0x5b; 31 * 300], vec![1]].concat());
    prop_oneof![4 => push, 1 => zeros, 2 => delegation, 1 => long].prop_map(Bytes::from)
}

fn slot() -> impl Strategy<Value = B256> {
    prop_oneof![
        (0_u64..300).prop_map(|slot| B256::from(U256::from(slot))),
        any::<[u8; 32]>().prop_map(B256::from),
    ]
}

fn account(codes: Vec<Bytes>) -> impl Strategy<Value = Change> {
    let code = prop_oneof![2 => Just(Bytes::new()), 3 => prop::sample::select(codes)];
    let slots = prop::collection::btree_map(slot(), 1_u64.., 0..12);
    let numbers = (prop_oneof![Just(0), any::<u64>()], prop_oneof![Just(0), any::<u128>()]);
    (numbers, code, slots).prop_map(|((nonce, balance), code, slots)| {
        let code_hash = if code.is_empty() { EMPTY_CODE_HASH } else { keccak256(&code) };
        Change::Written(AccountChange {
            fresh: false,
            nonce: Some(nonce),
            balance: Some(U256::from(balance)),
            code_hash: Some(code_hash),
            code: Some(code),
            storage: slots.into_iter().map(|(slot, value)| (slot, U256::from(value))).collect(),
        })
    })
}

/// Accounts of all kinds, the empty one included, some of which share their code.
pub(crate) fn states() -> impl Strategy<Value = Changes> {
    let codes = prop::collection::vec(code(), 1..4);
    codes.prop_flat_map(|codes| {
        let address = any::<[u8; 20]>().prop_map(Address::from);
        prop::collection::btree_map(address, account(codes), 1..24)
            .prop_map(|accounts| Changes { accounts })
    })
}

/// The same state each time: accounts with slots and code, and a delegation.
pub(crate) fn one_state() -> Changes {
    let mut accounts = std::collections::BTreeMap::new();
    for index in 0_u8..40 {
        let code = match index % 4 {
            0 => Bytes::from(vec![index % 8 + 1; 70]),
            1 => Bytes::from([&[0xef, 0x01, 0x00][..], &[index; 20]].concat()),
            _ => Bytes::new(),
        };
        let slots = u64::from(if index % 4 == 0 { index } else { 0 });
        let slot = |slot: u64| (B256::from(U256::from(40 * slot)), U256::from(slot + 1));
        let change = AccountChange {
            nonce: Some(index.into()),
            balance: Some(U256::from(1_000 * u64::from(index))),
            code_hash: Some(keccak256(&code)),
            code: Some(code),
            storage: (0..slots).map(slot).collect(),
            ..AccountChange::default()
        };
        accounts.insert(Address::repeat_byte(index), Change::Written(change));
    }
    Changes { accounts }
}
