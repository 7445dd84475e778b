//! The first block, account and slot in which a node and a store, or two nodes, differ.
//!
//! The block comes first, by halving the range of blocks that both sides keep; then both tries of
//! accounts are followed from their roots along what differs, and then those of slots. Of a node
//! only proofs are taken, and each has to hold under the state root of the node's own header.
//!
//! A node is asked by addresses and slots, and a trie is followed by their hashes. So a name is
//! needed for whatever digits differ. It is taken from the block, then from the store, then from a
//! node that tells names (`debug_accountRange`, `debug_storageRangeAt`), and last made up: any
//! bytes whose hash begins with the digits lead to the node of the trie that is wanted.

mod blocks;
mod budget;
mod descent;
mod error;
mod found;
mod names;
mod node_side;
mod path;
mod search;
mod side;
mod store_side;

use std::time::{Duration, Instant};

use spinney_state::{Changes, KeptState, State};
use spinney_tree::PageStore;

use self::blocks::{common, first_parted};
pub(crate) use self::budget::Budget;
use self::descent::{Descent, Found};
pub use self::error::BisectError;
pub use self::found::{
    AccountDifference, AccountSeen, Bisected, BlockSeen, DifferenceRow, Divergence, SlotDifference,
};
pub(crate) use self::names::Names;
use self::node_side::NodeSide;
pub(crate) use self::path::{begins, least};
pub(crate) use self::search::bytes_under;
use self::side::{Side, SideState};
use self::store_side::{StoreSide, StoreState};
use crate::node::Node;

/// How far a bisection goes.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct BisectOptions {
    /// The first block to compare; the first one that both sides keep unless told.
    pub from: Option<u64>,
    /// The last one.
    pub to: Option<u64>,
    /// So many accounts, and so many slots of each, are told; at least one.
    pub limit: usize,
    /// So many questions may be asked of nodes.
    pub asks_max: u64,
    /// So many hashes may be made to find bytes to ask by: with 2^27, six digits are found.
    pub hashes_max: u64,
    /// No question is asked after so long.
    pub time: Option<Duration>,
}

impl Default for BisectOptions {
    fn default() -> Self {
        Self { from: None, to: None, limit: 1, asks_max: 10_000, hashes_max: 1 << 27, time: None }
    }
}

impl BisectOptions {
    fn budget(&self) -> Budget {
        let until = self.time.and_then(|time| Instant::now().checked_add(time));
        Budget::new(self.asks_max, self.hashes_max, until)
    }
}

/// Compares a node with a state in a store: the node is the first side.
///
/// # Errors
/// See [`BisectError`]. That they differ is an answer, and no error.
pub fn bisect_store<P: PageStore>(
    node: &Node,
    state: &State<P>,
    options: &BisectOptions,
) -> Result<Bisected, BisectError> {
    let budget = options.budget();
    bisect([&NodeSide::new(node, &budget), &StoreSide(state)], &budget, options)
}

/// Compares two nodes.
///
/// # Errors
/// See [`BisectError`].
pub fn bisect_nodes(
    left: &Node,
    right: &Node,
    options: &BisectOptions,
) -> Result<Bisected, BisectError> {
    let budget = options.budget();
    let (left, right) = (NodeSide::new(left, &budget), NodeSide::new(right, &budget));
    bisect([&left, &right], &budget, options)
}

fn bisect(
    sides: [&dyn Side; 2],
    budget: &Budget,
    options: &BisectOptions,
) -> Result<Bisected, BisectError> {
    let (first, last) = common(sides, (options.from, options.to))?;
    let Some(parted) = first_parted(sides, (first, last))? else {
        return Ok(Bisected { first, last, divergence: None, asks: budget.asks() });
    };
    let [left, right] = sides;
    let [seen_left, seen_right] = &parted.seen;
    let states = [left.state(seen_left)?, right.state(seen_right)?];
    let allowed = (budget, options.limit);
    let divergence = descend(states, Names::known(), allowed, (parted.seen, parted.is_first))?;
    Ok(Bisected { first, last, divergence: Some(divergence), asks: budget.asks() })
}

fn descend<'a>(
    states: [Box<dyn SideState + 'a>; 2],
    names: Names,
    (budget, limit): (&'a Budget, usize),
    ([left, right], is_first): ([BlockSeen; 2], bool),
) -> Result<Divergence, BisectError> {
    let mut descent = Descent::new(states, names, (budget, limit.max(1)));
    let found = descent.accounts([left.root, right.root])?;
    let Found { differences: accounts, is_all, hidden } = found;
    Ok(Divergence { block: left.number, is_first, left, right, accounts, is_all, hidden })
}

/// Compares a node's state after a block with one that is not in the store: the node's block, and
/// the state that executing it came to, with what the execution changed.
pub(crate) fn bisect_executed<P: PageStore>(
    node: &Node,
    number: u64,
    (ours, changes): (KeptState<'_, P>, &Changes),
    options: &BisectOptions,
) -> Result<Divergence, BisectError> {
    let budget = options.budget();
    let side = NodeSide::new(node, &budget);
    let left = side.block(number)?;
    let right = BlockSeen { number, hash: left.hash, root: ours.root() };
    let mut names = Names::known();
    names.add_changes(changes);
    let ours = StoreState { kept: ours, name: "the execution" };
    let states: [Box<dyn SideState + '_>; 2] = [side.state(&left)?, Box::new(ours)];
    descend(states, names, (&budget, options.limit), ([left, right], true))
}
