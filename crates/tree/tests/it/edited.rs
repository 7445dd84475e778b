//! Batches that put values in the places of others of their length, some with operations of other
//! kinds among them, beside rebuilds.

use spinney_tree::Scheme;
use spinney_tree::mpt::{Mpt, MptState, account_value, slot_value};
use spinney_tree::sum::Sum;

use crate::binary::{PBT, UBT};
use crate::model::{Bench, Op, apply, pages, rebuild};
use crate::patched::{Random, stem};

const ENTRIES: usize = 800;
const ROUNDS: usize = 30;
const SPLIT_OPS: usize = 1_000;

/// A value of the same length as a key's, nearly always another one; an account and a slot stay
/// such.
pub(crate) fn other(random: &mut Random, old: &[u8]) -> Vec<u8> {
    let mut value = old.to_vec();
    let last = value.len() - 1;
    value[last] = 1 + random.below(100) as u8;
    value
}

/// Histories over the entries that `entry` draws.
fn histories<S: Scheme + Clone>(scheme: S, entry: impl Fn(&mut Random) -> Vec<Op>) {
    let mut random = Random(11);
    let mut bench = Bench::new(scheme.clone(), 1 << 20);
    // Where there are many threads, a batch that is split over them is not one of edits.
    bench.tree.split_batches_from(SPLIT_OPS);
    let mut entries = 0;
    for count in [1, 1, 30, ENTRIES] {
        // From one entry on, and from a tree of few pages.
        let ops: Vec<Op> = (entries..count).flat_map(|_| entry(&mut random)).collect();
        entries = count;
        apply(&ops, &mut bench.entries);
        let pending = bench.prepare(None, &ops);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        for round in 0..ROUNDS {
            let keys: Vec<Vec<u8>> = bench.entries.keys().cloned().collect();
            let draw = |random: &mut Random, most: usize| -> Vec<Op> {
                let put = |random: &mut Random| {
                    let key = &keys[random.below(keys.len())];
                    Op::Put(key.clone(), other(random, &bench.entries[key]))
                };
                (0..1 + random.below(most)).map(|_| put(random)).collect()
            };
            let most = [1, 3, 100][random.below(3)];
            let mut ops = draw(&mut random, most);
            if round % 3 == 2 {
                // Beside the edits what makes nodes: keys that come and go, and a value of another
                // length.
                ops.extend(entry(&mut random));
                let key = &keys[random.below(keys.len())];
                let owns =
                    keys.iter().any(|other| other.len() > key.len() && other.starts_with(key));
                if !owns && keys.len() > 2 {
                    ops.retain(|op| !matches!(op, Op::Put(other, _) if other.starts_with(key)));
                    ops.push(Op::Delete(key.clone()));
                }
                let key = &keys[random.below(keys.len())];
                if let Some(Op::Put(fresh, value)) = entry(&mut random).pop()
                    && fresh.len() == key.len()
                    && !ops.iter().any(|op| matches!(op, Op::Delete(gone) if gone == key))
                {
                    ops.push(Op::Put(key.clone(), value));
                }
            }
            if round % 5 == 4
                && let key = &keys[random.below(keys.len())]
                && let Some(Op::Put(fresh, value)) = entry(&mut random).pop()
                && fresh.len() == key.len()
            {
                // Alone, and of another length, if they have any.
                ops = vec![Op::Put(key.clone(), value)];
            }
            let above = if round % 4 == 0 { draw(&mut random, 3) } else { Vec::new() };
            // Nothing is resident; then all is, so that batches come to pages that they know.
            if let Some(cache_bytes) = [(0, 1 << 12), (4, 1 << 20)]
                .iter()
                .find_map(|&(first, bytes)| (round % 20 == first).then_some(bytes))
            {
                bench.reopen(cache_bytes);
                bench.tree.split_batches_from(SPLIT_OPS);
            }
            let pending = bench.prepare(None, &ops);
            apply(&ops, &mut bench.entries);
            if round % 8 == 1 {
                bench.check_entries(Some(&pending), &bench.entries);
            }
            // A batch upon one that edits pages.
            let stacked = bench.prepare(Some(&pending), &above);
            apply(&above, &mut bench.entries);
            let last = if above.is_empty() { &pending } else { &stacked };
            bench.tree.commit(&bench.store, last, None).unwrap();
            // It stands on what is committed now.
            let same = bench.prepare(Some(last), &[]);
            let (fresh, root) = rebuild(&scheme, &bench.entries);
            assert_eq!(last.root(), root, "{count} entries, round {round}: {ops:?}, {above:?}");
            assert_eq!((bench.tree.root(), same.root()), (root, root));
            let rows = pages(&bench.tree, &bench.snapshot());
            assert!(rows == fresh, "rows, {count} entries, round {round}: {ops:?}, {above:?}");
        }
        let root = bench.tree.root();
        bench.check(&root);
    }
}

/// Batches of thousands of edits, more than are walked together, of trees of some levels of pages,
/// read anew and resident; in every other of them operations that lead astray.
fn crowded<S: Scheme + Clone>(scheme: S, entries: usize, entry: impl Fn(&mut Random) -> Vec<Op>) {
    const EDITS: usize = 5_000;
    let mut random = Random(12);
    let mut bench = Bench::new(scheme.clone(), 1 << 26);
    let ops: Vec<Op> = (0..entries).flat_map(|_| entry(&mut random)).collect();
    apply(&ops, &mut bench.entries);
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    bench.reopen(1 << 26);
    bench.tree.split_batches_from(usize::MAX);
    for round in 0..4 {
        let mut ops: Vec<Op> = Vec::new();
        for (key, value) in &bench.entries {
            // Some runs of keys close to each other, and single ones.
            let share = if key[0] < 0x20 { 90 } else { 30 };
            if ops.len() < EDITS && random.below(100) < share {
                ops.push(Op::Put(key.clone(), other(&mut random, value)));
            }
        }
        assert!(ops.len() > 2_000, "{} edits", ops.len());
        if round % 2 == 1 {
            (0..50.min(entries / 2))
                .for_each(|_| ops.extend(entry(&mut random).into_iter().take(3)));
        }
        let pending = bench.prepare(None, &ops);
        apply(&ops, &mut bench.entries);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        let (fresh, root) = rebuild(&scheme, &bench.entries);
        assert_eq!(pending.root(), root, "round {round}");
        assert!(pages(&bench.tree, &bench.snapshot()) == fresh, "rows, round {round}");
    }
}

#[test]
fn crowds_of_raw_keys() {
    crowded(Mpt, 12_000, |random| vec![Op::Put(random.path(32), random.bytes(78))]);
}

#[test]
fn crowds_of_accounts_and_slots() {
    crowded(MptState, 12_000, account);
}

#[test]
fn crowds_of_slots_of_few_accounts() {
    crowded(MptState, 3, |random| {
        let key = random.path(32);
        let mut ops = account(random);
        ops.truncate(1);
        if let Op::Put(whose, _) = &mut ops[0] {
            whose.clone_from(&key);
        }
        for _ in 0..2_500 {
            let value = slot_value(&random.bytes(32).try_into().unwrap());
            ops.push(Op::Put([&key[..], &random.path(32)].concat(), value));
        }
        ops
    });
}

#[test]
fn crowds_of_stems() {
    crowded(UBT, 12_000, stem);
}

#[test]
fn crowds_of_bits() {
    crowded(PBT, 12_000, |random| vec![Op::Put(random.path(32), random.bytes(32))]);
}

#[test]
fn raw_keys() {
    let long = |random: &mut Random| vec![Op::Put(random.path(32), random.bytes(78))];
    histories(Mpt, long);
}

#[test]
fn raw_keys_whose_nodes_stand_in_their_parents() {
    histories(Mpt, |random| {
        let (mut key, len) = (random.path(32), [1, 4, 40, 900][random.below(4)]);
        if random.below(20) == 0 {
            key.truncate(1 + random.below(3));
        }
        vec![Op::Put(key, random.bytes(len))]
    });
}

#[test]
fn accounts_and_slots() {
    histories(MptState, account);
}

/// An account, and slots of its storage.
fn account(random: &mut Random) -> Vec<Op> {
    let key = random.path(32);
    let word: [u8; 32] = random.bytes(32).try_into().unwrap();
    let account = account_value(random.next(), &[1; 32], &word);
    let mut ops = vec![Op::Put(key.clone(), account)];
    for _ in 0..[0, 0, 1, 2, 30][random.below(5)] {
        let value = slot_value(&random.bytes(32).try_into().unwrap());
        ops.push(Op::Put([&key[..], &random.path(32)].concat(), value));
    }
    ops
}

#[test]
fn stems() {
    histories(UBT, stem);
}

#[test]
fn sums_of_values_of_any_length() {
    // Never edits, but single puts that go straight down.
    histories(Sum::default(), |random| {
        let len = [1, 40, 300, 700][random.below(4)];
        vec![Op::Put(random.path(32), [&[0, 0, 0, 0, 0, 0, 0, 1], &random.bytes(len)[..]].concat())]
    });
}

#[test]
fn bits() {
    histories(PBT, |random| vec![Op::Put(random.path(32), random.bytes(32))]);
}

#[test]
fn a_put_upon_a_chain_of_made_branches_needs_no_deep_stack() {
    const STACK_BYTES: usize = 512 << 10;
    let work = || {
        let mut bench = Bench::new(Sum::default(), 1 << 20);
        let value = |sum| vec![0, 0, 0, 0, 0, 0, 0, sum];
        let key = |bit: usize| {
            let mut key = vec![0; 32];
            key[bit / 8] |= 1 << (bit % 8);
            key
        };
        // Each branches off the first a bit later.
        let mut ops: Vec<Op> = (0..256).map(|bit| Op::Put(key(bit), value(1))).collect();
        ops.push(Op::Put(vec![0; 32], value(1)));
        let first = bench.prepare(None, &ops);
        apply(&ops, &mut bench.entries);
        let ops = [Op::Put(vec![0; 32], value(2))];
        let second = bench.prepare(Some(&first), &ops);
        apply(&ops, &mut bench.entries);
        assert_eq!(second.root(), rebuild(&Sum::default(), &bench.entries).1);
    };
    let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    thread.unwrap().join().unwrap();
}
