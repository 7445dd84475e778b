//! Which block of a chain a witness is of.

use alloy_primitives::{B256, keccak256};

use super::Witness;
use crate::error::SourceError;
use crate::source::{ChainBlock, ChainReader};

/// The blocks of a chain, looked up by their parents. Witnesses come in the order of blocks most
/// often, so it reads on from where it is, and once more from the start where that leads to none.
#[derive(Debug)]
pub struct BlockFinder<F> {
    open: F,
    blocks: Option<ChainReader<'static>>,
    /// The last block that was read: several witnesses may be of it.
    last: Option<ChainBlock>,
}

impl<F> BlockFinder<F> {
    /// Blocks that `open` reads from the start.
    pub const fn new(open: F) -> Self {
        Self { open, blocks: None, last: None }
    }

    /// The block that follows this one.
    ///
    /// # Errors
    /// If the blocks cannot be read.
    pub fn after<E>(&mut self, parent: B256) -> Result<Option<ChainBlock>, E>
    where
        F: FnMut() -> Result<ChainReader<'static>, E>,
        E: From<SourceError>,
    {
        let follows = |block: &ChainBlock| block.block.header.parent_hash == parent;
        if let Some(last) = self.last.as_ref().filter(|last| follows(last)) {
            return Ok(Some(last.clone()));
        }
        let goes_on = self.blocks.is_some();
        for again in [false, true] {
            if again && !goes_on {
                break;
            }
            if again || self.blocks.is_none() {
                self.blocks = Some((self.open)()?);
            }
            for block in self.blocks.iter_mut().flatten() {
                let block = block?;
                if follows(&block) {
                    self.last = Some(block.clone());
                    return Ok(Some(block));
                }
            }
        }
        Ok(None)
    }

    /// The block that follows a header of a witness: the last one of them, or, where they are in
    /// disorder, whichever has a child.
    ///
    /// # Errors
    /// If the blocks cannot be read.
    pub fn of_witness<E>(&mut self, witness: &Witness) -> Result<Option<ChainBlock>, E>
    where
        F: FnMut() -> Result<ChainReader<'static>, E>,
        E: From<SourceError>,
    {
        for rlp in witness.headers.iter().rev() {
            if let Some(block) = self.after(keccak256(rlp))? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }
}
