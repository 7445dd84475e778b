//! `state.json`, `steps.json` and `small_and_growing.json`: accounts and slots.

use alloy_primitives::{Address, B256, U256, keccak256};
use serde::Deserialize;
use spinney_state::{AccountChange, Change, Changes};
use spinney_tree::mpt::proof::{AccountProof, RangeProof};
use spinney_tree::{Batch, PageStore as _};

use super::hex::{Bytes, Hash};
use super::proofs::Expected;
use super::raw::all_32;
use super::subject::{Accounts, Raw, drawn};
use super::{Options, Outcome, VectorError};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateFile {
    cases: Vec<StateCase>,
    #[serde(default)]
    derive_sha: Vec<Derived>,
    range_proof: Option<Ranged>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateCase {
    name: String,
    accounts: Vec<Account>,
    state_root: Hash,
    #[serde(default)]
    proofs: Vec<AccountProofs>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AccountProofs {
    addr: Bytes,
    account_proof: Vec<Bytes>,
    #[serde(default)]
    storage_proofs: Vec<SlotProofs>,
}

#[derive(Deserialize)]
struct SlotProofs {
    slot: Bytes,
    value: Bytes,
    proof: Vec<Bytes>,
}

/// A range of the trie of [`all_32`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ranged {
    trie: String,
    root: Hash,
    first_key: Bytes,
    keys: Vec<Bytes>,
    values: Vec<Bytes>,
    has_more: bool,
    proof_nodes: Vec<Bytes>,
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
        let mut state = Accounts::new(options, true)?;
        let root = state.commit(&changes)?;
        outcome.root(|| case.name.clone(), root, &case.state_root);
        for proofs in &case.proofs {
            check_account(case, &state, proofs, &mut outcome)?;
        }
    }
    for list in &file.derive_sha {
        let mut batch = Batch::new();
        for index in 0..list.n {
            batch.put(&alloy_rlp::encode(index), &item(index));
        }
        let root = Raw::new(options)?.commit(batch)?;
        outcome.root(|| format!("deriveSha of {}", list.n), root, &list.root);
    }
    if let Some(range) = &file.range_proof {
        check_range(range, options, &mut outcome)?;
    }
    Ok(outcome)
}

fn check_account(
    case: &StateCase,
    state: &Accounts,
    proofs: &AccountProofs,
    outcome: &mut Outcome,
) -> Result<(), VectorError> {
    let slots: Vec<_> = proofs.storage_proofs.iter().map(|proof| word(&proof.slot)).collect();
    let ours = state.prove(address(&proofs.addr), &slots)?;
    let what = || format!("{}, proof of {:?}", case.name, proofs.addr);
    check_leaf(what, case.state_root.0, &ours, &proofs.account_proof, outcome);
    for (slot, proof) in ours.storage_proof.iter().zip(&proofs.storage_proofs) {
        let value = alloy_rlp::encode(U256::from_be_slice(&proof.value.0));
        let key = keccak256(slot.key);
        let expected = Expected {
            root: ours.fields.storage_hash,
            key: key.as_slice(),
            value: (!proof.value.0.is_empty()).then_some(&value),
            nodes: &proof.proof,
        };
        outcome.proof(
            || format!("{}, slot {:?}", what(), proof.slot),
            &expected,
            slot.proof.nodes(),
        );
    }
    Ok(())
}

/// Checks the nodes on an account's path, and our whole proof of the account.
fn check_leaf(
    what: impl Fn() -> String,
    root: [u8; 32],
    ours: &AccountProof,
    nodes: &[Bytes],
    outcome: &mut Outcome,
) {
    let fields = match ours.verify(&root) {
        Ok(verified) => verified.account().copied(),
        Err(error) => return outcome.failures.push(format!("{}: ours: {error}", what())),
    };
    let leaf = fields.map(|fields| {
        let mut body = alloy_rlp::encode(fields.nonce);
        body.extend(alloy_rlp::encode(U256::from_be_bytes(fields.balance)));
        body.extend(alloy_rlp::encode(B256::from(fields.storage_hash)));
        body.extend(alloy_rlp::encode(B256::from(fields.code_hash)));
        let mut leaf = Vec::new();
        alloy_rlp::Header { list: true, payload_length: body.len() }.encode(&mut leaf);
        [leaf, body].concat()
    });
    let key = keccak256(ours.address);
    let expected = Expected { root, key: key.as_slice(), value: leaf.as_deref(), nodes };
    outcome.proof(what, &expected, ours.account_proof.nodes());
}

fn check_range(
    range: &Ranged,
    options: &Options,
    outcome: &mut Outcome,
) -> Result<(), VectorError> {
    let count = range.trie.split(' ').next().and_then(|count| count.parse().ok());
    let Some(count) = count else {
        outcome.skipped += 4;
        return Ok(());
    };
    let mut raw = Raw::new(options)?;
    let root = raw.commit(all_32(count))?;
    outcome.root(|| "the trie of the range".to_owned(), root, &range.root);
    let snapshot = raw.store().snapshot()?;
    let bytes = |all: &[Bytes]| -> Vec<_> { all.iter().map(|bytes| bytes.0.clone()).collect() };
    let expected = RangeProof {
        start: range.first_key.0.clone(),
        end: range.keys.last().map(|key| key.0.clone()),
        entries: bytes(&range.keys).into_iter().zip(bytes(&range.values)).collect(),
        nodes: bytes(&range.proof_nodes),
    };
    let (start, limit) = (&range.first_key.0, range.keys.len());
    let ours = raw.tree.prove_range(&snapshot, None, start, None, limit)?;
    let verdict = (&range.root, range.has_more);
    outcome.range_proof(|| "the range".to_owned(), verdict, expected, ours);
    Ok(())
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
    proofs: Vec<StepProof>,
}

/// A proof of an account, or of a slot below its storage root, after the step with this root.
#[derive(Deserialize)]
struct StepProof {
    addr: Bytes,
    slot: Option<Bytes>,
    root: Hash,
    proof: Vec<Bytes>,
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
            // A root may come back: its proofs are the same then.
            for proof in case.proofs.iter().filter(|proof| proof.root == step.root) {
                check_step(case, &state, proof, &mut outcome)?;
            }
        }
        let reached = |proof: &&StepProof| case.steps.iter().any(|step| step.root == proof.root);
        outcome.skipped +=
            2 * (case.proofs.len() - case.proofs.iter().filter(reached).count()) as u64;
    }
    Ok(outcome)
}

fn check_step(
    case: &Steps,
    state: &Accounts,
    proof: &StepProof,
    outcome: &mut Outcome,
) -> Result<(), VectorError> {
    let slots: Vec<_> = proof.slot.iter().map(word).collect();
    let ours = state.prove(address(&proof.addr), &slots)?;
    let what = || format!("{}, proof of {:?} {:?}", case.name, proof.addr, proof.slot);
    let Some(slot) = ours.storage_proof.first() else {
        check_leaf(what, proof.root.0, &ours, &proof.proof, outcome);
        return Ok(());
    };
    let value = alloy_rlp::encode(U256::from_be_bytes(slot.value));
    let key = keccak256(slot.key);
    let expected = Expected {
        root: ours.fields.storage_hash,
        key: key.as_slice(),
        value: (slot.value != [0; 32]).then_some(&value),
        nodes: &proof.proof,
    };
    outcome.proof(what, &expected, slot.proof.nodes());
    Ok(())
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
