//! Documents as they are written: what `spinney prove` prints.
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

use crate::asked::Asked;

/// A proof of one raw key of a Merkle Patricia trie.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KeyDocument {
    /// The tree's name.
    pub tree: String,
    /// The root that it was made for.
    pub root: B256,
    /// What the key is the digest of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preimage: Option<Bytes>,
    /// The key.
    pub key: Bytes,
    /// Its value, if it has one.
    pub value: Option<Bytes>,
    /// The nodes.
    pub proof: Vec<Bytes>,
}

/// A proof of several raw keys: the union of their nodes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct KeysDocument {
    /// The tree's name.
    pub tree: String,
    /// The root that it was made for.
    pub root: B256,
    /// What the keys are the digests of, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preimages: Option<Vec<Bytes>>,
    /// The keys.
    pub keys: Vec<Bytes>,
    /// Their values, in their order.
    pub values: Vec<Option<Bytes>>,
    /// The nodes.
    pub proof: Vec<Bytes>,
}

impl KeysDocument {
    /// A document of keys with their values, and what shows them.
    pub fn new(
        (tree, root): (String, B256),
        preimages: Option<Vec<Bytes>>,
        entries: Vec<(Bytes, Option<Bytes>)>,
        proof: Proof,
    ) -> Self {
        let (keys, values) = entries.into_iter().unzip();
        Self { tree, root, preimages, keys, values, proof: nodes(proof) }
    }

    /// The other form, where there is one key.
    ///
    /// # Errors
    /// The document as it is, where there is not one.
    pub fn into_one(mut self) -> Result<KeyDocument, Box<Self>> {
        match (self.keys.pop(), self.values.pop()) {
            (Some(key), Some(value)) if self.keys.is_empty() => Ok(KeyDocument {
                tree: self.tree,
                root: self.root,
                preimage: self.preimages.and_then(|mut all| all.pop()),
                key,
                value,
                proof: self.proof,
            }),
            (key, value) => {
                self.keys.extend(key);
                self.values.extend(value);
                Err(Box::new(self))
            }
        }
    }
}

/// Proofs of keys of a tree whose values are words; with an address, of the keys that hold that
/// account.
#[derive(Clone, Debug, Serialize)]
#[expect(clippy::exhaustive_structs, reason = "these are the members of the object")]
pub struct WordsDocument {
    /// The tree's name.
    pub tree: String,
    /// The root that it was made for.
    pub root: B256,
    /// The block whose state that is the root of, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<U64>,
    /// The account that was asked for, if one was.
    #[serde(flatten)]
    pub account: Option<Asked>,
    /// The keys.
    pub keys: Vec<Bytes>,
    /// Their values, in their order.
    pub values: Vec<Option<B256>>,
    /// What shows them.
    pub proof: Bytes,
}

/// The EIP-1186 object, with the root that it was made for.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AccountDocument {
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

#[derive(Clone, Debug, Serialize)]
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
    /// The document of a proof.
    pub fn new(tree: String, root: B256, block: Option<u64>, proof: AccountProof) -> Self {
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

fn nodes(proof: Proof) -> Vec<Bytes> {
    proof.into_nodes().into_iter().map(Bytes::from).collect()
}
