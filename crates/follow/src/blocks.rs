//! A node's blocks, as a replay takes them.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use alloy_primitives::B256;
use spinney_replay::{ChainBlock, SourceError};
use spinney_tree::BlockId;

use crate::error::NodeError;
use crate::node::Node;

/// So many blocks are asked for at once: of the longest that the rules allow, they fit into an
/// answer.
const BLOCKS_AT_ONCE: u64 = 8;
/// So many headers.
const HEADERS_AT_ONCE: u64 = 64;
/// Contracts may ask for the hashes of so many blocks.
const HASHES: u64 = 256;

/// Blocks behind the one that a state stands at, each linked to the one before it.
///
/// It ends at the last one, when it is told to stop, and where the node fails: then it says why.
pub(crate) struct NodeBlocks<'a> {
    node: &'a Node,
    /// The blocks that the state has, first.
    ready: VecDeque<ChainBlock>,
    next: u64,
    last: u64,
    parent: B256,
    /// The node's last block, as it told of it.
    told: BlockId,
    stop: Option<&'a AtomicBool>,
    failed: &'a Mutex<Option<NodeError>>,
    until_listed: bool,
}

impl<'a> NodeBlocks<'a> {
    /// Blocks behind `head`, up to block `last`, of a node whose last one is `told`. `before` are
    /// those that are [known](known_blocks).
    pub(crate) fn new(
        (node, told): (&'a Node, BlockId),
        (before, head, last): (Vec<ChainBlock>, BlockId, u64),
        stop: Option<&'a AtomicBool>,
        failed: &'a Mutex<Option<NodeError>>,
    ) -> Self {
        let (next, parent) = (head.number.saturating_add(1), head.hash.into());
        let ready = before.into();
        Self { node, ready, next, last, parent, told, stop, failed, until_listed: false }
    }

    /// Whether the first block that the state does not have, and whose header names an access list,
    /// ends them.
    pub(crate) const fn until_listed(&mut self, until: bool) {
        self.until_listed = until;
    }

    fn fetch(&mut self) -> Result<(), NodeError> {
        let end = self.last.saturating_add(1).min(self.next.saturating_add(BLOCKS_AT_ONCE));
        let blocks = self.node.blocks(self.next..end)?;
        // Nothing of a chain that is not the one it tells of, as from behind a proxy of several
        // nodes.
        let is_other = |block: &&ChainBlock| {
            block.block.header.number == self.told.number && block.hash.0 != self.told.hash
        };
        if let Some(block) = blocks.iter().find(is_other) {
            let told = B256::from(self.told.hash);
            let what =
                format!("its block {} is {}, and it told of {told}", self.told.number, block.hash);
            return Err(NodeError::answer("blocks", what));
        }
        for block in blocks {
            if block.block.header.parent_hash != self.parent {
                return Err(unlinked(&block));
            }
            if self.until_listed && block.block.header.block_access_list_hash.is_some() {
                self.last = 0;
                return Ok(());
            }
            (self.next, self.parent) = (self.next.saturating_add(1), block.hash);
            self.ready.push_back(block);
        }
        Ok(())
    }
}

impl Iterator for NodeBlocks<'_> {
    type Item = Result<ChainBlock, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        // What is ready is given also when it is to stop: whoever takes it looks at that, and would
        // miss the block that the state stands at.
        let is_stopped = || self.stop.is_some_and(|stop| stop.load(Ordering::Relaxed));
        if self.ready.is_empty()
            && self.next <= self.last
            && !is_stopped()
            && let Err(error) = self.fetch()
        {
            // Blocks before it are good.
            self.last = 0;
            *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        }
        self.ready.pop_front().map(Ok)
    }
}

fn unlinked(block: &ChainBlock) -> NodeError {
    let number = block.block.header.number;
    let what = format!("its block {number} ({}) does not follow the one before it", block.hash);
    NodeError::answer("blocks", what)
}

/// The last blocks up to the one that a state stands at, whose hashes contracts may ask for.
pub(crate) fn known_blocks(node: &Node, head: BlockId) -> Result<Vec<ChainBlock>, NodeError> {
    let end = head.number.saturating_add(1);
    let mut start = end.saturating_sub(HASHES).max(1);
    let mut known: Vec<ChainBlock> = Vec::new();
    while start < end {
        let next = start.saturating_add(HEADERS_AT_ONCE).min(end);
        for block in node.headers(start..next)? {
            let parent = known.last().map(|parent| parent.hash);
            if parent.is_some_and(|parent| parent != block.block.header.parent_hash) {
                return Err(unlinked(&block));
            }
            known.push(block);
        }
        start = next;
    }
    match known.last() {
        Some(last) if last.hash != B256::from(head.hash) => {
            let what = format!("its block {} is another one by now", head.number);
            Err(NodeError::answer("blocks", what))
        }
        _ => Ok(known),
    }
}
