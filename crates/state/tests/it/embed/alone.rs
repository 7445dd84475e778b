//! A state without a Merkle Patricia trie: what it reads, leaves and takes back is what it would be
//! beside one.

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256};
use proptest::prelude::*;
use spinney_state::embed::BinaryState;
use spinney_state::{Change, Changes, KeepHistory, State, StateError, StateRead as _};
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{BlockId, HashFunction, MemoryStore};

use super::histories::changes;

const UBT: Ubt = Ubt { hash: HashFunction::Sha256 };
const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };

/// Which trees there are: mpt, ubt, pbt.
type Trees = (bool, bool, bool);

fn open(store: MemoryStore, (mpt, ubt, pbt): Trees) -> State<MemoryStore> {
    let mut state = match mpt {
        true => State::open(store, 1 << 20).unwrap(),
        false => State::open_without_mpt(store).unwrap(),
    };
    state.keep_history(KeepHistory::All);
    if ubt {
        state.add_tree(UBT, 1 << 20).unwrap();
    }
    if pbt {
        state.add_tree(PBT, 1 << 20).unwrap();
    }
    state
}

fn block(number: usize) -> BlockId {
    BlockId { number: number as u64, hash: [number as u8 + 1; 32] }
}

fn root_of(state: &State<MemoryStore>, tree: &str) -> Option<B256> {
    state.trees().iter().find(|held| held.scheme.to_string() == tree).map(|held| held.root)
}

/// All accounts and slots that are ever named.
fn named(blocks: &[Vec<Changes>]) -> BTreeSet<(Address, B256)> {
    let mut named = BTreeSet::new();
    for (address, change) in blocks.iter().flatten().flat_map(|changes| &changes.accounts) {
        named.insert((*address, B256::ZERO));
        if let Change::Written(change) = change {
            named.extend(change.storage.keys().map(|slot| (*address, *slot)));
        }
    }
    named
}

/// Both read the same everywhere.
fn same(
    one: &State<MemoryStore>,
    other: &State<MemoryStore>,
    named: &BTreeSet<(Address, B256)>,
) -> Result<(), TestCaseError> {
    for (address, slot) in named {
        let account = one.account(*address).unwrap();
        prop_assert_eq!(account, other.account(*address).unwrap(), "{}", address);
        let value = one.storage(*address, *slot).unwrap();
        prop_assert_eq!(value, other.storage(*address, *slot).unwrap(), "{} {}", address, slot);
        if let Some(account) = account {
            let code = one.code(account.code_hash).unwrap();
            prop_assert_eq!(code, other.code(account.code_hash).unwrap());
        }
    }
    Ok(())
}

fn blocks() -> impl Strategy<Value = Vec<Vec<Changes>>> {
    prop::collection::vec(prop::collection::vec(changes(), 1..4), 2..8)
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn without_mpt_all_else_is_the_same(
        blocks in blocks(),
        ubt in any::<bool>(),
        commits in prop::collection::vec((any::<bool>(), any::<bool>()), 8),
        back in any::<prop::sample::Index>(),
    ) {
        let trees = (false, ubt, true);
        let mut with = open(MemoryStore::new(), (true, ubt, true));
        let mut without = open(MemoryStore::new(), trees);
        let named = named(&blocks);
        let mut all = Vec::new();
        for (number, layers) in blocks.iter().enumerate() {
            for changes in layers {
                let layers = without.layer_count();
                without.apply(&blocks[0][0]).unwrap();
                without.undo_to(layers);
                with.apply(changes).unwrap();
                without.apply(changes).unwrap();
                same(&with, &without, &named)?;
            }
            with.seal(block(number)).unwrap();
            without.seal(block(number)).unwrap();
            same(&with, &without, &named)?;
            for tree in ["ubt:sha256", "pbt:blake3"] {
                prop_assert_eq!(root_of(&with, tree), root_of(&without, tree));
            }
            prop_assert_eq!(Some(without.root()), root_of(&without, "pbt:blake3"));
            all.push((without.root(), root_of(&without, "ubt:sha256")));
            let (commit, reopen) = commits[number];
            if commit || number + 1 == blocks.len() {
                with.commit().unwrap();
                without.commit().unwrap();
                prop_assert_eq!(without.block(), Some(block(number)));
                for (address, _) in &named {
                    let expected = with.has_storage(*address).unwrap();
                    prop_assert_eq!(without.has_storage(*address).unwrap(), expected);
                }
            }
            if commit && reopen {
                without = open(without.into_store(), trees);
            }
        }
        prop_assert_eq!(without.check_history().unwrap().len(), 0);
        prop_assert_eq!(with.kept().unwrap(), without.kept().unwrap());
        let kept = without.kept().unwrap().unwrap();
        let pbt = BinaryState::open(PBT, without.store(), 1 << 20).unwrap();
        for number in kept.oldest.number..=kept.newest.number {
            prop_assert_eq!(pbt.at(number).unwrap().root(), all[number as usize].0);
        }
        drop(pbt);
        // Back, and on again.
        let to = (kept.oldest.number as usize + back.index(blocks.len())).min(blocks.len() - 1);
        without.unwind_to(to as u64).unwrap();
        with.unwind_to(to as u64).unwrap();
        same(&with, &without, &named)?;
        prop_assert_eq!((without.root(), root_of(&without, "ubt:sha256")), all[to]);
        for (number, layers) in blocks.iter().enumerate().skip(to + 1) {
            for changes in layers {
                without.apply(changes).unwrap();
            }
            without.seal(block(number)).unwrap();
            without.commit().unwrap();
            prop_assert_eq!((without.root(), root_of(&without, "ubt:sha256")), all[number]);
        }
    }

    /// Where slots stay when their account goes, what is read is right, or the block is refused.
    #[test]
    fn a_tree_that_keeps_slots_reads_none_that_went(blocks in blocks()) {
        let mut with = open(MemoryStore::new(), (true, true, false));
        let mut without = open(MemoryStore::new(), (false, true, false));
        let named = named(&blocks);
        for (number, layers) in blocks.iter().enumerate() {
            let before = without.layer_count();
            for changes in layers {
                with.apply(changes).unwrap();
                without.apply(changes).unwrap();
                same(&with, &without, &named)?;
            }
            match without.seal(block(number)) {
                Ok(()) => with.seal(block(number)).unwrap(),
                Err(StateError::Remains { address, .. }) => {
                    // It went in an earlier block, and is there again.
                    prop_assert!(with.account(address).unwrap().is_some());
                    with.undo_to(before);
                    without.undo_to(before);
                    same(&with, &without, &named)?;
                    return Ok(());
                }
                Err(error) => return Err(TestCaseError::fail(error.to_string())),
            }
            same(&with, &without, &named)?;
            prop_assert_eq!(Some(without.root()), root_of(&with, "ubt:sha256"));
        }
    }
}

#[test]
fn what_only_the_trie_knows_is_refused() {
    let mut state = open(MemoryStore::new(), (false, false, true));
    state.seal(block(0)).unwrap();
    state.commit().unwrap();
    for refused in [
        state.prove(Address::ZERO, &[]).err(),
        state.at(0).err(),
        state.dump().err(),
        state.check_references(|_| ()).err(),
    ] {
        let refused = refused.expect("it is refused");
        assert!(matches!(refused, StateError::NoMpt { .. }), "{refused}");
        assert_eq!(refused.to_string(), "the store holds pbt:blake3, and this needs mpt");
    }
    // Opened with the trie the store would have one tree left behind.
    let store = state.into_store();
    let mut with = State::open(&store, 1 << 20).unwrap();
    with.seal(block(1)).unwrap();
    let error = with.commit().unwrap_err();
    assert!(matches!(error, StateError::LeftBehind { .. }), "{error}");
    // And the other way round.
    let mut mpt = open(MemoryStore::new(), (true, false, false));
    mpt.seal(block(0)).unwrap();
    mpt.commit().unwrap();
    let mut other = State::open_without_mpt(mpt.into_store()).unwrap();
    let error = other.commit().unwrap_err();
    assert_eq!(error.to_string(), "the store also holds mpt, which would stay behind");
}
