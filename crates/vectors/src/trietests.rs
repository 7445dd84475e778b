//! The trie tests that Ethereum's clients share.

use std::collections::BTreeMap;

use alloy_primitives::{hex, keccak256};
use serde::Deserialize;
use spinney_tree::Batch;

use super::hex::Hash;
use super::subject::Raw;
use super::{Options, Outcome, VectorError};

#[derive(Deserialize)]
struct Test {
    #[serde(rename = "in")]
    input: Input,
    root: Hash,
}

/// Operations in order, or entries in any order. `null` deletes.
#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    List(Vec<(String, Option<String>)>),
    Map(BTreeMap<String, Option<String>>),
}

pub(super) fn run(json: &[u8], hash_keys: bool, options: &Options) -> Result<Outcome, VectorError> {
    let tests: BTreeMap<String, Test> = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for (name, test) in &tests {
        let key = |text: &str| match hash_keys {
            true => keccak256(bytes(text)).to_vec(),
            false => bytes(text),
        };
        let (ops, any_order): (Vec<_>, _) = match &test.input {
            Input::List(ops) => {
                (ops.iter().map(|(k, v)| (key(k), v.as_deref().map(bytes))).collect(), false)
            }
            Input::Map(map) => {
                (map.iter().map(|(k, v)| (key(k), v.as_deref().map(bytes))).collect(), true)
            }
        };
        outcome.root(|| name.clone(), one_by_one(options, ops.iter())?, &test.root);
        if any_order {
            let backwards = one_by_one(options, ops.iter().rev())?;
            outcome.root(|| format!("{name}, backwards"), backwards, &test.root);
            outcome.root(|| format!("{name}, at once"), at_once(options, &ops)?, &test.root);
        }
    }
    Ok(outcome)
}

type Op = (Vec<u8>, Option<Vec<u8>>);

fn one_by_one<'a>(
    options: &Options,
    ops: impl Iterator<Item = &'a Op>,
) -> Result<[u8; 32], VectorError> {
    let mut raw = Raw::new(options)?;
    for (key, value) in ops {
        raw.one(key, value.as_deref())?;
    }
    Ok(raw.tree.root())
}

fn at_once(options: &Options, ops: &[Op]) -> Result<[u8; 32], VectorError> {
    let mut batch = Batch::new();
    for (key, value) in ops {
        match value {
            Some(value) => batch.put(key, value),
            None => batch.delete(key),
        }
    }
    Raw::new(options)?.commit(batch)
}

/// Hex after `0x`, else the text itself.
fn bytes(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").and_then(|digits| hex::decode(digits).ok());
    digits.unwrap_or_else(|| text.as_bytes().to_vec())
}

#[derive(Deserialize)]
struct Neighbours {
    #[serde(rename = "in")]
    keys: Vec<String>,
    /// A text, the key before it, and the key after it.
    tests: Vec<(String, String, String)>,
}

pub(super) fn run_neighbours(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    let tests: BTreeMap<String, Neighbours> = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for (name, test) in &tests {
        let mut batch = Batch::new();
        test.keys.iter().for_each(|key| batch.put(key.as_bytes(), b"x"));
        let mut raw = Raw::new(options)?;
        raw.commit(batch)?;
        for (text, before, after) in &test.tests {
            let (below, above) = neighbours(&raw, text)?;
            outcome.equal(|| format!("{name}, before {text:?}"), &below, before);
            outcome.equal(|| format!("{name}, after {text:?}"), &above, after);
        }
    }
    Ok(outcome)
}

/// The last key before `text` and the first one after it; empty where there is none.
fn neighbours(raw: &Raw, text: &str) -> Result<(String, String), VectorError> {
    use spinney_tree::{PageStore as _, TreeError};
    let snapshot = raw.store().snapshot().map_err(TreeError::from)?;
    let mut below = String::new();
    for entry in raw.tree.entries(&snapshot, None, b"") {
        let key = entry?.key;
        if &key[..] >= text.as_bytes() {
            break;
        }
        below = String::from_utf8_lossy(&key).into_owned();
    }
    for entry in raw.tree.entries(&snapshot, None, text.as_bytes()) {
        let key = entry?.key;
        if key != text.as_bytes() {
            return Ok((below, String::from_utf8_lossy(&key).into_owned()));
        }
    }
    Ok((below, String::new()))
}
