//! Where blocks of a file begin to be executed on the state of a node.

use alloy_primitives::B256;
use spinney_replay::{ChainBlock, Genesis, SourceError};
use spinney_tree::BlockId;

use crate::block_name::BlockName;
use crate::node::Node;
use crate::remote::{RemoteBlock, RemoteError};

/// A block whose state the node has, and what comes before it.
#[derive(Debug)]
#[non_exhaustive]
pub struct RemoteStart<'n> {
    /// The block.
    pub block: RemoteBlock<'n>,
    /// Its hash.
    pub hash: B256,
    /// The block and those before it, where the file does not have them.
    pub before: Vec<ChainBlock>,
}

/// Why there is no such block.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteStartError {
    /// The file could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The node does not have it, or did not answer.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The file is empty.
    #[error("there is no block")]
    NoBlock,
    /// The block that is wanted is neither in the file nor right before it.
    #[error("there are blocks {first} to {last}, and not {wanted}")]
    NotThere {
        /// The first block of the file.
        first: u64,
        /// The last one.
        last: u64,
        /// The block that is wanted.
        wanted: BlockName,
    },
}

impl<'n> RemoteStart<'n> {
    /// Looks for the block that is wanted among those of a file, or right before them, which is
    /// where it is unless one is named.
    ///
    /// # Errors
    /// If it is not there, or the file or the node fails.
    pub fn find(
        node: &'n Node,
        genesis: &Genesis,
        blocks: impl Iterator<Item = Result<ChainBlock, SourceError>>,
        wanted: Option<BlockName>,
    ) -> Result<Self, RemoteStartError> {
        let mut blocks = blocks
            .skip_while(|block| block.as_ref().is_ok_and(|block| block.block.header.number == 0));
        let first = blocks.next().transpose()?.ok_or(RemoteStartError::NoBlock)?;
        let start = first.block.header.number;
        let parent = start.saturating_sub(1);
        // A tag is what the node says; from there on it is a block like others.
        let wanted = match wanted {
            Some(tag @ BlockName::Tag(_)) => {
                let told = RemoteBlock::find(node, tag, None)?;
                told.hash().map_or_else(|| BlockName::Number(told.number()), BlockName::Hash)
            }
            Some(named) => named,
            None => BlockName::Number(parent),
        };
        let is_it = |number: u64, hash: B256| match wanted {
            BlockName::Number(wanted) => wanted == number,
            BlockName::Hash(wanted) => wanted == hash,
            BlockName::Tag(_) => false,
        };
        let parent_hash = first.block.header.parent_hash;
        if is_it(parent, parent_hash) {
            return Ok(Self::before(node, genesis, (parent, parent_hash))?);
        }
        let mut last = start;
        for block in std::iter::once(Ok(first)).chain(blocks) {
            let block = block?;
            last = block.block.header.number;
            if is_it(last, block.hash) {
                return Ok(Self::within(node, &block, start));
            }
        }
        Err(RemoteStartError::NotThere { first: start, last, wanted })
    }

    /// The block right before the first one of the file.
    fn before(
        node: &'n Node,
        genesis: &Genesis,
        (number, hash): (u64, B256),
    ) -> Result<Self, RemoteError> {
        if number == 0 {
            // That it is the genesis of these blocks is checked when the first of them comes.
            let id = BlockId { number, hash: genesis.hash.0 };
            let block = RemoteBlock::known(node, id, genesis.header.state_root);
            return Ok(Self { block, hash: genesis.hash, before: Vec::new() });
        }
        let block = RemoteBlock::find(node, BlockName::Hash(hash), None)?;
        let before = block.ancestors()?;
        Ok(Self { block, hash, before })
    }

    /// A block of the file, which begins with block `start`.
    fn within(node: &'n Node, found: &ChainBlock, start: u64) -> Self {
        let (number, hash) = (found.block.header.number, found.hash);
        let id = BlockId { number, hash: hash.0 };
        let block = RemoteBlock::known(node, id, found.block.header.state_root);
        // Hashes of blocks before the file may be asked for; not every node tells them.
        let before = match start {
            1 => Vec::new(),
            _ => block.ancestors().unwrap_or_default(),
        };
        Self { block, hash, before }
    }
}
