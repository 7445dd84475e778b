//! EIP-7610: no contract is made at an address that has storage.

use alloy_primitives::{Address, B256, Bytes, U256, b256, hex, keccak256};
use serde_json::{Value, json};
use spinney_replay::{ChainBlock, Fork, Replay, TextbookState, WitnessMaker, WorldState};
use spinney_state::{ChunkOptions, Chunks, State, StateRead};
use spinney_tree::MemoryStore;

use crate::made::{Actor, Made};

/// Initcode that makes a contract whose code is one zero.
const INIT: [u8; 5] = hex!("60015ff300");
const GAS: u64 = 10_000_000;

/// Makes a contract by CREATE2 or CREATE and writes its address into slot 0, and the gas it took
/// into slot 1.
fn factory(by_salt: bool) -> Bytes {
    // PUSH5 init, PUSH0, MSTORE; GAS; [PUSH0 salt], PUSH1 5, PUSH1 27, PUSH0 value, CREATE
    let mut code = vec![0x64];
    code.extend(INIT);
    code.extend(hex!("5f525a"));
    code.extend(if by_salt { &hex!("5f6005601b5ff5")[..] } else { &hex!("6005601b5ff0")[..] });
    // PUSH0, SSTORE; GAS, SWAP1, SUB, PUSH1 1, SSTORE
    code.extend(hex!("5f555a9003600155"));
    code.into()
}

const FACTORY: Address = Address::repeat_byte(0xfa);

/// A contract that is to be made, the account that lies there, and a block that tries to.
struct Case {
    chain: Made,
    target: Address,
    block: ChainBlock,
}

fn case(fork: Fork, by: &str, account: Value) -> Case {
    let mut actor = Actor::new(1);
    let target = match by {
        "transaction" => actor.address.create(0),
        "CREATE" => FACTORY.create(1),
        _ => FACTORY.create2(B256::ZERO, keccak256(INIT)),
    };
    let code = factory(by == "CREATE2");
    let alloc = json!({
        FACTORY.to_string(): {"code": code, "nonce": "0x1"}, target.to_string(): account,
    });
    let mut chain = Made::at(fork, alloc);
    let transaction = match by {
        "transaction" => actor.legacy(None, GAS, INIT.into()),
        _ => actor.legacy(Some(FACTORY), GAS, Bytes::new()),
    };
    let block = chain.block(vec![transaction]);
    Case { chain, target, block }
}

#[test]
fn no_contract_is_made_over_storage() {
    let stored = json!({"balance": "0x5", "storage": {"0x1": "0x7"}});
    for by in ["transaction", "CREATE", "CREATE2"] {
        let Case { chain, target, block } = case(Fork::Shanghai, by, stored.clone());
        let state = chain.replay.state();
        let Ok(account) = state.account(target);
        let account = account.expect("it stays");
        assert_eq!((account.nonce, account.balance), (0, U256::from(5)), "{by}");
        let Ok(slot) = state.storage(target, B256::with_last_byte(1));
        assert_eq!(slot, U256::from(7), "{by}");
        if by == "transaction" {
            assert_eq!(block.block.header.gas_used, GAS, "all of the gas is gone");
            continue;
        }
        let Ok(made) = state.storage(FACTORY, B256::ZERO);
        assert_eq!(made, U256::ZERO, "{by} answers with nothing");
        let Ok(gas) = state.storage(FACTORY, B256::with_last_byte(1));
        assert!(gas > U256::from(GAS * 9 / 10), "the call's gas is gone: {gas}");
        let Ok(factory) = state.account(FACTORY);
        assert_eq!(factory.unwrap().nonce, 2, "the nonce of the creator moves on");
    }
}

#[test]
fn a_contract_is_made_over_a_balance() {
    for by in ["transaction", "CREATE", "CREATE2"] {
        let Case { chain, target, block } = case(Fork::Shanghai, by, json!({"balance": "0x5"}));
        let Ok(account) = chain.replay.state().account(target);
        let account = account.expect("it is there");
        assert_eq!((account.nonce, account.balance), (1, U256::from(5)), "{by}");
        assert_eq!(account.code_hash, keccak256([0]), "{by}");
        assert!(block.block.header.gas_used < GAS / 2);
    }
}

fn taken_by(chain: &Made, block: &ChainBlock, state: impl WorldState) {
    let mut replay = Replay::start(&chain.genesis, state).unwrap();
    replay.state_mut().commit().unwrap();
    replay.block(block).unwrap().expect("it is new");
}

/// Every kind of state says alike which account has storage.
#[test]
fn every_state_knows_who_has_storage() {
    let accounts = [
        json!({"balance": "0x5", "storage": {"0x1": "0x7", "0x2": "0x8"}}),
        json!({"balance": "0x5"}),
    ];
    for account in accounts {
        let Case { chain, block, .. } = case(Fork::Shanghai, "CREATE2", account);
        taken_by(&chain, &block, TextbookState::new());
        taken_by(&chain, &block, State::open(MemoryStore::new(), 1 << 20).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
        let chunks = Chunks::new(state, &folder.path().join("spill"), ChunkOptions::default());
        taken_by(&chain, &block, chunks.unwrap());
        let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
        let mut maker = WitnessMaker::start(&chain.genesis, state).unwrap();
        let difficulty = maker.total_difficulty();
        let witness = maker.witness(&block).unwrap().expect("it is new").witness;
        witness.check(maker.config(), difficulty, &block).unwrap();
    }
}

/// Slots that were cleared since the last commit are none.
#[test]
fn storage_that_is_cleared_is_none() {
    use spinney_state::{AccountChange, Change, Changes};
    let address = Address::repeat_byte(1);
    let slot = b256!("0000000000000000000000000000000000000000000000000000000000000009");
    let change = |value: u64| {
        let storage = [(slot, U256::from(value))].into();
        let change = AccountChange { balance: Some(U256::from(5)), storage, ..Default::default() };
        Changes { accounts: [(address, Change::Written(change))].into() }
    };
    fn check<S: WorldState>(mut state: S, address: Address, layers: [Changes; 2]) {
        assert!(!state.has_storage(address).unwrap());
        state.apply(&layers[0]).unwrap();
        assert!(state.has_storage(address).unwrap());
        assert!(!state.has_storage(Address::ZERO).unwrap());
        state.apply(&layers[1]).unwrap();
        assert!(!state.has_storage(address).unwrap());
    }
    let layers = || [change(1), change(0)];
    check(TextbookState::new(), address, layers());
    check(State::open(MemoryStore::new(), 1 << 20).unwrap(), address, layers());
    let folder = tempfile::tempdir().unwrap();
    let state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    let chunks = Chunks::new(state, &folder.path().join("spill"), ChunkOptions::default());
    check(chunks.unwrap(), address, layers());
}
