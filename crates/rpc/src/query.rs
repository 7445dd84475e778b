//! What a call asks for, read from its params.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256};
use serde_json::Value;

use crate::discover;
use crate::error::Fault;
use crate::options::Limits;
use crate::params::{BlockRef, Keys, Params, SlotName};

/// What is asked for, and of which block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    /// The latest, for what is asked of no block.
    pub(crate) block: BlockRef,
    pub(crate) wants: Wants,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Balance(Address),
    Nonce(Address),
    Code(Address),
    Slot(Address, B256),
    AccountProof(Address, Vec<SlotName>),
    Root(String),
    KeysProof(String, Keys),
    SumProof(String, Vec<[u8; 32]>),
    Witness,
    About(About),
}

impl Wants {
    /// The account that it is about.
    pub(crate) const fn account(&self) -> Option<&Address> {
        match self {
            Self::Balance(address)
            | Self::Nonce(address)
            | Self::Code(address)
            | Self::Slot(address, _)
            | Self::AccountProof(address, _)
            | Self::KeysProof(_, Keys::Account { address, .. }) => Some(address),
            _ => None,
        }
    }
}

/// What is asked of the store or the server, without params.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    ChainId,
    NetworkId,
    Client,
    Head,
    Kept,
    Trees,
    Status,
    Methods,
}

impl Query {
    /// Whether the answer says, or depends on, which block is the oldest.
    pub(crate) fn asks_for_earliest(&self) -> bool {
        self.block == BlockRef::Earliest
            || matches!(self.wants, Wants::About(About::Kept | About::Status))
    }

    /// Reads the params of a method.
    pub(crate) fn read(method: &str, given: Vec<Value>, limits: &Limits) -> Result<Self, Fault> {
        let mut params = Params::new(given);
        let most = limits.keys;
        let (wants, block) = match method {
            "eth_getBalance" => (Wants::Balance(params.address()?), params.block()?),
            "eth_getTransactionCount" => (Wants::Nonce(params.address()?), params.block()?),
            "eth_getCode" => (Wants::Code(params.address()?), params.block()?),
            "eth_getStorageAt" => {
                let (address, slot) = (params.address()?, params.slot()?);
                (Wants::Slot(address, slot.slot), params.block()?)
            }
            "eth_getProof" => {
                let (address, slots) = (params.address()?, params.slots(most)?);
                (Wants::AccountProof(address, slots), params.block()?)
            }
            "spinney_getRoot" => (Wants::Root(params.text("tree")?), params.block()?),
            "spinney_getProof" => {
                let (tree, keys) = (params.text("tree")?, params.keys(most)?);
                (Wants::KeysProof(tree, keys), params.block()?)
            }
            "spinney_getSumProof" => {
                let (namespace, keys) = (params.text("namespace")?, params.words(most)?);
                (Wants::SumProof(namespace, keys), BlockRef::Latest)
            }
            "debug_executionWitness" | "debug_executionWitnessByBlockHash" => {
                (Wants::Witness, params.block()?)
            }
            other => (Wants::About(About::named(other)?), BlockRef::Latest),
        };
        params.end()?;
        if method == "debug_executionWitnessByBlockHash" && !matches!(block, BlockRef::Hash(_)) {
            return Err(Fault::Params("invalid param hash: 32 bytes in hex".into()));
        }
        Ok(Self { block, wants })
    }
}

impl About {
    fn named(method: &str) -> Result<Self, Fault> {
        Ok(match method {
            "eth_chainId" => Self::ChainId,
            "net_version" => Self::NetworkId,
            "web3_clientVersion" => Self::Client,
            "eth_blockNumber" => Self::Head,
            "debug_proofsSyncStatus" => Self::Kept,
            "spinney_trees" => Self::Trees,
            "spinney_status" => Self::Status,
            "rpc.discover" => Self::Methods,
            other => {
                debug_assert!(discover::known(other).is_none(), "{other} can be called");
                return Err(Fault::Method(other.to_owned()));
            }
        })
    }
}
