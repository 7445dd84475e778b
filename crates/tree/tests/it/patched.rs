//! Trees of many pages under histories of small batches, most of which change values: branches that
//! are patched in place, and pages that are copies with edits laid over them, beside rebuilds.
//! Roots and rows are the same.

use spinney_tree::Scheme;
use spinney_tree::mpt::{Mpt, MptState, account_value, slot_value};
use spinney_tree::verkle::Verkle;

use crate::binary::{PBT, UBT};
use crate::model::{Bench, Op, apply, batch, pages, rebuild, same_rows};

/// Enough for pages below pages, and for buckets.
const ENTRIES: usize = 1_000;
const ROUNDS: usize = 50;

/// Splitmix64 (Steele, Lea and Flood 2014).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Bytes that begin as few others do, or as many.
    pub(crate) fn path(&mut self, len: usize) -> Vec<u8> {
        let mut path = self.bytes(len);
        if self.below(3) == 0 {
            let alike = self.below(len - 1);
            path[..alike].fill(0x5a);
            path[alike] = [0, 1, 0x10, 0x80][self.below(4)];
        }
        path
    }
}

fn puts(op: &Op) -> &[u8] {
    match op {
        Op::Put(key, _) | Op::Delete(key) | Op::Clear(key) => key,
    }
}

/// Histories over the entries that `entry` draws.
fn histories<S: Scheme + Clone>(scheme: S, entry: impl Fn(&mut Random) -> Vec<Op>) {
    let mut random = Random(7);
    let mut bench = Bench::new(scheme.clone(), 1 << 20);
    let first: Vec<Op> = (0..ENTRIES).flat_map(|_| entry(&mut random)).collect();
    apply(&first, &mut bench.entries);
    let pending = bench.prepare(None, &first);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    for round in 0..ROUNDS {
        let keys: Vec<Vec<u8>> = bench.entries.keys().cloned().collect();
        let mut draw = |most: usize| -> Vec<Op> {
            let mut ops = Vec::new();
            for _ in 0..1 + random.below(most) {
                let key = keys[random.below(keys.len())].clone();
                match random.below(8) {
                    // An owner goes with what it owns.
                    0 if bench
                        .entries
                        .range(key.clone()..)
                        .nth(1)
                        .is_some_and(|next| next.0.starts_with(&key)) =>
                    {
                        ops.push(Op::Clear(key));
                    }
                    0 => ops.push(Op::Delete(key)),
                    1 if random.below(8) == 0 => ops.push(Op::Clear(key)),
                    // Another value for an old key, or an old value and thus no change.
                    2..6 => {
                        let fresh = entry(&mut random).pop();
                        let value = match fresh {
                            Some(Op::Put(other, value)) if other.len() == key.len() => value,
                            _ => bench.entries[&key].clone(),
                        };
                        ops.push(Op::Put(key, value));
                    }
                    _ => ops.extend(entry(&mut random)),
                }
            }
            // Slots of an account that goes along with them would be refused.
            let gone: Vec<Vec<u8>> = ops
                .iter()
                .filter(|op| !matches!(op, Op::Put(..)))
                .map(|op| puts(op).to_vec())
                .collect();
            ops.retain(|op| {
                !matches!(op, Op::Put(key, _) if gone.iter().any(|gone| key.starts_with(gone)))
            });
            ops
        };
        let most = if round % 10 == 0 { 60 } else { 2 };
        let (ops, above) = (draw(most), draw(2));
        let pending = bench.prepare(None, &ops);
        // What is refused (a slot whose account has just gone) changes nothing.
        let stacked = bench.tree.prepare(&bench.snapshot(), Some(&pending), batch(&above));
        bench.tree.commit(&bench.store, stacked.as_ref().unwrap_or(&pending), None).unwrap();
        apply(&ops, &mut bench.entries);
        if stacked.is_ok() {
            apply(&above, &mut bench.entries);
        }
        let (fresh, root) = rebuild(&scheme, &bench.entries);
        assert_eq!(bench.tree.root(), root, "round {round}: {ops:?}, {above:?}");
        let rows = pages(&bench.tree, &bench.snapshot());
        assert!(rows == fresh, "rows after round {round}: {ops:?}, {above:?}");
    }
    let root = bench.tree.root();
    bench.check(&root);
}

/// A tree whose rows are compared with a rebuild's after each commit.
struct Turns<S: Scheme, V> {
    bench: Bench<S>,
    random: Random,
    scheme: S,
    /// Draws another value for a key.
    value: V,
}

impl<S: Scheme + Clone, V: Fn(&mut Random, &[u8]) -> Vec<u8>> Turns<S, V> {
    fn commit(&mut self, ops: &[Op]) {
        let pending = self.bench.prepare(None, ops);
        self.bench.tree.commit(&self.bench.store, &pending, None).unwrap();
        apply(ops, &mut self.bench.entries);
        self.compare();
    }

    fn compare(&self) {
        let (fresh, root) = rebuild(&self.scheme, &self.bench.entries);
        assert_eq!(self.bench.tree.root(), root);
        same_rows(&pages(&self.bench.tree, &self.bench.snapshot()), &fresh);
    }

    fn key(&mut self) -> Vec<u8> {
        let keys = &self.bench.entries;
        keys.keys().nth(self.random.below(keys.len())).unwrap().clone()
    }

    /// A put of another value, as long as the one before or not; of the same one if none is drawn.
    fn other(&mut self, key: Vec<u8>, as_long: bool) -> Op {
        let old = &self.bench.entries[&key];
        let mut draws = (0..50).map(|_| (self.value)(&mut self.random, &key));
        let new = draws.find(|new| (new.len() == old.len()) == as_long);
        Op::Put(key, new.unwrap_or_else(|| old.clone()))
    }

    fn others(&mut self, count: usize) -> Vec<Op> {
        let keys: Vec<_> = (0..count).map(|_| self.key()).collect();
        keys.into_iter().map(|key| self.other(key, true)).collect()
    }

    /// What takes back puts.
    fn back(&self, ops: &[Op]) -> Vec<Op> {
        let put = |op| Op::Put(puts(op).to_vec(), self.bench.entries[puts(op)].clone());
        ops.iter().map(put).collect()
    }
}

/// Turns of batches that replace values: by others as long, by one that is longer or shorter, by
/// those before; with a key among them that goes and comes; and by what a state above takes back.
fn turns<S: Scheme + Clone>(
    scheme: S,
    entry: impl Fn(&mut Random) -> Vec<Op>,
    value: impl Fn(&mut Random, &[u8]) -> Vec<u8>,
) {
    let bench = Bench::new(scheme.clone(), 1 << 20);
    let mut turns = Turns { bench, random: Random(11), scheme, value };
    let first: Vec<Op> = (0..ENTRIES).flat_map(|_| entry(&mut turns.random)).collect();
    turns.commit(&first);
    for count in [1, 3, 40, 300] {
        let ops = turns.others(count);
        turns.commit(&ops);
        let (mut ops, key) = (turns.others(count), turns.key());
        ops.retain(|op| puts(op) != key);
        ops.push(turns.other(key, false));
        let back = turns.back(&ops);
        turns.commit(&ops);
        turns.commit(&back);
        let (mut ops, gone) = (turns.others(count), turns.key());
        // It goes with what it owns.
        ops.retain(|op| !puts(op).starts_with(&gone));
        let kept = turns.bench.entries.clone();
        let back = kept.range(gone.clone()..).take_while(|entry| entry.0.starts_with(&gone));
        let back: Vec<_> = back.map(|(key, value)| Op::Put(key.clone(), value.clone())).collect();
        ops.push(Op::Clear(gone));
        turns.commit(&ops);
        let ops = [turns.others(count / 2), back].concat();
        turns.commit(&ops);
        let new = entry(&mut turns.random);
        turns.commit(&new);
        // A state that another one takes back has nothing to write but its root page.
        let ops = turns.others(count);
        let back = turns.back(&ops);
        let bench = &mut turns.bench;
        let below = bench.prepare(None, &ops);
        let above = bench.prepare(Some(&below), &back);
        let stats = bench.tree.commit(&bench.store, &above, None).unwrap();
        assert!(stats.rows_written <= 1 && stats.rows_removed == 0, "{stats:?}");
        turns.compare();
    }
    let root = turns.bench.tree.root();
    turns.bench.check(&root);
}

fn raw_entry(random: &mut Random) -> Vec<Op> {
    let mut key = random.path(32);
    let value = raw_value(random);
    if random.below(20) == 0 {
        key.truncate(1 + random.below(3));
    }
    vec![Op::Put(key, value)]
}

fn raw_value(random: &mut Random) -> Vec<u8> {
    let len = [4, 40, 78, 300, 900][random.below(5)];
    random.bytes(len)
}

#[test]
fn raw_keys() {
    histories(Mpt, raw_entry);
}

#[test]
fn values_of_raw_keys() {
    turns(Mpt, raw_entry, |random, _| raw_value(random));
}

/// Nodes so short that parents hold them whole: what a branch commits to is as long as what is
/// below, and values of one byte have two lengths there.
#[test]
fn values_of_one_byte() {
    turns(
        Mpt,
        |random| vec![Op::Put(random.bytes(2), random.bytes(1))],
        |random, _| random.bytes(1),
    );
}

/// An account and its slots.
fn account(random: &mut Random) -> Vec<Op> {
    let key = random.path(32);
    let mut ops = vec![Op::Put(key.clone(), state_value(random, &key))];
    for _ in 0..[0, 0, 0, 1, 2, 30][random.below(6)] {
        let slot = [&key[..], &random.path(32)].concat();
        let value = state_value(random, &slot);
        ops.push(Op::Put(slot, value));
    }
    ops
}

fn state_value(random: &mut Random, key: &[u8]) -> Vec<u8> {
    let mut word: [u8; 32] = random.bytes(32).try_into().unwrap();
    if random.below(4) == 0 {
        word[0] = 0;
    }
    if key.len() == 32 { account_value(random.next(), &[1; 32], &word) } else { slot_value(&word) }
}

#[test]
fn accounts_and_slots() {
    histories(MptState, account);
}

#[test]
fn values_of_accounts_and_slots() {
    turns(MptState, account, state_value);
}

/// A stem of one value or more.
pub(crate) fn stem(random: &mut Random) -> Vec<Op> {
    let stem = random.path(31);
    let count = [1, 1, 2, 40][random.below(4)];
    let leaf =
        |random: &mut Random| Op::Put([&stem[..], &random.bytes(1)].concat(), random.bytes(32));
    (0..count).map(|_| leaf(random)).collect()
}

#[test]
fn stems() {
    histories(UBT, stem);
}

#[test]
fn values_of_stems() {
    turns(UBT, stem, |random, _| random.bytes(32));
}

#[test]
fn stems_that_follow_differences() {
    histories(Verkle::shared(), stem);
}

#[test]
fn values_of_stems_that_follow_differences() {
    turns(Verkle::shared(), stem, |random, _| random.bytes(32));
}

fn leaf(random: &mut Random) -> Vec<Op> {
    vec![Op::Put(random.path(32), random.bytes(32))]
}

#[test]
fn bits() {
    histories(PBT, leaf);
}

#[test]
fn values_of_bits() {
    turns(PBT, leaf, |random, _| random.bytes(32));
}
