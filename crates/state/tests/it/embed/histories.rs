//! Random histories of accounts against the textbook.

use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::prelude::*;
use spinney_state::embed::{BinaryState, Embedding};
use spinney_state::{AccountChange, Change, Changes, StateRead};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::{self, Verkle};
use spinney_tree::{HashFunction, MemoryStore};

use super::textbook;

fn address() -> impl Strategy<Value = Address> {
    (0u8..6).prop_map(Address::with_last_byte)
}

/// A few codes, so that accounts share them: none, short, one of zeros, delegations, one over many
/// chunks.
fn code() -> impl Strategy<Value = Bytes> {
    let delegation = |target: u8| [&[0xef, 0x01, 0x00][..], &[target; 20]].concat();
    prop::sample::select(vec![
        vec![],
        vec![0x60, 0x01],
        vec![0; 40],
        delegation(7),
        delegation(8),
        vec![0x7f; 5_000],
        [vec![0x5b; 31 * 140], vec![0; 31 * 140]].concat(),
    ])
    .prop_map(Bytes::from)
}

fn slot() -> impl Strategy<Value = B256> {
    prop_oneof![
        (0u64..3).prop_map(U256::from),
        (62u64..66).prop_map(U256::from),
        (254u64..258).prop_map(U256::from),
        (0u64..3).prop_map(|low| U256::MAX - U256::from(low)),
        (0u64..3).prop_map(|low| (U256::from(0xff) << 248) + U256::from(low)),
    ]
    .prop_map(B256::from)
}

fn change() -> impl Strategy<Value = Change> {
    let value = prop_oneof![2 => Just(U256::ZERO), 5 => any::<u64>().prop_map(U256::from)];
    let storage = prop::collection::btree_map(slot(), value, 0..5);
    let fields = (
        prop::bool::weighted(0.15),
        prop::option::of(any::<u64>()),
        prop::option::of(any::<u128>().prop_map(U256::from)),
        prop::option::of(code()),
    );
    let written = (fields, storage).prop_map(|((fresh, nonce, balance, code), storage)| {
        let code_hash = code.as_ref().map(keccak256);
        Change::Written(AccountChange { fresh, nonce, balance, code_hash, code, storage })
    });
    prop_oneof![1 => Just(Change::Deleted), 6 => written]
}

pub(crate) fn changes() -> impl Strategy<Value = Changes> {
    prop::collection::btree_map(address(), change(), 0..5).prop_map(|accounts| Changes { accounts })
}

#[derive(Clone, Debug)]
struct Round {
    changes: Changes,
    /// Applied before, and taken back.
    beside: Changes,
    commit: bool,
    reopen: bool,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let flags = (prop::bool::weighted(0.6), any::<bool>());
    let round = (changes(), changes(), flags).prop_map(|(changes, beside, (commit, reopen))| {
        Round { changes, beside, commit, reopen: commit && reopen }
    });
    prop::collection::vec(round, 1..8)
}

/// Runs a history; `step` is told each change and answers the root that is due.
fn run<S: Embedding>(
    scheme: S,
    rounds: &[Round],
    mut step: impl FnMut(&Changes) -> B256,
    check: impl Fn(&BinaryState<S, MemoryStore>, &textbook::Accounts),
) {
    let mut accounts = textbook::Accounts::default();
    let mut state = BinaryState::open(scheme.clone(), MemoryStore::new(), 1 << 20).unwrap();
    for round in rounds {
        let layers = state.layer_count();
        state.apply(&round.beside).unwrap();
        state.undo_to(layers);
        let root = state.apply(&round.changes).unwrap();
        accounts.apply(&round.changes);
        assert_eq!(root, step(&round.changes));
        if round.commit {
            state.commit(None).unwrap();
            assert_eq!(state.check(|_| {}).unwrap(), []);
        }
        if round.reopen {
            state = BinaryState::open(scheme.clone(), state.into_store(), 1 << 20).unwrap();
        }
        assert_eq!(state.root(), root);
        for number in 0..6 {
            let address = Address::with_last_byte(number);
            let held = accounts.0.get(&address);
            assert_eq!(state.account(address).unwrap(), held.map(|held| held.account));
            for (slot, value) in held.iter().flat_map(|held| &held.storage) {
                assert_eq!(state.storage(address, *slot).unwrap(), *value);
            }
            if let Some(held) = held {
                let code = state.code(held.account.code_hash).unwrap();
                assert_eq!(code.as_ref(), Some(&held.code));
            }
        }
        check(&state, &accounts);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn any_history_in_a_pbt_has_the_root_of_its_final_state(rounds in rounds()) {
        let hash = HashFunction::Blake3;
        let mut book = textbook::Pbt::default();
        let step = |changes: &Changes| {
            book.0.apply(changes);
            book.root(hash)
        };
        run(Pbt { hash }, &rounds, step, |state, accounts| {
            let uses = textbook::code_uses(accounts);
            for code in rounds.iter().flat_map(|round| round.changes.accounts.values()) {
                let Change::Written(AccountChange { code_hash: Some(hash), .. }) = code else {
                    continue;
                };
                let expected = uses.get(hash).copied().unwrap_or(0);
                assert_eq!(state.code_uses(*hash).unwrap(), expected);
            }
        });
    }

    #[test]
    fn any_history_in_a_ubt_has_the_textbooks_root(rounds in rounds()) {
        let hash = HashFunction::Sha256;
        let mut book = textbook::Ubt::default();
        let step = |changes: &Changes| {
            book.apply(&textbook::ubt_stem(hash), changes);
            book.root(hash)
        };
        run(Ubt { hash }, &rounds, step, |_, _| {});
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        max_shrink_iters: 1_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_history_in_a_verkle_tree_has_the_textbooks_root(rounds in rounds()) {
        let verkle = Verkle::shared();
        let crs = Arc::clone(verkle.crs());
        let mut book = textbook::Ubt::default();
        let step = |changes: &Changes| {
            book.apply(&textbook::verkle_stem(&crs), changes);
            verkle::reference::root(&crs, &book.leaves).into()
        };
        run(verkle, &rounds, step, |_, _| {});
    }
}
