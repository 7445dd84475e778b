//! What differs where a block's root does not fit: the block is executed once more, beside the
//! state, and what comes out is compared with what the node says of its state.

use std::time::Duration;

use alloy_primitives::{Address, B256, Bytes, U256};
use spinney_replay::{Genesis, Replay, SealedBlock, WorldState};
use spinney_state::{Account, Changes, KeptState, State, StateError, StateRead};
use spinney_tree::PageStore;

use crate::bisect::{BisectOptions, Divergence, bisect_executed};
use crate::blocks::known_blocks;
use crate::node::Node;

/// What may be spent on it: who follows waits for the reason why it ends.
const TIME: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(2);
const ASKS_MAX: u64 = 256;
const HASHES_MAX: u64 = 1 << 22;

/// What differs after a block whose root is not that of its header. `state` stands at the block
/// before. `None` where the node does not say, or now has another block.
pub(crate) fn explain<P: PageStore>(
    (node, genesis): (&Node, &Genesis),
    state: &State<P>,
    (number, hash): (u64, B256),
) -> Option<Divergence> {
    let node = Node::within(node.url().clone(), ANSWER);
    let head = state.block().filter(|head| head.number.checked_add(1) == Some(number))?;
    let known = known_blocks(&node, head).ok()?;
    let block = node.blocks(number..number.checked_add(1)?).ok()?.pop()?;
    if block.hash != hash {
        return None;
    }
    let layers = vec![state.at(head.number).ok()?];
    let mut replay =
        Replay::resume(genesis, Ahead { layers }, head.number, head.hash.into()).ok()?;
    for known in &known {
        replay.block(known).ok()?;
    }
    let report = replay.block(&block).ok()??;
    let ours = replay.into_state().layers.pop()?;
    let mut options = BisectOptions::default();
    (options.asks_max, options.hashes_max) = (ASKS_MAX, HASHES_MAX);
    options.time = Some(TIME);
    bisect_executed(&node, number, (ours, &report.changes), &options).ok()
}

/// A state that blocks are executed on, and whose roots are compared with no header's.
struct Ahead<'a, P: PageStore> {
    /// The state below, and one for each layer.
    layers: Vec<KeptState<'a, P>>,
}

impl<'a, P: PageStore> Ahead<'a, P> {
    fn top(&self) -> &KeptState<'a, P> {
        self.layers.last().expect("the state below all layers stays")
    }
}

impl<P: PageStore> StateRead for Ahead<'_, P> {
    type Error = StateError;

    fn account(&self, address: Address) -> Result<Option<Account>, StateError> {
        self.top().account(address)
    }

    fn storage(&self, address: Address, slot: B256) -> Result<U256, StateError> {
        self.top().storage(address, slot)
    }

    fn code(&self, hash: B256) -> Result<Option<Bytes>, StateError> {
        self.top().code(hash)
    }
}

impl<P: PageStore> WorldState for Ahead<'_, P> {
    fn apply(&mut self, changes: &Changes) -> Result<B256, StateError> {
        let next = self.top().apply(changes)?;
        let root = next.root();
        self.layers.push(next);
        Ok(root)
    }

    /// So that a root which does not fit is no error.
    fn own_root(&self) -> Option<B256> {
        Some(self.top().root())
    }

    fn layer_count(&self) -> usize {
        self.layers.len().saturating_sub(1)
    }

    fn undo_to(&mut self, layer_count: usize) -> Result<(), StateError> {
        self.layers.truncate(layer_count.saturating_add(1));
        Ok(())
    }

    fn seal(&mut self, _: &SealedBlock<'_>) -> Result<(), StateError> {
        Ok(())
    }

    fn has_storage(&self, address: Address) -> Result<bool, StateError> {
        self.top().has_storage(address)
    }

    fn commit(&mut self) -> Result<(), StateError> {
        Ok(())
    }
}
