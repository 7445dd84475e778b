//! Making witnesses while a chain is replayed.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, VecDeque};

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U256, keccak256, map::B256Map};
use spinney_state::{Mark, State, StateError};
use spinney_tree::PageStore;
use spinney_tree::mpt::PathNodes;

use super::collapses::Collapses;
use super::nodes::{Place, StateNodes, digests};
use super::record::{Keys, Record, Recorder};
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
///     let made = maker.witness(&block)?.unwrap();
///     made.witness.check(maker.config(), difficulty, &block)?;
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
        let maker = Self { replay, headers: VecDeque::from([genesis.header.clone()]) };
        maker.forget();
        Ok(maker)
    }

    /// Makes what was executed durable, as happens now and then by itself.
    ///
    /// # Errors
    /// If the state fails.
    pub fn commit(&mut self) -> Result<(), WitnessError> {
        let number = self.replay.head().header.number;
        let failed = |error| Box::new(ReplayError::State { number, error });
        Ok(self.replay.state_mut().commit().map_err(failed)?)
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
    pub fn witness(&mut self, block: &ChainBlock) -> Result<Option<MadeWitness>, WitnessError> {
        // A bad block may have left what it asked for.
        self.forget();
        let before = self.state().mark();
        let root = self.state().root();
        let Some(report) = self.replay.block(block).map_err(Box::new)? else { return Ok(None) };
        let record = self.replay.state().take();
        let (state, number) = (self.state(), report.number);
        let headers = self.headers_from(self.replay.hashes().take_oldest_told());
        let nodes = Collected::of(state, &before, &record)?;
        let asked = Collapses::new(&nodes, root).ask(&record.applied);
        nodes.failed.take().map_or(Ok(()), Err)?;
        asked.map_err(|error| WitnessError::Make { number, error: Box::new(error) })?;
        let code = |hash: &B256| record.code.get(hash).cloned();
        let witness = Witness {
            state: nodes.into_sorted(),
            codes: sorted(record.codes.wanted().filter_map(|(hash, _)| code(hash)).collect()),
            keys: Vec::new(),
            headers,
        };
        let other_codes = sorted(record.codes.others().filter_map(code).collect());
        self.advance(block)?;
        let keys = record.keys;
        Ok(Some(MadeWitness { report, witness, other_codes, keys }))
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
            self.commit()?;
        }
        Ok(())
    }
}

/// A witness, and what clients add to theirs.
#[derive(Debug)]
pub struct MadeWitness {
    /// What the block did.
    pub report: BlockReport,
    /// The canonical witness, without keys.
    pub witness: Witness,
    /// Code beside that which was read, and was not there before the block at the account that was
    /// read, in order of its bytes.
    pub other_codes: Vec<Bytes>,
    keys: Keys,
}

impl MadeWitness {
    /// The accounts that were looked up, with their slots that were.
    pub fn looked_up(&self) -> impl Iterator<Item = (&Address, &BTreeSet<B256>)> {
        self.keys.0.iter()
    }

    /// The addresses and slots that were looked up: in order of their bytes, each once.
    pub fn keys(&self) -> Vec<Bytes> {
        self.keys.sorted()
    }

    /// The same, each address followed by its slots.
    pub fn keys_by_account(&self) -> Vec<Bytes> {
        self.keys.by_account()
    }
}

/// In order of their bytes. Most first bytes differ, so few are looked at where they lie.
fn sorted(all: Vec<Bytes>) -> Vec<Bytes> {
    let first = |bytes: &Bytes| {
        let mut first = [0; 16];
        let len = bytes.len().min(16);
        first[..len].copy_from_slice(&bytes[..len]);
        u128::from_be_bytes(first)
    };
    let mut all: Vec<_> = all.into_iter().map(|bytes| (first(&bytes), bytes)).collect();
    all.sort_unstable();
    all.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Nodes with their digests. All lie in one piece of memory.
fn listed(nodes: PathNodes) -> impl Iterator<Item = (Bytes, B256)> {
    let (rlp, nodes) = nodes.into_parts();
    let rlp = Bytes::from(rlp);
    nodes.into_iter().map(move |(range, digest)| (rlp.slice(range), B256::from(digest)))
}

/// The nodes of a witness; what is not there yet is fetched from the whole state.
struct Collected<'a, P: PageStore> {
    state: &'a State<P>,
    before: &'a Mark,
    /// The nodes on all paths, each once.
    nodes: Vec<Bytes>,
    digests: Vec<B256>,
    /// Where each lies among them, by its digest, once one is asked for.
    places: OnceCell<B256Map<usize>>,
    /// Siblings that were left alone.
    fetched: RefCell<B256Map<Bytes>>,
    /// Why a node could not be fetched.
    failed: RefCell<Option<StateError>>,
}

impl<'a, P: PageStore> Collected<'a, P> {
    /// The nodes on all paths of a record.
    fn of(state: &'a State<P>, before: &'a Mark, record: &Record) -> Result<Self, StateError> {
        let mut paths = Vec::new();
        for (address, slots) in &record.keys.0 {
            let account = keccak256(address);
            paths.push(account.to_vec());
            let slots: Vec<_> = slots.iter().collect();
            paths.extend(digests(&slots).into_iter().map(|slot| [account, slot].concat()));
        }
        let (nodes, digests) = listed(state.path_nodes(before, &paths)?).unzip();
        let (places, fetched) = (OnceCell::new(), RefCell::default());
        Ok(Self { state, before, nodes, digests, places, fetched, failed: RefCell::default() })
    }

    fn into_sorted(self) -> Vec<Bytes> {
        let mut nodes = self.nodes;
        nodes.extend(self.fetched.into_inner().into_values());
        sorted(nodes)
    }

    /// The node that lies at a path of the whole state: a sibling that was left alone.
    fn fetch(
        &self,
        account: Option<B256>,
        digest: &[u8; 32],
        path: &[u8],
    ) -> Result<Option<Bytes>, StateError> {
        let mut key = [0; 32];
        for (index, digit) in path.iter().enumerate() {
            key[index / 2] |= digit << (4 - index % 2 * 4);
        }
        let key = [account.as_ref().map_or(&[][..], |account| account.as_slice()), &key].concat();
        let mut nodes = listed(self.state.path_nodes(self.before, &[key])?);
        Ok(nodes.find(|(_, found)| found == digest).map(|(rlp, _)| rlp))
    }
}

impl<P: PageStore> StateNodes for Collected<'_, P> {
    fn node(&self, place: &Place, digest: &[u8; 32], path: &[u8]) -> Option<Bytes> {
        let places = self.places.get_or_init(|| self.digests.iter().copied().zip(0..).collect());
        if let Some(at) = places.get(&B256::from(*digest)) {
            return self.nodes.get(*at).cloned();
        }
        if let Some(node) = self.fetched.borrow().get(&B256::from(*digest)) {
            return Some(node.clone());
        }
        let account = place.slot.map(|_| keccak256(place.account));
        match self.fetch(account, digest, path) {
            Ok(found) => {
                let fetched = found.iter().map(|node| (B256::from(*digest), node.clone()));
                self.fetched.borrow_mut().extend(fetched);
                found
            }
            Err(error) => {
                self.failed.replace(Some(error));
                None
            }
        }
    }
}
