//! Calls a contract in a store: `cargo run -p spinney-replay --example revm`.
//!
//! The store is made here; `State::open` takes any other, `State::at` an earlier block of it, and
//! `BinaryState` and the Verkle tree's state are read in the same way.

use alloy_primitives::{Address, Bytes, TxKind, U256, keccak256};
use revm::{Context, ExecuteEvm as _, MainBuilder as _, MainContext as _, context::TxEnv};
use spinney_replay::StateDatabase;
use spinney_state::{AccountChange, Change, Changes, State};
use spinney_tree::MemoryStore;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let contract = Address::repeat_byte(0xc0);
    let state = made(contract)?;

    // revm over the store, in ten lines.
    let database = StateDatabase::new(state);
    let mut evm = Context::mainnet()
        .with_ref_db(database)
        .modify_cfg_chained(|cfg| cfg.disable_nonce_check = true)
        .build_mainnet();
    let call = TxEnv::builder().kind(TxKind::Call(contract)).gas_limit(100_000).build();
    let done = evm.transact(call.map_err(|error| format!("{error:?}"))?)?;
    let output = done.result.output().cloned().unwrap_or_default();

    println!("slot 1 of {contract} is {}", U256::from_be_slice(&output));
    assert_eq!(U256::from_be_slice(&output), U256::from(42));
    Ok(())
}

/// A state with a contract that answers with its slot 1, which is 42.
fn made(contract: Address) -> Result<State<MemoryStore>, Box<dyn std::error::Error>> {
    // PUSH1 1 SLOAD PUSH0 MSTORE PUSH1 32 PUSH0 RETURN
    let code = Bytes::from_static(&[0x60, 1, 0x54, 0x5f, 0x52, 0x60, 32, 0x5f, 0xf3]);
    let change = AccountChange {
        code_hash: Some(keccak256(&code)),
        code: Some(code),
        storage: [(U256::from(1).into(), U256::from(42))].into(),
        ..AccountChange::default()
    };
    let mut state = State::open(MemoryStore::new(), 1 << 20)?;
    state.apply(&Changes { accounts: [(contract, Change::Written(change))].into() })?;
    state.commit()?;
    Ok(state)
}
