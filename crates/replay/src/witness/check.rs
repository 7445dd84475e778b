//! Executing a block on nothing but its witness.

use std::collections::HashMap;
use std::sync::Arc;

use alloy_consensus::{EMPTY_ROOT_HASH, Header};
use alloy_primitives::{Address, B256, Bytes, U256, keccak256};
use alloy_rlp::Decodable as _;
use spinney_state::{Account, Changes, EMPTY_CODE_HASH, StateRead};

use super::nodes::StateNodes;
use super::partial_state::PartialState;
use super::{Witness, WitnessError, WitnessStateError};
use crate::config::ChainConfig;
use crate::evm::BlockHashes;
use crate::replay::{BlockReport, Replay};
use crate::rules::Head;
use crate::source::ChainBlock;
use crate::world::{SealedBlock, WorldState};

impl Witness {
    /// Executes `block` on the witness alone and checks all that its header says, the state root included.
    /// `total_difficulty` is that of the block's ancestors: with the chain's rules it names the fork, and no
    /// witness can tell it.
    ///
    /// # Errors
    /// If a node, a code or a header is missing or malformed, or the block does not do what it says.
    pub fn check(
        &self,
        config: &ChainConfig,
        total_difficulty: U256,
        block: &ChainBlock,
    ) -> Result<BlockReport, WitnessError> {
        let (parent, hash, hashes) = self.ancestors(block.block.header.parent_hash)?;
        let by_digest = |all: &[Bytes]| -> HashMap<B256, Bytes> {
            all.iter().map(|bytes| (keccak256(bytes), bytes.clone())).collect()
        };
        let state = WitnessState {
            now: PartialState::new(parent.state_root),
            layers: Vec::new(),
            nodes: Nodes(by_digest(&self.state)),
            codes: by_digest(&self.codes),
        };
        let head = Head::new(parent, hash, total_difficulty);
        let mut replay = Replay::after(config.clone(), state, head, hashes);
        let report = replay.block(block).map_err(|error| WitnessError::Check(Box::new(error)))?;
        report.ok_or_else(|| WitnessError::Header {
            index: self.headers.len() - 1,
            what: "it is the block's own".to_owned(),
        })
    }

    /// The parent with its hash, and the hashes of all blocks that are known.
    fn ancestors(&self, parent_hash: B256) -> Result<(Header, B256, BlockHashes), WitnessError> {
        let mut hashes = BlockHashes::default();
        let mut last: Option<(Header, B256)> = None;
        for (index, mut rlp) in self.headers.iter().map(|header| &header[..]).enumerate() {
            let wrong = |what: String| WitnessError::Header { index, what };
            let hash = keccak256(rlp);
            let header = Header::decode(&mut rlp).map_err(|error| wrong(error.to_string()))?;
            if !rlp.is_empty() {
                return Err(wrong("bytes follow it".to_owned()));
            }
            if let Some((before, before_hash)) = &last
                && (header.parent_hash != *before_hash
                    || before.number.checked_add(1) != Some(header.number))
            {
                return Err(wrong("it does not follow the one before it".to_owned()));
            }
            hashes.push(header.number, hash);
            last = Some((header, hash));
        }
        match last {
            Some((parent, hash)) if hash == parent_hash => Ok((parent, hash, hashes)),
            last => Err(WitnessError::Header {
                index: self.headers.len().saturating_sub(1),
                what: match last {
                    Some((_, hash)) => format!("its hash is {hash}, the parent's is {parent_hash}"),
                    None => "there is none".to_owned(),
                },
            }),
        }
    }
}

/// The nodes of a witness by their digests.
#[derive(Debug)]
struct Nodes(HashMap<B256, Bytes>);

impl StateNodes for Nodes {
    fn node(&self, _: Option<B256>, digest: &[u8; 32], _: &[u8]) -> Option<Arc<[u8]>> {
        self.0.get(&B256::from(*digest)).map(|rlp| Arc::from(&rlp[..]))
    }
}

/// The state before a block as far as a witness has it, and what was applied since.
#[derive(Debug)]
struct WitnessState {
    now: PartialState,
    /// What the state was before each layer.
    layers: Vec<PartialState>,
    nodes: Nodes,
    codes: HashMap<B256, Bytes>,
}

impl StateRead for WitnessState {
    type Error = WitnessStateError;

    fn account(&self, address: Address) -> Result<Option<Account>, WitnessStateError> {
        let account = self.now.account(&self.nodes, keccak256(address))?;
        Ok(account.map(|account| Account {
            nonce: account.nonce,
            balance: account.balance,
            code_hash: account.code_hash,
        }))
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, WitnessStateError> {
        self.now.slot(&self.nodes, keccak256(address), keccak256(slot))
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, WitnessStateError> {
        if hash == EMPTY_CODE_HASH {
            return Ok(Some(Bytes::new()));
        }
        Ok(self.codes.get(&hash).cloned())
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
        let account = self.now.account(&self.nodes, keccak256(address))?;
        Ok(account.is_some_and(|account| account.storage_root != EMPTY_ROOT_HASH))
    }

    fn commit(&mut self) -> Result<(), WitnessStateError> {
        self.layers.clear();
        Ok(())
    }
}
