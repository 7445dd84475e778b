//! Making witnesses while a chain is replayed.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256, keccak256, map::B256Map};
use spinney_state::{Changes, KeptWitness, Mark, State, StateError};
use spinney_tree::PageStore;
use spinney_tree::mpt::PathNodes;

use super::collapses::Collapses;
use super::nodes::{Place, StateNodes, digests};
use super::reads::BlockReads;
use super::{Witness, WitnessError};
use crate::config::ChainConfig;
use crate::error::ReplayError;
use crate::genesis::Genesis;
use crate::replay::Replay;
use crate::report::BlockReport;
use crate::source::ChainBlock;
use crate::world::SealedBlock;

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
    replay: Replay<State<P>>,
}

impl<P: PageStore> WitnessMaker<P> {
    /// Begins a chain on an empty state.
    ///
    /// # Errors
    /// As [`Replay::start`].
    pub fn start(genesis: &Genesis, state: State<P>) -> Result<Self, WitnessError> {
        let mut replay = Replay::start(genesis, state).map_err(Box::new)?;
        replay.keep_reads(true);
        Ok(Self { replay })
    }

    /// Makes what was executed durable, as happens now and then by itself.
    ///
    /// # Errors
    /// If the state fails.
    pub fn commit(&mut self) -> Result<(), WitnessError> {
        let number = self.replay.head().header.number;
        let failed = |error| Box::new(ReplayError::State { number, error });
        self.replay.state_mut().commit().map_err(failed)?;
        Ok(())
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
        self.replay.state()
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
        let before = Before { mark: self.state().mark(), root: self.state().root() };
        let Some(report) = self.replay.block(block).map_err(Box::new)? else { return Ok(None) };
        let reads = self.replay.take_reads().unwrap_or_default();
        let number = report.number;
        let witness = witness_of(self.state(), &before, (number, &report.changes), &reads)?;
        self.advance(block)?;
        Ok(Some(MadeWitness { report, witness, reads }))
    }

    /// Goes past a block that was executed.
    fn advance(&mut self, block: &ChainBlock) -> Result<(), WitnessError> {
        if block.block.header.number.is_multiple_of(COMMIT_EVERY) {
            self.commit()?;
        }
        Ok(())
    }
}

/// A state before a block.
pub(crate) struct Before {
    mark: Mark,
    root: B256,
}

impl Before {
    /// That of the last block sealed.
    pub(crate) fn sealed<P: PageStore>(state: &State<P>) -> Self {
        let (mark, root) = state.mark_sealed();
        Self { mark, root }
    }
}

/// Makes the witness of a block that was just sealed, and leaves it to the state to be kept. One
/// that asked for headers which are not known gets none.
pub(crate) fn keep_witness<P: PageStore>(
    state: &mut State<P>,
    before: &Before,
    block: &SealedBlock<'_>,
    reads: &BlockReads,
) -> Result<(), StateError> {
    if reads.headers.is_none() {
        return Ok(());
    }
    let number = block.number;
    let made = witness_of(state, before, (number, block.changes), reads);
    let witness = made.map_err(|error| match error {
        WitnessError::State(error) => error,
        other => StateError::Witness { block: number, what: other.to_string() },
    })?;
    let Witness { state: nodes, codes, headers, .. } = witness;
    state.attach_witness(&KeptWitness { state: nodes, codes, headers });
    Ok(())
}

/// The witness of a block that was executed on a state: what it read says which keys it looked up.
fn witness_of<P: PageStore>(
    state: &State<P>,
    before: &Before,
    (number, changes): (u64, &Changes),
    reads: &BlockReads,
) -> Result<Witness, WitnessError> {
    let nodes = Collected::of(state, &before.mark, reads)?;
    let layers = match reads.applied.is_empty() {
        true => std::slice::from_ref(changes),
        false => &reads.applied,
    };
    let asked = Collapses::new(&nodes, before.root).ask(layers);
    nodes.failed.take().map_or(Ok(()), Err)?;
    asked.map_err(|error| WitnessError::Make { number, error: Box::new(error) })?;
    let code = |hash: &B256| reads.code.get(hash).cloned();
    Ok(Witness {
        state: nodes.into_sorted(),
        codes: sorted(reads.codes.wanted().filter_map(|(hash, _)| code(hash)).collect()),
        keys: Vec::new(),
        headers: reads.headers.clone().unwrap_or_default(),
    })
}

/// A witness, and what clients add to theirs.
#[derive(Debug)]
pub struct MadeWitness {
    /// What the block did.
    pub report: BlockReport,
    /// The canonical witness, without keys.
    pub witness: Witness,
    reads: Arc<BlockReads>,
}

impl MadeWitness {
    /// Code that was read, and was not there before the block at the account that it was read for,
    /// in order of its bytes.
    pub fn other_codes(&self) -> Vec<Bytes> {
        let others = self.reads.codes.others();
        sorted(others.filter_map(|hash| self.reads.code.get(hash).cloned()).collect())
    }

    /// The accounts that were looked up, with their slots that were.
    pub fn looked_up(&self) -> impl Iterator<Item = (&Address, &BTreeSet<B256>)> {
        self.reads.keys.0.iter()
    }

    /// The addresses and slots that were looked up: in order of their bytes, each once.
    pub fn keys(&self) -> Vec<Bytes> {
        self.reads.keys.sorted()
    }

    /// The same, each address followed by its slots.
    pub fn keys_by_account(&self) -> Vec<Bytes> {
        self.reads.keys.by_account()
    }
}

/// In order of their bytes, each once. Most first bytes differ, so few are looked at where they
/// lie.
fn sorted(all: Vec<Bytes>) -> Vec<Bytes> {
    let first = |bytes: &Bytes| {
        let mut first = [0; 16];
        let len = bytes.len().min(16);
        first[..len].copy_from_slice(&bytes[..len]);
        u128::from_be_bytes(first)
    };
    let mut all: Vec<_> = all.into_iter().map(|bytes| (first(&bytes), bytes)).collect();
    all.sort_unstable();
    all.dedup();
    all.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Nodes with their digests. All lie in one piece of memory.
fn listed(nodes: PathNodes) -> impl Iterator<Item = (Bytes, B256)> {
    let (rlp, nodes) = nodes.into_parts();
    let rlp = Bytes::from(rlp);
    nodes.into_iter().map(move |(range, digest)| (rlp.slice(range), B256::from(digest)))
}

/// A hashed key: of an account, or of a slot behind that of its account.
struct Path {
    bytes: [u8; 64],
    len: usize,
}

impl AsRef<[u8]> for Path {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// The paths of all that was read, in their order.
fn paths(reads: &BlockReads) -> Vec<Path> {
    let addresses: Vec<_> = reads.keys.0.keys().collect();
    let mut accounts: Vec<_> = digests(&addresses).into_iter().zip(reads.keys.0.values()).collect();
    accounts.sort_unstable_by_key(|(account, _)| *account);
    let mut paths = Vec::with_capacity(addresses.len());
    for (account, slots) in accounts {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(account.as_slice());
        paths.push(Path { bytes, len: 32 });
        let slots: Vec<_> = slots.iter().collect();
        let mut slots = digests(&slots);
        slots.sort_unstable();
        paths.extend(slots.into_iter().map(|slot| {
            bytes[32..].copy_from_slice(slot.as_slice());
            Path { bytes, len: 64 }
        }));
    }
    paths
}

/// The nodes of a witness; what is not there yet is fetched from the whole state.
struct Collected<'a, P: PageStore> {
    state: &'a State<P>,
    before: &'a Mark,
    /// The nodes on all paths; one that lies at two places is there twice.
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
    /// The nodes on all paths of what was read.
    fn of(state: &'a State<P>, before: &'a Mark, reads: &BlockReads) -> Result<Self, StateError> {
        let parts = state.path_nodes(before, &paths(reads))?;
        let (nodes, digests) = parts.into_iter().flat_map(listed).unzip();
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
        let mut nodes = self.state.path_nodes(self.before, &[key])?.into_iter().flat_map(listed);
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
