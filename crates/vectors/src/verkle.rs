//! `trees.json` of the Verkle vectors: raw keys put, put again and deleted, by the canonical rule.

use std::collections::BTreeMap;

use serde::Deserialize;
use spinney_tree::verkle::Verkle;
use spinney_tree::{Batch, PageStore as _, Tree, TreeId};

use super::hex::{Bytes, Hash};
use super::subject::{CACHE_BYTES, Place, sound};
use super::{Options, Outcome, VectorError};

#[derive(Deserialize)]
struct VerkleFile {
    sequences: Vec<Sequence>,
    special: Vec<Sequence>,
}

#[derive(Deserialize)]
struct Sequence {
    name: String,
    #[serde(default)]
    inserts: Vec<Entry>,
    #[serde(default)]
    updates: Vec<Entry>,
    #[serde(default)]
    deletes: Vec<Bytes>,
    after_insert: Roots,
    after_update: Option<Roots>,
    after_delete_canonical_rebuild: Option<Roots>,
}

#[derive(Deserialize)]
struct Entry {
    key: Bytes,
    value: Bytes,
}

#[derive(Deserialize)]
struct Roots {
    root_commitment: Hash,
    root_hash_le: Hash,
}

pub(super) fn run(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    let file: VerkleFile = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for sequence in file.sequences.iter().chain(&file.special) {
        if sequence.inserts.len() as u64 > options.keys_max {
            outcome.skipped += 1;
        } else {
            sequence.run(options, &mut outcome)?;
        }
    }
    Ok(outcome)
}

impl Sequence {
    fn run(&self, options: &Options, outcome: &mut Outcome) -> Result<(), VectorError> {
        let place = Place::new(options)?;
        let mut store = place.open()?;
        let steps = [
            ("insert", puts(&self.inserts), Some(&self.after_insert)),
            ("update", puts(&self.updates), self.after_update.as_ref()),
            ("delete", deletes(&self.deletes), self.after_delete_canonical_rebuild.as_ref()),
        ];
        for (step, batch, expected) in steps {
            let Some(expected) = expected else { continue };
            let verkle = Verkle::shared();
            let mut tree = Tree::open(verkle.clone(), TreeId(1), &store.snapshot()?, CACHE_BYTES)?;
            let pending = tree.prepare(&store.snapshot()?, None, batch)?;
            tree.commit(&store, &pending, None)?;
            store = place.reopen(store)?;
            let tree = Tree::open(verkle, TreeId(1), &store.snapshot()?, CACHE_BYTES)?;
            sound(&tree.check(&store.snapshot()?, |_| {})?)?;
            let (name, root) = (|| format!("{} after {step}", self.name), tree.root());
            outcome.root(name, root, &expected.root_commitment);
            let hash = Verkle::root_hash(&root).unwrap_or_default();
            outcome.root(name, hash, &expected.root_hash_le);
        }
        Ok(())
    }
}

fn puts(entries: &[Entry]) -> Batch {
    // Of several updates of a key the last one counts.
    let last: BTreeMap<&[u8], &[u8]> =
        entries.iter().map(|entry| (&entry.key.0[..], &entry.value.0[..])).collect();
    let mut batch = Batch::new();
    for (key, value) in last {
        // Shorter values end in zeros.
        let mut padded = value.to_vec();
        padded.resize(32, 0);
        batch.put(key, &padded);
    }
    batch
}

fn deletes(keys: &[Bytes]) -> Batch {
    let mut batch = Batch::new();
    keys.iter().for_each(|key| batch.delete(&key.0));
    batch
}
