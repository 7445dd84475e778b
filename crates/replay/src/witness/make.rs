//! Making witnesses while a chain is replayed.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use spinney_state::{Mark, State, StateError};
use spinney_tree::PageStore;

use super::nodes::StateNodes;
use super::partial_state::PartialState;
use super::record::{Record, Recorder};
use super::{Witness, WitnessError};
use crate::config::ChainConfig;
use crate::error::ReplayError;
use crate::evm::BLOCK_HASH_COUNT;
use crate::genesis::Genesis;
use crate::replay::{BlockReport, Replay};
use crate::source::ChainBlock;
use crate::world::WorldState;

/// Blocks a commit: what is not committed stays in memory.
const COMMIT_EVERY: u64 = 64;

/// Replays blocks, and makes witnesses of those asked for.
///
/// ```
/// use spinney_replay::{SampleChain, SampleOptions, TextbookState, WitnessMaker};
/// use spinney_state::State;
/// use spinney_tree::MemoryStore;
///
/// let mut options = SampleOptions::default();
/// options.block_count = 2;
/// let sample = SampleChain::new(options, TextbookState::new())?;
/// let state = State::open(MemoryStore::new(), 1 << 20)?;
/// let mut maker = WitnessMaker::start(sample.genesis(), state)?;
/// for block in sample {
///     let block = block?;
///     let difficulty = maker.total_difficulty();
///     let witness = maker.witness(&block)?.unwrap();
///     witness.check(maker.config(), difficulty, &block)?;
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WitnessMaker<P: PageStore> {
    replay: Replay<Recorder<P>>,
    /// The newest headers that a contract may ask the hash of.
    headers: VecDeque<Header>,
}

impl<P: PageStore> WitnessMaker<P> {
    /// Begins a chain on an empty state.
    ///
    /// # Errors
    /// As [`Replay::start`].
    pub fn start(genesis: &Genesis, state: State<P>) -> Result<Self, WitnessError> {
        let replay = Replay::start(genesis, Recorder::new(state)).map_err(Box::new)?;
        Ok(Self { replay, headers: VecDeque::from([genesis.header.clone()]) })
    }

    /// The rules of the chain.
    pub fn config(&self) -> &ChainConfig {
        self.replay.config()
    }

    /// The difficulty of all blocks so far, which [`Witness::check`] takes for the next one.
    pub fn total_difficulty(&self) -> U256 {
        self.replay.head().total_difficulty
    }

    /// The state after the last block.
    pub fn state(&self) -> &State<P> {
        &self.replay.state().state
    }

    /// Executes the next block without making a witness. `None` for the genesis itself.
    ///
    /// # Errors
    /// As [`Replay::block`].
    pub fn pass(&mut self, block: &ChainBlock) -> Result<Option<BlockReport>, WitnessError> {
        let report = self.replay.block(block).map_err(Box::new)?;
        if report.is_some() {
            self.advance(block)?;
        }
        Ok(report)
    }

    /// Executes the next block and makes its witness. `None` for the genesis itself.
    ///
    /// # Errors
    /// As [`Replay::block`], or if the state fails.
    pub fn witness(&mut self, block: &ChainBlock) -> Result<Option<Witness>, WitnessError> {
        // A bad block may have left what it asked for.
        self.forget();
        let before = self.state().mark();
        let root = self.state().root();
        let Some(report) = self.replay.block(block).map_err(Box::new)? else { return Ok(None) };
        let record = self.replay.state().take();
        let (state, number) = (self.state(), report.number);
        let headers = self.headers_from(self.replay.hashes().take_oldest_told());
        let nodes = Collected::of(state, &before, &record)?;
        let mut partial = PartialState::new(root);
        for changes in &record.applied {
            let applied = partial.apply(&nodes, changes);
            nodes.failed.take().map_or(Ok(()), Err)?;
            applied.map_err(|error| WitnessError::Make { number, error })?;
        }
        let nodes = nodes.nodes.into_inner().into_values();
        let witness = Witness {
            number,
            hash: report.hash,
            root: report.state_root,
            state: nodes.map(|rlp| Bytes::copy_from_slice(&rlp)).collect(),
            codes: record.codes.into_values().collect(),
            keys: keys(&record.keys),
            headers,
        };
        self.advance(block)?;
        Ok(Some(witness))
    }

    fn headers_from(&self, oldest: Option<u64>) -> Vec<Bytes> {
        let parent = self.headers.back().map_or(0, |header| header.number);
        let oldest = oldest.map_or(parent, |oldest| oldest.min(parent));
        let wanted = self.headers.iter().filter(|header| header.number >= oldest);
        wanted.map(|header| alloy_rlp::encode(header).into()).collect()
    }

    /// Forgets what was asked for so far.
    fn forget(&self) {
        self.replay.state().take();
        self.replay.hashes().take_oldest_told();
    }

    /// Goes past a block that was executed.
    fn advance(&mut self, block: &ChainBlock) -> Result<(), WitnessError> {
        self.forget();
        let header = &block.block.header;
        if self.headers.len() == BLOCK_HASH_COUNT {
            self.headers.pop_front();
        }
        self.headers.push_back(header.clone());
        let number = header.number;
        if number.is_multiple_of(COMMIT_EVERY) {
            let failed = |error| Box::new(ReplayError::State { number, error });
            self.replay.state_mut().commit().map_err(failed)?;
        }
        Ok(())
    }
}

fn keys(record: &BTreeMap<Address, BTreeSet<B256>>) -> Vec<Bytes> {
    let mut keys = Vec::new();
    for (address, slots) in record {
        keys.push(Bytes::copy_from_slice(address.as_slice()));
        keys.extend(slots.iter().map(|slot| Bytes::copy_from_slice(slot.as_slice())));
    }
    keys
}

/// The nodes of a witness; what is not there yet is fetched from the whole state.
struct Collected<'a, P: PageStore> {
    state: &'a State<P>,
    before: &'a Mark,
    nodes: RefCell<BTreeMap<B256, Arc<[u8]>>>,
    /// Why a node could not be fetched.
    failed: RefCell<Option<StateError>>,
}

impl<'a, P: PageStore> Collected<'a, P> {
    /// The nodes on all paths of a record.
    fn of(state: &'a State<P>, before: &'a Mark, record: &Record) -> Result<Self, StateError> {
        let mut paths = Vec::new();
        for (address, slots) in &record.keys {
            let account = keccak256(address);
            paths.push(account.to_vec());
            paths.extend(slots.iter().map(|slot| [account, keccak256(slot)].concat()));
        }
        let nodes = state.path_nodes(before, &paths)?.into_iter();
        let nodes = nodes.map(|rlp| (keccak256(&rlp), Arc::from(rlp))).collect();
        Ok(Self { state, before, nodes: RefCell::new(nodes), failed: RefCell::default() })
    }

    /// The node that lies at a path of the whole state: a sibling that was left alone.
    fn fetch(
        &self,
        account: Option<B256>,
        digest: &[u8; 32],
        path: &[u8],
    ) -> Result<Option<Arc<[u8]>>, StateError> {
        let mut key = [0; 32];
        for (index, digit) in path.iter().enumerate() {
            key[index / 2] |= digit << (4 - index % 2 * 4);
        }
        let key = [account.as_ref().map_or(&[][..], |account| account.as_slice()), &key].concat();
        let mut nodes = self.state.path_nodes(self.before, &[key])?.into_iter();
        Ok(nodes.find(|rlp| keccak256(rlp) == *digest).map(Arc::from))
    }
}

impl<P: PageStore> StateNodes for Collected<'_, P> {
    fn node(&self, account: Option<B256>, digest: &[u8; 32], path: &[u8]) -> Option<Arc<[u8]>> {
        if let Some(node) = self.nodes.borrow().get(&B256::from(*digest)) {
            return Some(Arc::clone(node));
        }
        match self.fetch(account, digest, path) {
            Ok(Some(node)) => {
                self.nodes.borrow_mut().insert(digest.into(), Arc::clone(&node));
                Some(node)
            }
            Ok(None) => None,
            Err(error) => {
                self.failed.replace(Some(error));
                None
            }
        }
    }
}
