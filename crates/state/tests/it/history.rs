//! Back to earlier blocks, against a map of the state after each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alloy_primitives::{Address, B256, U256};
use proptest::prelude::*;
use spinney_state::{AccountChange, Change, Changes, KeepHistory, State, StateError, StateRead};
use spinney_tree::{BlockId, MemoryStore, PageStore, Snapshot, Table, WriteSet};

use crate::textbook::{Rows, Textbook, changes, rows};

/// A chain: the layers of each block, and whether a commit follows.
type Blocks = Vec<(Vec<Changes>, bool)>;

fn blocks() -> impl Strategy<Value = Blocks> {
    let layers = prop::collection::vec(changes(), 0..4);
    prop::collection::vec((layers, any::<bool>()), 1..12)
}

fn keep() -> impl Strategy<Value = KeepHistory> {
    prop_oneof![
        2 => Just(KeepHistory::All),
        1 => Just(KeepHistory::default()),
        3 => (0_u64..6).prop_map(KeepHistory::Blocks),
    ]
}

pub(crate) fn block(number: usize) -> BlockId {
    BlockId { number: number as u64, hash: [number as u8 + 1; 32] }
}

pub(crate) fn open(keep: KeepHistory, preimages: bool) -> State<MemoryStore> {
    // Nothing stays in memory: everything is read.
    let mut state = State::open(MemoryStore::new(), 1).unwrap();
    state.keep_history(keep);
    state.keep_preimages(preimages);
    state
}

/// What there was after a block.
struct Then {
    textbook: Textbook,
    root: B256,
    pages: Rows,
}

/// Commits each block, and notes the state after it.
fn one_by_one(state: &mut State<MemoryStore>, blocks: &Blocks) -> Vec<Then> {
    let mut textbook = Textbook::default();
    let mut then = Vec::new();
    for (number, (layers, _)) in blocks.iter().enumerate() {
        for changes in layers {
            state.apply(changes).unwrap();
            textbook.apply(changes);
        }
        state.seal(block(number)).unwrap();
        state.commit().unwrap();
        let pages = rows(state.store(), Table::Pages);
        then.push(Then { textbook: textbook.clone(), root: state.root(), pages });
    }
    then
}

fn is_then(state: &State<MemoryStore>, number: usize, then: &Then) {
    assert_eq!(state.root(), then.root);
    assert_eq!(state.block(), Some(block(number)));
    then.textbook.assert_is(state);
    assert!(rows(state.store(), Table::Pages) == then.pages, "pages differ at block {number}");
    assert_eq!(state.check(|_| {}).unwrap(), []);
}

/// Applies all layers, some of which are taken back and applied again, and answers the preimages.
fn preimages_of(blocks: &Blocks, keep: KeepHistory) -> Rows {
    let mut state = open(keep, true);
    for (number, (layers, commit)) in blocks.iter().enumerate() {
        for (layer, changes) in layers.iter().enumerate() {
            state.apply(changes).unwrap();
            if (number + layer).is_multiple_of(3) {
                state.undo_to(state.layer_count() - 1);
                state.apply(changes).unwrap();
            }
        }
        state.seal(block(number)).unwrap();
        if *commit {
            state.commit().unwrap();
        }
    }
    state.commit().unwrap();
    rows(state.store(), Table::Preimages)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    /// A state with a history takes from it which keys are new; one without asks the store.
    #[test]
    fn preimages_are_the_same_without_a_history(blocks in blocks()) {
        let asked = preimages_of(&blocks, KeepHistory::Blocks(0));
        prop_assert!(preimages_of(&blocks, KeepHistory::All) == asked, "preimages differ");
        let written = blocks.iter().flat_map(|(layers, _)| layers);
        let named: Vec<Address> = written.flat_map(|changes| &changes.accounts)
            .filter(|(_, change)| matches!(change, Change::Written(_)))
            .map(|(address, _)| *address).collect();
        let is_there = |address: &Address| asked.iter().any(|(_, row)| row == address.as_slice());
        prop_assert!(named.iter().all(is_there));
    }

    #[test]
    fn any_blocks_can_be_taken_back(blocks in blocks(), keep in keep(), preimages: bool) {
        let mut state = open(keep, preimages);
        let then = one_by_one(&mut state, &blocks);
        let newest = then.len() - 1;
        let mut together = open(keep, preimages);
        for (number, (layers, commit)) in blocks.iter().enumerate() {
            for changes in layers {
                together.apply(changes).unwrap();
            }
            // A layer that is taken back leaves no trace in the history.
            together.apply(&Changes::default()).unwrap();
            together.undo_to(together.layer_count() - 1);
            together.seal(block(number)).unwrap();
            if *commit || number == newest {
                together.commit().unwrap();
            }
        }
        let history = rows(state.store(), Table::History);
        prop_assert!(rows(together.store(), Table::History) == history, "history differs");

        let kept = match keep {
            KeepHistory::All => newest,
            KeepHistory::Blocks(kept) => newest.min(kept as usize),
        };
        prop_assert_eq!(history.len(), kept);
        let oldest = newest - kept;
        let range = state.kept().unwrap().unwrap();
        prop_assert_eq!((range.oldest, range.newest), (block(oldest), block(newest)));
        for (number, then) in then.iter().enumerate().skip(oldest) {
            let earlier = state.at(number as u64).unwrap();
            prop_assert_eq!((earlier.root(), earlier.block()), (then.root, Some(block(number))));
            then.textbook.assert_is(&earlier);
        }
        prop_assert!(rows(state.store(), Table::Pages) == then[newest].pages, "a look writes");
        prop_assert!(state.check_history().unwrap().is_empty());
        if let Some(beyond) = oldest.checked_sub(1) {
            let error = state.unwind_to(beyond as u64).unwrap_err();
            let not_kept = matches!(error, StateError::NotKept { kept: Some(kept), .. }
                if kept == (oldest as u64, newest as u64));
            prop_assert!(not_kept, "{}", error);
            is_then(&state, newest, &then[newest]);
        }

        // One by one, and at once.
        for number in (oldest..newest).rev() {
            prop_assert_eq!(state.unwind_to(number as u64).unwrap(), block(number));
            is_then(&state, number, &then[number]);
        }
        together.unwind_to(oldest as u64).unwrap();
        is_then(&together, oldest, &then[oldest]);
        prop_assert_eq!(rows(state.store(), Table::History), Rows::new());

        // And forth again.
        for (number, (layers, _)) in blocks.iter().enumerate().skip(oldest + 1) {
            for changes in layers {
                together.apply(changes).unwrap();
            }
            together.seal(block(number)).unwrap();
        }
        together.commit().unwrap();
        is_then(&together, newest, &then[newest]);
        prop_assert!(rows(together.store(), Table::History) == history, "history differs");
    }
}

/// A chain of one account whose balance is the number of the block.
fn counted(count: usize) -> State<MemoryStore> {
    let mut state = open(KeepHistory::All, true);
    for number in 0..count {
        apply_balance(&mut state, number as u64);
        state.seal(block(number)).unwrap();
        state.commit().unwrap();
    }
    state
}

fn apply_balance(state: &mut State<MemoryStore>, balance: u64) {
    let balance = Some(U256::from(balance));
    let change = Change::Written(AccountChange { balance, ..AccountChange::default() });
    state.apply(&Changes { accounts: [(Address::ZERO, change)].into() }).unwrap();
}

fn balance(state: &State<MemoryStore>) -> u64 {
    state.account(Address::ZERO).unwrap().unwrap().balance.to()
}

#[test]
fn what_is_not_kept_is_named() {
    let mut state = open(KeepHistory::All, true);
    let text =
        |state: &mut State<MemoryStore>, number| state.unwind_to(number).unwrap_err().to_string();
    assert_eq!(text(&mut state, 0), "the store keeps no state of block 0: it knows of no blocks");
    state = counted(9);
    state.keep_history(KeepHistory::Blocks(2));
    apply_balance(&mut state, 9);
    state.seal(block(9)).unwrap();
    state.commit().unwrap();
    for number in [0, 6, 10, u64::MAX] {
        let expected =
            format!("the store keeps no state of block {number}: it has those of blocks 7 to 9");
        assert_eq!(text(&mut state, number), expected);
    }
    state.keep_history(KeepHistory::Blocks(0));
    apply_balance(&mut state, 10);
    state.seal(block(10)).unwrap();
    state.commit().unwrap();
    assert!(text(&mut state, 9).ends_with("it has that of block 10 alone"));
    assert_eq!(state.unwind_to(10).unwrap(), block(10));
}

/// What somebody else still needs stays, and goes once they have moved on.
#[test]
fn blocks_from_a_number_on_are_kept_too() {
    let from = Arc::new(AtomicU64::new(3));
    let mut state = counted(4);
    // It keeps blocks also where nothing else is to be kept.
    for (keep, moved, oldest) in [
        (KeepHistory::Blocks(2), 3, 2),
        (KeepHistory::Blocks(0), 3, 3),
        (KeepHistory::Blocks(2), 7, 4),
        (KeepHistory::Blocks(2), 5, 5),
        (KeepHistory::Blocks(0), 8, 8),
        (KeepHistory::Blocks(1), u64::MAX, 8),
        (KeepHistory::All, u64::MAX, 8),
    ] {
        state.keep_history(keep);
        state.keep_history_from(Arc::clone(&from));
        from.store(moved, Ordering::Release);
        let next = state.block().unwrap().number + 1;
        apply_balance(&mut state, next);
        state.seal(block(next as usize)).unwrap();
        state.commit().unwrap();
        assert_eq!(state.kept().unwrap().unwrap().oldest.number, oldest, "{keep:?} {moved}");
    }
    assert_eq!(state.unwind_to(9).unwrap(), block(9));
    assert_eq!(balance(&state), 9);
}

#[test]
fn numbers_may_have_gaps_and_then_the_blocks_between_are_not_kept() {
    let mut state = counted(2);
    apply_balance(&mut state, 7);
    state.seal(block(7)).unwrap();
    state.commit().unwrap();
    assert!(matches!(state.unwind_to(4), Err(StateError::NotKept { block: 4, .. })));
    assert_eq!(state.unwind_to(1).unwrap(), block(1));
    assert_eq!(balance(&state), 1);
}

#[test]
fn numbers_that_do_not_rise_and_states_of_no_block_begin_the_history_anew() {
    let mut state = counted(5);
    apply_balance(&mut state, 3);
    state.seal(BlockId { number: 3, hash: [9; 32] }).unwrap();
    apply_balance(&mut state, 4);
    state.seal(BlockId { number: 4, hash: [9; 32] }).unwrap();
    state.commit().unwrap();
    assert!(matches!(state.at(2), Err(StateError::NotKept { kept: Some((3, 4)), .. })));
    assert_eq!(state.unwind_to(3).unwrap().hash, [9; 32]);

    apply_balance(&mut state, 99);
    state.commit().unwrap();
    assert_eq!((state.block(), state.kept().unwrap()), (None, None));
    assert_eq!(rows(state.store(), Table::History), Rows::new());
}

/// Rows of the history that were tampered with: an error that names the block, and nothing is
/// written.
#[test]
fn a_damaged_history_is_refused() {
    let sound = counted(6);
    let rows_of = |table| rows(sound.store(), table);
    let history = rows_of(Table::History);
    assert_eq!(history.len(), 5);
    let damaged = |shows: bool, change: &dyn Fn(&mut WriteSet)| {
        let state = counted(6);
        let mut set = WriteSet::new();
        change(&mut set);
        state.store().commit(&set).unwrap();
        let mut state = State::open(state.into_store(), 1).unwrap();
        assert_eq!(state.check_history().unwrap().is_empty(), !shows);
        let error = state.unwind_to(1).unwrap_err();
        assert_eq!((balance(&state), state.root()), (5, sound.root()));
        assert_eq!(rows(state.store(), Table::Pages), rows_of(Table::Pages));
        error.to_string()
    };
    let (key, row) = &history[2];
    let swapped = |at: usize, byte: u8| {
        let mut row = row.clone();
        row[at] ^= byte;
        row
    };
    let put = |row: Vec<u8>| damaged(true, &|set| set.put(Table::History, key, row.clone()));
    assert_eq!(put(Vec::new()), "the history of block 3 is damaged: it ends too early");
    assert!(put(swapped(0, 8)).contains("block 3 is damaged: it has version 9"));
    assert!(put(swapped(1, 1)).contains("block 4 is damaged: it does not follow"));
    assert!(put(swapped(50, 1)).contains("block 3 is damaged: it does not follow"));
    let gone = |at: usize| damaged(true, &|set| set.delete(Table::History, &history[at].0));
    assert!(gone(2).contains("block 4 is damaged: it does not follow"));
    assert!(gone(4).contains("block 5 is damaged: it is missing"));
    // The oldest row that is wanted says what the root and the balance were.
    let (key, row) = &history[1];
    let at_root = |at: usize| {
        let mut row = row.clone();
        row[at] ^= 1;
        // A wrong root is seen when it is used.
        damaged(at != 80, &|set| set.put(Table::History, key, row.clone()))
    };
    assert!(at_root(80).starts_with("taken back to block 1, the state has root 0x"));
    assert!(at_root(row.len() - 1).contains("block 2 is damaged: its body cannot be decompressed"));
}

/// The row and its size are known for what most blocks do.
#[test]
fn a_row_is_small() {
    let state = counted(3);
    let history = rows(state.store(), Table::History);
    // Header, address, tag, balance; and compressed it is no longer than that.
    assert!(history[1].1.len() <= 106 + 20 + 1 + 2, "{}", history[1].1.len());
}

/// Blocks that were sealed, taken back and replaced leave no trace: the history is that of the
/// blocks that stayed, however many were sealed in between.
#[test]
fn blocks_that_were_sealed_and_taken_back_leave_no_trace_in_the_history() {
    let chain = |state: &mut State<MemoryStore>, strays: u64| {
        state.keep_history(KeepHistory::Blocks(3));
        for number in 0..5 {
            apply_balance(state, number);
            state.seal(block(number as usize)).unwrap();
            state.commit().unwrap();
        }
        for number in 5..7 {
            apply_balance(state, number);
            state.seal(block(number as usize)).unwrap();
        }
        let layers = state.layer_count();
        for stray in 0..strays {
            // Every other one does nothing, and is taken back all the same.
            if stray % 2 == 0 {
                apply_balance(state, 100 + stray);
            }
            state.seal(BlockId { number: 7 + stray, hash: [0xcc; 32] }).unwrap();
        }
        state.undo_to(layers);
        apply_balance(state, 7);
        state.seal(block(7)).unwrap();
        state.commit().unwrap();
        rows(state.store(), Table::History)
    };
    let expected = chain(&mut open(KeepHistory::All, true), 0);
    assert_eq!(expected.len(), 3);
    for strays in 1..6 {
        let mut state = open(KeepHistory::All, true);
        assert!(chain(&mut state, strays) == expected, "after {strays} strays");
        assert_eq!(state.unwind_to(4).unwrap(), block(4));
        assert_eq!(balance(&state), 4);
    }
}

/// Another writer has moved on: its history is not taken for that of the state known here.
#[test]
fn another_writers_commit_is_told() {
    let store = counted(6).into_store();
    let reader = State::open(&store, 1).unwrap();
    assert_eq!(reader.at(3).unwrap().block(), Some(block(3)));
    let mut writer = State::open(&store, 1).unwrap();
    writer.apply(&Changes::default()).unwrap();
    writer.seal(block(6)).unwrap();
    writer.commit().unwrap();
    let error = reader.at(3).unwrap_err().to_string();
    assert_eq!(error, "the snapshot shows commit 7 of tree 1, which is at commit 6");
    assert_eq!(State::open(&store, 1).unwrap().at(3).unwrap().block(), Some(block(3)));
}

/// A store that cannot write keeps the state as it was.
#[test]
fn an_unwind_that_fails_changes_nothing() {
    #[derive(Debug)]
    struct Full(MemoryStore);
    impl PageStore for Full {
        type Snapshot<'a> = <MemoryStore as PageStore>::Snapshot<'a>;
        fn snapshot(&self) -> Result<Self::Snapshot<'_>, spinney_tree::StoreError> {
            self.0.snapshot()
        }
        fn commit(&self, _: &WriteSet) -> Result<(), spinney_tree::StoreError> {
            Err(spinney_tree::StoreError::Missing { place: "the moon".into() })
        }
    }
    let sound = counted(6);
    let root = sound.root();
    let mut state = State::open(Full(sound.into_store()), 1 << 20).unwrap();
    state.unwind_to(2).unwrap_err();
    assert_eq!((state.root(), state.block()), (root, Some(block(5))));
    assert_eq!(state.at(2).unwrap().block(), Some(block(2)));
    let snapshot = state.store().snapshot().unwrap();
    assert!(snapshot.read(Table::History, &5_u64.to_be_bytes()).unwrap().is_some());
}
