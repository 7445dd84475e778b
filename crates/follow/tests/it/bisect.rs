//! Faults that are planted into a copy of a state, and named: block, account and slot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use alloy_consensus::{Block, BlockBody, Header};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use proptest::prelude::*;
use spinney_follow::{
    AccountDifference, BisectError, BisectOptions, Bisected, FollowError, FollowEvent,
    FollowOptions, Follower, Node, bisect_nodes, bisect_store,
};
use spinney_replay::{ChainBlock, Genesis};
use spinney_state::{
    AccountChange, Change, Changes, EMPTY_CODE_HASH, KeepHistory, State, StateRead as _,
};
use spinney_tree::{BlockId, MemoryStore};

use crate::chains::Chain;
use crate::fake_node::{FakeNode, Mood};

/// So many accounts and slots there are at most.
const ACCOUNTS: u8 = 24;
const SLOTS: u8 = 12;

/// What a block does to an account.
#[derive(Clone, Debug)]
enum Act {
    Nonce(u8),
    Balance(u8),
    Code(u8),
    Slot(u8, u8),
    Delete,
}

type Acts = Vec<(u8, Act)>;

fn address(number: u8) -> Address {
    Address::from_word(keccak256([number]))
}

fn slot(number: u8) -> B256 {
    // Some are small, as those of variables, and some hashes, as those of maps.
    if number.is_multiple_of(2) { B256::with_last_byte(number) } else { keccak256([7, number]) }
}

fn code(kind: u8) -> Bytes {
    vec![kind; usize::from(kind)].into()
}

fn changes(acts: &[(u8, Act)]) -> Changes {
    let mut changes = Changes::default();
    for (account, act) in acts {
        let entry = changes.accounts.entry(address(*account));
        if let Act::Delete = act {
            entry.and_modify(|it| *it = Change::Deleted).or_insert(Change::Deleted);
            continue;
        }
        let entry = entry.or_insert_with(|| Change::Written(AccountChange::default()));
        if *entry == Change::Deleted {
            *entry = Change::Written(AccountChange { fresh: true, ..AccountChange::default() });
        }
        let Change::Written(change) = entry else { unreachable!("it is written") };
        match act {
            Act::Nonce(nonce) => change.nonce = Some(u64::from(*nonce)),
            Act::Balance(balance) => change.balance = Some(U256::from(*balance)),
            Act::Code(kind) => {
                change.code_hash = Some(keccak256(code(*kind)));
                change.code = Some(code(*kind));
            }
            Act::Slot(number, value) => {
                change.storage.insert(slot(*number), U256::from(*value));
            }
            Act::Delete => {}
        }
    }
    changes
}

type Store = &'static MemoryStore;

/// The hash of a block, which the store is told.
fn block_id(number: u64) -> BlockId {
    BlockId { number, hash: keccak256(number.to_be_bytes()).0 }
}

/// A state that took these blocks, with what a fault does after one of them.
pub(crate) fn state(
    blocks: &[Changes],
    fault: Option<(usize, &Changes)>,
    keep_preimages: bool,
) -> State<Store> {
    let mut state = State::open(&*Box::leak(Box::new(MemoryStore::new())), 1 << 20).unwrap();
    state.keep_history(KeepHistory::All);
    state.keep_preimages(keep_preimages);
    state.seal(block_id(0)).unwrap();
    state.commit().unwrap();
    for (at, changes) in blocks.iter().enumerate() {
        state.apply(changes).unwrap();
        if let Some((_, fault)) = fault.filter(|(place, _)| *place == at) {
            state.apply(fault).unwrap();
        }
        state.seal(block_id(at as u64 + 1)).unwrap();
        state.commit().unwrap();
    }
    state
}

/// Headers of the blocks, with the roots of a state.
fn headers(state: &State<Store>, count: usize) -> Vec<ChainBlock> {
    let header = |number: u64| {
        let state_root = state.at(number).unwrap().root();
        let header = Header { number, state_root, ..Header::default() };
        ChainBlock::new(Block { header, body: BlockBody::default() })
    };
    (1..=count as u64).map(header).collect()
}

fn genesis() -> &'static Genesis {
    static GENESIS: OnceLock<Genesis> = OnceLock::new();
    GENESIS.get_or_init(|| {
        let mut genesis = Chain::sample(1).genesis;
        genesis.header.state_root = spinney_tree::mpt::EMPTY_ROOT.into();
        genesis
    })
}

/// A node whose chain has this state.
pub(crate) fn node(state: State<Store>, count: usize, names: bool) -> FakeNode {
    let node = FakeNode::start(genesis(), &headers(&state, count), true);
    node.proves(state, names);
    node
}

/// What an account holds: its fields, and slots that are not zero.
type Held = (Option<(u64, U256, B256)>, BTreeMap<B256, U256>);

fn held(state: &State<Store>, block: u64, address: Address) -> Held {
    let state = state.at(block).unwrap();
    let account = state.account(address).unwrap();
    let slots = (0..=SLOTS).map(slot).map(|slot| (slot, state.storage(address, slot).unwrap()));
    let fields = account.map(|it| (it.nonce, it.balance, it.code_hash));
    (fields, slots.filter(|(_, value)| !value.is_zero()).collect())
}

/// The first block, by looking at all, in which anything differs; and the account.
fn expected(good: &State<Store>, bad: &State<Store>, count: usize) -> Option<(u64, Address)> {
    (0..=count as u64).find_map(|block| {
        let mut accounts = (0..=ACCOUNTS).map(address);
        let differs = |it: &Address| held(good, block, *it) != held(bad, block, *it);
        accounts.find(differs).map(|address| (block, address))
    })
}

/// The account is the one that differs, and is told with both of its values; so is the slot.
#[track_caller]
fn check(found: &AccountDifference, address: Address, (left, right): (&Held, &Held), names: bool) {
    assert_eq!(found.key, keccak256(address));
    assert_eq!(found.address.is_some(), names, "{found:?}");
    assert!(found.address.is_none_or(|found| found == address));
    for (seen, held) in [(&found.left, left), (&found.right, right)] {
        let fields = seen.as_ref().map(|seen| (seen.nonce, seen.balance, seen.code_hash));
        assert_eq!(fields, held.0);
    }
    let code_hash = |held: &Held| held.0.map_or(EMPTY_CODE_HASH, |fields| fields.2);
    if names && code_hash(left) != code_hash(right) {
        let lens = (0..=u8::MAX).map(|kind| (keccak256(code(kind)), usize::from(kind)));
        let lens: BTreeMap<_, _> = lens.collect();
        for seen in [&found.left, &found.right].into_iter().flatten() {
            assert_eq!(seen.code_len, lens.get(&seen.code_hash).copied());
        }
    }
    let of = |held: &Held, slot: &B256| held.1.get(slot).copied().unwrap_or_default();
    let slots: BTreeSet<_> = left.1.keys().chain(right.1.keys()).collect();
    let differing = slots.into_iter().filter(|slot| of(left, slot) != of(right, slot));
    let first = differing.min_by_key(|slot| keccak256(slot));
    let told = found.slots.first();
    match (first, told) {
        (None, None) => assert_eq!(found.hidden_slots, [""; 0]),
        (Some(first), Some(told)) => {
            assert_eq!(told.key, keccak256(first));
            assert!(told.slot.is_none_or(|slot| slot == *first));
            assert_eq!((told.left, told.right), (of(left, first), of(right, first)));
        }
        // A node cannot be asked for slots of an account that nobody can name.
        (Some(_), None) if !names => assert_eq!(found.hidden_slots, ["0x"]),
        other => panic!("{other:?}: {found:?}"),
    }
}

fn first(found: &Bisected) -> Option<(u64, &AccountDifference)> {
    found.divergence.as_ref().map(|found| (found.block, found.accounts.first().expect("one")))
}

/// Plants a fault behind a block, and lets a node with the good state be compared with a store that
/// has the bad one, and with a node that has it. The store keeps preimages or not, and nodes tell
/// names or not. Answers whether the fault changes anything.
fn plant(blocks: &[Acts], fault: (usize, u8, &[Act]), (keeps, tells): (bool, bool)) -> bool {
    let (at, victim, acts) = fault;
    let at = at % blocks.len();
    let fault = changes(&acts.iter().map(|act| (victim, act.clone())).collect::<Vec<_>>());
    // The fault stays: nobody writes over it.
    let blocks: Vec<Changes> = blocks
        .iter()
        .enumerate()
        .map(|(place, acts)| {
            let mut changes = changes(acts);
            if place > at {
                changes.accounts.remove(&address(victim));
            }
            changes
        })
        .collect();
    let count = blocks.len();
    let good = state(&blocks, None, true);
    let bad = state(&blocks, Some((at, &fault)), keeps);
    let expected = expected(&good, &bad, count);
    let options = BisectOptions::default();
    let both = expected.map(|(block, address)| {
        (block, address, held(&good, block, address), held(&bad, block, address))
    });
    let left = node(good, count, tells);
    let client = Node::new(left.url());
    let found = bisect_store(&client, &bad, &options).unwrap();
    let right = node(state(&blocks, Some((at, &fault)), true), count, tells);
    let of_nodes = bisect_nodes(&client, &Node::new(right.url()), &options).unwrap();
    for (found, names) in [(&found, keeps || tells), (&of_nodes, tells)] {
        assert_eq!((found.first, found.last), (0, count as u64));
        match (first(found), &both) {
            (None, None) => {}
            (Some((block, account)), Some((expected, address, left, right))) => {
                assert_eq!((block, block), (*expected, at as u64 + 1));
                assert!(found.divergence.as_ref().unwrap().is_first);
                check(account, *address, (left, right), names);
            }
            other => panic!("{other:?}"),
        }
    }
    both.is_some()
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        2 => (0..4_u8).prop_map(Act::Nonce),
        2 => (0..4_u8).prop_map(Act::Balance),
        1 => (0..4_u8).prop_map(Act::Code),
        4 => (0..=SLOTS, 0..3_u8).prop_map(|(slot, value)| Act::Slot(slot, value)),
        1 => Just(Act::Delete),
    ]
}

/// A thousand faults with `SPINNEY_LONG=1`.
fn cases() -> u32 {
    if std::env::var_os("SPINNEY_LONG").is_some() { 1_000 } else { 30 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]
    #[test]
    fn any_fault_is_named(
        blocks in proptest::collection::vec(
            proptest::collection::vec((0..=ACCOUNTS, act()), 0..16), 1..12,
        ),
        at in 0..12_usize,
        victim in 0..=ACCOUNTS,
        acts in proptest::collection::vec(act(), 1..3),
        keeps: bool,
        tells: bool,
    ) {
        // A node tells no name of what the store alone has. What changes nothing is no fault.
        prop_assume!(plant(&blocks, (at, victim, &acts), (keeps || tells, tells)));
    }
}

/// Two blocks of some accounts.
fn some_blocks() -> Vec<Acts> {
    let of = |count: u8, act: fn(u8) -> Act| (0..count).map(|it| (it, act(it))).collect::<Acts>();
    vec![of(20, Act::Balance), of(6, |it| Act::Slot(it, 1)), vec![], of(3, Act::Nonce), vec![]]
}

#[test]
fn faults_of_every_kind_are_named() {
    for names in [(true, true), (true, false), (false, false)] {
        // Of an account that is there, and of one that is not.
        for victim in [2, 22] {
            for at in 0..5 {
                for act in [Act::Nonce(9), Act::Balance(99), Act::Code(9), Act::Slot(9, 9)] {
                    plant(&some_blocks(), (at, victim, &[act]), names);
                }
                // An account with two slots, and one with none.
                plant(&some_blocks(), (at, victim, &[Act::Delete]), names);
                plant(&some_blocks(), (at, victim, &[Act::Slot(1, 1), Act::Slot(2, 2)]), names);
            }
        }
    }
    // All there is on one side, and nothing on the other.
    plant(&[vec![]], (0, 1, &[Act::Balance(1), Act::Slot(1, 1)]), (true, true));
    plant(&[vec![(1, Act::Slot(1, 1))]], (0, 1, &[Act::Delete]), (true, true));
    // Nothing.
    plant(&[vec![]], (0, 1, &[Act::Delete]), (true, true));
}

#[test]
fn as_many_are_named_as_are_wanted() {
    let mut blocks: Vec<Changes> = some_blocks().iter().map(|acts| changes(acts)).collect();
    let good = state(&blocks, None, true);
    let node = node(good, blocks.len(), true);
    let mut fault: Acts = (5..15).map(|it| (it, Act::Balance(77))).collect();
    fault.extend((0..8).map(|it| (16, Act::Slot(it, 9))));
    blocks[4] = changes(&fault);
    let bad = state(&blocks, None, true);
    let client = Node::new(node.url());
    for (limit, accounts, slots) in [(1, 1, 1), (4, 4, 4), (100, 11, 8)] {
        let mut options = BisectOptions::default();
        options.limit = limit;
        let found = bisect_store(&client, &bad, &options).unwrap().divergence.unwrap();
        assert_eq!((found.block, found.accounts.len()), (5, accounts));
        assert!(found.accounts.is_sorted_by_key(|account| account.key));
        assert_eq!(found.is_all, limit == 100);
        if let Some(account) = found.accounts.iter().find(|it| it.address == Some(address(16))) {
            assert_eq!((account.slots.len(), account.has_all_slots), (slots, limit == 100));
            assert!(account.slots.iter().all(|slot| slot.slot.is_some()));
        }
    }
}

#[test]
fn blocks_are_compared_where_both_have_them() {
    let blocks: Vec<Changes> = some_blocks().iter().map(|acts| changes(acts)).collect();
    let fault = changes(&[(3, Act::Balance(50))]);
    let bad = state(&blocks, Some((1, &fault)), true);
    let node = node(state(&blocks, None, true), 4, true);
    let client = Node::new(node.url());
    let of = |from, to| {
        let mut options = BisectOptions::default();
        (options.from, options.to) = (from, to);
        bisect_store(&client, &bad, &options)
    };
    let found = of(None, None).unwrap();
    assert_eq!((found.first, found.last), (0, 4), "the node is behind");
    let found = found.divergence.unwrap();
    assert_eq!((found.block, found.is_first), (2, true));
    // From there on all differ: the first one may be an earlier one.
    let found = of(Some(3), None).unwrap().divergence.unwrap();
    assert_eq!((found.block, found.is_first), (3, false));
    assert_eq!(of(None, Some(1)).unwrap().divergence, None);
    let error = of(Some(5), None).unwrap_err();
    assert!(matches!(error, BisectError::NoCommonBlock { .. }), "{error}");
    let empty = State::open(MemoryStore::new(), 1 << 20).unwrap();
    let error = bisect_store(&client, &empty, &BisectOptions::default()).unwrap_err();
    assert!(matches!(error, BisectError::NoState), "{error}");
}

#[test]
fn a_node_is_not_believed() {
    let blocks: Vec<Changes> = some_blocks().iter().map(|acts| changes(acts)).collect();
    let fault = changes(&[(3, Act::Code(50))]);
    let bad = state(&blocks, Some((2, &fault)), true);
    let node = node(state(&blocks, None, true), blocks.len(), true);
    let client = Node::new(node.url());
    let ask = || bisect_store(&client, &bad, &BisectOptions::default());
    let name = node.url().to_string();
    for (mood, says) in [
        (Mood::OtherProofs, "does not hold"),
        (Mood::OtherFields, "the trie holds"),
        (Mood::OtherCode, "its leaf names"),
        (Mood::Text("{"), "EOF"),
        (Mood::Away, "127.0.0.1"),
        (Mood::Status(503), "status 503"),
        (Mood::Null, "no block"),
    ] {
        node.is(mood.clone());
        let error = ask().unwrap_err().to_string();
        assert!(error.contains(says) && error.contains(&name), "{mood:?}: {error}");
        assert_eq!(error.matches(&name).count(), 1, "{error}");
    }
    node.is(Mood::Good);
    assert_eq!(ask().unwrap().divergence.unwrap().block, 3);
    // It is not asked for ever.
    let mut options = BisectOptions::default();
    options.asks_max = 3;
    let error = bisect_store(&client, &bad, &options).unwrap_err();
    assert!(matches!(error, BisectError::Unfinished { asks: 3 }), "{error}");
}

/// Whoever follows a node that has something else is told what that is, and ends as ever.
#[test]
fn a_root_that_does_not_fit_is_explained() {
    let chain = Chain::sample(10);
    // What the block does not touch, and its last withdrawal or its coinbase, which it does.
    let touched = chain.blocks[9].block.header.beneficiary;
    for (victim, act) in [(address(9), Act::Slot(2, 5)), (touched, Act::Balance(1))] {
        let Change::Written(change) = changes(&[(0, act)]).accounts.pop_first().unwrap().1 else {
            unreachable!("it is written")
        };
        let fault = Changes { accounts: [(victim, Change::Written(change))].into() };
        let node = FakeNode::with_fault(&chain.genesis, &chain.blocks, &fault);
        for (mood, threads) in [(Mood::Good, 1), (Mood::Good, 2), (Mood::OtherProofs, 1)] {
            let says = matches!(mood, Mood::Good);
            node.is(mood);
            let client = Node::new(node.url());
            let mut options = FollowOptions::default();
            options.run.last = Some(10);
            options.run.recover_threads = threads;
            let follower = Follower::new(&client, &chain.genesis, options);
            let store = &*Box::leak(Box::new(MemoryStore::new()));
            let state = follower.begin(State::open(store, 1 << 20).unwrap()).unwrap();
            let mut told = Vec::new();
            let outcome = follower.follow(state, |event| {
                if let FollowEvent::Differs(found) = event {
                    told.push(found.clone());
                }
            });
            assert!(matches!(outcome.map(drop), Err(FollowError::Replay(_))));
            assert_eq!(told.len(), usize::from(says));
            let Some(found) = told.first() else { continue };
            assert_eq!((found.block, found.accounts.len()), (10, 1));
            let account = &found.accounts[0];
            assert_eq!(account.address, Some(victim));
            assert_eq!(account.slots.len(), usize::from(victim == address(9)));
            assert!(account.left != account.right);
        }
    }
}
