//! The vectors of the Merkle-sum tree: what Taproot Assets computed, and the BIP's own.

use std::collections::BTreeMap;

use serde::Deserialize;
use spinney_state::sum::{SumBatch, SumError, SumTree};
use spinney_store::AnyStore;
use spinney_tree::sum::{Claim, Leaf, Profile, Proof, SumNode, verify_many};
use spinney_tree::{PageStore as _, TreeError};

use super::hex::{Bytes, Hash};
use super::splitmix::SplitMix;
use super::subject::{CACHE_BYTES, Place, sound};
use super::{Options, Outcome, VectorError};

const PROFILE: Profile = Profile::Compatible;
const NAMESPACE: &str = "vectors";

type Leaves = BTreeMap<[u8; 32], Leaf>;

/// A sum as the files have it.
#[derive(Clone, Debug, Deserialize)]
struct Total(String);

impl Total {
    fn number(&self) -> u64 {
        self.0.parse().unwrap_or(u64::MAX)
    }
}

/// A leaf without its key.
#[derive(Clone, Debug, Deserialize)]
struct Node {
    value: Bytes,
    sum: Total,
}

#[derive(Debug, Deserialize)]
struct SumEntry {
    key: Hash,
    value: Bytes,
    sum: Total,
}

#[derive(Debug, Deserialize)]
struct Named {
    key: Hash,
    node: Node,
}

#[derive(Debug, Deserialize)]
struct Proven {
    key: Hash,
    compressed_proof: Bytes,
}

fn leaf(value: &Bytes, sum: &Total) -> Leaf {
    Leaf { value: value.0.clone(), sum: sum.number() }
}

fn leaves(entries: &[SumEntry]) -> Leaves {
    entries.iter().map(|entry| (entry.key.0, leaf(&entry.value, &entry.sum))).collect()
}

/// A tree, and what it is to hold.
struct Subject {
    // Closed before its place is emptied.
    store: Option<AnyStore>,
    place: Place,
    leaves: Leaves,
}

impl Subject {
    fn new(options: &Options) -> Result<Self, VectorError> {
        let place = Place::new(options)?;
        let store = Some(place.open()?);
        Ok(Self { place, store, leaves: Leaves::new() })
    }

    fn tree(&self) -> Result<SumTree<'_, AnyStore>, VectorError> {
        let store = self.store.as_ref().expect("a subject has its store");
        Ok(SumTree::create(store, NAMESPACE, PROFILE, CACHE_BYTES)?)
    }

    /// Applies a batch to what the store holds, whose pages are then those of a rebuild. The answer
    /// is whether the batch was taken; one that overflows is not.
    fn apply(&mut self, batch: &Leaves) -> Result<bool, VectorError> {
        let mut operations = SumBatch::new();
        batch.iter().for_each(|(key, leaf)| operations.put(key, leaf));
        let applied = self.tree()?.apply(&mut operations);
        let taken = match applied {
            Ok(_) => true,
            Err(SumError::Tree(TreeError::Overweight { .. })) => false,
            Err(error) => return Err(error.into()),
        };
        if taken {
            for (key, leaf) in batch {
                match leaf.is_empty() {
                    true => drop(self.leaves.remove(key)),
                    false => drop(self.leaves.insert(*key, leaf.clone())),
                }
            }
        }
        let store = self.store.take().expect("a subject has its store");
        self.store = Some(self.place.reopen(store)?);
        let tree = self.tree()?;
        sound(&tree.tree().check(&tree.store().snapshot()?, |_| {})?)?;
        Ok(taken)
    }

    fn root(
        &self,
        what: &dyn Fn() -> String,
        (hash, sum): (&Hash, &Total),
        outcome: &mut Outcome,
    ) -> Result<(), VectorError> {
        let root = self.tree()?.root();
        outcome.root(what, root.hash, hash);
        outcome.equal(|| format!("{}, sum", what()), &root.sum, &sum.number());
        Ok(())
    }

    /// Ours are theirs, and theirs hold.
    fn proofs(
        &self,
        what: &dyn Fn() -> String,
        proofs: &[Proven],
        outcome: &mut Outcome,
    ) -> Result<(), VectorError> {
        let tree = self.tree()?;
        let keys: Vec<_> = proofs.iter().map(|proof| proof.key.0).collect();
        for (ours, theirs) in tree.prove(&keys)?.iter().zip(proofs) {
            outcome.checks += 2;
            if ours.proof.encode() != theirs.compressed_proof.0 {
                outcome.failures.push(format!("{}: another proof of {}", what(), theirs.key));
            }
            let leaf = self.leaves.get(&theirs.key.0);
            let holds = Proof::decode(&theirs.compressed_proof.0).is_ok_and(|proof| {
                let claim = Claim { key: &theirs.key.0, leaf, proof: &proof };
                verify_many(PROFILE, tree.root(), &[claim]).is_ok()
            });
            if !holds || ours.leaf.as_ref() != leaf {
                outcome.failures.push(format!("{}: {} is not proven", what(), theirs.key));
            }
        }
        Ok(())
    }
}

pub(super) fn run_empty(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct File {
        hashes: Vec<Hash>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    let (table, expected) = (PROFILE.empty(), file.hashes.len());
    outcome.equal(|| "empty subtrees".to_owned(), &table.len(), &expected);
    for (depth, (ours, theirs)) in table.iter().zip(&file.hashes).enumerate() {
        outcome.root(|| format!("empty at depth {depth}"), *ours, theirs);
    }
    if let Some(root) = file.hashes.first() {
        let empty = Subject::new(options)?.tree()?.root();
        outcome.root(|| "an empty tree".to_owned(), empty.hash, root);
    }
    Ok(outcome)
}

pub(super) fn run_lone(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct Case {
        key: Hash,
        value: Bytes,
        sum: Total,
        height: usize,
        leaf_hash: Hash,
        node_hash: Hash,
    }
    #[derive(Deserialize)]
    struct File {
        cases: Vec<Case>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for (number, case) in file.cases.iter().enumerate() {
        let what = || format!("case {number}, height {}", case.height);
        let (key, leaf) = (case.key.0, leaf(&case.value, &case.sum));
        outcome.root(|| format!("{}, leaf", what()), PROFILE.leaf(&leaf).hash, &case.leaf_hash);
        // What a tree of this leaf, and of one that parts from it there, shows to the other one.
        let mut subject = Subject::new(options)?;
        let Some(depth) = case.height.checked_sub(1) else {
            subject.apply(&[(key, leaf)].into())?;
            outcome.root(what, subject.tree()?.root().hash, &case.node_hash);
            continue;
        };
        let mut other = key;
        other[depth / 8] ^= 1 << (depth % 8);
        subject.apply(&[(key, leaf)].into())?;
        let proof = subject.tree()?.prove(&[other])?.remove(0).proof;
        let sibling: Option<SumNode> = proof.siblings(PROFILE).nth(256 - case.height);
        let hash = sibling.map_or([0; 32], |sibling| sibling.hash);
        outcome.root(what, hash, &case.node_hash);
    }
    Ok(outcome)
}

pub(super) fn run_clustered(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct Case {
        leaves: Vec<SumEntry>,
        root_hash: Hash,
        root_sum: Total,
        #[serde(default)]
        proofs: Option<Vec<Proven>>,
    }
    #[derive(Deserialize)]
    struct File {
        cases: Vec<Case>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for (number, case) in file.cases.iter().enumerate() {
        let what = || format!("case {number}");
        let mut subject = Subject::new(options)?;
        subject.apply(&leaves(&case.leaves))?;
        subject.root(&what, (&case.root_hash, &case.root_sum), &mut outcome)?;
        subject.proofs(&what, case.proofs.as_deref().unwrap_or_default(), &mut outcome)?;
    }
    Ok(outcome)
}

pub(super) fn run_overflow(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct Step {
        batch: Vec<SumEntry>,
        error: String,
        root_hash: Hash,
        root_sum: Total,
    }
    #[derive(Deserialize)]
    struct Case {
        steps: Vec<Step>,
    }
    #[derive(Deserialize)]
    struct File {
        cases: Vec<Case>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for (number, case) in file.cases.iter().enumerate() {
        let mut subject = Subject::new(options)?;
        for (index, step) in case.steps.iter().enumerate() {
            let what = || format!("case {number}, step {index}");
            let taken = subject.apply(&leaves(&step.batch))?;
            outcome.equal(|| format!("{}, taken", what()), &taken, &step.error.is_empty());
            subject.root(&what, (&step.root_hash, &step.root_sum), &mut outcome)?;
        }
    }
    Ok(outcome)
}

pub(super) fn run_bip(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct Valid {
        root_hash: Hash,
        root_sum: Total,
        #[serde(default)]
        inserted_leaves: Option<Vec<Hash>>,
        #[serde(default)]
        deleted_leaves: Option<Vec<Hash>>,
        #[serde(default)]
        replaced_leaves: Option<Vec<Named>>,
    }
    #[derive(Deserialize)]
    struct Invalid {
        inserted_leaves: Vec<Hash>,
    }
    #[derive(Deserialize)]
    struct File {
        all_tree_leaves: Vec<Named>,
        #[serde(default)]
        valid_test_cases: Option<Vec<Valid>>,
        #[serde(default)]
        error_test_cases: Option<Vec<Invalid>>,
    }
    let file: File = serde_json::from_slice(json)?;
    let all: BTreeMap<[u8; 32], Leaf> = file
        .all_tree_leaves
        .iter()
        .map(|named| (named.key.0, leaf(&named.node.value, &named.node.sum)))
        .collect();
    let named = |keys: &[Hash]| -> Leaves {
        keys.iter().filter_map(|key| Some((key.0, all.get(&key.0)?.clone()))).collect()
    };
    let mut outcome = Outcome::default();
    for (number, case) in file.valid_test_cases.iter().flatten().enumerate() {
        let mut subject = Subject::new(options)?;
        subject.apply(&named(case.inserted_leaves.as_deref().unwrap_or_default()))?;
        let mut gone = named(case.deleted_leaves.as_deref().unwrap_or_default());
        gone.values_mut().for_each(|leaf| *leaf = Leaf::default());
        subject.apply(&gone)?;
        for Named { key, node } in case.replaced_leaves.iter().flatten() {
            subject.apply(&[(key.0, leaf(&node.value, &node.sum))].into())?;
        }
        let what = || format!("case {number}");
        subject.root(&what, (&case.root_hash, &case.root_sum), &mut outcome)?;
    }
    for (number, case) in file.error_test_cases.iter().flatten().enumerate() {
        let mut subject = Subject::new(options)?;
        let taken = subject.apply(&named(&case.inserted_leaves))?;
        outcome.equal(|| format!("error case {number}, taken"), &taken, &false);
        let root = subject.tree()?.root();
        outcome.equal(|| format!("error case {number}, sum"), &root.sum, &0);
    }
    Ok(outcome)
}

impl SplitMix {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(count + 8);
        while out.len() < count {
            out.extend(self.next().to_le_bytes());
        }
        out.truncate(count);
        out
    }

    fn key(&mut self) -> [u8; 32] {
        let mut key = [0; 32];
        key.copy_from_slice(&self.bytes(32));
        key
    }

    fn leaf(&mut self) -> Leaf {
        let length = (self.next() % 64 + 1) as usize;
        Leaf { value: self.bytes(length), sum: (self.next() >> 32) + 1 }
    }
}

/// The batches of all steps but the last one, which deletes everything.
fn drawn(n: u64) -> [Leaves; 4] {
    let mut draw = SplitMix(n);
    let first: Vec<_> = (0..n).map(|_| (draw.key(), draw.leaf())).collect();
    let mut replaced = Leaves::new();
    for (key, _) in first.iter().step_by(3) {
        let value = draw.bytes(32);
        replaced.insert(*key, Leaf { value, sum: draw.next() >> 32 });
    }
    let mut deleted: Leaves =
        first.iter().step_by(5).map(|(key, _)| (*key, Leaf::default())).collect();
    deleted.insert(SplitMix(n ^ 0x00AB_CDEF).key(), Leaf::default());
    let more = (0..n / 10 + 1).map(|_| (draw.key(), draw.leaf())).collect();
    [first.into_iter().collect(), replaced, deleted, more]
}

pub(super) fn run_random(json: &[u8], options: &Options) -> Result<Outcome, VectorError> {
    #[derive(Deserialize)]
    struct Step {
        step: String,
        root_hash: Hash,
        root_sum: Total,
        #[serde(default)]
        proofs: Option<Vec<Proven>>,
    }
    #[derive(Deserialize)]
    struct Case {
        n: u64,
        steps: Vec<Step>,
    }
    #[derive(Deserialize)]
    struct File {
        cases: Vec<Case>,
    }
    let file: File = serde_json::from_slice(json)?;
    let mut outcome = Outcome::default();
    for case in file.cases {
        if case.n > options.keys_max {
            outcome.skipped += case.steps.len() as u64;
            continue;
        }
        let mut subject = Subject::new(options)?;
        let batches = drawn(case.n);
        for (index, step) in case.steps.iter().enumerate() {
            let all = || subject.leaves.keys().map(|key| (*key, Leaf::default())).collect();
            let batch = batches.get(index).cloned().unwrap_or_else(all);
            subject.apply(&batch)?;
            let what = || format!("n = {}, {}", case.n, step.step);
            subject.root(&what, (&step.root_hash, &step.root_sum), &mut outcome)?;
            subject.proofs(&what, step.proofs.as_deref().unwrap_or_default(), &mut outcome)?;
        }
    }
    Ok(outcome)
}
