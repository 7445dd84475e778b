//! The log against a map: random batches, snapshots, ranges, reopenings, failures and power cuts.

use std::collections::BTreeMap;

use spinney_log::{Batch, Keep, Log, LogError, Options, Snapshot, Stats};

use crate::many;
use crate::mem_disk::{Draw, MemDisk};

pub(crate) type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub(crate) fn small() -> Options {
    let mut options = Options::default();
    options.segment_bytes_min = 16 << 10;
    options
}

pub(crate) fn rows(snapshot: &Snapshot) -> Result<Rows, LogError> {
    let mut rows = Rows::new();
    snapshot.scan(b"", None, &mut |key, row| rows.insert(key.into(), row.into()).is_none())?;
    assert_eq!(rows.len() as u64, snapshot.rows());
    Ok(rows)
}

fn same(log: &Log, rows_now: &Rows) {
    assert!(rows(&log.snapshot().unwrap()).unwrap() == *rows_now, "other rows");
}

/// A key, its row or none, and what is said to be the row before.
type Put = (Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>);

/// What a batch does.
#[derive(Clone, Debug, Default)]
pub(crate) struct Step {
    pub(crate) puts: Vec<Put>,
    pub(crate) ranges: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One of four times so many keys.
fn key(draw: &mut Draw, keys: usize) -> Vec<u8> {
    let prefix = [&b""[..], b"a", b"some longer prefix ", b"b"][draw.below(4)];
    [prefix, &(draw.below(keys) as u16).to_be_bytes()].concat()
}

impl Step {
    pub(crate) fn draw(draw: &mut Draw, now: &Rows) -> Self {
        let puts = draw.below(25);
        Self::of(draw, now, (puts, 80))
    }

    /// So many changes among four times so many keys.
    fn of(draw: &mut Draw, now: &Rows, (puts, keys): (usize, usize)) -> Self {
        let mut step = Self::default();
        for _ in 0..puts {
            let key = key(draw, keys);
            let old = now.get(&key);
            let row = match (draw.below(10), old) {
                (0, _) => None,
                (1 | 2, _) | (_, None) => {
                    let len = if draw.below(20) == 0 { 9_000 } else { draw.below(600) };
                    let byte = draw.below(256);
                    Some((0..len).map(|i| (i * byte / 7) as u8).collect())
                }
                (_, Some(old)) => {
                    let mut row = old.clone();
                    for _ in 0..draw.below(3) {
                        let at = draw.below(row.len() + 1);
                        let end = (at + draw.below(20)).min(row.len());
                        let more = draw.below(20);
                        row.splice(at..end, (0..more).map(|_| draw.below(256) as u8));
                    }
                    Some(row)
                }
            };
            let before = match draw.below(12) {
                0 => None,
                // It is not the row before.
                1 => Some(vec![7; draw.below(300)]),
                _ => old.cloned(),
            };
            step.puts.push((key, row, before));
        }
        if draw.below(12) == 0 {
            step.ranges.push((key(draw, keys), key(draw, keys)));
        }
        step
    }

    pub(crate) fn batch(&self) -> Batch<'_> {
        let mut batch = Batch::new();
        for (low, high) in &self.ranges {
            batch.remove_between(&low[..], &high[..]);
        }
        for (key, row, before) in &self.puts {
            match row {
                Some(row) => batch.put(&key[..], row, before.as_deref()),
                None => batch.remove(&key[..]),
            }
        }
        batch
    }

    fn batch_of(&self, mark: u64) -> Batch<'_> {
        let mut batch = self.batch();
        batch.mark(mark);
        batch
    }

    pub(crate) fn apply(&self, rows: &mut Rows) {
        for (low, high) in &self.ranges {
            rows.retain(|key, _| key <= low || key >= high);
        }
        for (key, row, _) in &self.puts {
            match row {
                Some(row) => drop(rows.insert(key.clone(), row.clone())),
                None => drop(rows.remove(key)),
            }
        }
    }
}

/// Two threads encode such batches.
#[test]
fn large_batches_are_as_small_ones() {
    let seed = 27;
    let (mut draw, disk, mut now) = (Draw::of(seed), MemDisk::default(), Rows::new());
    let mut log = Log::create(disk.clone(), small()).unwrap();
    let mut segments = 0;
    for round in 0..many(60, 600) {
        let step = Step::of(&mut draw, &now, (2_000, 1_500));
        log.commit(&mut step.batch()).unwrap();
        step.apply(&mut now);
        segments = log.stats().unwrap().segments.0.max(segments);
        if round % 20 == 19 {
            drop(log);
            log = Log::open(disk.clone(), small()).unwrap();
        }
        assert!(rows(&log.snapshot().unwrap()).unwrap() == now, "seed {seed}, round {round}");
    }
    let stats = log.stats().unwrap();
    assert!(stats.deltas > 0 && segments > 1, "no deltas, or nothing was cleaned: {stats:?}");
    log.check().unwrap();
}

/// The commits that a mark may mean, as it is said: one for each commit that may be the oldest that
/// can be read.
fn meant(marks: &BTreeMap<u64, u64>, mark: u64, oldest: u64) -> Vec<Option<u64>> {
    let one = |oldest: u64| {
        let since = marks.range(oldest..).rev().take_while(|(_, one)| **one >= mark);
        let mut since: Vec<_> = since.filter(|(_, one)| **one != u64::MAX).collect();
        since.sort_by_key(|(commit, one)| (**one, std::cmp::Reverse(**commit)));
        since.first().map(|(commit, _)| **commit)
    };
    (1..=oldest.max(1)).map(one).collect()
}

/// So many random steps from a seed.
fn run(seed: u64, steps: u64) -> u64 {
    let mut draw = Draw::of(seed);
    let mut disk = MemDisk::default();
    let keep = [Keep::Commits(1), Keep::Commits(1), Keep::Commits(20), Keep::All][draw.below(4)];
    let options = small().keep(keep);
    let mut log = Log::create(disk.clone(), options).unwrap();
    let mut reader = Log::open_read_only(disk.clone()).unwrap();
    let copy = MemDisk::default();
    log.ship(&copy).unwrap();
    let copy_reader = Log::open_read_only(copy.clone()).unwrap();
    let mut now = Rows::new();
    // The marks of all commits; those before the first one have none.
    let (mut marks, mut mark) = (BTreeMap::<u64, u64>::new(), u64::MAX);
    let mut past: BTreeMap<u64, Rows> = [(0, now.clone())].into();
    let mut held: Vec<(Snapshot, Rows)> = Vec::new();
    let mut sets = 0;
    for _ in 0..steps {
        match draw.below(60) {
            0 => {
                // Another process goes on, after this one ended or was killed.
                held.clear();
                if draw.below(2) == 0 {
                    log.close().unwrap();
                } else {
                    disk = disk.after_kill();
                    reader = Log::open_read_only(disk.clone()).unwrap();
                }
                log = Log::open(disk.clone(), options).unwrap();
                same(&log, &now);
            }
            1 => {
                // Something fails, and then the power, or the process.
                held.clear();
                disk.fail_after(draw.below(6) as u64, draw.below(2) == 0);
                let step = Step::draw(&mut draw, &now);
                let mut next = now.clone();
                step.apply(&mut next);
                let (next_mark, commit) =
                    (draw.below(100) as u64, log.snapshot().unwrap().commit());
                let done = log.commit(&mut step.batch_of(next_mark));
                sets += 1;
                if let Err(error) = &done {
                    assert!(matches!(error, LogError::Io { .. }), "{error}");
                    same(&log, &now);
                }
                let cut = draw.below(3);
                disk = if cut == 0 { disk.after_kill() } else { disk.after_power_cut(&mut draw) };
                log = Log::open(disk.clone(), options).unwrap();
                reader = Log::open_read_only(disk.clone()).unwrap();
                let found = rows(&log.snapshot().unwrap()).unwrap();
                let is_after = found == next;
                assert!(is_after || (done.is_err() && found == now), "neither before nor after");
                now = found;
                mark = if log.snapshot().unwrap().commit() > commit { next_mark } else { mark };
                log.check().unwrap();
            }
            2..=4 => same(&reader, &now),
            5 | 6 => {
                let from = if draw.below(2) == 0 { &log } else { &reader };
                held.push((from.snapshot().unwrap(), now.clone()));
                if held.len() > 3 {
                    held.remove(draw.below(3));
                }
            }
            7 => held.iter().for_each(|(old, then)| assert!(rows(old).unwrap() == *then)),
            8 if draw.below(4) == 0 => log.compact().unwrap(),
            9 if draw.below(4) == 0 => log.check().unwrap(),
            11 if keep == Keep::Commits(1) => {
                let copied = log.ship(&copy).unwrap();
                assert_eq!(copied.commit, log.snapshot().unwrap().commit());
                same(&copy_reader, &now);
                same(&Log::open_read_only(copy.clone()).unwrap(), &now);
            }
            10 => {
                let newest = log.snapshot().unwrap().commit();
                let oldest = log.stats().unwrap().oldest_commit;
                let commit = oldest + draw.below((newest - oldest + 1) as usize) as u64;
                if keep != Keep::Commits(1) && commit > 0 {
                    let from = if draw.below(2) == 0 { &log } else { &reader };
                    let found = rows(&from.at(commit).unwrap()).unwrap();
                    if let Some(then) = past.get(&commit) {
                        assert!(found == *then, "commit {commit} of {oldest}..={newest}");
                    }
                }
                assert!(matches!(log.at(newest + 1), Err(LogError::Gone { .. })));
                let asked = draw.below(110) as u64;
                let from = if draw.below(2) == 0 { &log } else { &reader };
                let found = from.at_mark(asked).unwrap();
                let commit = found.as_ref().map(Snapshot::commit);
                let meant = match keep {
                    Keep::Commits(1) => vec![None],
                    _ => meant(&marks, asked, oldest),
                };
                assert!(meant.contains(&commit), "{asked}: {commit:?}, not of {meant:?}");
                if let Some(found) = &found
                    && let Some(then) = past.get(&found.commit())
                {
                    assert!(rows(found).unwrap() == *then);
                }
            }
            _ => {
                let step = Step::draw(&mut draw, &now);
                step.apply(&mut now);
                // Mostly the next one, as blocks have it; and some are taken back.
                let next_mark = match draw.below(8) {
                    0 => mark.min(99).saturating_sub(draw.below(6) as u64),
                    1 => draw.below(100) as u64,
                    2 => mark,
                    _ => (mark.min(99) + 1) % 100,
                };
                let commit = log.snapshot().unwrap().commit();
                log.commit(&mut step.batch_of(next_mark)).unwrap();
                mark = if log.snapshot().unwrap().commit() > commit { next_mark } else { mark };
                sets += 1;
            }
        }
        let commit = log.snapshot().unwrap().commit();
        let from = marks.last_key_value().map_or(1, |(last, _)| last + 1);
        marks.extend((from..=commit).map(|commit| (commit, mark)));
        past.insert(commit, now.clone());
        while past.len() > 30 {
            past.pop_first();
        }
        let probe = key(&mut draw, 80);
        assert_eq!(log.snapshot().unwrap().get(&probe).unwrap(), now.get(&probe).cloned());
        if keep == Keep::Commits(1) && held.is_empty() && draw.below(50) == 0 {
            // Files that were read go with the next commit, and what a large removal left with
            // some.
            let is_small = |stats: &Stats| stats.file_bytes <= 3 * stats.live_bytes + (400 << 10);
            for commits in 0.. {
                let step = Step::draw(&mut draw, &now);
                step.apply(&mut now);
                log.commit(&mut step.batch()).unwrap();
                let stats = log.stats().unwrap();
                if is_small(&stats) {
                    break;
                }
                assert!(commits < 40, "{stats:?}");
            }
        }
    }
    same(&log, &now);
    log.check().unwrap();
    sets
}

#[test]
fn a_log_does_as_a_map_does() {
    let (runs, steps) = (many(12, 1_200), many(400, 1_000));
    let sets: u64 = (0..runs).map(|seed| run(seed, steps)).sum();
    println!("{sets} random sets in {runs} runs");
}

/// Rows so small that the index takes more bytes than they do, beside a few that change: files stay
/// near what is alive.
#[test]
fn many_small_rows_hold_no_segments() {
    let log = Log::create(MemDisk::default(), small()).unwrap();
    let mut draw = Draw::of(7);
    let small_row = |number: u32| [b"small".as_slice(), &number.to_be_bytes()].concat();
    let mut first = Batch::new();
    for number in 0..10_000_u32 {
        first.put(small_row(number), b"0123456789", None);
    }
    log.commit(&mut first).unwrap();
    for _ in 0..many(200, 2_000) {
        let row = |_| (draw.below(100), (0..1_000).map(|_| draw.below(256) as u8).collect());
        let large: Vec<(usize, Vec<u8>)> = (0..20).map(row).collect();
        let mut batch = Batch::new();
        for (number, row) in &large {
            batch.put(format!("large {number}"), row, None);
        }
        log.commit(&mut batch).unwrap();
    }
    let stats = log.stats().unwrap();
    assert!(stats.file_bytes <= 4 * (stats.live_bytes + 48 * stats.rows), "{stats:?}");
    log.check().unwrap();
}
