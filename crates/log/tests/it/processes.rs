//! Readers in several processes beside a writer. The other processes are this test program again.

use std::env;
use std::path::Path;
use std::process::{Child, Command};

use spinney_log::{Batch, Folder, Log, Options};

use crate::many;

const ROLE: &str = "SPINNEY_LOG_ROLE";
const FOLDER: &str = "SPINNEY_LOG_FOLDER";
const KEYS: u32 = 40;

fn start(role: &str, folder: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "processes::other_process", "--nocapture", "--test-threads=1"])
        .env(ROLE, role)
        .env(FOLDER, folder)
        .spawn()
        .unwrap()
}

/// What the other process does; nothing in this one.
#[test]
fn other_process() {
    let (Ok(role), Ok(folder)) = (env::var(ROLE), env::var(FOLDER)) else { return };
    let folder = Folder::new(folder);
    match &role[..] {
        "read" => read(folder),
        "write" => write(&Log::open(folder, Options::default()).unwrap(), u32::MAX),
        role => panic!("no role {role}"),
    }
}

fn row(round: u32, key: u32) -> Vec<u8> {
    let mut row = vec![key as u8; 900];
    row[100..104].copy_from_slice(&round.to_be_bytes());
    row
}

fn round_of(log: &Log) -> u32 {
    let row = log.snapshot().unwrap().get(b"round").unwrap();
    row.map_or(0, |row| u32::from_be_bytes(row.try_into().unwrap()))
}

/// Commits rounds of changes to all rows.
fn write(log: &Log, rounds: u32) {
    let start = round_of(log);
    for round in start + 1..=start.saturating_add(rounds) {
        let rows: Vec<_> = (0..KEYS).map(|key| (row(round - 1, key), row(round, key))).collect();
        let mark = round.to_be_bytes();
        let mut batch = Batch::new();
        for (key, (before, row)) in (0..).zip(&rows) {
            let before = (round > 1).then_some(&before[..]);
            batch.put(&u32::to_be_bytes(key)[..], row, before);
        }
        batch.put(&b"round"[..], &mark, None);
        log.commit(&mut batch).unwrap();
    }
}

/// Each snapshot is of one round, and a later one of no earlier round.
fn check(log: &Log, last: &mut u32) {
    let snapshot = log.snapshot().unwrap();
    let Some(mark) = snapshot.get(b"round").unwrap() else { return };
    let round = u32::from_be_bytes(mark.try_into().unwrap());
    assert!(round >= *last, "{round} after {last}");
    *last = round;
    for key in 0..KEYS {
        let found = snapshot.get(&key.to_be_bytes()).unwrap().unwrap();
        assert!(found == row(round, key), "row {key} of round {round}");
    }
}

fn read(folder: Folder) {
    let log = Log::open_read_only(folder).unwrap();
    let (mut last, mut held) = (0, log.snapshot().unwrap());
    for look in 0.. {
        check(&log, &mut last);
        let row = held.get(&7_u32.to_be_bytes()).unwrap();
        assert!(row.is_none_or(|row| row[0] == 7), "a snapshot that is held stays");
        if look % 50 == 0 {
            held = log.snapshot().unwrap();
        }
        if last >= many(600, 30_000) as u32 {
            return;
        }
    }
}

#[test]
fn four_processes_read_while_one_writes() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::create(Folder::new(folder.path()), Options::default()).unwrap();
    write(&log, 1);
    let mut readers: Vec<_> = (0..4).map(|_| start("read", folder.path())).collect();
    let mut dead = start("read", folder.path());
    write(&log, 200);
    // A reader that dies holds nothing.
    dead.kill().unwrap();
    dead.wait().unwrap();
    write(&log, many(600, 30_000) as u32);
    for reader in &mut readers {
        assert!(reader.wait().unwrap().success());
    }
    write(&log, 50);
    log.check().unwrap();
    let stats = log.stats().unwrap();
    assert!(stats.file_bytes < 4 << 20, "{stats:?}");
}

/// A busy server takes each snapshot before it drops the one before.
#[test]
fn snapshots_that_overlap_hold_what_they_need_alone() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::create(Folder::new(folder.path()), Options::default()).unwrap();
    write(&log, 1);
    let reader = Log::open_read_only(Folder::new(folder.path())).unwrap();
    let mut held = reader.snapshot().unwrap();
    for round in 2..=1_500 {
        write(&log, 1);
        let next = reader.snapshot().unwrap();
        let mark = next.get(b"round").unwrap().unwrap();
        assert_eq!(mark, u32::to_be_bytes(round));
        drop(std::mem::replace(&mut held, next));
    }
    let stats = log.stats().unwrap();
    assert!(stats.file_bytes < 4 << 20, "{stats:?}");
}

/// The writer is killed, mostly in the middle of commits: what was there stays, and it goes on.
#[test]
fn a_killed_writer_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    drop(Log::create(Folder::new(folder.path()), Options::default()).unwrap());
    let (mut last, mut forward) = (0, 0);
    for kill in 0..many(12, 10_000) {
        let mut writer = start("write", folder.path());
        let wait = 20 + kill * 7 % 40;
        std::thread::sleep(std::time::Duration::from_millis(wait));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let log = Log::open(Folder::new(folder.path()), Options::default()).unwrap();
        let before = last;
        check(&log, &mut last);
        forward += u32::from(last > before);
        if kill % 10 == 0 {
            log.check().unwrap();
        }
    }
    println!("killed {} times, at round {last}, forward {forward} times", many(12, 10_000));
    assert!(forward > 0);
}
