//! What a node says of its state: proofs, code, and names of accounts and slots.
//!
//! Nothing here is believed. Proofs are given as they come; whoever asks verifies them.
#![deny(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unreachable,
    clippy::unwrap_used
)]

use std::collections::BTreeMap;

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, U64, U256};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use spinney_proof::mpt::{AccountFields, AccountProof, Proof, SlotProof};

use crate::block_name::BlockName;
use crate::error::NodeError;
use crate::node::{Answered, BY_NUMBER, Node, check_number, quantity, read};

const BY_HASH: &str = "eth_getBlockByHash";
const SPINNEY_PROOF: &str = "spinney_getProof";
const WITNESS: &str = "debug_executionWitness";
const PROOF: &str = "eth_getProof";
const CODE: &str = "eth_getCode";
const ACCOUNTS: &str = "debug_accountRange";
const SLOTS: &str = "debug_storageRangeAt";

/// So many names are asked for at once.
const NAMES_AT_ONCE: u64 = 64;

/// An EIP-1186 object.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProofAnswer {
    balance: U256,
    code_hash: B256,
    nonce: U64,
    storage_hash: B256,
    account_proof: Vec<Bytes>,
    #[serde(default)]
    storage_proof: Vec<SlotAnswer>,
}

#[derive(Deserialize)]
struct SlotAnswer {
    key: U256,
    value: U256,
    proof: Vec<Bytes>,
}

/// What of an execution witness is of use here.
#[derive(Deserialize)]
struct WitnessAnswer {
    state: Vec<Bytes>,
}

/// Accounts by their addresses; by something else where the node does not know an address.
#[derive(Deserialize)]
struct AccountsAnswer {
    accounts: BTreeMap<String, IgnoredAny>,
}

#[derive(Deserialize)]
struct SlotsAnswer {
    storage: BTreeMap<B256, NamedSlot>,
}

#[derive(Deserialize)]
struct NamedSlot {
    /// The slot, where the node knows it.
    key: Option<B256>,
}

impl Node {
    /// The header of a block, if the node has the block.
    ///
    /// # Errors
    /// If it does not answer, or with the header of another block.
    pub(crate) fn header(&self, number: u64) -> Result<Option<Header>, NodeError> {
        let header: Option<Header> = self.ask(BY_NUMBER, json!([quantity(number), false]))?;
        header.map(|header| check_number(number, header.number).map(|()| header)).transpose()
    }

    /// The header of the block with this hash, if the node has the block.
    ///
    /// # Errors
    /// If it does not answer, or with a header that has another hash.
    pub(crate) fn header_of(&self, hash: B256) -> Result<Option<Header>, NodeError> {
        let header: Option<Header> = self.ask(BY_HASH, json!([hash, false]))?;
        header.map(|header| check_hash(BY_HASH, hash, header)).transpose()
    }

    /// The header that a tag stands for (`latest`, `safe`, ..), if it does for any.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) fn header_at(&self, tag: &str) -> Result<Option<Header>, NodeError> {
        self.ask(BY_NUMBER, json!([tag, false]))
    }

    /// The trie nodes in the execution witness of a block, which nobody has verified.
    ///
    /// # Errors
    /// If it does not answer, or does not have it.
    pub(crate) fn witness_nodes(&self, number: u64) -> Result<Vec<Bytes>, NodeError> {
        Ok(self.ask::<WitnessAnswer>(WITNESS, json!([quantity(number)]))?.state)
    }

    /// What a Spinney server proves in a tree, by `spinney_getProof`: a document that nobody has
    /// verified.
    ///
    /// # Errors
    /// If it does not answer, or has no such method, tree or block.
    pub fn spinney_proof(
        &self,
        tree: &str,
        keys: &Value,
        block: BlockName,
    ) -> Result<String, NodeError> {
        let block = match block {
            BlockName::Number(number) => quantity(number),
            BlockName::Tag(tag) => tag.to_owned(),
            BlockName::Hash(hash) => hash.to_string(),
        };
        let told: Box<RawValue> = self.ask(SPINNEY_PROOF, json!([tree, keys, block]))?;
        Ok(String::from(Box::<str>::from(told)))
    }

    /// A proof of an account and slots at a block, which nobody has verified.
    ///
    /// # Errors
    /// If it does not answer, or of other slots.
    pub(crate) fn proof(
        &self,
        address: Address,
        slots: &[B256],
        number: u64,
    ) -> Result<AccountProof, NodeError> {
        let answer = self.ask(PROOF, json!([address, slots, quantity(number)]))?;
        account_proof(address, slots, answer)
    }

    /// Proofs of several accounts at once, each with slots.
    ///
    /// # Errors
    /// As [`proof`](Self::proof).
    pub(crate) fn proofs(
        &self,
        wanted: &[(Address, Vec<B256>)],
        number: u64,
    ) -> Result<Vec<AccountProof>, NodeError> {
        let call = |(address, slots): &(Address, Vec<B256>)| {
            (PROOF, json!([address, slots, quantity(number)]))
        };
        let answers = self.batch(wanted.iter().map(call).collect())?;
        let proof = |((address, slots), answer): (&(Address, Vec<B256>), Answered)| {
            account_proof(*address, slots, read(PROOF, &answer?)?)
        };
        wanted.iter().zip(answers).map(proof).collect()
    }

    /// The code of an account at a block.
    ///
    /// # Errors
    /// If it does not answer.
    pub(crate) fn code(&self, address: Address, number: u64) -> Result<Bytes, NodeError> {
        self.ask(CODE, json!([address, quantity(number)]))
    }

    /// Addresses of some accounts whose hashed keys begin at `start`, as far as it knows them.
    ///
    /// # Errors
    /// If it does not answer, or has no such method.
    pub(crate) fn accounts_from(
        &self,
        start: B256,
        number: u64,
    ) -> Result<Vec<Address>, NodeError> {
        let params = json!([quantity(number), start, NAMES_AT_ONCE, true, true, false]);
        let answer: AccountsAnswer = self.ask(ACCOUNTS, params)?;
        Ok(answer.accounts.keys().filter_map(|name| name.parse().ok()).collect())
    }

    /// Some slots of an account whose hashed keys begin at `start`, as far as it knows them, in the
    /// state before the first transaction of a block.
    ///
    /// # Errors
    /// If it does not answer, or has no such method.
    pub(crate) fn slots_from(
        &self,
        address: Address,
        start: B256,
        block: B256,
    ) -> Result<Vec<B256>, NodeError> {
        let params = json!([block, 0, address, start, NAMES_AT_ONCE]);
        let answer: SlotsAnswer = self.ask(SLOTS, params)?;
        Ok(answer.storage.into_values().filter_map(|slot| slot.key).collect())
    }
}

/// What is answered, as a proof of an account and of those slots that were asked for.
fn account_proof(
    address: Address,
    slots: &[B256],
    answer: ProofAnswer,
) -> Result<AccountProof, NodeError> {
    let ProofAnswer { balance, code_hash, nonce, storage_hash, .. } = answer;
    let is_of_slots = answer.storage_proof.len() == slots.len();
    let named = answer.storage_proof.iter().zip(slots);
    if !is_of_slots || named.clone().any(|(got, slot)| B256::from(got.key) != *slot) {
        return Err(NodeError::answer(PROOF, "its proofs are of other slots"));
    }
    let slot = |(got, slot): (&SlotAnswer, &B256)| SlotProof {
        key: slot.0,
        value: got.value.to_be_bytes(),
        proof: nodes(&got.proof),
    };
    Ok(AccountProof {
        address: address.into_array(),
        fields: AccountFields {
            nonce: nonce.to(),
            balance: balance.to_be_bytes(),
            storage_hash: storage_hash.0,
            code_hash: code_hash.0,
        },
        account_proof: nodes(&answer.account_proof),
        storage_proof: named.map(slot).collect(),
    })
}

fn check_hash(method: &'static str, wanted: B256, header: Header) -> Result<Header, NodeError> {
    let got = header.hash_slow();
    let what = || NodeError::answer(method, format!("asked for {wanted}, its header has {got}"));
    (got == wanted).then_some(header).ok_or_else(what)
}

fn nodes(bytes: &[Bytes]) -> Proof {
    Proof::new(bytes.iter().map(|node| node.to_vec()).collect())
}
