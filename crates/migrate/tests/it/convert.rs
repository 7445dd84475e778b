//! States that move between trees.

use std::ops::ControlFlow;

use alloy_primitives::{Address, B256, U256, keccak256};
use proptest::prelude::*;
use spinney_migrate::preimages::Writer;
use spinney_migrate::{At, MigrateError, NameSource, Work, export_preimages, from_mpt, to_mpt};
use spinney_state::embed::{BinaryState, Embedding, PBT, Whole};
use spinney_state::{Change, Changes, MPT, State};
use spinney_tree::mpt::MptState;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{Batch, HashFunction, MemoryStore, PageStore, Snapshot, Table, Tree, WriteSet};

use crate::made::{cases, one_state, states, trie_of, work_in, worked};

const PBT_BLAKE3: Pbt = Pbt { hash: HashFunction::Blake3 };

fn root_of(store: &MemoryStore) -> B256 {
    let snapshot = store.snapshot().unwrap();
    Tree::open(MptState, MPT, &snapshot, 1 << 20).unwrap().root().into()
}

/// The rows of a table without generation and checksum, which differ after a rebuild.
fn pages(store: &MemoryStore) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        rows.push((key[8..].to_vec(), row[8..].to_vec()));
        true
    };
    store.snapshot().unwrap().scan(Table::Pages, &[], None, &mut visit).unwrap();
    rows
}

/// Converts there, and compares with the state applied to an empty tree.
fn there<S: Embedding>(scheme: S, changes: &Changes, memory: usize) -> MemoryStore {
    let (source, target) = (trie_of(changes), MemoryStore::new());
    let tree = scheme.clone();
    let run = |work: &mut Work<'_>| from_mpt(&source, &target, tree, NameSource::Store, work);
    let made = worked(memory, run).unwrap();
    let mut state = BinaryState::open(scheme, MemoryStore::new(), 1 << 20).unwrap();
    assert_eq!(made.root, state.apply(changes).unwrap());
    state.commit(None).unwrap();
    assert_eq!(made.counts.accounts, changes.accounts.len() as u64);
    assert!(pages(&target) == pages(state.store()), "pages");
    for change in changes.accounts.values() {
        let Change::Written(change) = change else { unreachable!("all are written") };
        let hash = change.code_hash.unwrap();
        let converted = BinaryState::open(state.scheme().clone(), &target, 1 << 20).unwrap();
        assert_eq!(converted.code_uses(hash).unwrap(), state.code_uses(hash).unwrap());
    }
    target
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn any_state_moves_and_comes_back(
        changes in states(),
        memory in prop::sample::select(vec![1_000_usize, 100_000, 1 << 22]),
    ) {
        there(Ubt { hash: HashFunction::Sha256 }, &changes, memory);
        let pbt = there(PBT_BLAKE3, &changes, memory);
        let back = MemoryStore::new();
        let run = |work: &mut Work<'_>| to_mpt(&pbt, &back, PBT_BLAKE3, NameSource::Store, work);
        let made = worked(memory, run).unwrap();
        let source = trie_of(&changes);
        prop_assert_eq!(made.root, root_of(&source));
        prop_assert!(pages(&back) == pages(&source));
    }
}

#[test]
fn a_state_moves_into_a_verkle_tree() {
    there(Verkle::shared(), &one_state(), 10_000);
}

/// Accounts with their slots.
type Named = Vec<(Address, Vec<B256>)>;

/// The preimages of a state, as a file; `change` is told of each account and its slots first.
fn file_of(
    changes: &Changes,
    change: impl Fn(&mut Named),
) -> (tempfile::TempDir, std::path::PathBuf) {
    let mut accounts: Named = changes
        .accounts
        .iter()
        .map(|(address, change)| {
            let Change::Written(change) = change else { unreachable!("all are written") };
            (*address, change.storage.keys().copied().collect())
        })
        .collect();
    change(&mut accounts);
    accounts.sort_by_key(|(address, _)| keccak256(address));
    let mut writer = Writer::new(Vec::new());
    for (address, mut slots) in accounts {
        slots.sort_by_key(|slot| keccak256(slot));
        writer.account(address, slots.len() as u32).unwrap();
        slots.into_iter().for_each(|slot| writer.slot(slot).unwrap());
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("preimages");
    std::fs::write(&path, writer.finish().unwrap().1).unwrap();
    (folder, path)
}

#[test]
fn preimages_match_in_both_directions() {
    let changes = one_state();
    let (source, rich) = (trie_of(&changes), Address::repeat_byte(8));
    let convert = |change: &dyn Fn(&mut Named)| {
        let (_folder, path) = file_of(&changes, change);
        let (there, back) = (MemoryStore::new(), MemoryStore::new());
        let names = NameSource::File(&path);
        let forward = worked(10_000, |w| from_mpt(&source, &there, PBT_BLAKE3, names, w));
        // The way back, of a tree that is whole.
        let whole = MemoryStore::new();
        worked(10_000, |w| from_mpt(&source, &whole, PBT_BLAKE3, NameSource::Store, w)).unwrap();
        let backward = worked(10_000, |w| to_mpt(&whole, &back, PBT_BLAKE3, names, w));
        (forward.map(|made| made.root), backward.map(|made| made.root))
    };
    let (forward, backward) = convert(&|_| {});
    assert_eq!((forward.is_ok(), backward.unwrap()), (true, root_of(&source)));

    let at =
        |accounts: &mut Named| accounts.iter().position(|(address, _)| *address == rich).unwrap();
    let of_slot = |slot: u64| B256::from(U256::from(slot));
    let (forward, backward) = convert(&|accounts| {
        let at = at(accounts);
        accounts.remove(at);
    });
    let account = keccak256(rich);
    assert!(
        matches!(forward, Err(MigrateError::NoPreimage { account: a, slot: None }) if a == account),
        "{forward:?}"
    );
    assert!(matches!(backward, Err(MigrateError::Stray { .. })), "{backward:?}");

    let (forward, backward) = convert(&|accounts| {
        let at = at(accounts);
        accounts[at].1.retain(|slot| *slot != of_slot(80));
    });
    let slot = Some(keccak256(of_slot(80)));
    assert!(
        matches!(forward, Err(MigrateError::NoPreimage { slot: s, .. }) if s == slot),
        "{forward:?}"
    );
    let key = Whole::new(PBT_BLAKE3).slot_key(&rich, &of_slot(80));
    assert!(matches!(&backward, Err(MigrateError::Stray { key: k, .. }) if *k == key));

    let nobody = Address::repeat_byte(0xee);
    let (forward, backward) = convert(&|accounts| accounts.push((nobody, vec![])));
    for refused in [forward, backward] {
        assert!(matches!(
            refused,
            Err(MigrateError::SurplusPreimage { address, slot: None }) if address == nobody
        ));
    }
    for slot in [B256::repeat_byte(0x77), of_slot(41)] {
        let (forward, backward) = convert(&|accounts| {
            let at = at(accounts);
            accounts[at].1.push(slot);
        });
        for refused in [forward, backward] {
            let what = format!("{refused:?}");
            assert!(
                matches!(
                    refused,
                    Err(MigrateError::SurplusPreimage { address, slot: Some(s) })
                        if (address, s) == (rich, slot)
                ),
                "{what}"
            );
        }
    }
}

#[test]
fn a_source_without_code_or_with_other_leaves_is_refused() {
    let changes = one_state();
    let source = trie_of(&changes);
    let code = {
        let mut first = None;
        let mut visit = |key: &[u8], _: &[u8]| {
            first.get_or_insert_with(|| key.to_vec());
            false
        };
        source.snapshot().unwrap().scan(Table::Codes, &[], None, &mut visit).unwrap();
        first.unwrap()
    };
    let mut set = WriteSet::new();
    set.delete(Table::Codes, &code);
    source.commit(&set).unwrap();
    let run =
        |w: &mut Work<'_>| from_mpt(&source, &MemoryStore::new(), PBT_BLAKE3, NameSource::Store, w);
    let refused = worked(10_000, run);
    assert!(
        matches!(&refused, Err(MigrateError::NoCode { hash, .. }) if hash[..] == code[..]),
        "{refused:?}"
    );

    // A tree whose leaves are its own, and no state's.
    let source = trie_of(&changes);
    let whole = Whole::new(PBT_BLAKE3);
    let forged = |change: &dyn Fn(&mut Batch)| {
        let pbt = MemoryStore::new();
        worked(10_000, |w| from_mpt(&source, &pbt, PBT_BLAKE3, NameSource::Store, w)).unwrap();
        let mut tree = Tree::open(PBT_BLAKE3, PBT, &pbt.snapshot().unwrap(), 1 << 20).unwrap();
        let mut batch = Batch::new();
        change(&mut batch);
        let pending = tree.prepare(&pbt.snapshot().unwrap(), None, batch).unwrap();
        tree.commit(&pbt, &pending, None).unwrap();
        let back = MemoryStore::new();
        worked(10_000, |w| to_mpt(&pbt, &back, PBT_BLAKE3, NameSource::Store, w)).unwrap_err()
    };
    let rich = Address::repeat_byte(8);
    let [data, hash, delegation] = whole.account_keys(&rich).try_into().unwrap();
    let code_hash = match &changes.accounts[&rich] {
        Change::Written(change) => change.code_hash.unwrap(),
        Change::Deleted => unreachable!("it is written"),
    };
    let chunk = whole.chunk_keys(&rich, &code_hash).nth(1).unwrap();
    let refused = forged(&|batch| batch.put(&chunk, &[1; 32]));
    assert!(matches!(&refused, MigrateError::Code { hash, .. } if *hash == code_hash), "{refused}");
    let refused = forged(&|batch| batch.delete(&hash));
    assert!(matches!(refused, MigrateError::Leaves { .. }), "{refused}");
    let refused = forged(&|batch| batch.put(&delegation, &[1; 32]));
    assert!(matches!(refused, MigrateError::Leaves { .. }), "{refused}");
    let refused = forged(&|batch| batch.put(&data, &[1; 32]));
    assert!(matches!(refused, MigrateError::Embed(_)), "{refused}");
    let stray = whole.slot_key(&rich, &B256::repeat_byte(0x99));
    let refused = forged(&|batch| batch.put(&stray, &[1; 32]));
    assert!(matches!(&refused, MigrateError::Stray { key, .. } if *key == stray), "{refused}");
}

/// Stopped at every step it tells of, it goes on, and comes to the same end.
#[test]
fn a_conversion_that_is_stopped_goes_on() {
    let changes = one_state();
    let (source, whole) = (trie_of(&changes), MemoryStore::new());
    let expected =
        worked(20_000, |w| from_mpt(&source, &whole, PBT_BLAKE3, NameSource::Store, w)).unwrap();
    let (target, folder) = (MemoryStore::new(), tempfile::tempdir().unwrap());
    let spill = folder.path().join("leaves");
    let mut stops = 0;
    let made = loop {
        let mut told = 0;
        let mut watch = |_: &At| {
            told += 1;
            if told > stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let run = |w: &mut Work<'_>| from_mpt(&source, &target, PBT_BLAKE3, NameSource::Store, w);
        match work_in(&spill, 20_000, &mut watch, run) {
            Ok(made) => break made,
            Err(MigrateError::Stopped) => stops += 1,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(stops > 2, "it was stopped {stops} times");
    assert_eq!((made.root, made.counts), (expected.root, expected.counts));
    assert_eq!(made.snapshot, expected.snapshot);
    assert!(pages(&target) == pages(&whole));
}

fn put(store: &MemoryStore, table: Table, key: &[u8], row: &[u8]) {
    let mut set = WriteSet::new();
    set.put(table, key, row.to_vec());
    store.commit(&set).unwrap();
}

fn rows(store: &MemoryStore, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        rows.push((key.to_vec(), row.to_vec()));
        true
    };
    store.snapshot().unwrap().scan(table, &[], None, &mut visit).unwrap();
    rows
}

/// Rows of the commit before, with the seals that they had, and preimages in one another's places.
#[test]
fn old_rows_are_refused_where_reads_are_verified() {
    let changes = one_state();
    let mut state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    state.apply(&changes).unwrap();
    state.commit().unwrap();
    let old = rows(state.store(), Table::Pages);
    let mut later = changes;
    for change in later.accounts.values_mut() {
        let Change::Written(change) = change else { unreachable!("all are written") };
        change.balance = Some(U256::from(77));
        change.storage.clear();
    }
    state.apply(&later).unwrap();
    state.commit().unwrap();
    let store = state.into_store();
    let run = |verify: bool| {
        let file = worked(1 << 20, |work| {
            work.verify = verify;
            export_preimages(&store, PBT_BLAKE3, Vec::new(), work)
        });
        let target = MemoryStore::new();
        let made = worked(1 << 20, |work| {
            work.verify = verify;
            from_mpt(&store, &target, PBT_BLAKE3, NameSource::Store, work)
        });
        (file.map(|(_, bytes)| bytes), made.map(|made| made.root))
    };
    let (file, root) = run(true);
    let (file, _) = (file.unwrap(), root.unwrap());
    let (mut stale, mut unseen) = (0, 0);
    for (key, row) in rows(&store, Table::Pages) {
        let Some(then) = old.iter().find(|then| then.0 == key && then.1 != row) else { continue };
        // The root record names another root than an old root page has.
        put(&store, Table::Pages, &key, &then.1);
        let (file, root) = run(true);
        assert!(matches!(root, Err(MigrateError::Tree(_))), "{root:?}");
        assert!(matches!(file, Err(MigrateError::Tree(_))), "{:?}", file.is_ok());
        unseen += usize::from(run(false).0.is_ok());
        stale += 1;
        put(&store, Table::Pages, &key, &row);
    }
    assert!(stale > 0 && unseen > 0, "{unseen} of {stale}");
    let names: Vec<_> = rows(&store, Table::Preimages)
        .into_iter()
        .filter(|(_, name)| name.len() == 20)
        .take(2)
        .collect();
    let [(one, name), (other, another)] = &names[..] else { panic!("{} names", names.len()) };
    put(&store, Table::Preimages, one, another);
    put(&store, Table::Preimages, other, name);
    let (checked, unchecked) = (run(true).0, run(false).0);
    assert!(checked.is_err(), "preimages that were exchanged are found");
    assert!(unchecked.is_err() || unchecked.is_ok_and(|bytes| bytes != file));
}
