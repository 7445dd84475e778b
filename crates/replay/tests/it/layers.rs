//! Layers of changes on the engine's state, against the textbook's.

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::prelude::*;
use spinney_replay::{SealedBlock, TextbookState, WorldState};
use spinney_state::{AccountChange, Change, Changes, State, StateRead};
use spinney_tree::MemoryStore;

#[derive(Clone, Debug)]
enum Act {
    Apply(Changes),
    /// Takes back this many of the newest layers.
    Undo(usize),
    Commit,
}

fn address(n: u8) -> Address {
    Address::with_last_byte(n % 12)
}

fn change() -> impl Strategy<Value = Change> {
    let storage = prop::collection::btree_map(
        (0u8..40).prop_map(B256::with_last_byte),
        (0u64..3).prop_map(U256::from),
        0..8,
    );
    let nonce = prop::option::of(0u64..3);
    let code = prop::option::weighted(0.2, 0u8..4);
    let written = (any::<bool>(), nonce, prop::option::of(0u64..3), code, storage);
    let written = written.prop_map(|(fresh, nonce, balance, code, storage)| {
        let code = code.map(|n| Bytes::from(vec![n; usize::from(n) * 700]));
        Change::Written(AccountChange {
            fresh,
            nonce,
            balance: balance.map(U256::from),
            code_hash: code.as_ref().map(keccak256),
            code,
            storage,
        })
    });
    prop_oneof![1 => Just(Change::Deleted), 5 => written]
}

fn act() -> impl Strategy<Value = Act> {
    let changes = prop::collection::btree_map(any::<u8>().prop_map(address), change(), 0..6);
    prop_oneof![
        6 => changes.prop_map(|accounts| Act::Apply(Changes { accounts })),
        1 => (0usize..4).prop_map(Act::Undo),
        2 => Just(Act::Commit),
    ]
}

fn same(engine: &State<MemoryStore>, textbook: &TextbookState) {
    assert_eq!(engine.root(), textbook.root());
    for n in 0..12 {
        let account = engine.account(address(n)).unwrap();
        assert_eq!(account, textbook.account(address(n)).unwrap());
        for slot in (0..40).map(B256::with_last_byte) {
            let value = engine.storage(address(n), slot).unwrap();
            assert_eq!(value, textbook.storage(address(n), slot).unwrap());
        }
        if let Some(account) = account {
            let code = engine.code(account.code_hash).unwrap();
            assert_eq!(code, textbook.code(account.code_hash).unwrap());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn any_layers_equal_the_textbook(acts in prop::collection::vec(act(), 1..25)) {
        let mut engine = State::open(MemoryStore::new(), 1 << 20).unwrap();
        let mut textbook = TextbookState::new();
        for (number, act) in (1..).zip(&acts) {
            match act {
                Act::Apply(changes) => {
                    let root = WorldState::apply(&mut engine, changes).unwrap();
                    assert_eq!(root, textbook.apply(changes).unwrap());
                }
                Act::Undo(count) => {
                    let left = engine.layer_count().saturating_sub(*count);
                    WorldState::undo_to(&mut engine, left).unwrap();
                    textbook.undo_to(left).unwrap();
                }
                Act::Commit => {
                    let nothing = Changes::default();
                    let block = SealedBlock::new(number, None, engine.root(), &nothing);
                    WorldState::seal(&mut engine, &block).unwrap();
                    textbook.seal(&block).unwrap();
                    WorldState::commit(&mut engine).unwrap();
                    textbook.commit().unwrap();
                    assert_eq!(engine.check(|_| {}).unwrap(), []);
                }
            }
            same(&engine, &textbook);
        }
    }
}
