//! Proof documents, as `prove` prints them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use alloy_primitives::{Address, B256, Bytes, U64, U256};
use serde::Serialize;
use spinney_tree::mpt::proof::{AccountFields, AccountProof, Proof, SlotProof};

/// A proof of one raw key.
#[derive(Debug, Serialize)]
pub(super) struct KeyDocument {
    pub(super) tree: String,
    pub(super) root: B256,
    /// What the key is the digest of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preimage: Option<Bytes>,
    pub(super) key: Bytes,
    pub(super) value: Option<Bytes>,
    pub(super) proof: Vec<Bytes>,
}

/// A proof of several raw keys: the union of their nodes.
#[derive(Debug, Serialize)]
pub(super) struct KeysDocument {
    pub(super) tree: String,
    pub(super) root: B256,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preimages: Option<Vec<Bytes>>,
    pub(super) keys: Vec<Bytes>,
    pub(super) values: Vec<Option<Bytes>>,
    pub(super) proof: Vec<Bytes>,
}

/// The EIP-1186 object, with the root that it was made for.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AccountDocument {
    tree: String,
    root: B256,
    #[serde(skip_serializing_if = "Option::is_none")]
    block: Option<U64>,
    address: Address,
    balance: U256,
    code_hash: B256,
    nonce: U64,
    storage_hash: B256,
    account_proof: Vec<Bytes>,
    storage_proof: Vec<SlotDocument>,
}

#[derive(Debug, Serialize)]
struct SlotDocument {
    #[serde(serialize_with = "as_word")]
    key: U256,
    value: U256,
    proof: Vec<Bytes>,
}

fn as_word<S: serde::Serializer>(key: &U256, serializer: S) -> Result<S::Ok, S::Error> {
    B256::from(*key).serialize(serializer)
}

impl AccountDocument {
    pub(super) fn new(tree: String, root: B256, block: Option<u64>, proof: AccountProof) -> Self {
        let AccountFields { nonce, balance, storage_hash, code_hash } = proof.fields;
        let slot = |slot: SlotProof| SlotDocument {
            key: U256::from_be_bytes(slot.key),
            value: U256::from_be_bytes(slot.value),
            proof: nodes(slot.proof),
        };
        Self {
            tree,
            root,
            block: block.map(U64::from),
            address: proof.address.into(),
            balance: U256::from_be_bytes(balance),
            code_hash: code_hash.into(),
            nonce: U64::from(nonce),
            storage_hash: storage_hash.into(),
            account_proof: nodes(proof.account_proof),
            storage_proof: proof.storage_proof.into_iter().map(slot).collect(),
        }
    }
}

pub(super) fn nodes(proof: Proof) -> Vec<Bytes> {
    proof.into_nodes().into_iter().map(Bytes::from).collect()
}
