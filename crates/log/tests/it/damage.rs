//! Flipped bits: the right row or a typed error.

use spinney_log::{Log, LogError};

use crate::many;
use crate::mem_disk::{Draw, MemDisk};
use crate::model::{Rows, Step, small};

/// A log of some segments that was closed.
fn sample() -> (MemDisk, Rows) {
    let (disk, mut draw, mut rows) = (MemDisk::default(), Draw::of(5), Rows::new());
    let log = Log::create(disk.clone(), small()).unwrap();
    for _ in 0..60 {
        let step = Step::draw(&mut draw, &rows);
        step.apply(&mut rows);
        log.commit(&mut step.batch()).unwrap();
    }
    log.close().unwrap();
    (disk, rows)
}

/// Whether all rows are there; an error is one that says what is wrong.
fn judge(log: Result<Log, LogError>, rows: &Rows, what: &str) -> bool {
    let typed = |error: LogError| {
        let fits = matches!(
            error,
            LogError::Corrupt { .. } | LogError::Foreign { .. } | LogError::Missing { .. }
        );
        assert!(fits, "{what}: {error}");
    };
    let log = match log {
        Ok(log) => log,
        Err(error) => {
            typed(error);
            return false;
        }
    };
    let snapshot = log.snapshot().unwrap();
    assert_eq!(snapshot.rows(), rows.len() as u64, "{what}: not all rows");
    let mut right = true;
    for (key, row) in rows {
        match snapshot.get(key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(row), "{what}: another row"),
            Err(error) => {
                typed(error);
                right = false;
            }
        }
    }
    assert!(right || log.check().is_err(), "{what}: the check finds nothing");
    right
}

#[test]
fn flipped_bits_of_a_closed_log_show() {
    let (disk, rows) = sample();
    let files = disk.files();
    let bytes: usize = files.values().map(Vec::len).sum();
    let mut draw = Draw::of(77);
    let (mut right, mut wrong) = (0, 0);
    for flip in 0..many(1_500, 100_000) {
        let mut at = draw.below(bytes);
        let mut damaged = files.clone();
        for (name, file) in &mut damaged {
            if at < file.len() {
                file[at] ^= 1 << draw.below(8);
                let what = format!("flip {flip}: byte {at} of {name}");
                let disk = MemDisk::of(damaged.clone());
                let is_right = judge(Log::open_read_only(disk.clone()), &rows, &what);
                if flip % 8 == 0 {
                    judge(Log::open(disk, small()), &rows, &what);
                }
                if is_right {
                    right += 1;
                } else {
                    wrong += 1;
                }
                break;
            }
            at -= file.len();
        }
    }
    println!("{right} flips did no harm, {wrong} were found");
    assert!(right > 0 && wrong > 0);
}

#[test]
fn cut_files_are_refused_or_read_right() {
    let (disk, rows) = sample();
    let files = disk.files();
    for name in files.keys() {
        for end in (0..files[name].len()).step_by(1_000) {
            let mut cut = files.clone();
            cut.get_mut(name).unwrap().truncate(end);
            let what = format!("{name} cut to {end}");
            let log = Log::open_read_only(MemDisk::of(cut));
            // Records at the very end of the log that are cut off are as if they were never written.
            if let Ok(log) = &log
                && log.snapshot().unwrap().rows() != rows.len() as u64
            {
                continue;
            }
            if let Ok(log) = &log
                && log.snapshot().unwrap().commit() < 60
            {
                continue;
            }
            judge(log, &rows, &what);
        }
        let mut without = files.clone();
        without.remove(name);
        let log = Log::open_read_only(MemDisk::of(without));
        if let Ok(log) = &log
            && log.snapshot().unwrap().commit() < 60
        {
            continue;
        }
        judge(log, &rows, &format!("{name} removed"));
    }
}
