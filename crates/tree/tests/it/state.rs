//! The state trie as one path space against the textbook.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use spinney_hash::keccak256;
use spinney_tree::mpt::{MptState, account_value, reference, slot_value};
use spinney_tree::{Batch, Pending, TreeError};

use crate::model::{Bench, Entries, Op, apply};

/// What a batch does to an account.
#[derive(Clone, Debug)]
enum Act {
    Write(u8, u8, Vec<(u8, u8)>),
    Fresh(u8, u8, Vec<(u8, u8)>),
    Delete(u8),
}

fn account_key(account: u8) -> Vec<u8> {
    // Few accounts, some of whose paths share many nibbles.
    let mut key = vec![0x5a; 32];
    (key[0], key[15], key[31]) =
        (account & 0x30, account & 3, (account & 0xc4) | (account >> 3 & 1));
    key
}

fn slot_key(account: u8, slot: u8) -> Vec<u8> {
    let digest = if slot < 128 {
        keccak256(&[slot]).to_vec()
    } else {
        let mut near = vec![0xa5; 32];
        (near[3], near[31]) = (slot & 7, slot & 0x70);
        near
    };
    [account_key(account), digest].concat()
}

fn value(nonce: u8) -> Vec<u8> {
    let mut balance = [0; 32];
    balance[32 - usize::from(nonce % 32)..].fill(nonce);
    account_value(u64::from(nonce) << (nonce % 50), &balance, &[nonce; 32])
}

fn word(value: u8) -> Vec<u8> {
    let mut word = [0; 32];
    word[31 - usize::from(value % 32)] = value;
    slot_value(&word)
}

fn act() -> impl Strategy<Value = Act> {
    let slots = prop::collection::vec((any::<u8>(), 0u8..4), 0..12);
    prop_oneof![
        6 => (any::<u8>(), any::<u8>(), slots.clone()).prop_map(|(a, n, s)| Act::Write(a, n, s)),
        1 => (any::<u8>(), any::<u8>(), slots).prop_map(|(a, n, s)| Act::Fresh(a, n, s)),
        2 => any::<u8>().prop_map(Act::Delete),
    ]
}

/// At most one act an account, as operations on an existing state.
fn ops(acts: &[Act], entries: &Entries) -> Vec<Op> {
    let mut ops = Vec::new();
    let last: BTreeMap<_, _> = acts
        .iter()
        .map(|act| match act {
            Act::Write(a, ..) | Act::Fresh(a, ..) | Act::Delete(a) => (account_key(*a), act),
        })
        .collect();
    for (key, act) in last {
        let slots = |a: u8, slots: &[(u8, u8)]| {
            let put = |&(slot, v): &(u8, u8)| Op::Put(slot_key(a, slot), word(v));
            slots.iter().map(put).collect::<Vec<_>>()
        };
        match act {
            // Slots alone, where the account exists: it has to be committed anew all the same.
            Act::Write(a, n, s) if n % 2 == 0 && entries.contains_key(&key) => {
                ops.extend(slots(*a, s));
            }
            Act::Write(a, n, s) => {
                ops.push(Op::Put(key, value(*n)));
                ops.extend(slots(*a, s));
            }
            Act::Fresh(a, n, s) => {
                ops.push(Op::Clear(key.clone()));
                ops.push(Op::Put(key, value(*n)));
                ops.extend(slots(*a, s));
            }
            // Both ways to delete an account take its storage along.
            Act::Delete(a) if a % 2 == 0 => ops.push(Op::Clear(key)),
            Act::Delete(_) => ops.push(Op::Delete(key)),
        }
    }
    ops
}

fn apply_state(ops: &[Op], entries: &mut Entries) {
    let owners = ops.iter().filter_map(|op| match op {
        Op::Delete(key) if key.len() == 32 => Some(Op::Clear(key.clone())),
        _ => None,
    });
    let ops: Vec<_> = ops.iter().cloned().chain(owners).collect();
    apply(&ops, entries);
}

fn textbook(entries: &Entries) -> [u8; 32] {
    reference::state_root(&accounts(entries))
}

fn accounts(entries: &Entries) -> BTreeMap<Vec<u8>, reference::Account> {
    let mut accounts: BTreeMap<Vec<u8>, reference::Account> = BTreeMap::new();
    for (key, value) in entries {
        let account = accounts.entry(key[..32].to_vec()).or_default();
        if key.len() == 32 {
            account.value = value.clone();
        } else {
            account.storage.insert(key[32..].to_vec(), value.clone());
        }
    }
    accounts
}

/// The nodes on the paths of keys, of all at once and of each alone, are the textbook's.
fn check_paths(bench: &Bench<MptState>, state: Option<&Pending<MptState>>, entries: &Entries) {
    let snapshot = bench.snapshot();
    let accounts = accounts(entries);
    let leaves = reference::account_entries(&accounts);
    let nearly = (0..4).flat_map(|n| [account_key(n * 70), slot_key(n * 60, n * 50)]);
    let keys: Vec<_> = entries.keys().step_by(19).cloned().chain(nearly).collect();
    let nodes = |keys: &[&Vec<u8>]| -> Vec<Vec<u8>> {
        let (rlp, nodes) = bench.tree.path_nodes(&snapshot, state, keys).unwrap().into_parts();
        let check = |(range, digest): (Range<usize>, [u8; 32])| {
            assert_eq!(keccak256(&rlp[range.clone()]), digest);
            rlp[range].to_vec()
        };
        nodes.into_iter().map(check).collect()
    };
    let mut union = Vec::new();
    for key in &keys {
        let mut expected = reference::proof(&leaves, &key[..32]);
        if let (Some(account), [_, ..]) = (accounts.get(&key[..32]), &key[32..]) {
            expected.extend(reference::proof(&account.storage, &key[32..]));
        }
        assert_eq!(nodes(&[key]), expected);
        union.extend(expected);
    }
    let mut nodes = nodes(&keys.iter().collect::<Vec<_>>());
    // Two accounts may hold equal storage: then a node is there for each.
    nodes.sort();
    nodes.dedup();
    union.sort();
    union.dedup();
    assert_eq!(nodes, union);
}

proptest! {
    #[test]
    fn any_history_of_accounts_equals_the_textbook_and_a_rebuild(
        rounds in prop::collection::vec((prop::collection::vec(act(), 0..10), 0u8..10), 10),
    ) {
        let mut bench = Bench::new(MptState, 1 << 30);
        let mut pending = None;
        for (acts, chance) in &rounds {
            let ops = ops(acts, &bench.entries);
            let next = bench.prepare(pending.as_ref(), &ops);
            apply_state(&ops, &mut bench.entries);
            prop_assert_eq!(next.root(), textbook(&bench.entries));
            if chance % 4 == 0 {
                check_paths(&bench, Some(&next), &bench.entries);
            }
            if *chance < 3 {
                pending = Some(next);
                continue;
            }
            bench.tree.commit(&bench.store, &next, None).unwrap();
            pending = None;
            if *chance < 6 {
                bench.reopen(if *chance < 5 { 1 } else { 1 << 30 });
            }
            bench.check(&textbook(&bench.entries));
            if chance % 4 == 1 {
                check_paths(&bench, None, &bench.entries);
            }
        }
    }
}

#[test]
fn a_large_storage_goes_with_its_account() {
    let mut bench = Bench::new(MptState, 1 << 30);
    let slot = |i: u32| [account_key(1), keccak256(&i.to_be_bytes()).to_vec()].concat();
    let mut ops = vec![Op::Put(account_key(1), value(1)), Op::Put(account_key(0x10), value(2))];
    ops.extend((0..3_000).map(|i| Op::Put(slot(i), word(9))));
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    apply_state(&ops, &mut bench.entries);
    bench.check(&textbook(&bench.entries));
    bench.reopen(1);
    let ops = [Op::Delete(account_key(1))];
    let pending = bench.prepare(None, &ops);
    let stats = bench.tree.commit(&bench.store, &pending, None).unwrap();
    assert_eq!(stats.ranges_dropped, 2, "{stats:?}");
    assert_eq!(stats.rows_written, 1, "{stats:?}");
    apply_state(&ops, &mut bench.entries);
    bench.check(&textbook(&bench.entries));
}

#[test]
fn storage_without_an_account_is_refused() {
    let bench = Bench::new(MptState, 1 << 20);
    let mut batch = Batch::new();
    batch.put(&slot_key(1, 1), &word(1));
    let refused = bench.tree.prepare(&bench.snapshot(), None, batch).unwrap_err();
    assert!(matches!(refused, TreeError::Ownerless { owner_bytes: 32, .. }), "{refused}");
}

#[test]
fn malformed_accounts_and_slots_are_refused() {
    let bench = Bench::new(MptState, 1 << 20);
    for (key, value) in [
        (vec![1; 31], value(1)),
        (vec![1; 65], word(1)),
        (vec![1; 32], vec![]),
        (vec![1; 32], vec![0; 34]),
        (vec![1; 64], vec![0]),
        (vec![1; 64], vec![0x81, 0x05]),
    ] {
        let mut batch = Batch::new();
        batch.put(&key, &value);
        let refused = bench.tree.prepare(&bench.snapshot(), None, batch).unwrap_err();
        assert!(matches!(refused, TreeError::Refused { .. }), "{refused}");
    }
}

/// A batch that changes storages of hundreds of slots: accounts, and what becomes of them.
fn large() -> impl Strategy<Value = Vec<(u8, u8, u16, u16, u64)>> {
    let kind = 0_u8..8;
    let act =
        (0_u8..6, kind, 0_u16..300, prop_oneof![2 => 0_u16..4, 1 => 40_u16..160], any::<u64>());
    prop::collection::vec(act, 1..4)
}

fn large_ops(acts: &[(u8, u8, u16, u16, u64)], entries: &Entries) -> Vec<Op> {
    let acts: BTreeMap<u8, _> = acts.iter().map(|act| (act.0, act)).collect();
    let mut ops = Vec::new();
    for (account, (_, kind, start, count, seed)) in acts {
        let key = keccak256(&[account]).to_vec();
        if *kind == 0 {
            ops.push(Op::Clear(key));
            continue;
        }
        let clears = *kind == 1;
        if clears {
            ops.push(Op::Clear(key.clone()));
        }
        if clears || kind % 2 == 0 || !entries.contains_key(&key) {
            ops.push(Op::Put(key.clone(), value(*seed as u8)));
        }
        for slot in *start..start + count {
            let slot_key = [&key[..], &keccak256(&slot.to_be_bytes())].concat();
            let v = seed.rotate_left(u32::from(slot)) as u8;
            match v % 7 {
                0 | 1 if clears => continue,
                0 | 1 => ops.push(Op::Delete(slot_key)),
                _ => ops.push(Op::Put(slot_key, word(v | 1))),
            }
        }
    }
    ops
}

proptest! {
    /// Storages that have pages of their own come and go beside small ones, by states upon states.
    #[test]
    fn any_history_of_large_storages_equals_the_textbook(
        blocks in prop::collection::vec(prop::collection::vec(large(), 1..4), 1..5),
        cache in prop_oneof![Just(1_usize), Just(1 << 20)],
    ) {
        let mut bench = Bench::new(MptState, cache);
        for block in &blocks {
            let mut pending: Option<Pending<MptState>> = None;
            for acts in block {
                let ops = large_ops(acts, &bench.entries);
                let next = bench.prepare(pending.as_ref(), &ops);
                apply_state(&ops, &mut bench.entries);
                prop_assert_eq!(next.root(), textbook(&bench.entries), "before a commit");
                pending = Some(next);
            }
            bench.tree.commit(&bench.store, &pending.unwrap(), None).unwrap();
            bench.check(&textbook(&bench.entries));
        }
    }
}
