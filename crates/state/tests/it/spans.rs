//! Proofs over time beside those of each block.

use alloy_primitives::{Address, B256, U256};
use proptest::prelude::*;
use spinney_proof::mpt::{AccountFields, AccountProof};
use spinney_proof::span::{AccountSpan, AccountSpanWriter, Frames, FramesWriter, Period};
use spinney_state::{Changes, KeepHistory, State, StateRead};
use spinney_tree::{BlockId, MemoryStore};

use crate::textbook::{ADDRESSES, SLOTS, changes};

/// What a period says of each block.
fn each<T: Clone>(periods: &[Period<T>]) -> Vec<(u64, T)> {
    let all = |period: &Period<T>| {
        let value = period.value.clone();
        (period.first..=period.last).map(move |block| (block, value.clone())).collect::<Vec<_>>()
    };
    periods.iter().flat_map(all).collect()
}

fn span_of(proofs: &[AccountProof]) -> AccountSpan {
    let (first, rest) = proofs.split_first().unwrap();
    let mut writer = AccountSpanWriter::new(0, first);
    rest.iter().for_each(|proof| writer.push(proof).unwrap());
    writer.finish()
}

/// What there is after a block.
struct Then {
    root: B256,
    is_there: bool,
    proof: AccountProof,
}

impl Then {
    fn fields(&self) -> Option<AccountFields> {
        self.is_there.then_some(self.proof.fields)
    }
}

fn chain(blocks: &[Changes], address: Address, slots: &[B256]) -> Vec<Then> {
    let mut state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    state.keep_history(KeepHistory::All);
    for (number, changes) in blocks.iter().enumerate() {
        state.apply(changes).unwrap();
        state.seal(BlockId { number: number as u64, hash: [number as u8 + 1; 32] }).unwrap();
        state.commit().unwrap();
    }
    let at = |number: usize| {
        let kept = state.at(number as u64).unwrap();
        let is_there = kept.account(address).unwrap().is_some();
        Then { root: kept.root(), is_there, proof: kept.prove(address, slots).unwrap() }
    };
    (0..blocks.len()).map(at).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_span_says_what_the_proofs_of_its_blocks_say(
        blocks in prop::collection::vec(prop_oneof![1 => Just(Changes::default()), 2 => changes()], 1..14),
        account in 0..ADDRESSES,
        slots in prop::collection::btree_set(0..SLOTS, 0..4),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let address = Address::with_last_byte(account);
        let slots: Vec<_> = slots.into_iter().map(B256::with_last_byte).collect();
        let then = chain(&blocks, address, &slots);
        let proofs: Vec<_> = then.iter().map(|then| then.proof.clone()).collect();
        let span = span_of(&proofs);
        let trusts = |block: u64, root: &[u8; 32]| {
            then.get(block as usize).is_some_and(|then| then.root.0 == *root)
        };
        let verified = span.verify(trusts).unwrap();
        let expected: Vec<_> = (0..).zip(then.iter().map(Then::fields)).collect();
        prop_assert_eq!(each(verified.account()), expected);
        for pair in verified.account().windows(2) {
            prop_assert_ne!(&pair[0].value, &pair[1].value);
        }
        for (place, slot) in slots.iter().enumerate() {
            let values = proofs.iter().map(|proof| proof.storage_proof[place].value);
            let expected: Vec<_> = (0..).zip(values).collect();
            prop_assert_eq!(each(verified.slot(slot).unwrap()), expected);
        }
        prop_assert!(verified.slot(&[0xee; 32]).is_err());

        // No byte can be another one, none can lack, and the blocks are these.
        let mut changed = span.clone();
        let parts = 1 + changed.storage.len();
        let part = at.index(parts);
        let bytes = match part.checked_sub(1) {
            None => &mut changed.account,
            Some(slot) => &mut changed.storage[slot],
        };
        let byte = at.index(bytes.len());
        bytes[byte] ^= flip;
        prop_assert!(changed.verify(trusts).is_err(), "byte {byte} of part {part}");
        let mut short = span.clone();
        short.account.truncate(at.index(short.account.len()));
        prop_assert!(short.verify(trusts).is_err());
        for (first, last) in [(0, span.last + 1), (1, span.last + 1), (1, 0), (0, u64::MAX)] {
            let moved = AccountSpan { first, last, ..span.clone() };
            prop_assert!(moved.verify(trusts).is_err());
        }
        // What shows that an account is absent may show that of another one.
        let other = Address::with_last_byte(account ^ 1);
        let of_other = AccountSpan { address: other.into_array(), ..span };
        if let Ok(verified) = of_other.verify(trusts) {
            let then = chain(&blocks, other, &slots);
            let expected: Vec<_> = (0..).zip(then.iter().map(Then::fields)).collect();
            prop_assert_eq!(each(verified.account()), expected);
        }
    }

    #[test]
    fn frames_are_read_as_they_were_written_and_in_no_other_way(
        lists in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(0..3_u8, 0..40), 0..5), 0..8,
        ),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
        foreign in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut writer = FramesWriter::new();
        lists.iter().for_each(|items| writer.push(items));
        let bytes = writer.finish();
        let read = |bytes: &[u8]| {
            let (mut frames, mut lists) = (Frames::new(bytes), Vec::new());
            while let Some(frame) = frames.next()? {
                // A number of blocks that was made up is not followed.
                (0..frame.blocks.min(20)).for_each(|_| lists.push(frame.items.clone()));
            }
            Ok::<_, spinney_proof::span::BadFrame>(lists)
        };
        prop_assert_eq!(read(&bytes), Ok(lists));
        // Whatever is read is what is written.
        let mut changed = bytes;
        if !changed.is_empty() {
            let place = at.index(changed.len());
            changed[place] ^= flip;
        }
        for bytes in [changed, foreign] {
            let mut frames = Frames::new(&bytes);
            let (mut writer, mut whole) = (FramesWriter::new(), true);
            while let Ok(Some(frame)) = frames.next() {
                whole &= frame.blocks < 1_000;
                (0..frame.blocks.min(1_000)).for_each(|_| writer.push(&frame.items));
            }
            if whole && frames.next() == Ok(None) {
                prop_assert_eq!(writer.finish(), bytes);
            }
        }
    }
}

#[test]
fn what_stays_is_said_once() {
    let account = |storage: &[(u8, u64)]| {
        let storage =
            storage.iter().map(|(slot, value)| (B256::with_last_byte(*slot), U256::from(*value)));
        let change = spinney_state::AccountChange {
            nonce: Some(1),
            storage: storage.collect(),
            ..Default::default()
        };
        spinney_state::Change::Written(change)
    };
    let changes = |of: u8, storage: &[(u8, u64)]| Changes {
        accounts: [(Address::with_last_byte(of), account(storage))].into(),
    };
    let many: Vec<_> = (0..=255).map(|slot| (slot, 7)).collect();
    // Another account changes in each block, and the slot in one of ten.
    let mut blocks = vec![changes(0, &many)];
    for number in 1..=200_u64 {
        blocks.push(match number % 10 {
            0 => changes(0, &[(3, number)]),
            _ => changes(1, &[(number as u8, number)]),
        });
    }
    let (address, slot) = (Address::with_last_byte(0), B256::with_last_byte(3));
    let then = chain(&blocks, address, &[slot]);
    let proofs: Vec<_> = then.iter().map(|then| then.proof.clone()).collect();
    let span = span_of(&proofs);
    let verified = span.verify(|block, root| then[block as usize].root.0 == *root).unwrap();
    assert_eq!(verified.slot(&slot).unwrap().len(), 21);
    assert_eq!(verified.account().len(), 21);
    let nodes = |proof: &AccountProof| {
        let slots = proof.storage_proof.iter().flat_map(|slot| slot.proof.nodes());
        proof.account_proof.nodes().iter().chain(slots).map(Vec::len).sum::<usize>()
    };
    let alone: usize = proofs.iter().map(nodes).sum();
    let together = span.account.len() + span.storage[0].len();
    assert!(together * 10 < alone, "{together} bytes beside {alone}");
}
