//! A follower beside a node that is made for it, and that answers as it is told to.

mod bisect;
mod chains;
mod fake_node;
mod remote;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;
use spinney_follow::{FollowError, FollowEvent, FollowOptions, Followed, Follower, Node, TakeBy};
use spinney_replay::{ChainBlock, Check, Genesis, ReplayError, RunOptions};
use spinney_state::{KeepHistory, State, StateRead as _, kept_blocks};
use spinney_tree::HashFunction;
use spinney_tree::pbt::Pbt;
use spinney_tree::{BlockId, MemoryStore, PageStore as _};

use self::chains::{Chain, addresses};
use self::fake_node::{FakeNode, Mood};

type Store = &'static MemoryStore;

/// Nobody waits for longer: a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a follower told, with owned values.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Told {
    Block(u64),
    Back(u64, u64),
    Failed(String),
}

fn told(event: &FollowEvent<'_>) -> Option<Told> {
    Some(match event {
        FollowEvent::Block { report, .. } => Told::Block(report.number),
        FollowEvent::Reorganised { from, to } => Told::Back(from.number, to.number),
        FollowEvent::Failed { error, .. } => Told::Failed(error.to_string()),
        _ => return None,
    })
}

type Ended = Result<(Followed, State<Store>), FollowError>;

/// A follower that runs, in a scope.
struct Running<'s> {
    told: Receiver<Told>,
    thread: Option<thread::ScopedJoinHandle<'s, Ended>>,
    stop: &'s AtomicBool,
    heard: RefCell<Vec<Told>>,
}

/// A test that fails does not wait for it.
impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Running<'_> {
    /// Waits for something to be told.
    #[track_caller]
    fn until(&self, mut is_it: impl FnMut(&Told) -> bool) {
        let until = Instant::now() + PATIENCE;
        let left = || until.saturating_duration_since(Instant::now());
        while let Ok(told) = self.told.recv_timeout(left()) {
            self.heard.borrow_mut().push(told.clone());
            if is_it(&told) {
                return;
            }
        }
        panic!("it was not told: {:?}", self.heard.borrow());
    }

    fn end(self) -> Ended {
        self.stop.store(true, Ordering::Relaxed);
        self.join()
    }

    fn join(mut self) -> Ended {
        self.thread.take().expect("it runs").join().expect("no panic")
    }
}

fn empty() -> State<Store> {
    let mut state = State::open(&*Box::leak(Box::new(MemoryStore::new())), 1 << 20).unwrap();
    state.keep_history(KeepHistory::All);
    state
}

struct Setup<'a> {
    node: &'a FakeNode,
    genesis: &'a Genesis,
    stop: &'a AtomicBool,
    threads: usize,
    last: Option<u64>,
}

impl Setup<'_> {
    fn follow(&self, mut state: State<Store>, on_event: impl FnMut(FollowEvent<'_>)) -> Ended {
        let node = Node::new(self.node.url());
        let mut options = FollowOptions::default();
        options.poll = Duration::from_millis(5);
        options.run = RunOptions::default();
        options.run.last = self.last;
        options.run.stop = Some(self.stop);
        options.run.recover_threads = self.threads;
        let follower = Follower::new(&node, self.genesis, options);
        if state.block().is_none() {
            state = follower.begin(state)?;
            state.keep_history(KeepHistory::All);
        }
        follower.follow(state, on_event)
    }

    fn start<'s, 'e: 's>(
        &'e self,
        scope: &'s thread::Scope<'s, 'e>,
        state: State<Store>,
    ) -> Running<'s> {
        let (tell, told_to) = channel();
        let thread = scope.spawn(move || {
            self.follow(state, |event| {
                told(&event).into_iter().for_each(|told| drop(tell.send(told)));
            })
        });
        Running { told: told_to, thread: Some(thread), stop: self.stop, heard: RefCell::default() }
    }
}

/// The state is that of the chain: root, block, all that is kept, and what accounts hold.
#[track_caller]
fn check(state: &State<Store>, chain: &Chain, head: usize) {
    let last = &chain.blocks[head - 1];
    assert_eq!(state.block(), Some(BlockId { number: head as u64, hash: last.hash.0 }));
    assert_eq!(state.root(), last.block.header.state_root);
    let snapshot = state.store().snapshot().unwrap();
    for kept in kept_blocks(&snapshot, state.block().unwrap()).unwrap() {
        let Some(at) = kept.number.checked_sub(1) else { continue };
        assert_eq!(kept.hash, chain.blocks[at as usize].hash.0);
        let back = state.at(kept.number).unwrap();
        assert_eq!(back.root(), chain.blocks[at as usize].block.header.state_root);
    }
    drop(snapshot);
    let direct = chain.replayed(head);
    for address in addresses(&chain.blocks[..head]) {
        assert_eq!(state.account(address).unwrap(), direct.account(address).unwrap());
    }
}

#[test]
fn a_chain_is_followed_to_its_end_and_on() {
    let chain = Chain::sample(24);
    for (threads, gives_raw) in [(1, true), (2, true), (2, false)] {
        let node = FakeNode::start(&chain.genesis, &chain.blocks[..9], gives_raw);
        let stop = AtomicBool::new(false);
        let setup =
            Setup { node: &node, genesis: &chain.genesis, stop: &stop, threads, last: None };
        thread::scope(|scope| {
            let running = setup.start(scope, empty());
            running.until(|told| *told == Told::Block(9));
            node.has(&chain.blocks[..10]);
            running.until(|told| *told == Told::Block(10));
            node.has(&chain.blocks);
            running.until(|told| *told == Told::Block(24));
            let (followed, state) = running.end().unwrap();
            check(&state, &chain, 24);
            let summary = &followed.summary;
            assert_eq!((summary.block_count, summary.root_count), (24, 24));
            assert_eq!((followed.reorganisations, followed.failures), (0, 0));
            assert!(summary.stopped);
            // It is asked for what it does not have once.
            let raw = node.asked("debug_getRawBlock");
            assert!(if gives_raw { raw >= 24 } else { raw < 10 }, "{raw}");
        });
        // What is there is gone on with, up to a block.
        let stop = AtomicBool::new(false);
        let last = Some(17);
        let setup = Setup { node: &node, genesis: &chain.genesis, stop: &stop, threads, last };
        let (_, state) = setup.follow(empty(), |_| {}).unwrap();
        check(&state, &chain, 17);
        let setup = Setup { last: Some(20), ..setup };
        let (followed, state) = setup.follow(state, |_| {}).unwrap();
        check(&state, &chain, 20);
        assert_eq!((followed.summary.block_count, followed.summary.stopped), (3, false));
    }
}

/// Traces that are of other transactions, or say that nothing was done, are left for the execution.
#[test]
fn blocks_whose_traces_fall_short_are_executed() {
    let chain = Chain::sample(12);
    let node = FakeNode::start(&chain.genesis, &chain.blocks, true);
    let nothing = json!({ "result": { "pre": {}, "post": {} } });
    for (index, block) in chain.blocks.iter().enumerate() {
        let count = if index % 2 == 0 { block.block.body.transactions.len() } else { 1_000 };
        let traces = vec![nothing.clone(); count];
        node.tells("debug_traceBlockByHash", block.hash, json!(traces));
    }
    let client = Node::new(node.url());
    let mut options = FollowOptions::default();
    (options.by, options.run.last) = (TakeBy::Traces, Some(12));
    let follower = Follower::new(&client, &chain.genesis, options);
    let mut state = follower.begin(empty()).unwrap();
    state.keep_history(KeepHistory::All);
    let (followed, state) = follower.follow(state, |_| {}).unwrap();
    check(&state, &chain, 12);
    assert_eq!((followed.summary.root_count, followed.failures), (12, 0));
    assert_eq!(node.asked("debug_traceBlockByHash"), 12);
}

#[test]
fn a_node_may_fail_in_any_way_and_come_back() {
    let chain = Chain::sample(12);
    let other = chain.fork(8, 2, 1);
    let moods = [
        (Mood::Away, "127.0.0.1"),
        (Mood::Status(503), "status 503"),
        (Mood::Text("{"), "EOF"),
        (Mood::Text(""), "EOF"),
        (Mood::Text("[]"), ""),
        (
            Mood::Text(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32000,"message":"late"}}"#),
            "late",
        ),
        (Mood::Text(r#"{"jsonrpc":"2.0","id":77,"result":null}"#), "another request"),
        (Mood::CutOff, ""),
        (Mood::Null, ""),
        (Mood::OtherNumbers, "asked for block"),
        (Mood::OtherHashes, ""),
        (Mood::Blocks(other.blocks), "and it told of"),
        (Mood::Malformed, ""),
    ];
    for gives_raw in [true, false] {
        let node = FakeNode::start(&chain.genesis, &chain.blocks[..4], gives_raw);
        let stop = AtomicBool::new(false);
        let setup =
            Setup { node: &node, genesis: &chain.genesis, stop: &stop, threads: 2, last: None };
        thread::scope(|scope| {
            let running = setup.start(scope, empty());
            running.until(|told| *told == Told::Block(4));
            for (mood, says) in &moods {
                node.is(mood.clone());
                node.has(&chain.blocks[..10]);
                running.until(|told| matches!(told, Told::Failed(error) if error.contains(says)));
                node.is(Mood::Good);
                running.until(|told| *told == Told::Block(10));
                // Back to where it was, by another block that is good.
                let short = chain.fork(4, 1, 9);
                node.has(&short.blocks);
                running.until(|told| *told == Told::Block(5));
                node.has(&chain.blocks[..6]);
                running.until(|told| *told == Told::Block(6));
                println!("{mood:?}");
            }
            node.has(&chain.blocks);
            running.until(|told| *told == Told::Block(12));
            let (followed, state) = running.end().unwrap();
            check(&state, &chain, 12);
            assert!(followed.failures >= moods.len() as u64, "{followed:?}");
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// A node that goes from any fork to any other, each at any block, never leads to anything but
    /// the state of the chain that it has in the end.
    #[test]
    fn any_course_ends_where_the_node_ends(
        forks in proptest::collection::vec((0..6_usize, 0..12_usize, 1..6_usize), 1..5),
        course in proptest::collection::vec((0..6_usize, 0..12_usize), 1..8),
        threads in 1..3_usize,
    ) {
        let mut chains = vec![Chain::sample(10)];
        for (kind, (of, at, count)) in (1..).zip(forks) {
            let chain = &chains[of % chains.len()];
            let forked = chain.fork(at % chain.blocks.len(), count, kind);
            chains.push(forked);
        }
        let genesis = &chains[0].genesis;
        let node = FakeNode::start(genesis, &chains[0].blocks[..1], true);
        let stop = AtomicBool::new(false);
        let setup = Setup { node: &node, genesis, stop: &stop, threads, last: None };
        let heads = thread::scope(|scope| {
            let running = setup.start(scope, empty());
            running.until(|told| *told == Told::Block(1));
            for (of, head) in course {
                // It need not come there before the node goes on; sometimes it does.
                let chain = &chains[of % chains.len()];
                node.has(&chain.blocks[..=head % chain.blocks.len()]);
                if head % 2 == 0 {
                    let _ = running.told.recv_timeout(Duration::from_millis(30));
                }
            }
            // Longer than whatever it had, so that it is not waited for.
            let last = chains.last().unwrap();
            let longer = last.fork(last.blocks.len(), 30, 99);
            node.has(&longer.blocks);
            running.until(|told| *told == Told::Block(longer.blocks.len() as u64));
            let (followed, state) = running.end().unwrap();
            check(&state, &longer, longer.blocks.len());
            Ok::<_, TestCaseError>(followed.reorganisations)
        })?;
        prop_assert!(heads <= 12);
    }
}

/// Several trees go back and on together.
#[test]
fn several_trees_follow_together() {
    let chain = Chain::sample(10);
    let other = chain.fork(6, 8, 3);
    let node = FakeNode::start(&chain.genesis, &chain.blocks, true);
    let stop = AtomicBool::new(false);
    let setup =
        Setup { node: &node, genesis: &chain.genesis, stop: &stop, threads: 2, last: Some(14) };
    let both = || {
        let mut state = empty();
        state.add_tree(Pbt { hash: HashFunction::Blake3 }, 1 << 20).unwrap();
        state
    };
    let roots = |state: &State<Store>| -> BTreeSet<String> {
        state.trees().iter().map(|tree| tree.root.to_string()).collect()
    };
    let (followed, state) = thread::scope(|scope| {
        let running = setup.start(scope, both());
        running.until(|told| *told == Told::Block(10));
        node.has(&other.blocks);
        running.until(|told| *told == Told::Block(14));
        running.join().unwrap()
    });
    assert_eq!((followed.reorganisations, followed.dropped), (1, 4));
    check(&state, &other, 14);
    let stop = AtomicBool::new(false);
    let setup = Setup { stop: &stop, ..setup };
    let (_, direct) = setup.follow(both(), |_| {}).unwrap();
    assert_eq!(roots(&state).len(), 2);
    assert_eq!(roots(&state), roots(&direct));
}

#[test]
fn what_cannot_be_followed_is_told() {
    let chain = Chain::sample(10);
    let node = FakeNode::start(&chain.genesis, &chain.blocks, true);
    let stop = AtomicBool::new(false);
    let setup =
        Setup { node: &node, genesis: &chain.genesis, stop: &stop, threads: 2, last: Some(10) };
    // Another genesis.
    let mut foreign = chain.genesis.clone();
    foreign.hash.0[0] ^= 1;
    let other = Setup { genesis: &foreign, ..setup };
    let error = other.follow(empty(), |_| {}).map(drop).unwrap_err();
    assert!(matches!(error, FollowError::OtherChain { got, .. } if got == chain.genesis.hash));
    // A state that stands nowhere.
    let alone = Follower::new(&Node::new(node.url()), &chain.genesis, FollowOptions::default())
        .follow(empty(), |_| {})
        .map(drop);
    assert!(matches!(alone, Err(FollowError::NoBlock)));
    // A fork behind all that is kept.
    let mut state = empty();
    state.keep_history(KeepHistory::Blocks(3));
    let node_ref = Node::new(node.url());
    let mut options = FollowOptions::default();
    options.run.last = Some(10);
    options.run.commit_every = 1;
    let follower = Follower::new(&node_ref, &chain.genesis, options);
    let mut state = follower.begin(state).unwrap();
    state.keep_history(KeepHistory::Blocks(3));
    let (_, state) = follower.follow(state, |_| {}).unwrap();
    let deep = chain.fork(5, 9, 1);
    node.has(&deep.blocks);
    options.run.last = Some(14);
    let follower = Follower::new(&node_ref, &chain.genesis, options);
    let error = follower.follow(state, |_| {}).map(drop).unwrap_err();
    assert!(matches!(error, FollowError::TooDeep { oldest: 7 }), "{error}");
    // A fork behind what was final.
    node.has(&chain.blocks);
    node.finalizes(Some(8));
    let setup = Setup { genesis: &chain.genesis, last: None, ..other };
    let error = thread::scope(|scope| {
        let running = setup.start(scope, empty());
        running.until(|told| *told == Told::Block(10));
        node.finalizes(None);
        node.has(&chain.fork(7, 9, 1).blocks);
        running.join().map(drop).unwrap_err()
    });
    let is_final = matches!(error, FollowError::Final { ancestor: 7, finalized: 8 });
    assert!(is_final, "{error}");
    // Unless that is wanted.
    let short = chain.fork(7, 9, 1);
    node.has(&chain.blocks);
    node.finalizes(Some(8));
    options.past_final = true;
    options.run.last = Some(16);
    let follower = Follower::new(&node_ref, &chain.genesis, options);
    let mut state = follower.begin(empty()).unwrap();
    state.keep_history(KeepHistory::All);
    let (followed, state) = follower
        .follow(state, |event| {
            if matches!(&event, FollowEvent::Committed { number: 10, .. }) {
                node.finalizes(None);
                node.has(&short.blocks);
            }
        })
        .unwrap();
    assert_eq!((followed.reorganisations, followed.dropped), (1, 3));
    check(&state, &short, 16);
}

/// Whoever asks for an end while the first blocks come gets it.
#[test]
fn an_end_is_no_failure() {
    let chain = Chain::sample(10);
    let node = FakeNode::start(&chain.genesis, &chain.blocks, true);
    for threads in [1, 2] {
        let stop = AtomicBool::new(false);
        let last = Some(6);
        let setup = Setup { node: &node, genesis: &chain.genesis, stop: &stop, threads, last };
        let (_, state) = setup.follow(empty(), |_| {}).unwrap();
        let setup = Setup { last: None, ..setup };
        // The head is told right before the blocks that the state has are asked for.
        let (followed, state) = setup
            .follow(state, |event| {
                if matches!(event, FollowEvent::Head { .. }) {
                    stop.store(true, Ordering::Relaxed);
                }
            })
            .unwrap();
        assert!(followed.summary.stopped);
        check(&state, &chain, 6);
    }
}

/// A block whose root is wrong ends it; all before it are in.
#[test]
fn a_wrong_root_ends_it() {
    let chain = Chain::sample(10);
    let mut blocks: Vec<ChainBlock> = chain.blocks[..7].to_vec();
    let mut block = chain.blocks[7].block.clone();
    block.header.state_root = [7; 32].into();
    blocks.push(ChainBlock::new(block));
    for threads in [1, 2] {
        let node = FakeNode::start(&chain.genesis, &blocks, true);
        let stop = AtomicBool::new(false);
        let setup =
            Setup { node: &node, genesis: &chain.genesis, stop: &stop, threads, last: None };
        let mut good = 0;
        let outcome = setup.follow(empty(), |event| {
            if let FollowEvent::Committed { number, .. } = event {
                good = number;
            }
        });
        let error = outcome.map(drop).unwrap_err();
        let FollowError::Replay(error) = error else { panic!("{error}") };
        let ReplayError::BadBlock(bad) = *error else { panic!("{error}") };
        assert_eq!((bad.number, bad.what), (8, Check::StateRoot));
        assert_eq!(good, 7);
    }
}
