//! What a tree has to hold after any history: the textbook's root, the pages of a rebuild, no row
//! more.

use std::collections::BTreeMap;
use std::fmt;

use spinney_tree::{
    Batch, MemorySnapshot, MemoryStore, PageStore, Pending, Scheme, Snapshot, Table, Tree, TreeId,
    bare_rows,
};

pub(crate) const ID: TreeId = TreeId(7);

/// The trees under test split all but the smallest batches over the threads; the rebuilt ones do
/// not.
const SPLIT_OPS: usize = 4;

pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// One operation of a random batch.
#[derive(Clone)]
pub(crate) enum Op {
    Put(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    Clear(Vec<u8>),
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let short = |bytes: &[u8]| {
            let hex: String = bytes.iter().take(40).map(|b| format!("{b:02x}")).collect();
            if bytes.len() > 40 { format!("{hex}.. ({})", bytes.len()) } else { hex }
        };
        match self {
            Self::Put(key, value) => write!(f, "put {} = {}", short(key), short(value)),
            Self::Delete(key) => write!(f, "del {}", short(key)),
            Self::Clear(key) => write!(f, "clear {}", short(key)),
        }
    }
}

/// The operations as a batch: the last one on a key counts.
pub(crate) fn batch(ops: &[Op]) -> Batch {
    let mut last: BTreeMap<(&[u8], bool), &Op> = BTreeMap::new();
    for op in ops {
        match op {
            Op::Put(key, _) | Op::Delete(key) => last.insert((key, false), op),
            Op::Clear(key) => last.insert((key, true), op),
        };
    }
    let mut batch = Batch::new();
    // Backwards, so that the engine has something to sort.
    for op in last.into_values().rev() {
        match op {
            Op::Put(key, value) => batch.put(key, value),
            Op::Delete(key) => batch.delete(key),
            Op::Clear(key) => batch.delete_prefix(key),
        }
    }
    batch
}

/// What the operations do to a map: prefix deletions first.
pub(crate) fn apply(ops: &[Op], entries: &mut Entries) {
    for op in ops {
        if let Op::Clear(prefix) = op {
            entries.retain(|key, _| !key.starts_with(prefix));
        }
    }
    for op in ops {
        match op {
            Op::Put(key, value) if value.is_empty() => drop(entries.remove(key)),
            Op::Put(key, value) => drop(entries.insert(key.clone(), value.clone())),
            Op::Delete(key) => drop(entries.remove(key)),
            Op::Clear(_) => {}
        }
    }
}

/// All rows of a tree's pages.
pub(crate) fn pages<S: Scheme>(tree: &Tree<S>, snapshot: &impl Snapshot) -> Entries {
    let (low, high) = tree.page_range();
    let mut rows = Entries::new();
    let mut add = |key: &[u8], row: &[u8]| rows.insert(key.to_vec(), row.to_vec()).is_none();
    snapshot.scan(Table::Pages, &low, Some(&high), &mut add).unwrap();
    // What follows from the rest of a row can be left out of it and computed again.
    let form = bare_rows(tree.scheme_id()).unwrap();
    // Of one row in eight, by its checksum: histories have many.
    for (key, row) in rows.iter().filter(|(_, row)| row[0].is_multiple_of(8)) {
        let mut bare = row.clone();
        form.blank(key, &mut bare).unwrap();
        let blanked = bare.clone();
        form.blank(key, &mut bare).unwrap();
        assert_eq!(bare, blanked, "what is blanked follows from the rest");
        form.restore(key, &mut bare).unwrap();
        assert_eq!(&bare, row);
    }
    rows
}

/// A tree of these entries, made in one batch.
pub(crate) fn rebuild<S: Scheme + Clone>(scheme: &S, entries: &Entries) -> (Entries, S::Root) {
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme.clone(), ID, &store.snapshot().unwrap(), 1 << 30).unwrap();
    let mut batch = Batch::new();
    for (key, value) in entries {
        batch.put(key, value);
    }
    let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
    tree.commit(&store, &pending, None).unwrap();
    (pages(&tree, &store.snapshot().unwrap()), tree.root())
}

/// A tree under test, and what it should hold.
pub(crate) struct Bench<S: Scheme> {
    pub(crate) store: MemoryStore,
    pub(crate) tree: Tree<S>,
    pub(crate) entries: Entries,
    scheme: S,
}

impl<S: Scheme + Clone> Bench<S> {
    pub(crate) fn new(scheme: S, cache_bytes: usize) -> Self {
        let store = MemoryStore::new();
        let snapshot = store.snapshot().unwrap();
        let mut tree = Tree::open(scheme.clone(), ID, &snapshot, cache_bytes).unwrap();
        tree.split_batches_from(SPLIT_OPS);
        Self { store, tree, entries: Entries::new(), scheme }
    }

    pub(crate) fn snapshot(&self) -> MemorySnapshot {
        self.store.snapshot().unwrap()
    }

    pub(crate) fn reopen(&mut self, cache_bytes: usize) {
        let snapshot = self.snapshot();
        self.tree = Tree::open(self.scheme.clone(), ID, &snapshot, cache_bytes).unwrap();
        self.tree.split_batches_from(SPLIT_OPS);
    }

    pub(crate) fn prepare(&self, parent: Option<&Pending<S>>, ops: &[Op]) -> Pending<S> {
        self.tree.prepare(&self.snapshot(), parent, batch(ops)).unwrap()
    }

    /// Root, pages, iteration and reads against the entries.
    pub(crate) fn check(&self, expected: &S::Root) {
        assert_eq!(self.tree.root(), *expected, "root");
        let snapshot = self.snapshot();
        let (fresh, root) = rebuild(&self.scheme, &self.entries);
        assert_eq!(root, *expected, "root of a rebuild");
        same_rows(&pages(&self.tree, &snapshot), &fresh);
        self.check_entries(None, &self.entries);
        assert_eq!(self.tree.check(&snapshot, |_| {}).unwrap(), []);
    }

    pub(crate) fn check_entries(&self, state: Option<&Pending<S>>, entries: &Entries) {
        let snapshot = self.snapshot();
        let found: Entries = self
            .tree
            .entries(&snapshot, state, b"")
            .map(|entry| entry.map(|entry| (entry.key, entry.value.to_vec())).unwrap())
            .collect();
        assert_eq!(found, *entries, "iteration");
        for (key, value) in entries.iter().step_by(3) {
            let read = self.tree.get(&snapshot, state, key).unwrap();
            assert_eq!(read.as_deref(), Some(&value[..]));
            let mut longer = key.clone();
            longer.push(0);
            let read = self.tree.get(&snapshot, state, &longer).unwrap();
            assert_eq!(read.as_deref(), entries.get(&longer).map(|v| &v[..]));
            let from: Vec<_> = self
                .tree
                .entries(&snapshot, state, &longer)
                .take(3)
                .map(|entry| entry.unwrap().key)
                .collect();
            let keys: Vec<_> = entries.range(longer..).take(3).map(|e| e.0.clone()).collect();
            assert_eq!(from, keys, "iteration from a key");
            let prefix = &key[..key.len() / 2];
            let below: Vec<_> = self
                .tree
                .prefix(&snapshot, state, prefix)
                .map(|entry| entry.unwrap().key)
                .collect();
            let keys = entries.keys().filter(|key| key.starts_with(prefix));
            assert!(below.iter().eq(keys), "iteration below a prefix");
        }
    }
}

pub(crate) fn same_rows(found: &Entries, expected: &Entries) {
    let hex = |key: &Vec<u8>| key.iter().map(|b| format!("{b:02x}")).collect::<String>();
    for (key, row) in found {
        match expected.get(key) {
            None => panic!("an orphan row {}", hex(key)),
            Some(other) => {
                let at = row[8..].iter().zip(&other[8..]).take_while(|(a, b)| a == b).count() + 8;
                let tail = |row: &Vec<u8>| hex(&row[at..row.len().min(at + 60)].to_vec());
                assert!(
                    row == other,
                    "row {} differs from a rebuild's at byte {at}: {} for {}",
                    hex(key),
                    tail(row),
                    tail(other)
                );
            }
        }
        assert!(row.len() <= 4_096, "a page of {} bytes", row.len());
    }
    for key in expected.keys() {
        assert!(found.contains_key(key), "row {} is missing", hex(key));
    }
}
