//! States beside the last commit: stacked, side by side, and gone without a trace.

use alloy_primitives::B256;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use spinney_state::{Changes, KeepHistory, State};
use spinney_tree::{MemoryStore, Table};

use crate::history::block;
use crate::textbook::{Rows, Textbook, changes, rows};

fn some_changes(count: usize) -> Vec<Changes> {
    let mut runner = TestRunner::deterministic();
    let strategy = prop::collection::vec(changes(), count);
    strategy.new_tree(&mut runner).unwrap().current()
}

/// Commits all changes, one a block, and answers with the root after each.
fn committed(changes: &[Changes]) -> (State<MemoryStore>, Vec<B256>) {
    let mut state = State::open(MemoryStore::new(), 1 << 20).unwrap();
    state.keep_history(KeepHistory::All);
    let mut roots = Vec::new();
    for (number, changes) in changes.iter().enumerate() {
        roots.push(state.apply(changes).unwrap());
        state.seal(block(number)).unwrap();
        state.commit().unwrap();
    }
    (state, roots)
}

fn everything(state: &State<MemoryStore>) -> Vec<Rows> {
    Table::ALL.map(|table| rows(state.store(), table)).into()
}

#[test]
fn ten_states_stacked_and_three_side_by_side_have_the_roots_of_commits() {
    let changes = some_changes(40);
    let (trunk, others) = changes.split_at(20);
    let (state, roots) = committed(trunk);
    let before = everything(&state);
    let resident = state.at(19).unwrap().tree().resident_bytes();

    // Ten on top of a state ten blocks ago, which the last ten commits also stood on.
    let parent = state.at(9).unwrap();
    assert_eq!(parent.root(), roots[9]);
    let mut stack = vec![parent.apply(&trunk[10]).unwrap()];
    for changes in &trunk[11..20] {
        let top = stack.last().unwrap().apply(changes).unwrap();
        stack.push(top);
    }
    let stacked: Vec<_> = stack.iter().map(|state| state.root()).collect();
    assert_eq!(stacked, roots[10..20]);

    // Three on one parent, each as if it had been committed.
    for other in others.chunks(3).take(6) {
        let siblings: Vec<_> = other.iter().map(|changes| parent.apply(changes).unwrap()).collect();
        for (sibling, changes) in siblings.iter().zip(other) {
            let mut path = trunk[..10].to_vec();
            path.push(changes.clone());
            let (alone, roots) = committed(&path);
            assert_eq!(sibling.root(), roots[10]);
            assert_eq!(alone.root(), roots[10]);
            let mut textbook = Textbook::default();
            path.iter().for_each(|changes| textbook.apply(changes));
            textbook.assert_is(sibling);
        }
    }
    drop((stack, parent));
    assert_eq!(everything(&state), before, "nothing was written");
    // All pages fit, and all were in memory: what was dropped holds none.
    assert_eq!(state.at(19).unwrap().tree().resident_bytes(), resident);
}

/// Ten layers of one state, each with the root of a commit; taken back, they leave nothing.
#[test]
fn ten_layers_taken_back_leave_no_trace() {
    let changes = some_changes(20);
    let (_, roots) = committed(&changes);
    let (mut state, _) = committed(&changes[..10]);
    let before = everything(&state);
    let top = state.at(9).unwrap().tree().resident_bytes();
    for round in 0..3 {
        for (changes, root) in changes[10..].iter().zip(&roots[10..]) {
            assert_eq!(state.apply(changes).unwrap(), *root, "round {round}");
        }
        state.undo_to(0);
        assert_eq!(state.root(), roots[9]);
        assert_eq!(everything(&state), before);
        assert_eq!(state.at(9).unwrap().tree().resident_bytes(), top);
    }
    for (number, changes) in changes[10..].iter().enumerate() {
        state.apply(changes).unwrap();
        state.seal(block(10 + number)).unwrap();
    }
    state.commit().unwrap();
    let (one_by_one, _) = committed(&changes);
    // The root record counts the commits, of which there are fewer.
    for table in Table::ALL.into_iter().filter(|table| *table != Table::Roots) {
        assert_eq!(rows(state.store(), table), rows(one_by_one.store(), table), "{table}");
    }
}
