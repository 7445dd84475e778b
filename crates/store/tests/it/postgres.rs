//! PostgreSQL stores: servers that go away, other writers, damage. Skipped where there is no
//! server.

use std::time::{Duration, Instant};

use postgres::Client;
use spinney_store::{Address, Location, PostgresStore};
use spinney_tree::mpt::Mpt;
use spinney_tree::{Batch, PageStore, Snapshot, StoreError, Table, Tree, TreeId, WriteSet};

use crate::processes::Other;
use crate::server::{Server, shared};
use crate::tools::{contents, puts, read};

const PATIENCE: Duration = Duration::from_secs(60);

/// The server of all tests, and a schema for this one.
fn place() -> Option<(&'static Server, Address, String)> {
    let server = shared()?;
    let (url, schema) = server.schema();
    Some((server, url.into(), schema))
}

/// Waits until the server says so.
fn until(session: &mut Client, what: &str) {
    let since = Instant::now();
    while !session.query_one(what, &[]).unwrap().get::<_, bool>(0) {
        assert!(since.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn reopening_keeps_everything() {
    let Some((_, url, _)) = place() else { return };
    let store = PostgresStore::create(&url).unwrap();
    for round in 0..10_u8 {
        for table in Table::ALL {
            let row = vec![round; 1_000 * usize::from(round)];
            store.commit(&puts(table, [([round], row)])).unwrap();
        }
    }
    let before = contents(&store);
    store.close().unwrap();
    for open in [PostgresStore::open, PostgresStore::open_read_only, PostgresStore::open_or_create]
    {
        let store = open(&url).unwrap();
        assert_eq!(contents(&store), before);
        store.check().unwrap();
    }
    let error = PostgresStore::create(&url).unwrap_err();
    assert!(error.to_string().ends_with("there is a store already"), "{error}");
}

#[test]
fn a_place_without_a_store_is_missing_and_a_wrong_one_is_named() {
    let Some((server, url, _)) = place() else { return };
    for open in [PostgresStore::open, PostgresStore::open_read_only] {
        let error = open(&url).unwrap_err();
        assert!(matches!(error, StoreError::Missing { .. }), "{error}");
        let error = open(&server.url("nowhere", "public").into()).unwrap_err();
        assert!(error.to_string().contains("database \"nowhere\" does not exist"), "{error}");
        let error = open(&server.url("postgres", "nowhere").into()).unwrap_err();
        assert!(error.to_string().contains("none of the schemas"), "{error}");
        let error = open(&"postgres://me:secret@127.0.0.1:1/db".into()).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, StoreError::Backend { .. }), "{said}");
        assert!(said.starts_with("postgres://me@127.0.0.1:1/db: "), "{said}");
        assert!(said.contains("refused") && !said.contains("secret"), "{said}");
        let error = open(&"postgres://me:secret@host:port/".into()).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn other_formats_and_lost_root_records_are_refused() {
    let Some((server, url, schema)) = place() else { return };
    let store = PostgresStore::create(&url).unwrap();
    store.commit(&puts(Table::Roots, [("0", "root"), ("1", "root"), ("3", "root")])).unwrap();
    // Some stay, some come, some go, with and without ranges.
    let mut set = puts(Table::Roots, [("1", "changed"), ("2", "root")]);
    set.delete(Table::Roots, b"0");
    set.delete(Table::Roots, b"not there");
    store.commit(&set).unwrap();
    let mut set = puts(Table::Roots, [("2", "root")]);
    set.drop_range(Table::Roots, b"1".to_vec(), b"9".to_vec());
    store.commit(&set).unwrap();
    store.check().unwrap();
    store.close().unwrap();
    let mut session = server.session(&schema);
    let mut after = |sql: &str| {
        session.batch_execute(sql).unwrap();
        PostgresStore::open(&url).map(drop).unwrap_err()
    };
    let error = after("UPDATE spinney_store SET format = 2");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    assert!(error.to_string().contains("its store format is 2, and this program"), "{error}");
    let error = after("UPDATE spinney_store SET format = 0");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
    let error =
        after("UPDATE spinney_store SET format = 1; DELETE FROM spinney_rows WHERE key = '1'");
    assert!(error.to_string().ends_with("is damaged: it has 1 of 2 root records"), "{error}");
    let error = after("DROP TABLE spinney_rows");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    let error = after("TRUNCATE spinney_store");
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
}

#[test]
fn a_damaged_row_is_named() {
    let Some((server, url, schema)) = place() else { return };
    let store = PostgresStore::create(&url).unwrap();
    store.commit(&puts(Table::Codes, [([0xAB, 0xCD], "a value")])).unwrap();
    let mut session = server.session(&schema);
    session.batch_execute("UPDATE spinney_rows SET value = set_byte(value, 3, 0)").unwrap();
    let error = store.snapshot().unwrap().read(Table::Codes, &[0xAB, 0xCD]).unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("table codes, row 0xabcd is damaged"), "{error}");
    assert!(matches!(store.check(), Err(StoreError::Corrupt { .. })));
}

#[test]
fn one_process_writes_and_others_read() {
    let Some((text, _)) = shared().map(Server::schema) else { return };
    let url = text.as_str().into();
    let store = PostgresStore::create(&url).unwrap();
    let busy = PostgresStore::open(&url).unwrap_err();
    assert!(matches!(busy, StoreError::Busy { .. }), "{busy}");
    let mut other = Other::start("open postgres", text.as_ref());
    assert_eq!(other.hear().unwrap(), "busy");
    other.end();
    let write = |round: u8| {
        let rows = (0..40_u8).map(|key| ([key], vec![round; 3_000]));
        store.commit(&puts(Table::Pages, rows)).unwrap();
    };
    write(1);
    let mut reader = Other::start("read postgres", text.as_ref());
    assert_eq!(reader.hear().unwrap(), "ready");
    for round in 2..20 {
        write(round);
        assert_eq!(reader.ask(), format!("1 {round}"));
    }
    reader.end();
    let reader = PostgresStore::open_read_only(&url).unwrap();
    let error = reader.commit(&puts(Table::Meta, [("a", "1")])).unwrap_err();
    assert!(error.to_string().ends_with("it was opened read-only"), "{error}");
    drop(store);
    PostgresStore::open(&url).unwrap();
}

#[test]
fn a_store_is_seen_once_it_is_filled() {
    let Some((_, url, _)) = place() else { return };
    let fill = |store: &PostgresStore| {
        store.commit(&puts(Table::Meta, [("a", "1")]))?;
        assert!(matches!(PostgresStore::open(&url), Err(StoreError::Missing { .. })));
        assert!(matches!(PostgresStore::create(&url), Err(StoreError::Busy { .. })));
        Ok::<_, StoreError>(())
    };
    let refused = PostgresStore::create_filled(&url, |store| {
        fill(store)?;
        Err(StoreError::Missing { place: "the moon".into() })
    });
    assert_eq!(refused.unwrap_err().to_string(), "there is no store at the moon");
    assert!(matches!(PostgresStore::open(&url), Err(StoreError::Missing { .. })));
    let store = PostgresStore::create_filled(&url, fill).unwrap();
    assert_eq!(read(&store, Table::Meta, b"a").unwrap(), b"1");
    assert_eq!(contents(&store).len(), 1, "nothing is left of the refused one");
}

/// More than one statement takes, in one transaction.
/// Filled over several processes: nobody sees it before it is finished, and nobody fills it beside.
#[test]
fn a_store_that_is_being_filled_is_gone_on_with() {
    let Some((_, url, _)) = place() else { return };
    let place = Location::Postgres(url.clone());
    let first = place.go_on(0).unwrap();
    first.commit(&puts(Table::Meta, [([1], [1])])).unwrap();
    assert!(matches!(place.go_on(0), Err(StoreError::Busy { .. })));
    first.close().unwrap();
    for _ in 0..2 {
        let missing = PostgresStore::open(&url);
        assert!(matches!(missing, Err(StoreError::Missing { .. })), "{missing:?}");
        let again = place.go_on(0).unwrap();
        assert_eq!(read(&again, Table::Meta, &[1]), Some(vec![1]));
        again.commit(&puts(Table::Meta, [([2], [2])])).unwrap();
        again.close().unwrap();
    }
    let whole = place.go_on(0).unwrap();
    whole.finish().unwrap();
    whole.close().unwrap();
    assert_eq!(read(&PostgresStore::open(&url).unwrap(), Table::Meta, &[2]), Some(vec![2]));
    let error = place.go_on(0).unwrap_err();
    assert!(error.to_string().ends_with("there is a store already"), "{error}");
    assert!(place.begin(0).is_err());
    place.remove().unwrap();
    // What was begun and is begun anew has nothing left of it.
    let begun = place.go_on(0).unwrap();
    begun.commit(&puts(Table::Meta, [([1], [1])])).unwrap();
    begun.close().unwrap();
    assert_eq!(read(&place.begin(0).unwrap(), Table::Meta, &[1]), None);
}

#[test]
fn a_large_commit_is_one_all_the_same() {
    let Some((server, url, schema)) = place() else { return };
    let store = PostgresStore::create(&url).unwrap();
    let large = |byte: u8| {
        let mut set = puts(Table::Codes, (0..80_u8).map(|key| ([key], vec![byte; 1 << 20])));
        set.put(Table::Roots, b"root", [byte]);
        set
    };
    let before = store.io();
    store.commit(&large(1)).unwrap();
    assert_eq!((store.io() - before).round_trips, 4, "the rows are two statements");
    assert!(contents(&store).values().all(|row| row[0] == 1));
    server.session(&schema).batch_execute("UPDATE spinney_store SET commits = 7").unwrap();
    let error = store.commit(&large(2)).unwrap_err();
    assert!(error.to_string().contains("another process wrote to it"), "{error}");
    assert!(contents(&store).values().all(|row| row[0] == 1), "half of it was written");
}

/// Another session touches the row that every commit moves on: the server gives ours up, and it is
/// tried again.
#[test]
fn a_commit_that_was_given_up_for_another_is_tried_again() {
    let Some((server, url, schema)) = place() else { return };
    let store = PostgresStore::create(&url).unwrap();
    let (mut theirs, mut look) = (server.session(&schema), server.session(&schema));
    theirs.batch_execute("BEGIN; UPDATE spinney_store SET roots = roots").unwrap();
    let before = store.io().round_trips;
    std::thread::scope(|scope| {
        let ours = scope.spawn(|| store.commit(&puts(Table::Meta, [("a", "1")])));
        let waits = format!(
            "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
             AND application_name = '{schema}'"
        );
        until(&mut look, &waits);
        theirs.batch_execute("COMMIT").unwrap();
        ours.join().unwrap().unwrap();
    });
    let trips = store.io().round_trips - before;
    assert_eq!(trips, 3, "a refusal, a rollback, and the commit");
    assert_eq!(read(&store, Table::Meta, b"a").unwrap(), b"1");
}

/// Even a writer that lost its lock without noticing does not mix with another one.
#[test]
fn a_writer_that_was_overtaken_is_refused() {
    let Some((server, url, schema)) = place() else { return };
    let store = PostgresStore::create(&url).unwrap();
    server
        .session(&schema)
        .batch_execute("UPDATE spinney_store SET commits = commits + 1")
        .unwrap();
    for _ in 0..2 {
        let error = store.commit(&puts(Table::Meta, [("a", "1")])).unwrap_err();
        assert!(error.to_string().contains("another process wrote to it"), "{error}");
    }
    assert!(contents(&store).is_empty());
    drop(store);
    let store = PostgresStore::open(&url).unwrap();
    store.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
}

#[test]
fn a_writer_whose_connection_goes_says_so_and_readers_make_new_ones() {
    let Some((server, url, schema)) = place() else { return };
    let store = PostgresStore::create(&url).unwrap();
    store.commit(&puts(Table::Meta, [("a", "1")])).unwrap();
    drop(store.snapshot().unwrap());
    let old = store.snapshot().unwrap();
    let mut session = server.session(&schema);
    let end = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity \
               WHERE application_name = $1";
    let ended: i64 = session.query_one(end, &[&schema]).unwrap().get(0);
    assert_eq!(ended, 2, "the writer's and the snapshot's");
    let error = old.read(Table::Meta, b"a").unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
    drop(old);
    assert_eq!(read(&store, Table::Meta, b"a").unwrap(), b"1", "a new snapshot, a new connection");
    let error = store.commit(&puts(Table::Meta, [("a", "2")])).unwrap_err();
    assert!(matches!(error, StoreError::Backend { .. }), "{error}");
    let error = store.commit(&puts(Table::Meta, [("a", "2")])).unwrap_err();
    assert!(error.to_string().contains("close the store and open it again"), "{error}");
    drop(store);
    let store = PostgresStore::open(&url).unwrap();
    assert_eq!(read(&store, Table::Meta, b"a").unwrap(), b"1");
    store.commit(&puts(Table::Meta, [("a", "2")])).unwrap();
}

/// What a batch costs in round trips, through the engine.
#[test]
fn a_batch_takes_a_handful_of_round_trips() {
    let Some((_, url, _)) = place() else { return };
    let store = PostgresStore::create(&url).unwrap();
    let mut tree = open(&store);
    let io = store.io();
    commit_keys(&mut tree, &store, 0..10_000);
    let first = store.io() - io;
    // Nothing is resident: every page on the way is read.
    let mut tree = open(&store);
    let io = store.io();
    commit_keys(&mut tree, &store, 9_500..10_500);
    let second = store.io() - io;
    println!("10,000 keys {first:?}, 1,000 into them {second:?}");
    assert!(first.round_trips <= 12, "{first:?}");
    assert!(second.round_trips <= 12, "{second:?}");
    assert!(second.writes <= 1, "{second:?}");
    let io = store.io();
    let tree = open(&store);
    let snapshot = store.snapshot().unwrap();
    assert!(tree.get(&snapshot, None, &key(7_777)).unwrap().is_some());
    drop(snapshot);
    let read = store.io() - io;
    println!("one value {read:?}");
    // Two to open the tree, two for the snapshot, and one for each page on the way.
    assert_eq!(read.round_trips, 4 + read.reads, "{read:?}");
}

fn key(at: u32) -> [u8; 32] {
    let mut key = [0; 32];
    for (word, bytes) in key.chunks_exact_mut(4).enumerate() {
        bytes.copy_from_slice(&(at + 1).wrapping_mul(0x9E37_79B1 + word as u32).to_be_bytes());
    }
    key
}

fn open(store: &impl PageStore) -> Tree<Mpt> {
    Tree::open(Mpt, TreeId(1), &store.snapshot().unwrap(), 1 << 20).unwrap()
}

fn commit_keys(tree: &mut Tree<Mpt>, store: &impl PageStore, keys: std::ops::Range<u32>) {
    let mut batch = Batch::new();
    keys.for_each(|at| batch.put(&key(at), &[at as u8 | 1; 40]));
    let snapshot = store.snapshot().unwrap();
    let pending = tree.prepare(&snapshot, None, batch).unwrap();
    drop(snapshot);
    tree.commit(store, &pending, None).unwrap();
}

/// How often the server is killed: `SPINNEY_KILLS=50` is the long run.
fn kills() -> u32 {
    std::env::var("SPINNEY_KILLS").map_or(4, |kills| kills.parse().unwrap())
}

/// What a batch of these rounds holds, on top of the one before.
fn batch(round: u32) -> WriteSet {
    let mut set = WriteSet::new();
    for at in 0..2_000_u32 {
        set.put(Table::Pages, &at.to_be_bytes(), vec![round as u8; 500 + at as usize % 3_000]);
    }
    set.drop_range(Table::Codes, vec![0], vec![255]);
    set.put(Table::Codes, &[1 + (round % 100) as u8], round.to_be_bytes());
    set.put(Table::Meta, b"round", round.to_be_bytes());
    set
}

/// The server is killed at moments spread over a batch, and started again: the batch is there
/// whole, or not at all.
#[test]
fn a_server_killed_in_a_batch_has_all_of_it_or_nothing() {
    let Some(mut server) = Server::start() else { return };
    let url = server.schema().0.into();
    let store = PostgresStore::create(&url).unwrap();
    store.commit(&batch(0)).unwrap();
    let begun = Instant::now();
    store.commit(&batch(1)).unwrap();
    let whole = begun.elapsed();
    drop(store);
    let (mut done, mut undone, mut reported) = (0, 0, 0);
    let mut last = 1;
    for kill in 0..kills() {
        let store = PostgresStore::open(&url).unwrap();
        // From before the statement until after it: it takes longer than when all was warm.
        let after = whole * (2 * kill + 1) / kills();
        let committed = std::thread::scope(|scope| {
            let ours = scope.spawn(|| store.commit(&batch(last + 1)));
            std::thread::sleep(after);
            server.kill();
            ours.join().unwrap()
        });
        if let Err(error) = &committed {
            assert!(matches!(error, StoreError::Backend { .. }), "{error}");
            let again = store.commit(&batch(last + 1)).unwrap_err();
            assert!(again.to_string().contains("open it again"), "{again}");
        }
        drop(store);
        let error = PostgresStore::open(&url).unwrap_err();
        assert!(matches!(error, StoreError::Backend { .. }), "{error}");
        server.run();

        let store = PostgresStore::open(&url).unwrap();
        let found = read(&store, Table::Meta, b"round").unwrap();
        let found = u32::from_be_bytes(found.try_into().unwrap());
        assert!(found == last || found == last + 1, "{found} after {last}");
        assert!(committed.is_err() || found == last + 1, "a commit that returned is durable");
        let rows = contents(&store);
        assert_eq!(rows.len(), 2_002);
        for ((table, key), row) in &rows {
            match table {
                Table::Pages => assert!(row.iter().all(|byte| *byte == found as u8), "{key:?}"),
                Table::Codes => assert_eq!(row[..], found.to_be_bytes()),
                _ => {}
            }
        }
        store.check().unwrap();
        done += usize::from(found == last + 1);
        undone += usize::from(found == last);
        reported += usize::from(committed.is_ok());
        last = found;
    }
    println!(
        "killed {} times: {done} batches were there ({reported} had returned), {undone} not",
        kills()
    );
}
