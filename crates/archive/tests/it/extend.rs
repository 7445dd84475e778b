//! Archives made of a store's history.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use spinney_archive::{Archive, ArchiveError, Extended, Folder, Options, Source, Writer};
use spinney_state::{
    AccountChange, Change, Changes, KeepHistory, State, StateError, StateRead as _,
};
use spinney_tree::pbt::Pbt;
use spinney_tree::{
    BlockId, HashFunction, MemorySnapshot, MemoryStore, PageStore, RootRecord, SharedStore,
    Snapshot, Table, TreeId,
};

use crate::blocks::are_checked;

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
pub(crate) type Error = Box<dyn std::error::Error>;

pub(crate) const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };

pub(crate) fn block(number: u64) -> BlockId {
    BlockId { number, hash: [number as u8 + 1; 32] }
}

pub(crate) fn rows(snapshot: &impl Snapshot, table: Table) -> Rows {
    let mut rows = Rows::new();
    let mut add = |key: &[u8], row: &[u8]| rows.insert(key.to_vec(), row.to_vec()).is_none();
    snapshot.scan(table, &[], None, &mut add).unwrap();
    rows
}

pub(crate) fn open<P: PageStore>(store: P) -> Result<State<P>, StateError> {
    let mut state = State::open(store, 1 << 20)?;
    state.add_tree(PBT, 1 << 20)?;
    Ok(state)
}

pub(crate) type Opens = fn(SharedStore<'static>) -> Result<State<SharedStore<'static>>, Error>;

pub(crate) fn source(snapshot: MemorySnapshot) -> Source<MemorySnapshot, Opens> {
    Source { snapshot, open: |store| Ok(open(store)?) }
}

fn change() -> impl Strategy<Value = Change> {
    let slot = (0..40_u64).prop_map(|slot| B256::from(U256::from(slot)));
    let value = prop_oneof![Just(U256::ZERO), any::<u64>().prop_map(U256::from)];
    let code = prop::option::weighted(0.2, vec(any::<u8>(), 1..80));
    let written = (0..9_u64, any::<u32>(), code, btree_map(slot, value, 0..6)).prop_map(
        |(nonce, balance, code, storage)| {
            let code = code.map(Bytes::from);
            Change::Written(AccountChange {
                nonce: Some(nonce),
                balance: Some(U256::from(balance)),
                code_hash: code.as_ref().map(keccak256),
                code,
                storage: storage.into_iter().collect(),
                ..AccountChange::default()
            })
        },
    );
    prop_oneof![6 => written, 1 => Just(Change::Deleted)]
}

pub(crate) fn blocks() -> impl Strategy<Value = Vec<Changes>> {
    let address = (0..30_u8).prop_map(|byte| Address::repeat_byte(byte.wrapping_mul(37)));
    let changes = btree_map(address, change(), 0..8)
        .prop_map(|accounts| Changes { accounts: accounts.into_iter().collect() });
    vec(changes, 3..24)
}

/// The stores after each block.
pub(crate) fn chain(blocks: &[Changes]) -> Vec<MemorySnapshot> {
    let mut state = open(MemoryStore::new()).unwrap();
    state.keep_history(KeepHistory::All);
    let commit = |(number, changes): (usize, &Changes)| {
        state.apply(changes).unwrap();
        state.seal(block(number as u64)).unwrap();
        state.commit().unwrap();
        state.store().snapshot().unwrap()
    };
    blocks.iter().enumerate().map(commit).collect()
}

fn is_then(archive: &Archive, number: u64, then: &MemorySnapshot) {
    let view = archive.at(number).unwrap();
    for table in [Table::Pages, Table::Meta] {
        assert_eq!(rows(&view, table), rows(then, table), "{table} of block {number}");
    }
    let roots = |rows: Rows| -> Vec<_> {
        let root = |(key, row): (Vec<u8>, Vec<u8>)| {
            let id = TreeId(u32::from_be_bytes(key[..].try_into().unwrap()));
            let record = RootRecord::decode(id, &row).unwrap();
            (id, record.root, record.block)
        };
        rows.into_iter().map(root).collect()
    };
    assert_eq!(roots(rows(&view, Table::Roots)), roots(rows(then, Table::Roots)));
    // Code may be that of later blocks, too.
    let held = rows(&view, Table::Codes);
    assert!(rows(then, Table::Codes).iter().all(|(key, row)| held.get(key) == Some(row)));
    // So may preimages, and those of slots that were never more than zero name nothing.
    let (state, was) = (open(archive.at(number).unwrap()).unwrap(), open(Lent(then)).unwrap());
    let held = rows(&view, Table::Preimages);
    for (key, row) in rows(then, Table::Preimages).iter().filter(|(_, row)| row.len() == 20) {
        let address = Address::from_slice(row);
        let slots = |slots: Option<Vec<B256>>| {
            slots.expect("they are known").into_iter().collect::<BTreeSet<_>>()
        };
        assert_eq!(slots(state.slots(address).unwrap()), slots(was.slots(address).unwrap()));
        if was.account(address).unwrap().is_some() {
            assert_eq!(held.get(key), Some(row), "{address} in block {number}");
        }
    }
    // What reads a store reads this one.
    let state = open(view).unwrap();
    assert_eq!(state.block(), Some(block(number)));
    assert_eq!(state.root(), open(&Lent(then)).unwrap().root());
}

/// A snapshot as a store.
#[derive(Debug)]
struct Lent<'a>(&'a MemorySnapshot);

impl PageStore for Lent<'_> {
    type Snapshot<'b>
        = MemorySnapshot
    where
        Self: 'b;

    fn snapshot(&self) -> Result<MemorySnapshot, spinney_tree::StoreError> {
        Ok(self.0.clone())
    }

    fn commit(&self, _: &spinney_tree::WriteSet) -> Result<(), spinney_tree::StoreError> {
        unreachable!("it is only read")
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn every_block_is_as_it_was(
        blocks in blocks(),
        first in any::<prop::sample::Index>(),
        steps in vec(1..7_u64, 1..4),
        behind in 0..3_u64,
        opens in any::<bool>(),
    ) {
        let stores = chain(&blocks);
        let newest = stores.len() as u64 - 1;
        let first = first.index(stores.len()) as u64;
        let folder = tempfile::tempdir().unwrap();
        let objects = Arc::new(Folder::new(folder.path()));
        let mut options = Options::default();
        options.merges = vec![2, 2];
        let store = |number: u64| stores[number as usize].clone();
        // Begun when the store is at its first block, or later.
        let begun = store(if behind == 0 { first } else { newest });
        drop(Writer::begin(objects.clone(), options.clone(), source(begun), first).unwrap());
        // The store goes on, and the archive after it: by one writer, or each time by another one.
        let mut writer = Writer::open(objects.clone(), options.clone()).unwrap();
        let (mut at, mut held, mut steps) = (first, first, steps.iter().cycle());
        while at < newest {
            at = (at + steps.next().unwrap()).min(newest);
            if opens {
                writer = Writer::open(objects.clone(), options.clone()).unwrap();
            }
            let extended = writer.extend(source(store(at)), behind, |_, _| ()).unwrap();
            let to = at.saturating_sub(behind).max(held);
            prop_assert_eq!(extended.blocks, to - held);
            prop_assert_eq!(writer.manifest().last, to);
            held = to;
            prop_assert_eq!(
                writer.extend(source(store(at)), behind, |_, _| ()).unwrap(),
                Extended::default()
            );
        }
        let archive = Archive::open(objects, 1 << 20).unwrap();
        for number in first..=held {
            is_then(&archive, number, &stores[number as usize]);
        }
        are_checked(&archive, &stores);
    }

    #[test]
    fn an_older_archive_lies_in_front(
        blocks in blocks(),
        at in any::<[prop::sample::Index; 3]>(),
        is_ahead in any::<bool>(),
        merges in prop_oneof![Just(vec![2, 2]), Just(vec![16, 8])],
    ) {
        let stores = chain(&blocks);
        let newest = stores.len() as u64 - 1;
        let mut at = at.map(|at| at.index(stores.len()) as u64);
        at.sort_unstable();
        let [begins, first, ends] = at;
        let mut options = Options::default();
        options.merges = merges;
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [older, newer] = folders.each_ref().map(|it| Arc::new(Folder::new(it.path())));
        let store = |number: u64| stores[number as usize].clone();
        // Each is begun when its store is at its first block, or at the last one: then it has the
        // code of blocks that come later.
        let archived = |objects, first, last| {
            let begun = store(if is_ahead { last } else { first });
            let mut writer = Writer::begin(objects, options.clone(), source(begun), first)?;
            for at in (first..last).step_by(3).skip(1).chain([last]) {
                writer.extend(source(store(at)), 0, |_, _| ())?;
            }
            Ok::<_, Error>(writer)
        };
        let older = archived(older, begins, ends).unwrap().archive(1 << 20).unwrap();
        let mut writer = archived(newer.clone(), first, newest).unwrap();
        let joined = writer.join(&older);
        if begins == first {
            let refused = matches!(joined, Err(ArchiveError::Join { .. }));
            prop_assert!(refused, "{joined:?}");
        } else {
            prop_assert_eq!(joined.unwrap(), first - begins);
        }
        let archive = Archive::open(newer, 1 << 20).unwrap();
        prop_assert_eq!(archive.blocks(), (begins, newest));
        archive.check(|_| ()).unwrap();
        for number in begins..=newest {
            is_then(&archive, number, &stores[number as usize]);
        }
        are_checked(&archive, &stores);
    }
}

#[test]
fn another_chain_and_a_short_history_are_refused() {
    let change = |number: u64| {
        let balance = Some(U256::from(number + 1));
        let written = AccountChange { balance, ..AccountChange::default() };
        Changes { accounts: [(Address::repeat_byte(7), Change::Written(written))].into() }
    };
    let blocks: Vec<Changes> = (0..9).map(change).collect();
    let stores = chain(&blocks);
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(Folder::new(folder.path()));
    let begin = |first| {
        Writer::begin(objects.clone(), Options::default(), source(stores[5].clone()), first)
    };
    assert!(begin(6).unwrap_err().to_string().contains("block 6"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
    let mut writer = begin(2).unwrap();
    writer.extend(source(stores[5].clone()), 0, |_, _| ()).unwrap();

    // Block 5 is another one.
    let mut state = open(MemoryStore::new()).unwrap();
    state.keep_history(KeepHistory::All);
    for (number, changes) in blocks.iter().enumerate() {
        state.apply(changes).unwrap();
        let hash = if number == 5 { [99; 32] } else { block(number as u64).hash };
        state.seal(BlockId { number: number as u64, hash }).unwrap();
        state.commit().unwrap();
    }
    let other = state.store().snapshot().unwrap();
    let error = writer.extend(source(other), 0, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("reorganised"), "{error}");

    // A store that keeps two blocks.
    let mut state = open(MemoryStore::new()).unwrap();
    state.keep_history(KeepHistory::Blocks(2));
    for (number, changes) in blocks.iter().enumerate() {
        state.apply(changes).unwrap();
        state.seal(block(number as u64)).unwrap();
        state.commit().unwrap();
    }
    let short = state.store().snapshot().unwrap();
    let error = writer.extend(source(short), 0, |_, _| ()).unwrap_err();
    let error = error.downcast_ref::<ArchiveError>().unwrap();
    assert!(matches!(error, ArchiveError::Order { block: 6, .. }), "{error}");
    assert!(error.to_string().contains("keeps the states of blocks 6 to 8"), "{error}");

    // Nothing of that harmed it.
    writer.extend(source(stores[8].clone()), 0, |_, _| ()).unwrap();
    let archive = writer.archive(1 << 20).unwrap();
    for number in 2..9 {
        is_then(&archive, number, &stores[number as usize]);
    }
}
