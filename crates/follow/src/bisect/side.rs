//! What a bisection asks of each side.

use alloy_primitives::{Address, B256};

use super::error::BisectError;
use super::found::BlockSeen;
use super::names::Names;

/// A node, or a store.
pub(super) trait Side {
    /// How it is called.
    fn name(&self) -> String;

    /// The first and the last block that it may have the state of.
    fn blocks(&self) -> Result<(u64, u64), BisectError>;

    /// A block.
    fn block(&self, number: u64) -> Result<BlockSeen, BisectError>;

    /// The state after a block.
    fn state(&self, block: &BlockSeen) -> Result<Box<dyn SideState + '_>, BisectError>;
}

/// The RLP of nodes of a trie.
pub(super) type Nodes = Vec<Vec<u8>>;

/// An account whose storage is looked into.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) key: B256,
    pub(super) address: Option<Address>,
}

/// The state of a side after a block.
pub(super) trait SideState {
    /// How the side is called.
    fn name(&self) -> String;

    /// Whether it has to be asked by addresses and slots, and not by their hashes.
    fn is_asked_by_name(&self) -> bool;

    /// Nodes of the trie of accounts on the way to these digits. `name` is an address whose hash
    /// begins with them: the one to ask by.
    fn account_nodes(&self, path: &[u8], name: Option<Address>) -> Result<Nodes, BisectError>;

    /// The same in the storage of an account.
    fn slot_nodes(
        &self,
        owner: &Owner,
        path: &[u8],
        name: Option<B256>,
    ) -> Result<Nodes, BisectError>;

    /// Names some accounts whose hashes begin with these digits, as far as it knows them.
    fn name_accounts(&self, path: &[u8], names: &mut Names) -> Result<(), BisectError>;

    /// The same for slots of an account.
    fn name_slots(&self, owner: &Owner, path: &[u8], names: &mut Names) -> Result<(), BisectError>;

    /// Names whom the block touches, as far as it knows.
    fn name_touched(&self, names: &mut Names) -> Result<(), BisectError>;

    /// Bytes of the code with this hash, which is that of the account; `None` where it does not
    /// have it.
    fn code_len(&self, owner: &Owner, hash: B256) -> Result<Option<usize>, BisectError>;
}
