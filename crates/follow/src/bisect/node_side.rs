//! A node as a side: what it says of its state is proven under the root of its own header.

use std::cell::Cell;

use alloy_primitives::{Address, B256, keccak256};
use spinney_proof::mpt::AccountProof;

use super::budget::Budget;
use super::error::BisectError;
use super::found::BlockSeen;
use super::names::Names;
use super::path::least;
use super::side::{Nodes, Owner, Side, SideState};
use crate::again::asked;
use crate::error::NodeError;
use crate::node::Node;

/// A node, and what it may be asked.
pub(super) struct NodeSide<'a> {
    node: &'a Node,
    budget: &'a Budget,
    /// Whether it has methods that name accounts and slots; it has until it says no.
    names_accounts: Cell<bool>,
    names_slots: Cell<bool>,
}

impl<'a> NodeSide<'a> {
    pub(super) const fn new(node: &'a Node, budget: &'a Budget) -> Self {
        let (names_accounts, names_slots) = (Cell::new(true), Cell::new(true));
        Self { node, budget, names_accounts, names_slots }
    }

    fn ask<T>(&self, ask: impl Fn(&Node) -> Result<T, NodeError>) -> Result<T, BisectError> {
        match asked(|| self.budget.takes_ask(), || ask(self.node)) {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(error)) => {
                let (side, error) = (self.node.url().to_string(), error.into());
                Err(BisectError::Node { side, error })
            }
            None => Err(BisectError::Unfinished { asks: self.budget.asks() }),
        }
    }

    /// Asks for what is not needed: a node that refuses does not have it, and is not asked again.
    fn ask_if<T>(
        &self,
        has: &Cell<bool>,
        ask: impl Fn(&Node) -> Result<T, NodeError>,
    ) -> Result<Option<T>, BisectError> {
        if !has.get() {
            return Ok(None);
        }
        match self.ask(ask) {
            Ok(answer) => Ok(Some(answer)),
            Err(BisectError::Node { error, .. })
                if matches!(*error, NodeError::Refused { .. } | NodeError::Answer { .. }) =>
            {
                has.set(false);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

impl Side for NodeSide<'_> {
    fn name(&self) -> String {
        self.node.url().to_string()
    }

    fn blocks(&self) -> Result<(u64, u64), BisectError> {
        Ok((0, self.ask(Node::head)?.number))
    }

    fn block(&self, number: u64) -> Result<BlockSeen, BisectError> {
        let header = self.ask(|node| node.header(number))?;
        let missing = || BisectError::NoBlock { side: self.name(), block: number };
        let header = header.ok_or_else(missing)?;
        Ok(BlockSeen { number, hash: Some(header.hash_slow()), root: header.state_root })
    }

    fn state(&self, block: &BlockSeen) -> Result<Box<dyn SideState + '_>, BisectError> {
        Ok(Box::new(NodeState { side: self, block: *block }))
    }
}

struct NodeState<'a> {
    side: &'a NodeSide<'a>,
    block: BlockSeen,
}

impl NodeState<'_> {
    fn proof(&self, address: Address, slots: &[B256]) -> Result<AccountProof, BisectError> {
        let BlockSeen { number, root, .. } = self.block;
        let proof = self.side.ask(|node| node.proof(address, slots, number))?;
        match proof.verify(&root) {
            Ok(_) => Ok(proof),
            Err(error) => Err(BisectError::Proof {
                side: self.name(),
                address,
                block: number,
                root,
                error: error.into(),
            }),
        }
    }
}

impl SideState for NodeState<'_> {
    fn name(&self) -> String {
        self.side.name()
    }

    fn is_asked_by_name(&self) -> bool {
        true
    }

    fn account_nodes(&self, _: &[u8], name: Option<Address>) -> Result<Nodes, BisectError> {
        let Some(address) = name else { return Ok(Nodes::new()) };
        Ok(self.proof(address, &[])?.account_proof.into_nodes())
    }

    fn slot_nodes(
        &self,
        owner: &Owner,
        _: &[u8],
        name: Option<B256>,
    ) -> Result<Nodes, BisectError> {
        let (Some(address), Some(slot)) = (owner.address, name) else { return Ok(Nodes::new()) };
        let proofs = self.proof(address, &[slot])?.storage_proof;
        Ok(proofs.into_iter().flat_map(|slot| slot.proof.into_nodes()).collect())
    }

    fn name_accounts(&self, path: &[u8], names: &mut Names) -> Result<(), BisectError> {
        let (start, number) = (least(path), self.block.number);
        let ask = |node: &Node| node.accounts_from(start, number);
        let named = self.side.ask_if(&self.side.names_accounts, ask)?;
        named.into_iter().flatten().for_each(|address| names.add_account(address));
        Ok(())
    }

    fn name_slots(&self, owner: &Owner, path: &[u8], names: &mut Names) -> Result<(), BisectError> {
        let Some(address) = owner.address else { return Ok(()) };
        let (start, has) = (least(path), &self.side.names_slots);
        // The state after the block is the one before the next one's first transaction; where there
        // is no next one yet, that of the block itself knows most names.
        let next = self.block.number.saturating_add(1);
        let next = self.side.ask(|node| node.header(next))?.map(|header| header.hash_slow());
        let Some(block) = next.or(self.block.hash) else { return Ok(()) };
        let named = self.side.ask_if(has, |node| node.slots_from(address, start, block))?;
        named.into_iter().flatten().for_each(|slot| names.add_slot(slot));
        Ok(())
    }

    fn name_touched(&self, names: &mut Names) -> Result<(), BisectError> {
        let (number, has) = (self.block.number, Cell::new(true));
        let ask = |node: &Node| node.blocks(number..number.saturating_add(1));
        let blocks = self.side.ask_if(&has, ask)?;
        blocks.into_iter().flatten().for_each(|block| names.add_block(&block));
        Ok(())
    }

    fn code_len(&self, owner: &Owner, hash: B256) -> Result<Option<usize>, BisectError> {
        let Some(address) = owner.address else { return Ok(None) };
        let number = self.block.number;
        let code = self.side.ask(|node| node.code(address, number))?;
        let found = keccak256(&code);
        match found == hash {
            true => Ok(Some(code.len())),
            false => Err(BisectError::Code { side: self.name(), address, named: hash, found }),
        }
    }
}
