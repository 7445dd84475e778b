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
use serde_json::json;
use spinney_proof::mpt::{AccountFields, AccountProof, Proof, SlotProof};

use crate::error::NodeError;
use crate::node::{BY_NUMBER, Node, check_number, quantity};

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
        let answer: ProofAnswer = self.ask(PROOF, json!([address, slots, quantity(number)]))?;
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

fn nodes(bytes: &[Bytes]) -> Proof {
    Proof::new(bytes.iter().map(|node| node.to_vec()).collect())
}
