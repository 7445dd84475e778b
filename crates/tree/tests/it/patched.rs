//! Trees of many pages under histories of small batches, most of which change values: branches that are
//! patched in place, beside rebuilds. Roots and rows are the same.

use spinney_tree::Scheme;
use spinney_tree::mpt::{Mpt, MptState, account_value, slot_value};
use spinney_tree::verkle::Verkle;

use crate::binary::{PBT, UBT};
use crate::model::{Bench, Op, apply, batch, pages, rebuild};

/// Enough for pages below pages, and for groups.
const ENTRIES: usize = 1_500;
const ROUNDS: usize = 100;

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

#[test]
fn raw_keys() {
    histories(Mpt, |random| {
        let (mut key, len) = (random.path(32), [4, 40, 78, 300, 900][random.below(5)]);
        if random.below(20) == 0 {
            key.truncate(1 + random.below(3));
        }
        vec![Op::Put(key, random.bytes(len))]
    });
}

#[test]
fn accounts_and_slots() {
    histories(MptState, |random| {
        let key = random.path(32);
        let word: [u8; 32] = random.bytes(32).try_into().unwrap();
        let account = account_value(random.next(), &[1; 32], &word);
        let mut ops = vec![Op::Put(key.clone(), account)];
        for _ in 0..[0, 0, 0, 1, 2, 30][random.below(6)] {
            let value = slot_value(&random.bytes(32).try_into().unwrap());
            ops.push(Op::Put([&key[..], &random.path(32)].concat(), value));
        }
        ops
    });
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
fn stems_that_follow_differences() {
    histories(Verkle::shared(), stem);
}

#[test]
fn bits() {
    histories(PBT, |random| vec![Op::Put(random.path(32), random.bytes(32))]);
}
