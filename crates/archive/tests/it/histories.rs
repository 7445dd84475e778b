//! Trees with random histories, archived: each block is as it was, however it was added, merged and
//! read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use spinney_archive::{Archive, ArchiveError, Folder, Options, RowChange, Window, Writer};
use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::Sum;
use spinney_tree::ubt::Ubt;
use spinney_tree::{
    Batch, BlockId, HashFunction, MemorySnapshot, MemoryStore, PageStore, Scheme, Snapshot, Table,
    Tree, TreeId,
};

const ID: TreeId = TreeId(70_000);

type Rows = BTreeMap<(Table, Vec<u8>), Vec<u8>>;

fn block(number: u64) -> BlockId {
    BlockId { number, hash: [number as u8 + 1; 32] }
}

fn rows(snapshot: &impl Snapshot) -> Rows {
    let mut rows = Rows::new();
    for table in Table::ALL {
        let mut add =
            |key: &[u8], row: &[u8]| rows.insert((table, key.to_vec()), row.to_vec()).is_none();
        snapshot.scan(table, &[], None, &mut add).unwrap();
    }
    rows
}

/// What became of rows between two stores.
fn changes<'a>(before: &'a Rows, after: &'a Rows) -> Vec<RowChange<'a>> {
    let keys = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
    let change = |key: &'a (Table, Vec<u8>)| {
        let row = |rows: &'a Rows| rows.get(key).map(Vec::as_slice);
        (key.0, &key.1[..], row(before), row(after))
    };
    keys.map(change).filter(|(.., before, after)| before != after).collect()
}

/// A key and a value; without one, the key goes.
type Op = (Vec<u8>, Option<Vec<u8>>);

/// The stores after the first block and each one behind it.
fn history<S: Scheme>(scheme: S, blocks: &[Vec<Op>]) -> Vec<MemorySnapshot> {
    let store = MemoryStore::new();
    let mut tree = Tree::open(scheme, ID, &store.snapshot().unwrap(), 1 << 20).unwrap();
    let mut stores = Vec::new();
    for (number, ops) in (10..).zip(blocks) {
        let mut last: BTreeMap<&[u8], Option<&[u8]>> = BTreeMap::new();
        last.extend(ops.iter().map(|(key, value)| (&key[..], value.as_deref())));
        let mut batch = Batch::new();
        for (key, value) in last {
            match value {
                Some(value) => batch.put(key, value),
                None => batch.delete(key),
            }
        }
        let pending = tree.prepare(&store.snapshot().unwrap(), None, batch).unwrap();
        tree.commit(&store, &pending, Some(block(number))).unwrap();
        stores.push(store.snapshot().unwrap());
    }
    stores
}

/// How a history is archived: the merges of levels, how many blocks a window has, whether blocks
/// are added from the last one on, and whether the writer is opened anew; the first block, and what
/// becomes of the archive's beginning after each window.
#[derive(Clone, Debug)]
struct Way {
    merges: Vec<usize>,
    windows: Vec<usize>,
    backwards: bool,
    reopen: bool,
    begins: Index,
    moves: Vec<Move>,
}

/// What becomes of the beginning of an archive.
#[derive(Clone, Copy, Debug)]
enum Move {
    Stays,
    /// The blocks before one that is held go.
    Forward(Index),
    /// An archive that begins and ends with these blocks is put in front, if there are earlier
    /// blocks.
    Back(Index, Index),
}

fn way() -> impl Strategy<Value = Way> {
    let merges = prop_oneof![Just(vec![2, 2]), Just(vec![3]), Just(vec![2, 3, 2]), Just(vec![])];
    let moved = prop_oneof![
        2 => Just(Move::Stays),
        1 => any::<Index>().prop_map(Move::Forward),
        1 => any::<(Index, Index)>().prop_map(|(first, last)| Move::Back(first, last)),
    ];
    let bools = any::<(bool, bool)>();
    (merges, vec(1..6_usize, 1..5), bools, any::<Index>(), vec(moved, 1..6)).prop_map(
        |(merges, windows, (backwards, reopen), begins, moves)| Way {
            merges,
            windows,
            backwards,
            reopen,
            begins,
            moves,
        },
    )
}

fn fill(writer: &mut Writer, window: &mut Window, stores: &[Rows], numbers: &[usize]) {
    for &number in numbers {
        let changes = changes(&stores[number - 1], &stores[number]);
        writer.add(window, block(10 + number as u64), changes).unwrap();
    }
}

/// A history: the stores after the first block and each one behind it.
struct History {
    snapshots: Vec<MemorySnapshot>,
    stores: Vec<Rows>,
}

impl History {
    /// Begins an archive with one of the blocks.
    fn begin(&self, objects: Arc<Folder>, way: &Way, first: usize) -> Writer {
        let mut options = Options::default();
        options.merges.clone_from(&way.merges);
        let (block, snapshot) = (block(10 + first as u64), &self.snapshots[first]);
        Writer::create(objects, options, block, snapshot).unwrap()
    }

    /// Adds the blocks behind the last one that is held, up to some others.
    fn add(&self, writer: &mut Writer, way: &Way, (held, end): (usize, usize)) {
        let (next, last) = (held + 1, 10 + end as u64 - 1);
        let mut window = writer.window(10 + next as u64, last).unwrap();
        let mut numbers: Vec<usize> = (next..end).collect();
        if way.backwards {
            numbers.reverse();
        }
        fill(writer, &mut window, &self.stores, &numbers);
        writer.publish(vec![window], block(last)).unwrap();
    }

    /// An archive of blocks `first` to `last`, in windows of three.
    fn older(&self, folder: &Path, way: &Way, (first, last): (usize, usize)) -> Archive {
        let mut writer = self.begin(Arc::new(Folder::new(folder)), way, first);
        let mut held = first;
        while held < last {
            let end = (held + 4).min(last + 1);
            self.add(&mut writer, way, (held, end));
            held = end - 1;
        }
        writer.archive(1 << 20).unwrap()
    }

    /// Moves the beginning of an archive of blocks `first` to `last`. Answers the new one.
    fn moved(
        &self,
        writer: &mut Writer,
        (way, moved): (&Way, Move),
        (first, last): (usize, usize),
    ) -> usize {
        match moved {
            Move::Stays => first,
            Move::Forward(to) => {
                let to = first + to.index(last - first + 1);
                let dropped = writer.prune(10 + to as u64).unwrap();
                assert_eq!(dropped, (to - first) as u64);
                to
            }
            Move::Back(..) if first == 0 => first,
            Move::Back(begins, ends) => {
                let begins = begins.index(first);
                let ends = first + ends.index(self.stores.len() - first);
                let folder = tempfile::tempdir().unwrap();
                let older = self.older(folder.path(), way, (begins, ends));
                assert_eq!(writer.join(&older).unwrap(), (first - begins) as u64);
                begins
            }
        }
    }

    /// Each block that is held is as it was, and no other is.
    fn is_held(&self, objects: &Arc<Folder>, (first, last): (usize, usize)) {
        // With no room, with little, and with much.
        for cache_bytes in [0, 50 << 10, 1 << 30] {
            let archive = Archive::open(objects.clone(), cache_bytes).unwrap();
            archive.check(|_| ()).unwrap();
            let checked = archive.check_blocks(&BTreeMap::new(), &|_| ()).unwrap();
            assert_eq!((checked.blocks, checked.hashes), (last as u64 - first as u64 + 1, 0));
            for (at, store) in self.stores.iter().enumerate() {
                let number = 10 + at as u64;
                let held = (first..=last).contains(&at);
                let named = archive.number_of(&block(number).hash).unwrap();
                assert_eq!(named, held.then_some(number));
                if !held {
                    assert!(matches!(archive.at(number), Err(ArchiveError::Outside { .. })));
                    continue;
                }
                let view = archive.at(number).unwrap();
                assert_eq!(rows(&view).len(), store.len(), "block {number}");
                assert_eq!(&rows(&view), store, "block {number}");
                let keys: Vec<&[u8]> = store
                    .keys()
                    .filter(|(table, _)| *table == Table::Pages)
                    .map(|(_, key)| &key[..])
                    .collect();
                let read = view.read_many(Table::Pages, &keys).unwrap();
                for (key, row) in keys.iter().zip(read) {
                    assert_eq!(
                        row.as_deref(),
                        store.get(&(Table::Pages, key.to_vec())).map(|row| &row[..])
                    );
                }
                assert_eq!(archive.block(number).unwrap(), Some(block(number)));
            }
            for beyond in [9, 10 + self.stores.len() as u64] {
                assert!(matches!(archive.at(beyond), Err(ArchiveError::Outside { .. })));
            }
            assert_eq!(archive.number_of(&[0; 32]).unwrap(), None);
        }
    }
}

fn archived<S: Scheme>(scheme: S, blocks: &[Vec<Op>], way: &Way) {
    let folder = tempfile::tempdir().unwrap();
    let objects = Arc::new(Folder::new(folder.path()));
    let snapshots = history(scheme, blocks);
    let stores: Vec<Rows> = snapshots.iter().map(rows).collect();
    let history = History { snapshots, stores };
    let mut first = way.begins.index(history.stores.len());
    let mut held = first;
    let mut writer = history.begin(objects.clone(), way, first);
    let (mut sizes, mut moves) = (way.windows.iter().cycle(), way.moves.iter().cycle());
    while held + 1 < history.stores.len() {
        let end = (held + 1 + sizes.next().unwrap()).min(history.stores.len());
        history.add(&mut writer, way, (held, end));
        held = end - 1;
        first = history.moved(&mut writer, (way, *moves.next().unwrap()), (first, held));
        if way.reopen {
            let mut options = Options::default();
            options.merges.clone_from(&way.merges);
            writer = Writer::open(objects.clone(), options).unwrap();
        }
        assert_eq!(writer.manifest().first, 10 + first as u64);
    }
    history.is_held(&objects, (first, held));
}

fn ops(keys: usize, values: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<Op>>> {
    // Few bytes in front, so that pages lie below pages; and a first block that has some of those.
    let key = (any::<[u8; 32]>(), 0..4_u8).prop_map(move |(mut key, first)| {
        key[0] = first;
        key[1] &= 0x0f;
        key.to_vec()
    });
    let value = prop::option::weighted(0.9, vec(1..=255_u8, values));
    let first = vec((key.clone(), value.clone()), keys / 2..keys);
    let later = vec((key, value, any::<Index>(), any::<bool>()), 0..20);
    (first, vec(later, 0..14)).prop_map(|(first, later)| {
        let known: Vec<Vec<u8>> = first.iter().map(|(key, _)| key.clone()).collect();
        let mut blocks = vec![first];
        for ops in later {
            let ops = ops.into_iter().map(|(key, value, at, fresh)| {
                (if fresh { key } else { known[at.index(known.len())].clone() }, value)
            });
            blocks.push(ops.collect());
        }
        blocks
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_patricia_trie_is_as_it_was(blocks in ops(300, 1..60), way in way()) {
        archived(Mpt, &blocks, &way);
    }

    #[test]
    fn a_pbt_is_as_it_was(blocks in ops(300, 32..33), way in way()) {
        archived(Pbt { hash: HashFunction::Blake3 }, &blocks, &way);
    }

    #[test]
    fn a_ubt_is_as_it_was(blocks in ops(300, 32..33), way in way()) {
        archived(Ubt { hash: HashFunction::Sha256 }, &blocks, &way);
    }

    #[test]
    fn a_sum_tree_is_as_it_was(blocks in ops(60, 20..40), way in way()) {
        let small = |op: &Op| {
            let value = op.1.as_ref().map(|value| {
                let mut value = value.clone();
                value[..6].fill(0);
                value
            });
            (op.0.clone(), value)
        };
        let blocks: Vec<Vec<Op>> =
            blocks.iter().map(|ops| ops.iter().map(small).collect()).collect();
        archived(Sum::default(), &blocks, &way);
    }
}
