//! What every store does: written once, run for each.

use spinney_store::{AnyStore, LogStore, PostgresStore, RedbStore, SqliteStore};
use spinney_tree::{MemoryStore, PageStore, Snapshot, Table, WriteSet};

use crate::tools::{Held, contents, log, portable, postgres, puts, read, redb, rows, sqlite};

/// Runs each property for a store, made by the expression.
macro_rules! suite {
    ($($name:ident: $fresh:expr;)*) => { $(
        mod $name {
            use super::*;

            suite! { @tests $fresh;
                empty_at_first
                reads_what_was_put
                the_last_write_of_a_key_wins
                an_unsorted_set_is_as_good
                deletes_are_applied
                dropped_ranges_exclude_their_bounds
                drops_come_before_puts
                inverted_ranges_hold_nothing
                an_old_snapshot_stays
                snapshots_say_which_commit_they_show
                read_many_answers_in_order
                scans_keep_to_their_bounds
                scans_stop_early
                long_scans_miss_nothing
                a_visitor_may_read
                a_panic_of_a_visitor_is_its_own
                an_empty_set_changes_nothing
                tables_are_apart
                large_values_come_back
                empty_keys_and_values_are_rows
                one_set_may_touch_every_table
                threads_commit_in_turns
            }
        }
    )* };
    (@tests $fresh:expr; $($property:ident)*) => { $(
        #[test]
        fn $property() {
            // A store that needs a server is skipped, with a line, where there is none.
            let fresh: Option<Held<_>> = $fresh.into();
            if let Some(store) = fresh {
                super::$property(&*store);
            }
        }
    )* };
}

suite! {
    memory: Held::<MemoryStore>::new(MemoryStore::new(), None);
    redb_in_a_folder: redb::<RedbStore>();
    log_in_a_folder: log::<LogStore>();
    any_as_a_log: log::<AnyStore>();
    sqlite_in_a_file: sqlite::<SqliteStore>();
    postgres_on_loopback: postgres::<PostgresStore>();
    postgres_as_other_engines: portable::<PostgresStore>();
    any_in_memory: Held::<AnyStore>::new(AnyStore::memory(), None);
    any_in_a_folder: redb::<AnyStore>();
    any_in_a_file: sqlite::<AnyStore>();
    any_on_loopback: postgres::<AnyStore>();
}

fn empty_at_first(store: &impl PageStore) {
    assert!(contents(store).is_empty());
    assert_eq!(read(store, Table::Pages, b"a"), None);
}

fn reads_what_was_put(store: &impl PageStore) {
    store.commit(&puts(Table::Pages, [("a", "1"), ("b", "2")])).unwrap();
    assert_eq!(read(store, Table::Pages, b"a").unwrap(), b"1");
    assert_eq!(read(store, Table::Pages, b"b").unwrap(), b"2");
    assert_eq!(read(store, Table::Pages, b""), None);
    assert_eq!(read(store, Table::Pages, b"aa"), None);
    store.commit(&puts(Table::Pages, [("a", "longer than before")])).unwrap();
    assert_eq!(read(store, Table::Pages, b"a").unwrap(), b"longer than before");
}

fn the_last_write_of_a_key_wins(store: &impl PageStore) {
    let mut set = puts(Table::Pages, [("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")]);
    set.delete(Table::Pages, b"b");
    set.delete(Table::Pages, b"c");
    set.put(Table::Pages, b"c", *b"2");
    let mut sorted = set.clone();
    sorted.sort();
    for set in [set, sorted] {
        store.commit(&set).unwrap();
        assert_eq!(read(store, Table::Pages, b"a").unwrap(), b"2");
        assert_eq!(read(store, Table::Pages, b"b"), None);
        assert_eq!(read(store, Table::Pages, b"c").unwrap(), b"2");
    }
}

fn an_unsorted_set_is_as_good(store: &impl PageStore) {
    let mut set = WriteSet::new();
    for at in 0..500_u32 {
        let key = at.wrapping_mul(0x9E37_79B1).to_be_bytes();
        set.put(Table::ALL[at as usize % 5], &key, at.to_be_bytes());
    }
    store.commit(&set).unwrap();
    assert_eq!(contents(store).len(), 500);
    for at in 0..500_u32 {
        let key = at.wrapping_mul(0x9E37_79B1).to_be_bytes();
        assert_eq!(read(store, Table::ALL[at as usize % 5], &key).unwrap(), at.to_be_bytes());
    }
}

fn deletes_are_applied(store: &impl PageStore) {
    store.commit(&puts(Table::Codes, [("a", "1"), ("b", "2")])).unwrap();
    let mut set = WriteSet::new();
    set.delete(Table::Codes, b"a");
    set.delete(Table::Codes, b"not there");
    store.commit(&set).unwrap();
    assert_eq!(read(store, Table::Codes, b"a"), None);
    assert_eq!(contents(store).len(), 1);
}

fn dropped_ranges_exclude_their_bounds(store: &impl PageStore) {
    let keys = ["a", "b", "ba", "bb", "c", "d"];
    store.commit(&puts(Table::Pages, keys.map(|key| (key, "x")))).unwrap();
    store.commit(&puts(Table::Roots, keys.map(|key| (key, "x")))).unwrap();
    let mut set = WriteSet::new();
    set.drop_range(Table::Pages, b"b".to_vec(), b"c".to_vec());
    store.commit(&set).unwrap();
    let left: Vec<_> = rows(&store.snapshot().unwrap(), Table::Pages, b"", None);
    let left: Vec<_> = left.iter().map(|row| &row.0[..]).collect();
    assert_eq!(left, [&b"a"[..], b"b", b"c", b"d"]);
    assert_eq!(rows(&store.snapshot().unwrap(), Table::Roots, b"", None).len(), keys.len());
}

fn drops_come_before_puts(store: &impl PageStore) {
    store.commit(&puts(Table::Pages, [("a", "1"), ("b", "1"), ("c", "1"), ("d", "1")])).unwrap();
    let mut set = puts(Table::Pages, [("b", "2"), ("bb", "2")]);
    set.drop_range(Table::Pages, b"a".to_vec(), b"d".to_vec());
    store.commit(&set).unwrap();
    let left = rows(&store.snapshot().unwrap(), Table::Pages, b"", None);
    let expected = [("a", "1"), ("b", "2"), ("bb", "2"), ("d", "1")];
    assert_eq!(left, expected.map(|(key, row)| (key.into(), row.into())));
}

fn inverted_ranges_hold_nothing(store: &impl PageStore) {
    let before = [("a", "1"), ("b", "1"), ("c", "1")];
    store.commit(&puts(Table::Pages, before)).unwrap();
    let mut set = WriteSet::new();
    set.drop_range(Table::Pages, b"c".to_vec(), b"a".to_vec());
    set.drop_range(Table::Pages, b"b".to_vec(), b"b".to_vec());
    set.drop_range(Table::Pages, b"a".to_vec(), b"a\0".to_vec());
    store.commit(&set).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(rows(&snapshot, Table::Pages, b"", None).len(), 3);
    assert!(rows(&snapshot, Table::Pages, b"b", Some(b"b")).is_empty());
    assert!(rows(&snapshot, Table::Pages, b"c", Some(b"a")).is_empty());
}

fn an_old_snapshot_stays(store: &impl PageStore) {
    store.commit(&puts(Table::Pages, [("a", "1"), ("b", "1")])).unwrap();
    let old = store.snapshot().unwrap();
    let row = old.read(Table::Pages, b"a").unwrap().unwrap();
    for round in 0..20_u8 {
        let mut set = puts(Table::Pages, [(&b"a"[..], &[round][..]), (b"c", b"new")]);
        set.delete(Table::Pages, b"b");
        store.commit(&set).unwrap();
    }
    assert_eq!(&*row, b"1", "a row that was lent before");
    assert_eq!(&*old.read(Table::Pages, b"a").unwrap().unwrap(), b"1");
    assert_eq!(&*old.read(Table::Pages, b"b").unwrap().unwrap(), b"1");
    assert!(old.read(Table::Pages, b"c").unwrap().is_none());
    assert_eq!(rows(&old, Table::Pages, b"", None).len(), 2);
    assert_eq!(read(store, Table::Pages, b"a").unwrap(), [19]);
}

fn snapshots_say_which_commit_they_show(store: &impl PageStore) {
    let mut shown = Vec::new();
    for round in 0..5_u8 {
        let snapshot = store.snapshot().unwrap();
        shown.push((snapshot.shows(), rows(&snapshot, Table::Pages, b"", None)));
        let again = store.snapshot().unwrap();
        assert_eq!(again.shows(), snapshot.shows());
        store.commit(&puts(Table::Pages, [([round / 2], [round / 2])])).unwrap();
        assert_eq!(snapshot.shows(), again.shows(), "it shows what it showed");
    }
    for (one, other) in shown.iter().flat_map(|one| shown.iter().map(move |other| (one, other))) {
        assert!(one.0.is_none() || one.0 != other.0 || one.1 == other.1, "{:?}", one.0);
    }
}

fn read_many_answers_in_order(store: &impl PageStore) {
    store.commit(&puts(Table::Pages, [("a", "1"), ("b", "2"), ("c", "3")])).unwrap();
    let snapshot = store.snapshot().unwrap();
    let keys: [&[u8]; 6] = [b"c", b"none", b"a", b"c", b"", b"b"];
    // Later rows are none of its business.
    store.commit(&puts(Table::Pages, [("none", "4"), ("c", "5")])).unwrap();
    let found = snapshot.read_many(Table::Pages, &keys).unwrap();
    let found: Vec<_> = found.iter().map(|row| row.as_deref()).collect();
    let expected: [Option<&[u8]>; 6] = [Some(b"3"), None, Some(b"1"), Some(b"3"), None, Some(b"2")];
    assert_eq!(found, expected);
    assert!(snapshot.read_many(Table::Pages, &[]).unwrap().is_empty());
}

fn scans_keep_to_their_bounds(store: &impl PageStore) {
    store.commit(&puts(Table::Pages, ["a", "b", "ba", "c", "d"].map(|key| (key, key)))).unwrap();
    let snapshot = store.snapshot().unwrap();
    let scan = |low: &[u8], high: Option<&[u8]>| {
        let found = rows(&snapshot, Table::Pages, low, high).into_iter();
        found.map(|row| String::from_utf8(row.0).unwrap()).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(scan(b"", None), "a b ba c d");
    assert_eq!(scan(b"b", None), "b ba c d");
    assert_eq!(scan(b"b", Some(b"c")), "b ba");
    assert_eq!(scan(b"aa", Some(b"c\0")), "b ba c");
    assert_eq!(scan(b"e", None), "");
    assert_eq!(scan(b"", Some(b"")), "");
}

fn scans_stop_early(store: &impl PageStore) {
    store.commit(&puts(Table::Pages, ["a", "b", "c", "d"].map(|key| (key, key)))).unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut seen = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        assert_eq!(key, row);
        seen.push(key.to_vec());
        key != b"b"
    };
    snapshot.scan(Table::Pages, b"", None, &mut visit).unwrap();
    assert_eq!(seen, [b"a", b"b"]);
}

/// More rows than any store hands over at a time, small ones and large ones.
fn long_scans_miss_nothing(store: &impl PageStore) {
    let value = |at: u32| vec![at as u8; if at % 1_000 == 7 { 500_000 } else { at as usize % 90 }];
    let all = || (0..9_000_u32).map(|at| (at.to_be_bytes(), value(at)));
    store.commit(&puts(Table::Pages, all())).unwrap();
    let snapshot = store.snapshot().unwrap();
    let found = rows(&snapshot, Table::Pages, b"", None);
    assert!(found.into_iter().eq(all().map(|(key, value)| (key.to_vec(), value))));
    let (low, high) = (100_u32.to_be_bytes(), 8_765_u32.to_be_bytes());
    assert_eq!(rows(&snapshot, Table::Pages, &low, Some(&high)).len(), 8_665);
}

fn a_visitor_may_read(store: &impl PageStore) {
    store.commit(&puts(Table::Pages, ["a", "b", "c"].map(|key| (key, key)))).unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut visit = |key: &[u8], row: &[u8]| {
        assert_eq!(snapshot.read(Table::Pages, key).unwrap().as_deref(), Some(row));
        let later = puts(Table::Pages, [("b", "changed"), ("d", "new")]);
        store.commit(&later).unwrap();
        key == row
    };
    snapshot.scan(Table::Pages, b"", None, &mut visit).unwrap();
    assert_eq!(rows(&snapshot, Table::Pages, b"", None).len(), 3);
}

fn a_panic_of_a_visitor_is_its_own(store: &impl PageStore) {
    store.commit(&puts(Table::Pages, [("a", "1")])).unwrap();
    let scan = || {
        let snapshot = store.snapshot().unwrap();
        snapshot.scan(Table::Pages, b"", None, &mut |_, _| std::panic::panic_any("mine"))
    };
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(scan)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"mine"));
    store.commit(&puts(Table::Pages, [("a", "2")])).unwrap();
    assert_eq!(read(store, Table::Pages, b"a").unwrap(), b"2");
}

fn an_empty_set_changes_nothing(store: &impl PageStore) {
    store.commit(&WriteSet::new()).unwrap();
    assert!(contents(store).is_empty());
    store.commit(&puts(Table::Pages, [("a", "1")])).unwrap();
    store.commit(&WriteSet::new()).unwrap();
    assert_eq!(contents(store).len(), 1);
}

fn tables_are_apart(store: &impl PageStore) {
    for table in Table::ALL {
        store.commit(&puts(table, [("key", table.name())])).unwrap();
    }
    for table in Table::ALL {
        assert_eq!(read(store, table, b"key").unwrap(), table.name().as_bytes());
    }
    let mut set = WriteSet::new();
    set.delete(Table::Codes, b"key");
    store.commit(&set).unwrap();
    assert_eq!(read(store, Table::Codes, b"key"), None);
    assert_eq!(contents(store).len(), Table::ALL.len() - 1);
}

fn large_values_come_back(store: &impl PageStore) {
    let value = |bytes: usize| (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<_>>();
    let sizes: [usize; 8] = [0, 1, 4_095, 4_096, 4_097, 65_536, 1 << 20, 3_000_001];
    let sets = sizes.map(|bytes| (bytes.to_be_bytes(), value(bytes)));
    store.commit(&puts(Table::Codes, sets)).unwrap();
    for bytes in sizes {
        assert!(read(store, Table::Codes, &bytes.to_be_bytes()).unwrap() == value(bytes));
    }
}

fn empty_keys_and_values_are_rows(store: &impl PageStore) {
    store.commit(&puts(Table::Meta, [("", ""), ("a", "")])).unwrap();
    assert_eq!(read(store, Table::Meta, b"").unwrap(), b"");
    assert_eq!(read(store, Table::Meta, b"a").unwrap(), b"");
    assert_eq!(contents(store).len(), 2);
    let mut set = WriteSet::new();
    set.delete(Table::Meta, b"");
    store.commit(&set).unwrap();
    assert_eq!(read(store, Table::Meta, b""), None);
}

fn one_set_may_touch_every_table(store: &impl PageStore) {
    let mut set = WriteSet::new();
    for table in Table::ALL.into_iter().rev() {
        for at in 0..100_u8 {
            set.put(table, &[at], [table as u8, at]);
        }
        set.drop_range(table, vec![0], vec![200]);
    }
    store.commit(&set).unwrap();
    let found = contents(store);
    assert_eq!(found.len(), 100 * Table::ALL.len());
    assert!(found.iter().all(|((table, key), row)| row[..] == [*table as u8, key[0]]));
}

fn threads_commit_in_turns(store: &impl PageStore) {
    let writer = |thread: u8| {
        for round in 0..10_u8 {
            let rows = Table::ALL.map(|table| (table, thread, round));
            let mut set = WriteSet::new();
            for (table, thread, round) in rows {
                set.put(table, &[thread], [round]);
            }
            store.commit(&set).unwrap();
        }
    };
    let reader = || {
        for _ in 0..20 {
            let found = contents(store);
            // All tables move as one.
            for ((_, key), row) in &found {
                for table in Table::ALL {
                    assert_eq!(found.get(&(table, key.clone())), Some(row));
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || writer(thread));
        }
        scope.spawn(reader);
    });
    assert_eq!(contents(store).len(), 3 * Table::ALL.len());
}
