//! Rows of nodes, against all nodes of the leaves before and after, and against the textbook's RLP.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{B256, keccak256};
use spinney_tree::Operation;
use spinney_tree::mpt::{account_value, reference, slot_value};

use super::key::Key;
use super::layout::Layout;
use super::nodes::{NodeRows, Rows, row_key};

/// Numbers drawn from a seed.
struct Draw(B256);

impl Draw {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = keccak256(self.0);
        u64::from_be_bytes(self.0[..8].try_into().unwrap()) % most
    }
}

/// A key as the tree has them, of a few that share bits at many depths.
fn key(layout: Layout, draw: &mut Draw) -> Vec<u8> {
    let mut word = |parts: [u64; 3]| {
        let mut word = [0; 32];
        let [first, second, last] = parts.map(|most| draw.below(most) as u8);
        (word[0], word[1], word[31]) = (first * 0x51, second * 0x11, last);
        (word[20], word[30]) = (second, 0x80 * (last & 1));
        word
    };
    match layout {
        Layout::Mpt => {
            let account = keccak256(word([3, 4, 1])).to_vec();
            let slot = keccak256(word([2, 3, 2]));
            if word([2, 1, 1])[0] == 0 { account } else { [account, slot.to_vec()].concat() }
        }
        Layout::Ubt | Layout::Verkle => word([3, 4, 3]).to_vec(),
        Layout::Pbt => {
            let (zone, word) = ([0, 0xff][usize::from(word([2, 1, 1])[0] != 0)], word([3, 4, 3]));
            let stem = [&[zone], &word[..]].concat();
            if zone == 0 {
                [&stem[..], &[1]].concat()
            } else {
                [&stem[..], &word[..], &[2]].concat()
            }
        }
    }
}

fn value(layout: Layout, key: &[u8], draw: &mut Draw) -> Vec<u8> {
    let number = draw.below(3);
    let word = B256::left_padding_from(&(number << (20 * number)).max(1).to_be_bytes());
    match layout {
        Layout::Mpt if key.len() == 32 => account_value(number, &word.0, &[7; 32]),
        Layout::Mpt => slot_value(&word.0),
        _ => word.to_vec(),
    }
}

type Leaves = BTreeMap<Vec<u8>, Vec<u8>>;

enum Owned {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    DeletePrefix(Vec<u8>),
}

impl Owned {
    fn lend(&self) -> Operation<'_> {
        match self {
            Self::Put(key, value) => Operation::Put(key, value),
            Self::Delete(key) => Operation::Delete(key),
            Self::DeletePrefix(prefix) => Operation::DeletePrefix(prefix),
        }
    }

    fn apply(&self, leaves: &mut Leaves) {
        match self {
            Self::Put(key, value) => drop(leaves.insert(key.clone(), value.clone())),
            Self::Delete(key) => drop(leaves.remove(key)),
            Self::DeletePrefix(prefix) => leaves.retain(|key, _| !key.starts_with(prefix)),
        }
    }
}

/// Slots are there only with their account, as in a state.
fn draw_operations(layout: Layout, leaves: &Leaves, draw: &mut Draw) -> Vec<Owned> {
    let mut operations = Vec::new();
    for _ in 0..=draw.below(6) {
        let key = key(layout, draw);
        match draw.below(5) {
            0 if layout == Layout::Mpt => operations.push(Owned::DeletePrefix(key[..32].to_vec())),
            0 => operations.push(Owned::DeletePrefix(key[..draw.below(3) as usize + 1].to_vec())),
            1 if key.len() == 64 || layout != Layout::Mpt => operations.push(Owned::Delete(key)),
            _ => {
                if key.len() == 64 && !leaves.contains_key(&key[..32]) {
                    let account = key[..32].to_vec();
                    operations.push(Owned::Put(account.clone(), value(layout, &account, draw)));
                }
                let value = value(layout, &key, draw);
                operations.push(Owned::Put(key, value));
            }
        }
    }
    operations
}

fn all(rows: &Rows) -> NodeRows {
    let mut all = NodeRows::new();
    let mut add = |row, len| {
        assert_eq!(all.insert(row, len), None, "a row twice");
        Ok(())
    };
    rows.all(&mut add).unwrap();
    all
}

/// Rows with their nodes' lengths and the leaves below them.
fn contents(rows: &Rows, leaves: &Leaves) -> BTreeMap<Vec<u8>, (u32, Leaves)> {
    let below = |row: &[u8]| {
        let (bytes, last) = (row.len() - 1, usize::from(row[row.len() - 1]));
        let bits = 8 * bytes - (8 - last % 8) % 8;
        // What hangs below an account is the trie of its slots.
        let is_slots = rows.layout == Layout::Mpt && bits >= 256;
        let begins = |key: &[u8]| {
            (!is_slots || key.len() == 64)
                && 8 * key.len() >= bits
                && row_key(&Key::of(key), bits) == row
        };
        let found = leaves.iter().filter(|(key, _)| begins(key));
        found.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    all(rows).into_iter().map(|(row, len)| (row.clone(), (len, below(&row)))).collect()
}

#[test]
fn steps_are_what_differs() {
    for layout in [Layout::Mpt, Layout::Ubt, Layout::Pbt, Layout::Verkle] {
        let mut steps = 0;
        for seed in 0..60_u64 {
            let mut draw = Draw(keccak256(seed.to_be_bytes()));
            let (mut rows, mut leaves) = (Rows::new(layout), Leaves::new());
            let mut before = BTreeMap::new();
            for _ in 0..12 {
                let operations = draw_operations(layout, &leaves, &mut draw);
                operations.iter().for_each(|operation| operation.apply(&mut leaves));
                // A slot without an account is no state.
                let owned = |key: &[u8]| key.len() < 64 || leaves.contains_key(&key[..32]);
                if layout == Layout::Mpt && !leaves.keys().all(|key| owned(key)) {
                    break;
                }
                let step = rows.step(&mut operations.iter().map(Owned::lend));
                let after = contents(&rows, &leaves);
                let put = after.iter().filter(|(row, now)| before.get(*row) != Some(*now));
                let put: NodeRows = put.map(|(row, (len, _))| (row.clone(), *len)).collect();
                assert_eq!(step.put, put, "{layout:?}, seed {seed}");
                let gone = before.keys().filter(|row| !after.contains_key(*row)).cloned();
                assert_eq!(step.removed, gone.collect::<Vec<_>>(), "{layout:?}, seed {seed}");
                before = after;
                steps += 1;
            }
        }
        assert!(steps > 200, "{layout:?}: only {steps} steps were of a state");
    }
}

#[test]
fn nodes_of_a_trie_are_as_long_as_their_rlp() {
    let mut draw = Draw(B256::ZERO);
    let mut accounts: BTreeMap<Vec<u8>, reference::Account> = BTreeMap::new();
    let mut rows = Rows::new(Layout::Mpt);
    for number in 0..300 {
        let account = keccak256([number as u8, (number >> 8) as u8, 1]).to_vec();
        let fields = value(Layout::Mpt, &account, &mut draw);
        rows.fill(&mut [Operation::Put(&account, &fields)].into_iter());
        let entry = accounts.entry(account.clone()).or_default();
        entry.value = fields;
        for slot in 0..draw.below(4) * (number % 30) {
            let slot = keccak256([slot as u8]).to_vec();
            let value = slot_value(&B256::left_padding_from(&[1 + draw.below(200) as u8]).0);
            let key = [&account[..], &slot].concat();
            rows.fill(&mut [Operation::Put(&key, &value)].into_iter());
            entry.storage.insert(slot, value);
        }
    }
    let mut tries = vec![(Vec::new(), reference::account_entries(&accounts))];
    tries.extend(accounts.into_iter().map(|(key, account)| (key, account.storage)));
    let mut found = BTreeSet::new();
    for (owner, entries) in &tries {
        for key in entries.keys() {
            let expected: Vec<_> =
                reference::proof(entries, key).iter().map(|node| node.len() as u32).collect();
            let mut lens = Vec::new();
            rows.walk(&Key::of(&[&owner[..], key].concat()), |row, node| {
                assert!(node.leads_on);
                found.insert(row);
                lens.push(node.stays.0);
            });
            assert_eq!(lens, expected);
        }
    }
    assert!(found.into_iter().eq(all(&rows).into_keys()), "each row is on the way to a leaf");
}

#[test]
fn other_nodes_are_as_long_as_their_encodings_say() {
    let lens = |layout, keys: &[[u8; 32]]| {
        let mut rows = Rows::new(layout);
        rows.fill(&mut keys.iter().map(|key| Operation::Put(key, &[1; 32])));
        all(&rows).into_values().collect::<Vec<_>>()
    };
    let at = |first: u8, last: u8| {
        let mut key = [0; 32];
        (key[0], key[31]) = (first, last);
        key
    };
    // One stem, then two that part in their first bit, and two that do in their third: no bit is
    // skipped.
    assert_eq!(lens(Layout::Ubt, &[at(0, 0), at(0, 9)]), [128]);
    assert_eq!(lens(Layout::Ubt, &[at(0, 0), at(0x80, 9)]), [64, 96, 96]);
    assert_eq!(lens(Layout::Ubt, &[at(0, 0), at(0x20, 9)]), [64, 64, 64, 96, 96]);
    // The root is internal even over one stem; stems of one value, and of three.
    assert_eq!(lens(Layout::Verkle, &[at(0, 5)]), [97, 193]);
    assert_eq!(lens(Layout::Verkle, &[at(0, 0), at(0, 1), at(0, 2)]), [97, 256 + 96]);
    let mut rows = Rows::new(Layout::Verkle);
    let (basic, code) = (at(0, 0), at(0, 1));
    let nobody = alloy_primitives::KECCAK256_EMPTY;
    let leaves = [Operation::Put(&basic, &[1; 32]), Operation::Put(&code, &nobody.0)];
    rows.fill(&mut leaves.into_iter());
    assert_eq!(all(&rows).into_values().collect::<Vec<_>>(), [97, 192]);
    // Two leaves that share 7 bits, and 249.
    assert_eq!(lens(Layout::Pbt, &[at(2, 0), at(3, 0)]), [67 + 1, 65, 65]);
    assert_eq!(lens(Layout::Pbt, &[at(2, 0), at(2, 64)]), [67 + 32, 65, 65]);
}
