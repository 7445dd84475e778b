//! Trees beside the Merkle Patricia trie: committed with it, and taken back with it.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::prelude::*;
use spinney_state::embed::{BinaryState, PBT, UBT};
use spinney_state::{AccountChange, Change, Changes, KeepHistory, MPT, State, StateError};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{BlockId, HashFunction, MemoryStore, PageStore, RootRecord, Snapshot, Table};

use super::histories::changes;
use super::textbook;

const UBT_TREE: Ubt = Ubt { hash: HashFunction::Sha256 };
const PBT_TREE: Pbt = Pbt { hash: HashFunction::Blake3 };

fn open(store: MemoryStore) -> State<MemoryStore> {
    let mut state = State::open(store, 1 << 20).unwrap();
    state.keep_history(KeepHistory::All);
    // In any order.
    state.add_tree(PBT_TREE, 1 << 20).unwrap();
    state.add_tree(UBT_TREE, 1 << 20).unwrap();
    state
}

fn apply_all<'a>(state: &mut State<MemoryStore>, layers: impl IntoIterator<Item = &'a Changes>) {
    for changes in layers {
        state.apply(changes).unwrap();
    }
}

fn block(number: usize) -> BlockId {
    BlockId { number: number as u64, hash: [number as u8 + 1; 32] }
}

fn roots(state: &State<MemoryStore>) -> Vec<B256> {
    state.trees().iter().map(|tree| tree.root).collect()
}

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn rows(store: &MemoryStore, table: Table) -> Rows {
    let mut rows = Rows::new();
    let mut add = |key: &[u8], row: &[u8]| {
        rows.insert(key.to_vec(), row.to_vec());
        true
    };
    store.snapshot().unwrap().scan(table, &[], None, &mut add).unwrap();
    rows
}

/// What a block leaves: the roots, and all rows of pages and notes.
type Left = (Vec<B256>, Rows, Rows);

fn left(state: &State<MemoryStore>) -> Left {
    (roots(state), rows(state.store(), Table::Pages), rows(state.store(), Table::Meta))
}

/// Each block is a list of layers: one a transaction, before Byzantium.
fn blocks() -> impl Strategy<Value = Vec<Vec<Changes>>> {
    prop::collection::vec(prop::collection::vec(changes(), 1..4), 2..8)
}

/// One block a commit, beside the textbooks.
fn one_by_one(blocks: &[Vec<Changes>]) -> (State<MemoryStore>, Vec<Left>) {
    let mut state = open(MemoryStore::new());
    let (mut ubt, mut pbt) = (textbook::Ubt::default(), textbook::Pbt::default());
    let mut all = Vec::new();
    for (number, layers) in blocks.iter().enumerate() {
        let mut merged = Changes::default();
        for changes in layers {
            state.apply(changes).unwrap();
            pbt.0.apply(changes);
            merged.then(changes);
        }
        ubt.apply(&textbook::ubt_stem(UBT_TREE.hash), &merged);
        state.seal(block(number)).unwrap();
        state.commit().unwrap();
        let expected = [state.root(), ubt.root(UBT_TREE.hash), pbt.root(PBT_TREE.hash)];
        assert_eq!(roots(&state), expected, "block {number}");
        all.push(left(&state));
    }
    (state, all)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn changes_merged_are_changes_in_turn(first in changes(), second in changes(), before in changes()) {
        let mut turns = textbook::Accounts::default();
        turns.apply(&before);
        let mut once = turns.clone();
        turns.apply(&first);
        turns.apply(&second);
        let mut merged = first;
        merged.then(&second);
        once.apply(&merged);
        let held = |accounts: textbook::Accounts| {
            let held = accounts.0.into_iter();
            held.map(|(a, held)| (a, held.account, held.code, held.storage)).collect::<Vec<_>>()
        };
        prop_assert_eq!(held(turns), held(once));
    }

    #[test]
    fn any_commits_and_any_way_back_leave_the_same(
        blocks in blocks(),
        ends in prop::collection::vec((any::<bool>(), any::<bool>()), 8),
        back in any::<prop::sample::Index>(),
        by_one in any::<bool>(),
    ) {
        let (alone, all) = one_by_one(&blocks);
        let last = blocks.len() - 1;
        let mut state = open(MemoryStore::new());
        for (number, layers) in blocks.iter().enumerate() {
            for changes in layers {
                // Taken back, it leaves nothing.
                let layers = state.layer_count();
                state.apply(&blocks[0][0]).unwrap();
                state.undo_to(layers);
                state.apply(changes).unwrap();
            }
            state.seal(block(number)).unwrap();
            prop_assert_eq!(&roots(&state), &all[number].0);
            let (commit, reopen) = ends[number];
            if commit || number == last {
                state.commit().unwrap();
                prop_assert_eq!(&left(&state), &all[number]);
            }
            if commit && reopen {
                state = open(state.into_store());
            }
        }
        prop_assert_eq!(state.check_history().unwrap().len(), 0);
        let history = rows(state.store(), Table::History);
        prop_assert_eq!(&history, &rows(alone.store(), Table::History));

        // At every block, for a look.
        let store = state.into_store();
        let ubt = BinaryState::open(UBT_TREE, &store, 1 << 20).unwrap();
        let pbt = BinaryState::open(PBT_TREE, &store, 1 << 20).unwrap();
        let oldest = if history.is_empty() { last } else { 0 };
        for (number, (roots, ..)) in all.iter().enumerate().skip(oldest) {
            prop_assert_eq!(ubt.at(number as u64).unwrap().root(), roots[1]);
            prop_assert_eq!(pbt.at(number as u64).unwrap().root(), roots[2]);
        }
        drop((ubt, pbt));

        // Back for good, and on again.
        let mut state = open(store);
        let to = back.index(blocks.len());
        if by_one {
            for number in (to..last).rev() {
                state.unwind_to(number as u64).unwrap();
                prop_assert_eq!(&left(&state), &all[number]);
            }
        } else {
            state.unwind_to(to as u64).unwrap();
            prop_assert_eq!(&left(&state), &all[to]);
        }
        for (number, layers) in blocks.iter().enumerate().skip(to + 1) {
            apply_all(&mut state, layers);
            state.seal(block(number)).unwrap();
        }
        state.commit().unwrap();
        prop_assert_eq!(&left(&state), &all[last]);
        prop_assert_eq!(&rows(state.store(), Table::History), &history);
    }
}

fn written(nonce: u64, storage: &[(u64, u64)]) -> Change {
    let word = |(slot, value): &(u64, u64)| (U256::from(*slot).into(), U256::from(*value));
    let storage = storage.iter().map(word).collect();
    Change::Written(AccountChange { nonce: Some(nonce), storage, ..AccountChange::default() })
}

fn one(change: Change) -> Changes {
    Changes { accounts: [(Address::ZERO, change)].into() }
}

/// A slot that was set at the end of a block leaves zeros in a UBT, also where both blocks are in
/// one commit; one that was set and cleared within a block leaves nothing.
#[test]
fn zeros_stay_of_what_was_there_between_blocks() {
    let (set, clear) = (one(written(1, &[(7, 5)])), one(written(1, &[(7, 0)])));
    let run = |blocks: &[&[&Changes]]| {
        let mut state = open(MemoryStore::new());
        for (number, layers) in blocks.iter().enumerate() {
            apply_all(&mut state, layers.iter().copied());
            state.seal(block(number)).unwrap();
        }
        state.commit().unwrap();
        roots(&state)
    };
    let bare = one(written(1, &[]));
    let within = run(&[&[&set, &clear]]);
    assert_eq!(within, run(&[&[&bare]]));
    let between = run(&[&[&set], &[&clear]]);
    assert_eq!((between[0], between[2]), (within[0], within[2]), "mpt and pbt know no zeros");
    assert_ne!(between[1], within[1]);
}

/// Delegations and destroyed contracts leave code chunks behind that accounts do not tell.
#[test]
fn old_chunks_of_code_come_back() {
    let with_code = |code: Vec<u8>| {
        let code = Bytes::from(code);
        let code_hash = Some(keccak256(&code));
        one(Change::Written(AccountChange {
            code_hash,
            code: Some(code),
            ..AccountChange::default()
        }))
    };
    let delegate = |byte| with_code([&[0xef, 1, 0][..], &[byte; 20]].concat());
    let blocks = [delegate(7), with_code(vec![]), delegate(8), one(Change::Deleted), delegate(9)];
    let blocks: Vec<_> = blocks.map(|changes| vec![changes]).into();
    let (mut state, all) = one_by_one(&blocks);
    for number in (0..4).rev() {
        state.unwind_to(number as u64).unwrap();
        assert_eq!(left(&state), all[number]);
    }
}

#[test]
fn trees_of_a_store_stay_together() {
    let mut state = open(MemoryStore::new());
    state.apply(&one(written(1, &[]))).unwrap();
    state.seal(block(3)).unwrap();
    state.commit().unwrap();
    let store = state.into_store();

    // A tree that is not named would stay behind: the state can be read, and not written.
    let mut alone = State::open(&store, 1 << 20).unwrap();
    alone.add_tree(UBT_TREE, 1 << 20).unwrap();
    alone.apply(&one(written(2, &[]))).unwrap();
    let error = alone.commit().unwrap_err();
    assert!(matches!(&error, StateError::LeftBehind { .. }));
    assert_eq!(error.to_string(), "the store also holds pbt:blake3, which would stay behind");
    assert!(matches!(alone.unwind_to(3), Err(StateError::LeftBehind { .. })));

    // Nor does one come later.
    let mut state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    state.apply(&one(written(1, &[]))).unwrap();
    state.seal(block(3)).unwrap();
    state.commit().unwrap();
    let mut state = State::open(state.into_store(), 1 << 20).unwrap();
    let error = state.add_tree(UBT_TREE, 1 << 20).unwrap_err().to_string();
    assert!(error.starts_with("ubt:sha256 is empty, and mpt stands at block 3"), "{error}");
    // Nor with another hash.
    let other = Ubt { hash: HashFunction::Blake3 };
    let error = State::open(&store, 1 << 20).unwrap().add_tree(other, 1 << 20).unwrap_err();
    assert!(error.to_string().contains("is ubt:sha256, not ubt:blake3"), "{error}");

    let snapshot = store.snapshot().unwrap();
    for tree in [MPT, UBT, PBT] {
        let row = snapshot.read(Table::Roots, &RootRecord::key(tree)).unwrap().unwrap();
        assert_eq!(RootRecord::decode(tree, row).unwrap().block, Some(block(3)));
    }
}

/// What a tree cannot hold is refused with the block, of which nothing stays.
#[test]
fn what_one_tree_refuses_no_tree_gets() {
    let mut state = open(MemoryStore::new());
    state.apply(&one(written(1, &[]))).unwrap();
    state.seal(block(0)).unwrap();
    let before = roots(&state);
    let rich = AccountChange { balance: Some(U256::MAX), ..AccountChange::default() };
    state.apply(&one(Change::Written(rich))).unwrap();
    let error = state.seal(block(1)).unwrap_err().to_string();
    assert!(
        error.starts_with(
            "ubt:sha256: account 0x0000000000000000000000000000000000000000: a balance of"
        ),
        "{error}"
    );
    state.undo_to(1);
    assert_eq!(roots(&state), before);
    state.apply(&one(written(2, &[]))).unwrap();
    state.seal(block(1)).unwrap();
    state.commit().unwrap();
    assert_ne!(roots(&state), before);
    state.unwind_to(0).unwrap();
    assert_eq!(roots(&state), before);
}

/// A part of a sealed block is taken back: what is left belongs to the block that is sealed next,
/// in all trees.
#[test]
fn a_part_of_a_sealed_block_can_be_taken_back() {
    let one = |balance: u64| {
        let change =
            AccountChange { balance: Some(U256::from(balance)), ..AccountChange::default() };
        let address = Address::with_last_byte(balance as u8);
        Changes { accounts: [(address, Change::Written(change))].into() }
    };
    let layers: Vec<_> = (1..6).map(one).collect();
    let blocks = |parts: &[&[usize]]| -> Vec<Vec<Changes>> {
        parts.iter().map(|part| part.iter().map(|at| layers[*at].clone()).collect()).collect()
    };
    let (alone, all) = one_by_one(&blocks(&[&[0], &[1, 4]]));
    let mut state = open(MemoryStore::new());
    apply_all(&mut state, &layers[..1]);
    state.seal(block(0)).unwrap();
    apply_all(&mut state, &layers[1..4]);
    state.seal(BlockId { number: 1, hash: [0xcc; 32] }).unwrap();
    state.undo_to(2);
    apply_all(&mut state, &layers[4..]);
    state.seal(block(1)).unwrap();
    state.commit().unwrap();
    assert_eq!(left(&state), all[1]);
    assert_eq!(rows(state.store(), Table::History), rows(alone.store(), Table::History));
    state.unwind_to(0).unwrap();
    assert_eq!(left(&state), all[0]);
}
