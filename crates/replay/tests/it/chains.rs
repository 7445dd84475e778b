//! Whole chains: every root must be right.

use alloy_primitives::{b256, hex};
use serde_json::Value;
use spinney_replay::{Event, Replay, RunOptions, TextbookState};

use crate::shared::{self, ALL_FORKS, AMSTERDAM, CHAIN_600};

fn replay(name: &str, block_count: u64) -> Option<TextbookState> {
    let chain = shared::chain(name)?;
    let mut replay = Replay::start(&chain.genesis, TextbookState::new()).unwrap();
    let mut committed = Vec::new();
    let summary = replay
        .run(chain.reader(), &RunOptions::default(), |event| {
            if let Event::Committed { number, .. } = event {
                committed.push(number);
            }
        })
        .unwrap();
    println!("{name}: {summary:?}");
    assert_eq!(summary.block_count, block_count);
    assert_eq!(committed.last(), Some(&block_count));
    Some(replay.into_state())
}

#[test]
fn all_forks_replays_to_its_head_state() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let expected = b256!("c7733fc11e2b752c4705d7f8467915d04045f3b2686ba8bf0f3a2634825d6f08");
    assert_eq!(chain.genesis.hash, expected);
    let Some(state) = replay(ALL_FORKS, 213) else { return };
    equals_head_state(&state, &format!("{ALL_FORKS}/headstate.json"));
}

#[test]
fn chain_600_replays_to_its_head_state() {
    let Some(state) = replay(CHAIN_600, 600) else { return };
    equals_head_state(&state, &format!("{CHAIN_600}/headstate.json"));
}

/// 39 blocks of Osaka, then 161 of Amsterdam: roots, receipts, requests, both dimensions of gas,
/// and the hash of each block's access list, all of which the headers have.
#[test]
fn amsterdam_replays_to_its_head_state() {
    let Some(chain) = shared::chain(AMSTERDAM) else { return };
    let expected = b256!("96dceeb08b8ee0b93c66f05f9fba297f2ec6066fbf1419f62c4a562a4977f6df");
    assert_eq!(chain.genesis.hash, expected);
    let Some(state) = replay(AMSTERDAM, 200) else { return };
    equals_head_state(&state, &format!("{AMSTERDAM}/headstate.json"));
}

pub(crate) fn equals_head_state(state: &TextbookState, name: &str) {
    let Some(json) = shared::read(name) else { return };
    let dump: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(hex::encode(state.root()), dump["root"].as_str().unwrap());
    let accounts = dump["accounts"].as_object().unwrap();
    assert_eq!(state.accounts().count(), accounts.len());
    for (address, account, storage) in state.accounts() {
        let expected = &accounts[&address.to_checksum(None)];
        assert_eq!(account.nonce, expected["nonce"].as_u64().unwrap(), "{address}");
        assert_eq!(account.balance.to_string(), expected["balance"].as_str().unwrap());
        assert_eq!(account.code_hash.to_string(), expected["codeHash"].as_str().unwrap());
        let slots = expected["storage"].as_object().map_or(0, |slots| slots.len());
        assert_eq!(storage.len(), slots, "{address}");
        for (slot, value) in storage {
            let value = hex::encode(value.to_be_bytes_trimmed_vec());
            assert_eq!(value, expected["storage"][slot.to_string()].as_str().unwrap());
        }
    }
}
