//! A reader beside a state that goes on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use alloy_primitives::{Address, B256, U256};
use spinney_state::{AccountChange, Change, Changes, State, StateRead};
use spinney_tree::{BlockId, MemoryStore};

const ACCOUNTS: u64 = 300;

fn address(n: u64) -> Address {
    Address::left_padding_from(&n.to_be_bytes())
}

/// Each block writes its number into every account, and into a slot of each; every third makes the
/// account of its number anew.
fn block(number: u64) -> Changes {
    let change = |n| {
        let change = AccountChange {
            fresh: number.is_multiple_of(3) && n == number % ACCOUNTS,
            nonce: Some(number),
            balance: Some(U256::from(number)),
            storage: [(B256::ZERO, U256::from(number))].into(),
            ..AccountChange::default()
        };
        (address(n), Change::Written(change))
    };
    Changes { accounts: (0..ACCOUNTS).map(change).collect() }
}

/// What a reader answers is of the last commit that it knew to be there, or of a later one; and
/// never goes back.
#[test]
fn readers_see_commits_in_their_order() {
    // A tiny cache makes pages be read again.
    for cache_bytes in [1, 1 << 24] {
        let store = MemoryStore::new();
        let mut state = State::open(&store, cache_bytes).unwrap();
        state.apply(&block(1)).unwrap();
        state.seal(BlockId { number: 1, hash: [1; 32] }).unwrap();
        state.commit().unwrap();
        let (committed, over) = (AtomicU64::new(1), AtomicBool::new(false));
        let readers: Vec<_> = (0..3).map(|_| state.reader().unwrap()).collect();
        let (committed, over) = (&committed, &over);
        thread::scope(|scope| {
            for (at, reader) in readers.into_iter().enumerate() {
                scope.spawn(move || {
                    let (mut last, mut n) = (1, at as u64);
                    while !over.load(Ordering::Acquire) {
                        let least = committed.load(Ordering::Acquire);
                        if n.is_multiple_of(7) {
                            let block = reader.refresh().expect("there is one").number;
                            assert!(
                                block >= least && block >= last,
                                "{block} after {least}, {last}"
                            );
                            last = block;
                        }
                        n += 1;
                        let address = address(n % ACCOUNTS);
                        let nonce = reader.account(address).unwrap().expect("it is there").nonce;
                        assert!(nonce >= last, "{nonce} after {last}");
                        let slot = reader.storage(address, B256::ZERO).unwrap();
                        assert!(slot >= U256::from(nonce), "{slot} after {nonce}");
                        last = slot.to::<u64>();
                        assert!(reader.account(Address::repeat_byte(9)).unwrap().is_none());
                    }
                    assert!(last > 1, "it saw no commit");
                });
            }
            for number in 2..60 {
                state.apply(&block(number)).unwrap();
                state.seal(BlockId { number, hash: [number as u8; 32] }).unwrap();
                if number.is_multiple_of(2) {
                    state.commit().unwrap();
                    committed.store(number, Ordering::Release);
                }
            }
            over.store(true, Ordering::Release);
        });
    }
}

#[test]
fn a_reader_sees_what_was_taken_back() {
    let store = MemoryStore::new();
    let mut state = State::open(&store, 1 << 20).unwrap();
    let reader = state.reader().expect("mpt is there");
    assert_eq!(reader.refresh(), None);
    for number in 1..4 {
        state.apply(&block(number)).unwrap();
        state.seal(BlockId { number, hash: [number as u8; 32] }).unwrap();
        state.commit().unwrap();
    }
    // An earlier commit is an answer as long as it can be read.
    assert_eq!(reader.account(address(1)).unwrap(), None);
    assert_eq!(reader.refresh().unwrap().number, 3);
    assert_eq!(reader.account(address(1)).unwrap().unwrap().nonce, 3);
    state.unwind_to(2).unwrap();
    assert_eq!(reader.refresh().unwrap().number, 2);
    assert_eq!(reader.account(address(1)).unwrap().unwrap().nonce, 2);
    assert_eq!(reader.storage(address(1), B256::ZERO).unwrap(), U256::from(2));
}
