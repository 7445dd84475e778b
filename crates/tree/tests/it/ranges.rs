//! Trees built from ranges of their leaves, against a tree that was built from them in one batch.

use proptest::prelude::*;
use spinney_tree::mpt::{Mpt, MptState, account_value, slot_value};
use spinney_tree::pbt::Pbt;
use spinney_tree::ranges::{Built, Ranges, Summary};
use spinney_tree::sum::{Profile, Sum};
use spinney_tree::ubt::Ubt;
use spinney_tree::{
    Batch, BlockId, HashFunction, MemoryStore, PageStore, Scheme, Snapshot, Table, Tree, TreeError,
    WriteSet,
};

use crate::model::{Entries, ID, pages, rebuild};

const RUN: [u8; 32] = [7; 32];

/// Page rows without generation and checksum.
fn bare(pages: Entries) -> Entries {
    pages.into_iter().map(|(key, row)| (key[8..].to_vec(), row[8..].to_vec())).collect()
}

/// Where ranges end, as shares of all leaves; `each` is a range a leaf.
fn cuts(leaves: usize, shares: &[u16], each: bool) -> Vec<usize> {
    let at = |share: &u16| leaves * usize::from(*share) / usize::from(u16::MAX);
    let mut cuts: Vec<_> =
        if each { (0..=leaves).collect() } else { shares.iter().map(at).collect() };
    cuts.extend([0, leaves]);
    cuts.sort_unstable();
    // Two that are equal make a range of no leaves.
    cuts
}

fn build<S: Scheme + Clone>(
    ranges: &Ranges<'_, S, MemoryStore>,
    leaves: &[(&Vec<u8>, &Vec<u8>)],
    (from, to): (usize, usize),
) -> Result<Built<S>, TreeError> {
    let key = |index: usize| &leaves[index].0[..];
    let mut builder = ranges.builder(from.checked_sub(1).map(key));
    for (key, value) in &leaves[from..to] {
        builder.push(key, value)?;
    }
    builder.finish((to < leaves.len()).then(|| key(to)))
}

/// Pieces in any order, their summaries through bytes with a tail: the tree of one batch.
fn ranges_make_the_tree<S: Scheme + Clone>(scheme: &S, entries: &Entries, cuts: &[usize]) {
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme.clone(), ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let leaves: Vec<_> = entries.iter().collect();
    let (ranges, resumed) = Ranges::begin(&mut tree, &store, RUN).unwrap();
    assert!(!resumed);
    let pieces: Vec<_> = cuts.windows(2).map(|pair| (pair[0], pair[1])).collect();
    let mut summaries = vec![None; pieces.len()];
    // Odd ones first, the last before the first.
    let order = (0..pieces.len()).rev().filter(|i| i % 2 == 1);
    for index in order.chain((0..pieces.len()).filter(|i| i % 2 == 0)) {
        let built = build(&ranges, &leaves, pieces[index]).unwrap();
        let mut set = WriteSet::new();
        built.put_rows(&mut set);
        store.commit(&set).unwrap();
        let mut bytes = Vec::new();
        built.summary.encode(&mut bytes);
        bytes.extend_from_slice(b"tail");
        summaries[index] = Some(bytes);
    }
    let mut join = ranges.join();
    for bytes in summaries.into_iter().flatten() {
        let (summary, tail) = Summary::decode(scheme, &bytes).unwrap();
        let mut again = Vec::new();
        summary.encode(&mut again);
        assert_eq!((&again[..], tail), (&bytes[..bytes.len() - 4], &b"tail"[..]));
        join.add(summary).unwrap();
    }
    let mut set = WriteSet::new();
    let root = join.finish(&mut set).unwrap();
    let block = Some(BlockId { number: 9, hash: [9; 32] });
    ranges.finish(root, block, set).unwrap();

    let (expected, expected_root) = rebuild(scheme, entries);
    assert_eq!(tree.root(), expected_root);
    let reopened = Tree::open(scheme.clone(), ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    for tree in [&tree, &reopened] {
        assert_eq!((tree.root(), tree.block()), (expected_root, block));
        assert_eq!(bare(pages(tree, &store.snapshot().unwrap())), bare(expected.clone()));
    }
    // And it goes on from there.
    let mut batch = Batch::new();
    for key in entries.keys().step_by(2) {
        batch.delete(key);
    }
    if S::LAYOUT.owner.is_none() {
        let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
        tree.commit(&store, &pending, None).unwrap();
        let rest: Entries =
            entries.iter().skip(1).step_by(2).map(|(k, v)| (k.clone(), v.clone())).collect();
        assert_eq!(tree.root(), rebuild(scheme, &rest).1);
    }
}

/// Keys that share prefixes, and begin one another; values up to some overflow rows.
fn raw() -> impl Strategy<Value = Entries> {
    let byte = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x11, 0xff]);
    let key = prop_oneof![
        prop::collection::vec(byte.clone(), 0..5),
        prop::collection::vec(byte, 60..200),
        any::<[u8; 4]>().prop_map(|key| key.to_vec()),
    ];
    let value = prop_oneof![
        8 => Just(vec![1]),
        8 => prop::collection::vec(any::<u8>(), 1..80),
        1 => prop::collection::vec(any::<u8>(), 200..9_000),
    ];
    prop::collection::btree_map(key, value, 0..80)
}

fn state() -> impl Strategy<Value = Entries> {
    let digest = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x11, 0xff]).prop_flat_map(|a| {
        (any::<bool>(), any::<u8>()).prop_map(move |(deep, b)| {
            let mut key = [0x5a; 32];
            (key[0], key[if deep { 31 } else { 1 }]) = (a, b);
            key
        })
    });
    let slots = prop::collection::btree_map(digest.clone(), 1u8..9, 0..60);
    let accounts = prop::collection::btree_map(digest, (any::<u64>(), slots), 0..40);
    accounts.prop_map(|accounts| {
        let mut leaves = Entries::new();
        for (key, (nonce, slots)) in accounts {
            leaves.insert(key.to_vec(), account_value(nonce, &[1; 32], &[2; 32]));
            for (slot, value) in slots {
                let mut word = [0; 32];
                word[31] = value;
                leaves.insert([key, slot].concat(), slot_value(&word));
            }
        }
        leaves
    })
}

/// Few stems, so that pieces end within them.
fn stems() -> impl Strategy<Value = Entries> {
    let stem = prop::sample::select(vec![0x00u8, 0x01, 0x10, 0x80]);
    let key = (stem.clone(), stem, any::<u8>()).prop_map(|(a, b, place)| {
        let mut key = vec![0x5a; 32];
        (key[0], key[30], key[31]) = (a, b, place);
        key
    });
    prop::collection::btree_map(key, any::<u8>().prop_map(|byte| vec![byte; 32]), 0..400)
}

fn shares() -> impl Strategy<Value = (Vec<u16>, bool)> {
    (prop::collection::vec(any::<u16>(), 0..20), prop::bool::weighted(0.2))
}

proptest! {
    #[test]
    fn any_leaves_in_any_ranges((leaves, (shares, each)) in (raw(), shares())) {
        ranges_make_the_tree(&Mpt, &leaves, &cuts(leaves.len(), &shares, each));
    }

    #[test]
    fn any_state_in_any_ranges((leaves, (shares, each)) in (state(), shares())) {
        ranges_make_the_tree(&MptState, &leaves, &cuts(leaves.len(), &shares, each));
    }

    #[test]
    fn any_stems_in_any_ranges((leaves, (shares, each)) in (stems(), shares())) {
        let ubt = Ubt { hash: HashFunction::Blake3 };
        ranges_make_the_tree(&ubt, &leaves, &cuts(leaves.len(), &shares, each));
        let pbt = Pbt { hash: HashFunction::Blake3 };
        ranges_make_the_tree(&pbt, &leaves, &cuts(leaves.len(), &shares, each));
    }

    /// P1, P2 and P4: whatever the bytes, a summary or nothing; and what it claims, the join can
    /// judge.
    #[test]
    fn foreign_summaries_never_panic(
        leaves in state(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let store = MemoryStore::new();
        let mut tree = Tree::open(MptState, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
        let (ranges, _) = Ranges::begin(&mut tree, &store, RUN).unwrap();
        let leaves: Vec<_> = leaves.iter().collect();
        let half = leaves.len() / 2;
        let parts = [build(&ranges, &leaves, (0, half)), build(&ranges, &leaves, (half, leaves.len()))];
        let mut bytes = Vec::new();
        for part in &parts {
            part.as_ref().unwrap().summary.encode(&mut bytes);
        }
        let index = at.index(bytes.len());
        if cut {
            bytes.truncate(index);
        } else {
            bytes[index] ^= byte | 1;
        }
        let mut join = ranges.join();
        let mut rest = &bytes[..];
        let mut sound = true;
        for _ in 0..2 {
            let Some((summary, tail)) = Summary::decode(&MptState, rest) else {
                sound = false;
                break;
            };
            rest = tail;
            sound &= join.add(summary).is_ok();
        }
        prop_assert!(!(cut && sound));
        if sound {
            drop(join.finish(&mut WriteSet::new()));
        }
    }
}

proptest! {
    // A leaf costs a climb of hundreds of hashes, or a multiplication of points.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_sums_in_any_ranges((leaves, (shares, each)) in (stems(), shares())) {
        let sum = |(key, value): (&Vec<u8>, &Vec<u8>)| {
            (key.clone(), [&[0; 7][..], &[value[0]], &value[..9]].concat())
        };
        let leaves: Entries = leaves.iter().take(120).map(sum).collect();
        let sum = Sum { profile: Profile::Compatible };
        ranges_make_the_tree(&sum, &leaves, &cuts(leaves.len(), &shares, each));
    }

    #[test]
    fn any_verkle_in_any_ranges((leaves, (shares, each)) in (stems(), shares())) {
        let verkle = crate::verkle::verkle();
        ranges_make_the_tree(&verkle, &leaves, &cuts(leaves.len(), &shares, each));
    }
}

/// What all ranges weigh together, the tree has to take.
#[test]
fn ranges_that_weigh_too_much_are_refused() {
    let leaf = |byte: u8| (vec![byte; 32], [&[0x7f; 8][..], &[byte]].concat());
    let entries: Entries = (1..4).map(leaf).collect();
    let leaves: Vec<_> = entries.iter().collect();
    let store = MemoryStore::new();
    let sum = Sum { profile: Profile::Compatible };
    let mut tree = Tree::open(sum, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let (ranges, _) = Ranges::begin(&mut tree, &store, RUN).unwrap();
    assert!(matches!(build(&ranges, &leaves, (0, 3)), Err(TreeError::Overweight { .. })));
    let mut join = ranges.join();
    let add = |index| join.add(build(&ranges, &leaves, (index, index + 1)).unwrap().summary);
    let added: Vec<_> = (0..3).map(add).collect();
    assert!(matches!(added[..], [Ok(()), Ok(()), Err(TreeError::Overweight { .. })]));
}

/// Thousands of leaves: pages of many levels, buckets cut off, ranges within one account.
#[test]
fn a_large_state_in_ranges_of_any_size() {
    let digest = |index: u32| spinney_hash::keccak256(&index.to_be_bytes()).to_vec();
    let mut leaves = Entries::new();
    for account in 0..1_200u32 {
        let value = account_value(u64::from(account), &[3; 32], &[2; 32]);
        leaves.insert(digest(account), value);
        let slots =
            [0u32, 1, 2, 9, 4_000][account as usize % 5] / if account < 5 { 1 } else { 100 };
        for slot in 0..slots {
            let mut word = [0; 32];
            word[28..].copy_from_slice(&(slot + 1).to_be_bytes());
            leaves.insert([digest(account), digest(1 << 20 | slot)].concat(), slot_value(&word));
        }
    }
    for step in [1, 7, 1_023, 1_024, 1_025, leaves.len()] {
        let mut cuts: Vec<_> = (0..leaves.len()).step_by(step).collect();
        cuts.push(leaves.len());
        ranges_make_the_tree(&MptState, &leaves, &cuts);
    }
}

/// P12: what was committed for a run is there when it begins again; another run sweeps it away.
#[test]
fn a_run_goes_on_and_another_one_begins_anew() {
    let rows = |store: &MemoryStore| {
        let mut rows = 0;
        let mut count = |_: &[u8], _: &[u8]| {
            rows += 1;
            true
        };
        store.snapshot().unwrap().scan(Table::Pages, &[], None, &mut count).unwrap();
        rows
    };
    let entries: Entries = (0..3_000u16)
        .map(|i| (spinney_hash::keccak256(&i.to_be_bytes()).to_vec(), vec![1; 40]))
        .collect();
    let leaves: Vec<_> = entries.iter().collect();
    let store = MemoryStore::new();
    let mut tree = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let (ranges, _) = Ranges::begin(&mut tree, &store, RUN).unwrap();
    let mut set = WriteSet::new();
    build(&ranges, &leaves, (0, 1_500)).unwrap().put_rows(&mut set);
    store.commit(&set).unwrap();
    let written = rows(&store);
    assert!(written > 10);
    let (_, resumed) = Ranges::begin(&mut tree, &store, RUN).unwrap();
    assert!(resumed);
    assert_eq!(rows(&store), written);
    let (_, resumed) = Ranges::begin(&mut tree, &store, [8; 32]).unwrap();
    assert!(!resumed);
    assert_eq!(rows(&store), 0);
    // One that was swept is never finished.
    let (ranges, _) = Ranges::begin(&mut tree, &store, RUN).unwrap();
    let other = Tree::open(Mpt, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    other.sweep(&store).unwrap();
    let mut set = WriteSet::new();
    let root = ranges.join().finish(&mut set).unwrap();
    assert!(matches!(ranges.finish(root, None, set), Err(TreeError::Swept { .. })));
}
