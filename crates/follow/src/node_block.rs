//! Blocks as `eth_getBlockByNumber` gives them, with all of their transactions.

use alloy_consensus::{Block, BlockBody, Header};
use alloy_eips::eip4895::Withdrawals;
use alloy_primitives::B256;
use serde::Deserialize;
use spinney_replay::{ChainBlock, Transaction};

use crate::error::NodeError;

/// What of a block is needed to make it again, and the hash that it has to have then.
#[derive(Deserialize)]
pub(crate) struct NodeBlock {
    hash: B256,
    #[serde(flatten)]
    header: Header,
    transactions: Vec<Transaction>,
    #[serde(default)]
    uncles: Vec<B256>,
    withdrawals: Option<Withdrawals>,
}

impl NodeBlock {
    pub(crate) fn ommer_count(&self) -> usize {
        self.uncles.len()
    }

    pub(crate) fn into_block(self, ommers: Vec<Header>) -> Result<ChainBlock, NodeError> {
        let Self { hash, header, transactions, withdrawals, .. } = self;
        let body = BlockBody { transactions, ommers, withdrawals };
        let block = ChainBlock::new(Block { header, body });
        if block.hash != hash {
            let what = format!(
                "block {}: its fields have the hash {}, and the node says {hash}",
                block.block.header.number, block.hash
            );
            return Err(NodeError::answer("eth_getBlockByNumber", what));
        }
        Ok(block)
    }
}

/// A block of which only the header is known: enough to follow one that is in the state already.
pub(crate) fn header_alone(header: Header) -> ChainBlock {
    ChainBlock::new(Block { header, body: BlockBody::default() })
}
