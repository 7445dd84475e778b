//! One block of a node, and what is proven of the state after it.
//!
//! Invariants:
//! - the state root is the one in a header whose hash was computed here, the one that the caller
//!   trusts, or, where neither is to be had, the node's word; [`Vouched`] says which;
//! - of accounts and slots nothing counts but proofs that hold under that root; of code nothing
//!   but what has the hash that an account names.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::cell::Cell;
use std::fmt;

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U64, keccak256};
use serde_json::json;
use spinney_proof::mpt::partial::MissingNode;
use spinney_proof::mpt::{AccountFields, AccountProof, ProofError};
use spinney_replay::{ChainBlock, WitnessStateError};
use spinney_tree::BlockId;

use crate::again::asked;
use crate::block_name::BlockName;
use crate::blocks::known_blocks;
use crate::error::NodeError;
use crate::node::{Node, quantity};

/// Why a node's state cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemoteError {
    /// The node gave no answer, or not the one that was asked for.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// It does not have the block.
    #[error("the node has no block {block}")]
    NoBlock {
        /// The block.
        block: BlockName,
    },
    /// It gives no header, and what it gives instead does not name this block.
    #[error(
        "the node gives no headers (eth_getBlockByNumber), and without one block {block} is unknown"
    )]
    NoHeader {
        /// The block.
        block: BlockName,
    },
    /// The block's header has another state root than the one that is trusted.
    #[error("block {block}: its state root is {got}, and the one that is trusted is {expected}")]
    OtherRoot {
        /// Its number.
        block: u64,
        /// The root that is trusted.
        expected: B256,
        /// The root in its header.
        got: B256,
    },
    /// A proof does not hold.
    #[error(
        "the node's proof of account {address} does not hold under {root}, the state root of block \
         {block}"
    )]
    Proof {
        /// The account.
        address: Address,
        /// The number of the block.
        block: u64,
        /// The state root.
        root: B256,
        /// What is wrong.
        #[source]
        error: Box<ProofError>,
    },
    /// Code has another hash than the account says.
    #[error("the node's code of account {address} has the hash {found}, the account's is {named}")]
    Code {
        /// The account.
        address: Address,
        /// The hash that is proven to be the account's.
        named: B256,
        /// The hash of what came.
        found: B256,
    },
    /// A proven node is none of a state, or a proof that holds lacks a node.
    #[error(transparent)]
    State(Box<WitnessStateError>),
    /// A deletion needs a node that lies on the path of no key that is known.
    #[error(
        "account {account}{}: its deletion leaves a trie node alone, and {missing}; the node has \
         no witness of block {block}, and no key is known whose proof has it",
        Slot(*.slot)
    )]
    Alone {
        /// The account.
        account: Address,
        /// The slot, in the storage of the account.
        slot: Option<B256>,
        /// The trie node.
        missing: Box<MissingNode>,
        /// The block that deletes.
        block: u64,
    },
}

impl From<WitnessStateError> for RemoteError {
    fn from(error: WitnessStateError) -> Self {
        Self::State(error.into())
    }
}

struct Slot(Option<B256>);

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |slot| write!(f, ", slot {slot}"))
    }
}

/// Who says what the state root of a block is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::exhaustive_enums, reason = "there is nobody else")]
pub enum Vouched {
    /// Its header, whose hash was computed.
    Header,
    /// The caller.
    Caller,
    /// The node alone, which gives no headers: nothing says that the root is one of the chain.
    Node,
}

/// One block of a node, whose state may be asked for: each answer is proven under the block's root.
#[derive(Debug)]
pub struct RemoteBlock<'n> {
    node: &'n Node,
    number: u64,
    hash: Option<B256>,
    root: B256,
    vouched: Vouched,
    asks: Cell<u64>,
}

impl<'n> RemoteBlock<'n> {
    /// Asks a node for a block. `root` is the state root that the caller trusts, if he knows one.
    ///
    /// A node that gives no headers, as a Spinney server does not, is asked for its root alone.
    ///
    /// # Errors
    /// If the node does not answer, does not have the block, or has it with another root.
    pub fn find(node: &'n Node, block: BlockName, root: Option<B256>) -> Result<Self, RemoteError> {
        let header = again(|| match block {
            BlockName::Number(number) => node.header(number),
            BlockName::Tag(tag) => node.header_at(tag),
            BlockName::Hash(hash) => node.header_of(hash),
        });
        let header: Header = match header {
            Err(error) if error.is_unknown_method() => {
                return Self::without_header(node, block, root);
            }
            header => header?.ok_or(RemoteError::NoBlock { block })?,
        };
        let (number, got) = (header.number, header.state_root);
        if let Some(expected) = root.filter(|root| *root != got) {
            return Err(RemoteError::OtherRoot { block: number, expected, got });
        }
        let hash = Some(header.hash_slow());
        Ok(Self { node, number, hash, root: got, vouched: Vouched::Header, asks: Cell::new(1) })
    }

    fn without_header(
        node: &'n Node,
        block: BlockName,
        root: Option<B256>,
    ) -> Result<Self, RemoteError> {
        let number = match block {
            BlockName::Number(number) => number,
            BlockName::Tag("latest") => {
                let number: U64 = again(|| node.ask("eth_blockNumber", json!([])))?;
                number.to()
            }
            BlockName::Tag(_) | BlockName::Hash(_) => {
                return Err(RemoteError::NoHeader { block });
            }
        };
        let (root, vouched) = match root {
            Some(root) => (root, Vouched::Caller),
            None => {
                let params = json!(["mpt", quantity(number)]);
                let told = again(|| node.ask("spinney_getRoot", params.clone()));
                let told = told.map_err(|error| match error.is_unknown_method() {
                    true => RemoteError::NoHeader { block },
                    false => error.into(),
                });
                (told?, Vouched::Node)
            }
        };
        Ok(Self { node, number, hash: None, root, vouched, asks: Cell::new(2) })
    }

    /// A block whose root the caller knows, from a chain that he has.
    pub const fn known(node: &'n Node, block: BlockId, root: B256) -> Self {
        let (number, hash) = (block.number, Some(B256::new(block.hash)));
        Self { node, number, hash, root, vouched: Vouched::Header, asks: Cell::new(0) }
    }

    /// Its number.
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Its hash, where a header or the caller said which block it is.
    pub const fn hash(&self) -> Option<B256> {
        self.hash
    }

    /// The root of the state after it.
    pub const fn root(&self) -> B256 {
        self.root
    }

    /// Who says so.
    pub const fn vouched(&self) -> Vouched {
        self.vouched
    }

    /// How often the node was asked.
    pub const fn asks(&self) -> u64 {
        self.asks.get()
    }

    /// Asks the node, and again if it does not answer.
    pub(crate) fn ask<T>(
        &self,
        ask: impl Fn(&Node) -> Result<T, NodeError>,
    ) -> Result<T, NodeError> {
        again(|| {
            self.asks.set(self.asks.get().saturating_add(1));
            ask(self.node)
        })
    }

    /// The block and those before it whose hashes contracts may ask for, each linked to the next.
    ///
    /// # Errors
    /// If the node does not give them, or others.
    pub fn ancestors(&self) -> Result<Vec<ChainBlock>, RemoteError> {
        let unnamed = RemoteError::NoHeader { block: BlockName::Number(self.number) };
        let hash = self.hash.ok_or(unnamed)?;
        let head = BlockId { number: self.number, hash: hash.0 };
        Ok(self.ask(|node| known_blocks(node, head))?)
    }

    /// A proof of an account and of slots, which holds under the root.
    ///
    /// # Errors
    /// If the node does not answer, or its proof does not hold.
    pub fn prove(&self, address: Address, slots: &[B256]) -> Result<AccountProof, RemoteError> {
        let mut proof = self.ask(|node| node.proof(address, slots, self.number))?;
        if !self.check(&proof)? {
            // Nodes name the fields of an account that is not there in two ways.
            proof.fields = AccountFields::ABSENT;
        }
        Ok(proof)
    }

    /// A proof holds under the root. Answers whether the account is there.
    pub(crate) fn check(&self, proof: &AccountProof) -> Result<bool, RemoteError> {
        let Self { number: block, root, .. } = *self;
        let address = proof.address.into();
        let failed =
            |error: ProofError| RemoteError::Proof { address, block, root, error: error.into() };
        proof.verify(&root).map(|verified| verified.account().is_some()).map_err(failed)
    }

    /// The code of an account whose proof names this hash.
    ///
    /// # Errors
    /// If the node does not answer, or with something that has another hash.
    pub fn code(&self, address: Address, named: B256) -> Result<Bytes, RemoteError> {
        let code = self.ask(|node| node.code(address, self.number))?;
        let found = keccak256(&code);
        match found == named {
            true => Ok(code),
            false => Err(RemoteError::Code { address, named, found }),
        }
    }
}

/// Asks until there is an answer, or somebody was asked often enough.
fn again<T>(ask: impl Fn() -> Result<T, NodeError>) -> Result<T, NodeError> {
    let nothing = || Err(NodeError::answer("JSON-RPC", "it was not asked"));
    asked(|| true, ask).unwrap_or_else(nothing)
}
