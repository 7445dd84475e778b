//! The DAO fork moves balances before the first transaction of its block.

use std::collections::BTreeMap;

use alloy_consensus::{Block, Header};
use alloy_primitives::{Address, U256, address};
use serde_json::json;
use spinney_replay::{ChainBlock, Check, Genesis, Replay, ReplayError, TextbookState};
use spinney_state::Change;

const DRAINED: Address = address!("304a554a310c7e546dfe434669c62820b7d83490");
const REFUND: Address = address!("bf4ed7b27f1d666546e30d74d50d173d20bca754");

fn genesis() -> Genesis {
    let file = json!({
        "config": {"chainId": 1, "homesteadBlock": 0, "daoForkBlock": 1, "daoForkSupport": true},
        "gasLimit": "0x1000000", "difficulty": "0x20000",
        "alloc": {DRAINED.to_string(): {"balance": "1000"}},
    });
    Genesis::parse(file.to_string().as_bytes()).unwrap()
}

/// An empty block 1 whose state root is what the replay asks for.
fn first_block(genesis: &Genesis, extra_data: &'static [u8]) -> Result<ChainBlock, Check> {
    let mut header = Header {
        parent_hash: genesis.hash,
        number: 1,
        timestamp: 15,
        difficulty: U256::from(131_072),
        gas_limit: genesis.header.gas_limit,
        extra_data: extra_data.into(),
        ..Header::default()
    };
    for _ in 0..2 {
        let block = ChainBlock::new(Block::new(header.clone(), Default::default()));
        let mut replay = Replay::start(genesis, TextbookState::new()).unwrap();
        match replay.block(&block) {
            Ok(_) => return Ok(block),
            Err(ReplayError::BadBlock(bad)) if bad.what == Check::StateRoot => {
                header.state_root = bad.expected.parse().unwrap();
            }
            Err(ReplayError::BadBlock(bad)) => return Err(bad.what),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the state root does not settle")
}

#[test]
fn balances_are_moved_once() {
    let genesis = genesis();
    assert_eq!(first_block(&genesis, b"").unwrap_err(), Check::ExtraData);
    let block = first_block(&genesis, b"dao-hard-fork").unwrap();
    let mut replay = Replay::start(&genesis, TextbookState::new()).unwrap();
    let report = replay.block(&block).unwrap().unwrap();
    let balances: BTreeMap<_, _> = report
        .changes
        .accounts
        .iter()
        .filter_map(|(address, change)| match change {
            Change::Written(change) => Some((*address, change.balance?)),
            Change::Deleted => None,
        })
        .collect();
    assert_eq!(balances[&DRAINED], U256::ZERO);
    assert_eq!(balances[&REFUND], U256::from(1_000));
    // 116 accounts, most of them made empty by it, the refund and the miner.
    assert_eq!(replay.state().accounts().count(), 118);
}
