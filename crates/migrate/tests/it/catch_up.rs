//! A tree that follows a chain by access lists.

use std::collections::BTreeMap;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::prelude::*;
use spinney_migrate::{
    AccessList, CatchUp, CatchUpError, ListError, ListedBlock, NameSource, Work, from_mpt,
};
use spinney_state::embed::BinaryState;
use spinney_state::{
    Account, AccountChange, Change, Changes, EMPTY_CODE_HASH, State, StateRead as _,
};
use spinney_tree::pbt::Pbt;
use spinney_tree::{BlockId, HashFunction, MemoryStore, PageStore, Snapshot as _, Table};

use crate::made::{cases, one_state, worked};

const PBT: Pbt = Pbt { hash: HashFunction::Blake3 };

/// A block, as a chain and as a list have it.
#[derive(Clone, Debug)]
struct Block {
    id: BlockId,
    parent: B256,
    steps: Vec<Changes>,
    /// The slots of accounts that were destroyed and made again.
    replaced: BTreeMap<Address, Vec<B256>>,
}

fn hash(number: u64, fork: u8) -> B256 {
    keccak256([number as u8, fork])
}

impl Block {
    fn at(number: u64, fork: u8, parent: B256, steps: Vec<Changes>) -> Self {
        let id = BlockId { number, hash: hash(number, fork).0 };
        Self { id, parent, steps, replaced: BTreeMap::new() }
    }

    fn all(&self) -> Changes {
        let mut all = Changes::default();
        self.steps.iter().for_each(|step| all.then(step));
        all
    }

    fn list(&self) -> AccessList {
        AccessList::of((1..).zip(&self.steps), &self.all(), &self.replaced).unwrap()
    }

    fn apply<P: PageStore>(&self, to: &mut CatchUp<P>) -> Result<B256, CatchUpError> {
        let list = self.list();
        let (id, parent, list_hash) = (self.id, self.parent, list.hash());
        to.apply(&ListedBlock { id, parent, list: &list.to_rlp(), list_hash })
    }
}

/// What transactions do to a state with few accounts: all kinds of changes.
fn step() -> impl Strategy<Value = Vec<(u8, u8, u64)>> {
    prop::collection::vec((0_u8..6, 0_u8..9, 0_u64..4), 1..6)
}

/// Makes changes of what chance says, that a block could make to this state.
fn changes(state: &State<MemoryStore>, rolls: &[(u8, u8, u64)]) -> Changes {
    let mut all = Changes::default();
    for (index, what, number) in rolls {
        let address = Address::repeat_byte(4 * index);
        let Some(old) = state.account(address).unwrap() else {
            let balance = Some(U256::from(1 + number));
            let new = AccountChange { balance, nonce: Some(0), ..AccountChange::default() };
            all.accounts.insert(address, Change::Written(new));
            continue;
        };
        let mut change = AccountChange::default();
        match what {
            0 | 1 => change.nonce = Some(old.nonce + 1),
            2 => change.balance = Some(U256::from(*number + 1)),
            3 => {
                let code = [&[0xef, 0x01, 0x00][..], &[*number as u8; 20]].concat();
                change.code_hash = Some(keccak256(&code));
                change.code = Some(code.into());
                change.nonce = Some(old.nonce + 1);
            }
            4 => {
                (change.code_hash, change.code) = (Some(EMPTY_CODE_HASH), Some(Bytes::new()));
                change.nonce = Some(old.nonce + 1);
            }
            5 => {
                let code = vec![*number as u8 + 1; 40];
                change.code_hash = Some(keccak256(&code));
                change.code = Some(code.into());
            }
            6 => {
                all.accounts.insert(address, Change::Deleted);
                continue;
            }
            _ => {
                change.nonce = Some(old.nonce + 1);
                let slot = B256::from(U256::from(40 * (number % 3)));
                change.storage.insert(slot, U256::from(*number));
            }
        }
        all.accounts.insert(address, Change::Written(change));
    }
    all
}

/// The rows of a table.
fn rows(store: &MemoryStore, table: Table) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut visit = |key: &[u8], row: &[u8]| {
        let skip = if table == Table::Pages { 8 } else { 0 };
        rows.push((key[skip..].to_vec(), row[skip..].to_vec()));
        true
    };
    store.snapshot().unwrap().scan(table, &[], None, &mut visit).unwrap();
    rows
}

/// A chain of blocks over one state, with the root of the tree after each, by conversion.
struct Chain {
    state: State<MemoryStore>,
    blocks: Vec<Block>,
}

impl Chain {
    fn new() -> Self {
        let mut state = State::open(MemoryStore::new(), 1 << 20).unwrap();
        state.apply(&one_state()).unwrap();
        state.seal(BlockId { number: 0, hash: hash(0, 0).0 }).unwrap();
        state.commit().unwrap();
        Self { state, blocks: Vec::new() }
    }

    fn block(&mut self, fork: u8, rolls: &[Vec<(u8, u8, u64)>]) {
        let parent = self.blocks.last().map_or(hash(0, 0), |block| block.id.hash.into());
        let number = self.blocks.len() as u64 + 1;
        let mut steps = Vec::new();
        let mut gone = BTreeMap::new();
        for rolls in rolls {
            let step = changes(&self.state, rolls);
            for (address, _) in step.accounts.iter().filter(|(_, c)| **c == Change::Deleted) {
                let slots = || self.state.slots(*address).unwrap().expect("preimages are kept");
                gone.entry(*address).or_insert_with(slots);
            }
            self.state.apply(&step).unwrap();
            steps.push(step);
        }
        let mut block = Block::at(number, fork, parent, steps);
        let all = block.all();
        gone.retain(|address, _| matches!(all.accounts[address], Change::Written(_)));
        block.replaced = gone;
        self.state.seal(block.id).unwrap();
        self.state.commit().unwrap();
        self.blocks.push(block);
    }

    /// The tree of the state as it is, converted.
    fn converted(&self) -> (B256, MemoryStore) {
        let target = MemoryStore::new();
        let run =
            |w: &mut Work<'_>| from_mpt(self.state.store(), &target, PBT, NameSource::Store, w);
        (worked(1 << 20, run).unwrap().root, target)
    }
}

proptest! {
    #![proptest_config(cases())]

    /// After each block, and over any number of layers and commits, it is what a conversion makes.
    #[test]
    fn catch_up_equals_conversion(
        blocks in prop::collection::vec(prop::collection::vec(step(), 0..4), 1..8),
        depth in 0_usize..4,
    ) {
        let mut chain = Chain::new();
        let (_, store) = chain.converted();
        let mut tree = CatchUp::open(PBT, store, 1 << 20).unwrap();
        for rolls in &blocks {
            chain.block(0, rolls);
            let root = chain.blocks.last().unwrap().apply(&mut tree).unwrap();
            prop_assert_eq!(root, chain.converted().0, "block {}", chain.blocks.len());
            if let Some(is_final) = tree.at_depth(depth) {
                tree.finalise(is_final).unwrap();
                prop_assert_eq!(tree.layers(), depth);
            }
        }
        tree.finalise(tree.head().hash.into()).unwrap();
        let (root, expected) = chain.converted();
        prop_assert_eq!(tree.root(), root);
        let store = tree.into_store();
        prop_assert!(rows(&store, Table::Pages) == rows(&expected, Table::Pages));
        // What it counts is what a conversion counts: the tree can go on, and back.
        let reopened = BinaryState::open(PBT, &store, 1 << 20).unwrap();
        let fresh = BinaryState::open(PBT, &expected, 1 << 20).unwrap();
        for (code, _) in rows(&store, Table::Codes) {
            let code = B256::from_slice(&code);
            prop_assert_eq!(reopened.code_uses(code).unwrap(), fresh.code_uses(code).unwrap());
        }
        let back = MemoryStore::new();
        let run = |w: &mut Work<'_>| {
            spinney_migrate::to_mpt(&store, &back, PBT, NameSource::Store, w)
        };
        prop_assert_eq!(worked(1 << 20, run).unwrap().root, chain.state.root());
    }
}

/// Some blocks of a chain, other ones at each fork.
fn grown(fork: u8, shared: usize, count: usize) -> Chain {
    let mut chain = Chain::new();
    for number in 0..count {
        let by = if number < shared { 0 } else { fork };
        let rolls =
            |at: usize| ((number + at) as u8 % 6, (number * 3 + at) as u8 % 9, at as u64 % 4);
        let rolls: Vec<_> = (0..5).map(|at| rolls(at + usize::from(by))).collect();
        chain.block(by, &[rolls[..2].to_vec(), rolls[2..].to_vec()]);
    }
    chain
}

#[test]
fn a_reorganisation_drops_layers() {
    let (one, other) = (grown(0, 0, 10), grown(1, 5, 11));
    let (_, store) = Chain::new().converted();
    let mut tree = CatchUp::open(PBT, store, 1 << 20).unwrap();
    let mut roots = BTreeMap::new();
    for block in &one.blocks {
        roots.insert(block.id.number, block.apply(&mut tree).unwrap());
    }
    tree.finalise(one.blocks[2].id.hash.into()).unwrap();
    assert_eq!((tree.base().number, tree.head().number, tree.layers()), (3, 10, 7));
    // Five blocks are dropped, six others come.
    for block in &other.blocks[5..] {
        block.apply(&mut tree).unwrap();
    }
    assert_eq!((tree.head().number, tree.layers()), (11, 8));
    assert_eq!(tree.root(), other.converted().0);
    for (number, root) in roots {
        let expected = if (3..=5).contains(&number) { Some(root) } else { None };
        assert_eq!(tree.root_of(hash(number, 0)), expected, "block {number}");
    }
    // Back to the first chain, and durable.
    for block in &one.blocks[5..] {
        block.apply(&mut tree).unwrap();
    }
    assert_eq!(tree.root(), one.converted().0);
    tree.finalise(tree.head().hash.into()).unwrap();
    let (root, expected) = one.converted();
    assert_eq!(tree.root_of(hash(10, 0)), Some(root));
    let refused = other.blocks[6].apply(&mut tree);
    assert!(matches!(refused, Err(CatchUpError::Stranger { number: 7, .. })), "{refused:?}");
    assert!(rows(&tree.into_store(), Table::Pages) == rows(&expected, Table::Pages));
}

#[test]
fn lists_are_read_strictly() {
    let chain = grown(0, 0, 2);
    let (before, store) = Chain::new().converted();
    let mut tree = CatchUp::open(PBT, store, 1 << 20).unwrap();
    let block = &chain.blocks[0];
    let (list, id, parent) = (block.list(), block.id, block.parent);
    let rlp = list.to_rlp();
    let mut apply = |rlp: &[u8], list_hash: B256, parent: B256| {
        let refused = tree.apply(&ListedBlock { id, parent, list: rlp, list_hash });
        assert_eq!((tree.root(), tree.layers()), (before, 0));
        refused.unwrap_err()
    };
    let is_list = |error: &CatchUpError, what: fn(&ListError) -> bool| match error {
        CatchUpError::List { source, .. } => what(source),
        _ => false,
    };
    for at in 0..rlp.len() {
        let mut other = rlp.to_vec();
        other[at] ^= 1;
        let error = apply(&other, list.hash(), parent);
        assert!(is_list(&error, |error| matches!(error, ListError::Hash { .. })), "{error}");
        // Whatever a header may name: refused, or another list; never a panic.
        let _ = AccessList::read(&other, keccak256(&other));
    }
    let error = apply(&rlp[..rlp.len() - 1], keccak256(&rlp[..rlp.len() - 1]), parent);
    assert!(is_list(&error, |error| matches!(error, ListError::Rlp(_))), "{error}");
    let longer = [&rlp[..], &[0xc0]].concat();
    let error = apply(&longer, keccak256(&longer), parent);
    assert!(is_list(&error, |error| matches!(error, ListError::Rlp(_))), "{error}");
    let error = apply(&rlp, list.hash(), B256::repeat_byte(9));
    assert!(matches!(error, CatchUpError::Stranger { .. }), "{error}");
    // Accounts out of order.
    let mut accounts: Vec<alloy_eip7928::AccountChanges> =
        alloy_rlp::Decodable::decode(&mut &rlp[..]).unwrap();
    accounts.reverse();
    let mut reversed = Vec::new();
    alloy_rlp::Encodable::encode(&accounts, &mut reversed);
    let error = apply(&reversed, keccak256(&reversed), parent);
    assert!(is_list(&error, |error| matches!(error, ListError::Canonical(_))), "{error}");
    assert_eq!(AccessList::read(&rlp, list.hash()).unwrap(), list);
}

#[test]
fn what_went_with_an_account_has_to_be_known() {
    let [old, new] = [1, 2].map(B256::with_last_byte);
    let reborn = AccountChange {
        nonce: Some(1),
        storage: [(new, U256::from(7))].into(),
        ..AccountChange::default()
    };
    let one = |change| Changes { accounts: [(Address::ZERO, change)].into() };
    let steps = [one(Change::Deleted), one(Change::Written(reborn))];
    let mut all = steps[0].clone();
    all.then(&steps[1]);
    let of = |replaced: BTreeMap<_, _>| AccessList::of((1..).zip(&steps), &all, &replaced);
    let refused = of(BTreeMap::new());
    assert!(matches!(refused, Err(ListError::Unsaid { .. })), "{refused:?}");
    let list = of([(Address::ZERO, vec![old])].into()).unwrap();
    let there = Account { nonce: 5, balance: U256::ONE, code_hash: B256::repeat_byte(4) };
    let changes = list.changes(|_| Ok::<_, ()>(Some(there))).unwrap();
    let Change::Written(change) = &changes.accounts[&Address::ZERO] else { panic!("{changes:?}") };
    let slots: Vec<_> = change.storage.iter().map(|(slot, value)| (*slot, *value)).collect();
    assert_eq!(slots, [(old, U256::ZERO), (new, U256::from(7))]);
    let fields = (change.nonce, change.balance, change.code_hash);
    assert_eq!(fields, (Some(1), Some(U256::ZERO), Some(EMPTY_CODE_HASH)));
    assert!(AccessList::read(&list.to_rlp(), list.hash()).is_ok());
}

/// An account that is destroyed and made again by one part of a block: each slot is listed once an
/// index, and what the new one was not given is listed as empty.
#[test]
fn an_account_made_again_by_one_part_has_a_canonical_list() {
    let [kept, gone, new] = [1, 2, 3].map(B256::with_last_byte);
    let reborn = AccountChange {
        fresh: true,
        nonce: Some(1),
        storage: [(kept, U256::from(7)), (new, U256::from(8))].into(),
        ..AccountChange::default()
    };
    let all = Changes { accounts: [(Address::ZERO, Change::Written(reborn))].into() };
    let replaced = BTreeMap::from([(Address::ZERO, vec![kept, gone])]);
    let list = AccessList::of([(1, &all)], &all, &replaced).unwrap();
    assert_eq!(AccessList::read(&list.to_rlp(), list.hash()).unwrap(), list);
    let there = Account { nonce: 5, balance: U256::ONE, code_hash: B256::repeat_byte(4) };
    let changes = list.changes(|_| Ok::<_, ()>(Some(there))).unwrap();
    let Change::Written(change) = &changes.accounts[&Address::ZERO] else { panic!("{changes:?}") };
    let slots: Vec<_> = change.storage.iter().map(|(slot, value)| (*slot, *value)).collect();
    assert_eq!(slots, [(kept, U256::from(7)), (gone, U256::ZERO), (new, U256::from(8))]);
    let fields = (change.nonce, change.balance, change.code_hash);
    assert_eq!(fields, (Some(1), Some(U256::ZERO), Some(EMPTY_CODE_HASH)));
}

/// What no list can say is refused where it is written, not where it is read.
#[test]
fn no_list_is_written_that_is_not_canonical_or_leaves_something_out() {
    let one = |change| Changes {
        accounts: [(Address::ZERO, Change::Written(AccountChange { nonce: Some(1), ..change }))]
            .into(),
    };
    let of = |index, all: &Changes| AccessList::of([(index, all)], all, &BTreeMap::new());
    let plain = one(AccountChange::default());
    assert!(of(u64::from(u32::MAX), &plain).is_ok());
    let refused = of(1 << 32, &plain);
    assert!(matches!(refused, Err(ListError::Canonical(_))), "{refused:?}");
    let by_hash =
        one(AccountChange { code_hash: Some(B256::repeat_byte(4)), ..AccountChange::default() });
    let refused = of(1, &by_hash);
    assert!(matches!(refused, Err(ListError::Unsaid { .. })), "{refused:?}");
}
