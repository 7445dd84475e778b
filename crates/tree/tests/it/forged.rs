//! Pages forged with good checksums: whatever is proven from them is an error or a proof that
//! fails, never a panic.

use spinney_hash::keccak256;
use spinney_tree::mpt::{Mpt, MptState, account_value, slot_value};
use spinney_tree::{
    Batch, MemorySnapshot, MemoryStore, PageStore as _, Scheme, Table, Tree, WriteSet,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::binary::{PBT, UBT};
use crate::model::{Entries, ID, pages};

/// A store with these entries.
fn fill<S: Scheme>(scheme: S, entries: &Entries) -> MemoryStore {
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut batch = Batch::new();
    entries.iter().for_each(|(key, value)| batch.put(key, value));
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    tree.commit(&store, &pending, None).unwrap();
    store
}

/// Changes one byte of one page at a time; `prove` does what it can with what is left, and says
/// whether it was a proof that holds.
fn forge<S: Scheme + Copy>(
    scheme: S,
    entries: &Entries,
    prove: impl Fn(&Tree<S>, &MemorySnapshot) -> bool,
) {
    let store = fill(scheme, entries);
    let tree = Tree::open(scheme, ID, &store.snapshot().unwrap(), 1).unwrap();
    assert!(prove(&tree, &store.snapshot().unwrap()));
    let rows = pages(&tree, &store.snapshot().unwrap());
    let (mut refused, mut held) = (0, 0);
    for (number, (key, row)) in rows.iter().enumerate() {
        for at in (8..row.len()).step_by(29) {
            let mut forged = row.clone();
            forged[at] = forged[at].wrapping_add(1 << ((number + at) % 8));
            let sum = xxh3_64(&[&key[..], &forged[8..]].concat());
            forged[..8].copy_from_slice(&sum.to_le_bytes());
            let mut set = WriteSet::new();
            set.put(Table::Pages, key, forged);
            store.commit(&set).unwrap();
            let snapshot = store.snapshot().unwrap();
            // Without a cache, and with one.
            match Tree::open(scheme, ID, &snapshot, [1, 1 << 20][at % 2]) {
                Ok(tree) if prove(&tree, &snapshot) => held += 1,
                _ => refused += 1,
            }
        }
        let mut set = WriteSet::new();
        set.put(Table::Pages, key, row.clone());
        store.commit(&set).unwrap();
    }
    // Edited, more of them are of no consequence: the byte is written over.
    println!("{} pages: {refused} forgeries refused, {held} of no consequence", rows.len());
    assert!(refused > 350);
}

#[test]
fn forged_pages_of_raw_keys_never_panic() {
    let hashed = |n: u32| {
        let len = [3, 40, 78, 900][n as usize % 4];
        (keccak256(&n.to_be_bytes())[..4 + n as usize % 29].to_vec(), vec![n as u8 | 1; len])
    };
    let entries: Entries = (0..220).map(hashed).collect();
    let keys: Vec<_> = entries.keys().step_by(5).cloned().chain([vec![0x12]]).collect();
    forge(Mpt, &entries, |tree, snapshot| {
        let proof = tree.prove(snapshot, None, &keys);
        proof.is_ok_and(|proof| {
            let verified = proof.verify(&tree.root(), &keys);
            verified.is_ok_and(|verified| {
                let value = |key: &Vec<u8>| entries.get(key).map(|value| &value[..]);
                keys.iter().all(|key| verified.get(key).unwrap() == value(key))
            })
        })
    });
}

#[test]
fn forged_pages_of_accounts_never_panic() {
    let mut entries = Entries::new();
    for n in 0..60_u8 {
        let key = keccak256(&[n; 20]);
        entries.insert(key.to_vec(), account_value(u64::from(n), &[n; 32], &[n; 32]));
        for slot in 0..n % 16 * 3 {
            let path = [key, keccak256(&[slot; 32])].concat();
            entries.insert(path, slot_value(&[slot | 1; 32]));
        }
    }
    let wanted: Vec<_> = (0..70).step_by(3).map(|n| ([n; 20], vec![[2; 32], [99; 32]])).collect();
    forge(MptState, &entries, |tree, snapshot| {
        let proofs = tree.prove_accounts(snapshot, None, &wanted);
        proofs.is_ok_and(|proofs| proofs.iter().all(|proof| proof.verify(&tree.root()).is_ok()))
    });
}

/// Puts other values of their length in the places of some, alone and beside a key that is new.
fn edit<S: Scheme + Copy>(scheme: S, entries: &Entries, new: (&[u8], &[u8])) {
    let other = |value: &[u8]| {
        let mut value = value.to_vec();
        *value.last_mut().unwrap() ^= 0x40;
        value
    };
    let chosen = || entries.iter().step_by(3);
    let mixed = |with: Option<(&[u8], &[u8])>| {
        let mut batch = Batch::new();
        chosen().for_each(|(key, value)| batch.put(key, &other(value)));
        with.into_iter().for_each(|(key, value)| batch.put(key, value));
        batch
    };
    let rebuilt = |with: Option<(&[u8], &[u8])>| {
        let mut entries = entries.clone();
        entries
            .extend(chosen().map(|(key, value)| (key.clone(), other(value))).collect::<Entries>());
        entries.extend(with.map(|(key, value)| (key.to_vec(), value.to_vec())));
        let store = fill(scheme, &entries);
        Tree::open(scheme, ID, &store.snapshot().unwrap(), 1).unwrap().root()
    };
    let roots = [None, Some(new)].map(|with| (with, rebuilt(with)));
    forge(scheme, entries, |tree, snapshot| {
        roots.iter().all(|(with, root)| {
            // Once to read the pages, and once more over what is there of them.
            let _ = tree.prepare(snapshot, None, mixed(*with));
            let pending = tree.prepare(snapshot, None, mixed(*with));
            pending.is_ok_and(|pending| {
                let mut set = WriteSet::new();
                tree.prepare_commit(snapshot, &pending, None, &mut set).is_ok()
                    && pending.root() == *root
            })
        })
    });
}

#[test]
fn forged_pages_that_are_edited_never_panic() {
    let entry = |n: u32| (keccak256(&n.to_be_bytes()).to_vec(), vec![n as u8 | 1; 78]);
    edit(Mpt, &(0..220).map(entry).collect(), (&[0x55; 32], &[1; 78]));
    let short = |n: u32| (keccak256(&n.to_be_bytes()).to_vec(), vec![n as u8 | 1; 32]);
    edit(UBT, &(0..400).map(short).collect(), (&[0x55; 32], &[1; 32]));
    edit(PBT, &(0..400).map(short).collect(), (&[0x55; 32], &[1; 32]));
    let of_stem = |n: u32| {
        let mut key = keccak256(&(n / 2).to_be_bytes()).to_vec();
        key[31] = [n as u8, 0][n as usize % 3 % 2];
        (key, vec![n as u8 | 1; 32])
    };
    edit(UBT, &(0..400).map(of_stem).collect(), (&[0x55; 32], &[1; 32]));
}

#[test]
fn forged_accounts_that_are_edited_never_panic() {
    let mut entries = Entries::new();
    for n in 0..60_u8 {
        let key = keccak256(&[n; 20]);
        entries.insert(key.to_vec(), account_value(u64::from(n), &[n; 32], &[n; 32]));
        for slot in 0..n % 16 * 3 {
            let path = [key, keccak256(&[slot; 32])].concat();
            entries.insert(path, slot_value(&[slot | 0x80; 32]));
        }
    }
    let account = account_value(1, &[2; 32], &[3; 32]);
    edit(MptState, &entries, (&[0x55; 32], &account));
}

/// In what a stem owns, a value is made one that another item owns: no tree has such a page.
#[test]
fn an_owner_that_is_owned_is_refused() {
    let stem = keccak256(b"stem");
    let key = |suffix: u8| [&stem[..31], &[suffix]].concat();
    let entries = Entries::from([(key(2), vec![0x77; 32]), (key(0x80), vec![0x66; 32])]);
    let store = fill(UBT, &entries);
    let tree = Tree::open(UBT, ID, &store.snapshot().unwrap(), 1).unwrap();
    let (page, mut row) = pages(&tree, &store.snapshot().unwrap()).pop_first().expect("a page");
    // The length of what the branch holds, and its first item (docs/reference/formats.md): tag,
    // digit, seven bits, the value.
    let first = [&[74, 0, 0, 7, 2, 32][..], &[0x77; 32]].concat();
    let at = row.windows(first.len()).position(|part| part == first).expect("it is there");
    // A leaf without a value that owns what stood there.
    const OWNS: u8 = 0b0001_0000;
    row.splice(at..=at, [79, OWNS, 0, 7, 2, 0]);
    let sum = xxh3_64(&[&page[..], &row[8..]].concat());
    row[..8].copy_from_slice(&sum.to_le_bytes());
    let mut set = WriteSet::new();
    set.put(Table::Pages, &page, row);
    store.commit(&set).unwrap();
    let snapshot = store.snapshot().unwrap();
    let refused = Tree::open(UBT, ID, &snapshot, 1 << 20).unwrap_err();
    assert!(refused.to_string().ends_with("is damaged: what is owned owns something"), "{refused}");
}
