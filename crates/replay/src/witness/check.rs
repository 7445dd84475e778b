//! Executing a block on nothing but its witness.

use alloy_consensus::Header;
use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_rlp::Decodable as _;

use super::{Witness, WitnessError, WitnessState};
use crate::{
    config::ChainConfig, evm::BlockHashes, replay::Replay, report::BlockReport, rules::Head,
    source::ChainBlock,
};

impl Witness {
    /// Executes `block` on the witness alone and checks all that its header says, the state root
    /// included. `total_difficulty` is that of the block's ancestors: with the chain's rules it
    /// names the fork, and no witness can tell it.
    ///
    /// # Errors
    /// If a node, a code or a header is missing or malformed, or the block does not do what it
    /// says.
    pub fn check(
        &self,
        config: &ChainConfig,
        total_difficulty: U256,
        block: &ChainBlock,
    ) -> Result<BlockReport, WitnessError> {
        let ancestors = WitnessAncestors::of(&self.headers, block.block.header.parent_hash)?;
        let state = WitnessState::new(self, ancestors.parent.state_root);
        execute(config, total_difficulty, block, state, ancestors).report
    }
}

/// How an execution on a witness went.
#[derive(Debug)]
pub(super) struct WitnessExecution {
    pub(super) report: Result<BlockReport, WitnessError>,
    pub(super) state: WitnessState,
    /// The oldest block whose hash was told.
    pub(super) oldest: Option<u64>,
    /// The oldest block whose hash was asked for and not known.
    pub(super) lacked: Option<u64>,
}

/// Executes a block on a state, and gives that back.
pub(super) fn execute(
    config: &ChainConfig,
    total_difficulty: U256,
    block: &ChainBlock,
    state: WitnessState,
    ancestors: WitnessAncestors,
) -> WitnessExecution {
    let WitnessAncestors { parent, hash, hashes, count } = ancestors;
    let head = Head::new(parent, hash, total_difficulty);
    let mut replay = Replay::after(config.clone(), state, head, hashes);
    let report = match replay.block(block) {
        Ok(Some(report)) => Ok(report),
        Ok(None) => {
            let what = "it is the block's own".to_owned();
            Err(WitnessError::Header { index: count.saturating_sub(1), what })
        }
        Err(error) => Err(WitnessError::Check(Box::new(error))),
    };
    let hashes = replay.hashes();
    let (oldest, lacked) = (hashes.take_oldest_told(), hashes.take_oldest_lacked());
    WitnessExecution { report, state: replay.into_state(), oldest, lacked }
}

/// The parent with its hash, and the hashes of all blocks that are known.
#[derive(Debug)]
pub(super) struct WitnessAncestors {
    pub(super) parent: Header,
    pub(super) hash: B256,
    pub(super) hashes: BlockHashes,
    /// How many headers there are.
    pub(super) count: usize,
}

impl WitnessAncestors {
    pub(super) fn of(headers: &[Bytes], parent_hash: B256) -> Result<Self, WitnessError> {
        let found = Self::any(headers)?;
        if found.hash == parent_hash {
            return Ok(found);
        }
        let what = format!("its hash is {}, the parent's is {parent_hash}", found.hash);
        Err(WitnessError::Header { index: found.count - 1, what })
    }

    /// The same of whatever block they are the ancestors of.
    pub(super) fn any(headers: &[Bytes]) -> Result<Self, WitnessError> {
        let mut hashes = BlockHashes::default();
        let mut last: Option<(Header, B256)> = None;
        for (index, mut rlp) in headers.iter().map(|header| &header[..]).enumerate() {
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
        let none = || WitnessError::Header { index: 0, what: "there is none".to_owned() };
        let (parent, hash) = last.ok_or_else(none)?;
        Ok(Self { parent, hash, hashes, count: headers.len() })
    }
}
