//! Bodies of JSON-RPC requests.

use std::sync::OnceLock;

use serde_json::Value;
use spinney_replay::{Replay, RunOptions, SampleChain, SampleOptions, TextbookState};
use spinney_rpc::{Options, answer_alone};
use spinney_state::State;
use spinney_tree::pbt::Pbt;
use spinney_tree::{HashFunction, MemoryStore};

/// JSON-RPC's error of those who answer.
const INTERNAL: i64 = -32603;

/// A store of a few blocks in two trees, with their witnesses.
fn store() -> &'static MemoryStore {
    static STORE: OnceLock<MemoryStore> = OnceLock::new();
    STORE.get_or_init(|| {
        let mut options = SampleOptions::default();
        options.block_count = 4;
        let sample = SampleChain::new(options, TextbookState::new()).expect("a sample");
        let store = MemoryStore::new();
        let mut state = State::open(&store, 1 << 20).expect("an empty store");
        state.add_tree(Pbt { hash: HashFunction::Blake3 }, 1 << 20).expect("an empty store");
        state.keep_witnesses(2);
        let mut replay = Replay::start(sample.genesis(), state).expect("a genesis");
        replay.keep_reads(true);
        let blocks: Vec<_> = sample.map(|block| Ok(block.expect("a block"))).collect();
        let ran = replay.run(blocks.into_iter(), &RunOptions::default(), |_| {});
        ran.expect("good blocks");
        drop(replay);
        store
    })
}

/// Whatever is asked, the answer is one of JSON-RPC, and a store that is sound is never blamed.
///
/// # Panics
/// If not.
pub fn answered(input: &[u8]) {
    let mut options = Options::default();
    (options.chain_id, options.cache_bytes) = (Some(1), 1 << 20);
    let Some(answer) = answer_alone(store(), options, input) else { return };
    let answer: Value = serde_json::from_slice(&answer).expect("an answer is JSON");
    let answers = match answer {
        Value::Array(answers) => answers,
        one => vec![one],
    };
    for answer in answers {
        assert_eq!(answer["jsonrpc"], "2.0");
        assert!(answer.get("id").is_some());
        let error = answer.get("error");
        assert!(error.is_some() != answer.get("result").is_some(), "{answer}");
        assert!(error.is_none_or(|error| error["code"] != INTERNAL), "{answer}");
    }
}
