//! Blocks in chunks, against blocks one by one.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy_primitives::{Address, B256, U256};
use proptest::prelude::*;
use spinney_state::{
    AccountChange, Change, Changes, ChunkBuild, ChunkOptions, Chunks, KeepHistory, State,
    StateError, StateRead,
};
use spinney_tree::{MemoryStore, PageStore, StoreError, Table, WriteSet};

use crate::history::{block, open};
use crate::textbook::{Rows, Textbook, changes, rows};

const TABLES: [Table; 4] = [Table::Pages, Table::Codes, Table::Preimages, Table::History];

fn options(memory: usize, build: ChunkBuild) -> ChunkOptions {
    let mut options = ChunkOptions::default();
    (options.memory, options.build) = (memory, build);
    options.rebuild.range_leaves = Some(3);
    options
}

/// Rows of a table; of pages without generation and checksum.
fn bare(store: &impl PageStore, table: Table) -> Rows {
    let from = if table == Table::Pages { 8 } else { 0 };
    let bare = |(key, row): (Vec<u8>, Vec<u8>)| (key[from..].to_vec(), row[from..].to_vec());
    rows(store, table).into_iter().map(bare).collect()
}

/// The state, and the root after each block.
fn one_by_one(
    blocks: &[Changes],
    keep: KeepHistory,
    preimages: bool,
) -> (State<MemoryStore>, Vec<B256>) {
    let mut state = open(keep, preimages);
    let mut roots = Vec::new();
    for (number, changes) in blocks.iter().enumerate() {
        roots.push(state.apply(changes).unwrap());
        state.seal(block(number)).unwrap();
        state.commit().unwrap();
    }
    (state, roots)
}

fn keep() -> impl Strategy<Value = KeepHistory> {
    prop_oneof![2 => Just(KeepHistory::All), 3 => (0_u64..6).prop_map(KeepHistory::Blocks)]
}

fn build() -> impl Strategy<Value = ChunkBuild> {
    prop_oneof![Just(ChunkBuild::Auto), Just(ChunkBuild::Incremental), Just(ChunkBuild::Rebuild)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    /// P18, P20, P21 and P22: any cut into chunks, any memory, either way into the tree, some
    /// blocks applied one by one between them: the same pages, code, preimages and history; and
    /// back again.
    #[test]
    fn p22_any_chunks_make_the_same_rows(
        blocks in prop::collection::vec((changes(), 0_u8..6, build()), 1..14),
        keep in keep(),
        preimages: bool,
        memory in prop_oneof![Just(0_usize), Just(400), Just(1 << 20)],
    ) {
        let all: Vec<_> = blocks.iter().map(|block| block.0.clone()).collect();
        let (state, roots) = one_by_one(&all, keep, preimages);
        let dir = tempfile::tempdir().unwrap();
        let spill = dir.path().join("spill");
        let options = options(memory, ChunkBuild::Auto);
        let mut chunks = Chunks::new(open(keep, preimages), &spill, options).unwrap();
        let mut textbook = Textbook::default();
        for (number, (changes, then, build)) in blocks.iter().enumerate() {
            let before = chunks.layer_count();
            if *then == 0 {
                prop_assert_eq!(chunks.apply(changes).unwrap(), roots[number]);
                textbook.apply(changes);
            } else {
                // A block that turns out to be bad is taken back before it is sealed.
                chunks.gather(changes, None).unwrap();
                chunks.undo_to(before).unwrap();
                textbook.assert_is(&chunks);
                chunks.gather(changes, Some(roots[number])).unwrap();
                textbook.apply(changes);
                textbook.assert_is(&chunks);
            }
            prop_assert_eq!(chunks.layer_count(), before + 1);
            chunks.seal(block(number)).unwrap();
            textbook.assert_is(&chunks);
            if *then > 3 || number + 1 == blocks.len() {
                chunks.set_build(*build);
                chunks.commit().unwrap();
                prop_assert_eq!((chunks.layer_count(), chunks.state().root()), (0, roots[number]));
                textbook.assert_is(&chunks);
                prop_assert!(!spill.exists(), "files of a chunk that is over");
            }
        }
        let mut chunked = chunks.into_state();
        for table in TABLES {
            prop_assert!(bare(chunked.store(), table) == bare(state.store(), table), "{:?}", table);
        }
        prop_assert_eq!(chunked.check(|_| {}).unwrap(), []);
        prop_assert_eq!(chunked.block(), state.block());
        let oldest = chunked.kept().unwrap().unwrap().oldest.number;
        for number in (oldest..blocks.len() as u64).rev() {
            chunked.unwind_to(number).unwrap();
            prop_assert_eq!(chunked.root(), roots[number as usize]);
        }
    }

    /// P13: what kept blocks did, by their history, leads from an earlier state to the later ones
    /// again.
    #[test]
    fn p13_differences_of_kept_blocks_make_them_again(
        blocks in prop::collection::vec(changes(), 1..12),
        keep in keep(),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        let (state, roots) = one_by_one(&blocks, keep, true);
        let oldest = state.kept().unwrap().unwrap().oldest.number as usize;
        let from = oldest + from.index(blocks.len() - oldest);
        let to = from + to.index(blocks.len() - from);
        let mut differences = Vec::new();
        state.differences::<StateError>(from as u64, to as u64, |block, root, changes| {
            differences.push((block, root, changes));
            Ok(())
        }).unwrap();
        differences.reverse();
        prop_assert_eq!(differences.len(), to - from);
        // The state before them, by whatever led there; then they alone.
        let (mut again, _) = one_by_one(&blocks[..=from], KeepHistory::Blocks(0), true);
        let mut textbook = Textbook::default();
        blocks[..=to].iter().for_each(|changes| textbook.apply(changes));
        for (at, (id, root, changes)) in (from + 1..).zip(differences) {
            prop_assert_eq!((id, root), (block(at), roots[at]));
            prop_assert_eq!(again.apply(&changes).unwrap(), root);
            again.seal(id).unwrap();
        }
        again.commit().unwrap();
        textbook.assert_is(&again);
    }

    /// Where lines give no roots, the history has the blocks whose roots are known: at least the
    /// last one of each chunk.
    #[test]
    fn blocks_of_unknown_roots_go_with_the_next_known_one(
        blocks in prop::collection::vec((changes(), any::<bool>(), any::<bool>(), build()), 1..14),
        keep in keep(),
    ) {
        let all: Vec<_> = blocks.iter().map(|block| block.0.clone()).collect();
        let (state, roots) = one_by_one(&all, keep, true);
        let dir = tempfile::tempdir().unwrap();
        let mut chunks =
            Chunks::new(open(keep, true), dir.path(), options(1 << 20, ChunkBuild::Auto)).unwrap();
        let mut known = vec![];
        for (number, (changes, is_known, commit, build)) in blocks.iter().enumerate() {
            let root = Some(roots[number]).filter(|_| *is_known);
            chunks.gather(changes, root).unwrap();
            chunks.seal(block(number)).unwrap();
            let commits = *commit || number + 1 == blocks.len();
            if *is_known || commits {
                known.push(number as u64);
            }
            if commits {
                chunks.set_build(*build);
                chunks.commit().unwrap();
            }
        }
        let mut chunked = chunks.into_state();
        prop_assert!(bare(chunked.store(), Table::Pages) == bare(state.store(), Table::Pages));
        prop_assert!(chunked.check_history().unwrap().is_empty());
        let oldest = chunked.kept().unwrap().unwrap().oldest.number;
        for number in (oldest..blocks.len() as u64).rev() {
            match chunked.unwind_to(number) {
                Ok(_) => prop_assert_eq!(chunked.root(), roots[number as usize]),
                Err(StateError::NotKept { .. }) => prop_assert!(!known.contains(&number)),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// An account with a balance, and a slot.
fn one(n: u64) -> Changes {
    let storage = [(B256::with_last_byte(n as u8), U256::from(n))].into();
    let change =
        AccountChange { balance: Some(U256::from(n)), storage, ..AccountChange::default() };
    Changes { accounts: [(Address::with_last_byte(n as u8), Change::Written(change))].into() }
}

#[test]
fn a_chunk_whose_root_is_another_is_gone_and_named() {
    let dir = tempfile::tempdir().unwrap();
    for build in [ChunkBuild::Incremental, ChunkBuild::Rebuild] {
        let state = open(KeepHistory::All, true);
        let mut chunks = Chunks::new(state, &dir.path().join("spill"), options(1, build)).unwrap();
        chunks.apply(&one(1)).unwrap();
        chunks.seal(block(1)).unwrap();
        chunks.commit().unwrap();
        let root = chunks.state().root();
        let before = TABLES.map(|table| rows(chunks.state().store(), table));
        for number in 2..5 {
            chunks.gather(&one(number), Some(B256::repeat_byte(number as u8))).unwrap();
            chunks.seal(block(number as usize)).unwrap();
        }
        let error = chunks.commit().unwrap_err();
        let expected = B256::repeat_byte(4);
        let StateError::ChunkRoot { first: 2, last: 4, expected: named, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(named, expected);
        assert_eq!((chunks.layer_count(), chunks.state().root()), (0, root));
        assert_eq!(TABLES.map(|table| rows(chunks.state().store(), table)), before);
        assert_eq!(chunks.account(Address::with_last_byte(2)).unwrap(), None);
        assert!(!dir.path().join("spill").exists());
        // And on with what is right.
        chunks.gather(&one(2), None).unwrap();
        chunks.seal(block(2)).unwrap();
        chunks.commit().unwrap();
        assert_eq!(chunks.state().at(1).unwrap().root(), root);
    }
}

/// P15 of what is gathered: a chunk ends at its bounds.
#[test]
fn a_chunk_ends_when_it_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let mut bounds = ChunkOptions::default();
    bounds.changes = 7;
    let mut chunks = Chunks::new(open(KeepHistory::All, true), dir.path(), bounds).unwrap();
    let mut full = Vec::new();
    for number in 1..20 {
        chunks.gather(&one(number), None).unwrap();
        chunks.seal(block(number as usize)).unwrap();
        if chunks.is_full() {
            chunks.commit().unwrap();
            full.push(number);
        }
    }
    assert_eq!(full, [4, 8, 12, 16]);
    let report = chunks.report();
    assert_eq!((report.chunks, report.blocks, report.changes, report.rebuilt), (4, 16, 32, 0));
    // The same account again is no further change.
    let mut chunks = Chunks::new(open(KeepHistory::All, true), dir.path(), bounds).unwrap();
    for number in 1..100 {
        chunks.gather(&one(1), None).unwrap();
        chunks.seal(block(number)).unwrap();
        assert!(!chunks.is_full());
    }
    // Old values take memory, too.
    bounds = ChunkOptions::default();
    bounds.memory = 2_000;
    let mut chunks = Chunks::new(open(KeepHistory::All, false), dir.path(), bounds).unwrap();
    let ends = (1..1_000).find(|number| {
        let balance = Some(U256::from(*number));
        let change = Change::Written(AccountChange { balance, ..AccountChange::default() });
        chunks.gather(&Changes { accounts: [(Address::ZERO, change)].into() }, None).unwrap();
        chunks.seal(block(*number)).unwrap();
        chunks.is_full()
    });
    assert!(ends.is_some_and(|ends| ends < 30), "{ends:?}");
}

/// P17 of what is gathered: where it cannot be written, it is gone, and nothing of it is committed.
#[test]
fn p17_changes_that_cannot_be_written_are_gone() {
    let dir = tempfile::tempdir().unwrap();
    // A file where the folder would be.
    let spill = dir.path().join("spill");
    std::fs::write(&spill, b"").unwrap();
    for memory in [0, 300, 700] {
        let bounds = options(memory, ChunkBuild::Incremental);
        let mut chunks = Chunks::new(open(KeepHistory::All, true), &spill, bounds).unwrap();
        let failed = (1..9).find_map(|number| {
            chunks.gather(&one(number), None).unwrap();
            chunks.seal(block(number as usize)).err()
        });
        assert!(matches!(failed, Some(StateError::Pipeline(_))), "{failed:?}");
        assert_eq!(chunks.layer_count(), 0);
        Textbook::default().assert_is(&chunks);
        chunks.commit().unwrap();
        assert_eq!(chunks.state().commit_number(), 0);
        assert!(TABLES.iter().all(|table| rows(chunks.state().store(), *table).is_empty()));
    }
}

/// Whether to build anew is decided by how many leaves there are for each change.
#[test]
fn few_leaves_a_change_are_built_anew() {
    let dir = tempfile::tempdir().unwrap();
    let many = |from: u64, count: u64| Changes {
        accounts: (from..from + count)
            .map(|n| {
                let balance = Some(U256::from(n + 1));
                let change = AccountChange { balance, ..AccountChange::default() };
                (Address::left_padding_from(&n.to_be_bytes()), Change::Written(change))
            })
            .collect(),
    };
    let state = State::open(MemoryStore::new(), 1 << 28).unwrap();
    let mut chunks = Chunks::new(state, dir.path(), ChunkOptions::default()).unwrap();
    let mut rebuilt = Vec::new();
    // Into nothing; into as many; too few to look; too few beside what is there; many beside it.
    let mut from = 0;
    for (number, count) in [20_000, 20_000, 9_999, 10_000, 15_000].into_iter().enumerate() {
        chunks.gather(&many(from, count), None).unwrap();
        from += count;
        chunks.seal(block(number)).unwrap();
        let before = chunks.report().rebuilt;
        chunks.commit().unwrap();
        rebuilt.push(chunks.report().rebuilt > before);
    }
    assert_eq!(rebuilt, [true, true, false, false, true]);
}

/// A store that fails at its n-th commit.
#[derive(Debug)]
struct Faulty {
    store: MemoryStore,
    commits: AtomicU64,
}

impl PageStore for Faulty {
    type Snapshot<'a> = <MemoryStore as PageStore>::Snapshot<'a>;

    fn snapshot(&self) -> Result<Self::Snapshot<'_>, StoreError> {
        self.store.snapshot()
    }

    fn commit(&self, set: &WriteSet) -> Result<(), StoreError> {
        if self.commits.fetch_sub(1, Ordering::Relaxed) == 1 {
            return Err(StoreError::Missing { place: "the moon".into() });
        }
        self.store.commit(set)
    }
}

/// P12 and P17: whichever commit fails, the store is at the end of some chunk, and goes on from
/// there to the same rows.
#[test]
fn p12_p17_a_store_that_fails_at_any_commit_of_a_chunk() {
    let blocks: Vec<_> = (0..9).map(|number| one(number % 4 + 1)).collect();
    let (state, roots) = one_by_one(&blocks, KeepHistory::All, true);
    let dir = tempfile::tempdir().unwrap();
    for build in [ChunkBuild::Incremental, ChunkBuild::Rebuild] {
        let mut failures = 0;
        for nth in 1.. {
            let store = Faulty { store: MemoryStore::new(), commits: nth.into() };
            let mut failed = false;
            while let Err(error) = chunks_of_two(&store, dir.path(), &blocks, &roots, build) {
                assert!(!failed, "{error}");
                failed = true;
                let head = State::open(&store.store, 1).unwrap().block();
                let is_end = |number: u64| number % 2 == 1 || number == 8;
                assert!(head.is_none_or(|head| is_end(head.number)), "{head:?}");
            }
            for table in TABLES {
                assert!(
                    bare(&store, table) == bare(state.store(), table),
                    "{build:?} {nth} {table:?}"
                );
            }
            if !failed {
                break;
            }
            failures += 1;
        }
        assert!(failures >= 5, "{failures}");
    }
}

fn chunks_of_two(
    store: &Faulty,
    dir: &Path,
    blocks: &[Changes],
    roots: &[B256],
    build: ChunkBuild,
) -> Result<(), StateError> {
    let mut state = State::open(store, 1)?;
    state.keep_history(KeepHistory::All);
    let from = state.block().map_or(0, |head| head.number as usize + 1);
    let mut chunks = Chunks::new(state, &dir.join("spill"), options(1, build))?;
    for number in from..blocks.len() {
        chunks.gather(&blocks[number], Some(roots[number]))?;
        chunks.seal(block(number))?;
        if number % 2 == 1 || number + 1 == blocks.len() {
            chunks.commit()?;
        }
    }
    Ok(())
}

/// A process that was killed behind the last commit of a rebuild left its files: they go, and
/// nobody else's.
#[test]
fn p12_files_of_a_rebuild_that_ended_are_removed_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let (spill, leaves) = (dir.path().join("spill"), dir.path().join("spill/leaves"));
    let build = options(1, ChunkBuild::Rebuild);
    let mut chunks = Chunks::new(open(KeepHistory::All, true), &spill, build).unwrap();
    chunks.gather(&one(1), None).unwrap();
    chunks.seal(block(1)).unwrap();
    chunks.commit().unwrap();
    assert!(!spill.exists());
    std::fs::create_dir_all(&leaves).unwrap();
    for name in ["run-000000", "a letter"] {
        std::fs::write(leaves.join(name), b"left").unwrap();
    }
    let state = Chunks::new(chunks.into_state(), &spill, build).unwrap().into_state();
    assert!(!leaves.join("run-000000").exists());
    assert_eq!(std::fs::read(leaves.join("a letter")).unwrap(), b"left");
    std::fs::remove_file(leaves.join("a letter")).unwrap();
    Chunks::new(state, &spill, build).unwrap();
    assert!(!spill.exists());
}

/// Blocks that went to the tree as one batch go together, also once another block was applied above
/// them.
#[test]
fn what_was_gathered_goes_as_a_whole_also_below_what_was_applied() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    let state = open(KeepHistory::All, true);
    let mut chunks = Chunks::new(state, &spill, options(1 << 20, ChunkBuild::Incremental)).unwrap();
    chunks.apply(&one(1)).unwrap();
    chunks.seal(block(1)).unwrap();
    for number in 2..5 {
        chunks.gather(&one(number), None).unwrap();
        chunks.seal(block(number as usize)).unwrap();
    }
    let above = chunks.apply(&one(5)).unwrap();
    assert_eq!((chunks.layer_count(), chunks.state().root()), (5, above));
    for within in [2, 3] {
        let refused = chunks.undo_to(within);
        assert!(matches!(refused, Err(StateError::Gathered { blocks: 3 })), "{refused:?}");
        assert_eq!((chunks.layer_count(), chunks.state().root()), (5, above));
    }
    chunks.undo_to(4).unwrap();
    assert!(chunks.account(Address::with_last_byte(4)).unwrap().is_some());
    chunks.undo_to(1).unwrap();
    assert!(chunks.account(Address::with_last_byte(2)).unwrap().is_none());
    chunks.commit().unwrap();
    assert_eq!(chunks.state().block(), Some(block(1)));
}

/// A block that did nothing, and was not gathered, comes behind those that were.
#[test]
fn a_block_without_changes_comes_behind_what_was_gathered() {
    let dir = tempfile::tempdir().unwrap();
    let spill = dir.path().join("spill");
    let state = open(KeepHistory::All, true);
    let mut chunks = Chunks::new(state, &spill, options(1 << 20, ChunkBuild::Incremental)).unwrap();
    chunks.apply(&one(1)).unwrap();
    chunks.seal(block(1)).unwrap();
    let roots: Vec<_> = {
        let mut state = open(KeepHistory::All, true);
        (1..4).map(|number| state.apply(&one(number)).unwrap()).collect()
    };
    for number in 2..4 {
        chunks.gather(&one(number), Some(roots[number as usize - 1])).unwrap();
        chunks.seal(block(number as usize)).unwrap();
    }
    chunks.seal(block(4)).unwrap();
    chunks.commit().unwrap();
    let mut state = chunks.into_state();
    assert_eq!((state.block(), state.root()), (Some(block(4)), roots[2]));
    assert!(state.check_history().unwrap().is_empty());
    for number in (1..4).rev() {
        assert_eq!(state.unwind_to(number).unwrap(), block(number as usize));
        assert_eq!(state.root(), roots[number as usize - 1]);
    }
}
