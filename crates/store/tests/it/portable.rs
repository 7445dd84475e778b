//! PostgreSQL stores in what other engines of its protocol have, too. Skipped where there is no
//! server.

use std::thread;

use spinney_store::{Address, Location, PostgresStore};
use spinney_tree::{PageStore, StoreError, Table};

use crate::server::{Server, shared};
use crate::tools::{contents, puts, read};

/// The address with `portable=true`.
pub(crate) fn of(url: &str) -> Address {
    let sign = if url.contains('?') { '&' } else { '?' };
    format!("{url}{sign}portable=true").into()
}

fn place() -> Option<(&'static Server, Address, String)> {
    let server = shared()?;
    let (url, schema) = server.schema();
    Some((server, of(&url), schema))
}

#[test]
fn the_one_who_opened_it_last_writes() {
    let Some((_, url, _)) = place() else { return };
    let first = PostgresStore::create(&url).unwrap();
    first.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    let second = PostgresStore::open(&url).unwrap();
    for _ in 0..2 {
        let error = first.commit(&puts(Table::Meta, [("a", "2")])).unwrap_err();
        assert!(error.to_string().contains("another process wrote to it"), "{error}");
    }
    assert_eq!(read(&second, Table::Meta, b"a").unwrap(), b"1");
    second.commit(&puts(Table::Meta, [("a", "3")])).unwrap();
    first.close().unwrap();
    second.commit(&puts(Table::Meta, [("a", "4")])).unwrap();
    let third = PostgresStore::open(&url).unwrap();
    assert!(second.commit(&puts(Table::Meta, [("a", "5")])).is_err());
    assert_eq!(read(&third, Table::Meta, b"a").unwrap(), b"4");
    third.commit(&puts(Table::Meta, [("a", "6")])).unwrap();
    let reader = PostgresStore::open_read_only(&url).unwrap();
    third.commit(&puts(Table::Meta, [("a", "7")])).unwrap();
    assert_eq!(read(&reader, Table::Meta, b"a").unwrap(), b"7");
    reader.check().unwrap();
    assert_eq!(reader.stats().unwrap().tables.len(), Table::ALL.len());
}

/// Many writers who take the store from each other: each commit that was said to be done is there,
/// once.
#[test]
fn writers_who_take_a_store_from_each_other_lose_nothing() {
    let Some((_, url, _)) = place() else { return };
    drop(PostgresStore::create(&url).unwrap());
    let write = |writer: u8| {
        let mut done = Vec::new();
        for round in 0..12_u8 {
            let store = PostgresStore::open(&url).unwrap();
            for part in 0..3_u8 {
                let key = [writer, round, part];
                match store.commit(&puts(Table::Meta, [(key, key)])) {
                    Ok(()) => done.push(key.to_vec()),
                    Err(StoreError::Backend { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        done
    };
    let mut done = thread::scope(|scope| {
        let write = &write;
        let writers: Vec<_> = (0..4).map(|writer| scope.spawn(move || write(writer))).collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    done.sort_unstable();
    let store = PostgresStore::open_read_only(&url).unwrap();
    let held: Vec<_> = contents(&store).into_keys().map(|(_, key)| key).collect();
    assert_eq!(held, done);
}

#[test]
fn of_two_who_make_a_store_the_first_one_is_refused() {
    let Some((server, url, schema)) = place() else { return };
    let made = PostgresStore::create_filled(&url, |first| {
        first.commit(&puts(Table::Meta, [("a", "1")]))?;
        let second = PostgresStore::create(&url)?;
        second.commit(&puts(Table::Meta, [("b", "2")]))?;
        let error = first.commit(&puts(Table::Meta, [("c", "3")])).unwrap_err();
        assert!(error.to_string().contains("another process wrote to it"), "{error}");
        Ok::<_, StoreError>(())
    });
    let error = made.map(drop).unwrap_err();
    assert!(error.to_string().contains("another process wrote to it"), "{error}");
    let store = PostgresStore::open(&url).unwrap();
    assert_eq!(contents(&store).len(), 1, "the second one's is whole");

    // Whoever is stopped between two statements leaves no store behind.
    store.close().unwrap();
    server.session(&schema).batch_execute("DELETE FROM spinney_store").unwrap();
    let error = PostgresStore::open(&url).unwrap_err();
    assert!(matches!(error, StoreError::Missing { .. }), "{error}");
    let store = PostgresStore::create(&url).unwrap();
    assert!(contents(&store).is_empty());
}

#[test]
fn it_takes_no_lock_of_a_session() {
    let Some((server, url, schema)) = place() else { return };
    let locks = |schema: &str| {
        let sql = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) \
                   WHERE locktype = 'advisory' AND application_name = $1";
        server.session(schema).query_one(sql, &[&schema]).unwrap().get::<_, i64>(0)
    };
    let store = PostgresStore::create(&url).unwrap();
    store.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    assert_eq!(locks(&schema), 0);
    // The other kind does: the question can be answered with more.
    let (url, schema) = server.schema();
    let _other = PostgresStore::create(&url.into()).unwrap();
    assert_eq!(locks(&schema), 1);
}

#[test]
fn what_is_neither_true_nor_false_is_refused() {
    let address: Address = "postgres://me@localhost/state?portable=perhaps".into();
    let error = PostgresStore::open(&address).unwrap_err();
    assert!(error.to_string().contains("portable is neither true nor false"), "{error}");
    let Some((_, url, _)) = place() else { return };
    let location = Location::Postgres(url);
    assert!(!location.to_string().contains("portable"));
}
