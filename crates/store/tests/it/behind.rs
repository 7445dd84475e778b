//! A store that writes behind: readers see each commit at once, and the store beneath gets each in
//! turn.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use proptest::collection::vec;
use proptest::prelude::*;
use spinney_store::WriteBehind;
use spinney_tree::{MemoryStore, PageStore, Snapshot, StoreError, Table, WriteSet};

use crate::tools::contents;

/// A store in memory whose commits wait until they are let go, and fail from some number on.
struct Gated {
    store: MemoryStore,
    gate: Option<Mutex<Receiver<()>>>,
    fails_at: usize,
    commits: Arc<AtomicUsize>,
}

impl Gated {
    fn new() -> (Self, Sender<()>) {
        let (sender, gate) = channel();
        let gate = Some(Mutex::new(gate));
        let store =
            Self { store: MemoryStore::new(), gate, fails_at: usize::MAX, commits: Arc::default() };
        (store, sender)
    }

    fn open(fails_at: usize) -> Self {
        Self { store: MemoryStore::new(), gate: None, fails_at, commits: Arc::default() }
    }
}

impl PageStore for Gated {
    type Snapshot<'a> = <MemoryStore as PageStore>::Snapshot<'a>;

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, StoreError> {
        self.store.snapshot()
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        if let Some(gate) = &self.gate {
            gate.lock().unwrap().recv().expect("somebody lets it go");
        }
        if self.commits.fetch_add(1, Ordering::Relaxed) + 1 >= self.fails_at {
            return Err(StoreError::Backend { place: "disk".into(), source: "full".into() });
        }
        self.store.commit(set)
    }
}

fn put(key: &[u8], value: &[u8]) -> WriteSet {
    let mut set = WriteSet::new();
    set.put(Table::Pages, key, value.to_vec());
    set
}

fn read<P: PageStore>(store: &P, key: &[u8]) -> Option<Vec<u8>> {
    store.snapshot().unwrap().read(Table::Pages, key).unwrap().map(|row| row.to_vec())
}

#[test]
fn a_commit_is_read_before_it_is_durable() {
    let (store, gate) = Gated::new();
    WriteBehind::over(&store, |behind| {
        let before = behind.snapshot()?;
        behind.commit(&put(b"a", b"1"))?;
        assert_eq!(behind.unsettled(), 1);
        assert_eq!(read(behind, b"a").as_deref(), Some(&b"1"[..]));
        assert_eq!(read(&store, b"a"), None);
        assert!(before.read(Table::Pages, b"a")?.is_none(), "a view stays as it is");
        let during = behind.snapshot()?;
        gate.send(()).unwrap();
        behind.settle()?;
        assert_eq!(behind.unsettled(), 0);
        assert_eq!(read(&store, b"a").as_deref(), Some(&b"1"[..]));
        assert_eq!(during.read(Table::Pages, b"a")?.as_deref(), Some(&b"1"[..]));
        // The next one waits for the one before it, and what is not settled is at the end.
        behind.commit(&put(b"b", b"2"))?;
        gate.send(()).unwrap();
        gate.send(()).unwrap();
        behind.commit(&put(b"a", b"3"))
    })
    .unwrap();
    assert_eq!(read(&store, b"a").as_deref(), Some(&b"3"[..]));
    assert_eq!(read(&store, b"b").as_deref(), Some(&b"2"[..]));
}

#[test]
fn after_a_commit_that_fails_nothing_is_written() {
    let store = Gated::open(2);
    let outcome: Result<(), StoreError> = WriteBehind::over(&store, |behind| {
        behind.commit(&put(b"a", b"1"))?;
        behind.commit(&put(b"b", b"2"))?;
        let error = behind.commit(&put(b"c", b"3")).expect_err("the one before failed");
        assert!(error.to_string().contains("full"), "{error}");
        let error = behind.commit(&put(b"d", b"4")).expect_err("and nothing is taken since");
        assert!(error.to_string().contains("full"), "it says why, too: {error}");
        let error = behind.snapshot().map(drop).expect_err("nor is anything read");
        assert!(error.to_string().contains("full"), "{error}");
        behind.settle()
    });
    assert!(outcome.is_err());
    assert_eq!(store.commits.load(Ordering::Relaxed), 2);
    assert_eq!((read(&store, b"a").is_some(), read(&store, b"b")), (true, None));
    // Where nobody asks, the end does.
    let store = Gated::open(1);
    let outcome = WriteBehind::over(&store, |behind| behind.commit(&put(b"a", b"1")));
    assert!(outcome.unwrap_err().to_string().contains("full"));
}

/// A store that is poisoned while its commit fails, and says so before the commit has said why.
struct Poisoned {
    begun: Sender<()>,
    refused: (Sender<()>, Mutex<Receiver<()>>),
    is_poisoned: AtomicBool,
}

impl PageStore for Poisoned {
    type Snapshot<'a> = <MemoryStore as PageStore>::Snapshot<'a>;

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, StoreError> {
        assert!(self.is_poisoned.load(Ordering::SeqCst), "nobody reads before");
        self.refused.0.send(()).unwrap();
        Err(StoreError::Backend { place: "disk".into(), source: "an earlier write failed".into() })
    }

    fn commit(&self, _: &WriteSet) -> Result<(), StoreError> {
        self.is_poisoned.store(true, Ordering::SeqCst);
        self.begun.send(()).unwrap();
        self.refused.1.lock().unwrap().recv().expect("a reader is refused");
        Err(StoreError::Backend { place: "disk".into(), source: "full".into() })
    }
}

#[test]
fn a_view_of_a_store_that_is_failing_waits_for_the_reason() {
    let ((begun, has_begun), (refuses, refused)) = (channel(), channel());
    let refused = (refuses, Mutex::new(refused));
    let store = Poisoned { begun, refused, is_poisoned: AtomicBool::new(false) };
    let outcome: Result<(), StoreError> = WriteBehind::over(&store, |behind| {
        behind.commit(&put(b"a", b"1"))?;
        has_begun.recv().unwrap();
        behind.snapshot().map(drop)
    });
    let error = outcome.expect_err("nothing can be read").to_string();
    assert!(error.contains("full"), "{error}");
}

type Row = (Vec<u8>, Option<Vec<u8>>);
type Set = (Option<(Vec<u8>, Vec<u8>)>, Vec<Row>);

fn sets() -> impl Strategy<Value = Vec<Set>> {
    let key = || vec(0..3_u8, 0..4);
    let row = (key(), proptest::option::of(vec(any::<u8>(), 0..4)));
    vec((proptest::option::of(range()), vec(row, 0..12)), 1..6)
}

fn range() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let key = || vec(0..3_u8, 0..4);
    (key(), key()).prop_map(|(a, b)| if a <= b { (a, b) } else { (b, a) })
}

proptest! {
    /// With the last commit over it or in it, the store shows the same rows.
    #[test]
    fn what_waits_lies_over_the_store(sets in sets(), (low, high) in range()) {
        let (store, gate) = Gated::new();
        let expected = MemoryStore::new();
        WriteBehind::over(&store, |behind| {
            for (at, (drop, rows)) in sets.iter().enumerate() {
                let mut set = WriteSet::new();
                if let Some((low, high)) = drop {
                    set.drop_range(Table::Pages, low.clone(), high.clone());
                }
                for (key, value) in rows {
                    match value {
                        Some(value) => set.put(Table::Pages, key, value.clone()),
                        None => set.delete(Table::Pages, key),
                    }
                }
                behind.commit(&set)?;
                set.sort();
                expected.commit(&set)?;
                assert_eq!(behind.unsettled(), 1);
                assert_eq!(contents(behind), contents(&expected));
                let (ours, theirs) = (behind.snapshot()?, expected.snapshot()?);
                assert_eq!(first_three(&ours, &low, &high), first_three(&theirs, &low, &high));
                let named = rows.iter().map(|(key, _)| &key[..]);
                let keys: Vec<&[u8]> = named.chain([&low[..], &high[..]]).collect();
                assert_eq!(many(&ours, &keys), many(&theirs, &keys));
                gate.send(()).unwrap();
                if at.is_multiple_of(2) {
                    behind.settle()?;
                }
            }
            Ok::<_, StoreError>(())
        }).unwrap();
        prop_assert_eq!(contents(&store), contents(&expected));
    }
}

/// A scan that is ended by whoever looks at it.
fn first_three(snapshot: &impl Snapshot, low: &[u8], high: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        found.push((key.to_vec(), row.to_vec()));
        found.len() < 3
    };
    snapshot.scan(Table::Pages, low, Some(high), &mut visit).unwrap();
    found
}

fn many(snapshot: &impl Snapshot, keys: &[&[u8]]) -> Vec<Option<Vec<u8>>> {
    let rows = snapshot.read_many(Table::Pages, keys).unwrap();
    rows.into_iter().map(|row| row.map(|row| row.to_vec())).collect()
}
