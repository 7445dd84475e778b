//! Many threads that prepare batches on one tree while pages come and go, and states whose pages
//! went before they are staged, beside rebuilds.

use std::thread;

use spinney_tree::mpt::{Mpt, MptState, account_value, slot_value};
use spinney_tree::{Pending, Scheme};

use crate::binary::{PBT, UBT};
use crate::edited::other;
use crate::model::{Bench, Entries, Op, apply, pages, rebuild, same_rows};
use crate::patched::{Random, stem};

/// At least so many: enough for pages below pages, and for buckets.
const ENTRIES: usize = 1_200;
const CACHES: [usize; 4] = [1, 4 << 10, 64 << 10, 1 << 30];
const THREADS: u64 = 4;
const BATCHES: usize = 3;
const ROUNDS: u64 = 2;
/// No batch is split over the threads: then it is not one of edits.
const SPLIT_OPS: usize = 1_000;

/// Values in the places of others; now and then among them a key that comes, one that goes, or a
/// value of another length.
fn draw(
    random: &mut Random,
    entries: &Entries,
    keys: &[Vec<u8>],
    entry: &impl Fn(&mut Random) -> Vec<Op>,
) -> Vec<Op> {
    let most = [1, 3, 60, 700][random.below(4)];
    let mut ops = Vec::new();
    for _ in 0..1 + random.below(most) {
        let key = &keys[random.below(keys.len())];
        ops.push(Op::Put(key.clone(), other(random, &entries[key])));
    }
    if random.below(2) == 0 {
        ops.extend(entry(random));
        let key = &keys[random.below(keys.len())];
        if !keys.iter().any(|other| other.len() > key.len() && other.starts_with(key)) {
            ops.retain(|op| !matches!(op, Op::Put(put, _) if put.starts_with(key)));
            ops.push(Op::Delete(key.clone()));
        }
        let key = &keys[random.below(keys.len())];
        if let Some(Op::Put(fresh, value)) = entry(random).pop()
            && fresh.len() == key.len()
            && !ops.iter().any(|op| matches!(op, Op::Delete(gone) if gone == key))
        {
            ops.push(Op::Put(key.clone(), value));
        }
    }
    ops
}

/// A tree of some entries that `entry` draws, with nothing resident.
fn grown<S: Scheme + Clone>(
    scheme: S,
    (random, count): (&mut Random, usize),
    cache_bytes: usize,
    entry: &impl Fn(&mut Random) -> Vec<Op>,
) -> Bench<S> {
    let (mut bench, mut ops) = (Bench::new(scheme, 1 << 20), Vec::new());
    while ops.len() < count {
        ops.extend(entry(random));
    }
    apply(&ops, &mut bench.entries);
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    bench.reopen(cache_bytes);
    bench.tree.split_batches_from(SPLIT_OPS);
    bench
}

/// Reads all that is committed: what was resident before goes, where there is little room.
fn read_all<S: Scheme + Clone>(bench: &Bench<S>) {
    let snapshot = bench.snapshot();
    for (key, value) in &bench.entries {
        let read = bench.tree.get(&snapshot, None, key).unwrap();
        assert_eq!(read.as_deref(), Some(&value[..]));
    }
}

/// A thread's batches, each of which has the root of a rebuild, while it reads what others may have
/// evicted.
fn prepare_some<S: Scheme + Clone>(
    scheme: &S,
    bench: &Bench<S>,
    seed: u64,
    entry: &impl Fn(&mut Random) -> Vec<Op>,
) -> Vec<(Pending<S>, Entries)> {
    let mut random = Random(seed);
    let keys: Vec<Vec<u8>> = bench.entries.keys().cloned().collect();
    let mut made = Vec::new();
    for _ in 0..BATCHES {
        let ops = draw(&mut random, &bench.entries, &keys, entry);
        let mut entries = bench.entries.clone();
        apply(&ops, &mut entries);
        let mut pending = bench.prepare(None, &ops);
        assert_eq!(pending.root(), rebuild(scheme, &entries).1, "{ops:?}");
        for _ in 0..40 {
            let key = &keys[random.below(keys.len())];
            let (state, held) =
                [(None, &bench.entries), (Some(&pending), &entries)][random.below(40) / 39];
            let value = bench.tree.get(&bench.snapshot(), state, key).unwrap();
            assert_eq!(value.as_deref(), held.get(key).map(|value| &value[..]));
        }
        if random.below(4) == 0 {
            // One upon it.
            let keys: Vec<Vec<u8>> = entries.keys().cloned().collect();
            let ops = draw(&mut random, &entries, &keys, entry);
            pending = bench.prepare(Some(&pending), &ops);
            apply(&ops, &mut entries);
            assert_eq!(pending.root(), rebuild(scheme, &entries).1, "{ops:?}");
        }
        made.push((pending, entries));
    }
    made
}

fn crowds<S: Scheme + Clone + Sync>(scheme: S, entry: impl Fn(&mut Random) -> Vec<Op> + Sync)
where
    S::Root: Send,
{
    let mut random = Random(29);
    for cache_bytes in CACHES {
        let mut bench = grown(scheme.clone(), (&mut random, ENTRIES), cache_bytes, &entry);
        for round in 0..ROUNDS {
            let mut made: Vec<(Pending<S>, Entries)> = thread::scope(|scope| {
                let (scheme, bench, entry) = (&scheme, &bench, &entry);
                let start = |thread| {
                    scope.spawn(move || prepare_some(scheme, bench, 100 * round + thread, entry))
                };
                let threads: Vec<_> = (0..THREADS).map(start).collect();
                threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
            });
            read_all(&bench);
            let (pending, entries) = made.swap_remove(random.below(made.len()));
            bench.tree.commit(&bench.store, &pending, None).unwrap();
            bench.entries = entries;
            let (fresh, root) = rebuild(&scheme, &bench.entries);
            assert_eq!(bench.tree.root(), root);
            same_rows(&pages(&bench.tree, &bench.snapshot()), &fresh);
            // The others stand on a commit that is no more.
            let (stale, _) = &made[0];
            assert!(bench.tree.commit(&bench.store, stale, None).is_err());
        }
    }
}

/// One batch at a time, prepared where there is room, staged when its pages went or came again.
fn waits<S: Scheme + Clone>(scheme: S, entry: impl Fn(&mut Random) -> Vec<Op>) {
    const CACHE_BYTES: usize = 80 << 10;
    let mut random = Random(31);
    let mut bench = grown(scheme.clone(), (&mut random, 3 * ENTRIES), CACHE_BYTES, &entry);
    for round in 0..12 {
        bench.reopen(CACHE_BYTES);
        bench.tree.split_batches_from(SPLIT_OPS);
        let keys: Vec<Vec<u8>> = bench.entries.keys().cloned().collect();
        let ops: Vec<Op> = (0..1 + round % 3)
            .map(|_| {
                let key = &keys[random.below(keys.len())];
                Op::Put(key.clone(), other(&mut random, &bench.entries[key]))
            })
            .collect();
        let pending = bench.prepare(None, &ops);
        read_all(&bench);
        assert!(bench.tree.resident_bytes() <= CACHE_BYTES);
        if round % 2 == 0 {
            // Other pages in the slots.
            let _ = bench.prepare(None, &ops);
        }
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        apply(&ops, &mut bench.entries);
        // Upon pages whose marks were taken up.
        let again = bench.prepare(None, &ops[..1]);
        let (fresh, root) = rebuild(&scheme, &bench.entries);
        assert_eq!((bench.tree.root(), again.root()), (root, root));
        same_rows(&pages(&bench.tree, &bench.snapshot()), &fresh);
    }
    let rows = pages(&bench.tree, &bench.snapshot());
    let bytes = rows.values().map(Vec::len).sum::<usize>();
    assert!(bytes > 2 * CACHE_BYTES);
}

fn long(random: &mut Random) -> Vec<Op> {
    vec![Op::Put(random.path(32), random.bytes(78))]
}

fn account(random: &mut Random) -> Vec<Op> {
    let key = random.path(32);
    let word: [u8; 32] = random.bytes(32).try_into().unwrap();
    let mut ops = vec![Op::Put(key.clone(), account_value(random.next(), &[1; 32], &word))];
    for _ in 0..[0, 0, 1, 2, 30][random.below(5)] {
        let value = slot_value(&random.bytes(32).try_into().unwrap());
        ops.push(Op::Put([&key[..], &random.path(32)].concat(), value));
    }
    ops
}

#[test]
fn raw_keys() {
    crowds(Mpt, long);
    waits(Mpt, long);
}

#[test]
fn values_of_many_lengths() {
    let entry = |random: &mut Random| {
        let (mut key, len) = (random.path(32), [1, 4, 40, 900][random.below(4)]);
        if random.below(20) == 0 {
            key.truncate(1 + random.below(3));
        }
        vec![Op::Put(key, random.bytes(len))]
    };
    crowds(Mpt, entry);
}

#[test]
fn accounts_and_slots() {
    crowds(MptState, account);
    waits(MptState, account);
}

#[test]
fn stems() {
    crowds(UBT, stem);
    waits(UBT, stem);
}

#[test]
fn bits() {
    let entry = |random: &mut Random| vec![Op::Put(random.path(32), random.bytes(32))];
    crowds(PBT, entry);
    waits(PBT, entry);
}

#[test]
fn what_short_keys_lead_to_is_not_what_long_ones_do() {
    // Pages lie deeper than the keys that are asked for first are long.
    let (mut random, mut ops) = (Random(3), Vec::new());
    for _ in 0..6_000 {
        ops.push(Op::Put([&[0x5a; 8][..], &random.bytes(24)].concat(), random.bytes(78)));
    }
    let mut bench = Bench::new(Mpt, 1 << 24);
    apply(&ops, &mut bench.entries);
    let pending = bench.prepare(None, &ops);
    bench.tree.commit(&bench.store, &pending, None).unwrap();
    bench.reopen(1 << 24);
    bench.tree.split_batches_from(SPLIT_OPS);
    let mut ops: Vec<Op> = (0..17).map(|first| Op::Delete(vec![first])).collect();
    for (key, value) in bench.entries.iter().take(300) {
        ops.push(Op::Put(key.clone(), other(&mut random, value)));
    }
    let pending = bench.prepare(None, &ops);
    apply(&ops, &mut bench.entries);
    assert_eq!(pending.root(), rebuild(&Mpt, &bench.entries).1);
}

#[test]
fn pages_that_are_read_now_and_then_stay() {
    const CACHE_BYTES: usize = 1 << 20;
    const HOT: usize = 20;
    let bench = grown(Mpt, (&mut Random(37), 20_000), CACHE_BYTES, &long);
    let keys: Vec<&Vec<u8>> = bench.entries.keys().collect();
    let (snapshot, mut random) = (bench.snapshot(), Random(41));
    let pages_read = |keys: &mut dyn Iterator<Item = &Vec<u8>>| {
        let before = bench.tree.costs().pages_read;
        keys.for_each(|key| drop(bench.tree.get(&snapshot, None, key).unwrap()));
        bench.tree.costs().pages_read - before
    };
    let (mut cold, mut again) = (0, 0);
    for round in 0..200 {
        let hot = pages_read(&mut keys.iter().step_by(keys.len() / HOT).copied());
        cold += pages_read(&mut (0..10).map(|_| keys[random.below(keys.len())]));
        again += if round > 0 { hot } else { 0 };
    }
    // The others would fill the cache many times.
    assert!(cold > 1_000 && again <= cold / 100, "{again} of pages in use, {cold} of others");
}
