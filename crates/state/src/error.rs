//! Why a state refuses or fails.

use alloy_primitives::{Address, B256};
use spinney_pipeline::PipelineError;
use spinney_tree::mpt::MptState;
use spinney_tree::{BlockId, Scheme as _, SchemeId, StoreError, TreeError};

use crate::embed::EmbedError;

/// Why the state refused or failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// A tree beside the Merkle Patricia trie refused or failed.
    #[error("{tree}: {source}")]
    Beside {
        /// The tree.
        tree: SchemeId,
        /// What it says.
        source: Box<EmbedError>,
    },
    /// Blocks were applied together, and the root that came out is not the one of the last of them.
    #[error(
        "state root of block {last}, applied with those from block {first} on: expected \
         {expected}, got {found}"
    )]
    ChunkRoot {
        /// The first block of the chunk.
        first: u64,
        /// The last one, whose root it is.
        last: u64,
        /// The root that was given.
        expected: B256,
        /// The root that came out.
        found: B256,
    },
    /// An account is made again where a tree without a Merkle Patricia trie beside it still has
    /// slots of it.
    #[error(
        "account {address} is made again, and {tree} still holds slots of it: a tree that keeps \
         what was deleted cannot tell them from new ones"
    )]
    Remains {
        /// The account.
        address: Address,
        /// The tree.
        tree: SchemeId,
    },
    /// What was asked for is known to a Merkle Patricia trie alone, and the store holds none.
    #[error("the store holds {}, and this needs mpt", named_trees(.held))]
    NoMpt {
        /// The trees that it holds.
        held: Vec<SchemeId>,
    },
    /// An account or a slot of a first state came twice.
    #[error("{what} {name} is given twice")]
    Twice {
        /// An account or a slot.
        what: &'static str,
        /// The address, or the slot.
        name: String,
    },
    /// A first state was to be put into a store that holds a state, or changes, or other trees.
    #[error("the state is not an empty one of mpt alone")]
    NotEmpty,
    /// A first state has another root in the store than its accounts have.
    #[error("the state that was filled in has root {found}, and its accounts have {expected}")]
    Filled {
        /// That of the accounts.
        expected: B256,
        /// That of the pages.
        found: B256,
    },
    /// Code was given that is not behind its hash.
    #[error("account {address}: code of hash {found} where {expected} is named")]
    CodeHash {
        /// The account.
        address: Address,
        /// The hash named.
        expected: B256,
        /// The hash of the bytes.
        found: B256,
    },
    /// Blocks that were gathered go together, and one of them was to be taken back.
    #[error("{blocks} blocks are gathered, and can only be taken back together")]
    Gathered {
        /// How many.
        blocks: usize,
    },
    /// Changes could not be gathered, or a tree not be built anew.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// What the history says of a block makes no sense.
    #[error("the history of block {block} is damaged: {what}")]
    History {
        /// The block.
        block: u64,
        /// What is wrong with it.
        what: String,
    },
    /// The store holds trees that were not added: they would stay behind.
    #[error("the store also holds {}, which would stay behind", trees.join(", "))]
    LeftBehind {
        /// The trees.
        trees: Vec<String>,
    },
    /// What a tree holds under a key is no account or no slot.
    #[error("the tree holds 0x{bytes} where {what} belongs: the store is damaged")]
    Malformed {
        /// An account or a slot.
        what: String,
        /// The bytes found.
        bytes: String,
    },
    /// The store lacks what is behind a hashed key.
    #[error("no preimage of {hash} is stored")]
    NoPreimage {
        /// The hashed key.
        hash: B256,
    },
    /// The store lacks the code of an account.
    #[error(
        "the code of account {} is not stored: its hash is {hash}",
        named(.account, .address.as_ref())
    )]
    NoCode {
        /// The Keccak-256 digest of the account's address.
        account: B256,
        /// The address, where the store knows it.
        address: Option<Address>,
        /// The code's Keccak-256 digest.
        hash: B256,
    },
    /// The state of a block is not kept: see [`State::kept`](crate::State::kept).
    #[error("the store keeps no state of block {block}: {}", range(*.kept))]
    NotKept {
        /// The block that was asked for.
        block: u64,
        /// The oldest and the newest block whose state is kept, if any is.
        kept: Option<(u64, u64)>,
    },
    /// A tree is not where the others are. `None` is an empty tree, then a state of no block.
    #[error(
        "{tree} {}, and {} {}: trees of one store go together from its first block on",
        stands(*.found),
        short(*.first),
        stands(*.expected)
    )]
    OtherBlock {
        /// The tree.
        tree: SchemeId,
        /// The first tree of the store.
        first: SchemeId,
        /// The block whose state the tree holds.
        found: Option<Option<BlockId>>,
        /// The block of the first tree.
        expected: Option<Option<BlockId>>,
    },
    /// Taken back to a block, the state does not have the root that it had then.
    #[error("taken back to block {block}, the state has root {found}, and it had {expected} then")]
    UndoneRoot {
        /// The block.
        block: u64,
        /// The root that the history recorded.
        expected: B256,
        /// The root that came out.
        found: B256,
    },
    /// The witness of a block could not be made, or what the store keeps is none.
    #[error("the witness of block {block}: {what}")]
    Witness {
        /// The block.
        block: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A tree refused or failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

fn named_trees(held: &[SchemeId]) -> String {
    match held {
        [] => "no tree".into(),
        held => held.iter().map(|scheme| short(*scheme)).collect::<Vec<_>>().join(", "),
    }
}

/// A tree of a state, for messages.
pub(crate) fn short(scheme: SchemeId) -> String {
    if scheme == MptState.id() { "mpt".into() } else { scheme.to_string() }
}

/// Where a tree stands, for messages: nothing, a state of no block, or that of a block.
fn stands(at: Option<Option<BlockId>>) -> String {
    match at {
        None => "is empty".into(),
        Some(None) => "holds a state of no block".into(),
        // State differences name no hash; zeros stand for it.
        Some(Some(BlockId { number, hash })) if hash == [0; 32] => {
            format!("stands at block {number}")
        }
        Some(Some(BlockId { number, hash })) => {
            format!("stands at block {number} ({})", B256::from(hash))
        }
    }
}

fn range(kept: Option<(u64, u64)>) -> String {
    match kept {
        None => "it knows of no blocks".into(),
        Some((oldest, newest)) if oldest == newest => {
            format!("it has that of block {newest} alone")
        }
        Some((oldest, newest)) => format!("it has those of blocks {oldest} to {newest}"),
    }
}

impl From<StoreError> for StateError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}

/// An account by its address, else by the digest of it.
fn named(account: &B256, address: Option<&Address>) -> String {
    address.map_or_else(|| format!("with hashed address {account}"), ToString::to_string)
}
