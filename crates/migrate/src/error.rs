//! Why a state could not be moved.

use alloy_primitives::{Address, B256, hex};
use spinney_pipeline::PipelineError;
use spinney_state::TreeName;
use spinney_state::embed::EmbedError;
use spinney_tree::{StoreError, TreeError};

use crate::file::FileError;

/// Why a state could not be moved, or is not what it should be. The source is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// Somebody asked the run to stop. It can go on.
    #[error("stopped; the same run goes on where it stood")]
    Stopped,
    /// A state is not moved from that tree to this one.
    #[error("there is no way from {from} to {to}")]
    NoWay {
        /// The tree that is read.
        from: TreeName,
        /// The tree that is made.
        to: TreeName,
    },
    /// A leaf of the trie that nobody knows the address or the slot of.
    #[error("no preimage of {}", leaf(.account, .slot.as_ref()))]
    NoPreimage {
        /// The hashed address.
        account: B256,
        /// The hashed slot key, of a slot.
        slot: Option<B256>,
    },
    /// A preimage of a leaf that is not there.
    #[error("a preimage too many: there is no {}", named(.address, .slot.as_ref()))]
    SurplusPreimage {
        /// The address.
        address: Address,
        /// The slot key, of a slot.
        slot: Option<B256>,
    },
    /// The code of an account is not known.
    #[error("account {address}: the code behind {hash} is missing")]
    NoCode {
        /// The account.
        address: Address,
        /// Its code hash.
        hash: B256,
    },
    /// The code of an account is not behind its hash, or its leaves are not those of the code.
    #[error("account {address}: the code behind {hash}: {what}")]
    Code {
        /// The account.
        address: Address,
        /// Its code hash.
        hash: B256,
        /// What is wrong.
        what: String,
    },
    /// The leaves of an account's fields, or of a slot, are none that the tree has.
    #[error("{}: {what}", named(.address, .slot.as_ref()))]
    Leaves {
        /// The account.
        address: Address,
        /// The slot key, of a slot.
        slot: Option<B256>,
        /// What is wrong.
        what: &'static str,
    },
    /// A leaf that belongs to no account with a preimage.
    #[error(
        "{tree}: the leaf 0x{} belongs to no account, slot or code with a preimage",
        hex::encode(.key)
    )]
    Stray {
        /// The tree.
        tree: String,
        /// The leaf's key.
        key: Vec<u8>,
    },
    /// Source and target have not the same number of something.
    #[error("{what}: {source_has} in the source, {target_has} in the target")]
    Count {
        /// Of what.
        what: &'static str,
        /// How many the source has.
        source_has: u64,
        /// How many the target has.
        target_has: u64,
    },
    /// A root is not the one that it has to be.
    #[error("root of {tree}: expected {expected}, got {found}")]
    Root {
        /// The tree.
        tree: String,
        /// What it has to be.
        expected: B256,
        /// What it is.
        found: B256,
    },
    /// The source holds no such tree.
    #[error("the source holds no {tree}")]
    NoTree {
        /// The tree.
        tree: String,
    },
    /// What the store holds makes no sense.
    #[error("the store holds {what} under 0x{}: it is damaged", hex::encode(.key))]
    Malformed {
        /// What it holds.
        what: &'static str,
        /// Where.
        key: Vec<u8>,
    },
    /// A file is refused.
    #[error(transparent)]
    File(#[from] FileError),
    /// A tree with an embedding refused or failed.
    #[error(transparent)]
    Embed(#[from] EmbedError),
    /// Sorting or building failed.
    #[error(transparent)]
    Pipeline(PipelineError),
    /// A tree refused or failed.
    #[error(transparent)]
    Tree(#[from] TreeError),
}

fn leaf(account: &B256, slot: Option<&B256>) -> String {
    match slot {
        None => format!("the account under {account}"),
        Some(slot) => format!("the slot under {slot} of the account under {account}"),
    }
}

fn named(address: &Address, slot: Option<&B256>) -> String {
    match slot {
        None => format!("account {address}"),
        Some(slot) => format!("account {address}, slot {slot}"),
    }
}

impl From<StoreError> for MigrateError {
    fn from(error: StoreError) -> Self {
        Self::Tree(error.into())
    }
}

impl From<PipelineError> for MigrateError {
    fn from(error: PipelineError) -> Self {
        match error {
            PipelineError::Stopped => Self::Stopped,
            error => Self::Pipeline(error),
        }
    }
}
