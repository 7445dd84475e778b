//! A store as a side: its trie at a block that it keeps, or one that is to follow.

use alloy_primitives::{Address, B256, U256};
use spinney_state::{KeptState, State, StateError, StateRead as _};
use spinney_tree::{PageStore, Snapshot as _, Table};

use super::error::BisectError;
use super::found::BlockSeen;
use super::names::Names;
use super::path::{begins, least};
use super::side::{Nodes, Owner, Side, SideState};

/// So many entries are looked at for one whose name is stored.
const ENTRIES_MAX: usize = 64;

const NAME: &str = "the store";

/// The blocks that a store keeps.
pub(super) struct StoreSide<'a, P: PageStore>(pub(super) &'a State<P>);

impl<P: PageStore> Side for StoreSide<'_, P> {
    fn name(&self) -> String {
        NAME.into()
    }

    fn blocks(&self) -> Result<(u64, u64), BisectError> {
        let kept = self.0.kept()?.ok_or(BisectError::NoState)?;
        Ok((kept.oldest.number, kept.newest.number))
    }

    fn block(&self, number: u64) -> Result<BlockSeen, BisectError> {
        let kept = self.0.at(number)?;
        let hash = kept.block().map(|block| block.hash.into());
        Ok(BlockSeen { number, hash, root: kept.root() })
    }

    fn state(&self, block: &BlockSeen) -> Result<Box<dyn SideState + '_>, BisectError> {
        Ok(Box::new(StoreState { kept: self.0.at(block.number)?, name: NAME }))
    }
}

/// A state in a store.
pub(super) struct StoreState<'a, P: PageStore> {
    pub(super) kept: KeptState<'a, P>,
    pub(super) name: &'static str,
}

impl<P: PageStore> StoreState<'_, P> {
    fn nodes(&self, key: &[u8]) -> Result<Nodes, BisectError> {
        let Self { kept, .. } = self;
        let nodes = kept.tree().path_nodes(kept.snapshot(), kept.pending(), &[key]);
        Ok(nodes.map_err(StateError::from)?.iter().map(<[u8]>::to_vec).collect())
    }

    /// What is stored behind a hash.
    fn name_of<const N: usize>(&self, hash: &[u8]) -> Result<Option<[u8; N]>, BisectError> {
        let row = self.kept.snapshot().read(Table::Preimages, hash).map_err(StateError::from)?;
        Ok(row.and_then(|row| row.as_ref().try_into().ok()))
    }

    /// The first key of the trie from `start` on.
    fn first_from(&self, start: &[u8]) -> Result<Option<Vec<u8>>, BisectError> {
        let Self { kept, .. } = self;
        let mut entries = kept.tree().entries(kept.snapshot(), kept.pending(), start);
        let first = entries.next().transpose().map_err(StateError::from)?;
        Ok(first.map(|entry| entry.key))
    }

    /// What is stored behind the first key that begins with `above` and these digits, and has a
    /// name. Keys are `above` and a hash; what else lies between two of them is passed over.
    fn first_name<const N: usize>(
        &self,
        above: &[u8],
        path: &[u8],
    ) -> Result<Option<[u8; N]>, BisectError> {
        let mut start = least(path);
        if path.len() == 64 {
            return self.name_of(start.as_slice());
        }
        for _ in 0..ENTRIES_MAX {
            let first = self.first_from(&[above, start.as_slice()].concat())?;
            let hash = first.as_deref().and_then(|key| key.strip_prefix(above)?.first_chunk());
            let Some(hash) = hash.map(B256::from).filter(|hash| begins(hash, path)) else { break };
            let name = self.name_of(hash.as_slice())?;
            let next = B256::from(U256::from_be_bytes(hash.0).saturating_add(U256::ONE));
            if name.is_some() || next == hash {
                return Ok(name);
            }
            start = next;
        }
        Ok(None)
    }
}

impl<P: PageStore> SideState for StoreState<'_, P> {
    fn name(&self) -> String {
        self.name.into()
    }

    fn is_asked_by_name(&self) -> bool {
        false
    }

    fn account_nodes(&self, path: &[u8], _: Option<Address>) -> Result<Nodes, BisectError> {
        self.nodes(least(path).as_slice())
    }

    fn slot_nodes(
        &self,
        owner: &Owner,
        path: &[u8],
        _: Option<B256>,
    ) -> Result<Nodes, BisectError> {
        self.nodes(&[owner.key.as_slice(), least(path).as_slice()].concat())
    }

    fn name_accounts(&self, path: &[u8], names: &mut Names) -> Result<(), BisectError> {
        let name = self.first_name::<20>(&[], path)?;
        name.into_iter().for_each(|address| names.add_account(address.into()));
        Ok(())
    }

    fn name_slots(&self, owner: &Owner, path: &[u8], names: &mut Names) -> Result<(), BisectError> {
        let name = self.first_name::<32>(owner.key.as_slice(), path)?;
        name.into_iter().for_each(|slot| names.add_slot(slot.into()));
        Ok(())
    }

    fn name_touched(&self, _: &mut Names) -> Result<(), BisectError> {
        Ok(())
    }

    fn code_len(&self, _: &Owner, hash: B256) -> Result<Option<usize>, BisectError> {
        Ok(self.kept.code(hash)?.map(|code| code.len()))
    }
}
