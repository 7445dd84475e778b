//! Stores against a `BTreeMap`, through random write sets and reopenings.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use spinney_store::{AnyStore, Location, OpenFor};
use spinney_tree::{PageStore, Snapshot, Table, WriteSet};

use crate::tools::{CACHE_BYTES, Contents, contents, rows};

#[derive(Clone)]
enum Action {
    Commit { drops: Vec<(Table, Vec<u8>, Vec<u8>)>, rows: Vec<Row>, sorted: bool },
    Reopen,
}

type Row = (Table, Vec<u8>, Option<Vec<u8>>);

/// Short: what a failure prints is cut somewhere, and a value is long.
impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Commit { drops, rows, sorted } = self else { return f.write_str("reopen") };
        write!(f, "commit sorted={sorted}")?;
        for (table, low, high) in drops {
            write!(f, " drop {table}[{}..{}]", low.escape_ascii(), high.escape_ascii())?;
        }
        for (table, key, value) in rows {
            let value = value.as_ref().map(|value| (value.len(), value.first()));
            write!(f, " {table}[{}]={value:?}", key.escape_ascii())?;
        }
        Ok(())
    }
}

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

/// Keys in a row, of which some come twice: what a store may put in at one place. The longest runs
/// take more than a store may gather of them.
fn run() -> impl Strategy<Value = Vec<Row>> {
    let twice = vec((any::<prop::sample::Index>(), proptest::option::of(value())), 0..4);
    (table(), key(), 1..400_usize, 0..6_000_usize, twice).prop_map(
        |(table, prefix, count, length, twice)| {
            let key = |at: usize| [&prefix[..], &(at as u16).to_be_bytes()].concat();
            let put = |at: usize| (table, key(at), Some(vec![at as u8; length]));
            let mut rows: Vec<Row> = (0..count).map(put).collect();
            rows.extend(twice.into_iter().map(|(at, value)| (table, key(at.index(count)), value)));
            rows
        },
    )
}

fn action() -> impl Strategy<Value = Action> {
    let drops = vec((table(), key(), key()), 0..3);
    let rows = vec((table(), key(), proptest::option::weighted(0.8, value())), 0..40);
    let runs = proptest::option::weighted(0.3, run());
    let rows = (rows, runs).prop_map(|(mut rows, run)| {
        rows.extend(run.into_iter().flatten());
        rows
    });
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
    prop_assert!(contents(store) == *model, "the contents differ");
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
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn stores_do_as_a_map_does(actions in vec(action(), 1..12)) {
        let folder = tempfile::tempdir().unwrap();
        let mut places = vec![
            Location::Redb(folder.path().join("redb")),
            Location::Sqlite(folder.path().join("sqlite")),
            Location::Log(folder.path().join("log")),
        ];
        #[cfg(unix)]
        places.extend(crate::server::shared().map(|server| Location::Postgres(server.schema().0.into())));
        let memory = AnyStore::memory();
        let open = |place: &Location| place.open(OpenFor::Filling, CACHE_BYTES).unwrap();
        let mut stores: Vec<_> = places.iter().map(open).collect();
        let mut model = Contents::new();
        for action in &actions {
            match action {
                Action::Reopen => {
                    stores.into_iter().for_each(|store| store.close().unwrap());
                    stores = places.iter().map(open).collect();
                    for store in &stores {
                        agree(store, &model, &[])?;
                    }
                }
                Action::Commit { drops, rows, sorted } => {
                    let set = write_set(drops, rows, *sorted);
                    apply(&mut model, drops, rows);
                    for store in [&memory].into_iter().chain(&stores) {
                        store.commit(&set).unwrap();
                        agree(store, &model, rows)?;
                    }
                }
            }
        }
        stores.iter_mut().for_each(|store| store.check().unwrap());
    }
}
