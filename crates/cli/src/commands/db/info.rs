//! `db info`.

use alloy_primitives::{B256, hex};
use serde::Serialize;
use serde_json::json;
use spinney_state::kept_range;
use spinney_state::sum::SumError;
use spinney_store::AnyStore;
use spinney_tree::mpt::Mpt;
use spinney_tree::names::{self, NamedTree};
use spinney_tree::pbt::Pbt;
use spinney_tree::sum::{Sum, SumNode};
use spinney_tree::ubt::Ubt;
use spinney_tree::{PageStore as _, RootRecord, Scheme as _, SchemeId, TreeId};

use crate::commands::sums;
use crate::commits;
use crate::trees;
use crate::ui::{Answer, Grid};

#[derive(Debug, Serialize)]
struct TreeInfo {
    id: u32,
    /// Its name: those of a state have none.
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
    fn of(id: TreeId, record: &RootRecord, names: &[NamedTree]) -> Self {
        let named = names.iter().find(|named| named.id == id);
        let sum = root_node(record.scheme, &record.root);
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

/// The root of a sum tree, taken apart.
fn root_node(scheme: SchemeId, root: &[u8]) -> Option<SumNode> {
    match trees::Name::of(scheme) {
        Some(trees::Name::Sum(_)) => <[u8; 40]>::try_from(root).ok().map(SumNode::from),
        _ => None,
    }
}

/// The root of a tree that holds nothing, as its record would have it.
fn empty_root(scheme: SchemeId) -> Vec<u8> {
    match trees::Name::of(scheme) {
        Some(trees::Name::Mpt) => Mpt.root(None).to_vec(),
        Some(trees::Name::Ubt(hash)) => Ubt { hash }.root(None).to_vec(),
        Some(trees::Name::Pbt(hash)) => Pbt { hash }.root(None).to_vec(),
        Some(trees::Name::Sum(profile)) => Sum { profile }.root(None).as_ref().to_vec(),
        // Its empty root takes no points.
        Some(trees::Name::Verkle) => vec![0; 32],
        None => Vec::new(),
    }
}

impl From<&NamedTree> for TreeInfo {
    /// Of a tree that has a name, and no commit yet.
    fn from(named: &NamedTree) -> Self {
        let scheme = named.scheme;
        let root = empty_root(scheme);
        let sum = root_node(scheme, &root);
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
            root: hex::encode_prefixed(sum.as_ref().map_or(&root[..], |node| &node.hash[..])),
            root_sum: sum.map(|node| node.sum.to_string()),
        }
    }
}

pub(super) fn run(store: &AnyStore) -> anyhow::Result<Answer> {
    let mut infos = Vec::new();
    let snapshot = store.snapshot()?;
    let names = names::list(&snapshot).map_err(SumError::from).map_err(sums::plain)?;
    for (id, record) in trees::records(&snapshot)? {
        infos.push(TreeInfo::of(id, &record?, &names));
    }
    let empty: Vec<_> =
        names.iter().filter(|named| infos.iter().all(|info| info.id != named.id.0)).collect();
    infos.extend(empty.into_iter().map(TreeInfo::from));
    infos.sort_by_key(|info| info.id);
    let kept = store.kept_commits()?;
    let mut data = json!({ "store": store.kind(), "trees": infos });
    let newest = trees::of_states(&snapshot)?.first().and_then(|(_, record)| record.block);
    let history = newest.map(|newest| kept_range(&snapshot, newest)).transpose()?;
    let history = history.map(|kept| (kept.oldest.number, kept.newest.number));
    if let Some((first, last)) = history {
        data["history"] = json!({ "first_block": first, "last_block": last });
    }
    if let Some(kept) = &kept {
        data["kept_commits"] = commits::told(kept);
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
    // Commits that are kept answer for more.
    let history = history.filter(|(first, last)| kept.is_none() || first < last);
    let history = history.map(|(first, last)| match first == last {
        true => format!("proofs: of block {last} alone (--keep-undo keeps more)"),
        false => format!("proofs: of blocks {first} to {last}"),
    });
    let kept = kept.map(|kept| format!("kept: {}", commits::described(&kept)));
    Ok(Answer::of(&data)?.grid(grid).lines(history).lines(kept))
}
