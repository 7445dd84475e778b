//! `db load`: a dump of leaves into a namespace without any, in bounded memory.

use std::io::{BufReader, Read};
use std::path::Path;

use alloy_primitives::B256;
use serde_json::json;
use spinney_replay::{DumpLineError, LeafLines};
use spinney_state::sum::{SumError, SumTree};
use spinney_store::AnyStore;
use spinney_tree::sum::{Leaf, Profile, SumNode};

use super::plain;
use crate::failure::Failure;
use crate::stores::{self, Place};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Output};

/// What was put in.
#[derive(Debug)]
struct Loaded {
    root: SumNode,
    leaves: u64,
}

/// Puts a dump into a namespace that has no leaves yet: all of it, or nothing, and then neither the
/// namespace nor the store stays if they were not there before. A file is looked at to its end
/// before anything is put into a store that is there.
pub(crate) fn load(
    place: &Place,
    namespace: &str,
    profile: Profile,
    file: &Path,
    output: &Output,
) -> anyhow::Result<Answer> {
    let refused = |error| refused(error, file);
    let dump: Leaves<'_> = Box::new(lines_of(file)?.map(|leaf| leaf.map_err(refused)));
    let (cache, quiet) = (place.tree_cache(), output.quiet());
    let fill = |store: &AnyStore| fill(store, namespace, profile, cache, dump, quiet);
    let (store, loaded) = if place.exists()? {
        // What is refused leaves a store that is there as it was. What comes through a pipe comes
        // once.
        if file.is_file() {
            lines_of(file)?.check().map_err(refused)?;
        }
        place.fill(output, fill)?
    } else {
        let mut loaded = None;
        let store = place.create(output, |store| {
            loaded = Some(fill(store)?);
            Ok(())
        })?;
        (store, loaded.expect("what made the store filled it"))
    };
    store.close()?;
    answer(namespace, &loaded)
}

fn fill(
    store: &AnyStore,
    namespace: &str,
    profile: Profile,
    cache_bytes: usize,
    dump: Leaves<'_>,
    quiet: bool,
) -> anyhow::Result<Loaded> {
    let mut dump = dump.peekable();
    if let Some(Err(refused)) = dump.next_if(Result::is_err) {
        return Err(refused);
    }
    let there = SumTree::open(store, namespace, cache_bytes).map_err(plain)?.is_some();
    let mut tree = SumTree::create(store, namespace, profile, cache_bytes).map_err(plain)?;
    if tree.root() != profile.empty_node(0) {
        let what = format!("namespace {namespace} has leaves already (--namespace)");
        return Err(Failure::new(what).hint("a dump is loaded into a namespace of its own").into());
    }
    let mut progress = Progress::new(quiet, "load", Unit::Keys, None);
    let mut leaves = 0;
    let counted = dump.inspect(|_| {
        leaves += 1;
        progress.update(leaves, || format!("leaf {leaves}"));
    });
    let built = tree.rebuild(counted);
    progress.finish();
    if let Err(error) = built {
        if !there {
            // The name was made for this; the first error says more.
            let _ = tree.remove();
        }
        return Err(match error.downcast::<SumError>() {
            Ok(error) => plain(error),
            Err(error) => error,
        });
    }
    Ok(Loaded { root: tree.root(), leaves })
}

/// The leaves of a file, in the order of the tree.
type Leaves<'f> = Box<dyn Iterator<Item = anyhow::Result<([u8; 32], Leaf)>> + 'f>;

fn lines_of(file: &Path) -> Result<LeafLines<BufReader<Box<dyn Read + Send>>>, Failure> {
    Ok(LeafLines::new(BufReader::with_capacity(1 << 18, stores::open_file(file)?)))
}

fn refused(error: DumpLineError, file: &Path) -> anyhow::Error {
    if let DumpLineError::Io(error) = error {
        return error.into();
    }
    Failure::new(format!("{error} ({})", file.display()))
        .hint(
            "the file is what spinney db dump writes of a sum tree; nothing was put in. \
             spinney root --tree sum takes leaves in any order",
        )
        .into()
}

fn answer(namespace: &str, Loaded { root, leaves }: &Loaded) -> anyhow::Result<Answer> {
    let (hash, sum) = (B256::from(root.hash), root.sum.to_string());
    let data = json!({ "namespace": namespace, "root": hash, "root_sum": sum, "entries": leaves });
    let line = format!("{leaves} leaves, root {hash}, sum {sum} ({namespace})");
    Ok(Answer::of(&data)?.row(&["namespace", "root", "root_sum", "entries"]).line(line))
}
