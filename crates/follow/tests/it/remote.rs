//! A state that is read from a node, and blocks that are executed on it.

use std::collections::HashMap;

use alloy_primitives::{Address, B256, U256, hex, keccak256};
use serde_json::json;
use spinney_follow::{BlockName, Node, RemoteBlock, RemoteError, RemoteState, Vouched};
use spinney_replay::{ChainBlock, Replay, ReplayError, WorldState as _};
use spinney_state::{AccountChange, Change, Changes, KeepHistory, State, StateRead as _};
use spinney_tree::{BlockId, MemoryStore};

use crate::bisect;
use crate::chains::{Chain, addresses};
use crate::fake_node::{FakeNode, Mood};

const BLOCKS: u64 = 24;

/// A node that has a chain, and proves the states after all of its blocks.
fn proving(chain: &Chain) -> FakeNode {
    let store: &'static MemoryStore = Box::leak(Box::default());
    let mut state = State::open(store, 1 << 22).unwrap();
    state.keep_history(KeepHistory::All);
    let mut replay = Replay::start(&chain.genesis, state).unwrap();
    for block in &chain.blocks {
        replay.state_mut().commit().unwrap();
        let _ = replay.block(block).unwrap().unwrap();
    }
    replay.state_mut().commit().unwrap();
    let node = FakeNode::start(&chain.genesis, &chain.blocks, true);
    node.proves(replay.into_state(), false);
    node
}

/// Executes the blocks behind one on the node's state, and answers how many.
fn replayed(
    node: &Node,
    chain: &Chain,
    from: usize,
    executed: &[ChainBlock],
) -> Result<usize, ReplayError<RemoteError>> {
    let at = |number| RemoteBlock::find(node, BlockName::Number(number), None);
    let of_state = |error| ReplayError::State { number: from as u64, error };
    let block = at(from as u64).map_err(of_state)?;
    assert_eq!(block.vouched(), Vouched::Header);
    let (before, hash) = (block.ancestors().map_err(of_state)?, block.hash().unwrap());
    let state = RemoteState::new(block);
    let mut replay = Replay::resume(&chain.genesis, state, from as u64, hash)?;
    for block in &before {
        assert!(replay.block(block)?.is_none());
    }
    let mut count = 0;
    for block in executed {
        let known = block.known_reads(&chain.genesis.config);
        replay.state().read_ahead(&known).map_err(of_state)?;
        let report = replay.block(block)?.expect("it is new");
        assert!(report.is_root_checked);
        assert_eq!(report.state_root, block.block.header.state_root);
        replay.state_mut().commit().map_err(of_state)?;
        count += 1;
    }
    Ok(count)
}

#[test]
fn blocks_are_executed_on_the_state_of_a_node() {
    let chain = Chain::sample(BLOCKS);
    let fake = proving(&chain);
    let node = Node::new(fake.url());
    for from in [1, 9, 23] {
        let rest = &chain.blocks[from..];
        assert_eq!(replayed(&node, &chain, from, rest).unwrap(), rest.len());
    }
    // A block that is not the next one, and one that does something else than its header says.
    let other = replayed(&node, &chain, 9, &chain.blocks[11..12]).unwrap_err();
    assert!(matches!(other, ReplayError::BadBlock(_)), "{other}");
    let mut wrong = chain.blocks[9].block.clone();
    wrong.header.state_root = B256::repeat_byte(7);
    let wrong = replayed(&node, &chain, 9, &[ChainBlock::new(wrong)]).unwrap_err();
    assert!(wrong.to_string().contains("state root"), "{wrong}");
}

#[test]
fn what_is_read_is_what_the_node_has() {
    let chain = Chain::sample(BLOCKS);
    let fake = proving(&chain);
    let node = Node::new(fake.url());
    let truth = chain.replayed(12);
    let block = RemoteBlock::find(&node, BlockName::Number(12), None).unwrap();
    assert_eq!(block.root(), chain.blocks[11].block.header.state_root);
    let state = RemoteState::new(block);
    let mut seen = (0, 0);
    let named =
        addresses(&chain.blocks).into_iter().chain(chain.genesis.alloc.accounts.keys().copied());
    for address in named.chain([Address::repeat_byte(0x77)]) {
        let account = state.account(address).unwrap();
        assert_eq!(account, truth.account(address).unwrap(), "{address}");
        for slot in (0..4).map(B256::with_last_byte) {
            let value = state.storage(address, slot).unwrap();
            assert_eq!(value, truth.storage(address, slot).unwrap(), "{address}, {slot}");
            seen.1 += usize::from(!value.is_zero());
        }
        let Some(account) = account else { continue };
        let code = state.code(account.code_hash).unwrap();
        assert_eq!(code, truth.code(account.code_hash).unwrap(), "{address}");
        seen.0 += usize::from(code.is_some_and(|code| !code.is_empty()));
    }
    assert!(seen.0 > 0 && seen.1 > 0, "{seen:?}");
    assert!(state.block().asks() > 0);
}

/// Whatever a node says, what comes of it is an error that says what is wrong, or the truth.
#[test]
fn nothing_is_believed() {
    let chain = Chain::sample(BLOCKS);
    let fake = proving(&chain);
    let node = Node::new(fake.url());
    let run = || replayed(&node, &chain, 9, &chain.blocks[9..]);
    for (mood, text) in [
        (Mood::OtherProofs, "does not hold under"),
        (Mood::OtherFields, "does not hold under"),
        (Mood::OtherCode, "code of account"),
        (Mood::OtherNumbers, "asked for block 9, got 8"),
        (Mood::Null, "the node has no block 9"),
        (Mood::Text("{}"), "another request"),
        (Mood::Text("[]"), "eth_getBlockByNumber"),
        (Mood::Text("no JSON"), "eth_getBlockByNumber"),
        (Mood::Status(500), "status 500"),
        (Mood::CutOff, "http://"),
        (Mood::Away, "http://"),
    ] {
        fake.is(mood.clone());
        let error = run().unwrap_err().to_string();
        assert!(error.contains(text), "{mood:?}: {error}");
        fake.is(Mood::Good);
    }
    assert_eq!(run().unwrap(), 15);
    // The same of proofs alone, where the block is known.
    let id = BlockId { number: 9, hash: chain.blocks[8].hash.0 };
    let known = RemoteBlock::known(&node, id, chain.blocks[8].block.header.state_root);
    let paid = chain.blocks[8].block.header.beneficiary;
    known.prove(paid, &[B256::ZERO]).unwrap();
    for mood in [Mood::OtherProofs, Mood::OtherFields] {
        fake.is(mood);
        let error = known.prove(paid, &[]).unwrap_err();
        assert!(matches!(error, RemoteError::Proof { block: 9, .. }), "{error}");
    }
    fake.is(Mood::CutOff);
    let error = known.prove(paid, &[]).unwrap_err();
    assert!(matches!(error, RemoteError::Node(_)), "{error}");
}

#[test]
fn a_block_is_pinned_by_its_hash_or_its_root() {
    let chain = Chain::sample(4);
    let fake = proving(&chain);
    let node = Node::new(fake.url());
    let block = &chain.blocks[2];
    let (hash, header) = (block.hash, serde_json::to_value(&block.block.header).unwrap());
    fake.tells("eth_getBlockByHash", hash, header.clone());
    let found = RemoteBlock::find(&node, BlockName::Hash(hash), None).unwrap();
    assert_eq!((found.number(), found.root()), (3, block.block.header.state_root));
    // One that it does not have, and one for which it gives another one's header.
    let missing = B256::repeat_byte(1);
    let error = RemoteBlock::find(&node, BlockName::Hash(missing), None).unwrap_err();
    assert!(matches!(error, RemoteError::NoBlock { .. }), "{error}");
    fake.tells("eth_getBlockByHash", missing, header);
    let error = RemoteBlock::find(&node, BlockName::Hash(missing), None).unwrap_err();
    assert!(matches!(error, RemoteError::Node(_)), "{error}");
    let latest = BlockName::Tag("latest");
    let root = chain.blocks[3].block.header.state_root;
    let found = RemoteBlock::find(&node, latest, Some(root)).unwrap();
    assert_eq!((found.number(), found.hash()), (4, Some(chain.blocks[3].hash)));
    let error = RemoteBlock::find(&node, latest, Some(missing)).unwrap_err();
    assert!(matches!(error, RemoteError::OtherRoot { block: 4, .. }), "{error}");
    assert!(json!(error.to_string()).as_str().unwrap().contains(&missing.to_string()));
}

/// Two keys whose hashes begin with the same eight digits: nobody finds a third by hashing. A node
/// that names keys names these.
fn twins<K: AsRef<[u8]> + Copy>(make: impl Fn(u64) -> K) -> [K; 2] {
    let mut seen = HashMap::new();
    let both = (1 << 32..).find_map(|number| {
        let key = make(number);
        let digest = keccak256(key);
        let start = *digest.first_chunk::<4>().unwrap();
        (!digest[31].is_multiple_of(4))
            .then(|| seen.insert(start, key))
            .flatten()
            .map(|twin| [twin, key])
    });
    both.expect("among some hundred thousand there are two")
}

/// A deletion that leaves a trie node alone, on the path of a key that nobody else names.
struct Deletion {
    changes: Changes,
    account: Address,
    slot: Option<B256>,
    /// The account and the slots in whose proof the node is.
    beside: (Address, Vec<B256>),
}

/// What blocks do, and deletions behind the first of them.
struct Lonely {
    blocks: [Changes; 2],
    deletions: [Deletion; 2],
}

const KEEPER: Address = Address::repeat_byte(5);

impl Lonely {
    fn new() -> Self {
        let [slot, other_slot] = twins(|number| B256::from(U256::from(number)));
        let [account, other] = twins(|number| Address::from_word(U256::from(number).into()));
        let rich = AccountChange { balance: Some(U256::ONE), ..AccountChange::default() };
        // Values so long that no branch has the leaves in itself.
        let storage = [slot, other_slot].map(|slot| (slot, U256::MAX)).into();
        let keeper = AccountChange { nonce: Some(1), storage, ..AccountChange::default() };
        let mut before = Changes::default();
        before.accounts.insert(KEEPER, Change::Written(keeper));
        before.accounts.extend([account, other].map(|it| (it, Change::Written(rich.clone()))));
        let storage = [(slot, U256::ZERO)].into();
        let cleared = AccountChange { storage, ..AccountChange::default() };
        let (mut of_slot, mut of_account) = (Changes::default(), Changes::default());
        of_slot.accounts.insert(KEEPER, Change::Written(cleared));
        of_account.accounts.insert(account, Change::Deleted);
        let (keeper, other) = ((KEEPER, vec![other_slot]), (other, Vec::new()));
        let deletions = [
            Deletion { changes: of_slot, account: KEEPER, slot: Some(slot), beside: keeper },
            Deletion { changes: of_account, account, slot: None, beside: other },
        ];
        Self { blocks: [before, Changes::default()], deletions }
    }

    fn state(&self) -> State<&'static MemoryStore> {
        bisect::state(&self.blocks, None, true)
    }

    /// A node that has the blocks, and tells names or not.
    fn node(&self, names: bool) -> FakeNode {
        bisect::node(self.state(), self.blocks.len(), names)
    }
}

/// The changes are made on the state after a node's first block, in memory.
fn made_on(fake: &FakeNode, changes: &Changes) -> Result<B256, RemoteError> {
    let node = Node::new(fake.url());
    let mut state = RemoteState::new(RemoteBlock::find(&node, BlockName::Number(1), None)?);
    let made = state.apply(changes);
    assert_eq!(state.layer_count(), usize::from(made.is_ok()));
    made
}

/// It comes from whoever names the key, or has the node in the witness; else it is named.
#[test]
fn a_trie_node_that_is_left_alone_is_told_of_or_named() {
    let lonely = Lonely::new();
    for Deletion { changes, account: victim, slot: cleared, beside } in &lonely.deletions {
        let root = lonely.state().apply(changes).unwrap();
        let is_named = |error: RemoteError| {
            let text = error.to_string();
            assert!(text.contains("no key is known whose proof has it"), "{text}");
            assert_eq!(text.contains(", slot 0x"), cleared.is_some(), "{text}");
            let RemoteError::Alone { account, slot, missing, block } = error else {
                panic!("{text}");
            };
            assert_eq!((account, slot, block), (*victim, *cleared, 2));
            let key = hex::encode(cleared.map_or_else(|| keccak256(victim), keccak256));
            let path: String = missing.path.iter().map(|digit| format!("{digit:x}")).collect();
            assert!(key.starts_with(&path[..8]) && !key.starts_with(&path), "{text}");
        };
        let silent = lonely.node(false);
        is_named(made_on(&silent, changes).unwrap_err());
        assert_eq!(made_on(&lonely.node(true), changes).unwrap(), root);
        // A witness that has others, and one that has this alone.
        let node = Node::new(silent.url());
        let second = RemoteBlock::find(&node, BlockName::Number(2), None).unwrap();
        let mut proof = second.prove(beside.0, &beside.1).unwrap();
        let proof = match proof.storage_proof.pop() {
            Some(slot) => slot.proof,
            None => proof.account_proof,
        };
        let nodes: Vec<_> = proof.nodes().iter().map(hex::encode_prefixed).collect();
        let (alone, others) = nodes.split_last().unwrap();
        let tell = |nodes: &[String]| {
            let witness = json!({ "state": nodes, "codes": [], "headers": [] });
            silent.tells("debug_executionWitness", second.hash().unwrap(), witness);
        };
        tell(others);
        is_named(made_on(&silent, changes).unwrap_err());
        tell(std::slice::from_ref(alone));
        assert_eq!(made_on(&silent, changes).unwrap(), root);
        assert_eq!(silent.asked("debug_executionWitness"), 3);
    }
}
