//! `raw.json`: raw keys.

use std::collections::BTreeMap;

use serde::Deserialize;
use spinney_tree::Batch;

use super::hex::{Bytes, Hash};
use super::proofs::Expected;
use super::subject::{Raw, drawn};
use super::{Options, Outcome, VectorError};

/// What is done to the hundred keys of `commit`, in the words of the file.
const INCREMENTAL: &str = "update(k3,v1003) update(k100,v100) delete(k7) delete(k50)";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawFile {
    #[serde(default)]
    cases: Vec<RawCase>,
    commit: Option<Commit>,
    #[serde(default)]
    variable_length_keys: Vec<VariableLengthKeys>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawCase {
    name: String,
    n: u64,
    value_mode: String,
    root: Hash,
    #[serde(default)]
    update_roots: Vec<Hash>,
    #[serde(default)]
    proofs: Vec<KeyProof>,
}

#[derive(Deserialize)]
struct KeyProof {
    key: Bytes,
    exists: bool,
    value: Bytes,
    proof: Vec<Bytes>,
}

#[derive(Deserialize)]
struct Commit {
    root: Hash,
    incremental: Incremental,
}

#[derive(Deserialize)]
struct Incremental {
    ops: String,
    root: Hash,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VariableLengthKeys {
    ops: Vec<(Bytes, Bytes)>,
    root_after_each_op: Vec<Hash>,
}

pub(super) fn run(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    let file: RawFile = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for case in &file.cases {
        run_case(case, options, &mut outcome)?;
    }
    if let Some(commit) = &file.commit {
        run_commit(commit, options, &mut outcome)?;
    }
    for (index, sequence) in file.variable_length_keys.iter().enumerate() {
        run_sequence(index, sequence, options, &mut outcome)?;
    }
    Ok(outcome)
}

fn run_case(case: &RawCase, options: &Options, outcome: &mut Outcome) -> Result<(), VectorError> {
    let Some(value) = value_mode(&case.value_mode) else {
        outcome.skipped += (1 + case.update_roots.len() + 2 * case.proofs.len()) as u64;
        return Ok(());
    };
    let mut raw = Raw::new(options)?;
    let root = raw.commit(all(case.n, value))?;
    outcome.root(|| case.name.clone(), root, &case.root);
    for proof in &case.proofs {
        let ours = raw.prove(&proof.key.0)?;
        let value = proof.exists.then_some(&proof.value.0[..]);
        let expected = Expected { root, key: &proof.key.0, value, nodes: &proof.proof };
        outcome.proof(|| format!("{}, proof of {:?}", case.name, proof.key), &expected, &ours);
    }
    for (round, expected) in case.update_roots.iter().enumerate() {
        let root = raw.commit(update(case.n, round as u64, value))?;
        outcome.root(|| format!("{}, round {round}", case.name), root, expected);
    }
    Ok(())
}

fn run_commit(
    commit: &Commit,
    options: &Options,
    outcome: &mut Outcome,
) -> Result<(), VectorError> {
    let mut raw = Raw::new(options)?;
    let root = raw.commit(all(100, value_32))?;
    outcome.root(|| "commit".to_owned(), root, &commit.root);
    if commit.incremental.ops != INCREMENTAL {
        outcome.skipped += 1;
        return Ok(());
    }
    let mut batch = Batch::new();
    batch.put(&drawn("k", 3), &value_32(1003));
    batch.put(&drawn("k", 100), &value_32(100));
    batch.delete(&drawn("k", 7));
    batch.delete(&drawn("k", 50));
    let root = raw.commit(batch)?;
    outcome.root(|| "commit, incremental".to_owned(), root, &commit.incremental.root);
    Ok(())
}

fn run_sequence(
    index: usize,
    sequence: &VariableLengthKeys,
    options: &Options,
    outcome: &mut Outcome,
) -> Result<(), VectorError> {
    let mut raw = Raw::new(options)?;
    for (step, ((key, value), expected)) in
        sequence.ops.iter().zip(&sequence.root_after_each_op).enumerate()
    {
        // An empty value is a deletion, here as in the tree.
        let root = raw.one(&key.0, Some(&value.0))?;
        outcome.root(|| format!("variableLengthKeys {index}, step {step}"), root, expected);
    }
    Ok(())
}

type Draw = fn(u64) -> Vec<u8>;

fn value_mode(name: &str) -> Option<Draw> {
    Some(match name {
        "val32" => value_32,
        "valShort" => value_short,
        "valLong" => value_long,
        _ => return None,
    })
}

/// `n` of the keys with values of 32 bytes.
pub(super) fn all_32(n: u64) -> Batch {
    all(n, value_32)
}

fn value_32(number: u64) -> Vec<u8> {
    drawn("v", number).to_vec()
}

fn value_short(number: u64) -> Vec<u8> {
    let value = drawn("v", number);
    value[..1 + usize::from(value[31] % 16)].to_vec()
}

fn value_long(number: u64) -> Vec<u8> {
    let [one, two, three] = ["v", "v2", "v3"].map(|tag| drawn(tag, number));
    let len = 33 + usize::from(one[31] % 64);
    [one, two, three].concat()[..len].to_vec()
}

/// `n` keys with their values.
fn all(n: u64, value: Draw) -> Batch {
    let mut batch = Batch::new();
    (0..n).for_each(|i| batch.put(&drawn("k", i), &value(i)));
    batch
}

/// A round of updates and deletions, of which the last one on a key counts.
fn update(n: u64, round: u64, value: Draw) -> Batch {
    let mut last = BTreeMap::new();
    for j in 0..n / 5 {
        let number = round * 100_000 + j;
        let drawn = drawn("u", number);
        let (start, _) = drawn.split_first_chunk().expect("a digest has eight bytes");
        let kept = !drawn[31].is_multiple_of(3);
        last.insert(u64::from_be_bytes(*start) % n, kept.then(|| value(number + 1_000_000)));
    }
    let mut batch = Batch::new();
    for (index, value) in last {
        match value {
            Some(value) => batch.put(&drawn("k", index), &value),
            None => batch.delete(&drawn("k", index)),
        }
    }
    batch
}
