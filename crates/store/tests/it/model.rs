//! Stores against a `BTreeMap`, through random write sets and reopenings.

use proptest::collection::vec;
use proptest::prelude::*;
use spinney_store::{AnyStore, RedbStore};
use spinney_tree::{PageStore, Snapshot, Table, WriteSet};

use crate::tools::{CACHE_BYTES, Contents, contents, rows};

#[derive(Clone, Debug)]
enum Action {
    Commit { drops: Vec<(Table, Vec<u8>, Vec<u8>)>, rows: Vec<Row>, sorted: bool },
    Reopen,
}

type Row = (Table, Vec<u8>, Option<Vec<u8>>);

fn table() -> impl Strategy<Value = Table> {
    (0..Table::ALL.len()).prop_map(|at| Table::ALL[at])
}

/// Few digits and few lengths, so that keys meet.
fn key() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![9 => vec(0..4_u8, 0..4), 1 => vec(any::<u8>(), 0..300)]
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => vec(any::<u8>(), 0..40),
        2 => (0..6_000_usize, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let drops = vec((table(), key(), key()), 0..3);
    let rows = vec((table(), key(), proptest::option::weighted(0.8, value())), 0..40);
    let commit = (drops, rows, any::<bool>()).prop_map(|(drops, rows, sorted)| Action::Commit {
        drops,
        rows,
        sorted,
    });
    prop_oneof![5 => commit, 1 => Just(Action::Reopen)]
}

fn write_set(drops: &[(Table, Vec<u8>, Vec<u8>)], rows: &[Row], sorted: bool) -> WriteSet {
    let mut set = WriteSet::new();
    for (table, key, value) in rows {
        match value {
            Some(value) => set.put(*table, key, &value[..]),
            None => set.delete(*table, key),
        }
    }
    for (table, low, high) in drops {
        set.drop_range(*table, low.clone(), high.clone());
    }
    if sorted {
        set.sort();
    }
    set
}

fn apply(model: &mut Contents, drops: &[(Table, Vec<u8>, Vec<u8>)], rows: &[Row]) {
    for (dropped, low, high) in drops {
        model.retain(|(table, key), _| table != dropped || key <= low || key >= high);
    }
    for (table, key, value) in rows {
        match value {
            Some(value) => drop(model.insert((*table, key.clone()), value.clone())),
            None => drop(model.remove(&(*table, key.clone()))),
        }
    }
}

fn agree(store: &impl PageStore, model: &Contents, probes: &[Row]) -> Result<(), TestCaseError> {
    prop_assert_eq!(&contents(store), model);
    let snapshot = store.snapshot().unwrap();
    for (table, key, _) in probes {
        let found = snapshot.read(*table, key).unwrap();
        prop_assert_eq!(found.as_deref(), model.get(&(*table, key.clone())).map(|row| &row[..]));
    }
    for pair in probes.windows(2) {
        let ((table, low, _), (_, high, _)) = (&pair[0], &pair[1]);
        let found = rows(&snapshot, *table, low, Some(high)).len();
        let inside = |(other, key): &&(Table, Vec<u8>)| other == table && key >= low && key < high;
        prop_assert_eq!(found, model.keys().filter(inside).count());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn stores_do_as_a_map_does(actions in vec(action(), 1..12)) {
        let folder = tempfile::tempdir().unwrap();
        let memory = AnyStore::memory();
        let mut redb = RedbStore::create(folder.path(), CACHE_BYTES).unwrap();
        let mut model = Contents::new();
        for action in &actions {
            match action {
                Action::Reopen => {
                    redb.close().unwrap();
                    redb = RedbStore::open(folder.path(), CACHE_BYTES).unwrap();
                    agree(&redb, &model, &[])?;
                }
                Action::Commit { drops, rows, sorted } => {
                    let set = write_set(drops, rows, *sorted);
                    memory.commit(&set).unwrap();
                    redb.commit(&set).unwrap();
                    apply(&mut model, drops, rows);
                    agree(&memory, &model, rows)?;
                    agree(&redb, &model, rows)?;
                }
            }
        }
        redb.check().unwrap();
    }
}
