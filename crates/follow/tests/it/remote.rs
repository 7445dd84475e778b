//! A state that is read from a node, and blocks that are executed on it.

use alloy_primitives::{Address, B256};
use serde_json::json;
use spinney_follow::{BlockName, Node, RemoteBlock, RemoteError, RemoteState, Vouched};
use spinney_replay::{ChainBlock, Replay, ReplayError, WorldState as _};
use spinney_state::{KeepHistory, State, StateRead as _};
use spinney_tree::{BlockId, MemoryStore};

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
