//! Old and forged rows with good seals: what is read after `verify_entries`, or by a tree that
//! verifies its reads, is what the root says.

use spinney_hash::keccak256;
use spinney_tree::mpt::{Mpt, MptState, account_value, slot_value};
use spinney_tree::sum::{Leaf, Sum};
use spinney_tree::{Batch, MemoryStore, PageStore as _, Scheme, Table, Tree, TreeError, WriteSet};
use xxhash_rust::xxh3::xxh3_64;

use crate::binary::{PBT, UBT};
use crate::model::{Bench, Entries, ID, Op, pages};
use crate::verkle::verkle;

fn put(store: &MemoryStore, key: &[u8], row: &[u8]) {
    let mut set = WriteSet::new();
    set.put(Table::Pages, key, row.to_vec());
    store.commit(&set).unwrap();
}

/// Whether the entries were verified; then they are the true ones, else not what was looked for.
fn verified<S: Scheme + Clone>(scheme: &S, store: &MemoryStore, truth: &Entries) -> bool {
    let snapshot = store.snapshot().unwrap();
    let Ok(tree) = Tree::open(scheme.clone(), ID, &snapshot, 1) else { return false };
    match tree.verify_entries(&snapshot, |_| ()) {
        Ok(()) => {
            let read = tree.entries(&snapshot, None, b"").map(|entry| {
                let entry = entry.unwrap();
                (entry.key.to_vec(), entry.value.to_vec())
            });
            assert_eq!(&read.collect::<Entries>(), truth);
            true
        }
        Err(TreeError::OtherRoot { .. } | TreeError::Corrupt { .. }) => false,
        // Keys that came out of order, or that the tree takes none of.
        Err(TreeError::Unsorted { .. } | TreeError::Refused { .. }) => false,
        Err(TreeError::Ownerless { .. } | TreeError::PrefixKey { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// The roots after one deletion each, of every sixteenth key.
fn after_deletions<S: Scheme + Clone>(
    tree: &Tree<S>,
    store: &MemoryStore,
    truth: &Entries,
) -> Vec<Result<S::Root, TreeError>> {
    let snapshot = store.snapshot().unwrap();
    let after = |key: &Vec<u8>| {
        let mut batch = Batch::new();
        batch.delete(key);
        tree.prepare(&snapshot, None, batch).map(|pending| pending.root())
    };
    truth.keys().step_by(16).map(after).collect()
}

/// Reads with checks: whatever is answered is true. Whether all entries and all of the keys were
/// answered.
fn read_verified<S: Scheme + Clone>(
    scheme: &S,
    store: &MemoryStore,
    (truth, roots): (&Entries, &[S::Root]),
) -> bool {
    let snapshot = store.snapshot().unwrap();
    let Ok(mut tree) = Tree::open(scheme.clone(), ID, &snapshot, 1) else { return false };
    tree.verify_reads(true);
    let (view, mut all) = (tree.view(), true);
    let mut expected = truth.iter();
    for entry in tree.entries(&snapshot, None, b"") {
        let Ok(entry) = entry else {
            all = false;
            break;
        };
        let (key, value) = expected.next().expect("no entry is made up");
        assert_eq!((&entry.key, &*entry.value), (key, &value[..]));
    }
    assert!(!all || expected.next().is_none(), "entries were left out");
    for (number, (key, value)) in truth.iter().enumerate() {
        match tree.get(&snapshot, None, key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
            Err(_) => all = false,
        }
        match view.get(&snapshot, key) {
            Ok(found) => assert_eq!(found.as_deref(), Some(&value[..])),
            Err(_) => all = false,
        }
        // Keys beside it that are absent.
        if number % 16 == 0 {
            let beside: Vec<u8> = key.iter().map(|byte| byte ^ 0x11).collect();
            match tree.get(&snapshot, None, &beside) {
                Ok(found) => assert!(found.is_none()),
                Err(_) => all = false,
            }
        }
    }
    // In a tree of their own, which knows nothing yet of what lies beside the paths.
    let Ok(mut tree) = Tree::open(scheme.clone(), ID, &snapshot, 1) else { return false };
    tree.verify_reads(true);
    for (root, expected) in after_deletions(&tree, store, truth).into_iter().zip(roots) {
        match root {
            Ok(root) => assert_eq!(root.as_ref(), expected.as_ref(), "of a deletion"),
            Err(_) => all = false,
        }
    }
    all
}

fn check<S: Scheme + Clone>(scheme: &S, old: &Entries, new: &Entries) {
    let mut bench = Bench::new(scheme.clone(), 1 << 20);
    for entries in [old, new] {
        let gone = old.keys().filter(|key| !new.contains_key(*key));
        let mut ops: Vec<Op> =
            entries.iter().map(|(key, value)| Op::Put(key.clone(), value.clone())).collect();
        if entries == new {
            ops.extend(gone.map(|key| Op::Delete(key.clone())));
        }
        let before = pages(&bench.tree, &bench.snapshot());
        let pending = bench.prepare(None, &ops);
        bench.tree.commit(&bench.store, &pending, None).unwrap();
        if before.is_empty() {
            continue;
        }
        let rows = pages(&bench.tree, &bench.snapshot());
        assert!(verified(scheme, &bench.store, new));
        let roots = after_deletions(&bench.tree, &bench.store, new);
        let roots: Vec<_> = roots.into_iter().map(Result::unwrap).collect();
        let truth = (new, &roots[..]);
        assert!(read_verified(scheme, &bench.store, truth));
        let (mut stale, mut forged, mut refused, mut refused_reads) = (0, 0, 0, 0);
        for (key, row) in &rows {
            if let Some(then) = before.get(key).filter(|then| *then != row) {
                put(&bench.store, key, then);
                assert!(!verified(scheme, &bench.store, new), "an old row at {key:02x?}");
                assert!(!read_verified(scheme, &bench.store, truth), "an old row at {key:02x?}");
                stale += 1;
            }
            for at in (8..row.len()).step_by(41) {
                let mut bytes = row.clone();
                bytes[at] ^= 1 << (at % 8);
                let sum = xxh3_64(&[&key[..], &bytes[8..]].concat());
                bytes[..8].copy_from_slice(&sum.to_le_bytes());
                put(&bench.store, key, &bytes);
                forged += 1;
                refused += u32::from(!verified(scheme, &bench.store, new));
                // Dearer: every third of them.
                if forged % 3 == 0 {
                    refused_reads += u32::from(!read_verified(scheme, &bench.store, truth));
                }
            }
            put(&bench.store, key, row);
        }
        println!(
            "{stale} old rows refused, {refused} of {forged} forged ones, {refused_reads} by reads"
        );
        assert!(stale > 0 && refused > 0 && refused_reads > 0, "{stale} {refused} {refused_reads}");
    }
}

/// Each key's value changes, at the same length.
fn entries(count: u32, value: u8, key: impl Fn(u32) -> Vec<u8>) -> Entries {
    (0..count).map(|n| (key(n), vec![value ^ n as u8; 32])).collect()
}

fn hashed(n: u32) -> Vec<u8> {
    keccak256(&n.to_be_bytes()).to_vec()
}

#[test]
fn old_and_forged_rows_are_refused_in_every_tree() {
    let [old, new] = [0x40, 0x80].map(|value| entries(150, value, hashed));
    check(&Mpt, &old, &new);
    check(&PBT, &old, &new);
    check(&UBT, &old, &new);
    let [old, new] = [0x40, 0x80].map(|value| entries(40, value, hashed));
    check(&verkle(), &old, &new);
    let [old, new] = [0x40, 0x80].map(|value| -> Entries {
        let leaf = |n: u32| Leaf { value: vec![value ^ n as u8; 9], sum: n.into() };
        (0..60).map(|n| (hashed(n), leaf(n).encode())).collect()
    });
    check(&Sum::default(), &old, &new);
}

#[test]
fn old_and_forged_rows_are_refused_in_a_state() {
    let state = |value: u8| -> Entries {
        let accounts = (0..40_u32).flat_map(|n| {
            let account = account_value(n.into(), &[value; 32], &[n as u8; 32]);
            let slots = (0..n % 9).map(move |slot| {
                let mut word = [0; 32];
                word[31] = value + slot as u8;
                ([hashed(n), hashed(slot)].concat(), slot_value(&word))
            });
            std::iter::once((hashed(n), account)).chain(slots)
        });
        accounts.collect()
    };
    check(&MptState, &state(0x40), &state(0x80));
}

#[test]
fn accounts_with_storage_side_by_side_are_verified_together() {
    let store = MemoryStore::new();
    let mut tree = Tree::open(MptState, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let account = |number: u8| keccak256(&[number]);
    let value = |balance: u8| account_value(7, &[balance; 32], &[7; 32]);
    let mut batch = Batch::new();
    for number in 0..64 {
        batch.put(&account(number), &value(1));
        for slot in 0..9 {
            let key = [account(number), keccak256(&[number, slot])].concat();
            batch.put(&key, &slot_value(&[slot + 1; 32]));
        }
    }
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    tree.commit(&store, &pending, None).unwrap();
    tree.verify_reads(true);
    let mut batch = Batch::new();
    (0..64).for_each(|number| batch.put(&account(number), &value(2)));
    tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
}
