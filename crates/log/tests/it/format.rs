//! The bytes of a log: they may never change.

use spinney_log::{Batch, Log, LogError};

use crate::mem_disk::MemDisk;
use crate::model::small;

/// Two commits and a closing record, with a store id that is put in afterwards.
fn sample() -> std::collections::BTreeMap<String, Vec<u8>> {
    let disk = MemDisk::default();
    let log = Log::create(disk.clone(), small()).unwrap();
    let mut batch = Batch::new();
    batch.put(&b"key 1"[..], b"a row of some bytes, and more", None);
    batch.put(&b"key 2"[..], b"", None);
    batch.mark(7);
    log.commit(&mut batch).unwrap();
    let mut batch = Batch::new();
    batch.put(
        &b"key 1"[..],
        b"a row of some Bytes, and more",
        Some(b"a row of some bytes, and more"),
    );
    batch.remove(&b"key 2"[..]);
    batch.remove_between(&b"a"[..], &b"b"[..]);
    log.commit(&mut batch).unwrap();
    log.close().unwrap();
    disk.files()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_bytes_of_a_log_are_fixed() {
    let files = sample();
    let names: Vec<_> = files.keys().map(String::as_str).collect();
    assert_eq!(names, ["format", "seg-00000001"]);
    let format = &files["format"];
    assert_eq!(format.len(), 40);
    assert_eq!(hex(&format[..16]), "53504e594c4f470a0300000000000000");
    let segment = &files["seg-00000001"];
    assert_eq!(segment.len(), 16 << 10);
    let record = |at: usize| &segment[at..at + 4_096];
    // The first record: the store id and the hash over it differ from log to log.
    let first = record(0);
    assert_eq!(hex(&first[..8]), "5350524300000000");
    assert_eq!(first[8..24], format[16..32]);
    let numbers = |record: &[u8]| -> Vec<u64> {
        let number = |at: usize| u64::from_le_bytes(record[at..at + 8].try_into().unwrap());
        (24..112).step_by(8).filter(|at| *at != 80).map(number).collect()
    };
    let mark = |record: &[u8]| u64::from_le_bytes(record[128..136].try_into().unwrap());
    assert_eq!([first, record(4_096), record(8_192)].map(mark), [7, 7, 7]);
    // segment, commit, before, its end, oldest, replay, entries, index bytes, data bytes
    assert_eq!(numbers(first), [1, 1, 0, 0, 1, 1, 0, 3 | 1 << 32, 34, 29]);
    let index = "0503".to_owned() + "0000" + "01" + "00056b65792031" + "1d";
    assert_eq!(hex(&first[144..157]), index);
    assert_eq!(&first[178..207], b"a row of some bytes, and more");
    assert!(first[207..].iter().all(|byte| *byte == 0));
    // The second one: what was held, as it was; a range, a delta, a removal.
    let second = record(4_096);
    assert_eq!(numbers(second), [1, 2, 0, 0, 1, 1, 4_096, 6 | 1 << 32, 70, 3]);
    assert_eq!(second[80..88], first[136..144], "it follows the first");
    let end = 144 + 70;
    assert_eq!(hex(&second[end..end + 3]), "0e0242");
    let closing = record(8_192);
    assert_eq!(hex(&closing[..8]), "5350524301000000");
    assert_eq!(numbers(closing), [1, 2, 0, 0, 1, 1, 4_096, 1 << 32, 0, 0]);
    assert!(segment[12_288..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_newer_format_is_refused_and_named() {
    let mut files = sample();
    let format = files.get_mut("format").unwrap();
    format[8] = 4;
    let hash = xxhash_rust::xxh3::xxh3_64(&format[..32]);
    format[32..].copy_from_slice(&hash.to_le_bytes());
    let error = Log::open(MemDisk::of(files), small()).unwrap_err();
    assert!(matches!(error, LogError::Foreign { .. }));
    assert_eq!(
        error.to_string(),
        "the disk is no page log: its format is 4, and this program knows format 3"
    );
}

#[test]
fn what_is_no_log_is_told() {
    let error = Log::open(MemDisk::default(), small()).unwrap_err();
    assert_eq!(error.to_string(), "there is no page log at the disk");
    let mut files = sample();
    files.remove("format");
    let error = Log::open(MemDisk::of(files), small()).unwrap_err();
    assert_eq!(error.to_string(), "the disk is damaged: its file format is missing");
    let disk = MemDisk::default();
    let log = Log::create(disk.clone(), small()).unwrap();
    assert!(matches!(Log::open(disk.clone(), small()), Err(LogError::Busy { .. })));
    drop(log);
    assert!(matches!(Log::create(disk, small()), Err(LogError::Io { .. })));
}
