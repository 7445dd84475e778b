//! `db dump`: everything a tree holds, streamed.

use std::io::Write;

use alloy_primitives::hex;
use serde_json::json;
use spinney_replay::{StateDumpError, StateDumpOptions, write_state_file};
use spinney_state::State;
use spinney_store::Frozen;
use spinney_tree::mpt::Mpt;
use spinney_tree::pbt::Pbt;
use spinney_tree::ubt::Ubt;
use spinney_tree::verkle::Verkle;
use spinney_tree::{PageStore, Scheme, SharedStore, Tree, TreeId};

use super::DumpArgs;
use crate::commands::sums::{self, NamespaceArgs};
use crate::failure::{Exit, Failure};
use crate::out_file::OutFile;
use crate::stores::Mode;
use crate::trees::{self, Name};
use crate::ui::{Answer, Output};

pub(super) fn run(args: &DumpArgs, output: &Output) -> anyhow::Result<Answer> {
    let place = args.at.place()?;
    let name = sums::asked(args.tree.as_deref(), &args.namespace, &place)?;
    NamespaceArgs::check(name)?;
    let id = match (name, name.id()) {
        (Name::Sum(profile), _) => {
            let (namespace, with) = (&args.namespace.namespace, (args.verify, args.out.as_deref()));
            sums::dump(&place, namespace, profile, with)?;
            return Ok(Answer::documents(Exit::Ok));
        }
        (_, id) => id.expect("all others have one"),
    };
    let store = place.open(Mode::Look)?;
    // All of the document is of one commit, whoever writes meanwhile.
    let store = Frozen::of(&store)?;
    let record = trees::record_of(&store.snapshot()?, name, &args.at.db)?;
    let held = trees::held(&store.snapshot()?)?;
    if held.len() > 1 {
        output.warn(format!("the store holds {held}, and the dump is of {name} alone"));
    }
    let mut out = OutFile::begin(args.out.as_deref())?;
    let cache = place.tree_cache();
    let with = (cache, args.verify);
    match name {
        Name::Mpt if record.scheme == Mpt.id() => entries(Mpt, id, &store, with, &mut out)?,
        Name::Mpt => state(args, &store, cache, &mut out)?,
        Name::Ubt(hash) => entries(Ubt { hash }, id, &store, with, &mut out)?,
        Name::Pbt(hash) => entries(Pbt { hash }, id, &store, with, &mut out)?,
        Name::Verkle => entries(Verkle::shared(), id, &store, with, &mut out)?,
        Name::Sum(_) => unreachable!("it was dumped above"),
    }
    out.finish()?;
    Ok(Answer::documents(Exit::Ok))
}

/// Keys and values as the tree has them.
fn entries<S: Scheme + Clone>(
    scheme: S,
    id: TreeId,
    store: &impl PageStore,
    (cache, verify): (usize, bool),
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let snapshot = store.snapshot()?;
    let tree = Tree::open(scheme, id, &snapshot, cache)?;
    if verify {
        tree.verify_entries(&snapshot, |_| ())?;
    }
    for entry in tree.entries(&snapshot, None, b"") {
        let entry = entry?;
        let (key, value) = (hex::encode_prefixed(&entry.key), hex::encode_prefixed(&*entry.value));
        writeln!(out, "{}", json!({ "key": key, "value": value }))?;
    }
    Ok(())
}

fn state(
    args: &DumpArgs,
    store: &impl PageStore,
    cache: usize,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let state = State::open(SharedStore::new(store), cache)?;
    let mut options = StateDumpOptions::default();
    (options.verify, options.cache_bytes) = (args.verify, cache);
    options.allow_missing_code = args.allow_missing_code;
    write_state_file(&state, options, out).map_err(|error| match error {
        StateDumpError::State(error) => error.into(),
        StateDumpError::Io(error) => error.into(),
        StateDumpError::Json(error) => error.into(),
        damaged => Failure::new(damaged.to_string())
            .hint("spinney db check looks at all of the store")
            .into(),
    })
}
