//! `db load`: a dump of leaves into a namespace without any, in bounded memory.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use alloy_primitives::B256;
use serde::Deserialize;
use serde_json::json;
use spinney_cli::sum_trace::Total;
use spinney_cli::trace::{Hex, Lines};
use spinney_state::sum::{SumError, SumTree};
use spinney_store::AnyStore;
use spinney_tree::sum::{Leaf, Profile, SumNode, path};

use super::plain;
use crate::failure::Failure;
use crate::stores::{self, Place};
use crate::ui::progress::{Progress, Unit};
use crate::ui::{Answer, Grid, Output};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeafLine {
    key: B256,
    value: Hex,
    sum: Total,
}

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
    let dump = Dump::open(file)?;
    let (cache, quiet) = (place.tree_cache(), output.quiet());
    let fill = |store: &AnyStore| fill(store, namespace, profile, cache, dump, quiet);
    let (store, loaded) = if place.exists()? {
        // What is refused leaves a store that is there as it was. What comes through a pipe comes
        // once.
        if file.is_file() {
            Dump::open(file)?.check()?;
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

fn fill<R: BufRead>(
    store: &AnyStore,
    namespace: &str,
    profile: Profile,
    cache_bytes: usize,
    dump: Dump<'_, R>,
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
struct Dump<'f, R> {
    file: &'f Path,
    lines: Lines<R>,
    last: Option<[u8; 32]>,
}

impl<R: BufRead> Iterator for Dump<'_, R> {
    type Item = anyhow::Result<([u8; 32], Leaf)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.leaf().transpose()
    }
}

impl<'f> Dump<'f, BufReader<Box<dyn Read + Send>>> {
    fn open(file: &'f Path) -> Result<Self, Failure> {
        let input = BufReader::with_capacity(1 << 18, stores::open_file(file)?);
        Ok(Self { file, lines: Lines::new(input), last: None })
    }
}

impl<R: BufRead> Dump<'_, R> {
    /// Reads to the end, and refuses what no tree would take.
    fn check(mut self) -> anyhow::Result<()> {
        let mut sum = 0_u64;
        while let Some((_, leaf)) = self.leaf()? {
            sum = sum.checked_add(leaf.sum).ok_or_else(|| {
                self.refuse("integer overflow: with its leaf the sums come to more than 2^64 - 1")
            })?;
        }
        Ok(())
    }

    fn leaf(&mut self) -> anyhow::Result<Option<([u8; 32], Leaf)>> {
        let line = self.lines.next_line()?.map(serde_json::from_slice::<LeafLine>).transpose();
        let line = line.map_err(|error| self.refuse(error.to_string()))?;
        let Some(LeafLine { key, value, sum }) = line else { return Ok(None) };
        let leaf = Leaf { value: value.0, sum: sum.0 };
        if leaf.is_empty() {
            return Err(self.refuse("its leaf is empty").into());
        }
        let at = path(&key);
        if self.last.is_some_and(|last| last >= at) {
            let what = "its key does not come after the one before, in the order of the tree";
            return Err(self.refuse(what).into());
        }
        self.last = Some(at);
        Ok(Some((key.0, leaf)))
    }

    fn refuse(&self, what: impl std::fmt::Display) -> Failure {
        let (number, file) = (self.lines.number(), self.file.display());
        Failure::new(format!("line {number}: {what} ({file})")).hint(
            "the file is what spinney db dump writes of a sum tree; nothing was put in. \
             spinney root --tree sum takes leaves in any order",
        )
    }
}

fn answer(namespace: &str, Loaded { root, leaves }: &Loaded) -> anyhow::Result<Answer> {
    let (hash, sum) = (B256::from(root.hash), root.sum.to_string());
    let data = json!({ "namespace": namespace, "root": hash, "root_sum": sum, "entries": leaves });
    let line = format!("{leaves} leaves, root {hash}, sum {sum} ({namespace})");
    let mut grid = Grid::new(&["namespace", "root", "root_sum", "entries"]);
    grid.row(vec![namespace.into(), hash.to_string(), sum, leaves.to_string()]);
    Ok(Answer::of(&data)?.csv(grid).line(line))
}
