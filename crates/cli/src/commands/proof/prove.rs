//! `prove`: a proof from a store or an archive.

use alloy_primitives::{Address, B256, Bytes, U64, keccak256};
use serde::Serialize;
use spinney_document::{AccountDocument, KeysDocument, WordsDocument};
use spinney_state::embed::{BinaryState, Embedding};
use spinney_state::{MPT, State};
use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::Profile;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{BlockId, KeyProofs, PageStore, SharedStore, Tree};

use super::args::{Held, ONCE_HINT, ProveArgs};
use super::span::{self, States};
use super::verify;
use crate::commands::archive;
use crate::commands::sums::{self, NamespaceArgs};
use crate::commits::Commits;
use crate::failure::{Exit, Failure};
use crate::stores::{Mode, Place};
use crate::trees::{self, Name};
use crate::ui::Output;

pub(super) fn run(args: &ProveArgs, place: &Place, output: &Output) -> anyhow::Result<Exit> {
    let name = sums::asked(args.tree.as_deref(), &args.namespace, place)?;
    if let Name::Sum(profile) = name {
        return leaves(args, profile, place, output);
    }
    NamespaceArgs::check(name)?;
    args.check_not_all(name)?;
    let store = place.open(Mode::Look)?;
    let has_block = args.number()?.is_some() || args.from.is_some();
    let commits = Commits::of(&store, has_block)?;
    // Root, nodes and block are of one commit, whoever writes meanwhile.
    let commit = match args.number()? {
        Some(number) => commits.at(number)?,
        None => commits.last.clone(),
    };
    let held = Held { store: &commit, name: place.name(), cache_bytes: place.tree_cache() };
    let Some(_) = args.from else { return one(args, name, &held, output) };
    let record = trees::record_of(&held.store.snapshot()?, name, &held.name)?;
    let Some(last) = record.block else {
        return Err(Failure::new("the store keeps the state of no block (--from)")
            .hint("leave out --from: what the store holds is proven as it is")
            .into());
    };
    match args.span(last.number)? {
        Some(blocks) => many(args, name, (&held, States::Store(&commits)), blocks, output),
        None => one(args, name, &held, output),
    }
}

/// Proves from an archive.
pub(super) fn from_archive(args: &ProveArgs, place: &str, output: &Output) -> anyhow::Result<Exit> {
    // Half for the archive's parts, half for the pages made of them.
    let cache_bytes = args.cache_bytes() / 2;
    let archive = archive::open(place, cache_bytes)?;
    match (args.address, archive.manifest().slice) {
        (Some(address), _) => {
            archive.check_account(&address.into_array()).map_err(archive::failure)?;
        }
        // Which keys are those of its accounts nobody knows.
        (None, Some(_)) => {
            let what = format!("{place} is a slice of some accounts, and keys are asked for");
            return Err(Failure::new(what).hint("give --address, and --slot").into());
        }
        (None, None) => {}
    }
    let (_, last) = archive.blocks();
    let number = args.number()?.unwrap_or(last);
    let view = archive.at(args.from.unwrap_or(number)).map_err(archive::failure)?;
    let name = match &args.tree {
        Some(name) => trees::parse(name)?,
        None => trees::first_of(&view)?.unwrap_or(Name::Mpt),
    };
    if matches!(name, Name::Sum(_)) {
        let what = format!("an archive does not prove a tree {name} (--archive)");
        return Err(Failure::new(what).hint("give the store that holds it by --db").into());
    }
    args.check_not_all(name)?;
    let held = Held { store: &view, name: place.to_owned(), cache_bytes };
    match args.span(last)? {
        Some(blocks) => many(args, name, (&held, States::Archive(&archive)), blocks, output),
        None => one(args, name, &held, output),
    }
}

/// A proof at many blocks.
fn many(
    args: &ProveArgs,
    name: Name,
    from: (&Held<'_, impl PageStore>, States<'_>),
    blocks: (u64, u64),
    output: &Output,
) -> anyhow::Result<Exit> {
    print(args, &span::prove(args, name, from, blocks, output)?.to_value(), output)
}

/// A proof at one block.
fn one(
    args: &ProveArgs,
    name: Name,
    held: &Held<'_, impl PageStore>,
    output: &Output,
) -> anyhow::Result<Exit> {
    match name {
        Name::Mpt => args.check_account(held)?,
        _ => {
            trees::record_of(&held.store.snapshot()?, name, &held.name)?;
        }
    }
    match (name, args.address) {
        (Name::Ubt(hash), _) => print(args, &prove_words(args, name, Ubt { hash }, held)?, output),
        (Name::Pbt(hash), _) => print(args, &prove_words(args, name, Pbt { hash }, held)?, output),
        (Name::Verkle, _) => print(args, &prove_words(args, name, Verkle::shared(), held)?, output),
        (_, Some(address)) => print(args, &prove_account(args, address, held)?, output),
        _ => match prove_keys(args, held)?.into_one() {
            Ok(one) => print(args, &one, output),
            Err(several) => print(args, &several, output),
        },
    }
}

/// Leaves of a sum tree.
fn leaves(
    args: &ProveArgs,
    profile: Profile,
    place: &Place,
    output: &Output,
) -> anyhow::Result<Exit> {
    let has_block = args.block.is_some() || args.from.is_some();
    if args.address.is_some() || args.hash_keys || has_block {
        let what =
            format!("a tree {} has neither addresses, hashed keys nor blocks", Name::Sum(profile));
        return Err(Failure::new(what).hint("give keys of 32 bytes, or --all").into());
    }
    let namespace = &args.namespace.namespace;
    match args.all {
        true => sums::prove_all(place, namespace, profile, args.out.as_deref(), output),
        false => sums::prove(place, namespace, profile, (&args.keys, args.verify), output),
    }
}

pub(super) fn print(
    args: &ProveArgs,
    document: &impl Serialize,
    output: &Output,
) -> anyhow::Result<Exit> {
    if args.verify {
        verify::holds(&serde_json::to_vec(document)?)?;
    }
    output.json(document)?;
    Ok(Exit::Ok)
}

fn prove_account(
    args: &ProveArgs,
    address: Address,
    held: &Held<'_, impl PageStore>,
) -> anyhow::Result<AccountDocument> {
    let state = State::open(SharedStore::new(held.store), held.cache_bytes)?;
    let slots = args.slots();
    let asked = args.number()?;
    let (root, proof) = match asked {
        Some(number) => {
            let kept = state.at(number)?;
            (kept.root(), kept.prove(address, &slots)?)
        }
        None => (state.root(), state.prove(address, &slots)?),
    };
    let block = asked.or_else(|| state.block().map(|block| block.number));
    Ok(AccountDocument::new(Name::Mpt.to_string(), root, block, proof))
}

fn prove_keys(args: &ProveArgs, held: &Held<'_, impl PageStore>) -> anyhow::Result<KeysDocument> {
    let snapshot = held.store.snapshot()?;
    let tree = Tree::open(Mpt, MPT, &snapshot, held.cache_bytes)?;
    check_block(args.number()?, tree.block())?;
    let hashed = |key: &Bytes| Bytes::from(keccak256(key).0);
    ProveArgs::check_once(&args.keys)?;
    let keys: Vec<_> =
        if args.hash_keys { args.keys.iter().map(hashed).collect() } else { args.keys.clone() };
    let proof = tree.prove(&snapshot, None, &keys)?;
    let value = |key: &Bytes| -> anyhow::Result<Option<Bytes>> {
        let value = tree.get(&snapshot, None, key)?;
        Ok(value.map(|value| Bytes::copy_from_slice(&value)))
    };
    let entries = keys.into_iter().map(|key| Ok((key.clone(), value(&key)?)));
    let entries = entries.collect::<anyhow::Result<_>>()?;
    let of = (Name::Mpt.to_string(), B256::from(tree.root()));
    Ok(KeysDocument::new(of, args.hash_keys.then(|| args.keys.clone()), entries, proof))
}

fn prove_words<S: Embedding + KeyProofs>(
    args: &ProveArgs,
    name: Name,
    scheme: S,
    held: &Held<'_, impl PageStore>,
) -> anyhow::Result<WordsDocument> {
    args.check_not_hashed(name)?;
    let state = BinaryState::open(scheme, SharedStore::new(held.store), held.cache_bytes)?;
    let kept = args.number()?.map_or_else(|| state.last(), |number| state.at(number))?;
    let account = args.asked();
    let keys = match &account {
        Some(asked) => {
            let keys = asked.keys(state.scheme(), |key| Ok::<_, anyhow::Error>(kept.leaf(key)?))?;
            let none = || {
                let address = asked.address;
                Failure::new(format!("account {address} is not there, and has no code (--chunk)"))
                    .hint("leave out --chunk")
            };
            keys.ok_or_else(none)?
        }
        None => args.raw_keys(),
    };
    ProveArgs::check_once(&keys).map_err(|failure| failure.hint(ONCE_HINT))?;
    let proof = kept.prove(&keys)?;
    let values = keys.iter().map(|key| Ok(kept.leaf(key)?.map(B256::from)));
    let values = values.collect::<anyhow::Result<_>>()?;
    Ok(WordsDocument {
        tree: name.to_string(),
        root: kept.root(),
        block: kept.block().map(|block| U64::from(block.number)),
        account,
        keys: keys.into_iter().map(Bytes::from).collect(),
        values,
        proof: proof.proof.into(),
    })
}

/// Refuses a block whose state is not that of the store: raw trees keep no history.
fn check_block(wanted: Option<u64>, head: Option<BlockId>) -> Result<(), Failure> {
    let Some(wanted) = wanted else { return Ok(()) };
    match head {
        Some(head) if head.number == wanted => Ok(()),
        Some(head) => {
            let hint = format!("leave out --block, or say --block {}", head.number);
            let what = format!(
                "the store keeps the state of block {}, and not that of block {wanted} (--block)",
                head.number
            );
            Err(Failure::new(what).hint(hint))
        }
        None => Err(Failure::new("the store keeps the state of no block (--block)")
            .hint("leave out --block: what the store holds is proven as it is")),
    }
}
