//! Traces in the form of geth's `prestateTracer`: the same states as by execution.
//!
//! The traces are derived from our own execution, by the rules that geth has for what it shows.

use std::io::BufReader;

use alloy_primitives::{Address, B256, Bytes, U256};
use serde_json::{Map, Value, json};
use spinney_replay::{
    BlockReport, BlockTrace, ChainBlock, Check, Genesis, Replay, ReplayError, RunOptions,
    SampleChain, SampleOptions, TextbookState, TraceReader, replay_diffs,
};
use spinney_state::{Change, Changes, KeepHistory, State, StateRead as _};
use spinney_tree::{BlockId, MemoryStore};

use crate::shared::{self, ALL_FORKS, CHAIN_600};

type Engine = State<MemoryStore>;

fn engine() -> Engine {
    let mut state = State::open(MemoryStore::new(), 1 << 22).unwrap();
    state.keep_history(KeepHistory::Blocks(0));
    state
}

/// An account, its code, and its slots that matter.
struct Account {
    account: spinney_state::Account,
    code: Bytes,
    slots: Vec<(B256, U256)>,
}

/// An account as it is; an absent one is empty.
fn account(state: &Engine, address: Address, change: &Change) -> (bool, Account) {
    let found = state.account(address).unwrap();
    let account = found.unwrap_or_default();
    let code = state.code(account.code_hash).unwrap().unwrap();
    let slots = match change {
        Change::Written(change) => change.storage.keys().copied().collect(),
        Change::Deleted => Vec::new(),
    };
    let slot = |slot: B256| (slot, state.storage(address, slot).unwrap());
    (found.is_some(), Account { account, code, slots: slots.into_iter().map(slot).collect() })
}

impl Account {
    /// What geth shows of it if it is not empty; of its slots those that changed.
    fn shown(&self) -> Value {
        let mut fields = json!({ "balance": self.account.balance });
        if self.account.nonce > 0 {
            fields["nonce"] = self.account.nonce.into();
        }
        if !self.code.is_empty() {
            fields["code"] = json!(self.code);
            fields["codeHash"] = json!(self.account.code_hash);
        }
        self.show_slots(&mut fields);
        fields
    }

    /// What of it is another thing than it was.
    fn news(&self, old: &Self) -> Value {
        let (new, old) = (self.account, old.account);
        let mut fields = json!({});
        if new.balance != old.balance {
            fields["balance"] = json!(new.balance);
        }
        if new.nonce != old.nonce && new.nonce > 0 {
            fields["nonce"] = json!(new.nonce);
        }
        if new.code_hash != old.code_hash {
            fields["code"] = json!(self.code);
            fields["codeHash"] = json!(new.code_hash);
        }
        self.show_slots(&mut fields);
        fields
    }

    fn show_slots(&self, fields: &mut Value) {
        let set = self.slots.iter().filter(|(_, value)| !value.is_zero());
        let set: Map<_, _> =
            set.map(|(slot, value)| (slot.to_string(), json!(B256::from(*value)))).collect();
        if !set.is_empty() {
            fields["storage"] = set.into();
        }
    }
}

/// What geth says of a transaction, which is applied to the state.
fn trace(state: &mut Engine, changes: &Changes) -> (Value, Value) {
    let all = |state: &Engine| -> Vec<_> {
        changes.accounts.iter().map(|(address, change)| account(state, *address, change)).collect()
    };
    let before = all(state);
    state.apply(changes).unwrap();
    let after = all(state);
    let (mut pre, mut post) = (Map::new(), Map::new());
    for (address, ((_, old), (is_there, new))) in
        changes.accounts.keys().zip(before.into_iter().zip(after))
    {
        let name = address.to_string().to_lowercase();
        match (is_there, old.account.is_empty()) {
            (false, true) => {
                post.insert(name, json!({ "codeHash": B256::ZERO }));
            }
            (false, false) => {
                pre.insert(name, old.shown());
            }
            (true, was_empty) => {
                let news = new.news(&old);
                if news == json!({}) && old.slots.is_empty() {
                    // An account was made empty: nothing of it is shown.
                    continue;
                }
                if !was_empty {
                    pre.insert(name.clone(), old.shown());
                }
                post.insert(name, news);
            }
        }
    }
    (pre.into(), post.into())
}

/// Executes blocks, and traces them.
struct Tracer {
    replay: Replay<Engine>,
    /// The state, transaction by transaction.
    model: Engine,
}

impl Tracer {
    fn new(genesis: &Genesis) -> Self {
        let mut model = engine();
        model.apply(&genesis.alloc).unwrap();
        Self { replay: start(genesis), model }
    }

    /// The transactions of a block, and how it went.
    fn block(&mut self, block: &ChainBlock) -> (Vec<Value>, BlockReport) {
        let report = self.replay.block(block).unwrap().unwrap();
        self.replay.state_mut().commit().unwrap();
        let mut steps = report.steps.iter().peekable();
        let mut traces = Vec::new();
        for (index, transaction) in (1..).zip(&block.block.body.transactions) {
            while let Some(step) = steps.next_if(|step| step.index < index) {
                self.model.apply(&step.changes).unwrap();
            }
            let (mut pre, mut post) = (json!({}), json!({}));
            if let Some(step) = steps.next_if(|step| step.index == index) {
                (pre, post) = trace(&mut self.model, &step.changes);
            }
            let hash = transaction.tx_hash();
            traces.push(json!({ "txHash": hash, "result": { "post": post, "pre": pre } }));
        }
        for step in steps {
            self.model.apply(&step.changes).unwrap();
        }
        assert_eq!(self.model.root(), report.state_root);
        self.model.seal(BlockId { number: report.number, hash: report.hash.0 }).unwrap();
        self.model.commit().unwrap();
        (traces, report)
    }
}

fn start(genesis: &Genesis) -> Replay<Engine> {
    let mut replay = Replay::start(genesis, engine()).unwrap();
    replay.keep_steps(true);
    replay
}

/// A line of a file, in each of the forms that a node answers with.
fn line(block: &ChainBlock, traces: &[Value]) -> String {
    let number = block.block.header.number;
    match number % 3 {
        0 => json!(traces).to_string(),
        1 => json!({ "jsonrpc": "2.0", "id": 1, "result": traces }).to_string(),
        _ => json!({ "block": format!("{number:#x}"), "hash": block.hash, "traces": traces })
            .to_string(),
    }
}

fn parsed(line: &str) -> BlockTrace {
    BlockTrace::parse(line.as_bytes()).unwrap()
}

/// Replays all blocks by their traces, each of which has to do what execution does.
fn replays_alike(genesis: &Genesis, blocks: &[ChainBlock]) {
    let mut tracer = Tracer::new(genesis);
    let mut replay = start(genesis);
    let mut file = String::new();
    for block in blocks {
        let (traces, executed) = tracer.block(block);
        let line = line(block, &traces);
        let traced = replay.traced(block, parsed(&line)).unwrap().unwrap();
        assert_eq!(traced.changes, executed.changes, "block {}", traced.number);
        assert_eq!(traced.steps, executed.steps, "block {}", traced.number);
        assert!(traced.is_traced && !traced.checks().contains(&Check::GasUsed));
        assert!(traced.checks().contains(&Check::StateRoot));
        file += &(line + "\n");
        replay.state_mut().commit().unwrap();
    }
    let root = replay.state().root();
    // And as a run over files.
    let mut replay = start(genesis);
    let traces = TraceReader::new(BufReader::new(file.as_bytes()));
    let blocks = blocks.iter().cloned().map(Ok);
    let summary = replay.run_traced(blocks, traces, &RunOptions::default(), |_| {}).unwrap();
    assert_eq!(summary.root_count, summary.block_count);
    assert_eq!(replay.state().root(), root);
}

#[test]
fn chain_600_replays_by_traces() {
    let Some(chain) = shared::chain(CHAIN_600) else { return };
    replays_alike(&chain.genesis, &chain.blocks());
}

#[test]
fn a_chain_with_withdrawals_replays_by_traces() {
    let mut options = SampleOptions::default();
    options.block_count = 12;
    let sample = SampleChain::new(options, TextbookState::new()).unwrap();
    let genesis = sample.genesis().clone();
    let blocks: Vec<_> = sample.collect::<Result<_, _>>().unwrap();
    let withdrawals = |block: &ChainBlock| block.block.body.withdrawals.clone().unwrap_or_default();
    assert!(blocks.iter().any(|block| !withdrawals(block).is_empty()));
    replays_alike(&genesis, &blocks);
}

/// Of the blocks before Spurious Dragon some leave accounts empty, which no trace tells: they are
/// found out, and nothing of them stays. All others replay by their traces, destroyed and reborn
/// accounts included.
#[test]
fn all_forks_replays_by_traces_but_for_empty_accounts() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let mut tracer = Tracer::new(&chain.genesis);
    let mut replay = start(&chain.genesis);
    let mut untold = Vec::new();
    for block in chain.blocks() {
        let (traces, executed) = tracer.block(&block);
        let number = executed.number;
        let before = replay.state().root();
        match replay.traced(&block, parsed(&line(&block, &traces))) {
            Ok(report) => {
                assert_eq!(report.unwrap().changes, executed.changes, "block {number}");
            }
            Err(ReplayError::BadBlock(bad)) => {
                assert_eq!(bad.what, Check::StateRoot, "block {number}");
                assert_eq!((replay.state().root(), replay.state().layer_count()), (before, 0));
                untold.push(number);
                replay.block(&block).unwrap();
            }
            Err(error) => panic!("block {number}: {error}"),
        }
        replay.state_mut().commit().unwrap();
    }
    println!("blocks with accounts that were made empty: {untold:?}");
    assert!(!untold.is_empty() && untold.last() < Some(&42), "{untold:?}");
    assert_eq!(replay.state().root(), tracer.replay.state().root());
}

/// What geth itself says of the same chain. Beside accounts that are made empty it does not tell
/// that a SELFDESTRUCT was reverted, which is found out too.
#[test]
fn all_forks_replays_by_traces_of_geth() {
    let Some(chain) = shared::chain(ALL_FORKS) else { return };
    let file = include_bytes!("../../../../testdata/traces/all-forks.ndjson.zst");
    let file = zstd::decode_all(&file[..]).unwrap();
    let mut traces = TraceReader::new(file.as_slice());
    let mut replay = start(&chain.genesis);
    let mut wrong = Vec::new();
    for block in chain.blocks() {
        let number = block.block.header.number;
        let trace = traces.of_block(number).unwrap().unwrap();
        assert_eq!(trace.number, Some(number));
        if let Err(error) = replay.traced(&block, trace) {
            assert!(matches!(error, ReplayError::BadBlock(_)), "{error}");
            wrong.push(number);
            replay.block(&block).unwrap();
        }
        replay.state_mut().commit().unwrap();
    }
    let (made_empty, reverted) =
        ([4, 6, 7, 8, 16, 17, 22, 28, 29, 33], [52, 65, 80, 97, 108, 121, 132, 150, 164]);
    assert_eq!(wrong, [&made_empty[..], &reverted].concat());
}

#[test]
fn traces_of_other_blocks_are_refused() {
    let mut options = SampleOptions::default();
    options.block_count = 3;
    let sample = SampleChain::new(options, TextbookState::new()).unwrap();
    let genesis = sample.genesis().clone();
    let blocks: Vec<_> = sample.collect::<Result<_, _>>().unwrap();
    let mut tracer = Tracer::new(&genesis);
    let traces: Vec<_> = blocks.iter().map(|block| tracer.block(block).0).collect();
    let mut replay = start(&genesis);
    let root = replay.state().root();
    let mut refuse = |line: Value, told: &str| {
        let error = replay.traced(&blocks[0], parsed(&line.to_string())).unwrap_err();
        assert!(error.to_string().contains(told), "{error}");
        assert_eq!(replay.state().root(), root);
    };
    let mut shorter = traces[0].clone();
    shorter.pop();
    refuse(json!(shorter), "transactions: expected");
    let mut swapped = traces[0].clone();
    swapped.swap(0, 1);
    refuse(json!(swapped), "hash of a transaction: expected");
    refuse(json!({ "block": 2, "traces": traces[0] }), "number: expected 1, got 2");
    refuse(json!({ "hash": B256::ZERO, "traces": traces[0] }), "hash: expected");
    let mut changed = traces[0].clone();
    for transaction in &mut changed {
        transaction["result"] = json!({ "pre": {}, "post": {} });
    }
    refuse(json!(changed), "state root: expected");

    // A file that begins earlier, and one that ends early.
    let numbered = |at: usize| {
        let number = blocks[at].block.header.number;
        json!({ "block": number, "traces": traces[at] }).to_string() + "\n"
    };
    let file: String = (0..2).map(numbered).collect();
    replay.block(&blocks[0]).unwrap();
    let reader = TraceReader::new(BufReader::new(file.as_bytes()));
    let rest = blocks[1..].iter().cloned().map(Ok);
    let error = replay.run_traced(rest, reader, &RunOptions::default(), |_| {}).unwrap_err();
    assert!(error.to_string().contains("the traces end"), "{error}");
    assert_eq!(replay.head().header.number, 2);
}

#[test]
fn without_blocks_no_root_is_known() {
    let mut options = SampleOptions::default();
    options.block_count = 4;
    let sample = SampleChain::new(options, TextbookState::new()).unwrap();
    let genesis = sample.genesis().clone();
    let blocks: Vec<_> = sample.collect::<Result<_, _>>().unwrap();
    let mut tracer = Tracer::new(&genesis);
    let mut expected = Vec::new();
    let mut file = String::new();
    for block in &blocks {
        let (traces, report) = tracer.block(block);
        let mut all = Changes::default();
        let last = traces.len() as u64;
        let within = |index: &u64| (1..=last).contains(index);
        let steps = report.steps.iter().filter(|step| within(&step.index));
        steps.for_each(|step| all.then(&step.changes));
        expected.push(all);
        file += &(line(block, &traces) + "\n");
    }
    let diffs = TraceReader::new(BufReader::new(file.as_bytes())).into_diffs();
    let diffs: Vec<_> = diffs.collect::<Result<_, _>>().unwrap();
    assert_eq!(diffs.iter().map(|diff| diff.number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    for (diff, expected) in diffs.iter().zip(&expected) {
        assert_eq!(diff.changes, *expected, "block {}", diff.number);
    }
    let mut state = engine();
    state.apply(&genesis.alloc).unwrap();
    let diffs = diffs.into_iter().map(Ok);
    let summary = replay_diffs(&mut state, None, diffs, &RunOptions::default(), |_| {}).unwrap();
    assert_eq!((summary.block_count, summary.root_count), (4, 0));
}

/// A drained account is gone in an older geth's traces too, which give no code hashes.
#[test]
fn what_is_left_with_nothing_is_gone() {
    let line = r#"[{"pre": {"0x00000000000000000000000000000000000a11ce": {"balance": "0x5"}},
        "post": {"0x00000000000000000000000000000000000a11ce": {"balance": "0x0"}}}]"#;
    let trace = parsed(line);
    let gone = [(Address::left_padding_from(&[0x0a, 0x11, 0xce]), Change::Deleted)];
    assert_eq!(trace.changes().accounts, gone.into());
    assert_eq!(trace.transactions[0].emptied.len(), 1);
}
