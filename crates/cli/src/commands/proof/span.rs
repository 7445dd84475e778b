//! Proofs over time, made of a store's blocks or an archive's.

use std::collections::BTreeMap;

use alloy_primitives::B256;
use spinney_archive::{Archive, AtBlock};
use spinney_document::{SpanClaim, SpanDocument};
use spinney_proof::span::{AccountSpanWriter, KeysSpanWriter};
use spinney_state::State;
use spinney_state::embed::{BinaryState, Embedding, KeptTree};
use spinney_tree::binary::proof::KeysProof;
use spinney_tree::mpt::proof::AccountProof;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{KeyProofs, PageStore, SharedStore};

use super::args::{Held, ONCE_HINT, ProveArgs};
use crate::commands::archive;
use crate::commits::Commits;
use crate::failure::Failure;
use crate::trees::{self, Name};
use crate::ui::Output;
use crate::ui::progress::{Progress, Unit};

/// Where the state of each block comes from.
#[derive(Clone, Copy)]
pub(super) enum States<'a> {
    /// The history of a store, and the commits that it keeps.
    Store(&'a Commits<'a>),
    Archive(&'a Archive),
}

fn of_archive(archive: &Archive, number: u64) -> anyhow::Result<AtBlock> {
    archive.at(number).map_err(archive::failure)
}

/// Makes one proof of blocks from the first to the last. What the keys are, the state of `from`
/// says: that of a store, or of the first block.
pub(super) fn prove(
    args: &ProveArgs,
    name: Name,
    from: (&Held<'_, impl PageStore>, States<'_>),
    blocks: (u64, u64),
    output: &Output,
) -> anyhow::Result<SpanDocument> {
    let claim = match name {
        Name::Mpt => prove_account(args, from, blocks, output)?,
        Name::Ubt(hash) => prove_keys(args, name, Ubt { hash }, from, blocks, output)?,
        Name::Pbt(hash) => prove_keys(args, name, Pbt { hash }, from, blocks, output)?,
        Name::Verkle => prove_keys(args, name, Verkle::shared(), from, blocks, output)?,
        Name::Sum(_) => return Err(Failure::new(format!("a tree {name} has no blocks")).into()),
    };
    Ok(SpanDocument { tree: name.to_string(), claim })
}

fn prove_account<P: PageStore>(
    args: &ProveArgs,
    (held, source): (&Held<'_, P>, States<'_>),
    (first, last): (u64, u64),
    output: &Output,
) -> anyhow::Result<SpanClaim> {
    args.check_account(held)?;
    let Some(address) = args.address else {
        return Err(Failure::new("a store keeps no history of raw keys (--from)")
            .hint("give --address, and --slot; or leave out --from")
            .into());
    };
    let (slots, mut open) = (args.slots(), None);
    let mut at = |number| -> anyhow::Result<AccountProof> {
        match source {
            States::Store(commits) => {
                let make = |commit| Ok(State::open(SharedStore::new(commit), held.cache_bytes)?);
                let state = commits.open_at(number, &mut open, make)?;
                Ok(state.at(number)?.prove(address, &slots)?)
            }
            States::Archive(archive) => {
                let state =
                    State::open(SharedStore::new(of_archive(archive, number)?), held.cache_bytes)?;
                Ok(state.prove(address, &slots)?)
            }
        }
    };
    let mut writer = AccountSpanWriter::new(first, &at(first)?);
    each(first, last, output, |number| Ok(writer.push(&at(number)?)?))?;
    Ok(SpanClaim::Account(Box::new(writer.finish())))
}

fn prove_keys<S: Embedding + KeyProofs + Clone, P: PageStore>(
    args: &ProveArgs,
    name: Name,
    scheme: S,
    (held, source): (&Held<'_, P>, States<'_>),
    (first, last): (u64, u64),
    output: &Output,
) -> anyhow::Result<SpanClaim> {
    args.check_not_hashed(name)?;
    trees::record_of(&held.store.snapshot()?, name, &held.name)?;
    let account = args.asked();
    let keys = match &account {
        Some(asked) => asked.keys_at_any_block(&scheme),
        None => args.raw_keys(),
    };
    ProveArgs::check_once(&keys).map_err(|failure| failure.hint(ONCE_HINT))?;
    let mut open = None;
    let mut at = |number| -> anyhow::Result<(B256, KeysProof)> {
        match source {
            States::Store(commits) => {
                let make = |commit| {
                    let store = SharedStore::new(commit);
                    Ok(BinaryState::open(scheme.clone(), store, held.cache_bytes)?)
                };
                let state = commits.open_at(number, &mut open, make)?;
                of_kept(&state.at(number)?, &keys)
            }
            States::Archive(archive) => {
                let view = SharedStore::new(of_archive(archive, number)?);
                let state = BinaryState::open(scheme.clone(), view, held.cache_bytes)?;
                of_kept(&state.last()?, &keys)
            }
        }
    };
    let (root, proof) = at(first)?;
    let mut writer = KeysSpanWriter::new(first, &root.0, &proof);
    each(first, last, output, |number| {
        let (root, proof) = at(number)?;
        Ok(writer.push(&root.0, &proof)?)
    })?;
    Ok(SpanClaim::Keys { account, span: writer.finish() })
}

fn of_kept<S: Embedding + KeyProofs, P: PageStore>(
    kept: &KeptTree<'_, S, P>,
    keys: &[Vec<u8>],
) -> anyhow::Result<(B256, KeysProof)> {
    let mut proof = kept.prove(keys)?;
    // They come in order of keys.
    let values: BTreeMap<_, _> = proof.entries.into_iter().collect();
    let entry = |key: &Vec<u8>| (key.clone(), values.get(key).copied().flatten());
    proof.entries = keys.iter().map(entry).collect();
    Ok((kept.root(), proof))
}

/// Goes on with the blocks behind the first one.
fn each(
    first: u64,
    last: u64,
    output: &Output,
    mut add: impl FnMut(u64) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut progress =
        Progress::new(output.quiet(), "prove", Unit::Blocks, Some(last.saturating_sub(first)));
    for (done, number) in (1..).zip(first.saturating_add(1)..=last) {
        add(number)?;
        progress.update(done, || format!("block {number}"));
    }
    progress.finish();
    Ok(())
}
