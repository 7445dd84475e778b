//! Verbs on the sum trees of the store.

use std::collections::BTreeMap;

use fastrand::Rng;
use spinney_state::sum::{Nest, SumBatch, SumError, SumTree, commit_together};
use spinney_tree::PageStore;
use spinney_tree::sum::reference::Leaves;
use spinney_tree::sum::{Leaf, Profile};

use crate::model::Sums;
use crate::site::Tap;
use crate::world::{Done, World, same, wrong};

const NAMES: [&str; 3] = ["all", "one", "two"];
const CACHE_BYTES: usize = 1 << 16;

fn key(rng: &mut Rng) -> [u8; 32] {
    let mut key = [0x5a; 32];
    (key[0], key[31]) = (rng.u8(0..3), rng.u8(0..3));
    key
}

/// Leaves to put; empty ones are to go.
fn leaves(rng: &mut Rng) -> Leaves {
    let leaf = |rng: &mut Rng| match rng.u8(0..4) {
        0 => Leaf::default(),
        _ => Leaf { value: vec![rng.u8(..); rng.usize(0..40)], sum: rng.u64(0..1_000) },
    };
    (0..rng.u8(1..5)).map(|_| (key(rng), leaf(rng))).collect()
}

fn batch_of(leaves: &Leaves) -> SumBatch {
    let mut batch = SumBatch::new();
    leaves.iter().for_each(|(key, leaf)| batch.put(key, leaf));
    batch
}

/// Opens the tree of a name, or makes it.
fn tree<'s, 't>(world: &mut World, store: &'t Tap<'s>, name: &str) -> Done<SumTree<'t, Tap<'s>>> {
    let known = world.durable.sums.get(name).map(|sums| sums.profile);
    let profile = known.unwrap_or(if name == "two" { Profile::Bound } else { Profile::Compatible });
    if known.is_none() {
        let mut after = world.durable.clone();
        after.sums.insert(name.into(), Sums::new(profile));
        world.begin(after);
    }
    let tree = SumTree::create(store, name, profile, CACHE_BYTES);
    let tree = tree.map_err(|error| world.failed("making a sum tree", error))?;
    if known.is_none() {
        world.done();
    }
    Ok(tree)
}

/// Puts and deletes leaves of one tree.
pub(crate) fn batch(world: &mut World, tap: Tap<'_>, rng: &mut Rng) -> Done {
    let name = NAMES[rng.usize(0..NAMES.len())];
    let mut tree = tree(world, &tap, name)?;
    if world.is_going && !world.durable.sums.contains_key(name) {
        return Ok(());
    }
    let leaves = leaves(rng);
    let mut after = world.durable.clone();
    let sums = after.sums[name].after(&leaves);
    let root = sums.root;
    after.sums.insert(name.into(), sums);
    world.begin(after);
    let applied = tree.apply(&mut batch_of(&leaves));
    applied.map_err(|error| world.failed("a sum batch", error))?;
    world.done();
    same("root of a sum tree", tree.root(), root)?;
    if world.is_going { Ok(()) } else { proofs(world, &tree, rng) }
}

/// Trees that nest, rebuilds, copies and removals.
pub(crate) fn other(world: &mut World, tap: Tap<'_>, rng: &mut Rng) -> Done {
    match rng.u8(0..8) {
        0..3 => nest(world, tap, rng),
        3 | 4 => rebuild(world, tap, rng),
        5 => remove(world, tap, rng),
        6 => refuse(world, tap, rng),
        _ => copy(world, tap),
    }
}

/// The names are there, so that one commit is all that is to come.
fn are_there(world: &World, names: &[&str]) -> bool {
    names.iter().all(|name| world.durable.sums.contains_key(*name))
}

fn nest(world: &mut World, tap: Tap<'_>, rng: &mut Rng) -> Done {
    if !are_there(world, &["one", "all"]) {
        return batch(world, tap, rng);
    }
    let (mut child, mut parent) = (tree(world, &tap, "one")?, tree(world, &tap, "all")?);
    let (leaves, mut above, at) = (leaves(rng), BTreeMap::new(), [0x77; 32]);
    let mut after = world.durable.clone();
    let inner = after.sums["one"].after(&leaves);
    let leaf =
        if inner.root == inner.profile.empty_node(0) { Leaf::default() } else { inner.root.into() };
    above.insert(at, leaf);
    let outer = after.sums["all"].after(&above);
    let roots = (inner.root, outer.root);
    after.sums.extend([("one".to_owned(), inner), ("all".to_owned(), outer)]);
    world.begin(after);
    let mut trees = [(&mut child, batch_of(&leaves)), (&mut parent, SumBatch::new())];
    let done = commit_together(&tap, &mut trees, &[Nest { child: 0, parent: 1, key: at }]);
    done.map_err(|error| world.failed("nested sum trees", error))?;
    world.done();
    same("roots of nested trees", (child.root(), parent.root()), roots)
}

fn rebuild(world: &mut World, tap: Tap<'_>, rng: &mut Rng) -> Done {
    let name = NAMES[rng.usize(0..NAMES.len())];
    if !are_there(world, &[name]) {
        return Ok(());
    }
    let mut tree = tree(world, &tap, name)?;
    let mut all = leaves(rng);
    all.retain(|_, leaf| !leaf.is_empty());
    let mut after = world.durable.clone();
    let sums = Sums::new(tree.profile()).after(&all);
    let root = sums.root;
    after.sums.insert(name.into(), sums);
    world.begin(after);
    let mut sorted: Vec<_> = all.into_iter().collect();
    sorted.sort_by_key(|(key, _)| spinney_tree::sum::path(key));
    let done = tree.rebuild(sorted.into_iter().map(Ok::<_, SumError>));
    done.map_err(|error| world.failed("a rebuild of a sum tree", error))?;
    world.done();
    same("root of a sum tree that was rebuilt", tree.root(), root)
}

fn remove(world: &mut World, tap: Tap<'_>, rng: &mut Rng) -> Done {
    let name = NAMES[rng.usize(0..NAMES.len())];
    if !are_there(world, &[name]) {
        return Ok(());
    }
    let tree = tree(world, &tap, name)?;
    let mut after = world.durable.clone();
    after.sums.remove(name);
    world.begin(after);
    tree.remove().map_err(|error| world.failed("removing a sum tree", error))?;
    world.done();
    Ok(())
}

/// A batch whose sums overflow changes nothing.
fn refuse(world: &mut World, tap: Tap<'_>, rng: &mut Rng) -> Done {
    let name = NAMES[rng.usize(0..NAMES.len())];
    if !are_there(world, &[name]) {
        return Ok(());
    }
    let mut tree = tree(world, &tap, name)?;
    let mut batch = SumBatch::new();
    for last in 0..2 {
        batch.put(&[last; 32], &Leaf { value: vec![1], sum: u64::MAX });
    }
    let root = tree.root();
    if tree.apply(&mut batch).is_ok() {
        return wrong("sums that overflow are taken");
    }
    same("root after a refusal", tree.root(), root)
}

fn copy(world: &mut World, tap: Tap<'_>) -> Done {
    if !are_there(world, &["one", "all"]) {
        return Ok(());
    }
    let (from, mut to) = (tree(world, &tap, "one")?, tree(world, &tap, "all")?);
    let mut after = world.durable.clone();
    let sums = after.sums["all"].after(&after.sums["one"].leaves);
    let root = sums.root;
    after.sums.insert("all".into(), sums);
    world.begin(after);
    from.copy_to(&mut to).map_err(|error| world.failed("copying a sum tree", error))?;
    world.done();
    same("root of a copy", to.root(), root)
}

fn proofs<P: PageStore>(world: &mut World, tree: &SumTree<'_, P>, rng: &mut Rng) -> Done {
    let Some(sums) = world.durable.sums.get(tree.name()) else { return Ok(()) };
    let keys = [key(rng), key(rng)];
    let proven = tree.prove(&keys).map_err(|error| world.failed("proofs of sums", error))?;
    for (key, proven) in keys.iter().zip(proven) {
        same("leaf", proven.leaf.as_ref(), sums.leaves.get(key))?;
        let verified = match &proven.leaf {
            Some(leaf) => {
                proven.proof.verify_inclusion(sums.profile, sums.root, key, leaf).map(drop)
            }
            None => proven.proof.verify_exclusion(sums.profile, sums.root, key).map(drop),
        };
        if let Err(error) = verified {
            return wrong(format!("a proof of a sum is refused: {error}"));
        }
    }
    world.tally.proofs += 2;
    Ok(())
}

/// A tree has the leaves of the model, and is sound.
pub(crate) fn check<P: PageStore>(world: &World, tree: &SumTree<'_, P>) -> Done {
    let sums = &world.durable.sums[tree.name()];
    let mut found = Leaves::new();
    let visited = tree.visit(|key, leaf| {
        found.insert(key, leaf);
        Ok::<_, SumError>(true)
    });
    visited.map_err(|error| world.failed("leaves of sums", error))?;
    same("leaves", &found, &sums.leaves)?;
    let failed = |error: &dyn std::fmt::Display| world.failed("check of sums", error);
    let snapshot = tree.store().snapshot().map_err(|error| failed(&error))?;
    let findings = tree.tree().check(&snapshot, |_| {}).map_err(|error| failed(&error))?;
    same("findings", findings, vec![])
}
