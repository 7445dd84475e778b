//! What blocks do: changes of few accounts with few slots and codes, so that they meet; now and
//! then many slots.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use fastrand::Rng;
use spinney_state::{AccountChange, Change, Changes};

pub(crate) const ADDRESSES: u8 = 6;

pub(crate) fn address(rng: &mut Rng) -> Address {
    Address::with_last_byte(rng.u8(0..ADDRESSES))
}

/// Slots at the edges of stems, groups and zones.
pub(crate) fn slot(rng: &mut Rng) -> B256 {
    let number = match rng.u8(0..5) {
        0 => U256::from(rng.u64(0..3)),
        1 => U256::from(rng.u64(62..66)),
        2 => U256::from(rng.u64(254..258)),
        3 => U256::MAX - U256::from(rng.u64(0..3)),
        _ => (U256::from(0xff) << 248) + U256::from(rng.u64(0..3)),
    };
    number.into()
}

/// Few codes, so that accounts share them: none, short, zeros, delegations, and now and then a long
/// one.
fn code(rng: &mut Rng) -> Bytes {
    let delegation = |target: u8| [&[0xef, 0x01, 0x00][..], &[target; 20]].concat();
    let code = match rng.u8(0..24) {
        0..4 => vec![],
        4..9 => vec![0x60, 0x01],
        9..12 => vec![0; 40],
        12..15 => delegation(7),
        15..18 => delegation(8),
        18..23 => vec![0x7f; 100],
        _ => [vec![0x5b; 31 * 127], vec![0x60; 70]].concat(),
    };
    code.into()
}

fn value(rng: &mut Rng) -> U256 {
    match rng.u8(0..7) {
        0 | 1 => U256::ZERO,
        2 => U256::from(rng.u64(1..3)),
        _ => U256::from(rng.u64(..)),
    }
}

/// So many slots that they have pages of their own, which go with the account.
fn many(rng: &mut Rng) -> Vec<(B256, U256)> {
    let start = rng.u64(0x1000..0x1200);
    (start..start + rng.u64(40..160)).map(|slot| (U256::from(slot).into(), value(rng))).collect()
}

fn change(rng: &mut Rng) -> Change {
    if rng.u8(0..7) == 0 {
        return Change::Deleted;
    }
    let code = (rng.u8(0..3) == 0).then(|| code(rng));
    let mut storage: BTreeMap<_, _> = (0..rng.u8(0..5)).map(|_| (slot(rng), value(rng))).collect();
    if rng.u8(0..16) == 0 {
        storage.extend(many(rng));
    }
    Change::Written(AccountChange {
        fresh: rng.u8(0..7) == 0,
        nonce: (rng.u8(0..8) > 0).then(|| rng.u64(0..4) << rng.u8(0..40)),
        balance: rng.bool().then(|| U256::from(rng.u128(..) >> rng.u8(0..128))),
        code_hash: code.as_ref().map(keccak256),
        code,
        storage,
    })
}

pub(crate) fn changes(rng: &mut Rng) -> Changes {
    let accounts = (0..rng.u8(0..4)).map(|_| (address(rng), change(rng))).collect();
    Changes { accounts }
}
