//! `ubt_*.json`, `pbt_*.json`: raw keys in the binary trees. States are left to the tests of their
//! embeddings.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::{Batch, HashFunction, PageStore as _, Scheme, Tree, TreeId};

use HashFunction::{Blake3, Sha256};

use super::hex::{Bytes, Hash};
use super::subject::{CACHE_BYTES, Place, drawn, sound};
use super::{Options, Outcome, VectorError};

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// The root of a tree that is filled in two commits, and opened again after each where it is on
/// disk.
fn root_of<S: Scheme<Root = [u8; 32]> + Clone>(
    scheme: &S,
    entries: &Entries,
    options: &Options,
) -> Result<[u8; 32], VectorError> {
    let place = Place::new(options)?;
    let mut store = place.open()?;
    let mut root = scheme.root(None);
    for half in [0, 1] {
        let mut tree = Tree::open(scheme.clone(), TreeId(1), &store.snapshot()?, CACHE_BYTES)?;
        let mut batch = Batch::new();
        for (key, value) in entries.iter().skip(half).step_by(2) {
            batch.put(key, value);
        }
        let pending = tree.prepare(&store.snapshot()?, None, batch)?;
        tree.commit(&store, &pending, None)?;
        store = place.reopen(store)?;
        let tree = Tree::open(scheme.clone(), TreeId(1), &store.snapshot()?, CACHE_BYTES)?;
        sound(&tree.check(&store.snapshot()?, |_| {})?)?;
        root = tree.root();
    }
    Ok(root)
}

fn ubt(hash: HashFunction, entries: &Entries, options: &Options) -> Result<[u8; 32], VectorError> {
    root_of(&Ubt { hash }, entries, options)
}

fn pbt(hash: HashFunction, entries: &Entries, options: &Options) -> Result<[u8; 32], VectorError> {
    root_of(&Pbt { hash }, entries, options)
}

/// A case whose entries follow from its name.
#[derive(Deserialize)]
struct Drawn {
    name: String,
    root_sha256: Option<Hash>,
    eip7864_stem31_sha256: Option<Hash>,
    eip7864_stem31_blake3: Option<Hash>,
    eip8297_blake3: Option<Hash>,
    eip8297_sha256: Option<Hash>,
}

impl Drawn {
    /// The entries, as the file says how they are drawn; `None` where it says something else.
    fn entries(&self) -> Option<Entries> {
        let mut parts = self.name.split('-');
        let kind = (parts.next()?, parts.next()?);
        let n: u64 = if kind.0 == "commit" { kind.1 } else { parts.next()? }.parse().ok()?;
        let key = |i: u64| match kind {
            ("raw", "random") | ("commit", _) => Some(drawn("k", i).to_vec()),
            ("raw", "colocated") => Some([&drawn("s", i / 16)[..31], &drawn("x", i)[..1]].concat()),
            ("raw", "prefix20") => Some([&drawn("p", i % 4)[..20], &drawn("k", i)[20..]].concat()),
            _ => None,
        };
        (0..n).map(|i| Some((key(i)?, drawn("v", i).to_vec()))).collect()
    }

    fn run(&self, options: &Options, outcome: &mut Outcome) -> Result<(), VectorError> {
        type Root = fn(HashFunction, &Entries, &Options) -> Result<[u8; 32], VectorError>;
        let entries = self.entries().filter(|entries| entries.len() as u64 <= options.keys_max);
        let roots: [(_, Root, _); 5] = [
            (&self.root_sha256, ubt, Sha256),
            (&self.eip7864_stem31_sha256, ubt, Sha256),
            (&self.eip7864_stem31_blake3, ubt, Blake3),
            (&self.eip8297_blake3, pbt, Blake3),
            (&self.eip8297_sha256, pbt, Sha256),
        ];
        for (expected, root, hash) in roots {
            let Some(expected) = expected else { continue };
            match &entries {
                Some(entries) => {
                    let root = root(hash, entries, options)?;
                    outcome.root(|| format!("{}, {hash}", self.name), root, expected);
                }
                None => outcome.skipped += 1,
            }
        }
        Ok(())
    }
}

pub(super) fn run_geth(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct File {
        cases: Vec<Drawn>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    file.cases.iter().try_for_each(|case| case.run(options, &mut outcome))?;
    Ok(outcome)
}

pub(super) fn run_cross_check(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct File {
        raw: Vec<Drawn>,
        #[serde(default)]
        state: Vec<Value>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    file.raw.iter().try_for_each(|case| case.run(options, &mut outcome))?;
    outcome.skipped += file.state.len() as u64;
    Ok(outcome)
}

pub(super) fn run_ubt(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct Case {
        name: String,
        entries: Option<Vec<(Bytes, Bytes)>>,
        root_sha256: Option<Hash>,
        root_blake3: Option<Hash>,
    }
    #[derive(Deserialize)]
    struct File {
        vectors: Vec<Case>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for case in file.vectors {
        let Some(entries) = case.entries else {
            outcome.skipped += 1;
            continue;
        };
        let entries: Entries = entries.into_iter().map(|(key, value)| (key.0, value.0)).collect();
        for (hash, expected) in [(Sha256, &case.root_sha256), (Blake3, &case.root_blake3)] {
            let Some(expected) = expected else { continue };
            let root = ubt(hash, &entries, options)?;
            outcome.root(|| format!("{}, {hash}", case.name), root, expected);
        }
    }
    Ok(outcome)
}

pub(super) fn run_pbt(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct Entry {
        key: Bytes,
        value: Bytes,
    }
    #[derive(Deserialize)]
    struct Case {
        name: String,
        entries: Vec<Entry>,
        root: Hash,
    }
    #[derive(Deserialize)]
    struct File {
        trie_roots: Vec<Case>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for case in file.trie_roots {
        let entries = case.entries.into_iter().map(|entry| (entry.key.0, entry.value.0)).collect();
        outcome.root(|| case.name, pbt(Blake3, &entries, options)?, &case.root);
    }
    Ok(outcome)
}
