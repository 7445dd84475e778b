//! What a store lacks that its trees refer to: `db check` finds it, and nothing is copied without
//! it.

use std::collections::BTreeSet;

use alloy_primitives::hex;
use spinney_state::{State, StateError};
use spinney_tree::{MemoryStore, PageStore, Table, WriteSet};

use crate::support::{Folder, all_forks, assert_sound, open_store, rows, spinney, spinney_fed};

fn delete(store: &impl PageStore, table: Table, key: &[u8]) {
    let mut set = WriteSet::new();
    set.delete(table, key);
    store.commit(&set).expect("it commits");
}

fn put(store: &impl PageStore, table: Table, (key, row): &(Vec<u8>, Vec<u8>)) {
    let mut set = WriteSet::new();
    set.put(table, key, row.clone());
    store.commit(&set).expect("it commits");
}

/// A store in memory with all rows of another.
fn copy(db: &str) -> MemoryStore {
    let store = MemoryStore::new();
    let mut set = WriteSet::new();
    for table in Table::ALL {
        rows(db, table).into_iter().for_each(|(key, row)| set.put(table, &key, row));
    }
    store.commit(&set).expect("it commits");
    store
}

/// What `db check` says, which is not that all is sound.
fn findings(db: &str) -> String {
    spinney(&["db", "check", "-q", "--format", "table", "--db", db]).exits(1).out
}

#[test]
fn code_that_was_lost_is_found_and_nothing_is_copied_without_it() {
    let Some(chain) = all_forks() else { return };
    let folder = Folder::new();
    let db = folder.path("db");
    chain.replay(&["--db", &db]).exits(0);
    assert_sound(&db);
    let accounts = chain.head_state["accounts"].as_object().expect("accounts");
    let empty = "0xc5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470";
    let used: BTreeSet<&str> = accounts
        .values()
        .map(|account| account["codeHash"].as_str().expect("a hash"))
        .filter(|hash| *hash != empty)
        .collect();
    assert!(used.len() > 10, "{used:?}");
    let codes = rows(&db, Table::Codes);
    let store = copy(&db);
    let (mut found, mut last) = (0, None);
    for code in &codes {
        delete(&store, Table::Codes, &code.0);
        let state = State::open(&store, 1 << 20).expect("it opens");
        let faults = state.check_references(|_| ()).expect("it can be read");
        let dumped: Result<Vec<_>, _> = state.dump().expect("it opens").accounts().collect();
        if used.contains(&hex::encode_prefixed(&code.0)[..]) {
            let [StateError::NoCode { address: Some(address), hash, .. }] = &faults[..] else {
                panic!("{faults:?}")
            };
            assert_eq!(hash[..], code.0);
            let named = accounts.get(&address.to_string()).expect("it is there");
            assert_eq!(named["codeHash"].as_str().unwrap(), hex::encode_prefixed(&code.0));
            assert!(matches!(dumped, Err(StateError::NoCode { .. })), "{dumped:?}");
            (found, last) = (found + 1, Some((code, *address)));
        } else {
            // Of a contract that is gone.
            assert!(faults.is_empty() && dumped.is_ok(), "{faults:?}");
        }
        drop(state);
        put(&store, Table::Codes, code);
    }
    assert_eq!(found, used.len());

    let (code, address) = last.expect("there is one");
    {
        let store = open_store(&db);
        delete(&store, Table::Codes, &code.0);
    }
    // Several accounts may share it; each verb names the first that it comes to.
    let said = findings(&db);
    assert!(said.contains(&format!("the code of account {address} is not stored")), "{said}");
    let out = folder.path("out");
    let dump = ["db", "dump", "--db", &db];
    spinney(&dump).exits(2).refuses(&format!("the code of account {address} is not stored"));
    let convert = ["convert", "-q", "--to", "pbt:blake3", &db, &out];
    spinney(&convert).exits(1).refuses("code").says(&address.to_string());
    assert!(!std::path::Path::new(&out).exists());
}

#[test]
fn preimages_and_blocks_that_were_lost_are_found() {
    let folder = Folder::new();
    let db = folder.path("db");
    spinney(&["replay", "-q", "--blocks-count", "6", "--db", &db]).exits(0);
    assert_sound(&db);
    let open = || open_store(&db);
    let preimages = rows(&db, Table::Preimages);
    for name in preimages.iter().step_by(preimages.len() / 4) {
        delete(&open(), Table::Preimages, &name.0);
        let said = findings(&db);
        let hash = hex::encode_prefixed(&name.0);
        assert!(said.contains(&format!("no preimage of {hash} is stored")), "{said}");
        put(&open(), Table::Preimages, name);
    }
    let blocks = rows(&db, Table::History);
    assert_eq!(blocks.len(), 6);
    for (block, number) in blocks.iter().zip(1..).skip(1) {
        delete(&open(), Table::History, &block.0);
        let said = findings(&db);
        // The last one is missed by the state, others by the one behind.
        let missed = if number == 6 { 5 } else { number + 1 };
        assert!(said.contains(&format!("the history of block {missed} is damaged")), "{said}");
        put(&open(), Table::History, block);
    }
    assert_sound(&db);
    // Without any, nothing was promised.
    let bare = folder.path("bare");
    spinney(&["replay", "-q", "--blocks-count", "6", "--no-preimages", "--db", &bare]).exits(0);
    assert!(rows(&bare, Table::Preimages).is_empty());
    assert_sound(&bare);
}

#[test]
fn parts_of_values_and_names_of_trees_that_were_lost_are_found() {
    let folder = Folder::new();
    let (raw, sums) = (folder.path("raw"), folder.path("sums"));
    let trace =
        format!("{{\"put\": {{\"0x01\": \"0x{}\", \"0x02\": \"0x02\"}}}}", "ab".repeat(9_000));
    spinney_fed(&["root", "--db", &raw, "-"], &trace).exits(0);
    assert_sound(&raw);
    let overflow: Vec<_> =
        rows(&raw, Table::Pages).into_iter().filter(|(key, _)| key[8] == 1).collect();
    assert_eq!(overflow.len(), 3);
    for row in &overflow {
        let store = open_store(&raw);
        delete(&store, Table::Pages, &row.0);
        drop(store);
        let said = findings(&raw);
        assert!(said.contains("overflow 0x"), "{said}");
        assert_ne!(spinney(&["db", "dump", "--db", &raw]).code, Some(0));
        let store = open_store(&raw);
        put(&store, Table::Pages, row);
    }
    assert_sound(&raw);

    let leaf = format!(
        "{{\"put\": {{\"0x{}\": {{\"value\": \"0x01\", \"sum\": \"5\"}}}}}}",
        "11".repeat(32)
    );
    let root = ["root", "--tree", "sum", "--namespace", "one", "--db", &sums, "-"];
    spinney_fed(&root, &leaf).exits(0);
    assert_sound(&sums);
    let named = |(key, _): &(Vec<u8>, Vec<u8>)| key.windows(3).any(|part| part == b"one");
    let name = rows(&sums, Table::Meta).into_iter().find(named).expect("it has a name");
    let record = rows(&sums, Table::Roots).remove(0);
    for (table, row, says) in [
        (Table::Meta, name, "is a sum tree that no namespace names"),
        (Table::Roots, record, "belong to no tree"),
    ] {
        let store = open_store(&sums);
        delete(&store, table, &row.0);
        drop(store);
        let said = findings(&sums);
        assert!(said.contains(says), "{said}");
        let store = open_store(&sums);
        put(&store, table, &row);
    }
    assert_sound(&sums);
}

/// Each row of pages in the place of its successor, with the seal that it had.
#[test]
fn old_rows_are_refused_by_verified_reads() {
    let folder = Folder::new();
    let trees = ["mpt", "ubt:sha256", "pbt:blake3", "verkle", "sum"];
    for tree in trees {
        let db = folder.path(tree);
        let put = |value: u8| {
            let word = format!("0x{}", format!("{value:02x}").repeat(32));
            let word = match tree {
                "sum" => format!("{{\"value\": \"{word}\", \"sum\": \"{value}\"}}"),
                _ => format!("\"{word}\""),
            };
            let keys = (0..60).map(|n: u8| {
                format!("\"0x{:02x}{}\": {word}", n.wrapping_mul(67), "05".repeat(31))
            });
            let trace = format!("{{\"put\": {{{}}}}}", keys.collect::<Vec<_>>().join(", "));
            spinney_fed(&["root", "--tree", tree, "--db", &db, "-"], &trace).exits(0);
            rows(&db, Table::Pages)
        };
        let (old, new) = (put(3), put(4));
        let key = format!("0x00{}", "05".repeat(31));
        let dump = ["db", "dump", "--verify", "--tree", tree, "--db", &db];
        let prove = ["prove", "--verify", "--tree", tree, "--db", &db, &key];
        let (dumped, proven) = (spinney(&dump).exits(0).out, spinney(&prove).exits(0).out);
        let mut stale = 0;
        for row in new.iter().filter(|row| !old.contains(row)).take(6) {
            let Some(then) = old.iter().find(|then| then.0 == row.0) else { continue };
            let store = open_store(&db);
            self::put(&store, Table::Pages, then);
            drop(store);
            let ran = spinney(&dump);
            assert!(ran.code != Some(0) && ran.out.is_empty(), "{tree}: {ran:?}");
            ran.says("damaged");
            // A row beside the key's path changes nothing of its proof.
            let ran = spinney(&prove);
            assert!(ran.code != Some(0) || ran.out == proven, "{tree}: {ran:?}");
            stale += 1;
            let store = open_store(&db);
            self::put(&store, Table::Pages, row);
        }
        assert!(stale > 0, "{tree}");
        assert_eq!(spinney(&dump).exits(0).out, dumped);
    }
}
