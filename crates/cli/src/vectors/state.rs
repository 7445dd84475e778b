//! `state.json`, `steps.json` and `small_and_growing.json`: accounts and slots.

use alloy_primitives::{Address, B256, U256, keccak256};
use serde::Deserialize;
use serde_json::Value;
use spinney_state::{AccountChange, Change, Changes};
use spinney_tree::Batch;

use super::hex::{Bytes, Hash};
use super::subject::{Accounts, Raw, drawn};
use super::{Options, Outcome, VectorError};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateFile {
    cases: Vec<Case>,
    #[serde(default)]
    derive_sha: Vec<Derived>,
    range_proof: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    name: String,
    accounts: Vec<Account>,
    state_root: Hash,
    #[serde(default)]
    proofs: Vec<Value>,
}

#[derive(Deserialize)]
struct Account {
    addr: Bytes,
    nonce: u64,
    balance: U256,
    code: Option<Bytes>,
    #[serde(default)]
    storage: Vec<(Bytes, U256)>,
}

/// The root of a list: each item under the RLP of its index.
#[derive(Deserialize)]
struct Derived {
    n: u64,
    root: Hash,
}

pub(super) fn run(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    let file: StateFile = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for case in &file.cases {
        let mut changes = Changes::default();
        for account in &case.accounts {
            changes.accounts.insert(address(&account.addr), account.change());
        }
        let root = Accounts::new(options, true)?.commit(&changes)?;
        outcome.root(|| case.name.clone(), root, &case.state_root);
        outcome.skipped += case.proofs.len() as u64;
    }
    for list in &file.derive_sha {
        let mut batch = Batch::new();
        for index in 0..list.n {
            batch.put(&alloy_rlp::encode(index), &item(index));
        }
        let root = Raw::new(options)?.commit(batch)?;
        outcome.root(|| format!("deriveSha of {}", list.n), root, &list.root);
    }
    outcome.skipped += u64::from(file.range_proof.is_some());
    Ok(outcome)
}

impl Account {
    fn change(&self) -> Change {
        let code = self.code.as_ref().map(|code| alloy_primitives::Bytes::from(code.0.clone()));
        Change::Written(AccountChange {
            fresh: false,
            nonce: Some(self.nonce),
            balance: Some(self.balance),
            code_hash: code.as_ref().map(keccak256),
            code,
            storage: self.storage.iter().map(|(slot, value)| (word(slot), *value)).collect(),
        })
    }
}

fn item(index: u64) -> Vec<u8> {
    let drawn = drawn("item", index);
    drawn[..1 + usize::from(drawn[31] % 32)].repeat(4)
}

#[derive(Deserialize)]
struct StepsFile {
    cases: Vec<Steps>,
}

#[derive(Deserialize)]
struct Steps {
    name: String,
    steps: Vec<Step>,
    #[serde(default)]
    proofs: Vec<Value>,
}

#[derive(Deserialize)]
struct Step {
    /// `null` where nothing happens.
    ops: Option<Vec<StepOp>>,
    root: Hash,
}

#[derive(Deserialize)]
struct StepOp {
    addr: Bytes,
    slot: Option<Bytes>,
    value: Option<Bytes>,
    balance: Option<String>,
    nonce: Option<u64>,
    #[serde(default)]
    delete: bool,
}

pub(super) fn run_steps(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    let file: StepsFile = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for case in &file.cases {
        let mut state = Accounts::new(options, true)?;
        for (index, step) in case.steps.iter().enumerate() {
            let root = state.commit(&changes(step.ops.as_deref().unwrap_or_default())?)?;
            outcome.root(|| format!("{}, step {index}", case.name), root, &step.root);
        }
        outcome.skipped += case.proofs.len() as u64;
    }
    Ok(outcome)
}

/// The operations of a step, which name a slot of a deleted account once more.
fn changes(ops: &[StepOp]) -> Result<Changes, VectorError> {
    let mut changes = Changes::default();
    for op in ops.iter().filter(|op| op.slot.is_none()) {
        let change = if op.delete {
            Change::Deleted
        } else {
            let balance = op.balance.as_deref().map(decimal).transpose()?;
            Change::Written(AccountChange { balance, nonce: op.nonce, ..AccountChange::default() })
        };
        changes.accounts.insert(address(&op.addr), change);
    }
    for op in ops {
        let Some(slot) = &op.slot else { continue };
        let written = || Change::Written(AccountChange::default());
        let account = changes.accounts.entry(address(&op.addr)).or_insert_with(written);
        if let Change::Written(account) = account {
            let value = op.value.as_ref().filter(|_| !op.delete);
            let value = value.map_or(U256::ZERO, |value| U256::from_be_slice(&value.0));
            account.storage.insert(word(slot), value);
        }
    }
    Ok(changes)
}

fn decimal(text: &str) -> Result<U256, VectorError> {
    U256::from_str_radix(text, 10)
        .map_err(|error| serde::de::Error::custom(format_args!("{error}: {text:.80}")))
        .map_err(VectorError::Json)
}

/// Of bytes that are no address, a digest of them: then no root will match.
fn address(bytes: &Bytes) -> Address {
    Address::try_from(bytes.0.as_slice())
        .unwrap_or_else(|_| Address::from_word(keccak256(&bytes.0)))
}

fn word(bytes: &Bytes) -> B256 {
    B256::left_padding_from(&bytes.0[bytes.0.len().saturating_sub(32)..])
}
