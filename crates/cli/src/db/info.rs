//! `db info`.

use alloy_primitives::{B256, hex};
use serde::Serialize;
use serde_json::json;
use spinney_state::sum::{Namespace, namespaces};
use spinney_store::AnyStore;
use spinney_tree::sum::{Sum, SumNode};
use spinney_tree::{PageStore as _, RootRecord, Scheme as _, TreeId};

use crate::failure::Exit;
use crate::output::{Format, Grid, Output};
use crate::{sums, trees};

#[derive(Debug, Serialize)]
struct TreeInfo {
    id: u32,
    /// Of a sum tree.
    namespace: Option<String>,
    tree: String,
    keys: &'static str,
    version: u16,
    generation: u32,
    commit: u64,
    block: Option<u64>,
    block_hash: Option<B256>,
    root: String,
    /// Of a sum tree, a decimal number: not all that read JSON keep 64 bits.
    root_sum: Option<String>,
}

impl TreeInfo {
    fn of(id: TreeId, record: &RootRecord, names: &[Namespace]) -> Self {
        let named = names.iter().find(|named| named.id == id);
        let sum = match trees::Name::of(record.scheme) {
            Some(trees::Name::Sum(_)) => {
                <[u8; 40]>::try_from(&record.root[..]).ok().map(SumNode::from)
            }
            _ => None,
        };
        let root = sum.as_ref().map_or(&record.root[..], |node| &node.hash[..]);
        Self {
            id: id.0,
            namespace: named.map(|named| named.name.clone()),
            tree: trees::name_of(record.scheme),
            keys: trees::keys_of(record.scheme),
            version: record.version,
            generation: record.generation,
            commit: record.commit,
            block: record.block.map(|block| block.number),
            // State differences name no hash; zeros stand for it.
            block_hash: record.block.map(|b| B256::from(b.hash)).filter(|hash| !hash.is_zero()),
            root: hex::encode_prefixed(root),
            root_sum: sum.map(|node| node.sum.to_string()),
        }
    }
}

impl From<&Namespace> for TreeInfo {
    /// Of a tree that has a name, and no commit yet.
    fn from(named: &Namespace) -> Self {
        let (scheme, empty) = (Sum { profile: named.profile }.id(), named.profile.empty_node(0));
        Self {
            id: named.id.0,
            namespace: Some(named.name.clone()),
            tree: trees::name_of(scheme),
            keys: trees::keys_of(scheme),
            version: 1,
            generation: 0,
            commit: 0,
            block: None,
            block_hash: None,
            root: hex::encode_prefixed(empty.hash),
            root_sum: Some(empty.sum.to_string()),
        }
    }
}

pub(super) fn run(store: &AnyStore, output: &Output) -> anyhow::Result<Exit> {
    let mut infos = Vec::new();
    let snapshot = store.snapshot()?;
    let names = namespaces(&snapshot).map_err(sums::plain)?;
    for (id, record) in super::records(&snapshot)? {
        infos.push(TreeInfo::of(id, &record?, &names));
    }
    let empty: Vec<_> =
        names.iter().filter(|named| infos.iter().all(|info| info.id != named.id.0)).collect();
    infos.extend(empty.into_iter().map(TreeInfo::from));
    infos.sort_by_key(|info| info.id);
    if output.format() == Format::Json {
        output.envelope(&json!({ "store": store.kind(), "trees": infos }), &[])?;
        return Ok(Exit::Ok);
    }
    let mut grid = Grid::new(&[
        "id",
        "namespace",
        "tree",
        "keys",
        "version",
        "generation",
        "commit",
        "block",
        "block hash",
        "root",
        "sum",
    ]);
    for info in infos {
        grid.row(vec![
            info.id.to_string(),
            info.namespace.unwrap_or_default(),
            info.tree,
            info.keys.to_owned(),
            info.version.to_string(),
            info.generation.to_string(),
            info.commit.to_string(),
            info.block.map(|block| block.to_string()).unwrap_or_default(),
            info.block_hash.map(|hash| hash.to_string()).unwrap_or_default(),
            info.root,
            info.root_sum.unwrap_or_default(),
        ]);
    }
    output.grid(&grid)?;
    Ok(Exit::Ok)
}
