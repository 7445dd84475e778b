//! Proofs of what blocks changed, against the roots in their headers.

use alloy_primitives::U256;
use spinney_replay::Replay;
use spinney_state::{Account, Change, KeepHistory, State, StateError, StateRead as _};
use spinney_tree::MemoryStore;

use crate::shared::{self, ALL_FORKS, CHAIN_600};

/// Proves all that every `step`-th block changed, from pending states and from pages read again.
fn changes_are_proven(name: &str, step: u64) {
    let Some(chain) = shared::chain(name) else { return };
    let state = State::open(MemoryStore::new(), 1).unwrap();
    let mut replay = Replay::start(&chain.genesis, state).unwrap();
    let (mut blocks, mut accounts, mut slots) = (0, 0, 0);
    for block in chain.blocks() {
        let Some(report) = replay.block(&block).unwrap() else { continue };
        if report.number % 5 == 0 {
            replay.state_mut().commit().unwrap();
        }
        if report.number % step != 0 {
            continue;
        }
        blocks += 1;
        let root = block.block.header.state_root;
        let mut wanted = Vec::new();
        for (address, change) in &report.changes.accounts {
            let slots = match change {
                Change::Written(change) => change.storage.keys().copied().collect(),
                Change::Deleted => vec![U256::ZERO.into()],
            };
            wanted.push((*address, slots));
        }
        let state = replay.state();
        for ((address, keys), proof) in wanted.iter().zip(state.prove_many(&wanted).unwrap()) {
            let verified = proof.verify(&root).unwrap();
            let account = verified.account().map(|account| Account {
                nonce: account.nonce,
                balance: U256::from_be_bytes(account.balance),
                code_hash: account.code_hash.into(),
            });
            assert_eq!(account, state.account(*address).unwrap(), "{address}");
            for key in keys {
                let value = U256::from_be_bytes(verified.slot(key).unwrap());
                assert_eq!(value, state.storage(*address, *key).unwrap(), "{address} {key}");
            }
            assert_eq!(proof, state.prove(*address, keys).unwrap(), "one by one");
            assert!(proof.verify(&block.block.header.parent_hash).is_err());
            accounts += 1;
            slots += keys.len();
        }
    }
    println!("{name}: {blocks} blocks, {accounts} accounts, {slots} slots proven");
    assert!(blocks >= 50 && accounts > 50 && slots > 50);
}

#[test]
fn what_50_blocks_of_chain_600_changed_is_proven() {
    changes_are_proven(CHAIN_600, 12);
}

#[test]
fn what_blocks_of_all_forks_changed_and_deleted_is_proven() {
    changes_are_proven(ALL_FORKS, 4);
}

/// The same from a store that has all blocks behind it, by their numbers.
#[test]
fn kept_blocks_of_chain_600_are_proven_from_the_end() {
    let Some(chain) = shared::chain(CHAIN_600) else { return };
    let mut state = State::open(MemoryStore::new(), 64 << 20).unwrap();
    state.keep_history(KeepHistory::Blocks(590));
    let mut replay = Replay::start(&chain.genesis, state).unwrap();
    let mut asked = Vec::new();
    for block in chain.blocks() {
        let Some(report) = replay.block(&block).unwrap() else { continue };
        let header = &block.block.header;
        if report.number >= 12 && report.number % 12 == 0 {
            let slots = |change: &Change| match change {
                Change::Written(change) => change.storage.keys().copied().collect(),
                Change::Deleted => vec![U256::ZERO.into()],
            };
            let accounts = &report.changes.accounts;
            let wanted: Vec<_> =
                accounts.iter().map(|(address, change)| (*address, slots(change))).collect();
            let state = replay.state();
            let now: Vec<_> = wanted.iter().map(|(a, _)| state.account(*a).unwrap()).collect();
            asked.push((report.number, header.state_root, wanted, now));
        }
        if report.number % 64 == 0 || report.number == 600 {
            replay.state_mut().commit().unwrap();
        }
    }
    let (mut slots, state) = (0, replay.state());
    for (number, root, wanted, then) in &asked {
        let kept = state.at(*number).unwrap();
        let proofs = kept.prove_many(wanted).unwrap();
        for (((_, keys), proof), then) in wanted.iter().zip(proofs).zip(then) {
            let verified = proof.verify(root).unwrap();
            assert_eq!(verified.account().map(|account| account.nonce), then.map(|a| a.nonce));
            for key in keys {
                verified.slot(key).unwrap();
                slots += 1;
            }
        }
    }
    assert_eq!(asked.len(), 50);
    assert!(slots > 50);
    let beyond = state.at(9).map(|kept| kept.root());
    assert!(matches!(beyond, Err(StateError::NotKept { .. })), "{beyond:?}");
}
