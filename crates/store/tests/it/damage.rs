//! Damaged files: typed errors or right answers, and an end.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use spinney_store::fault::FaultDisk;
use spinney_store::{RedbStore, quiet_panics};
use spinney_tree::{PageStore, Snapshot, StoreError, Table};

use crate::tools::{Contents, contents, puts};

const PAGE_BYTES: usize = 4_096;
/// Its lowest bit says which of redb's two commit slots holds.
const PRIMARY_BYTE: usize = 9;

/// A store with rows of several sizes in all tables, closed or cut off.
fn sample(closed: bool) -> (Vec<u8>, Contents) {
    let disk = FaultDisk::new();
    let store = disk.create_store().unwrap();
    for round in 0..3_u8 {
        for (at, table) in Table::ALL.into_iter().enumerate() {
            let rows = (0..4 + 12 * (at as u8 % 2)).map(|key| {
                let length = 17 + 61 * usize::from(key) * (1 + usize::from(table == Table::Pages));
                ([key, round, key, 7], vec![key ^ round; length])
            });
            store.commit(&puts(table, rows)).unwrap();
        }
    }
    let rows = contents(&store);
    let image = disk.image();
    store.close().unwrap();
    (if closed { disk.image() } else { image }, rows)
}

/// Whether an answer is one that a damaged store may give.
fn typed(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Corrupt { .. } | StoreError::Foreign { .. } | StoreError::Backend { .. }
    )
}

/// Reads each row and scans each table. Answers whether a row was not found; panics if a wrong one
/// was.
fn read_all(store: &RedbStore, rows: &Contents, what: &str) -> bool {
    let mut lost = false;
    let snapshot = match store.snapshot() {
        Ok(snapshot) => snapshot,
        Err(error) => {
            assert!(typed(&error), "{what}: {error}");
            return false;
        }
    };
    for ((table, key), row) in rows {
        match snapshot.read(*table, key) {
            Ok(None) => lost = true,
            Ok(Some(found)) => assert_eq!(&*found, &row[..], "{what}: a wrong row"),
            Err(error) => assert!(typed(&error), "{what}: {error}"),
        }
    }
    for table in Table::ALL {
        let mut seen = 0;
        let mut visit = |key: &[u8], found: &[u8]| {
            seen += 1;
            let row = rows.get(&(table, key.to_vec())).expect("a key that was never written");
            assert_eq!(found, &row[..], "{what}: a wrong row in a scan");
            seen < 10_000
        };
        match snapshot.scan(table, b"", None, &mut visit) {
            Ok(()) => lost |= seen != rows.keys().filter(|(other, _)| *other == table).count(),
            Err(error) => assert!(typed(&error), "{what}: {error}"),
        }
    }
    lost
}

/// Opens a damaged image in both ways, reads, checks and, where nothing was found, writes.
fn exercise(image: &[u8], rows: &Contents, what: &str) -> &'static str {
    match FaultDisk::with_image(image.to_vec()).open_store_read_only() {
        Ok(store) => drop(read_all(&store, rows, what)),
        Err(error) => assert!(typed(&error), "{what}: {error}"),
    }
    let disk = FaultDisk::with_image(image.to_vec());
    let mut store = match disk.open_store() {
        Ok(store) => store,
        Err(error) => {
            assert!(typed(&error), "{what}: {error}");
            return "refused";
        }
    };
    let lost = read_all(&store, rows, what);
    // A row that damage made unfindable is seen by the check.
    match store.check() {
        Ok(()) => assert!(!lost, "{what}: a lost row, and the check finds nothing"),
        Err(error) => {
            assert!(typed(&error), "{what}: {error}");
            return "found";
        }
    }
    // Not before: redb takes its record of free space on trust when it writes.
    if let Err(error) = store.commit(&puts(Table::Meta, [("after", "the damage")])) {
        assert!(typed(&error), "{what}: {error}");
    }
    "harmless"
}

/// Runs cases on another thread and gives up on one that does not end.
fn with_an_end(cases: impl FnOnce(&mut dyn FnMut(String)) + Send + 'static) {
    quiet_panics();
    let (report, reports) = mpsc::channel();
    let worker = std::thread::spawn(move || cases(&mut |case| report.send(case).unwrap()));
    let mut last = String::from("the first case");
    loop {
        match reports.recv_timeout(Duration::from_secs(120)) {
            Ok(case) => last = case,
            Err(RecvTimeoutError::Timeout) => panic!("no end after {last}"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    if let Err(panic) = worker.join() {
        eprintln!("the case after {last}");
        std::panic::resume_unwind(panic);
    }
}

#[test]
fn truncated_files_are_refused_or_read_right() {
    with_an_end(|report| {
        for closed in [true, false] {
            let (image, rows) = sample(closed);
            let ends = [0, 1, 8, 9, 10, 63, 64, 319, 320, 321, PAGE_BYTES - 1, image.len() - 1];
            let pages = (0..image.len()).step_by(5 * PAGE_BYTES);
            let inside = (1_000..image.len()).step_by(37_777);
            for end in ends.into_iter().chain(pages).chain(inside) {
                let what = format!("cut to {end} bytes, closed {closed}");
                if end < 9 {
                    // The folder refuses these, and redb would start anew in an empty file.
                    continue;
                }
                exercise(&image[..end], &rows, &what);
                report(what);
            }
        }
    });
}

/// Flips a bit in each 64th byte, and in every byte of the header, where the file holds anything.
fn flip(closed: bool) {
    with_an_end(move |report| {
        let (image, rows) = sample(closed);
        let mut outcomes = std::collections::BTreeMap::<_, usize>::new();
        for at in 0..image.len() {
            let page = at / PAGE_BYTES * PAGE_BYTES;
            let undoes = at == PRIMARY_BYTE && !closed;
            let used = image[page..(page + PAGE_BYTES).min(image.len())].iter().any(|b| *b != 0);
            if !used || undoes || (at >= 320 && at % 64 != 13) {
                continue;
            }
            let mut damaged = image.clone();
            damaged[at] ^= 1 << (at / 64 % 8);
            let what = format!("byte {at} flipped, closed {closed}");
            *outcomes.entry(exercise(&damaged, &rows, &what)).or_default() += 1;
            report(what);
        }
        eprintln!("closed {closed}: {outcomes:?}");
        assert!(outcomes["refused"] > 0 && outcomes["found"] > 0 && outcomes["harmless"] > 0);
    });
}

#[test]
fn flipped_bits_in_a_closed_store_show() {
    flip(true);
}

#[test]
fn flipped_bits_in_a_store_that_was_cut_off_show() {
    flip(false);
}

/// The limit of what can be seen: nothing in a redb file covers this bit.
#[test]
fn the_primary_bit_of_a_store_that_was_cut_off_undoes_its_last_commit() {
    let (mut image, rows) = sample(false);
    image[PRIMARY_BYTE] ^= 1;
    let found = contents(&FaultDisk::with_image(image).open_store().unwrap());
    let final_table = Table::ALL[Table::ALL.len() - 1];
    let last = |(table, key): &&(Table, Vec<u8>)| *table == final_table && key[1] == 2;
    assert!(rows.keys().filter(last).count() > 0);
    assert!(rows.keys().all(|row| last(&row) != found.contains_key(row)));

    // The other bits of the byte are harmless, or refused.
    for bit in 1..8 {
        let (mut image, rows) = sample(false);
        image[PRIMARY_BYTE] ^= 1 << bit;
        exercise(&image, &rows, &format!("bit {bit} of byte 9 flipped"));
    }
}

/// redb takes its record of free space on trust when it writes, and can then panic beyond catching.
/// A check comes before that.
#[test]
fn a_check_before_any_write_is_safe() {
    with_an_end(|report| {
        for closed in [true, false] {
            let (image, rows) = sample(closed);
            for at in (PAGE_BYTES..image.len()).step_by(64).map(|at| at + 5) {
                let page = at / PAGE_BYTES * PAGE_BYTES;
                if image[page..(page + PAGE_BYTES).min(image.len())].iter().all(|b| *b == 0) {
                    continue;
                }
                let mut damaged = image.clone();
                damaged[at] ^= 1 << (at / 64 % 8);
                let what = format!("byte {at} flipped, closed {closed}");
                let Ok(mut store) = FaultDisk::with_image(damaged).open_store() else {
                    continue;
                };
                let sound = store.check().is_ok();
                assert!(!sound || !read_all(&store, &rows, &what), "{what}");
                drop(store);
                report(what);
            }
        }
    });
}

#[test]
fn a_damaged_row_is_named() {
    let disk = FaultDisk::new();
    let store = disk.create_store().unwrap();
    let value = *b"a value that is easy to find";
    store.commit(&puts(Table::Codes, [([0xAB, 0xCD], value)])).unwrap();
    store.close().unwrap();
    let mut image = disk.image();
    let places: Vec<_> =
        (0..image.len() - value.len()).filter(|at| image[*at..].starts_with(&value)).collect();
    for at in places {
        image[at] ^= 0x20;
    }
    let mut store = FaultDisk::with_image(image).open_store().unwrap();
    let error = store.snapshot().unwrap().read(Table::Codes, &[0xAB, 0xCD]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the test disk, table codes, row 0xabcd is damaged: it does not match its checksum"
    );
    assert!(matches!(store.check(), Err(StoreError::Corrupt { .. })));
}
