//! `db dump` and `db load`: the leaves of a namespace, one a line, in the order of the tree.

use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;

use alloy_primitives::{B256, hex};
use serde::Deserialize;
use serde_json::json;
use spinney_cli::trace::{Hex, Lines};
use spinney_state::sum::{SumBatch, SumError, SumTree};
use spinney_store::Frozen;
use spinney_tree::sum::{Leaf, Profile};

use super::line::Total;
use super::{open, plain};
use crate::failure::{Exit, Failure};
use crate::output::{Format, Grid, Output};
use crate::stores::{self, Mode, Place};

pub(crate) fn dump(place: &Place, namespace: &str, profile: Profile) -> anyhow::Result<Exit> {
    let store = place.open(Mode::Look)?;
    let store = Frozen::of(&store)?;
    let tree = open(&store, namespace, profile, place.tree_cache())?;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let written = tree.visit(|key, leaf| {
        let (key, value) = (hex::encode_prefixed(key), hex::encode_prefixed(&leaf.value));
        let sum = leaf.sum.to_string();
        writeln!(out, r#"{{"key":"{key}","value":"{value}","sum":"{sum}"}}"#)?;
        Ok::<_, SumError>(true)
    });
    written.map_err(plain)?;
    out.flush()?;
    Ok(Exit::Ok)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: B256,
    value: Hex,
    sum: Total,
}

/// Puts a dump into a namespace that has no leaves yet, all of it or nothing.
pub(crate) fn load(
    place: &Place,
    namespace: &str,
    profile: Profile,
    file: &Path,
    output: &Output,
) -> anyhow::Result<Exit> {
    let mut lines = Lines::new(BufReader::with_capacity(1 << 18, stores::open_file(file)?));
    let mut batch = SumBatch::new();
    loop {
        let line = lines.next_line()?.map(serde_json::from_slice::<Line>).transpose();
        let number = lines.number();
        let refuse = |what: String| {
            let hint = "the file is what spinney db dump writes of a sum tree; nothing was put in";
            Failure::new(format!("line {number}: {what} ({})", file.display())).hint(hint)
        };
        let Some(line) = line.map_err(|error| refuse(error.to_string()))? else { break };
        let leaf = Leaf { value: line.value.0, sum: line.sum.0 };
        if leaf.is_empty() {
            return Err(refuse("its leaf is empty".into()).into());
        }
        batch.put(&line.key, &leaf);
    }
    let entries = batch.len();
    let store = place.open(Mode::Fill)?;
    let mut tree =
        SumTree::create(&store, namespace, profile, place.tree_cache()).map_err(plain)?;
    if tree.root() != profile.empty_node(0) {
        let what = format!("namespace {namespace} has leaves already (--namespace)");
        return Err(Failure::new(what).hint("a dump is loaded into a namespace of its own").into());
    }
    tree.apply(&mut batch).map_err(plain)?;
    let root = tree.root();
    drop(tree);
    store.close()?;
    let (hash, sum) = (B256::from(root.hash), root.sum.to_string());
    match output.format() {
        Format::Json => {
            let data = json!({ "namespace": namespace, "root": hash, "root_sum": sum, "entries": entries });
            output.envelope(&data, &[])?;
        }
        Format::Csv => {
            let mut grid = Grid::new(&["namespace", "root", "root_sum", "entries"]);
            grid.row(vec![namespace.into(), hash.to_string(), sum, entries.to_string()]);
            output.grid(&grid)?;
        }
        Format::Table => {
            output.line(&format!("{entries} leaves, root {hash}, sum {sum} ({namespace})"))?;
        }
    }
    Ok(Exit::Ok)
}
