//! Small rows of a table, many to a row of the log.
//!
//! A log keeps in memory where each of its rows lies, in some 60 bytes. Preimages are as short as
//! that and outnumber the pages of their tree by far, so they share rows:
//!
//! ```text
//! key of a shared row = 6 | bound
//! shared row          = (bytes of the key (LEB128), bytes of the row (LEB128), key, row)*
//! 7                   = how many rows they hold (8, LE)
//! ```
//! Invariants (`tests`):
//! - a shared row holds those whose keys are above the bound before its own, and not above that;
//! - they ascend, and there is one at least;
//! - more than [`FULL`] bytes are one row's.

use std::collections::BTreeMap;
use std::ops::Range;

use spinney_log::{Batch, Bytes, Key, LogError, Snapshot, put_number};
use spinney_tree::{StoreError, Table, WriteSet};

/// The table whose rows are packed.
pub(super) const PACKED: Table = Table::Preimages;
const SHARED: u8 = 6;
const COUNT: u8 = 7;

/// Bytes of a shared row at most, unless it holds one row.
const FULL: usize = 2_048;
/// Bytes of those that a row is cut into, about.
const PART: usize = FULL / 4 * 3;
/// The bound of the last shared row, if no key is above it.
const LAST: [u8; 65] = [0xff; 65];

/// Whether a key of the log is one of these.
pub(super) fn is_packed(key: &[u8]) -> bool {
    matches!(key.first(), Some(&(SHARED | COUNT)))
}

/// What goes wrong here.
#[derive(Debug)]
pub(super) enum PackedError {
    Log(LogError),
    /// The key of a row that is none of these.
    Malformed(Key),
}

impl From<LogError> for PackedError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl PackedError {
    /// For those who use the store; `told` says it of errors of the log.
    pub(super) fn told(self, place: &str, told: impl FnOnce(LogError) -> StoreError) -> StoreError {
        match self {
            Self::Log(error) => told(error),
            Self::Malformed(key) => {
                let key: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
                let what = format!("row 0x{key} holds no rows as it should");
                StoreError::Corrupt { place: place.to_owned(), what }
            }
        }
    }
}

/// The rows of a shared row; `None` for bytes that are none.
struct Packing<'a>(Bytes<'a>);

impl<'a> Iterator for Packing<'a> {
    type Item = Option<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = &mut self.0;
        if bytes.is_empty() {
            return None;
        }
        let mut row = || {
            let (key, row) = (bytes.size()?, bytes.size()?);
            Some((bytes.take(key)?, bytes.take(row)?))
        };
        let row = row();
        if row.is_none() {
            *bytes = Bytes::new(&[]);
        }
        Some(row)
    }
}

fn rows(shared: &[u8]) -> Packing<'_> {
    Packing(Bytes::new(shared))
}

fn put((key, row): (&[u8], &[u8]), out: &mut Vec<u8>) {
    put_number(out, key.len() as u64);
    put_number(out, row.len() as u64);
    out.extend_from_slice(key);
    out.extend_from_slice(row);
}

/// The key in the log of the shared row that a key belongs to, if there is one.
fn shared_of(snapshot: &Snapshot, key: &[u8]) -> Option<Key> {
    let mut found = None;
    snapshot.keys(&Key::of(SHARED, key), &mut |shared, _, _| {
        found = (shared[0] == SHARED).then(|| Key::from_slice(shared));
        false
    });
    found
}

/// How many rows there are.
pub(super) fn count(snapshot: &Snapshot) -> Result<u64, LogError> {
    let row = snapshot.get(&[COUNT])?;
    Ok(row.and_then(|row| row.try_into().ok()).map_or(0, u64::from_le_bytes))
}

/// Reads a row.
pub(super) fn read(snapshot: &Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>, PackedError> {
    let Some(at) = shared_of(snapshot, key) else { return Ok(None) };
    let Some(shared) = snapshot.get(&at)? else { return Ok(None) };
    for found in rows(&shared) {
        match found {
            None => return Err(PackedError::Malformed(at)),
            Some((found, row)) if found == key => return Ok(Some(row.to_vec())),
            Some((found, _)) if found > key => break,
            Some(_) => {}
        }
    }
    Ok(None)
}

/// Hands each row with `low <= key < high` to `visit`, in order of keys, until it answers `false`.
pub(super) fn scan(
    snapshot: &Snapshot,
    low: &[u8],
    high: Option<&[u8]>,
    visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
) -> Result<(), PackedError> {
    let mut malformed = None;
    snapshot.scan(&Key::of(SHARED, low), Some(&[SHARED + 1]), &mut |at, shared| {
        for row in rows(shared) {
            let Some((key, row)) = row else {
                malformed = Some(Key::from_slice(at));
                return false;
            };
            let is_above = high.is_some_and(|high| key >= high);
            if is_above || key >= low && !visit(key, row) {
                return false;
            }
        }
        true
    })?;
    malformed.map_or(Ok(()), |key| Err(PackedError::Malformed(key)))
}

/// A row of the log that a write set changes.
#[derive(Debug)]
pub(super) struct Changed {
    pub(super) key: Key,
    pub(super) row: Option<Vec<u8>>,
    pub(super) before: Option<Vec<u8>>,
}

impl Changed {
    pub(super) fn put_into<'a>(&'a self, batch: &mut Batch<'a>) {
        match &self.row {
            Some(row) => batch.put(&self.key, row, self.before.as_deref()),
            None => batch.remove(&self.key),
        }
    }
}

type Row<'s> = (&'s [u8], Option<&'s [u8]>);

/// What a write set makes of the rows of a commit. Nothing else may commit meanwhile.
pub(super) fn changes(snapshot: &Snapshot, set: &WriteSet) -> Result<Vec<Changed>, PackedError> {
    let drops = set.drops().filter(|(table, ..)| *table == PACKED);
    let drops: Vec<_> = drops.map(|(_, low, high)| (low, high)).collect();
    let rows = set.rows().filter(|(table, ..)| *table == PACKED);
    let mut rows: Vec<Row<'_>> = rows.map(|(_, key, row)| (key, row)).collect();
    if !rows.is_sorted_by(|a, b| a.0 < b.0) {
        rows.sort_by_key(|row| row.0);
        // The last one of a key counts.
        rows.dedup_by(|later, first| {
            let same = later.0 == first.0;
            if same {
                std::mem::swap(later, first);
            }
            same
        });
    }
    let mut made = Made { changed: Vec::new(), more: 0 };
    for (at, range) in concerned(snapshot, &drops, &rows) {
        let before = snapshot.get(&at)?;
        let old = self::rows(before.as_deref().unwrap_or_default());
        let Some(old) = old.collect::<Option<Vec<_>>>() else {
            return Err(PackedError::Malformed(at));
        };
        let is_left =
            |(key, _): &(&[u8], &[u8])| !drops.iter().any(|(low, high)| low < key && key < high);
        let left = old.iter().copied().filter(is_left).collect();
        let new = merge(left, &rows[range]);
        made.more += new.len() as i64 - old.len() as i64;
        made.put(at, &new, before.clone());
    }
    if made.more != 0 {
        let before = count(snapshot)?;
        made.changed.push(Changed {
            key: Key::of(COUNT, &[]),
            row: Some(before.saturating_add_signed(made.more).to_le_bytes().to_vec()),
            before: Some(before.to_le_bytes().to_vec()),
        });
    }
    Ok(made.changed)
}

/// The shared rows that are changed, and which of the rows belong to each.
fn concerned(
    snapshot: &Snapshot,
    drops: &[(&[u8], &[u8])],
    rows: &[Row<'_>],
) -> BTreeMap<Key, Range<usize>> {
    let mut concerned = BTreeMap::new();
    for (low, high) in drops {
        snapshot.keys(&Key::of(SHARED, low), &mut |shared, _, _| {
            let is_one = shared[0] == SHARED;
            if is_one {
                concerned.insert(Key::from_slice(shared), 0..0);
            }
            is_one && &shared[1..] < *high
        });
    }
    let mut from = 0;
    while let Some((first, _)) = rows.get(from) {
        let shared = shared_of(snapshot, first).unwrap_or_else(|| {
            let last = rows.last().map_or(&[][..], |row| row.0);
            Key::of(SHARED, last.max(&LAST))
        });
        let to = from + rows[from..].partition_point(|row| row.0 <= &shared[1..]);
        concerned.insert(shared, from..to);
        from = to;
    }
    concerned
}

/// Rows after changes, both in order.
fn merge<'s>(old: Vec<(&'s [u8], &'s [u8])>, changes: &[Row<'s>]) -> Vec<(&'s [u8], &'s [u8])> {
    if changes.is_empty() {
        return old;
    }
    let mut new = Vec::with_capacity(old.len() + changes.len());
    let mut old = old.into_iter().peekable();
    for (key, row) in changes {
        while let Some(before) = old.next_if(|before| before.0 < *key) {
            new.push(before);
        }
        old.next_if(|before| before.0 == *key);
        new.extend(row.map(|row| (*key, row)));
    }
    new.extend(old);
    new
}

/// Changed rows of the log, and how many rows more there are.
struct Made {
    changed: Vec<Changed>,
    more: i64,
}

impl Made {
    /// Puts rows in the place of a shared row: into as many as they take.
    fn put(&mut self, at: Key, rows: &[(&[u8], &[u8])], before: Option<Vec<u8>>) {
        // A short row's lengths take four bytes at most, and a long one is alone.
        let bytes = |(key, row): &(&[u8], &[u8])| key.len() + row.len() + 4;
        let (mut rest, mut left) = (rows, rows.iter().map(bytes).sum::<usize>());
        while left > FULL && rest.len() > 1 {
            // Parts of about the same size.
            let part = left / (left / PART).max(2);
            let (mut taken, mut cut) = (0, 0);
            for row in &rest[..rest.len() - 1] {
                let fits = taken < part && taken + bytes(row) <= FULL;
                if cut > 0 && !fits {
                    break;
                }
                (taken, cut) = (taken + bytes(row), cut + 1);
            }
            let (part, behind) = rest.split_at(cut);
            self.changed.push(Changed {
                key: Key::of(SHARED, between(part[cut - 1].0, behind[0].0)),
                row: Some(encode(part)),
                before: None,
            });
            (rest, left) = (behind, left - taken);
        }
        let row = (!rest.is_empty()).then(|| encode(rest));
        if row != before {
            self.changed.push(Changed { key: at, row, before });
        }
    }
}

fn encode(rows: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PART);
    rows.iter().for_each(|row| put(*row, &mut out));
    out
}

/// The shortest bound that is not below one key and is below the next one.
fn between<'k>(key: &'k [u8], next: &'k [u8]) -> &'k [u8] {
    let same = key.iter().zip(next).take_while(|(a, b)| a == b).count();
    if same + 1 < next.len() { &next[..=same] } else { key }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use spinney_tree::{PageStore as _, Snapshot as _, WriteSet};

    use super::*;
    use crate::LogStore;

    /// Keys as hashes are, few and many; short ones; and those that are beyond the last bound.
    fn key_of(number: u32) -> Vec<u8> {
        let spread = number.wrapping_mul(0x9e37_79b1).to_be_bytes();
        match number % 40 {
            0 => vec![0xff; 60 + number as usize % 20],
            1 => spread[..number as usize % 4].to_vec(),
            _ => [&spread[..], &[7; 28]].concat(),
        }
    }

    #[derive(Clone, Debug)]
    struct Step {
        rows: Vec<(u32, Option<(usize, u8)>)>,
        many: Option<(u32, u32)>,
        drop: Option<(u32, u32)>,
    }

    fn step() -> impl Strategy<Value = Step> {
        let row = prop_oneof![9 => 0..40_usize, 1 => 0..5_000_usize];
        let row = proptest::option::weighted(0.7, (row, any::<u8>()));
        let rows = vec((0..3_000_u32, row), 0..60);
        let many = proptest::option::weighted(0.3, (0..3_000_u32, 1..1_500_u32));
        let drop = proptest::option::weighted(0.3, (0..3_000_u32, 0..3_000_u32));
        (rows, many, drop).prop_map(|(rows, many, drop)| Step { rows, many, drop })
    }

    /// Checks what the module says of shared rows, and answers how many there are.
    fn check(store: &LogStore, model: &BTreeMap<Vec<u8>, Vec<u8>>) -> usize {
        let snapshot = store.log.snapshot().unwrap();
        let (mut held, mut below, mut shares) = (Vec::new(), None::<Vec<u8>>, 0);
        let end = [SHARED + 1];
        snapshot
            .scan(&[SHARED], Some(&end), &mut |at, shared| {
                let rows: Vec<_> = rows(shared).map(|row| row.expect("a row")).collect();
                assert!(!rows.is_empty() && (shared.len() <= FULL || rows.len() == 1));
                for (key, row) in rows {
                    assert!(below.as_ref().is_none_or(|below| &below[..] < key));
                    assert!(key <= &at[1..], "beyond the bound");
                    held.push((key.to_vec(), row.to_vec()));
                }
                below = Some(at[1..].to_vec());
                shares += 1;
                true
            })
            .unwrap();
        assert!(held.iter().map(|(key, row)| (key, row)).eq(model));
        assert_eq!(count(&snapshot).unwrap(), model.len() as u64);
        shares
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
        #[test]
        fn rows_that_share_are_as_those_of_a_map(steps in vec(step(), 1..12)) {
            let folder = tempfile::tempdir().unwrap();
            let mut store = LogStore::create(folder.path()).unwrap();
            let mut model = BTreeMap::new();
            for (number, step) in steps.into_iter().enumerate() {
                let mut set = WriteSet::new();
                if let Some((low, high)) = step.drop {
                    let (low, high) = (key_of(low), key_of(high));
                    model.retain(|key, _| !(&low < key && key < &high));
                    set.drop_range(PACKED, low, high);
                }
                let many = step.many.into_iter().flat_map(|(from, count)| from..from + count);
                let many = many.map(|key| (key, Some((20, key as u8))));
                for (key, row) in step.rows.into_iter().chain(many) {
                    let (key, row) = (key_of(key), row.map(|(len, byte)| vec![byte; len]));
                    match row {
                        None => {
                            set.delete(PACKED, &key);
                            model.remove(&key);
                        }
                        Some(row) => {
                            set.put(PACKED, &key, row.clone());
                            model.insert(key, row);
                        }
                    }
                }
                store.commit(&set).unwrap();
                check(&store, &model);
                if number % 3 == 2 {
                    store.close().unwrap();
                    store = LogStore::open(folder.path()).unwrap();
                }
            }
            let snapshot = store.snapshot().unwrap();
            for number in 0..3_100 {
                let key = key_of(number);
                let row = snapshot.read(PACKED, &key).unwrap();
                prop_assert_eq!(row.as_deref(), model.get(&key).map(|row| &row[..]));
            }
            let (low, high) = (key_of(70), key_of(2_000));
            let mut seen = Vec::new();
            snapshot.scan(PACKED, &low, Some(&high), &mut |key, row| {
                seen.push((key.to_vec(), row.to_vec()));
                seen.len() < 700
            }).unwrap();
            let range = model.iter().filter(|(key, _)| low <= **key && **key < high).take(700);
            prop_assert!(seen.iter().map(|(key, row)| (key, row)).eq(range));
        }
    }

    #[test]
    fn many_rows_take_few_of_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let store = LogStore::create(folder.path()).unwrap();
        let mut model = BTreeMap::new();
        // All at once, then a few at a time.
        for numbers in
            std::iter::once(0..20_000_u32).chain((0..50).map(|n| 20_000 + n * 9..20_009 + n * 9))
        {
            let mut set = WriteSet::new();
            for number in numbers {
                let key = [&number.wrapping_mul(0x9e37_79b1).to_be_bytes()[..], &[7; 28]].concat();
                set.put(PACKED, &key, [9; 20]);
                model.insert(key, vec![9; 20]);
            }
            store.commit(&set).unwrap();
        }
        let shares = check(&store, &model);
        assert!((500..900).contains(&shares), "{shares}");
    }

    /// Puts a row of the log beside the store.
    fn put_raw(store: &LogStore, key: &[u8], row: &[u8]) {
        let mut batch = Batch::new();
        batch.put(key, row, None);
        store.log.commit(&mut batch).unwrap();
    }

    #[test]
    fn rows_of_an_earlier_build_and_damaged_ones_are_told() {
        let folder = tempfile::tempdir().unwrap();
        let store = LogStore::create(folder.path()).unwrap();
        put_raw(&store, &[SHARED, 9], &[4, 1, 7]);
        let snapshot = store.snapshot().unwrap();
        let told = |outcome: Result<(), StoreError>| {
            let Err(StoreError::Corrupt { what, .. }) = outcome else { return false };
            what.contains("row 0x0609")
        };
        assert!(told(snapshot.read(PACKED, &[7]).map(drop)));
        assert!(told(snapshot.scan(PACKED, &[], None, &mut |_, _| true)));
        let mut set = WriteSet::new();
        set.put(PACKED, &[7], [1]);
        assert!(told(store.commit(&set)));
        drop(snapshot);

        put_raw(&store, &[PACKED as u8, 1, 2], &[3]);
        store.close().unwrap();
        let told = |opened: Result<LogStore, StoreError>| {
            let Err(StoreError::Foreign { what, .. }) = opened else { return false };
            what.contains("earlier")
        };
        assert!(told(LogStore::open(folder.path())));
        assert!(told(LogStore::open_read_only(folder.path())));
    }

    #[test]
    fn rows_go_back_with_their_commit() {
        let folder = tempfile::tempdir().unwrap();
        let store = LogStore::create(folder.path()).unwrap();
        store.set_keep(crate::Keep::All).unwrap();
        let mut model = BTreeMap::new();
        let mut then = BTreeMap::new();
        for round in 0..6_u32 {
            let mut set = WriteSet::new();
            for number in (0..800).map(|n| n * (round + 1)) {
                set.put(PACKED, &key_of(number), [round as u8; 20]);
                model.insert(key_of(number), vec![round as u8; 20]);
            }
            store.commit(&set).unwrap();
            if round == 2 {
                then = model.clone();
            }
        }
        check(&store, &model);
        store.go_back(3).unwrap();
        check(&store, &then);
    }
}
