//! `published.json`: roots that others published.

use serde::Deserialize;
use serde_json::Value;

use super::hex::{Bytes, Hash};
use super::subject::Raw;
use super::{Options, Outcome, VectorError};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PublishedFile {
    empty_root: Hash,
    stack_trie_groups: Vec<Vec<Insertion>>,
    trie_test: Vec<PublishedTest>,
    /// Hashes of blocks, which need the genesis files.
    genesis_hashes: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Insertion {
    key_hex: Bytes,
    value_ascii: String,
    root_after: Hash,
}

#[derive(Deserialize)]
struct PublishedTest {
    name: String,
    ops: Vec<(String, String)>,
    root: Hash,
}

pub(super) fn run(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    let file: PublishedFile = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    outcome.root(|| "the empty tree".to_owned(), Raw::new(options)?.tree.root(), &file.empty_root);
    for (group, insertions) in file.stack_trie_groups.iter().enumerate() {
        let mut raw = Raw::new(options)?;
        for (step, insertion) in insertions.iter().enumerate() {
            let value = insertion.value_ascii.as_bytes();
            let root = raw.one(&insertion.key_hex.0, Some(value))?;
            let what = || format!("stackTrieGroups {group}, step {step}");
            outcome.root(what, root, &insertion.root_after);
        }
    }
    for test in &file.trie_test {
        let mut raw = Raw::new(options)?;
        for (key, value) in &test.ops {
            // An empty value is a deletion, here as in the tree.
            raw.one(key.as_bytes(), Some(value.as_bytes()))?;
        }
        outcome.root(|| test.name.clone(), raw.tree.root(), &test.root);
    }
    outcome.skipped += file.genesis_hashes.as_object().map_or(0, |hashes| hashes.len() as u64);
    Ok(outcome)
}
