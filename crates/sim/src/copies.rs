//! Verbs that move the state elsewhere: into a tree of another kind in a store of its own, after
//! its chain by access lists, through files, and back.

use std::fs::{self, File};
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;

use alloy_primitives::B256;
use fastrand::Rng;
use spinney_migrate::{
    At, CatchUp, CatchUpError, ListedBlock, MigrateError, NameSource, Work, export_preimages,
    export_snapshot, from_mpt, import_snapshot, match_preimages, to_mpt,
};
use spinney_pipeline::Options;
use spinney_state::State;
use spinney_store::{AnyStore, OpenFor};
use spinney_tree::BlockId;

use crate::looks::check_tree;
use crate::model::{Block, PBT};
use crate::site::Tap;
use crate::world::{Done, Stop, World, same, wrong};

const PART: &str = "copy.part";
const COPY: &str = "copy";

/// Does work in little memory.
fn worked<T>(
    spill: PathBuf,
    work: impl FnOnce(&mut Work<'_>) -> Result<T, MigrateError>,
) -> Result<T, MigrateError> {
    let mut options = Options::default();
    (options.memory, options.threads, options.in_flight) = (1 << 20, 1, 2);
    let mut watch = |_: &At| ControlFlow::Continue(());
    work(&mut Work {
        options,
        spill: &spill,
        cache: 1 << 16,
        limit: None,
        verify: false,
        watch: &mut watch,
    })
}

/// Opens a store of another name for a while. What it answers tells whether it is closed well.
fn with<T>(
    world: &mut World,
    (name, what_for): (&str, OpenFor),
    work: impl FnOnce(&mut World, &AnyStore) -> Done<T>,
) -> Done<T> {
    let store = world.site.open(name, what_for).map_err(|error| world.failed(name, error))?;
    let done = work(world, &store);
    match &done {
        Ok(_) => world.site.close(name, store).map_err(|error| world.failed(name, error))?,
        Err(_) => world.site.leave(name, store),
    }
    done
}

/// Gives up the copy that there is, and what was begun.
fn clear(world: &mut World) -> Done {
    if world.durable.copy.is_some() {
        let mut after = world.durable.clone();
        after.copy = None;
        world.begin(after);
        world.site.remove(COPY).map_err(|error| world.failed("removing a copy", error))?;
        world.done();
    }
    Ok(())
}

/// Gives the copy that was made its name.
fn publish(world: &mut World, chain: Vec<Rc<Block>>) -> Done {
    clear(world)?;
    let mut after = world.durable.clone();
    after.copy = Some(chain);
    world.begin(after);
    world.site.publish(PART, COPY).map_err(|error| world.failed("naming a copy", error))?;
    world.begun = None;
    world.done();
    Ok(())
}

/// Converts the last commit.
pub(crate) fn convert(world: &mut World, tap: Tap<'_>, _: &mut Rng) -> Done {
    let Some(head) = world.durable.head().cloned() else { return Ok(()) };
    let source = B256::from(head.id.hash);
    if world.begun != Some(source) {
        world.site.remove(PART).map_err(|error| world.failed("removing a part", error))?;
        let _ = fs::remove_dir_all(world.spill());
    }
    world.begun = Some(source);
    let made = with(world, (PART, OpenFor::Filling), |world, target| {
        let run = |work: &mut Work<'_>| from_mpt(&tap, target, PBT, NameSource::Store, work);
        worked(world.spill(), run).map_err(|error| world.failed("convert", error))
    })?;
    same("root of the source", made.source_root, head.after.mpt_root())?;
    same("root of a conversion", made.root, head.after.pbt_root())?;
    same("block of a conversion", made.block, Some(head.id))?;
    same("accounts", made.counts.accounts, head.after.accounts.0.len() as u64)?;
    let chain = world.durable.chain.clone();
    publish(world, chain)
}

/// Follows the chain, and perhaps a fork of it first.
pub(crate) fn follow(world: &mut World, rng: &mut Rng) -> Done {
    let Some(copy) = world.durable.copy.clone() else { return Ok(()) };
    let base = copy.len() - 1;
    let ours = world.durable.chain.clone();
    let is_on_it = ours.get(base).is_some_and(|block| block.id == copy[base].id);
    let depth = rng.usize(0..4);
    let fork = (rng.bool() && is_on_it).then(|| fork(world, &ours[base], rng));
    let behind: Vec<_> = ours.iter().skip(base + 1).take(12).cloned().collect();
    with(world, (COPY, OpenFor::Writing), |world, store| {
        let opened = CatchUp::open(PBT, store, 1 << 16);
        let mut tree = opened.map_err(|error| world.failed("catch-up", error))?;
        same("base of a copy", tree.base(), copy[base].id)?;
        if let Some(fork) = fork.filter(|fork| fork.is_said) {
            apply(world, &mut tree, &fork)?;
        }
        let mut chain = copy;
        let mut waiting = Vec::new();
        for block in behind {
            if !is_on_it {
                return is_strange(world, &mut tree, &block);
            }
            if !block.is_said {
                break;
            }
            apply(world, &mut tree, &block)?;
            waiting.push(block);
            if waiting.len() > depth {
                let last = waiting.len() - depth;
                settle(world, &mut tree, &mut chain, waiting.drain(..last).collect())?;
            }
        }
        let root = chain.last().map(|last| last.after.pbt_root());
        let waited = waiting.last().map(|last| last.after.pbt_root());
        match waited.or(root.filter(|_| tree.layers() == 0)) {
            Some(root) => same("root in the end", tree.root(), root),
            None => Ok(()),
        }
    })
}

/// A block that is on no chain.
fn fork(world: &mut World, on: &Rc<Block>, rng: &mut Rng) -> Block {
    let id = BlockId { number: on.id.number + 1, hash: world.hash() };
    Block::new(id, Some(on), vec![crate::changes::changes(rng), crate::changes::changes(rng)])
}

fn apply(world: &mut World, tree: &mut CatchUp<&AnyStore>, block: &Block) -> Done {
    let list = match block.list() {
        Ok(list) => list,
        Err(error) => return wrong(format!("block {} has no list: {error}", block.id.number)),
    };
    let (rlp, list_hash) = (list.to_rlp(), list.hash());
    let listed = ListedBlock { id: block.id, parent: block.parent, list: &rlp, list_hash };
    let root = tree.apply(&listed).map_err(|error| world.failed("an access list", error))?;
    world.tally.followed += 1;
    same("root after an access list", root, block.after.pbt_root())
}

/// A block of another chain is refused.
fn is_strange(world: &World, tree: &mut CatchUp<&AnyStore>, block: &Block) -> Done {
    let listed =
        ListedBlock { id: block.id, parent: block.parent, list: &[], list_hash: B256::ZERO };
    match tree.apply(&listed) {
        Err(CatchUpError::Stranger { .. }) => Ok(()),
        Err(error) => Err(world.failed("a block of another chain", error)),
        Ok(_) => wrong("a block of another chain is taken"),
    }
}

fn settle(
    world: &mut World,
    tree: &mut CatchUp<&AnyStore>,
    chain: &mut Vec<Rc<Block>>,
    blocks: Vec<Rc<Block>>,
) -> Done {
    chain.extend(blocks);
    let Some(last) = chain.last() else { return Ok(()) };
    let mut after = world.durable.clone();
    after.copy = Some(chain.clone());
    world.begin(after);
    let done = tree.finalise(last.id.hash.into());
    done.map_err(|error| world.failed("finalise", error))?;
    world.done();
    Ok(())
}

/// Through the files of EIP-8347: what comes out of them takes the place of the copy.
pub(crate) fn through_files(world: &mut World, _: &mut Rng) -> Done {
    let Some(copy) = world.durable.copy.clone() else { return Ok(()) };
    let Some(head) = copy.last().cloned() else { return Ok(()) };
    let [leaves, names] = ["snapshot", "preimages"].map(|name| world.scratch.path().join(name));
    let (root, state_root) = (head.after.pbt_root(), head.after.mpt_root());
    with(world, (COPY, OpenFor::Writing), |world, store| {
        check_tree(world, &store, PBT)?;
        let snapshot = |work: &mut Work<'_>| export_snapshot(store, PBT, Vec::new(), work);
        let (_, bytes) = worked(world.spill(), snapshot)
            .map_err(|error| world.failed("export of a snapshot", error))?;
        write(&leaves, &bytes)?;
        let preimages = |work: &mut Work<'_>| export_preimages(store, PBT, Vec::new(), work);
        let (_, bytes) = worked(world.spill(), preimages)
            .map_err(|error| world.failed("export of preimages", error))?;
        write(&names, &bytes)
    })?;
    world.site.remove(PART).map_err(|error| world.failed("removing a part", error))?;
    let _ = fs::remove_dir_all(world.spill());
    world.begun = None;
    with(world, (PART, OpenFor::Filling), |world, target| {
        let import = |work: &mut Work<'_>| {
            let made = import_snapshot(&leaves, target, PBT, Some(head.id), work)?;
            match_preimages(&names, target, PBT, Some(state_root), true, work)?;
            Ok(made)
        };
        let made = worked(world.spill(), import);
        let made = made.map_err(|error| world.failed("import of a snapshot", error))?;
        same("root of a snapshot", made.root, root)
    })?;
    publish(world, copy)
}

fn write(path: &PathBuf, bytes: &[u8]) -> Done {
    let written = File::create(path).and_then(|mut file| file.write_all(bytes));
    written.map_err(|error| Stop::Wrong(format!("{}: {error}", path.display())))
}

/// Back into a trie, which goes once it was looked at.
pub(crate) fn back(world: &mut World, _: &mut Rng) -> Done {
    let Some(copy) = world.durable.copy.clone() else { return Ok(()) };
    let Some(head) = copy.last().cloned() else { return Ok(()) };
    let target = AnyStore::memory();
    let spill = world.scratch.path().join("back");
    let made = with(world, (COPY, OpenFor::Writing), |world, store| {
        let run = |work: &mut Work<'_>| to_mpt(store, &target, PBT, NameSource::Store, work);
        worked(spill, run).map_err(|error| world.failed("convert back", error))
    })?;
    same("root of the way back", made.root, head.after.mpt_root())?;
    let state =
        State::open(&target, 1 << 16).map_err(|error| world.failed("the way back", error))?;
    same("block of the way back", state.block(), Some(head.id))?;
    let findings = state.check(|_| {}).map_err(|error| world.failed("the way back", error))?;
    same("findings", findings, vec![])
}
