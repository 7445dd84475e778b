//! The state of a witness, by itself.

use std::{cell::RefCell, collections::HashMap};

use alloy_consensus::EMPTY_ROOT_HASH;
use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_state::{Account, Changes, EMPTY_CODE_HASH, StateRead};

use super::{
    Witness, WitnessStateError,
    nodes::{Does, Nodes, Noted, digests},
    partial_state::PartialState,
    reads::{CodeReads, Keys},
};
use crate::{
    database::StateDatabase,
    world::{SealedBlock, WorldState},
};

/// The state before a block as far as a witness has it, and what was applied since: what an
/// execution without a state of its own reads.
///
/// It is a [`StateRead`] and a [`WorldState`], so a [`Replay`](crate::Replay) can drive it; and
/// [`into_database`](Self::into_database) makes a database of revm of it, for those who execute by
/// themselves.
///
/// ```
/// use alloy_primitives::{Address, U256};
/// use spinney_replay::{SampleChain, SampleOptions, TextbookState, WitnessMaker, WitnessState};
/// use spinney_state::{State, StateRead};
/// use spinney_tree::MemoryStore;
///
/// let sample = SampleChain::new(SampleOptions::default(), TextbookState::new())?;
/// let state = State::open(MemoryStore::new(), 1 << 20)?;
/// let mut maker = WitnessMaker::start(sample.genesis(), state)?;
/// let root = sample.genesis().header.state_root;
/// let block = { sample }.next().unwrap()?;
/// let made = maker.witness(&block)?.unwrap();
///
/// let state = WitnessState::new(&made.witness, root);
/// let paid = block.block.header.beneficiary;
/// assert!(state.account(paid)?.is_none());
/// assert_eq!(state.state_root(&made.report.changes)?, block.block.header.state_root);
/// // Of what no path leads to nothing is known.
/// assert!(state.account(Address::repeat_byte(7)).is_err());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct WitnessState {
    now: PartialState,
    /// What the state was before each layer.
    layers: Vec<PartialState>,
    nodes: Nodes,
    codes: HashMap<B256, Bytes>,
    hashes: HashMap<u64, B256>,
    noted: Option<RefCell<Asked>>,
}

/// What was asked of a state of a witness.
#[derive(Debug, Default)]
pub(super) struct Asked {
    pub(super) keys: Keys,
    pub(super) codes: CodeReads,
    /// Code that is not there.
    pub(super) missing: Vec<B256>,
}

impl WitnessState {
    /// The state with this root, of which the nodes of a witness are known. That the root is that
    /// of the block's parent is for the caller to say: nothing in the nodes can.
    pub fn new(witness: &Witness, root: B256) -> Self {
        Self::with_digests(witness, root, &digests(&witness.state))
    }

    /// The same where the digests of the nodes are known.
    pub(super) fn with_digests(witness: &Witness, root: B256, nodes: &[B256]) -> Self {
        let codes = digests(&witness.codes).into_iter().zip(witness.codes.iter().cloned());
        let hashes = witness.headers.iter().filter_map(|rlp| {
            let header: alloy_consensus::Header = alloy_rlp::decode_exact(rlp).ok()?;
            Some((header.number, alloy_primitives::keccak256(rlp)))
        });
        Self {
            now: PartialState::new(root),
            layers: Vec::new(),
            nodes: Nodes::new(&witness.state, nodes),
            codes: codes.collect(),
            hashes: hashes.collect(),
            noted: None,
        }
    }

    /// Adds nodes that became known, each under its own digest, which is computed here: so no node
    /// is taken for another, whoever gives it.
    pub fn add_nodes(&mut self, nodes: &[Bytes]) {
        self.nodes.add(nodes, &digests(nodes));
    }

    /// Whether the node with this digest is known.
    pub fn has_node(&self, digest: B256) -> bool {
        self.nodes.has(digest)
    }

    /// Adds code that became known, under its own hash.
    pub fn add_code(&mut self, code: Bytes) {
        self.codes.insert(alloy_primitives::keccak256(&code), code);
    }

    /// A database of revm, which knows the hashes of the witness's headers.
    pub fn into_database(mut self) -> StateDatabase<Self> {
        let hashes = std::mem::take(&mut self.hashes);
        hashes.into_iter().fold(StateDatabase::new(self), |database, (number, hash)| {
            database.with_hash(number, hash)
        })
    }

    /// From here on notes what is asked.
    pub(super) fn note(&mut self) {
        self.nodes.note();
        self.noted = Some(RefCell::default());
    }

    pub(super) fn take_noted(&self) -> (Noted, Asked) {
        let asked = self.noted.as_ref().map(RefCell::take).unwrap_or_default();
        (self.nodes.take_noted(), asked)
    }

    fn noted(&self, note: impl FnOnce(&mut Asked)) {
        if let Some(asked) = &self.noted {
            note(&mut asked.borrow_mut());
        }
    }

    /// The root after changes that are not kept.
    ///
    /// # Errors
    /// If a node that they need is missing or malformed.
    pub fn state_root(&self, changes: &Changes) -> Result<B256, WitnessStateError> {
        self.now.clone().apply(&self.nodes, changes)
    }
}

impl StateRead for WitnessState {
    type Error = WitnessStateError;

    fn account(&self, address: Address) -> Result<Option<Account>, WitnessStateError> {
        let account = self.now.account(&self.nodes, address, Does::Read)?;
        let account = account.map(|account| Account {
            nonce: account.nonce,
            balance: account.balance,
            code_hash: account.code_hash,
        });
        self.noted(|asked| {
            asked.keys.0.entry(address).or_default();
            asked.codes.account(address, account.as_ref());
        });
        Ok(account)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, WitnessStateError> {
        self.noted(|asked| asked.keys.slot(address, slot));
        self.now.slot(&self.nodes, address, slot)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, WitnessStateError> {
        if hash == EMPTY_CODE_HASH {
            return Ok(Some(Bytes::new()));
        }
        let code = self.codes.get(&hash).cloned();
        if code.is_none() {
            self.noted(|asked| asked.missing.push(hash));
        }
        Ok(code)
    }
}

impl WorldState for WitnessState {
    fn apply(&mut self, changes: &Changes) -> Result<B256, WitnessStateError> {
        let mut next = self.now.clone();
        let root = next.apply(&self.nodes, changes)?;
        self.layers.push(std::mem::replace(&mut self.now, next));
        Ok(root)
    }

    fn layer_count(&self) -> usize {
        self.layers.len()
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), WitnessStateError> {
        if layer_count < self.layers.len() {
            self.now = self.layers.swap_remove(layer_count);
            self.layers.truncate(layer_count);
        }
        Ok(())
    }

    fn seal(&mut self, _: &SealedBlock<'_>) -> Result<(), WitnessStateError> {
        Ok(())
    }

    fn has_storage(&self, address: Address) -> Result<bool, WitnessStateError> {
        let account = self.now.account(&self.nodes, address, Does::Read)?;
        Ok(account.is_some_and(|account| account.storage_root != EMPTY_ROOT_HASH))
    }

    fn code_read(&self, address: Address, hash: B256, written: bool) {
        self.noted(|asked| asked.codes.read(address, hash, written));
    }

    fn commit(&mut self) -> Result<(), WitnessStateError> {
        self.layers.clear();
        Ok(())
    }
}
